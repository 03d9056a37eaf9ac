// The checked build adds three things to launches: the detector of races, counts by line, and loads
// and stores as requests. A program that links this file is a checked one.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/emulator/checks/counting.h"
#include "common/emulator/checks/lines.h"
#include "common/emulator/checks/races.h"
#include "common/emulator/core/counters.h"
#include "common/emulator/core/events.h"
#include "common/emulator/core/lane.h"
#include "common/emulator/core/launch.h"
#include "common/emulator/core/vector_types.h"
#include "common/emulator/core/watch.h"

namespace emu {
namespace {

LineTable line_totals;

class ClusterChecks final : public Checks {
 public:
  explicit ClusterChecks(Cluster& cluster) {
    if (options().races) races_.emplace(cluster);
  }
  const Races* races() const { return races_ ? &*races_ : nullptr; }

  void begin() override {
    if (races_) races_->begin();
  }
  Detector* detector() override { return races_ ? &*races_ : nullptr; }
  void count(const Event& event) override { lines_.add(event); }
  void meet(Warp& warp, uint32_t mask) override { count_accesses(warp, mask); }
  void keep() override { line_totals.add(lines_); }

 private:
  LineTable lines_;
  std::optional<Races> races_;
};

class AllChecks final : public LaunchChecks {
 public:
  AllChecks(const char* kernel, dim3 grid, int cluster) {
    if (options().races) accesses_.emplace(kernel, grid, cluster);
  }
  std::unique_ptr<Checks> watch(Cluster& cluster) override {
    return std::make_unique<ClusterChecks>(cluster);
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
  checked_build = {begin_launch, take};
  return true;
}();

}  // namespace
}  // namespace emu
