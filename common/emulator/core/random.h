// Decisions that look random and are the same in every run: hashes of the seed and of a place in
// the run.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace emu {

// Bits that look random (the finaliser of SplitMix64).
inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline uint64_t random_bits(uint64_t seed, std::initializer_list<uint64_t> place) {
  uint64_t x = mix(seed + 1);
  for (const uint64_t part : place) x = mix(x + part + 1);
  return x;
}

}  // namespace emu
