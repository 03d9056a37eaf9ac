// Threads that a shuffle or a __syncthreads() goes on without, because they have ended. CUDA allows
// that to those that have ended before, and to none that goes past it. The emulator cannot see a
// branch, but a place that these have come to and that the others come to later lies behind it. A
// kernel with another way out, and code of its own on that, is told nothing: it may be a place on
// both ways.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/emulator/core/lane.h"  // IWYU pragma: export

namespace emu {

// One for each cluster. It only makes notes, once per shuffle or barrier of the program.
class Absent {
 public:
  explicit Absent(const Cluster& cluster) : last_(cluster.warps.size()), watched_(last_.size()) {}
  void begin();  // another cluster

  // The lanes of `mask` that live are about to execute it.
  void collective(const Warp& warp, uint32_t mask, const char* operation, SourceLocation where);
  // A barrier of the CTA is over, at which all warps that live have met.
  void barrier(const Cta& cta, const char* operation, SourceLocation where);
  // The warp comes to a barrier or has ended: its accesses since it last met are about to go.
  void comes(const Warp& warp);
  void meet(const Warp& warp, uint32_t mask) {  // likewise, anywhere
    if (!watched_[size_t(warp.slot)].empty()) look(warp, mask);
  }

 private:
  using Places = std::vector<uintptr_t>;  // program counters of accesses, sorted
  struct Watch {
    Places behind;  // where those that are absent have been
    uint32_t lanes = 0;
    const char* operation = "";
    SourceLocation where;
    std::string absent;
  };
  void look(const Warp& warp, uint32_t mask);

  std::vector<Places> last_;                 // [warps]: of one lane, at its last barrier or its end
  std::vector<std::vector<Watch>> watched_;  // [warps]
};

}  // namespace emu
