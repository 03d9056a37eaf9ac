// Running one kernel: checked, timed or counted, checked again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/harness/device.h"
#include "common/harness/inputs.h"
#include "common/harness/oracle.h"
#include "common/launch/problem.h"
#include "common/launch/registry.h"

namespace fa {

// Which launches of a kernel are timed.
struct Timing {
  int warmup = 32;  // untimed launches before
  int iterations = 128;
  double max_seconds = 10.0;  // for one kernel: slow kernels get fewer launches, but at least one
  double idle_ms = 0;         // 0: sustained, launches queued one behind the other. Else burst: the
                              // GPU stands idle so long before every timed launch
  bool operator==(const Timing&) const = default;
};

struct Protocol : Timing {
  std::string name;  // in bench/protocols.json, unless something was changed
  int rounds = 1;    // in each, every kernel is timed once
  double rest_ms =
      0;  // before each of these times the GPU stands idle so long: no kernel meets the
          // clock that the one before left behind
  bool flush_l2 = false;    // before every timed launch, outside the timed interval
  int rotating_inputs = 1;  // sets of buffers that take turns, with the same values
  size_t workspace_limit = size_t(1) << 30;  // bytes
  std::string inputs = "normal";
  uint64_t seed = 1;
  bool operator==(const Protocol&) const = default;
};

enum class Status { kPassed, kWrong, kSkipped, kError };
const char* name_of(Status status);

// Milliseconds a launch, and the state of the GPU meanwhile, where the driver tells it.
struct Times {
  double median = 0, p10 = 0, p90 = 0, min = 0;
  int launches = 0;
  std::optional<double> clock_mhz, power_w;  // medians of samples while the timed launches ran
};
Times summarise(std::vector<double> milliseconds);
// Of several rounds: the median of what each gave; of min the least, of launches the fewest.
Times merge(const std::vector<Times>& rounds);

struct Record {
  std::string kernel;
  Problem problem;
  Status status = Status::kError;
  std::string reason;  // one sentence, unless passed
  std::optional<Comparison> comparison;
  std::vector<Times> rounds;   // on a GPU, of a kernel that passed, before and after each
  std::optional<Times> times;  // of all rounds
  int registers = 0;
  size_t shared_bytes = 0, local_bytes = 0, workspace_bytes = 0;
  LaunchCounts counts;             // on the emulator, of one launch
  std::vector<uint16_t> output;    // of the last launch
  std::optional<Library> library;  // of peers and ceilings
  const Ceiling* ceiling = nullptr;

  // At the median time; 0 if there is none, or nothing of the kind to count.
  double tflops() const {
    return times ? (ceiling ? ceiling->flops : problem.flops()) / times->median * 1e-9 : 0;
  }
  double gbytes_per_s() const {
    return times && ceiling ? ceiling->bytes / times->median * 1e-6 : 0;
  }
};

// Runs kernels on one problem, whose tensors it uploads once.
class Runner {
 public:
  // Makes the reference and uploads the inputs. Throws BackendError if memory does not suffice.
  Runner(const Problem& problem, const Inputs& inputs, const Protocol& protocol,
         int reference_rows_per_head = 512);

  // Poisons the outputs, launches with every set of buffers, compares with the reference. Never
  // throws for what a kernel does: that is the record's status.
  Record verify(const Kernel& kernel);

  // Warm-up and timed launches, without a check. Only on a GPU. Throws BackendError or Unsupported.
  Times time(const Kernel& kernel, const Timing& timing);

  // One round by the protocol for a kernel that passed so far: poisons the outputs, times, and
  // compares what the timed launches left. A record that does not pass loses its times.
  void add_round(const Kernel& kernel, Record& record);

  // verify, then add_round where time is measured.
  Record run(const Kernel& kernel);

  // One launch with a given set of buffers (0 <= set < rotating_inputs), for benchmarks that count
  // by themselves. Asynchronous. Throws as fa::run does.
  void launch(const Kernel& kernel, int set);

 private:
  struct Set {
    Buffer q, k, v, o;
  };
  Tensors tensors(const Kernel& kernel, int set);
  void poison_outputs();
  void check(int count, Record& record);

  Problem problem_;
  Protocol protocol_;
  std::vector<Set> sets_;
  std::optional<Buffer> l2_;         // larger than the L2: writing it evicts everything else
  std::optional<Buffer> workspace_;  // grows with what kernels ask for
  Reference reference_;
};

// Verifies the kernels, then times them in rounds (protocol.rounds) whose order moves on. `say` is
// told what is happening. Of the records only the last keeps its output.
std::vector<Record> measure(Runner& runner, const std::vector<const Kernel*>& chosen, int rounds,
                            const std::function<void(const std::string&)>& say);

}  // namespace fa
