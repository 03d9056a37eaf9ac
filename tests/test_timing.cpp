// The model behind timelines, on lists of steps made by hand: every time below can be calculated on
// paper.
#include <utility>

#include "common/trace/timing.h"
#include "tests/support.h"

namespace fa::test {
namespace {

using emu::Group;
using emu::Recording;
using emu::Slice;
using emu::Step;
using emu::Timeline;
using emu::Work;

Step load_matrix() { return {.work = Work::kFragmentLoad, .name = "ldmatrix", .wavefronts = 4}; }
Step product(std::vector<uint32_t> needs = {}) {
  return {.work = Work::kProduct, .name = "mma", .flops = 4096, .needs = std::move(needs)};
}
Step exponentials(uint32_t count) {
  return {.work = Work::kExponential, .name = "exp2", .count = count};
}
Step copy(uint64_t bytes, uint64_t wavefronts) {
  return {.work = Work::kCopy,
          .name = "cp.async",
          .bytes = bytes,
          .wavefronts = wavefronts,
          .group = Group::kCopies};
}
Step commit() { return {.work = Work::kCommit, .name = "commit", .group = Group::kCopies}; }
Step wait(int pending) {
  return {
      .work = Work::kWaitGroups, .name = "wait_group", .group = Group::kCopies, .pending = pending};
}
Step barrier(int meeting) { return {.name = "barrier", .arrives = meeting, .awaits = meeting}; }

Timeline replay(std::vector<std::vector<Step>> warps, int meetings = 0) {
  Recording recording;
  recording.kernel = "made by hand";
  recording.warps = std::move(warps);
  for (int i = 0; i < meetings; i++) recording.meetings.push_back("meeting " + std::to_string(i));
  return emu::replay({recording});
}

// "ldmatrix 0-1, waits: shared memory 1-32": the slices of a row.
std::string row(const Timeline& timeline, const std::string& group, const std::string& name) {
  std::string text;
  for (const Slice& slice : timeline.slices) {
    const emu::Track& track = timeline.tracks[size_t(slice.track)];
    if (track.group != group || track.name != name) continue;
    if (!text.empty()) text += ", ";
    text += slice.name + " " + std::to_string(slice.start) + "-" + std::to_string(slice.end);
  }
  return text;
}
std::string warp(const Timeline& timeline, int index) {
  return row(timeline, "Warps", "warp " + std::to_string(index));
}

TEST(Timing, AProductWaitsForItsFragmentAndForTheTensorCore) {
  const Timeline timeline = replay({{load_matrix(), product({0}), product()}});
  // Wavefronts 0 to 3; the last one's result is there 26 cycles after it begins. A product takes 6.
  EXPECT_EQ(
      warp(timeline, 0),
      "ldmatrix 0-1, waits: shared memory 1-29, mma 29-30, waits: Tensor Core 30-35, mma 35-36");
  EXPECT_EQ(row(timeline, "Tensor Cores", "of warps 0, 4 ..."), "mma 29-35, mma 35-41");
  EXPECT_EQ(row(timeline, "Shared memory", "wavefronts"), "ldmatrix 0-4");
  EXPECT_EQ(timeline.cycles, 41);
}

TEST(Timing, AProductWaitsForNoOtherFragment) {
  const Timeline timeline = replay({{load_matrix(), load_matrix(), product({0})}});
  EXPECT_EQ(warp(timeline, 0), "ldmatrix 0-1, ldmatrix 1-2, waits: shared memory 2-29, mma 29-30");
  EXPECT_EQ(row(timeline, "Shared memory", "wavefronts"), "ldmatrix 0-4, ldmatrix 4-8");
}

TEST(Timing, SumsIntoTheSameAccumulatorsWaitForEachOther) {
  const Timeline timeline = replay({{product(), product({0})}});
  EXPECT_EQ(warp(timeline, 0), "mma 0-1, waits: Tensor Core 1-24, mma 24-25");
}

TEST(Timing, EveryFourthWarpSharesATensorCoreAndAnIssueSlot) {
  const Timeline timeline = replay({{product()}, {product()}, {}, {}, {product()}});
  EXPECT_EQ(warp(timeline, 0), "mma 0-1");
  EXPECT_EQ(warp(timeline, 1), "mma 0-1");
  EXPECT_EQ(warp(timeline, 4), "waits: Tensor Core 0-6, mma 6-7");
  const Timeline issue = replay({{commit()}, {}, {}, {}, {commit()}});
  EXPECT_EQ(warp(issue, 4), "waits: issue slot 0-1, commit 1-2");
}

TEST(Timing, AWaitHasTheNameOfWhatItWasLongestFor) {
  // Warp 0 issues six exponentials in the cycles 0 to 5; warp 4 could go on at 3 and does at 6.
  const Step arrive{.name = "arrive", .arrives = 0}, sync{.name = "sync", .awaits = 0};
  const Timeline timeline =
      replay({{exponentials(6)}, {arrive, arrive, arrive}, {}, {}, {sync}}, 1);
  EXPECT_EQ(warp(timeline, 1), "arrive 0-1, arrive 1-2, arrive 2-3");
  EXPECT_EQ(warp(timeline, 4), "waits: sync 0-6, sync 6-7");
  // Meanwhile the unit's queue does not keep the slot: warp 0 goes on at 9.
  EXPECT_EQ(warp(timeline, 0), "exp2 x6 0-9");
}

TEST(Timing, ExponentialsQueueAtTheirUnit) {
  // Eight cycles each; the warp goes on when the last four wait and one is under way.
  const Timeline timeline = replay({{exponentials(6), product()}});
  EXPECT_EQ(row(timeline, "Exponentials", "of warps 0, 4 ..."), "exp2 x6 0-48");
  EXPECT_EQ(warp(timeline, 0), "exp2 x6 0-9, mma 9-10");
  // A product of what they have computed waits for the last one: 48 and 9 until its result.
  Step of_p = product();
  of_p.computed = true;
  EXPECT_EQ(warp(replay({{exponentials(6), of_p}}), 0),
            "exp2 x6 0-9, waits: exponentials 9-57, mma 57-58");
}

TEST(Timing, ABarrierEndsWithTheLastArrival) {
  const Timeline timeline =
      replay({{barrier(0), product()}, {exponentials(6), barrier(0), product()}}, 1);
  EXPECT_EQ(warp(timeline, 0), "barrier 0-1, waits: barrier 1-10, mma 10-11");
  EXPECT_EQ(warp(timeline, 1), "exp2 x6 0-9, barrier 9-10, mma 10-11");
  ASSERT_EQ(timeline.flows.size(), 1u);
  const Slice &from = timeline.slices[timeline.flows[0].from],
              &to = timeline.slices[timeline.flows[0].to];
  EXPECT_EQ(from.name, "barrier");
  EXPECT_EQ(from.start, 9);
  EXPECT_EQ(to.name, "waits: barrier");
}

TEST(Timing, WhoOnlyArrivesGoesOn) {
  const Step arrive{.name = "arrive", .arrives = 0}, sync{.name = "sync", .awaits = 0};
  const Timeline timeline = replay({{exponentials(6), arrive, product()}, {sync}}, 1);
  EXPECT_EQ(warp(timeline, 0), "exp2 x6 0-9, arrive 9-10, mma 10-11");
  EXPECT_EQ(warp(timeline, 1), "waits: sync 0-10, sync 10-11");
}

TEST(Timing, CopiesLandWhileTheWarpWorks) {
  // 370 bytes at 37 a cycle, 286 until they are here, 4 wavefronts into shared memory: 300.
  const Timeline timeline = replay({{copy(370, 4), commit(), product(), wait(0), product()}});
  EXPECT_EQ(row(timeline, "Copies under way", "warp 0"), "cp.async, group 0 0-300");
  EXPECT_EQ(row(timeline, "L2 to SM", "bytes"), "cp.async 0-10");
  EXPECT_EQ(row(timeline, "Shared memory", "wavefronts"), "cp.async 296-300");
  EXPECT_EQ(warp(timeline, 0),
            "cp.async 0-1, commit 1-2, mma 2-3, waits: wait_group 3-300, wait_group 300-301, mma "
            "301-302");
  ASSERT_EQ(timeline.flows.size(), 1u);
  EXPECT_EQ(timeline.slices[timeline.flows[0].from].name, "cp.async, group 0");
}

TEST(Timing, AWaitLeavesTheLatestGroupsUnderWay) {
  const Timeline timeline =
      replay({{copy(370, 4), commit(), copy(3700, 40), commit(), wait(1), wait(0)}});
  // The second group's bytes follow the first one's: 10 to 110, so it has landed at 110 + 286 + 40.
  EXPECT_EQ(
      warp(timeline, 0),
      "cp.async 0-1, commit 1-2, cp.async 2-3, commit 3-4, waits: wait_group 4-300, wait_group "
      "300-301, waits: wait_group 301-436, wait_group 436-437");
  EXPECT_EQ(row(timeline, "Copies under way", "warp 0"), "cp.async, group 0 0-300");
  EXPECT_EQ(row(timeline, "Copies under way", "warp 0 (2)"), "cp.async, group 1 2-436");
}

TEST(Timing, ACopyCanArriveAtABarrierItself) {
  Step load = copy(370, 4);
  load.group = Group::kNone;
  load.arrives = 0;
  const Step expect{.name = "arrive", .arrives = 0}, sync{.name = "sync", .awaits = 0};
  const Timeline timeline = replay({{expect, load}, {sync}}, 1);
  EXPECT_EQ(warp(timeline, 1), "waits: sync 0-301, sync 301-302");
}

TEST(Timing, AsynchronousProductsAreWaitedForByGroup) {
  // m64n128k16, a warp's quarter: 16 x 128 x 16 multiply-adds at 1024 FLOPs a cycle, 64 cycles; a
  // wait takes 50 more.
  const Step wgmma{.work = Work::kAsyncProduct,
                   .name = "wgmma",
                   .flops = 2 * 16 * 128 * 16,
                   .group = Group::kProducts};
  Step done = commit(), all = wait(0);
  done.group = all.group = Group::kProducts;
  const Timeline timeline = replay({{wgmma, wgmma, done, exponentials(1), all}});
  EXPECT_EQ(row(timeline, "Tensor Cores", "of warps 0, 4 ..."), "wgmma 0-64, wgmma 64-128");
  EXPECT_EQ(
      warp(timeline, 0),
      "wgmma 0-1, wgmma 1-2, commit 2-3, exp2 3-4, waits: wait_group 4-178, wait_group 178-179");
}

TEST(Timing, LoadsOfAnUnrolledLoopAreIssuedTogether) {
  std::vector<Step> recorded;
  for (int i = 0; i < 10; i++) {
    recorded.push_back(
        {.work = Work::kGlobalLoad, .name = "global load", .at = "a:1", .bytes = 512});
    recorded.push_back(
        {.work = Work::kSharedStore, .name = "shared store", .at = "a:2", .wavefronts = 4});
  }
  const std::vector<Step> now = emu::steps(recorded);
  ASSERT_EQ(now.size(), 4u);  // eight and eight, two and two
  EXPECT_EQ(now[0].name + std::to_string(now[0].count), "global load8");
  EXPECT_EQ(now[0].bytes, 8u * 512);
  EXPECT_EQ(now[1].name + std::to_string(now[1].count), "shared store8");
  EXPECT_EQ(now[2].name + std::to_string(now[2].count), "global load2");
  EXPECT_EQ(now[3].wavefronts, 8u);
}

TEST(Timing, ALoadWithSeveralStoresIsATurnToo) {
  const Step load{.work = Work::kSharedLoad, .name = "l", .at = "a:1"},
      one{.work = Work::kGlobalStore, .name = "s", .at = "a:2"},
      two{.work = Work::kGlobalStore, .name = "t", .at = "a:3"};
  std::string names;
  for (const Step& step : emu::steps({load, one, two, load, one, two, load, one}))
    names += step.name + std::to_string(step.count) + " ";
  EXPECT_EQ(names, "l2 s1 t1 s1 t1 l1 s1 ");
}

TEST(Timing, StepsThatMoveAreStillTheOnesThatAreNeeded) {
  const Step load{.work = Work::kGlobalLoad, .name = "l", .at = "a:1", .bytes = 48},
      store{.work = Work::kSharedStore, .name = "s", .at = "a:2", .wavefronts = 1};
  const std::vector<Step> now = emu::steps({load, store, load, store, load_matrix(), product({4})});
  ASSERT_EQ(now.size(), 4u);
  EXPECT_EQ(now[3].needs, std::vector<uint32_t>{2});
}

TEST(Timing, AStoreWaitsForItsLoad) {
  const Timeline timeline =
      replay({{{.work = Work::kGlobalLoad, .name = "load", .bytes = 370},
               {.work = Work::kSharedStore, .name = "store", .wavefronts = 4}}});
  EXPECT_EQ(warp(timeline, 0), "load 0-1, waits: global memory 1-296, store 296-297");
  EXPECT_EQ(row(timeline, "Loads under way", "warp 0"), "load 0-296");
}

TEST(Timing, LaunchesFollowEachOther) {
  const Recording one{"k", 0, 1, {{product()}}, {}};
  const Timeline timeline = emu::replay({one, one});
  EXPECT_EQ(warp(timeline, 0), "mma 0-1, mma 6-7");
  EXPECT_EQ(timeline.cycles, 12);
}

}  // namespace
}  // namespace fa::test
