// The detector of the checked build: every kind of synchronisation, present and missing, and the
// kernels, in which there is nothing to find.
#include <array>
#include <iterator>
#include <map>
#include <regex>
#include <utility>

#include "common/emulator/core/describe.h"
#include "common/emulator/core/launch.h"
#include "common/harness/results.h"
#include "tests/race_kernels.h"
#include "tests/support.h"

namespace fa::test {
namespace {

using probe::RaceCase;

void random_order(uint64_t seed) {
  emu::options().schedule = emu::Schedule::kRandom;
  emu::options().completion = emu::Completion::kRandom;
  emu::options().seed = seed;
}

class WithOptions : public testing::Test {
 protected:
  void TearDown() override { emu::options() = {}; }
};

std::string outcome(const RaceCase& test, bool right) {
  Buffer in("in", probe::kRaceCount * 4);
  const Buffer out("out", probe::kRaceCount * 4);
  in.upload(std::vector<float>(probe::kRaceCount, 1.0f).data());
  probe::first_line = probe::second_line = 0;
  return error_of<emu::LaunchError>([&] {
    emu::launch(
        "probe", dim3(unsigned(test.ctas)), dim3(unsigned(test.threads)), probe::kRaceSharedBytes,
        [&] {
          test.body(right, static_cast<const float*>(in.data()), static_cast<float*>(out.data()));
        },
        test.cluster);
  });
}

class RaceCases : public WithOptions, public testing::WithParamInterface<RaceCase> {};

TEST(Reports, NamePhases) {
  EXPECT_EQ(emu::phase_name(3), "phase 3");
  EXPECT_EQ(emu::phase_name(uint64_t(-1)), "the phase before phase 0 (it counts as over)");
}

// In the fixed order and in random ones: the race is reported whichever side comes first.
TEST_P(RaceCases, AreFoundInAnyOrder) {
  const RaceCase& test = GetParam();
  for (uint64_t seed = 0; seed <= 5; seed++) {
    if (seed > 0) random_order(seed);
    EXPECT_EQ(outcome(test, true), "no error") << "seed " << seed;
    const std::string text = outcome(test, false);
    EXPECT_CONTAINS(text, "probe");
    EXPECT_CONTAINS(text, test.problem);
    EXPECT_CONTAINS(text, test.cure);
    const std::string again = "the next time";
    EXPECT_EQ(text.find(again) == text.npos, test.cure.find(again) == test.cure.npos) << text;
    for (const int line : {probe::first_line, probe::second_line}) {
      if (line > 0) EXPECT_CONTAINS(text, test.file + ":" + std::to_string(line));
    }
    // Of a race, who makes each access: a thread, or a warp's ldmatrix.
    static const std::regex access(R"( at \S+:\d+ by (thread \d+ \(warp \d+ lane \d+\)|warp \d+))");
    const auto accesses = std::distance(std::sregex_iterator(text.begin(), text.end(), access), {});
    if (test.problem.starts_with("data race")) {
      EXPECT_EQ(accesses, 2) << text;
      EXPECT_GT(probe::first_line, 0);
    }
    EXPECT_EQ(text, outcome(test, false)) << "the same seed, another report";
    const std::string repeat = (seed ? "seed " + std::to_string(seed) : "") + " repeats this run";
    EXPECT_EQ(text.find(repeat) != text.npos, seed > 0) << text;
  }
}
INSTANTIATE_TEST_SUITE_P(All, RaceCases, testing::ValuesIn(probe::race_cases()),
                         [](const auto& test) { return test.param.name; });

// ---- the kernels --------------------------------------------------------------------------------
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

// What is reported must not depend on which CTA an OS thread happens to finish first.
TEST_F(WithOptions, ReportsAreTheSameWithAnyNumberOfThreads) {
  for (const RaceCase& test : probe::race_cases()) {
    if (test.ctas == 1) continue;
    emu::options().os_threads = 1;
    const std::string alone = outcome(test, false);
    emu::options().os_threads = 4;
    for (int turn = 0; turn < 20; turn++) EXPECT_EQ(outcome(test, false), alone);
  }
}

// Nor on where the buffers lie in memory: the one that was made first is named.
TEST_F(WithOptions, OfSeveralBuffersTheFirstIsNamed) {
  for (const RaceCase& test : probe::race_cases()) {
    if (test.name != "two_ctas_write") continue;
    for (int turn = 0; turn < 2; turn++) {
      const Buffer in("in", probe::kRaceCount * 4);
      const Buffer a("out A", probe::kRaceCount * 4), b("out B", probe::kRaceCount * 4);
      const std::string text = error_of<emu::LaunchError>([&] {
        emu::launch("probe", dim3(2), dim3(32), 0, [&] {
          for (const Buffer* const out : turn ? std::array{&a, &b} : std::array{&b, &a})
            test.body(false, static_cast<const float*>(in.data()),
                      static_cast<float*>(out->data()));
        });
      });
      EXPECT_CONTAINS(text, "global buffer out A");
    }
  }
}

TEST_F(WithOptions, DetectionCanBeLeftOut) {
  emu::options().races = false;
  for (const RaceCase& test : probe::race_cases()) {
    if (test.name != "between_lanes") continue;
    EXPECT_EQ(outcome(test, false), "no error");
  }
}

}  // namespace
}  // namespace fa::test
