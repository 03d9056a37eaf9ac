// The state of the emulated machine: lanes (threads), warps and the CTA they form.
//
// Every lane is a fiber: a stack of its own, switched in user space. One OS thread runs one CTA at
// a time; its lanes take turns and a lane runs until it has to wait for others. Nothing here needs
// a lock, and the order of events depends on the kernel alone, never on the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/emulator/core/counters.h"      // IWYU pragma: export
#include "common/emulator/core/vector_types.h"  // IWYU pragma: export

namespace emu {

// For whom a fence orders: the asynchronous engines, the CTA, the GPU (and so the CTA as well).
enum class Fence : uint8_t { kProxy, kCta, kGpu };

inline constexpr int kWarpSize = 32;
inline constexpr uint32_t kFullMask = 0xffffffffu;
inline constexpr uint32_t kStackGuardBytes = 64 * 1024;  // untouchable, below every lane's stack

// The place in the source where something happened. Functions take it as a defaulted last argument,
// which the compiler evaluates at the call: `SourceLocation where = SourceLocation::current()`.
struct SourceLocation {
  const char* file = "";
  unsigned line = 0;
  static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                          unsigned line = __builtin_LINE()) {
    return {file, line};
  }
};
std::string place(SourceLocation where);  // "kernels/12_tma.cu:140"

class Checks;
class Detector;
class LaunchOrder;
class Recorder;
class StackWatch;
class Unit;
struct Cluster;
struct Cta;
struct Warp;

// An access to memory by one lane, remembered until its warp next meets (checked build). There are
// many, so it is small: what only copies and atomics have is in Lane::access_details.
struct MemoryAccess {
  uintptr_t program_counter;
  uintptr_t address;
  Kind kind;
  uint16_t bytes;
  uint32_t details = 0;  // 1 + the index in Lane::access_details; 0: none
};
static_assert(sizeof(MemoryAccess) == 24);

struct AccessDetails {
  SourceLocation where;
  // What a copy, whose `address` is in shared memory, reads of global memory.
  uintptr_t source = 0;
  uint32_t source_bytes = 0;
};

// A wait for a phase of an mbarrier.
struct PhaseWait {
  SourceLocation where;  // line 0: there was none
  uintptr_t bar = 0;
  uint64_t phase = 0;
};

// A parked lane waits until wake(), for what its function `describe` tells.
enum class LaneState : uint8_t { kRunnable, kAtCollective, kParked, kExited };

struct Lane {
  Cta* cta = nullptr;
  Warp* warp = nullptr;
  uint3 thread_idx{};  // position in the CTA
  int thread = 0;      // the same, linear: x fastest
  int lane = 0;        // 0..31, position in the warp
  int number = 0;      // position among all lanes of the cluster
  LaneState state = LaneState::kRunnable;

  // These tell what the lane waits for, and where. They are valid unless the lane is runnable.
  const char* operation = "";
  SourceLocation where;
  uint32_t mask = 0;         // the lanes that a collective waits for
  void* operands = nullptr;  // this lane's operands of the collective
  bool executes = false;     // woken to execute the collective for all
  std::string (*describe)(const Lane&) = nullptr;

  PhaseWait last_wait;                        // for reports
  std::vector<MemoryAccess> accesses;         // checked build: since the warp last met
  std::vector<AccessDetails> access_details;  // what its copies and atomics have besides
  uint32_t calls = 0;                         // checked build: which have led here (checks/races.h)
  StackWatch* stack_watch = nullptr;  // checked build: who sees the accesses to this lane's stack
  // If the launch fails: it stands between any two instructions of its kernel, or in a hook of the
  // checked build, which the compiler takes for a call that throws nothing.
  bool not_unwound = false;
  bool begun = false;  // it has, or had, a stack
  int stack = 0;       // the number of the lane to which that belongs
  uintptr_t stack_low = 0, stack_high = 0;

  void add_access(MemoryAccess access, const AccessDetails& details) {
    access_details.push_back(details);
    access.details = uint32_t(access_details.size());
    accesses.push_back(access);
  }
  const AccessDetails* details_of(const MemoryAccess& access) const {
    return access.details ? &access_details[access.details - 1] : nullptr;
  }
  void forget_accesses() {
    accesses.clear();
    access_details.clear();
  }
};

struct Warp {
  Lane* lanes = nullptr;           // its 32 lanes (fewer in a last, partial warp)
  int index = 0;                   // in its CTA
  int slot = 0;                    // in its cluster
  uint32_t live = 0;               // lanes that have not exited
  uint32_t runnable = 0;           // lanes that can run now
  void* operands[kWarpSize] = {};  // of the collective that is about to execute

  // Short cut for the usual case, that all lanes which wait in collectives wait in one: those
  // lanes, what they execute and for whom. Only valid while `gathered` equals `waiting`.
  uint32_t waiting = 0;   // lanes in the state kAtCollective
  uint32_t gathered = 0;  // of these, the ones in gather_operation with gather_mask
  const char* gather_operation = nullptr;
  uint32_t gather_mask = 0;
  const Lane* gather_first = nullptr;
};

struct Cta {
  Cluster* cluster = nullptr;
  int rank = 0;  // in its cluster
  uint3 block_idx{};
  dim3 block_dim, grid_dim;
  std::span<Lane> lanes;
  std::span<Warp> warps;
  int live = 0;  // lanes that have not exited
  uint8_t* shared = nullptr;
  size_t shared_bytes =
      0;  // of these the first static_bytes hold the program's __shared__ variables
  size_t static_bytes = 0;
  const char* kernel = "";
  std::string failure;  // the first error: ends the launch
  Counters counters;

  // These watch (watch.h); null: nothing does.
  Checks* checks = nullptr;      // in the checked build
  Detector* detector = nullptr;  // in the checked build, unless races are not looked for
  Recorder* recorder = nullptr;  // in the CTA whose timeline is wanted
};

// CTAs that run together on one OS thread: one, unless the launch asks for clusters.
struct Cluster {
  Cluster();
  ~Cluster();
  void make_units();  // once lanes, warps and CTAs are there

  std::vector<Cta> ctas;
  std::vector<Lane> lanes;                      // of all CTAs, in order
  std::vector<Warp> warps;                      // likewise
  int live = 0;                                 // lanes that have not exited
  int current_warp = 0;                         // where the scheduler last found a runnable lane
  uint64_t questions = 0, progress_before = 0;  // in a row: yield_after_question()
  uint64_t random_draws = 0;                    // decisions taken so far by the random schedule
  uint64_t index = 0;                           // in the launch
  LaunchOrder* launch_order = nullptr;
  std::string printed;  // by its threads; shown when the clusters before it have ended

  std::vector<std::unique_ptr<Unit>> units;  // unit.h
  std::vector<Unit*> units_in_order;         // the same, in the order in which they are called
};

// Returns where a lane's clock is in the detector, which has 32 places for every warp.
inline int slot_of(const Lane& lane) { return lane.warp->slot * kWarpSize + lane.lane; }

// The lane that this OS thread is running, null outside a kernel. The debug build has one OS thread
// and an ordinary variable, which a debugger can always read.
#ifdef FA_EMULATOR_DEBUG
extern Lane* current_lane;
#else
extern constinit thread_local Lane* current_lane;
#endif

// ---- the scheduler's interface to the instructions (scheduler.cpp) ------------------------------

// The current lane can go on no longer, in the state kParked; `describe` tells a deadlock's dump
// what it waits for.
void stop(const char* operation, SourceLocation where, std::string (*describe)(const Lane&));

// Runs others until one of them wakes the current lane, which has stopped.
void wait_until_woken();

// The two in one.
void park(const char* operation, SourceLocation where, std::string (*describe)(const Lane&));

void wake(Lane& lane);

// Lets others run first, if any can.
void yield();

// The same, after a look at memory that another thread or the host is to change. Ends the launch if
// threads do nothing else for too long: what they do is remembered until they meet, which takes
// memory.
void yield_after_question();
// Ends the launch if the thread has run on for too long, or if the launch is to end anyway.
void end_if_overdue(uintptr_t instruction);

// Waits until every cluster with a lower index has ended. What a cluster does to global memory by
// atomics comes after this, so that its results do not depend on the number of OS threads.
void await_clusters_before(const Cluster& cluster);

// Ends the launch with an error: printf-style message, completed by the thread it happened in.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// The same with a message that names its threads itself.
[[noreturn]] void fail_cta(const std::string& text);

// The usual form of it: "OPERATION at FILE:LINE: WHAT".
[[noreturn]] void misuse(const char* operation, SourceLocation where, const std::string& what);

// PTX: an instruction that is .aligned must be the same one for all lanes of a warp, not only of
// the same kind. Ends the launch if `other`, of the current lane's warp, waits elsewhere.
void expect_same_instruction(const Lane& other, const char* operation, SourceLocation where);

// Returns a sentence for messages: the seed, if it decided the order of events.
std::string how_to_repeat();

// A warp-collective instruction. Every lane named in `mask` calls it with its own operands; the
// last one to arrive gets the operands of all (indexed by lane) and must execute the instruction on
// their behalf and then call finish_collective; everyone else gets null once that has happened.
void** begin_collective(uint32_t mask, const char* operation, void* operands, SourceLocation where);
void finish_collective(uint32_t mask);

template <typename Operands, typename Execute>
void warp_collective(uint32_t mask, const char* operation, Operands& mine, SourceLocation where,
                     Execute&& execute) {
  if (void** all = begin_collective(mask, operation, &mine, where)) {
    execute(reinterpret_cast<Operands**>(all));
    finish_collective(mask);
  }
}

// For a debugger: `break 02_online_softmax.cu:150 if emu::at(37, 0)` stops one thread of one CTA,
// `print emu::where()` tells which one is running.
bool at(int thread, unsigned block_x);  // (gdb knows no default arguments)
bool at(int thread, unsigned block_x, unsigned block_y);
const char* where();

}  // namespace emu
