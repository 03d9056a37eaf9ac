// Broken kernels (tests/broken/bugs.cmake) in the checked build: what it reports of them, which lines it
// names, what it counts. Of those that have no such bug it reports nothing. Numbers: test_broken.cpp.
#include "common/emulator/launch.h"
#include "tests/broken/checks.h"
#include "tests/broken/committed.h"
#include "tests/support.h"

namespace fa::test {
namespace {

using broken::Bug;

// The line of the broken source that contains `text`.
int line_of(const Bug& bug, const std::string& text) {
  std::ifstream file(FA_BROKEN_FOLDER "/" + bug.name + ".cu");
  int number = 0, found = 0;
  for (std::string line; std::getline(file, line);) {
    number++;
    if (line.find("broken::Declaration") != std::string::npos) break;
    if (line.find(text) == std::string::npos) continue;
    EXPECT_EQ(found, 0) << "'" << text << "' is in two lines of " << bug.name;
    found = number;
  }
  EXPECT_NE(found, 0) << "'" << text << "' is not in " << bug.name;
  return found;
}

class CheckedBug : public testing::TestWithParam<Bug> {
 protected:
  void TearDown() override { emu::options() = {}; }
};

TEST_P(CheckedBug, IsReportedAndCountedAsDeclared) {
  const Bug& bug = GetParam();
  // Where there is nothing to report, all of a small problem runs. (Not so small that no ring goes round.)
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
  EXPECT_EQ(committed(bug).value("report", ""), broken::kind_of(record.reason)) << kRewrite;
  for (size_t i = 1; i < bug.found.size(); i++) {
    const std::string place = bug.name + ".cu:" + std::to_string(line_of(bug, bug.found[i]));
    EXPECT_NE(record.reason.find(place), std::string::npos)
        << place << " is not in: " << record.reason;
  }

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

  if (bug.found.empty()) return;
  // Whatever the order of threads and copies.
  emu::options().schedule = emu::Schedule::kRandom;
  emu::options().completion = emu::Completion::kRandom;
  for (emu::options().seed = 1; emu::options().seed <= 3; emu::options().seed++) {
    EXPECT_EQ(broken::unlike_report(bug, broken::run(bug.name, p, inputs, true)), "")
        << "seed " << emu::options().seed;
  }
}
INSTANTIATE_TEST_SUITE_P(Bugs, CheckedBug, testing::ValuesIn(broken::bugs()),
                         [](const auto& test) { return test.param.name; });

// bugs.json has these bugs and no others, in words that are up to date.
TEST(Bugs, AreAllCommitted) {
  ASSERT_EQ(all_committed().size(), broken::bugs().size()) << kRewrite;
  for (const Bug& bug : broken::bugs()) {
    EXPECT_EQ(committed(bug)["what"], bug.what) << kRewrite;
    EXPECT_EQ(committed(bug)["kernel"], bug.kernel) << kRewrite;
  }
}

}  // namespace
}  // namespace fa::test
