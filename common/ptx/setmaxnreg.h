// setmaxnreg: hands registers from warps that need few to warps that need many. PTX ISA,
// "Miscellaneous Instructions: setmaxnreg" (sm_90a).
//
// A CTA gets 65536 / threads registers per thread, rounded down to a multiple of 8, for all its
// threads alike. setmaxnreg_dec gives those above kRegisters back to the CTA's pool, setmaxnreg_inc
// waits until the pool has what it needs for kRegisters. All warps of a warpgroup execute it,
// kRegisters is a multiple of 8 from 24 to 256. With 384 threads each has 168: two consumer
// warpgroups can have 240 once the producer's has come down to 24, for 2 * (240 - 168) = 168 - 24.
//
// ptxas must know the launch's registers, or it leaves the instruction out with a warning (C7508):
// the kernel has __launch_bounds__(threads, 1).
#pragma once

#include <cuda_runtime.h>

#include "common/ptx/hook.h"
#ifndef __CUDACC__
#include "common/emulator/units/setmaxnreg.h"
#endif

namespace ptx {

#ifdef __CUDACC__

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// [setmaxnreg-dec]
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
// [/setmaxnreg-dec]
#endif

#else  // the emulator: common/emulator/units/setmaxnreg.cpp

template <int kRegisters>
inline void setmaxnreg_inc(Where where = Where::current()) {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  emu::set_max_registers(kRegisters, true, where);
}

template <int kRegisters>
inline void setmaxnreg_dec(Where where = Where::current()) {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  emu::set_max_registers(kRegisters, false, where);
}

#endif

}  // namespace ptx
