// What a single file (scripts/fa single) has on the emulator in place of inline PTX: the headers
// that its wrappers are copied from.
#pragma once

// IWYU pragma: begin_exports
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "common/launch/quad.h"
#include "common/launch/slabs.h"
#include "common/launch/tensor_map.h"
#include "common/layout/swizzle.h"
#include "common/layout/wgmma.h"
#include "common/ptx/barrier.h"
#include "common/ptx/convert.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/elect.h"
#include "common/ptx/exp2.h"
#include "common/ptx/fence.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/mma.h"
#include "common/ptx/setmaxnreg.h"
#include "common/ptx/tma.h"
#include "common/ptx/wgmma.h"
#include "common/ptx/wmma.h"
// IWYU pragma: end_exports

namespace fa {

// The emulator counts as sm_90.
#define FA_ARCHITECTURE 90

template <auto kKernel>
int compiled_architecture() {
  return FA_ARCHITECTURE;
}

}  // namespace fa
