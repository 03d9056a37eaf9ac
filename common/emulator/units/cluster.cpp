#include "common/emulator/units/cluster.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/emulator/core/unit.h"
#include "common/emulator/core/watch.h"

namespace emu {
namespace {

// ---- the barrier of the cluster -----------------------------------------------------------------
struct ClusterBarrier final : Unit {
  explicit ClusterBarrier(Cluster& its_cluster)
      : cluster(its_cluster), lanes(its_cluster.lanes.size()) {}
  void begin() override;
  void thread_has_ended(Lane&) override { complete_if_all_arrived(); }
  void complete_if_all_arrived();

  struct Arrival {
    bool arrived = false;  // barrier.cluster.arrive without its wait so far
    uint64_t phase = 0;    // the one it arrived in
  };
  Cluster& cluster;
  std::vector<Arrival> lanes;
  int arrived = 0;  // threads, in this phase
  uint64_t phase = 0;
  Clocks arriving,
      ended;  // checked build: what those that arrived had seen, in this phase and in the last one
};

const UnitOf<ClusterBarrier> barrier{50};

std::string at_cluster_barrier(const Lane& lane) {
  const Cluster& cluster = *lane.cta->cluster;
  return " (" + std::to_string(barrier(cluster).arrived) + " of " + std::to_string(cluster.live) +
         " threads of the cluster have arrived)";
}

void ClusterBarrier::begin() {
  for (Arrival& lane : lanes) lane.arrived = false;
  arrived = 0;
  arriving.clear();
  ended.clear();
}

void ClusterBarrier::complete_if_all_arrived() {
  if (arrived == 0 || arrived < cluster.live) return;
  arrived = 0;
  phase++;
  ended = std::move(arriving);
  arriving.clear();
  for (Lane& lane : cluster.lanes) {
    if (lane.state == LaneState::kParked && lane.describe == at_cluster_barrier) wake(lane);
  }
}

}  // namespace

void cluster_arrive(SourceLocation where) {
  const Lane& me = *current_lane;
  ClusterBarrier& all = barrier();
  ClusterBarrier::Arrival& mine = all.lanes[size_t(me.number)];
  if (mine.arrived) {
    fail("barrier.cluster.arrive at %s: this thread has arrived already\n  Missing: cluster_wait.",
         place(where).c_str());
  }
  mine = {true, all.phase};
  all.arrived++;
  if (me.cta->detector) me.cta->detector->release(me, all.arriving);
  all.complete_if_all_arrived();
}

void cluster_wait(SourceLocation where) {
  const Lane& me = *current_lane;
  ClusterBarrier& all = barrier();
  ClusterBarrier::Arrival& mine = all.lanes[size_t(me.number)];
  if (!mine.arrived) {
    fail("barrier.cluster.wait at %s: this thread has not arrived\n  Missing: cluster_arrive.",
         place(where).c_str());
  }
  if (mine.phase == all.phase) park("barrier.cluster.wait", where, at_cluster_barrier);
  mine.arrived = false;
  if (me.cta->detector) me.cta->detector->acquire(me, all.ended);
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

}  // namespace emu
