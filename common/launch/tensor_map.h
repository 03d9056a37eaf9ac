// Making tensor maps, for TMA's instructions (common/ptx/tma.h).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "common/launch/problem.h"
#include "common/layout/swizzle.h"
#include "common/ptx/tensor_map.h"

namespace fa {

enum class TensorType { kUint8, kUint16, kUint32, kFloat, kHalf, kBfloat16 };

// The arguments of make_tensor_map, the innermost dimension first.
struct TensorMapArguments {
  const void* pointer;            // the tensor's first element
  TensorType type;                //
  std::vector<uint64_t> sizes;    // elements of each dimension
  std::vector<uint64_t> strides;  // bytes from one index to the next, of each but the innermost
  std::vector<uint32_t> box;      // elements that one copy moves
  layout::SwizzleMode swizzle;    // of the box in shared memory
};

// Throws BackendError with a sentence that says which argument is wrong.
ptx::TensorMap make_tensor_map(const TensorMapArguments& arguments);

// What is wrong with the arguments, in one sentence; empty: nothing. The same rules on either back
// end: those of cuTensorMapEncodeTiled (CUDA driver API, "Tensor Map Object Management").
std::string tensor_map_error(const TensorMapArguments& arguments);

#ifdef FA_WITH_CUDA
// Whether the driver takes them: for a test that it has the same rules.
bool driver_accepts(const TensorMapArguments& arguments);
#endif

template <typename T>
constexpr TensorType tensor_type() {
  if constexpr (std::is_same_v<T, __half>) {
    return TensorType::kHalf;
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return TensorType::kBfloat16;
  } else if constexpr (std::is_same_v<T, float>) {
    return TensorType::kFloat;
  } else if constexpr (std::is_same_v<T, uint32_t>) {
    return TensorType::kUint32;
  } else if constexpr (std::is_same_v<T, uint16_t>) {
    return TensorType::kUint16;
  } else {
    static_assert(std::is_same_v<T, uint8_t>, "no tensor map has elements of this type");
    return TensorType::kUint8;
  }
}

// Boxes of 64 x 128 elements of a [heads, seq_len, 64] tensor:
// make_tensor_map(q, {64, seq_len, heads}, {64 * 2, seq_len * 64 * 2}, {64, 128, 1}, k128Bytes)
template <typename T>
ptx::TensorMap make_tensor_map(const T* pointer, std::initializer_list<uint64_t> sizes,
                               std::initializer_list<uint64_t> strides,
                               std::initializer_list<uint32_t> box, layout::SwizzleMode swizzle) {
  return make_tensor_map(
      TensorMapArguments{pointer, tensor_type<T>(), sizes, strides, box, swizzle});
}

// For tiles in slabs (common/launch/slabs.h): boxes of box_rows rows and 64 columns of a row-major
// matrix of rows x columns elements of 16 bits. A copy names {column, row}.
template <typename T>
ptx::TensorMap make_slab_map(const T* matrix, uint64_t columns, uint64_t rows, uint32_t box_rows) {
  static_assert(sizeof(T) == 2, "64 columns are the 128 bytes of the swizzle");
  return make_tensor_map(matrix, {columns, rows}, {columns * sizeof(T)}, {64, box_rows},
                         layout::SwizzleMode::k128Bytes);
}

// The same for Q, K, V or O, whose rows lie where the strides say. A box has rows of one head of
// one sequence, and a copy names {column, row, head, sequence}. Rows past the head's end are read
// as zeros and not written.
// [slab-map]
template <typename T>
ptx::TensorMap make_slab_map(const T* tensor, int head_dim, int seq_len, int heads, int batch,
                             const Strides& strides, uint32_t box_rows) {
  static_assert(sizeof(T) == 2, "64 columns are the 128 bytes of the swizzle");
  const auto bytes = [](long long elements) { return uint64_t(elements) * sizeof(T); };
  return make_tensor_map(tensor,
                         {uint64_t(head_dim), uint64_t(seq_len), uint64_t(heads), uint64_t(batch)},
                         {bytes(strides.row), bytes(strides.head), bytes(strides.block)},
                         {64, box_rows, 1, 1}, layout::SwizzleMode::k128Bytes);
}
// [/slab-map]

}  // namespace fa
