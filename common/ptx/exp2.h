// ex2.approx: 2^x by the special-function unit (MUFU.EX2), 16 results a clock and SM on sm_80 and
// sm_90. PTX ISA, "Floating Point Instructions: ex2": relative error at most 2^-22; .ftz: subnormal
// inputs and results become zero. Without .ftz the compiler adds a comparison and two
// multiplications. On an H200 the error is at most 2^-22.7 and results for whole x are exact
// (common/emulator/tests/golden/ex2_all_h200.txt).
#pragma once

#include <cuda_runtime.h>

#include "common/ptx/hook.h"
#ifndef __CUDACC__
#include "common/emulator/units/warp.h"
#endif

namespace ptx {

#ifdef __CUDACC__

// [exp2]
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// [/exp2]

#else

inline float exp2_approx(float x, Where where = Where::current()) {
  return emu::exp2_approx(x, where);
}

#endif

}  // namespace ptx
