#include "common/harness/runner.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <ratio>
#include <string>
#include <thread>
#include <vector>

#include "common/harness/device.h"
#include "common/harness/inputs.h"
#include "common/harness/oracle.h"
#include "common/launch/launch.h"
#include "common/launch/registry.h"

namespace fa {
namespace {

void sleep_ms(double milliseconds) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
}

// Of one field, where it is known.
template <typename Sample, typename Field>
std::optional<double> median(const std::vector<Sample>& samples, Field Sample::*field) {
  std::vector<double> values;
  for (const Sample& sample : samples) {
    if (const std::optional<double> value = sample.*field) values.push_back(*value);
  }
  return values.empty() ? std::nullopt : std::optional<double>(summarise(values).median);
}

// Runs body, which sets the record's comparison, and sets the status.
template <typename Body>
void judge(Record& record, const Body& body) {
  const auto failed = [&](Status status, const std::exception& error) {
    record.status = status;
    record.reason = error.what();
    record.comparison.reset();
  };
  try {
    body();
    record.status = record.comparison->passed ? Status::kPassed : Status::kWrong;
    record.reason = record.comparison->reason;
  } catch (const Unsupported& error) {
    failed(Status::kSkipped, error);
  } catch (const BackendError& error) {
    failed(Status::kError, error);
  }
}

}  // namespace

const char* name_of(Status status) {
  constexpr const char* kNames[] = {"passed", "wrong", "skipped", "error"};
  return kNames[size_t(status)];
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
  for (const Times& round : rounds) {
    result.min = std::min(result.min, round.min);
    result.launches = std::min(result.launches, round.launches);
  }
  result.median = *median(rounds, &Times::median);
  result.p10 = *median(rounds, &Times::p10);
  result.p90 = *median(rounds, &Times::p90);
  result.clock_mhz = median(rounds, &Times::clock_mhz);
  result.power_w = median(rounds, &Times::power_w);
  return result;
}

Runner::Runner(const Problem& problem, const Inputs& inputs, const Protocol& protocol,
               int reference_rows_per_head)
    : problem_(problem), protocol_(protocol) {
  const size_t bytes = problem.tensor_bytes();
  for (int i = 0; i < std::max(1, protocol.rotating_inputs); i++) {
    sets_.push_back(
        {Buffer("Q", bytes), Buffer("K", bytes), Buffer("V", bytes), Buffer("O", bytes)});
    sets_.back().q.upload(inputs.q.data());
    sets_.back().k.upload(inputs.k.data());
    sets_.back().v.upload(inputs.v.data());
  }
  if (protocol.flush_l2 && on_gpu()) l2_.emplace("L2 flush", size_t(256) << 20);
  reference_ = make_reference(problem, inputs, reference_rows_per_head);
}

Tensors Runner::tensors(const Kernel& kernel, int set) {
  const Set& chosen = sets_[size_t(set)];
  Tensors result{chosen.q.data(), chosen.k.data(), chosen.v.data(), chosen.o.data(), nullptr, 0};
  if (!kernel.workspace_bytes) return result;
  const size_t needed = kernel.workspace_bytes(problem_, protocol_.workspace_limit);
  if (needed > protocol_.workspace_limit) {
    result.workspace_bytes = protocol_.workspace_limit;  // refused by run(), which says so
    return result;
  }
  if (!workspace_ || workspace_->size() != needed) {
    workspace_.reset();  // first, so that both need not fit
    workspace_.emplace("workspace", needed);
  }
  result.workspace = workspace_->data();
  result.workspace_bytes = needed;
  return result;
}

void Runner::poison_outputs() {
  for (Set& set : sets_) set.o.poison();
}

// Compares the outputs of the first `count` sets. A ceiling has none: it checks itself, by a
// launch.
void Runner::check(int count, Record& record) {
  if (record.ceiling) {
    record.comparison = record.ceiling->verify(problem_);
    return;
  }
  for (int set = 0; set < count && (set == 0 || record.comparison->passed); set++) {
    record.output.resize(problem_.element_count());
    sets_[size_t(set)].o.download(record.output.data());
    record.comparison = compare(problem_, reference_, record.output);
  }
}

void Runner::launch(const Kernel& kernel, int set) {
  fa::run(kernel, problem_, tensors(kernel, set));
}

Times Runner::time(const Kernel& kernel, const Timing& timing) {
  if (!on_gpu()) throw BackendError("the emulator does not measure time");
  const int set_count = int(sets_.size());
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
  std::vector<GpuState> samples;
  for (int i = 0; i < planned; i++) {
    if (l2_) l2_->poison();
    if (timing.idle_ms > 0) {
      synchronize();
      sleep_ms(timing.idle_ms);
      hold_gpu();
    }
    timers[size_t(i)].start();
    launch(kernel, i % set_count);
    timers[size_t(i)].stop();
    if (timing.idle_ms > 0) samples.push_back(sample_gpu());
  }
  // Sustained: all are queued by now, without waiting in between, so that the GPU never idles, as
  // in real use. It still works on them while the samples are taken.
  if (timing.idle_ms == 0) samples.push_back(sample_gpu());
  while (!timers.back().done()) {
    sleep_ms(5);
    if (!timers.back().done()) samples.push_back(sample_gpu());
  }
  std::vector<double> milliseconds;
  milliseconds.reserve(timers.size());
  for (EventTimer& each : timers) milliseconds.push_back(each.milliseconds());
  synchronize();
  Times times = summarise(milliseconds);
  times.clock_mhz = median(samples, &GpuState::clock_mhz);
  times.power_w = median(samples, &GpuState::power_w);
  return times;
}

Record Runner::verify(const Kernel& kernel) {
  Record record;
  record.kernel = kernel.name;
  record.problem = problem_;
  record.ceiling = kernel.ceiling;
  judge(record, [&] {
    poison_outputs();
    launch_record() = LaunchRecord{};
    take_counts();  // of launches before
    if (kernel.library) record.library = kernel.library();
    launch(kernel, 0);
    synchronize();
    record.registers = launch_record().registers;
    record.shared_bytes = launch_record().shared_bytes;
    record.local_bytes = launch_record().local_bytes;
    record.workspace_bytes = kernel.workspace_bytes ? workspace_->size() : 0;
    record.counts = take_counts();
    const int set_count = int(sets_.size());
    for (int set = 1; set < set_count; set++) launch(kernel, set);
    synchronize();
    check(set_count, record);
  });
  return record;
}

void Runner::add_round(const Kernel& kernel, Record& record) {
  if (record.status != Status::kPassed) return;
  judge(record, [&] {
    poison_outputs();
    if (protocol_.rest_ms > 0) {
      synchronize();
      sleep_ms(protocol_.rest_ms);
    }
    record.rounds.push_back(time(kernel, protocol_));
    check(std::min(int(sets_.size()), record.rounds.back().launches), record);
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
