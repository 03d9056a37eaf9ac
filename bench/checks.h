// What the products and copies of bench/ are made of, and what they must be, by the CPU; of sums in
// float64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/gemm/gemm.h"        // IWYU pragma: export
#include "common/harness/oracle.h"  // IWYU pragma: export
#include "common/launch/problem.h"  // IWYU pragma: export

namespace fa::gemm {

struct Size {
  int m, n, k;
};

// fp16 or bf16 patterns. Uniform numbers: A and bias of variance 1, B of 1 / k, so that sums have
// variance 1 and GELU works on all of its range.
struct Operands {
  std::vector<uint16_t> a, b, bias;
};
Operands make_operands(const Size& size, Dtype dtype, uint64_t seed);

// Rows of C, and the largest error that a correct kernel may make in each element: u |c| for its
// rounding, and 1.13 (the steepest slope of GELU) times k 2^-24 / 8 sum_k |a_ik b_jk| for the sum
// in fp32, and 2^-20 |x| for the epilogue's own arithmetic.
struct Expected {
  std::vector<size_t> rows;     // of every 128 one, or all of a small C
  std::vector<double> values;   // [rows.size()][n]
  std::vector<double> allowed;  // the same shape
};
Expected make_expected(const Size& size, Dtype dtype, Epilogue epilogue, const Operands& operands);

// Compares c, [m][n] patterns. All of it must be finite.
Comparison compare_product(const Size& size, Dtype dtype, const Expected& expected,
                           const std::vector<uint16_t>& c);

}  // namespace fa::gemm

namespace fa {

// The words to copy, and whether these are they: a word counts as a row. No two words are equal.
std::vector<uint64_t> make_words(size_t count);
Comparison compare_words(const std::vector<uint64_t>& words);

}  // namespace fa
