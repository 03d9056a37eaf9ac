// Stands in for CUDA's header of this name when there is no CUDA: the emulator.
#pragma once

#include <cmath>

#include "common/emulator/core/vector_types.h"

using cuFloatComplex = float2;
inline float cuCrealf(cuFloatComplex x) { return x.x; }
inline float cuCimagf(cuFloatComplex x) { return x.y; }
inline cuFloatComplex make_cuFloatComplex(float re, float im) { return make_float2(re, im); }
inline cuFloatComplex cuConjf(cuFloatComplex x) { return make_float2(x.x, -x.y); }
inline cuFloatComplex cuCaddf(cuFloatComplex x, cuFloatComplex y) {
  return make_float2(x.x + y.x, x.y + y.y);
}
inline cuFloatComplex cuCsubf(cuFloatComplex x, cuFloatComplex y) {
  return make_float2(x.x - y.x, x.y - y.y);
}
inline cuFloatComplex cuCmulf(cuFloatComplex x, cuFloatComplex y) {
  return make_float2(x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x);
}
// Scaled, so that the squares of large numbers do not overflow.
inline cuFloatComplex cuCdivf(cuFloatComplex x, cuFloatComplex y) {
  const float scale = 1.0f / (std::abs(y.x) + std::abs(y.y));
  const float a = x.x * scale, b = x.y * scale, c = y.x * scale, d = y.y * scale;
  const float inverse = 1.0f / (c * c + d * d);
  return make_float2((a * c + b * d) * inverse, (b * c - a * d) * inverse);
}
inline float cuCabsf(cuFloatComplex x) { return std::hypot(x.x, x.y); }
inline cuFloatComplex cuCfmaf(cuFloatComplex x, cuFloatComplex y, cuFloatComplex z) {
  return cuCaddf(cuCmulf(x, y), z);
}

using cuDoubleComplex = double2;
inline double cuCreal(cuDoubleComplex x) { return x.x; }
inline double cuCimag(cuDoubleComplex x) { return x.y; }
inline cuDoubleComplex make_cuDoubleComplex(double re, double im) { return make_double2(re, im); }
inline cuDoubleComplex cuConj(cuDoubleComplex x) { return make_double2(x.x, -x.y); }
inline cuDoubleComplex cuCadd(cuDoubleComplex x, cuDoubleComplex y) {
  return make_double2(x.x + y.x, x.y + y.y);
}
inline cuDoubleComplex cuCsub(cuDoubleComplex x, cuDoubleComplex y) {
  return make_double2(x.x - y.x, x.y - y.y);
}
inline cuDoubleComplex cuCmul(cuDoubleComplex x, cuDoubleComplex y) {
  return make_double2(x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x);
}
// Scaled, so that the squares of large numbers do not overflow.
inline cuDoubleComplex cuCdiv(cuDoubleComplex x, cuDoubleComplex y) {
  const double scale = 1.0 / (std::abs(y.x) + std::abs(y.y));
  const double a = x.x * scale, b = x.y * scale, c = y.x * scale, d = y.y * scale;
  const double inverse = 1.0 / (c * c + d * d);
  return make_double2((a * c + b * d) * inverse, (b * c - a * d) * inverse);
}
inline double cuCabs(cuDoubleComplex x) { return std::hypot(x.x, x.y); }
inline cuDoubleComplex cuCfma(cuDoubleComplex x, cuDoubleComplex y, cuDoubleComplex z) {
  return cuCadd(cuCmul(x, y), z);
}

using cuComplex = cuFloatComplex;
inline cuComplex make_cuComplex(float re, float im) { return make_float2(re, im); }
inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex x) { return make_double2(x.x, x.y); }
inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex x) {
  return make_float2(float(x.x), float(x.y));
}
