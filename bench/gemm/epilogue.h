// What a product's epilogue does to its sums, between the accumulators and the rounding to 16 bits.
#pragma once

#include <cuda_runtime.h>

#include "bench/gemm/gemm.h"  // IWYU pragma: export
#include "common/ptx/convert.h"
#include "common/ptx/exp2.h"

namespace fa::gemm {

// [gelu]
// x Phi(x) with the usual tanh in place of the error function: x / (1 + e^-2u), u = sqrt(2 / pi) (x
// + 0.044715 x^3). Two instructions of the unit for exponentials: 2^y, and the reciprocal of
// __fdividef (2 ulp, before the result is rounded to 16 bits).
__device__ __forceinline__ float gelu(float x) {
  constexpr float kLinear = -2.0f * 0.79788456f * 1.44269504f;  // -2 sqrt(2 / pi) log2(e)
  constexpr float kCubic = kLinear * 0.044715f;
  return __fdividef(x, 1.0f + ptx::exp2_approx(x * fmaf(x * x, kCubic, kLinear)));
}
// [/gelu]

// [finish]
// Two neighbouring sums of one row, columns `column` and + 1, as they are stored.
template <typename T, Epilogue kEpilogue>
__device__ __forceinline__ uint32_t finish(float low, float high, const T* bias, int column) {
  if constexpr (kEpilogue == Epilogue::kBiasGelu) {
    const float2 b = ptx::unpack<T>(*reinterpret_cast<const uint32_t*>(bias + column));
    low = gelu(low + b.x);
    high = gelu(high + b.y);
  }
  return ptx::pack<T>(low, high);
}
// [/finish]

}  // namespace fa::gemm
