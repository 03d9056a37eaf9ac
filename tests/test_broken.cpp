// The tests are tested: kernels with one seeded bug each must give right and wrong numbers on the
// inputs that tests/broken/facts.json says, from which the documentation's table is made, too.
// (Label full.) That each is found at all, and reports and counters: test_found.cpp.
#include "tests/broken/checks.h"
#include "tests/support.h"

namespace fa::test {
namespace {

using broken::Bug;

constexpr const char* kRewrite = "scripts/fa adopt writes tests/broken/facts.json";

class FullBrokenKernel : public testing::TestWithParam<Bug> {};

TEST_P(FullBrokenKernel, HasTheNumbersThatAreCommitted) {
  const Bug& bug = GetParam();
  const broken::Facts facts = broken::committed(bug);
  ASSERT_TRUE(facts.contains("numbers")) << kRewrite;
  // In the emulator's own order, copies as late as they may come; the detector keeps quiet.
  for (const std::string& inputs : broken::inputs_of(bug)) {
    const Record record = broken::run(bug, bug.name, broken::problem_of(bug), inputs);
    EXPECT_EQ(facts["numbers"].value(inputs, ""), broken::verdict_of(record))
        << inputs << "; " << kRewrite;
    if (record.status == Status::kError) {
      EXPECT_NE(broken::kind_of(record.reason), "") << inputs << ": " << record.reason;
    }
  }
  if (broken::kernel_of(bug).traits < Traits::kAsync) return;  // nothing comes early or late
  const Record early = broken::run(bug, bug.name, broken::problem_of(bug), "normal", false, true);
  EXPECT_EQ(facts.value("early", ""), broken::verdict_of(early)) << kRewrite;
}

INSTANTIATE_TEST_SUITE_P(Bugs, FullBrokenKernel, testing::ValuesIn(broken::bugs()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace fa::test
