// mbarrier: a barrier object of 64 bits in shared memory on which threads and bulk copies meet. PTX
// ISA, "Parallel Synchronization and Communication Instructions: mbarrier" (sm_80; try_wait, bytes
// and clusters sm_90).
//
// It counts phases 0, 1, 2 ... A phase ends when its pending count and its pending bytes are both
// zero:
//
//   mbarrier_init(bar, count)               every phase begins with `count` pending arrivals
//   mbarrier_arrive(bar)                    one arrival less
//   mbarrier_expect_tx(bar, bytes)          that many bytes more
//   a bulk copy that is told of bar         as many bytes less as it has brought, whenever it has
//   mbarrier_arrive_expect_tx(bar, bytes)   mbarrier_expect_tx, then mbarrier_arrive
//
// Who waits names the parity of a phase, 0 or 1: the wait is over when the phase of this parity has
// ended, more exactly, when the current phase has the other parity. So the first wait on a fresh
// barrier with parity 1 is over at once (as if a phase -1 had ended), which is how a producer finds
// all stages empty.
//
// Arriving releases, and a wait that is over acquires: what was done before an arrival is visible
// after the wait. What a bulk copy wrote is visible after a wait for the phase that its bytes
// belong to.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/ptx/hook.h"
#include "common/ptx/shared_address.h"  // IWYU pragma: export
#ifndef __CUDACC__
#include "common/emulator/units/mbarrier.h"
#endif

namespace ptx {

#ifdef __CUDACC__

// By one thread, before any other uses the barrier. fence_mbarrier_init and a barrier of the CTA
// (of the cluster, if its CTAs use each other's) must follow.
__device__ __forceinline__ void mbarrier_init(uint64_t* bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count)
               : "memory");
}

// Ends the barrier's life: its memory may be used otherwise, or initialised again.
__device__ __forceinline__ void mbarrier_inval(uint64_t* bar) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(bar)) : "memory");
}

// `_`: the state that the instruction returns is not needed, waits go by parity.
__device__ __forceinline__ void mbarrier_arrive(uint64_t* bar, Where where = Where::current()) {
  record(Event::kMbarrierArrive, where, bar);
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
}

// Whether the phase of this parity has ended. Does not wait. Acquires if so.
__device__ __forceinline__ bool mbarrier_test_wait(uint64_t* bar, int parity) {
  uint32_t over;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(over)
      : "r"(shared_address(bar)), "r"(parity)
      : "memory");
  return over;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// fence.mbarrier_init (sm_90): makes this thread's mbarrier_init visible to the cluster and to bulk
// copies.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint64_t* bar, int bytes,
                                                          Where where = Where::current()) {
  record(Event::kMbarrierExpectTx, where, bytes / 16);
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)),
               "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void mbarrier_expect_tx(uint64_t* bar, int bytes) {
  asm volatile(
      "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)),
      "r"(bytes)
      : "memory");
}

// What a bulk copy does when it has brought `bytes` bytes.
__device__ __forceinline__ void mbarrier_complete_tx(uint64_t* bar, int bytes) {
  asm volatile(
      "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)),
      "r"(bytes)
      : "memory");
}

// mbarrier_test_wait, but the thread may sleep for a while that the GPU chooses before the answer
// is no.
__device__ __forceinline__ bool mbarrier_try_wait(uint64_t* bar, int parity) {
  uint32_t over;
  // [try-wait]
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(over)
      : "r"(shared_address(bar)), "r"(parity)
      : "memory");
  // [/try-wait]
  return over;
}

// Waits until the phase of this parity has ended.
__device__ __forceinline__ void mbarrier_wait(uint64_t* bar, int parity,
                                              Where where = Where::current()) {
  const Recorded recorded(Event::kMbarrierWait, where, bar);
  while (!mbarrier_try_wait(bar, parity)) {
  }
}

// The same for bytes that another CTA's st.async brings. It acquires at the cluster's scope; the
// default is the CTA's.
__device__ __forceinline__ void mbarrier_wait_cluster(uint64_t* bar, int parity,
                                                      Where where = Where::current()) {
  const Recorded recorded(Event::kMbarrierWait, where, bar);
  uint32_t over = 0;
  while (!over) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(over)
        : "r"(shared_address(bar)), "r"(parity)
        : "memory");
  }
}

// Arrives at the barrier that lies where `bar` does in the shared memory of CTA `cta` of the
// cluster. .release at CTA scope, the default: enough to say that this thread has read what the
// other may overwrite, and much cheaper than .release.cluster (a barrier of the cluster passes on
// what was written).
__device__ __forceinline__ void mbarrier_arrive_cluster(uint64_t* bar, int cta,
                                                        Where where = Where::current()) {
  record(Event::kMbarrierArriveCluster, where);
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(shared_address(bar)),
      "r"(cta)
      : "memory");
}
#endif

#else  // the emulator: common/emulator/units/mbarrier.cpp

inline void mbarrier_init(uint64_t* bar, int count, Where where = Where::current()) {
  emu::mbarrier_init(bar, count, where);
}
inline void mbarrier_inval(uint64_t* bar, Where where = Where::current()) {
  emu::mbarrier_inval(bar, where);
}
inline void fence_mbarrier_init() { emu::fence_mbarrier_init(); }
inline void mbarrier_arrive(uint64_t* bar, Where where = Where::current()) {
  emu::mbarrier_arrive(bar, "mbarrier.arrive", where);
}
inline void mbarrier_arrive_expect_tx(uint64_t* bar, int bytes, Where where = Where::current()) {
  emu::mbarrier_expect_tx(bar, bytes, "mbarrier.arrive.expect_tx", where);
  emu::mbarrier_arrive(bar, "mbarrier.arrive.expect_tx", where);
}
inline void mbarrier_expect_tx(uint64_t* bar, int bytes, Where where = Where::current()) {
  emu::mbarrier_expect_tx(bar, bytes, "mbarrier.expect_tx", where);
}
inline void mbarrier_complete_tx(uint64_t* bar, int bytes, Where where = Where::current()) {
  emu::mbarrier_complete_tx(bar, bytes, where);
}
inline bool mbarrier_test_wait(uint64_t* bar, int parity, Where where = Where::current()) {
  return emu::mbarrier_test_wait(bar, parity, "mbarrier.test_wait", where);
}
inline bool mbarrier_try_wait(uint64_t* bar, int parity, Where where = Where::current()) {
  return emu::mbarrier_test_wait(bar, parity, "mbarrier.try_wait", where);
}
inline void mbarrier_wait(uint64_t* bar, int parity, Where where = Where::current()) {
  emu::mbarrier_wait(bar, parity, where);
}
inline void mbarrier_wait_cluster(uint64_t* bar, int parity, Where where = Where::current()) {
  emu::mbarrier_wait(bar, parity, where);
}
inline void mbarrier_arrive_cluster(uint64_t* bar, int cta, Where where = Where::current()) {
  emu::mbarrier_arrive_cluster(bar, cta, where);
}

#endif

}  // namespace ptx
