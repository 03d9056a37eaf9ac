#include "tests/broken/bug.h"
#include <algorithm>
#include <utility>
#include <vector>

namespace fa::broken {

std::vector<Bug>& bugs() {
  static std::vector<Bug> list;
  return list;
}

Declaration::Declaration(Bug bug) {
  auto& list = bugs();
  const auto after = [](const Bug& a, const Bug& b) { return a.name < b.name; };
  list.insert(std::upper_bound(list.begin(), list.end(), bug, after), std::move(bug));
}

}  // namespace fa::broken
