// Between FP8 and float: cvt.rn.satfinite.{e4m3x2,e5m2x2}.{f32,f16x2} and cvt.rn.f16x2.{e4m3x2,
// e5m2x2} (PTX ISA, "Data Movement and Conversion Instructions: cvt"; sm_89, before that nvcc
// writes other instructions for it).
//
//   e4m3:  1 sign | 4 exponent | 3 mantissa   largest 448, least 2^-9; no infinity
//   e5m2:  1 sign | 5 exponent | 2 mantissa   largest 57344, least 2^-16
//
// T: __nv_fp8_e4m3 or __nv_fp8_e5m2.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace ptx {

template <typename T>
constexpr __nv_fp8_interpretation_t kFp8Kind =
    std::is_same_v<T, __nv_fp8_e4m3> ? __NV_E4M3 : __NV_E5M2;

// Four floats in the 32 bits of a register, the first one in the lowest byte. Rounds to nearest,
// ties to even; what is too large, infinities too, becomes the largest number of its sign. A NaN
// becomes 0x7f.
template <typename T>
__device__ __forceinline__ uint32_t pack_fp8(float a, float b, float c, float d) {
  const auto low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, kFp8Kind<T>);
  const auto high = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, kFp8Kind<T>);
  return low | uint32_t(high) << 16;
}

// The same of two pairs of fp16.
template <typename T>
__device__ __forceinline__ uint32_t pack_fp8(uint32_t ab, uint32_t cd) {
  __half2_raw low, high;
  memcpy(&low, &ab, sizeof low);
  memcpy(&high, &cd, sizeof high);
  return __nv_cvt_halfraw2_to_fp8x2(low, __NV_SATFINITE, kFp8Kind<T>) |
         uint32_t(__nv_cvt_halfraw2_to_fp8x2(high, __NV_SATFINITE, kFp8Kind<T>)) << 16;
}

// The four numbers of a register, exactly.
template <typename T>
__device__ __forceinline__ float4 unpack_fp8(uint32_t bits) {
  const __half2 low = __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t(bits), kFp8Kind<T>),
                high = __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t(bits >> 16), kFp8Kind<T>);
  const float2 ab = __half22float2(low), cd = __half22float2(high);
  return make_float4(ab.x, ab.y, cd.x, cd.y);
}

}  // namespace ptx
