#include "common/cli/trace_option.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "common/emulator/timing.h"
#include "common/harness/device.h"
#include "common/harness/files.h"
#include "common/harness/gpu_timeline.h"
#include "common/harness/recorder.h"
#include "common/harness/trace_file.h"
#include "common/launch/problem.h"
#include "common/ptx/record.h"
#ifndef FA_WITH_CUDA
#include "common/emulator/trace.h"
#endif

namespace fa {
namespace {

[[noreturn]] void refuse_missing_cta(const TraceOptions& trace, const Record& record) {
  throw BadInput("CTA " + std::to_string(trace.cta) + " is not there: " + record.kernel +
                 " launches fewer");
}

#ifndef FA_WITH_CUDA
void write_emulated(const TraceOptions& trace, const Record& record) {
  const std::vector<emu::Recording> recordings = emu::take_recordings();
  if (record.status == Status::kError || record.status == Status::kSkipped) {
    throw BadInput("no trace to write to " + trace.path + ": " + record.reason);
  }
  if (recordings.empty()) refuse_missing_cta(trace, record);
  const emu::Timeline timeline = emu::replay(recordings);
  write_file_whole(trace.path, trace_json(recordings, record.problem, timeline));
  printf("\n%s: CTA %d in %lld cycles of the model; open it at https://ui.perfetto.dev\n",
         trace.path.c_str(), trace.cta, static_cast<long long>(timeline.cycles));
}
#endif

// The kernel and its twin that records, timed in turns. Recorded is the twin's second launch: the
// first one loads its code.
Traced measure_recording(Runner& runner, const Kernel& kernel, int cta, int rounds) {
  const Kernel* const twin = recording_twin(kernel);
  if (!twin) throw BadInput(kernel.name + " has nothing that a GPU would record: no barrier");
  Traced traced;
  Record plain = runner.verify(kernel), recording = runner.verify(*twin);
  if (recording.status == Status::kPassed) {
    start_recording(uint32_t(cta));
    runner.launch(*twin, 0);
    traced.recordings = take_gpu_recordings();
  }
  for (int round = 0; round < rounds; round++) {
    if (round % 2 == 0) runner.add_round(kernel, plain);
    runner.add_round(*twin, recording);
    if (round % 2 == 1) runner.add_round(kernel, plain);
  }
  recording.kernel = "  recording";
  traced.records = {plain, recording};
  return traced;
}

void write_recorded(const TraceOptions& trace, const Traced& traced) {
  const Record &plain = traced.records[0], &recording = traced.records[1];
  if (recording.status != Status::kPassed) {
    throw BadInput("no trace to write to " + trace.path + ": " + recording.reason);
  }
  if (traced.recordings.empty()) refuse_missing_cta(trace, plain);
  GpuTrace file;
  file.recordings = traced.recordings;
  file.timeline = decode(file.recordings, "kernels/" + plain.kernel + ".cu");
  file.gpu = machine_title();
  if (plain.times) file.ms = plain.times->median;
  if (recording.times) file.recording_ms = recording.times->median;
  write_file_whole(trace.path, trace_json(file, plain.problem));
  const GpuTimeline& recorded = file.timeline;
  printf(
      "\n%s: CTA %d in %lld cycles of SM %d's clock, %llu records; open it at "
      "https://ui.perfetto.dev\n",
      trace.path.c_str(), trace.cta, static_cast<long long>(recorded.timeline.cycles), recorded.sm,
      static_cast<unsigned long long>(recorded.records));
  if (file.ms > 0 && file.recording_ms > 0) {
    printf("a launch takes %.4f ms, recording %.4f ms (%+.1f %%)\n", file.ms, file.recording_ms,
           100 * (file.recording_ms / file.ms - 1));
  }
  if (!recorded.out_of_space.empty()) {
    printf("Note: of warp %d%s only the first %u records are there: choose fewer tokens\n",
           recorded.out_of_space[0], recorded.out_of_space.size() > 1 ? " and others" : "",
           ptx::kRecordsOfWarp - ptx::kFirstRecord);
  }
}

}  // namespace

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

Traced measure_traced(Runner& runner, const Kernel& kernel, const TraceOptions& trace, int rounds,
                      const std::function<void(const std::string&)>& say) {
  if (!on_gpu()) return {measure(runner, {&kernel}, rounds, say), {}};
  say("recording " + kernel.name + " ...");
  return measure_recording(runner, kernel, trace.cta, rounds);
}

void write_trace(const TraceOptions& trace, const Traced& traced) {
  if (on_gpu()) return write_recorded(trace, traced);
#ifndef FA_WITH_CUDA
  write_emulated(trace, traced.records[0]);
#endif
}

}  // namespace fa
