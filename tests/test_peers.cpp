// What bench/peers does on the CPU: finding libraries, checking products and copies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "bench/peers/checks.h"
#include "bench/peers/shared_library.h"
#include "common/harness/inputs.h"
#include "common/harness/oracle.h"
#include "common/launch/problem.h"
#include "tests/support.h"

namespace fa::test {
namespace {

// ---- products -----------------------------------------------------------------------------------
constexpr int kSize = 256;

std::vector<uint16_t> product(const Factors& factors, Dtype dtype, int summands = kSize) {
  std::vector<uint16_t> c(kSize * kSize);
  for (int i = 0; i < kSize; i++) {
    for (int j = 0; j < kSize; j++) {
      float sum = 0;
      for (int k = 0; k < summands; k++) {
        sum += to_float(factors.a[size_t(i * kSize + k)], dtype) *
               to_float(factors.b[size_t(k * kSize + j)], dtype);
      }
      c[size_t(i * kSize + j)] = from_float(sum, dtype);
    }
  }
  return c;
}

TEST(Products, RightOnesPass) {
  for (const Dtype dtype : {Dtype::kFp16, Dtype::kBf16}) {
    const Factors factors = make_factors(kSize, dtype, 1);
    ASSERT_EQ(factors.a.size(), size_t(kSize * kSize));
    EXPECT_NE(factors.a, factors.b);
    const Comparison result = compare_product(kSize, dtype, factors, product(factors, dtype));
    EXPECT_TRUE(result.passed) << result.reason;
    EXPECT_GT(result.rel, 0);
    EXPECT_LE(result.rel, result.tolerance);
    EXPECT_LE(result.bound_ratio, 1);
    EXPECT_EQ(result.checked_rows, 2u);
  }
}

TEST(Products, WrongOnesFail) {
  const Dtype dtype = Dtype::kBf16;
  const Factors factors = make_factors(kSize, dtype, 1);
  const std::vector<uint16_t> right = product(factors, dtype);
  auto reason = [&](const std::vector<uint16_t>& c) {
    const Comparison result = compare_product(kSize, dtype, factors, c);
    EXPECT_EQ(result.passed, result.reason.empty());
    return result.reason;
  };
  EXPECT_NE(reason(product(factors, dtype, kSize - 16)), "") << "some summands are left out";

  std::vector<uint16_t> transposed = right;
  for (int i = 0; i < kSize; i++) {
    for (int j = 0; j < i; j++) {
      std::swap(transposed[size_t(i * kSize + j)], transposed[size_t(j * kSize + i)]);
    }
  }
  EXPECT_NE(reason(transposed), "");

  for (int block = 0; block < 4;
       block++) {  // each of the 128 x 128 blocks, left at another's values
    std::vector<uint16_t> c = right;
    for (int i = 0; i < 128; i++) {
      for (int j = 0; j < 128; j++) {
        const int row = block / 2 * 128 + i, column = block % 2 * 128 + j;
        c[size_t(row * kSize + column)] =
            right[size_t((row + 128) % kSize * kSize + (column + 128) % kSize)];
      }
    }
    EXPECT_NE(reason(c), "") << block;
  }

  for (const size_t at : {size_t(0), size_t(kSize * 77 + 3), right.size() - 1}) {
    std::vector<uint16_t> c = right;
    c[at] = 0xffff;
    EXPECT_NE(reason(c).find("not a finite number"), std::string::npos) << at;
    EXPECT_TRUE(std::isnan(compare_product(kSize, dtype, factors, c).rel));
  }
}

// ---- copies -------------------------------------------------------------------------------------
TEST(Copies, AreComparedWordByWord) {
  const std::vector<uint64_t> words = make_words(200001);
  const Comparison same = compare_words(words);
  EXPECT_TRUE(same.passed);
  EXPECT_EQ(same.rel, 0);
  EXPECT_EQ(same.checked_rows, words.size());
  std::vector<uint64_t> sorted = words;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end());
  for (const size_t at : {size_t(0), size_t(65536), words.size() - 1}) {
    std::vector<uint64_t> copy = words;
    copy[at] ^= 1;
    const Comparison result = compare_words(copy);
    EXPECT_FALSE(result.passed);
    EXPECT_GT(result.rel, result.tolerance);
    EXPECT_EQ(result.reason, "1 of 200001 words of the copy are not those of the original");
  }
  std::vector<uint64_t> shifted = words;
  std::rotate(shifted.begin(), shifted.begin() + 1, shifted.end());
  EXPECT_FALSE(compare_words(shifted).passed);
}

// ---- libraries ----------------------------------------------------------------------------------
// A Python of the test's own, whose packages lie in the folder given: as python3 on the PATH, or as
// what the variable PYTHON names.
class Packages {
 public:
  explicit Packages(const std::string& packages, bool on_path = true) : path_(getenv("PATH")) {
    const std::string python = folder_ / (on_path ? "python3" : "snake");
    std::ofstream(python) << "#!/bin/sh\nprintf '\\n/nowhere\\n" << packages << "\\n'\n";
    std::filesystem::permissions(python, std::filesystem::perms::owner_all);
    if (const char* const given = getenv("PYTHON")) python_ = given;
    unsetenv("PYTHON");
    if (on_path) setenv("PATH", ((folder_ / "") + ":" + path_).c_str(), 1);
    if (!on_path) setenv("PYTHON", python.c_str(), 1);
  }
  ~Packages() {
    setenv("PATH", path_.c_str(), 1);
    python_.empty() ? unsetenv("PYTHON") : setenv("PYTHON", python_.c_str(), 1);
  }

 private:
  std::string path_, python_;
  TemporaryFolder folder_;
};

std::string refusal(const std::string& file) {
  try {
    open_library(file);
  } catch (const Unsupported& error) {
    return error.what();
  }
  return "opened";
}

TEST(Libraries, AreFoundInPythonsPackages) {
  const Packages packages(FA_PROBE_PACKAGES);
  void* const library = open_library("libfa_probe.so.1");
  EXPECT_EQ(find_function<int(int)>(library, "fa_probe_twice")(21), 42);
  EXPECT_EQ(open_library("libfa_probe.so.1"), library);
  try {
    find_symbol(library, "fa_probe_thrice");
    FAIL();
  } catch (const Unsupported& error) {
    EXPECT_STREQ(error.what(), "the library found has no function fa_probe_thrice");
  }
}

TEST(Libraries, WhatIsMissingIsNamed) {
  const TemporaryFolder folder;
  const Packages packages(folder / "");
  const std::string expected =
      "libfa_nowhere.so.9 was not found by the loader or in Python's packages (LD_LIBRARY_PATH, "
      "nvidia/*/lib)";
  EXPECT_EQ(refusal("libfa_nowhere.so.9"), expected);
  EXPECT_EQ(refusal("libfa_nowhere.so.9"), expected) << "and again";
}

TEST(Libraries, WhatDoesNotLoadSaysSoWithoutFolders) {
  const TemporaryFolder folder;
  const Packages packages(folder / "", /*on_path=*/false);
  std::filesystem::create_directories(folder / "nvidia/broken/lib");
  std::ofstream(folder / "nvidia/broken/lib/libfa_broken.so.1") << "no library";
  const std::string reason = refusal("libfa_broken.so.1");
  EXPECT_TRUE(reason.starts_with("libfa_broken.so.1 does not load: libfa_broken.so.1: ")) << reason;
  EXPECT_EQ(reason.find('/'), std::string::npos) << reason;
}

}  // namespace
}  // namespace fa::test
