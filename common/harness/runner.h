// Running one kernel: checked, timed or counted, checked again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/harness/inputs.h"
#include "common/harness/oracle.h"
#include "common/harness/registry.h"

namespace fa {

struct Protocol {
  int warmup = 32;
  int iterations = 128;
  bool flush_l2 = false;      // before every timed launch, outside the timed interval
  int rotating_inputs = 1;    // sets of buffers that take turns, with the same values
  double max_seconds = 10.0;  // for the timed launches of one kernel: slow kernels get fewer
  size_t workspace_limit = size_t(1) << 30;  // bytes
  std::string inputs = "normal";
  uint64_t seed = 1;
};

enum class Status { kPassed, kWrong, kSkipped, kError };
const char* name_of(Status status);

// Milliseconds a launch.
struct Times {
  double median = 0, p10 = 0, p90 = 0, min = 0;
  int launches = 0;
};
Times summarise(std::vector<double> milliseconds);

struct Record {
  std::string kernel;
  Problem problem;
  Status status = Status::kError;
  std::string reason;  // one sentence, unless passed
  std::optional<Comparison> comparison;
  std::optional<Times> times;  // on a GPU, of kernels that passed before and after
  int registers = 0;
  size_t shared_bytes = 0, local_bytes = 0, workspace_bytes = 0;
  std::vector<std::pair<std::string, uint64_t>> counters;  // on the emulator, of one launch
  std::vector<uint16_t> output;                            // of the last launch

  double tflops() const { return times ? problem.flops() / times->median * 1e-9 : 0; }
};

// Runs kernels on one problem, whose tensors it uploads once.
class Runner {
 public:
  // Makes the reference and uploads the inputs. Throws BackendError if memory does not suffice.
  Runner(const Problem& problem, const Inputs& inputs, const Protocol& protocol,
         int reference_rows_per_head = 512);
  ~Runner();

  // Never throws for what a kernel does: that is the record's status.
  Record run(const Kernel& kernel);

  // One launch with a given set of buffers (0 <= set < rotating_inputs), for benchmarks that count by
  // themselves. Asynchronous. Throws as fa::run does.
  void launch(const Kernel& kernel, int set);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fa
