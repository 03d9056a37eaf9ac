// The kernels in the checked build: they count the same every time, and what a chapter says of
// them; and there are no races in them.
#include <map>
#include <utility>

#include "common/emulator/core/launch.h"
#include "common/harness/results.h"
#include "common/launch/validation.h"
#include "tests/support.h"

namespace fa::test {
namespace {

using Counts = std::map<std::string, uint64_t>;

// ---- counters -----------------------------------------------------------------------------------
class CheckedKernels : public testing::TestWithParam<Kernel> {};

TEST_P(CheckedKernels, CountTheSameEveryTime) {
  for (const Problem& p :
       {problem(1, 2, 128, 64, Dtype::kFp16), problem(1, 1, 128, 128, Dtype::kBf16)}) {
    Record first;
    for (const int threads : {1, 5}) {
      emu::options().os_threads = threads;
      const Record record = run_once(GetParam(), p, "normal", 1);
      EXPECT_EQ(record.status, Status::kPassed) << record.reason;
      if (threads == 1) first = record;
      EXPECT_EQ(record.counts.counters, first.counts.counters) << threads << " threads";
      EXPECT_FALSE(record.counts.lines.empty());
      EXPECT_EQ(to_json(record)["statements"], to_json(first)["statements"])
          << threads << " threads";
      EXPECT_EQ(record.output, first.output) << threads << " threads";
    }
    emu::options().os_threads = 0;
    Counts counts(first.counts.counters.begin(), first.counts.counters.end());
    EXPECT_GE(counts["global_bytes"], 4 * p.tensor_bytes()) << "Q, K and V are read, O is written";
    EXPECT_GE(counts["shared_wavefronts"], counts["shared_wavefronts_ideal"]);
  }
}
INSTANTIATE_TEST_SUITE_P(Kernels, CheckedKernels, testing::ValuesIn(kernels()), kernel_name);

// Kernels that keep S on the chip: Q once, O once, and K and V once a tile of query rows.
TEST(CheckedCounters, GlobalBytesOfTheTiledKernels) {
  const Problem p = problem(1, 2, 256, 128, Dtype::kBf16);
  for (const auto& [name, rows] : std::map<std::string, uint64_t>{{"02", 32}, {"03", 64}}) {
    const Record record = run_once(find_kernel(name), p, "normal", 1);
    Counts counts(record.counts.counters.begin(), record.counts.counters.end());
    EXPECT_EQ(counts["global_bytes"], p.tensor_bytes() * (2 + 2 * 256 / rows)) << name;
  }
}

// Counts by kind, of all lines of a kernel.
std::map<std::string, Counts> by_kind(const Record& record) {
  std::map<std::string, Counts> result;
  for (const LineCounts& line : record.counts.lines) {
    for (const auto& [name, value] : line.counts) result[line.kind][name] += value;
  }
  return result;
}

// What a registration declares of copies is what the kernel does.
TEST_P(CheckedKernels, CopyAsynchronouslyIfTheyAreSaidTo) {
  const Record record = run_once(GetParam(), problem(1, 1, 128, 64, Dtype::kBf16), "normal", 1);
  const std::map<std::string, Counts> kinds = by_kind(record);
  EXPECT_EQ(kinds.count("cp.async") + kinds.count("tma load") > 0,
            GetParam().traits >= Traits::kAsync);
}

// What padding (07) and the swizzle (08) promise: not one conflict. But every other padded row is
// moved by half a sector, so that two of 16 sectors of a request lie across lines of shared memory.
TEST(CheckedLines, PaddedAndSwizzledTilesAreFreeOfConflicts) {
  for (const int head_dim : {64, 128}) {
    const Problem p = problem(1, 1, 256, head_dim, Dtype::kFp16);
    for (const auto& [name, sectors] : std::map<std::string, uint64_t>{{"07", 18}, {"08", 16}}) {
      const Record record = run_once(find_kernel(name), p, "normal", 1);
      std::map<std::string, Counts> kinds = by_kind(record);
      EXPECT_GT(kinds["ldmatrix"]["wavefronts"], 0u);
      EXPECT_EQ(kinds["ldmatrix"]["wavefronts"], kinds["ldmatrix"]["wavefronts_ideal"]);
      EXPECT_EQ(kinds["cp.async"]["wavefronts"], kinds["cp.async"]["wavefronts_ideal"]);
      EXPECT_EQ(kinds["cp.async"]["sectors"], sectors * kinds["cp.async"]["requests"]);
      Counts totals(record.counts.counters.begin(), record.counts.counters.end());
      EXPECT_EQ(totals["shared_wavefronts"],
                kinds["ldmatrix"]["wavefronts"] + kinds["cp.async"]["wavefronts"]);
      EXPECT_EQ(totals["matrix_flops"], uint64_t(p.flops()));
      EXPECT_EQ(kinds["mma.m16n8k16"]["flops"], totals["matrix_flops"]);
    }
  }
}

// ---- races --------------------------------------------------------------------------------------
void random_order(uint64_t seed) {
  emu::options().schedule = emu::Schedule::kRandom;
  emu::options().completion = emu::Completion::kRandom;
  emu::options().seed = seed;
}

class WithOptions : public testing::Test {
 protected:
  void TearDown() override { emu::options() = {}; }
};

// Two that every kernel takes, and those of the others that this one does.
std::vector<Problem> problems_of(const Kernel& kernel) {
  std::vector<Problem> result = {problem(1, 1, 256, 64, Dtype::kFp16),
                                 problem(1, 2, 128, 128, Dtype::kBf16)};
  if (kernel.traits == Traits::kSlow) {
    result[0].seq_len = 128;
    result[1].heads = 1;
  } else if (kernel.traits >= Traits::kPersistent) {
    // The emulator's three SMs have several query tiles each: one of them goes beyond its head, or
    // there are five, so that each buffer of Q is used a third time.
    result = {problem(1, 2, 512, 64, Dtype::kFp16), problem(1, 15, 128, 128, Dtype::kBf16)};
  }
  Problem odd = problem(1, 2, 61, 64, Dtype::kFp16), many = problem(1, 4, 3, 128, Dtype::kBf16),
          rows = problem(1, 3, 17, 128, Dtype::kFp16), packed = problem(1, 2, 1, 64, Dtype::kBf16),
          pages = problem(1, 4, 3, 64, Dtype::kBf16), window = problem(1, 3, 270, 64, Dtype::kBf16),
          changed = problem(1, 4, 3, 64, Dtype::kFp16);
  odd.kv_len = 131;
  many.kv_len = 1549;  // split_keys has three pieces, and in each of them its ring comes round
  rows.kv_len = 409;   // and here its ring for tiles of 64 rows does
  packed.pack({{0, 9}, {33, 64}, {7, 0}, {0, 0}, {131, 3}});
  pages.page(16, {0, 61, 1549});
  odd.mask = many.mask = packed.mask = pages.mask = Mask::kCausal;
  odd.kv_heads = many.kv_heads = packed.kv_heads = 1;
  pages.kv_heads = 2;
  window.kv_len = 600;
  window.window = {140, 20};
  window.sinks = changed.sinks = true;
  changed.kv_len = 1549;
  changed.window = {900, -1};
  changed.softcap = 1;
  changed.alibi = Alibi::kHead;
  for (const Problem& p : {odd, many, rows, packed, pages, window, changed}) {
    if (refusal(kernel, p).empty()) result.push_back(p);
  }
  for (const int head_dim : kernel.head_dims) {
    if (head_dim == 64 || head_dim == 128) continue;
    // Three or more query tiles for each of three SMs; and pieces in which rings come round.
    Problem tiles = problem(1, 5, 300, head_dim, Dtype::kBf16),
            pieces = problem(1, 1, 3, head_dim, Dtype::kBf16);
    tiles.mask = pieces.mask = Mask::kCausal;
    pieces.kv_len = 3001;
    for (const Problem& p : {tiles, pieces}) {
      if (refusal(kernel, p).empty()) result.push_back(p);
    }
  }
  return result;
}

// With every kind of inputs; whenever copies happen, in whatever order lanes run. Problems take
// turns, and seeds from 1 on reach all but the first.
void expect_clean(const Kernel& kernel, uint64_t seeds) {
  const std::vector<Problem> problems = problems_of(kernel);
  std::map<std::string, std::vector<uint16_t>> outputs;  // of the fixed order
  const auto& inputs = input_names();
  for (uint64_t seed = 1; seed <= seeds; seed++) {
    const Problem& p = problems[seed % problems.size()];
    const std::string& name = inputs[seed % inputs.size()];
    const std::string what = describe(p) + describe_rest(p) + " " + name;
    emu::options() = {};
    if (seed % 3 == 1) emu::options().completion = emu::Completion::kEarly;
    std::vector<uint16_t>& expected = outputs[what];
    if (expected.empty()) {
      const Record fixed = run_once(kernel, p, name, 1);
      ASSERT_EQ(fixed.status, Status::kPassed) << what << ": " << fixed.reason;
      expected = fixed.output;
    }
    random_order(seed);
    const Record random = run_once(kernel, p, name, 1);
    ASSERT_EQ(random.status, Status::kPassed) << what << " seed " << seed << ": " << random.reason;
    EXPECT_EQ(random.output, expected) << what << " seed " << seed;
  }
}

class EveryKernel : public WithOptions, public testing::WithParamInterface<Kernel> {};
TEST_P(EveryKernel, HasNoRaces) {
  expect_clean(GetParam(), std::max<uint64_t>(5, problems_of(GetParam()).size() - 1));
}
INSTANTIATE_TEST_SUITE_P(Kernels, EveryKernel, testing::ValuesIn(kernels()), kernel_name);

class LongEveryKernel : public WithOptions, public testing::WithParamInterface<Kernel> {};
TEST_P(LongEveryKernel, HasNoRacesAtTwoHundredSeeds) { expect_clean(GetParam(), 200); }
INSTANTIATE_TEST_SUITE_P(Kernels, LongEveryKernel, testing::ValuesIn(kernels()), kernel_name);

// Three SMs need one round of merging. 20 pieces need two, and so do two tiles of 66 pieces, whose
// last group is not full.
class SplitKeys : public EveryKernel {};
TEST_P(SplitKeys, HasNoRacesInTwoRounds) {
  for (const auto& [sms, heads] : {std::pair{20, 1}, {132, 2}}) {
    Problem p = problem(1, heads, 3, 64, Dtype::kBf16);
    p.kv_len = 256 * sms / heads - 100;
    for (uint64_t seed = 1; seed <= 3; seed++) {
      random_order(seed);
      emu::options().sms = sms;
      const Record record = run_once(GetParam(), p, "normal", 1);
      EXPECT_EQ(record.status, Status::kPassed) << "seed " << seed << ": " << record.reason;
    }
  }
}
// Few SMs, so that pieces and clusters are of other sizes; rows that
// fill no tile, and keys that fill no page.
TEST_P(SplitKeys, HasNoRacesOnFewSms) {
  std::vector<Problem> problems;
  for (const bool causal : {false, true}) {
    Problem p = problem(2, 10, 45, causal ? 128 : 64, causal ? Dtype::kBf16 : Dtype::kFp16);
    p.kv_len = 400;
    p.kv_heads = 2;
    p.mask = causal ? Mask::kCausal : Mask::kNone;
    problems.push_back(p);
    p.page(causal ? 16 : 256, {300, 0, 17});
    problems.push_back(p);
  }
  if (GetParam().takes.packed) {
    problems.push_back(problems.front());
    problems.back().pack({{300, 300}, {0, 5}, {17, 200}, {3, 0}});
  }
  for (const Problem& p : problems) {
    for (const auto& [sms, seed] : {std::pair{1, 1}, {3, 2}, {7, 3}}) {
      random_order(uint64_t(seed));
      emu::options().sms = sms;
      const Record record = run_once(GetParam(), p, "normal", 1);
      EXPECT_EQ(record.status, Status::kPassed)
          << describe(p) << " on " << sms << " SMs: " << record.reason;
    }
  }
}
std::vector<Kernel> split_keys() {
  if (!kernels().front().name.starts_with("beyond/")) return {};
  return {find_kernel("split_keys"), find_kernel("share_tiles")};
}
INSTANTIATE_TEST_SUITE_P(Kernels, SplitKeys, testing::ValuesIn(split_keys()), kernel_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SplitKeys);  // the program of the numbered kernels

// Rows of 192 bytes need another swizzle than rows of 128 bytes or a multiple.
class RowsOfSplitKeys : public testing::TestWithParam<int> {};
TEST_P(RowsOfSplitKeys, AreFreeOfConflicts) {
  for (const int q_len : {16, 40}) {  // tiles of 16 and of 64 query rows
    Problem p = problem(1, 2, q_len, GetParam(), Dtype::kBf16);
    p.kv_len = 700;
    std::map<std::string, Counts> kinds =
        by_kind(run_once(find_kernel("split_keys"), p, "normal", 1));
    for (const char* const kind : {"ldmatrix", "cp.async"}) {
      EXPECT_GT(kinds[kind]["wavefronts"], 0u) << kind;
      EXPECT_EQ(kinds[kind]["wavefronts"], kinds[kind]["wavefronts_ideal"]) << kind;
    }
  }
}
std::vector<int> head_dims_of_split_keys() {
  return split_keys().empty() ? std::vector<int>{} : split_keys().front().head_dims;
}
INSTANTIATE_TEST_SUITE_P(Kernels, RowsOfSplitKeys, testing::ValuesIn(head_dims_of_split_keys()),
                         testing::PrintToStringParamName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RowsOfSplitKeys);

}  // namespace
}  // namespace fa::test
