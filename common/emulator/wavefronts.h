// How many passes through the banks of shared memory a warp's request takes.
#pragma once

#include <array>
#include <cstdint>

#include "common/emulator/lane.h"

namespace emu {

struct Wavefronts {
  uint32_t actual = 0;  // passes needed
  uint32_t ideal = 0;   // passes if no two lanes served together met in a bank
};

// `offsets`: byte address of each lane's access in shared memory; `active`: the lanes that take part;
// `bytes`: 1, 2, 4, 8 or 16 a lane.
Wavefronts shared_wavefronts(const std::array<uint32_t, kWarpSize>& offsets, uint32_t active,
                             uint32_t bytes);

}  // namespace emu
