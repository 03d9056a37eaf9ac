// A launch: its clusters spread over OS threads, its counters, its first error.
#include "common/emulator/core/launch.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/emulator/core/counters.h"
#include "common/emulator/core/lane.h"
#include "common/emulator/core/machine.h"
#include "common/emulator/core/memory.h"
#include "common/emulator/core/patience.h"
#include "common/emulator/core/vector_types.h"
#include "common/emulator/core/watch.h"

namespace emu {

constinit CheckedBuild checked_build;
constinit MakeRecorder make_recorder = nullptr;

Options& options() {
  static Options instance;
  return instance;
}

// The order in which the clusters of a launch end, for what must not depend on the OS threads.
// Clusters begin in order, so the one with the lowest index never waits.
class LaunchOrder {
 public:
  void await(uint64_t index) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return next_ == index; });
  }
  void ended(uint64_t index, std::string printed) {
    const std::lock_guard lock(mutex_);
    ended_.emplace(index, std::move(printed));
    for (auto it = ended_.begin(); it != ended_.end() && it->first == next_; next_++) {
      fwrite(it->second.data(), 1, it->second.size(), stdout);
      it = ended_.erase(it);
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_ = 0;                      // all clusters before it have ended
  std::map<uint64_t, std::string> ended_;  // those beyond, and what they have printed
};

void await_clusters_before(const Cluster& cluster) {
  if (cluster.launch_order) cluster.launch_order->await(cluster.index);
}

bool is_checked() { return checked_build.begin_launch != nullptr; }

namespace {

std::mutex totals_mutex;
Counters totals;

void set_block_indices(Cluster& cluster, uint64_t number) {
  cluster.index = number;
  for (Cta& cta : cluster.ctas) {
    const dim3& grid = cta.grid_dim;
    const uint64_t index = number * cluster.ctas.size() + uint64_t(cta.rank);
    cta.block_idx = {unsigned(index % grid.x), unsigned(index / grid.x % grid.y),
                     unsigned(index / grid.x / grid.y)};
  }
}

// The recorder of the CTA whose timeline is wanted, if it is in this cluster. A recording shows
// loads and stores, which the checked build alone sees.
std::unique_ptr<Recorder> begin_recording(Cluster& cluster, uint64_t number) {
  std::unique_ptr<Recorder> recorder;
  for (Cta& cta : cluster.ctas) {
    const bool wanted = options().traced_cta == number * cluster.ctas.size() + uint64_t(cta.rank);
    if (wanted && cta.checks && make_recorder) recorder = make_recorder(cta);
    cta.recorder = wanted ? recorder.get() : nullptr;
  }
  return recorder;
}

}  // namespace

void launch(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes,
            const std::function<void()>& body, int cluster) {
  const uint64_t ctas = uint64_t(grid.x) * grid.y * grid.z;
  const uint64_t threads = uint64_t(block.x) * block.y * block.z;
  if (ctas == 0 || threads == 0 || threads > 1024) {
    throw LaunchError("a launch needs at least one CTA and 1 to 1024 threads per CTA");
  }
  const auto clusters = ctas / uint64_t(cluster);
#ifdef FA_EMULATOR_DEBUG
  const uint64_t workers = 1;
#else
  const uint64_t wanted = options().os_threads > 0 ? uint64_t(options().os_threads)
                                                   : std::thread::hardware_concurrency();
  const uint64_t workers = std::clamp<uint64_t>(wanted, 1, clusters);
#endif
  std::unique_ptr<LaunchChecks> checks;
  if (is_checked()) checks = checked_build.begin_launch(kernel, grid, cluster);
  std::vector<std::unique_ptr<Machine>> machines;
  for (uint64_t i = 0; i < workers; i++) {
    machines.push_back(std::make_unique<Machine>(
        kernel, grid, block, static_shared_bytes() + shared_bytes, cluster, body, checks.get()));
  }

  LaunchOrder order;
  for (const auto& machine : machines) machine->cluster.launch_order = &order;
  std::atomic<uint64_t> next_cluster{0};
  std::exception_ptr error;
  uint64_t error_cluster = clusters;  // the first that failed, whichever was noticed first
  auto run_clusters = [&](Machine& self) {
    install_fault_handler();
    enter(self);
    const Patience patience(self);
    uint64_t i = clusters;
    bool added = true;  // to the checks, which wait for each cluster that began
    const auto end = [&] { order.ended(i, std::exchange(self.cluster.printed, {})); };
    bool ended = true;
    try {
      while ((i = next_cluster++) < clusters) {
        added = ended = false;
        set_block_indices(self.cluster, i);
        const std::unique_ptr<Recorder> recorder = begin_recording(self.cluster, i);
        run_cluster(self);
        if (recorder) recorder->finish();
        ended = true;
        end();
        added = true;
        if (checks) checks->add(i, self.checks.get());
      }
      const std::lock_guard lock(totals_mutex);
      for (const Cta& cta : self.cluster.ctas) totals += cta.counters;
      if (self.checks) self.checks->keep();
    } catch (...) {
      next_cluster = clusters;  // the others stop after the cluster they are at
      if (!ended) end();
      if (checks && !added) checks->add(i, nullptr);
      const std::lock_guard lock(totals_mutex);
      if (!error || i < error_cluster) {
        error = std::current_exception();
        error_cluster = i;
      }
    }
  };
  {
    std::vector<std::jthread> others;
    others.reserve(workers);
    try {
      for (uint64_t i = 1; i < workers; i++) {
        others.emplace_back(run_clusters, std::ref(*machines[i]));
      }
    } catch (const std::system_error&) {
      // The system has no more threads to give: those that have started do all the work.
    }
    run_clusters(*machines[0]);
  }
  if (error) std::rethrow_exception(error);
  if (checks) checks->finish();
}

Counters take_counters() {
  const std::lock_guard lock(totals_mutex);
  return std::exchange(totals, Counters{});
}

std::vector<LineCounts> take_lines() {
  const std::lock_guard lock(totals_mutex);
  return checked_build.take_lines ? checked_build.take_lines() : std::vector<LineCounts>{};
}

}  // namespace emu
