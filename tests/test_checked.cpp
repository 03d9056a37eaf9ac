// The checked build: memory traffic counted as by hand, and every access outside memory named with its
// place. The kernels here are compiled with the instrumentation, the tests are not.
#include <map>

#include "common/emulator/launch.h"
#include "common/harness/device.h"
#include "tests/checked_kernels.h"
#include "tests/support.h"

namespace fa::test {
namespace {

using Probe = probe::Kernel;
using Counts = std::map<std::string, uint64_t>;

// Only the counters that are not zero.
Counts nonzero(const emu::Counters& counters) {
  Counts result;
  counters.for_each([&](const char* name, uint64_t value) {
    if (value) result[name] = value;
  });
  return result;
}

emu::Counters launch(Probe kernel, int ctas = 1) {
  const int count = 4096;
  Buffer in("in", count * 4);
  const Buffer out("out", count * 4);
  in.upload(std::vector<float>(count, 1.0f).data());
  emu::take_counters();
  emu::launch("probe", dim3(unsigned(ctas)), dim3(32), size_t(probe::shared_bytes(kernel)),
              probe::body(kernel, static_cast<const float*>(in.data()),
                          static_cast<float*>(out.data()), count));
  return emu::take_counters();
}

std::string failure(Probe kernel) {
  try {
    launch(kernel);
  } catch (const emu::LaunchError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Checked, IsTheCheckedBuild) { EXPECT_TRUE(emu::is_checked()); }

// ---- counters ------------------------------------------------------------------------------------
Counts global(uint64_t requests, uint64_t sectors, uint64_t bytes) {
  return {{"global_requests", requests}, {"global_sectors", sectors}, {"global_bytes", bytes}};
}

TEST(CheckedCounters, GlobalMemory) {
  // A load and a store each. 32 lanes x 4 bytes in a row: 128 bytes, four sectors.
  EXPECT_EQ(nonzero(launch(Probe::kCopy4)), global(2, 4 + 4, 256));
  EXPECT_EQ(nonzero(launch(Probe::kCopy4, 5)), global(10, 40, 1280));
  // 16 bytes a lane: one request of 16 sectors, not four.
  EXPECT_EQ(nonzero(launch(Probe::kCopy16)), global(2, 16 + 16, 1024));
  // The same bytes by four requests: each touches all 16 sectors.
  EXPECT_EQ(nonzero(launch(Probe::kCopy16ByRow)), global(8, 8 * 16, 1024));
  // 128 bytes apart: a sector a lane for four bytes of it.
  EXPECT_EQ(nonzero(launch(Probe::kStrided)), global(2, 32 + 4, 256));
  EXPECT_EQ(nonzero(launch(Probe::kBroadcast)), global(2, 1 + 4, 256));
  EXPECT_EQ(nonzero(launch(Probe::kHalfWarp)), global(2, 2 + 2, 128));
  EXPECT_EQ(nonzero(launch(Probe::kStackOnly)), Counts{});
}

TEST(CheckedCounters, DivergedLanes) {
  // Lane i copies i % 3 + 1 elements, so that 32, 21 and 10 lanes take part in the three turns; all
  // four sectors of the 128 bytes are touched each time.
  EXPECT_EQ(nonzero(launch(Probe::kUneven)), global(6, 2 * 12, 2 * 4 * (32 + 21 + 10)));
}

Counts shared(uint64_t wavefronts) {  // a store and a load alike, a store to global memory
  Counts result = global(1, 4, 128);
  result["shared_requests"] = 2;
  result["shared_wavefronts"] = 2 * wavefronts;
  result["shared_wavefronts_ideal"] = 2;
  return result;
}

TEST(CheckedCounters, SharedMemory) {
  EXPECT_EQ(nonzero(launch(Probe::kSharedRow)), shared(1));
  EXPECT_EQ(nonzero(launch(Probe::kSharedColumn)), shared(32));
  EXPECT_EQ(nonzero(launch(Probe::kSharedPadded)), shared(1));
}

// ---- errors --------------------------------------------------------------------------------------
class CheckedErrors : public testing::TestWithParam<std::pair<Probe, std::string>> {};

TEST_P(CheckedErrors, AreNamedWithTheirPlace) {
  const auto& [kernel, text] = GetParam();
  const std::string message = failure(kernel);
  const std::string place = "tests/checked_kernels.cpp:" + std::to_string(probe::fault_line) + ": ";
  EXPECT_NE(message.find(place + text), std::string::npos)
      << message << " instead of " << place << text;
  EXPECT_EQ(message.rfind("probe, CTA (0,0,0), thread ", 0), 0u) << message;
}
INSTANTIATE_TEST_SUITE_P(
    Accesses, CheckedErrors,
    testing::Values(
        std::pair{Probe::kPastGlobal,
                  "load of 4 bytes 0 bytes past the end of global buffer in (16384 bytes)"},
        std::pair{Probe::kBeforeGlobal,
                  "store of 4 bytes 4 bytes before the start of global buffer out"},
        std::pair{Probe::kAcrossGlobal,
                  "load of 16 bytes 0 bytes past the end of global buffer in"},
        std::pair{Probe::kPastShared,
                  "store of 4 bytes 0 bytes past the end of shared memory (4096 bytes)"},
        std::pair{Probe::kMisaligned4, "load of 4 bytes at an address that is not a multiple of 4"},
        std::pair{Probe::kMisaligned16,
                  "load of 16 bytes at an address that is not a multiple of 16"}));

// ---- the real kernels ----------------------------------------------------------------------------
class CheckedKernels : public testing::TestWithParam<Kernel> {};

TEST_P(CheckedKernels, CountTheSameEveryTime) {
  for (const Problem& p :
       {problem(1, 2, 128, 64, Dtype::kFp16), problem(2, 1, 128, 128, Dtype::kBf16)}) {
    Record first;
    for (const int threads : {1, 2, 5}) {
      emu::options().os_threads = threads;
      const Record record = run_once(GetParam(), p, "normal", 1);
      EXPECT_EQ(record.status, Status::kPassed) << record.reason;
      if (threads == 1) first = record;
      EXPECT_EQ(record.counters, first.counters) << threads << " threads";
      EXPECT_EQ(record.output, first.output) << threads << " threads";
    }
    emu::options().os_threads = 0;
    Counts counts(first.counters.begin(), first.counters.end());
    EXPECT_GE(counts["global_bytes"], 4 * p.tensor_bytes()) << "Q, K and V are read, O is written";
    EXPECT_GE(counts["shared_wavefronts"], counts["shared_wavefronts_ideal"]);
  }
}
INSTANTIATE_TEST_SUITE_P(Kernels, CheckedKernels, testing::ValuesIn(kernels()),
                         [](const auto& test) { return test.param.name; });

// Kernels that keep S on the chip: Q once, O once, and K and V once a tile of query rows.
TEST(CheckedCounters, GlobalBytesOfTheTiledKernels) {
  const Problem p = problem(1, 2, 256, 128, Dtype::kBf16);
  for (const auto& [name, rows] : std::map<std::string, uint64_t>{{"02", 32}, {"03", 64}}) {
    const Record record = run_once(find_kernel(name), p, "normal", 1);
    Counts counts(record.counters.begin(), record.counters.end());
    EXPECT_EQ(counts["global_bytes"], p.tensor_bytes() * (2 + 2 * 256 / rows)) << name;
  }
}

// The swizzle's promise: not one conflict. Without it, eight rows meet in the same four banks.
TEST(CheckedCounters, SwizzledTilesAreFreeOfConflicts) {
  for (const int head_dim : {64, 128}) {
    const Problem p = problem(1, 1, 256, head_dim, Dtype::kFp16);
    std::map<std::string, Counts> counts;
    for (const std::string name : {"07", "08"}) {
      const Record record = run_once(find_kernel(name), p, "normal", 1);
      counts[name] = Counts(record.counters.begin(), record.counters.end());
    }
    EXPECT_EQ(counts["08"]["shared_wavefronts"], counts["08"]["shared_wavefronts_ideal"]);
    EXPECT_EQ(counts["08"]["shared_wavefronts_ideal"], counts["07"]["shared_wavefronts_ideal"]);
    // ldmatrix takes eight wavefronts a matrix instead of one; the copies, which write whole rows, do not
    // conflict in either kernel: 4 wavefronts for each 32 of them.
    const uint64_t copies = counts["08"]["async_copies"] / 32 * 4;
    EXPECT_EQ(counts["07"]["shared_wavefronts"] - copies,
              8 * (counts["08"]["shared_wavefronts"] - copies));
  }
}

}  // namespace
}  // namespace fa::test
