// Results for people: a table.
#pragma once

#include <string>
#include <vector>

#include "common/harness/runner.h"
#include "common/launch/problem.h"

namespace fa {

// For people: 512, 67.1 M.
std::string with_unit(double value);

// Prints a table of at most 100 columns. `color`: with ANSI colours.
void print_table(const Problem& problem, const std::vector<Record>& records, bool color);

}  // namespace fa
