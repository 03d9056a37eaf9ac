// Stands in for CUDA's header of this name when there is no CUDA: the emulator.
#pragma once
// IWYU pragma: begin_exports
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "common/emulator/half_types.h"
#include "common/emulator/intrinsics.h"
#include "common/emulator/lane.h"
#include "common/emulator/launch.h"
#include "common/emulator/vector_types.h"
// IWYU pragma: end_exports
