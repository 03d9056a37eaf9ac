// griddepcontrol: two launches of a stream that overlap, where the second one is launched to begin
// early (common/launch/launch.h). PTX ISA, "Parallel Synchronization and Communication
// Instructions: griddepcontrol" (sm_90); CUDA's guide, "Programmatic Dependent Launch". Without an
// early launch both do nothing, as on GPUs before 9.0.
//
// The second launch's CTAs come when every CTA of the first has allowed it or has ended. They find
// what the first one writes only after their wait, which lasts until all of it has ended, so they
// wait before they touch global memory. The emulator runs launches one after the other; its checked
// build reports an access before the wait.
#pragma once

#include <cuda_runtime.h>
#ifndef __CUDACC__
#include "common/emulator/core/launch.h"
#endif

namespace ptx {

#ifdef __CUDACC__

// In the first launch: the CTAs of the second may come.
__device__ __forceinline__ void launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// In the second launch: waits until the first has ended, and sees what it wrote.
__device__ __forceinline__ void wait_for_launch_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#else

inline void launch_dependents() {}
inline void wait_for_launch_before() { emu::wait_for_launch_before(); }

#endif

}  // namespace ptx
