// The state of the emulated machine: lanes (threads), warps and the CTA they form.
//
// Every lane is a fiber: a stack of its own, switched in user space. One OS thread runs one CTA at a
// time; its lanes take turns and a lane runs until it has to wait for others. Nothing here needs a
// lock, and the order of events depends on the kernel alone, never on the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/emulator/counters.h"
#include "common/emulator/vector_types.h"

namespace emu {

inline constexpr int kWarpSize = 32;
inline constexpr uint32_t kFullMask = 0xffffffffu;
inline constexpr uint32_t kStackGuardBytes = 64 * 1024;  // untouchable, below every lane's stack
inline constexpr int kNamedBarriers =
    16;  // PTX ISA, "bar": sixteen barriers a CTA, 0 is __syncthreads

// Where in the source something happened. Functions take it as a defaulted last argument, which the
// compiler evaluates at the call: `SourceLocation where = SourceLocation::current()`.
struct SourceLocation {
  const char* file = "";
  unsigned line = 0;
  static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                          unsigned line = __builtin_LINE()) {
    return {file, line};
  }
};
std::string place(SourceLocation where);  // "kernels/12_tma.cu:140"

struct BulkCopies;
struct Cluster;
struct Cta;
struct Mbarriers;
struct Warp;
class LineTable;
class Races;
class Trace;
struct RegisterWatch;  // wgmma.cpp
struct WgmmaState;

// Checked build (races.h): what somebody had seen, of every thread and engine, and of that what lay before a
// fence.proxy.async. Kept where threads arrive, for those that wait. ends: in clusters, of each engine the phases of its
// mbarrier that have ended: a copy's bytes tell, too, though they order no memory but their own.
struct Clocks {
  std::vector<uint32_t> seen, fenced, ends;
  void clear() {
    seen.clear();
    fenced.clear();
    ends.clear();
  }
};

// A load, store or cp.async by one lane, remembered until its warp next meets (checked build).
struct MemoryAccess {
  uintptr_t program_counter;
  Kind kind;
  uint32_t bytes;
  uintptr_t address;
  // Of a cp.async, whose `address` is in shared memory: what it reads of global memory, and its line.
  uintptr_t source = 0;
  uint32_t source_bytes = 0;
  SourceLocation where = {};
};

// A cp.async under way.
struct AsyncCopy {
  uint8_t* to;
  const uint8_t* from;
  int bytes, source_bytes;  // written; read, the rest are zeros
  SourceLocation where;
  bool done;  // early completion
};

// kParked: until wake(), for what the function `describe` tells.
enum class LaneState : uint8_t { kRunnable, kAtCollective, kAtBarrier, kParked, kExited };

struct Lane {
  Cta* cta = nullptr;
  Warp* warp = nullptr;
  uint3 thread_idx{};  // position in the CTA
  int thread = 0;      // the same, linear: x fastest
  int lane = 0;        // 0..31, position in the warp
  LaneState state = LaneState::kRunnable;

  // What the lane waits for, and where. Valid unless runnable.
  const char* operation = "";
  SourceLocation where;
  uint32_t mask = 0;         // the lanes that a collective waits for
  void* operands = nullptr;  // this lane's operands of the collective
  bool executes = false;     // woken to execute the collective for all
  int barrier = 0;           // the named barrier
  std::string (*describe)(const Lane&) = nullptr;
  uintptr_t polled = 0;  // the mbarrier that it asked last, in vain, so many times
  int polls = 0;
  bool arrived_at_cluster = false;  // barrier.cluster.arrive without its wait so far, and its phase
  uint64_t arrived_phase = 0;

  // cp.async: copies since the last commit, and committed groups, oldest first.
  std::vector<AsyncCopy> open_copies;
  std::deque<std::vector<AsyncCopy>> copy_groups;
  uint64_t random_draws = 0;  // decisions taken so far under random completion

  std::vector<MemoryAccess> accesses;  // checked build: since the warp last met
  RegisterWatch* registers = nullptr;  // checked build: once the thread has executed wgmma_fence
  uintptr_t stack_low = 0, stack_high = 0;
};

struct Warp {
  Lane* lanes = nullptr;  // its 32 lanes (fewer in a last, partial warp)
  int index = 0;          // in its CTA
  int slot = 0;           // in its cluster
  int registers = 0;      // a thread has: setmaxnreg
  int wanted_registers = 0;
  SourceLocation set_registers;    // the last setmaxnreg
  uint32_t live = 0;               // lanes that have not exited
  uint32_t runnable = 0;           // lanes that can run now
  void* operands[kWarpSize] = {};  // of the collective that is about to execute

  // Short cut for the usual case, that all lanes which wait in collectives wait in one: those lanes, what
  // they execute and for whom. Only valid while `gathered` equals `waiting`.
  uint32_t waiting = 0;   // lanes in the state kAtCollective
  uint32_t gathered = 0;  // of these, the ones in gather_operation with gather_mask
  const char* gather_operation = nullptr;
  uint32_t gather_mask = 0;
  const Lane* gather_first = nullptr;
};

struct NamedBarrier {
  int arrived = 0;   // threads that have arrived in this phase
  int expected = 0;  // threads that complete it; 0: all live threads of the CTA
};

struct Cta {
  Cluster* cluster = nullptr;
  int rank = 0;  // in its cluster
  uint3 block_idx{};
  dim3 block_dim, grid_dim;
  std::span<Lane> lanes;
  std::span<Warp> warps;
  NamedBarrier barriers[kNamedBarriers];
  int live = 0;            // lanes that have not exited
  int free_registers = 0;  // given back by setmaxnreg.dec
  uint8_t* shared = nullptr;
  size_t shared_bytes = 0;
  const char* kernel = "";
  LineTable* lines = nullptr;         // checked build: what happened, by line
  Races* races = nullptr;             // checked build: the detector
  Trace* trace = nullptr;             // the recorder, in the CTA whose timeline is wanted
  std::shared_ptr<WgmmaState> wgmma;  // once a kernel has used wgmma
  std::string failure;                // the first error: ends the launch
  Counters counters;
};

// CTAs that run together on one OS thread: one, unless the launch asks for clusters.
struct Cluster {
  Cluster();
  ~Cluster();
  std::vector<Cta> ctas;
  std::vector<Lane> lanes;    // of all CTAs, in order
  std::vector<Warp> warps;    // likewise
  int live = 0;               // lanes that have not exited
  int current_warp = 0;       // where the scheduler last found a runnable lane
  uint64_t random_draws = 0;  // decisions taken so far by the random schedule
  int arrived = 0;            // at the barrier of the cluster, in the phase
  uint64_t barrier_phase = 0;
  Clocks arriving, ended;  // checked build: what those that arrived had seen, now and last time
  std::unique_ptr<Mbarriers> mbarriers;
  std::unique_ptr<BulkCopies> copies;
};

// The lane that this OS thread is running, null outside a kernel. The debug build has one OS thread
// and an ordinary variable, which a debugger can always read.
#ifdef FA_EMULATOR_DEBUG
extern Lane* current_lane;
#else
extern constinit thread_local Lane* current_lane;
#endif

// ---- the scheduler's interface to the instructions (scheduler.cpp) ---------------------------------

// Parks the current lane and runs others until someone makes it runnable again.
void wait_until_runnable();

// The same, in the state kParked; `describe` tells a deadlock's dump what for.
void park(const char* operation, SourceLocation where, std::string (*describe)(const Lane&));
void wake(Lane& lane);

// Lets others run first, if any can.
void yield();

// Ends the launch with an error: printf-style message, completed by the thread it happened in.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// The same with a message that names its threads itself.
[[noreturn]] void fail_cta(const std::string& text);

// For messages: the seed, if it decided the order of events.
std::string how_to_repeat();

// A warp-collective instruction. Every lane named in `mask` calls it with its own operands; the last
// one to arrive gets the operands of all (indexed by lane) and must execute the instruction on their
// behalf and then call finish_collective; everyone else gets null once that has happened.
void** begin_collective(uint32_t mask, const char* operation, void* operands, SourceLocation where);
void finish_collective(uint32_t mask);

// __syncwarp: waits like a collective, and orders memory among the lanes of `mask`.
void sync_warp(uint32_t mask, SourceLocation where);

template <typename Operands, typename Execute>
void warp_collective(uint32_t mask, const char* operation, Operands& mine, SourceLocation where,
                     Execute&& execute) {
  if (void** all = begin_collective(mask, operation, &mine, where)) {
    execute(reinterpret_cast<Operands**>(all));
    finish_collective(mask);
  }
}

// Named barriers: `expected` threads, 0 for every live thread of the CTA.
void barrier_sync(int barrier, int expected, const char* operation, SourceLocation where);
void barrier_arrive(int barrier, int expected, const char* operation, SourceLocation where);

// Checked build: hands the accesses that the lanes in `mask` have logged to the counters.
void count_accesses(Warp& warp, uint32_t mask);

// For a debugger: `break 02_online_softmax.cu:150 if emu::at(37, 0)` stops one thread of one CTA,
// `print emu::where()` tells which one is running.
bool at(int thread, unsigned block_x);  // (gdb knows no default arguments)
bool at(int thread, unsigned block_x, unsigned block_y);
const char* where();

}  // namespace emu
