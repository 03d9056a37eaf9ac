#include "common/trace/recorder.h"

#include <optional>
#include <utility>
#include <vector>

#include "common/harness/device.h"
#include "common/launch/launch.h"

namespace fa {
namespace {

struct State {
  std::optional<Buffer> buffer;  // none: nobody records
  uint32_t cta = 0;
  bool keeps = false;
  std::vector<GpuRecording> kept;
};

State& state() {
  static State instance;
  return instance;
}

}  // namespace

void start_recording(uint32_t cta) {
  if (!state().buffer) state().buffer.emplace("records", ptx::kRecordBytes);
  state().cta = cta;
  state().keeps = true;
}

std::vector<GpuRecording> take_gpu_recordings() {
  state().keeps = false;
  return std::exchange(state().kept, {});
}

RecordedLaunch::RecordedLaunch(const LaunchShape& shape)
    : ctas_(uint64_t(shape.grid.x) * shape.grid.y * shape.grid.z),
      warps_(int((shape.block.x * shape.block.y * shape.block.z + 31) / 32)) {
  if (state().keeps) state().buffer->poison();
}

ptx::RecordTarget RecordedLaunch::target() const {
  if (!state().buffer) return {};
  return {static_cast<ptx::Record*>(state().buffer->data()), state().cta};
}

void RecordedLaunch::finish() {
  if (!state().keeps) return;
  synchronize();
  GpuRecording recording;
  recording.kernel = launch_record().kernel;
  recording.cta = state().cta;
  recording.warps = warps_;
  recording.records.resize(ptx::kRecordBytes / sizeof(ptx::Record));
  state().buffer->download(recording.records.data());
  if (recording.cta < ctas_) state().kept.push_back(std::move(recording));
}

}  // namespace fa
