// cp.async: a thread's copies from global to shared memory and their commit groups.
#pragma once

#include <cstdint>

#include "common/emulator/lane.h"

namespace emu {

void copy_async(uint32_t shared, const void* global, int bytes, int source_bytes,
                SourceLocation where);
void commit_copies();
void wait_copies(int groups);

// At the end of a lane: copies that nobody waited for are done, as on a GPU, where they end some time.
void finish_copies(Lane& lane);

}  // namespace emu
