#include "common/trace/timeline.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace emu {

int track_of(Timeline& timeline, const std::string& group, const std::string& name) {
  for (size_t i = 0; i < timeline.tracks.size(); i++) {
    if (timeline.tracks[i].group == group && timeline.tracks[i].name == name) return int(i);
  }
  timeline.tracks.push_back({group, name});
  return int(timeline.tracks.size()) - 1;
}

int OverlappingRows::place(Timeline& timeline, const std::string& group, size_t warp, int64_t start,
                           int64_t end) {
  std::vector<int64_t>& free = free_[{group, warp}];
  size_t row = 0;
  while (row < free.size() && free[row] > start) row++;
  if (row == free.size()) free.push_back(0);
  free[row] = end;
  return track_of(
      timeline, group,
      "warp " + std::to_string(warp) + (row > 0 ? " (" + std::to_string(row + 1) + ")" : ""));
}

Timeline in_order(Timeline timeline) {
  const std::vector<std::string> groups = {
      "Warps",    "Tensor Cores",       "Exponentials",    "Shared memory",
      "L2 to SM", "Products under way", "Loads under way", "Copies under way"};
  const auto rank = [&](const Track& track) {
    return std::find(groups.begin(), groups.end(), track.group) - groups.begin();
  };
  const auto number_of = [](const std::string& name) {  // "warp 10 (2)": ten, not one
    const size_t at = name.find_first_of("0123456789");
    return at == std::string::npos ? 0 : std::stoi(name.substr(at));
  };
  std::vector<size_t> tracks(timeline.tracks.size()), slices(timeline.slices.size());
  for (size_t i = 0; i < tracks.size(); i++) tracks[i] = i;
  for (size_t i = 0; i < slices.size(); i++) slices[i] = i;
  std::sort(tracks.begin(), tracks.end(), [&](size_t a, size_t b) {
    const Track &x = timeline.tracks[a], &y = timeline.tracks[b];
    return std::tuple(rank(x), number_of(x.name), x.name) <
           std::tuple(rank(y), number_of(y.name), y.name);
  });
  std::vector<int> track_now(tracks.size());
  Timeline sorted;
  for (const size_t i : tracks) {
    track_now[i] = int(sorted.tracks.size());
    sorted.tracks.push_back(timeline.tracks[i]);
  }
  for (Slice& slice : timeline.slices) slice.track = track_now[size_t(slice.track)];
  std::stable_sort(slices.begin(), slices.end(), [&](size_t a, size_t b) {
    const Slice &x = timeline.slices[a], &y = timeline.slices[b];
    return std::tie(x.track, x.start) < std::tie(y.track, y.start);
  });
  std::vector<size_t> slice_now(slices.size());
  for (const size_t i : slices) {
    slice_now[i] = sorted.slices.size();
    sorted.slices.push_back(timeline.slices[i]);
  }
  for (const Flow& flow : timeline.flows) {
    sorted.flows.push_back({flow.name, slice_now[flow.from], slice_now[flow.to]});
  }
  sorted.cycles = timeline.cycles;
  return sorted;
}

}  // namespace emu
