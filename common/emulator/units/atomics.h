// Atomic operations on global and shared memory (CUDA C++ Programming Guide, "Atomic Functions").
// Each is one access of its lane, counted with those of its warp; atomics are in order among
// themselves, and order what lies before a fence of the one and behind the atomic of the other.
// Global ones come in the order of the CTAs: a CTA waits at its first until those before it have
// ended, so that the result does not depend on the number of OS threads. CTAs that run together
// (Options::together, clusters) do not wait for each other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/emulator/core/half_types.h"
#include "common/emulator/core/lane.h"

namespace emu {

// Returns the bytes that are there. Ends the launch if the access is outside memory, not aligned or
// a race.
// Reads and writes, or one of them; both after a comparison.
enum class AtomicOrder : uint8_t { kBoth, kLoad, kStore, kCompare };
uint64_t begin_atomic(void* address, size_t bytes, const char* operation, SourceLocation where,
                      AtomicOrder order = AtomicOrder::kBoth);

// Stores the new bytes. Lanes whose operation has changed nothing let others run: they may poll.
void end_atomic(void* address, size_t bytes, uint64_t old_value, uint64_t new_value);

template <typename T, typename F>
inline T change_atomically(T* address, const char* operation, SourceLocation where, F f,
                           AtomicOrder order = AtomicOrder::kBoth) {
  static_assert(sizeof(T) <= 8);
  const uint64_t before = begin_atomic(address, sizeof(T), operation, where, order);
  T old_value;
  memcpy(&old_value, &before, sizeof(T));
  const T new_value = f(old_value);
  uint64_t after = 0;
  memcpy(&after, &new_value, sizeof(T));
  end_atomic(address, sizeof(T), before, after);
  return old_value;
}

}  // namespace emu

// NAME, NAME_block and NAME_system: all are atomic for every thread of the launch.
#define FA_ATOMIC_IN(SUFFIX, NAME, T, NEW_VALUE)                                               \
  inline T NAME##SUFFIX(T* address, T value,                                                   \
                        emu::SourceLocation where = emu::SourceLocation::current()) {          \
    return emu::change_atomically(address, #NAME #SUFFIX "()", where,                          \
                                  [value]([[maybe_unused]] T old) -> T { return NEW_VALUE; }); \
  }
#define FA_ATOMIC(NAME, T, NEW_VALUE)      \
  FA_ATOMIC_IN(, NAME, T, NEW_VALUE)       \
  FA_ATOMIC_IN(_block, NAME, T, NEW_VALUE) \
  FA_ATOMIC_IN(_system, NAME, T, NEW_VALUE)
#define FA_ATOMIC_CAS(SUFFIX, T)                                                               \
  inline T atomicCAS##SUFFIX(T* address, T compare, T value,                                   \
                             emu::SourceLocation where = emu::SourceLocation::current()) {     \
    return emu::change_atomically(                                                             \
        address, "atomicCAS" #SUFFIX "()", where,                                              \
        [=](T old) -> T { return old == compare ? value : old; }, emu::AtomicOrder::kCompare); \
  }

using fa_ull = unsigned long long;
FA_ATOMIC(atomicAdd, int, int(unsigned(old) + unsigned(value)))
FA_ATOMIC(atomicAdd, unsigned, old + value)
FA_ATOMIC(atomicAdd, fa_ull, old + value)
FA_ATOMIC(atomicAdd, float, old + value)
FA_ATOMIC(atomicAdd, double, old + value)
FA_ATOMIC(atomicAdd, __half, __half(float(old) + float(value)))
FA_ATOMIC(atomicAdd, __nv_bfloat16, __nv_bfloat16(float(old) + float(value)))
FA_ATOMIC(atomicAdd, __half2,
          (__half2{__half(float(old.x) + float(value.x)), __half(float(old.y) + float(value.y))}))
FA_ATOMIC(atomicAdd, __nv_bfloat162,
          (__nv_bfloat162{__nv_bfloat16(float(old.x) + float(value.x)),
                          __nv_bfloat16(float(old.y) + float(value.y))}))
FA_ATOMIC(atomicSub, int, int(unsigned(old) - unsigned(value)))
FA_ATOMIC(atomicSub, unsigned, old - value)
FA_ATOMIC(atomicExch, int, value)
FA_ATOMIC(atomicExch, unsigned, value)
FA_ATOMIC(atomicExch, fa_ull, value)
FA_ATOMIC(atomicExch, float, value)
FA_ATOMIC(atomicMin, int, std::min(old, value))
FA_ATOMIC(atomicMin, unsigned, std::min(old, value))
FA_ATOMIC(atomicMin, long long, std::min(old, value))
FA_ATOMIC(atomicMin, fa_ull, std::min(old, value))
FA_ATOMIC(atomicMax, int, std::max(old, value))
FA_ATOMIC(atomicMax, unsigned, std::max(old, value))
FA_ATOMIC(atomicMax, long long, std::max(old, value))
FA_ATOMIC(atomicMax, fa_ull, std::max(old, value))
FA_ATOMIC(atomicAnd, int, old& value)
FA_ATOMIC(atomicAnd, unsigned, old& value)
FA_ATOMIC(atomicAnd, fa_ull, old& value)
FA_ATOMIC(atomicOr, int, old | value)
FA_ATOMIC(atomicOr, unsigned, old | value)
FA_ATOMIC(atomicOr, fa_ull, old | value)
FA_ATOMIC(atomicXor, int, old ^ value)
FA_ATOMIC(atomicXor, unsigned, old ^ value)
FA_ATOMIC(atomicXor, fa_ull, old ^ value)
FA_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
FA_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
FA_ATOMIC_CAS(, int)
FA_ATOMIC_CAS(, unsigned)
FA_ATOMIC_CAS(, fa_ull)
FA_ATOMIC_CAS(, unsigned short)
FA_ATOMIC_CAS(_block, int)
FA_ATOMIC_CAS(_block, unsigned)
FA_ATOMIC_CAS(_block, fa_ull)
FA_ATOMIC_CAS(_system, int)
FA_ATOMIC_CAS(_system, unsigned)
FA_ATOMIC_CAS(_system, fa_ull)
#undef FA_ATOMIC
#undef FA_ATOMIC_IN
#undef FA_ATOMIC_CAS
