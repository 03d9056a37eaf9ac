// cp.async: copies from global to shared memory that pass by the registers and run on while the
// thread works. PTX ISA, "Data Movement and Conversion Instructions: Non-bulk copy: cp.async"
// (sm_80).
//
// A thread's copies form groups: cp_async_commit closes one, cp_async_wait<n> waits until at most
// the n latest groups are still under way. It waits for this thread's copies only: for those of
// others a barrier must follow. Addresses are multiples of the size.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/ptx/hook.h"
#include "common/ptx/shared_address.h"  // IWYU pragma: export
#ifndef __CUDACC__
#include "common/emulator/units/cp_async.h"
#endif

namespace ptx {

#ifdef __CUDACC__

// 4, 8 or 16 bytes. 16 bytes go through L2 only (.cg), fewer through L1 as well (.ca).
template <int kBytes>
__device__ __forceinline__ void cp_async(uint32_t shared, const void* global) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "cp.async copies 4, 8 or 16 bytes");
  if constexpr (kBytes == 16) {
    // [cp-async]
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
    // [/cp-async]
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(global), "n"(kBytes)
                 : "memory");
  }
}

// The same, of which only `source_bytes` (0..kBytes) are read; the rest is filled with zeros.
template <int kBytes>
__device__ __forceinline__ void cp_async_zero_fill(uint32_t shared, const void* global,
                                                   int source_bytes) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "cp.async copies 4, 8 or 16 bytes");
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                 "r"(source_bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(global),
                 "n"(kBytes), "r"(source_bytes)
                 : "memory");
  }
}

__device__ __forceinline__ void cp_async_commit(Where where = Where::current()) {
  record(Event::kCopyCommit, where);
  // [commit]
  asm volatile("cp.async.commit_group;" ::: "memory");
  // [/commit]
}

template <int kGroups>
__device__ __forceinline__ void cp_async_wait(Where where = Where::current()) {
  const Recorded recorded(Event::kCopyWait, where, uint32_t(kGroups));
  // [wait]
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
  // [/wait]
}

#else  // the emulator: common/emulator/units/cp_async.cpp

template <int kBytes>
inline void cp_async(uint32_t shared, const void* global, Where where = Where::current()) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "cp.async copies 4, 8 or 16 bytes");
  emu::copy_async(shared, global, kBytes, kBytes, where);
}

template <int kBytes>
inline void cp_async_zero_fill(uint32_t shared, const void* global, int source_bytes,
                               Where where = Where::current()) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "cp.async copies 4, 8 or 16 bytes");
  emu::copy_async(shared, global, kBytes, source_bytes, where);
}

inline void cp_async_commit(Where where = Where::current()) { emu::commit_copies(where); }

template <int kGroups>
inline void cp_async_wait(Where where = Where::current()) {
  emu::wait_copies(kGroups, where);
}

#endif

}  // namespace ptx
