// What gradients must be: in float64 on the CPU, with the error that a correct kernel may make in
// every element.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/harness/inputs.h"  // IWYU pragma: export
#include "common/launch/problem.h"  // IWYU pragma: export

namespace fa {

// One gradient, in the shape of its tensor. `inexact` is the part of `allowed` that is not the
// rounding of P, dS and the gradient to 16 bits.
struct Gradient {
  std::vector<double> values, allowed, inexact;
};

// The gradients of the whole problem, N^2 work for one CPU: not for long sequences. Also what the
// forward pass gives the kernel: O, rounded to the dtype, and log-sum-exp.
struct GradientReference {
  Gradient d_q, d_k, d_v;
  std::vector<uint16_t> o;
  std::vector<float> lse;
};

// d_o: in the shape of O. With u the dtype's rounding unit, P, dS and D as in
// common/launch/gradients.h, and e the relative error of P (oracle.h, with that of log-sum-exp in
// fp32), an element of dQ may be off by
//
//   u |dq| + scale sum_j (2 u |dS_j| + 2 P_j r + 2 e P_j (|dP_j| + |D|) + t) |k_j|
//
// where r is what rounding O may add to D, u sum_c |dO_c O_c|, and t half of the smallest subnormal
// number; and, because P may wait for dP in fp16 (2^14 times as large), by
// min(P_j, 2^-39) (|dP_j| + |D|) scale |k_j| of each key. dK likewise, over the queries and |q|,
// and dV with P in place of dS and |dO|. In a norm r counts as u (sum_c (dO_c O_c)^2)^(1/2).
GradientReference make_gradient_reference(const Problem& problem, const Inputs& inputs,
                                          const std::vector<uint16_t>& d_o);

// Compares one gradient, in the shape of its tensor, element by element, and head by head in norm,
// as compare (oracle.h) does. Returns "" or what is wrong, in one sentence; `rel` gets the largest
// ||error|| / ||reference|| of any head.
std::string compare_gradient(const Problem& problem, const char* name, const Gradient& reference,
                             const std::vector<uint16_t>& actual, double* rel = nullptr);

}  // namespace fa
