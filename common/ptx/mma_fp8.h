// mma.sync of FP8: D = A B + D, a warp together, fp32 sums. PTX ISA, "Warp-level matrix
// multiply-accumulate instruction: mma" (m16n8k32: sm_89).
//
//   d: 4 floats       16 x 8     row  l/4 + 8 (i / 2)    column  2 (l % 4) + i % 2         l: lane
//   a: 4 registers    16 x 32    row  l/4 + 8 (i % 2)    k       4 (l % 4) + 16 (i / 2) + 0 .. 3
//   b: 2 registers    32 x 8     column  l/4             k       4 (l % 4) + 16 i + 0 .. 3
//
// A register has four neighbours in k, the first in the lowest byte. T: __nv_fp8_e4m3 or
// __nv_fp8_e5m2, of A; TB of B.
//
// On compute capability 8.9 it is one instruction, whose sums have 14 bits as those of
// common/ptx/wgmma_fp8.h. On 9.0 there is none: ptxas converts to fp16, multiplies by two m16n8k16
// and adds, with the bits of a float and at half the speed. The emulator's bits are those of 9.0.
#pragma once

#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "common/ptx/hook.h"
#ifndef __CUDACC__
#include "common/emulator/units/matrix.h"
#endif

namespace ptx {

#ifdef __CUDACC__

#define FA_MMA_FP8(of_a, of_b)                                                        \
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32." of_a "." of_b                 \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

template <typename T, typename TB = T>
__device__ __forceinline__ void mma_m16n8k32(float (&d)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2]) {
  constexpr bool kE4m3 = std::is_same_v<T, __nv_fp8_e4m3>,
                 kE4m3B = std::is_same_v<TB, __nv_fp8_e4m3>;
  if constexpr (kE4m3 && kE4m3B) FA_MMA_FP8("e4m3", "e4m3");
  if constexpr (kE4m3 && !kE4m3B) FA_MMA_FP8("e4m3", "e5m2");
  if constexpr (!kE4m3 && kE4m3B) FA_MMA_FP8("e5m2", "e4m3");
  if constexpr (!kE4m3 && !kE4m3B) FA_MMA_FP8("e5m2", "e5m2");
}

#undef FA_MMA_FP8

#else  // the emulator: common/emulator/units/matrix.cpp

template <typename T, typename TB = T>
inline void mma_m16n8k32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                         Where where = Where::current()) {
  constexpr auto kElement = [](bool e4m3) {
    return e4m3 ? emu::Element::kE4m3 : emu::Element::kE5m2;
  };
  emu::multiply_accumulate_fp8(d, a, b, kElement(std::is_same_v<T, __nv_fp8_e4m3>),
                               kElement(std::is_same_v<TB, __nv_fp8_e4m3>), where);
}

#endif

}  // namespace ptx
