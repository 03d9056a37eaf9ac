// The option --trace: a timeline of one CTA, by the emulator's checked build or by a kernel that
// records itself on a GPU. A program that offers it links common/trace, which sets `tracing`.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/harness/runner.h"   // IWYU pragma: export
#include "common/launch/registry.h"  // IWYU pragma: export

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

struct TraceOptions {
  std::string path;  // of the file to write; empty: no timeline
  int cta = 0;
};

// Throws BadInput unless the options are empty or ask for one launch of one kernel by a build that
// can record it.
void check_trace(const TraceOptions& trace, size_t kernel_count, size_t problem_count,
                 const Protocol& protocol);

// Measures a kernel as measure() does, with what its timeline needs: on a GPU the second record is
// that of its recording twin.
std::vector<Record> measure_traced(Runner& runner, const Kernel& kernel, const TraceOptions& trace,
                                   const Protocol& protocol, const Say& say);

// Writes the timeline of what measure_traced() measured, and says so. Throws BadInput if there is
// none.
void write_trace(const TraceOptions& trace, const std::vector<Record>& records);

}  // namespace fa
