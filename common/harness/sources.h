// What files that are kept say of sources. They name a statement by its text and not by its line's
// number, because a comment above the statement does not change the text.
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

// The hash of the kernel's statements (scripts/fa_tools/sources.py). Empty for what is not in
// kernels/, and for all if no Python was there to compute it.
std::string source_of(const std::string& kernel);

}  // namespace fa
