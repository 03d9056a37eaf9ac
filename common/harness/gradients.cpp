#include "common/harness/gradients.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/harness/oracle.h"
#include "common/harness/parallel.h"

namespace fa {
namespace {

using Rows = std::vector<double>;  // [rows][head_dim]

Rows widen(const std::vector<uint16_t>& tensor, size_t first, int rows, size_t d, Dtype dtype) {
  Rows result(size_t(rows) * d);
  for (size_t i = 0; i < result.size(); i++) {
    result[i] = double(to_float(tensor[first * d + i], dtype));
  }
  return result;
}

double dot(const double* a, const double* b, size_t d) {
  double sum = 0;
  for (size_t c = 0; c < d; c++) sum += a[c] * b[c];
  return sum;
}

// Adds a term: factor * row, with what each factor may be off by.
struct Factor {
  double value, allowed, inexact;
};
void add(Gradient& to, size_t row, size_t d, const Factor& factor, const double* times) {
  for (size_t c = 0; c < d; c++) {
    const double size = std::fabs(times[c]);
    to.values[row * d + c] += factor.value * times[c];
    to.allowed[row * d + c] += factor.allowed * size;
    to.inexact[row * d + c] += factor.inexact * size;
  }
}

}  // namespace

GradientReference make_gradient_reference(const Problem& problem, const Inputs& inputs,
                                          const std::vector<uint16_t>& d_o) {
  const size_t d = size_t(problem.head_dim);
  const double scale = problem.own_scale ? double(*problem.own_scale) : 1 / std::sqrt(double(d));
  const Precision precision = precision_of(problem);
  const double u = precision.unit;
  GradientReference reference;
  reference.o.resize(problem.element_count());
  reference.lse.resize(problem.row_count());
  const auto resize = [](Gradient& gradient, size_t count) {
    for (Rows* const each : {&gradient.values, &gradient.allowed, &gradient.inexact}) {
      each->assign(count, 0.0);
    }
  };
  resize(reference.d_q, problem.element_count());
  resize(reference.d_k, problem.kv_element_count());
  resize(reference.d_v, problem.kv_element_count());

  // Heads that share keys are one piece of work, because they add to the same dK and dV. (Of packed
  // sequences they are not neighbours in Q.)
  const std::vector<HeadRows> heads = head_rows(problem);
  std::map<std::pair<int, size_t>, std::vector<const HeadRows*>> by_keys;
  for (const HeadRows& each : heads) by_keys[{each.sequence, each.kv_row}].push_back(&each);
  std::vector<std::vector<const HeadRows*>> pieces;
  for (const auto& [keys, sharing] : by_keys) pieces.push_back(sharing);
  parallel_for(pieces.size(), [&](size_t piece) {
    for (const HeadRows* const head : pieces[piece]) {
      const HeadRows& at = *head;
      const Rows q = widen(inputs.q, at.q_row, at.lengths.q_len, d, problem.dtype);
      const Rows k = widen(inputs.k, at.kv_row, at.lengths.kv_len, d, problem.dtype);
      const Rows v = widen(inputs.v, at.kv_row, at.lengths.kv_len, d, problem.dtype);
      const Rows dout = widen(d_o, at.q_row, at.lengths.q_len, d, problem.dtype);
      for (size_t i = 0; i < size_t(at.lengths.q_len); i++) {
        // Kernels of gradients take a mask, and none of what else happens to scores.
        const auto keys = size_t(at.lengths.visible_keys(problem.visible(), int(i)).end);
        const size_t row = at.q_row + i;
        std::vector<double> p(keys), d_p(keys), o(d);
        double highest = -std::numeric_limits<double>::infinity(), sum = 0, products = 0;
        for (size_t j = 0; j < keys; j++) {
          double all = 0;
          for (size_t c = 0; c < d; c++) all += std::fabs(q[i * d + c] * k[j * d + c]);
          products = std::max(products, all);
          p[j] = scale * dot(&q[i * d], &k[j * d], d);
          d_p[j] = dot(&dout[i * d], &v[j * d], d);
          highest = std::max(highest, p[j]);
        }
        for (double& each : p) sum += each = std::exp(each - highest);
        const double lse = highest + std::log(sum);
        for (size_t j = 0; j < keys; j++) {
          p[j] /= sum;
          for (size_t c = 0; c < d; c++) o[c] += p[j] * v[j * d + c];
        }
        reference.lse[row] = float(lse);
        double lost = 0, rounding = 0, squares = 0;  // D, and what rounding O adds to it
        for (size_t c = 0; c < d; c++) {
          reference.o[row * d + c] = from_float(float(o[c]), problem.dtype);
          const double term = dout[i * d + c] * o[c];
          lost += term;
          rounding += u * std::fabs(term);
          squares += u * u * term * term;
        }
        // The same error of P as in oracle.h, and that of log-sum-exp.
        const double e = precision.products * products * scale + double(keys) * 0x1p-24 / 8 +
                         0x1p-21 + 0x1p-22 * std::fabs(keys > 0 ? lse : 0);
        for (size_t j = 0; j < keys; j++) {
          const double d_s = scale * p[j] * (d_p[j] - lost);
          const double size = std::fabs(d_p[j]) + std::fabs(lost);
          const double inexact =
              scale * ((2 * e * p[j] + std::min(p[j], 0x1p-39)) * size + precision.o_least / 2);
          const Factor of_s{d_s, 2 * u * std::fabs(d_s) + scale * 2 * p[j] * rounding + inexact,
                            scale * 2 * p[j] * std::sqrt(squares) + inexact};
          add(reference.d_q, row, d, of_s, &k[j * d]);
          add(reference.d_k, at.kv_row + j, d, of_s, &q[i * d]);
          const double of_p = 2 * e * p[j] + std::min(p[j], precision.p_least / 2);
          add(reference.d_v, at.kv_row + j, d, {p[j], 2 * u * p[j] + of_p, of_p}, &dout[i * d]);
        }
      }
    }
  });
  for (Gradient* const each : {&reference.d_q, &reference.d_k, &reference.d_v}) {
    for (size_t i = 0; i < each->values.size(); i++) {
      // Where no query sees a key, or no key a query, the gradient is 0, exactly.
      if (each->allowed[i] == 0) continue;
      each->allowed[i] += u * std::fabs(each->values[i]) + precision.o_least / 2;
      each->inexact[i] += precision.o_least / 2;
    }
  }
  return reference;
}

std::string compare_gradient(const Problem& problem, const char* name, const Gradient& reference,
                             const std::vector<uint16_t>& actual, double* rel) {
  const size_t d = size_t(problem.head_dim);
  if (actual.size() != reference.values.size()) return std::string(name) + " has the wrong size";
  const bool of_keys = name[1] != 'Q';
  double largest = 0;
  std::string wrong;  // what is so first
  for (const HeadRows& at : head_rows(problem)) {
    if (of_keys && at.head % (problem.heads / problem.key_heads()) != 0) continue;
    const size_t first = (of_keys ? at.kv_row : at.q_row) * d;
    const size_t rows = size_t(of_keys ? at.lengths.kv_len : at.lengths.q_len);
    const auto where = [&](size_t i) {
      return std::string(name) + (problem.packed.empty() ? "[batch " : "[sequence ") +
             std::to_string(at.sequence) + ", head " +
             std::to_string(of_keys ? at.head / (problem.heads / problem.key_heads()) : at.head) +
             ", row " + std::to_string(i / d) + ", column " + std::to_string(i % d) + "]";
    };
    double errors = 0, values = 0, inexact = 0;
    for (size_t i = 0; i < rows * d; i++) {
      const double is = double(to_float(actual[first + i], problem.dtype));
      const double should = reference.values[first + i], allowed = reference.allowed[first + i];
      if (wrong.empty() && !std::isfinite(is)) {
        wrong = where(i) + (actual[first + i] == 0xffff ? " was never written or is NaN"
                                                        : " is not a finite number");
      }
      if (wrong.empty() && !(std::fabs(is - should) <= allowed)) {
        char text[128];
        snprintf(text, sizeof text, " is %.6g, should be %.6g +- %.2g", is, should, allowed);
        wrong = where(i) + text;
      }
      errors += (is - should) * (is - should);
      values += should * should;
      inexact += reference.inexact[first + i] * reference.inexact[first + i];
    }
    const double norm = std::max(std::sqrt(values), 1e-300);
    const double off = std::sqrt(errors) / norm;
    const double tolerance = 1.5 * precision_of(problem).norm_unit + std::sqrt(inexact) / norm;
    largest = std::isnan(off) ? off : std::max(largest, off);  // a NaN stays
    if (wrong.empty() && !(off <= tolerance)) {
      char text[128];
      snprintf(text, sizeof text, " is off by %.3g of the head's norm, allowed are %.3g", off,
               tolerance);
      wrong = where(0) + " and on" + text;
    }
  }
  if (rel) *rel = largest;
  return wrong;
}

}  // namespace fa
