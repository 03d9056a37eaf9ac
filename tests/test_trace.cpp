// Traces of real kernels (checked build): what is recorded, what the file holds, and what the
// chapters say of copies and products.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "common/emulator/core/half_types.h"
#include "common/emulator/core/launch.h"
#include "common/emulator/core/watch.h"
#include "common/emulator/tests/checked_kernels.h"
#include "common/emulator/units/warp.h"
#include "common/layout/wgmma.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/exp2.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/tma.h"
#include "common/ptx/wgmma.h"
#include "common/trace/timing.h"
#include "common/trace/trace.h"
#include "common/trace/trace_file.h"
#include "tests/support.h"

namespace fa::test {
namespace {

using emu::Slice;
using emu::Timeline;
using emu::Work;

class Traces : public testing::Test {
 protected:
  void TearDown() override {
    emu::options() = {};
    emu::take_recordings();
  }
};

std::vector<emu::Recording> record(const Kernel& kernel, const Problem& p, uint64_t cta = 0) {
  emu::options().traced_cta = cta;
  Protocol protocol;
  Runner runner(p, make_inputs(p, "normal", 1), protocol);
  EXPECT_EQ(runner.verify(kernel).status, Status::kPassed) << kernel.name;
  emu::options().traced_cta.reset();
  return emu::take_recordings();
}

// The first warp's steps as text: "cp.async, barrier 0, phase 0".
std::string text_of(const emu::Recording& recording, size_t warp = 0) {
  std::string text;
  for (const emu::Step& step : recording.warps.at(warp)) {
    if (!text.empty()) text += "; ";
    text += step.name;
    if (step.arrives >= 0) text += " at " + recording.meetings[size_t(step.arrives)];
  }
  return text;
}

// The slices of each row, "Warps, warp 0": "cp.async 0-1; ...".
std::map<std::string, std::string> rows_of(const Timeline& timeline) {
  std::map<std::string, std::string> rows;
  for (const Slice& slice : timeline.slices) {
    const emu::Track& track = timeline.tracks[size_t(slice.track)];
    std::string& row = rows[track.group + ", " + track.name];
    row += (row.empty() ? "" : "; ") + slice.name + " " + std::to_string(slice.start) + "-" +
           std::to_string(slice.end);
  }
  return rows;
}

// ---- kernels small enough to calculate ----------------------------------------------------------
// Two warps copy 512 bytes each, wait for their copy and for each other; warp 1 computes three
// exponentials.
struct TinyStorage {
  alignas(128) uint8_t bytes[64][16];
};

std::vector<emu::Recording> record_tiny() {
  Buffer in("in", 1024);
  in.upload(std::vector<uint8_t>(1024, 1).data());
  emu::options().traced_cta = 0;
  emu::launch("tiny", dim3(1), dim3(64), sizeof(TinyStorage), [&] {
    const int thread = int(threadIdx.x);
    auto& storage = *reinterpret_cast<TinyStorage*>(emu::current_lane->cta->shared);
    ptx::cp_async<16>(ptx::shared_address(storage.bytes[thread]),
                      static_cast<const uint8_t*>(in.data()) + 16 * thread);
    ptx::cp_async_commit();
    if (thread >= 32) {
      for (int i = 0; i < 3; i++) ptx::exp2_approx(float(i));
    }
    ptx::cp_async_wait<0>();
    __syncthreads();
    __syncthreads();
  });
  return emu::take_recordings();
}

// The CTAs are added to the launch in their order. One whose recording fails must not leave those
// behind it waiting.
TEST(TracesDeathTest, ARecordingThatFailsEndsTheLaunch) {
  static std::atomic<bool> another_runs = false;
  struct Failing : emu::Trace {
    using Trace::Trace;
    void finish() override {
      for (int ms = 0; ms < 5000 && !another_runs; ms++) usleep(1000);
      throw emu::LaunchError("no room for the recording");
    }
  };
  const auto launch = [] {
    alarm(60);
    emu::make_recorder = [](const emu::Cta& cta) -> std::unique_ptr<emu::Recorder> {
      return std::make_unique<Failing>(cta);
    };
    emu::options().traced_cta = 0;
    emu::options().os_threads = 2;
    try {
      emu::launch("tiny", dim3(2), dim3(64), 0,
                  [] { another_runs = another_runs || blockIdx.x == 1; });
    } catch (const emu::LaunchError& error) {
      fprintf(stderr, "%s\n", error.what());
      _exit(3);
    }
    _exit(0);
  };
  EXPECT_EXIT(launch(), testing::ExitedWithCode(3), "no room for the recording");
}

TEST_F(Traces, OfATinyKernelAreAsCalculated) {
  const auto recordings = record_tiny();
  ASSERT_EQ(recordings.size(), 1u);
  EXPECT_EQ(
      text_of(recordings[0], 0),
      "cp.async; cp.async.commit_group; cp.async.wait_group; __syncthreads() at barrier 0, phase "
      "0; __syncthreads() at barrier 0, phase 1");
  EXPECT_EQ(
      text_of(recordings[0], 1),
      "cp.async; cp.async.commit_group; exp2; exp2; exp2; cp.async.wait_group; __syncthreads() at "
      "barrier 0, phase 0; __syncthreads() at barrier 0, phase 1");
  const Timeline timeline = emu::replay(recordings);
  auto rows = rows_of(timeline);
  // 512 bytes at 37 a cycle are 14 cycles, the second warp's follow the first one's. 286 later they
  // arrive and take four wavefronts: at 304 and 318. The barriers end when warp 1 comes, one cycle
  // a barrier.
  EXPECT_EQ(rows["L2 to SM, bytes"], "cp.async 0-14; cp.async 14-28");
  EXPECT_EQ(rows["Shared memory, wavefronts"], "cp.async 300-304; cp.async 314-318");
  EXPECT_EQ(rows["Copies under way, warp 0"], "cp.async, group 0 0-304");
  EXPECT_EQ(rows["Copies under way, warp 1"], "cp.async, group 0 0-318");
  EXPECT_EQ(rows["Exponentials, of warps 1, 5 ..."], "exp2 x3 2-26");
  EXPECT_EQ(rows["Warps, warp 0"],
            "cp.async 0-1; cp.async.commit_group 1-2; waits: cp.async.wait_group 2-304; "
            "cp.async.wait_group 304-305; __syncthreads() 305-306; waits: __syncthreads() 306-320; "
            "__syncthreads() 320-321");
  EXPECT_EQ(
      rows["Warps, warp 1"],
      "cp.async 0-1; cp.async.commit_group 1-2; exp2 x3 2-5; waits: cp.async.wait_group 5-318; "
      "cp.async.wait_group 318-319; __syncthreads() 319-320; __syncthreads() 320-321");
  EXPECT_EQ(timeline.cycles, 321);
}

// 64 x 64 x 32 by two wgmma of one warpgroup.
struct WgmmaStorage {
  alignas(1024) uint8_t a[64][128];
  alignas(1024) uint8_t b[64][128];
};

TEST_F(Traces, WgmmaOfATinyKernelAreAsCalculated) {
  emu::options().traced_cta = 0;
  emu::options().races = false;  // nobody writes the operands
  emu::launch("tiny", dim3(1), dim3(128), sizeof(WgmmaStorage), [&] {
    auto& storage = *reinterpret_cast<WgmmaStorage*>(emu::current_lane->cta->shared);
    const uint64_t a = layout::k_major_descriptor(ptx::shared_address(storage.a)),
                   b = layout::k_major_descriptor(ptx::shared_address(storage.b));
    float d[32] = {};
    ptx::wgmma_fence(d);
    ptx::wgmma<__nv_bfloat16, 64>(d, a, b, false);
    ptx::wgmma<__nv_bfloat16, 64>(d, layout::advance(a, 32), layout::advance(b, 32), true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(d);
  });
  const auto rows = rows_of(emu::replay(emu::take_recordings()));
  // 64 x 64 x 16 is N / 2 = 32 cycles on all four Tensor Cores; its 4 KB are 32 wavefronts, eight a
  // warp. A wait takes 50 more.
  for (const int warp : {0, 3}) {
    const std::string of = "of warps " + std::to_string(warp) + ", " + std::to_string(warp + 4);
    EXPECT_EQ(rows.at("Tensor Cores, " + of + " ..."),
              "wgmma.m64n64k16 1-33; wgmma.m64n64k16 33-65");
    EXPECT_EQ(rows.at("Warps, warp " + std::to_string(warp)),
              "wgmma.fence 0-1; wgmma.m64n64k16 1-2; wgmma.m64n64k16 2-3; wgmma.commit_group 3-4; "
              "waits: wgmma.wait_group 4-115; wgmma.wait_group 115-116");
  }
  EXPECT_EQ(
      rows.at("Shared memory, wavefronts"),
      "wgmma.m64n64k16 1-9; wgmma.m64n64k16 9-17; wgmma.m64n64k16 17-25; wgmma.m64n64k16 25-33; "
      "wgmma.m64n64k16 33-41; wgmma.m64n64k16 41-49; wgmma.m64n64k16 49-57; wgmma.m64n64k16 "
      "57-65");
}

// A bulk copy of 4736 bytes that reports to an mbarrier, for which two warps wait.
struct BulkStorage {
  alignas(128) uint8_t bytes[4736];
  uint64_t full;
};

TEST_F(Traces, BulkCopiesOfATinyKernelAreAsCalculated) {
  Buffer in("in", 4736), out("out", 4736);
  in.upload(std::vector<uint8_t>(4736, 1).data());
  emu::options().traced_cta = 0;
  emu::launch("tiny", dim3(1), dim3(64), sizeof(BulkStorage), [&] {
    auto& storage = *reinterpret_cast<BulkStorage*>(emu::current_lane->cta->shared);
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(&storage.full, 1);
      ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      ptx::mbarrier_arrive_expect_tx(&storage.full, 4736);
      ptx::cp_async_bulk_load(storage.bytes, in.data(), 4736, &storage.full);
    }
    ptx::mbarrier_wait(&storage.full, 0);
    if (threadIdx.x == 0) {
      ptx::cp_async_bulk_store(out.data(), storage.bytes, 4736);
      ptx::cp_async_bulk_commit();
      ptx::cp_async_bulk_wait<0>();
    }
  });
  const auto recordings = emu::take_recordings();
  EXPECT_EQ(recordings.at(0).meetings.at(1), "mbarrier at byte 4736, phase 0");
  const auto rows = rows_of(emu::replay(recordings));
  // Issued at 2: 128 cycles on the path from L2, 286 until they are here, 37 wavefronts: 453. Back:
  // 37 and 128.
  EXPECT_EQ(rows.at("L2 to SM, bytes"),
            "cp.async.bulk (load) 2-130; cp.async.bulk (store) 491-619");
  EXPECT_EQ(rows.at("Shared memory, wavefronts"),
            "cp.async.bulk (load) 416-453; cp.async.bulk (store) 454-491");
  EXPECT_EQ(rows.at("Copies under way, warp 0"),
            "cp.async.bulk (load) 2-453; cp.async.bulk (store), group 0 454-619");
  EXPECT_EQ(rows.at("Warps, warp 0"),
            "__syncthreads() 0-1; mbarrier.arrive.expect_tx 1-2; cp.async.bulk (load) 2-3; waits: "
            "mbarrier.try_wait 3-453; mbarrier.try_wait 453-454; cp.async.bulk (store) 454-455; "
            "cp.async.bulk.commit_group 455-456; waits: cp.async.bulk.wait_group 456-619; "
            "cp.async.bulk.wait_group 619-620");
  EXPECT_EQ(rows.at("Warps, warp 1"),
            "__syncthreads() 0-1; waits: mbarrier.try_wait 1-453; mbarrier.try_wait 453-454");
}

TEST_F(Traces, LoadsAndStoresHaveTheirWavefrontsAndPlaces) {
  Buffer in("in", 4096 * 4);
  const Buffer out("out", 4096 * 4);
  in.upload(std::vector<float>(4096, 1.0f).data());
  emu::options().traced_cta = 0;
  const auto kernel = probe::Kernel::kCopy16;
  emu::launch("probe", dim3(1), dim3(32), size_t(probe::shared_bytes(kernel)),
              probe::body(kernel, static_cast<const float*>(in.data()),
                          static_cast<float*>(out.data()), 4096));
  const auto recordings = emu::take_recordings();
  ASSERT_EQ(recordings.size(), 1u);
  ASSERT_EQ(text_of(recordings[0]), "global load; global store");
  for (const emu::Step& step : recordings[0].warps[0]) {
    EXPECT_EQ(step.bytes, 512u);
    EXPECT_EQ(step.at.substr(0, 42), "common/emulator/tests/checked_kernels.cpp:") << step.at;
  }
}

// ---- the kernels --------------------------------------------------------------------------------
class TracesOfKernels : public Traces, public testing::WithParamInterface<std::string> {};

// Every event has what the format demands; slices of a row follow each other; arrows have both
// ends, inside slices, and point forwards.
TEST_P(TracesOfKernels, AreValidFiles) {
  const Problem p = problem(1, 1, 128, 64, Dtype::kBf16);
  const auto recordings = record(find_kernel(GetParam()), p);
  ASSERT_FALSE(recordings.empty());
  const std::string text = trace_json(recordings, p, emu::replay(recordings));
  const Json file = Json::parse(text);
  EXPECT_EQ(file["otherData"]["kernel"], GetParam());
  std::set<std::pair<int, int>> named;
  std::set<int> processes;
  std::map<std::pair<int, int>, std::vector<std::pair<int64_t, int64_t>>> rows;
  std::map<int, Json> starts, ends;
  int64_t last = 0;
  for (const Json& event : file["traceEvents"]) {
    const std::string phase = event["ph"].get<std::string>();
    const std::pair<int, int> row{event["pid"].get<int>(), event["tid"].get<int>()};
    if (phase == "M") {
      if (event["name"] == "thread_name") {
        EXPECT_TRUE(named.insert(row).second) << "two names for a row";
      }
      if (event["name"] == "process_name") processes.insert(row.first);
      continue;
    }
    EXPECT_TRUE(named.count(row) && processes.count(row.first)) << event;
    EXPECT_FALSE(event["name"].get<std::string>().empty());
    const int64_t start = event["ts"].get<int64_t>();
    if (phase == "X") {
      const int64_t duration = event["dur"].get<int64_t>();
      EXPECT_GT(duration, 0) << event;
      auto& slices = rows[row];
      EXPECT_TRUE(slices.empty() || slices.back().second <= start) << event;
      slices.emplace_back(start, start + duration);
      last = std::max(last, start + duration);
      EXPECT_FALSE(event["args"].contains("file") || event["args"]["statement"] == "") << event;
    } else if (phase == "s") {
      EXPECT_TRUE(starts.emplace(event["id"].get<int>(), event).second);
    } else {
      ASSERT_EQ(phase, "f");
      EXPECT_EQ(event["bp"], "e");
      EXPECT_TRUE(ends.emplace(event["id"].get<int>(), event).second);
    }
  }
  EXPECT_EQ(file["otherData"]["cycles"], last);
  EXPECT_EQ(starts.size(), ends.size());
  const auto in_a_slice = [&](const Json& event) {
    const int64_t time = event["ts"].get<int64_t>();
    for (const auto& [start, end] : rows[{event["pid"].get<int>(), event["tid"].get<int>()}]) {
      if (start <= time && time < end) return true;
    }
    return false;
  };
  for (const auto& [id, start] : starts) {
    ASSERT_TRUE(ends.count(id));
    EXPECT_LE(start["ts"], ends[id]["ts"]);
    EXPECT_TRUE(in_a_slice(start)) << start;
    EXPECT_TRUE(in_a_slice(ends[id])) << ends[id];
  }
}

// Whatever the order in which the emulator runs lanes and ends copies: the warps do the same.
TEST_P(TracesOfKernels, AreTheSameInAnyOrder) {
  const Problem p = problem(1, 2, 128, 64, Dtype::kBf16);
  const auto text = [&] {
    const auto recordings = record(find_kernel(GetParam()), p, 3);
    return trace_json(recordings, p, emu::replay(recordings));
  };
  const std::string expected = text();
  for (uint64_t seed = 1; seed <= 2; seed++) {
    emu::options().schedule = emu::Schedule::kRandom;
    emu::options().completion = emu::Completion::kRandom;
    emu::options().seed = seed;
    emu::options().os_threads = int(seed);
    EXPECT_EQ(text() == expected, true) << "seed " << seed;
  }
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const Kernel& kernel : numbered_kernels()) names.push_back(kernel.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Ladder, TracesOfKernels, testing::ValuesIn(kernel_names()),
                         [](const auto& kernel) { return kernel.param; });

// Cycles in which a slice of one group of rows and one of the other are under way.
int64_t overlap(const Timeline& timeline, const std::string& a, const std::string& b,
                int64_t from = 0) {
  std::vector<bool> in_a(size_t(timeline.cycles)), in_b(size_t(timeline.cycles));
  for (const Slice& slice : timeline.slices) {
    const std::string& group = timeline.tracks[size_t(slice.track)].group;
    if (group != a && group != b) continue;
    for (int64_t t = std::max(slice.start, from); t < slice.end; t++) {
      if (group == a) in_a[size_t(t)] = true;
      if (group == b) in_b[size_t(t)] = true;
    }
  }
  int64_t both = 0;
  for (size_t t = 0; t < in_a.size(); t++) both += in_a[t] && in_b[t];
  return both;
}

// What chapters 06 and 07 are about.
TEST_F(Traces, CopiesOf07OverlapProductsAndLoadsOf06DoNot) {
  const Problem p = problem(1, 1, 256, 128, Dtype::kBf16);
  const Timeline loads = emu::replay(record(find_kernel("06"), p));
  // But for products that are still in the pipe when the barrier before the loads ends.
  EXPECT_GT(overlap(loads, "Loads under way", "Loads under way"), 3000);
  EXPECT_LT(overlap(loads, "Loads under way", "Tensor Cores"), 20);
  // But for the first tile, which nobody can hide. The Tensor Cores rest in between, for fragments.
  const Timeline copies = emu::replay(record(find_kernel("07"), p));
  int64_t first = copies.cycles;
  for (const Slice& slice : copies.slices) {
    if (copies.tracks[size_t(slice.track)].group == "Tensor Cores")
      first = std::min(first, slice.start);
  }
  const int64_t under_way = overlap(copies, "Copies under way", "Copies under way", first),
                shared = overlap(copies, "Copies under way", "Shared memory", first);
  EXPECT_GT(under_way, 2000);
  EXPECT_GT(overlap(copies, "Copies under way", "Tensor Cores", first), under_way / 3);
  EXPECT_GT(shared, under_way / 2);  // products' fragments are read meanwhile
}

// What the pictures of chapters 07, 08 and 09 say.
TEST_F(Traces, PipeliningShortensTheTimelineAndASwizzleCostsNothing) {
  const Problem p = problem(1, 1, 256, 128, Dtype::kBf16);
  std::map<std::string, int64_t> cycles;
  for (const char* name : {"07", "08", "09"})
    cycles[name] = emu::replay(record(find_kernel(name), p)).cycles;
  EXPECT_NEAR(double(cycles["07"]), double(cycles["08"]), 0.02 * double(cycles["08"]));
  EXPECT_GT(cycles["08"], cycles["09"] * 5 / 4);
}

// Products know the loads and exponentials whose bits they multiply, whatever the type.
TEST_F(Traces, ProductsNameWhatTheyNeed) {
  for (const char* name : {"06", "07", "08", "09", "10"}) {
    for (const Dtype dtype : {Dtype::kFp16, Dtype::kBf16}) {
      const auto recordings = record(find_kernel(name), problem(1, 1, 128, 64, dtype));
      const auto& steps = recordings.at(0).warps.at(1);
      size_t of_fragments = 0, of_exponentials = 0;
      for (const emu::Step& step : steps) {
        if (step.work != Work::kProduct) continue;
        EXPECT_FALSE(step.computed) << name << ": " << step.at;
        bool loaded = false, exponential = false;
        for (const uint32_t needed : step.needs) {
          loaded |= steps[needed].work == Work::kFragmentLoad;
          exponential |= steps[needed].work == Work::kExponential;
        }
        EXPECT_TRUE(loaded) << name << ": " << step.at;
        (exponential ? of_exponentials : of_fragments)++;
      }
      EXPECT_EQ(of_fragments, of_exponentials) << name;  // Q K and P V: as many
      EXPECT_GT(of_fragments, 0u);
    }
  }
}

// Buffers by addresses, copies and exponentials by values, results by operands: what the steps of a
// CTA move, by the names of their instructions.
TEST_F(Traces, SayWhatMoves) {
  using Moves = std::map<std::string, std::set<std::string>>;
  const auto moves = [](const char* name, Dtype dtype) {
    Moves result;
    const auto recordings = record(find_kernel(name), problem(1, 1, 128, 64, dtype));
    for (const auto& steps : recordings.at(0).warps) {
      for (const emu::Step& step : steps) {
        if (!step.of.empty()) result[step.name].insert(step.of);
      }
    }
    return result;
  };
  const std::set<std::string> loaded{"Q", "K", "V"};
  for (const Dtype dtype : {Dtype::kFp16, Dtype::kBf16}) {
    // Copies as they are in 04 to 06, in fp32 in 03; P, S and O cross shared memory in 04.
    EXPECT_EQ(moves("03", dtype), (Moves{{"global load", loaded},
                                         {"global store", {"O"}},
                                         {"shared load", {"Q", "K", "V", "exp2"}},
                                         {"shared store", {"Q", "K", "V", "exp2"}}}));
    const Moves opaque = moves("04", dtype);
    EXPECT_EQ(opaque.at("wmma load"), (std::set<std::string>{"Q", "K", "V", "exp2", "exp2*V"}));
    EXPECT_EQ(opaque.at("wmma store"), (std::set<std::string>{"Q*K", "exp2*V"}));
    EXPECT_EQ(opaque.at("wmma.m16n16k16"), (std::set<std::string>{"Q K", "exp2 V"}));
    EXPECT_EQ(moves("05", dtype).at("ldmatrix"), (std::set<std::string>{"Q", "K", "V", "exp2"}));
    EXPECT_EQ(moves("06", dtype), (Moves{{"global load", loaded},
                                         {"global store", {"O"}},
                                         {"ldmatrix", loaded},
                                         {"mma.m16n8k16", {"Q K", "exp2 V"}},
                                         {"shared store", loaded}}));
    const Moves last = moves("15", dtype);
    EXPECT_EQ(last.at("cp.async.bulk.tensor (load)"), loaded);
    EXPECT_EQ(last.at("cp.async.bulk.tensor (store)"), std::set<std::string>{"O"});
  }
}

TEST_F(Traces, ShowTheCtaThatIsAskedFor) {
  const Problem p = problem(1, 2, 128, 64, Dtype::kBf16);
  EXPECT_EQ(record(find_kernel("06"), p, 3).at(0).cta, 3u);
  EXPECT_EQ(record(find_kernel("06"), p, 3).at(0).ctas, 4u);
  EXPECT_TRUE(record(find_kernel("06"), p, 4).empty());
  EXPECT_EQ(record(find_kernel("01"), p, 0).size(), 3u) << "three launches";
}

}  // namespace
}  // namespace fa::test
