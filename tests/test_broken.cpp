// The tests are tested: on the inputs that bugs.toml names, kernels with one seeded bug must give
// right numbers, and wrong ones on all others; and as bugs.json says, from which the
// documentation's table is made. (Label all.) That each is found at all, and reports and counters:
// test_found.cpp.
#include <string>

#include "common/harness/runner.h"
#include "tests/broken/bug.h"
#include "tests/broken/checks.h"
#include "tests/broken/committed.h"
#include "tests/support.h"

namespace fa::test {
namespace {

using broken::Bug;

class FullBrokenKernel : public testing::TestWithParam<Bug> {
 protected:
  // In the emulator's own order, copies as late as they may come; the detector keeps quiet.
  static void check(const std::string& inputs) {
    const Bug& bug = GetParam();
    const Record record = broken::run(bug.name, broken::problem_of(bug), inputs);
    EXPECT_EQ(broken::unlike_numbers(bug, inputs, record), "");
    EXPECT_EQ(committed(bug)["numbers"][inputs], broken::verdict_of(record)) << kRewrite;
  }
};

TEST_P(FullBrokenKernel, HasTheNumbersThatAreDeclared) {
  const Bug& bug = GetParam();
  for (const std::string& inputs : broken::inputs_of(bug)) check(inputs);
  if (bug.kernel < "07") return;  // has no asynchronous copies
  const Record early = broken::run(bug.name, broken::problem_of(bug), "normal", false, true);
  EXPECT_EQ(broken::unlike_early(bug, early), "");
  EXPECT_EQ(committed(bug)["early"], broken::verdict_of(early)) << kRewrite;
}

TEST_P(FullBrokenKernel, IsCaughtBySomething) {
  const Bug& bug = GetParam();
  EXPECT_TRUE(bug.right.size() < broken::inputs_of(bug).size() || !bug.found.empty() ||
              !bug.counted.empty());
  EXPECT_TRUE(bug.stops.empty() || bug.right.size() < broken::inputs_of(bug).size());
}
INSTANTIATE_TEST_SUITE_P(Bugs, FullBrokenKernel, testing::ValuesIn(broken::bugs()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace fa::test
