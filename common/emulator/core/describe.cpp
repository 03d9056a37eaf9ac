#include "common/emulator/core/describe.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "common/emulator/core/lane.h"
#include "common/emulator/core/launch.h"

namespace emu {
namespace {

std::string describe_wait(const Lane& lane) {
  char text[256];
  if (lane.state == LaneState::kExited) return "has exited";
  if (lane.state == LaneState::kRunnable) return "can run";
  if (lane.state == LaneState::kParked) {
    snprintf(text, sizeof text, "waits in %s at %s:%u", lane.operation, lane.where.file,
             lane.where.line);
    return text + lane.describe(lane);
  }
  snprintf(text, sizeof text, "waits in %s at %s:%u (for the lanes 0x%08x of its warp)",
           lane.operation, lane.where.file, lane.where.line, lane.mask);
  return text;
}

// "lane 5", "lanes 0-15", "lanes 1-3,5-7"
std::string describe_lanes(uint32_t lanes) {
  std::string text = std::popcount(lanes) == 1 ? "lane " : "lanes ";
  for (int first = 0; first < kWarpSize; first++) {
    if (!(lanes >> first & 1)) continue;
    int last = first;
    while (last + 1 < kWarpSize && lanes >> (last + 1) & 1) last++;
    text += text.back() == ' ' ? "" : ",";
    text += std::to_string(first) + (last > first ? "-" + std::to_string(last) : "");
    first = last;
  }
  return text;
}

// Returns what the lanes of a warp wait for, a line for those that do the same: "lanes 0-31: waits
// in ...".
std::vector<std::string> describe_warp(const Warp& warp) {
  std::vector<std::string> lines;
  const int count =
      std::min(kWarpSize, int(warp.lanes->cta->lanes.size()) - warp.index * kWarpSize);
  for (uint32_t rest = kFullMask >> (kWarpSize - count); rest;) {
    const std::string what = describe_wait(warp.lanes[std::countr_zero(rest)]);
    uint32_t same = 0;
    for (uint32_t others = rest; others; others &= others - 1) {
      const int lane = std::countr_zero(others);
      if (describe_wait(warp.lanes[lane]) == what) same |= 1u << lane;
    }
    rest &= ~same;
    lines.push_back(describe_lanes(same) + ": " + what);
  }
  return lines;
}

}  // namespace

std::string describe_all(const Cluster& cluster) {
  std::string text;
  for (size_t i = 0, next; i < cluster.warps.size(); i = next) {
    const Warp& first = cluster.warps[i];
    const Cta& cta = *first.lanes->cta;
    if (first.index == 0 && cluster.ctas.size() > 1) {
      text += "\n  CTA " + std::to_string(cta.rank) + " of the cluster:";
    }
    const std::vector<std::string> lines = describe_warp(first);
    for (next = i + 1; next < cluster.warps.size(); next++) {
      const Warp& other = cluster.warps[next];
      if (other.lanes->cta != &cta || describe_warp(other) != lines) break;
    }
    const int last = first.index + int(next - i) - 1;
    const std::string name =
        last == first.index ? "warp " + std::to_string(last)
                            : "warps " + std::to_string(first.index) + "-" + std::to_string(last);
    for (const std::string& line : lines) text += "\n  " + name + " " + line;
  }
  return text;
}

std::string cta_name(const Cta& cta) {
  char text[192];
  snprintf(text, sizeof text, "%s, CTA (%u,%u,%u)", cta.kernel, cta.block_idx.x, cta.block_idx.y,
           cta.block_idx.z);
  return text;
}

std::string how_to_repeat() {
  const bool order = options().schedule == Schedule::kRandom,
             copies = options().completion == Completion::kRandom;
  if (!order && !copies) return "";
  return std::string("\n  Random ") +
         (order && copies ? "schedule and completion"
          : order         ? "schedule"
                          : "completion") +
         ": seed " + std::to_string(options().seed) + " repeats this run.";
}

// ---- for a debugger (lane.h) --------------------------------------------------------------------
bool at(int thread, unsigned block_x) { return at(thread, block_x, 0); }

bool at(int thread, unsigned block_x, unsigned block_y) {
  return current_lane && current_lane->thread == thread &&
         current_lane->cta->block_idx.x == block_x && current_lane->cta->block_idx.y == block_y;
}

const char* where() {
  static char text[256];
  if (!current_lane) return "outside a kernel";
  const Lane& me = *current_lane;
  snprintf(text, sizeof text, "%s: thread %d (warp %d lane %d)", cta_name(*me.cta).c_str(),
           me.thread, me.warp->index, me.lane);
  return text;
}

}  // namespace emu
