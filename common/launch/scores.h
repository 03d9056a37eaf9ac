// What may happen to scores beside a causal mask, as kernels receive it: a window, a softcap, ALiBi
// and sinks (Problem says what they are). The compiler knows which of it a launch asks for, so what
// it does not ask for costs nothing.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/ptx/exp2.h"
#include "common/ptx/log2.h"

namespace fa {

// [tiny]
// What a softcap c makes of an element s of S, in units of log2 e, if |s| <= most, which is a score
// of 0.22 c: log2(e) c tanh(s scale / c) = s (first + second s^2 + third s^4). As a polynomial of s
// itself it needs no multiplication before, and its last step is the one that takes off the
// reference. The largest relative error is 2^-22.3, with roundings 2^-21.6.
struct TinyTanh {
  float most = -1.0f;  // no element
  float first = 0.0f, second = 0.0f, third = 0.0f;

  TinyTanh() = default;
  TinyTanh(float into_tanh, float cap) : most(0.22f / into_tanh) {
    const double square = double(into_tanh) * into_tanh, log2e = 1.4426950408889634;
    first = float(log2e * cap * into_tanh * 0.9999998146);
    second = float(log2e * cap * into_tanh * square * -0.3332642443);
    third = float(log2e * cap * into_tanh * square * square * 0.1295010845);
  }
  __device__ __forceinline__ float minus(float s, float ref) const {
    const float square = s * s;
    return fmaf(s, fmaf(fmaf(third, square, second), square, first), -ref);
  }
};
// [/tiny]

// [scores]
struct PlainScores {
  static constexpr bool kWindow = false, kChanges = false;
  static constexpr int right = 0;  // a causal mask ends at the query's own place
};
// A window, or sinks, or both. Row i, whose place among the keys is i + kv_len - q_len, sees none
// after place + right, and `width` from there to the left.
struct WindowScores {
  static constexpr bool kWindow = true, kChanges = false;
  int right, width;    // more than there are keys, where the window has no end
  uint32_t heads;      // of a sequence
  const float* sinks;  // of each head; null: none
};
// A softcap or ALiBi, or both, with or without the others.
struct ChangedScores : WindowScores {
  static constexpr bool kChanges = true;
  // With a softcap c the kernel's scale is c, and this is the scale before over c. 0: no softcap.
  float into_tanh;
  TinyTanh tiny;              // of a softcap without ALiBi
  const float* alibi_slopes;  // as in Attention; null: none
  int alibi_stride;
};
// [/scores]

// Calls body with the problem, whose mask is then a part of the scores, and with the first of these
// structs that will do.
template <typename Attention, typename Body>
void with_scores(const Attention& a, const Body& body) {
  const auto [left, right] = a.window;
  const bool changes = a.softcap > 0 || a.alibi_slopes;
  if (!changes && !a.sinks && left < 0 && right <= 0) return body(a, PlainScores{});
  const auto keys = [](int side) { return side < 0 ? 1 << 24 : std::min(side, 1 << 24); };
  const WindowScores window{keys(right), keys(left) + 1 + keys(right), uint32_t(a.heads), a.sinks};
  if (!changes) return body(a, window);
  Attention capped = a;
  if (a.softcap > 0) capped.scale = a.softcap;
  const float into_tanh = a.softcap > 0 ? a.scale / a.softcap : 0.0f;
  TinyTanh tiny;
  if (a.softcap > 0 && !a.alibi_slopes) tiny = TinyTanh(into_tanh, a.softcap);
  body(capped, ChangedScores{{window}, into_tanh, tiny, a.alibi_slopes, a.alibi_stride});
}

// ---- a sink at the end of a row -----------------------------------------------------------------
// [sink]
// Adds a sink to a row's sum, which is relative to 2^ref, and then to the sink if that is greater.
// Returns by what O must be multiplied, in two halves, because ex2.approx makes a zero of numbers
// below 2^-126, which bf16 has.
__device__ __forceinline__ float add_sink(float sink, float& ref, float& sum) {
  constexpr float kLog2e = 1.44269504f;
  const float new_ref = fmaxf(ref, sink * kLog2e);
  const float half = ptx::exp2_approx((ref - new_ref) * 0.5f);
  sum = fmaf(sum, half * half, ptx::exp2_approx(sink * kLog2e - new_ref));
  ref = new_ref;
  return half * half;
}
// [/sink]

// ---- tanh, for a softcap ------------------------------------------------------------------------
// MUFU has an instruction for it, tanh.approx, but its relative error is up to 2^-11 (PTX ISA,
// "Floating Point Instructions: tanh"): of a score of 40 that is 0.02, and so two percent of its P.
constexpr float kTanhSmall = 0.75f;

// tanh(x) for |x| <= kTanhSmall: x times a polynomial in x^2, fitted so that its largest relative
// error is least. That is 2^-23.8, and with the roundings of fp32 2^-22.5. No MUFU.
__device__ __forceinline__ float tanh_small(float x) {
  const float square = x * x;
  float sum = -0.0047162571f;
  sum = fmaf(sum, square, 0.0195829086f);
  sum = fmaf(sum, square, -0.0533444284f);
  sum = fmaf(sum, square, 0.133254066f);
  sum = fmaf(sum, square, -0.333329588f);
  return fmaf(sum, square, 1.0f) * x;
}

// tanh(x) for every x: 1 - 2 / (e^2x + 1) loses no digits where x is not small. Two MUFU.
__device__ __forceinline__ float tanh_any(float x) {
  constexpr float kTwoLog2e = 2.88539008f;
  const float power = ptx::exp2_approx(fabsf(x) * kTwoLog2e);
  const float large = fmaf(-2.0f, ptx::rcp_approx(power + 1.0f), 1.0f);
  return fabsf(x) <= kTanhSmall ? tanh_small(x) : copysignf(large, x);
}

}  // namespace fa
