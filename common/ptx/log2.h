// lg2.approx and rcp.approx: log2(x) and 1/x by the special-function unit (MUFU.LG2, MUFU.RCP).
// PTX ISA, "Floating Point Instructions: lg2", "rcp": the logarithm's error is at most 2^-22,
// absolute from 0.5 to 2 and relative elsewhere; the reciprocal's at most 2^-23, relative. .ftz:
// subnormal inputs and results become zero. The emulator rounds to nearest instead.
#pragma once

#include <cuda_runtime.h>
#ifndef __CUDACC__
#include <cmath>

#include "common/emulator/core/noting_nan.h"
#endif

namespace ptx {

#ifdef __CUDACC__

__device__ __forceinline__ float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#else

inline float log2_approx(float x) { return emu::noting_nan("log2", x, std::log2(x)); }
inline float rcp_approx(float x) { return 1.0f / x; }

#endif

}  // namespace ptx
