// Running a kernel on the emulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/emulator/core/counters.h"      // IWYU pragma: export
#include "common/emulator/core/vector_types.h"  // IWYU pragma: export

namespace emu {

// A launch that could not end well: deadlock, access outside memory, misuse of a barrier.
struct LaunchError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Asynchronous copies happen late, at the wait that promises them; early, at once; or one or the
// other, by `seed`. A kernel must give the same result with all three.
enum class Completion { kLate, kEarly, kRandom };

// The lane that runs next is the next one in a fixed order, or any that can run, by `seed`. A
// kernel must give the same result with both.
enum class Schedule { kFixed, kRandom };

struct Options {
  int os_threads = 0;  // that CTAs are spread over; 0: one a core
  Completion completion = Completion::kLate;
  uint64_t seed = 1;
  Schedule schedule = Schedule::kFixed;
  // Seconds of processor time in which a CTA's threads must get somewhere (patience.h); 0: no
  // limit. Far more than any thread of a kernel here runs without meeting another.
  double patience = 30;
  // Checked build: accesses of a thread that are kept, for want of others that could still join in
  // the same requests.
  size_t most_accesses = size_t(1) << 24;
  int sms = 3;  // that kernels are told of: few, so a persistent CTA has several tiles
  // Neighbouring CTAs of a launch without clusters that run at the same time, in turns and by
  // `schedule`, as those of a cluster do; where so many do not divide the grid, fewer. 1: none, and
  // global atomics come in the order of the CTAs.
  int together = 1;
  bool races = true;  // checked build: look for races and for reads of what nothing has written
  // Checked build: stores of the same value by several threads are a note and no race.
  bool equal_stores = false;
  // Shuffles: a lane that reads one which takes no part gets poison, with a note. Otherwise the
  // launch ends.
  bool absent_lanes = false;
  // What works here and CUDA leaves undefined is told, once per place: warps at different
  // __syncthreads(); in the checked build a mask or a barrier past which some go.
  bool notes = false;
  bool calls = false;  // checked build: reports name the calls that have led to a function's line
  // Checked build: is told of each race and each read of what nothing has written, once per place
  // in the kernel, and launches go on. Empty: the first of them ends the launch.
  std::function<void(const std::string&)> keep_going = {};
  // Checked build: what goes on after a report, which a read of what nothing has written names.
  const char* goes_on = "";
  // Seconds after which a launch says on standard error how far it is; then three times as many
  // between one line and the next. FA_BUSY_AFTER in the environment has others.
  double report_after = 10;
  // What the line of the checked build calls faster.
  const char* faster = "the build without checks (preset emulator, no _checked in the name)";
  // Asked again and again by the thread that launches: true ends the launch with a LaunchError.
  std::function<bool()> wants_end = {};
  // Checked build: this CTA, x counted fastest, is recorded (common/trace/trace.h).
  std::optional<uint64_t> traced_cta = {};
};
Options& options();

// Returns whether this is the build that watches every load and store of the kernels.
bool is_checked();

// Runs `body` once for every thread of the grid, with `shared_bytes` of shared memory a CTA
// (poisoned with NaN). Returns when all CTAs have ended. Throws LaunchError; the other CTAs are
// then abandoned. `cluster` CTAs that are neighbours in x run together.
void launch(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes,
            const std::function<void()>& body, int cluster = 1);

// Returns what the launches since the last call did.
Counters take_counters();

// Returns the same by line of source and kind of instruction, in this order. It is empty but in the
// checked build.
std::vector<LineCounts> take_lines();

}  // namespace emu
