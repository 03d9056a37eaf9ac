// Fibers, and which of them runs: warp collectives, waits, one cluster from its begin to its end.
#include <algorithm>
#include <array>
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
#include <string>
#include <utility>
#include <vector>

#include "common/emulator/core/describe.h"
#include "common/emulator/core/first_nan.h"
#include "common/emulator/core/launch.h"
#include "common/emulator/core/memory.h"
#include "common/emulator/core/patience.h"
#include "common/emulator/core/random.h"
#include "common/emulator/core/unit.h"
#include "common/emulator/core/watch.h"

namespace emu {

using boost::context::fiber;

#ifdef FA_EMULATOR_DEBUG
Lane* current_lane = nullptr;
#define FA_PER_OS_THREAD
#else
constinit thread_local Lane* current_lane = nullptr;
#define FA_PER_OS_THREAD thread_local
#endif

Machine::Machine(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes, int ctas,
                 const std::function<void()>& kernel_body, LaunchChecks* checks_of_launch)
    : stacks(size_t(ctas) * block.x * block.y * block.z),
      fibers(size_t(ctas) * block.x * block.y * block.z),
      used_stacks(fibers.size()),
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
    cta.static_bytes = static_shared_bytes();
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
      lane.number = int(&lane - cluster.lanes.data());
      lane.thread_idx = {i % block.x, i / block.x % block.y, i / block.x / block.y};
    }
  }
  if (checks_of_launch) checks = checks_of_launch->watch(cluster);
  for (Cta& cta : cluster.ctas) {
    cta.checks = checks.get();
    cta.detector = checks ? checks->detector() : nullptr;
  }
  cluster.make_units();
}

namespace {

// The stacks belong to Stacks; a fiber that ends has nothing to free.
struct KeepStack {
  void deallocate(boost::context::stack_context&) const noexcept {}
};

// ---- fibers -------------------------------------------------------------------------------------
FA_PER_OS_THREAD Machine* machine = nullptr;
// Points to where the fiber that was switched away from belongs.
FA_PER_OS_THREAD fiber* left_behind = nullptr;

fiber& fiber_of(const Lane& lane) { return machine->fibers[size_t(lane.number)]; }

// ---- stacks -------------------------------------------------------------------------------------
// That much of a lane's stack, from the top, begins as NaN: a register that the kernel has not set
// is no zero on a GPU either. The frames of the kernels here need less.
constexpr size_t kPoisonedStack = 16 * 1024;
// What the lanes before have left as it was need not become NaN again. After some clusters it is
// known how far down they write, in bands. From then on a lane that writes further is noticed by
// the band below, if it writes any of that, and all begins again.
constexpr size_t kBand = 512;
constexpr int kClustersBefore = 8;  // since looking takes as long as some of few instructions

bool is_poison(const uint8_t* band) {
  static constexpr auto kPoisoned = [] {
    std::array<uint8_t, kBand> all{};
    all.fill(kPoison);
    return all;
  }();
  return memcmp(band, kPoisoned.data(), kBand) == 0;
}

// Before each cluster: how many bytes of each used stack, from the top, its lanes write.
void measure_stacks(Machine& self) {
  const size_t lanes = self.fibers.size();
  size_t& written = self.written_stack;
  if (written != 0) {
    for (size_t i = 0; i < lanes; i++) {
      if (!self.used_stacks[i] || is_poison(self.stacks.high(i) - written - kBand)) continue;
      written = 0;
      self.clusters_before = 0;
      self.used_stacks.assign(lanes, false);
    }
    return;
  }
  if (self.clusters_before++ != kClustersBefore) return;
  for (size_t i = 0; i < lanes; i++) {
    for (size_t n = self.used_stacks[i] ? kPoisonedStack : 0; n > written; n -= kBand) {
      if (is_poison(self.stacks.high(i) - n)) continue;
      written = n;
      break;
    }
  }
  if (written == kPoisonedStack) written = 0;
}

void give_stack(Lane& lane, int stack) {
  lane.begun = true;
  lane.stack = stack;
  lane.stack_low = uintptr_t(machine->stacks.low(size_t(stack)));
  lane.stack_high = lane.stack_low + kStackBytes;
}

fiber lane_main(Lane& first, fiber&& from);

// A lane begins on its own stack.
void begin_lane(Lane& lane) {
  const auto i = size_t(lane.number);
  uint8_t* const top = machine->stacks.high(i);
  const bool used = machine->used_stacks[i] && machine->written_stack != 0;
  const size_t bytes = used ? machine->written_stack : kPoisonedStack;
  memset(top - bytes, kPoison, bytes);
  machine->used_stacks[i] = true;
  give_stack(lane, lane.number);
  boost::context::stack_context stack;
  stack.sp = top;
  stack.size = size_t(top - machine->stacks.low(i));
  fiber_of(lane) =
      fiber(std::allocator_arg, boost::context::preallocated(stack.sp, stack.size, stack),
            KeepStack{}, [&lane](fiber&& from) { return lane_main(lane, std::move(from)); });
}

#if defined(FA_EMULATOR_DEBUG) || !defined(__OPTIMIZE__)
constexpr bool kTakesOver = false;  // the debugger finds every lane on its own stack
#else
constexpr bool kTakesOver = true;
#endif

// What is below the caller's frame becomes NaN, from `low` up. This function keeps no variable in
// memory, so of its own frame there is little. What memset() returns to is not what it overwrites.
[[gnu::noinline]] void poison_below_caller(uint8_t* low) {
  constexpr ptrdiff_t kOwnFrame = 64, kFrameOfMemset = 192;
  constexpr uint64_t kWord = kPoison * 0x0101010101010101u;
  auto* const end = static_cast<uint8_t*>(__builtin_frame_address(0)) - kOwnFrame;
  if (end - low > kFrameOfMemset) {
    memset(low, kPoison, size_t(end - low - kFrameOfMemset));
    low = end - kFrameOfMemset;
  }
  for (; low < end; low += sizeof kWord) *reinterpret_cast<volatile uint64_t*>(low) = kWord;
}

// A lane that has not begun can go on where another has ended, on its stack and without a switch
// of fibers. That is most of what a short thread costs.
[[gnu::always_inline]] inline bool takes_over(Lane& next, const Lane& ended) {
  const size_t written = machine->written_stack;
  if (!kTakesOver || written == 0) return false;
  uint8_t* const top = machine->stacks.high(size_t(ended.stack));
  if (!is_poison(top - written - kBand)) return false;
  poison_below_caller(top - written);
  give_stack(next, ended.stack);
  return true;
}

// ---- switching ----------------------------------------------------------------------------------
// Continues in `target` and comes back when another fiber switches to the caller, whose own
// continuation is kept in `here`. Switching hands the caller's continuation to the fiber that runs
// next, which puts it there.
void switch_to(fiber& target, fiber& here) {
  left_behind = &here;
  fiber previous = std::move(target).resume();
  *left_behind = std::move(previous);
}

void switch_to_lane(Lane& next, fiber& here) {
  if (!next.begun) begin_lane(next);
  current_lane = &next;
  switch_to(fiber_of(next), here);
}

// A lane has come to wait, has been woken, has met others or has ended.
void note_progress() { machine->progress = machine->progress + 1; }

// ---- choosing who runs --------------------------------------------------------------------------
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
    const int behind = cluster.current_warp + i;
    Warp& warp = cluster.warps[size_t(behind < warp_count ? behind : behind - warp_count)];
    if (!warp.runnable) continue;
    cluster.current_warp = warp.slot;
    const uint32_t after = last && last->warp == &warp && last->lane < 31
                               ? warp.runnable & (kFullMask << (last->lane + 1))
                               : 0;
    return &warp.lanes[std::countr_zero(after ? after : warp.runnable)];
  }
  return nullptr;
}

// Leaves the lanes as they are and returns to the host, which destroys them.
[[noreturn]] void abandon(Lane& me) {
  current_lane = nullptr;
  switch_to(machine->host, fiber_of(me));
  std::terminate();  // not reached: the fiber is unwound where it stands
}

// `me` stops running for a while. Under random completion, asynchronous work may end now.
void step_units(Lane& me, bool waits) {
  if (options().completion != Completion::kRandom) return;
  for (Unit* const unit : me.cta->cluster->units_in_order) unit->step(me, waits);
}

// No lane can go on before some asynchronous work has come to its end: one piece does so now.
// False: there is none.
bool finish_awaited(Cluster& cluster) {
  for (Unit* const unit : cluster.units_in_order) {
    if (unit->finish_awaited()) return true;
  }
  return false;
}

// Returns which lane runs next; null if none can: all have ended, or there is a deadlock.
Lane* next_lane(Lane& me, bool waits) {
  Cta& cta = *me.cta;
  Cluster& cluster = *cta.cluster;
  step_units(me, waits);
  if (*machine->ending) {
    cta.failure = "ended";
    return nullptr;
  }
  do {
    if (Lane* next = pick(cluster, &me)) return next;
  } while (finish_awaited(cluster));
  if (cluster.live > 0 && cta.failure.empty()) {
    cta.failure = "deadlock in " + cta_name(cta) + ": no thread can run" + describe_all(cluster);
  }
  return nullptr;
}

void make_runnable(Lane& lane) {
  lane.state = LaneState::kRunnable;
  lane.warp->runnable |= 1u << lane.lane;
  note_progress();
}

// Returns whether `other` waits in this very collective.
bool waits_in(const Lane& other, const char* operation, uint32_t mask) {
  return other.state == LaneState::kAtCollective && other.mask == mask &&
         (other.operation == operation || strcmp(other.operation, operation) == 0);
}

// A collective is complete when every lane of its mask that still lives has arrived.
bool collective_complete(const Warp& warp, const char* operation, uint32_t mask) {
  for (uint32_t rest = mask & warp.live; rest; rest &= rest - 1) {
    if (!waits_in(warp.lanes[std::countr_zero(rest)], operation, mask)) return false;
  }
  return true;
}

// The end of a lane. Collectives that waited for it alone can go on.
void lane_exit(Lane& me) {
  Cta& cta = *me.cta;
  Warp& warp = *me.warp;
  me.state = LaneState::kExited;
  warp.live &= ~(1u << me.lane);
  warp.runnable &= ~(1u << me.lane);
  cta.live--;
  cta.cluster->live--;
  note_progress();
  if (cta.checks && !warp.live) cta.checks->meet(warp, kFullMask);
  for (Unit* const unit : cta.cluster->units_in_order) unit->thread_has_ended(me);
  if (cta.live == 0 && cta.detector) cta.detector->end_of_cta(cta);
  for (uint32_t rest = warp.live; rest; rest &= rest - 1) {
    Lane& other = warp.lanes[std::countr_zero(rest)];
    if (other.state == LaneState::kAtCollective && (other.mask >> me.lane & 1) &&
        collective_complete(warp, other.operation, other.mask)) {
      other.executes = true;
      make_runnable(other);
    }
  }
}

// Lanes run one after another in a fiber, the next from where the one before has ended.
fiber lane_main(Lane& first, fiber&& from) {
  *left_behind = std::move(from);
  for (Lane* me = &first;;) {
    trap_nans();
    machine->body();
    for (Unit* const unit : me->cta->cluster->units_in_order) unit->thread_ends(*me);
    lane_exit(*me);
    Lane* const next = next_lane(*me, false);
    current_lane = next;
    if (next && !next->begun && takes_over(*next, *me)) {
      me = next;
      continue;
    }
    if (next && !next->begun) begin_lane(*next);
    left_behind = &fiber_of(*me);  // receives an empty continuation: this fiber is over
    return next ? std::move(fiber_of(*next)) : std::move(machine->host);
  }
}

// ---- one CTA, or a cluster of them --------------------------------------------------------------
void begin_cta(Machine& self, Cta& cta) {
  self.shared[size_t(cta.rank)]->poison();
  cta.live = int(cta.lanes.size());
  for (Lane& lane : cta.lanes) {
    lane.state = LaneState::kRunnable;
    lane.executes = false;
    lane.last_wait = {};
    lane.forget_accesses();
    lane.stack_watch = nullptr;
    lane.calls = 0;
    lane.not_unwound = false;
    lane.begun = false;
    if (!kTakesOver) begin_lane(lane);
  }
  for (Warp& warp : cta.warps) {
    const int count = std::min(kWarpSize, int(cta.lanes.size()) - warp.index * kWarpSize);
    warp.waiting = warp.gathered = 0;
    warp.live = warp.runnable = kFullMask >> (kWarpSize - count);
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
  for (Unit* const unit : cta.cluster->units_in_order) {
    const std::string text = unit->complaint(cta);
    if (!text.empty()) throw LaunchError(cta_name(cta) + ": " + text + how_to_repeat());
  }
}

}  // namespace

// ---- for the launch (machine.h) -----------------------------------------------------------------
void enter(Machine& self) { machine = &self; }

void run_cluster(Machine& self) {
  Cluster& cluster = self.cluster;
  Cta& first = cluster.ctas[0];
  cluster.random_draws = 0;
  cluster.current_warp = 0;
  cluster.live = int(cluster.lanes.size());
  for (Unit* const unit : cluster.units_in_order) unit->begin();
  if (self.checks) self.checks->begin();
  measure_stacks(self);
  for (Cta& cta : cluster.ctas) begin_cta(self, cta);
  switch_to_lane(*pick(cluster, nullptr), self.host);
  current_lane = nullptr;
  // What went wrong after a race is its consequence.
  Detector* const detector = first.detector;
  if (detector) detector->settle();
  if (detector && !detector->race_within_warp().empty()) {
    first.failure = cta_name(first) + ": " + detector->race_within_warp();
  }
  for (const Cta& cta : cluster.ctas) {
    if (cta.failure.empty()) continue;
    for (const Lane& lane : cluster.lanes) {
      // The lanes that still wait are unwound, but none through a function that observes its end:
      // there the compiler takes the checks' hooks for calls that throw nothing.
      if (options().calls || lane.not_unwound) std::construct_at(&fiber_of(lane));
      fiber_of(lane) = fiber{};
    }
    throw LaunchError(cta.failure + how_to_repeat());
  }
  for (const Cta& cta : cluster.ctas) end_cta(self, cta);
  if (const std::string text = detector ? detector->unwritten_read() : ""; !text.empty()) {
    throw LaunchError(cta_name(first) + ": " + text + how_to_repeat());
  }
}

// ---- units --------------------------------------------------------------------------------------
namespace {

struct RegisteredUnit {
  int order;
  std::unique_ptr<Unit> (*make)(Cluster&);
};

std::vector<RegisteredUnit>& registered_units() {
  static std::vector<RegisteredUnit> units;
  return units;
}

}  // namespace

size_t detail::register_unit(int order, std::unique_ptr<Unit> (*make)(Cluster&)) {
  registered_units().push_back({order, make});
  return registered_units().size() - 1;
}

Cluster::Cluster() = default;
Cluster::~Cluster() = default;

void Cluster::make_units() {
  std::vector<std::pair<int, Unit*>> sorted;
  for (const RegisteredUnit& unit : registered_units()) {
    units.push_back(unit.make(*this));
    sorted.emplace_back(unit.order, units.back().get());
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [order, unit] : sorted) units_in_order.push_back(unit);
}

// ---- what instructions call ---------------------------------------------------------------------
namespace {
void wait_until_runnable() {
  Lane& me = *current_lane;
  me.warp->runnable &= ~(1u << me.lane);
  note_progress();
  Lane* next = next_lane(me, true);
  if (!next) abandon(me);
  if (next != &me) switch_to_lane(*next, fiber_of(me));
}
}  // namespace

void stop(const char* operation, SourceLocation where, std::string (*describe)(const Lane&)) {
  Lane& me = *current_lane;
  me.operation = operation;
  me.where = where;
  me.describe = describe;
  me.state = LaneState::kParked;
  me.warp->runnable &= ~(1u << me.lane);
}

void wait_until_woken() {
  if (current_lane->state == LaneState::kRunnable) return;
  wait_until_runnable();
}

void park(const char* operation, SourceLocation where, std::string (*describe)(const Lane&)) {
  stop(operation, where, describe);
  wait_until_woken();
}

void wake(Lane& lane) { make_runnable(lane); }

void yield() {
  Lane& me = *current_lane;
  Cluster& cluster = *me.cta->cluster;
  if (machine->overdue) end_of_patience();
  if (*machine->ending) fail_cta("ended");
  step_units(me, false);
  cluster.current_warp = (cluster.current_warp + 1) % int(cluster.warps.size());
  Lane* const next = pick(cluster, nullptr);
  if (next != &me) switch_to_lane(*next, fiber_of(me));
}

void end_if_overdue(uintptr_t instruction) {
  if (machine->overdue) fail("%s", without_a_word(instruction).c_str());
  if (*machine->ending) fail_cta("ended");
}

void yield_after_question() {
  constexpr uint64_t kMost = uint64_t(1) << 22;
  Cluster& cluster = *current_lane->cta->cluster;
  if (std::exchange(cluster.progress_before, machine->progress) != machine->progress) {
    cluster.questions = 0;
  }
  if (++cluster.questions >= kMost) {
    std::string at;
    if (const auto& accesses = current_lane->accesses; !accesses.empty()) {  // checked build
      const MemoryAccess& last = accesses.back();
      const AccessDetails* const details = current_lane->details_of(last);
      const bool named = details && details->where.line > 0;
      at = (named ? place(details->where) : symbolise(last.program_counter - 1)) + ": ";
    }
    fail_cta(
        at + "its threads have looked at memory " + std::to_string(kMost) +
        " times in a row, and none has got anywhere\n  It waits for what never comes? The host "
        "goes on when the launch has ended, and a later CTA\n  begins when those before it have "
        "ended." +
        describe_all(cluster));
  }
  // Whoever is to answer may wait for a copy, which ends late as long as somebody else can run.
  if (cluster.questions % 256 == 0) finish_awaited(cluster);
  yield();
}

namespace {
[[noreturn]] void fail_here(const std::string& text) {
  Lane& me = *current_lane;
  char thread[64];
  snprintf(thread, sizeof thread, ", thread %d (warp %d lane %d): ", me.thread, me.warp->index,
           me.lane);
  me.cta->failure = cta_name(*me.cta) + thread + text;
  me.not_unwound = true;
  abandon(me);
}
}  // namespace

void fail(const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fail_here(text);
}

void abandon_interrupted(const std::string& text) { fail_here(text); }

void fail_cta(const std::string& text) {
  current_lane->cta->failure = cta_name(*current_lane->cta) + ": " + text;
  current_lane->not_unwound = true;
  abandon(*current_lane);
}

void misuse(const char* operation, SourceLocation where, const std::string& what) {
  fail("%s at %s: %s", operation, place(where).c_str(), what.c_str());
}

namespace {
// PTX: which collectives are .aligned. All are but CUDA C++'s intrinsics.
bool is_aligned(const char* operation) { return operation[0] != '_'; }
}  // namespace

namespace {
// What exchanges values among the lanes of a mask.
bool names_lanes(const char* operation) {
  return operation[0] == '_' && strcmp(operation, "__syncwarp()") != 0;
}
}  // namespace

void expect_same_instruction(const Lane& other, const char* operation, SourceLocation where) {
  const bool same_file =
      other.where.file == where.file || strcmp(other.where.file, where.file) == 0;
  if (other.where.line == where.line && same_file) return;
  fail(
      "%s at %s, but lane %d of the same warp is in %s at %s: all lanes of a warp must execute "
      "the same instruction",
      operation, place(where).c_str(), other.lane, other.operation, place(other.where).c_str());
}

void** begin_collective(uint32_t mask, const char* operation, void* operands,
                        SourceLocation where) {
  Lane& me = *current_lane;
  Warp& warp = *me.warp;
  if (!(mask >> me.lane & 1)) {
    fail("%s at %s: the mask 0x%08x does not name the calling lane", operation,
         place(where).c_str(), mask);
  }
  const bool usual =
      warp.waiting == warp.gathered &&
      (warp.gathered == 0 || (warp.gather_operation == operation && warp.gather_mask == mask));
  for (uint32_t rest = usual ? 0 : mask & warp.live; rest; rest &= rest - 1) {
    const Lane& other = warp.lanes[std::countr_zero(rest)];
    if (other.state != LaneState::kAtCollective || waits_in(other, operation, mask)) continue;
    // It may come later, after a collective without this lane. If that one waits for this lane,
    // neither can ever go on.
    if (other.mask >> me.lane & 1) {
      fail(
          "%s at %s with mask 0x%08x, but lane %d of the same warp is in %s at %s with mask "
          "0x%08x: the lanes that a mask names must execute the same instruction",
          operation, place(where).c_str(), mask, other.lane, other.operation,
          place(other.where).c_str(), other.mask);
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
  if (Checks* const checks = me.cta->checks) {
    if (names_lanes(operation) && (mask & ~warp.live)) {
      checks->absent_lanes(warp, mask, operation, where);
    }
    checks->meet(warp, mask);
  }
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

}  // namespace emu
