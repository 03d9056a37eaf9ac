// The barriers of a CTA: __syncthreads, bar.sync and bar.arrive (PTX ISA, "bar").
#pragma once

#include "common/emulator/core/lane.h"  // IWYU pragma: export

namespace emu {

inline constexpr int kNamedBarriers = 16;  // of a CTA; 0 is __syncthreads

// `expected` threads complete the barrier; 0: every live thread of the CTA.
void barrier_sync(int barrier, int expected, const char* operation, SourceLocation where);
void barrier_arrive(int barrier, int expected, const char* operation, SourceLocation where);

}  // namespace emu
