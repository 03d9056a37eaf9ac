// Stands in for CUDA's header of this name when there is no CUDA: the emulator.
#pragma once
// IWYU pragma: begin_exports
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "common/emulator/core/half_types.h"
#include "common/emulator/core/lane.h"
#include "common/emulator/core/launch.h"
#include "common/emulator/core/vector_types.h"
#include "common/emulator/include/device_functions.h"
#include "common/emulator/units/atomics.h"
#include "common/emulator/units/warp.h"
// IWYU pragma: end_exports
