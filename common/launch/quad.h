// What the four lanes of a quad have in common: the rows of an accumulator
// (common/layout/fragments.h). Each holds 2 of every 8 columns, so that two exchanges give all four
// lanes the maximum or the sum of a row. Kernels 05 to 10 have them in their own files; chapter 05
// explains them.
#pragma once

#include <cuda_runtime.h>

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

#else  // the emulator: the same, which names the caller's line in what it reports

inline float quad_max(float value, emu::SourceLocation where = emu::SourceLocation::current()) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1, 32, where));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2, 32, where));
}
inline float quad_sum(float value, emu::SourceLocation where = emu::SourceLocation::current()) {
  value += __shfl_xor_sync(0xffffffffu, value, 1, 32, where);
  return value + __shfl_xor_sync(0xffffffffu, value, 2, 32, where);
}

#endif

}  // namespace layout
