// A timeline as a file that https://ui.perfetto.dev and chrome://tracing open: JSON in the Trace
// Event Format, one event a line. What the format calls a process is a group of rows here, a thread
// is a row, and a microsecond stands for a cycle.
#pragma once

#include <string>
#include <vector>

#include "common/launch/problem.h"      // IWYU pragma: export
#include "common/trace/gpu_timeline.h"  // IWYU pragma: export
#include "common/trace/timeline.h"      // IWYU pragma: export
#include "common/trace/timing.h"

namespace fa {

// The recordings' timeline, with what was run. The same bytes for the same recordings.
std::string trace_json(const std::vector<emu::Recording>& recordings, const Problem& problem,
                       const emu::Timeline& timeline, const emu::Sm& sm = {});

// The same of what a GPU recorded. `ms`, `recording_ms`: of a launch without and with recording.
struct GpuTrace {
  std::vector<GpuRecording> recordings;
  GpuTimeline timeline;
  std::string gpu;
  double ms = 0, recording_ms = 0;
};
std::string trace_json(const GpuTrace& trace, const Problem& problem);

}  // namespace fa
