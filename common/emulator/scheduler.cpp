// Fibers, barriers, warp collectives and the launch: the emulator's engine.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <boost/context/fiber.hpp>
#include <boost/context/preallocated.hpp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/emulator/cluster.h"
#include "common/emulator/counters.h"
#include "common/emulator/cp_async.h"
#include "common/emulator/events.h"
#include "common/emulator/intrinsics.h"
#include "common/emulator/lane.h"
#include "common/emulator/launch.h"
#include "common/emulator/mbarrier.h"
#include "common/emulator/memory.h"
#include "common/emulator/races.h"
#include "common/emulator/random.h"
#include "common/emulator/timing.h"
#include "common/emulator/tma.h"
#include "common/emulator/trace.h"
#include "common/emulator/vector_types.h"
#include "common/emulator/wgmma.h"

namespace emu {

using boost::context::fiber;

#ifdef FA_EMULATOR_DEBUG
Lane* current_lane = nullptr;
#define FA_PER_OS_THREAD
#else
constinit thread_local Lane* current_lane = nullptr;
#define FA_PER_OS_THREAD thread_local
#endif

Options& options() {
  static Options instance;
  return instance;
}

namespace {

// ---- stacks ----------------------------------------------------------------------------------------
#if defined(__SANITIZE_THREAD__) || defined(FA_EMULATOR_DEBUG) || !defined(__OPTIMIZE__)
constexpr size_t kStackBytes = 256 * 1024;
#else
constexpr size_t kStackBytes = 128 * 1024;
#endif

// One stack a lane, each above a page that nobody may touch; kept from CTA to CTA.
class Stacks {
 public:
  explicit Stacks(size_t lanes) : bytes_(lanes * kStride) {
    base_ = static_cast<uint8_t*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (base_ == MAP_FAILED) throw LaunchError("the emulator could not get memory for its threads");
    for (size_t lane = 0; lane < lanes; lane++)
      mprotect(base_ + lane * kStride, kStackGuardBytes, PROT_NONE);
  }
  ~Stacks() { munmap(base_, bytes_); }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  uint8_t* low(size_t lane) const { return base_ + lane * kStride + kStackGuardBytes; }
  // Tops are staggered, or the 32 stacks of a warp would compete for the same sets of the CPU's cache.
  uint8_t* high(size_t lane) const { return low(lane) + kStackBytes - (lane % 32) * 192; }

 private:
  static constexpr size_t kStride = kStackBytes + kStackGuardBytes;
  uint8_t* base_;
  size_t bytes_;
};

// The stacks belong to Stacks; a fiber that ends has nothing to free.
struct KeepStack {
  void deallocate(boost::context::stack_context&) const noexcept {}
};

// ---- the machine -----------------------------------------------------------------------------------
// What one OS thread needs to run clusters of CTAs one after the other.
struct Machine {
  Machine(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes, int ctas,
          const std::function<void()>& kernel_body);

  std::vector<std::unique_ptr<GuardedMemory>> shared;  // one a CTA
  Stacks stacks;
  Cluster cluster;
  LineTable lines;               // checked build
  std::unique_ptr<Races> races;  // checked build
  std::vector<fiber> fibers;  // one a lane; empty for the lane that runs and for those that ended
  fiber host;                 // the OS thread, while lanes run
  const std::function<void()>& body;
};

Machine::Machine(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes, int ctas,
                 const std::function<void()>& kernel_body)
    : stacks(size_t(ctas) * block.x * block.y * block.z),
      fibers(size_t(ctas) * block.x * block.y * block.z),
      body(kernel_body) {
  const size_t threads = fibers.size() / size_t(ctas);
  const size_t warps = (threads + kWarpSize - 1) / kWarpSize;
  cluster.ctas.resize(size_t(ctas));
  cluster.lanes.resize(fibers.size());
  cluster.warps.resize(size_t(ctas) * warps);
  for (size_t rank = 0; rank < cluster.ctas.size(); rank++) {
    const std::string which =
        ctas == 1 ? "" : " of CTA " + std::to_string(rank) + " of the cluster";
    shared.push_back(std::make_unique<GuardedMemory>("shared memory" + which, shared_bytes, 1024));
    Cta& cta = cluster.ctas[rank];
    cta.cluster = &cluster;
    cta.rank = int(rank);
    cta.kernel = kernel;
    cta.block_dim = block;
    cta.grid_dim = grid;
    cta.shared = shared.back()->data();
    cta.shared_bytes = shared_bytes;
    cta.lanes = std::span(cluster.lanes).subspan(rank * threads, threads);
    cta.warps = std::span(cluster.warps).subspan(rank * warps, warps);
    for (size_t i = 0; i < warps; i++) {
      cta.warps[i].index = int(i);
      cta.warps[i].slot = int(rank * warps + i);
      cta.warps[i].lanes = &cta.lanes[i * kWarpSize];
    }
    for (unsigned i = 0; i < threads; i++) {
      Lane& lane = cta.lanes[i];
      lane.cta = &cta;
      lane.warp = &cta.warps[i / kWarpSize];
      lane.thread = int(i);
      lane.lane = int(i % kWarpSize);
      lane.thread_idx = {i % block.x, i / block.x % block.y, i / block.x / block.y};
      lane.stack_low = uintptr_t(stacks.low(rank * threads + i));
      lane.stack_high = lane.stack_low + kStackBytes;
    }
  }
  for (Cta& cta : cluster.ctas) cta.lines = is_checked() ? &lines : nullptr;
  if (is_checked() && options().races) {
    races = std::make_unique<Races>(cluster);
    for (Cta& cta : cluster.ctas) cta.races = races.get();
  }
}

// ---- fibers ----------------------------------------------------------------------------------------
FA_PER_OS_THREAD Machine* machine = nullptr;
FA_PER_OS_THREAD fiber* left_behind =
    nullptr;  // where the fiber that was switched away from belongs

fiber& fiber_of(const Lane& lane) {
  return machine->fibers[size_t(&lane - lane.cta->cluster->lanes.data())];
}

// Continues in `target` and comes back when somebody switches to the caller, whose own continuation is
// kept in `here`. Switching hands the caller's continuation to whoever runs next: they put it there.
void switch_to(fiber& target, fiber& here) {
  left_behind = &here;
  fiber previous = std::move(target).resume();
  *left_behind = std::move(previous);
}

void switch_to_lane(Lane& next, fiber& here) {
  current_lane = &next;
  switch_to(fiber_of(next), here);
}

// ---- choosing who runs -----------------------------------------------------------------------------
// Any lane of any warp that can run.
Lane* pick_random(Cluster& cluster) {
  const uint3& block = cluster.ctas[0].block_idx;
  int candidates = 0;
  for (const Warp& warp : cluster.warps) candidates += warp.runnable != 0;
  if (candidates == 0) return nullptr;
  const uint64_t random =
      random_bits(options().seed, {block.x, block.y, block.z, cluster.random_draws++});
  uint64_t skip = (random >> 32) % uint64_t(candidates);
  for (Warp& warp : cluster.warps) {
    if (!warp.runnable || skip-- > 0) continue;
    uint32_t lanes = warp.runnable;
    for (uint64_t n = (random & 0xffffffffu) % uint64_t(std::popcount(lanes)); n > 0; n--) {
      lanes &= lanes - 1;
    }
    return &warp.lanes[std::countr_zero(lanes)];
  }
  return nullptr;
}

// Round robin: first the other lanes of the same warp, then the next warp.
Lane* pick(Cluster& cluster, const Lane* last) {
  if (options().schedule == Schedule::kRandom) return pick_random(cluster);
  const int warp_count = int(cluster.warps.size());
  for (int i = 0; i < warp_count; i++) {
    Warp& warp = cluster.warps[size_t((cluster.current_warp + i) % warp_count)];
    if (!warp.runnable) continue;
    cluster.current_warp = warp.slot;
    const uint32_t after = last && last->warp == &warp && last->lane < 31
                               ? warp.runnable & (kFullMask << (last->lane + 1))
                               : 0;
    return &warp.lanes[std::countr_zero(after ? after : warp.runnable)];
  }
  return nullptr;
}

std::string describe_wait(const Lane& lane) {
  char text[256];
  if (lane.state == LaneState::kExited) return "has exited";
  if (lane.state == LaneState::kRunnable) return "can run";
  if (lane.state == LaneState::kAtBarrier) {
    const NamedBarrier& barrier = lane.cta->barriers[lane.barrier];
    const int expected = barrier.expected ? barrier.expected : lane.cta->live;
    snprintf(text, sizeof text, "waits in %s at %s:%u (barrier %d: %d of %d threads have arrived)",
             lane.operation, lane.where.file, lane.where.line, lane.barrier, barrier.arrived,
             expected);
  } else if (lane.state == LaneState::kParked) {
    snprintf(text, sizeof text, "waits in %s at %s:%u", lane.operation, lane.where.file,
             lane.where.line);
    return text + lane.describe(lane);
  } else {
    snprintf(text, sizeof text, "waits in %s at %s:%u (for the lanes 0x%08x of its warp)",
             lane.operation, lane.where.file, lane.where.line, lane.mask);
  }
  return text;
}

// "lane 5", "lanes 0-15", "lanes 1-3,5-7"
std::string describe_lanes(uint32_t lanes) {
  std::string text = std::popcount(lanes) == 1 ? "lane " : "lanes ";
  for (int first = 0; first < kWarpSize; first++) {
    if (!(lanes >> first & 1)) continue;
    int last = first;
    while (last + 1 < kWarpSize && lanes >> (last + 1) & 1) last++;
    text += text.back() == ' ' ? "" : ",";
    text += std::to_string(first) + (last > first ? "-" + std::to_string(last) : "");
    first = last;
  }
  return text;
}

// What the lanes of a warp wait for, those that do the same together: "lanes 0-31: waits in ...".
std::vector<std::string> describe_warp(const Warp& warp) {
  std::vector<std::string> lines;
  const int count =
      std::min(kWarpSize, int(warp.lanes->cta->lanes.size()) - warp.index * kWarpSize);
  for (uint32_t rest = kFullMask >> (kWarpSize - count); rest;) {
    const std::string what = describe_wait(warp.lanes[std::countr_zero(rest)]);
    uint32_t same = 0;
    for (uint32_t others = rest; others; others &= others - 1) {
      const int lane = std::countr_zero(others);
      if (describe_wait(warp.lanes[lane]) == what) same |= 1u << lane;
    }
    rest &= ~same;
    lines.push_back(describe_lanes(same) + ": " + what);
  }
  return lines;
}

// Who waits where; neighbouring warps that do the same together.
std::string describe_all(const Cluster& cluster) {
  std::string text;
  for (size_t i = 0, next; i < cluster.warps.size(); i = next) {
    const Warp& first = cluster.warps[i];
    const Cta& cta = *first.lanes->cta;
    if (first.index == 0 && cluster.ctas.size() > 1) {
      text += "\n  CTA " + std::to_string(cta.rank) + " of the cluster:";
    }
    const std::vector<std::string> lines = describe_warp(first);
    for (next = i + 1; next < cluster.warps.size(); next++) {
      const Warp& other = cluster.warps[next];
      if (other.lanes->cta != &cta || describe_warp(other) != lines) break;
    }
    const int last = first.index + int(next - i) - 1;
    const std::string name =
        last == first.index ? "warp " + std::to_string(last)
                            : "warps " + std::to_string(first.index) + "-" + std::to_string(last);
    for (const std::string& line : lines) text += "\n  " + name + " " + line;
  }
  return text;
}

std::string cta_name(const Cta& cta) {
  char text[192];
  snprintf(text, sizeof text, "%s, CTA (%u,%u,%u)", cta.kernel, cta.block_idx.x, cta.block_idx.y,
           cta.block_idx.z);
  return text;
}

// Leaves the lanes as they are and returns to the host, which destroys them.
[[noreturn]] void abandon(Lane& me) {
  current_lane = nullptr;
  switch_to(machine->host, fiber_of(me));
  std::terminate();  // not reached: the fiber is unwound where it stands
}

// Who runs next. Null if nobody can: all have ended, or there is a deadlock.
Lane* next_lane(Lane& me) {
  Cta& cta = *me.cta;
  Cluster& cluster = *cta.cluster;
  run_copies(cluster);
  for (;;) {
    if (Lane* next = pick(cluster, &me)) return next;
    // Nobody can go on before a copy under way has come to its end.
    if (!finish_awaited_copy(cluster)) break;
  }
  if (cluster.live > 0 && cta.failure.empty()) {
    cta.failure = "deadlock in " + cta_name(cta) + ": no thread can run" + describe_all(cluster);
  }
  return nullptr;
}

void make_runnable(Lane& lane) {
  lane.state = LaneState::kRunnable;
  lane.warp->runnable |= 1u << lane.lane;
}

// True if `other` waits in this very collective.
bool waits_in(const Lane& other, const char* operation, uint32_t mask) {
  return other.state == LaneState::kAtCollective && other.mask == mask &&
         strcmp(other.operation, operation) == 0;
}

// A collective is complete when every lane of its mask that still lives has arrived.
bool collective_complete(const Warp& warp, const char* operation, uint32_t mask) {
  for (uint32_t rest = mask & warp.live; rest; rest &= rest - 1) {
    if (!waits_in(warp.lanes[std::countr_zero(rest)], operation, mask)) return false;
  }
  return true;
}

void complete_barrier_if_all_arrived(Cta& cta, int index) {
  NamedBarrier& barrier = cta.barriers[index];
  const int expected = barrier.expected ? barrier.expected : cta.live;
  if (barrier.arrived == 0 || barrier.arrived < expected) return;
  barrier = NamedBarrier{};
  for (Lane& lane : cta.lanes) {
    if (lane.state != LaneState::kAtBarrier || lane.barrier != index) continue;
    if (cta.races) cta.races->leave(lane, index);
    make_runnable(lane);
  }
  if (cta.races) cta.races->reset(cta, index);
  if (cta.trace) cta.trace->complete(&barrier);
}

// A warp's barrier instruction, once all of its lanes have come. It has to wait if others are still missing.
void report_barrier(const Lane& lane) {
  Warp& warp = *lane.warp;
  const bool waits = lane.state == LaneState::kAtBarrier;
  record(warp, {Kind::kBarrier, warp.live, lane.where, {.requests = 1, .waits = waits}});
}

// The end of a lane: whoever waited for it need not wait any longer.
void lane_exit(Lane& me) {
  Cta& cta = *me.cta;
  Warp& warp = *me.warp;
  me.state = LaneState::kExited;
  warp.live &= ~(1u << me.lane);
  warp.runnable &= ~(1u << me.lane);
  cta.live--;
  cta.cluster->live--;
  if (is_checked() && !warp.live) count_accesses(warp, kFullMask);
  const Lane* rest_of_warp = nullptr;  // lanes at a barrier that this one will not come to
  if (warp.live && !warp.runnable) rest_of_warp = &warp.lanes[std::countr_zero(warp.live)];
  if (rest_of_warp && rest_of_warp->state != LaneState::kAtBarrier) rest_of_warp = nullptr;
  for (int i = 0; i < kNamedBarriers; i++) {
    if (cta.barriers[i].expected == 0) complete_barrier_if_all_arrived(cta, i);
  }
  if (rest_of_warp) report_barrier(*rest_of_warp);
  cluster_lane_exits(me);
  for (uint32_t rest = warp.live; rest; rest &= rest - 1) {
    Lane& other = warp.lanes[std::countr_zero(rest)];
    if (other.state == LaneState::kAtCollective && (other.mask >> me.lane & 1) &&
        collective_complete(warp, other.operation, other.mask)) {
      other.executes = true;
      make_runnable(other);
    }
  }
}

fiber lane_main(Lane& me, fiber&& from) {
  *left_behind = std::move(from);
  machine->body();
  finish_copies(me);
  finish_products(me);
  finish_bulk_copies(me);
  lane_exit(me);
  Lane* next = next_lane(me);
  left_behind = &fiber_of(me);  // receives an empty continuation: this fiber is over
  current_lane = next;
  return next ? std::move(fiber_of(*next)) : std::move(machine->host);
}

// ---- one CTA, or a cluster of them -----------------------------------------------------------------
void begin_cta(Machine& self, Cta& cta) {
  self.shared[size_t(cta.rank)]->poison();
  begin_products(cta);
  cta.live = int(cta.lanes.size());
  for (NamedBarrier& barrier : cta.barriers) barrier = NamedBarrier{};
  for (Lane& lane : cta.lanes) {
    lane.state = LaneState::kRunnable;
    lane.executes = false;
    lane.accesses.clear();
    lane.open_copies.clear();
    lane.copy_groups.clear();
    lane.random_draws = 0;
    lane.arrived_at_cluster = false;
    lane.polls = 0;
    const auto i = size_t(&lane - self.cluster.lanes.data());
    boost::context::stack_context stack;
    stack.sp = self.stacks.high(i);
    stack.size = size_t(self.stacks.high(i) - self.stacks.low(i));
    self.fibers[i] =
        fiber(std::allocator_arg, boost::context::preallocated(stack.sp, stack.size, stack),
              KeepStack{}, [&lane](fiber&& from) { return lane_main(lane, std::move(from)); });
  }
  cta.free_registers = 0;
  for (Warp& warp : cta.warps) {
    const int count = std::min(kWarpSize, int(cta.lanes.size()) - warp.index * kWarpSize);
    warp.waiting = warp.gathered = 0;
    warp.live = warp.runnable = kFullMask >> (kWarpSize - count);
    warp.registers = launch_registers(int(cta.lanes.size()));
    warp.set_registers = {};
  }
}

// Throws LaunchError if something was not as it should be at the end.
void end_cta(Machine& self, const Cta& cta) {
  const GuardedMemory& shared = *self.shared[size_t(cta.rank)];
  if (const ptrdiff_t at = shared.overwritten()) {
    throw LaunchError(cta_name(cta) + ": wrote outside shared memory, at byte " +
                      std::to_string(at) + " of a SharedStorage of " +
                      std::to_string(cta.shared_bytes) + " bytes");
  }
  for (int i = 0; i < kNamedBarriers; i++) {
    if (cta.barriers[i].arrived == 0) continue;
    throw LaunchError(cta_name(cta) + ": ends with barrier " + std::to_string(i) +
                      " out of balance: " + std::to_string(cta.barriers[i].arrived) + " of " +
                      std::to_string(cta.barriers[i].expected) +
                      " threads have arrived\n  Missing: a bar.sync or bar.arrive of the others." +
                      how_to_repeat());
  }
  if (const std::string text = unfinished_products(cta); !text.empty()) {
    throw LaunchError(cta_name(cta) + ": " + text + how_to_repeat());
  }
}

void run_cluster(Machine& self) {
  Cluster& cluster = self.cluster;
  Cta& first = cluster.ctas[0];
  cluster.random_draws = 0;
  cluster.current_warp = 0;
  cluster.arrived = 0;
  cluster.arriving.clear();
  cluster.ended.clear();
  cluster.live = int(cluster.lanes.size());
  cluster.mbarriers->clear();
  cluster.copies->clear();
  if (self.races) self.races->begin();
  for (Cta& cta : cluster.ctas) begin_cta(self, cta);
  switch_to_lane(*pick(cluster, nullptr), self.host);
  current_lane = nullptr;
  // What went wrong after a race is its consequence.
  if (self.races && !self.races->race_within_warp().empty()) {
    first.failure = cta_name(first) + ": " + self.races->race_within_warp();
  }
  for (const Cta& cta : cluster.ctas) {
    if (cta.failure.empty()) continue;
    for (fiber& each : self.fibers) each = fiber{};  // unwinds the lanes that still wait
    throw LaunchError(cta.failure + how_to_repeat());
  }
  for (const Cta& cta : cluster.ctas) end_cta(self, cta);
  if (const std::string text = self.races ? self.races->unwritten_read() : ""; !text.empty()) {
    throw LaunchError(cta_name(first) + ": " + text + how_to_repeat());
  }
}

std::mutex totals_mutex;
Counters totals;
LineTable line_totals;

}  // namespace

Cluster::Cluster()
    : mbarriers(std::make_unique<Mbarriers>()), copies(std::make_unique<BulkCopies>()) {}
Cluster::~Cluster() = default;

// ---- what instructions call --------------------------------------------------------------------------
std::string how_to_repeat() {
  const bool order = options().schedule == Schedule::kRandom,
             copies = options().completion == Completion::kRandom;
  if (!order && !copies) return "";
  return std::string("\n  Random ") +
         (order && copies ? "schedule and completion"
          : order         ? "schedule"
                          : "completion") +
         ": seed " + std::to_string(options().seed) + " repeats this run.";
}

void wait_until_runnable() {
  Lane& me = *current_lane;
  if (me.cta->wgmma && options().completion == Completion::kRandom) advance_products(*me.cta);
  me.warp->runnable &= ~(1u << me.lane);
  Lane* next = next_lane(me);
  if (!next) abandon(me);
  if (next != &me) switch_to_lane(*next, fiber_of(me));
}

void park(const char* operation, SourceLocation where, std::string (*describe)(const Lane&)) {
  Lane& me = *current_lane;
  me.operation = operation;
  me.where = where;
  me.describe = describe;
  me.state = LaneState::kParked;
  wait_until_runnable();
}

void wake(Lane& lane) { make_runnable(lane); }

void yield() {
  Lane& me = *current_lane;
  Cluster& cluster = *me.cta->cluster;
  run_copies(cluster);
  cluster.current_warp = (cluster.current_warp + 1) % int(cluster.warps.size());
  Lane* const next = pick(cluster, nullptr);
  if (next != &me) switch_to_lane(*next, fiber_of(me));
}

void fail(const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  Lane& me = *current_lane;
  char thread[64];
  snprintf(thread, sizeof thread, ", thread %d (warp %d lane %d): ", me.thread, me.warp->index,
           me.lane);
  me.cta->failure = cta_name(*me.cta) + thread + text;
  abandon(me);
}

void fail_cta(const std::string& text) {
  current_lane->cta->failure = cta_name(*current_lane->cta) + ": " + text;
  abandon(*current_lane);
}

namespace {
// PTX: instructions that are .aligned must be the same one for all lanes of a warp, not only of the same
// kind. All are but CUDA C++'s intrinsics.
bool is_aligned(const char* operation) { return operation[0] != '_'; }

void expect_same_instruction(const Lane& other, const char* operation, SourceLocation where) {
  if (other.where.line == where.line && strcmp(other.where.file, where.file) == 0) return;
  fail(
      "%s at %s:%u, but lane %d of the same warp is in %s at %s:%u: all lanes of a warp must "
      "execute "
      "the same instruction",
      operation, where.file, where.line, other.lane, other.operation, other.where.file,
      other.where.line);
}
}  // namespace

void** begin_collective(uint32_t mask, const char* operation, void* operands,
                        SourceLocation where) {
  Lane& me = *current_lane;
  Warp& warp = *me.warp;
  if (!(mask >> me.lane & 1)) {
    fail("%s at %s:%u: the mask 0x%08x does not name the calling lane", operation, where.file,
         where.line, mask);
  }
  const bool usual =
      warp.waiting == warp.gathered &&
      (warp.gathered == 0 || (warp.gather_operation == operation && warp.gather_mask == mask));
  for (uint32_t rest = usual ? 0 : mask & warp.live; rest; rest &= rest - 1) {
    const Lane& other = warp.lanes[std::countr_zero(rest)];
    if (other.state != LaneState::kAtCollective || waits_in(other, operation, mask)) continue;
    // It may come later, after a collective without this lane. If that one waits for this lane, neither
    // can ever go on.
    if (other.mask >> me.lane & 1) {
      fail(
          "%s at %s:%u with mask 0x%08x, but lane %d of the same warp is in %s at %s:%u with mask "
          "0x%08x:"
          " the lanes that a mask names must execute the same instruction",
          operation, where.file, where.line, mask, other.lane, other.operation, other.where.file,
          other.where.line, other.mask);
    }
  }
  if (usual && warp.gathered != 0 && is_aligned(operation)) {
    expect_same_instruction(*warp.gather_first, operation, where);
  }
  me.operands = operands;
  me.operation = operation;
  me.where = where;
  me.mask = mask;
  me.state = LaneState::kAtCollective;
  warp.waiting |= 1u << me.lane;
  if (usual) {
    if (warp.gathered == 0) warp.gather_first = &me;
    warp.gathered |= 1u << me.lane;
    warp.gather_operation = operation;
    warp.gather_mask = mask;
  }
  const bool complete =
      usual ? (mask & warp.live & ~warp.gathered) == 0 : collective_complete(warp, operation, mask);
  if (!complete) {
    wait_until_runnable();
    if (!me.executes) return nullptr;
    me.executes = false;
  }
  for (int lane = 0; lane < kWarpSize; lane++) {
    const bool takes_part = (mask & warp.live) >> lane & 1;
    warp.operands[lane] = takes_part ? warp.lanes[lane].operands : nullptr;
  }
  if (is_checked()) count_accesses(warp, mask);
  return warp.operands;
}

void finish_collective(uint32_t mask) {
  Warp& warp = *current_lane->warp;
  warp.waiting &= ~mask;
  warp.gathered &= ~mask;
  for (uint32_t rest = mask & warp.live; rest; rest &= rest - 1) {
    make_runnable(warp.lanes[std::countr_zero(rest)]);
  }
}

void sync_warp(uint32_t mask, SourceLocation where) {
  int nothing = 0;
  warp_collective(mask, "__syncwarp()", nothing, where, [&](int**) {
    Warp& warp = *current_lane->warp;
    record(warp, {Kind::kSyncwarp, mask & warp.live, where, {.requests = 1}});
    if (Races* const races = current_lane->cta->races)
      races->synchronise_warp(warp, mask & warp.live);
  });
}

namespace {
void arrive(int index, int expected, bool waits, const char* operation, SourceLocation where) {
  Lane& me = *current_lane;
  if (index < 0 || index >= kNamedBarriers) {
    fail("%s at %s:%u: barrier %d does not exist, a CTA has 0 to %d", operation, where.file,
         where.line, index, kNamedBarriers - 1);
  }
  if (expected % kWarpSize != 0) {
    fail("%s at %s:%u: %d threads are not a whole number of warps", operation, where.file,
         where.line, expected);
  }
  NamedBarrier& barrier = me.cta->barriers[index];
  if (barrier.arrived > 0 && barrier.expected != expected) {
    fail("%s at %s:%u expects %d threads, but others wait at barrier %d for %d", operation,
         where.file, where.line, expected, index, barrier.expected);
  }
  if (expected > 0 && me.cta->races && !me.cta->races->knows_last_turn(me, index)) {
    fail(
        "%s at %s:%u may count in the phase before: this thread has not seen the end of barrier "
        "%d's last phase\n  Too many threads arrive, the number %d is too small, or two groups of "
        "warps use one barrier.",
        operation, where.file, where.line, index, expected);
  }
  barrier.expected = expected;
  barrier.arrived++;
  if (me.cta->races) me.cta->races->arrive(me, index);
  if (Trace* const trace = me.cta->trace) {
    Step step{.name = operation};
    step.arrives = trace->meeting(&barrier, "barrier " + std::to_string(index));
    if (waits) step.awaits = step.arrives;
    trace->note(me, where, step);
  }
}
}  // namespace

void barrier_sync(int index, int expected, const char* operation, SourceLocation where) {
  Lane& me = *current_lane;
  // Barriers are .aligned too. Lanes of other warps may stand elsewhere.
  for (uint32_t rest = me.warp->live & ~me.warp->runnable; rest; rest &= rest - 1) {
    const Lane& other = me.warp->lanes[std::countr_zero(rest)];
    if (other.state == LaneState::kAtBarrier && other.barrier == index) {
      expect_same_instruction(other, operation, where);
      break;
    }
  }
  arrive(index, expected, true, operation, where);
  me.operation = operation;
  me.where = where;
  me.barrier = index;
  me.state = LaneState::kAtBarrier;
  me.warp->runnable &= ~(1u << me.lane);
  const bool whole_warp = (me.warp->runnable & me.warp->live) == 0;
  if (whole_warp && is_checked()) count_accesses(*me.warp, kFullMask);
  complete_barrier_if_all_arrived(*me.cta, index);
  if (whole_warp) report_barrier(me);
  if (me.state == LaneState::kRunnable) return;
  wait_until_runnable();
}

void barrier_arrive(int index, int expected, const char* operation, SourceLocation where) {
  arrive(index, expected, false, operation, where);
  complete_barrier_if_all_arrived(*current_lane->cta, index);
}

// ---- launch ----------------------------------------------------------------------------------------
void launch(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes,
            const std::function<void()>& body, int cluster) {
  const uint64_t ctas = uint64_t(grid.x) * grid.y * grid.z;
  const uint64_t threads = uint64_t(block.x) * block.y * block.z;
  if (ctas == 0 || threads == 0 || threads > 1024) {
    throw LaunchError("a launch needs at least one CTA and 1 to 1024 threads a CTA");
  }
  const auto clusters = ctas / uint64_t(cluster);
#ifdef FA_EMULATOR_DEBUG
  const uint64_t workers = 1;
#else
  const uint64_t wanted = options().os_threads > 0 ? uint64_t(options().os_threads)
                                                   : std::thread::hardware_concurrency();
  const uint64_t workers = std::clamp<uint64_t>(wanted, 1, clusters);
#endif
  std::vector<std::unique_ptr<Machine>> machines;
  for (uint64_t i = 0; i < workers; i++) {
    machines.push_back(std::make_unique<Machine>(kernel, grid, block, shared_bytes, cluster, body));
  }

  std::unique_ptr<LaunchAccesses> accesses;
  if (machines[0]->races) accesses = std::make_unique<LaunchAccesses>(kernel, grid, cluster);
  std::atomic<uint64_t> next_cluster{0};
  std::exception_ptr error;
  uint64_t error_cluster = clusters;  // the first that failed, whichever was noticed first
  auto run_clusters = [&](Machine& self) {
    install_fault_handler();
    machine = &self;
    uint64_t i = clusters;
    bool added = true;
    try {
      while ((i = next_cluster++) < clusters) {
        for (Cta& cta : self.cluster.ctas) {
          const uint64_t index = i * uint64_t(cluster) + uint64_t(cta.rank);
          cta.block_idx = {unsigned(index % grid.x), unsigned(index / grid.x % grid.y),
                           unsigned(index / grid.x / grid.y)};
        }
        added = false;
        std::optional<Trace> trace;
        for (Cta& cta : self.cluster.ctas) {
          const bool traced = options().traced_cta == i * uint64_t(cluster) + uint64_t(cta.rank);
          if (is_checked() && traced) trace.emplace(cta);
          cta.trace = is_checked() && traced ? &*trace : nullptr;
        }
        run_cluster(self);
        added = true;
        if (trace) keep_recording(trace->finish());
        if (accesses) accesses->add(i, self.races.get());
      }
      const std::lock_guard lock(totals_mutex);
      for (const Cta& cta : self.cluster.ctas) totals += cta.counters;
      line_totals.add(self.lines);
    } catch (...) {
      next_cluster = clusters;  // the others stop after the cluster they are at
      if (accesses && !added) accesses->add(i, nullptr);
      const std::lock_guard lock(totals_mutex);
      if (i < error_cluster) {
        error = std::current_exception();
        error_cluster = i;
      }
    }
  };
  std::vector<std::thread> others;
  for (uint64_t i = 1; i < workers; i++) others.emplace_back(run_clusters, std::ref(*machines[i]));
  run_clusters(*machines[0]);
  for (std::thread& other : others) other.join();
  if (error) std::rethrow_exception(error);
  if (accesses) accesses->finish();
}

Counters take_counters() {
  const std::lock_guard lock(totals_mutex);
  return std::exchange(totals, Counters{});
}

std::vector<LineCounts> take_lines() {
  const std::lock_guard lock(totals_mutex);
  std::vector<LineCounts> lines = line_totals.lines();
  line_totals.clear();
  return lines;
}

bool at(int thread, unsigned block_x) { return at(thread, block_x, 0); }

bool at(int thread, unsigned block_x, unsigned block_y) {
  return current_lane && current_lane->thread == thread &&
         current_lane->cta->block_idx.x == block_x && current_lane->cta->block_idx.y == block_y;
}

const char* where() {
  static char text[256];
  if (!current_lane) return "outside a kernel";
  const Lane& me = *current_lane;
  snprintf(text, sizeof text, "%s: thread %d (warp %d lane %d)", cta_name(*me.cta).c_str(),
           me.thread, me.warp->index, me.lane);
  return text;
}

}  // namespace emu
