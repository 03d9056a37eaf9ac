// Every kernel that exists, on every kind of problem: its output against the float64 reference, and
// the same bits however often and with however many threads it runs. By default the longer a
// sequence, the fewer its heads, above all in the checked build, which is up to ten times slower,
// and for 01 and 02, which compute for longest. All pairs of everything have the label all,
// everything with everything the label long; these are the same in both builds.
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "common/launch/launch.h"
#include "tests/support.h"
#ifdef FA_WITH_CUDA
#include <cuda_runtime_api.h>
#else
#include "common/emulator/core/launch.h"
#endif

namespace fa::test {
namespace {

// ---- cases that cover all pairs ----------------------------------------------------------------
// Whatever two factors have, some case has together. Most bugs need one or two particular values to
// show, and the number of such cases grows with the two largest factors only.

// `levels[f]` is the number of values of factor f. Each row of the result has one value a factor.
// Greedy: a row starts from a pair that is not covered yet and takes, factor by factor, the value
// that covers most new pairs. The same rows everywhere.
std::vector<std::vector<int>> pairwise(const std::vector<int>& levels) {
  using Pair =
      std::tuple<size_t, int, size_t, int>;  // factor and value, twice; the first factor is lower
  std::set<Pair> open;
  for (size_t f = 0; f < levels.size(); f++) {
    for (size_t g = f + 1; g < levels.size(); g++) {
      for (int a = 0; a < levels[f]; a++) {
        for (int b = 0; b < levels[g]; b++) open.insert({f, a, g, b});
      }
    }
  }
  auto pair_of = [](size_t f, int a, size_t g, int b) {
    return f < g ? Pair{f, a, g, b} : Pair{g, b, f, a};
  };
  std::vector<std::vector<int>> rows;
  while (!open.empty()) {
    std::vector<int> row(levels.size(), -1);
    const auto [f, a, g, b] = *open.begin();
    row[f] = a;
    row[g] = b;
    for (size_t h = 0; h < levels.size(); h++) {
      if (row[h] >= 0) continue;
      int best = -1, best_gain = -1;
      for (int turn = 0; turn < levels[h]; turn++) {
        const int value =
            (turn + int(rows.size())) % levels[h];  // ties: another value in every row
        int gain = 0;
        for (size_t other = 0; other < levels.size(); other++) {
          if (other != h && row[other] >= 0)
            gain += int(open.count(pair_of(h, value, other, row[other])));
        }
        if (gain > best_gain) {
          best = value;
          best_gain = gain;
        }
      }
      row[h] = best;
    }
    for (size_t h = 0; h < levels.size(); h++) {
      for (size_t other = h + 1; other < levels.size(); other++)
        open.erase({h, row[h], other, row[other]});
    }
    rows.push_back(row);
  }
  return rows;
}

// ---- what is varied -----------------------------------------------------------------------------
const std::vector<Dtype> kDtypes = {Dtype::kFp16, Dtype::kBf16};
const std::vector<int> kHeadDims = {64, 128};
const std::vector<int> kSeqLens = {128, 256, 384, 640};
const std::vector<std::pair<int, int>> kBatchesAndHeads = {{1, 1}, {1, 2}, {2, 1}, {2, 3}};
const std::vector<uint64_t> kSeeds = {1, 2, 3};

// The hot inputs are left to cases of their own.
size_t ordinary_inputs() { return input_names().size() - hot_input_names().size(); }

std::vector<int> levels() {
  return {int(kDtypes.size()),          int(kHeadDims.size()),  int(kSeqLens.size()),
          int(kBatchesAndHeads.size()), int(ordinary_inputs()), int(kSeeds.size())};
}

// What the default tests have instead of seq_len and, apart from it, batch and heads: 640 tokens
// with six heads alone would be half the work. Shapes and seeds take turns.
struct Shape {
  int batch, heads, seq_len;
};
const std::vector<Shape> kShapes = {{2, 3, 128}, {2, 1, 256}, {1, 2, 384}, {1, 1, 640}};
const std::vector<Shape> kCheckedShapes = {{2, 3, 128}, {1, 2, 256}, {1, 1, 384}};
const std::vector<Shape> kShapesOfSlowKernels = {
    {2, 1, 128}, {1, 1, 256}, {1, 2, 128}, {1, 1, 384}};
// And of the greatest length, where rings of stages go round most often, the checked build has one
// head in each type and in each head_dim.
const std::vector<std::pair<Dtype, int>> kCheckedLongest = {{Dtype::kFp16, 64},
                                                            {Dtype::kBf16, 128}};

const std::vector<Shape>& shapes(const Kernel& kernel, bool checked) {
  return kernel.traits == Traits::kSlow ? kShapesOfSlowKernels : checked ? kCheckedShapes : kShapes;
}

std::vector<int> few_levels() {
  return {int(kDtypes.size()), int(kHeadDims.size()), int(ordinary_inputs())};
}

bool is_checked() {
#ifdef FA_WITH_CUDA
  return false;
#else
  return emu::is_checked();
#endif
}

struct Case {
  const Kernel* kernel;
  Problem problem;
  std::string inputs;
  uint64_t seed;
  std::string name() const {
    return kernel->name + "_" + describe(problem) + "_" + inputs + "_seed" + std::to_string(seed);
  }
};

// `row` has one index for each of levels().
Case make_case(const Kernel& kernel, const std::vector<int>& row) {
  const auto [batch, heads] = kBatchesAndHeads[size_t(row[3])];
  return {&kernel,
          problem(batch, heads, kSeqLens[size_t(row[2])], kHeadDims[size_t(row[1])],
                  kDtypes[size_t(row[0])]),
          input_names()[size_t(row[4])], kSeeds[size_t(row[5])]};
}

// `row` has one index for each of few_levels(); `turn` counts the kernel's cases.
Case make_case_of_few(const Kernel& kernel, const std::vector<int>& row, size_t turn,
                      bool checked) {
  const std::vector<Shape>& all = shapes(kernel, checked);
  const Shape& s = all[turn % all.size()];
  return {&kernel,
          problem(s.batch, s.heads, s.seq_len, kHeadDims[size_t(row[1])], kDtypes[size_t(row[0])]),
          input_names()[size_t(row[2])], kSeeds[turn % kSeeds.size()]};
}

void expect_passes(const Case& c) {
  const Record record = run_once(*c.kernel, c.problem, c.inputs, c.seed);
  if (record.status == Status::kSkipped) GTEST_SKIP() << record.reason;
  EXPECT_EQ(record.status, Status::kPassed) << c.name() << ": " << record.reason;
}

auto case_name = [](const auto& test) { return test_name(test.param.name()); };

// ---- all pairs ----------------------------------------------------------------------------------
class KernelTest : public testing::TestWithParam<Case> {};

TEST_P(KernelTest, MatchesReference) { expect_passes(GetParam()); }

std::vector<Case> pairwise_cases(bool checked) {
  std::vector<Case> cases;
  for (const Kernel& kernel : kernels()) {
    size_t turn = 0;
    for (const auto& row : pairwise(few_levels())) {
      cases.push_back(make_case_of_few(kernel, row, turn++, checked));
    }
    if (!checked || kernel.traits == Traits::kSlow) continue;
    for (const auto& [dtype, head_dim] : kCheckedLongest) {
      cases.push_back(
          {&kernel, problem(1, 1, kSeqLens.back(), head_dim, dtype), "normal", kSeeds.back()});
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Pairs, KernelTest, testing::ValuesIn(pairwise_cases(is_checked())),
                         case_name);

// One process per kernel: most of these cases take less time than a process takes to start.
class FullKernelTest : public testing::TestWithParam<Kernel> {};

TEST_P(FullKernelTest, MatchesReference) {
  for (const auto& row : pairwise(levels())) {
    expect_passes(make_case(GetParam(), row));
    if (IsSkipped()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(AllPairs, FullKernelTest, testing::ValuesIn(kernels()), kernel_name);

// ---- hot inputs ---------------------------------------------------------------------------------
// Five blocks of keys, more tiles of queries than CTAs of a persistent kernel. Where the reference
// does not lag behind the row maximum two kinds suffice, and in the checked build three
// blocks. One head there and of 01 and 02.
class HotKernelTest : public KernelTest {};

TEST_P(HotKernelTest, MatchesReference) { expect_passes(GetParam()); }

std::vector<Case> hot_cases() {
  std::vector<Case> cases;
  for (const Kernel& kernel : kernels()) {
    for (int i = 0; i < int(hot_input_names().size()); i++) {
      const std::string& inputs = hot_input_names()[size_t(i)];
      if (kernel.traits < Traits::kLazy && inputs != "hotter_blocks" && inputs != "huge_scores")
        continue;
      for (int row = 0; row < (kernel.traits >= Traits::kLazy ? 2 : 1);
           row++) {  // both types, both head sizes
        cases.push_back(
            {&kernel,
             problem(
                 1, is_checked() || kernel.traits == Traits::kSlow ? 1 : 2,
                 kernel.traits == Traits::kSlow || (is_checked() && kernel.traits < Traits::kLazy)
                     ? 384
                     : 640,
                 kHeadDims[size_t((i + row) % 2)], kDtypes[size_t((i / 2 + row) % 2)]),
             inputs, 1});
      }
    }
    cases.push_back({&kernel, problem(1, 1, 128, 64, Dtype::kFp16), "uneven_rows", 1});
    cases.push_back({&kernel, problem(1, 1, 128, 128, Dtype::kBf16), "uneven_rows", 1});
    cases.push_back({&kernel, problem(1, 1, 256, 128, Dtype::kFp16), "huge_v", 1});
    cases.push_back({&kernel, problem(1, 1, 256, 64, Dtype::kBf16), "huge_v", 1});
    // Heads of several kinds: all seven, and as many as slow kernels have time for.
    const int heads = kernel.traits == Traits::kSlow ? 3 : 7;
    cases.push_back({&kernel, problem(1, heads, 128, 64, Dtype::kFp16), "mixed_heads", 1});
    cases.push_back({&kernel, problem(1, heads, 128, 128, Dtype::kBf16), "mixed_heads", 1});
    // A row whose reference rises by 2^127: what it had before must not be lost. (With a limit of
    // 2^113 on P, 7 % of that row were.)
    if (kernel.traits == Traits::kMaxFree) {
      cases.push_back({&kernel, problem(1, 5, 384, 64, Dtype::kBf16), "hot_row", 1});
      // Rows that are given up, in both query tiles of a CTA.
      cases.push_back({&kernel, problem(1, 2, 384, 128, Dtype::kBf16), "large", 1});
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Cases, HotKernelTest, testing::ValuesIn(hot_cases()), case_name);

TEST(Pairwise, CoversAllPairsInFewRows) {
  for (const std::vector<int>& sizes : {levels(), few_levels(), {2, 2}, {3, 3, 3}, {5, 1, 4, 2}}) {
    const auto rows = pairwise(sizes);
    EXPECT_EQ(rows, pairwise(sizes));
    size_t largest = 0;
    for (size_t f = 0; f < sizes.size(); f++) {
      for (size_t g = f + 1; g < sizes.size(); g++) {
        std::set<std::pair<int, int>> seen;
        for (const auto& row : rows) {
          ASSERT_TRUE(row[f] >= 0 && row[f] < sizes[f]);
          seen.emplace(row[f], row[g]);
        }
        EXPECT_EQ(seen.size(), size_t(sizes[f] * sizes[g])) << "factors " << f << " and " << g;
        largest = std::max(largest, seen.size());
      }
    }
    EXPECT_LE(rows.size(), largest + largest / 2);
  }
}

// Fewer, but every kernel has both types with both sizes, all inputs that are not hot with both
// types and with both sizes, and all lengths of its shapes. Nothing is there that the long tests
// lack.
TEST(Pairwise, TheDefaultLeavesOutShapesOnly) {
  double all_flops = 0.0;
  for (const Kernel& kernel : kernels()) {
    for (const auto& row : pairwise(levels())) all_flops += make_case(kernel, row).problem.flops();
  }
  for (const bool checked : {false, true}) {
    std::set<std::tuple<std::string, Dtype, int>> types;
    std::set<std::tuple<std::string, std::string, Dtype>> inputs_and_types;
    std::set<std::tuple<std::string, std::string, int>> inputs_and_sizes;
    std::set<std::pair<std::string, int>> lengths;
    std::set<std::string> names;
    double flops = 0.0;
    for (const Case& c : pairwise_cases(checked)) {
      const Problem& p = c.problem;
      const std::pair batch_and_heads(p.batch, p.heads);
      types.emplace(c.kernel->name, p.dtype, p.head_dim);
      inputs_and_types.emplace(c.kernel->name, c.inputs, p.dtype);
      inputs_and_sizes.emplace(c.kernel->name, c.inputs, p.head_dim);
      lengths.emplace(c.kernel->name, p.seq_len);
      EXPECT_TRUE(names.insert(c.name()).second) << c.name() << " is there twice";
      EXPECT_EQ(std::count(kSeqLens.begin(), kSeqLens.end(), p.seq_len), 1) << c.name();
      EXPECT_EQ(std::count(kBatchesAndHeads.begin(), kBatchesAndHeads.end(), batch_and_heads), 1)
          << c.name();
      flops += p.flops();
    }
    EXPECT_EQ(types.size(), kernels().size() * kDtypes.size() * kHeadDims.size());
    EXPECT_EQ(inputs_and_types.size(), kernels().size() * ordinary_inputs() * kDtypes.size());
    EXPECT_EQ(inputs_and_sizes.size(), kernels().size() * ordinary_inputs() * kHeadDims.size());
    EXPECT_EQ(lengths.size(), kernels().size() * kSeqLens.size() - 2) << "01 and 02 lack 640";
    EXPECT_LT(flops, all_flops * (checked ? 1.0 / 3 : 2.0 / 3));
  }
}

// ---- accuracy -----------------------------------------------------------------------------------
// Beside the bound of each element: the relative error of a head on scores that spread, and whose
// maxima may grow from key to key.
double relative_error(const Kernel& kernel, Dtype dtype, double std, Growth growth,
                      int seq_len = 256) {
  Problem p = problem(1, 1, seq_len, 128, dtype);
  p.scores = {std, growth};
  const Record record = run_once(kernel, p, "normal", 1);
  EXPECT_EQ(record.status, Status::kPassed) << kernel.name << ": " << record.reason;
  return record.comparison ? record.comparison->rel : NAN;
}

class Accuracy : public testing::TestWithParam<Kernel> {};

TEST_P(Accuracy, IsThatOfTheOutputsTypeHoweverScoresSpread) {
  for (const auto& [std, growth] :
       {std::pair{2.0, Growth::kFlat}, {2.0, Growth::kGrowing}, {10.0, Growth::kGrowing}}) {
    EXPECT_LE(relative_error(GetParam(), Dtype::kBf16, std, growth), 3e-3) << std;
    EXPECT_LE(relative_error(GetParam(), Dtype::kFp16, std, growth), 4e-4) << std;
  }
}
INSTANTIATE_TEST_SUITE_P(Kernels, Accuracy, testing::ValuesIn(kernels()), kernel_name);

// Kernel 16's reference is no maximum, so its largest P is rounded where that of a kernel with
// maxima is exactly 1. On more kinds of scores, and with more K tiles to raise the reference, the
// error must stay within the same limits.
TEST(Reference, NeedNotBeAMaximum) {
  const Kernel& kernel = find_kernel("16_max_free");
  for (const auto& [std, growth] : {std::pair{1.5, Growth::kGrowing},
                                    {5.0, Growth::kFlat},
                                    {20.0, Growth::kFlat},
                                    {20.0, Growth::kGrowing},
                                    {50.0, Growth::kGrowing}}) {
    EXPECT_LE(relative_error(kernel, Dtype::kBf16, std, growth, 640), 3e-3) << std;
    EXPECT_LE(relative_error(kernel, Dtype::kFp16, std, growth, 640), 4e-4) << std;
  }
}

// ---- everything (label long) --------------------------------------------------------------------
struct Group {
  const Kernel* kernel;
  int dtype, head_dim, inputs;
  std::string name() const {
    return kernel->name + "_" + name_of(kDtypes[size_t(dtype)]) + "_d" +
           std::to_string(kHeadDims[size_t(head_dim)]) + "_" + input_names()[size_t(inputs)];
  }
};

class LongKernelTest : public testing::TestWithParam<Group> {};

TEST_P(LongKernelTest, MatchesReferenceOnAllShapesAndSeeds) {
  const Group& group = GetParam();
  for (int n = 0; n < int(kSeqLens.size()); n++) {
    for (int bh = 0; bh < int(kBatchesAndHeads.size()); bh++) {
      for (int seed = 0; seed < int(kSeeds.size()); seed++) {
        expect_passes(
            make_case(*group.kernel, {group.dtype, group.head_dim, n, bh, group.inputs, seed}));
        if (IsSkipped()) return;
      }
    }
  }
}

std::vector<Group> all_groups() {
  std::vector<Group> groups;
  for (const Kernel& kernel : kernels()) {
    for (int dtype = 0; dtype < int(kDtypes.size()); dtype++) {
      for (int head_dim = 0; head_dim < int(kHeadDims.size()); head_dim++) {
        for (int inputs = 0; inputs < int(input_names().size()); inputs++) {
          groups.push_back({&kernel, dtype, head_dim, inputs});
        }
      }
    }
  }
  return groups;
}
INSTANTIATE_TEST_SUITE_P(Product, LongKernelTest, testing::ValuesIn(all_groups()), case_name);

// ---- the same bits ------------------------------------------------------------------------------
class SameBits : public testing::TestWithParam<Kernel> {};

TEST_P(SameBits, WhateverTheRunAndTheNumberOfThreads) {
  const int seq_len = is_checked() || GetParam().traits == Traits::kSlow ? 128 : 256;
  for (const Problem& p :
       {problem(1, 3, seq_len, 64, Dtype::kFp16), problem(2, 1, seq_len, 128, Dtype::kBf16)}) {
    const std::string skipped = expect_same_bits(GetParam(), p);
    if (!skipped.empty()) GTEST_SKIP() << skipped;
  }
}

#ifndef FA_WITH_CUDA
// A kernel that waits for its copies gives the same, whenever they happen. (Random times in the
// checked build: test_races.cpp, by five seeds.)
TEST_P(SameBits, WheneverCopiesComplete) {
  const Problem p = problem(1, 1, GetParam().traits == Traits::kSlow ? 128 : 384, 64, Dtype::kBf16);
  const Record late = run_once(GetParam(), p, "normal", 3);
  for (uint64_t seed = 0; seed <= (is_checked() ? 1 : 3); seed++) {
    emu::options().completion = seed == 0 ? emu::Completion::kEarly : emu::Completion::kRandom;
    emu::options().seed = seed;
    const Record other = run_once(GetParam(), p, "normal", 3);
    EXPECT_EQ(other.output, late.output) << "seed " << seed;
  }
  emu::options() = {};
}
#endif

// A head's result depends on that head alone.
TEST_P(SameBits, WhateverTheOtherHeads) {
  const Problem one = problem(1, 1, 128, 64, Dtype::kBf16),
                many = problem(2, 3, 128, 64, Dtype::kBf16);
  const Record alone =
      run_once(GetParam(), one, "normal", 1);  // the first head's inputs are the same
  if (alone.status == Status::kSkipped) GTEST_SKIP() << alone.reason;
  const Record together = run_once(GetParam(), many, "normal", 1);
  EXPECT_EQ(alone.output,
            std::vector<uint16_t>(together.output.begin(),
                                  together.output.begin() + long(alone.output.size())));
}
INSTANTIATE_TEST_SUITE_P(Kernels, SameBits, testing::ValuesIn(kernels()), kernel_name);

#ifdef FA_WITH_CUDA
// As in test_measuring.cpp, on a real GPU: what is launched on another stream while the graph is
// captured is not in it.
TEST(OnAGpu, LaunchesThatDoLessAreFound) {
  const Problem p = problem(1, 4, 512, 64, Dtype::kFp16);
  Runner runner(p, make_inputs(p, "normal", 1), Protocol{});
  const Kernel& right = find_kernel("02");
  ASSERT_EQ(runner.run(right).status, Status::kPassed);

  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  int launches = 0;
  Kernel elsewhere = right, skips = right;
  elsewhere.run = [&](const Problem& of, const Tensors& tensors) {
    launch_stream() = other;
    right.run(of, tensors);
  };
  skips.run = [&](const Problem& of, const Tensors& tensors) {
    if (launches++ % 8 != 7) right.run(of, tensors);
  };
  for (const Kernel* cheat : {&elsewhere, &skips}) {
    const Record record = runner.run(*cheat);
    EXPECT_EQ(record.status, Status::kWrong);
    EXPECT_CONTAINS(record.reason, "timed launch");
  }
  cudaStreamDestroy(other);
}
#endif

}  // namespace
}  // namespace fa::test
