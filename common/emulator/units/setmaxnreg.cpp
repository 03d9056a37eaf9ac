#include "common/emulator/units/setmaxnreg.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "common/emulator/core/unit.h"

namespace emu {
namespace {

constexpr int kRegistersOfSm = 65536;
constexpr int kWarpsOfGroup = 4;  // of a warpgroup

// Returns how many registers each thread of a CTA has at the start, if the kernel uses setmaxnreg.
int launch_registers(int threads) {
  constexpr int kMost = 256, kUnit = 8;
  return std::min(kMost, kRegistersOfSm / threads / kUnit * kUnit);
}

struct Registers final : Unit {
  explicit Registers(const Cluster& its_cluster)
      : cluster(its_cluster), warps(its_cluster.warps.size()), pools(its_cluster.ctas.size()) {}
  void begin() override;
  void thread_has_ended(Lane& me) override;

  struct OfWarp {
    int has = 0;  // registers per thread
    int wanted = 0;
    SourceLocation set;  // the last setmaxnreg
  };
  OfWarp& of(const Warp& warp) { return warps[size_t(warp.slot)]; }
  int& pool(const Cta& cta) { return pools[size_t(cta.rank)]; }
  // Returns how many registers the pool lacks for what a warp asks for.
  int missing(const Warp& warp) {
    const int needed = (of(warp).wanted - of(warp).has) * kWarpSize;
    return std::max(0, needed - pool(*warp.lanes->cta));
  }

  const Cluster& cluster;
  std::vector<OfWarp> warps;
  std::vector<int> pools;  // [CTAs]: registers given back by setmaxnreg.dec
};

const UnitOf<Registers> all_registers{60};

void Registers::begin() {
  for (const Cta& cta : cluster.ctas) {
    pool(cta) = 0;
    for (const Warp& warp : cta.warps) of(warp) = {launch_registers(int(cta.lanes.size())), 0, {}};
  }
}

std::string at_setmaxnreg(const Lane& lane) {
  Registers& all = all_registers(*lane.cta->cluster);
  const Registers::OfWarp& warp = all.of(*lane.warp);
  return " (the warp has " + std::to_string(warp.has) + " registers per thread and asks for " +
         std::to_string(warp.wanted) + ": the CTA's pool has " +
         std::to_string(all.pool(*lane.cta)) + " and lacks " +
         std::to_string(all.missing(*lane.warp)) + ")";
}

// A warp's instruction, executed by one lane for all.
void take_registers(const Warp& warp, int registers, bool increase, const char* operation,
                    SourceLocation where) {
  Cta& cta = *warp.lanes->cta;
  Registers& all = all_registers(*cta.cluster);
  Registers::OfWarp& mine = all.of(warp);
  if (increase ? registers < mine.has : registers > mine.has) {
    fail("%s at %s: the warp has %d registers per thread already, %s than %d", operation,
         place(where).c_str(), mine.has, increase ? "more" : "fewer", registers);
  }
  mine.wanted = registers;
  while (all.missing(warp) > 0) park(operation, where, at_setmaxnreg);
  all.pool(cta) -= (registers - mine.has) * kWarpSize;
  mine.has = registers;
  mine.set = where;
  for (Lane& lane : cta.lanes) {
    if (lane.state == LaneState::kParked && lane.describe == at_setmaxnreg) wake(lane);
  }
}

// At the end of a CTA, all warps of a warpgroup must have executed the same setmaxnreg.
void Registers::thread_has_ended(Lane& me) {
  const Cta& cta = *me.cta;
  if (cta.live > 0) return;
  for (const Warp& warp : cta.warps) {
    const Warp& first = cta.warps[size_t(warp.index / kWarpsOfGroup * kWarpsOfGroup)];
    if (of(warp).has == of(first).has) continue;
    const bool this_one = of(warp).set.line != 0;
    const Warp &one = this_one ? warp : first, &other = this_one ? first : warp;
    fail_cta("setmaxnreg at " + place(of(one).set) + " was executed by warp " +
             std::to_string(one.index) + " but not by warp " + std::to_string(other.index) +
             ": all warps of a warpgroup must");
  }
}

}  // namespace

OwnedRegisters owned_registers(const Warp& warp) {
  const Cta& cta = *warp.lanes->cta;
  Registers& all = all_registers(*cta.cluster);
  const bool used = std::any_of(cta.warps.begin(), cta.warps.end(),
                                [&](const Warp& each) { return all.of(each).set.line != 0; });
  return used ? OwnedRegisters{all.of(warp).has, all.of(warp).set} : OwnedRegisters{};
}

void set_max_registers(int registers, bool increase, SourceLocation where) {
  const char* const operation = increase ? "setmaxnreg.inc" : "setmaxnreg.dec";
  int nothing = 0;
  warp_collective(kFullMask, operation, nothing, where, [&](int**) {
    take_registers(*current_lane->warp, registers, increase, operation, where);
  });
}

}  // namespace emu
