// What one OS thread needs to run clusters of CTAs, one after another.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <boost/context/fiber.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/emulator/core/lane.h"    // IWYU pragma: export
#include "common/emulator/core/launch.h"  // IWYU pragma: export
#include "common/emulator/core/memory.h"  // IWYU pragma: export
#include "common/emulator/core/watch.h"

namespace emu {

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
  // Tops are staggered, or the 32 stacks of a warp would compete for the same sets of the CPU's
  // cache.
  uint8_t* high(size_t lane) const { return low(lane) + kStackBytes - (lane % 32) * 192; }

 private:
  static constexpr size_t kStride = kStackBytes + kStackGuardBytes;
  uint8_t* base_;
  size_t bytes_;
};

struct Machine {
  Machine(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes, int ctas,
          const std::function<void()>& kernel_body, LaunchChecks* checks_of_launch);

  std::vector<std::unique_ptr<GuardedMemory>> shared;  // one a CTA
  Stacks stacks;
  Cluster cluster;
  std::unique_ptr<Checks> checks;  // in the checked build
  // One per lane; empty for the lane that runs and for those that have ended or begin later.
  std::vector<boost::context::fiber> fibers;
  boost::context::fiber host;  // the OS thread, while lanes run
  size_t written_stack = 0;    // bytes of each stack, from the top, that lanes write; 0: not known
  int clusters_before = 0;     // that have run, as long as it is not known
  std::vector<bool> used_stacks;  // [lanes]: by a lane since then, so below what it wrote is NaN
  // How often a lane has come to wait, has been woken, has met others or has ended; whether none
  // has for too long (patience.h). A signal handler reads the one and sets the other.
  volatile uint64_t progress = 0;
  volatile bool overdue = false;
  const std::atomic<bool>* ending = nullptr;  // whether the launch is to end as soon as it can
  const std::function<void()>& body;
};

// From now on this OS thread runs the lanes of `machine`.
void enter(Machine& machine);

// Ends the launch from a lane that was interrupted between any two instructions of its kernel:
// "CTA (0,0,0), thread 5 (warp 0 lane 5), TEXT".
[[noreturn]] void abandon_interrupted(const std::string& text);

// Runs the machine's cluster, whose CTAs have their block_idx, to its end. Throws LaunchError.
void run_cluster(Machine& machine);

}  // namespace emu
