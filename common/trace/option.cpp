// What --trace does in the programs that offer it.
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "common/cli/trace_option.h"
#include "common/harness/device.h"
#include "common/harness/files.h"
#include "common/trace/recorder.h"
#include "common/trace/trace_file.h"
#ifndef FA_WITH_CUDA
#include "common/trace/timing.h"
#include "common/trace/trace.h"
#endif

namespace fa {
namespace {

#ifndef FA_WITH_CUDA
void write_modelled(const std::string& path, int cta, const Record& record) {
  const std::vector<emu::Recording> recordings = emu::take_recordings();
  if (record.status == Status::kError || record.status == Status::kSkipped) {
    throw BadInput("no trace to write to " + path + ": " + record.reason);
  }
  if (recordings.empty()) {
    throw BadInput("CTA " + std::to_string(cta) + " is not there: " + record.kernel +
                   " launches fewer");
  }
  const emu::Timeline timeline = emu::replay(recordings);
  write_file_whole(path, trace_json(recordings, record.problem, timeline));
  printf("\n%s: CTA %d in %lld cycles of the model; open it at https://ui.perfetto.dev\n",
         path.c_str(), cta, static_cast<long long>(timeline.cycles));
}
#endif

std::vector<GpuRecording> recordings_of_gpu;  // of the launch that measure_recording() recorded

// Recorded is the twin's second launch, because the first one loads its code.
std::vector<Record> measure_recording(Runner& runner, const Kernel& kernel, int cta, int rounds) {
  const Kernel* const twin = recording_twin(kernel);
  if (!twin) throw BadInput(kernel.name + " has nothing that a GPU would record: no barrier");
  recordings_of_gpu.clear();
  Record plain = runner.verify(kernel), recording = runner.verify(*twin);
  if (recording.status == Status::kPassed) {
    start_recording(uint32_t(cta));
    runner.launch(*twin, 0);
    recordings_of_gpu = take_gpu_recordings();
  }
  for (int round = 0; round < rounds; round++) {
    if (round % 2 == 0) runner.add_round(kernel, plain);
    runner.add_round(*twin, recording);
    if (round % 2 == 1) runner.add_round(kernel, plain);
  }
  recording.kernel = "  recording";
  return {plain, recording};
}

void write_recorded(const std::string& path, int cta, const std::vector<Record>& records) {
  const Record &plain = records[0], &recording = records[1];
  if (recording.status != Status::kPassed) {
    throw BadInput("no trace to write to " + path + ": " + recording.reason);
  }
  if (recordings_of_gpu.empty()) {
    throw BadInput("CTA " + std::to_string(cta) + " is not there: " + plain.kernel +
                   " launches fewer");
  }
  GpuTrace trace;
  trace.recordings = std::move(recordings_of_gpu);
  trace.timeline = decode(trace.recordings, "kernels/" + plain.kernel + ".cu");
  trace.gpu = machine_title();
  if (plain.times) trace.ms = plain.times->median;
  if (recording.times) trace.recording_ms = recording.times->median;
  write_file_whole(path, trace_json(trace, plain.problem));
  const GpuTimeline& recorded = trace.timeline;
  printf(
      "\n%s: CTA %d in %lld cycles of SM %d's clock, %llu records; open it at "
      "https://ui.perfetto.dev\n",
      path.c_str(), cta, static_cast<long long>(recorded.timeline.cycles), recorded.sm,
      static_cast<unsigned long long>(recorded.records));
  if (trace.ms > 0 && trace.recording_ms > 0) {
    printf("a launch takes %.4f ms, recording %.4f ms (%+.1f %%)\n", trace.ms, trace.recording_ms,
           100 * (trace.recording_ms / trace.ms - 1));
  }
  if (!recorded.out_of_space.empty()) {
    printf("Note: of warp %d%s only the first %u records are there: choose fewer tokens\n",
           recorded.out_of_space[0], recorded.out_of_space.size() > 1 ? " and others" : "",
           ptx::kRecordsOfWarp - ptx::kFirstRecord);
  }
}

void write(const std::string& path, int cta, const std::vector<Record>& records) {
  if (on_gpu()) return write_recorded(path, cta, records);
#ifndef FA_WITH_CUDA
  write_modelled(path, cta, records.back());
#endif
}

[[maybe_unused]] const bool registered = [] {
  tracing = {measure_recording, write};
  return true;
}();

}  // namespace
}  // namespace fa
