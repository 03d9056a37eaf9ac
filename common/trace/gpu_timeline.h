// From what the warps of a CTA recorded on a GPU (common/trace/record.h) to a timeline like the
// emulator's (common/trace/timing.h), but measured.
//
//   Warps                 what each warp waits for, the instructions that it records, and as "other
//                         instructions" what lies between: softmax, addresses, plain loads and
//                         stores
//   Products under way    groups of wgmma, from their fence to the end of the wait for them
//   Copies under way      bulk copies from their issue, groups of stores and of cp.async, to the
//                         end of the first wait for them. They may have landed before: nobody
//                         looked
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/trace/record.h"    // IWYU pragma: export
#include "common/trace/timeline.h"  // IWYU pragma: export

namespace fa {

// One launch's buffer.
struct GpuRecording {
  std::string kernel;
  uint64_t cta = 0;
  int warps = 0;
  std::vector<ptx::Record> records;  // [kRecordsOfWarp][kRecordWarps]
};

struct GpuTimeline {
  emu::Timeline timeline;
  uint64_t records = 0;
  int sm = 0;                     // on which the CTA ran, of the first launch
  uint64_t begin_ns = 0;          // the GPU's timer when the first warp began
  std::vector<int> out_of_space;  // warps that did more than their part of the buffer holds
};

// One launch after the other. `file`: of the kernel, to which the lines belong. Throws BackendError
// if these are no records.
GpuTimeline decode(const std::vector<GpuRecording>& recordings, const std::string& file);

}  // namespace fa
