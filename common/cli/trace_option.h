// The option --trace: a timeline of one CTA, by the emulator's checked build or by a kernel that
// records itself on a GPU. common/trace does the work in the programs that link it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "common/harness/runner.h"
#include "common/launch/registry.h"

namespace fa {

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
                                   int rounds, const std::function<void(const std::string&)>& say);

// Writes the timeline of what measure_traced() measured, and says so. Throws BadInput if there is
// none.
void write_trace(const TraceOptions& trace, const std::vector<Record>& records);

}  // namespace fa
