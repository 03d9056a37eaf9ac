// Launches of kernels that record what one CTA does (common/trace/record.h): where they record to,
// and what they have recorded.
#pragma once

#include <cstdint>
#include <vector>

#include "common/trace/gpu_timeline.h"  // IWYU pragma: export
#include "common/trace/record.h"        // IWYU pragma: export

namespace fa {

struct LaunchShape;

// From now on recording kernels record CTA `cta`, and every launch's records are kept once it has
// finished.
void start_recording(uint32_t cta);

// Returns what has been kept, of launches that have the CTA. From now on launches still record, but
// nothing is kept: so they can be timed.
std::vector<GpuRecording> take_gpu_recordings();

// A launch of a recording kernel. It is made before the kernel starts.
class RecordedLaunch {
 public:
  explicit RecordedLaunch(const LaunchShape& shape);
  ptx::RecordTarget target() const;
  // The kernel has been started: waits for its end, and keeps what it has recorded. Throws
  // BackendError.
  void finish();

 private:
  uint64_t ctas_;
  int warps_;  // of a CTA
};

}  // namespace fa
