// ld.acquire and st.release on a number in global memory, by which threads of different CTAs wait
// for each other. PTX ISA, "Data Movement and Conversion Instructions: ld", "st", and "Memory
// Consistency Model: Release and Acquire Patterns" (sm_70).
//
// What a thread did or saw before its store_release is there for a thread that has loaded the new
// number with load_acquire, on the whole GPU. A thread that waits for another CTA must know that
// this CTA runs already, because nobody else makes room for it.
#pragma once

#include <cuda_runtime.h>
#ifndef __CUDACC__
#include "common/emulator/core/lane.h"
#include "common/emulator/units/atomics.h"
#include "common/emulator/units/warp.h"
#endif

namespace ptx {

#ifdef __CUDACC__

__device__ __forceinline__ int load_acquire(int* flag) {
  int value;
  asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}
__device__ __forceinline__ void store_release(int* flag, int value) {
  asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

#else  // the emulator: common/emulator/units/atomics.h

inline int load_acquire(int* flag, emu::SourceLocation where = emu::SourceLocation::current()) {
  return emu::change_atomically(
      flag, "ld.acquire", where, [](int old) { return old; }, emu::AtomicOrder::kLoad);
}
inline void store_release(int* flag, int value,
                          emu::SourceLocation where = emu::SourceLocation::current()) {
  emu::fence(emu::Fence::kGpu);
  emu::change_atomically(
      flag, "st.release", where, [=](int) { return value; }, emu::AtomicOrder::kStore);
}

#endif

}  // namespace ptx
