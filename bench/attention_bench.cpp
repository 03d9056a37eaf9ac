// The kernels under Google Benchmark, for who likes its command line and its JSON:
//
//   build/cuda/bin/attention_bench --benchmark_filter=02.*/d128/ --benchmark_repetitions=5
//   build/cuda/bin/attention_bench --protocol quick --benchmark_out=google.json --json ours.json
//
// Names are KERNEL/DTYPE/dHEAD_DIM/NSEQ_LEN. On a GPU the time is that of a launch between two
// events; on the emulator it is the wall clock of one emulated launch, which says nothing about a
// GPU.
//
// With a protocol of bench/protocols.json every kernel x problem x round is a benchmark of its own,
// one iteration of which is all of the protocol's launches; its time is their median. The rounds go
// over the kernels of a problem, and each begins with another one. The harness measures, here as
// elsewhere.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/cli/cli.h"
#include "common/cli/parser.h"
#include "common/cli/protocols.h"
#include "common/harness/files.h"
#include "common/harness/inputs.h"
#include "common/harness/results.h"
#include "common/launch/registry.h"

namespace fa {
namespace {

// The problem's tensors stay from one benchmark to the next with the same shape.
Runner& runner_for(const Problem& problem, const Protocol& protocol) {
  static std::unique_ptr<Runner> runner;
  static Problem current;
  if (!runner || !(problem == current)) {
    runner.reset();  // first, so that both need not fit
    runner = std::make_unique<Runner>(problem, make_inputs(problem, protocol.inputs, protocol.seed),
                                      protocol);
    current = problem;
  }
  return *runner;
}

// Whether the record passed; tells Google Benchmark if not.
bool passed(benchmark::State& state, const Record& record) {
  if (record.status == Status::kPassed) return true;
  state.SkipWithError((std::string(name_of(record.status)) + ": " + record.reason).c_str());
  return false;
}

// As many launches as Google Benchmark asks for, each an iteration.
void time_launches(benchmark::State& state, Runner& runner, const Kernel& kernel,
                   const Problem& problem) {
  EventTimer timer;
  double seconds = 0;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    if (on_gpu()) timer.start();
    runner.launch(kernel, 0);
    if (on_gpu()) timer.stop();
    const std::chrono::duration<double> wall_clock = std::chrono::steady_clock::now() - begin;
    const double launch = on_gpu() ? timer.milliseconds() * 1e-3 : wall_clock.count();
    state.SetIterationTime(launch);
    seconds += launch;
  }
  state.counters["TFLOP/s"] = problem.flops() * 1e-12 * double(state.iterations()) / seconds;
}

// Verified once, before anything is timed.
void run_benchmark(benchmark::State& state, const Kernel& kernel, const Problem& problem) {
  try {
    Protocol protocol;
    protocol.warmup = 1;
    protocol.iterations = 1;
    Runner& runner = runner_for(problem, protocol);
    if (passed(state, runner.run(kernel))) time_launches(state, runner, kernel, problem);
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

// One round of a kernel by the protocol, verified before the first and after each.
void run_round(benchmark::State& state, const Kernel& kernel, const Problem& problem,
               const Protocol& protocol, std::optional<Record>& record) {
  try {
    Runner& runner = runner_for(problem, protocol);
    if (!record) record = runner.verify(kernel);
    if (!on_gpu()) {
      if (passed(state, *record)) time_launches(state, runner, kernel, problem);
      return;
    }
    runner.add_round(kernel, *record);
    record->output = std::vector<uint16_t>();  // much memory
    if (!passed(state, *record)) return;
    const Times& times = record->rounds.back();
    for (auto _ : state) state.SetIterationTime(times.median * 1e-3);
    state.counters["TFLOP/s"] = problem.flops() / times.median * 1e-9;
    state.counters["launches"] = times.launches;
    state.counters["p10_ms"] = times.p10;
    state.counters["p90_ms"] = times.p90;
    if (times.clock_mhz) state.counters["clock_mhz"] = *times.clock_mhz;
    if (times.power_w) state.counters["power_w"] = *times.power_w;
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

std::string name_of(const Kernel& kernel, const Problem& problem) {
  return kernel.name + "/" + name_of(problem.dtype) + "/d" + std::to_string(problem.head_dim) +
         "/N" + std::to_string(problem.seq_len);
}

void register_all() {
  const std::vector<int> seq_lens =
      on_gpu() ? std::vector<int>{512, 1024, 2048, 4096, 8192, 16384} : std::vector<int>{128, 256};
  for (const Dtype dtype : {Dtype::kFp16, Dtype::kBf16}) {
    for (const int head_dim : {64, 128}) {
      for (const int seq_len : seq_lens) {
        Problem problem;
        problem.dtype = dtype;
        problem.head_dim = head_dim;
        problem.seq_len = seq_len;
        problem.heads = on_gpu() ? 16 : 1;
        problem.batch = on_gpu() ? 16384 / seq_len : 1;
        for (const Kernel& kernel : kernels()) {
          const std::string name = name_of(kernel, problem);
          benchmark::RegisterBenchmark(name.c_str(), run_benchmark, kernel, problem)
              ->UseManualTime()
              ->Unit(benchmark::kMillisecond);
        }
      }
    }
  }
}

// A record for each problem and kernel, in that order; empty for those that a filter leaves out.
using Records = std::vector<std::optional<Record>>;

void register_protocol(const NamedProtocol& named, Records& records) {
  const size_t count = kernels().size();
  records.resize(named.problems.size() * count);
  for (size_t p = 0; p < named.problems.size(); p++) {
    const Problem& problem = named.problems[p];
    for (int round = 0; round < named.protocol.rounds; round++) {
      for (size_t i = 0; i < count; i++) {
        const size_t k = (i + size_t(round)) % count;
        const std::string name = name_of(kernels()[k], problem) + "/B" +
                                 std::to_string(problem.batch) +
                                 "/round:" + std::to_string(round + 1);
        benchmark::RegisterBenchmark(name.c_str(), run_round, kernels()[k], problem, named.protocol,
                                     std::ref(records[p * count + k]))
            ->UseManualTime()
            ->Iterations(1)
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
}

void write_json(const std::string& path, const std::vector<std::string>& command, Protocol protocol,
                const Records& all) {
  std::vector<Record> records;
  for (const std::optional<Record>& record : all) {
    if (record) records.push_back(*record);
  }
  if (records.empty()) throw BadInput("nothing ran, so there is nothing to write to " + path);
  int rounds = 0;
  for (const Record& record : records) {
    if (record.rounds.empty()) continue;
    if (rounds != 0 && rounds != int(record.rounds.size())) {
      throw BadInput("the filter chose different rounds of different kernels; " + path +
                     " needs the same of all");
    }
    rounds = int(record.rounds.size());
  }
  if (on_gpu() && rounds != protocol.rounds) protocol.name.clear();
  protocol.rounds = std::max(1, rounds);
  write_results(path, command, protocol, records);
}

void print_help() {
  benchmark::PrintDefaultHelp();
  printf(
      "\n          [--protocol=<name>]  measure by a protocol; there are:\n%s"
      "          [--json=<filename>]  with --protocol: results by bench/schema.json\n\n"
      "Example: attention_bench --protocol=quick --benchmark_out=google.json --json=ours.json\n",
      describe_protocols().c_str());
}

int run_suite(int argc, char** argv) {
  const std::vector<std::string> command = command_of(argc, argv);
  benchmark::Initialize(&argc, argv, print_help);  // takes its own arguments away
  Parser app("The kernels under Google Benchmark");
  std::string protocol, json;
  app.add_option("--protocol", protocol, "");
  app.add_option("--json", json, "");
  if (!app.parse(argc, argv)) return 0;
  if (!json.empty() && protocol.empty()) throw BadInput("--json needs --protocol (see --help)");
  if (!json.empty()) check_writable(json);

  Records records;
  NamedProtocol named;
  if (protocol.empty()) {
    register_all();
  } else {
    named = find_protocol(protocol);
    if (!on_gpu()) make_small(named);
    register_protocol(named, records);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  if (!json.empty()) write_json(json, command, named.protocol, records);
  return 0;
}

}  // namespace
}  // namespace fa

int main(int argc, char** argv) {
  return fa::with_exit_code([&] { return fa::run_suite(argc, argv); });
}
