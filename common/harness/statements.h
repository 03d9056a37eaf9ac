// Statements of the source in place of line numbers. Files that are kept name a statement by its
// text, which a comment above it does not change.
#pragma once

#include <string>

namespace fa {

struct Place {
  std::string file;       // "kernels/08_swizzle.cu", empty if the program does not know its lines
  std::string statement;  // "acc_o[i] *= rescale;", empty if the source cannot tell
  bool operator==(const Place&) const = default;
};

// The statement in which a line of a source lies, without its comments and line breaks. `at`:
// "kernels/08_swizzle.cu:76". Looks for the file from the current folder and from the program's
// folder upwards. A file that has changed since the program was built no longer tells what its
// lines were.
Place place_of(const std::string& at);

}  // namespace fa
