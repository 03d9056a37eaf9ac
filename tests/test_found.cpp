// Broken kernels (tests/broken/bugs.toml) in the checked build. By default each is found once, by
// the check that it is to teach. With the label full: what is reported of each, which lines are
// named, what is counted, and that nothing else is. Numbers on all inputs: test_broken.cpp.
#include "common/emulator/core/launch.h"
#include "tests/broken/checks.h"
#include "tests/support.h"

namespace fa::test {
namespace {

using broken::Bug;
using broken::Facts;

constexpr const char* kRewrite = "scripts/fa adopt writes tests/broken/facts.json";

class CheckedBug : public testing::TestWithParam<Bug> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(facts.contains("numbers")) << "it has no row; " << kRewrite;
    EXPECT_EQ(broken::not_shown(bug, facts), "");
  }
  void TearDown() override { emu::options() = {}; }

  // The report is of the committed kind, and names the committed statements. (It may name more
  // with another compiler.)
  void expect_report(const Record& record) const {
    const Facts found = broken::facts_of_report(bug, record);
    EXPECT_EQ(found.value("report", ""), facts.value("report", "")) << record.reason << kRewrite;
    for (const Facts& statement : facts.value("at", Facts::array())) {
      EXPECT_TRUE(std::ranges::count(found.value("at", Facts::array()), statement))
          << "not named: " << statement << "\n"
          << record.reason << kRewrite;
    }
  }
  void expect_counters(const Record& counted, const Record& real) const {
    const Facts found = broken::facts_of_counters(counted, real);
    EXPECT_EQ(found.value("counter", ""), facts.value("counter", "")) << kRewrite;
    EXPECT_NEAR(found.value("ratio", 0.0).get<double>(), facts.value("ratio", 0.0).get<double>(),
                0.006)
        << kRewrite;
  }

  const Bug& bug = GetParam();
  const Facts facts = broken::committed(bug);
  const Problem problem = broken::problem_of(bug);
};

TEST_P(CheckedBug, IsFound) {
  if (bug.shown_by == "report") {
    expect_report(broken::run(bug, bug.name, problem, broken::inputs_of_report(facts), true));
  } else if (bug.shown_by == "counters") {
    expect_counters(broken::run(bug, bug.name, problem, "normal"),
                    broken::run(bug, bug.kernel, problem, "normal"));
  } else {
    const std::string inputs = broken::inputs_of_report(facts);  // the first with wrong numbers
    EXPECT_EQ(facts["numbers"][inputs],
              broken::verdict_of(broken::run(bug, bug.name, problem, inputs)));
  }
}
INSTANTIATE_TEST_SUITE_P(Bugs, CheckedBug, testing::ValuesIn(broken::bugs()),
                         [](const auto& test) { return test.param.name; });

// Whatever the order of threads and copies: there is a report, though another race may come first.
void expect_found_in_any_order(const Bug& bug, const Facts& facts, uint64_t first_seed,
                               uint64_t last_seed) {
  if (!facts.contains("report")) return;
  emu::options().schedule = emu::Schedule::kRandom;
  emu::options().completion = emu::Completion::kRandom;
  for (uint64_t seed = first_seed; seed <= last_seed; seed++) {
    emu::options().seed = seed;
    const Record record =
        broken::run(bug, bug.name, broken::problem_of(bug), broken::inputs_of_report(facts), true);
    EXPECT_EQ(record.status, Status::kError) << "seed " << seed << ": no report";
    EXPECT_NE(broken::kind_of(record.reason), "") << "seed " << seed << ": " << record.reason;
  }
}

class LongCheckedBug : public CheckedBug {};

TEST_P(LongCheckedBug, IsFoundInAnyOrder) { expect_found_in_any_order(bug, facts, 2, 10); }
INSTANTIATE_TEST_SUITE_P(Bugs, LongCheckedBug, testing::ValuesIn(broken::bugs()),
                         [](const auto& test) { return test.param.name; });

class FullCheckedBug : public CheckedBug {};

TEST_P(FullCheckedBug, IsReportedAndCountedAsCommitted) {
  // Where there is nothing to report, all of a small problem runs. (Not so small that no ring goes
  // round.)
  Problem small = problem;
  if (!broken::kernel_of(bug).needs.exactly) {
    small.heads = small.kv_heads.value_or(1);
    small.seq_len = 128;
  }
  const bool quiet = !facts.contains("report");
  const std::string inputs = quiet ? "normal" : broken::inputs_of_report(facts);
  const Record record = broken::run(bug, bug.name, quiet ? small : problem, inputs, true);
  expect_report(record);

  const Problem at = facts.contains("counter") ? problem : small;
  const Record counted = quiet && at == small ? record : broken::run(bug, bug.name, at, "normal");
  expect_counters(counted, broken::run(bug, bug.kernel, at, "normal"));

  expect_found_in_any_order(bug, facts, 1, 1);
}
INSTANTIATE_TEST_SUITE_P(Bugs, FullCheckedBug, testing::ValuesIn(broken::bugs()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace fa::test
