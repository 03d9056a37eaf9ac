// Running one kernel: checked, timed or counted, each timed launch checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/harness/changes.h"
#include "common/harness/device.h"  // IWYU pragma: export
#include "common/harness/inputs.h"  // IWYU pragma: export
#include "common/harness/oracle.h"  // IWYU pragma: export
#include "common/launch/gradients.h"
#include "common/launch/problem.h"   // IWYU pragma: export
#include "common/launch/registry.h"  // IWYU pragma: export

namespace fa {

// Which launches of a kernel are timed.
struct Timing {
  int warmup = 32;  // untimed launches before
  int iterations = 128;
  int in_a_row =
      1;  // launches that are timed together, on the same inputs: a step of a decoder has
          // dozens, without a pause
  double max_seconds = 10.0;  // for one kernel: slow kernels get fewer launches, but at least one
  double rest_ms = 0;  // before the warm-up the GPU stands idle so long: no kernel meets the clock
                       // that the one before left behind
  double load_ms = 0;  // before the timed launches the kernel runs so long without a pause
  bool operator==(const Timing&) const = default;
};

// Two regimes. A burst: launches after a rest and a short warm-up, on a GPU that is still cool.
// Under load: after seconds without a pause, when a GPU at its power limit has lowered its clock.
struct Protocol : Timing {
  std::string name;         // in bench/protocols.json, unless something was changed
  int rounds = 1;           // of bursts; in each, every kernel is timed once
  double load_seconds = 0;  // before the launches that are timed under load; 0: there are none
  bool flush_l2 = false;    // before every timed launch, outside the timed interval
  int rotating_inputs = 1;  // sets of buffers that take turns
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
  // For a kernel in FP8: how long rounding Q, K and V takes before each launch, the median.
  std::optional<double> rounding;
};
Times summarise(std::vector<double> milliseconds);
// Several rounds as one: the median of what each gave, the least min, the fewest launches.
Times merge(const std::vector<Times>& rounds);

struct Record {
  std::string kernel;
  Problem problem;
  Status status = Status::kError;
  std::string reason;  // one sentence, unless passed
  std::optional<Comparison> comparison;
  // On a GPU, of a kernel that passed, before and after each round: the rounds and all together,
  // of bursts and under load.
  std::vector<Times> rounds, loaded_rounds;
  std::optional<Times> times, loaded;
  int registers = 0;
  size_t shared_bytes = 0, local_bytes = 0, workspace_bytes = 0;
  LaunchCounts counts;             // on the emulator, of one launch
  std::vector<uint16_t> output;    // of the last launch
  std::optional<Library> library;  // of peers and ceilings
  const Ceiling* ceiling = nullptr;

  // At the median time; 0 if there is none, or nothing of the kind to count.
  double tflops(const std::optional<Times>& of) const {
    return of ? (ceiling ? ceiling->flops : problem.flops()) / of->median * 1e-9 : 0;
  }
  double gbytes_per_s(const std::optional<Times>& of) const {
    return of && ceiling ? ceiling->bytes / of->median * 1e-6 : 0;
  }
};

// What a timed launch gave is not what its inputs give: one sentence.
struct WrongLaunch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Runs kernels on one problem, whose tensors it uploads once.
class Runner {
 public:
  // Makes the reference and uploads the inputs. Throws BackendError if memory does not suffice.
  Runner(const Problem& problem, const Inputs& inputs, const Protocol& protocol,
         int reference_rows_per_head = 512);

  // Poisons the outputs, launches with every set of buffers, compares with the reference: O, and
  // log-sum-exp, which every kernel that can give it is asked for, also where it is timed. Never
  // throws for what a kernel does: that is the record's status.
  Record verify(const Kernel& kernel);

  // The same of a kernel of gradients, from the inputs of the constructor: dO is random, and O and
  // log-sum-exp are what they must be. The record has no output.
  Record verify(const GradientKernel& gradients, const Inputs& inputs);

  // Warm-up and timed launches, all from a CUDA graph. Before each timed launch the inputs change
  // and the output becomes NaN, and what the kernel prepares is prepared; after it the output is
  // checked (changes.h), all outside the timed interval. Only on a GPU. Throws BackendError,
  // Unsupported or WrongLaunch.
  Times time(const Kernel& kernel, const Timing& timing);

  // One round by the protocol for a kernel that passed so far. A record that does not pass loses
  // its times.
  void add_round(const Kernel& kernel, Record& record, bool under_load = false);

  // verify, then add_round where time is measured.
  Record run(const Kernel& kernel);

  // One launch with a given set of buffers (0 <= set < rotating_inputs), for benchmarks that count
  // by themselves: fa::run, or run_prepared alone. Asynchronous. Throws as fa::run does.
  using Parts = void (*)(const Kernel&, const Problem&, const Tensors&);
  void launch(const Kernel& kernel, int set, Parts parts = &fa::run);

 private:
  struct Set {
    Buffer q, k, v, o, lse;
  };
  Tensors tensors(const Kernel& kernel, int set);
  Originals originals() const;
  Originals to_check() const;  // what O is computed from
  void change(int set, uint64_t nonce);
  OutputRows output_rows(const Kernel& kernel, int set);
  // The output is NaN until it is written, unless a peer has it in memory of its own.
  void poison(const Kernel& kernel, int set) {
    sets_[size_t(set)].o.poison();
    if (kernel.takes.lse) sets_[size_t(set)].lse.poison();
  }
  // Compares the output of the latest launch, which was with this set and the original inputs, with
  // the reference. A ceiling has none: it checks itself, by a launch.
  void check(const Kernel& kernel, int set, Record& record);

  Problem problem_;
  Protocol protocol_;
  std::vector<HeadRows> heads_;
  // The inputs as they were made, and the pages of the keys: no kernel has their addresses.
  Buffer original_q_, original_k_, original_v_;
  std::optional<Buffer> original_table_;
  std::vector<Buffer> fp8_;  // Q, K and V of a problem in FP8, rounded, for checks
  std::vector<Set> sets_;
  std::optional<Buffer> cu_seqlens_q_, cu_seqlens_kv_;  // of packed sequences
  std::optional<Buffer> block_table_, kv_lens_;         // of a problem with pages
  std::optional<Buffer> sinks_, alibi_slopes_;          // where the problem has them
  Inputs of_heads_;                                     // these alone, for checks
  std::optional<Buffer> l2_;         // larger than the L2: writing it evicts everything else
  std::optional<Buffer> workspace_;  // grows with what kernels ask for
  std::string workspace_of_;         // the kernel that used it last
  std::optional<Buffer> gathered_;   // the output of a peer that has it elsewhere
  Reference reference_;
};

// Told what is happening, and how many of how many steps are done. What it throws ends measure().
using Say = std::function<void(const std::string& what, int done, int steps)>;

// Verifies the kernels, then times them in the protocol's rounds: of bursts, then two under load,
// if there are any. Two rounds go there and back, so that what changes steadily with time meets all
// alike; the next two begin elsewhere. Of the records only the last keeps its output.
std::vector<Record> measure(Runner& runner, const std::vector<const Kernel*>& chosen,
                            const Protocol& protocol, const Say& say);

}  // namespace fa
