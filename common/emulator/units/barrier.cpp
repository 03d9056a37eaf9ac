#include "common/emulator/units/barrier.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/emulator/core/events.h"
#include "common/emulator/core/launch.h"
#include "common/emulator/core/step.h"
#include "common/emulator/core/unit.h"

namespace emu {
namespace {

struct NamedBarrier {
  int arrived = 0;   // threads that have arrived in this phase
  int expected = 0;  // threads that complete it; 0: all live threads of the CTA
  // The instruction that came first in this phase; the same of the last phase, and its number.
  const char* operation = "";
  SourceLocation where;
  int first_warp = 0;
  const char* ended_operation = "";
  SourceLocation ended_where;
  int ended_expected = 0;
  // The warps that have come: in this phase, and ever. (A CTA has at most 32.)
  uint32_t warps = 0, warps_so_far = 0;
  Clocks arriving,
      ended;  // checked build: what those that arrived had seen, in this phase and in the last one
};

// The last barrier that a thread has waited at and passed.
struct Passed {
  uint32_t when = 0;  // the thread's clock behind it; 0: there was none
  int index = 0, expected = 0;
  const char* operation = "";
  SourceLocation where;
  uint32_t warps = 0;  // that ended its phase
};

std::string at_barrier(const Lane& lane);

bool is_syncthreads(const char* operation) {  // or one with a vote
  return strncmp(operation, "__syncthreads", sizeof "__syncthreads" - 1) == 0;
}

bool is_at_barrier(const Lane& lane) {
  return lane.state == LaneState::kParked && lane.describe == at_barrier;
}

class Barriers : public Unit {
 public:
  explicit Barriers(const Cluster& cluster)
      : barriers_(cluster.ctas.size() * kNamedBarriers),
        open_(cluster.ctas.size()),
        waits_at_(cluster.lanes.size()),
        passed_(cluster.lanes.size()) {}

  void begin() override {
    std::fill(open_.begin(), open_.end(), 0);
    for (NamedBarrier& barrier : barriers_) {
      barrier.arrived = barrier.expected = barrier.ended_expected = 0;
      barrier.warps = barrier.warps_so_far = 0;
      barrier.arriving.clear();
      barrier.ended.clear();
    }
    for (Passed& each : passed_) each = {};
  }
  void thread_has_ended(Lane& me) override;
  std::string complaint(const Cta& cta) override;
  Order order(const Lane& first, const Lane& second) override;

  NamedBarrier& of(const Cta& cta, int index) {
    return barriers_[size_t(cta.rank * kNamedBarriers + index)];
  }
  uint32_t& open(const Cta& cta) { return open_[size_t(cta.rank)]; }
  int& waits_at(const Lane& lane) { return waits_at_[size_t(lane.number)]; }
  static int expected(const Cta& cta, const NamedBarrier& barrier) {
    return barrier.expected ? barrier.expected : cta.live;
  }
  void complete_if_all_arrived(Cta& cta, int index);

 private:
  std::vector<NamedBarrier> barriers_;  // [CTAs][kNamedBarriers]
  std::vector<uint32_t>
      open_;  // [CTAs]: bit i says that some have arrived at barrier i, and not all
  std::vector<int> waits_at_;   // [lanes]: the barrier at which each of those that wait does so
  std::vector<Passed> passed_;  // [lanes], in the checked build
};

const UnitOf<Barriers> barriers{10};

// The last phase was complete with another number of threads than this instruction gives: a
// sentence; "" if it was not.
std::string unlike_last_phase(const NamedBarrier& barrier, int expected) {
  if (barrier.ended_expected == 0 || barrier.ended_expected == expected) return "";
  return std::string(barrier.ended_operation) + " at " + place(barrier.ended_where) + " gives " +
         std::to_string(barrier.ended_expected) + " threads, and with these its phase has ended";
}

std::string at_barrier(const Lane& lane) {
  Barriers& all = barriers(*lane.cta->cluster);
  const int index = all.waits_at(lane);
  const NamedBarrier& barrier = all.of(*lane.cta, index);
  const std::string unlike = unlike_last_phase(barrier, barrier.expected);
  return " (barrier " + std::to_string(index) + ": " + std::to_string(barrier.arrived) + " of " +
         std::to_string(Barriers::expected(*lane.cta, barrier)) + " threads have arrived" +
         (unlike.empty() ? "" : "; " + unlike) + ")";
}

void Barriers::complete_if_all_arrived(Cta& cta, int index) {
  NamedBarrier& barrier = of(cta, index);
  if (barrier.arrived == 0 || barrier.arrived < expected(cta, barrier)) return;
  barrier.ended_operation = barrier.operation;
  barrier.ended_where = barrier.where;
  if (cta.checks && expected(cta, barrier) < int(cta.lanes.size()) &&
      is_syncthreads(barrier.operation)) {
    cta.checks->barrier_is_over(cta, barrier.operation, barrier.where);
  }
  const int expected_by_all = barrier.ended_expected = barrier.expected;
  barrier.arrived = barrier.expected = 0;
  open(cta) &= ~(1u << index);
  for (Lane& lane : cta.lanes) {
    if (!is_at_barrier(lane) || waits_at(lane) != index) continue;
    if (cta.detector) {
      cta.detector->acquire(lane, barrier.arriving);
      passed_[size_t(lane.number)] = {cta.detector->clock(lane),
                                      index,
                                      expected_by_all,
                                      lane.operation,
                                      lane.where,
                                      barrier.warps};
    }
    wake(lane);
  }
  barrier.warps = 0;
  std::swap(barrier.ended, barrier.arriving);
  barrier.arriving.clear();
  if (cta.recorder) cta.recorder->complete(&barrier);
}

// Reports a warp's barrier instruction, once all of its lanes have come. The warp waits if others
// are still missing.
void report(const Lane& lane) {
  Warp& warp = *lane.warp;
  const bool waits = is_at_barrier(lane);
  record(warp, {Kind::kBarrier, warp.live, lane.where, {.requests = 1, .waits = waits}});
}

void Barriers::thread_has_ended(Lane& me) {
  Cta& cta = *me.cta;
  const Warp& warp = *me.warp;
  const Lane* rest_of_warp = nullptr;  // lanes at a barrier that this one will not come to
  if (warp.live && !warp.runnable) rest_of_warp = &warp.lanes[std::countr_zero(warp.live)];
  if (rest_of_warp && !is_at_barrier(*rest_of_warp)) rest_of_warp = nullptr;
  if (rest_of_warp && cta.checks && is_syncthreads(rest_of_warp->operation)) {
    cta.checks->absent_lanes(warp, kFullMask, rest_of_warp->operation, rest_of_warp->where);
  }
  for (uint32_t rest = open(cta); rest; rest &= rest - 1) {
    const int i = std::countr_zero(rest);
    if (of(cta, i).expected == 0) complete_if_all_arrived(cta, i);
  }
  if (rest_of_warp) report(*rest_of_warp);
}

std::string threads(int count) { return std::to_string(count) + " threads"; }
int threads_of(uint32_t warps) { return std::popcount(warps) * kWarpSize; }

// "warps 0, 1, 3"
std::string name(uint32_t warps) {
  std::string text = std::has_single_bit(warps) ? "warp " : "warps ";
  for (uint32_t rest = warps; rest; rest &= rest - 1) {
    text += std::to_string(std::countr_zero(rest)) + ((rest & (rest - 1)) ? ", " : "");
  }
  return text;
}

// A named barrier that the second thread has passed, and whose number is too small for the first.
Order Barriers::order(const Lane& first, const Lane& second) {
  const Passed& passed = passed_[size_t(second.number)];
  Order order{.when = passed.when, .where = passed.where};
  const uint32_t its_warp = 1u << first.warp->index;
  if (passed.when == 0 || passed.expected == 0 || first.cta != second.cta ||
      (passed.warps & its_warp)) {
    return order;
  }
  const uint32_t all = of(*second.cta, passed.index).warps_so_far | passed.warps | its_warp;
  order.why = std::string(passed.operation) + " at " + place(passed.where) + " has the number " +
              std::to_string(passed.expected) + ", and " + name(passed.warps) +
              " passed it without " + name(its_warp) + "; with " + name(all) +
              " it would have to be " + std::to_string(threads_of(all));
  return order;
}

std::string Barriers::complaint(const Cta& cta) {
  for (int i = 0; i < kNamedBarriers; i++) {
    const NamedBarrier& barrier = of(cta, i);
    if (barrier.arrived == 0) continue;
    return "ends with barrier " + std::to_string(i) +
           " out of balance: " + std::to_string(barrier.arrived) + " of " +
           std::to_string(barrier.expected) +
           " threads have arrived\n  Missing: a bar.sync or bar.arrive of the others.\n  Or: " +
           barrier.operation + " at " + place(barrier.where) +
           " comes once too often, or its number is too great.";
  }
  return "";
}

// Once per two places. CUDA C++ Programming Guide, "Synchronization Functions": in a condition
// only if it is the same for all threads of the block.
void note_different(const NamedBarrier& first, const Lane& me, const char* operation,
                    SourceLocation where) {
  static std::mutex mutex;
  static std::set<std::string> noted;
  const std::string at = place(first.where), here = place(where);
  const std::scoped_lock lock(mutex);
  if (!noted.insert(std::min(at, here) + " " + std::max(at, here)).second) return;
  fflush(stdout);
  fprintf(stderr,
          "note: %s: warp %d waits in %s at %s, and warp %d comes to %s at %s\n"
          "  CUDA leaves that undefined. Have all threads of the block come to the same one.\n",
          me.cta->kernel, first.first_warp, first.operation, at.c_str(), me.warp->index, operation,
          here.c_str());
}

void arrive(int index, int expected, bool waits, const char* operation, SourceLocation where) {
  Lane& me = *current_lane;
  if (index < 0 || index >= kNamedBarriers) {
    fail("%s at %s: barrier %d does not exist, a CTA has 0 to %d", operation, place(where).c_str(),
         index, kNamedBarriers - 1);
  }
  if (expected % kWarpSize != 0) {
    fail("%s at %s: %d threads are not a whole number of warps", operation, place(where).c_str(),
         expected);
  }
  NamedBarrier& barrier = barriers().of(*me.cta, index);
  if (barrier.arrived > 0 && barrier.expected != expected) {
    fail("%s at %s expects %d threads, but others wait at barrier %d for %d, as %s at %s says",
         operation, place(where).c_str(), expected, index, barrier.expected, barrier.operation,
         place(barrier.where).c_str());
  }
  Detector* const detector = me.cta->detector;
  if (expected > 0 && detector && !detector->has_seen(me, barrier.ended)) {
    std::string why = unlike_last_phase(barrier, expected);
    const int so_far = threads_of(barrier.warps_so_far | 1u << me.warp->index);
    if (!why.empty()) {
      why = "The numbers differ: " + std::to_string(expected) + " here, but " + why + ".";
    } else if (so_far > expected) {
      why = threads(so_far) + " have come to it so far, and its number is " +
            std::to_string(expected) +
            ": the number is too small.\n  Or: two groups of warps use "
            "one barrier.";
    } else {
      why = "Too many threads arrive: no more than its number, " + std::to_string(expected) +
            ", have come so far, so some come again before they have waited.\n  Or: that number "
            "is too small, or two groups of warps use one barrier.";
    }
    fail(
        "%s at %s may count in the phase before: this thread has not seen the end of barrier "
        "%d's last phase\n  %s",
        operation, place(where).c_str(), index, why.c_str());
  }
  if (barrier.arrived == 0) {
    barrier.operation = operation;
    barrier.where = where;
    barrier.first_warp = me.warp->index;
  } else if (options().notes && barrier.where.line != where.line && is_syncthreads(operation) &&
             is_syncthreads(barrier.operation)) {
    note_different(barrier, me, operation, where);
  }
  barrier.expected = expected;
  barrier.arrived++;
  barrier.warps |= 1u << me.warp->index;
  barrier.warps_so_far |= barrier.warps;
  barriers().open(*me.cta) |= 1u << index;
  if (detector) detector->release(me, barrier.arriving);
  if (Recorder* const recorder = me.cta->recorder) {
    Step step{.name = operation};
    step.arrives = recorder->meeting(&barrier, "barrier " + std::to_string(index));
    if (waits) step.awaits = step.arrives;
    recorder->note(me, where, step);
  }
}

}  // namespace

void barrier_sync(int index, int expected, const char* operation, SourceLocation where) {
  Lane& me = *current_lane;
  Barriers& all = barriers();
  // Barriers are .aligned, too. Lanes of other warps may stand elsewhere.
  for (uint32_t rest = me.warp->live & ~me.warp->runnable; rest; rest &= rest - 1) {
    const Lane& other = me.warp->lanes[std::countr_zero(rest)];
    if (is_at_barrier(other) && all.waits_at(other) == index) {
      expect_same_instruction(other, operation, where);
      break;
    }
  }
  arrive(index, expected, true, operation, where);
  all.waits_at(me) = index;
  stop(operation, where, at_barrier);
  const bool whole_warp = (me.warp->runnable & me.warp->live) == 0;
  if (Checks* const checks = whole_warp ? me.cta->checks : nullptr) {
    if (is_syncthreads(operation)) {
      checks->absent_lanes(*me.warp, kFullMask, operation, where);
      checks->comes_to_barrier(*me.warp);
    }
    checks->meet(*me.warp, kFullMask);
  }
  all.complete_if_all_arrived(*me.cta, index);
  if (whole_warp) report(me);
  wait_until_woken();
}

void barrier_arrive(int index, int expected, const char* operation, SourceLocation where) {
  arrive(index, expected, false, operation, where);
  barriers().complete_if_all_arrived(*current_lane->cta, index);
}

}  // namespace emu
