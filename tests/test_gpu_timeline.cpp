// From a GPU's records to a timeline, with records made by hand: every time below can be seen in
// the test.
#include <map>
#include <type_traits>

#include "common/launch/launch.h"
#include "common/trace/recorder.h"
#include "common/trace/trace_file.h"
#include "tests/records.h"
#include "tests/support.h"

namespace fa::test {
namespace {

using emu::Slice;
using emu::Timeline;

// The kernel of a launch may fail; then its records are not kept, and nothing is thrown from a
// destructor.
static_assert(std::is_nothrow_destructible_v<RecordedLaunch>);

TEST(RecordedLaunches, AreKeptIfTheyHaveFinished) {
  const LaunchShape shape{dim3(2), dim3(64)};
  start_recording(1);
  EXPECT_EQ(RecordedLaunch(shape).target().cta, 1u);
  RecordedLaunch launch(shape);
  launch.finish();
  const std::vector<GpuRecording> kept = take_gpu_recordings();
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].cta, 1u);
  EXPECT_EQ(kept[0].warps, 2);
  EXPECT_EQ(kept[0].records.front().word, ~0u);
}

class GpuTimelines : public testing::Test {
 protected:
  GpuRecording recording{
      "made by hand", 3, 1,
      std::vector<ptx::Record>(ptx::kRecordWarps* ptx::kRecordsOfWarp, {~0u, ~0u})};
  RecordWriter writer{recording.records.data()};

  GpuTimeline decoded() const { return decode({recording}, "kernels/x.cu"); }

  // "wgmma.fence 5-6; ...": the slices of a row.
  static std::string row(const Timeline& timeline, const std::string& group,
                         const std::string& name) {
    std::string text;
    for (const Slice& slice : timeline.slices) {
      const emu::Track& track = timeline.tracks[size_t(slice.track)];
      if (track.group != group || track.name != name) continue;
      if (!text.empty()) text += "; ";
      text += slice.name + " " + std::to_string(slice.start) + "-" + std::to_string(slice.end);
    }
    return text;
  }
  static std::string warp(const Timeline& timeline, int index) {
    return row(timeline, "Warps", "warp " + std::to_string(index));
  }
  // "bar.sync: warp 1 at 20 -> warp 0 at 5; ..."
  static std::string flows(const Timeline& timeline) {
    std::string text;
    for (const emu::Flow& flow : timeline.flows) {
      const auto end = [&](size_t i) {
        const Slice& slice = timeline.slices[i];
        const emu::Track& track = timeline.tracks[size_t(slice.track)];
        return track.name + " at " + std::to_string(slice.start);
      };
      text +=
          (text.empty() ? "" : "; ") + flow.name + ": " + end(flow.from) + " -> " + end(flow.to);
    }
    return text;
  }
};

TEST_F(GpuTimelines, AWarpHasItsWaitsAndWhatLiesBetween) {
  writer.begin(0, 1000, 5'000'000'000, 131);
  writer.wait(0, 1005, 1030, Event::kSyncthreads, 155);
  writer.at(0, 1090, Event::kMbarrierArrive, 200, 0x400);
  writer.wait(0, 1091, 1200, Event::kBulkWaitRead, 201, 0);
  const GpuTimeline result = decoded();
  EXPECT_EQ(warp(result.timeline, 0),
            "other instructions 0-5; waits: __syncthreads() 5-30; other instructions 30-90; "
            "mbarrier.arrive 90-91; waits: cp.async.bulk.wait_group.read 91-200");
  EXPECT_EQ(result.timeline.slices.at(1).at, "kernels/x.cu:155");
  EXPECT_EQ(result.timeline.slices.at(1).unit, "barrier");
  EXPECT_TRUE(result.timeline.slices.at(1).waits);
  EXPECT_EQ(result.timeline.slices.at(2).unit, "work");
  EXPECT_EQ(result.timeline.slices.at(4).unit, "copies");
  EXPECT_EQ(result.timeline.cycles, 200);
  EXPECT_EQ(result.records, 5u);
  EXPECT_EQ(result.sm, 131);
  EXPECT_EQ(result.begin_ns, 5'000'000'000u);
  EXPECT_TRUE(result.out_of_space.empty());
}

TEST_F(GpuTimelines, ProductsAreUnderWayUntilTheirGroupIsWaitedFor) {
  writer.begin(0, 0);
  writer.products(0, 10, 40, 50, 128, 8);
  writer.products(0, 60, 90, 60, 64, 1);
  writer.wait(0, 100, 500, Event::kWgmmaWait, 70, 1);
  writer.products(0, 510, 520, 50, 128, 8);
  writer.wait(0, 530, 900, Event::kWgmmaWait, 71, 0);
  const Timeline timeline = decoded().timeline;
  EXPECT_EQ(warp(timeline, 0),
            "other instructions 0-10; wgmma.m64n128k16 x8 10-41; other instructions 41-60; "
            "wgmma.m64n64k16 60-91; other instructions 91-100; waits: wgmma.wait_group 100-500; "
            "other instructions 500-510; wgmma.m64n128k16 x8 510-521; other instructions 521-530; "
            "waits: wgmma.wait_group 530-900");
  EXPECT_EQ(row(timeline, "Products under way", "warp 0"),
            "wgmma.m64n128k16 x8 10-500; wgmma.m64n128k16 x8 510-900");
  EXPECT_EQ(row(timeline, "Products under way", "warp 0 (2)"), "wgmma.m64n64k16 60-900");
  EXPECT_EQ(timeline.slices.at(1).at, "kernels/x.cu:51");
  EXPECT_EQ(timeline.slices.at(1).flops, 8u * 2 * 16 * 128 * 16);  // a warp's 16 rows
}

// The producer's two loads are one copy; consumers wait for it, one in vain, and the last one says
// that the stage is empty again.
TEST_F(GpuTimelines, LoadsEndWithTheFirstWaitForTheirBarrier) {
  constexpr uint32_t kFull = 0x1000, kEmpty = 0x1001;
  recording.warps = 3;
  for (const int w : {0, 1, 2}) writer.begin(w, 0);
  writer.at(2, 10, Event::kMbarrierExpectTx, 20, 32768 / 16);
  writer.at(2, 20, Event::kLoadTensor, 21, kFull);
  writer.at(2, 30, Event::kLoadTensor, 21, kFull);
  writer.wait(2, 40, 1015, Event::kMbarrierWait, 19, kEmpty);
  writer.at(2, 1020, Event::kMbarrierExpectTx, 20, 1024 / 16);
  writer.at(2, 1030, Event::kLoadTensor, 21, kFull);
  writer.wait(0, 15, 700, Event::kMbarrierWait, 30, kFull);
  writer.at(0, 900, Event::kMbarrierArrive, 31, kEmpty);
  writer.wait(1, 720, 740, Event::kMbarrierWait, 30, kFull);
  writer.at(1, 1000, Event::kMbarrierArrive, 31, kEmpty);
  writer.wait(0, 1100, 1500, Event::kMbarrierWait, 30, kFull);
  writer.at(2, 1505, Event::kMbarrierExpectTx, 20, 1);
  writer.at(2, 1510, Event::kLoadTensor, 21, kFull);
  const Timeline timeline = decoded().timeline;
  // Nobody has waited for the last one: not shown.
  EXPECT_EQ(row(timeline, "Copies under way", "warp 2"),
            "cp.async.bulk.tensor (load) x2 20-700; cp.async.bulk.tensor (load) 1030-1500");
  EXPECT_EQ(timeline.slices.at(timeline.slices.size() - 2).bytes, 32768u);
  EXPECT_EQ(timeline.slices.back().bytes, 1024u);
  EXPECT_EQ(flows(timeline),
            "mbarrier.try_wait: warp 2 at 20 -> warp 0 at 15; "
            "mbarrier.try_wait: warp 2 at 1030 -> warp 0 at 1100; "
            "mbarrier.try_wait: warp 1 at 1000 -> warp 2 at 40");
}

TEST_F(GpuTimelines, TheLastToArriveEndsABarrier) {
  recording.warps = 3;
  for (const int w : {0, 1, 2}) writer.begin(w, 0);
  writer.wait(0, 5, 60, Event::kBarSync, 10, 3);
  writer.at(1, 50, Event::kBarArrive, 11, 3);
  writer.at(2, 55, Event::kBarArrive, 11, 4);
  writer.wait(0, 100, 190, Event::kSyncthreads, 12);
  writer.wait(1, 180, 191, Event::kSyncthreads, 12);
  writer.wait(2, 110, 192, Event::kSyncthreads, 12);
  EXPECT_EQ(flows(decoded().timeline),
            "bar.sync: warp 1 at 50 -> warp 0 at 5; __syncthreads(): warp 1 at 180 -> warp 0 at "
            "100; __syncthreads(): warp 1 at 180 -> warp 2 at 110");
}

TEST_F(GpuTimelines, StoresAndCopiesHaveGroups) {
  writer.begin(0, 0);
  writer.at(0, 10, Event::kBulkCommit, 8);  // an empty group
  writer.at(0, 20, Event::kStoreTensor, 9);
  writer.at(0, 30, Event::kStoreTensor, 9);
  writer.at(0, 40, Event::kBulkCommit, 10);
  writer.wait(0, 50, 90, Event::kBulkWait, 11, 1);
  writer.at(0, 100, Event::kCopyCommit, 12);
  writer.at(0, 110, Event::kCopyCommit, 12);
  writer.wait(0, 120, 300, Event::kCopyWait, 13, 1);
  writer.wait(0, 310, 320, Event::kCopyWait, 13, 0);
  writer.wait(0, 330, 400, Event::kBulkWaitRead, 14, 0);
  const Timeline timeline = decoded().timeline;
  EXPECT_EQ(row(timeline, "Copies under way", "warp 0"), "cp.async.bulk.tensor (store) x2 20-400");
  EXPECT_EQ(row(timeline, "Copies under way", "warp 0 (2)"), "cp.async, group 0 100-300");
  EXPECT_EQ(row(timeline, "Copies under way", "warp 0 (3)"), "cp.async, group 1 110-320");
}

// Only the clock's low half is in a record. Warp 1 begins when it has wrapped; its second record
// was moved up.
TEST_F(GpuTimelines, ClocksWrap) {
  recording.warps = 2;
  const uint64_t begin = (uint64_t(5) << 32) - 100;
  writer.begin(0, begin);
  writer.wait(0, begin + 50, begin + 150, Event::kBarSync, 1, 0);
  writer.at(0, begin + 150 + 0x7ffffff0u, Event::kBarArrive, 1);
  writer.at(0, begin + 150 + 0x7ffffff0u + 0x100, Event::kBarArrive, 1);
  writer.begin(1, begin + 120);
  writer.at(1, begin + 130, Event::kBarArrive, 2, 0);
  writer.at(1, begin + 127, Event::kBarArrive, 2, 0);
  const Timeline timeline = decoded().timeline;
  EXPECT_EQ(
      warp(timeline, 0),
      "other instructions 0-50; waits: bar.sync 50-150; other instructions 150-2147483782; "
      "bar.arrive 2147483782-2147483783; other instructions 2147483783-2147484038; bar.arrive "
      "2147484038-2147484039");
  EXPECT_EQ(warp(timeline, 1),
            "other instructions 120-130; bar.arrive 130-131; bar.arrive 131-132");
}

TEST_F(GpuTimelines, AFullBufferIsSaid) {
  recording.warps = 2;
  writer.begin(0, 0);
  writer.begin(1, 0);
  const uint32_t space = ptx::kRecordsOfWarp - ptx::kFirstRecord;
  writer.at(0, 1, Event::kBarArrive, 1);
  for (uint32_t i = 1; i < space; i++) writer.at(1, 10 * i, Event::kBarArrive, 1);
  writer.wait(1, 10 * space, 10 * space + 5, Event::kBarSync, 1);  // its end has no place
  const GpuTimeline result = decoded();
  EXPECT_EQ(result.out_of_space, std::vector<int>{1});
  EXPECT_EQ(result.records, 1 + space);
  const std::string text = warp(result.timeline, 1);
  EXPECT_TRUE(text.ends_with("bar.arrive 655320-655321")) << text.substr(text.size() - 100);
}

TEST_F(GpuTimelines, OneLaunchFollowsTheOther) {
  writer.begin(0, 500);
  writer.at(0, 510, Event::kBarArrive, 1);
  const Timeline timeline = decode({recording, recording}, "kernels/x.cu").timeline;
  EXPECT_EQ(
      warp(timeline, 0),
      "other instructions 0-10; bar.arrive 10-11; other instructions 11-21; bar.arrive 21-22");
  EXPECT_EQ(timeline.cycles, 22);
}

TEST_F(GpuTimelines, LinesBeyondTheirBitsAreLeftOut) {
  writer.begin(0, 0);
  writer.at(0, 0, Event::kBarArrive, ptx::kMostLine);
  EXPECT_EQ(decoded().timeline.slices.at(0).at, "kernels/x.cu");
}

TEST_F(GpuTimelines, DamagedRecordsAreRefused) {
  const auto refused = [&](const std::string& sentence) {
    EXPECT_CONTAINS(error_of<BackendError>([&] { decoded(); }), sentence);
  };
  refused("warp 0 has not begun");
  writer.begin(0, 0);
  writer.at(0, 1, Event::kCount, 1);
  refused("there is no event");
  writer = RecordWriter(recording.records.data());
  writer.begin(0, 0);
  writer.at(0, 1, Event::kBarSync, 1, 0, ptx::kRecordEnd);
  refused("ends a wait that it has not begun");
  recording.warps = 33;
  refused("33 warps");
  recording.warps = 1;
  recording.records.pop_back();
  refused("do not fit");
}

TEST_F(GpuTimelines, AreFiles) {
  writer.begin(0, 0);
  writer.products(0, 10, 40, 50, 128, 8);
  writer.wait(0, 100, 500, Event::kWgmmaWait, 70, 0);
  const GpuTrace trace{{recording}, decoded(), "Some GPU", 0.5, 0.625};
  const auto file = Json::parse(trace_json(trace, problem(1, 2, 128, 64, Dtype::kFp16)));
  const auto& about = file["otherData"];
  EXPECT_EQ(about["kernel"], "made by hand");
  EXPECT_EQ(about["cta"], 3);
  EXPECT_EQ(about["cycles"], 500);
  EXPECT_EQ(about["recorded"]["gpu"], "Some GPU");
  EXPECT_EQ(about["recorded"]["recording_ms"], 0.625);
  std::map<std::string, int> phases;
  for (const auto& event : file["traceEvents"]) phases[event["ph"].get<std::string>()]++;
  EXPECT_EQ(phases["M"], 8);  // two groups of one row: names and places
  EXPECT_EQ(phases["X"], 5);
}

}  // namespace
}  // namespace fa::test
