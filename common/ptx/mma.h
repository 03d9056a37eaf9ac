// mma.sync: D = A B + D on the Tensor Cores, a warp together; 16-bit operands, fp32 sums.
// PTX ISA, "Warp-level matrix multiply-accumulate instruction: mma" (m16n8k8 of fp16: sm_75;
// of bf16, and m16n8k16: sm_80).
//
//   d: 4 floats       16 x 8      C/D fragment    (which lane holds which element:
//   a: 4 (2) registers 16 x k     A fragment       common/layout/fragments.h)
//   b: 2 (1) registers  k x 8     B fragment
//
// T: __half or __nv_bfloat16.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "common/ptx/hook.h"
#ifndef __CUDACC__
#include "common/emulator/units/matrix.h"
#endif

namespace ptx {

#ifdef __CUDACC__

template <typename T>
__device__ __forceinline__ void mma_m16n8k8(float (&d)[4], const uint32_t (&a)[2],
                                            const uint32_t (&b)[1]) {
  if constexpr (std::is_same_v<T, __half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, "
        "%1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b[0]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, "
        "%1, %2, "
        "%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b[0]));
  }
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800

// sm_75 takes the halves of k one after the other: the first half is in registers 0 and 1 of A and
// in register 0 of B. Its Tensor Cores have no bf16, and no kernel is launched with it there (Needs
// in common/launch/registry.h); if one were, it would end here.
template <typename T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2]) {
  if constexpr (std::is_same_v<T, __half>) {
    mma_m16n8k8<T>(d, {a[0], a[1]}, {b[0]});
    mma_m16n8k8<T>(d, {a[2], a[3]}, {b[1]});
  } else {
    __trap();
  }
}

#else

template <typename T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2]) {
  if constexpr (std::is_same_v<T, __half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    // [mma]
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    // [/mma]
  }
}

#endif

#else  // the emulator: common/emulator/units/matrix.cpp

template <typename T>
inline void mma_m16n8k8(float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[1],
                        Where where = Where::current()) {
  emu::multiply_accumulate(
      d, a, b, 8, std::is_same_v<T, __half> ? emu::Element::kFp16 : emu::Element::kBf16, where);
}

template <typename T>
inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                         Where where = Where::current()) {
#if defined(FA_ARCHITECTURE) && FA_ARCHITECTURE < 80  // as above
  mma_m16n8k8<T>(d, {a[0], a[1]}, {b[0]}, where);
  mma_m16n8k8<T>(d, {a[2], a[3]}, {b[1]}, where);
#else
  emu::multiply_accumulate(
      d, a, b, 16, std::is_same_v<T, __half> ? emu::Element::kFp16 : emu::Element::kBf16, where);
#endif
}

#endif

}  // namespace ptx
