#include "common/cli/trace_option.h"

#include <cstddef>
#include <string>
#include <vector>

#include "common/harness/device.h"
#include "common/launch/problem.h"

namespace fa {

constinit Tracing tracing;

void check_trace(const TraceOptions& trace, size_t kernel_count, size_t problem_count,
                 const Protocol& protocol) {
  if (trace.path.empty()) return;
  if (on_gpu() && !has_recording_twins()) {
    throw BadInput(
        "--trace belongs to the emulator, preset emulator-checked, or on a GPU to kernels that "
        "record themselves: preset cuda-timeline");
  }
  if (!on_gpu() && !sees_accesses()) {
    throw BadInput(
        "--trace needs the checked build, which sees loads and stores: preset emulator-checked");
  }
  if (!tracing.write) throw BadInput("--trace is not in this program, but in attention");
  if (kernel_count != 1) {
    throw BadInput("--trace shows one kernel, but " + std::to_string(kernel_count) +
                   " would run: name one");
  }
  if (problem_count != 1) {
    throw BadInput("--trace shows one problem, but there are " + std::to_string(problem_count));
  }
  if (protocol.rotating_inputs != 1) {
    throw BadInput("--trace shows one launch: leave out --rotate");
  }
}

std::vector<Record> measure_traced(Runner& runner, const Kernel& kernel, const TraceOptions& trace,
                                   const Protocol& protocol, const Say& say) {
  if (!on_gpu()) return measure(runner, {&kernel}, protocol, say);
  say("recording " + kernel.name, 0, 1);
  return tracing.measure(runner, kernel, trace.cta, protocol.rounds);
}

void write_trace(const TraceOptions& trace, const std::vector<Record>& records) {
  tracing.write(trace.path, trace.cta, records);
}

}  // namespace fa
