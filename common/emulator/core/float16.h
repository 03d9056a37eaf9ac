// Conversions between float and the two 16-bit formats, on bit patterns, as the hardware does them.
//
//   fp16 (IEEE binary16):  1 sign | 5 exponent  | 10 mantissa   largest 65504, least 2^-24
//   bf16 (bfloat16):       1 sign | 8 exponent  |  7 mantissa   float's range, few digits
//
// Narrowing rounds to nearest, ties to even; a NaN becomes the canonical 0x7fff (PTX ISA, "cvt").
// Widening is exact; a NaN in fp16 becomes 0x7fffffff, one in bf16 keeps its bits. Held against an
// H200 for all patterns, ties and their neighbours by
// common/emulator/tests/golden/float16_probe.cu.
#pragma once

#include <bit>
#include <cstdint>

namespace emu {

constexpr float fp16_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000) << 16;
  const uint32_t magnitude = uint32_t(bits & 0x7fff)
                             << 13;  // exponent and mantissa, moved into place
  if ((bits & 0x7fff) > 0x7c00) return std::bit_cast<float>(0x7fffffffu);  // NaN: the canonical one
  if ((bits & 0x7fff) == 0x7c00) return std::bit_cast<float>(sign | 0x7f800000u);
  // Multiplying by 2^112 corrects the exponent bias (127 - 15) and normalises subnormals exactly.
  return std::bit_cast<float>(std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f) |
                              sign);
}

// Without a branch between small and other values: a compiler may copy what follows a branch into
// both of its ways, and a store that exists twice is two requests to the checked build.
constexpr uint16_t float_to_fp16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000u) return 0x7fff;  // NaN
  // Below 2^-14 adding 0.5 makes the FPU round at 2^-24 for us.
  const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
  const uint32_t subnormal = std::bit_cast<uint32_t>(rounded) - 0x3f000000u;
  const uint32_t tie_to_even = (magnitude >> 13) & 1;
  const uint32_t normal = (magnitude - 0x38000000u + 0xfff + tie_to_even) >> 13;
  const uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
  return uint16_t(sign | (magnitude < 0x477ff000u ? finite : 0x7c00));  // 65520 and above: infinity
}

constexpr float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

constexpr uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000u) return 0x7fff;  // NaN
  const uint32_t tie_to_even = (bits >> 16) & 1;
  return uint16_t((bits + 0x7fff + tie_to_even) >> 16);
}

}  // namespace emu
