// Clusters of CTAs: their barrier, and the shared memory of the other CTAs.
#pragma once

#include <cstdint>

#include "common/emulator/core/lane.h"  // IWYU pragma: export

namespace emu {

// All CTAs of the launch run together, by cudaLaunchCooperativeKernel(). Here they are a cluster,
// of which the kernel does not know.
inline constinit bool all_together = false;

void cluster_arrive(SourceLocation where);
void cluster_wait(SourceLocation where);
int cluster_rank();
int cluster_size();

// The address of what lies where `address` does, in the shared memory of CTA `cta` of the cluster.
uintptr_t map_to_cta(uintptr_t address, int cta, SourceLocation where);

}  // namespace emu
