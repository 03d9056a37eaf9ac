// elect.sync: chooses one lane of the warp. PTX ISA, "Parallel Synchronization and Communication
// Instructions: elect.sync" (sm_90).
//
// All 32 lanes take part; true for one of them, the same one each time. The compiler then knows
// that one thread runs what follows, which it cannot know of `lane_idx == 0`.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/ptx/hook.h"
#ifndef __CUDACC__
#include "common/emulator/units/warp.h"
#endif

namespace ptx {

#ifdef __CUDACC__

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__device__ __forceinline__ bool elect_sync() {
  uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(elected)
      :
      : "memory");
  return elected;
}
#endif

#else  // the emulator: common/emulator/units/warp.cpp

inline bool elect_sync(Where where = Where::current()) {
  return emu::elect(emu::kFullMask, where) == emu::current_lane->lane;
}

#endif

}  // namespace ptx
