// The matrix products of bench/gemm: every kernel, type and epilogue against float64, on the
// emulator (fast and checked: races, memory that nobody wrote) and on a GPU.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "bench/gemm/check.h"
#include "bench/gemm/gemm.h"
#include "common/harness/device.h"
#include "common/harness/inputs.h"
#include "common/harness/oracle.h"
#include "common/launch/problem.h"
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
  EXPECT_NE(wrong.reason.find("C[4][210]"), std::string::npos) << wrong.reason;
  c[1234] = 0xffff;
  EXPECT_NE(compare_product(size, which.dtype, expected, c).reason.find("not a finite number"),
            std::string::npos);
}

TEST(Run, RefusesSizesThatNoTileFits) {
  const Product product{256,     192,     64,      Dtype::kBf16, Epilogue::kNone,
                        nullptr, nullptr, nullptr, nullptr};
  for (const Kernel& kernel : kernels()) {
    if (product.n % kernel.tile_n == 0) continue;
    try {
      run(kernel, product);
      ADD_FAILURE() << kernel.name;
    } catch (const Unsupported& reason) {
      EXPECT_EQ(reason.what(), std::string(kernel.name) + " takes n that is a multiple of " +
                                   std::to_string(kernel.tile_n) + ", not 192");
    }
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
