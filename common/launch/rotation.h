// The rotation of FP8: a row of Q or K times a diagonal of random signs, then times a Hadamard
// matrix, whose every element is 1 or -1 (QuaRot, arXiv 2404.00456; FlashAttention-3, section 3.3).
// Divided by sqrt(n) the product of both is orthogonal: if the rows of Q and of K are rotated
// alike, Q K^T stays as it is, but a column of large numbers is spread over all columns.
//
// The product takes log2(n) steps. In the step of distance 1, 2, 4, ... n/2 the numbers of columns
// c and c + distance, where c has no such bit, become their sum and their difference. In this order
// the same bits come out of every program, because each number is the result of one addition.
#pragma once

#include <cstdint>

namespace fa {

// Whether the random sign of a column is minus.
constexpr bool has_minus(int column) {
  return (uint32_t(column) * uint32_t(column) * 0x9e3779b1u) >> 31 != 0;
}

}  // namespace fa
