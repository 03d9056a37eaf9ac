// cp.async: a thread's copies from global to shared memory and their commit groups.
#pragma once

#include <cstdint>

#include "common/emulator/core/lane.h"

namespace emu {

void copy_async(uint32_t shared, const void* global, int bytes, int source_bytes,
                SourceLocation where);
void commit_copies(SourceLocation where);
void wait_copies(int groups, SourceLocation where);  // until at most so many groups are under way

}  // namespace emu
