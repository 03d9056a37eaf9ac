// What is wrong with a broken kernel, and how it shows: a row of bugs.cmake.
#pragma once

#include <string>
#include <vector>

namespace fa::broken {

struct Bug {
  std::string name, kernel, caught_by, missed_by;
  std::vector<std::string> found;  // by the checked build: its words, then texts of lines it names
  Bug(const char* name_, const char* kernel_, const char* caught_by_, const char* missed_by_,
      std::vector<std::string> found_);
};

// All of this program.
std::vector<Bug>& bugs();

}  // namespace fa::broken
