// The inline PTX of wgmma.mma_async for each N; common/ptx/wgmma.h is where to read.
//
// Inline assembly names every register by its number, so each N has a text of its own. Operands 0
// on are the N / 2 accumulators. Then come A (a descriptor, or four registers), B's descriptor,
// `accumulate`, which is scale-d, the major dimensions of A (of a descriptor alone) and B, and the
// element type's name. A preprocessor cannot add, so the numbers of those operands stand behind N.
// clang-format off
#pragma once

#include <cstdint>

namespace ptx {

template <int kColumns>
struct WgmmaInstruction;

// The names of the ten operands whose numbers begin with these digits, and of all accumulators.
#define FA_TEN(digits)                                                     \
  "%" digits "0, %" digits "1, %" digits "2, %" digits "3, %" digits "4, " \
  "%" digits "5, %" digits "6, %" digits "7, %" digits "8, %" digits "9"
#define FA_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FA_NAMES_64 FA_TEN("") ", " FA_TEN("1") ", " FA_TEN("2") ", %30, %31"
#define FA_NAMES_80 FA_TEN("") ", " FA_TEN("1") ", " FA_TEN("2") ", " FA_TEN("3")
#define FA_NAMES_128 FA_NAMES_80 ", " FA_TEN("4") ", " FA_TEN("5") ", %60, %61, %62, %63"
#define FA_NAMES_256                                                                   \
  FA_NAMES_80 ", " FA_TEN("4") ", " FA_TEN("5") ", " FA_TEN("6") ", " FA_TEN("7") ", " \
  FA_TEN("8") ", " FA_TEN("9") ", " FA_TEN("10") ", " FA_TEN("11") ", "                \
  "%120, %121, %122, %123, %124, %125, %126, %127"

// The accumulators as operands.
#define FA_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define FA_8(i) FA_4(i), FA_4(i + 4)
#define FA_32(i) FA_8(i), FA_8(i + 8), FA_8(i + 16), FA_8(i + 24)
#define FA_ACCUMULATORS_16 FA_8(0)
#define FA_ACCUMULATORS_64 FA_32(0)
#define FA_ACCUMULATORS_80 FA_32(0), FA_8(32)
#define FA_ACCUMULATORS_128 FA_32(0), FA_32(32)
#define FA_ACCUMULATORS_256 FA_ACCUMULATORS_128, FA_32(64), FA_32(96)

#define FA_WGMMA(n, i0, i1, i2, i3, i4, i5, i6, i7)                                            \
  template <>                                                                                  \
  struct WgmmaInstruction<n> {                                                                 \
    template <typename Element, int kMajorA, int kMajorB>                                      \
    static __device__ __forceinline__ void multiply_shared(                                    \
        float (&d)[n / 2], uint64_t a, uint64_t b, int accumulate) {                           \
      asm volatile(                                                                            \
          "{\n"                                                                                \
          ".reg .pred p;\n"                                                                    \
          "setp.ne.b32 p, %" #i2 ", 0;\n"                                                      \
          "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.%" #i5 ".%" #i5 " {"                 \
          FA_NAMES_##n "}, %" #i0 ", %" #i1 ", p, 1, 1, %" #i3 ", %" #i4 ";\n"                 \
          "}\n"                                                                                \
          : FA_ACCUMULATORS_##n                                                                \
          : "l"(a), "l"(b), "r"(accumulate), "n"(kMajorA), "n"(kMajorB), "C"(Element::kName)); \
    }                                                                                          \
                                                                                               \
    template <typename Element, int kMajorB>                                                   \
    static __device__ __forceinline__ void multiply_registers(                                 \
        float (&d)[n / 2], const uint32_t (&a)[4], uint64_t b, int accumulate) {               \
      asm volatile(                                                                            \
          "{\n"                                                                                \
          ".reg .pred p;\n"                                                                    \
          "setp.ne.b32 p, %" #i5 ", 0;\n"                                                      \
          "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.%" #i7 ".%" #i7 " {"                 \
          FA_NAMES_##n "}, {%" #i0 ", %" #i1 ", %" #i2 ", %" #i3 "}, "                         \
          "%" #i4 ", p, 1, 1, %" #i6 ";\n"                                                     \
          "}\n"                                                                                \
          : FA_ACCUMULATORS_##n                                                                \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),               \
            "n"(kMajorB), "C"(Element::kName));                                                \
    }                                                                                          \
  };

FA_WGMMA(16, 8, 9, 10, 11, 12, 13, 14, 15)             // examples/one_wgmma.cu
FA_WGMMA(64, 32, 33, 34, 35, 36, 37, 38, 39)           // the kernels
FA_WGMMA(80, 40, 41, 42, 43, 44, 45, 46, 47)           // an exercise of chapter 13
FA_WGMMA(128, 64, 65, 66, 67, 68, 69, 70, 71)          // the kernels
FA_WGMMA(256, 128, 129, 130, 131, 132, 133, 134, 135)  // bench/gemm

}  // namespace ptx
