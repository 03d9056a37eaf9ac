// A tensor map: what TMA needs to know of a tensor in global memory (CUDA driver API, "Tensor Map
// Object Management"). make_tensor_map (common/launch/tensor_map.h) makes it, TMA's instructions
// take its address.
//
// A kernel gets it as a parameter that it may take the address of: `const __grid_constant__
// TensorMap map`.
#pragma once

#include <cstdint>

#include "common/layout/swizzle.h"

namespace ptx {

inline constexpr int kMaxTensorRank = 5;

#ifdef FA_WITH_CUDA

// The driver's CUtensorMap: how it is encoded only the driver knows.
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

#else

// The emulator's: the arguments of make_tensor_map.
struct alignas(64) TensorMap {
  uint8_t* base = nullptr;
  int rank = 0;  // 0: nobody made this map
  int element_bytes = 0;
  uint64_t sizes[kMaxTensorRank] = {};    // in elements, the innermost dimension first
  uint64_t strides[kMaxTensorRank] = {};  // in bytes, from one index of a dimension to the next
  uint32_t box[kMaxTensorRank] = {};      // in elements
  layout::SwizzleMode swizzle = layout::SwizzleMode::kNone;
};

#endif

}  // namespace ptx
