// TMA, the tensor memory accelerator: one thread starts the copy of a whole tile, an engine does
// it. PTX ISA, "Data Movement and Conversion Instructions: Bulk copy: cp.async.bulk,
// cp.async.bulk.tensor" (sm_90).
//
// A tensor map, made by the host (common/launch/tensor_map.h), says where a tensor of up to five
// dimensions lies in global memory, how large a box of it one copy moves and how the box is
// swizzled in shared memory. coords: the box's first element in the tensor, the
// innermost dimension first. A load's box may reach over the tensor's edges or lie beyond them:
// what is outside is read as zeros. A store's may do so at the end of each dimension: what is
// outside is not written. Two things of stores, measured on an H200:
//   - They write 16 bytes at a time: of a row whose bytes are no multiple of 16, what follows it as
//     well, up to such a multiple.
//   - A box that begins before the tensor, a negative coordinate, stops the GPU with "illegal
//     instruction". One that lies wholly past the end writes nothing.
//
//   load    global to shared memory; tells an mbarrier the bytes it has brought: always the whole
//           box's, outside or not. Who waits for the barrier's phase sees the data.
//   store   shared to global memory; belongs to a group of its thread's, which cp_async_bulk_commit
//           closes. cp_async_bulk_wait_read<n> waits until all but the n latest groups have read
//           their shared memory, which can then be reused; cp_async_bulk_wait<n>, until they have
//           written too. A reduction, which adds to what is there, belongs to such a group as well.
//
// Shared addresses are multiples of 128 bytes, with swizzle of the pattern's size (256, 512, 1024
// bytes). (Of a load to byte 64 an H200 says "misaligned address".) The bytes that coords[0]
// elements are must be a multiple of 16: if not, a GPU stops with "illegal instruction". What
// threads wrote to shared memory needs fence_proxy_async (common/ptx/fence.h) and a barrier before
// a store reads it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/ptx/hook.h"
#include "common/ptx/shared_address.h"  // IWYU pragma: export
#include "common/ptx/tensor_map.h"      // IWYU pragma: export
#ifndef __CUDACC__
#include "common/emulator/units/tma.h"
#endif

namespace ptx {

#ifdef __CUDACC__

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Fetches the map itself, 128 bytes, before the first copy asks for it. The map is a kernel's
// parameter, `const __grid_constant__ TensorMap`.
__device__ __forceinline__ void prefetch_tensormap(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// ---- loads of a box
template <int kRank>
__device__ __forceinline__ void cp_async_bulk_tensor_load(void* shared, const TensorMap* map,
                                                          const int (&coords)[kRank], uint64_t* bar,
                                                          Where where = Where::current()) {
  static_assert(kRank >= 1 && kRank <= 4);
  const uint32_t to = shared_address(shared), barrier = shared_address(bar);
  record(Event::kLoadTensor, where, bar);
  if constexpr (kRank == 1) {
    asm volatile(
        "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3}], [%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(coords[0])
        : "memory");
  }
  if constexpr (kRank == 2) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(coords[0]), "r"(coords[1])
        : "memory");
  }
  if constexpr (kRank == 3) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(coords[0]), "r"(coords[1]), "r"(coords[2])
        : "memory");
  }
  if constexpr (kRank == 4) {
    // [tensor-load]
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(coords[0]), "r"(coords[1]), "r"(coords[2]), "r"(coords[3])
        : "memory");
    // [/tensor-load]
  }
}

// The same of five dimensions, for a box whose rows shall lie in another order than the tensor's: a
// dimension may have any stride, so that one of 16 rows can be cut into several.
__device__ __forceinline__ void cp_async_bulk_tensor_load_5d(void* shared, const TensorMap* map,
                                                             const int (&coords)[5],  // as above
                                                             uint64_t* bar,
                                                             Where where = Where::current()) {
  record(Event::kLoadTensor, where, bar);
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(bar)), "r"(coords[0]), "r"(coords[1]), "r"(coords[2]),
      "r"(coords[3]), "r"(coords[4])
      : "memory");
}

// The same box for several CTAs of the cluster, those whose bits `ctas` has: to the same place in
// the shared memory of each, and each CTA's own barrier, the one in the place of `bar`, is told the
// bytes.
__device__ __forceinline__ void cp_async_bulk_tensor_load_multicast(
    void* shared, const TensorMap* map, const int (&coords)[2], uint64_t* bar, uint16_t ctas,
    Where where = Where::current()) {
  record(Event::kLoadTensorMulticast, where, bar);
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(bar)), "r"(coords[0]), "r"(coords[1]), "h"(ctas)
      : "memory");
}

// ---- stores of a box
template <int kRank>
__device__ __forceinline__ void cp_async_bulk_tensor_store(const TensorMap* map,
                                                           const int (&coords)[kRank],
                                                           const void* shared,
                                                           Where where = Where::current()) {
  static_assert(kRank >= 1 && kRank <= 4);
  const uint32_t from = shared_address(shared);
  record(Event::kStoreTensor, where);
  if constexpr (kRank == 1) {
    asm volatile(
        "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%0, {%2}], [%1];" ::"l"(map),
        "r"(from), "r"(coords[0])
        : "memory");
  }
  if constexpr (kRank == 2) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
            map),
        "r"(from), "r"(coords[0]), "r"(coords[1])
        : "memory");
  }
  if constexpr (kRank == 3) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::
            "l"(map),
        "r"(from), "r"(coords[0]), "r"(coords[1]), "r"(coords[2])
        : "memory");
  }
  if constexpr (kRank == 4) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], "
        "[%1];" ::"l"(map),
        "r"(from), "r"(coords[0]), "r"(coords[1]), "r"(coords[2]), "r"(coords[3])
        : "memory");
  }
}

// The same of five dimensions.
__device__ __forceinline__ void cp_async_bulk_tensor_store_5d(const TensorMap* map,
                                                              const int (&coords)[5],
                                                              const void* shared,
                                                              Where where = Where::current()) {
  record(Event::kStoreTensor, where);
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], "
      "[%1];" ::"l"(map),
      "r"(shared_address(shared)), "r"(coords[0]), "r"(coords[1]), "r"(coords[2]), "r"(coords[3]),
      "r"(coords[4])
      : "memory");
}

// ---- without a map: `bytes` bytes in a row, a multiple of 16 as both addresses are
__device__ __forceinline__ void cp_async_bulk_load(void* shared, const void* global, int bytes,
                                                   uint64_t* bar, Where where = Where::current()) {
  record(Event::kLoadBulk, where, bar);
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(bar))
      : "memory");
}
__device__ __forceinline__ void cp_async_bulk_store(void* global, const void* shared, int bytes,
                                                    Where where = Where::current()) {
  record(Event::kStoreBulk, where);
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(shared_address(shared)), "r"(bytes)
               : "memory");
}
// The same, but adds the floats to those of global memory: each is one atomic addition, and those
// of several threads come in any order. PTX ISA, "cp.reduce.async.bulk".
__device__ __forceinline__ void cp_reduce_async_bulk_add(float* global, const void* shared,
                                                         int bytes,
                                                         Where where = Where::current()) {
  record(Event::kReduceBulk, where);
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(global),
      "r"(shared_address(shared)), "r"(bytes)
      : "memory");
}

// ---- groups of stores
__device__ __forceinline__ void cp_async_bulk_commit(Where where = Where::current()) {
  record(Event::kBulkCommit, where);
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int kGroups>
__device__ __forceinline__ void cp_async_bulk_wait(Where where = Where::current()) {
  const Recorded recorded(Event::kBulkWait, where, uint32_t(kGroups));
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kGroups) : "memory");
}
template <int kGroups>
__device__ __forceinline__ void cp_async_bulk_wait_read(Where where = Where::current()) {
  const Recorded recorded(Event::kBulkWaitRead, where, uint32_t(kGroups));
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}

#endif

#else  // the emulator: common/emulator/units/tma.cpp

inline void prefetch_tensormap(const TensorMap* map, Where where = Where::current()) {
  emu::prefetch_tensor_map(*map, where);
}

template <int kRank>
inline void cp_async_bulk_tensor_load(void* shared, const TensorMap* map,
                                      const int (&coords)[kRank], uint64_t* bar,
                                      Where where = Where::current()) {
  emu::load_box(shared, *map, coords, kRank, bar, where);
}
inline void cp_async_bulk_tensor_load_5d(void* shared, const TensorMap* map, const int (&coords)[5],
                                         uint64_t* bar, Where where = Where::current()) {
  emu::load_box(shared, *map, coords, 5, bar, where);
}
inline void cp_async_bulk_tensor_load_multicast(void* shared, const TensorMap* map,
                                                const int (&coords)[2], uint64_t* bar,
                                                uint16_t ctas, Where where = Where::current()) {
  emu::load_box_multicast(shared, *map, coords, 2, bar, ctas, where);
}
template <int kRank>
inline void cp_async_bulk_tensor_store(const TensorMap* map, const int (&coords)[kRank],
                                       const void* shared, Where where = Where::current()) {
  emu::store_box(*map, coords, kRank, shared, where);
}
inline void cp_async_bulk_tensor_store_5d(const TensorMap* map, const int (&coords)[5],
                                          const void* shared, Where where = Where::current()) {
  emu::store_box(*map, coords, 5, shared, where);
}
inline void cp_async_bulk_load(void* shared, const void* global, int bytes, uint64_t* bar,
                               Where where = Where::current()) {
  emu::load_bulk(shared, global, bytes, bar, where);
}
inline void cp_async_bulk_store(void* global, const void* shared, int bytes,
                                Where where = Where::current()) {
  emu::store_bulk(global, shared, bytes, where);
}
inline void cp_reduce_async_bulk_add(float* global, const void* shared, int bytes,
                                     Where where = Where::current()) {
  emu::reduce_bulk(global, shared, bytes, emu::add_floats, where);
}
inline void cp_async_bulk_commit(Where where = Where::current()) { emu::commit_bulk(where); }
template <int kGroups>
inline void cp_async_bulk_wait(Where where = Where::current()) {
  emu::wait_bulk(kGroups, false, where);
}
template <int kGroups>
inline void cp_async_bulk_wait_read(Where where = Where::current()) {
  emu::wait_bulk(kGroups, true, where);
}

#endif

}  // namespace ptx
