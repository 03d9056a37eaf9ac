// Tables for people: the results, and what the checked emulator counted.
#pragma once

#include <vector>

#include "common/harness/runner.h"  // IWYU pragma: export

namespace fa {

// Prints a table of at most 100 columns. `color`: with ANSI colours.
void print_table(const Problem& problem, const std::vector<Record>& records, bool color);

// Prints, at most 100 columns wide, what the records that have lines did. `full`: a table for each
// of them, by kind of instruction, and its worst lines quoted; else one line each. Worst are those
// with the most wavefronts or sectors beyond the ideal. `file`: a results file has the rest of
// them.
void print_counters(const std::vector<Record>& records, bool full, bool file = true);

}  // namespace fa
