// What is wrong with a broken kernel, and how it shows: a row of bugs.cmake.
#pragma once

#include <string>
#include <vector>

namespace fa::broken {

struct Bug;
inline std::vector<Bug>& bugs();

struct Bug {
  std::string name, kernel, caught_by, missed_by;
  Bug(const char* name_, const char* kernel_, const char* caught_by_, const char* missed_by_)
      : name(name_), kernel(kernel_), caught_by(caught_by_), missed_by(missed_by_) {
    bugs().push_back(*this);
  }
};

inline std::vector<Bug>& bugs() {
  static std::vector<Bug> list;
  return list;
}

}  // namespace fa::broken
