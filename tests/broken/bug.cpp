#include "tests/broken/bug.h"

namespace fa::broken {

Bug::Bug(const char* name_, const char* kernel_, const char* caught_by_, const char* missed_by_,
         std::vector<std::string> found_)
    : name(name_),
      kernel(kernel_),
      caught_by(caught_by_),
      missed_by(missed_by_),
      found(std::move(found_)) {
  bugs().push_back(*this);
}

std::vector<Bug>& bugs() {
  static std::vector<Bug> list;
  return list;
}

}  // namespace fa::broken
