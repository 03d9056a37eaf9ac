// Shared by the tests: problems and their names, one run of a kernel, programs run as a user would.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iterator>
#include <sstream>
#include <stdexcept>
// What nearly every test needs.
// IWYU pragma: begin_exports
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/harness/device.h"
#include "common/harness/inputs.h"
#include "common/harness/oracle.h"
#include "common/harness/runner.h"
#include "common/launch/problem.h"
#include "common/launch/registry.h"
// IWYU pragma: end_exports

// The text, which may cost a launch, is evaluated once.
#define EXPECT_CONTAINS(text, part)                                                              \
  do {                                                                                           \
    const std::string text_ = (text);                                                            \
    EXPECT_NE(text_.find(part), std::string::npos) << "'" << (part) << "' is not in: " << text_; \
  } while (false)

namespace fa::test {

// What the error says that `body` throws.
template <typename Error, typename Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// FNV-1a: short, and the same everywhere.
inline uint64_t hash(const void* data, size_t bytes) {
  uint64_t result = 0xcbf29ce484222325u;
  for (size_t i = 0; i < bytes; i++) {
    result = (result ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3u;
  }
  return result;
}

inline uint64_t hash(const std::vector<uint16_t>& bits) {
  return hash(bits.data(), bits.size() * 2);
}

inline Problem problem(int batch, int heads, int seq_len, int head_dim, Dtype dtype) {
  Problem result;
  result.batch = batch;
  result.heads = heads;
  result.seq_len = seq_len;
  result.head_dim = head_dim;
  result.dtype = dtype;
  return result;
}

// "bf16_d128_N256_B1H2"
inline std::string describe(const Problem& p) {
  return std::string(name_of(p.dtype)) + "_d" + std::to_string(p.head_dim) + "_N" +
         std::to_string(p.seq_len) + "_B" + std::to_string(p.batch) + "H" + std::to_string(p.heads);
}

// The problem, in FP8 if the kernel takes no other.
inline Problem for_kernel(const Kernel& kernel, Problem p) {
  const bool may_be = p.fp8 == Fp8::kNone && p.packed.empty() && p.page_size == 0;
  if (kernel.takes.fp8 && may_be) p.fp8 = Fp8::kTile;
  return p;
}

// One checked launch (on a GPU a few, since they are timed too).
inline Record run_once(const Kernel& kernel, const Problem& problem, const std::string& inputs,
                       uint64_t seed) {
  Protocol protocol;
  protocol.warmup = 0;
  protocol.iterations = 3;
  protocol.inputs = inputs;
  protocol.seed = seed;
  const Problem p = for_kernel(kernel, problem);
  return Runner(p, make_inputs(p, inputs, seed), protocol).run(kernel);
}

// The same output and counters again, with one thread of the operating system and with five.
// Returns why the kernel is skipped here, or "".
inline std::string expect_same_bits(const Kernel& kernel, const Problem& p) {
  const Record first = run_once(kernel, p, "normal", 7);
  if (first.status == Status::kSkipped) return first.reason;
  for (const int threads : {1, 5}) {
    BackendOptions options;
    options.threads = threads;
    set_backend_options(options);
    const Record again = run_once(kernel, p, "normal", 7);
    const std::string what = kernel.name + ", " + describe(p) + ", " + std::to_string(threads);
    EXPECT_EQ(again.output, first.output) << what << " threads";
    EXPECT_EQ(again.counts.counters, first.counts.counters) << what << " threads";
  }
  set_backend_options({});
  return "";
}

// The reference in the output's type: the best that a kernel can do.
inline std::vector<uint16_t> rounded(const Reference& reference, Dtype dtype) {
  std::vector<uint16_t> result;
  for (const double value : reference.values) result.push_back(from_float(float(value), dtype));
  return result;
}

// A test's name has letters, digits and _ alone: "16_max_free_next", "beyond_plain".
inline std::string test_name(std::string name) {
  std::replace(name.begin(), name.end(), '.', '_');
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}
inline const auto kernel_name = [](const auto& test) { return test_name(test.param.name); };

inline bool is_beyond(const Kernel& kernel) { return kernel.name.starts_with("beyond/"); }

// The kernels of the program attention: not those of kernels/next and kernels/beyond.
inline std::vector<Kernel> numbered_kernels() {
  std::vector<Kernel> list = kernels();
  std::erase_if(list, [](const Kernel& kernel) { return is_next(kernel) || is_beyond(kernel); });
  return list;
}

// A folder of the test's own, gone with it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "fa_test_XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return *this / name;
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

 private:
  std::filesystem::path path_;
};

// No line that a program prints is too long for a page.
inline void expect_100_columns(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }),
              100)
        << line;
  }
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct ProgramResult {
  int exit_code;
  std::string out, err;
};

// Runs a shell command in which $BIN is the folder of this build's programs.
inline ProgramResult shell(const std::string& command) {
  const TemporaryFolder folder;
  const std::string bin = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  const std::string line = "export BIN='" + bin + "'; { " + command + "\n} >" + (folder / "out") +
                           " 2>" + (folder / "err") + " </dev/null";
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder / "out"),
          read_file(folder / "err")};
}

}  // namespace fa::test
