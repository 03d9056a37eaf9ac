// What rounding to e4m3 leaves of Q, K and V (Problem::fp8): the numbers that a kernel multiplies.
#pragma once

#include <cstddef>
#include <vector>

#include "common/harness/inputs.h"  // IWYU pragma: export
#include "common/launch/problem.h"  // IWYU pragma: export

namespace fa {

// The shapes of Inputs. If Q and K are rotated, so are these: Q K^T is the same.
struct Fp8Inputs {
  std::vector<float> q, k, v;
};

// Each number times 448 / m, m the largest of those that share a scale (at least 2^-100), rounded
// to e4m3, times m / 448; and of a rotated row divided by sqrt(head_dim). A kernel that computes
// these in fp32, in this order, rounds every number to the same e4m3.
Fp8Inputs round_to_fp8(const Problem& problem, const Inputs& inputs);

// Bytes that rounding on a GPU cannot do without: of each tensor the 16 bits are read, and again
// where a scale is per head, as its largest number must be known before; and e4m3 is written.
size_t bytes_of_rounding(const Problem& problem);

// What round_to_fp8 gives, rounded once more, to the problem's dtype, which costs at most its
// rounding unit: for checks whose tolerance is that of FP8.
Inputs in_16_bits(const Problem& problem, const Fp8Inputs& rounded);

}  // namespace fa
