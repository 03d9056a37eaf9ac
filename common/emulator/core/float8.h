// Conversions to and from the two formats of FP8, on bit patterns, as the hardware does them.
//
//   e4m3:  1 sign | 4 exponent | 3 mantissa   largest 448, least 2^-9; no infinity, NaN is 0x7f
//   e5m2:  1 sign | 5 exponent | 2 mantissa   largest 57344, least 2^-16
//
// Narrowing rounds to nearest, ties to even; what is then too large becomes the largest number, or
// without saturation a NaN of e4m3 and an infinity of e5m2. A NaN becomes the canonical 0x7f (PTX
// ISA, "cvt"). Widening is exact; a NaN becomes the canonical one.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/emulator/core/float16.h"

namespace emu {

struct Fp8Format {
  int digits, least_exponent;  // of the mantissa; of the smallest normal number
  uint8_t largest;             // the pattern of the largest number
  uint8_t beyond;              // what is too large, without saturation
};
constexpr Fp8Format kFormatE4m3{3, -6, 0x7e, 0x7f}, kFormatE5m2{2, -14, 0x7b, 0x7c};

inline uint8_t to_fp8(double value, const Fp8Format& format, bool saturate) {
  if (value != value) return 0x7f;
  const double size = std::fabs(value);
  unsigned result = format.largest + 1u;
  if (size < 0x1p20) {
    const int least = format.least_exponent,
              exponent = size < std::ldexp(1.0, least) ? least : std::ilogb(size);
    const auto steps = unsigned(std::nearbyint(std::ldexp(size, format.digits - exponent)));
    // A leading bit is one exponent more.
    result = (unsigned(exponent - least) << format.digits) + steps;
  }
  if (result > format.largest) result = saturate ? format.largest : format.beyond;
  return uint8_t((std::signbit(value) ? 0x80 : 0) | result);
}

inline float fp8_to_float(uint8_t bits, const Fp8Format& format) {
  const unsigned size = bits & 0x7f;
  if (size > format.largest + (format.digits == 2 ? 1u : 0u)) return fp16_to_float(0x7fff);
  // As fp16, whose exponents are counted from 15 on, as those of e5m2 are; those of e4m3 from 7 on.
  const auto pattern = uint16_t((bits & 0x80) << 8 | size << (10 - format.digits));
  return fp16_to_float(pattern) * (format.digits == 2 ? 1.0f : 256.0f);
}

inline uint16_t fp8_to_fp16(uint8_t bits, const Fp8Format& format) {
  return float_to_fp16(fp8_to_float(bits, format));
}

}  // namespace emu
