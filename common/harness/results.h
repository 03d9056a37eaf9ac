// Results for machines (JSON, bench/schema.json) and for people (a table).
#pragma once

#include <string>
#include <vector>

#include "common/harness/runner.h"

namespace fa {

// Writes the records as a results file: whole or not at all. `command`: the arguments, the program's
// name without its folder. Throws BadInput if the file cannot be written.
void write_results(const std::string& path, const std::vector<std::string>& command,
                   const Protocol& protocol, const std::vector<Record>& records);

// Prints a table of at most 100 columns. `color`: with ANSI colours.
void print_table(const Problem& problem, const std::vector<Record>& records, bool color);

}  // namespace fa
