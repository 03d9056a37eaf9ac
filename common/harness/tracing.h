// The option --trace: a timeline of one CTA. A program that offers it links common/trace, which
// sets `tracing`.
#pragma once

#include <string>
#include <vector>

#include "common/harness/runner.h"
#include "common/launch/registry.h"

namespace fa {

struct Tracing {
  // On a GPU: measures the kernel and its twin that records, in turns, and returns their records in
  // this order. Throws BadInput if the kernel has no twin.
  std::vector<Record> (*measure)(Runner& runner, const Kernel& kernel, int cta,
                                 int rounds) = nullptr;
  // Writes the timeline of what has just run, and says so: of measure()'s records or, on the
  // emulator, of one kernel's. Throws BadInput if there is none.
  void (*write)(const std::string& path, int cta, const std::vector<Record>& records) = nullptr;
};
extern constinit Tracing tracing;  // set before main(), or left empty

}  // namespace fa
