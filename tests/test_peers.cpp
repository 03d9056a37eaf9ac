// What bench/peers does on the CPU: finding libraries, checking copies.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "bench/checks.h"
#include "bench/peers/shared_library.h"
#include "common/launch/validation.h"
#include "tests/support.h"

namespace fa::test {
namespace {

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
  return error_of<Unsupported>([&] { open_library(file); });
}

TEST(Libraries, AreFoundInPythonsPackages) {
  const Packages packages(FA_PROBE_PACKAGES);
  void* const library = open_library("libfa_probe.so.1");
  EXPECT_EQ(find_function<int(int)>(library, "fa_probe_twice")(21), 42);
  EXPECT_EQ(open_library("libfa_probe.so.1"), library);
  EXPECT_EQ(error_of<Unsupported>([&] { find_symbol(library, "fa_probe_thrice"); }),
            "the library found has no function fa_probe_thrice");
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
