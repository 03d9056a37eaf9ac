#include "common/trace/timing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace emu {
namespace {

constexpr size_t kNobody = SIZE_MAX;

// Units in the order of the timeline's rows: what a slice's `unit` says.
constexpr const char* kIssue = "issue";
constexpr const char* kTensor = "tensor";
constexpr const char* kMufu = "exponential";
constexpr const char* kShared = "shared";
constexpr const char* kGlobal = "global";
constexpr const char* kCopies = "copies";
constexpr const char* kExchange = "exchange";
constexpr const char* kMeeting = "barrier";

// Serves one after the other.
struct Unit {
  int64_t free = 0;
  int64_t take(int64_t at, int64_t cycles) {  // returns the start
    const int64_t start = std::max(at, free);
    free = start + cycles;
    return start;
  }
};

struct AsyncGroup {
  int under_way = 0;
  int64_t end = 0;         // of what has ended so far
  size_t slice = kNobody;  // the one that ended last
};

struct Meeting {
  int expected = 0, arrived = 0;
  int64_t time = 0;
  size_t slice = kNobody;  // the last to arrive
  bool complete() const { return arrived == expected; }
};

// Results that a warp has ordered, by who makes them: when the last of them is there.
struct Results {
  int64_t global = 0, shared = 0, products = 0, exponentials = 0, exchanges = 0;
};

struct WarpState {
  std::vector<Step> steps;
  size_t next = 0;
  int64_t front = 0;  // when it can think of its next step
  int64_t last_issue = -1;
  bool arrived = false;  // at the meeting of the next step, where it now waits
  Results results;
  std::vector<int64_t> ready;                     // of each step: its result
  std::array<std::vector<AsyncGroup>, 4> groups;  // by Group; the last one is open
};

// What a warp's next step waits for.
struct Bound {
  int64_t time = 0;
  const char* unit = nullptr;
  size_t from = kNobody;  // the slice that ends the wait
};

// The end of an asynchronous transfer, where its next part begins.
struct Landing {
  int64_t time;
  uint64_t order;
  size_t warp, group;  // of the warp's `step.group`
  const Step* step;
  size_t slice;
  bool operator>(const Landing& other) const {
    return std::tie(time, order) > std::tie(other.time, other.order);
  }
};

class Replay {
 public:
  Replay(const Recording& recording, const Sm& sm, int64_t begin, Timeline& timeline)
      : sm_(sm), timeline_(timeline) {
    schedulers_.resize(size_t(sm.schedulers));
    meetings_.resize(recording.meetings.size());
    for (const auto& recorded : recording.warps) {
      WarpState warp;
      warp.steps = steps(recorded, sm);
      warp.front = begin;
      warp.ready.assign(warp.steps.size(), begin);
      for (auto& groups : warp.groups) groups.resize(1);
      for (const Step& step : warp.steps) {
        if (step.arrives >= 0) meetings_[size_t(step.arrives)].expected++;
      }
      warps_.push_back(std::move(warp));
    }
  }

  int64_t run() {
    while (true) {
      size_t chosen = kNobody;
      Bound best;
      for (size_t w = 0; w < warps_.size(); w++) {
        const std::optional<Bound> bound = next_issue(w);
        if (!bound) continue;
        if (chosen == kNobody || std::pair(bound->time, warps_[w].last_issue) <
                                     std::pair(best.time, warps_[chosen].last_issue)) {
          chosen = w;
          best = *bound;
        }
      }
      if (!landings_.empty() && (chosen == kNobody || landings_.top().time <= best.time)) {
        const Landing landing = landings_.top();
        landings_.pop();
        land(landing);
      } else if (chosen != kNobody) {
        issue(chosen, best);
      } else {
        break;
      }
    }
    place_under_way();
    return end_;
  }

 private:
  // ---- rows and slices
  int track(const std::string& group, const std::string& name) {
    return track_of(timeline_, group, name);
  }
  int warp_track(size_t w) { return track("Warps", "warp " + std::to_string(w)); }
  int scheduler_track(const char* group, size_t w) {
    const size_t scheduler = w % schedulers_.size();
    return track(group, "of warps " + std::to_string(scheduler) + ", " +
                            std::to_string(scheduler + schedulers_.size()) + " ...");
  }

  size_t slice(int on, int64_t start, int64_t end, const Step& step, const char* unit) {
    end_ = std::max(end_, end);
    std::string name = step.name;
    if (step.count > 1) name += " x" + std::to_string(step.count);
    timeline_.slices.push_back({on, start, end, name, unit, step.at, step.bytes, step.wavefronts,
                                step.flops, step.ideal, step.of});
    return timeline_.slices.size() - 1;
  }

  // The wait before a step's issue, if there is one.
  void wait_slice(size_t w, const Bound& bound, const std::string& what, const std::string& at) {
    WarpState& warp = warps_[w];
    if (bound.time <= warp.front) return;
    Slice wait{warp_track(w), warp.front, bound.time, "waits: " + what, bound.unit, at};
    wait.waits = true;
    timeline_.slices.push_back(wait);
    if (bound.from != kNobody) {
      timeline_.flows.push_back({what, bound.from, timeline_.slices.size() - 1});
    }
  }

  static std::string name_of(const char* unit) {
    const std::map<std::string, std::string> names = {
        {kIssue, "issue slot"},     {kTensor, "Tensor Core"},   {kMufu, "exponentials"},
        {kShared, "shared memory"}, {kGlobal, "global memory"}, {kCopies, "copies"},
        {kExchange, "shuffle"},     {kMeeting, "barrier"}};
    return names.at(unit);
  }

  // ---- issue ------------------------------------------------------------------------------------
  // When a warp's next step can issue, and what it waits for until then; nothing: nobody knows yet.
  std::optional<Bound> next_issue(size_t w) {
    const WarpState& warp = warps_[w];
    if (warp.next == warp.steps.size()) return std::nullopt;
    const Step& step = warp.steps[warp.next];
    const size_t scheduler = w % schedulers_.size();
    Bound bound{warp.front, kIssue};
    const auto after = [&](int64_t time, const char* unit, size_t from = kNobody) {
      if (time > bound.time) bound = {time, unit, from};
    };
    if (step.awaits >= 0 && (warp.arrived || step.arrives < 0)) {
      const Meeting& meeting = meetings_[size_t(step.awaits)];
      if (!meeting.complete()) return std::nullopt;
      after(meeting.time, kMeeting, meeting.slice);
      if (warp.arrived) return bound;  // it has issued already
    }
    const Results& results = warp.results;
    const auto after_loads = [&] {
      after(results.global, kGlobal);
      after(results.shared, kShared);
    };
    const auto after_computing = [&] {
      after_loads();
      after(results.exponentials, kMufu);
      after(results.exchanges, kExchange);
    };
    for (const uint32_t needed : step.needs) {
      const Work work = warp.steps[needed].work;
      after(warp.ready[needed], work == Work::kProduct       ? kTensor
                                : work == Work::kExponential ? kMufu
                                                             : kShared);
    }
    if (step.computed) after_computing();
    switch (step.work) {
      case Work::kProduct:
        after(schedulers_[scheduler].tensor.free, kTensor);
        break;
      case Work::kExponential:
        after_loads();
        after(results.exchanges, kExchange);
        after(schedulers_[scheduler].mufu.free - sm_.exponential_queue * sm_.exponential_cycles,
              kMufu);
        break;
      case Work::kExchange:
        after_loads();
        after(results.products, kTensor);
        break;
      case Work::kSharedStore:
      case Work::kGlobalStore:
        after_computing();
        after(results.products, kTensor);
        break;
      case Work::kWaitGroups: {
        const auto& groups = warp.groups[size_t(step.group)];
        for (size_t i = 0; i + 1 + size_t(step.pending) < groups.size(); i++) {
          if (groups[i].under_way > 0) return std::nullopt;
          after(groups[i].end, step.group == Group::kProducts ? kTensor : kCopies, groups[i].slice);
        }
        break;
      }
      default:
        break;
    }
    // A long wait for something else does not become one for the issue slot by its last cycles.
    const int64_t slot = schedulers_[scheduler].port.free, waited = bound.time - warp.front;
    if (slot - bound.time > waited) {
      after(slot, kIssue);
    } else {
      bound.time = std::max(bound.time, slot);
    }
    return bound;
  }

  // ---- one step
  void issue(size_t w, const Bound& bound) {
    WarpState& warp = warps_[w];
    const Step& step = warp.steps[warp.next];
    Scheduler& scheduler = schedulers_[w % schedulers_.size()];
    const bool meets = step.awaits >= 0 || step.work == Work::kWaitGroups;
    wait_slice(w, bound, meets && bound.unit != kIssue ? step.name : name_of(bound.unit), step.at);
    const int64_t now = bound.time;
    if (warp.arrived) {  // the meeting is over
      warp.arrived = false;
      warp.front = now;
      warp.next++;
      return;
    }
    int64_t busy = step.count;  // cycles until the warp goes on
    switch (step.work) {
      case Work::kGlobalLoad: {
        const int64_t end = transfer(now, step) + sm_.global_latency;
        warp.results.global = std::max(warp.results.global, end);
        under_way_.push_back({w, "Loads under way", slice(0, now, end, step, kGlobal)});
        break;
      }
      case Work::kGlobalStore:
        transfer(now, step);
        break;
      case Work::kSharedLoad:
        warp.results.shared = std::max(warp.results.shared, load(now, step));
        break;
      case Work::kFragmentLoad:
        warp.ready[warp.next] = load(now, step);
        break;
      case Work::kSharedStore:
        load(now, step);
        break;
      case Work::kProduct: {
        const int64_t cycles = std::lround(double(step.flops) / sm_.product_flops);
        const int64_t start = scheduler.tensor.take(now, cycles);
        slice(scheduler_track("Tensor Cores", w), start, start + cycles, step, kTensor);
        // The latency is that of one m16n8k16; of several in one step the last one counts.
        const auto first = int64_t(std::lround(4096 / sm_.product_flops));
        warp.ready[warp.next] = start + std::max<int64_t>(0, cycles - first) + sm_.product_latency;
        warp.results.products = std::max(warp.results.products, warp.ready[warp.next]);
        break;
      }
      case Work::kExponential: {
        const int64_t cycles = int64_t(step.count) * sm_.exponential_cycles;
        const int64_t start = scheduler.mufu.take(now, cycles);
        slice(scheduler_track("Exponentials", w), start, start + cycles, step, kMufu);
        warp.results.exponentials = start + cycles + sm_.exponential_latency;
        warp.ready[warp.next] = warp.results.exponentials;
        // All but those that the unit's queue holds have begun when the warp goes on.
        const int64_t queued = int64_t(sm_.exponential_queue + 1) * sm_.exponential_cycles;
        busy = std::max<int64_t>(busy, start + cycles - queued - now + 1);
        break;
      }
      case Work::kExchange:
        warp.results.exchanges = now + step.count - 1 + sm_.exchange_latency;
        break;
      case Work::kCopy:
        begin_async(w, now, step, transfer(now, step) + sm_.global_latency);
        break;
      case Work::kAsyncProduct: {
        const int64_t cycles =
            std::lround(double(step.flops) / (sm_.async_product_flops * step.speed));
        const int64_t start = scheduler.tensor.take(now, cycles);
        slice(scheduler_track("Tensor Cores", w), start, start + cycles, step, kTensor);
        begin_async(w, now, step, start);
        break;
      }
      case Work::kAsyncStore:
        begin_async(w, now, step, take_shared(now, step));
        break;
      case Work::kCommit:
        warp.groups[size_t(step.group)].emplace_back();
        break;
      case Work::kIssue:
      case Work::kWaitGroups:
        break;
    }
    scheduler.port.take(now, step.count);  // while exponentials queue others can issue
    const size_t issued = slice(warp_track(w), now, now + busy, step, unit_of(step));
    warp.last_issue = now;
    warp.front = now + busy;
    const bool asynchronous = step.work == Work::kCopy || step.work == Work::kAsyncStore;
    if (step.arrives >= 0 && !asynchronous) arrive(step.arrives, now + busy, issued);
    if (step.arrives >= 0 && step.awaits >= 0) {
      warp.arrived = true;
    } else {
      warp.next++;
    }
  }

  static const char* unit_of(const Step& step) {
    switch (step.work) {
      case Work::kGlobalLoad:
      case Work::kGlobalStore:
        return kGlobal;
      case Work::kSharedLoad:
      case Work::kSharedStore:
      case Work::kFragmentLoad:
        return kShared;
      case Work::kProduct:
      case Work::kAsyncProduct:
        return kTensor;
      case Work::kExponential:
        return kMufu;
      case Work::kExchange:
        return kExchange;
      case Work::kCopy:
      case Work::kAsyncStore:
        return kCopies;
      case Work::kCommit:
      case Work::kWaitGroups:
        return step.group == Group::kProducts ? kTensor : kCopies;
      case Work::kIssue:
        break;
    }
    return step.arrives >= 0 || step.awaits >= 0 ? kMeeting : kIssue;
  }

  void arrive(int index, int64_t time, size_t from) {
    Meeting& meeting = meetings_[size_t(index)];
    meeting.arrived++;
    if (time >= meeting.time) {
      meeting.time = time;
      meeting.slice = from;
    }
  }

  // Through the path from L2. Returns the end; of a load the latency comes on top.
  int64_t transfer(int64_t now, const Step& step) {
    const int64_t cycles = int64_t(step.bytes + uint64_t(sm_.global_bytes) - 1) / sm_.global_bytes;
    const int64_t start = path_.take(now, cycles);
    if (cycles > 0) slice(track("L2 to SM", "bytes"), start, start + cycles, step, kGlobal);
    return start + cycles;
  }

  // Through shared memory. Returns the end.
  int64_t take_shared(int64_t now, const Step& step) {
    const int64_t start = shared_.take(now, int64_t(step.wavefronts));
    if (step.wavefronts > 0) {
      slice(track("Shared memory", "wavefronts"), start, shared_.free, step, kShared);
    }
    return start + int64_t(step.wavefronts);
  }
  int64_t load(int64_t now, const Step& step) {
    return take_shared(now, step) - 1 + sm_.shared_latency;
  }

  // ---- asynchronous work
  void begin_async(size_t w, int64_t now, const Step& step, int64_t end) {
    auto& groups = warps_[w].groups[size_t(step.group)];
    AsyncGroup& group = groups.back();
    size_t shown = timeline_.slices.size() - 1;  // an asynchronous product: its Tensor Core
    if (step.work != Work::kAsyncProduct) {
      // A group is one slice, from its first copy to its last landing.
      if (step.group == Group::kNone || group.slice == kNobody) {
        shown = slice(0, now, now + 1, step, kCopies);
        under_way_.push_back({w, "Copies under way", shown});
        if (step.group != Group::kNone) {
          timeline_.slices[shown].name = step.name + ", group " + std::to_string(groups.size() - 1);
        }
      } else {
        shown = group.slice;
        std::string& of = timeline_.slices[shown].of;
        if (of != step.of) of += (of.empty() ? "" : " ") + step.of;
        timeline_.slices[shown].bytes += step.bytes;
        timeline_.slices[shown].wavefronts += step.wavefronts;
        timeline_.slices[shown].ideal += step.ideal;
      }
    }
    group.slice = shown;
    group.under_way++;
    landings_.push({end, order_++, w, groups.size() - 1, &step, shown});
  }

  // The next part of asynchronous work begins: units are taken at that time, not when it is issued.
  void land(const Landing& landing) {
    const Step& step = *landing.step;
    int64_t end = landing.time;
    if (step.work == Work::kCopy) {
      end = take_shared(end, step);
    } else if (step.work == Work::kAsyncStore) {
      end = transfer(end, step);
    } else {
      // Operands are read while it multiplies, which holds it up never: m64n64k16 reads 4 KB in 32
      // cycles.
      take_shared(end, step);
      end += std::lround(double(step.flops) / (sm_.async_product_flops * step.speed)) +
             sm_.async_product_latency;
    }
    AsyncGroup& group = warps_[landing.warp].groups[size_t(step.group)][landing.group];
    group.under_way--;
    group.end = std::max(group.end, end);
    Slice& shown = timeline_.slices[landing.slice];
    if (step.work != Work::kAsyncProduct) shown.end = std::max(shown.end, end);
    end_ = std::max(end_, end);
    if (step.arrives >= 0) arrive(step.arrives, end, landing.slice);
  }

  // Loads and copies overlap: as many rows a warp as are needed.
  void place_under_way() {
    OverlappingRows rows;
    std::stable_sort(under_way_.begin(), under_way_.end(), [&](const auto& a, const auto& b) {
      return timeline_.slices[a.slice].start < timeline_.slices[b.slice].start;
    });
    for (const UnderWay& each : under_way_) {
      Slice& shown = timeline_.slices[each.slice];
      shown.track = rows.place(timeline_, each.group, each.warp, shown.start, shown.end);
    }
  }

  struct Scheduler {
    Unit port, tensor, mufu;
  };
  struct UnderWay {
    size_t warp;
    std::string group;
    size_t slice;
  };

  const Sm& sm_;
  int64_t end_ = 0;
  Timeline& timeline_;
  std::vector<WarpState> warps_;
  std::vector<Scheduler> schedulers_;
  std::vector<Meeting> meetings_;
  Unit shared_, path_;
  std::priority_queue<Landing, std::vector<Landing>, std::greater<>> landings_;
  uint64_t order_ = 0;
  std::vector<UnderWay> under_way_;
};

bool is_plain(const Step& step) {
  return step.needs.empty() && !step.computed && step.arrives < 0 && step.awaits < 0;
}

bool can_join(const Step& a, const Step& b) {
  const bool counted = a.work == Work::kGlobalLoad || a.work == Work::kGlobalStore ||
                       a.work == Work::kSharedLoad || a.work == Work::kSharedStore ||
                       a.work == Work::kCopy || a.work == Work::kExponential;
  return counted && a.work == b.work && a.at == b.at && a.name == b.name && a.of == b.of &&
         a.group == b.group && is_plain(a) && is_plain(b);
}

}  // namespace

std::vector<Step> steps(const std::vector<Step>& recorded, const Sm& sm) {
  // The order in which they are replayed: loads together, then their stores.
  std::vector<size_t> order;
  const auto is_load = [&](size_t i) {
    return i < recorded.size() && is_plain(recorded[i]) &&
           (recorded[i].work == Work::kGlobalLoad || recorded[i].work == Work::kSharedLoad);
  };
  const auto is_store = [&](size_t i) {
    return i < recorded.size() && is_plain(recorded[i]) &&
           (recorded[i].work == Work::kGlobalStore || recorded[i].work == Work::kSharedStore);
  };
  for (size_t i = 0; i < recorded.size();) {
    // A turn of the loop: a load and its stores. The next one is the same in the same lines.
    size_t turn = 1, turns = is_load(i);
    while (turns && is_store(i + turn)) turn++;
    const auto repeats = [&](size_t at) {
      for (size_t k = 0; k < turn; k++) {
        if (at + k >= recorded.size() || !is_plain(recorded[at + k]) ||
            recorded[at + k].work != recorded[i + k].work ||
            recorded[at + k].at != recorded[i + k].at) {
          return false;
        }
      }
      return true;
    };
    if (turn == 1) turns = 0;
    while (turns && turns < size_t(sm.loads_together) && repeats(i + turns * turn)) turns++;
    if (turns == 0) {
      order.push_back(i++);
      continue;
    }
    for (size_t t = 0; t < turns; t++) order.push_back(i + t * turn);
    for (size_t t = 0; t < turns; t++) {
      for (size_t k = 1; k < turn; k++) order.push_back(i + t * turn + k);
    }
    i += turns * turn;
  }
  // Equal ones in a row become one step.
  std::vector<Step> result;
  std::vector<uint32_t> now_at(recorded.size());
  for (const size_t i : order) {
    if (!result.empty() && can_join(result.back(), recorded[i])) {
      Step& last = result.back();
      last.count += recorded[i].count;
      last.bytes += recorded[i].bytes;
      last.wavefronts += recorded[i].wavefronts;
      last.ideal += recorded[i].ideal;
    } else {
      result.push_back(recorded[i]);
      for (uint32_t& needed : result.back().needs) needed = now_at[needed];
    }
    now_at[i] = uint32_t(result.size() - 1);
  }
  return result;
}

Timeline replay(const std::vector<Recording>& recordings, const Sm& sm) {
  Timeline timeline;
  for (const Recording& recording : recordings) {
    timeline.cycles = Replay(recording, sm, timeline.cycles, timeline).run();
  }
  return in_order(std::move(timeline));
}

}  // namespace emu
