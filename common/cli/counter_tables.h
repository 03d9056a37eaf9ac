// What the checked emulator counted, for people: by kind of instruction, and the lines of source
// that cost most.
#pragma once

#include <vector>

#include "common/harness/runner.h"

namespace fa {

// Prints, at most 100 columns wide, what the records that have lines did. `full`: a table for each
// of them, by kind, and its worst lines quoted; else one line each. Worst are those with the most
// wavefronts or sectors beyond the ideal. `file`: a results file has the rest of them.
void print_counters(const std::vector<Record>& records, bool full, bool file = true);

}  // namespace fa
