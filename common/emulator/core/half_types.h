// __half and __nv_bfloat16 with the conversions that kernels use (CUDA Math API, half and
// bfloat16).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "common/emulator/core/float16.h"
#include "common/emulator/core/vector_types.h"

namespace emu {
// The float next to `value` whose last bit says that bits were lost: rounding it again, to fewer
// bits, then gives what rounding `value` would.
inline float round_to_odd(double value) {
  const float nearest = float(value);
  const auto bits = std::bit_cast<uint32_t>(nearest);
  if (double(nearest) == value || nearest != nearest || (bits & 1)) return nearest;
  const bool away = std::fabs(value) > std::fabs(double(nearest));
  return std::bit_cast<float>(away ? bits + 1 : bits - 1);
}
// a * b + c of numbers of up to 24 bits, rounded to odd: the product is exact, and what the sum
// loses shows in its last bit.
inline double fma_to_odd(double a, double b, double c) {
  const double product = a * b, sum = product + c;
  const double back = sum - product, lost = (product - (sum - back)) + (c - back);
  if (lost == 0 || lost != lost) return sum;
  const auto bits = std::bit_cast<uint64_t>(sum);
  if (bits & 1) return sum;
  return std::bit_cast<double>((lost > 0) == (sum > 0) ? bits + 1 : bits - 1);
}
}  // namespace emu

struct __half {
  uint16_t bits;
  __half() = default;
  __half(float value) : bits(emu::float_to_fp16(value)) {}
  __half(double value) : bits(emu::float_to_fp16(emu::round_to_odd(value))) {}
  __half(int value) : __half(double(value)) {}
  __half(unsigned value) : __half(double(value)) {}
  operator float() const { return emu::fp16_to_float(bits); }
};

struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(float value) : bits(emu::float_to_bf16(value)) {}
  __nv_bfloat16(double value) : bits(emu::float_to_bf16(emu::round_to_odd(value))) {}
  __nv_bfloat16(int value) : __nv_bfloat16(double(value)) {}
  __nv_bfloat16(unsigned value) : __nv_bfloat16(double(value)) {}
  operator float() const { return emu::bf16_to_float(bits); }
};

#ifdef FA_CUDA_PROGRAM
// A pair is one access, as the vectors of vector_types.h are.
namespace emu {
template <typename T>
struct alignas(4) HalfPair {
  T x, y;
  HalfPair() = default;
  HalfPair(T x_, T y_) : x(x_), y(y_) {}
  HalfPair(const HalfPair& other) { copy_whole(this, &other); }
  HalfPair& operator=(const HalfPair& other) {
    copy_whole(this, &other);
    return *this;
  }
};
}  // namespace emu
using __half2 = emu::HalfPair<__half>;
using __nv_bfloat162 = emu::HalfPair<__nv_bfloat16>;
#else  // kernels of the book have pairs in registers alone, which they copy as 32 bits
struct alignas(4) __half2 {
  __half x, y;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
#endif

// A sum or product of two 16-bit numbers is computed in double, where it is exact or has 53 of its
// bits, and then rounded once.
namespace emu {
template <typename T>
inline T narrow(double value, const T&) {
  return T(round_to_odd(value));
}
template <typename T>
inline double wide(const T& value) {
  return double(float(value));
}
}  // namespace emu

// Operators, intrinsics and comparisons of one type and of pairs of it (CUDA Math API, "Half
// Precision Intrinsics", "Bfloat16 Precision Intrinsics").
#define FA_HALF_INFIX(T, T2, OP, NAME)                                             \
  inline T NAME(T a, T b) { return emu::narrow(emu::wide(a) OP emu::wide(b), a); } \
  inline T2 NAME##2(T2 a, T2 b) { return {NAME(a.x, b.x), NAME(a.y, b.y)}; }       \
  inline T operator OP(const T& a, const T& b) { return NAME(a, b); }              \
  inline T2 operator OP(const T2& a, const T2& b) { return NAME##2(a, b); }        \
  inline T& operator OP##=(T& a, const T& b) { return a = NAME(a, b); }            \
  inline T2& operator OP##=(T2& a, const T2& b) { return a = NAME##2(a, b); }
#define FA_HALF_COMPARE(T, T2, OP, NAME)                                 \
  inline bool NAME(T a, T b) { return float(a) OP float(b); }            \
  inline bool operator OP(const T& a, const T& b) { return NAME(a, b); } \
  inline T2 NAME##2(T2 a, T2 b) { return {T(float(NAME(a.x, b.x))), T(float(NAME(a.y, b.y)))}; }
#define FA_HALF_UNARY(T, T2, NAME, RESULT)                 \
  inline T h##NAME(T a) { return emu::narrow(RESULT, a); } \
  inline T2 h2##NAME(T2 a) { return {h##NAME(a.x), h##NAME(a.y)}; }
#define FA_HALF(T, T2)                                                                           \
  FA_HALF_INFIX(T, T2, +, __hadd)                                                                \
  FA_HALF_INFIX(T, T2, -, __hsub)                                                                \
  FA_HALF_INFIX(T, T2, *, __hmul)                                                                \
  inline T __hdiv(T a, T b) { return emu::narrow(emu::wide(a) / emu::wide(b), a); }              \
  inline T operator/(const T& a, const T& b) { return __hdiv(a, b); }                            \
  inline T& operator/=(T& a, const T& b) { return a = __hdiv(a, b); }                            \
  inline T2 __h2div(T2 a, T2 b) { return {__hdiv(a.x, b.x), __hdiv(a.y, b.y)}; }                 \
  inline T2 operator/(const T2& a, const T2& b) { return __h2div(a, b); }                        \
  inline T __hfma(T a, T b, T c) {                                                               \
    return emu::narrow(emu::fma_to_odd(emu::wide(a), emu::wide(b), emu::wide(c)), a);            \
  }                                                                                              \
  inline T2 __hfma2(T2 a, T2 b, T2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; } \
  inline T __hneg(T a) {                                                                         \
    a.bits ^= 0x8000;                                                                            \
    return a;                                                                                    \
  }                                                                                              \
  inline T operator-(const T& a) { return __hneg(a); }                                           \
  inline T2 __hneg2(T2 a) { return {__hneg(a.x), __hneg(a.y)}; }                                 \
  inline T __habs(T a) {                                                                         \
    a.bits &= 0x7fff;                                                                            \
    return a;                                                                                    \
  }                                                                                              \
  inline T2 __habs2(T2 a) { return {__habs(a.x), __habs(a.y)}; }                                 \
  inline bool __hisnan(T a) { return float(a) != float(a); }                                     \
  FA_HALF_COMPARE(T, T2, ==, __heq)                                                              \
  FA_HALF_COMPARE(T, T2, !=, __hne)                                                              \
  FA_HALF_COMPARE(T, T2, <, __hlt)                                                               \
  FA_HALF_COMPARE(T, T2, <=, __hle)                                                              \
  FA_HALF_COMPARE(T, T2, >, __hgt)                                                               \
  FA_HALF_COMPARE(T, T2, >=, __hge)                                                              \
  /* Zeros that differ in their signs alone: the larger one is +0. */                            \
  inline T __hmax(T a, T b) {                                                                    \
    if (a == b) a.bits &= b.bits;                                                                \
    return __hisnan(a) ? b : __hisnan(b) || a >= b ? a : b;                                      \
  }                                                                                              \
  inline T __hmin(T a, T b) {                                                                    \
    if (a == b) a.bits |= b.bits;                                                                \
    return __hisnan(a) ? b : __hisnan(b) || a <= b ? a : b;                                      \
  }                                                                                              \
  inline T2 __hmax2(T2 a, T2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }                 \
  inline T2 __hmin2(T2 a, T2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }                 \
  FA_HALF_UNARY(T, T2, sqrt, std::sqrt(emu::wide(a)))                                            \
  FA_HALF_UNARY(T, T2, rsqrt, 1.0 / std::sqrt(emu::wide(a)))                                     \
  FA_HALF_UNARY(T, T2, rcp, 1.0 / emu::wide(a))                                                  \
  FA_HALF_UNARY(T, T2, exp, std::exp(emu::wide(a)))                                              \
  FA_HALF_UNARY(T, T2, exp2, std::exp2(emu::wide(a)))                                            \
  FA_HALF_UNARY(T, T2, log, std::log(emu::wide(a)))
FA_HALF(__half, __half2)
FA_HALF(__nv_bfloat16, __nv_bfloat162)
#undef FA_HALF
#undef FA_HALF_INFIX
#undef FA_HALF_COMPARE
#undef FA_HALF_UNARY

// Conversions and the making of pairs.
#define FA_HALF_NAMED(T, T2, NAME)                                                            \
  inline float __##NAME##2float(const T& value) { return float(value); }                      \
  inline T __float2##NAME##_rn(float value) { return T(value); }                              \
  inline T __float2##NAME(float value) { return T(value); }                                   \
  inline float2 __##NAME##22float2(const T2& pair) { return {float(pair.x), float(pair.y)}; } \
  inline T2 __floats2##NAME##2_rn(float x, float y) { return {T(x), T(y)}; }                  \
  inline T2 __float22##NAME##2_rn(float2 pair) { return {T(pair.x), T(pair.y)}; }             \
  inline T2 __float2##NAME##2_rn(float value) { return {T(value), T(value)}; }                \
  inline T2 __##NAME##2##NAME##2(T value) { return {value, value}; }                          \
  inline T2 __halves2##NAME##2(T x, T y) { return {x, y}; }                                   \
  inline T2 make_##NAME##2(T x, T y) { return {x, y}; }                                       \
  inline T __low2##NAME(T2 pair) { return pair.x; }                                           \
  inline T __high2##NAME(T2 pair) { return pair.y; }                                          \
  inline T2 __low2##NAME##2(T2 pair) { return {pair.x, pair.x}; }                             \
  inline T2 __high2##NAME##2(T2 pair) { return {pair.y, pair.y}; }                            \
  inline T2 __lowhigh2highlow(T2 pair) { return {pair.y, pair.x}; }                           \
  inline float __low2float(T2 pair) { return float(pair.x); }                                 \
  inline float __high2float(T2 pair) { return float(pair.y); }                                \
  inline unsigned short __##NAME##_as_ushort(T value) { return value.bits; }                  \
  inline T __ushort_as_##NAME(unsigned short bits) {                                          \
    T value;                                                                                  \
    value.bits = bits;                                                                        \
    return value;                                                                             \
  }
FA_HALF_NAMED(__half, __half2, half)
FA_HALF_NAMED(__nv_bfloat16, __nv_bfloat162, bfloat16)
#undef FA_HALF_NAMED
