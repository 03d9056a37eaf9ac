// Files that programs write: whole or not at all.
#pragma once

#include <string>

#include "common/harness/json.h"  // IWYU pragma: export

namespace fa {

// A device, a pipe or a folder: reading it may never end, or never begin, and it cannot be
// replaced.
bool is_special(const std::string& path);

// Throws BadInput if write_file_whole could not make its file: to be asked before work that takes
// long.
void check_writable(const std::string& path);

// Whether writing one would replace the other; never of devices and pipes.
bool same_file(const std::string& a, const std::string& b);

// Writes `contents` to `path`, whole or not at all: to a temporary file beside it, then renamed.
// (What is not an ordinary file, such as /dev/stdout, is written to directly.)
// Throws BadInput with the reason (no such folder, no permission, disk full).
void write_file_whole(const std::string& path, const std::string& contents);

// The value as JSON, as every program and script prints what is kept: one record a line, so that
// one changed measurement is one changed line. An object that holds a list of objects has a line
// for each of its keys, and such a list one for each element; everything else, and any object
// within with a "kernel", is on one line. scripts/fa_tools/tools.py has the same in Python.
std::string lines_of(const Json& value);

}  // namespace fa
