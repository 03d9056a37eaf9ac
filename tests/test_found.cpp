// Broken kernels (tests/broken/bugs.toml) in the checked build. By default each is found once, by
// the check that shows it first. With the label all: what is reported of each, which lines are
// named, what is counted, and that nothing else is. Numbers on all inputs: test_broken.cpp.
#include <cstdint>
#include <string>

#include "common/emulator/core/launch.h"
#include "common/harness/runner.h"
#include "common/launch/problem.h"
#include "tests/broken/bug.h"
#include "tests/broken/checks.h"
#include "tests/broken/committed.h"
#include "tests/support.h"

namespace fa::test {
namespace {

using broken::Bug;

class CheckedBug : public testing::TestWithParam<Bug> {
 protected:
  void TearDown() override { emu::options() = {}; }
};

// The checks in the order of what they cost: a report or numbers of one launch, counters of two.
TEST_P(CheckedBug, IsFound) {
  const Bug& bug = GetParam();
  const Problem p = broken::problem_of(bug);
  if (!bug.found.empty() || !bug.stops.empty()) {
    const Record record = broken::run(bug.name, p, broken::inputs_of_report(bug), true);
    EXPECT_EQ(broken::unlike_report(bug, record), "");
    EXPECT_EQ(broken::unlike_places(bug, record), "");
    return;
  }
  for (const std::string& inputs : broken::inputs_of(bug)) {
    if (bug.is_right_on(inputs)) continue;
    EXPECT_EQ(broken::unlike_numbers(bug, inputs, broken::run(bug.name, p, inputs)), "");
    return;
  }
  ASSERT_NE(bug.counted, "") << "nothing finds it";
  EXPECT_EQ(broken::unlike_counters(bug, broken::run(bug.name, p, "normal"),
                                    broken::run(bug.kernel, p, "normal")),
            "");
}
INSTANTIATE_TEST_SUITE_P(Bugs, CheckedBug, testing::ValuesIn(broken::bugs()),
                         [](const auto& test) { return test.param.name; });

// Whatever the order of threads and copies.
void expect_found_in_any_order(const Bug& bug, uint64_t first_seed, uint64_t last_seed) {
  if (bug.found.empty()) return;
  emu::options().schedule = emu::Schedule::kRandom;
  emu::options().completion = emu::Completion::kRandom;
  for (uint64_t seed = first_seed; seed <= last_seed; seed++) {
    emu::options().seed = seed;
    const Record record =
        broken::run(bug.name, broken::problem_of(bug), broken::inputs_of_report(bug), true);
    EXPECT_EQ(broken::unlike_report(bug, record), "") << "seed " << seed;
  }
}

class LongCheckedBug : public CheckedBug {};

TEST_P(LongCheckedBug, IsFoundInAnyOrder) { expect_found_in_any_order(GetParam(), 2, 10); }
INSTANTIATE_TEST_SUITE_P(Bugs, LongCheckedBug, testing::ValuesIn(broken::bugs()),
                         [](const auto& test) { return test.param.name; });

class FullCheckedBug : public CheckedBug {};

TEST_P(FullCheckedBug, IsReportedAndCountedAsDeclared) {
  const Bug& bug = GetParam();
  // Where there is nothing to report, all of a small problem runs. (Not so small that no ring goes
  // round.)
  Problem small = broken::problem_of(bug);
  if (bug.kernel < "11") {
    small.heads = 1;
    small.seq_len = 128;
  }
  const bool quiet = bug.found.empty() && bug.stops.empty();
  const Problem p = quiet ? small : broken::problem_of(bug);
  const std::string inputs = broken::inputs_of_report(bug);
  const Record record = broken::run(bug.name, p, inputs, true);
  EXPECT_EQ(broken::unlike_report(bug, record), "");
  EXPECT_EQ(broken::unlike_places(bug, record), "");
  EXPECT_EQ(committed(bug).value("report", ""), broken::kind_of(record.reason)) << kRewrite;

  const Problem counted_at = bug.counted.empty() ? small : broken::problem_of(bug);
  const Record counted =
                   quiet && counted_at == p ? record : broken::run(bug.name, counted_at, "normal"),
               real = broken::run(bug.kernel, counted_at, "normal");
  EXPECT_EQ(broken::unlike_counters(bug, counted, real), "");
  EXPECT_EQ(committed(bug).value("counter", ""), bug.counted) << kRewrite;
  if (!bug.counted.empty()) {
    EXPECT_NEAR(committed(bug).value("ratio", 0.0), broken::ratios(counted, real)[bug.counted],
                0.006)
        << kRewrite;
  }

  expect_found_in_any_order(bug, 1, 1);
}
INSTANTIATE_TEST_SUITE_P(Bugs, FullCheckedBug, testing::ValuesIn(broken::bugs()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace fa::test
