#include "common/emulator/units/mbarrier.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/emulator/core/describe.h"
#include "common/emulator/core/events.h"
#include "common/emulator/core/memory.h"
#include "common/emulator/core/step.h"
#include "common/emulator/core/unit.h"
#include "common/emulator/units/cluster.h"

namespace emu {
namespace {

constexpr int kMostArrivals = (1 << 20) - 1;  // PTX ISA, "mbarrier object": range of the counts
constexpr int kMostBytes = (1 << 20) - 1;

// The real content of a barrier's memory is not documented. Here it is this word; anything else
// there means that the barrier has been overwritten.
constexpr uint64_t kWord = 0xba22'1e20'ba22'1e20u;

// The barrier that a lane asked last in vain, and how many times in a row; where, for which parity.
struct Polls {
  uintptr_t bar = 0;
  int count = 0;
  SourceLocation where;
  int parity = 0;
};

// The mbarriers of a cluster, by address.
struct Mbarriers final : Unit {
  explicit Mbarriers(const Cluster& cluster)
      : polls(cluster.lanes.size()), waited_at(cluster.lanes.size()) {}
  void begin() override {
    all.clear();
    counted.clear();
    for (Polls& lane : polls) lane.count = 0;
    std::fill(waited_at.begin(), waited_at.end(), 0);
  }
  void thread_has_ended(Lane& me) override;
  Order order(const Lane& first, const Lane& second) override;

  std::map<uintptr_t, Mbarrier> all;
  // For each warp and line, how often it was executed by a lane that was then the warp's lowest.
  // When lanes end one by one, each of them is.
  struct Executions {
    std::array<uint32_t, kWarpSize> of{};
    uint32_t most = 0;
  };
  std::map<std::tuple<const Warp*, const char*, unsigned>, Executions> counted;
  std::vector<Polls> polls;         // [lanes]
  std::vector<uint32_t> waited_at;  // [lanes]: checked build: its clock at its last wait, and 1
};

const UnitOf<Mbarriers> mbarriers{70};

std::string name(uintptr_t bar, const Mbarrier& barrier) {
  return "the mbarrier at " + describe_place(bar) + " (initialised at " + place(barrier.made) + ")";
}

// "phase 3: 1 of 2 arrivals and 4096 bytes are still to come"
std::string state(const Mbarrier& barrier) {
  std::string text = "phase " + std::to_string(barrier.phase) + ": " +
                     std::to_string(barrier.pending) + " of " + std::to_string(barrier.count) +
                     " arrivals and " + std::to_string(std::max<int64_t>(barrier.bytes, 0)) +
                     " bytes are still to come";
  if (barrier.bytes < 0) {
    text += ", " + std::to_string(-barrier.bytes) + " bytes more than expected have come";
  }
  return text;
}

// The barrier at `bar`, if it may be used by this lane.
Mbarrier& find(uintptr_t bar, const char* operation, SourceLocation where) {
  const Lane& me = *current_lane;
  const auto found = mbarriers().all.find(bar);
  if (found == mbarriers().all.end()) {
    misuse(operation, where,
           "there is no mbarrier at " + describe_place(bar) +
               "\n  Missing: mbarrier_init, or a __syncthreads() after it.");
  }
  Mbarrier& barrier = found->second;
  if (*reinterpret_cast<const uint64_t*>(bar) != kWord) {
    misuse(operation, where, name(bar, barrier) + " has been overwritten");
  }
  const Detector* const detector = me.cta->detector;
  if (detector && !detector->has_seen(me, barrier.made_by, barrier.made_at)) {
    misuse(operation, where,
           name(bar, barrier) +
               " may not be initialised yet\n  Missing: a __syncthreads() (of the "
               "cluster: cluster_arrive, cluster_wait) between the two.");
  }
  return barrier;
}

// Counts a warp's instruction once, by its lowest lane: the n-th execution by each is one.
void count(SourceLocation where, bool waits) {
  const Lane& me = *current_lane;
  if (me.lane != std::countr_zero(me.warp->live)) return;
  Mbarriers::Executions& here = mbarriers().counted[{me.warp, where.file, where.line}];
  const uint32_t mine = ++here.of[size_t(me.lane)];
  if (mine <= here.most) return;
  here.most = mine;
  record(*me.warp, {Kind::kMbarrier, me.warp->live, where, {.requests = 1, .waits = waits}});
}

bool over(const Mbarrier& barrier, int parity) { return int(barrier.phase & 1) != parity; }

// ---- for a timeline: what the CTA does at its own barriers ----
Recorder* recorder_of(uintptr_t bar) {
  for (const Cta& cta : current_lane->cta->cluster->ctas) {
    if (cta.recorder && bar - uintptr_t(cta.shared) < cta.shared_bytes) return cta.recorder;
  }
  return nullptr;
}

std::string trace_name(uintptr_t bar) {
  return "mbarrier at byte " + std::to_string(bar - uintptr_t(current_lane->cta->shared));
}

void trace_arrival(uintptr_t bar, const char* operation, SourceLocation where) {
  Recorder* const recorder = recorder_of(bar);
  if (!recorder || recorder != current_lane->cta->recorder) return;
  const int phase = recorder->meeting(reinterpret_cast<const void*>(bar), trace_name(bar));
  recorder->note(*current_lane, where, {.name = operation, .arrives = phase});
}

// The step waits for the phase that the barrier is in or, if it is over, for the one before.
void trace_wait(uintptr_t bar, bool is_over, const char* operation, SourceLocation where) {
  Recorder* const recorder = recorder_of(bar);
  if (!recorder || recorder != current_lane->cta->recorder) return;
  const auto* const key = reinterpret_cast<const void*>(bar);
  const int phase = is_over ? recorder->completed(key) : recorder->meeting(key, trace_name(bar));
  recorder->note(*current_lane, where, {.name = operation, .awaits = phase});
}

// A wait that is over: what was done before the arrivals, and what the copies wrote, has happened.
void acquire(const Lane& lane, const Mbarrier& barrier) {
  if (Detector* const detector = lane.cta->detector) detector->acquire(lane, barrier.ended);
}

void end_phase_if_complete(uintptr_t bar, Mbarrier& barrier) {
  if (barrier.pending > 0 || barrier.bytes != 0) return;
  if (barrier.copies > 0) {
    fail_cta("a phase of " + name(bar, barrier) + " ends although " +
             std::to_string(barrier.copies) +
             (barrier.copies == 1 ? " bulk copy is" : " bulk copies are") +
             " still under way\n  The bytes expected" +
             (barrier.expected.line ? " at " + place(barrier.expected) : "") +
             " are fewer than the copies bring.");
  }
  barrier.phase++;
  barrier.pending = barrier.count;
  barrier.counted_bytes = std::exchange(barrier.counts_bytes, false);
  if (Recorder* const recorder = recorder_of(bar))
    recorder->complete(reinterpret_cast<const void*>(bar));
  if (Detector* const detector = current_lane->cta->detector) {
    barrier.ended = std::move(barrier.arriving);
    barrier.arriving.clear();
    detector->learn(barrier.ended, barrier.engine, uint32_t(barrier.phase));
  }
  for (Lane* const lane : barrier.waiting) {
    acquire(*lane, barrier);
    wake(*lane);
  }
  barrier.waiting.clear();
}

// "thread 32 has arrived twice in phase 1 of the mbarrier at ..., at line 20 and line 22"
std::string arrived_twice(uintptr_t bar, const Mbarrier& barrier) {
  return "thread " + std::to_string(barrier.twice.thread->thread) + " has arrived twice in " +
         phase_name(barrier.twice.phase) + " of the mbarrier at " + describe_place(bar) + ", at " +
         place(barrier.twice.first) + " and at " + place(barrier.twice.second);
}

// A thread that arrives or expects bytes must know that the last phase is over; otherwise it may do
// so in that one.
void check_phase(uintptr_t bar, const Mbarrier& barrier, const char* operation,
                 SourceLocation where) {
  const Lane& me = *current_lane;
  const Detector* const detector = me.cta->detector;
  if (!detector || barrier.phase == 0) return;
  if (detector->has_seen(me, barrier.ended, barrier.counted_bytes ? -1 : barrier.engine)) return;
  if (detector->knows_end(me, barrier.engine, uint32_t(barrier.phase))) return;
  const bool twice = barrier.twice.thread && barrier.twice.phase + 1 == barrier.phase;
  misuse(operation, where,
         "may count in the phase before: this thread has not seen the end of phase " +
             std::to_string(barrier.phase - 1) + " of " + name(bar, barrier) +
             (twice ? "\n  One arrival too many: " + arrived_twice(bar, barrier) +
                          ".\n  Or: its count, " + std::to_string(barrier.count) + ", is too small"
                    : "\n  Too many threads arrive, or its count, " +
                          std::to_string(barrier.count) + ", is too small") +
             ".\n  Or: missing: a wait for that phase.");
}

void note_arrival(Mbarrier& barrier, const Lane& me, SourceLocation where) {
  const auto [at, is_new] = barrier.warps.try_emplace(me.warp);
  Mbarrier::WarpArrivals& mine = at->second;
  if (is_new || mine.phase != barrier.phase) mine = {barrier.phase, 0, nullptr, {}};
  if (mine.lanes >> me.lane & 1) barrier.twice = {&me, barrier.phase, mine.where, where};
  mine.lanes |= 1u << me.lane;
  mine.last = &me;
  mine.where = where;
}

void arrive(uintptr_t bar, Mbarrier& barrier, const char* operation, SourceLocation where) {
  const Lane& me = *current_lane;
  if (barrier.pending == 0) {
    misuse(operation, where,
           "one arrival too many: all " + std::to_string(barrier.count) + " of phase " +
               std::to_string(barrier.phase) + " of " + name(bar, barrier) +
               " have come, it waits for " + std::to_string(barrier.bytes) +
               " bytes\n  Too many threads arrive, or one arrives without having waited for the "
               "phase before.\n  Or: its count is too small.");
  }
  check_phase(bar, barrier, operation, where);
  count(where, false);
  if (me.cta->detector) {
    me.cta->detector->release(me, barrier.arriving);
    note_arrival(barrier, me, where);
  }
  trace_arrival(bar, operation, where);
  barrier.pending--;
  end_phase_if_complete(bar, barrier);
}

// The current lane waits for a phase, or finds that it is over.
void note_wait(uintptr_t bar, Mbarrier& barrier, int parity, SourceLocation where) {
  barrier.last_wait = {where, bar, barrier.phase - (over(barrier, parity) ? 1 : 0)};
  current_lane->last_wait = barrier.last_wait;
  barrier.waited_for_nothing |= barrier.last_wait.phase == uint64_t(-1);
  const Detector* const detector = current_lane->cta->detector;
  if (detector)
    mbarriers().waited_at[size_t(current_lane->number)] = detector->clock(*current_lane) + 1;
}

std::string at_mbarrier(const Lane& lane) {
  for (const auto& [bar, barrier] : mbarriers(*lane.cta->cluster).all) {
    for (const Lane* const waiting : barrier.waiting) {
      if (waiting != &lane) continue;
      return " (" + name(bar, barrier) + ", " + state(barrier) + ")";
    }
  }
  return "";
}

// A parity tells a phase from the one before or after, and no more.
void check_distance(uintptr_t bar, const Mbarrier& barrier, const char* operation,
                    SourceLocation where) {
  const Lane& me = *current_lane;
  if (!me.cta->detector) return;
  const uint32_t known = me.cta->detector->seen(me, barrier.engine);
  if (barrier.phase < known + uint64_t(2)) return;
  misuse(operation, where,
         name(bar, barrier) + " is in phase " + std::to_string(barrier.phase) +
             ", this thread last heard of phase " + std::to_string(known) +
             ": two phases ahead, a parity says nothing\n  The threads that end a phase must wait "
             "until all have seen the one before.");
}

void check_parity(int parity, const char* operation, SourceLocation where) {
  if (parity != 0 && parity != 1) {
    misuse(operation, where, "a parity is 0 or 1, not " + std::to_string(parity));
  }
}

}  // namespace

void mbarrier_init(uint64_t* bar, int count, SourceLocation where) {
  const Lane& me = *current_lane;
  const auto address = uintptr_t(bar);
  const char* const operation = "mbarrier.init";
  const Cta& cta = *me.cta;
  if (address < uintptr_t(cta.shared) || address + 8 > uintptr_t(cta.shared) + cta.shared_bytes ||
      address % 8 != 0) {
    misuse(operation, where,
           "an mbarrier is 8 bytes of this CTA's shared memory, at a multiple of 8");
  }
  if (count < 1 || count > kMostArrivals) {
    misuse(operation, where,
           "a phase has 1 to " + std::to_string(kMostArrivals) + " arrivals, not " +
               std::to_string(count));
  }
  if (const auto found = mbarriers().all.find(address); found != mbarriers().all.end()) {
    misuse(operation, where,
           name(address, found->second) + " is in use: one thread initialises it, once");
  }
  *bar = kWord;
  Mbarrier& barrier = mbarriers().all[address];
  barrier.count = barrier.pending = count;
  barrier.made = where;
  if (Detector* const detector = cta.detector) {
    detector->access(me, address, 8, true, detector->site(operation, where));
    barrier.made_by = slot_of(me);
    barrier.made_at = detector->clock(me);
    barrier.engine = detector->new_engine(Engine::kLoad);
  }
}

void mbarrier_inval(uint64_t* bar, SourceLocation where) {
  const Mbarrier& barrier = find(uintptr_t(bar), "mbarrier.inval", where);
  if (!barrier.waiting.empty() || barrier.copies > 0) {
    misuse("mbarrier.inval", where, name(uintptr_t(bar), barrier) + " is in use");
  }
  mbarriers().all.erase(uintptr_t(bar));
  const Lane& me = *current_lane;
  if (Detector* const detector = me.cta->detector) {
    detector->access(me, uintptr_t(bar), 8, true, detector->site("mbarrier.inval", where));
  }
}

void mbarrier_forget(uint64_t* bar, SourceLocation where) {
  if (current_lane && mbarriers().all.contains(uintptr_t(bar))) mbarrier_inval(bar, where);
}

void mbarrier_arrive(uint64_t* bar, const char* operation, SourceLocation where) {
  arrive(uintptr_t(bar), find(uintptr_t(bar), operation, where), operation, where);
}

void mbarrier_arrive_cluster(uint64_t* bar, int cta, SourceLocation where) {
  const char* const operation = "mbarrier.arrive.shared::cluster";
  const uintptr_t remote = map_to_cta(uintptr_t(bar), cta, where);
  Mbarrier& barrier = find(remote, operation, where);
  const Lane& me = *current_lane;
  if (me.cta->detector && cta != me.cta->rank) {
    barrier.remote[&me] = {me.cta->detector->clock(me), where};
  }
  arrive(remote, barrier, operation, where);
}

void mbarrier_expect_tx(uint64_t* bar, int bytes, const char* operation, SourceLocation where) {
  Mbarrier& barrier = find(uintptr_t(bar), operation, where);
  if (bytes < 0 || barrier.bytes + bytes > kMostBytes) {
    misuse(operation, where,
           "a phase can expect 0 to " + std::to_string(kMostBytes) + " bytes, not " +
               std::to_string(barrier.bytes + bytes));
  }
  check_phase(uintptr_t(bar), barrier, operation, where);
  barrier.bytes += bytes;
  barrier.counts_bytes = true;
  barrier.expected = where;
  end_phase_if_complete(uintptr_t(bar), barrier);
}

void mbarrier_complete_tx(uint64_t* bar, int bytes, SourceLocation where) {
  Mbarrier& barrier = find(uintptr_t(bar), "mbarrier.complete_tx", where);
  barrier.counts_bytes = true;
  barrier.bytes -= bytes;
  end_phase_if_complete(uintptr_t(bar), barrier);
}

bool mbarrier_test_wait(uint64_t* bar, int parity, const char* operation, SourceLocation where) {
  // A thread that only asks, and would ask for ever, waits after so many times, so that a deadlock
  // is found.
  constexpr int kPatience = 1000;
  Lane& me = *current_lane;
  check_parity(parity, operation, where);
  Mbarrier& barrier = find(uintptr_t(bar), operation, where);
  check_distance(uintptr_t(bar), barrier, operation, where);
  // A loop of polls is one wait, which its first poll is counted for.
  Polls& polls = mbarriers().polls[size_t(me.number)];
  const bool again = polls.count > 0 && polls.bar == uintptr_t(bar) && polls.parity == parity &&
                     polls.where.line == where.line && polls.where.file == where.file;
  if (!again) count(where, !over(barrier, parity));
  if (!over(barrier, parity)) {
    polls = {uintptr_t(bar), polls.bar == uintptr_t(bar) ? polls.count + 1 : 1, where, parity};
    if (polls.count < kPatience) {
      for (Unit* const unit : me.cta->cluster->units_in_order) unit->polled(uintptr_t(bar));
      yield();
      return false;
    }
    trace_wait(uintptr_t(bar), false, operation, where);
    note_wait(uintptr_t(bar), barrier, parity, where);
    barrier.waiting.push_back(&me);
    park(operation, where, at_mbarrier);
  } else {
    trace_wait(uintptr_t(bar), true, operation, where);
    note_wait(uintptr_t(bar), barrier, parity, where);
    acquire(me, barrier);
  }
  polls.count = 0;
  return true;
}

void mbarrier_wait(uint64_t* bar, int parity, SourceLocation where) {
  const char* const operation = "mbarrier.try_wait";
  check_parity(parity, operation, where);
  Mbarrier& barrier = find(uintptr_t(bar), operation, where);
  check_distance(uintptr_t(bar), barrier, operation, where);
  count(where, !over(barrier, parity));
  trace_wait(uintptr_t(bar), over(barrier, parity), operation, where);
  note_wait(uintptr_t(bar), barrier, parity, where);
  if (over(barrier, parity)) {
    acquire(*current_lane, barrier);
    return;
  }
  barrier.waiting.push_back(current_lane);
  park(operation, where, at_mbarrier);
}

int mbarrier_parity(uint64_t* bar, const char* operation, SourceLocation where) {
  return int(find(uintptr_t(bar), operation, where).phase & 1);
}

void fence_mbarrier_init() {
  const Lane& me = *current_lane;
  if (!me.cta->detector) return;
  for (auto& [bar, barrier] : mbarriers().all) {
    if (barrier.made_by == slot_of(me)) barrier.fenced = true;
  }
}

void fence_proxy_async() {
  fence_mbarrier_init();  // it covers them as well
  const Lane& me = *current_lane;
  if (me.cta->detector) me.cta->detector->note_fence(me, Fence::kProxy);
}

Mbarrier& mbarrier_of_copy(uintptr_t bar, const char* operation, SourceLocation where) {
  Mbarrier& barrier = find(bar, operation, where);
  if (current_lane->cta->detector && !barrier.fenced) {
    misuse(operation, where,
           name(bar, barrier) +
               " may not be visible to bulk copies\n  Missing: fence_mbarrier_init() in the thread "
               "that initialises it, before the barrier.");
  }
  return barrier;
}

void trace_load(uintptr_t bar, const char* operation, int bytes, int read, std::string of,
                SourceLocation where) {
  Recorder* const recorder = recorder_of(bar);
  if (!recorder || recorder != current_lane->cta->recorder) return;
  Step step{.work = Work::kCopy, .name = operation};
  step.bytes = uint64_t(read + 31) / 32 * 32;
  step.wavefronts = step.ideal = uint64_t(bytes + 127) / 128;
  step.of = std::move(of);
  step.arrives = recorder->meeting(reinterpret_cast<const void*>(bar), trace_name(bar));
  recorder->note(*current_lane, where, step);
}

void bring_bytes(uintptr_t bar, int bytes, const std::vector<uint32_t>& ends, SourceLocation copy) {
  const auto found = mbarriers().all.find(bar);
  if (found == mbarriers().all.end() || *reinterpret_cast<const uint64_t*>(bar) != kWord) {
    fail_cta("the mbarrier at " + describe_place(bar) +
             " has been overwritten before the copy of " + place(copy) + " could report to it");
  }
  Mbarrier& barrier = found->second;
  barrier.copies--;
  auto& known = barrier.arriving.ends;
  if (known.size() < ends.size()) known.resize(ends.size());
  for (size_t i = 0; i < ends.size(); i++) known[i] = std::max(known[i], ends[i]);
  barrier.counts_bytes = true;
  barrier.bytes -= bytes;
  if (barrier.pending == 0 && barrier.bytes < 0) {
    fail_cta("the bulk copies that report to " + name(bar, barrier) + " bring " +
             std::to_string(-barrier.bytes) + " bytes more than were expected" +
             (barrier.expected.line ? " at " + place(barrier.expected) : "") +
             ": its phase cannot end\n  The last one at " + place(copy) +
             ". A copy counts its whole box, also what lies outside the tensor.");
  }
  end_phase_if_complete(bar, barrier);
}

std::string waited_for_another_phase(const Cluster& cluster, uintptr_t bar) {
  const auto found = mbarriers(cluster).all.find(bar);
  if (found == mbarriers(cluster).all.end()) return "";
  const Mbarrier& barrier = found->second;
  if (barrier.last_wait.where.line == 0) return "";
  const std::string phase = std::to_string(barrier.phase),
                    last = "The last wait there, at " + place(barrier.last_wait.where) +
                           ", was for " + phase_name(barrier.last_wait.phase) +
                           ", and this copy belongs to phase " + phase + ".\n  ",
                    parity =
                        "the parity of a wait is wrong, or an arrival before the expect_tx "
                        "has ended a phase too early.",
                    copies = "there is one copy too many, or one wait too few";
  return barrier.waited_for_nothing ? last + "Probably " + parity + "\n  Or: " + copies + "."
                                    : last + "Probably " + copies + ".\n  Or: " + parity;
}

bool is_awaited(const Cluster& cluster, uintptr_t bar) {
  const auto& all = mbarriers(cluster).all;
  const auto found = all.find(bar);
  return found != all.end() && !found->second.waiting.empty();
}

// A phase that the second thread has waited for, without the first.
Order Mbarriers::order(const Lane& first, const Lane& second) {
  const PhaseWait& wait = second.last_wait;
  const auto found = all.find(wait.bar);
  if (wait.where.line == 0 || found == all.end() || first.warp == second.warp) return {};
  const Mbarrier& barrier = found->second;
  Order order{.when = waited_at[size_t(second.number)], .where = wait.where};
  const std::string waits = "thread " + std::to_string(second.thread) + " has waited for " +
                            phase_name(wait.phase) + " of the mbarrier at " +
                            describe_place(wait.bar) + ", at " + place(wait.where),
                    it = "thread " + std::to_string(first.thread);
  if (wait.phase == uint64_t(-1)) return order;  // nobody has to arrive for that
  const auto arrivals = barrier.warps.find(first.warp);
  const bool warp_came = arrivals != barrier.warps.end() && arrivals->second.phase == wait.phase;
  if (barrier.twice.thread && barrier.twice.phase == wait.phase && !warp_came) {
    order.why = arrived_twice(wait.bar, barrier) +
                ": one arrival too many, which ended the phase without an arrival of " + it;
    order.sure = order.too_many = true;
  } else if (arrivals != barrier.warps.end() && arrivals->second.phase > wait.phase) {
    return order;
  } else if (!warp_came) {
    order.why = waits + ", where no thread of warp " + std::to_string(first.warp->index) +
                " has arrived in that phase";
    order.cure = "Missing: an mbarrier_arrive behind the access of " + it + ", and 1 in its count";
  } else if (arrivals->second.lanes >> first.lane & 1) {
    order.why = waits + ", where " + it + " has arrived before its access, at " +
                place(arrivals->second.where);
    order.cure =
        "Wrong: the place of that arrival, which belongs behind the access, or the phase that is "
        "waited for";
    order.sure = true;
  } else {
    order.why = waits + ", where thread " + std::to_string(arrivals->second.last->thread) +
                " has arrived, at " + place(arrivals->second.where) + ", but " + it + " has not";
    order.cure = "Missing: a __syncwarp() before that arrival, or an arrival of each lane";
    order.sure = true;
  }
  return order;
}

// At the end of a CTA, arrivals from other CTAs must have come before.
void Mbarriers::thread_has_ended(Lane& me) {
  const Cta& cta = *me.cta;
  const Detector* const detector = cta.detector;
  if (cta.live > 0 || !detector) return;
  for (const auto& [bar, barrier] : all) {
    if (bar - uintptr_t(cta.shared) >= cta.shared_bytes) continue;
    for (const auto& [lane, arrival] : barrier.remote) {
      bool seen = false;  // by a thread of this CTA
      for (const Lane& mine : cta.lanes) {
        seen = seen || detector->has_seen(mine, slot_of(*lane), arrival.clock);
      }
      if (seen) continue;
      fail_cta("ends while CTA " + std::to_string(lane->cta->rank) +
               " of the cluster may still arrive at " + name(bar, barrier) + ", at " +
               place(arrival.where) +
               "\n  Missing: a barrier of the cluster (cluster_arrive, cluster_wait) before the "
               "end.");
    }
  }
}

}  // namespace emu
