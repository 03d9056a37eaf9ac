// The inline PTX of wgmma.mma_async of FP8 for each N; common/ptx/wgmma_fp8.h is where to read.
//
// As in common/ptx/wgmma_instructions.h: operands 0 on are the N / 2 accumulators. Then come A (a
// descriptor, or four registers), B's descriptor, `accumulate`, which is scale-d, and the names of
// A's and B's element types. There are no major dimensions: both operands are K-major.
// clang-format off
#pragma once

#include <cstdint>

#include "common/ptx/wgmma_instructions.h"

namespace ptx {

template <int kColumns>
struct WgmmaFp8Instruction;

// The names of all accumulators, and the accumulators as operands, where those of 16 bits have no
// such N.
#define FA_NAMES_72 FA_TEN("") ", " FA_TEN("1") ", " FA_TEN("2") ", %30, %31, %32, %33, %34, %35"
#define FA_NAMES_136 \
  FA_NAMES_80 ", " FA_TEN("4") ", " FA_TEN("5") ", %60, %61, %62, %63, %64, %65, %66, %67"
#define FA_ACCUMULATORS_72 FA_32(0), FA_4(32)
#define FA_ACCUMULATORS_136 FA_ACCUMULATORS_128, FA_4(64)

#define FA_WGMMA_FP8(n, i0, i1, i2, i3, i4, i5, i6, i7)                                        \
  template <>                                                                                  \
  struct WgmmaFp8Instruction<n> {                                                              \
    template <typename ElementA, typename ElementB>                                            \
    static __device__ __forceinline__ void multiply_shared(                                    \
        float (&d)[n / 2], uint64_t a, uint64_t b, int accumulate) {                           \
      asm volatile(                                                                            \
          "{\n"                                                                                \
          ".reg .pred p;\n"                                                                    \
          "setp.ne.b32 p, %" #i2 ", 0;\n"                                                      \
          "wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.%" #i3 ".%" #i4 " {"                 \
          FA_NAMES_##n "}, %" #i0 ", %" #i1 ", p, 1, 1;\n"                                     \
          "}\n"                                                                                \
          : FA_ACCUMULATORS_##n                                                                \
          : "l"(a), "l"(b), "r"(accumulate), "C"(ElementA::kName), "C"(ElementB::kName));      \
    }                                                                                          \
                                                                                               \
    template <typename ElementA, typename ElementB>                                            \
    static __device__ __forceinline__ void multiply_registers(                                 \
        float (&d)[n / 2], const uint32_t (&a)[4], uint64_t b, int accumulate) {               \
      asm volatile(                                                                            \
          "{\n"                                                                                \
          ".reg .pred p;\n"                                                                    \
          "setp.ne.b32 p, %" #i5 ", 0;\n"                                                      \
          "wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.%" #i6 ".%" #i7 " {"                 \
          FA_NAMES_##n "}, {%" #i0 ", %" #i1 ", %" #i2 ", %" #i3 "}, %" #i4 ", p, 1, 1;\n"     \
          "}\n"                                                                                \
          : FA_ACCUMULATORS_##n                                                                \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),               \
            "C"(ElementA::kName), "C"(ElementB::kName));                                       \
    }                                                                                          \
  };

FA_WGMMA_FP8(64, 32, 33, 34, 35, 36, 37, 38, 39)
FA_WGMMA_FP8(72, 36, 37, 38, 39, 40, 41, 42, 43)      // 64 and eight columns of ones: a row's sum
FA_WGMMA_FP8(128, 64, 65, 66, 67, 68, 69, 70, 71)
FA_WGMMA_FP8(136, 68, 69, 70, 71, 72, 73, 74, 75)     // 128 and eight columns of ones
FA_WGMMA_FP8(256, 128, 129, 130, 131, 132, 133, 134, 135)

}  // namespace ptx
