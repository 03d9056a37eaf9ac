// The kernels under Google Benchmark, with its command line and its output:
//
//   build/cuda/bin/attention_bench --benchmark_filter='02.*/d128/' --benchmark_repetitions=5
//   build/emulator-checked/bin/attention_bench --benchmark_filter='0[12].*bf16/d64/N128'
//
// Names are KERNEL/DTYPE/dHEAD_DIM/NSEQ_LEN, with /causal behind where there is such a mask, and
// /fp8 where Q, K and V are rounded before the clock starts. Every kernel of this program is there,
// also those of kernels/beyond and kernels/next, on the problems that it takes. On a GPU the time
// is that of a launch between two events; on the emulator it is the wall clock of one emulated
// launch, which says nothing about a GPU, and the counters of that launch are there instead.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "common/cli/cli.h"
#include "common/cli/parser.h"
#include "common/harness/inputs.h"
#include "common/harness/runner.h"
#include "common/launch/registry.h"
#include "common/launch/validation.h"

namespace fa {
namespace {

constexpr int kRowsPerHead = 64;  // that are checked

// The problem's tensors stay from one benchmark to the next with the same shape.
Runner& runner_for(const Problem& problem) {
  static std::unique_ptr<Runner> runner;
  static Problem current;
  if (!runner || !(problem == current)) {
    Protocol protocol;
    protocol.warmup = 1;
    protocol.iterations = 1;
    runner.reset();  // first, so that both need not fit
    runner = std::make_unique<Runner>(problem, make_inputs(problem, protocol.inputs, protocol.seed),
                                      protocol, kRowsPerHead);
    current = problem;
  }
  return *runner;
}

// Verified once, before anything is timed, and on a GPU in a timed launch as well. Then as many
// launches as Google Benchmark asks for, each an iteration.
void run_benchmark(benchmark::State& state, const Kernel& kernel, const Problem& problem) {
  try {
    Runner& runner = runner_for(problem);
    const Record record = runner.run(kernel);
    if (record.status != Status::kPassed) {
      state.SkipWithError((std::string(name_of(record.status)) + ": " + record.reason).c_str());
      return;
    }
    EventTimer timer;
    for (auto _ : state) {
      const auto begin = std::chrono::steady_clock::now();
      if (on_gpu()) timer.start();
      runner.launch(kernel, 0, &run_prepared);
      if (on_gpu()) timer.stop();
      const std::chrono::duration<double> wall_clock = std::chrono::steady_clock::now() - begin;
      state.SetIterationTime(on_gpu() ? timer.milliseconds() * 1e-3 : wall_clock.count());
    }
    for (const auto& [name, count] : record.counts.counters) {
      state.counters[name] = double(count);  // of one launch
    }
    if (!on_gpu()) return;
    const double bytes = 2.0 * double(problem.tensor_bytes() + problem.kv_tensor_bytes());
    using benchmark::Counter;
    state.counters["FLOP/s"] = Counter(problem.flops(), Counter::kIsIterationInvariantRate);
    state.counters["bytes/s"] = Counter(bytes, Counter::kIsIterationInvariantRate);
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

// Every kernel that takes the problem on the GPU present.
void register_all(Problem problem) {
  for (const Kernel& kernel : kernels()) {
    problem.fp8 = kernel.takes.fp8 ? Fp8::kHead : Fp8::kNone;
    if (!refusal(kernel, problem).empty()) continue;
    const std::string name =
        kernel.name + "/" + name_of(problem.dtype) + "/d" + std::to_string(problem.head_dim) +
        "/N" + std::to_string(problem.seq_len) + (problem.mask == Mask::kCausal ? "/causal" : "") +
        (kernel.takes.fp8 ? "/fp8" : "");
    benchmark::RegisterBenchmark(name.c_str(), run_benchmark, kernel, problem)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
}

void register_all() {
  const std::vector<int> seq_lens =
      on_gpu() ? std::vector<int>{512, 1024, 2048, 4096, 8192, 16384} : std::vector<int>{128, 256};
  for (const Dtype dtype : {Dtype::kFp16, Dtype::kBf16}) {
    for (const int head_dim : {64, 128}) {
      for (const int seq_len : seq_lens) {
        for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
          Problem problem;
          problem.dtype = dtype;
          problem.head_dim = head_dim;
          problem.seq_len = seq_len;
          problem.heads = on_gpu() ? 16 : 1;
          problem.batch = on_gpu() ? 16384 / seq_len : 1;
          problem.mask = mask;
          register_all(problem);
        }
      }
    }
  }
}

void print_help() {
  benchmark::PrintDefaultHelp();
  printf(
      "\nExample: attention_bench --benchmark_filter='08.*/bf16/d128/' --benchmark_out=08.json\n");
}

int run_suite(int argc, char** argv) {
  name_fields_as_options();
  benchmark::Initialize(&argc, argv, print_help);  // takes its own arguments away
  Parser app("The kernels under Google Benchmark");
  if (!app.parse(argc, argv)) return 0;
  register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace fa

int main(int argc, char** argv) {
  return fa::with_exit_code([&] { return fa::run_suite(argc, argv); });
}
