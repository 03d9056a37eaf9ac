// Named barriers: sixteen a CTA, 0 is __syncthreads (PTX ISA, "Parallel Synchronization and
// Communication Instructions: bar"). `threads` is the number that complete the barrier, a multiple
// of the warp size.
#pragma once

#include <cuda_runtime.h>

#include "common/ptx/hook.h"
#ifndef __CUDACC__
#include "common/emulator/units/barrier.h"
#endif

namespace ptx {

#ifdef __CUDACC__

// Arrives and waits until `threads` threads have arrived. Orders the memory accesses of all of
// them.
__device__ __forceinline__ void barrier_sync(int barrier, int threads,
                                             Where where = Where::current()) {
  const Recorded recorded(Event::kBarSync, where, uint32_t(barrier));
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Arrives and goes on: the threads that wait with barrier_sync see what was written before.
__device__ __forceinline__ void barrier_arrive(int barrier, int threads,
                                               Where where = Where::current()) {
  record(Event::kBarArrive, where, barrier);
  // [bar-arrive]
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
  // [/bar-arrive]
}

#else

inline void barrier_sync(int barrier, int threads, Where where = Where::current()) {
  emu::barrier_sync(barrier, threads, "bar.sync", where);
}
inline void barrier_arrive(int barrier, int threads, Where where = Where::current()) {
  emu::barrier_arrive(barrier, threads, "bar.arrive", where);
}

#endif

}  // namespace ptx
