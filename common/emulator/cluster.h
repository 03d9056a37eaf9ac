// Clusters of CTAs, and what a CTA's warps share: the pool of registers; the lane that elect.sync chooses.
#pragma once

#include <cstdint>

#include "common/emulator/lane.h"

namespace emu {

void cluster_arrive(SourceLocation where);
void cluster_wait(SourceLocation where);
int cluster_rank();
int cluster_size();

// The address of what lies where `address` does, in the shared memory of CTA `cta` of the cluster.
uintptr_t map_to_cta(uintptr_t address, int cta, SourceLocation where);

bool elect(SourceLocation where);

// setmaxnreg.inc and .dec
void set_max_registers(int registers, bool increase, SourceLocation where);

}  // namespace emu
