// The warp's instructions and the arithmetic that must not depend on the machine.
#include "common/emulator/intrinsics.h"

#include <array>

namespace emu {

uint32_t shuffle(ShuffleMode mode, uint32_t mask, uint32_t value, int selector, int width,
                 SourceLocation where) {
  struct Operands {
    uint32_t value;
    int selector, width;
    uint32_t result;
  } mine{value, selector & (kWarpSize - 1), width,
         value};  // PTX ISA, "shfl.sync": five bits of it count
  const char* const names[] = {"__shfl_sync()", "__shfl_up_sync()", "__shfl_down_sync()",
                               "__shfl_xor_sync()"};
  if (width < 1 || width > kWarpSize || (width & (width - 1)) != 0) {
    fail("%s at %s:%u: the width %d is not a power of two up to 32", names[int(mode)], where.file,
         where.line, width);
  }
  warp_collective(mask, names[int(mode)], mine, where, [&](Operands** lanes) {
    current_lane->cta->counters.shuffles++;
    for (int lane = 0; lane < kWarpSize; lane++) {
      if (!lanes[lane]) continue;
      Operands& reader = *lanes[lane];
      const int first = lane & ~(reader.width - 1), end = first + reader.width;
      int source = lane;
      switch (mode) {
        case ShuffleMode::kIndex:
          source = first + (reader.selector & (reader.width - 1));
          break;
        case ShuffleMode::kUp:
          source = lane - reader.selector;
          break;
        case ShuffleMode::kDown:
          source = lane + reader.selector;
          break;
        case ShuffleMode::kXor:
          source = lane ^ reader.selector;
          break;
      }
      // Beyond the segment a lane reads itself (for xor: only beyond the segment's end).
      if (source >= end || (source < first && mode == ShuffleMode::kUp)) source = lane;
      if (source < 0 || source >= kWarpSize || !lanes[source]) {
        fail("%s at %s:%u: lane %d reads lane %d, which does not take part", names[int(mode)],
             where.file, where.line, lane, source);
      }
      reader.result = lanes[source]->value;
    }
  });
  return mine.result;
}

uint32_t ballot(uint32_t mask, int predicate, const char* operation, SourceLocation where) {
  struct Operands {
    int predicate;
    uint32_t result;
  } mine{predicate, 0};
  warp_collective(mask, operation, mine, where, [&](Operands** lanes) {
    current_lane->cta->counters.votes++;
    uint32_t votes = 0;
    for (int lane = 0; lane < kWarpSize; lane++) {
      if (lanes[lane] && lanes[lane]->predicate) votes |= 1u << lane;
    }
    for (int lane = 0; lane < kWarpSize; lane++) {
      if (lanes[lane]) lanes[lane]->result = votes;
    }
  });
  return mine.result;
}

namespace {

// 2^x for |x| < 1000 in double: 2^x = 2^n * 2^r with n whole and |r| <= 1/2, and 2^r = e^(r ln 2) by its
// Taylor series, whose terms from the fourteenth on are below 2^-53.
double exp2_double(double x) {
  constexpr int kTerms = 14;
  constexpr auto kInverseFactorial = [] {
    std::array<double, kTerms> table{1.0};
    double factorial = 1.0;
    for (int k = 1; k < kTerms; k++) table[size_t(k)] = 1.0 / (factorial *= k);
    return table;
  }();
  const double n = std::floor(x + 0.5);
  const double t = (x - n) * 0.693147180559945309417232121458;
  double sum = kInverseFactorial[kTerms - 1];
  for (size_t k = kTerms - 1; k-- > 0;) sum = sum * t + kInverseFactorial[k];
  const double power_of_two = std::bit_cast<double>(uint64_t(int64_t(n) + 1023) << 52);
  return sum * power_of_two;
}

}  // namespace

float exp2f(float x) {
  if (current_lane) current_lane->cta->counters.exp2++;
  if (std::isnan(x)) return x;
  if (x > 200.0f) return INFINITY;
  if (x < -200.0f) return 0.0f;
  return float(exp2_double(double(x)));
}

float exp2_approx(float x) {
  const float y = exp2f(x);
  return y < 0x1p-126f ? 0.0f : y;  // 2^subnormal is 1 either way
}

float expf(float x) {
  if (current_lane) current_lane->cta->counters.exp2++;
  if (std::isnan(x)) return x;
  if (x > 100.0f) return INFINITY;
  if (x < -120.0f) return 0.0f;
  return float(exp2_double(double(x) * 1.44269504088896340735992468100));
}

}  // namespace emu
