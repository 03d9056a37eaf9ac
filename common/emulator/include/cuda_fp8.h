// Stands in for CUDA's header of this name when there is no CUDA (CUDA Math API, "FP8 Intrinsics"):
//
//   e4m3:  1 sign | 4 exponent | 3 mantissa   largest 448, least 2^-9; no infinity, NaN is 0x7f
//   e5m2:  1 sign | 5 exponent | 2 mantissa   largest 57344, least 2^-16
//
// Numbers are rounded to the nearest one, ties to even. What is too large becomes the largest one,
// or without saturation a NaN of e4m3 and an infinity of e5m2.
#pragma once

#include <cuda_bf16.h>  // IWYU pragma: export
#include <cuda_fp16.h>  // IWYU pragma: export

#include <bit>
#include <cstdint>
#include <type_traits>

#include "common/emulator/core/float8.h"
#include "common/emulator/core/half_types.h"
#include "common/emulator/core/vector_types.h"
#include "common/emulator/include/half_functions.h"

using __nv_fp8_storage_t = unsigned char;
using __nv_fp8x2_storage_t = unsigned short;
using __nv_fp8x4_storage_t = unsigned;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

struct __half_raw {
  unsigned short x;
  operator __half() const { return emu::from_bits<__half>(x); }
};
struct __half2_raw {
  unsigned short x, y;
  operator __half2() const { return {emu::from_bits<__half>(x), emu::from_bits<__half>(y)}; }
};

// ---- conversions --------------------------------------------------------------------------------
namespace emu {
constexpr const Fp8Format& format_of(__nv_fp8_interpretation_t kind) {
  return kind == __NV_E4M3 ? kFormatE4m3 : kFormatE5m2;
}
}  // namespace emu

inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturation,
                                                __nv_fp8_interpretation_t kind) {
  return emu::to_fp8(double(x), emu::format_of(kind), saturation == __NV_SATFINITE);
}
inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t saturation,
                                                 __nv_fp8_interpretation_t kind) {
  if (x == x) return emu::to_fp8(x, emu::format_of(kind), saturation == __NV_SATFINITE);
  const auto bits = std::bit_cast<uint64_t>(x);  // a NaN keeps its sign, and of e5m2 two bits
  return uint8_t(bits >> 63 << 7 | (kind == __NV_E4M3 ? 0x7f : 0x7e | (bits >> 50 & 3)));
}
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t kind) {
  return {emu::fp8_to_fp16(x, emu::format_of(kind))};
}
inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t saturation,
                                                  __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float_to_fp8(float(__half(x)), saturation, kind);
}
inline __nv_fp8x2_storage_t __nv_cvt_double2_to_fp8x2(double2 x, __nv_saturation_t saturation,
                                                      __nv_fp8_interpretation_t kind) {
  return uint16_t(__nv_cvt_double_to_fp8(x.x, saturation, kind) |
                  __nv_cvt_double_to_fp8(x.y, saturation, kind) << 8);
}
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t saturation,
                                                     __nv_fp8_interpretation_t kind) {
  return uint16_t(__nv_cvt_float_to_fp8(x.x, saturation, kind) |
                  __nv_cvt_float_to_fp8(x.y, saturation, kind) << 8);
}
inline __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw x, __nv_saturation_t saturation,
                                                       __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float2_to_fp8x2(__half22float2(x), saturation, kind);
}
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x,
                                              __nv_fp8_interpretation_t kind) {
  return {__nv_cvt_fp8_to_halfraw(uint8_t(x), kind).x,
          __nv_cvt_fp8_to_halfraw(uint8_t(x >> 8), kind).x};
}

// ---- types: one number, two, four; all saturate -------------------------------------------------
namespace emu {

template <__nv_fp8_interpretation_t kKind>
struct Fp8 {
  __nv_fp8_storage_t __x;
  Fp8() = default;
  template <typename T>
  explicit Fp8(T value) : __x(__nv_cvt_float_to_fp8(float(value), __NV_SATFINITE, kKind)) {}
  explicit Fp8(double value) : __x(__nv_cvt_double_to_fp8(value, __NV_SATFINITE, kKind)) {}
  template <typename T>
  explicit operator T() const {
    const __half value = __nv_cvt_fp8_to_halfraw(__x, kKind);
    if constexpr (std::is_same_v<T, bool>) {
      return float(value) != 0;
    } else if constexpr (std::is_integral_v<T>) {
      return round_whole<T>(float(value), Rounding::kZero);
    } else if constexpr (std::is_same_v<T, __half>) {
      return value;
    } else {
      return T(float(value));
    }
  }
};

template <__nv_fp8_interpretation_t kKind>
struct Fp8x2 {
  __nv_fp8x2_storage_t __x;
  Fp8x2() = default;
  explicit Fp8x2(float2 x) : __x(__nv_cvt_float2_to_fp8x2(x, __NV_SATFINITE, kKind)) {}
  explicit Fp8x2(double2 x) : __x(__nv_cvt_double2_to_fp8x2(x, __NV_SATFINITE, kKind)) {}
  explicit Fp8x2(__half2 x) : Fp8x2(__half22float2(x)) {}
  explicit Fp8x2(__nv_bfloat162 x) : Fp8x2(__bfloat1622float2(x)) {}
  explicit operator __half2() const { return __nv_cvt_fp8x2_to_halfraw2(__x, kKind); }
  explicit operator float2() const { return __half22float2(__half2(*this)); }
};

template <__nv_fp8_interpretation_t kKind>
struct Fp8x4 {
  __nv_fp8x4_storage_t __x;
  Fp8x4() = default;
  explicit Fp8x4(float4 v)
      : __x(unsigned(Fp8x2<kKind>(float2{v.z, v.w}).__x) << 16 |
            Fp8x2<kKind>(float2{v.x, v.y}).__x) {}
  explicit Fp8x4(double4 v)
      : __x(unsigned(Fp8x2<kKind>(double2{v.z, v.w}).__x) << 16 |
            Fp8x2<kKind>(double2{v.x, v.y}).__x) {}
  template <typename Pair>
  Fp8x4(Pair low, Pair high)
      : __x(unsigned(Fp8x2<kKind>(high).__x) << 16 | Fp8x2<kKind>(low).__x) {}
  explicit operator float4() const {
    const float2 low = __half22float2(__nv_cvt_fp8x2_to_halfraw2(uint16_t(__x), kKind));
    const float2 high = __half22float2(__nv_cvt_fp8x2_to_halfraw2(uint16_t(__x >> 16), kKind));
    return {low.x, low.y, high.x, high.y};
  }
};

}  // namespace emu

using __nv_fp8_e4m3 = emu::Fp8<__NV_E4M3>;
using __nv_fp8_e5m2 = emu::Fp8<__NV_E5M2>;
using __nv_fp8x2_e4m3 = emu::Fp8x2<__NV_E4M3>;
using __nv_fp8x2_e5m2 = emu::Fp8x2<__NV_E5M2>;
using __nv_fp8x4_e4m3 = emu::Fp8x4<__NV_E4M3>;
using __nv_fp8x4_e5m2 = emu::Fp8x4<__NV_E5M2>;
