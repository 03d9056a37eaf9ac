#include "common/harness/fp8.h"

#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/harness/parallel.h"
#include "common/launch/rotation.h"

namespace fa {
namespace {

constexpr float kLargest = 448.0f;  // of e4m3

void rotate(float* row, int columns) {
  for (int c = 0; c < columns; c++) row[c] = has_minus(c) ? -row[c] : row[c];
  for (int distance = 1; distance < columns; distance *= 2) {
    for (int c = 0; c < columns; c++) {
      if (c & distance) continue;
      const float low = row[c], high = row[c + distance];
      row[c] = low + high;
      row[c + distance] = low - high;
    }
  }
}

// [heads of all blocks, rows, head_dim]
std::vector<float> rounded(const Problem& problem, const std::vector<uint16_t>& tensor,
                           size_t heads, size_t rows, bool per_head, bool rotated) {
  // A piece of work is what has a scale of its own in Fp8::kTile.
  const size_t columns = size_t(problem.head_dim), of_tile = kFp8TileRows * columns;
  const size_t of_head = rows * columns, tiles = (rows + kFp8TileRows - 1) / kFp8TileRows;
  std::vector<float> result(heads * of_head), largest(heads * tiles, 0x1p-100f);
  const auto for_all = [&](const auto& body) {
    parallel_for(heads * tiles, [&](size_t tile) {
      const size_t first = tile / tiles * of_head + tile % tiles * of_tile;
      body(tile, first, std::min(first + of_tile, (tile / tiles + 1) * of_head));
    });
  };
  for_all([&](size_t tile, size_t first, size_t last) {
    for (size_t i = first; i < last; i++) result[i] = to_float(tensor[i], problem.dtype);
    for (size_t row = first; rotated && row < last; row += columns)
      rotate(&result[row], problem.head_dim);
    for (size_t i = first; i < last; i++)
      largest[tile] = std::max(largest[tile], std::fabs(result[i]));
  });
  if (per_head) {
    for (auto head = largest.begin(); head < largest.end(); head += long(tiles))
      std::fill_n(head, tiles, *std::max_element(head, head + long(tiles)));
  }
  const float rotated_by = rotated ? 1.0f / std::sqrt(float(columns)) : 1.0f;
  for_all([&](size_t tile, size_t first, size_t last) {
    const float inverse = kLargest / largest[tile], scale = largest[tile] / kLargest * rotated_by;
    for (size_t i = first; i < last; i++)
      result[i] = float(__nv_fp8_e4m3(result[i] * inverse)) * scale;
  });
  return result;
}

}  // namespace

Fp8Inputs round_to_fp8(const Problem& problem, const Inputs& inputs) {
  const bool rotated = problem.fp8 == Fp8::kRotated;
  const size_t heads = size_t(problem.batch) * size_t(problem.heads);
  const size_t kv_heads = size_t(problem.batch) * size_t(problem.key_heads());
  const size_t q_rows = problem.q_rows(), kv_rows = problem.kv_rows();
  const bool per_head = problem.fp8 == Fp8::kHead;
  return {rounded(problem, inputs.q, heads, q_rows, per_head, rotated),
          rounded(problem, inputs.k, kv_heads, kv_rows, per_head, rotated),
          rounded(problem, inputs.v, kv_heads, kv_rows, true, false)};
}

size_t bytes_of_rounding(const Problem& problem) {
  const size_t of_number = 2 + 1, of_number_per_head = 2 + 2 + 1;
  const size_t qk = problem.element_count() + problem.kv_element_count();
  return qk * (problem.fp8 == Fp8::kHead ? of_number_per_head : of_number) +
         problem.kv_element_count() * of_number_per_head;
}

Inputs in_16_bits(const Problem& problem, const Fp8Inputs& rounded) {
  const auto narrow = [&](const std::vector<float>& from) {
    std::vector<uint16_t> to(from.size());
    const size_t columns = size_t(problem.head_dim);
    parallel_for(from.size() / columns, [&](size_t row) {
      for (size_t i = row * columns; i < (row + 1) * columns; i++)
        to[i] = from_float(from[i], problem.dtype);
    });
    return to;
  };
  return {narrow(rounded.q), narrow(rounded.k), narrow(rounded.v)};
}

}  // namespace fa
