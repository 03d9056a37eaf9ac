// wgmma on the emulator: what makes it asynchronous, every report, and where an element lies as the
// PTX ISA writes it, apart from common/layout/wgmma.h. What every shape, type and way to store the
// operands gives is compared with an H200's answers (golden/wgmma_probe.cu).
#include <cmath>
#include <cstring>
#include <functional>

#include "common/emulator/core/first_nan.h"
#include "common/emulator/core/launch.h"
#include "common/launch/launch.h"
#include "common/launch/tensor_map.h"
#include "common/layout/fragments.h"
#include "common/layout/swizzle.h"
#include "common/layout/wgmma.h"
#include "common/ptx/barrier.h"
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/setmaxnreg.h"
#include "common/ptx/tma.h"
#include "common/ptx/wgmma.h"
#include "tests/support.h"

namespace fa::wgmma_test {

// ---- the PTX ISA's figures ----------------------------------------------------------------------
// "WGMMA .m64nNk16 register fragment layout for accumulator matrix D": row = (warp % 4) * 16 +
// laneid / 4 + 8 if the element's bit 1 is set; column = 8 * (i / 4) + (laneid % 4) * 2 + i % 2.
constexpr int d_row(int thread, int i) {
  return thread / 32 * 16 + thread % 32 / 4 + ((i & 2) ? 8 : 0);
}
constexpr int d_column(int thread, int i) { return 8 * (i / 4) + thread % 4 * 2 + (i & 1); }

// "... for matrix A", 16-bit: register i / 2 of four, i < 8. Its rows are those of D.
constexpr int a_column(int thread, int i) { return thread % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8); }

TEST(Layout, OfRegistersIsThePtxIsas) {
  for (int thread = 0; thread < 128; thread++) {
    for (int i = 0; i < 128; i++) {
      EXPECT_EQ(layout::wgmma_d(thread, i),
                (layout::Position{d_row(thread, i), d_column(thread, i)}));
    }
    for (int i = 0; i < 8; i++) {
      EXPECT_EQ(layout::wgmma_a(thread, i / 2, i % 2),
                (layout::Position{d_row(thread, i), a_column(thread, i)}));
    }
  }
}

class Emulated : public testing::Test {
 protected:
  void TearDown() override { emu::options() = {}; }
};
class Checked : public Emulated {
  void SetUp() override {
    if (!emu::is_checked()) GTEST_SKIP() << "needs the checked build";
  }
};

constexpr int kN = 64;
constexpr uint16_t kOne = 0x3c00, kTwo = 0x4000, kFour = 0x4400;  // fp16

// One slab, 128-byte swizzle.
struct Tile {
  alignas(1024) uint16_t elements[64 * 64];
};

// A and B of 16 x 64 ones each, for one step; more space than they need.
struct Ones {
  Tile a;
  Tile b;
};

std::string line(int number) {
  return "common/emulator/tests/test_wgmma.cpp:" + std::to_string(number);
}

// The accumulators of a thread, zeros at first.
using Sums = float[kN / 2];
using Body = std::function<void(Ones& smem, Sums& acc)>;

// Runs `body` in `threads` threads, with A and B filled with ones; "no error", or the error's text.
std::string outcome(const Body& body, int threads = 128) {
  return test::error_of<emu::LaunchError>([&] {
    emu::launch("probe", dim3(1), dim3(unsigned(threads)), sizeof(Ones), [&] {
      auto& smem = shared_storage<Ones>();
      for (int i = int(threadIdx.x); i < 64 * 64; i += int(blockDim.x)) {
        smem.a.elements[i] = smem.b.elements[i] = kOne;
      }
      ptx::fence_proxy_async();
      __syncthreads();
      Sums acc = {};
      body(smem, acc);
    });
  });
}

uint64_t of_a(const Ones& smem) { return layout::k_major_descriptor(ptx::shared_address(&smem.a)); }
uint64_t of_b(const Ones& smem) { return layout::k_major_descriptor(ptx::shared_address(&smem.b)); }

int issue;  // the line of the latest wgmma, where a test asks for it

void multiply(Sums& acc, const Ones& smem, bool accumulate = false,
              emu::SourceLocation where = emu::SourceLocation::current()) {
  issue = int(where.line);
  ptx::wgmma<__half, kN>(acc, of_a(smem), of_b(smem), accumulate, where);
}

// A group of one product.
void start(Sums& acc, const Ones& smem,
           emu::SourceLocation where = emu::SourceLocation::current()) {
  ptx::wgmma_fence(acc);
  multiply(acc, smem, false, where);
  ptx::wgmma_commit();
}

// Commits what is issued and waits for it.
void finish(Sums& acc) {
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(acc);
}

TEST_F(Emulated, TheFirstNaNOfAProductHasItsElement) {
  emu::forget_nans();
  outcome([](Ones& smem, Sums& acc) {
    if (threadIdx.x == 0) {
      // The swizzle leaves row 0 as it is; of row 40 all of the first 64 elements are alike.
      for (int k = 0; k < 64; k++) smem.a.elements[40 * 64 + k] = 0x7c00;
      for (int n = 0; n < 64; n++) smem.b.elements[n * 64 + (n % 8 * 8)] = 0;
    }
    ptx::fence_proxy_async();
    __syncthreads();
    start(acc, smem);
    ptx::wgmma_wait<0>(acc);
  });
  EXPECT_CONTAINS(emu::first_nan(), "The first NaN was made at " + line(__LINE__ - 3));
  EXPECT_CONTAINS(emu::first_nan(),
                  " by warp 2 of CTA (0,0,0): inf * 0 in row 40, column 0 of its product.");
}

// What a thread finds in its accumulators, for looking at after a launch; the last thread's remain.
float seen[8];
// What is not instrumented reads registers without being seen.
__attribute__((no_sanitize("thread"), noinline)) float peek(const float* accumulator) {
  return *accumulator;
}

// ---- when it happens ----------------------------------------------------------------------------
// What an accumulator of thread 0 is after the issue of a product and after its commit.
void look_at_a_product() {
  EXPECT_EQ(outcome([](Ones& smem, Sums& acc) {
              ptx::wgmma_fence(acc);
              multiply(acc, smem);
              if (threadIdx.x == 0) seen[0] = peek(&acc[5]);
              ptx::wgmma_commit();
              __syncthreads();
              if (threadIdx.x == 0) seen[1] = peek(&acc[5]);
              ptx::wgmma_wait<0>(acc);
              seen[2] = acc[5];
            }),
            "no error");
  EXPECT_EQ(seen[2], 16);
}

TEST_F(Emulated, AccumulatorsAreNaNUntilWaitedFor) {
  look_at_a_product();
  EXPECT_TRUE(std::isnan(seen[0]) && std::isnan(seen[1])) << seen[0] << " " << seen[1];
}

TEST_F(Emulated, EarlyCompletionGivesTheResultAtOnce) {
  emu::options().completion = emu::Completion::kEarly;
  look_at_a_product();
  EXPECT_EQ(seen[0], 16);
}

// By the seed the result is there after the issue, after the commit or only after the wait.
TEST_F(Emulated, RandomCompletionIsInBetween) {
  emu::options().completion = emu::Completion::kRandom;
  int after_issue = 0, after_commit = 0;
  constexpr int kSeeds = 40;
  for (uint64_t seed = 1; seed <= kSeeds; seed++) {
    emu::options().seed = seed;
    look_at_a_product();
    after_issue += seen[0] == 16;
    after_commit += seen[1] == 16;
  }
  EXPECT_GT(after_issue, 0);
  EXPECT_GT(after_commit, after_issue);
  EXPECT_LT(after_issue, kSeeds);
}

TEST_F(Emulated, WaitLeavesTheLatestGroupsUnderWay) {
  EXPECT_EQ(outcome([](Ones& smem, Sums&) {
              float first[kN / 2] = {}, second[kN / 2] = {}, third[kN / 2] = {};
              ptx::wgmma_fence(first, second, third);
              multiply(first, smem);
              multiply(second, smem);
              ptx::wgmma_commit();
              multiply(third, smem);
              multiply(third, smem, true);
              ptx::wgmma_commit();
              ptx::wgmma_wait<1>(first, second);
              seen[0] = first[0];
              seen[1] = second[0];
              seen[2] = peek(&third[0]);
              ptx::wgmma_wait<0>(third);
              seen[3] = third[0];
            }),
            "no error");
  EXPECT_EQ(seen[0], 16);
  EXPECT_EQ(seen[1], 16);
  EXPECT_TRUE(std::isnan(seen[2]));
  EXPECT_EQ(seen[3], 32);
}

// A chain of products with the same accumulators is not done before its last group is.
TEST_F(Emulated, AChainIsDoneWithItsLastGroup) {
  EXPECT_EQ(outcome([](Ones& smem, Sums& acc) {
              start(acc, smem);
              multiply(acc, smem, true);
              ptx::wgmma_commit();
              ptx::wgmma_wait<1>();
              seen[0] = peek(&acc[0]);
              ptx::wgmma_wait<0>(acc);
              seen[1] = acc[0];
            }),
            "no error");
  EXPECT_TRUE(std::isnan(seen[0]));
  EXPECT_EQ(seen[1], 32);
}

// Each warp waits for its own quarter: the others' accumulators stay as they are. But A may be
// overwritten after the first wait: the others' shares of the product, though they come later, are
// of what A was before.
TEST_F(Emulated, AWaitReturnsItsOwnAccumulators) {
  static float after_first[4], sums[4];
  EXPECT_EQ(outcome([](Ones& smem, Sums& acc) {
              start(acc, smem);
              const int warp = int(threadIdx.x) / 32;
              if (warp == 0) ptx::wgmma_wait<0>(acc);
              __syncthreads();
              after_first[warp] = peek(&acc[0]);
              if (threadIdx.x == 0) {
                for (uint16_t& element : smem.a.elements) element = kTwo;
              }
              __syncthreads();
              if (warp != 0) ptx::wgmma_wait<0>(acc);
              sums[warp] = acc[0];
            }),
            "no error");
  EXPECT_EQ(after_first[0], 16);
  for (int warp = 1; warp < 4; warp++) EXPECT_TRUE(std::isnan(after_first[warp]));
  for (const float sum : sums) EXPECT_EQ(sum, 16);
}

// Late means that operands are read late too.
TEST_F(Emulated, OperandsAreReadWhenItHappens) {
  emu::options().races = false;
  for (const auto completion : {emu::Completion::kLate, emu::Completion::kEarly}) {
    emu::options().completion = completion;
    EXPECT_EQ(outcome([](Ones& smem, Sums& acc) {
                float other[kN / 2] = {};
                uint32_t rA[4] = {kOne | kOne << 16, kOne | kOne << 16, kOne | kOne << 16,
                                  kOne | kOne << 16};
                ptx::wgmma_fence(acc, other, rA);
                multiply(acc, smem);
                ptx::wgmma<__half, kN>(other, rA, of_b(smem), false);
                ptx::wgmma_commit();
                __syncthreads();
                for (int i = int(threadIdx.x); i < 64 * 64; i += 128) smem.a.elements[i] = kTwo;
                __syncthreads();
                [&]() __attribute__((no_sanitize("thread"))) {
                  for (uint32_t& reg : rA) reg = kFour | kFour << 16;
                }
                ();
                ptx::wgmma_wait<0>(acc);
                seen[0] = acc[0];
                seen[1] = other[0];
              }),
              "no error");
    const bool late = completion == emu::Completion::kLate;
    EXPECT_EQ(seen[0], late ? 32 : 16);
    EXPECT_EQ(seen[1], late ? 64 : 16);
  }
}

// ---- counters -----------------------------------------------------------------------------------
TEST_F(Emulated, CountsFlops) {
  emu::take_counters();
  EXPECT_EQ(outcome([](Ones& smem, Sums& acc) {
              ptx::wgmma_fence(acc);
              multiply(acc, smem);
              multiply(acc, smem, true);
              finish(acc);
            }),
            "no error");
  const emu::Counters counters = emu::take_counters();
  EXPECT_EQ(counters.matrix_products, 2u * 4);
  EXPECT_EQ(counters.matrix_flops, 2u * 2 * 64 * 64 * 16);
}

// ---- reports ------------------------------------------------------------------------------------
TEST_F(Emulated, AFenceMustComeFirst) {
  int at = 0;
  const std::string text = outcome([&](Ones& smem, Sums& acc) {
    at = __LINE__ + 1;
    multiply(acc, smem);
  });
  EXPECT_CONTAINS(text, "wgmma.mma_async at " + line(at));
  EXPECT_CONTAINS(text, "the warp has not executed wgmma_fence before");
}

// clang++ observes no access to an element of a local array whose place it knows.
uint32_t* observed(uint32_t* element) {
  uint32_t* volatile hidden = element;
  return hidden;
}

TEST_F(Checked, RegistersUsedSinceTheFence) {
  int use = 0, at = 0;
  for (const bool reads : {false, true}) {
    const std::string text = outcome([&](Ones& smem, Sums& acc) {
      for (int turn = 0; turn < 2; turn++) {
        if (turn == 0) ptx::wgmma_fence(acc);
        at = __LINE__ + 1;
        multiply(acc, smem);
        finish(acc);
        use = __LINE__ + 1;
        if (reads) seen[0] = acc[3];
        if (!reads) use = __LINE__, acc[3] = 1;
      }
    });
    EXPECT_CONTAINS(text, "wgmma.mma_async at " + line(at));
    EXPECT_CONTAINS(text, "has used its accumulators as ordinary registers at " + line(use) +
                              ", after its last wgmma_fence\n  Missing: wgmma_fence()");
  }
  const std::string text = outcome([&](Ones& smem, Sums& acc) {
    uint32_t rA[4];
    ptx::wgmma_fence(acc, rA);
    use = __LINE__ + 1;
    for (uint32_t& reg : rA) *observed(&reg) = kOne;
    ptx::wgmma<__half, kN>(acc, rA, of_b(smem), false);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(acc, rA);
  });
  EXPECT_CONTAINS(text, "has used A's registers as ordinary registers at " + line(use));
}

TEST_F(Checked, RegistersTouchedWhileUnderWay) {
  for (const auto completion : {emu::Completion::kLate, emu::Completion::kEarly}) {
    emu::options().completion = completion;
    int touch = 0;
    std::string text = outcome([&](Ones& smem, Sums& acc) {
      start(acc, smem);
      touch = __LINE__ + 1;
      seen[0] = acc[7];
      ptx::wgmma_wait<0>(acc);
    });
    EXPECT_CONTAINS(text, line(touch) + ": touches accumulators of the wgmma at " + line(issue) +
                              ", which may still be under way\n  Missing: wgmma_wait before");
    text = outcome([&](Ones& smem, Sums& acc) {
      uint32_t rA[4] = {};
      ptx::wgmma_fence(acc, rA);
      issue = __LINE__ + 1;
      ptx::wgmma<__half, kN>(acc, rA, of_b(smem), false);
      ptx::wgmma_commit();
      touch = __LINE__ + 1;
      *observed(rA + 2) = 1;
      ptx::wgmma_wait<0>(acc, rA);
    });
    EXPECT_CONTAINS(text, line(touch) + ": touches A's registers of the wgmma at " + line(issue));
  }
}

TEST_F(Emulated, WaitForTooFewGroups) {
  int wait = 0;
  const std::string text = outcome([&](Ones& smem, Sums& acc) {
    start(acc, smem);
    wait = __LINE__ + 1;
    ptx::wgmma_wait<1>(acc);
    ptx::wgmma_wait<0>(acc);
  });
  EXPECT_CONTAINS(text, "wgmma_wait<1> at " + line(wait) + " names registers of the wgmma at " +
                            line(issue) +
                            ", which it does not wait for\n  Missing: a smaller number of groups.");
}

// The wait is there, but leaves the group under way.
TEST_F(Checked, RegistersTouchedThatTheLastWaitHasLeft) {
  int wait = 0;
  const std::string text = outcome([&](Ones& smem, Sums& acc) {
    start(acc, smem);
    wait = __LINE__ + 1;
    ptx::wgmma_wait<1>();
    seen[0] = acc[7];
    ptx::wgmma_wait<0>(acc);
  });
  EXPECT_CONTAINS(text, "The last wait, at " + line(wait) + ", leaves up to 1 group under way");
}

// Nothing but their names ties registers to a wait: a compiler may move their use before it.
TEST_F(Checked, AWaitThatNamesNoRegisters) {
  int wait = 0, touch = 0;
  std::string text = outcome([&](Ones& smem, Sums& acc) {
    start(acc, smem);
    wait = __LINE__ + 1;
    ptx::wgmma_wait<0>();
    touch = __LINE__ + 1;
    seen[0] = acc[7];
  });
  EXPECT_CONTAINS(text, line(touch) + ": touches accumulators of the wgmma at " + line(issue) +
                            ", which no wait has named: the one at " + line(wait));
  // The next product takes them over, and the wait for it names them.
  text = outcome([&](Ones& smem, Sums& acc) {
    start(acc, smem);
    ptx::wgmma_wait<0>();
    ptx::wgmma_fence();
    multiply(acc, smem);
    finish(acc);
    seen[0] = acc[7];
  });
  EXPECT_EQ(text, "no error");
}

// What wgmma name of a thread's registers is less than what it needs.
TEST_F(Emulated, MoreRegistersThanAWarpOwns) {
  int set = 0;
  const std::string text = outcome([&](Ones& smem, Sums& acc) {
    set = __LINE__ + 1;
    ptx::setmaxnreg_dec<24>();
    start(acc, smem);
    ptx::wgmma_wait<0>(acc);
  });
  EXPECT_CONTAINS(text, "wgmma.mma_async at " + line(issue) + ": with it the wgmma of warp ");
  EXPECT_CONTAINS(text, " have named " + std::to_string(kN / 2) + " registers of a thread");
  EXPECT_CONTAINS(text, "but it owns 24, since setmaxnreg at " + line(set));
}

TEST_F(Emulated, WaitWithoutCommit) {
  const std::string text = outcome([&](Ones& smem, Sums& acc) {
    ptx::wgmma_fence(acc);
    multiply(acc, smem);
    ptx::wgmma_wait<0>(acc);
  });
  EXPECT_CONTAINS(text, "which it does not wait for\n  Missing: wgmma_commit() after that wgmma");
}

TEST_F(Emulated, ExitWithoutWait) {
  const std::string text = outcome([&](Ones& smem, Sums& acc) { start(acc, smem); });
  EXPECT_CONTAINS(text, "exits without having waited for wgmma at " + line(issue));
}

TEST_F(Emulated, AWarpgroupIsFourWarps) {
  const auto body = [](Ones& smem, Sums& acc) {
    start(acc, smem);
    ptx::wgmma_wait<0>(acc);
  };
  EXPECT_CONTAINS(outcome(body, 96), "has no whole warpgroup");
  EXPECT_CONTAINS(outcome(body, 96), "the CTA has 96 threads");
  EXPECT_EQ(outcome(body, 256), "no error");
}

TEST_F(Emulated, AllFourWarpsMustExecuteIt) {
  const std::string text = outcome([&](Ones& smem, Sums& acc) {
    if (threadIdx.x / 32 == 2) return;
    start(acc, smem);
    ptx::wgmma_wait<0>(acc);
  });
  EXPECT_CONTAINS(text, "ends with a wgmma at " + line(issue) +
                            " that only 3 of the 4 warps of warpgroup 0 have executed");
}

TEST_F(Emulated, WarpsMustAgree) {
  int one = 0, other = 0;
  std::string text = outcome([&](Ones& smem, Sums& acc) {
    ptx::wgmma_fence(acc);
    if (threadIdx.x < 32) {
      one = __LINE__ + 1;
      multiply(acc, smem);
    } else {
      other = __LINE__ + 1;
      multiply(acc, smem);
    }
    finish(acc);
  });
  EXPECT_CONTAINS(text, "wgmma.mma_async.m64n64k16 at " + line(one) + ", where ");
  EXPECT_CONTAINS(text,
                  " of the same warpgroup executed wgmma.mma_async.m64n64k16 at " + line(other));
  EXPECT_CONTAINS(text, " they went the same way. Since then they have taken different");
  text = outcome([&](Ones& smem, Sums& acc) {
    ptx::wgmma_fence(acc);
    const uint32_t step = threadIdx.x < 64 ? 0 : 32;
    ptx::wgmma<__half, kN>(acc, of_a(smem), layout::advance(of_b(smem), step), false);
    finish(acc);
  });
  EXPECT_CONTAINS(text, " gives another descriptor of B than warp ");
}

// What a kernel does that repairs something in a few warps only: the branch waits for itself.
TEST_F(Emulated, AWaitInABranchOfSomeWarps) {
  int branch = 0, wait = 0;
  const std::string text = outcome([&](Ones& smem, Sums& acc) {
    for (int turn = 0; turn < 2; turn++) {
      start(acc, smem);
      if (turn == 1 && threadIdx.x / 32 % 2 == 1) {
        branch = __LINE__ + 1;
        ptx::wgmma_wait<0>(acc);
      }
      wait = __LINE__ + 1;
      ptx::wgmma_wait<0>(acc);
    }
  });
  EXPECT_CONTAINS(text, "wgmma.wait_group 0 at " + line(branch));
  EXPECT_CONTAINS(text, "wgmma.wait_group 0 at " + line(wait));
  EXPECT_CONTAINS(text, "  Until wgmma.commit_group at ");
  EXPECT_CONTAINS(text, "Since then warp 3 has taken a branch that warp 2 has not.");
}

// Each of the four instructions, by one warp more than by the others.
TEST_F(Emulated, OneWarpExecutesOneMore) {
  const auto one_more = [](auto instruction) {
    return outcome([&](Ones& smem, Sums& acc) {
      start(acc, smem);
      if (threadIdx.x / 32 == 3) instruction(smem, acc);
      ptx::wgmma_wait<0>(acc);
    });
  };
  const auto expect = [](const std::string& text, const std::string& name) {
    EXPECT_CONTAINS(text, "warp 0 executes wgmma.wait_group 0 at ");
    EXPECT_CONTAINS(text, ", where warp 3 of the same warpgroup executed " + name);
  };
  const std::string text = outcome([&](Ones& smem, Sums& acc) {
    start(acc, smem);
    ptx::wgmma_wait<0>(acc);
    if (threadIdx.x / 32 == 3) ptx::wgmma_wait<0>(acc);
  });
  EXPECT_CONTAINS(text, "ends with a wgmma.wait_group at ");
  EXPECT_CONTAINS(text, " that only 1 of the 4 warps of warpgroup 0 have executed");
  expect(one_more([](const Ones&, Sums&) { ptx::wgmma_fence(); }), "wgmma.fence at ");
  expect(one_more([](const Ones&, Sums&) { ptx::wgmma_commit(); }), "wgmma.commit_group at ");
  expect(one_more([](const Ones&, Sums&) { ptx::wgmma_wait<1>(); }), "wgmma.wait_group 1 at ");
  expect(one_more([](const Ones& smem, Sums& acc) { multiply(acc, smem, true); }),
         "wgmma.mma_async.m64n64k16 at ");
}

TEST_F(Emulated, LanesMustAgree) {
  const auto with = [](uint32_t a, uint32_t b, bool accumulate) {
    return outcome([=](Ones& smem, Sums& acc) {
      ptx::wgmma_fence(acc);
      const bool odd = threadIdx.x == 5;
      ptx::wgmma<__half, kN>(acc, layout::advance(of_a(smem), odd ? a : 0),
                             layout::advance(of_b(smem), odd ? b : 0), odd && accumulate);
      finish(acc);
    });
  };
  EXPECT_EQ(with(0, 0, false), "no error");
  EXPECT_CONTAINS(with(32, 0, false), "lane 5 gives another descriptor of A than lane 0");
  EXPECT_CONTAINS(with(0, 32, false), "lane 5 gives another descriptor of B than lane 0");
  EXPECT_CONTAINS(with(0, 0, true), "lane 5 gives another scale-d than lane 0");
}

// One wgmma with these descriptors.
std::string with_descriptors(const std::function<uint64_t(const Ones&)>& a,
                             const std::function<uint64_t(const Ones&)>& b) {
  return outcome([&](Ones& smem, Sums& acc) {
    ptx::wgmma_fence(acc);
    ptx::wgmma<__half, kN>(acc, a(smem), b(smem), false);
    finish(acc);
  });
}

TEST_F(Emulated, DescriptorsOutsideSharedStorage) {
  EXPECT_EQ(with_descriptors(of_a, of_b), "no error");
  // B's last rows would lie behind the SharedStorage.
  std::string text = with_descriptors(of_a, [](const Ones& smem) {
    return layout::descriptor(ptx::shared_address(&smem.b), 16, 2048,
                              layout::SwizzleMode::k128Bytes);
  });
  EXPECT_CONTAINS(text,
                  "element (32, k = 0) of B would be at byte 16384 of shared memory, outside "
                  "the SharedStorage of 16384 bytes");
  EXPECT_CONTAINS(text, "Wrong: the descriptor's start address, LBO or SBO");
  text = with_descriptors(
      [](const Ones&) { return layout::descriptor(0, 16, 1024, layout::SwizzleMode::k128Bytes); },
      of_b);
  EXPECT_CONTAINS(text, "element (0, k = 0) of A would be at byte -1024 of shared memory");
}

TEST_F(Emulated, DescriptorsOffTheAtom) {
  std::string text =
      with_descriptors([](const Ones& smem) { return layout::advance(of_a(smem), 3 * 128); }, of_b);
  EXPECT_CONTAINS(text,
                  "A starts at shared address 1408, in row 3 of a swizzle atom of 1024 bytes, "
                  "but its base offset says 0");
  EXPECT_CONTAINS(text, "give the tile in SharedStorage alignas(1024)");
  text = with_descriptors(of_a, [](const Ones& smem) {
    return layout::descriptor(ptx::shared_address(&smem.b) + 64, 16, 512,
                              layout::SwizzleMode::k64Bytes);
  });
  EXPECT_CONTAINS(text, "in row 1 of a swizzle atom of 512 bytes");
  // The same with the base offset that belongs to it.
  EXPECT_EQ(with_descriptors(
                [](const Ones& smem) {
                  return layout::advance(of_a(smem), 3 * 128) | layout::base_offset_field(3);
                },
                of_b),
            "no error");
}

// A tensor copy writes what a descriptor reads, each with a swizzle of its own.
TEST_F(Checked, DescriptorsHaveTheSwizzleOfTheCopy) {
  using layout::SwizzleMode;
  struct Storage {
    Ones ones;
    uint64_t full;
  };
  Buffer source("source", 64 * 128);
  source.upload(std::vector<uint16_t>(64 * 64, kOne).data());
  int copy = 0;
  const auto outcome_of = [&](SwizzleMode of_map, SwizzleMode of_descriptor, bool stores = false) {
    const uint64_t columns = of_map == SwizzleMode::k64Bytes ? 32 : 64;
    return test::error_of<emu::LaunchError>([&] {
      emu::launch("probe", dim3(1), dim3(128), sizeof(Storage), [&] {
        auto& smem = shared_storage<Storage>();
        for (int i = int(threadIdx.x); i < 64 * 64; i += 128)
          smem.ones.a.elements[i] = smem.ones.b.elements[i] = kOne;
        ptx::fence_proxy_async();
        __syncthreads();
        if (threadIdx.x == 0) {
          ptx::mbarrier_init(&smem.full, 1);
          ptx::fence_mbarrier_init();
          const ptx::TensorMap map =
              make_tensor_map(static_cast<const __half*>(source.data()), {64, 64}, {128},
                              {uint32_t(columns), 64}, of_map);
          ptx::mbarrier_arrive_expect_tx(&smem.full, int(columns) * 128);
          copy = __LINE__ + 1;
          ptx::cp_async_bulk_tensor_load(&smem.ones.b, &map, {0, 0}, &smem.full);
        }
        __syncthreads();
        ptx::mbarrier_wait(&smem.full, 0);
        if (stores) smem.ones.b.elements[threadIdx.x] = kTwo;
        ptx::fence_proxy_async();
        __syncthreads();
        Sums acc = {};
        ptx::wgmma_fence(acc);
        ptx::wgmma<__half, kN>(
            acc, of_a(smem.ones),
            layout::descriptor(ptx::shared_address(&smem.ones.b), 16, 512, of_descriptor), false);
        finish(acc);
      });
    });
  };
  for (const SwizzleMode mode : {SwizzleMode::kNone, SwizzleMode::k64Bytes, SwizzleMode::k128Bytes})
    EXPECT_EQ(outcome_of(mode, mode), "no error");
  std::string text = outcome_of(SwizzleMode::k128Bytes, SwizzleMode::k64Bytes);
  EXPECT_CONTAINS(text, "its descriptor reads B with a swizzle of 64 bytes, but the copy at " +
                            line(copy) + " has written it with a swizzle of 128 bytes");
  EXPECT_CONTAINS(text, "Wrong: the swizzle in the descriptor.\n  Or: the one in the tensor map.");
  text = outcome_of(SwizzleMode::kNone, SwizzleMode::k128Bytes);
  EXPECT_CONTAINS(text, "has written it without a swizzle");
  // What threads have stored there since is theirs.
  EXPECT_EQ(outcome_of(SwizzleMode::k128Bytes, SwizzleMode::k64Bytes, true), "no error");
}

TEST_F(Emulated, DescriptorsCountSixteenBytes) {
  const std::string text = with_descriptors(
      [](const Ones& smem) { return layout::k_major_descriptor(ptx::shared_address(&smem.a) + 8); },
      of_b);
  EXPECT_CONTAINS(text, "1032 is not a multiple of 16 bytes");
}

// ---- races (checked build): in the order in which lanes happen to run, and in others
std::vector<std::string> outcomes(const Body& body, int threads = 128) {
  std::vector<std::string> texts;
  for (uint64_t seed = 0; seed <= 4; seed++) {
    if (seed) {
      emu::options().schedule = emu::Schedule::kRandom;
      emu::options().completion = emu::Completion::kRandom;
      emu::options().seed = seed;
    }
    texts.push_back(outcome(body, threads));
  }
  return texts;
}

// Products with A in stage `turn % 2`, which other threads (the second warpgroup) have filled.
struct Missing {
  bool fence = false, wait = false, barrier = false;
};
std::vector<std::string> ring(Missing missing, int& store) {
  return outcomes(
      [=, &store](Ones& smem, Sums& acc) {
        Tile* const tiles[] = {&smem.a, &smem.b};
        for (int turn = 0; turn < 4; turn++) {
          const bool consumer = threadIdx.x < 128;
          if (!consumer) {
            for (int i = int(threadIdx.x) - 128; i < 64 * 64; i += 128) {
              store = __LINE__ + 1;
              tiles[turn % 2]->elements[i] = kOne;
            }
            if (!missing.fence) ptx::fence_proxy_async();
          }
          __syncthreads();
          if (consumer) {
            ptx::wgmma_fence(acc);
            const uint64_t stage = layout::k_major_descriptor(ptx::shared_address(tiles[turn % 2]));
            issue = __LINE__ + 1;
            ptx::wgmma<__half, kN>(acc, stage, stage, turn > 0);
            ptx::wgmma_commit();
            if (missing.wait) {
              ptx::wgmma_wait<1>();
            } else {
              ptx::wgmma_wait<0>();
            }
          }
          if (!missing.barrier) __syncthreads();
        }
        if (threadIdx.x < 128) ptx::wgmma_wait<0>(acc);
      },
      256);
}

TEST_F(Emulated, ProductsOfARing) {
  int store = 0;
  for (const std::string& text : ring({}, store)) EXPECT_EQ(text, "no error");
  // The other stage's product may be under way: its stage is filled one turn later.
  for (const std::string& text : ring({.barrier = true}, store)) {
    EXPECT_EQ(text, "no error");
  }
}

// A report of a race of the latest wgmma with the store in this line.
void expect_race(const std::string& text, int store) {
  EXPECT_CONTAINS(text, "data race on byte ");
  EXPECT_CONTAINS(text, "wgmma.mma_async at " + line(issue));
  EXPECT_CONTAINS(text, "store at " + line(store));
}

TEST_F(Checked, OverwrittenWhileUnderWay) {
  int store = 0;
  for (const std::string& text : ring({.wait = true, .barrier = true}, store)) {
    expect_race(text, store);
    EXPECT_CONTAINS(text, "The product may still be running: the wait at ");
    EXPECT_CONTAINS(text,
                    "leaves up to 1 group under way, and this product is in one. Missing: a "
                    "wgmma_wait for it in the warp that releases the operands, before its arrival "
                    "or barrier, between line ");
  }
}

TEST_F(Checked, AWaitCoversWhatIsCommitted) {
  for (const bool commits : {true, false}) {
    const auto texts = outcomes([=](Ones& smem, Sums& acc) {
      ptx::wgmma_fence(acc);
      multiply(acc, smem);
      if (commits) ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      __syncthreads();
      smem.a.elements[threadIdx.x] = kTwo;
      finish(acc);
    });
    for (const std::string& text : texts) {
      EXPECT_CONTAINS(text, commits ? "no error"
                                    : "The product may still be running, because a wait covers "
                                      "what has been committed. Missing: wgmma_commit() before");
    }
  }
}

TEST_F(Checked, StoresNeedAProxyFence) {
  int store = 0;
  for (const std::string& text : ring({.fence = true}, store)) {
    expect_race(text, store);
    EXPECT_CONTAINS(text, "Missing: fence_proxy_async() in the thread that stores");
  }
}

// The second warpgroup overwrites A once one lane of each of `warps` warps has said that the
// product is done; `early`: before its wait.
std::string released_by(int warps, bool early, int& store) {
  struct Released : Ones {
    uint64_t empty_bar;
  };
  return test::error_of<emu::LaunchError>([&] {
    emu::launch("probe", dim3(1), dim3(256), sizeof(Released), [&] {
      auto& smem = shared_storage<Released>();
      const int thread = int(threadIdx.x);
      if (thread == 0) ptx::mbarrier_init(&smem.empty_bar, warps);
      ptx::fence_mbarrier_init();
      for (int i = thread; i < 64 * 64; i += 256) smem.a.elements[i] = smem.b.elements[i] = kOne;
      ptx::fence_proxy_async();
      __syncthreads();
      if (thread < 128) {
        const bool arrives = thread % 32 == 0 && thread / 32 < warps;
        float acc[kN / 2] = {};
        start(acc, smem);
        if (early && arrives) ptx::mbarrier_arrive(&smem.empty_bar);
        ptx::wgmma_wait<0>(acc);
        if (!early && arrives) ptx::mbarrier_arrive(&smem.empty_bar);
        EXPECT_EQ(acc[0], 16) << "thread " << thread;
      } else {
        ptx::mbarrier_wait(&smem.empty_bar, 0);
        store = __LINE__ + 1;
        for (int i = thread - 128; i < 64 * 64; i += 128) smem.a.elements[i] = kTwo;
      }
    });
  });
}

// After its wait, one warp speaks for the reads of its warpgroup.
TEST_F(Emulated, OneWarpReleasesTheOperandsOfAllFour) {
  int store = 0;
  for (const auto completion : {emu::Completion::kLate, emu::Completion::kRandom}) {
    for (const auto schedule : {emu::Schedule::kFixed, emu::Schedule::kRandom}) {
      emu::options().completion = completion;
      emu::options().schedule = schedule;
      for (const int warps : {1, 3, 4}) EXPECT_EQ(released_by(warps, false, store), "no error");
    }
  }
}

TEST_F(Checked, ReleasedBeforeTheWait) {
  int store = 0;
  for (const int warps : {1, 4}) {
    const std::string text = released_by(warps, true, store);
    expect_race(text, store);
  }
}

// A warp's wait ends only when all four have issued the product: here one comes after the wait.
TEST_F(Emulated, AWaitIsForAllFourWarps) {
  int wait = 0;
  const std::string text = outcome([&](Ones& smem, Sums& acc) {
    if (threadIdx.x / 32 == 2) ptx::barrier_sync(1, 64);
    start(acc, smem);
    wait = __LINE__ + 1;
    ptx::wgmma_wait<0>(acc);
    if (threadIdx.x / 32 == 0) ptx::barrier_sync(1, 64);
  });
  EXPECT_CONTAINS(text, "deadlock");
  EXPECT_CONTAINS(text, "wgmma.wait_group at " + line(wait));
  EXPECT_CONTAINS(text, "a wgmma at " + line(issue) +
                            " that only 3 of the 4 warps of warpgroup 0 have executed");
}

// A warp's wait orders what all four warps read, so each warp may overwrite its rows of A.
TEST_F(Checked, RowsOfAAreOverwrittenAfterTheWait) {
  int store = 0;
  const auto texts = [&](bool waits) {
    return outcomes([=, &store](Ones& smem, Sums& acc) {
      start(acc, smem);
      if (waits) ptx::wgmma_wait<0>(acc);
      const int first_row = int(threadIdx.x) / 32 * 16;  // of this warp
      for (int i = 0; i < 16; i++) {
        store = __LINE__ + 1;
        smem.a.elements[(first_row + i) * 64 + int(threadIdx.x) % 32] = kTwo;
      }
      if (!waits) ptx::wgmma_wait<0>(acc);
    });
  };
  for (const std::string& text : texts(true)) EXPECT_EQ(text, "no error");
  for (const std::string& text : texts(false)) expect_race(text, store);
}

// Without the wait a warp must not overwrite its own rows: warp 0's product may read all 64.
TEST_F(Checked, AnyWarpMayReadAnyRowOfA) {
  int store = 0;
  const auto texts = outcomes([&](Ones& smem, Sums& acc) {
    const int warp = int(threadIdx.x) / 32;
    if (warp == 0) start(acc, smem);
    __syncthreads();
    if (warp == 1) {
      store = __LINE__ + 1;
      smem.a.elements[16 * 64 + threadIdx.x % 32] = kTwo;
      ptx::fence_proxy_async();
    }
    __syncthreads();
    if (warp != 0) start(acc, smem);
    ptx::wgmma_wait<0>(acc);
  });
  for (const std::string& text : texts) {
    EXPECT_CONTAINS(text, "data race on byte ");
    EXPECT_CONTAINS(text, "wgmma.mma_async at ");
    EXPECT_CONTAINS(text, " by thread 0 (warp 0 lane 0)");
    EXPECT_CONTAINS(text, "store at " + line(store) + " by thread ");
  }
}

TEST_F(Checked, ReadOfWhatNobodyWrote) {
  const std::string text = test::error_of<emu::LaunchError>([] {
    emu::launch("probe", dim3(1), dim3(128), sizeof(Ones), [] {
      auto& smem = shared_storage<Ones>();
      for (int i = int(threadIdx.x); i < 64 * 64 - 64; i += 128) smem.a.elements[i] = kOne;
      ptx::fence_proxy_async();
      __syncthreads();
      float acc[kN / 2] = {};
      ptx::wgmma_fence(acc);
      ptx::wgmma<__half, kN>(acc, of_a(smem), of_a(smem), false);
      finish(acc);
    });
  });
  EXPECT_CONTAINS(text, "read of memory that nothing has written, byte 8176 of shared memory");
}

TEST_F(Emulated, ShapesThatShareAccumulators) {
  int at = 0;
  std::string text = outcome([&](Ones& smem, Sums&) {
    float acc[64] = {};
    auto& half = *reinterpret_cast<float(*)[kN / 2]>(&acc[16]);
    ptx::wgmma_fence(acc);
    issue = __LINE__ + 1;
    ptx::wgmma<__half, kN>(*reinterpret_cast<float(*)[kN / 2]>(&acc[0]), of_a(smem), of_b(smem),
                           false);
    at = __LINE__ + 1;
    ptx::wgmma<__half, kN>(half, of_a(smem), of_b(smem), false);
  });
  EXPECT_CONTAINS(text, "wgmma.mma_async at " + line(at) +
                            ": its accumulators are in part those of the wgmma at " + line(issue));
  text = outcome([&](Ones& smem, Sums& acc) {
    float other[kN / 2] = {};
    ptx::wgmma_fence(acc, other);
    multiply(acc, smem);
    at = __LINE__ + 1;
    ptx::wgmma<__half, kN>(other, *reinterpret_cast<uint32_t(*)[4]>(&acc[4]), of_b(smem), false);
  });
  EXPECT_CONTAINS(text, "wgmma.mma_async at " + line(at) +
                            ": A's registers are accumulators of the wgmma at " + line(issue));
}

}  // namespace fa::wgmma_test
