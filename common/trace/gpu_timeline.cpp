#include "common/trace/gpu_timeline.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/launch/problem.h"
#include "common/ptx/hook.h"

namespace fa {
namespace {

using ptx::Event;
using ptx::Record;

// Rows and units have the emulator's names (timing.cpp), and so have instructions.
constexpr const char* kWarps = "Warps";
constexpr const char* kProducts = "Products under way";
constexpr const char* kCopies = "Copies under way";

struct Kind {
  Event event;
  const char *name, *unit;
  bool waits = false;
};
constexpr Kind kKinds[] = {
    {Event::kSyncthreads, "__syncthreads()", "barrier", true},
    {Event::kBarSync, "bar.sync", "barrier", true},
    {Event::kBarArrive, "bar.arrive", "barrier"},
    {Event::kClusterWait, "barrier.cluster.wait", "barrier", true},
    {Event::kClusterArrive, "barrier.cluster.arrive", "barrier"},
    {Event::kMbarrierWait, "mbarrier.try_wait", "barrier", true},
    {Event::kMbarrierArrive, "mbarrier.arrive", "barrier"},
    {Event::kMbarrierArriveCluster, "mbarrier.arrive (cluster)", "barrier"},
    {Event::kMbarrierExpectTx, "mbarrier.arrive.expect_tx", "barrier"},
    {Event::kLoadTensor, "cp.async.bulk.tensor (load)", "copies"},
    {Event::kLoadTensorMulticast, "cp.async.bulk.tensor (multicast load)", "copies"},
    {Event::kLoadBulk, "cp.async.bulk (load)", "copies"},
    {Event::kStoreTensor, "cp.async.bulk.tensor (store)", "copies"},
    {Event::kStoreBulk, "cp.async.bulk (store)", "copies"},
    {Event::kReduceBulk, "cp.reduce.async.bulk", "copies"},
    {Event::kBulkCommit, "cp.async.bulk.commit_group", "copies"},
    {Event::kBulkWait, "cp.async.bulk.wait_group", "copies", true},
    {Event::kBulkWaitRead, "cp.async.bulk.wait_group.read", "copies", true},
    {Event::kCopyCommit, "cp.async.commit_group", "copies"},
    {Event::kCopyWait, "cp.async.wait_group", "copies", true},
    {Event::kWgmmaFence, "wgmma.fence", "issue"},
    {Event::kWgmmaCommit, "wgmma.commit_group", "tensor"},
    {Event::kWgmmaWait, "wgmma.wait_group", "tensor", true},
};
static_assert(std::size(kKinds) == size_t(Event::kCount) - 1, "kBegin alone has none");

Kind kind_of(Event event) {
  const auto* const found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                         [&](const Kind& kind) { return kind.event == event; });
  if (found != std::end(kKinds)) return *found;
  throw BackendError("the GPU's records are damaged: there is no event " +
                     std::to_string(uint32_t(event)));
}

std::string times(const std::string& name, uint32_t count) {
  return count > 1 ? name + " x" + std::to_string(count) : name;
}

// What a warp did, from when to when. Of what is no wait: one cycle.
struct Step {
  Event event;
  bool waits;
  int64_t start, end;
  uint32_t line, detail;
  size_t slice;  // that shows it
};

// Asynchronous work, until somebody has waited for it.
struct UnderWay {
  const char* group;
  size_t warp;
  std::string name, at;
  int64_t start, issued;             // by its first and its last instruction
  std::optional<uint32_t> bar = {};  // of a load
  uint32_t count = 1;
  uint64_t bytes = 0, flops = 0;
  std::optional<int64_t> end = {};
  size_t slice = 0;
};

class Decoder {
 public:
  Decoder(const GpuRecording& recording, const std::string& file, GpuTimeline& result)
      : recording_(recording), file_(file), result_(result), timeline_(result.timeline) {}

  // `begin`: where this launch begins in the timeline.
  void run(int64_t begin) {
    check_sizes();
    uint64_t first = UINT64_MAX;
    for (int w = 0; w < recording_.warps; w++) first = std::min(first, whole(w, 0));
    if (timeline_.cycles == 0) {
      result_.begin_ns = whole(0, 1);
      result_.sm = int(at(0, 2).word >> ptx::kRecordLine);
    }
    for (int w = 0; w < recording_.warps; w++) {
      read_warp(w, begin + int64_t(whole(w, 0) - first));
    }
    for (size_t w = 0; w < steps_.size(); w++) show_warp(w);
    end_loads();
    show_under_way();
    for (size_t w = 0; w < steps_.size(); w++) {
      for (const Step& step : steps_[w]) explain(w, step);
    }
  }

 private:
  // ---- records
  const Record& at(int warp, size_t i) const {
    return recording_.records[i * ptx::kRecordWarps + size_t(warp)];
  }
  uint64_t whole(int warp, size_t i) const {
    return uint64_t(at(warp, i).word) << 32 | at(warp, i).clock;
  }
  void check_sizes() const {
    const size_t all = size_t(ptx::kRecordWarps) * ptx::kRecordsOfWarp;
    const bool fits = recording_.warps >= 1 && recording_.warps <= int(ptx::kRecordWarps);
    if (recording_.records.size() != all || !fits) {
      throw BackendError("the GPU's records do not fit a CTA of " +
                         std::to_string(recording_.warps) + " warps");
    }
    for (int w = 0; w < recording_.warps; w++) {
      if ((at(w, 2).word & (ptx::kRecordEnd - 1)) == uint32_t(Event::kBegin)) continue;
      throw BackendError("the GPU's records are damaged: warp " + std::to_string(w) +
                         " has not begun");
    }
  }

  // The warp's steps. The clock's low half wraps, which its order shows: no two records are 2^31
  // cycles apart, about a second, and one that ptxas has moved before another is earlier.
  void read_warp(int w, int64_t now) {
    begin_.push_back(now);
    std::vector<Step> steps;
    uint32_t clock = at(w, 2).clock;
    std::optional<Step> open;
    size_t i = ptx::kFirstRecord;
    for (; i < ptx::kRecordsOfWarp && at(w, i).word != UINT32_MAX; i++) {
      const auto [low, word] = at(w, i);
      now += int32_t(low - clock);
      clock = low;
      Step step{Event(word & (ptx::kRecordEnd - 1)),
                false,
                now,
                now + 1,
                word >> ptx::kRecordLine & ptx::kMostLine,
                word >> ptx::kRecordDetail,
                0};
      const Kind kind = kind_of(step.event);
      if (word & ptx::kRecordEnd) {
        if (!open || open->event != step.event) {
          throw BackendError("the GPU's records are damaged: warp " + std::to_string(w) +
                             " ends a wait that it has not begun");
        }
        open->end = std::max(now, open->start + 1);
        open->waits = true;
        steps.push_back(*std::exchange(open, std::nullopt));
      } else if (kind.waits) {
        open = step;
      } else {
        steps.push_back(step);
      }
    }
    result_.records += i - ptx::kFirstRecord;
    if (i == ptx::kRecordsOfWarp) result_.out_of_space.push_back(w);
    steps_.push_back(std::move(steps));
  }

  std::string place(uint32_t line) const {
    return line < ptx::kMostLine ? file_ + ":" + std::to_string(line) : file_;
  }

  // ---- rows and slices
  size_t slice(emu::Slice slice) {
    timeline_.cycles = std::max(timeline_.cycles, slice.end);
    timeline_.slices.push_back(std::move(slice));
    return timeline_.slices.size() - 1;
  }

  // Groups of asynchronous work that its warp waits for by their number.
  struct Groups {
    std::vector<size_t> all;  // in under_way_
    void wait(std::vector<UnderWay>& under_way, int64_t end, uint32_t pending) const {
      for (size_t i = 0; i + pending < all.size(); i++) {
        if (!under_way[all[i]].end) under_way[all[i]].end = end;
      }
    }
  };

  void show_warp(size_t w) {
    const int row = track_of(timeline_, kWarps, "warp " + std::to_string(w));
    int64_t now = begin_[w];
    Groups products, stores, copies;
    std::optional<UnderWay> store;  // of the group that no commit has closed
    const Step* before = nullptr;
    uint64_t expected = 0;
    for (Step& step : steps_[w]) {
      step.start = std::max(step.start, now);  // slices of a row do not overlap
      step.end = std::max(step.end, step.start + 1);
      const Kind kind = kind_of(step.event);
      emu::Slice shown{row,       step.start,      step.end, step.waits ? "waits: " : "",
                       kind.unit, place(step.line)};
      shown.name += kind.name;
      shown.waits = step.waits;
      const auto begin_work = [&](const char* group, const std::string& name) -> UnderWay& {
        under_way_.push_back({group, w, name, shown.at, shown.start, step.start});
        return under_way_.back();
      };
      switch (step.event) {
        case Event::kMbarrierExpectTx:
          expected += uint64_t(step.detail) * 16;
          break;
        case Event::kLoadTensor:
        case Event::kLoadTensorMulticast:
        case Event::kLoadBulk: {
          // Loads that follow each other and tell the same barrier are shown as one.
          const bool more = before && before->event == step.event && before->detail == step.detail;
          UnderWay& load = more ? under_way_.back() : begin_work(kCopies, kind.name);
          load.count += more;
          load.issued = step.start;
          load.bar = step.detail;
          load.bytes += std::exchange(expected, 0);
          break;
        }
        case Event::kStoreTensor:
        case Event::kStoreBulk:
        case Event::kReduceBulk:
          if (!store) {
            store = UnderWay{kCopies, w, kind.name, shown.at, step.start, step.start};
          } else {
            store->count++;
          }
          break;
        case Event::kBulkCommit:
          // Without stores nothing is under way, but it is a group.
          if (!store) store = UnderWay{kCopies, w, "", shown.at, step.start, step.start};
          stores.all.push_back(under_way_.size());
          under_way_.push_back(*std::exchange(store, std::nullopt));
          break;
        case Event::kBulkWait:
        case Event::kBulkWaitRead:
          stores.wait(under_way_, step.end, step.detail);
          break;
        case Event::kCopyCommit:
          copies.all.push_back(under_way_.size());
          begin_work(kCopies, "cp.async, group " + std::to_string(copies.all.size() - 1));
          break;
        case Event::kCopyWait:
          copies.wait(under_way_, step.end, step.detail);
          break;
        case Event::kWgmmaCommit: {
          const uint32_t columns = step.detail % 64 * 8, count = step.detail / 64;
          // From the fence on its instructions are issued, and those may have to queue.
          if (before && before->event == Event::kWgmmaFence && count > 0) {
            timeline_.slices.pop_back();
            now = shown.start = before->start;
            shown.name = times("wgmma.m64n" + std::to_string(columns) + "k16", count);
            shown.flops = uint64_t(count) * 2 * 16 * columns * 16;  // this warp's quarter
          }
          products.all.push_back(under_way_.size());
          begin_work(kProducts, shown.name).flops = shown.flops;
          break;
        }
        case Event::kWgmmaWait:
          products.wait(under_way_, step.end, step.detail);
          break;
        default:
          break;
      }
      if (shown.start > now) {
        slice({row, now, shown.start, "other instructions", "work", shown.at});
      }
      now = shown.end;
      step.slice = slice(std::move(shown));
      before = &step;
    }
  }

  // ---- asynchronous work
  // A load ends with the first wait for its barrier that ends after it was issued.
  void end_loads() {
    std::map<uint32_t, std::vector<int64_t>> ends;
    for (const auto& steps : steps_) {
      for (const Step& step : steps) {
        if (step.event == Event::kMbarrierWait) ends[step.detail].push_back(step.end);
      }
    }
    for (auto& [bar, all] : ends) std::sort(all.begin(), all.end());
    for (UnderWay& each : under_way_) {
      if (!each.bar) continue;
      const auto& all = ends[*each.bar];
      const auto end = std::upper_bound(all.begin(), all.end(), each.issued);
      if (end != all.end()) each.end = *end;
    }
  }

  // As many rows a warp as overlap.
  void show_under_way() {
    std::stable_sort(under_way_.begin(), under_way_.end(),
                     [](const UnderWay& a, const UnderWay& b) { return a.start < b.start; });
    emu::OverlappingRows rows;
    for (UnderWay& each : under_way_) {
      if (!each.end || each.name.empty()) continue;  // nobody has waited, or nothing to wait for
      emu::Slice shown{rows.place(timeline_, each.group, each.warp, each.start, *each.end),
                       each.start,
                       *each.end,
                       each.group == kProducts ? each.name : times(each.name, each.count),
                       each.group == kProducts ? "tensor" : "copies",
                       each.at};
      shown.bytes = each.bytes;
      shown.flops = each.flops;
      each.slice = slice(std::move(shown));
    }
  }

  // ---- what ended a wait: the last arrival at its barrier, or the load that brought its bytes
  void explain(size_t w, const Step& wait) {
    if (!wait.waits) return;
    int64_t last = wait.start;
    std::optional<size_t> from;
    const auto candidate = [&](int64_t time, size_t of) {
      if (time > last && time <= wait.end) last = time, from = of;
    };
    const bool is_mbarrier = wait.event == Event::kMbarrierWait;
    const auto arrives = [&](const Step& step) {
      if (wait.event == Event::kSyncthreads) return step.event == Event::kSyncthreads;
      if (wait.event == Event::kClusterWait) return step.event == Event::kClusterArrive;
      if (wait.event == Event::kBarSync) {
        return (step.event == Event::kBarSync || step.event == Event::kBarArrive) &&
               step.detail == wait.detail;
      }
      return is_mbarrier && step.event == Event::kMbarrierArrive && step.detail == wait.detail;
    };
    for (size_t other = 0; other < steps_.size(); other++) {
      if (other == w) continue;
      // Steps are in order of time.
      const auto& steps = steps_[other];
      auto step =
          std::lower_bound(steps.begin(), steps.end(), wait.start,
                           [](const Step& each, int64_t time) { return each.start < time; });
      for (; step != steps.end() && step->start <= wait.end; step++) {
        if (arrives(*step)) candidate(step->start, step->slice);
      }
    }
    for (const UnderWay& each : under_way_) {
      if (is_mbarrier && each.bar == wait.detail && each.end) candidate(*each.end, each.slice);
    }
    if (from) timeline_.flows.push_back({kind_of(wait.event).name, *from, wait.slice});
  }

  const GpuRecording& recording_;
  const std::string& file_;
  GpuTimeline& result_;
  emu::Timeline& timeline_;
  std::vector<int64_t> begin_;            // of each warp
  std::vector<std::vector<Step>> steps_;  // likewise
  std::vector<UnderWay> under_way_;
};

}  // namespace

GpuTimeline decode(const std::vector<GpuRecording>& recordings, const std::string& file) {
  GpuTimeline result;
  for (const GpuRecording& recording : recordings) {
    Decoder(recording, file, result).run(result.timeline.cycles);
  }
  result.timeline = emu::in_order(std::move(result.timeline));
  return result;
}

}  // namespace fa
