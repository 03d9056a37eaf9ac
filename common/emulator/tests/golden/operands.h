// Operands that are hard on a Tensor Core's addition, for the probes.
#pragma once

#include "common/emulator/tests/golden/probe.h"

namespace fa::probe {

// Patterns of 16-bit operands and of accumulators, each hard on another part of the addition.
enum class Kind { kNear, kWide, kZeros, kSubnormal, kCancel, kSpecial, kLarge };

inline uint16_t operand(Random& random, Kind kind, bool half) {
  const int digits = half ? 10 : 7, bias = half ? 15 : 127, top = half ? 31 : 255;
  const uint16_t sign = uint16_t(random.next() & 1) << 15,
                 mantissa = uint16_t(random.next() & ((1u << digits) - 1));
  auto number = [&](int exponent) { return uint16_t(sign | exponent << digits | mantissa); };
  const int near = bias - 4 + int(random.next() % 7);
  const int wide = half ? 1 + int(random.next() % 30) : 87 + int(random.next() % 81);
  switch (kind) {
    case Kind::kNear:
      return number(near);
    case Kind::kWide:
      return number(wide);
    case Kind::kZeros:
      return random.next() % 2 ? sign : number(wide);
    case Kind::kSubnormal:
      return random.next() % 2 ? uint16_t(sign | mantissa) : number(half ? near : top - 20);
    case Kind::kCancel:
      return number(bias);
    case Kind::kLarge:
      return number(half ? 30 : 190);
    case Kind::kSpecial:
      break;
  }
  const uint32_t which = random.next() % 24;
  if (which == 0) return uint16_t(sign | top << digits);                 // infinity
  if (which == 1) return uint16_t(sign | top << digits | mantissa | 1);  // NaN
  return which < 4 ? sign : number(near);
}

inline uint32_t accumulator(Random& random, Kind kind) {
  const uint32_t sign = (random.next() & 1) << 31, mantissa = random.next() & 0x7fffff;
  auto number = [&](int exponent) { return sign | uint32_t(exponent) << 23 | mantissa; };
  const int near = 124 + int(random.next() % 8);
  switch (kind) {
    case Kind::kNear:
      return number(near);
    case Kind::kWide:
      return number(90 + int(random.next() % 70));
    case Kind::kZeros:
      return random.next() % 2 ? sign : number(90 + int(random.next() % 70));
    case Kind::kSubnormal:
      return random.next() % 2 ? sign | mantissa : number(1 + int(random.next() % 120));
    case Kind::kCancel:
      return number(near);
    case Kind::kLarge:
      return number(240 + int(random.next() % 15));
    case Kind::kSpecial:
      break;
  }
  const uint32_t which = random.next() % 16;
  if (which == 0) return sign | 0x7f800000u;
  if (which == 1) return sign | 0x7f800000u | mantissa | 1;
  return which < 4 ? sign : number(near);
}

struct Operands {
  const char* name;
  Kind kind;
};
constexpr Operands kOperands[] = {{"near", Kind::kNear},     {"wide", Kind::kWide},
                                  {"zeros", Kind::kZeros},   {"subnormal", Kind::kSubnormal},
                                  {"cancel", Kind::kCancel}, {"special", Kind::kSpecial},
                                  {"large", Kind::kLarge}};

}  // namespace fa::probe
