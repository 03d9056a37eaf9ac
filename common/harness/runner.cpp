#include "common/harness/runner.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ratio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/harness/device.h"
#include "common/harness/inputs.h"
#include "common/harness/oracle.h"
#include "common/launch/launch.h"
#include "common/launch/registry.h"
#ifndef FA_WITH_CUDA
#include "common/emulator/core/launch.h"
#endif

namespace fa {
namespace {

std::optional<double> median(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional<double>(summarise(values).median);
}

// What the driver said while launches ran.
struct Samples {
  std::vector<double> clock_mhz, power_w;
  void take() {
    const GpuState now = sample_gpu();
    if (now.clock_mhz) clock_mhz.push_back(*now.clock_mhz);
    if (now.power_w) power_w.push_back(*now.power_w);
  }
};

void sleep_ms(double milliseconds) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
}

}  // namespace

const char* name_of(Status status) {
  switch (status) {
    case Status::kPassed:
      return "passed";
    case Status::kWrong:
      return "wrong";
    case Status::kSkipped:
      return "skipped";
    case Status::kError:
      break;
  }
  return "error";
}

Times summarise(std::vector<double> milliseconds) {
  std::sort(milliseconds.begin(), milliseconds.end());
  // Quantiles by linear interpolation between the two nearest launches.
  auto quantile = [&](double q) {
    const double at = q * double(milliseconds.size() - 1);
    const size_t below = size_t(at), above = std::min(below + 1, milliseconds.size() - 1);
    return milliseconds[below] + (at - double(below)) * (milliseconds[above] - milliseconds[below]);
  };
  if (milliseconds.empty()) return {};
  Times times;
  times.median = quantile(0.5);
  times.p10 = quantile(0.1);
  times.p90 = quantile(0.9);
  times.min = milliseconds.front();
  times.launches = int(milliseconds.size());
  return times;
}

Times merge(const std::vector<Times>& rounds) {
  Times result = rounds.front();
  std::vector<double> medians, p10s, p90s;
  Samples samples;
  for (const Times& round : rounds) {
    medians.push_back(round.median);
    p10s.push_back(round.p10);
    p90s.push_back(round.p90);
    if (round.clock_mhz) samples.clock_mhz.push_back(*round.clock_mhz);
    if (round.power_w) samples.power_w.push_back(*round.power_w);
    result.min = std::min(result.min, round.min);
    result.launches = std::min(result.launches, round.launches);
  }
  result.median = *median(medians);
  result.p10 = *median(p10s);
  result.p90 = *median(p90s);
  result.clock_mhz = median(samples.clock_mhz);
  result.power_w = median(samples.power_w);
  return result;
}

struct Runner::State {
  struct Set {
    Buffer q, k, v, o;
  };
  Problem problem;
  Protocol protocol;
  Reference reference;
  std::vector<Set> sets;
  std::optional<Buffer> workspace;  // grows with what kernels ask for
  std::optional<Buffer> l2;         // larger than the L2: writing it evicts everything else

  Tensors tensors(const Kernel& kernel, int set) {
    Set& chosen = sets[size_t(set)];
    Tensors result{chosen.q.data(), chosen.k.data(), chosen.v.data(), chosen.o.data(), nullptr, 0};
    if (!kernel.workspace_bytes) return result;
    const size_t needed = kernel.workspace_bytes(problem, protocol.workspace_limit);
    if (needed > protocol.workspace_limit) {
      result.workspace_bytes = protocol.workspace_limit;  // refused by run(), which says so
      return result;
    }
    if (!workspace || workspace->size() != needed) {
      workspace.reset();  // first, so that both need not fit
      workspace.emplace("workspace", needed);
    }
    result.workspace = workspace->data();
    result.workspace_bytes = workspace->size();
    return result;
  }

  void poison() {
    for (Set& set : sets) set.o.poison();
  }

  // Runs body, which sets the record's comparison, and sets the status.
  template <typename Body>
  static void judge(Record& record, const Body& body) {
    try {
      body();
      record.status = record.comparison->passed ? Status::kPassed : Status::kWrong;
      record.reason = record.comparison->reason;
    } catch (const Unsupported& error) {
      record.status = Status::kSkipped;
      record.reason = error.what();
      record.comparison.reset();
    } catch (const BackendError& error) {
      record.status = Status::kError;
      record.reason = error.what();
      record.comparison.reset();
    }
  }

  // Compares the outputs of the first `count` sets. A ceiling has none: it checks itself, by a
  // launch.
  void check(int count, Record& record) {
    if (record.ceiling) {
      record.comparison = record.ceiling->verify(problem);
      return;
    }
    for (int set = 0; set < count && (set == 0 || record.comparison->passed); set++) {
      record.output.resize(problem.element_count());
      sets[size_t(set)].o.download(record.output.data());
      record.comparison = compare(problem, reference, record.output);
    }
  }
};

Runner::Runner(const Problem& problem, const Inputs& inputs, const Protocol& protocol,
               int reference_rows_per_head)
    : state_(std::make_unique<State>()) {
  state_->problem = problem;
  state_->protocol = protocol;
  const size_t bytes = problem.tensor_bytes();
  for (int i = 0; i < std::max(1, protocol.rotating_inputs); i++) {
    state_->sets.push_back(
        {Buffer("Q", bytes), Buffer("K", bytes), Buffer("V", bytes), Buffer("O", bytes)});
    state_->sets.back().q.upload(inputs.q.data());
    state_->sets.back().k.upload(inputs.k.data());
    state_->sets.back().v.upload(inputs.v.data());
  }
  if (protocol.flush_l2 && on_gpu()) state_->l2.emplace("L2 flush", size_t(256) << 20);
  state_->reference = make_reference(problem, inputs, reference_rows_per_head);
}

Runner::~Runner() = default;

void Runner::launch(const Kernel& kernel, int set) {
  fa::run(kernel, state_->problem, state_->tensors(kernel, set));
}

Times Runner::time(const Kernel& kernel, const Timing& timing) {
  if (!on_gpu()) throw BackendError("the emulator does not measure time");
  State& state = *state_;
  const int set_count = int(state.sets.size());
  sample_gpu();  // the first sample takes long: NVML starts
  // Warm-up, which also tells how long a launch takes: slow kernels get fewer of both.
  const double budget = timing.max_seconds * 1000;
  EventTimer timer;
  double spent = 0;
  int warmed = 0;
  for (; warmed < 1 || (warmed < timing.warmup && spent < budget / 4); warmed++) {
    timer.start();
    launch(kernel, warmed % set_count);
    timer.stop();
    spent += timer.milliseconds();
  }
  const double affordable = budget / (spent / warmed + timing.idle_ms);
  const int planned = int(std::clamp(affordable, 1.0, double(timing.iterations)));

  std::vector<EventTimer> timers{size_t(planned)};
  Samples samples;
  for (int i = 0; i < planned; i++) {
    if (state.l2) state.l2->poison();
    if (timing.idle_ms > 0) {
      synchronize();
      sleep_ms(timing.idle_ms);
      hold_gpu();
    }
    timers[size_t(i)].start();
    launch(kernel, i % set_count);
    timers[size_t(i)].stop();
    if (timing.idle_ms > 0) samples.take();
  }
  // Sustained: all are queued by now, without waiting in between, so that the GPU never idles, as
  // in real use. It still works on them while the samples are taken.
  if (timing.idle_ms == 0) samples.take();
  while (!timers.back().done()) {
    sleep_ms(5);
    if (!timers.back().done()) samples.take();
  }
  std::vector<double> milliseconds;
  milliseconds.reserve(timers.size());
  for (EventTimer& each : timers) milliseconds.push_back(each.milliseconds());
  synchronize();
  Times times = summarise(milliseconds);
  times.clock_mhz = median(samples.clock_mhz);
  times.power_w = median(samples.power_w);
  return times;
}

Record Runner::verify(const Kernel& kernel) {
  State& state = *state_;
  Record record;
  record.kernel = kernel.name;
  record.problem = state.problem;
  record.ceiling = kernel.ceiling;
  State::judge(record, [&] {
    state.poison();
    launch_record() = LaunchRecord{};
    take_counts();  // of launches before
    if (kernel.library) record.library = kernel.library();
    launch(kernel, 0);
    synchronize();
    record.registers = launch_record().registers;
    record.shared_bytes = launch_record().shared_bytes;
    record.local_bytes = launch_record().local_bytes;
    record.workspace_bytes = kernel.workspace_bytes ? state.workspace->size() : 0;
    LaunchCounts counts = take_counts();
    record.counters = std::move(counts.counters);
    record.lines = std::move(counts.lines);
    const int set_count = int(state.sets.size());
    for (int set = 1; set < set_count; set++) launch(kernel, set);
    synchronize();
    state.check(set_count, record);
  });
  return record;
}

void Runner::add_round(const Kernel& kernel, Record& record) {
  if (record.status != Status::kPassed) return;
  State& state = *state_;
  State::judge(record, [&] {
    state.poison();
    if (state.protocol.rest_ms > 0) {
      synchronize();
      sleep_ms(state.protocol.rest_ms);
    }
    record.rounds.push_back(time(kernel, state.protocol));
    state.check(std::min(int(state.sets.size()), record.rounds.back().launches), record);
  });
  if (record.status == Status::kPassed) {
    record.times = merge(record.rounds);
  } else {
    record.rounds.clear();
    record.times.reset();
  }
}

Record Runner::run(const Kernel& kernel) {
  Record record = verify(kernel);
  if (on_gpu()) add_round(kernel, record);
  return record;
}

std::vector<Record> measure(Runner& runner, const std::vector<const Kernel*>& chosen, int rounds,
                            const std::function<void(const std::string&)>& say) {
  std::vector<Record> records;
  auto forget = [&] {  // outputs take much memory
    for (size_t i = 0; i + 1 < records.size(); i++) records[i].output = std::vector<uint16_t>();
  };
  for (const Kernel* kernel : chosen) {
    say("verifying " + kernel->name + " ...");
    records.push_back(runner.verify(*kernel));
    forget();
  }
  for (int round = 0; round < (on_gpu() ? rounds : 0); round++) {
    for (size_t i = 0; i < chosen.size(); i++) {
      const size_t at = (i + size_t(round)) % chosen.size();
      say("timing " + chosen[at]->name + ", round " + std::to_string(round + 1) + " of " +
          std::to_string(rounds) + " ...");
      runner.add_round(*chosen[at], records[at]);
      forget();
    }
  }
  return records;
}

}  // namespace fa
