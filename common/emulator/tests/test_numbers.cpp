// Numbers: 16-bit conversions, exponentials, vector types and the model of shared memory's banks.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <ios>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "common/emulator/core/float16.h"
#include "common/emulator/core/wavefronts.h"
#include "common/emulator/include/cuda_runtime.h"

namespace {

// ---- 16-bit formats -----------------------------------------------------------------------------
// A format by its numbers, converted in double arithmetic: an implementation that shares nothing
// with the emulator's bit patterns.
struct Format {
  const char* name;
  int exponent_bits, mantissa_bits;
  uint16_t (*narrow)(float);
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int lowest_exponent() const { return 1 - bias(); }
  double largest() const { return std::ldexp(2.0 - std::ldexp(1.0, -mantissa_bits), bias()); }
};

double value_of(const Format& f, uint16_t bits) {
  const int exponent = bits >> f.mantissa_bits & ((1 << f.exponent_bits) - 1);
  const int mantissa = bits & ((1 << f.mantissa_bits) - 1);
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == (1 << f.exponent_bits) - 1) return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, f.lowest_exponent() - f.mantissa_bits);
  return sign *
         std::ldexp((1 << f.mantissa_bits) + mantissa, exponent - f.bias() - f.mantissa_bits);
}

// The nearest number of the format, ties to even (which nearbyint does).
double rounded(const Format& f, double value) {
  if (value == 0 || std::isinf(value)) return value;
  const int exponent = std::max(std::ilogb(value), f.lowest_exponent());
  const double step = std::ldexp(1.0, exponent - f.mantissa_bits);
  const double result = std::nearbyint(value / step) * step;
  return std::fabs(result) > f.largest() ? std::copysign(INFINITY, value) : result;
}

class FormatTest : public testing::TestWithParam<Format> {
 protected:
  const Format f = GetParam();
  void expect_narrows(float value) {
    const uint16_t bits = f.narrow(value);
    if (std::isnan(value)) {
      ASSERT_EQ(bits, 0x7fff);
      return;
    }
    const double expected = rounded(f, double(value)), actual = value_of(f, bits);
    ASSERT_EQ(actual, expected) << std::hexfloat << value;
    ASSERT_EQ(std::signbit(actual), std::signbit(value));
  }
};
INSTANTIATE_TEST_SUITE_P(Formats, FormatTest,
                         testing::Values(Format{"fp16", 5, 10, emu::float_to_fp16},
                                         Format{"bf16", 8, 7, emu::float_to_bf16}),
                         [](const auto& test) { return test.param.name; });

// Every pattern, every tie and its neighbours are held to an H200: golden/float16_probe.cu.
TEST_P(FormatTest, NarrowsEverythingElse) {
  for (const float value :
       {0.0f, -0.0f, INFINITY, -INFINITY, NAN, -NAN, 65504.0f, 65519.99f, 65520.0f,
        std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min(),
        -std::numeric_limits<float>::min(), 0x1p-24f, 0x1p-25f, 0x1.000002p-25f, 0x1p-133f,
        0x1p-134f, 0x1.8p-134f}) {
    expect_narrows(value);
  }
  std::mt19937 random(1);
  for (int i = 0; i < 500000; i++) expect_narrows(std::bit_cast<float>(uint32_t(random())));
}

// ---- exponentials -------------------------------------------------------------------------------
// How far `actual` is from `exact`, in units of exact's last place.
double ulps(float actual, long double exact) {
  const int exponent = std::max(std::ilogb(double(exact)), -126);
  return double(std::fabs((long double)(actual)-exact) / std::ldexp(1.0L, exponent - 23));
}

TEST(Exponentials, AreWithinOneUlp) {
  double worst = 0;
  // Every 1009th float between 2^-30 and 160 in magnitude: a million of each sign.
  for (uint32_t bits = std::bit_cast<uint32_t>(0x1p-30f); bits < std::bit_cast<uint32_t>(160.0f);
       bits += 1009) {
    for (const float x : {std::bit_cast<float>(bits), -std::bit_cast<float>(bits)}) {
      if (x < 128 && x > -150)
        worst = std::max(worst, ulps(emu::exp2f(x), std::exp2((long double)(x))));
      if (x < 88.7f && x > -104)
        worst = std::max(worst, ulps(emu::expf(x), std::exp((long double)(x))));
    }
  }
  EXPECT_LT(worst, 0.501) << "correctly rounded but for a few ties";
}

TEST(Exponentials, AreExactWhereTheyCanBe) {
  for (int n = -149; n <= 127; n++) EXPECT_EQ(emu::exp2f(float(n)), std::ldexp(1.0f, n)) << n;
  EXPECT_EQ(emu::exp2f(128.0f), INFINITY);
  EXPECT_EQ(emu::exp2f(-151.0f), 0.0f);
  EXPECT_EQ(emu::expf(0.0f), 1.0f);
  EXPECT_EQ(emu::expf(-0.0f), 1.0f);
  for (const bool two : {true, false}) {
    const auto function = [two](float x) { return two ? emu::exp2f(x) : emu::expf(x); };
    EXPECT_EQ(function(INFINITY), INFINITY);
    EXPECT_EQ(function(-INFINITY), 0.0f);
    EXPECT_EQ(function(1e30f), INFINITY);
    EXPECT_EQ(function(-1e30f), 0.0f);
    EXPECT_TRUE(std::isnan(function(NAN)));
  }
  EXPECT_EQ(emu::expf(88.72284f), INFINITY);
  EXPECT_LT(emu::expf(88.72283f), INFINITY);
}

// ---- vector types -------------------------------------------------------------------------------
TEST(VectorTypes, HaveCudasSizesAndAlignments) {
  EXPECT_TRUE(sizeof(float2) == 8 && alignof(float2) == 8 && sizeof(uint2) == 8 &&
              alignof(int2) == 8);
  EXPECT_TRUE(sizeof(float4) == 16 && alignof(float4) == 16 && sizeof(uint4) == 16 &&
              alignof(int4) == 16);
  EXPECT_TRUE(sizeof(uint3) == 12 && alignof(uint3) == 4 && sizeof(__half2) == 4 &&
              alignof(__nv_bfloat162) == 4);
  const float4 a = make_float4(1, 2, 3, 4);
  float4 b = make_float4(0, 0, 0, 0);
  b = a;
  EXPECT_TRUE(b.x == 1 && b.y == 2 && b.z == 3 && b.w == 4);
}

// ---- banks of shared memory ---------------------------------------------------------------------
struct Pattern {
  const char* name;
  uint32_t bytes, stride;  // of an access; between the addresses of neighbouring lanes
  uint32_t active, actual, ideal;
};

class BankPatterns : public testing::TestWithParam<Pattern> {};

TEST_P(BankPatterns, TakeTheExpectedNumberOfWavefronts) {
  const Pattern& p = GetParam();
  std::array<uint32_t, 32> offsets{};
  for (uint32_t lane = 0; lane < 32; lane++) offsets[lane] = lane * p.stride;
  const emu::Wavefronts wavefronts = emu::shared_wavefronts(offsets, p.active, p.bytes);
  EXPECT_EQ(wavefronts.actual, p.actual);
  EXPECT_EQ(wavefronts.ideal, p.ideal);
}
constexpr uint32_t kAll = 0xffffffffu;
INSTANTIATE_TEST_SUITE_P(Known, BankPatterns,
                         testing::Values(Pattern{"a_row", 4, 4, kAll, 1, 1},                 //
                                         Pattern{"a_column_of_32", 4, 32 * 4, kAll, 32, 1},  //
                                         Pattern{"a_column_padded", 4, 33 * 4, kAll, 1, 1},  //
                                         Pattern{"every_second_word", 4, 8, kAll, 2, 1},     //
                                         Pattern{"broadcast", 4, 0, kAll, 1, 1},             //
                                         Pattern{"one_lane", 4, 128, 1u << 9, 1, 1},         //
                                         Pattern{"half_a_column", 4, 128, 0xffff, 16, 1},    //
                                         Pattern{"halves_in_a_row", 2, 2, kAll, 1,
                                                 1},  // two lanes a word
                                         Pattern{"column_of_halves", 2, 128, kAll, 32, 1},   //
                                         Pattern{"bytes_in_a_row", 1, 1, kAll, 1, 1},        //
                                         Pattern{"row_of_8_bytes", 8, 8, kAll, 2, 2},        //
                                         Pattern{"row_of_16_bytes", 16, 16, kAll, 4, 4},     //
                                         Pattern{"column_of_8_bytes", 8, 128, kAll, 32, 2},  //
                                         Pattern{"column_of_16_bytes", 16, 128, kAll, 32, 4},
                                         Pattern{"column_of_16_padded", 16, 128 + 16, kAll, 4, 4},
                                         Pattern{"a_quarter_of_16_bytes", 16, 16, 0xff, 1, 1}),
                         [](const auto& test) { return test.param.name; });

TEST(Banks, EveryWordIsDeliveredOnceABankAtATime) {
  for (const uint32_t stride : {0u, 16u, 64u, 80u, 272u}) {
    std::array<uint32_t, 32> offsets{};
    for (uint32_t lane = 0; lane < 32; lane++)
      offsets[lane] = lane / 2 * stride;  // two lanes alike
    for (const bool matrices : {false, true}) {
      std::vector<emu::Delivery> deliveries;
      const emu::Wavefronts wavefronts =
          matrices ? emu::matrix_wavefronts(offsets, 4, &deliveries)
                   : emu::shared_wavefronts(offsets, kAll, 16, &deliveries);
      std::map<std::pair<uint32_t, uint32_t>, uint32_t> words;  // by wavefront and bank
      std::array<int, 32> words_of_lane{};
      uint32_t last = 0;
      for (const auto& [lane, word, wavefront] : deliveries) {
        const auto [at, fresh] = words.try_emplace({wavefront, word % 32}, word);
        EXPECT_TRUE(fresh || at->second == word) << stride;
        EXPECT_EQ(word, offsets[size_t(lane)] / 4 + uint32_t(words_of_lane[size_t(lane)]++));
        last = std::max(last, wavefront);
      }
      EXPECT_EQ(last + 1, wavefronts.actual);
      for (const int count : words_of_lane) EXPECT_EQ(count, 4);
    }
  }
}

TEST(Banks, MatricesAreServedOneAfterTheOther) {
  std::array<uint32_t, 32> offsets{};
  for (uint32_t row = 0; row < 16; row++) offsets[row] = row * 256;
  EXPECT_EQ(emu::matrix_wavefronts(offsets, 1).actual, 8u);
  EXPECT_EQ(emu::matrix_wavefronts(offsets, 2).actual, 16u);
  EXPECT_EQ(emu::matrix_wavefronts(offsets, 2).ideal, 2u);
}

TEST(Banks, NoLanesNoWavefronts) {
  EXPECT_EQ(emu::shared_wavefronts({}, 0, 4).actual, 0u);
  EXPECT_EQ(emu::shared_wavefronts({}, 0, 16).ideal, 0u);
}

}  // namespace
