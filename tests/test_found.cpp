// Broken kernels (tests/broken/bugs.cmake) in the checked build: what it says about them, and which lines it
// names. Whether the result is wrong too is no question here.
#include "common/emulator/launch.h"
#include "tests/broken/bug.h"
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
    if (line.find(text) == std::string::npos || line.find("broken::Bug") != std::string::npos)
      continue;
    EXPECT_EQ(found, 0) << "'" << text << "' is in two lines of " << bug.name;
    found = number;
  }
  EXPECT_NE(found, 0) << "'" << text << "' is not in " << bug.name;
  return found;
}

class FoundBug : public testing::TestWithParam<Bug> {
 protected:
  void TearDown() override { emu::options() = {}; }
};

TEST_P(FoundBug, IsNamed) {
  const Bug& bug = GetParam();
  const Problem p = problem(1, 1, 256, 64, Dtype::kBf16);
  const std::string inputs = bug.caught_by == "nothing" ? "normal" : bug.caught_by;
  const auto report = [&] {
    const Record record = run_once(find_kernel(bug.name), p, inputs, 1);
    EXPECT_EQ(record.status, Status::kError);
    EXPECT_NE(record.reason.find(bug.found[0]), std::string::npos) << record.reason;
    return record.reason;
  };
  const std::string reason = report();
  for (size_t i = 1; i < bug.found.size(); i++) {
    const std::string place = bug.name + ".cu:" + std::to_string(line_of(bug, bug.found[i]));
    EXPECT_NE(reason.find(place), std::string::npos) << place << " is not in: " << reason;
  }
  emu::options().schedule = emu::Schedule::kRandom;
  emu::options().completion = emu::Completion::kRandom;
  for (emu::options().seed = 1; emu::options().seed <= 3; emu::options().seed++) report();
}
std::vector<Bug> found_bugs() {
  std::vector<Bug> result;
  for (const Bug& bug : broken::bugs()) {
    if (!bug.found.empty()) result.push_back(bug);
  }
  return result;
}
INSTANTIATE_TEST_SUITE_P(Bugs, FoundBug, testing::ValuesIn(found_bugs()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace fa::test
