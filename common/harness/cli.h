// The command line that every program shares.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/harness/runner.h"

namespace fa {

// Runs the program: parses the arguments, runs the kernels they name, prints a table, writes files.
// Returns the exit code: 0 all passed or skipped, 1 a wrong result, 2 bad arguments or files, 3 the
// back end failed.
int run_program(int argc, char** argv);

}  // namespace fa
