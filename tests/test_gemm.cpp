// The matrix products of bench/gemm: every kernel, type and epilogue against float64, on the
// emulator (fast and checked: races, memory that nobody wrote) and on a GPU.
#include <cstring>

#include "bench/checks.h"
#include "tests/support.h"
#ifndef FA_WITH_CUDA
#include "common/emulator/core/launch.h"
#endif

namespace fa::gemm {
namespace {

struct Case {
  size_t kernel;
  Dtype dtype;
  Epilogue epilogue;
};

// C, with poison where nothing was written.
std::vector<uint16_t> run_product(const Case& which, const Size& size, const Operands& operands) {
  Buffer a("A", operands.a.size() * 2), b("B", operands.b.size() * 2);
  Buffer bias("bias", operands.bias.size() * 2), c("C", size_t(size.m) * size_t(size.n) * 2);
  a.upload(operands.a.data());
  b.upload(operands.b.data());
  bias.upload(operands.bias.data());
  c.poison();
  run(kernels()[which.kernel], {size.m, size.n, size.k, which.dtype, which.epilogue, a.data(),
                                b.data(), bias.data(), c.data()});
  synchronize();
  std::vector<uint16_t> result(c.size() / 2);
  c.download(result.data());
  return result;
}

class Gemm : public testing::TestWithParam<Case> {
 protected:
  void expect_right(const Size& size) {
    const auto [kernel, dtype, epilogue] = GetParam();
    const Operands operands = make_operands(size, dtype, 7);
    std::vector<uint16_t> c;
    try {
      c = run_product(GetParam(), size, operands);
    } catch (const Unsupported& reason) {
      GTEST_SKIP() << reason.what();
    }
    const Comparison comparison =
        compare_product(size, dtype, make_expected(size, dtype, epilogue, operands), c);
    EXPECT_TRUE(comparison.passed) << comparison.reason;
    EXPECT_GT(comparison.bound_ratio, 0.1) << "the bound holds anything";
  }
};

// More tiles than CTAs run at the same time on the emulator, and as many slices of the sum as no
// ring has stages.
TEST_P(Gemm, ManyTiles) { expect_right({512, 768, 320}); }
// Fewer slices than stages.
TEST_P(Gemm, OneSlice) { expect_right({256, 256, 64}); }

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  return std::string(kernels()[info.param.kernel].name) + "_" + name_of(info.param.dtype) + "_" +
         name_of(info.param.epilogue);
}
INSTANTIATE_TEST_SUITE_P(All, Gemm, testing::ValuesIn([] {
                           std::vector<Case> cases;
                           for (size_t kernel = 0; kernel < kernels().size(); kernel++) {
                             for (const Dtype dtype : {Dtype::kFp16, Dtype::kBf16}) {
                               cases.push_back({kernel, dtype, Epilogue::kNone});
                               cases.push_back({kernel, dtype, Epilogue::kBiasGelu});
                             }
                           }
                           return cases;
                         }()),
                         name_of_case);

TEST(Check, FindsOneWrongElement) {
  const Size size{256, 256, 64};
  const Case which{0, Dtype::kBf16, Epilogue::kBiasGelu};
  const Operands operands = make_operands(size, which.dtype, 7);
  const Expected expected = make_expected(size, which.dtype, which.epilogue, operands);
  std::vector<uint16_t> c(256 * 256);
  for (size_t i = 0; i < c.size(); i++) c[i] = from_float(float(expected.values[i]), which.dtype);
  EXPECT_TRUE(compare_product(size, which.dtype, expected, c).passed);
  c[1234] = uint16_t(c[1234] + 3);  // three units in the last place
  const Comparison wrong = compare_product(size, which.dtype, expected, c);
  EXPECT_FALSE(wrong.passed);
  EXPECT_CONTAINS(wrong.reason, "C[4][210]");
  c[1234] = 0xffff;
  EXPECT_CONTAINS(compare_product(size, which.dtype, expected, c).reason, "not a finite number");
}

// In a large product, such as the ceiling's, not all rows are looked at, but some of every block.
TEST(Check, FindsAWrongBlockOfALargeProduct) {
  const Size size{1024, 1024, 64};
  const Operands operands = make_operands(size, Dtype::kBf16, 7);
  const Expected expected = make_expected(size, Dtype::kBf16, Epilogue::kNone, operands);
  ASSERT_EQ(expected.rows.size(), 8u);
  std::vector<uint16_t> right(1024 * 1024);
  for (size_t row = 0; row < 8; row++) {
    for (size_t column = 0; column < 1024; column++) {
      right[expected.rows[row] * 1024 + column] =
          from_float(float(expected.values[row * 1024 + column]), Dtype::kBf16);
    }
  }
  EXPECT_TRUE(compare_product(size, Dtype::kBf16, expected, right).passed);
  for (size_t block = 0; block < 64; block++) {  // left at its neighbour's values
    std::vector<uint16_t> c = right;
    for (size_t i = 0; i < 128 * 128; i++) {
      const size_t at = (block / 8 * 128 + i / 128) * 1024 + block % 8 * 128 + i % 128;
      c[at] = right[at ^ 128];
    }
    EXPECT_FALSE(compare_product(size, Dtype::kBf16, expected, c).passed) << block;
  }
}

TEST(Run, RefusesSizesThatNoTileFits) {
  const Product product{256,     192,     64,      Dtype::kBf16, Epilogue::kNone,
                        nullptr, nullptr, nullptr, nullptr};
  for (const Kernel& kernel : kernels()) {
    if (product.n % kernel.tile_n == 0) continue;
    EXPECT_EQ(test::error_of<Unsupported>([&] { run(kernel, product); }),
              std::string(kernel.name) + " takes n that is a multiple of " +
                  std::to_string(kernel.tile_n) + ", not 192");
  }
}

#ifndef FA_WITH_CUDA
// Copies and products that come early, or at any moment, and lanes in another order: the same
// numbers.
TEST(Order, DoesNotMatter) {
  const Size size{512, 512, 192};
  const Operands operands = make_operands(size, Dtype::kBf16, 3);
  for (size_t kernel = 0; kernel + 1 < kernels().size(); kernel++) {  // the last is a library
    const Case which{kernel, Dtype::kBf16, Epilogue::kBiasGelu};
    const auto late = run_product(which, size, operands);
    emu::options().completion = emu::Completion::kEarly;
    EXPECT_EQ(run_product(which, size, operands), late) << kernels()[kernel].name << ", early";
    emu::options().completion = emu::Completion::kRandom;
    emu::options().schedule = emu::Schedule::kRandom;
    for (uint64_t seed = 1; seed <= 3; seed++) {
      emu::options().seed = seed;
      EXPECT_EQ(run_product(which, size, operands), late)
          << kernels()[kernel].name << ", seed " << seed;
    }
    emu::options() = {};
  }
}
#endif

}  // namespace
}  // namespace fa::gemm
