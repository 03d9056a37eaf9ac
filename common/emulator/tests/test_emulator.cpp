// The emulator's machine: threads, barriers, warp instructions, and what it says when a kernel is
// wrong.
#include <pthread.h>

#include <time.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <ios>
#include <limits>
#include <optional>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "common/emulator/core/first_nan.h"
#include "common/emulator/core/launch.h"
#include "common/emulator/core/memory.h"
#include "common/emulator/include/cuda_runtime.h"
#include "common/emulator/units/barrier.h"
#include "common/harness/runner.h"
#include "common/launch/launch.h"
#include "common/ptx/mma.h"
#include "tests/support.h"

namespace {

using emu::kFullMask;

// Runs `body` as a kernel called "probe" and returns what it did.
emu::Counters run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& body) {
  emu::take_counters();
  emu::launch("probe", grid, block, shared_bytes, body);
  return emu::take_counters();
}

// The error that the launch ends with.
std::string failure(dim3 block, const std::function<void()>& body, size_t shared_bytes = 0) {
  return fa::test::error_of<emu::LaunchError>([&] { run(dim3(1), block, shared_bytes, body); });
}

std::string here(int line) {
  return "common/emulator/tests/test_emulator.cpp:" + std::to_string(line);
}

int lane_idx() { return int(threadIdx.x % 32); }

// ---- threads ------------------------------------------------------------------------------------
TEST(Threads, EveryThreadOfOddShapesRunsOnce) {
  const dim3 grids[] = {1, {7, 1, 1}, {3, 2, 2}};
  const dim3 blocks[] = {1, 31, 32, 33, {5, 3, 2}, {7, 9, 3}, {32, 32, 1}, {1, 1, 64}, 1024};
  for (const dim3 grid : grids) {
    for (const dim3 block : blocks) {
      const unsigned threads = block.x * block.y * block.z, ctas = grid.x * grid.y * grid.z;
      std::vector<int> runs(threads * ctas);
      run(grid, block, 0, [&] {
        const unsigned thread = threadIdx.x + block.x * (threadIdx.y + block.y * threadIdx.z);
        const unsigned cta = blockIdx.x + grid.x * (blockIdx.y + grid.y * blockIdx.z);
        const emu::Lane& lane = *emu::current_lane;
        const bool right = lane.thread == int(thread) && lane.lane == int(thread % 32) &&
                           lane.warp->index == int(thread / 32) && blockDim.x == block.x &&
                           blockDim.y == block.y && blockDim.z == block.z && gridDim.x == grid.x &&
                           gridDim.y == grid.y && gridDim.z == grid.z;
        runs[cta * threads + thread] += right ? 1 : 1000;
      });
      EXPECT_EQ(runs, std::vector<int>(runs.size(), 1))
          << threads << " threads, " << ctas << " CTAs";
    }
  }
}

TEST(Threads, ImpossibleLaunchesAreRefused) {
  const auto nothing = [] {};
  for (const dim3 block : {dim3(0), dim3(1025), dim3(33, 32), dim3(2, 2, 512)}) {
    EXPECT_THROW(emu::launch("probe", dim3(1), block, 0, nothing), emu::LaunchError);
  }
  EXPECT_THROW(emu::launch("probe", dim3(0), dim3(32), 0, nothing), emu::LaunchError);
  EXPECT_THROW(emu::launch("probe", dim3(1, 0), dim3(32), 0, nothing), emu::LaunchError);
}

// The system refuses threads whose stacks have this size; those that do run then do all the work.
TEST(Threads, ALaunchEndsWithFewerOsThreadsThanWanted) {
  pthread_attr_t usual, huge;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t(1) << 56), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  EXPECT_THROW(std::thread([] {}).join(), std::system_error);
  emu::options().os_threads = 4;
  std::vector<int> runs(8);
  EXPECT_NO_THROW(run(dim3(8), dim3(32), 0, [&] { runs[blockIdx.x]++; }));
  EXPECT_EQ(runs, std::vector<int>(8, 32));
  emu::options() = {};
  EXPECT_EQ(pthread_setattr_default_np(&usual), 0);
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&usual);
}

TEST(Threads, ArithmeticStaysOnTheThreadsOwnStack) {
  std::vector<float> sums(256);
  run(dim3(1), dim3(256), 0, [&] {
    float local[64];
    for (int i = 0; i < 64; i++) {
      local[i] = float(threadIdx.x + i);
      if (i % 8 == 0) __syncthreads();
    }
    for (const float value : local) sums[threadIdx.x] += value;
  });
  for (size_t i = 0; i < 256; i++) EXPECT_EQ(sums[i], 64.0f * float(i) + 2016.0f);
}

// What a register held before is no zero: of the first CTA of a launch, and of one whose stacks
// another has used. (Calls before the kernel's body leave some words of their own.)
TEST(Threads, ARegisterThatIsNotSetIsNoNumber) {
  emu::options().os_threads = 1;
  std::vector<int> numbers(3 * 64);
  run(dim3(3), dim3(64), 0, [&] {
    float unset[512];
    asm volatile("" : "=m"(unset));  // the compiler believes that this sets them
    for (const float value : unset) numbers[blockIdx.x * 64 + threadIdx.x] += value == value;
    for (float& value : unset) value = 1.0f;
    asm volatile("" ::"m"(unset));
  });
  for (const int count : numbers) EXPECT_LE(count, 512 / 16);
  emu::options() = {};
}

// ---- patience -----------------------------------------------------------------------------------
class Patience : public testing::Test {
 protected:
  void SetUp() override { emu::options().patience = 0.3; }
  void TearDown() override {
    emu::options() = {};
    EXPECT_EQ(failure(64, [] { __syncthreads(); }), "no error");  // the emulator goes on
  }
};

TEST_F(Patience, ALoopWithoutEndIsInterruptedWhereItIs) {
  int first = 0;
  const std::string text = failure(64, [&] {
    volatile int flag = 0;
    first = __LINE__ + 1;
    while (threadIdx.x == 37 && flag == 0) {
    }
    __syncthreads();
  });
  EXPECT_CONTAINS(text, "probe, CTA (0,0,0), thread 37 (warp 1 lane 5): " + here(first));
  EXPECT_CONTAINS(text, "has run without a word to the other threads for 0.3 s");
}

TEST_F(Patience, OfManyCtasAndOsThreads) {
  emu::options().os_threads = 3;
  volatile int flag = 0;
  EXPECT_THROW(run(dim3(7), dim3(64), 0,
                   [&] {
                     while (flag == 0) {
                     }
                   }),
               emu::LaunchError);
}

// Threads that let each other run, and ask again and again for what none of them does.
TEST_F(Patience, ThreadsThatOnlyAsk) {
  const std::string text = failure(64, [&] {
    if (threadIdx.x == 0) __syncthreads();
    while (true) emu::yield();
  });
  EXPECT_CONTAINS(text, "no thread has got anywhere for 0.3 s");
  EXPECT_CONTAINS(text, "warp 0 lane 0: waits in __syncthreads");
  EXPECT_CONTAINS(text, "warp 1 lanes 0-31: can run");
}

// It is no limit of a launch's time, nor of a CTA's.
TEST_F(Patience, LastsWhileThreadsGetSomewhere) {
  const auto work = [] {
    const auto seconds = [] {
      timespec now{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
      return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
    };
    for (const double end = seconds() + 0.02; seconds() < end;) {
    }
  };
  EXPECT_EQ(failure(32,
                    [&] {
                      work();
                      __syncthreads();
                    }),
            "no error");
  emu::options().patience = 0;  // none
  EXPECT_EQ(failure(1,
                    [&] {
                      for (int i = 0; i < 30; i++) work();
                    }),
            "no error");
}

// ---- long launches ------------------------------------------------------------------------------
class LongLaunch : public testing::Test {
 protected:
  void TearDown() override { emu::options() = {}; }
  // 20 CTAs, one after the other, each of which meets others for 0.04 s.
  static void run_long() {
    emu::options().os_threads = 1;
    run(dim3(20), dim3(64), 0, [] {
      for (int i = 0; i < 20; i++) {
        if (threadIdx.x == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        __syncthreads();
      }
    });
  }
};

TEST_F(LongLaunch, SaysHowFarItIs) {
  testing::internal::CaptureStderr();
  run_long();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  emu::options().report_after = 0.2;
  testing::internal::CaptureStderr();
  run_long();
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_CONTAINS(text, "note: probe: ");
  EXPECT_CONTAINS(text, " of 20 CTAs have ended after 0.2 s");
  EXPECT_CONTAINS(text, " of 20 CTAs have ended after 0.8 s");
  EXPECT_EQ(text.find("without checks") != std::string::npos, emu::is_checked());
}

// Between two turns of its threads, not only between two CTAs.
TEST_F(LongLaunch, EndsWhenItsCallerWantsThat) {
  for (const bool random : {false, true}) {
    if (random) emu::options().schedule = emu::Schedule::kRandom;
    const auto begin = std::chrono::steady_clock::now();
    emu::options().wants_end = [] { return true; };
    const std::string text = failure(64, [] {
      while (true) __syncthreads();
    });
    EXPECT_EQ(text, "the launch was ended before it was done");
    EXPECT_THROW(run(dim3(64), dim3(64), 0,
                     [] {
                       while (true) emu::yield();
                     }),
                 emu::LaunchError);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    emu::options() = {};
    EXPECT_EQ(failure(64, [] { __syncthreads(); }), "no error");  // the emulator goes on
  }
}

// ---- barriers -----------------------------------------------------------------------------------
TEST(Barriers, SyncthreadsSeparatesPhases) {
  std::vector<int> data(100), bad(100);
  const auto counters = run(dim3(1), dim3(100), 0, [&] {
    for (int phase = 0; phase < 3; phase++) {
      data[threadIdx.x] = phase * 100 + int(threadIdx.x);
      __syncthreads();
      const unsigned other = (threadIdx.x * 37 + 11) % 100;
      bad[threadIdx.x] += data[other] != phase * 100 + int(other);
      __syncthreads();
    }
  });
  EXPECT_EQ(bad, std::vector<int>(100, 0));
  EXPECT_EQ(counters.barriers, 4u * 6) << "4 warps, 6 barriers";
}

TEST(Barriers, ThreadsThatExitedAreNotWaitedFor) {
  // Some leave before, some while the others wait; the first warp, the last one, half a warp.
  for (const unsigned stay : {1u, 32u, 40u, 64u}) {
    for (const bool first : {true, false}) {
      int met = 0;
      run(dim3(1), dim3(96), 0, [&] {
        const unsigned rank = first ? threadIdx.x : 95 - threadIdx.x;
        if (rank >= stay) return;
        __syncthreads();
        met++;
        __syncthreads();
        if (met != int(stay)) met = -1000;
      });
      EXPECT_EQ(met, int(stay));
    }
  }
}

TEST(Barriers, NamedBarriersAreIndependent) {
  // Two halves of the CTA loop over a barrier of their own, a different number of times.
  int left = 0, right = 0;
  bool wrong = false;
  const auto counters = run(dim3(1), dim3(128), 0, [&] {
    const bool is_left = threadIdx.x < 64;
    int& count = is_left ? left : right;
    for (int i = 1; i <= (is_left ? 3 : 5); i++) {
      emu::barrier_sync(is_left ? 1 : 15, 64, "bar.sync", emu::SourceLocation::current());
      count++;
      emu::barrier_sync(is_left ? 1 : 15, 64, "bar.sync", emu::SourceLocation::current());
      if (count != 64 * i) wrong = true;
    }
  });
  EXPECT_FALSE(wrong);
  EXPECT_EQ(left, 3 * 64);
  EXPECT_EQ(right, 5 * 64);
  EXPECT_EQ(counters.barriers, 2u * 6 + 2u * 10);
}

TEST(Barriers, ABarrierWithoutCountWaitsForAllLiveThreads) {
  int met = 0;
  run(dim3(1), dim3(96), 0, [&] {
    if (threadIdx.x >= 64) return;
    met++;
    emu::barrier_sync(3, 0, "barrier.sync", emu::SourceLocation::current());
    if (met != 64) met = -1000;
  });
  EXPECT_EQ(met, 64);
}

TEST(Barriers, MisuseIsNamed) {
  const auto where = emu::SourceLocation::current();
  const auto sync = [&](int barrier, int count) {
    return failure(dim3(64), [=] { emu::barrier_sync(barrier, count, "bar.sync", where); });
  };
  EXPECT_CONTAINS(sync(16, 64), "barrier 16 does not exist, a CTA has 0 to 15");
  EXPECT_CONTAINS(sync(-1, 64), "barrier -1 does not exist");
  EXPECT_CONTAINS(sync(1, 33), "33 threads are not a whole number of warps");
  EXPECT_CONTAINS(sync(1, 64 + 32), "barrier 1: 64 of 96 threads have arrived");
  EXPECT_CONTAINS(
      failure(dim3(64),
              [&] { emu::barrier_sync(1, threadIdx.x < 32 ? 64 : 32, "bar.sync", where); }),
      "expects 32 threads, but others wait at barrier 1 for 64");
}

TEST(Syncwarp, PartialMasksMeetAmongThemselves) {
  // The halves of the warp run loops of different lengths.
  int counts[2] = {};
  bool wrong = false;
  run(dim3(1), dim3(32), 0, [&] {
    const int half = lane_idx() / 16;
    const uint32_t mask = half ? 0xffff0000u : 0x0000ffffu;
    for (int i = 1; i <= 3 + 4 * half; i++) {
      counts[half]++;
      __syncwarp(mask);
      if (counts[half] != 16 * i) wrong = true;
      __syncwarp(mask);
    }
    __syncwarp();
    if (counts[0] != 48 || counts[1] != 112) wrong = true;
  });
  EXPECT_FALSE(wrong);
}

// ---- shuffles -----------------------------------------------------------------------------------
// PTX ISA, "shfl.sync": the lane that `lane` reads. Nothing if that lane takes no part (undefined).
std::optional<int> source_lane(emu::ShuffleMode mode, int lane, int selector, int width,
                               uint32_t mask) {
  const int segment = 32 - width;          // bits of the lane number that select the segment
  const int b = selector & 31;             // five bits count
  const int low = lane & segment;          // first lane of the segment
  const int high = low | (~segment & 31);  // its last
  int source = 0;
  bool in_range = false;
  switch (mode) {
    case emu::ShuffleMode::kUp:
      source = lane - b;
      in_range = source >= low;
      break;
    case emu::ShuffleMode::kDown:
      source = lane + b;
      in_range = source <= high;
      break;
    case emu::ShuffleMode::kXor:
      source = lane ^ b;
      in_range = source <= high;
      break;
    case emu::ShuffleMode::kIndex:
      source = low | (b & ~segment);
      in_range = source <= high;
      break;
  }
  if (!in_range) source = lane;
  if (!(mask >> source & 1)) return std::nullopt;
  return source;
}

uint32_t shuffle(emu::ShuffleMode mode, uint32_t mask, uint32_t value, int selector, int width) {
  switch (mode) {
    case emu::ShuffleMode::kIndex:
      return __shfl_sync(mask, value, selector, width);
    case emu::ShuffleMode::kUp:
      return __shfl_up_sync(mask, value, unsigned(selector), width);
    case emu::ShuffleMode::kDown:
      return __shfl_down_sync(mask, value, unsigned(selector), width);
    case emu::ShuffleMode::kXor:
      break;
  }
  return __shfl_xor_sync(mask, value, selector, width);
}

class ShuffleModes : public testing::TestWithParam<int> {
 protected:
  const emu::ShuffleMode mode = emu::ShuffleMode(GetParam());
};
const char* const kModes[] = {"Index", "Up", "Down", "Xor"};
INSTANTIATE_TEST_SUITE_P(All, ShuffleModes, testing::Range(0, 4),
                         [](const auto& test) { return kModes[test.param]; });

TEST_P(ShuffleModes, FollowsThePtxIsa) {
  int compared = 0, wrong = 0;
  uint64_t expected_shuffles = 0;
  emu::Counters counters;
  for (const uint32_t mask : {kFullMask, 0x0000ffffu, 0xffff0000u, 0x000000f0u, 0x55555555u}) {
    // Lanes of the mask do all combinations that the PTX ISA defines, in one launch.
    std::vector<std::pair<int, int>> defined;  // selector, width
    for (const int width : {1, 2, 4, 8, 16, 32}) {
      for (int selector = -3; selector <= 40; selector++) {
        bool all = true;
        for (int lane = 0; lane < 32; lane++) {
          all = all && (!(mask >> lane & 1) || source_lane(mode, lane, selector, width, mask));
        }
        if (all) defined.emplace_back(selector, width);
      }
    }
    EXPECT_GE(defined.size(), 40u);
    expected_shuffles += defined.size();
    counters += run(dim3(1), dim3(32), 0, [&] {
      const int lane = lane_idx();
      if (!(mask >> lane & 1)) return;
      for (const auto& [selector, width] : defined) {
        const uint32_t result =
            shuffle(mode, mask, uint32_t(lane) * 0x01010101u + 5, selector, width);
        const int source = *source_lane(mode, lane, selector, width, mask);
        wrong += result != uint32_t(source) * 0x01010101u + 5;
        compared++;
      }
    });
  }
  EXPECT_EQ(wrong, 0) << "of " << compared;
  EXPECT_EQ(counters.shuffles, expected_shuffles) << "one a warp, not one a lane";
}

TEST_P(ShuffleModes, ReadingALaneThatTakesNoPartIsAnError) {
  // Lanes 4 to 7 alone: reaching out of the mask.
  const int selector = mode == emu::ShuffleMode::kIndex ? 0 : mode == emu::ShuffleMode::kUp ? 3 : 8;
  const std::string text = failure(dim3(32), [&] {
    if (lane_idx() / 4 == 1) shuffle(mode, 0xf0, 1, selector, 32);
  });
  EXPECT_CONTAINS(text, "which does not take part");
  EXPECT_CONTAINS(text, "common/emulator/tests/test_emulator.cpp:");
}

TEST(Shuffle, CarriesBitsOfAnyType) {
  std::vector<uint32_t> bits(32);
  std::vector<int> ints(32);
  run(dim3(1), dim3(32), 0, [&] {
    const float value =
        std::bit_cast<float>(0x7fa00000u + unsigned(lane_idx()));  // signalling NaNs
    bits[threadIdx.x] = std::bit_cast<uint32_t>(__shfl_xor_sync(kFullMask, value, 1));
    ints[threadIdx.x] = __shfl_down_sync(kFullMask, -lane_idx(), 1);
  });
  for (unsigned lane = 0; lane < 32; lane++) {
    EXPECT_EQ(bits[lane], 0x7fa00000u + (lane ^ 1));
    EXPECT_EQ(ints[lane], lane < 31 ? -int(lane) - 1 : -31);
  }
}

TEST(Shuffle, LanesMayHaveSelectorsOfTheirOwn) {
  std::vector<int> got(32);
  run(dim3(1), dim3(32), 0,
      [&] { got[threadIdx.x] = __shfl_sync(kFullMask, lane_idx(), 31 - lane_idx()); });
  for (int lane = 0; lane < 32; lane++) EXPECT_EQ(got[size_t(lane)], 31 - lane);
}

TEST(Shuffle, BadWidthIsAnError) {
  for (const int width : {0, -1, 3, 24, 33, 64}) {
    EXPECT_CONTAINS(failure(dim3(32), [&] { __shfl_sync(kFullMask, 1, 0, width); }),
                    "is not a power of two up to 32");
  }
}

// ---- votes --------------------------------------------------------------------------------------
TEST(Votes, AgreeWithTheirDefinition) {
  std::mt19937 random(1);
  for (int turn = 0; turn < 50; turn++) {
    const uint32_t mask = turn == 0 ? kFullMask : (random() & random()) | 1u << (turn % 32);
    const uint32_t predicates = turn % 5 == 0 ? mask : turn % 5 == 1 ? 0 : random();
    int wrong = 0;
    const auto counters = run(dim3(1), dim3(32), 0, [&] {
      const int lane = lane_idx();
      if (!(mask >> lane & 1)) return;
      const int predicate = predicates >> lane & 1 ? lane + 1 : 0;  // any number but 0 is true
      wrong += __ballot_sync(mask, predicate) != (predicates & mask);
      wrong += __any_sync(mask, predicate) != ((predicates & mask) != 0);
      wrong += __all_sync(mask, predicate) != ((predicates & mask) == mask);
    });
    EXPECT_EQ(wrong, 0) << std::hex << mask << " " << predicates;
    EXPECT_EQ(counters.votes, 3u);
  }
}

TEST(Votes, LanesThatExitedDoNotVote) {
  uint32_t ballot = 0;
  run(dim3(1), dim3(32), 0, [&] {
    if (lane_idx() >= 20) return;
    ballot = __ballot_sync(kFullMask, 1);
  });
  EXPECT_EQ(ballot, 0x000fffffu);
  run(dim3(1), dim3(40), 0, [&] {  // a last warp of eight threads
    if (threadIdx.x >= 32) ballot = __ballot_sync(kFullMask, 1);
  });
  EXPECT_EQ(ballot, 0xffu);
}

TEST(Votes, AnExitCompletesWhatOthersWaitFor) {
  uint32_t ballot = 0;
  run(dim3(1), dim3(64), 0, [&] {
    if (threadIdx.x / 32 == 1) return;
    if (lane_idx() == 31) return;  // the last lane to run, after all others have arrived
    ballot = __ballot_sync(kFullMask, 1);
  });
  EXPECT_EQ(ballot, 0x7fffffffu);
}

// ---- errors: never a hang, always a place -------------------------------------------------------
TEST(Deadlock, DumpSaysWhoWaitsWhere) {
  const int line = __LINE__ + 3;
  const std::string text = failure(dim3(128), [] {
    if (threadIdx.x < 32) {
      __syncthreads();
    } else if (threadIdx.x < 64) {
      emu::barrier_sync(1, 96, "bar.sync", emu::SourceLocation::current());
    } else if (threadIdx.x < 96) {
      if (lane_idx() < 8)
        __syncwarp();
      else
        __syncthreads();
    }
  });
  EXPECT_CONTAINS(text, "deadlock in probe, CTA (0,0,0): no thread can run");
  EXPECT_CONTAINS(text, "warp 0 lanes 0-31: waits in __syncthreads() at " + here(line) +
                            " (barrier 0: 56 of 96 threads have arrived)");
  EXPECT_CONTAINS(text, "warp 1 lanes 0-31: waits in bar.sync at " + here(line + 2) +
                            " (barrier 1: 32 of 96 threads have arrived)");
  EXPECT_CONTAINS(text, "warp 2 lanes 0-7: waits in __syncwarp() at " + here(line + 5) +
                            " (for the lanes 0xffffffff of its warp)");
  EXPECT_CONTAINS(text, "warp 2 lanes 8-31: waits in __syncthreads() at " + here(line + 7));
  EXPECT_CONTAINS(text, "warp 3 lanes 0-31: has exited");
}

TEST(Deadlock, OneWarpDoesNotReachTheBarrier) {
  const std::string text = failure(dim3(64), [] {
    if (threadIdx.x < 32) emu::barrier_sync(2, 64, "bar.sync", emu::SourceLocation::current());
  });
  EXPECT_CONTAINS(text, "barrier 2: 32 of 64 threads have arrived");
  EXPECT_CONTAINS(text, "warp 1 lanes 0-31: has exited");
}

TEST(Deadlock, NeighbouringWarpsThatDoTheSameAreOneLine) {
  const int line = __LINE__ + 2;
  const std::string text = failure(dim3(192), [] {
    if (threadIdx.x < 96) emu::barrier_sync(2, 192, "bar.sync", emu::SourceLocation::current());
    if (threadIdx.x >= 160) emu::barrier_sync(3, 64, "bar.sync", emu::SourceLocation::current());
  });
  EXPECT_CONTAINS(text, "\n  warps 0-2 lanes 0-31: waits in bar.sync at " + here(line));
  EXPECT_CONTAINS(text, "\n  warps 3-4 lanes 0-31: has exited");
  EXPECT_CONTAINS(text, "\n  warp 5 lanes 0-31: waits in bar.sync at " + here(line + 1));
}

TEST(Deadlock, TheEmulatorIsUsableAfterwards) {
  for (int turn = 0; turn < 3; turn++) {
    EXPECT_CONTAINS(failure(dim3(64),
                            [] {
                              std::vector<int> owner(
                                  1000);  // unwound with the lane: the leak checker would see it
                              if (threadIdx.x == 0) __syncwarp();
                              __syncthreads();
                            }),
                    "deadlock");
    int ran = 0;
    run(dim3(1), dim3(64), 0, [&] {
      __syncthreads();
      ran++;
    });
    EXPECT_EQ(ran, 64);
  }
}

TEST(Deadlock, OneOfManyCtasEndsTheLaunch) {
  const std::string text = fa::test::error_of<emu::LaunchError>([] {
    run(dim3(3, 20, 2), dim3(32), 0, [] {
      const bool chosen = blockIdx.x == 1 && blockIdx.y == 7 && blockIdx.z == 1;
      if (chosen) emu::barrier_sync(1, 64, "bar.sync", emu::SourceLocation::current());
    });
  });
  EXPECT_CONTAINS(text, "deadlock in probe, CTA (1,7,1)");
}

TEST(Collectives, DivergedLanesMustAgree) {
  const auto with = [](uint32_t low_mask, uint32_t high_mask) {
    return failure(dim3(32), [=] { __ballot_sync(lane_idx() < 16 ? low_mask : high_mask, 1); });
  };
  EXPECT_EQ(with(0xffff, 0xffff0000u), "no error");
  EXPECT_EQ(with(0xffff, kFullMask), "no error")
      << "the lower half has exited when the upper one arrives";
  // Each waits for the other, in another instruction.
  EXPECT_CONTAINS(with(kFullMask, 0xffff0001u),
                  "the lanes that a mask names must execute the same instruction");
  EXPECT_CONTAINS(with(0xffff, 0xffff), "the mask 0x0000ffff does not name the calling lane");
  const int line = __LINE__ + 3;
  const std::string text = failure(dim3(32), [] {
    if (lane_idx() == 3)
      __any_sync(kFullMask, 1);
    else
      __shfl_sync(kFullMask, 1, 0);
  });
  EXPECT_CONTAINS(text, "__any_sync() at " + here(line));
  EXPECT_CONTAINS(text, "__shfl_sync() at " + here(line + 2));
  EXPECT_CONTAINS(text, "probe, CTA (0,0,0), thread ");
}

// ---- memory -------------------------------------------------------------------------------------
struct Storage {
  uint8_t bytes[100];  // no multiple of the alignment: a pattern follows, then the protected page
};

TEST(SharedMemory, IsPoisonedAtTheStartOfEveryCta) {
  int fresh = 0;
  emu::options().os_threads = 1;
  run(dim3(5), dim3(32), sizeof(Storage), [&] {
    auto& smem = fa::shared_storage<Storage>();
    if (threadIdx.x == 0) {
      int poisoned = 0;
      for (const uint8_t byte : smem.bytes) poisoned += byte == emu::kPoison;
      fresh += poisoned == 100;
      memset(smem.bytes, 0, sizeof smem.bytes);
    }
  });
  emu::options().os_threads = 0;
  EXPECT_EQ(fresh, 5);
  float poison;
  memset(&poison, emu::kPoison, sizeof poison);
  EXPECT_TRUE(std::isnan(poison));
}

// An element of an array that nothing has set, deep in the stack; then all of it is set.
[[gnu::noinline]] float unset_element() {
  float array[1024];
  asm volatile("" : "=m"(array[0]) : "r"(array) : "memory");
  const float unset = array[700];
  for (float& each : array) each = 1.0f;
  asm volatile("" : : "r"(array) : "memory");
  return unset;
}

// Also of CTAs that come after many whose threads need little of their stacks.
TEST(Registers, ThatAreNotSetAreNoNumbers) {
  int numbers = 0;
  emu::options().os_threads = 1;
  run(dim3(60), dim3(32), 0, [&] {
    const bool deep = blockIdx.x < 3 || blockIdx.x > 25;
    if (deep && !std::isnan(unset_element())) numbers++;
  });
  emu::options().os_threads = 0;
  EXPECT_EQ(numbers, 0);
}

TEST(SharedMemory, StorageLargerThanTheLaunchIsAnError) {
  EXPECT_CONTAINS(failure(
                      dim3(32), [] { fa::shared_storage<Storage>(); }, 99),
                  "the kernel's SharedStorage has 100 bytes, but it was launched with 99");
}

TEST(SharedMemory, WritesOutsideAreFound) {
  for (const int at : {-1, 100, 300}) {
    const std::string text = failure(
        dim3(32),
        [&] {
          volatile uint8_t* const bytes = fa::shared_storage<Storage>().bytes;
          if (threadIdx.x == 9) bytes[at] = 1;
        },
        sizeof(Storage));
    EXPECT_CONTAINS(text, "wrote outside shared memory, at byte " + std::to_string(at) +
                              " of a SharedStorage of 100 bytes");
  }
}

TEST(GlobalMemory, WritesOutsideAreFound) {
  for (const int at : {-1, 100, 155}) {
    const fa::Buffer buffer("O", 100);
    volatile uint8_t* const bytes = static_cast<uint8_t*>(buffer.data());
    run(dim3(1), dim3(1), 0, [&] { bytes[at] = 1; });
    uint8_t copy[100];
    EXPECT_EQ(fa::test::error_of<fa::BackendError>([&] { buffer.download(copy); }),
              "a kernel wrote outside global buffer O, at byte " + std::to_string(at) + " of 100");
  }
}

// Beyond the pattern are pages that nobody may touch: the process ends with a sentence.
class GuardPageDeathTest : public testing::Test {
 protected:
  void SetUp() override { emu::options().os_threads = 1; }
  void TearDown() override { emu::options().os_threads = 0; }
};

TEST_F(GuardPageDeathTest, PastSharedMemory) {
  EXPECT_EXIT(run(dim3(1), dim3(64), 1024,
                  [] {
                    volatile uint8_t* const bytes = emu::current_lane->cta->shared;
                    if (threadIdx.x == 35) bytes[1024] = 1;
                  }),
              testing::ExitedWithCode(3),
              "error: probe, CTA \\(0,0,0\\), thread 35 \\(warp 1 lane 3\\), "
              "common/emulator/tests/test_emulator.cpp:[0-9]+: accesses "
              "memory 0 bytes past the end of shared memory \\(1024 bytes\\)");
}

TEST_F(GuardPageDeathTest, PastAGlobalBuffer) {
  const fa::Buffer buffer("K", 4096);
  volatile const uint8_t* const bytes = static_cast<const uint8_t*>(buffer.data());
  EXPECT_EXIT(
      run(dim3(1), dim3(32), 0, [&] { (void)bytes[4096 + 700 + threadIdx.x]; }),
      testing::ExitedWithCode(3),
      "thread 0 .*accesses memory 700 bytes past the end of global buffer K \\(4096 bytes\\)");
  EXPECT_EXIT(run(dim3(1), dim3(32), 0, [&] { (void)bytes[-5000]; }), testing::ExitedWithCode(3),
              "accesses memory 5000 bytes before the start of global buffer K");
  const fa::Buffer below("V", 4096);  // the system gives addresses downwards
  const volatile uint8_t* const far = static_cast<const uint8_t*>(below.data()) + 100000;
  EXPECT_EXIT(run(dim3(1), dim3(32), 0, [&] { (void)far[4096]; }), testing::ExitedWithCode(3),
              "accesses memory 100000 bytes past the end of global buffer V");
}

int use_much_stack(int depth, const volatile char* above = nullptr) {
  volatile char frame[4096];  // the next one reads it, so that there are as many as calls
  frame[0] = char(depth);
  return depth == 0 ? above[0] : use_much_stack(depth - 1, frame) + frame[0];
}

TEST_F(GuardPageDeathTest, FullStack) {
  EXPECT_EXIT(run(dim3(1), dim3(32), 0, [] { use_much_stack(1000); }), testing::ExitedWithCode(3),
              "the thread's stack \\(its local memory\\) is full");
}

// ---- where the first NaN was made ---------------------------------------------------------------
class FirstNan : public testing::Test {
 protected:
  void SetUp() override { emu::forget_nans(); }
  void TearDown() override { emu::options() = {}; }

  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // The compiler does not know what they hold.
  volatile float infinity = kInfinity, zero = 0, four = 4, nan = NAN, out = 0;
  int line = 0;

  // There are two CTAs of two warps. Thread 37 of the second one executes `body`.
  std::string of(const std::function<void()>& body) {
    run(dim3(2), dim3(64), 0, [&] {
      if (emu::at(37, 1)) body();
    });
    return emu::first_nan();
  }
  std::string made(const std::string& what) const {
    return "The first NaN was made at " + here(line) +
           " by thread 37 (warp 1 lane 5) of CTA (1,0,0): " + what + ".";
  }
  void expect_made(const std::string& what, const std::function<void()>& body) {
    const std::string text = of(body);
    EXPECT_EQ(text, made(what));
  }
};
class FirstNanTrapped : public FirstNan {
  void SetUp() override {
#ifndef FA_TRAPS_NANS
    GTEST_SKIP() << "here only the emulator's own functions note NaNs";
#endif
    FirstNan::SetUp();
  }
};

TEST_F(FirstNanTrapped, HasItsOperands) {
  expect_made("inf - inf", [&] { out = (line = __LINE__, infinity - infinity); });
  emu::forget_nans();
  expect_made("0 / 0", [&] { out = (line = __LINE__, zero / zero); });
  emu::forget_nans();
  expect_made("0 * inf", [&] { out = (line = __LINE__, infinity * zero); });
  emu::forget_nans();
  expect_made("inf / inf",
              [&] { out = (line = __LINE__, float(double(infinity) / double(infinity))); });
}

TEST_F(FirstNanTrapped, InTheCLibraryHasItsFunction) {
  expect_made("in fmodf() of the C library",
              [&] { out = (line = __LINE__, std::fmod(float(four), float(zero))); });
}

TEST_F(FirstNan, OfTheEmulatorsFunctionHasItsArgument) {
  expect_made("log(-4)", [&] { out = (line = __LINE__, emu::logf(-four)); });
  emu::forget_nans();
  expect_made("asin(4)", [&] { out = (line = __LINE__, emu::asinf(four)); });
}

TEST_F(FirstNan, IsNoneThatWasThereBefore) {
  EXPECT_EQ(of([&] { out = nan - nan; }), "");
  EXPECT_EQ(of([&] { out = nan * four + emu::logf(nan); }), "");
}

TEST_F(FirstNan, IsNoneThatIsOnlyComparedOrConverted) {
  EXPECT_EQ(of([&] { out = nan < four ? 1 : 2; }), "");
  EXPECT_EQ(of([&] { out = nan >= four ? 1 : 2; }), "");
  EXPECT_EQ(of([&] { out = float(int(four * 1e10f)); }), "");
}

TEST_F(FirstNanTrapped, IsFoundBehindComparisonsWithNaN) {
  expect_made("inf - inf", [&] {
    for (int i = 0; i < 100; i++) out = nan < four ? 1 : 2;
    out = (line = __LINE__, infinity - infinity);
  });
}

// A million comparisons with a NaN would take seconds if each were passed over.
TEST_F(FirstNan, CostsLittleWhereNaNsAreCompared) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(of([&] {
              for (int i = 0; i < 1000000; i++) out = nan < four ? 1 : 2;
            }),
            "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

TEST_F(FirstNanTrapped, IsThatOfTheFirstCta) {
  for (const int threads : {1, 2, 3, 8}) {
    emu::options().os_threads = threads;
    emu::forget_nans();
    run(dim3(40), dim3(32), 0, [&] {
      if (blockIdx.x < 3 || threadIdx.x < 7) return;
      out = infinity - infinity;
    });
    EXPECT_CONTAINS(emu::first_nan(), " by thread 7 (warp 0 lane 7) of CTA (3,0,0): inf - inf.");
  }
}

TEST_F(FirstNanTrapped, IsThatOfTheFirstLaunch) {
  of([&] { out = (line = __LINE__, zero / zero); });
  of([&] { out = infinity - infinity; });
  EXPECT_EQ(emu::first_nan(), made("0 / 0"));
}

// The host's own NaNs, and those of other threads of the host, are none.
TEST_F(FirstNan, IsOfKernelsAlone) {
  run(dim3(1), dim3(32), 0, [] {});
  out = zero / zero;
  EXPECT_EQ(emu::first_nan(), "");
}

constexpr uint32_t kOnes = 0x3c003c00, kInfinities = 0x7c007c00, kNans = 0x7fff7fff;  // fp16

std::string product_of(uint32_t of_a, uint32_t of_b, int& line) {
  run(dim3(1), dim3(64), 0, [&] {
    float d[4] = {};
    const bool second = threadIdx.x >= 32;
    const uint32_t a[4] = {kOnes, kOnes, second && lane_idx() == 8 ? of_a : kOnes, kOnes};
    const uint32_t b[2] = {kOnes, second ? of_b : kOnes};
    line = __LINE__, ptx::mma_m16n8k16<__half>(d, a, b);
  });
  return emu::first_nan();
}

TEST_F(FirstNan, OfAProductHasItsElement) {
  EXPECT_EQ(product_of(kOnes, kInfinities, line), "") << "infinities alone";
  EXPECT_EQ(product_of(kInfinities, 0, line), "The first NaN was made at " + here(line) +
                                                  " by warp 1 of CTA (0,0,0): inf * 0 in row "
                                                  "2, column 0 of its product.");
  emu::forget_nans();
  EXPECT_EQ(product_of(0xfc007c00, kOnes, line), "The first NaN was made at " + here(line) +
                                                     " by warp 1 of CTA (0,0,0): inf - inf in "
                                                     "row 2, column 0 of its product.");
  emu::forget_nans();
  EXPECT_EQ(product_of(kNans, kOnes, line), "No NaN was made: the product at " + here(line) +
                                                " by warp 1 of CTA (0,0,0) found one "
                                                "in row 2 of A. (Memory begins as NaN.)");
}

TEST_F(FirstNanTrapped, ThatAProductFoundBeforeIsToldToo) {
  product_of(kNans, kOnes, line);
  const int of_product = line;
  const std::string text = of([&] { out = (line = __LINE__, infinity - infinity); });
  EXPECT_EQ(text, made("inf - inf") + "\n  Before that the product at " + here(of_product) +
                      " by warp 1 of CTA (0,0,0) found one in row 2 of A. (Memory begins as NaN.)");
}

class FirstNanOfARecord : public FirstNanTrapped {
 protected:
  // What the record says of a kernel that writes f(row) to each element of O.
  std::string reason(const std::function<float(int)>& f) {
    const fa::Problem p = fa::test::problem(1, 2, 128, 64, fa::Dtype::kBf16);
    fa::Kernel kernel;
    kernel.name = "probe";
    kernel.run = [&](const fa::Problem&, const fa::Tensors& tensors) {
      run(dim3(2), dim3(128), 0, [&] {
        const __nv_bfloat16 value = f(int(threadIdx.x));
        for (int i = 0; i < 64; i++) {
          static_cast<__nv_bfloat16*>(tensors.o)[(blockIdx.x * 128 + threadIdx.x) * 64 + i] = value;
        }
      });
    };
    const fa::Inputs inputs = fa::make_inputs(p, "normal", 1);
    return fa::Runner(p, inputs, fa::Protocol{}).verify(kernel).reason;
  }
};

TEST_F(FirstNanOfARecord, IsToldOfWrongOnes) {
  const auto f = [&](int row) { return row == 40 ? (line = __LINE__, infinity - infinity) : 0.0f; };
  const std::string text = reason(f);
  EXPECT_EQ(text,
            "O[batch 0, head 0, row 40, column 0] is not a finite number (128 of 16384 "
            "elements)\n  The first NaN was made at " +
                here(line) + " by thread 40 (warp 1 lane 8) of CTA (0,0,0): inf - inf.");
}

TEST_F(FirstNanOfARecord, IsNotToldOfOutputsWithoutOne) {
  const std::string thrown_away = reason([&](int) {
    out = infinity - infinity;
    return out < 1 ? 2.0f : 3.0f;
  });
  EXPECT_CONTAINS(thrown_away, "] is 3, should be ");
  EXPECT_EQ(thrown_away.find("NaN"), std::string::npos) << thrown_away;
  const std::string infinite = reason([&](int) {
    out = infinity - infinity;
    return float(infinity);
  });
  EXPECT_CONTAINS(infinite, "is not a finite number");
  EXPECT_EQ(infinite.find("NaN"), std::string::npos) << infinite;
  const std::string poison = reason([](int) { return std::bit_cast<float>(0xffffffffu); });
  EXPECT_EQ(poison.find("first NaN"), std::string::npos) << poison;
}

// ---- for debuggers ------------------------------------------------------------------------------
TEST(Debugger, KnowsWhichThreadRuns) {
  EXPECT_STREQ(emu::where(), "outside a kernel");
  EXPECT_FALSE(emu::at(0, 0));
  std::string text;
  run(dim3(2, 3), dim3(64), 0, [&] {
    if (emu::at(37, 1, 2)) text += emu::where();
  });
  EXPECT_EQ(text, "probe, CTA (1,2,0): thread 37 (warp 1 lane 5)");
}

}  // namespace
