// Further functions of __half, __nv_bfloat16 and their pairs (CUDA Math API, "Half Precision
// Intrinsics", "Bfloat16 Precision Intrinsics"): conversions that round in any direction, results
// that are clamped, comparisons that are true for a NaN or give masks, functions of C++'s library.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "common/emulator/core/half_types.h"

namespace emu {

enum class Rounding { kNearest, kZero, kDown, kUp };

// The double next to a whole number whose last bit says that bits were lost, as round_to_odd().
template <typename Whole>
inline double whole_to_odd(Whole value) {
  const auto wide = static_cast<__int128>(value);
  auto size = static_cast<unsigned long long>(wide < 0 ? -wide : wide);
  if (size >> 53) size = (size | ((size & 0x7ff) != 0) << 11) & ~0x7ffull;
  return wide < 0 ? -double(size) : double(size);
}

template <typename T>
inline T round_half(double value, Rounding rounding) {
  T result(value);
  const double nearest = float(result);
  const bool above = nearest > value, below = nearest < value;
  const bool away = value < 0 ? below : above;
  if (rounding == Rounding::kZero && away) result.bits--;
  if (rounding == Rounding::kDown && above) result.bits += std::signbit(nearest) ? 1 : -1;
  if (rounding == Rounding::kUp && below) result.bits += std::signbit(nearest) ? -1 : 1;
  return result;
}

// As a GPU converts: to the nearest number that there is; a NaN is 0, or of 64 bits the first one.
template <typename Whole>
inline Whole round_whole(float value, Rounding rounding) {
  using Limits = std::numeric_limits<Whole>;
  if (value != value) return sizeof(Whole) == 8 ? Whole(1ull << 63) : 0;
  const float whole = rounding == Rounding::kNearest ? std::nearbyint(value)
                      : rounding == Rounding::kZero  ? std::trunc(value)
                      : rounding == Rounding::kDown  ? std::floor(value)
                                                     : std::ceil(value);
  if (whole >= std::ldexp(1.0f, Limits::digits)) return Limits::max();
  return whole <= float(Limits::min()) ? Limits::min() : Whole(whole);
}

template <typename T>
inline T from_bits(unsigned bits) {
  T value;
  value.bits = uint16_t(bits);
  return value;
}
template <typename T>
inline T saturated(T value) {
  return value > T(0.0f) ? value < T(1.0f) ? value : T(1.0f) : T(0.0f);
}
template <typename T>
inline T without_negatives(T value) {
  return __hisnan(value) ? from_bits<T>(0x7fff) : value > T(0.0f) ? value : T(0.0f);
}

}  // namespace emu

// Of NAME, half or bfloat16, and SHORT, by which its conversions to whole numbers begin.
#define FA_HALF_WHOLE(T, NAME, WHOLE, SHORT, SUFFIX, ROUNDING)                    \
  inline WHOLE __##NAME##2##SHORT##SUFFIX(T value) {                              \
    return emu::round_whole<WHOLE>(float(value), emu::Rounding::ROUNDING);        \
  }                                                                               \
  inline T __##SHORT##2##NAME##SUFFIX(WHOLE value) {                              \
    return emu::round_half<T>(emu::whole_to_odd(value), emu::Rounding::ROUNDING); \
  }
#define FA_HALF_ROUNDING(T, NAME, SUFFIX, ROUNDING)                \
  FA_HALF_WHOLE(T, NAME, int, int, SUFFIX, ROUNDING)               \
  FA_HALF_WHOLE(T, NAME, unsigned, uint, SUFFIX, ROUNDING)         \
  FA_HALF_WHOLE(T, NAME, short, short, SUFFIX, ROUNDING)           \
  FA_HALF_WHOLE(T, NAME, unsigned short, ushort, SUFFIX, ROUNDING) \
  FA_HALF_WHOLE(T, NAME, long long, ll, SUFFIX, ROUNDING)          \
  FA_HALF_WHOLE(T, NAME, unsigned long long, ull, SUFFIX, ROUNDING)
#define FA_HALF_FLOAT(T, NAME, SUFFIX, ROUNDING)                       \
  inline T __float2##NAME##SUFFIX(float value) {                       \
    return emu::round_half<T>(double(value), emu::Rounding::ROUNDING); \
  }
#define FA_HALF_SATURATED(T, T2, NAME)                                                       \
  inline T NAME##_sat(T a, T b) { return emu::saturated(NAME(a, b)); }                       \
  inline T2 NAME##2_sat(T2 a, T2 b) { return {NAME##_sat(a.x, b.x), NAME##_sat(a.y, b.y)}; } \
  inline T NAME##_rn(T a, T b) { return NAME(a, b); }                                        \
  inline T2 NAME##2_rn(T2 a, T2 b) { return NAME##2(a, b); }
// Comparisons; those with a u are true if an operand is not a number.
#define FA_HALF_COMPARES(T, T2, NAME, OP)                                                      \
  inline bool __h##NAME##u(T a, T b) {                                                         \
    return __hisnan(a) || __hisnan(b) || float(a) OP float(b);                                 \
  }                                                                                            \
  inline bool __hb##NAME##2(T2 a, T2 b) { return __h##NAME(a.x, b.x) && __h##NAME(a.y, b.y); } \
  inline bool __hb##NAME##u2(T2 a, T2 b) {                                                     \
    return __h##NAME##u(a.x, b.x) && __h##NAME##u(a.y, b.y);                                   \
  }                                                                                            \
  inline T2 __h##NAME##u2(T2 a, T2 b) {                                                        \
    return {T(float(__h##NAME##u(a.x, b.x))), T(float(__h##NAME##u(a.y, b.y)))};               \
  }                                                                                            \
  inline unsigned __h##NAME##2_mask(T2 a, T2 b) {                                              \
    return (__h##NAME(a.x, b.x) ? 0xffff : 0) | (__h##NAME(a.y, b.y) ? 0xffff0000 : 0);        \
  }                                                                                            \
  inline unsigned __h##NAME##u2_mask(T2 a, T2 b) {                                             \
    return (__h##NAME##u(a.x, b.x) ? 0xffff : 0) | (__h##NAME##u(a.y, b.y) ? 0xffff0000 : 0);  \
  }
#define FA_HALF_FUNCTION(T, T2, NAME, RESULT)              \
  inline T h##NAME(T a) { return emu::narrow(RESULT, a); } \
  inline T2 h2##NAME(T2 a) { return {h##NAME(a.x), h##NAME(a.y)}; }
#define FA_HALF_MORE(T, T2, NAME)                                                            \
  FA_HALF_ROUNDING(T, NAME, _rn, kNearest)                                                   \
  FA_HALF_ROUNDING(T, NAME, _rz, kZero)                                                      \
  FA_HALF_ROUNDING(T, NAME, _rd, kDown)                                                      \
  FA_HALF_ROUNDING(T, NAME, _ru, kUp)                                                        \
  FA_HALF_FLOAT(T, NAME, _rz, kZero)                                                         \
  FA_HALF_FLOAT(T, NAME, _rd, kDown)                                                         \
  FA_HALF_FLOAT(T, NAME, _ru, kUp)                                                           \
  inline T __double2##NAME(double value) { return T(value); }                                \
  inline signed char __##NAME##2char_rz(T value) {                                           \
    return emu::round_whole<signed char>(float(value), emu::Rounding::kZero);                \
  }                                                                                          \
  inline unsigned char __##NAME##2uchar_rz(T value) {                                        \
    return emu::round_whole<unsigned char>(float(value), emu::Rounding::kZero);              \
  }                                                                                          \
  inline short __##NAME##_as_short(T value) { return short(value.bits); }                    \
  inline T __short_as_##NAME(short bits) { return emu::from_bits<T>(uint16_t(bits)); }       \
  FA_HALF_SATURATED(T, T2, __hadd)                                                           \
  FA_HALF_SATURATED(T, T2, __hsub)                                                           \
  FA_HALF_SATURATED(T, T2, __hmul)                                                           \
  inline T __hfma_sat(T a, T b, T c) { return emu::saturated(__hfma(a, b, c)); }             \
  inline T __hfma_relu(T a, T b, T c) { return emu::without_negatives(__hfma(a, b, c)); }    \
  inline T2 __hfma2_sat(T2 a, T2 b, T2 c) {                                                  \
    return {__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)};                           \
  }                                                                                          \
  inline T2 __hfma2_relu(T2 a, T2 b, T2 c) {                                                 \
    return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)};                         \
  }                                                                                          \
  /* A product of complex numbers, added to c. */                                            \
  inline T2 __hcmadd(T2 a, T2 b, T2 c) {                                                     \
    return {__hfma(__hneg(a.y), b.y, __hfma(a.x, b.x, c.x)),                                 \
            __hfma(a.y, b.x, __hfma(a.x, b.y, c.y))};                                        \
  }                                                                                          \
  FA_HALF_COMPARES(T, T2, eq, ==)                                                            \
  FA_HALF_COMPARES(T, T2, ne, !=)                                                            \
  FA_HALF_COMPARES(T, T2, lt, <)                                                             \
  FA_HALF_COMPARES(T, T2, le, <=)                                                            \
  FA_HALF_COMPARES(T, T2, gt, >)                                                             \
  FA_HALF_COMPARES(T, T2, ge, >=)                                                            \
  inline T2 __hisnan2(T2 a) { return {T(float(__hisnan(a.x))), T(float(__hisnan(a.y)))}; }   \
  inline int __hisinf(T a) { return std::isinf(float(a)) ? float(a) > 0 ? 1 : -1 : 0; }      \
  inline T __hmax_nan(T a, T b) {                                                            \
    return __hisnan(a) || __hisnan(b) ? emu::from_bits<T>(0x7fff) : __hmax(a, b);            \
  }                                                                                          \
  inline T __hmin_nan(T a, T b) {                                                            \
    return __hisnan(a) || __hisnan(b) ? emu::from_bits<T>(0x7fff) : __hmin(a, b);            \
  }                                                                                          \
  inline T2 __hmax2_nan(T2 a, T2 b) { return {__hmax_nan(a.x, b.x), __hmax_nan(a.y, b.y)}; } \
  inline T2 __hmin2_nan(T2 a, T2 b) { return {__hmin_nan(a.x, b.x), __hmin_nan(a.y, b.y)}; } \
  FA_HALF_FUNCTION(T, T2, ceil, std::ceil(emu::wide(a)))                                     \
  FA_HALF_FUNCTION(T, T2, floor, std::floor(emu::wide(a)))                                   \
  FA_HALF_FUNCTION(T, T2, rint, std::nearbyint(emu::wide(a)))                                \
  FA_HALF_FUNCTION(T, T2, trunc, std::trunc(emu::wide(a)))                                   \
  FA_HALF_FUNCTION(T, T2, sin, std::sin(emu::wide(a)))                                       \
  FA_HALF_FUNCTION(T, T2, cos, std::cos(emu::wide(a)))                                       \
  FA_HALF_FUNCTION(T, T2, tanh, std::tanh(emu::wide(a)))                                     \
  FA_HALF_FUNCTION(T, T2, tanh_approx, std::tanh(emu::wide(a)))                              \
  FA_HALF_FUNCTION(T, T2, exp10, std::pow(10.0, emu::wide(a)))                               \
  FA_HALF_FUNCTION(T, T2, log2, std::log2(emu::wide(a)))                                     \
  FA_HALF_FUNCTION(T, T2, log10, std::log10(emu::wide(a)))
FA_HALF_MORE(__half, __half2, half)
FA_HALF_MORE(__nv_bfloat16, __nv_bfloat162, bfloat16)
#undef FA_HALF_MORE
#undef FA_HALF_FUNCTION
#undef FA_HALF_COMPARES
#undef FA_HALF_SATURATED
#undef FA_HALF_FLOAT
#undef FA_HALF_ROUNDING
#undef FA_HALF_WHOLE

inline __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
inline __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
inline __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x, b.x}; }
inline __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.y, b.y}; }
