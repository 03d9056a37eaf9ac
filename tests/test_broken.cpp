// The tests are tested: kernels with one seeded bug (tests/broken/bugs.cmake) must be called wrong where
// the table says so, and the unbroken kernel right on the same inputs.
#include "common/emulator/launch.h"
#include "tests/broken/bug.h"
#include "tests/support.h"

namespace fa::test {
namespace {

using broken::Bug;

class BrokenKernel : public testing::TestWithParam<Bug> {};

TEST_P(BrokenKernel, IsCaught) {
  const Bug& bug = GetParam();
  const Problem p = problem(1, 2, 256, 128, Dtype::kBf16);
  emu::options().races = false;  // here numbers decide, in the checked build too
  if (bug.caught_by != "nothing") {
    const Record record = run_once(find_kernel(bug.name), p, bug.caught_by, 1);
    EXPECT_TRUE(record.status == Status::kWrong || record.status == Status::kError)
        << bug.name << " is " << name_of(record.status) << " on " << bug.caught_by;
    EXPECT_FALSE(record.reason.empty());
    EXPECT_EQ(run_once(find_kernel(bug.kernel), p, bug.caught_by, 1).status, Status::kPassed);
  }
  if (!bug.missed_by.empty()) {
    EXPECT_EQ(run_once(find_kernel(bug.name), p, bug.missed_by, 1).status, Status::kPassed)
        << "better than the table says: correct it";
  }
}
INSTANTIATE_TEST_SUITE_P(Bugs, BrokenKernel, testing::ValuesIn(broken::bugs()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace fa::test
