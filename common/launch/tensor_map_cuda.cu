// Tensor maps that the driver makes. It is asked for at run time: nothing is linked against it.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstring>
#include <string>

#include "common/launch/launch.h"
#include "common/launch/problem.h"
#include "common/launch/tensor_map.h"

namespace fa {
namespace {

static_assert(sizeof(ptx::TensorMap) == sizeof(CUtensorMap));

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode driver_encode() {
  static const Encode encode = [] {
    constexpr unsigned kSince = 12000;  // CUDA 12.0 brought it
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kSince,
                                                cudaEnableDefault, &found),
               "asking the driver for cuTensorMapEncodeTiled");
    if (found != cudaDriverEntryPointSuccess || !function) {
      throw BackendError("the driver has no cuTensorMapEncodeTiled: TMA needs that of CUDA 12");
    }
    return reinterpret_cast<Encode>(function);
  }();
  return encode;
}

CUtensorMapDataType driver_type(TensorType type) {
  switch (type) {
    case TensorType::kUint8:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    case TensorType::kUint32:
      return CU_TENSOR_MAP_DATA_TYPE_UINT32;
    case TensorType::kFloat:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case TensorType::kHalf:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case TensorType::kBfloat16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case TensorType::kUint16:
      break;
  }
  return CU_TENSOR_MAP_DATA_TYPE_UINT16;
}

CUtensorMapSwizzle driver_swizzle(layout::SwizzleMode mode) {
  switch (mode) {
    case layout::SwizzleMode::k32Bytes:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case layout::SwizzleMode::k64Bytes:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case layout::SwizzleMode::k128Bytes:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    case layout::SwizzleMode::kNone:
      break;
  }
  return CU_TENSOR_MAP_SWIZZLE_NONE;
}

CUresult encode(const TensorMapArguments& a, ptx::TensorMap& map) {
  const std::vector<uint32_t> every_element(a.sizes.size(), 1);
  std::vector<uint64_t> strides = a.strides;
  strides.push_back(0);  // one dimension has none, but the driver wants a pointer
  alignas(64) CUtensorMap driver_map{};
  const CUresult result = driver_encode()(
      &driver_map, driver_type(a.type), uint32_t(a.sizes.size()), const_cast<void*>(a.pointer),
      a.sizes.data(), strides.data(), a.box.data(), every_element.data(),
      CU_TENSOR_MAP_INTERLEAVE_NONE, driver_swizzle(a.swizzle), CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  std::memcpy(&map, &driver_map, sizeof map);
  return result;
}

}  // namespace

ptx::TensorMap make_tensor_map(const TensorMapArguments& a) {
  if (const std::string error = tensor_map_error(a); !error.empty()) {
    throw BackendError("tensor map: " + error);
  }
  ptx::TensorMap map;
  if (const CUresult result = encode(a, map); result != CUDA_SUCCESS) {
    throw BackendError("tensor map: the driver refuses it (cuTensorMapEncodeTiled: error " +
                       std::to_string(int(result)) + ")");
  }
  return map;
}

bool driver_accepts(const TensorMapArguments& arguments) {
  ptx::TensorMap map;
  return encode(arguments, map) == CUDA_SUCCESS;
}

}  // namespace fa
