#include "common/emulator/core/describe.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "common/emulator/core/launch.h"

namespace emu {
namespace {

std::string describe_wait(const Lane& lane) {
  if (lane.state == LaneState::kExited) return "has exited";
  if (lane.state == LaneState::kRunnable) return "can run";
  const std::string text = std::string("waits in ") + lane.operation + " at " + place(lane.where);
  if (lane.state == LaneState::kParked) return text + lane.describe(lane);
  char mask[64];
  snprintf(mask, sizeof mask, " (for the lanes 0x%08x of its warp)", lane.mask);
  return text + mask;
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

std::string phase_name(uint64_t phase) {
  if (phase + 1 == 0) return "the phase before phase 0 (it counts as over)";
  return "phase " + std::to_string(phase);
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

ReportKind kind_of(const std::string& report) {
  constexpr const char *kHangs = "it-hangs", *kBarrier = "a-barrier-is-misused",
                       *kRace = "a-race-is-reported", *kFence = "a-fence-is-missing",
                       *kCopies = "it-depends-on-when-copies-come",
                       *kProduct = "registers-of-a-product", *kAddress = "an-address-is-wrong",
                       *kLanes = "lanes-part-ways";
  constexpr const char* kDataRace = "data race on byte";
  // Two texts of the report, its kind, its section: the first that fits.
  const struct {
    const char *text, *more, *name, *section;
  } kinds[] = {
      {"deadlock", "", "deadlock dump", kHangs},
      {"All four warps must execute it", "", "warps missing in a wgmma", kHangs},
      {"is .aligned for a warpgroup", "", "warps of a warpgroup in different branches", kLanes},
      {"do not show to the asynchronous engines", "", "missing proxy fence", kFence},
      {kDataRace, "may still be running", "race with a running wgmma", kRace},
      {kDataRace, "may not have read yet", "race with a store under way", kRace},
      {kDataRace, "may still be under way", "race with a copy under way", kCopies},
      {kDataRace, "overwrites what may still be in use", "race with a copy under way", kCopies},
      {kDataRace, "__syncthreads()", "race between warps", kRace},
      {kDataRace, "__syncwarp()", "race within a warp", kRace},
      {kDataRace, "", "race between CTAs", kRace},
      {"The bytes expected", "", "fewer bytes expected than come", kBarrier},
      {"bytes more than were expected", "", "fewer bytes expected than come", kBarrier},
      {"touches", "", "registers of a running wgmma", kProduct},
      {"names registers of the wgmma", "", "registers of a running wgmma", kProduct},
      {"wgmma_fence()", "", "missing wgmma_fence", kFence},
      {"may not be visible to bulk copies", "", "mbarrier not visible to copies", kFence},
      {"may not be initialised yet", "", "mbarrier before its initialisation", kBarrier},
      {"there is no mbarrier", "", "mbarrier before its initialisation", kBarrier},
      {"one thread initialises it", "", "mbarrier initialised twice", kBarrier},
      {"overwrites the mbarrier", "", "mbarrier overwritten", kBarrier},
      {"may count in the phase before", "", "arrival in a phase that may be over", kBarrier},
      {"no wait has named", "", "registers that no wait has named", kProduct},
      {"registers of a thread", "", "more registers than a warp owns", kProduct},
      {"lie wholly outside their tensors", "", "loop without end", kHangs},
      {"and none has got anywhere", "", "loop without end", kHangs},
      {"one arrival too many", "", "one arrival too many", kBarrier},
      {"a parity says nothing", "", "a phase that is two ahead", kBarrier},
      {"out of balance", "", "barrier out of balance", kBarrier},
      {"others wait at barrier", "", "barrier out of balance", kBarrier},
      {"setmaxnreg", "", "setmaxnreg in the wrong role", kProduct},
      {"the swizzle in the descriptor", "", "another swizzle than that of the copy", kAddress},
      {"exits although the copy", "", "copies never waited for", kCopies},
      {"ends while the bulk copy", "", "copies never waited for", kCopies},
      {"nothing has written", "", "read of unwritten memory", kAddress},
      {"of global buffer", "", "outside global memory", kAddress},
      {"is outside the SharedStorage", "", "outside shared memory", kAddress},
      {"has ended, and its shared memory", "", "memory of a CTA that has ended", kAddress},
      {"of shared memory", "", "outside shared memory", kAddress},
      {"not a multiple of", "", "misaligned address", kAddress},
      {"must execute the same instruction", "", "lanes in different instructions", kLanes},
      {"which does not take part", "", "shuffle with a lane that has left", kLanes},
      {"exits without having waited", "", "copies never waited for", kCopies},
      {"wrote outside shared memory", "", "outside shared memory", kAddress},
      {"wrote outside", "", "outside global memory", kAddress},
      {"past the end of", "", "outside global memory", kAddress},
      {"before the start of", "", "outside global memory", kAddress},
  };
  for (const auto& [text, more, name, section] : kinds) {
    if (report.find(text) != std::string::npos && report.find(more) != std::string::npos)
      return {name, section};
  }
  return {};
}

std::string bugs_like(const std::string& report) {
  const std::string section = kind_of(report).section;
  return section.empty() ? "" : "docs/bugs.md#" + section + " has bugs like this one.";
}

}  // namespace emu
