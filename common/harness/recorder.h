// Launches of kernels that record what one CTA does (common/ptx/record.h): where they record to, and what they have
// recorded.
#pragma once

#include <cstdint>
#include <vector>

#include "common/harness/gpu_timeline.h"
#include "common/ptx/record.h"

namespace fa {

struct LaunchShape;

// From now on recording kernels record CTA `cta`, and every launch's records are kept, for which it is waited.
void start_recording(uint32_t cta);

// What has been kept, of launches that have the CTA. From now on launches still record, but nobody keeps it: so they
// can be timed.
std::vector<GpuRecording> take_gpu_recordings();

// A launch of a recording kernel, from before it to behind it.
class RecordedLaunch {
 public:
  explicit RecordedLaunch(const LaunchShape& shape);
  ~RecordedLaunch() noexcept(false);
  RecordedLaunch(const RecordedLaunch&) = delete;
  RecordedLaunch& operator=(const RecordedLaunch&) = delete;
  ptx::RecordTarget target() const;

 private:
  uint64_t ctas_;
  int warps_;  // of a CTA
};

}  // namespace fa
