// What the four lanes of a quad have in common: the rows of an accumulator
// (common/layout/fragments.h). Each holds 2 of every 8 columns, so that two exchanges give all four
// lanes the maximum or the sum of a row. Kernels 05 to 10 have them in their own files; chapter 05
// explains them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace layout {

// The greatest `value` of the quad's four lanes. All 32 lanes of the warp take part.
#ifdef __CUDACC__
__device__ __forceinline__ float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

// Their sum.
__device__ __forceinline__ float quad_sum(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

// Lane i of the quad gets element i of all four lanes, in their order.
__device__ __forceinline__ void quad_transpose(uint32_t (&elements)[4]) {
#pragma unroll
  for (int apart = 1; apart <= 2; apart *= 2) {  // swaps within squares of 2 x 2, then the squares
    const bool later = (threadIdx.x & apart) != 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      uint32_t &a = elements[apart == 1 ? 2 * i : i], &b = elements[apart == 1 ? 2 * i + 1 : i + 2];
      const uint32_t other = __shfl_xor_sync(0xffffffffu, later ? a : b, apart);
      a = later ? other : a;
      b = later ? b : other;
    }
  }
}

#else  // the emulator: the same, which names the caller's line in what it reports

inline float quad_max(float value, emu::SourceLocation where = emu::SourceLocation::current()) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1, 32, where));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2, 32, where));
}
inline float quad_sum(float value, emu::SourceLocation where = emu::SourceLocation::current()) {
  value += __shfl_xor_sync(0xffffffffu, value, 1, 32, where);
  return value + __shfl_xor_sync(0xffffffffu, value, 2, 32, where);
}
inline void quad_transpose(uint32_t (&elements)[4],
                           emu::SourceLocation where = emu::SourceLocation::current()) {
  for (unsigned apart = 1; apart <= 2; apart *= 2) {
    const bool later = (threadIdx.x & apart) != 0;
    for (int i = 0; i < 2; i++) {
      uint32_t &a = elements[apart == 1 ? 2 * i : i], &b = elements[apart == 1 ? 2 * i + 1 : i + 2];
      const uint32_t other = __shfl_xor_sync(0xffffffffu, later ? a : b, int(apart), 32, where);
      a = later ? other : a;
      b = later ? b : other;
    }
  }
}

#endif

}  // namespace layout
