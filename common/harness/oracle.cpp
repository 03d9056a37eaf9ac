#include "common/harness/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/harness/inputs.h"
#include "common/harness/parallel.h"
#include "common/launch/problem.h"

namespace fa {
namespace {

double rounding_unit(Dtype dtype) { return dtype == Dtype::kFp16 ? 0x1p-11 : 0x1p-8; }
double smallest_subnormal(Dtype dtype) { return dtype == Dtype::kFp16 ? 0x1p-24 : 0x1p-133; }

std::set<int> choose_rows(const Problem& problem, size_t head, int rows_per_head) {
  std::set<int> chosen;
  const int n = problem.seq_len;
  if (n <= rows_per_head) {
    for (int row = 0; row < n; row++) chosen.insert(row);
    return chosen;
  }
  const int edges = std::max(1, rows_per_head / 4), stride = std::max(64, n / edges / 64 * 64);
  for (int tile = 0; tile < n; tile += stride) {
    chosen.insert(tile);
    chosen.insert(std::min(tile + 63, n - 1));
  }
  chosen.insert(n - 1);
  uint64_t state = 0x9e3779b97f4a7c15u * (head + 1);
  while (int(chosen.size()) < rows_per_head) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    chosen.insert(int((state >> 33) % uint64_t(n)));
  }
  return chosen;
}

std::string locate(const Problem& problem, size_t row, size_t column) {
  const size_t n = size_t(problem.seq_len), h = size_t(problem.heads);
  return "O[batch " + std::to_string(row / n / h) + ", head " + std::to_string(row / n % h) +
         ", row " + std::to_string(row % n) + ", column " + std::to_string(column) + "]";
}

// K and V of one head in fp32. The first piece of work on the head widens them for all of its
// pieces, and the last one frees them: several threads at one head share one copy.
class WideHead {
 public:
  std::vector<float> k, v;

  void add_piece() { pieces_left_++; }
  template <typename Widen>
  void begin_piece(const Widen& widen) {
    const std::lock_guard lock(mutex_);
    if (k.empty()) widen(*this);
  }
  void end_piece() {
    const std::lock_guard lock(mutex_);
    if (--pieces_left_ == 0) k = v = std::vector<float>();
  }

 private:
  std::mutex mutex_;
  size_t pieces_left_ = 0;
};

}  // namespace

Reference make_reference(const Problem& problem, const Inputs& inputs, int rows_per_head) {
  const size_t n = size_t(problem.seq_len), d = size_t(problem.head_dim);
  Reference reference;
  std::vector<size_t> first_of_head;
  for (size_t head = 0; head < problem.head_count(); head++) {
    first_of_head.push_back(reference.rows.size());
    for (const int row : choose_rows(problem, head, rows_per_head))
      reference.rows.push_back(head * n + size_t(row));
  }
  first_of_head.push_back(reference.rows.size());
  reference.values.resize(reference.rows.size() * d);
  reference.allowed.resize(reference.rows.size() * d);
  reference.inexact.resize(reference.rows.size() * d);

  const double u = rounding_unit(problem.dtype), scale = 1.0 / std::sqrt(double(d));
  std::vector<float> table(1 << 16);  // of all 16-bit patterns
  for (size_t bits = 0; bits < table.size(); bits++)
    table[bits] = to_float(uint16_t(bits), problem.dtype);

  // One piece of work: some rows of one head.
  constexpr size_t kRowsPerPiece = 64;
  std::vector<std::pair<size_t, size_t>> pieces;
  std::vector<WideHead> heads(problem.head_count());
  for (size_t head = 0; head < problem.head_count(); head++) {
    for (size_t first = first_of_head[head]; first < first_of_head[head + 1];
         first += kRowsPerPiece) {
      pieces.emplace_back(first, std::min(first + kRowsPerPiece, first_of_head[head + 1]));
      heads[head].add_piece();
    }
  }
  parallel_for(pieces.size(), [&](size_t piece) {
    const auto [first, last] = pieces[piece];
    const size_t head = reference.rows[first] / n;
    heads[head].begin_piece([&](WideHead& wide) {
      std::vector<float> k(n * d), v(n * d);
      for (size_t i = 0; i < n * d; i++) {
        k[i] = table[inputs.k[head * n * d + i]];
        v[i] = table[inputs.v[head * n * d + i]];
      }
      wide.v = std::move(v);
      wide.k = std::move(k);
    });
    const float* const k = heads[head].k.data();
    const float* const v = heads[head].v.data();
    std::vector<double> q(d), scores(n), output(d), weight_of_abs(d);
    for (size_t index = first; index < last; index++) {
      for (size_t c = 0; c < d; c++) q[c] = double(table[inputs.q[reference.rows[index] * d + c]]);
      double highest = -std::numeric_limits<double>::infinity(), largest_products = 0;
      for (size_t j = 0; j < n; j++) {
        // Four independent sums, so that the compiler can use the CPU's vectors.
        double sum[4] = {}, products[4] = {};
        for (size_t c = 0; c < d; c += 4) {
          for (size_t lane = 0; lane < 4; lane++) {
            const double product = q[c + lane] * double(k[j * d + c + lane]);
            sum[lane] += product;
            products[lane] += std::fabs(product);
          }
        }
        scores[j] = (sum[0] + sum[1] + sum[2] + sum[3]) * scale;
        highest = std::max(highest, scores[j]);
        largest_products =
            std::max(largest_products, products[0] + products[1] + products[2] + products[3]);
      }
      double weights = 0;
      std::fill(output.begin(), output.end(), 0.0);
      std::fill(weight_of_abs.begin(), weight_of_abs.end(), 0.0);
      for (size_t j = 0; j < n; j++) {
        const double p = std::exp(scores[j] - highest);
        weights += p;
        if (p == 0) continue;
        for (size_t c = 0; c < d; c++) {
          const double term = p * double(v[j * d + c]);
          output[c] += term;
          weight_of_abs[c] += std::fabs(term);
        }
      }
      const double score_error = (4.0 + std::sqrt(double(d))) * 0x1p-24 * largest_products * scale;
      const double sum_error = double(n) * 0x1p-24 / 8;
      for (size_t c = 0; c < d; c++) {
        const double value = output[c] / weights, a = weight_of_abs[c] / weights;
        reference.values[index * d + c] = value;
        const double inexact =
            2 * (score_error + sum_error) * a + smallest_subnormal(problem.dtype) / 2;
        reference.inexact[index * d + c] = inexact;
        reference.allowed[index * d + c] = u * std::fabs(value) + 2 * u * a + inexact;
      }
    }
    heads[head].end_piece();
  });
  return reference;
}

Comparison compare(const Problem& problem, const Reference& reference,
                   const std::vector<uint16_t>& output) {
  const size_t d = size_t(problem.head_dim), n = size_t(problem.seq_len);
  Comparison result;
  result.checked_rows = reference.rows.size();
  if (output.size() != problem.element_count()) throw BadInput("the output has the wrong size");
  result.passed = true;
  auto fail = [&](const std::string& reason) {
    if (result.passed) result.reason = reason;
    result.passed = false;
  };

  // The whole output: every element written, and with a number.
  const uint16_t exponent = problem.dtype == Dtype::kFp16 ? 0x7c00 : 0x7f80;
  size_t not_finite = 0;
  for (size_t i = 0; i < output.size(); i++) {
    if ((output[i] & exponent) != exponent) continue;
    if (not_finite++ == 0) {
      fail(locate(problem, i / d, i % d) +
           (output[i] == 0xffff ? " was never written or is NaN" : " is not a finite number"));
    }
  }
  if (not_finite > 0) {
    result.reason +=
        " (" + std::to_string(not_finite) + " of " + std::to_string(output.size()) + " elements)";
  }

  const double u = rounding_unit(problem.dtype);
  for (size_t first = 0; first < reference.rows.size();) {
    const size_t head = reference.rows[first] / n;
    double error_squared = 0, value_squared = 0, inexact_squared = 0;
    for (; first < reference.rows.size() && reference.rows[first] / n == head; first++) {
      for (size_t c = 0; c < d; c++) {
        const size_t at = first * d + c;
        const double actual =
            double(to_float(output[reference.rows[first] * d + c], problem.dtype));
        const double error = std::fabs(actual - reference.values[at]);
        if (!(error <= reference.allowed[at])) {
          char text[128];
          snprintf(text, sizeof text, " is %.6g, should be %.6g +- %.2g", actual,
                   reference.values[at], reference.allowed[at]);
          fail(locate(problem, reference.rows[first], c) + text);
        }
        result.max_abs = std::max(result.max_abs, error);
        result.bound_ratio = std::max(result.bound_ratio, error / reference.allowed[at]);
        error_squared += error * error;
        value_squared += reference.values[at] * reference.values[at];
        inexact_squared += reference.inexact[at] * reference.inexact[at];
      }
    }
    const double norm = std::max(std::sqrt(value_squared), 1e-300);
    const double rel = std::sqrt(error_squared) / norm;
    const double tolerance = 1.5 * u + std::sqrt(inexact_squared) / norm;
    if (!(rel <= tolerance)) {
      char text[128];
      snprintf(text, sizeof text, "head %zu is off by %.3g of its norm, allowed are %.3g", head,
               rel, tolerance);
      fail(text);
    }
    if (result.tolerance == 0 || rel * result.tolerance > result.rel * tolerance) {
      result.rel = rel;
      result.tolerance = tolerance;
    }
  }
  if (not_finite > 0)
    result.max_abs = result.rel = result.bound_ratio = std::numeric_limits<double>::quiet_NaN();
  return result;
}

}  // namespace fa
