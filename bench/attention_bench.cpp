// The kernels under Google Benchmark, for who likes its command line and its JSON:
//
//   build/cuda/bin/attention_bench --benchmark_filter=02.*/d128/ --benchmark_repetitions=5
//
// Names are KERNEL/DTYPE/dHEAD_DIM/NSEQ_LEN. On a GPU the time is that of a launch between two events; on
// the emulator it is the wall clock of one emulated launch, which says nothing about a GPU.
#include <benchmark/benchmark.h>

#include <chrono>
#include <memory>

#include "common/harness/device.h"
#include "common/harness/runner.h"

namespace fa {
namespace {

// The problem's tensors stay from one benchmark to the next with the same shape.
Runner& runner_for(const Problem& problem) {
  static std::unique_ptr<Runner> runner;
  static Problem current;
  const bool same = runner && problem.seq_len == current.seq_len &&
                    problem.head_dim == current.head_dim && problem.dtype == current.dtype;
  if (!same) {
    Protocol protocol;
    protocol.warmup = 1;
    protocol.iterations = 1;
    runner.reset();  // first, so that both need not fit
    runner = std::make_unique<Runner>(problem, make_inputs(problem, "normal", 1), protocol);
    current = problem;
  }
  return *runner;
}

void run_benchmark(benchmark::State& state, const Kernel& kernel, const Problem& problem) {
  try {
    Runner& runner = runner_for(problem);
    const Record record = runner.run(kernel);  // verified once, before anything is timed
    if (record.status != Status::kPassed) {
      state.SkipWithError((std::string(name_of(record.status)) + ": " + record.reason).c_str());
      return;
    }
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
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
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
          const std::string name = kernel.name + "/" + name_of(dtype) + "/d" +
                                   std::to_string(head_dim) + "/N" + std::to_string(seq_len);
          benchmark::RegisterBenchmark(name.c_str(), run_benchmark, kernel, problem)
              ->UseManualTime()
              ->Unit(benchmark::kMillisecond);
        }
      }
    }
  }
}

}  // namespace
}  // namespace fa

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  fa::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
