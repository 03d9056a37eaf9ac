// fence.proxy.async: between what threads write with ordinary stores and what the asynchronous
// engines (bulk copies, wgmma) read. PTX ISA, "Parallel Synchronization and Communication
// Instructions: membar, fence" and "Async proxy" (sm_90).
//
// Engines reach shared memory by another path, the async proxy. Nothing but this fence makes a
// store of this thread (st.shared, stmatrix, cp.async) visible there: each thread that has written
// fences, then a barrier, then one thread starts the copy or the product. The other way round needs
// no fence: a wait on the mbarrier shows what a bulk copy has written.
//
// _global is the same for global memory: what this thread did or saw there comes before what it has
// engines do there afterwards. The end of a copy to global memory, when its thread has waited for
// it, needs no fence, either.
#pragma once

#include <cuda_runtime.h>
#ifndef __CUDACC__
#include "common/emulator/units/mbarrier.h"
#endif

namespace ptx {

#ifdef __CUDACC__

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__device__ __forceinline__ void fence_proxy_async() {
  // [proxy-async]
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  // [/proxy-async]
}
__device__ __forceinline__ void fence_proxy_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}
#endif

#else  // the emulator: common/emulator/units/mbarrier.cpp

inline void fence_proxy_async() { emu::fence_proxy_async(); }
inline void fence_proxy_async_global() {}  // engines see global memory as threads do

#endif

}  // namespace ptx
