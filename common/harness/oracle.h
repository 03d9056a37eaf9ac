// What the output must be: attention in float64 on the CPU, with the error that a correct kernel
// may make in every element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/harness/fp8.h"     // IWYU pragma: export
#include "common/harness/inputs.h"  // IWYU pragma: export
#include "common/launch/problem.h"  // IWYU pragma: export

namespace fa {

// Selected rows of the output, numbered as they lie in it: (b * heads + h) * seq_len + position, or
// of packed sequences h * (total queries) + (queries of the sequences before) + position.
struct Reference {
  std::vector<size_t> rows;     // ascending
  std::vector<double> values;   // [rows.size()][head_dim]
  std::vector<double> allowed;  // the same shape: largest error of a correct kernel
  std::vector<double>
      inexact;  // the part of `allowed` that is not the rounding of P and O to 16 bits
  std::vector<double> unrounded;         // in FP8, the same shape: O of the inputs before rounding
  std::vector<double> lse, lse_allowed;  // [rows.size()]: log-sum-exp, -inf of no key
};

// All rows if a head has at most `rows_per_head`, else that many of every head: the edges of all
// 64-row tiles as far as they fit in half of the number, those at which a causal diagonal or an
// edge of a window crosses a 64-key tile, and random ones. A row without a visible key is zeros,
// exactly.
//
// The bound on an element, with u the dtype's rounding unit (2^-11 fp16, 2^-8 bf16), p the row's
// softmax weights, and A = sum_j p_j |v_j|:
//
//   u |o|                  rounding the output
//   2 u A                  rounding P before the second product (Tensor Core kernels), and the
//                          different sum that such a P has
//   2 (e + N 2^-24 / 8) A  e: error of the exponent, that is of a score: its product sum in fp32,
//                          (4 + sqrt(head_dim)) 2^-24 max_j scale sum_d |q_d k_jd|; the rest:
//                          fp32 sums over the weights of the N keys that the row sees, whose
//                          errors mostly cancel
//   sum_j min(p_j, t) |v_j| / sum_j p_j
//                          over p_j (1 for the highest score) below the smallest normal number:
//                          what rounding them to multiples of the smallest subnormal, 2 t, can lose
//   t                      the same of O
//   sum_j p_j d_j (|v_j| + A)
//                          d_j: what else the exponent of key j may be off by: 2^-21 of a score
//                          under a softcap, for tanh in fp32, and 2^-22 of what ALiBi takes off or
//                          of a sink
//
// With FP8 (Problem::fp8) the inputs are what rounding to e4m3 leaves of them (fp8.h);
// rounding P has 2^-4 in place of u; and t is 2^-15, because at the highest score P may be as small
// as 2^5. Sums that are cut off behind 14 bits (common/ptx/wgmma_fp8.h) may add head_dim 2^-16
// max_j scale sum_d |q_d k_jd|, here e', to e, and 2^-7 A to the whole, if no more than 1024 keys
// are added in one. In a norm these errors mostly cancel: 2 e' + 2^-7 is there of |o| + e' A.
//
// `rounded`: of a problem in FP8 what round_to_fp8 gives, if it is there already.
//
// Log-sum-exp, in fp32, may be off by 2 (e + N 2^-24 / 8) + sum_j p_j d_j + 2^-21 +
// 2^-22 |log-sum-exp|: the errors of exponents and sums as above, and fp32's of the logarithm and
// of the result. In FP8 by 2^-3 more, if the rounded P are summed.
Reference make_reference(const Problem& problem, const Inputs& inputs, int rows_per_head = 512,
                         const Fp8Inputs* rounded = nullptr);

// What the bound is made of.
struct Precision {
  double unit, p_unit;                // u of O and of P
  double norm_unit;                   // u in the norm of a head's errors (compare)
  double p_normal, p_least;           // below the one P is rounded to multiples of the other, 2 t
  double o_least;                     // the same of O
  double products;                    // e per scale sum_d |q_d k_jd|
  double short_products, short_sums;  // of sums of 14 bits, in FP8: e' likewise, and of A
};
// In FP8, with `own_rounding`: of a library that rounds Q, K and V by a rule of its own, such as
// one scale for all heads, so that its inputs are others, and perhaps O to e4m3, as cuDNN does.
Precision precision_of(const Problem& problem, bool own_rounding = false);

struct Comparison {
  bool passed = false;
  std::string reason;      // of the first failure: which element, what it is, what it should be
  double max_abs = 0;      // largest |error| over the checked elements; NaN if one is not finite
  double bound_ratio = 0;  // largest |error| / allowed error of any element; NaN likewise
  double rel = 0;  // ||error|| / ||reference|| of the head that comes nearest to its tolerance
  double tolerance = 0;  // what rel may be for that head
  // Over all checked rows together, from O of the inputs as they were made, in FP8 before rounding:
  double rel_unrounded = 0;  // ||error|| / ||O||
  double rmse = 0;           // the root of the mean square of errors
  size_t checked_rows = 0;
};

// Compares an output (patterns in the shape of Q), and log-sum-exp if the kernel gives it, element
// by element with the bounds, and O head by head of every sequence in norm: ||error|| <= 1.5 u
// ||reference|| + ||inexact||, because rounding errors are independent and their norm is far below
// the sum of their bounds. In FP8 u is 2^-5 there, half of what P is rounded by; with own_rounding
// elements have no bound. Every element of both, not only of the checked rows, must have been
// written: O with finite numbers. Nothing is averaged over heads.
Comparison compare(const Problem& problem, const Reference& reference,
                   const std::vector<uint16_t>& output, const std::vector<float>& lse = {},
                   bool own_rounding = false);

}  // namespace fa
