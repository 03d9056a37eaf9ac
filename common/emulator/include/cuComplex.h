// Stands in for CUDA's header of this name when there is no CUDA: the emulator.
#pragma once

#include <cmath>

#include "common/emulator/core/vector_types.h"

// Of REAL numbers. F is the letter that the float ones have at the end of their names.
#define FA_COMPLEX(T, REAL, PAIR, F, FMA)                                                 \
  using T = PAIR;                                                                         \
  inline REAL cuCreal##F(T x) { return x.x; }                                             \
  inline REAL cuCimag##F(T x) { return x.y; }                                             \
  inline T make_##T(REAL re, REAL im) { return {re, im}; }                                \
  inline T cuConj##F(T x) { return {x.x, -x.y}; }                                         \
  inline T cuCadd##F(T x, T y) { return {x.x + y.x, x.y + y.y}; }                         \
  inline T cuCsub##F(T x, T y) { return {x.x - y.x, x.y - y.y}; }                         \
  inline T cuCmul##F(T x, T y) { return {x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x}; } \
  /* Scaled, so that the squares of large numbers do not overflow. */                     \
  inline T cuCdiv##F(T x, T y) {                                                          \
    const REAL scale = 1 / (std::abs(y.x) + std::abs(y.y));                               \
    const REAL a = x.x * scale, b = x.y * scale, c = y.x * scale, d = y.y * scale;        \
    const REAL inverse = 1 / (c * c + d * d);                                             \
    return {(a * c + b * d) * inverse, (b * c - a * d) * inverse};                        \
  }                                                                                       \
  inline REAL cuCabs##F(T x) { return std::hypot(x.x, x.y); }                             \
  inline T FMA(T x, T y, T z) { return cuCadd##F(cuCmul##F(x, y), z); }
FA_COMPLEX(cuFloatComplex, float, float2, f, cuCfmaf)
FA_COMPLEX(cuDoubleComplex, double, double2, , cuCfma)
#undef FA_COMPLEX

using cuComplex = cuFloatComplex;
inline cuComplex make_cuComplex(float re, float im) { return make_float2(re, im); }
inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex x) { return make_double2(x.x, x.y); }
inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex x) {
  return make_float2(float(x.x), float(x.y));
}
