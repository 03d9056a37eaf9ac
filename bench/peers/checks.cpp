#include "bench/peers/checks.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/harness/inputs.h"
#include "common/harness/oracle.h"
#include "common/harness/parallel.h"
#include "common/launch/problem.h"

namespace fa {
namespace {

constexpr int kBlock = 128;

// An odd multiplier and a shift are one-to-one on 64 bits: different words for different indices.
uint64_t word(uint64_t index) {
  const uint64_t x = (index + 1) * 0x9e3779b97f4a7c15u;
  return x ^ (x >> 32);
}

// Which row or column of a block is looked at.
int chosen(int block, int salt) {
  return block * kBlock + int(word(uint64_t(block * 2 + salt)) % kBlock);
}

}  // namespace

Factors make_factors(int n, Dtype dtype, uint64_t seed) {
  // As many elements as n * n: heads of one column block each.
  Problem problem;
  problem.heads = n / kBlock;
  problem.seq_len = n;
  problem.head_dim = kBlock;
  problem.dtype = dtype;
  Inputs inputs = make_inputs(problem, "normal", seed);
  return {std::move(inputs.q), std::move(inputs.k)};
}

Comparison compare_product(int n, Dtype dtype, const Factors& factors,
                           const std::vector<uint16_t>& c) {
  const int blocks = n / kBlock;
  const size_t size = size_t(n);
  const double u = dtype == Dtype::kFp16 ? 0x1p-11 : 0x1p-8;
  struct Row {
    double max_abs = 0, bound_ratio = 0, error2 = 0, value2 = 0, inexact2 = 0;
  };
  std::vector<Row> rows{size_t(blocks)};
  std::atomic<bool> finite{true};
  parallel_for(size_t(blocks), [&](size_t block) {
    const size_t i = size_t(chosen(int(block), 0));
    Row& row = rows[block];
    std::vector<double> a(size);
    for (size_t k = 0; k < size; k++) a[k] = to_float(factors.a[i * size + k], dtype);
    for (int column_block = 0; column_block < blocks; column_block++) {
      const size_t j = size_t(chosen(column_block, 1));
      double value = 0, spread = 0;  // of |a_ik b_kj|
      for (size_t k = 0; k < size; k++) {
        const double product = a[k] * double(to_float(factors.b[k * size + j], dtype));
        value += product;
        spread += std::abs(product);
      }
      const double inexact = double(n) * 0x1p-24 / 8 * spread;
      const double error = std::abs(double(to_float(c[i * size + j], dtype)) - value);
      row.max_abs = std::max(row.max_abs, error);
      row.bound_ratio = std::max(row.bound_ratio, error / (u * std::abs(value) + inexact));
      row.error2 += error * error;
      row.value2 += value * value;
      row.inexact2 += inexact * inexact;
    }
    bool good = true;
    for (size_t e = block * kBlock * size; e < (block + 1) * kBlock * size; e++) {
      good &= std::isfinite(to_float(c[e], dtype));
    }
    if (!good) finite = false;
  });
  Comparison result;
  result.checked_rows = size_t(blocks);
  Row sum;
  for (const Row& row : rows) {
    result.max_abs = std::max(result.max_abs, row.max_abs);
    result.bound_ratio = std::max(result.bound_ratio, row.bound_ratio);
    sum.error2 += row.error2;
    sum.value2 += row.value2;
    sum.inexact2 += row.inexact2;
  }
  result.rel = std::sqrt(sum.error2 / sum.value2);
  result.tolerance = 1.5 * u + std::sqrt(sum.inexact2 / sum.value2);
  char text[160] = "";
  if (!finite) {
    result.max_abs = result.rel = result.bound_ratio = std::numeric_limits<double>::quiet_NaN();
    snprintf(text, sizeof text, "an element of the product is not a finite number");
  } else if (!(result.bound_ratio <= 1)) {
    snprintf(text, sizeof text, "an element of the product is off by %.3g of its bound",
             result.bound_ratio);
  } else if (!(result.rel <= result.tolerance)) {
    snprintf(text, sizeof text, "the product is off by %.3g of its norm, allowed are %.3g",
             result.rel, result.tolerance);
  }
  result.reason = text;
  result.passed = result.reason.empty();
  return result;
}

std::vector<uint64_t> make_words(size_t count) {
  constexpr size_t kChunk = 1 << 16;
  std::vector<uint64_t> words(count);
  parallel_for((count + kChunk - 1) / kChunk, [&](size_t chunk) {
    for (size_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); i++) {
      words[i] = word(i);
    }
  });
  return words;
}

Comparison compare_words(const std::vector<uint64_t>& words) {
  constexpr size_t kChunk = 1 << 16;
  std::atomic<size_t> wrong{0};
  parallel_for((words.size() + kChunk - 1) / kChunk, [&](size_t chunk) {
    size_t here = 0;
    for (size_t i = chunk * kChunk; i < std::min(words.size(), (chunk + 1) * kChunk); i++) {
      here += words[i] != word(i);
    }
    wrong += here;
  });
  Comparison result;
  result.passed = wrong == 0;
  // The share of the words that are wrong: less than a single one's.
  result.rel = double(wrong) / double(words.size());
  result.tolerance = 0.5 / double(words.size());
  result.bound_ratio = result.rel / result.tolerance;
  result.checked_rows = words.size();
  if (!result.passed) {
    result.reason = std::to_string(wrong) + " of " + std::to_string(words.size()) +
                    " words of the copy are not those of the original";
  }
  return result;
}

}  // namespace fa
