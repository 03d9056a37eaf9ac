#include "common/emulator/programs/driver.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "common/launch/problem.h"
#include "common/launch/tensor_map.h"
#include "common/layout/swizzle.h"
#include "common/ptx/tensor_map.h"

namespace {

CUresult refuse(const char* sentence) {
  std::fflush(stdout);
  std::fprintf(stderr, "error: cuTensorMapEncodeTiled: %s\n", sentence);
  return CUDA_ERROR_INVALID_VALUE;
}

constexpr std::pair<CUtensorMapDataType, fa::TensorType> kTypes[] = {
    {CU_TENSOR_MAP_DATA_TYPE_UINT8, fa::TensorType::kUint8},
    {CU_TENSOR_MAP_DATA_TYPE_UINT16, fa::TensorType::kUint16},
    {CU_TENSOR_MAP_DATA_TYPE_UINT32, fa::TensorType::kUint32},
    {CU_TENSOR_MAP_DATA_TYPE_INT32, fa::TensorType::kUint32},
    {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, fa::TensorType::kFloat},
    {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, fa::TensorType::kHalf},
    {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, fa::TensorType::kBfloat16}};

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* tensor, const cuuint64_t* sizes, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* element_strides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  const auto* const known = std::find_if(std::begin(kTypes), std::end(kTypes),
                                         [=](const auto& each) { return each.first == type; });
  if (known == std::end(kTypes)) {
    return refuse("the emulator has elements of 8, 16 and 32 bits, not this type");
  }
  fa::TensorMapArguments arguments{};
  arguments.type = known->second;
  if (rank < 1 || rank > ptx::kMaxTensorRank) {
    return refuse("a tensor has one to five dimensions");
  }
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) {
    return refuse("the emulator has neither interleaved layouts nor boxes filled with NaN");
  }
  for (cuuint32_t i = 0; i < rank; i++) {
    if (element_strides[i] != 1)
      return refuse("the emulator copies every element, with strides of 1");
  }
  arguments.pointer = tensor;
  arguments.sizes.assign(sizes, sizes + rank);
  arguments.strides.assign(strides, strides + rank - 1);
  arguments.box.assign(box, box + rank);
  arguments.swizzle = swizzle == CU_TENSOR_MAP_SWIZZLE_128B  ? layout::SwizzleMode::k128Bytes
                      : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? layout::SwizzleMode::k64Bytes
                      : swizzle == CU_TENSOR_MAP_SWIZZLE_32B ? layout::SwizzleMode::k32Bytes
                                                             : layout::SwizzleMode::kNone;
  try {
    static_assert(sizeof(ptx::TensorMap) == sizeof(CUtensorMap));
    const ptx::TensorMap made = fa::make_tensor_map(arguments);
    memcpy(map, &made, sizeof made);
  } catch (const fa::BackendError& problem) {
    return refuse(problem.what());
  }
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_SUCCESS ? "no error" : "invalid argument";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = error == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR_INVALID_VALUE";
  return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* found) {
  const bool is_there = std::string_view(name) == "cuTensorMapEncodeTiled";
  *function = is_there ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled) : nullptr;
  if (found) *found = is_there ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* found) {
  return cudaGetDriverEntryPoint(name, function, flags, found);
}
