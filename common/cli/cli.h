// The command line that every program shares.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace fa {

// The program's base name and its arguments, for results files: of file names, which may name this
// machine's folders, only the last part.
std::vector<std::string> command_of(int argc, char** argv);

// Runs `body` and returns its exit code; prints what it throws as one sentence, with exit code 2
// (bad arguments or files, no memory, a standard output that cannot be written) or 3 (the back end
// failed).
int with_exit_code(const std::function<int()>& body);

// Runs the program: parses the arguments, runs the kernels they name, prints a table, writes files.
// Returns the exit code: 0 all passed or skipped, 1 a wrong result, 2 bad arguments or files, 3 the
// back end failed.
int run_program(int argc, char** argv);

}  // namespace fa
