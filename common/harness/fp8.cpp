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

// `count` neighbouring numbers with one scale.
void round(float* numbers, size_t count, float rotated_by) {
  float largest = 0x1p-100f;
  for (size_t i = 0; i < count; i++) largest = std::max(largest, std::fabs(numbers[i]));
  const float inverse = kLargest / largest, scale = largest / kLargest * rotated_by;
  for (size_t i = 0; i < count; i++)
    numbers[i] = float(__nv_fp8_e4m3(numbers[i] * inverse)) * scale;
}

// [heads of all blocks, rows, head_dim]
std::vector<float> rounded(const Problem& problem, const std::vector<uint16_t>& tensor,
                           size_t heads, size_t rows, size_t per_scale, bool rotated) {
  const size_t columns = size_t(problem.head_dim);
  std::vector<float> result(heads * rows * columns);
  parallel_for(heads, [&](size_t head) {
    for (size_t row = 0; row < rows; row++) {
      float* const to = &result[(head * rows + row) * columns];
      for (size_t c = 0; c < columns; c++)
        to[c] = to_float(tensor[(head * rows + row) * columns + c], problem.dtype);
      if (rotated) rotate(to, problem.head_dim);
    }
    const float rotated_by = rotated ? 1.0f / std::sqrt(float(columns)) : 1.0f;
    for (size_t row = 0; row < rows; row += per_scale) {
      round(&result[(head * rows + row) * columns], std::min(per_scale, rows - row) * columns,
            rotated_by);
    }
  });
  return result;
}

}  // namespace

Fp8Inputs round_to_fp8(const Problem& problem, const Inputs& inputs) {
  const bool rotated = problem.fp8 == Fp8::kRotated;
  const size_t heads = size_t(problem.batch) * size_t(problem.heads);
  const size_t kv_heads = size_t(problem.batch) * size_t(problem.key_heads());
  const size_t q_rows = problem.q_rows(), kv_rows = problem.kv_rows();
  const auto per_scale = [&](size_t rows) { return size_t(problem.rows_per_scale(int(rows))); };
  return {rounded(problem, inputs.q, heads, q_rows, per_scale(q_rows), rotated),
          rounded(problem, inputs.k, kv_heads, kv_rows, per_scale(kv_rows), rotated),
          rounded(problem, inputs.v, kv_heads, kv_rows, kv_rows, false)};
}

Inputs in_16_bits(const Problem& problem, const Fp8Inputs& rounded) {
  const auto narrow = [&](const std::vector<float>& from) {
    std::vector<uint16_t> to(from.size());
    for (size_t i = 0; i < from.size(); i++) to[i] = from_float(from[i], problem.dtype);
    return to;
  };
  return {narrow(rounded.q), narrow(rounded.k), narrow(rounded.v)};
}

}  // namespace fa
