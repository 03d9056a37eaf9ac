// Clusters: CTAs that run at the same time, can wait for each other and reach each other's shared
// memory. PTX ISA, "Parallel Synchronization and Communication Instructions: barrier.cluster",
// "Special Registers: %cluster_ctarank, %cluster_nctarank", "mapa" (sm_90). The launch says how
// many CTAs a cluster has (common/launch/launch.h).
//
// A CTA must not end while another may still reach its shared memory: a barrier of the cluster
// comes first, or a wait for all that is still to come.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/ptx/hook.h"
#include "common/ptx/shared_address.h"
#ifndef __CUDACC__
#include "common/emulator/units/cluster.h"
#include "common/emulator/units/tma.h"
#endif

namespace ptx {

#ifdef __CUDACC__

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// The barrier of all threads of the cluster, in two halves. Arriving releases, waiting acquires.
__device__ __forceinline__ void cluster_arrive(Where where = Where::current()) {
  record(Event::kClusterArrive, where);
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait(Where where = Where::current()) {
  const Recorded recorded(Event::kClusterWait, where, 0u);
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// This CTA's number in its cluster, and how many there are.
__device__ __forceinline__ int cluster_ctarank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return int(rank);
}
__device__ __forceinline__ int cluster_nctarank() {
  uint32_t count;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
  return int(count);
}

// A pointer to what lies where `pointer` points to, in the shared memory of CTA `cta` of the
// cluster. Ordinary loads and stores take it (distributed shared memory).
template <typename T>
__device__ __forceinline__ T* mapa(T* pointer, int cta) {
  uint64_t remote;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(remote) : "l"(pointer), "r"(cta));
  return reinterpret_cast<T*>(remote);
}

// st.async (sm_90): stores a value to where `to` points to, but in the shared memory of CTA `cta`
// of the cluster. No wait: the mbarrier that lies there where `bar` does counts its bytes, as those
// of a bulk copy, and who needs them waits with mbarrier_wait_cluster. The CTA's mbarriers are
// initialised, and a barrier of the cluster has said so. `to` is aligned to the value's size. PTX
// ISA, "Data Movement and Conversion Instructions: st.async".
__device__ __forceinline__ void st_async(float4* to, float4 value, uint64_t* bar, int cta) {
  asm volatile(
      "{\n"
      ".reg .b32 remote, remote_bar;\n"
      "mapa.shared::cluster.u32 remote, %0, %6;\n"
      "mapa.shared::cluster.u32 remote_bar, %1, %6;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [remote], {%2, %3, %4, %5}, "
      "[remote_bar];\n"
      "}" ::"r"(ptx::shared_address(to)),
      "r"(shared_address(bar)), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(cta)
      : "memory");
}
__device__ __forceinline__ void st_async(float* to, float value, uint64_t* bar, int cta) {
  asm volatile(
      "{\n"
      ".reg .b32 remote, remote_bar;\n"
      "mapa.shared::cluster.u32 remote, %0, %3;\n"
      "mapa.shared::cluster.u32 remote_bar, %1, %3;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [remote], %2, [remote_bar];\n"
      "}" ::"r"(ptx::shared_address(to)),
      "r"(shared_address(bar)), "f"(value), "r"(cta)
      : "memory");
}
#endif

#else  // the emulator: common/emulator/units/cluster.cpp

inline void cluster_arrive(Where where = Where::current()) { emu::cluster_arrive(where); }
inline void cluster_wait(Where where = Where::current()) { emu::cluster_wait(where); }
inline int cluster_ctarank() { return emu::cluster_rank(); }
inline int cluster_nctarank() { return emu::cluster_size(); }

template <typename T>
inline T* mapa(T* pointer, int cta, Where where = Where::current()) {
  return reinterpret_cast<T*>(emu::map_to_cta(uintptr_t(pointer), cta, where));
}

template <typename T>
inline void st_async(T* to, T value, uint64_t* bar, int cta, Where where = Where::current()) {
  emu::store_async(to, &value, sizeof value, bar, cta, where);
}

#endif

}  // namespace ptx
