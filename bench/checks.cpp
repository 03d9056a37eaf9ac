#include "bench/checks.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "common/harness/inputs.h"
#include "common/harness/parallel.h"

namespace fa::gemm {
namespace {

// Uniform between -1 and 1, of an index: an odd multiplier and shifts mix its bits.
double uniform(uint64_t index, uint64_t seed) {
  uint64_t x = (index + 1) * 0x9e3779b97f4a7c15u + seed * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return double(int64_t(x ^ (x >> 31))) * 0x1p-63;
}

// Element i is value(i).
template <typename T, typename Value>
std::vector<T> fill(size_t count, const Value& value) {
  constexpr size_t kChunk = 1 << 16;
  std::vector<T> values(count);
  parallel_for((count + kChunk - 1) / kChunk, [&](size_t chunk) {
    for (size_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); i++) {
      values[i] = value(i);
    }
  });
  return values;
}

double gelu(double x) {
  const double u = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(u));
}

}  // namespace

Operands make_operands(const Size& size, Dtype dtype, uint64_t seed) {
  const size_t m = size_t(size.m), n = size_t(size.n), k = size_t(size.k);
  const auto numbers = [=](size_t count, double deviation, uint64_t stream) {
    const double scale = std::sqrt(3.0) * deviation;
    return fill<uint16_t>(count, [=](size_t i) {
      return from_float(float(scale * uniform(i, 3 * seed + stream)), dtype);
    });
  };
  return {numbers(m * k, 1, 0), numbers(n * k, 1 / std::sqrt(double(k)), 1), numbers(n, 1, 2)};
}

Expected make_expected(const Size& size, Dtype dtype, Epilogue epilogue, const Operands& operands) {
  const size_t m = size_t(size.m), n = size_t(size.n), k = size_t(size.k);
  const double u = dtype == Dtype::kFp16 ? 0x1p-11 : 0x1p-8;
  Expected expected;
  if (m * n <= size_t(1) << 19) {
    for (size_t row = 0; row < m; row++) expected.rows.push_back(row);
  } else {  // of each 128 rows another one
    for (size_t block = 0; block < m / 128; block++) {
      expected.rows.push_back(block * 128 + block * 37 % 128);
    }
  }
  const size_t rows = expected.rows.size();
  expected.values.resize(rows * n);
  expected.allowed.resize(rows * n);
  std::vector<float> a(rows * k);
  for (size_t r = 0; r < rows; r++) {
    for (size_t d = 0; d < k; d++)
      a[r * k + d] = to_float(operands.a[expected.rows[r] * k + d], dtype);
  }
  parallel_for(n, [&](size_t column) {
    std::vector<float> b(k);
    for (size_t d = 0; d < k; d++) b[d] = to_float(operands.b[column * k + d], dtype);
    const double bias = to_float(operands.bias[column], dtype);
    for (size_t r = 0; r < rows; r++) {
      double sum = 0, spread = 0;  // of |a_ik b_jk|
      for (size_t d = 0; d < k; d++) {
        const double product = double(a[r * k + d]) * double(b[d]);
        sum += product;
        spread += std::abs(product);
      }
      double inexact = double(k) * 0x1p-24 / 8 * spread;
      double value = sum;
      if (epilogue == Epilogue::kBiasGelu) {
        value = gelu(sum + bias);
        inexact = 1.13 * inexact + 0x1p-20 * std::abs(sum + bias);
      }
      expected.values[r * n + column] = value;
      // The last: half of fp16's smallest subnormal.
      expected.allowed[r * n + column] = u * std::abs(value) + inexact + 0x1p-25;
    }
  });
  return expected;
}

Comparison compare_product(const Size& size, Dtype dtype, const Expected& expected,
                           const std::vector<uint16_t>& c) {
  const size_t n = size_t(size.n);
  Comparison result;
  result.checked_rows = expected.rows.size();
  double error2 = 0, value2 = 0, allowed2 = 0;
  size_t worst = 0;
  for (size_t r = 0; r < expected.rows.size(); r++) {
    for (size_t column = 0; column < n; column++) {
      const size_t i = r * n + column;
      const double value = expected.values[i];
      const double error =
          std::abs(double(to_float(c[expected.rows[r] * n + column], dtype)) - value);
      const double ratio = error / expected.allowed[i];
      result.max_abs = std::max(result.max_abs, error);
      if (ratio > result.bound_ratio) worst = i;
      result.bound_ratio = std::max(result.bound_ratio, ratio);
      error2 += error * error;
      value2 += value * value;
      allowed2 += expected.allowed[i] * expected.allowed[i];
    }
  }
  std::atomic<bool> finite{true};
  parallel_for(size_t(size.m), [&](size_t row) {
    bool good = true;
    for (size_t i = row * n; i < (row + 1) * n; i++) good &= std::isfinite(to_float(c[i], dtype));
    if (!good) finite = false;
  });
  result.rel = std::sqrt(error2 / value2);
  result.tolerance = std::sqrt(allowed2 / value2);
  char text[160] = "";
  if (!finite) {
    result.max_abs = result.rel = result.bound_ratio = std::numeric_limits<double>::quiet_NaN();
    snprintf(text, sizeof text, "an element of the product is not a finite number");
  } else if (!(result.bound_ratio <= 1)) {
    snprintf(text, sizeof text, "C[%zu][%zu] is %.6g instead of %.6g: off by %.3g of its bound",
             expected.rows[worst / n], worst % n,
             double(to_float(c[expected.rows[worst / n] * n + worst % n], dtype)),
             expected.values[worst], result.bound_ratio);
  }
  result.reason = text;
  result.passed = result.reason.empty();
  return result;
}

}  // namespace fa::gemm

namespace fa {

// An odd multiplier and a shift are one-to-one on 64 bits: different words for different indices.
std::vector<uint64_t> make_words(size_t count) {
  return gemm::fill<uint64_t>(count, [](size_t index) {
    const uint64_t x = (index + 1) * 0x9e3779b97f4a7c15u;
    return x ^ (x >> 32);
  });
}

Comparison compare_words(const std::vector<uint64_t>& words) {
  const std::vector<uint64_t> right = make_words(words.size());
  const size_t wrong = std::inner_product(words.begin(), words.end(), right.begin(), size_t(0),
                                          std::plus<>(), std::not_equal_to<>());
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
