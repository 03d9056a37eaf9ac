#include "common/harness/runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "common/harness/device.h"
#include "common/harness/launch.h"
#ifndef FA_WITH_CUDA
#include "common/emulator/launch.h"
#endif

namespace fa {

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
  return {quantile(0.5), quantile(0.1), quantile(0.9), milliseconds.front(),
          int(milliseconds.size())};
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

  Comparison check(int set, std::vector<uint16_t>& output) {
    output.resize(problem.element_count());
    sets[size_t(set)].o.download(output.data());
    return compare(problem, reference, output);
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

Record Runner::run(const Kernel& kernel) {
  State& state = *state_;
  Record record;
  record.kernel = kernel.name;
  record.problem = state.problem;
  const int set_count = int(state.sets.size());
  try {
    // Correctness first, on poisoned outputs.
    for (State::Set& set : state.sets) set.o.poison();
    launch_record() = LaunchRecord{};
#ifndef FA_WITH_CUDA
    emu::take_counters();
#endif
    launch(kernel, 0);
    synchronize();
    record.registers = launch_record().registers;
    record.shared_bytes = launch_record().shared_bytes;
    record.local_bytes = launch_record().local_bytes;
    record.workspace_bytes = kernel.workspace_bytes ? state.workspace->size() : 0;
#ifndef FA_WITH_CUDA
    const bool checked = emu::is_checked();
    emu::take_counters().for_each([&](const std::string& name, uint64_t value) {
      if (checked || !(name.starts_with("global_") || name.starts_with("shared_"))) {
        record.counters.emplace_back(name, value);
      }
    });
#endif
    record.comparison = state.check(0, record.output);

    if (record.comparison->passed && on_gpu()) {
      // Warm-up, which also tells how long a launch takes: slow kernels get fewer of both.
      const double budget = state.protocol.max_seconds * 1000;
      EventTimer timer;
      double spent = 0;
      int warmed = 0;
      for (; warmed < 1 || (warmed < state.protocol.warmup && spent < budget / 4); warmed++) {
        timer.start();
        launch(kernel, warmed % set_count);
        timer.stop();
        spent += timer.milliseconds();
      }
      const int affordable = int(std::min(1e6, budget * warmed / spent));
      const int planned = std::min(state.protocol.iterations, std::max(3, affordable));
      // All queued at once, without waiting in between: the GPU never idles, as in real use.
      std::vector<EventTimer> timers{size_t(planned)};
      for (int i = 0; i < planned; i++) {
        if (state.l2) state.l2->poison();
        timers[size_t(i)].start();
        launch(kernel, i % set_count);
        timers[size_t(i)].stop();
      }
      std::vector<double> milliseconds;
      milliseconds.reserve(timers.size());
      for (EventTimer& each : timers) milliseconds.push_back(each.milliseconds());
      synchronize();
      // And again: timing must not have changed what a launch computes.
      for (int set = 0; set < set_count && record.comparison->passed; set++) {
        if (planned > set) record.comparison = state.check(set, record.output);
      }
      if (record.comparison->passed && planned > 0) record.times = summarise(milliseconds);
    }
    record.status = record.comparison->passed ? Status::kPassed : Status::kWrong;
    record.reason = record.comparison->reason;
  } catch (const Unsupported& error) {
    record.status = Status::kSkipped;
    record.reason = error.what();
  } catch (const BackendError& error) {
    record.status = Status::kError;
    record.reason = error.what();
  }
  return record;
}

}  // namespace fa
