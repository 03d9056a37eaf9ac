// Stands in for CUDA's header of this name when there is no CUDA: the emulator.
#pragma once
#include "common/emulator/core/half_types.h"  // IWYU pragma: export
