// A launch that makes no progress ends, too: with a lane that runs and runs, or with lanes that
// only ask and ask.
#pragma once

#include <time.h>

#include <cstdint>
#include <string>

#include "common/emulator/core/machine.h"  // IWYU pragma: export

namespace emu {

// While it exists, this OS thread's lanes must get somewhere within Options::patience seconds of
// its processor time: one of them must come to wait, be woken, meet others or end. (How long the
// machine was busy with something else, or stood in a debugger, does not count.) If none does, a
// lane that asks for others in vain (yield) ends the launch at its next question. A lane that
// meanwhile runs on without a word to the emulator, as in a loop without end, is interrupted where
// it is, and the launch ends with that line.
//
// The OS thread must have called install_fault_handler(), whose stack the interruption uses, and
// enter(). A system that has no such timer gives no such end.
class Patience {
 public:
  explicit Patience(Machine& machine);
  ~Patience();
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

  // Interrupts handled, for the signal handler alone.
  void tick(void* context);

 private:
  Machine& machine_;
  timer_t timer_{};
  bool started_ = false;
  uint64_t progress_ = 0;  // at the last tick at which it had moved
  int ticks_ = 0;          // since then
};

// Ends the launch: the current lane asks for others, and none has got anywhere for too long.
[[noreturn]] void end_of_patience();
// What to say of the thread that has run on, at this instruction.
std::string without_a_word(uintptr_t instruction);

}  // namespace emu
