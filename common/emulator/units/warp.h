// CUDA C++'s built-in variables and functions, as the kernels use them (CUDA C++ Programming Guide,
// "C++ Language Extensions"). What a warp does together is one call of warp_collective (lane.h).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/emulator/core/lane.h"
#include "common/emulator/units/barrier.h"

#define __global__
#define __device__
#define __host__
#define __constant__ const
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
// There is no __shared__: a kernel's shared memory is its SharedStorage (common/launch/launch.h).

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

// elect.sync: true in one lane of the warp.
bool elect(SourceLocation where);
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

template <typename T>
inline T shuffle_value(ShuffleMode mode, uint32_t mask, T value, int selector, int width,
                       SourceLocation where) {
  static_assert(sizeof(T) == 4, "the emulator shuffles 32-bit values");
  return std::bit_cast<T>(
      shuffle(mode, mask, std::bit_cast<uint32_t>(value), selector, width, where));
}

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

template <typename T>
inline T __ldg(const T* address) {
  return *address;
}
inline float __fdividef(float x, float y) { return x / y; }  // a GPU's: within 2 ulp
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
