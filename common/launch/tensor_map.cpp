// The rules for tensor maps, and the emulator's maps.
#include "common/launch/tensor_map.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/launch/problem.h"
#include "common/layout/swizzle.h"
#include "common/ptx/tensor_map.h"

namespace fa {
namespace {

// What a CTA can have of shared memory (sm_90; CUDA C++ Programming Guide, "Compute Capabilities").
constexpr uint64_t kMostBoxBytes = 227 * 1024;

int element_bytes(TensorType type) {
  switch (type) {
    case TensorType::kUint8:
      return 1;
    case TensorType::kUint32:
    case TensorType::kFloat:
      return 4;
    case TensorType::kUint16:
    case TensorType::kHalf:
    case TensorType::kBfloat16:
      break;
  }
  return 2;
}

std::string text(uint64_t number) { return std::to_string(number); }

}  // namespace

std::string tensor_map_error(const TensorMapArguments& a) {
  const size_t rank = a.sizes.size();
  const uint64_t bytes = uint64_t(element_bytes(a.type));
  if (rank < 1 || rank > ptx::kMaxTensorRank) {
    return "a tensor has 1 to " + text(ptx::kMaxTensorRank) + " dimensions, not " + text(rank);
  }
  if (a.strides.size() != rank - 1) {
    return "a tensor of " + text(rank) + " dimensions has " + text(rank - 1) +
           " strides (the innermost has none), not " + text(a.strides.size());
  }
  if (a.box.size() != rank) {
    return "the box of a tensor of " + text(rank) + " dimensions has as many, not " +
           text(a.box.size());
  }
  if (uintptr_t(a.pointer) % 16 != 0) {  // the driver takes even a null pointer
    return "the tensor's address must be a multiple of 16 bytes";
  }
  for (size_t i = 0; i < rank; i++) {
    if (a.sizes[i] < 1 || a.sizes[i] > uint64_t(1) << 32) {
      return "size " + text(i) + " must be 1 to 2^32 elements, not " + text(a.sizes[i]);
    }
    if (a.box[i] < 1 || a.box[i] > 256) {
      return "box size " + text(i) + " must be 1 to 256 elements, not " + text(a.box[i]);
    }
  }
  for (size_t i = 1; i < rank; i++) {
    const uint64_t stride = a.strides[i - 1];
    if (stride % 16 != 0 || stride >= uint64_t(1) << 40) {
      return "the stride of dimension " + text(i) +
             " must be a multiple of 16 bytes below 2^40, not " + text(stride);
    }
  }
  const uint64_t row = a.box[0] * bytes;
  if (row % 16 != 0) {
    return "the box's innermost size must be a multiple of 16 bytes, not " + text(row);
  }
  const auto span = uint64_t(layout::swizzle_span(a.swizzle));
  if (a.swizzle != layout::SwizzleMode::kNone && row > span) {
    return "with " + text(span) + "-byte swizzle the box's innermost size is at most " +
           text(span) + " bytes, not " + text(row);
  }
  // An H200's driver takes a box of 128 KiB and refuses one of 256 KiB.
  uint64_t box_bytes = bytes;
  for (const uint32_t size : a.box) box_bytes *= size;
  if (box_bytes > kMostBoxBytes) {
    return "a box has at most " + text(kMostBoxBytes) +
           " bytes, what a CTA's shared memory has, not " + text(box_bytes);
  }
  return "";
}

#ifndef FA_WITH_CUDA

ptx::TensorMap make_tensor_map(const TensorMapArguments& a) {
  if (const std::string error = tensor_map_error(a); !error.empty()) {
    throw BackendError("tensor map: " + error);
  }
  ptx::TensorMap map;
  map.base = static_cast<uint8_t*>(const_cast<void*>(a.pointer));
  map.rank = int(a.sizes.size());
  map.element_bytes = element_bytes(a.type);
  for (size_t i = 0; i < a.sizes.size(); i++) {
    map.sizes[i] = a.sizes[i];
    map.strides[i] = i == 0 ? uint64_t(map.element_bytes) : a.strides[i - 1];
    map.box[i] = a.box[i];
  }
  map.swizzle = a.swizzle;
  return map;
}

#endif

}  // namespace fa
