// __half and __nv_bfloat16 with the conversions that kernels use (CUDA Math API, half and
// bfloat16).
#pragma once

#include <cstdint>

#include "common/emulator/core/float16.h"
#include "common/emulator/core/vector_types.h"

struct __half {
  uint16_t bits;
  __half() = default;
  explicit __half(float value) : bits(emu::float_to_fp16(value)) {}
  explicit operator float() const { return emu::fp16_to_float(bits); }
};

struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  explicit __nv_bfloat16(float value) : bits(emu::float_to_bf16(value)) {}
  explicit operator float() const { return emu::bf16_to_float(bits); }
};

struct alignas(4) __half2 {
  __half x, y;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline float __half2float(const __half& value) { return float(value); }
inline __half __float2half_rn(float value) { return __half(value); }
inline __half __float2half(float value) { return __half(value); }
inline float2 __half22float2(const __half2& pair) { return {float(pair.x), float(pair.y)}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline __half2 __float22half2_rn(float2 pair) { return {__half(pair.x), __half(pair.y)}; }

inline float __bfloat162float(const __nv_bfloat16& value) { return float(value); }
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return __nv_bfloat16(value); }
inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
inline float2 __bfloat1622float2(const __nv_bfloat162& pair) {
  return {float(pair.x), float(pair.y)};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 pair) {
  return {__nv_bfloat16(pair.x), __nv_bfloat16(pair.y)};
}
