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

// setmaxnreg.inc and .dec; the registers that each thread of a CTA has at the start, if the kernel uses them.
void set_max_registers(int registers, bool increase, SourceLocation where);
int launch_registers(int threads);

// Checked build: ends the launch if `address` lies in the shared memory of a CTA that has ended.
void check_cta_lives(uintptr_t address, uintptr_t program_counter);

// At the end of a lane.
void cluster_lane_exits(const Lane& lane);

}  // namespace emu
