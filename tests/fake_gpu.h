// A GPU made up for the tests of what the harness does with one: its launches take the times that a
// test sets, its driver says what a test lets it say. Linked in place of the emulator's back end.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/launch/registry.h"

namespace fa::test {

struct FakeGpu {
  struct Event {
    // "NAME made", "NAME poisoned", "start", "stop", "waited", "sampled", "graph of" and then what
    // is recorded, "graph" when it is launched, or a kernel's name.
    std::string what;
    std::chrono::steady_clock::time_point when;
  };
  std::vector<Event> log;
  double launch_ms = 1;                      // of the last kernel launched
  std::optional<double> clock_mhz, power_w;  // under it
  int polls_until_done = 0;                  // of an event after it
  size_t memory_bytes = size_t(64) << 20;    // more in one buffer is refused
  bool lost = false;
  std::vector<std::function<void()>> elsewhere;  // done when the whole GPU is waited for

  void add(const std::string& what);
  std::vector<std::string> what() const;  // the log without times
};

FakeGpu& fake_gpu();

}  // namespace fa::test
