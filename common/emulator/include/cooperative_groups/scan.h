// Stands in for CUDA's header of this name when there is no CUDA: the emulator.
#pragma once
#include <cooperative_groups.h>  // IWYU pragma: export
