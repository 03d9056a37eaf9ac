#include "common/harness/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "common/harness/parallel.h"

namespace fa {
namespace {

// `head` is the number of the head of a sequence among all.
std::set<int> choose_rows(const Window& window, const Sequence& lengths, size_t head,
                          int rows_per_head) {
  std::set<int> chosen;
  const int n = lengths.q_len;
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
  if (n % 64 != 0) chosen.insert(n / 64 * 64);
  // The last row that sees nothing of a tile of keys, and the first that sees its first key; of the
  // first tile also where these are the edges of a tile of rows. On the left of a window the last
  // row that sees a key before the tile, and the first that does not.
  const auto choose_crossings = [&](int offset) {
    for (int tile = 0; tile < lengths.kv_len; tile += stride) {
      const int row = tile + offset - lengths.place(0);
      if (tile > 0 && row % 64 == 0) break;
      for (const int each : {row - 1, row}) {
        if (each >= 0 && each < n) chosen.insert(each);
      }
    }
  };
  if (window.right >= 0) choose_crossings(-window.right);
  if (window.left >= 0) choose_crossings(window.left);
  uint64_t state = 0x9e3779b97f4a7c15u * (head + 1);
  while (int(chosen.size()) < rows_per_head) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    chosen.insert(int((state >> 33) % uint64_t(n)));
  }
  return chosen;
}

// Eight products at a time; head_dim is a multiple of 8.
constexpr size_t kLanes = 8;
typedef double Lanes __attribute__((vector_size(kLanes * sizeof(double))));

std::string locate_row(const Problem& problem, const HeadRows& at, size_t row) {
  return (problem.packed.empty() ? "[batch " : "[sequence ") + std::to_string(at.sequence) +
         ", head " + std::to_string(at.head) + ", row " + std::to_string(row - at.q_row);
}
std::string locate(const Problem& problem, const HeadRows& at, size_t row, size_t column) {
  return "O" + locate_row(problem, at, row) + ", column " + std::to_string(column) + "]";
}

}  // namespace

Precision precision_of(const Problem& problem, bool own_rounding) {
  const bool fp16 = problem.dtype == Dtype::kFp16;
  const double unit = fp16 ? 0x1p-11 : 0x1p-8, least = fp16 ? 0x1p-24 : 0x1p-133;
  const double products = (4.0 + std::sqrt(double(problem.head_dim))) * 0x1p-24;
  if (problem.fp8 == Fp8::kNone) {
    return {unit, unit, unit, fp16 ? 0x1p-14 : 0x1p-126, least, least, products, 0, 0};
  }
  const double p_unit = own_rounding ? 8 : 0x1p-4, norm_unit = own_rounding ? 0x1p-4 : 0x1p-5;
  return {unit,  p_unit, norm_unit, 0x1p-11, 0x1p-14, least, products, problem.head_dim * 0x1p-16,
          0x1p-7};
}

Reference make_reference(const Problem& problem, const Inputs& inputs, int rows_per_head,
                         const Fp8Inputs* rounded) {
  const size_t d = size_t(problem.head_dim);
  Reference reference;
  // A piece of work is a few rows of one head: they share the widening of each row of K and V.
  constexpr size_t kRowsPerPiece = 16;
  struct Piece {
    size_t head, first, last;  // of the heads of all sequences; of reference.rows
  };
  std::vector<Piece> pieces;
  const std::vector<HeadRows> heads = head_rows(problem);
  for (size_t head = 0; head < heads.size(); head++) {
    size_t first = reference.rows.size();
    for (const int row : choose_rows(problem.visible(), heads[head].lengths, head, rows_per_head))
      reference.rows.push_back(heads[head].q_row + size_t(row));
    for (; first < reference.rows.size(); first += kRowsPerPiece)
      pieces.push_back({head, first, std::min(first + kRowsPerPiece, reference.rows.size())});
  }
  for (auto* const values : {&reference.values, &reference.allowed, &reference.inexact})
    values->resize(reference.rows.size() * d);
  for (auto* const values : {&reference.lse, &reference.lse_allowed})
    values->resize(reference.rows.size());

  const Precision precision = precision_of(problem);
  const bool fp8 = problem.fp8 != Fp8::kNone;
  const Fp8Inputs rounded_here = fp8 && !rounded ? round_to_fp8(problem, inputs) : Fp8Inputs{};
  const Fp8Inputs& of_fp8 = rounded ? *rounded : rounded_here;
  const double scale = problem.own_scale ? double(*problem.own_scale) : 1 / std::sqrt(double(d));
  std::vector<double> table(1 << 16);  // of all 16-bit patterns
  for (size_t bits = 0; bits < table.size(); bits++)
    table[bits] = double(to_float(uint16_t(bits), problem.dtype));
  const auto widen = [&](const std::vector<uint16_t>& tensor, const std::vector<float>& in_fp8,
                         size_t row, std::vector<double>& to) {
    for (size_t c = 0; c < d; c++)
      to[c] = fp8 ? double(in_fp8[row * d + c]) : table[tensor[row * d + c]];
  };

  struct Row {
    size_t begin = 0, end = 0;  // of the keys that it sees
    double place = 0;
    std::vector<double> q, scores, output, weight_of_abs, lost;
    double highest = 0;
    double largest_products = 0, weights = 0, moved = 0;  // moved: the sum of p_j d_j
    double keys() const { return double(end - begin); }
  };
  parallel_for(pieces.size(), [&](size_t piece) {
    const size_t first = pieces[piece].first, last = pieces[piece].last;
    const HeadRows& at = heads[pieces[piece].head];
    std::vector<double> wide(d);
    const double softcap = double(problem.softcap), slope = double(inputs.slope(problem, at));
    const double sink = double(inputs.sink(at));
    std::vector<Row> rows(last - first);
    for (size_t i = 0; i < rows.size(); i++) {
      for (auto* const values :
           {&rows[i].q, &rows[i].output, &rows[i].weight_of_abs, &rows[i].lost})
        values->resize(d);
      const size_t position = reference.rows[first + i] - at.q_row;
      const KeyRange keys = at.lengths.visible_keys(problem.visible(), int(position));
      rows[i].begin = size_t(keys.begin);
      rows[i].end = size_t(keys.end);
      rows[i].place = at.lengths.place(int(position));
      rows[i].scores.resize(rows[i].end);
      rows[i].highest = sink;
      widen(inputs.q, of_fp8.q, reference.rows[first + i], rows[i].q);
    }
    // The later the row, the further to the right its keys are.
    const size_t first_key = rows.front().begin, end_of_keys = rows.back().end;
    for (size_t j = first_key; j < end_of_keys; j++) {
      widen(inputs.k, of_fp8.k, at.kv_row + j, wide);
      for (Row& row : rows) {
        if (j < row.begin || j >= row.end) continue;
        Lanes sum = {}, products = {};
        for (size_t c = 0; c < d; c += kLanes) {
          Lanes q, k;
          memcpy(&q, &row.q[c], sizeof q);
          memcpy(&k, &wide[c], sizeof k);
          const Lanes product = q * k;
          sum += product;
          products += product < 0 ? -product : product;
        }
        double score = 0, all_products = 0;
        for (size_t lane = 0; lane < kLanes; lane++) {
          score += sum[lane];
          all_products += products[lane];
        }
        score *= scale;
        if (softcap > 0) score = softcap * std::tanh(score / softcap);
        row.scores[j] = score - slope * std::fabs(row.place - double(j));
        row.highest = std::max(row.highest, row.scores[j]);
        row.largest_products = std::max(row.largest_products, all_products);
      }
    }
    for (Row& row : rows) {
      if (std::isinf(sink)) continue;
      row.weights = std::exp(sink - row.highest);
      row.moved = row.weights * 0x1p-22 * std::fabs(sink);
    }
    for (size_t j = first_key; j < end_of_keys; j++) {
      widen(inputs.v, of_fp8.v, at.kv_row + j, wide);
      for (Row& row : rows) {
        if (j < row.begin || j >= row.end) continue;
        const double p = std::exp(row.scores[j] - row.highest);
        row.weights += p;
        if (p == 0) continue;
        if (softcap > 0 || slope != 0) {
          const double taken_off = slope * std::fabs(row.place - double(j));
          const double of_cap = softcap > 0 ? 0x1p-21 * std::fabs(row.scores[j] + taken_off) : 0;
          const double moved = p * (of_cap + 0x1p-22 * std::fabs(taken_off));
          row.moved += moved;
          for (size_t c = 0; c < d; c++) row.lost[c] += moved * std::fabs(wide[c]);
        }
        for (size_t c = 0; c < d; c++) {
          const double term = p * wide[c];
          row.output[c] += term;
          row.weight_of_abs[c] += std::fabs(term);
        }
        if (p >= precision.p_normal) continue;
        const double most_lost = std::min(p, precision.p_least / 2);
        for (size_t c = 0; c < d; c++) row.lost[c] += most_lost * std::fabs(wide[c]);
      }
    }
    const auto short_error = [&](const Row& row) {
      return precision.short_products * row.largest_products * scale;
    };
    const auto exponent_and_sum_error = [&](const Row& row) {
      return precision.products * row.largest_products * scale + row.keys() * 0x1p-24 / 8;
    };
    for (size_t i = 0; i < rows.size(); i++) {
      const double lse = rows[i].highest + std::log(rows[i].weights);  // -inf of no key
      reference.lse[first + i] = lse;
      const double errors = 2 * (exponent_and_sum_error(rows[i]) + short_error(rows[i]));
      reference.lse_allowed[first + i] = rows[i].weights > 0
                                             ? errors + rows[i].moved / rows[i].weights + 0x1p-21 +
                                                   0x1p-22 * std::fabs(lse) + (fp8 ? 0x1p-3 : 0)
                                             : 0;
    }
    for (size_t i = 0; i < rows.size() * d; i++) {
      const Row& row = rows[i / d];
      const double weights = row.weights > 0 ? row.weights : 1;
      const double value = row.output[i % d] / weights;
      const double a = row.weight_of_abs[i % d] / weights;
      const double of_short = short_error(row);
      const double short_sums = 2 * of_short + precision.short_sums;
      const double inexact = (2 * exponent_and_sum_error(row) + row.moved / weights) * a +
                             row.lost[i % d] / weights + precision.o_least / 2 +
                             short_sums * (std::fabs(value) + std::min(of_short, 1.0) * a);
      reference.values[first * d + i] = value;
      reference.inexact[first * d + i] = inexact;
      reference.allowed[first * d + i] = row.keys() > 0
                                             ? precision.unit * std::fabs(value) +
                                                   (2 * precision.p_unit + short_sums) * a + inexact
                                             : 0;
    }
  });
  if (fp8) {
    Problem before = problem;
    before.fp8 = Fp8::kNone;
    reference.unrounded = make_reference(before, inputs, rows_per_head).values;
  }
  return reference;
}

Comparison compare(const Problem& problem, const Reference& reference,
                   const std::vector<uint16_t>& output, const std::vector<float>& lse,
                   bool own_rounding) {
  const size_t d = size_t(problem.head_dim);
  Comparison result;
  result.checked_rows = reference.rows.size();
  if (output.size() != problem.element_count()) throw BadInput("the output has the wrong size");
  result.passed = true;
  // A function, because only the first of perhaps millions of errors is worded.
  auto fail = [&](const auto& reason) {
    if (result.passed) result.reason = reason();
    result.passed = false;
  };

  const std::vector<HeadRows> heads = head_rows(problem);
  // The whole output: every element written, and with a number.
  const uint16_t exponent = problem.dtype == Dtype::kFp16 ? 0x7c00 : 0x7f80;
  size_t not_finite = 0;
  for (size_t i = 0; i < output.size(); i++) {
    if ((output[i] & exponent) != exponent) continue;
    if (not_finite++ == 0) {
      const HeadRows& at = *std::find_if(heads.begin(), heads.end(), [&](const HeadRows& each) {
        return i / d < each.q_row + size_t(each.lengths.q_len);
      });
      fail([&] {
        return locate(problem, at, i / d, i % d) +
               (output[i] == 0xffff ? " was never written or is NaN" : " is not a finite number");
      });
    }
  }
  if (not_finite > 0) {
    result.reason +=
        " (" + std::to_string(not_finite) + " of " + std::to_string(output.size()) + " elements)";
  }

  // The same of log-sum-exp; then the checked rows of it.
  for (size_t row = 0, head = 0; row < lse.size(); row++) {
    while (row >= heads[head].q_row + size_t(heads[head].lengths.q_len)) head++;
    if (lse[row] < std::numeric_limits<float>::infinity()) continue;
    fail([&] {
      return "lse" + locate_row(problem, heads[head], row) + "] was never written or is no number";
    });
    break;
  }
  for (size_t i = 0, head = 0; i < reference.rows.size() && !lse.empty(); i++) {
    const size_t row = reference.rows[i];
    while (row >= heads[head].q_row + size_t(heads[head].lengths.q_len)) head++;
    const double actual = double(lse[row]), error = std::fabs(actual - reference.lse[i]);
    if (actual == reference.lse[i]) continue;  // -inf, too
    if (!(error <= reference.lse_allowed[i])) {
      fail([&] {
        char text[128];
        snprintf(text, sizeof text, "] is %.8g, should be %.8g +- %.2g", actual, reference.lse[i],
                 reference.lse_allowed[i]);
        return "lse" + locate_row(problem, heads[head], row) + text;
      });
    }
    result.bound_ratio = std::max(result.bound_ratio, error / reference.lse_allowed[i]);
  }

  const double u = precision_of(problem).norm_unit;
  double unrounded_squared = 0, exact_squared = 0;
  for (size_t first = 0, head = 0; first < reference.rows.size(); head++) {
    const size_t end = heads[head].q_row + size_t(heads[head].lengths.q_len);
    if (reference.rows[first] >= end) continue;  // no queries
    double error_squared = 0, value_squared = 0, inexact_squared = 0;
    for (; first < reference.rows.size() && reference.rows[first] < end; first++) {
      for (size_t c = 0; c < d; c++) {
        const size_t at = first * d + c;
        const double actual =
            double(to_float(output[reference.rows[first] * d + c], problem.dtype));
        const double error = std::fabs(actual - reference.values[at]);
        if (!own_rounding && !(error <= reference.allowed[at])) {
          fail([&] {
            char text[128];
            snprintf(text, sizeof text, " is %.6g, should be %.6g +- %.2g", actual,
                     reference.values[at], reference.allowed[at]);
            return locate(problem, heads[head], reference.rows[first], c) + text;
          });
        }
        const double exact =
            problem.fp8 != Fp8::kNone ? reference.unrounded[at] : reference.values[at];
        unrounded_squared += (actual - exact) * (actual - exact);
        exact_squared += exact * exact;
        result.max_abs = std::max(result.max_abs, error);
        if (error > 0 && !own_rounding)
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
      fail([&] {
        char text[128];
        snprintf(text, sizeof text, "head %zu is off by %.3g of its norm, allowed are %.3g", head,
                 rel, tolerance);
        return std::string(text);
      });
    }
    if (result.tolerance == 0 || rel * result.tolerance > result.rel * tolerance) {
      result.rel = rel;
      result.tolerance = tolerance;
    }
  }
  result.rel_unrounded = std::sqrt(unrounded_squared / std::max(exact_squared, 1e-300));
  result.rmse = std::sqrt(unrounded_squared / std::max(1.0, double(reference.values.size())));
  if (not_finite > 0)
    result.max_abs = result.rel = result.rel_unrounded = result.rmse = result.bound_ratio =
        std::numeric_limits<double>::quiet_NaN();
  return result;
}

}  // namespace fa
