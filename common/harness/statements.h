// Statements of the source in place of line numbers. Files that are kept name a statement by its
// text, which a comment above it does not change.
#pragma once

#include <string>
#include <vector>

#include "common/emulator/core/counters.h"

namespace fa {

struct Place {
  std::string file;       // "kernels/08_swizzle.cu", empty if the program does not know its lines
  std::string statement;  // "acc_o[i] *= rescale;", empty if the source cannot tell
};

// The statement in which a line of a source lies, without its comments and line breaks. `at`:
// "kernels/08_swizzle.cu:76". Looks for the file from the current folder and from the program's
// folder upwards. A file that has changed since the program was built no longer tells what its
// lines were.
Place place_of(const std::string& at);

// What the instructions of one kind in one statement did.
struct StatementCounts {
  Place place;
  emu::Kind kind;
  emu::Counts counts;
};

// The sums over the lines of each statement, in the order of the lines. Statements of one file with
// the same text are summed.
std::vector<StatementCounts> by_statement(const std::vector<emu::LineCounts>& lines);

}  // namespace fa
