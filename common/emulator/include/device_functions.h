// CUDA C++'s functions of numbers that are not part of C++ (CUDA Math API, "Integer Intrinsics",
// "Single Precision Intrinsics", "Type Casting Intrinsics"). The fast approximations are rounded
// once from a double: a GPU's differ in their last bits.
#pragma once

#include <math.h>

#include <bit>
#include <cfenv>
#include <climits>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "common/emulator/core/lane.h"
#include "common/emulator/core/noting_nan.h"
#include "common/emulator/core/vector_types.h"
#include "common/emulator/include/simd_functions.h"  // IWYU pragma: export
#include "common/emulator/units/warp.h"

// ---- loads and stores with a hint ---------------------------------------------------------------
#define FA_LOAD(NAME)               \
  template <typename T>             \
  inline T NAME(const T* address) { \
    return *address;                \
  }
FA_LOAD(__ldg)
FA_LOAD(__ldca)
FA_LOAD(__ldcg)
FA_LOAD(__ldcs)
FA_LOAD(__ldlu)
FA_LOAD(__ldcv)
#undef FA_LOAD
#define FA_STORE(NAME)                                          \
  template <typename T>                                         \
  inline void NAME(T* address, std::type_identity_t<T> value) { \
    *address = value;                                           \
  }
FA_STORE(__stwb)
FA_STORE(__stcg)
FA_STORE(__stcs)
FA_STORE(__stwt)
#undef FA_STORE

// ---- integers -----------------------------------------------------------------------------------
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(unsigned(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned result = 0;
  for (int bit = 0; bit < 32; bit++) result |= (x >> bit & 1) << (31 - bit);
  return result;
}
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(unsigned(x))) << 32 | __brev(unsigned(x >> 32));
}
inline int __mulhi(int x, int y) { return int(int64_t(x) * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) { return unsigned(uint64_t(x) * y >> 32); }
inline long long __mul64hi(long long x, long long y) {
  return static_cast<long long>(static_cast<__int128>(x) * y >> 64);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}
inline int __mul24(int x, int y) { return int((int64_t(x << 8) >> 8) * (int64_t(y << 8) >> 8)); }
inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffff) * (y & 0xffffff); }
inline int __hadd(int x, int y) { return int((int64_t(x) + y) >> 1); }
inline int __rhadd(int x, int y) { return int((int64_t(x) + y + 1) >> 1); }
inline unsigned __uhadd(unsigned x, unsigned y) { return unsigned((uint64_t(x) + y) >> 1); }
inline unsigned __urhadd(unsigned x, unsigned y) { return unsigned((uint64_t(x) + y + 1) >> 1); }
inline unsigned __sad(int x, int y, unsigned z) {
  return z + (x > y ? unsigned(x) - unsigned(y) : unsigned(y) - unsigned(x));
}
inline unsigned __usad(unsigned x, unsigned y, unsigned z) { return z + (x > y ? x - y : y - x); }
// The bytes of (y, x), of which each 4 bits of s choose one; their highest bit: its sign alone.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
  const uint64_t both = uint64_t(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; i++) {
    unsigned byte = unsigned(both >> (8 * (s >> (4 * i) & 7))) & 0xff;
    if (s >> (4 * i) & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return unsigned((uint64_t(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned((uint64_t(high) << 32 | low) >> (shift & 31));
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}
inline int __dp4a(int a, int b, int c) {
  unsigned sum = unsigned(c);
  for (int i = 0; i < 4; i++) sum += unsigned(int8_t(a >> (8 * i)) * int8_t(b >> (8 * i)));
  return int(sum);
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; i++) c += uint8_t(a >> (8 * i)) * unsigned(uint8_t(b >> (8 * i)));
  return c;
}
inline int __dp2a_lo(int a, int b, int c) {
  return c + int16_t(a) * int8_t(b) + int16_t(a >> 16) * int8_t(b >> 8);
}
inline int __dp2a_hi(int a, int b, int c) { return __dp2a_lo(a, b >> 16, c); }
inline unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c) {
  return c + uint16_t(a) * unsigned(uint8_t(b)) + (a >> 16) * uint8_t(b >> 8);
}
inline unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c) { return __dp2a_lo(a, b >> 16, c); }
inline int __dp4a(char4 a, char4 b, int c) {
  return int(unsigned(c) + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w);
}
inline int __dp2a_lo(short2 a, char4 b, int c) { return int(unsigned(c) + a.x * b.x + a.y * b.y); }
inline int __dp2a_hi(short2 a, char4 b, int c) { return int(unsigned(c) + a.x * b.z + a.y * b.w); }
inline unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) {
  return c + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
inline unsigned __dp2a_lo(ushort2 a, uchar4 b, unsigned c) { return c + a.x * b.x + a.y * b.y; }
inline unsigned __dp2a_hi(ushort2 a, uchar4 b, unsigned c) { return c + a.x * b.z + a.y * b.w; }

// ---- the same bits as another type --------------------------------------------------------------
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __hiloint2double(int high, int low) {
  return std::bit_cast<double>(uint64_t(unsigned(high)) << 32 | unsigned(low));
}
inline int __double2hiint(double x) { return int(std::bit_cast<uint64_t>(x) >> 32); }
inline int __double2loint(double x) { return int(std::bit_cast<uint64_t>(x)); }

// ---- conversions --------------------------------------------------------------------------------
namespace emu {
// As cvt does: beyond the type's range its ends, and 0 for a NaN.
template <typename T, typename F>
inline T to_whole(F rounded) {
  if (rounded != rounded) return 0;
  const double value = double(rounded);
  const double least = double(std::numeric_limits<T>::min());
  const double most = double(std::numeric_limits<T>::max());
  return value <= least  ? std::numeric_limits<T>::min()
         : value >= most ? std::numeric_limits<T>::max()
                         : T(rounded);
}
}  // namespace emu
#define FA_TO_WHOLE(FROM, TO, T)                                                        \
  inline T __##FROM##2##TO##_rn(FROM x) { return emu::to_whole<T>(std::nearbyint(x)); } \
  inline T __##FROM##2##TO##_rz(FROM x) { return emu::to_whole<T>(std::trunc(x)); }     \
  inline T __##FROM##2##TO##_rd(FROM x) { return emu::to_whole<T>(std::floor(x)); }     \
  inline T __##FROM##2##TO##_ru(FROM x) { return emu::to_whole<T>(std::ceil(x)); }
FA_TO_WHOLE(float, int, int)
FA_TO_WHOLE(float, uint, unsigned)
FA_TO_WHOLE(float, ll, long long)
FA_TO_WHOLE(float, ull, unsigned long long)
FA_TO_WHOLE(double, int, int)
FA_TO_WHOLE(double, uint, unsigned)
FA_TO_WHOLE(double, ll, long long)
FA_TO_WHOLE(double, ull, unsigned long long)
#undef FA_TO_WHOLE
// ---- floating point -----------------------------------------------------------------------------
// f in a direction of fenv.h. What is volatile is read and written between the two changes of
// direction, so the computation stays there, too.
namespace emu {
template <typename R, typename T, typename F>
inline auto in_direction(int direction, F f) {
  return [=](T x, T y = 0, T z = 0) {
    volatile T a = x, b = y, c = z;
    std::fesetround(direction);
    volatile R result = f(a, b, c);
    std::fesetround(FE_TONEAREST);
    return R(result);
  };
}

// A value that the compiler takes neither from nor into a fused operation.
template <typename T>
inline T apart(T value) {
#ifdef FA_FUSED
  asm("" : "+r"(value));
#endif
  return value;
}
}  // namespace emu
#define FA_DIRECTED(DIRECTION, NAME, R, T, VALUE, ARGUMENTS, ...)                            \
  inline R NAME(__VA_ARGS__) {                                                               \
    const auto f = [](T x, [[maybe_unused]] T y, [[maybe_unused]] T z) { return R(VALUE); }; \
    return emu::in_direction<R, T>(DIRECTION, f) ARGUMENTS;                                  \
  }
#define FA_ROUNDED(NAME, R, T, VALUE, ARGUMENTS, ...)                      \
  inline R NAME##_rn(__VA_ARGS__) {                                        \
    return [](T x, [[maybe_unused]] T y = 0, [[maybe_unused]] T z = 0) {   \
      x = emu::apart(x), y = emu::apart(y), z = emu::apart(z);             \
      return emu::apart(R(VALUE));                                         \
    } ARGUMENTS;                                                           \
  }                                                                        \
  FA_DIRECTED(FE_DOWNWARD, NAME##_rd, R, T, VALUE, ARGUMENTS, __VA_ARGS__) \
  FA_DIRECTED(FE_UPWARD, NAME##_ru, R, T, VALUE, ARGUMENTS, __VA_ARGS__)   \
  FA_DIRECTED(FE_TOWARDZERO, NAME##_rz, R, T, VALUE, ARGUMENTS, __VA_ARGS__)
#define FA_ROUNDED_ALL(LETTER, FMA, T)                       \
  FA_ROUNDED(__##LETTER##add, T, T, x + y, (a, b), T a, T b) \
  FA_ROUNDED(__##LETTER##sub, T, T, x - y, (a, b), T a, T b) \
  FA_ROUNDED(__##LETTER##mul, T, T, x* y, (a, b), T a, T b)  \
  FA_ROUNDED(__##LETTER##div, T, T, x / y, (a, b), T a, T b) \
  FA_ROUNDED(__##LETTER##rcp, T, T, 1 / x, (a), T a)         \
  FA_ROUNDED(__##LETTER##sqrt, T, T, std::sqrt(x), (a), T a) \
  FA_ROUNDED(FMA, T, T, std::fma(x, y, z), (a, b, c), T a, T b, T c)
FA_ROUNDED_ALL(f, __fmaf, float)
FA_ROUNDED_ALL(d, __fma, double)
FA_ROUNDED(__double2float, float, double, x, (a), double a)
FA_ROUNDED(__int2float, float, int, x, (a), int a)
FA_ROUNDED(__uint2float, float, unsigned, x, (a), unsigned a)
FA_ROUNDED(__ll2float, float, long long, x, (a), long long a)
FA_ROUNDED(__ull2float, float, unsigned long long, x, (a), unsigned long long a)
FA_ROUNDED(__ll2double, double, long long, x, (a), long long a)
FA_ROUNDED(__ull2double, double, unsigned long long, x, (a), unsigned long long a)
#undef FA_ROUNDED_ALL
#undef FA_ROUNDED
#undef FA_DIRECTED
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline float __frsqrt_rn(float x) { return float(1.0 / std::sqrt(double(x))); }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
inline float __fdividef(float x, float y) { return x / y; }
inline float rsqrtf(float x) { return float(1.0 / std::sqrt(double(x))); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float rcbrtf(float x) { return float(1.0 / std::cbrt(double(x))); }
inline double sinpi(double x) { return std::sin(M_PI * std::remainder(x, 2)); }
inline double cospi(double x) { return std::cos(M_PI * std::remainder(x, 2)); }
inline float sinpif(float x) { return float(sinpi(x)); }
inline float cospif(float x) { return float(cospi(x)); }
inline void sincospi(double x, double* sine, double* cosine) {
  *sine = sinpi(x);
  *cosine = cospi(x);
}
inline void sincospif(float x, float* sine, float* cosine) {
  *sine = sinpif(x);
  *cosine = cospif(x);
}
inline double rcbrt(double x) { return 1 / std::cbrt(x); }
inline double rhypot(double x, double y) { return 1 / std::hypot(x, y); }
inline double norm3d(double x, double y, double z) { return std::hypot(x, y, z); }
inline double norm4d(double x, double y, double z, double w) {
  return std::hypot(std::hypot(x, y), z, w);
}
inline double rnorm3d(double x, double y, double z) { return 1 / norm3d(x, y, z); }
inline double rnorm4d(double x, double y, double z, double w) { return 1 / norm4d(x, y, z, w); }
inline float rhypotf(float x, float y) { return float(rhypot(x, y)); }
inline float norm3df(float x, float y, float z) { return float(norm3d(x, y, z)); }
inline float norm4df(float x, float y, float z, float w) { return float(norm4d(x, y, z, w)); }
inline float rnorm3df(float x, float y, float z) { return float(rnorm3d(x, y, z)); }
inline float rnorm4df(float x, float y, float z, float w) { return float(rnorm4d(x, y, z, w)); }
inline double normcdf(double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); }
inline float normcdff(float x) { return float(normcdf(x)); }
// Newton's steps from either side of the curve, where they cannot leave it.
inline double erfcinv(double y) {
  if (!(y > 0 && y < 2)) return y == 0 ? HUGE_VAL : y == 2 ? -HUGE_VAL : NAN;
  if (y > 1) return -erfcinv(2 - y);
  double x = 0;
  for (int i = 0; i < 1000; i++) {
    const double next = x + (std::erfc(x) - y) * std::exp(x * x) * std::sqrt(M_PI) / 2;
    if (!(next > x)) break;
    x = next;
  }
  return x;
}
inline double erfinv(double y) {
  double x = 0;  // small results have bits that 1 - y would lose
  if (std::fabs(y) > 0.5) return y > 0 ? erfcinv(1 - y) : -erfcinv(1 + y);
  for (int i = 0; i < 60; i++) x -= (std::erf(x) - y) * std::exp(x * x) * std::sqrt(M_PI) / 2;
  return x;
}
inline double normcdfinv(double p) { return -M_SQRT2 * erfcinv(2 * p); }
inline float erfcinvf(float y) { return float(erfcinv(y)); }
inline float erfinvf(float y) { return float(erfinv(y)); }
inline float normcdfinvf(float p) { return float(normcdfinv(p)); }
inline float fdividef(float x, float y) { return x / y; }
inline void __sincosf(float x, float* sine, float* cosine) {
  *sine = float(std::sin(double(x)));
  *cosine = float(std::cos(double(x)));
}
inline float __exp10f(float x) { return float(std::pow(10.0, double(x))); }

// The C library's names, for floats: rounded once from its double, whose last bit may depend on the
// machine and the float hardly ever. Calls of CUDA sources are led here (cuda_source.py),
// exponentials to those of warp.h, which are counted.
namespace emu {
#define FA_MATH(NAME)                                                                         \
  inline float NAME##f(float x) { return noting_nan(#NAME, x, float(std::NAME(double(x)))); } \
  inline float NAME(float x) { return NAME##f(x); }                                           \
  inline double NAME(double x) { return noting_nan(#NAME, x, std::NAME(x)); }                 \
  template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>                   \
  inline double NAME(T x) {                                                                   \
    return NAME(double(x));                                                                   \
  }
FA_MATH(log)
FA_MATH(log2)
FA_MATH(log10)
FA_MATH(log1p)
FA_MATH(expm1)
FA_MATH(sin)
FA_MATH(cos)
FA_MATH(tan)
FA_MATH(asin)
FA_MATH(acos)
FA_MATH(atan)
FA_MATH(sinh)
FA_MATH(cosh)
FA_MATH(tanh)
FA_MATH(erf)
FA_MATH(erfc)
FA_MATH(cbrt)
#undef FA_MATH
inline float exp10f(float x) { return __exp10f(x); }
inline float powf(float x, float y) { return float(std::pow(double(x), double(y))); }
inline float pow(float x, float y) { return powf(x, y); }
inline float pow(float x, int y) { return powf(x, float(y)); }
inline double pow(double x, double y) { return std::pow(x, y); }
inline float atan2f(float x, float y) { return float(std::atan2(double(x), double(y))); }
inline float exp(float x, SourceLocation where = SourceLocation::current()) {
  return expf(x, where);
}
inline double exp(double x) { return std::exp(x); }
inline float exp2(float x, SourceLocation where = SourceLocation::current()) {
  return exp2f(x, where);
}
inline double exp2(double x) { return std::exp2(x); }
// exp(2), pow(x, 2): as in C++, whole numbers count as double.
template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>
inline double exp(T x) {
  return std::exp(double(x));
}
template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>
inline double exp2(T x) {
  return std::exp2(double(x));
}
template <typename T, typename U,
          typename = std::enable_if_t<std::is_arithmetic_v<T> && std::is_arithmetic_v<U>>>
inline double pow(T x, U y) {
  return std::pow(double(x), double(y));
}
inline float __expf(float x, SourceLocation where = SourceLocation::current()) {
  return expf(x, where);
}
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
}  // namespace emu

// ---- the smaller and the larger of two ----------------------------------------------------------
#define FA_MIN_MAX(T)                              \
  inline T min(T x, T y) { return y < x ? y : x; } \
  inline T max(T x, T y) { return x < y ? y : x; }
FA_MIN_MAX(int)
FA_MIN_MAX(unsigned)
FA_MIN_MAX(long)
FA_MIN_MAX(unsigned long)
FA_MIN_MAX(long long)
FA_MIN_MAX(unsigned long long)
#undef FA_MIN_MAX
#define FA_MIN_MAX(T, U)                                       \
  inline U min(T x, U y) { return min(static_cast<U>(x), y); } \
  inline U min(U x, T y) { return min(x, static_cast<U>(y)); } \
  inline U max(T x, U y) { return max(static_cast<U>(x), y); } \
  inline U max(U x, T y) { return max(x, static_cast<U>(y)); }
FA_MIN_MAX(int, unsigned)
FA_MIN_MAX(long, unsigned long)
FA_MIN_MAX(long long, unsigned long long)
#undef FA_MIN_MAX
inline float min(float x, float y) { return std::fmin(x, y); }
inline float max(float x, float y) { return std::fmax(x, y); }
inline double min(double x, double y) { return std::fmin(x, y); }
inline double max(double x, double y) { return std::fmax(x, y); }
inline double min(float x, double y) { return std::fmin(double(x), y); }
inline double min(double x, float y) { return std::fmin(x, double(y)); }
inline double max(float x, double y) { return std::fmax(double(x), y); }
inline double max(double x, float y) { return std::fmax(x, double(y)); }
inline unsigned umin(unsigned x, unsigned y) { return min(x, y); }
inline unsigned umax(unsigned x, unsigned y) { return max(x, y); }
