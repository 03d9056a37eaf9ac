// Cache hints: what L2 should keep, and how much it should fetch. PTX ISA, "Data Movement and Conversion
// Instructions: createpolicy", "Cache Eviction Priority Hints" and "cp.async" (all sm_80).
//
// A policy says when a line of L2 that an access touches may make room for others:
//
//   evict_first    before others: what is used once (Q, O)
//   evict_normal   in the usual order, as without a hint
//   evict_last     after others: what other CTAs read again (K, V)
//
// `fraction`, in (0, 1], is the part of the addresses that it is for; the rest is treated as usual. Made once,
// a policy goes with any number of accesses; of constants nvcc makes it a constant, without an instruction.
//
// A hint moves no other bytes and orders nothing: results are the same, only traffic to DRAM may change.
// The emulator has no L2. It checks the arguments and does the access.
//
// ptxas before CUDA 13.4 encodes a cp.async with a policy wrongly for sm_90 and later where the shared address
// has a uniform part: the instruction names uniform registers 0 and 1 instead of those that hold the address
// and the policy, and the GPU says "illegal instruction" (tests/test_hints.py looks for it). With such a
// compiler a copy on these GPUs goes without its policy.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/ptx/cp_async.h"
#ifndef __CUDACC__
#include "common/emulator/cp_async.h"
#endif

namespace ptx {

struct CachePolicy {
  uint64_t bits;  // only createpolicy knows how to make them
};

// How much L2 fetches when it has not got the data: the 32-byte sectors asked for, or 128 bytes.
enum class Prefetch { kNone, k128Bytes };

#ifdef __CUDACC__

__device__ __forceinline__ CachePolicy evict_first(float fraction = 1.0f) {
  CachePolicy policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, %1;"
               : "=l"(policy.bits)
               : "f"(fraction));
  return policy;
}

__device__ __forceinline__ CachePolicy evict_normal(float fraction = 1.0f) {
  CachePolicy policy;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, %1;"
               : "=l"(policy.bits)
               : "f"(fraction));
  return policy;
}

__device__ __forceinline__ CachePolicy evict_last(float fraction = 1.0f) {
  CachePolicy policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, %1;"
               : "=l"(policy.bits)
               : "f"(fraction));
  return policy;
}

#if __CUDA_ARCH__ >= 900 && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ < 1304
inline constexpr bool kCopiesHavePolicies = false;
#else
inline constexpr bool kCopiesHavePolicies = true;
#endif

// cp_async_zero_fill (common/ptx/cp_async.h) with a policy for the global address.
template <int kBytes, Prefetch kPrefetch = Prefetch::kNone>
__device__ __forceinline__ void cp_async_zero_fill(uint32_t shared, const void* global,
                                                   int source_bytes, CachePolicy policy) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "cp.async copies 4, 8 or 16 bytes");
  if constexpr (!kCopiesHavePolicies && kPrefetch == Prefetch::kNone) {
    cp_async_zero_fill<kBytes>(shared, global, source_bytes);
  } else if constexpr (!kCopiesHavePolicies && kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared),
                 "l"(global), "r"(source_bytes)
                 : "memory");
  } else if constexpr (!kCopiesHavePolicies) {
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2, %3;" ::"r"(shared),
                 "l"(global), "n"(kBytes), "r"(source_bytes)
                 : "memory");
  } else if constexpr (kBytes == 16 && kPrefetch == Prefetch::kNone) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared),
                 "l"(global), "r"(source_bytes), "l"(policy.bits)
                 : "memory");
  } else if constexpr (kBytes == 16) {
    asm volatile(
        "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(shared),
        "l"(global), "r"(source_bytes), "l"(policy.bits)
        : "memory");
  } else if constexpr (kPrefetch == Prefetch::kNone) {
    asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], %2, %3, %4;" ::"r"(shared),
                 "l"(global), "n"(kBytes), "r"(source_bytes), "l"(policy.bits)
                 : "memory");
  } else {
    asm volatile(
        "cp.async.ca.shared.global.L2::cache_hint.L2::128B [%0], [%1], %2, %3, %4;" ::"r"(shared),
        "l"(global), "n"(kBytes), "r"(source_bytes), "l"(policy.bits)
        : "memory");
  }
}

// cp_async with a policy. (All bytes are source: ptxas drops the constant, and with it the zero-fill.)
template <int kBytes, Prefetch kPrefetch = Prefetch::kNone>
__device__ __forceinline__ void cp_async(uint32_t shared, const void* global, CachePolicy policy) {
  cp_async_zero_fill<kBytes, kPrefetch>(shared, global, kBytes, policy);
}

// st.global with a policy: *global = value.
__device__ __forceinline__ void store_global(uint32_t* global, uint32_t value, CachePolicy policy) {
  asm volatile("st.global.L2::cache_hint.b32 [%0], %1, %2;" ::"l"(global), "r"(value),
               "l"(policy.bits)
               : "memory");
}
__device__ __forceinline__ void store_global(uint4* global, uint4 value, CachePolicy policy) {
  asm volatile("st.global.L2::cache_hint.v4.b32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(global),
               "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "l"(policy.bits)
               : "memory");
}

#else  // the emulator: common/emulator/cp_async.cpp

inline CachePolicy evict_first(float fraction = 1.0f,
                               emu::SourceLocation where = emu::SourceLocation::current()) {
  return {emu::create_policy(emu::Eviction::kFirst, fraction, where)};
}
inline CachePolicy evict_normal(float fraction = 1.0f,
                                emu::SourceLocation where = emu::SourceLocation::current()) {
  return {emu::create_policy(emu::Eviction::kNormal, fraction, where)};
}
inline CachePolicy evict_last(float fraction = 1.0f,
                              emu::SourceLocation where = emu::SourceLocation::current()) {
  return {emu::create_policy(emu::Eviction::kLast, fraction, where)};
}

template <int kBytes, Prefetch kPrefetch = Prefetch::kNone>
inline void cp_async_zero_fill(uint32_t shared, const void* global, int source_bytes,
                               CachePolicy policy,
                               emu::SourceLocation where = emu::SourceLocation::current()) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "cp.async copies 4, 8 or 16 bytes");
  emu::check_policy(policy.bits, "cp.async", where);
  emu::copy_async(shared, global, kBytes, source_bytes, where);
}

template <int kBytes, Prefetch kPrefetch = Prefetch::kNone>
inline void cp_async(uint32_t shared, const void* global, CachePolicy policy,
                     emu::SourceLocation where = emu::SourceLocation::current()) {
  cp_async_zero_fill<kBytes, kPrefetch>(shared, global, kBytes, policy, where);
}

inline void store_global(uint32_t* global, uint32_t value, CachePolicy policy,
                         emu::SourceLocation where = emu::SourceLocation::current()) {
  emu::check_policy(policy.bits, "st.global", where);
  *global = value;
}
inline void store_global(uint4* global, const uint4& value, CachePolicy policy,
                         emu::SourceLocation where = emu::SourceLocation::current()) {
  emu::check_policy(policy.bits, "st.global", where);
  *global = value;
}

#endif

}  // namespace ptx
