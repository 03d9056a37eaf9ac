// A launch: its clusters spread over OS threads, its counters, its first error.
#include "common/emulator/core/launch.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
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

#include "common/emulator/core/first_nan.h"
#include "common/emulator/core/memory.h"
#include "common/emulator/core/patience.h"
#include "common/emulator/core/watch.h"

namespace emu {

constinit CheckedBuild checked_build;
constinit MakeRecorder make_recorder = nullptr;

Options& options() {
  static Options instance = [] {
    const char* const seconds = getenv("FA_BUSY_AFTER");
    const double chosen = seconds ? strtod(seconds, nullptr) : 0;
    return chosen > 0 ? Options{.report_after = chosen} : Options{};
  }();
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
  if (Detector* const detector = cluster.ctas[0].detector) detector->settle();
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

// How far a launch is, in place of a program's own line of progress on a terminal.
[[maybe_unused]] void report(const char* kernel, uint64_t ended, uint64_t ctas, double seconds) {
  const std::string cure =
      is_checked() ? std::string("; ") + options().faster + " is up to twenty times as fast" : "";
  fprintf(stderr, "%snote: %s: %llu of %llu CTAs have ended after %.3g s%s\n",
          isatty(STDERR_FILENO) ? "\r\033[K" : "", kernel, (unsigned long long)ended,
          (unsigned long long)ctas, seconds, cure.c_str());
}

}  // namespace

void launch(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes,
            const std::function<void()>& body, int cluster) {
  const uint64_t ctas = uint64_t(grid.x) * grid.y * grid.z;
  const uint64_t threads = uint64_t(block.x) * block.y * block.z;
  if (ctas == 0 || threads == 0 || threads > 1024) {
    throw LaunchError("a launch needs at least one CTA and 1 to 1024 threads per CTA");
  }
  if (cluster == 1) {
    for (cluster = options().together; ctas % uint64_t(cluster) != 0;) cluster--;
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
  std::atomic<bool> ending{false};
  for (const auto& machine : machines) {
    machine->cluster.launch_order = &order;
    machine->ending = &ending;
  }
  std::atomic<uint64_t> next_cluster{0}, ended_clusters{0};
  std::exception_ptr error;
  std::vector<NanOrigin> made, taken_in;
  uint64_t error_cluster = clusters;  // the first that failed, whichever was noticed first
  auto run_clusters = [&](Machine& self) {
    install_fault_handler();
    enter(self);
    const Patience patience(self);
    NanWatch nans;
    uint64_t i = clusters;
    bool added = true;  // to the checks, which wait for each cluster that began
    const auto end = [&] { order.ended(i, std::exchange(self.cluster.printed, {})); };
    bool ended = true;
    try {
      while (!ending && (i = next_cluster++) < clusters) {
        added = ended = false;
        set_block_indices(self.cluster, i);
        nans.begin_cluster(i);
        const std::unique_ptr<Recorder> recorder = begin_recording(self.cluster, i);
        run_cluster(self);
        if (recorder) recorder->finish();
        ended = true;
        ended_clusters++;
        end();
        added = true;
        if (checks) checks->add(i, self.checks.get());
      }
      const std::lock_guard lock(totals_mutex);
      for (const Cta& cta : self.cluster.ctas) totals += cta.counters;
      if (nans.made) made.push_back(*nans.made);
      if (nans.taken_in) taken_in.push_back(*nans.taken_in);
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
#ifdef FA_EMULATOR_DEBUG
  run_clusters(*machines[0]);
#else
  {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t running = 0;
    std::vector<std::jthread> started;
    started.reserve(workers);
    std::unique_lock lock(mutex);
    try {
      for (const auto& machine : machines) {
        started.emplace_back([&, self = machine.get()] {
          run_clusters(*self);
          const std::lock_guard ends(mutex);
          running--;
          changed.notify_one();
        });
        running++;
      }
    } catch (const std::system_error&) {
      // The system has no more threads to give: those that have started do all the work.
      if (started.empty()) run_clusters(*machines[0]);
    }
    // This thread runs no CTA. It looks after those that do.
    const auto begin = std::chrono::steady_clock::now();
    double next = options().report_after;
    while (!changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return running == 0; })) {
      if (options().wants_end && !ending) ending = options().wants_end();
      if (std::chrono::steady_clock::now() - begin < std::chrono::duration<double>(next)) continue;
      report(kernel, ended_clusters * uint64_t(cluster), ctas, next);
      next += 3 * options().report_after;
    }
  }
#endif
  keep_first_nan(made, taken_in);
  if (ending) throw LaunchError("the launch was ended before it was done");
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
