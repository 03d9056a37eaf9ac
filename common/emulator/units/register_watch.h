// Checked build: what a thread does to registers that wgmma read or write beside it.
//
// A register here is a place on the lane's stack, and an access to it one that the compiler's
// instrumentation reports (StackWatch).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/emulator/core/watch.h"

namespace emu {

struct WgmmaWait {
  int groups = 0;
  SourceLocation where;
};

// One thread's.
class RegisterWatch final : public StackWatch {
 public:
  // Registers of a wgmma.
  struct Use {
    uintptr_t begin, end;
    SourceLocation where;
    const char* what;  // "accumulators"
    WgmmaWait wait;    // the last one since the wgmma: has left it under way, or has ended it
    bool committed;
  };
  // The last access to each 4 bytes of the thread's stack.
  struct Stamp {
    uint32_t fences;           // that the thread had executed
    uint32_t program_counter;  // its lower bits (address_in_image)
  };

  explicit RegisterWatch(Stamp* stamps);

  void forget();  // another thread begins
  void fence() { fences_++; }

  // The wgmma under way are told anew: restart(), then add() for each.
  void restart();
  void add(const Use& use);
  // A wait has ended this one. Until a wait names its accumulators, nothing keeps the compiler from
  // moving their uses before it. (A's registers were only read. They are written next with what has
  // been computed from named ones, mostly, and that is order enough.)
  void end(const Use& use);
  // A wait names the registers between two addresses.
  void name(uintptr_t low, uintptr_t high);

  // Returns where a register from `begin` on was touched since the last fence, as "file:line"; ""
  // if none was.
  std::string touched_since_fence(const Lane& lane, uintptr_t begin, size_t bytes) const;

  void access(Lane& lane, uintptr_t address, size_t bytes, uintptr_t program_counter) override;

 private:
  void widen(const Use& use);

  Stamp* stamps_;
  uint32_t fences_ = 0;
  std::vector<Use> under_way_, unnamed_;
  uintptr_t low_ = ~uintptr_t{0}, high_ = 0;  // around all of these
};

}  // namespace emu
