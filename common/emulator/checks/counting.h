// Loads and stores as requests of a warp.
#pragma once

#include <cstdint>

#include "common/emulator/core/lane.h"

namespace emu {

// Hands the accesses that the lanes in `mask` have logged to the counters, and forgets them.
void count_accesses(Warp& warp, uint32_t mask);

}  // namespace emu
