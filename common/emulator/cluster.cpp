#include "common/emulator/cluster.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "common/emulator/lane.h"
#include "common/emulator/mbarrier.h"
#include "common/emulator/memory.h"
#include "common/emulator/races.h"
#include "common/emulator/tma.h"

namespace emu {
namespace {

// ---- the barrier of the cluster ------------------------------------------------------------------------
std::string describe_barrier(const Lane& lane) {
  const Cluster& cluster = *lane.cta->cluster;
  return " (" + std::to_string(cluster.arrived) + " of " + std::to_string(cluster.live) +
         " threads of the cluster have arrived)";
}

void complete_if_all_arrived(Cluster& cluster) {
  if (cluster.arrived == 0 || cluster.arrived < cluster.live) return;
  cluster.arrived = 0;
  cluster.barrier_phase++;
  cluster.ended = std::move(cluster.arriving);
  cluster.arriving.clear();
  for (Lane& lane : cluster.lanes) {
    if (lane.state != LaneState::kParked || lane.describe != describe_barrier) continue;
    wake(lane);
  }
}

// ---- setmaxnreg ----------------------------------------------------------------------------------------
constexpr int kRegistersOfSm = 65536;
constexpr int kWarpsOfGroup = 4;  // of a warpgroup

// What the pool lacks for what a warp asks for.
int missing_registers(const Warp& warp) {
  const int needed = (warp.wanted_registers - warp.registers) * kWarpSize;
  return std::max(0, needed - warp.lanes->cta->free_registers);
}

std::string describe_registers(const Lane& lane) {
  const Warp& warp = *lane.warp;
  return " (the warp has " + std::to_string(warp.registers) + " registers a thread and asks for " +
         std::to_string(warp.wanted_registers) + ": the CTA's pool has " +
         std::to_string(lane.cta->free_registers) + " and lacks " +
         std::to_string(missing_registers(warp)) + ")";
}

// A warp's instruction, by one lane for all.
void take_registers(Warp& warp, int registers, bool increase, const char* operation,
                    SourceLocation where) {
  Cta& cta = *warp.lanes->cta;
  if (increase ? registers < warp.registers : registers > warp.registers) {
    fail("%s at %s: the warp has %d registers a thread already, %s than %d", operation,
         place(where).c_str(), warp.registers, increase ? "more" : "fewer", registers);
  }
  warp.wanted_registers = registers;
  while (missing_registers(warp) > 0) park(operation, where, describe_registers);
  cta.free_registers -= (registers - warp.registers) * kWarpSize;
  warp.registers = registers;
  warp.set_registers = where;
  for (Lane& lane : cta.lanes) {
    if (lane.state == LaneState::kParked && lane.describe == describe_registers) wake(lane);
  }
}

void check_registers(const Cta& cta) {
  for (const Warp& warp : cta.warps) {
    const Warp& first = cta.warps[size_t(warp.index / kWarpsOfGroup * kWarpsOfGroup)];
    if (warp.registers == first.registers) continue;
    const Warp& one = warp.set_registers.line ? warp : first;
    fail_cta("setmaxnreg at " + place(one.set_registers) + " was executed by warp " +
             std::to_string(one.index) + " but not by warp " +
             std::to_string(one.index == warp.index ? first.index : warp.index) +
             ": all warps of a warpgroup must");
  }
}

}  // namespace

void cluster_arrive(SourceLocation where) {
  Lane& me = *current_lane;
  Cluster& cluster = *me.cta->cluster;
  if (me.arrived_at_cluster) {
    fail("barrier.cluster.arrive at %s: this thread has arrived already\n  Missing: cluster_wait.",
         place(where).c_str());
  }
  me.arrived_at_cluster = true;
  me.arrived_phase = cluster.barrier_phase;
  cluster.arrived++;
  if (me.cta->races) me.cta->races->release(me, cluster.arriving);
  complete_if_all_arrived(cluster);
}

void cluster_wait(SourceLocation where) {
  Lane& me = *current_lane;
  Cluster& cluster = *me.cta->cluster;
  if (!me.arrived_at_cluster) {
    fail("barrier.cluster.wait at %s: this thread has not arrived\n  Missing: cluster_arrive.",
         place(where).c_str());
  }
  if (me.arrived_phase == cluster.barrier_phase) {
    park("barrier.cluster.wait", where, describe_barrier);
  }
  me.arrived_at_cluster = false;
  if (me.cta->races) me.cta->races->acquire(me, cluster.ended);
}

int cluster_rank() { return current_lane->cta->rank; }
int cluster_size() { return int(current_lane->cta->cluster->ctas.size()); }

uintptr_t map_to_cta(uintptr_t address, int cta, SourceLocation where) {
  const Cta& mine = *current_lane->cta;
  const auto& ctas = mine.cluster->ctas;
  if (cta < 0 || size_t(cta) >= ctas.size()) {
    fail("mapa at %s: CTA %d does not exist, the cluster has %zu", place(where).c_str(), cta,
         ctas.size());
  }
  if (address - uintptr_t(mine.shared) >= mine.shared_bytes) {
    fail("mapa at %s: the address is not in this CTA's shared memory", place(where).c_str());
  }
  const Cta& other = ctas[size_t(cta)];
  if (other.live == 0) {
    fail(
        "mapa at %s: CTA %d of the cluster has ended, and its shared memory with it\n  Missing: a "
        "barrier of the cluster (cluster_arrive, cluster_wait) before the end.",
        place(where).c_str(), cta);
  }
  return address - uintptr_t(mine.shared) + uintptr_t(other.shared);
}

void check_cta_lives(uintptr_t address, uintptr_t program_counter) {
  for (const Cta& cta : current_lane->cta->cluster->ctas) {
    if (address - uintptr_t(cta.shared) >= cta.shared_bytes || cta.live > 0) continue;
    fail(
        "%s: CTA %d of the cluster has ended, and its shared memory with it\n  Missing: a barrier "
        "of the cluster (cluster_arrive, cluster_wait) before the end.",
        symbolise(program_counter - 1).c_str(), cta.rank);
  }
}

bool elect(SourceLocation where) {
  bool elected = false;  // this lane
  warp_collective(kFullMask, "elect.sync", elected, where,
                  [](bool** lanes) { *lanes[std::countr_zero(current_lane->warp->live)] = true; });
  return elected;
}

void set_max_registers(int registers, bool increase, SourceLocation where) {
  const char* const operation = increase ? "setmaxnreg.inc" : "setmaxnreg.dec";
  int nothing = 0;
  warp_collective(kFullMask, operation, nothing, where, [&](int**) {
    take_registers(*current_lane->warp, registers, increase, operation, where);
  });
}

int launch_registers(int threads) {
  constexpr int kMost = 256, kUnit = 8;
  return std::min(kMost, kRegistersOfSm / threads / kUnit * kUnit);
}

void cluster_lane_exits(const Lane& lane) {
  const Cta& cta = *lane.cta;
  complete_if_all_arrived(*cta.cluster);
  if (cta.live > 0) return;
  check_no_loads(cta);
  check_registers(cta);
  mbarriers_end(cta);
  if (cta.races) cta.races->end_of_cta(cta);
}

}  // namespace emu
