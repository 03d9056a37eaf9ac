// CUDA C++'s built-in variables and functions, as the kernels use them (CUDA C++ Programming Guide,
// "C++ Language Extensions"). What a warp does together is one call of warp_collective (lane.h).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "common/emulator/units/barrier.h"

// With FA_FUSED the compiler makes one fused operation of a * b + c in device code, as nvcc does
// (its option -fmad=true), and leaves the host's alone, which on x86 has none without the option
// -mfma. A function of the one kind cannot be inlined into one of the other: so it need not be. Nor
// may g++ leave out the call of a kernel that only stores where nothing is (noipa).
#if defined(FA_FUSED) && defined(__x86_64__)
#ifdef __clang__
#define __global__ __attribute__((target("fma")))
#else
#define __global__ __attribute__((target("fma"), noipa))
#endif
#define __device__ __attribute__((target("fma")))
#define __forceinline__ inline
#ifndef __clang__  // which takes no attribute there: what is inlined into a kernel is fused anyway
#define FA_DEVICE_LAMBDA __device__
#endif
#else
#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#endif
#ifndef FA_DEVICE_LAMBDA
#define FA_DEVICE_LAMBDA
#endif
#define __host__
#define __constant__ const
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
// __shared__, <<<>>> and variables of the device are rewritten before the compiler sees them
// (common/emulator/programs/cuda_source.py); the kernels of the book have none of them.

#define threadIdx (::emu::current_lane->thread_idx)
#define blockIdx (::emu::current_lane->cta->block_idx)
#define blockDim (::emu::current_lane->cta->block_dim)
#define gridDim (::emu::current_lane->cta->grid_dim)

// ---- barriers -----------------------------------------------------------------------------------
inline void __syncthreads(emu::SourceLocation where = emu::SourceLocation::current()) {
  emu::barrier_sync(0, 0, "__syncthreads()", where);
}

namespace emu {
// Waits like a collective, and orders memory among the lanes of `mask`.
void sync_warp(uint32_t mask, SourceLocation where);

// elect.sync: one lane of the mask, the same for all of them.
int elect(uint32_t mask, SourceLocation where);
}  // namespace emu

inline void __syncwarp(uint32_t mask = emu::kFullMask,
                       emu::SourceLocation where = emu::SourceLocation::current()) {
  emu::sync_warp(mask, where);
}

// ---- shuffles: every lane reads the register of another one -------------------------------------
namespace emu {

enum class ShuffleMode { kIndex, kUp, kDown, kXor };

// Returns the 32-bit value of the lane selected by `selector`, within segments of `width` lanes.
uint32_t shuffle(ShuffleMode mode, uint32_t mask, uint32_t value, int selector, int width,
                 SourceLocation where);

// Returns the lanes of `mask` (as bits) whose predicate is not zero.
uint32_t ballot(uint32_t mask, int predicate, const char* operation, SourceLocation where);

// As many 32-bit shuffles as the value has words; two 16-bit numbers need one, and so does one.
template <typename T>
inline T shuffle_words(ShuffleMode mode, uint32_t mask, T value, int selector, int width,
                       SourceLocation where) {
  uint32_t words[(sizeof(T) + 3) / 4] = {};
  memcpy(words, &value, sizeof(T));
  for (uint32_t& word : words) word = shuffle(mode, mask, word, selector, width, where);
  memcpy(static_cast<void*>(&value), words, sizeof(T));
  return value;
}
template <typename T>
inline T shuffle_value(ShuffleMode mode, uint32_t mask, T value, int selector, int width,
                       SourceLocation where) {
  static_assert(
      std::is_arithmetic_v<T> || sizeof(T) <= 4,
      "shuffles take numbers of up to 64 bits; shuffle the members of a struct one by one");
  return shuffle_words(mode, mask, value, selector, width, where);
}

// Runs in every lane of `mask`: the values of all, and the lanes that gave one.
struct Gathered {
  uint64_t values[kWarpSize];
  uint32_t lanes;

  uint32_t equal_to(uint64_t value) const {  // the lanes that gave it
    uint32_t same = 0;
    for (int lane = 0; lane < kWarpSize; lane++) {
      if ((lanes >> lane & 1) && values[lane] == value) same |= 1u << lane;
    }
    return same;
  }
};
Gathered gather(uint32_t mask, uint64_t value, const char* operation, SourceLocation where);

// The lanes of the warp that have come to this line when no thread of the CTA can go on without
// them.
uint32_t active_mask(SourceLocation where);

// What __syncthreads_count() and its kin return: how many of the CTA's threads had a predicate that
// is not zero, and how many threads there are.
struct BarrierVotes {
  int yes, all;
};
BarrierVotes vote_at_barrier(int predicate, const char* operation, SourceLocation where);

// Lets others run: a thread that polls.
void let_others_run();

}  // namespace emu

template <typename T>
inline T __shfl_sync(uint32_t mask, T value, int source_lane, int width = 32,
                     emu::SourceLocation where = emu::SourceLocation::current()) {
  return emu::shuffle_value(emu::ShuffleMode::kIndex, mask, value, source_lane, width, where);
}
template <typename T>
inline T __shfl_up_sync(uint32_t mask, T value, unsigned delta, int width = 32,
                        emu::SourceLocation where = emu::SourceLocation::current()) {
  return emu::shuffle_value(emu::ShuffleMode::kUp, mask, value, int(delta), width, where);
}
template <typename T>
inline T __shfl_down_sync(uint32_t mask, T value, unsigned delta, int width = 32,
                          emu::SourceLocation where = emu::SourceLocation::current()) {
  return emu::shuffle_value(emu::ShuffleMode::kDown, mask, value, int(delta), width, where);
}
template <typename T>
inline T __shfl_xor_sync(uint32_t mask, T value, int lane_mask, int width = 32,
                         emu::SourceLocation where = emu::SourceLocation::current()) {
  return emu::shuffle_value(emu::ShuffleMode::kXor, mask, value, lane_mask, width, where);
}

// ---- votes --------------------------------------------------------------------------------------
inline uint32_t __ballot_sync(uint32_t mask, int predicate,
                              emu::SourceLocation where = emu::SourceLocation::current()) {
  return emu::ballot(mask, predicate, "__ballot_sync()", where);
}
inline int __any_sync(uint32_t mask, int predicate,
                      emu::SourceLocation where = emu::SourceLocation::current()) {
  return emu::ballot(mask, predicate, "__any_sync()", where) != 0;
}
inline int __all_sync(uint32_t mask, int predicate,
                      emu::SourceLocation where = emu::SourceLocation::current()) {
  return emu::ballot(mask, !predicate, "__all_sync()", where) == 0;
}

inline uint32_t __activemask(emu::SourceLocation where = emu::SourceLocation::current()) {
  return emu::active_mask(where);
}
template <typename T>
inline uint32_t __match_any_sync(uint32_t mask, T value,
                                 emu::SourceLocation where = emu::SourceLocation::current()) {
  uint64_t mine = 0;
  memcpy(&mine, &value, sizeof(T));
  return emu::gather(mask, mine, "__match_any_sync()", where).equal_to(mine);
}
template <typename T>
inline uint32_t __match_all_sync(uint32_t mask, T value, int* all_same,
                                 emu::SourceLocation where = emu::SourceLocation::current()) {
  uint64_t mine = 0;
  memcpy(&mine, &value, sizeof(T));
  const emu::Gathered all = emu::gather(mask, mine, "__match_all_sync()", where);
  *all_same = all.equal_to(mine) == all.lanes;
  return *all_same ? all.lanes : 0;
}

// ---- reductions of a warp (compute capability 8.0) ----------------------------------------------
namespace emu {
template <typename T, typename F>
inline T reduce(uint32_t mask, T value, const char* operation, SourceLocation where, F f) {
  const Gathered all = gather(mask, uint64_t(value), operation, where);
  int lane = std::countr_zero(all.lanes);
  T result = T(all.values[lane]);
  while (++lane < kWarpSize) {
    if (all.lanes >> lane & 1) result = f(result, T(all.values[lane]));
  }
  return result;
}
}  // namespace emu
#define FA_REDUCE(NAME, T, RESULT)                                                            \
  inline T NAME(uint32_t mask, T value,                                                       \
                emu::SourceLocation where = emu::SourceLocation::current()) {                 \
    return emu::reduce(mask, value, #NAME "()", where, [](T a, T b) -> T { return RESULT; }); \
  }
FA_REDUCE(__reduce_add_sync, unsigned, a + b)
FA_REDUCE(__reduce_add_sync, int, int(unsigned(a) + unsigned(b)))
FA_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
FA_REDUCE(__reduce_min_sync, int, a < b ? a : b)
FA_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
FA_REDUCE(__reduce_max_sync, int, a > b ? a : b)
FA_REDUCE(__reduce_and_sync, unsigned, a& b)
FA_REDUCE(__reduce_or_sync, unsigned, a | b)
FA_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
#undef FA_REDUCE

// ---- barriers that vote, fences -----------------------------------------------------------------
inline int __syncthreads_count(int predicate,
                               emu::SourceLocation where = emu::SourceLocation::current()) {
  return emu::vote_at_barrier(predicate, "__syncthreads_count()", where).yes;
}
inline int __syncthreads_or(int predicate,
                            emu::SourceLocation where = emu::SourceLocation::current()) {
  return emu::vote_at_barrier(predicate, "__syncthreads_or()", where).yes > 0;
}
inline int __syncthreads_and(int predicate,
                             emu::SourceLocation where = emu::SourceLocation::current()) {
  const emu::BarrierVotes votes = emu::vote_at_barrier(predicate, "__syncthreads_and()", where);
  return votes.yes == votes.all;
}
namespace emu {
void fence(Fence kind);
}  // namespace emu

// Stores reach memory at once here. To the detector of races a fence alone orders nothing, since
// the other side must learn of it, by an atomic.
inline void __threadfence() { emu::fence(emu::Fence::kGpu); }
inline void __threadfence_block() { emu::fence(emu::Fence::kCta); }
inline void __threadfence_system() { __threadfence(); }
inline void __nanosleep(unsigned) { emu::let_others_run(); }
[[noreturn]] inline void __trap(emu::SourceLocation where = emu::SourceLocation::current()) {
  emu::misuse("__trap()", where, "the kernel ends itself");
}
inline constexpr int warpSize = 32;

// ---- arithmetic ---------------------------------------------------------------------------------
namespace emu {

// 2^x and e^x, rounded once from a double: the same bits on every machine, unlike a C library's.
// CUDA's own expf and exp2f may differ from these in the last bit (CUDA C++ Programming Guide,
// "Mathematical Functions": up to 2 ulp).
float exp2f(float x, SourceLocation where = SourceLocation::current());
float expf(float x, SourceLocation where = SourceLocation::current());

// ex2.approx.ftz.f32, with the bits of an H200 for every x: up to 2 ulp from the correctly rounded
// result; subnormal inputs and results are zero.
float exp2_approx(float x, SourceLocation where = SourceLocation::current());

}  // namespace emu

// Kernels live in namespace fa, where these are found before the C library's.
namespace fa {
using emu::exp2f;
using emu::expf;
}  // namespace fa
