// The command line: which kernels run, on which problems, how they are measured, and which files
// are written.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/cli/trace_option.h"
#include "common/harness/device.h"   // IWYU pragma: export
#include "common/harness/runner.h"   // IWYU pragma: export
#include "common/launch/problem.h"   // IWYU pragma: export
#include "common/launch/registry.h"  // IWYU pragma: export

namespace fa {

struct Request {
  std::vector<const Kernel*> kernels;
  std::vector<Problem> problems;
  Protocol protocol;
  BackendOptions backend;
  TraceOptions trace;
  std::string json;  // a file to write, or empty
  bool no_counters = false, full_counters = false;
  bool default_shape = false;  // nothing says how many tokens and heads there are
  bool list = false;           // instead of a run
};

// What the arguments ask for, as far as it can be checked before anything runs. Nothing: they asked
// for help, which has been printed. Throws BadInput.
std::optional<Request> read_command_line(int argc, char** argv);

}  // namespace fa
