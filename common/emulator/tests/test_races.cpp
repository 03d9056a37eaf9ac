// The detector of the checked build: every kind of synchronisation, present and missing.
#include <array>
#include <iterator>
#include <regex>

#include "common/emulator/core/describe.h"
#include "common/emulator/core/launch.h"
#include "common/emulator/tests/race_kernels.h"
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
    // A race names who makes each access: a thread, or a warp's ldmatrix.
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
