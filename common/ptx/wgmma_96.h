// The inline PTX of wgmma.mma_async with N = 96, a head_dim of beyond/causal alone. It is not in
// wgmma_instructions.h because kernels 11 to 16 would count as changed since they were measured.
#pragma once

#ifdef __CUDACC__
#include "common/ptx/wgmma_instructions.h"

// clang-format off
namespace ptx {

#define FA_NAMES_96 FA_NAMES_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define FA_ACCUMULATORS_96 FA_ACCUMULATORS_80, FA_8(40)
FA_WGMMA(96, 48, 49, 50, 51, 52, 53, 54, 55)

}  // namespace ptx
#endif
