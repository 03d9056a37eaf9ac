// The checked build: memory traffic counted as by hand, and every access outside memory named with
// its place. The probes are compiled with the instrumentation, the tests are not.
#include <cstdlib>
#include <map>
#include <utility>

#include "common/emulator/core/launch.h"
#include "common/emulator/tests/checked_kernels.h"
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

emu::Counters launch(Probe kernel, int ctas = 1, int threads = 32) {
  // In such a buffer neither the first nor the last byte is at the edge of a page of the detector:
  // it has seen the pages which the faults below reach out of the buffer.
  const int count = 4000;
  Buffer in("in", count * 4);
  const Buffer out("out", count * 4);
  in.upload(std::vector<float>(count, 1.0f).data());
  emu::take_counters();
  emu::take_lines();
  emu::launch("probe", dim3(unsigned(ctas)), dim3(unsigned(threads)),
              size_t(probe::shared_bytes(kernel)),
              probe::body(kernel, static_cast<const float*>(in.data()),
                          static_cast<float*>(out.data()), count));
  return emu::take_counters();
}

std::string failure(Probe kernel, int threads = 32) {
  return error_of<emu::LaunchError>([&] { launch(kernel, 1, threads); });
}

TEST(Checked, IsTheCheckedBuild) { EXPECT_TRUE(emu::is_checked()); }

// ---- counters -----------------------------------------------------------------------------------
Counts global(uint64_t requests, uint64_t sectors, uint64_t ideal, uint64_t bytes) {
  return {{"global_requests", requests},
          {"global_sectors", sectors},
          {"global_sectors_ideal", ideal},
          {"global_bytes", bytes}};
}

TEST(CheckedCounters, GlobalMemory) {
  // A load and a store each. 32 lanes x 4 bytes in a row: 128 bytes, four sectors.
  EXPECT_EQ(nonzero(launch(Probe::kCopy4)), global(2, 4 + 4, 4 + 4, 256));
  EXPECT_EQ(nonzero(launch(Probe::kCopy4, 5)), global(10, 40, 40, 1280));
  // The store is moved by four bytes, so that it touches a fifth sector, and that a second line.
  EXPECT_EQ(nonzero(launch(Probe::kCopyTo1)), global(2, 4 + 5, 4 + 4, 256));
  uint64_t lines = 0;
  for (const emu::LineCounts& line : emu::take_lines()) lines += line.counts.cache_lines;
  EXPECT_EQ(lines, 1u + 2u);
  // 16 bytes a lane: one request of 16 sectors, not four.
  EXPECT_EQ(nonzero(launch(Probe::kCopy16)), global(2, 16 + 16, 16 + 16, 1024));
  // The same bytes by four requests: each touches all 16 sectors, for 128 bytes that would fill 4.
  EXPECT_EQ(nonzero(launch(Probe::kCopy16ByRow)), global(8, 8 * 16, 8 * 4, 1024));
  // 128 bytes apart: a sector a lane for four bytes of it.
  EXPECT_EQ(nonzero(launch(Probe::kStrided)), global(2, 32 + 4, 4 + 4, 256));
  // All ask for the same four bytes: no order of the bytes would need less than one sector.
  EXPECT_EQ(nonzero(launch(Probe::kBroadcast)), global(2, 1 + 4, 1 + 4, 256));
  EXPECT_EQ(nonzero(launch(Probe::kHalfWarp)), global(2, 2 + 2, 2 + 2, 128));
  EXPECT_EQ(nonzero(launch(Probe::kStackOnly)), Counts{});
}

TEST(CheckedCounters, DivergedLanes) {
  // Lane i copies i % 3 + 1 elements, so that 32, 21 and 10 lanes take part in the three turns; all
  // four sectors of the 128 bytes are touched each time, for 128, 84 and 40 bytes.
  EXPECT_EQ(nonzero(launch(Probe::kUneven)),
            global(6, 2 * 12, 2 * (4 + 3 + 2), 2 * 4 * (32 + 21 + 10)));
}

Counts shared(uint64_t wavefronts) {  // a store and a load alike, a store to global memory
  Counts result = global(1, 4, 4, 128);
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

// ---- counts by line -----------------------------------------------------------------------------
// "+3 ldmatrix": {"requests": 2, ...}, lines counted from probe::line_before.
std::map<std::string, Counts> by_line(const std::vector<emu::LineCounts>& lines) {
  std::map<std::string, Counts> result;
  const std::string file = "common/emulator/tests/checked_kernels.cpp:";
  for (const emu::LineCounts& line : lines) {
    EXPECT_EQ(line.at.rfind(file, 0), 0u) << line.at;
    const int number = atoi(line.at.c_str() + file.size()) - probe::line_before;
    Counts& counts = result["+" + std::to_string(number) + " " + name_of(line.kind)];
    EXPECT_TRUE(counts.empty()) << line.at << " is there twice";
    line.counts.for_each([&](const char* name, uint64_t value) {
      if (value) counts[name] = value;
    });
  }
  return result;
}

// Two warps a CTA, two CTAs: four times what a warp does.
TEST(CheckedLines, EveryKindOfInstruction) {
  emu::options().races = false;  // all rows are read, few are written
  const emu::Counters totals = launch(Probe::kEveryKind, 2, 64);
  emu::options().races = true;
  const auto in_shared = [](uint64_t wavefronts, uint64_t ideal, uint64_t bytes) {
    return Counts{{"wavefronts", wavefronts}, {"wavefronts_ideal", ideal}, {"bytes", bytes}};
  };
  const auto in_global = [](uint64_t sectors, uint64_t lines) {
    return Counts{
        {"sectors", sectors}, {"sectors_ideal", 4}, {"cache_lines", lines}, {"bytes", 128}};
  };
  // Eight lanes at a time write eight rows: 8 wavefronts for one. Reads are side by side, but the
  // halves of each sector go to different lines of shared memory.
  const auto copied = [](uint64_t sectors_ideal, uint64_t bytes) {
    return Counts{{"wavefronts", 32},
                  {"wavefronts_ideal", 4},
                  {"sectors", 32},
                  {"sectors_ideal", sectors_ideal},
                  {"bytes", bytes}};
  };
  std::map<std::string, Counts> expected = {
      // 16 bytes apart, in 16 sectors; and 128 bytes apart: all lanes meet in one bank.
      {"+1 global load", in_global(16, 4)},
      {"+1 shared store", in_shared(32, 1, 128)},
      {"+2 syncwarp", {}},
      {"+3 shared load", in_shared(32, 1, 128)},
      {"+3 global store", in_global(4, 1)},
      {"+4 cp.async", copied(16, 512)},
      {"+5 cp.async", copied(4, 128)},  // only four bytes of 16 are read
      {"+7 barrier", {}},
      {"+8 ldmatrix", in_shared(32, 4, 512)},
      {"+9 ldmatrix", in_shared(4, 4, 512)},
      {"+10 stmatrix", in_shared(32, 4, 512)},
      {"+11 mma.m16n8k16", {{"flops", 2 * 16 * 8 * 16}}},
      {"+12 mma.m16n8k8", {{"flops", 2 * 16 * 8 * 8}}},
      {"+13 wmma load", in_shared(32, 4, 512)},
      {"+14 wmma.m16n16k16", {{"flops", 2 * 16 * 16 * 16}}},
      // 64 bytes a row: of the four rows that are served together two meet in the same banks.
      {"+15 wmma store", in_shared(16, 8, 1024)},
      {"+16 exp2", {{"operations", 64}}},
      {"+17 shuffle", {}},
      {"+18 vote", {}},
      // A load that goes straight into a function's argument has the line of the call.
      {"+19 shared load", in_shared(32, 1, 64)},
  };
  // One request each, of the wmma store four; exponentials are counted by thread.
  for (auto& [key, counts] : expected) {
    if (key != "+16 exp2") counts["requests"] = key == "+15 wmma store" ? 4 : 1;
  }
  Counts sums;
  for (auto& [key, counts] : expected) {
    for (auto& [name, value] : counts) sums[name] += value *= 4;
  }
  expected["+7 barrier"]["waits"] = 2;  // of two warps the one that comes first
  const std::vector<emu::LineCounts> lines = emu::take_lines();
  EXPECT_EQ(by_line(lines), expected);
  EXPECT_TRUE(emu::take_lines().empty()) << "they are taken once";

  // The totals are their sums.
  Counts counters = nonzero(totals);
  EXPECT_EQ(counters["shared_wavefronts"], sums["wavefronts"]);
  EXPECT_EQ(counters["shared_wavefronts_ideal"], sums["wavefronts_ideal"]);
  EXPECT_EQ(counters["shared_requests"], 4u * 13) << "four of them of the wmma store";
  EXPECT_EQ(counters["global_sectors"], sums["sectors"]);
  EXPECT_EQ(counters["global_sectors_ideal"], sums["sectors_ideal"]);
  EXPECT_EQ(counters["global_requests"], 4u * 4);
  EXPECT_EQ(counters["global_bytes"], 4u * (128 + 128 + 512 + 128));
  EXPECT_EQ(counters["matrix_flops"], sums["flops"]);
  EXPECT_EQ(counters["matrix_products"], 4u * 4) << "two of them of the wmma product";
  EXPECT_EQ(counters["async_copies"], 4u * 64);
  EXPECT_EQ(counters["exp2"], sums["operations"]);
  EXPECT_EQ(counters["barriers"], 4u);
  EXPECT_EQ(counters["barrier_waits"], 2u);
  EXPECT_EQ(counters["syncwarps"], 4u);
  EXPECT_EQ(counters["ldmatrix"], 4u * 2);
  EXPECT_EQ(counters["stmatrix"], 4u);
  EXPECT_EQ(counters["shuffles"], 4u);
  EXPECT_EQ(counters["votes"], 4u);
}

// ---- errors -------------------------------------------------------------------------------------
class CheckedErrors : public testing::TestWithParam<std::pair<Probe, std::string>> {};

TEST_P(CheckedErrors, AreNamedWithTheirPlace) {
  const auto& [kernel, text] = GetParam();
  const std::string message = failure(kernel);
  EXPECT_CONTAINS(message, "common/emulator/tests/checked_kernels.cpp:" +
                               std::to_string(probe::fault_line) + ": " + text);
  EXPECT_EQ(message.rfind("probe, CTA (0,0,0), thread ", 0), 0u) << message;
}
INSTANTIATE_TEST_SUITE_P(
    Accesses, CheckedErrors,
    testing::Values(
        std::pair{Probe::kPastGlobal,
                  "load of 4 bytes 0 bytes past the end of global buffer in (16000 bytes)"},
        std::pair{Probe::kBeforeGlobal,
                  "store of 4 bytes 4 bytes before the start of global buffer out"},
        std::pair{Probe::kAcrossGlobal,
                  "load of 16 bytes 0 bytes past the end of global buffer in"},
        std::pair{Probe::kPastShared,
                  "store of 4 bytes 0 bytes past the end of shared memory (4224 bytes)"},
        std::pair{Probe::kMisaligned4, "load of 4 bytes at an address that is not a multiple of 4"},
        std::pair{Probe::kMisaligned16,
                  "load of 16 bytes at an address that is not a multiple of 16"}));

class CheckedLoops : public testing::Test {
 protected:
  void SetUp() override { emu::options().most_accesses = size_t(1) << 17; }
  void TearDown() override { emu::options() = {}; }
};

TEST_F(CheckedLoops, OfAThreadAloneMayBeLong) {
  EXPECT_EQ(nonzero(launch(Probe::kLong, 1, 1)), global(200001, 200001, 200001, 4 * 200001));
}

TEST_F(CheckedLoops, OfAThreadBesideOthersHaveALimit) {
  const std::string message = failure(Probe::kLong);
  EXPECT_CONTAINS(message,
                  "common/emulator/tests/checked_kernels.cpp:" + std::to_string(probe::fault_line) +
                      ": access 131072 to memory since the threads of its warp last met, "
                      "and no more are kept\n  A loop without end? ");
  EXPECT_CONTAINS(message,
                  "A long loop needs a\n  __syncwarp() where all threads of the warp pass");
}

TEST_F(CheckedLoops, WithoutEndAreEnded) {
  emu::options().patience = 0.2;
  const std::string message = failure(Probe::kWithoutEnd, 1);
  EXPECT_CONTAINS(message,
                  "common/emulator/tests/checked_kernels.cpp:" + std::to_string(probe::fault_line) +
                      ": has run without a word to the other threads for 0.2 s of "
                      "processor time (--patience)\n  A loop without end? ");
}

}  // namespace
}  // namespace fa::test
