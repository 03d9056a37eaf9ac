// How many passes through the banks of shared memory a warp's request takes.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/emulator/core/lane.h"  // IWYU pragma: export

namespace emu {

struct Wavefronts {
  uint32_t actual = 0;  // passes needed
  uint32_t ideal = 0;   // passes if no two lanes served together met in a bank
};

// Tells which wavefront, counted from 0, delivers a word of a lane's access. The word's bank is
// word % 32.
struct Delivery {
  int lane;
  uint32_t word, wavefront;
};

// `offsets`: byte address of each lane's access in shared memory; `active`: the lanes that take
// part; `bytes`: 1, 2, 4, 8 or 16 a lane. `deliveries`: if given, gets one for each word of each
// lane.
Wavefronts shared_wavefronts(const std::array<uint32_t, kWarpSize>& offsets, uint32_t active,
                             uint32_t bytes, std::vector<Delivery>* deliveries = nullptr);

// The same for atomics, by a model that has not been measured: a bank changes one word a pass, so
// lanes of one word come after each other, too. The ideal is no two lanes in one bank.
Wavefronts atomic_wavefronts(const std::array<uint32_t, kWarpSize>& offsets, uint32_t active,
                             uint32_t bytes);

// The same for ldmatrix and stmatrix. A matrix is eight rows of 16 bytes, at best one wavefront,
// which delivers 128 bytes. `offsets`: of the rows of matrix m in lanes 8 m to 8 m + 7.
Wavefronts matrix_wavefronts(const std::array<uint32_t, kWarpSize>& offsets, int matrices,
                             std::vector<Delivery>* deliveries = nullptr);

}  // namespace emu
