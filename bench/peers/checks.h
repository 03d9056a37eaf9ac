// What the ceilings compute, made and checked on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/harness/oracle.h"
#include "common/launch/problem.h"

namespace fa {

// A and B of a square product, [n, n] row-major patterns each, N(0, 1). n: a multiple of 128.
struct Factors {
  std::vector<uint16_t> a, b;
};
Factors make_factors(int n, Dtype dtype, uint64_t seed);

// Compares C = A B, [n, n] row-major, with float64 sums: in every block of 128 x 128 elements one
// of its rows with one of its columns, so that a product that leaves out or misplaces a block is
// seen. All of C must be finite. The bounds are those of oracle.h for a product summed in fp32: an
// element may be off by u |c| for its rounding and by n 2^-24 / 8 sum_k |a_ik b_kj| for the sum.
Comparison compare_product(int n, Dtype dtype, const Factors& factors,
                           const std::vector<uint16_t>& c);

// The words to copy, and whether these are they: a word counts as a row. No two words are equal.
std::vector<uint64_t> make_words(size_t count);
Comparison compare_words(const std::vector<uint64_t>& words);

}  // namespace fa
