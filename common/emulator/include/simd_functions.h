// Two halves or four bytes of a word side by side (CUDA Math API, "SIMD Intrinsics"): __vadd2() and
// its kin.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <type_traits>

namespace emu {
// f of each part of the words, as a number of type Part, put together.
template <typename Part, typename F, typename... Words>
inline unsigned by_parts(F f, Words... words) {
  constexpr int kBits = 8 * int(sizeof(Part));
  unsigned result = 0;
  for (int at = 0; at < 32; at += kBits) {
    const int of_part = f(int(Part(words >> at))...);
    result |= unsigned(std::make_unsigned_t<Part>(of_part)) << at;
  }
  return result;
}

template <typename Part>
inline int to_range(int x) {
  return std::clamp<int>(x, std::numeric_limits<Part>::min(), std::numeric_limits<Part>::max());
}

template <typename Part>
inline unsigned sum_of_differences(unsigned a, unsigned b) {
  unsigned sum = 0;
  by_parts<Part>([&](int x, int y) { return int(sum += unsigned(std::abs(x - y))); }, a, b);
  return sum;
}
}  // namespace emu

#define FA_SIMD_1(NAME, PART, VALUE)                            \
  inline unsigned NAME(unsigned a) {                            \
    return emu::by_parts<PART>([](int x) { return VALUE; }, a); \
  }
#define FA_SIMD_2(NAME, PART, VALUE)                                           \
  inline unsigned NAME(unsigned a, unsigned b) {                               \
    return emu::by_parts<PART>([](int x, int y) { return int(VALUE); }, a, b); \
  }
// A comparison is all ones or 1.
#define FA_SIMD_COMPARE(NAME, SUFFIX, PART, OPERATOR)          \
  FA_SIMD_2(__vcmp##NAME##SUFFIX, PART, x OPERATOR y ? -1 : 0) \
  FA_SIMD_2(__vset##NAME##SUFFIX, PART, x OPERATOR y)
#define FA_SIMD(N, S, U)                                                                          \
  FA_SIMD_1(__vabs##N, S, std::abs(x))                                                            \
  FA_SIMD_1(__vabsss##N, S, emu::to_range<S>(std::abs(x)))                                        \
  FA_SIMD_1(__vneg##N, S, -x)                                                                     \
  FA_SIMD_1(__vnegss##N, S, emu::to_range<S>(-x))                                                 \
  FA_SIMD_2(__vadd##N, U, x + y)                                                                  \
  FA_SIMD_2(__vaddss##N, S, emu::to_range<S>(x + y))                                              \
  FA_SIMD_2(__vaddus##N, U, emu::to_range<U>(x + y))                                              \
  FA_SIMD_2(__vsub##N, U, x - y)                                                                  \
  FA_SIMD_2(__vsubss##N, S, emu::to_range<S>(x - y))                                              \
  FA_SIMD_2(__vsubus##N, U, emu::to_range<U>(x - y))                                              \
  FA_SIMD_2(__vabsdiffs##N, S, std::abs(x - y))                                                   \
  FA_SIMD_2(__vabsdiffu##N, U, std::abs(x - y))                                                   \
  FA_SIMD_2(__vavgs##N, S, (x + y + (x + y >= 0)) >> 1)                                           \
  FA_SIMD_2(__vavgu##N, U, (x + y + 1) >> 1)                                                      \
  FA_SIMD_2(__vhaddu##N, U, (x + y) >> 1)                                                         \
  FA_SIMD_2(__vmaxs##N, S, std::max(x, y))                                                        \
  FA_SIMD_2(__vmaxu##N, U, std::max(x, y))                                                        \
  FA_SIMD_2(__vmins##N, S, std::min(x, y))                                                        \
  FA_SIMD_2(__vminu##N, U, std::min(x, y))                                                        \
  FA_SIMD_COMPARE(eq, N, U, ==)                                                                   \
  FA_SIMD_COMPARE(ne, N, U, !=)                                                                   \
  FA_SIMD_COMPARE(ge, s##N, S, >=)                                                                \
  FA_SIMD_COMPARE(ge, u##N, U, >=)                                                                \
  FA_SIMD_COMPARE(gt, s##N, S, >)                                                                 \
  FA_SIMD_COMPARE(gt, u##N, U, >)                                                                 \
  FA_SIMD_COMPARE(le, s##N, S, <=)                                                                \
  FA_SIMD_COMPARE(le, u##N, U, <=)                                                                \
  FA_SIMD_COMPARE(lt, s##N, S, <)                                                                 \
  FA_SIMD_COMPARE(lt, u##N, U, <)                                                                 \
  inline unsigned __vsads##N(unsigned a, unsigned b) { return emu::sum_of_differences<S>(a, b); } \
  inline unsigned __vsadu##N(unsigned a, unsigned b) { return emu::sum_of_differences<U>(a, b); }
FA_SIMD(2, int16_t, uint16_t)
FA_SIMD(4, int8_t, uint8_t)
#undef FA_SIMD
#undef FA_SIMD_COMPARE
#undef FA_SIMD_2
#undef FA_SIMD_1
