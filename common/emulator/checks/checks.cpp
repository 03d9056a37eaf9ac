// The checked build adds three things to launches: the detector of races, counts by line, and loads
// and stores as requests. A program that links this file is a checked one.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/emulator/checks/absent.h"
#include "common/emulator/checks/counting.h"
#include "common/emulator/checks/races.h"
#include "common/emulator/core/describe.h"
#include "common/emulator/core/events.h"
#include "common/emulator/core/launch.h"

namespace emu {
namespace {

LineTable line_totals;

// Barriers of warps in a row without a store: a loop whose threads meet at barriers, but whose
// condition nothing can change any more. (A kernel that computes needs a handful.)
constexpr uint64_t kMostIdleBarriers = uint64_t(1) << 20;

class ClusterChecks final : public Checks {
 public:
  ClusterChecks(Cluster& cluster, LaunchAccesses* launch) : cluster_(cluster) {
    if (launch) races_.emplace(cluster, *launch);
    if (options().notes) absent_.emplace(cluster);
  }
  const Races* races() const { return races_ ? &*races_ : nullptr; }

  void begin() override {
    idle_barriers_ = 0;
    if (races_) races_->begin();
    if (absent_) absent_->begin();
  }
  Detector* detector() override { return races_ ? &*races_ : nullptr; }
  void count(const Event& event) override {
    lines_.add(event);
    switch (event.kind) {
      case Kind::kBarrier:
        if (++idle_barriers_ > kMostIdleBarriers) {
          fail_cta("its warps have met at " + std::to_string(kMostIdleBarriers) +
                   " barriers in a row without a store to memory\n  A loop without end? A count "
                   "or an index in its condition may be wrong." +
                   describe_all(cluster_));
        }
        break;
      case Kind::kGlobalLoad:
      case Kind::kSharedLoad:
      case Kind::kLdmatrix:
      case Kind::kShuffle:
      case Kind::kVote:
      case Kind::kSyncwarp:
        break;
      default:
        idle_barriers_ = 0;
    }
  }
  void meet(Warp& warp, uint32_t mask) override {
    if (absent_) {
      absent_->meet(warp, mask);
      if (!warp.live) absent_->comes(warp);
    }
    count_accesses(warp, mask);
  }
  void absent_lanes(const Warp& warp, uint32_t mask, const char* operation,
                    SourceLocation where) override {
    if (absent_) absent_->collective(warp, mask, operation, where);
  }
  void comes_to_barrier(const Warp& warp) override {
    if (absent_) absent_->comes(warp);
  }
  void barrier_is_over(const Cta& cta, const char* operation, SourceLocation where) override {
    if (absent_) absent_->barrier(cta, operation, where);
  }
  void keep() override { line_totals.add(lines_); }

 private:
  Cluster& cluster_;
  LineTable lines_;
  uint64_t idle_barriers_ = 0;
  std::optional<Races> races_;
  std::optional<Absent> absent_;
};

class AllChecks final : public LaunchChecks {
 public:
  AllChecks(const char* kernel, dim3 grid, int cluster) {
    if (options().races) accesses_.emplace(kernel, grid, cluster);
  }
  std::unique_ptr<Checks> watch(Cluster& cluster) override {
    return std::make_unique<ClusterChecks>(cluster, accesses_ ? &*accesses_ : nullptr);
  }
  void add(uint64_t cluster, const Checks* checks) override {
    if (!accesses_) return;
    accesses_->add(cluster, checks ? static_cast<const ClusterChecks*>(checks)->races() : nullptr);
  }
  void finish() override {
    if (accesses_) accesses_->finish();
  }

 private:
  std::optional<LaunchAccesses> accesses_;
};

std::unique_ptr<LaunchChecks> begin_launch(const char* kernel, dim3 grid, int cluster) {
  return std::make_unique<AllChecks>(kernel, grid, cluster);
}

std::vector<LineCounts> take() {
  std::vector<LineCounts> lines = line_totals.lines();
  line_totals.clear();
  return lines;
}

[[maybe_unused]] const bool registered = [] {
  checked_build = {begin_launch, take, observe_access};
  return true;
}();

}  // namespace
}  // namespace emu
