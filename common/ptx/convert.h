// Between the 16-bit types and float: cvt.f32.{f16,bf16} and cvt.rn.{f16,bf16}.f32
// (PTX ISA, "Data Movement and Conversion Instructions: cvt").
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace ptx {

// Exact. By reference, so that the emulator's compiler reads memory here and not, without a line,
// before the call.
__device__ __forceinline__ float to_float(const __half& value) { return __half2float(value); }
__device__ __forceinline__ float to_float(const __nv_bfloat16& value) {
  return __bfloat162float(value);
}

__device__ __forceinline__ float2 to_float2(const __half2& pair) { return __half22float2(pair); }
__device__ __forceinline__ float2 to_float2(const __nv_bfloat162& pair) {
  return __bfloat1622float2(pair);
}

// Rounds to nearest, ties to even.
template <typename T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// Two values in the 32 bits of a register, the first one in the lower half.
template <typename T>
struct PairOf;
template <>
struct PairOf<__half> {
  using type = __half2;
};
template <>
struct PairOf<__nv_bfloat16> {
  using type = __nv_bfloat162;
};

template <typename T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  typename PairOf<T>::type pair;
  pair.x = from_float<T>(low);
  pair.y = from_float<T>(high);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}

template <typename T>
__device__ __forceinline__ float2 unpack(uint32_t bits) {
  typename PairOf<T>::type pair;
  memcpy(&pair, &bits, sizeof pair);
  return to_float2(pair);
}

// The greater of both elements, each for itself. PTX ISA, "Half Precision Floating Point
// Instructions: max".
template <typename T>
__device__ __forceinline__ uint32_t max2(uint32_t a, uint32_t b) {
#ifdef __CUDACC__
  uint32_t most;
  if constexpr (std::is_same_v<T, __half>) {
    asm("max.f16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  } else {
    asm("max.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  }
  return most;
#else
  const float2 x = unpack<T>(a), y = unpack<T>(b);
  const auto greater = [](float u, float v) { return u > v || v != v ? u : v; };  // not a NaN
  return pack<T>(greater(x.x, y.x), greater(x.y, y.y));
#endif
}

// The products of both elements, each rounded once. bf16 has them from sm_90 on. PTX ISA, "Half
// Precision Floating Point Instructions: mul".
template <typename T>
__device__ __forceinline__ uint32_t mul2(uint32_t a, uint32_t b) {
#ifdef __CUDACC__
  uint32_t product;
  if constexpr (std::is_same_v<T, __half>) {
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  } else {
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  }
  return product;
#else
  const float2 x = unpack<T>(a), y = unpack<T>(b);
  return pack<T>(x.x * y.x, x.y * y.y);
#endif
}

// a * b + c of two pairs of fp16, each element rounded once. PTX ISA, "Half Precision Floating
// Point Instructions: fma".
__device__ __forceinline__ uint32_t fma2(uint32_t a, uint32_t b, uint32_t c) {
#ifdef __CUDACC__
  uint32_t sum;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
#else
  const auto pair = [](uint32_t bits) {
    __half2 halves;
    memcpy(&halves, &bits, sizeof halves);
    return halves;
  };
  const __half2 sum = __hfma2(pair(a), pair(b), pair(c));
  uint32_t bits;
  memcpy(&bits, &sum, sizeof bits);
  return bits;
#endif
}

}  // namespace ptx
