// wgmma: D = A B + D on the Tensor Cores, four warps together and asynchronously; 16-bit operands,
// fp32 sums. PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions"
// (sm_90a).
//
//   d: N / 2 floats    64 x N    accumulators
//   a: descriptor      64 x 16   in shared memory or in registers
//      or 4 registers
//   b: descriptor      16 x N    in shared memory
//
// common/layout/wgmma.h says which thread holds which element, how operands lie in shared memory,
// and what a descriptor says.
//
// T: __half or __nv_bfloat16. N: a multiple of 8; those of wgmma_instructions.h exist.
//
// All 128 threads of a warpgroup (warps 4i to 4i + 3) execute the same wgmma. It runs on while they
// go on:
//
//   wgmma_fence(acc);          what this thread did to its registers comes before the wgmma that
//                              follow
//   wgmma<T, N>(acc, a, b, accumulate);          ... any number; they run one after the other
//   wgmma_commit();            closes a group of them
//   ...                        acc and a's registers may not be touched, not even read; nor shared
//                              memory written
//   wgmma_wait<n>(acc);        until at most the n latest groups of this warp are under way
//
// A fence is needed before the first wgmma and whenever registers that a wgmma uses have been read
// or written since. Shared memory that threads have written by plain stores (or cp.async) needs
// fence_proxy_async() (common/ptx/fence.h) in the threads that wrote, then a barrier: wgmma reads
// through the async proxy.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "common/layout/wgmma.h"  // IWYU pragma: export
#include "common/ptx/hook.h"
#include "common/ptx/shared_address.h"  // IWYU pragma: export
#ifdef __CUDACC__
#include "common/ptx/wgmma_instructions.h"
#else
#include "common/emulator/units/matrix.h"
#include "common/emulator/units/wgmma.h"
#endif

namespace ptx {

#ifdef __CUDACC__

// What wgmma calls the element type.
template <typename T>
struct WgmmaElement;
template <>
struct WgmmaElement<__half> {
  static constexpr const char kName[] = "f16";
};
template <>
struct WgmmaElement<__nv_bfloat16> {
  static constexpr const char kName[] = "bf16";
};

// Keeps the compiler from moving uses of these registers (arrays of float or uint32_t) across this
// point: it does not know that an instruction between commit and wait writes or reads them.
template <typename Registers>
__device__ __forceinline__ void keep_registers(Registers& registers) {
  if constexpr (std::is_array_v<Registers>) {
#pragma unroll
    for (int i = 0; i < int(std::extent_v<Registers>); i++) keep_registers(registers[i]);
  } else if constexpr (std::is_same_v<Registers, float>) {
    asm volatile("" : "+f"(registers)::"memory");
  } else {
    asm volatile("" : "+r"(registers)::"memory");
  }
}

// Orders this thread's accesses to registers before the wgmma that follow. Name the arrays that
// they use: up to three.
__device__ __forceinline__ void wgmma_fence(Where where = Where::current()) {
  record(Event::kWgmmaFence, where);
  // [fence]
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  // [/fence]
}
template <typename A>
__device__ __forceinline__ void wgmma_fence(A& a, Where where = Where::current()) {
  keep_registers(a);
  wgmma_fence(where);
}
template <typename A, typename B>
__device__ __forceinline__ void wgmma_fence(A& a, B& b, Where where = Where::current()) {
  keep_registers(a);
  wgmma_fence(b, where);
}
template <typename A, typename B, typename C>
__device__ __forceinline__ void wgmma_fence(A& a, B& b, C& c, Where where = Where::current()) {
  keep_registers(a);
  wgmma_fence(b, c, where);
}

// d = a b, plus d if `accumulate`. A and B from shared memory.
template <typename T, int kN, layout::Major kMajorB = layout::Major::kK,
          layout::Major kMajorA = layout::Major::kK>
__device__ __forceinline__ void wgmma(float (&d)[kN / 2], uint64_t a, uint64_t b, bool accumulate) {
  record_product(kN);
  WgmmaInstruction<kN>::template multiply_shared<WgmmaElement<T>, int(kMajorA), int(kMajorB)>(
      d, a, b, accumulate);
}

// The same with A from registers.
template <typename T, int kN, layout::Major kMajorB = layout::Major::kK>
__device__ __forceinline__ void wgmma(float (&d)[kN / 2], const uint32_t (&a)[4], uint64_t b,
                                      bool accumulate) {
  record_product(kN);
  WgmmaInstruction<kN>::template multiply_registers<WgmmaElement<T>, int(kMajorB)>(d, a, b,
                                                                                   accumulate);
}

__device__ __forceinline__ void wgmma_commit(Where where = Where::current()) {
  // [commit]
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  // [/commit]
  record_products(where);
}

// Waits until at most the kGroups latest groups of the warp are under way. Name the arrays that are
// now done.
template <int kGroups>
__device__ __forceinline__ void wgmma_wait(Where where = Where::current()) {
  const Recorded recorded(Event::kWgmmaWait, where, uint32_t(kGroups));
  // [wait]
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
  // [/wait]
}
template <int kGroups, typename A>
__device__ __forceinline__ void wgmma_wait(A& a, Where where = Where::current()) {
  wgmma_wait<kGroups>(where);
  keep_registers(a);
}
template <int kGroups, typename A, typename B>
__device__ __forceinline__ void wgmma_wait(A& a, B& b, Where where = Where::current()) {
  wgmma_wait<kGroups>(a, where);
  keep_registers(b);
}
template <int kGroups, typename A, typename B, typename C>
__device__ __forceinline__ void wgmma_wait(A& a, B& b, C& c, Where where = Where::current()) {
  wgmma_wait<kGroups>(a, b, where);
  keep_registers(c);
}

#else  // the emulator: common/emulator/units/wgmma.cpp

template <typename T, int kN, layout::Major kMajorB, layout::Major kMajorA>
constexpr emu::WgmmaKind wgmma_kind() {
  static_assert(kN % 8 == 0 && kN >= 8 && kN <= 256);
  constexpr emu::Element kElement =
      std::is_same_v<T, __half> ? emu::Element::kFp16 : emu::Element::kBf16;
  return {kN, kElement, kElement, kMajorA, kMajorB};
}

template <typename T, int kN, layout::Major kMajorB = layout::Major::kK,
          layout::Major kMajorA = layout::Major::kK>
inline void wgmma(float (&d)[kN / 2], uint64_t a, uint64_t b, bool accumulate,
                  Where where = Where::current()) {
  emu::wgmma_issue(wgmma_kind<T, kN, kMajorB, kMajorA>(), {d, nullptr, a, b, accumulate}, where);
}

template <typename T, int kN, layout::Major kMajorB = layout::Major::kK>
inline void wgmma(float (&d)[kN / 2], const uint32_t (&a)[4], uint64_t b, bool accumulate,
                  Where where = Where::current()) {
  emu::wgmma_issue(wgmma_kind<T, kN, kMajorB, layout::Major::kK>(), {d, a, 0, b, accumulate},
                   where);
}

inline void wgmma_commit(Where where = Where::current()) { emu::wgmma_commit(where); }

// One overload for each number of arrays: a place in the source cannot follow a list without end.
inline void wgmma_fence(Where where = Where::current()) { emu::wgmma_fence(where); }
template <typename A>
inline void wgmma_fence(A&, Where where = Where::current()) {
  emu::wgmma_fence(where);
}
template <typename A, typename B>
inline void wgmma_fence(A&, B&, Where where = Where::current()) {
  emu::wgmma_fence(where);
}
template <typename A, typename B, typename C>
inline void wgmma_fence(A&, B&, C&, Where where = Where::current()) {
  emu::wgmma_fence(where);
}

template <int kGroups>
inline void wgmma_wait(Where where = Where::current()) {
  emu::wgmma_wait(kGroups, where);
}
template <int kGroups, typename A>
inline void wgmma_wait(A& a, Where where = Where::current()) {
  emu::wgmma_wait(kGroups, where);
  emu::expect_done(&a, sizeof a, kGroups, where);
}
template <int kGroups, typename A, typename B>
inline void wgmma_wait(A& a, B& b, Where where = Where::current()) {
  emu::wgmma_wait(kGroups, where);
  emu::expect_done(&a, sizeof a, kGroups, where);
  emu::expect_done(&b, sizeof b, kGroups, where);
}
template <int kGroups, typename A, typename B, typename C>
inline void wgmma_wait(A& a, B& b, C& c, Where where = Where::current()) {
  emu::wgmma_wait(kGroups, where);
  emu::expect_done(&a, sizeof a, kGroups, where);
  emu::expect_done(&b, sizeof b, kGroups, where);
  emu::expect_done(&c, sizeof c, kGroups, where);
}

#endif

}  // namespace ptx
