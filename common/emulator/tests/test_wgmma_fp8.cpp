// FP8 on the emulator: conversions, wgmma m64nNk32 and mma.sync m16n8k32, each held to sums that
// are worked out here in whole numbers, apart from the emulator's arithmetic.
//
// What is known of a GPU and how:
//
//   wgmma    an H200's answers (28 November 2026): 4096.25 + 1 = 4097, 4096.75 + 1 = 4097.5,
//            8191.5 + 1 = 8192, 8192.5 + 1 = 8193, 16385 + 1 = 16384, -16384.5 + 1 = -16384,
//            40000 times + 1 = 16384, and so 1000 times + 32 ones. Between those the rule of
//            Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores", which mmaemu 0.1.0
//            holds against an H100 PCIe: 32 products and the accumulator at once, 13 bits behind
//            the largest exponent, each term cut by itself, the sum cut to 14 bits.
//   mma      what nvcc 13 makes of it for sm_90a: conversions to fp16, two m16n8k16, an addition.
//            The sums of m16n8k16 are an H200's (golden/warp_matrix_probe.cu).
//   cvt      PTX ISA, "cvt".
#include <cuda_fp8.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "common/emulator/core/first_nan.h"
#include "common/emulator/core/launch.h"
#include "common/launch/launch.h"
#include "common/layout/fragments.h"
#include "common/layout/swizzle.h"
#include "common/layout/wgmma.h"
#include "common/ptx/convert_fp8.h"
#include "common/ptx/fence.h"
#include "common/ptx/mma_fp8.h"
#include "common/ptx/wgmma_fp8.h"
#include "tests/support.h"

namespace fa::fp8_test {

using E4m3 = __nv_fp8_e4m3;
using E5m2 = __nv_fp8_e5m2;

// ---- the formats, as IEEE 754, section 3.4, counts them -----------------------------------------
struct Format {
  int digits, bias;
  bool has_infinity;
};
template <typename T>
constexpr Format kFormat = std::is_same_v<T, E4m3> ? Format{3, 7, false} : Format{2, 15, true};

double value_of(uint8_t bits, const Format& format) {
  const int top = (1 << (7 - format.digits)) - 1, exponent = (bits & 0x7f) >> format.digits,
            mantissa = bits & ((1 << format.digits) - 1);
  const double sign = bits & 0x80 ? -1.0 : 1.0;
  if (format.has_infinity && exponent == top) return mantissa ? NAN : sign * INFINITY;
  if (!format.has_infinity && (bits & 0x7f) == 0x7f) return NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - format.bias - format.digits);
  return sign * std::ldexp(mantissa + (1 << format.digits), exponent - format.bias - format.digits);
}

// The exponent that a Tensor Core counts: a subnormal's is that of the smallest normal number.
int exponent_of(uint8_t bits, const Format& format) {
  return std::max((bits & 0x7f) >> format.digits, 1) - format.bias;
}

template <typename T>
uint8_t pattern(double value) {  // of a number that the format has
  for (int bits = 0; bits < 256; bits++) {
    if (value_of(uint8_t(bits), kFormat<T>) == value) return uint8_t(bits);
  }
  ADD_FAILURE() << value;
  return 0;
}

// ---- conversions --------------------------------------------------------------------------------
template <typename T>
uint8_t packed(float value) {
  const uint32_t bits = ptx::pack_fp8<T>(value, 0, 0, value);
  EXPECT_EQ(bits & 0xff, bits >> 24);
  EXPECT_EQ(bits & 0xffff00, 0u);
  return uint8_t(bits);
}

template <typename T>
void expect_all_patterns() {
  for (int bits = 0; bits < 256; bits++) {
    const double value = value_of(uint8_t(bits), kFormat<T>);
    const float4 four = ptx::unpack_fp8<T>(uint32_t(bits) * 0x01010101u);
    if (std::isnan(value)) {
      EXPECT_EQ(std::bit_cast<uint32_t>(four.x), 0x7fffffffu) << bits;
      continue;
    }
    EXPECT_EQ(double(four.x), value);
    EXPECT_EQ(four.x, four.w);
    if (std::isfinite(value)) {
      EXPECT_EQ(int(packed<T>(float(value))), bits);
    }
    // The midpoint of two neighbours goes to the even one, and its neighbours as floats do not.
    const double next = value_of(uint8_t(bits + 1), kFormat<T>);
    if (bits >= 128 || !std::isfinite(next)) continue;
    const auto middle = float((value + next) / 2);
    EXPECT_EQ(int(packed<T>(middle)), bits + bits % 2);
    EXPECT_EQ(int(packed<T>(-middle)), 0x80 + bits + bits % 2);
    EXPECT_EQ(int(packed<T>(std::nextafter(middle, 0.0f))), bits);
    EXPECT_EQ(int(packed<T>(std::nextafter(middle, 1e9f))), bits + 1);
  }
}

TEST(Conversions, OfE4m3) {
  expect_all_patterns<E4m3>();
  for (const float large : {449.0f, 464.0f, 465.0f, 1e30f, INFINITY}) {
    EXPECT_EQ(packed<E4m3>(large), 0x7e);
    EXPECT_EQ(packed<E4m3>(-large), 0xfe);
  }
  EXPECT_EQ(packed<E4m3>(NAN), 0x7f);
  EXPECT_EQ(packed<E4m3>(-NAN), 0x7f);
  EXPECT_EQ(packed<E4m3>(-0.0f), 0x80);
  EXPECT_EQ(packed<E4m3>(1e-30f), 0);
}

TEST(Conversions, OfE5m2) {
  expect_all_patterns<E5m2>();
  for (const float large : {57345.0f, 65536.0f, 1e30f, INFINITY}) {
    EXPECT_EQ(packed<E5m2>(large), 0x7b);
    EXPECT_EQ(packed<E5m2>(-large), 0xfb);
  }
  EXPECT_EQ(packed<E5m2>(NAN), 0x7f);
}

TEST(Conversions, FourInOrder) {
  EXPECT_EQ(ptx::pack_fp8<E4m3>(1, 2, -1, 0.5f), 0x30b84038u);
  EXPECT_EQ(ptx::pack_fp8<E5m2>(1, 2, -1, 0.5f), 0x38bc403cu);
  EXPECT_EQ(ptx::pack_fp8<E4m3>(0x40003c00u, 0x3800bc00u), 0x30b84038u);  // of fp16
  EXPECT_EQ(ptx::pack_fp8<E4m3>(0x7c00fbffu, 0x7e000001u), 0x7f007efeu);  // inf, -65504, NaN, tiny
  const float4 four = ptx::unpack_fp8<E4m3>(0x30b84038u);
  EXPECT_EQ(std::vector<float>({four.x, four.y, four.z, four.w}),
            std::vector<float>({1, 2, -1, 0.5f}));
}

// ---- sums, in whole numbers ---------------------------------------------------------------------
// x with at most `bits` bits behind 2^exponent, cut towards zero.
double cut_below(double x, int exponent, int bits) {
  return std::ldexp(std::trunc(std::ldexp(x, bits - exponent)), exponent - bits);
}

struct Term {
  double value;
  int exponent;
};

// The rule at the head of this file.
float cut_sum(const std::vector<Term>& terms) {
  int largest = -1000;
  for (const Term& term : terms) {
    if (term.value != 0) largest = std::max(largest, term.exponent);
  }
  double sum = 0;  // exact: whole multiples of one power of two
  for (const Term& term : terms) sum += cut_below(term.value, largest, 13);
  return sum == 0 ? 0.0f : float(cut_below(sum, std::ilogb(sum), 13));
}

template <typename TA, typename TB>
float expected_sum(float accumulator, const uint8_t* a, const uint8_t* b, int count) {
  std::vector<Term> terms = {
      {accumulator, accumulator == 0 ? 0 : std::max(std::ilogb(accumulator), -126)}};
  for (int k = 0; k < count; k++) {
    terms.push_back({value_of(a[k], kFormat<TA>) * value_of(b[k], kFormat<TB>),
                     exponent_of(a[k], kFormat<TA>) + exponent_of(b[k], kFormat<TB>)});
  }
  return cut_sum(terms);
}

// ---- wgmma --------------------------------------------------------------------------------------
// Rows of 128 bytes: 128 elements. A: 64 rows, B: as many as N.
struct Tiles {
  alignas(1024) uint8_t a[64 * 128];
  alignas(1024) uint8_t b[256 * 128];
};

// Where element (row, k) of a tile is: as for 16 bits, of which each has two of these.
size_t at(int row, int k) { return size_t(layout::slab_offset(64, row, k / 2) + k % 2); }

// One step. a[64][32], b[N][32], d[64][N].
struct Problem {
  std::vector<uint8_t> a, b;
  std::vector<float> d;
};

template <typename TA, typename TB, int kN>
std::string multiply(Problem& problem, bool registers, int times = 1, bool accumulate = true,
                     int step = 0) {
  return test::error_of<emu::LaunchError>([&] {
    emu::launch("fp8", dim3(1), dim3(128), sizeof(Tiles), [&] {
      auto& smem = shared_storage<Tiles>();
      const int thread = int(threadIdx.x);
      for (int i = thread; i < 64 * 32; i += 128) {
        smem.a[at(i / 32, 32 * step + i % 32)] = problem.a[size_t(i)];
      }
      for (int i = thread; i < kN * 32; i += 128) {
        smem.b[at(i / 32, 32 * step + i % 32)] = problem.b[size_t(i)];
      }
      ptx::fence_proxy_async();
      __syncthreads();
      float acc[kN / 2];
      for (int i = 0; i < kN / 2; i++) {
        const layout::Position d = layout::wgmma_d(thread, i);
        acc[i] = problem.d[size_t(d.row * kN + d.column)];
      }
      // PTX ISA, "WGMMA .m64nNk32 register fragment layout for matrix A".
      uint32_t rA[4];
      for (int i = 0; i < 4; i++) {
        const int row = thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8,
                  k = thread % 4 * 4 + i / 2 * 16;
        memcpy(&rA[i], &problem.a[size_t(row * 32 + k)], 4);
      }
      const uint32_t bytes = layout::k_major_step(64, step);
      const uint64_t a = layout::k_major_descriptor(ptx::shared_address(smem.a)),
                     b = layout::k_major_descriptor(ptx::shared_address(smem.b));
      for (int i = 0; i < times; i++) {
        ptx::wgmma_fence(acc, rA);
        if (registers) {
          ptx::wgmma_fp8<TA, kN, TB>(acc, rA, layout::advance(b, bytes), accumulate || i > 0);
        } else {
          ptx::wgmma_fp8<TA, kN, TB>(acc, layout::advance(a, bytes), layout::advance(b, bytes),
                                     accumulate || i > 0);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>(acc, rA);
      }
      for (int i = 0; i < kN / 2; i++) {
        const layout::Position d = layout::wgmma_d(thread, i);
        problem.d[size_t(d.row * kN + d.column)] = acc[i];
      }
    });
  });
}

// Finite patterns whose exponents are within `spread` of the middle.
template <typename T>
uint8_t random_pattern(std::mt19937& random, int spread) {
  for (;;) {
    const auto bits = uint8_t(random());
    const double value = value_of(bits, kFormat<T>);
    if (!std::isfinite(value)) continue;
    if (value == 0 || std::abs(exponent_of(bits, kFormat<T>)) <= spread) return bits;
  }
}

template <typename TA, typename TB, int kN>
void expect_sums(int spread, int step) {
  std::mt19937 random(unsigned(kN + spread));
  Problem problem{std::vector<uint8_t>(64 * 32), std::vector<uint8_t>(kN * 32),
                  std::vector<float>(64 * kN)};
  for (uint8_t& x : problem.a) x = random_pattern<TA>(random, spread);
  for (uint8_t& x : problem.b) x = random_pattern<TB>(random, spread);
  for (float& x : problem.d) {
    x = std::ldexp(float(int(random() % 0x1000000) - 0x800000), int(random() % 24) - 30);
  }
  std::vector<float> expected;
  for (int row = 0; row < 64; row++) {
    for (int column = 0; column < kN; column++) {
      expected.push_back(expected_sum<TA, TB>(problem.d[size_t(row * kN + column)],
                                              &problem.a[size_t(row * 32)],
                                              &problem.b[size_t(column * 32)], 32));
    }
  }
  for (const bool registers : {false, true}) {
    Problem once = problem;
    ASSERT_EQ((multiply<TA, TB, kN>(once, registers, 1, true, step)), "no error");
    EXPECT_EQ(memcmp(once.d.data(), expected.data(), expected.size() * 4), 0)
        << kN << " columns, A in " << (registers ? "registers" : "shared memory");
  }
}

TEST(Fp8, SumsOfRandomOperands) {
  expect_sums<E4m3, E4m3, 64>(3, 0);
  expect_sums<E4m3, E4m3, 128>(20, 1);  // all there are, subnormals too
  expect_sums<E5m2, E5m2, 72>(20, 2);
  expect_sums<E4m3, E5m2, 136>(8, 3);
  expect_sums<E5m2, E4m3, 256>(4, 1);
}

// An accumulator and 32 products that are all alike, or the first alone.
template <typename T = E4m3>
float sum_of(float start, double x, double y, int count = 1, int times = 1) {
  Problem problem{std::vector<uint8_t>(64 * 32, pattern<T>(0)),
                  std::vector<uint8_t>(64 * 32, pattern<T>(0)), std::vector<float>(64 * 64, start)};
  for (int i = 0; i < 64 * 32; i++) {
    if (i % 32 < count) problem.a[size_t(i)] = pattern<T>(x);
    problem.b[size_t(i)] = pattern<T>(y);
  }
  EXPECT_EQ((multiply<T, T, 64>(problem, true, times)), "no error");
  for (const float d : problem.d) EXPECT_EQ(d, problem.d[0]);
  return problem.d[0];
}

// Measured on an H200.
TEST(Fp8, AnAccumulatorHasThirteenBitsBehindItsFirst) {
  EXPECT_EQ(sum_of(4096.25f, 1, 1), 4097.0f);
  EXPECT_EQ(sum_of(4096.75f, 1, 1), 4097.5f);
  EXPECT_EQ(sum_of(8191.5f, 1, 1), 8192.0f);
  EXPECT_EQ(sum_of(8192.5f, 1, 1), 8193.0f);
  EXPECT_EQ(sum_of(16384.5f, 1, 1), 16384.0f);
  EXPECT_EQ(sum_of(-16384.5f, 1, 1), -16384.0f);
  EXPECT_EQ(sum_of(16385.0f, 1, 1), 16384.0f);
}

// Measured on an H200: each one is cut by itself, so 32 of them in a product are lost as well.
TEST(Fp8, ALongSumOfOnesEndsAt16384) {
  EXPECT_EQ(sum_of(0, 1, 1, 32, 500), 16000.0f);
  EXPECT_EQ(sum_of(0, 1, 1, 32, 1000), 16384.0f);
}

TEST(LongFp8, SumsOfOnesEndAt16384) {  // the same, more of them
  EXPECT_EQ(sum_of(0, 1, 1, 32, 4000), 16384.0f);
  EXPECT_EQ(sum_of(0, 1, 1, 1, 8000), 8000.0f);
  EXPECT_EQ(sum_of(0, 1, 1, 1, 16000), 16000.0f);
  EXPECT_EQ(sum_of(0, 1, 1, 1, 40000), 16384.0f);
}

// By the rule: what is cut, and what is not.
TEST(Fp8, OnlyWhatIsBelowTheThirteenthBitIsLost) {
  EXPECT_EQ(sum_of(16384, 1, 2, 32), 16448.0f);
  EXPECT_EQ(sum_of(-16384, -1, 1, 32), -16384.0f);
}

// By the rule: nothing is rounded up, and a product's exponent is the sum of its factors'.
TEST(Fp8, CutAndNotRounded) {
  EXPECT_EQ(sum_of(16384, 1.875, 1), 16384.0f);         // 1.875 of a step of 2
  EXPECT_EQ(sum_of(-16384, 1.875, 1), -16384.0f);       // so is the sign's other side
  EXPECT_EQ(sum_of(16384, 1.875, 1.875), 16386.0f);     // 3.515625
  EXPECT_EQ(sum_of(-16384, 1.875, 1.875), -16382.0f);   // 3.515625: 2, and 16382 has 14 bits
  EXPECT_EQ(sum_of(0x1.fffffep0f, 0, 1), 0x1.fff8p0f);  // an accumulator alone: 14 bits
  // 1.875 * 1.875 is 3.5 and more, but counts with the exponent 0: the accumulator keeps 2^-13.
  EXPECT_EQ(sum_of(0x1p-13f, 1.875, 1.875), 3.515625f);  // the sum is cut to 14 bits from 2 on
  EXPECT_EQ(sum_of(0x3p-13f, 1.875, 1.875), 3.515625f + 0x1p-12f);
}

TEST(Fp8, TheLargestAndTheLeast) {
  EXPECT_EQ(sum_of(0, 448, 448, 32), 32 * 448.0f * 448.0f);
  EXPECT_EQ(sum_of(0, 0x1p-9, 0x1p-9, 32), 0x1p-13f);  // subnormal: the exponent -6, 2^-12 each
  EXPECT_EQ(sum_of<E5m2>(0, 57344, 57344, 32), 32 * 57344.0f * 57344.0f);
  EXPECT_EQ(sum_of<E5m2>(0, 0x1p-16, 0x1p-16, 32), 0x1p-27f);
  EXPECT_EQ(sum_of<E5m2>(0, 0x1p-16, -0x1p-16, 32), -0x1p-27f);
  // With a normal product beside it a subnormal's bits are cut like any other's.
  EXPECT_EQ(sum_of(1, 0x1p-9, 0x1p-5, 32), 1.0f);
  EXPECT_EQ(sum_of(1, 0x1p-9, 0x1p-4, 32), 1.0f + 0x1p-8f);
  EXPECT_EQ(sum_of(-0.0f, 0, -1), 0.0f);
  EXPECT_FALSE(std::signbit(sum_of(-0.0f, 0, -1)));
}

TEST(Fp8, WithoutAccumulating) {
  Problem problem{std::vector<uint8_t>(64 * 32, pattern<E4m3>(1)),
                  std::vector<uint8_t>(64 * 32, pattern<E4m3>(-2)),
                  std::vector<float>(64 * 64, NAN)};
  ASSERT_EQ((multiply<E4m3, E4m3, 64>(problem, false, 2, false)), "no error");
  for (const float d : problem.d) EXPECT_EQ(d, -128.0f);
}

// PTX ISA: NaN is 0x7f of e4m3; e5m2 has infinities. The result's NaN is the canonical one.
TEST(Fp8, NaNAndInfinity) {
  Problem problem{std::vector<uint8_t>(64 * 32, 0x38), std::vector<uint8_t>(64 * 32, 0x38),
                  std::vector<float>(64 * 64, 1)};
  problem.a[5 * 32 + 7] = 0xff;
  problem.b[9 * 32 + 30] = 0x7f;
  emu::forget_nans();
  ASSERT_EQ((multiply<E4m3, E4m3, 64>(problem, false)), "no error");
  for (int row = 0; row < 64; row++) {
    for (int column = 0; column < 64; column++) {
      const auto bits = std::bit_cast<uint32_t>(problem.d[size_t(row * 64 + column)]);
      EXPECT_EQ(bits, row == 5 || column == 9 ? 0x7fffffffu : std::bit_cast<uint32_t>(33.0f));
    }
  }
  EXPECT_CONTAINS(emu::first_nan(), "common/emulator/tests/test_wgmma_fp8.cpp:");
  problem = {std::vector<uint8_t>(64 * 32, 0x3c), std::vector<uint8_t>(64 * 32, 0x3c),
             std::vector<float>(64 * 64, 1)};
  problem.a[0] = 0x7c;        // row 0: infinity
  problem.a[32] = 0xfc;       // row 1: -infinity
  problem.b[3 * 32 + 0] = 0;  // column 3: times 0
  ASSERT_EQ((multiply<E5m2, E5m2, 64>(problem, true)), "no error");
  EXPECT_EQ(problem.d[0], INFINITY);
  EXPECT_EQ(problem.d[64], -INFINITY);
  EXPECT_EQ(std::bit_cast<uint32_t>(problem.d[3]), 0x7fffffffu);
  EXPECT_EQ(problem.d[2 * 64], 33.0f);
  EXPECT_EQ(problem.d[2 * 64 + 3], 32.0f);
}

TEST(Fp8, CountsFlops) {
  Problem problem{std::vector<uint8_t>(64 * 32), std::vector<uint8_t>(128 * 32),
                  std::vector<float>(64 * 128)};
  emu::take_counters();
  ASSERT_EQ((multiply<E4m3, E4m3, 128>(problem, false, 3)), "no error");
  const emu::Counters counters = emu::take_counters();
  EXPECT_EQ(counters.matrix_products, 3u * 4);
  EXPECT_EQ(counters.matrix_flops, 3u * 2 * 64 * 128 * 32);
}

struct OneKilobyte {
  alignas(1024) uint8_t bytes[1024];
};

TEST(Fp8, ReportsCountElementsOfEightBits) {
  const std::string text = test::error_of<emu::LaunchError>([] {
    emu::launch("fp8", dim3(1), dim3(128), sizeof(OneKilobyte), [] {
      const uint32_t shared = ptx::shared_address(shared_storage<OneKilobyte>().bytes);
      const uint64_t outside = layout::descriptor(shared, 1024, 128, layout::SwizzleMode::kNone);
      float acc[32] = {};
      ptx::wgmma_fence(acc);
      ptx::wgmma_fp8<E4m3, 64>(acc, outside, outside, false);
    });
  });
  EXPECT_CONTAINS(text, "element (0, k = 16) of A would be at byte 1024 of shared memory");
}

// ---- mma.sync -----------------------------------------------------------------------------------
// A warp's m16n8k32. a[16][32], b[8][32], d[16][8].
template <typename TA, typename TB>
void multiply_warp(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b,
                   std::vector<float>& d) {
  emu::launch("mma", dim3(1), dim3(32), 0, [&] {
    const int lane = int(threadIdx.x), row = lane / 4, column = lane % 4;
    uint32_t rA[4], rB[2];  // PTX ISA, "Matrix Fragments for mma.m16n8k32", 8 bits
    float rD[4];
    for (int i = 0; i < 4; i++) {
      memcpy(&rA[i], &a[size_t((row + i % 2 * 8) * 32 + column * 4 + i / 2 * 16)], 4);
      rD[i] = d[size_t((row + i / 2 * 8) * 8 + column * 2 + i % 2)];
    }
    for (int i = 0; i < 2; i++) memcpy(&rB[i], &b[size_t(row * 32 + column * 4 + i * 16)], 4);
    ptx::mma_m16n8k32<TA, TB>(rD, rA, rB);
    for (int i = 0; i < 4; i++) d[size_t((row + i / 2 * 8) * 8 + column * 2 + i % 2)] = rD[i];
  });
}

TEST(Fp8, MmaSyncIsExactInSmallSums) {
  std::mt19937 random(7);
  std::vector<uint8_t> a(16 * 32), b(8 * 32);
  std::vector<float> d(16 * 8);
  for (uint8_t& x : a) x = pattern<E4m3>(double(int(random() % 17) - 8));
  for (uint8_t& x : b) x = pattern<E5m2>(double(int(random() % 9) - 4));
  for (float& x : d) x = float(int(random() % 2000) - 1000);
  std::vector<float> expected = d;
  for (int i = 0; i < 16 * 8; i++) {
    for (int k = 0; k < 32; k++) {
      expected[size_t(i)] += float(value_of(a[size_t(i / 8 * 32 + k)], kFormat<E4m3>) *
                                   value_of(b[size_t(i % 8 * 32 + k)], kFormat<E5m2>));
    }
  }
  multiply_warp<E4m3, E5m2>(a, b, d);
  EXPECT_EQ(d, expected);
}

// On compute capability 9.0 it is no Tensor Core's sum of FP8: 16384 + 32 is 16416, and the
// accumulator is added last, rounded to nearest.
TEST(Fp8, MmaSyncKeepsTheBitsOfAFloat) {
  const std::vector<uint8_t> ones(16 * 32, pattern<E4m3>(1));
  const auto after = [&](float start) {
    std::vector<float> d(16 * 8, start);
    multiply_warp<E4m3, E4m3>(ones, ones, d);
    return d[0];
  };
  EXPECT_EQ(after(16384), 16416.0f);
  EXPECT_EQ(after(0x1p29f), 0x1p29f);                // 32 is half a step: to even
  EXPECT_EQ(after(0x1.000002p29f), 0x1.000004p29f);  // likewise
  EXPECT_EQ(std::bit_cast<uint32_t>(after(NAN)), 0x7fffffffu);
}

// The lower two elements of each register are multiplied first: k = 0, 1, 4, 5 and so on. Where a
// large product and its opposite are both among them, what is small is in the other half and stays.
TEST(Fp8, MmaSyncAddsLowerHalvesFirst) {
  const auto sum = [](int large, int opposite, int small) {
    std::vector<uint8_t> a(16 * 32), b(8 * 32, pattern<E5m2>(57344));
    std::vector<float> d(16 * 8);
    for (int row = 0; row < 16; row++) {
      a[size_t(row * 32 + large)] = pattern<E5m2>(57344);
      a[size_t(row * 32 + opposite)] = pattern<E5m2>(-57344);
      a[size_t(row * 32 + small)] = pattern<E5m2>(0x1p-16);
    }
    multiply_warp<E5m2, E5m2>(a, b, d);
    return d[0];
  };
  EXPECT_EQ(sum(0, 5, 2), 0.875f);
  EXPECT_EQ(sum(0, 5, 31), 0.875f);
  EXPECT_EQ(sum(2, 7, 0), 0.0f);  // 0.875 beside 2^31: cut off
  EXPECT_EQ(sum(0, 5, 16), 0.0f);
}

}  // namespace fa::fp8_test
