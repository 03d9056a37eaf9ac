// How every program and script prints the JSON that is kept: one record a line, so that one changed
// measurement is one changed line. scripts/fa_tools/tools.py has the same writer in Python.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace fa {

// The value as JSON with a line break at the end. An object that holds a list of objects has a line
// for each of its keys, and such a list one for each element; everything else, and any object
// within with a "kernel", is on one line.
std::string lines_of(const nlohmann::ordered_json& value);

}  // namespace fa
