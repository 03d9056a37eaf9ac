// Stands in for CUDA's header of this name when there is no CUDA: the emulator.
#pragma once
#include "common/emulator/core/half_types.h"  // IWYU pragma: export
#ifdef FA_CUDA_PROGRAM  // a kernel of the book may have a variable of these names
#include "common/emulator/include/half_functions.h"  // IWYU pragma: export
using half = __half;
using half2 = __half2;
#endif
