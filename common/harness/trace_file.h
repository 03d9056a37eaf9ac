// A timeline as a file that https://ui.perfetto.dev and chrome://tracing open: JSON in the Trace Event Format,
// one event a line. What the format calls a process is a group of rows here, a thread is a row, and a
// microsecond stands for a cycle.
#pragma once

#include <string>
#include <vector>

#include "common/emulator/timing.h"
#include "common/harness/problem.h"

namespace fa {

// The recordings' timeline, with what was run. The same bytes for the same recordings.
std::string trace_json(const std::vector<emu::Recording>& recordings, const Problem& problem,
                       const emu::Timeline& timeline, const emu::Sm& sm = {});

}  // namespace fa
