// Stands in for CUDA's header of this name when there is no CUDA: the emulator.
#pragma once

#include <cstddef>

#include "common/emulator/core/lane.h"
#include "common/emulator/core/memory.h"
#include "common/emulator/units/cp_async.h"

inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0,
                                    emu::SourceLocation where = emu::SourceLocation::current()) {
  emu::copy_async(emu::shared_address(to), from, int(bytes), int(bytes - zeros), where);
}
inline void __pipeline_commit(emu::SourceLocation where = emu::SourceLocation::current()) {
  emu::commit_copies(where);
}
inline void __pipeline_wait_prior(int groups,
                                  emu::SourceLocation where = emu::SourceLocation::current()) {
  emu::wait_copies(groups, where);
}
