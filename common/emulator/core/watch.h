// This is how the core and the instructions see those that watch what kernels do: the checked
// build's checks (checks/) and the recorder of timelines (common/trace). A program that links them
// has them register themselves here. Without them the pointers in Cta are null, and an instruction
// asks for that first:
//
//   if (Detector* const detector = cta.detector) detector->access(...);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/emulator/core/counters.h"      // IWYU pragma: export
#include "common/emulator/core/lane.h"          // IWYU pragma: export
#include "common/emulator/core/step.h"          // IWYU pragma: export
#include "common/emulator/core/vector_types.h"  // IWYU pragma: export

namespace emu {

struct Event;
struct Place;

// ---- order of memory accesses -------------------------------------------------------------------
// One thread's view, or what several threads knew together: for every thread and engine, the latest
// clock that has been observed. `fenced` holds what had been observed at the last fence of each
// kind.
// `ends` is used in clusters alone: for each engine, how many phases of its mbarrier are known to
// have ended. (The bytes of a copy tell that too, though they order no memory but their own.) A
// barrier keeps the view of those that have arrived, for those that wait.
struct Clocks {
  std::vector<uint32_t> seen, fenced[3], ends;
  void clear() {
    seen.clear();
    for (std::vector<uint32_t>& kind : fenced) kind.clear();
    ends.clear();
  }
};

// An engine runs beside the threads and has a clock of its own.
// (kLesson accesses nothing: its clock counts what atomics have told of other clusters.)
enum class Engine : uint8_t { kLoad, kStoreRead, kStoreWrite, kProduct, kLesson };

// The instruction that made an access, in one word that the detector understands.
using Site = uint64_t;

// The detector of races, of one cluster (checks/races.h says how it works). What finds a race ends
// the launch.
class Detector {
 public:
  virtual ~Detector() = default;

  virtual Site site(const char* operation, SourceLocation where) = 0;
  virtual Site atomic_site(const char* operation, bool writes, SourceLocation where) = 0;

  // ---- order between threads
  // That which `lane` has seen is added to `into`; its clock ticks.
  virtual void release(const Lane& lane, Clocks& into) = 0;
  // `lane` has now seen `from`, too.
  virtual void acquire(const Lane& lane, const Clocks& from) = 0;
  virtual void synchronise_warp(const Warp& warp, uint32_t lanes) = 0;
  virtual uint32_t clock(const Lane& lane) const = 0;
  virtual bool has_seen(const Lane& lane, int other_slot, uint32_t clock) const = 0;
  // Returns whether `lane` has seen all of `them`. What the engine `but_engine` has done does not
  // count; -1: everything does.
  virtual bool has_seen(const Lane& lane, const Clocks& them, int but_engine) const = 0;
  bool has_seen(const Lane& lane, const Clocks& them) const { return has_seen(lane, them, -1); }

  // ---- engines
  virtual int new_engine(Engine kind) = 0;
  virtual void access(int engine, uint32_t clock, const Lane& starter, uintptr_t address,
                      size_t bytes, bool write, Site site) = 0;
  virtual void learn(Clocks& to, int engine, uint32_t clock) = 0;
  virtual void learn(const Lane& lane, int engine, uint32_t clock) = 0;
  virtual uint32_t seen(const Lane& lane, int engine) const = 0;
  virtual void note_fence(const Lane& lane, Fence kind) = 0;
  // Returns whether `lane` knows that this phase of the engine's mbarrier has ended, if only
  // because a copy has come whose starter knew. Only in clusters.
  virtual bool knows_end(const Lane& lane, int engine, uint32_t phase) const = 0;
  // Returns what the starter of a copy knows of ends; nothing but in clusters.
  virtual std::vector<uint32_t> known_ends(const Lane& starter) const = 0;

  // ---- accesses ---------------------------------------------------------------------------------
  // By one lane; by a whole warp; below, by a cp.async, from its issue until its lane has waited.
  virtual void access(const Lane& lane, uintptr_t address, size_t bytes, bool write, Site site) = 0;
  virtual void access(const Warp& warp, uintptr_t address, size_t bytes, bool write, Site site) = 0;
  // An atomic operation, which is not in the way of others, but of plain accesses. By those that
  // write, a lane passes on what had been observed at its last fence, and by those that read it
  // learns what others have passed on at this address. (PTX wants a fence there, too.)
  virtual void atomic(const Lane& lane, uintptr_t address, size_t bytes, bool reads, bool writes,
                      Site site) = 0;
  // An atomic that compares is next: what its thread has loaded there since it last met others was
  // a guess, which the comparison tests, and in no one's way.
  virtual void compare(const Lane& lane, uintptr_t address, size_t bytes) = 0;
  // A volatile access of global memory is atomic, too, by its program counter.
  virtual void volatile_access(const Lane& lane, uintptr_t address, size_t bytes, bool write,
                               uintptr_t program_counter) = 0;
  virtual void begin_copy(const Lane& lane, uintptr_t to, size_t bytes, Site site) = 0;
  virtual void end_copy(const Lane& lane, uintptr_t to, size_t bytes) = 0;

  // A store is watched before it is done: what it has stored can be seen from the next access on,
  // and must be seen before the OS thread waits for other clusters.
  virtual void settle() = 0;

  // Who wrote to `address` last; 0: nobody.
  virtual Site writer(uintptr_t address) = 0;

  // ---- the end
  // The CTA ends: accesses to its shared memory from other CTAs must have come before.
  virtual void end_of_cta(const Cta& cta) = 0;
  // The first race within a warp, as a text; empty if there was none. It is told at the end,
  // because a race between warps, if there is one, tells more: a __syncwarp() would then not be the
  // cure.
  virtual const std::string& race_within_warp() const = 0;
  // The first read of shared memory that nothing has written, as a text.
  virtual std::string unwritten_read() const = 0;
};

// ---- the checked build --------------------------------------------------------------------------
// This is added to one cluster by the checked build, and to those that its OS thread runs later.
class Checks {
 public:
  virtual ~Checks() = default;
  virtual void begin() = 0;          // another cluster begins
  virtual Detector* detector() = 0;  // null: Options::races is off
  virtual void count(const Event& event) = 0;
  // The lanes in `mask` meet: the accesses that they have logged become requests of the warp, and
  // events.
  virtual void meet(Warp& warp, uint32_t mask) = 0;
  // Before a warp's collective, and where its __syncthreads() lacks lanes.
  virtual void absent_lanes(const Warp& warp, uint32_t mask, const char* operation,
                            SourceLocation where) = 0;
  // Before it meets at a barrier. A __syncthreads() of the CTA is over.
  virtual void comes_to_barrier(const Warp& warp) = 0;
  virtual void barrier_is_over(const Cta& cta, const char* operation, SourceLocation where) = 0;
  // The OS thread's last cluster has ended: its counts are added to those that take_lines()
  // returns. One at a time.
  virtual void keep() = 0;
};

// This is added to a launch by the checked build.
class LaunchChecks {
 public:
  virtual ~LaunchChecks() = default;
  virtual std::unique_ptr<Checks> watch(Cluster& cluster) = 0;
  // Adds a cluster's accesses to global memory; null: it failed. Every cluster that began must be
  // added, since each waits here for those before it. Throws LaunchError.
  virtual void add(uint64_t cluster, const Checks* checks) = 0;
  // The launch has ended. Throws LaunchError.
  virtual void finish() = 0;
};

struct CheckedBuild {
  std::unique_ptr<LaunchChecks> (*begin_launch)(const char* kernel, dim3 grid,
                                                int cluster) = nullptr;
  std::vector<LineCounts> (*take_lines)() = nullptr;
  // A plain access of the current thread that the compiler has not shown: one of inline PTX.
  void (*access)(const void* pointer, size_t bytes, bool write, bool is_volatile,
                 uintptr_t return_address) = nullptr;
};
extern constinit CheckedBuild checked_build;  // set before main() by checks/, or left empty

// Sees every access of a lane to its own stack, of lanes whose `stack_watch` it is.
class StackWatch {
 public:
  virtual void access(Lane& lane, uintptr_t address, size_t bytes, uintptr_t program_counter) = 0;

 protected:
  ~StackWatch() = default;
};

// ---- timelines ----------------------------------------------------------------------------------
// Records what one CTA does (common/trace/trace.h).
//
// Instructions of a warp report themselves by record() (events.h), which calls event(). What single
// lanes do beside loads and stores (exponentials, waits, arrivals) is noted for each lane, and
// becomes the warp's when its lanes meet: the n-th execution of an instruction by each lane is one
// instruction of the warp.
//
// A new instruction needs the following, if cta.recorder is not null:
//   - executed by all lanes together: a case in event(), or add();
//   - by single lanes: note();
//   - a barrier: `arrives` and `awaits` of its step from meeting() or completed(), and complete()
//     when a phase ends. A step arrives when its warp has issued it or, if it is an asynchronous
//     copy, when it has landed.
//   - asynchronous work that is waited for by groups: `group` of its step; Work::kCommit and
//     kWaitGroups.
class Recorder {
 public:
  virtual ~Recorder() = default;

  // One lane does something.
  virtual void note(const Lane& lane, Place place, Step step) = 0;

  // A warp does something: its loads, stores and cp.async are added when its lanes meet, the rest
  // at once.
  virtual void event(const Warp& warp, const Event& event) = 0;
  virtual void add(const Warp& warp, Place place, Step step) = 0;

  // The lanes in `mask` meet, and their accesses have been reported.
  virtual void meet(const Warp& warp, uint32_t mask) = 0;

  // What the warp's next event, of this kind, reads or writes: bytes side by side, by lanes where
  // lanes say which; 0: not in global, not in shared memory. Returns what Step::of says of it.
  struct Piece {
    uintptr_t global, shared;
    uint32_t bytes;
    int lane;
  };
  virtual std::string moves(const Warp& warp, Kind kind, const std::vector<Piece>& pieces) = 0;

  // More about a warp's latest step. Registers are known by their contents: so a product waits for
  // the loads and exponentials whose bits it multiplies, and for no others. Accumulators are known
  // by their address.
  using Register = std::array<uint32_t, kWarpSize>;  // one of each lane
  virtual void loads(const Warp& warp, const Register& contents) = 0;
  // False: neither loaded nor two 16-bit results of exponentials.
  virtual bool uses(const Warp& warp, const Register& contents) = 0;
  // An operand of which no more is known.
  virtual void uses_computed(const Warp& warp) = 0;
  virtual void accumulates(const Warp& warp, const void* accumulators) = 0;

  // The result of the exponential that the lane has just noted.
  virtual void computes(const Lane& lane, float result) = 0;

  // The phase that the barrier at `key` is in, which this calls `name`; the one before it, -1 if
  // there is none.
  virtual int meeting(const void* key, const std::string& name) = 0;
  virtual int completed(const void* key) const = 0;
  virtual void complete(const void* key) = 0;

  // The CTA has ended, and its recording is kept.
  virtual void finish() = 0;
};

// Set before main() by common/trace, or left null.
using MakeRecorder = std::unique_ptr<Recorder> (*)(const Cta& cta);
extern constinit MakeRecorder make_recorder;

}  // namespace emu
