// A timeline: what happened when, in rows. A model makes one (timing.h), or a GPU's records do
// (gpu_timeline.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace emu {

// A row of the timeline. Its slices follow each other and do not overlap.
struct Track {
  std::string group;  // "Tensor Cores"
  std::string name;   // "of warps 0, 4, ..."
};

struct Slice {
  int track = 0;
  int64_t start = 0, end = 0;  // cycles since the launch began
  std::string name = {};       // "mma.m16n8k16", "waits: barrier"
  std::string unit =
      {};  // what works, or what is waited for: "tensor", "shared", "global", "barrier" ...
  std::string at = {};  // the source line
  uint64_t bytes = 0, wavefronts = 0, flops = 0, ideal = 0;
  std::string of = {};  // as Step::of
  bool waits = false;
};

// A flow shows what ended a wait: it goes from the slice that was the last to arrive to the slice
// that waited.
struct Flow {
  std::string name;
  size_t from, to;  // slices
};

struct Timeline {
  std::vector<Track> tracks;
  std::vector<Slice> slices;  // by track, then by start
  std::vector<Flow> flows;
  int64_t cycles = 0;
};

// The row of this name, which is added if it is not there.
int track_of(Timeline& timeline, const std::string& group, const std::string& name);

// Rows of work that overlaps: as many a warp as are needed, each free again when its last ends.
class OverlappingRows {
 public:
  int place(Timeline& timeline, const std::string& group, size_t warp, int64_t start, int64_t end);

 private:
  std::map<std::pair<std::string, size_t>, std::vector<int64_t>> free_;  // from when on
};

// Rows by group and number, slices by row and time.
Timeline in_order(Timeline timeline);

}  // namespace emu
