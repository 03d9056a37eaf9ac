// Whether all that a CUDA graph does has its place in time before or after certain nodes of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace fa {

// A graph's nodes are numbered from 0, an edge goes from a node to one that waits for it. Returns
// how many nodes could run at the same time as a marked one: neither waits for the other, not even
// through others. (Where marked nodes could run at the same time, it may count others with them.)
inline size_t nodes_beside(const std::vector<bool>& marked,
                           const std::vector<std::pair<size_t, size_t>>& edges) {
  const size_t count = marked.size();
  std::vector<std::vector<size_t>> next(count);
  std::vector<size_t> waits_for(count);
  for (const auto& [from, to] : edges) {
    next[from].push_back(to);
    waits_for[to]++;
  }
  std::vector<size_t> order;  // each node after all that it waits for
  for (size_t node = 0; node < count; node++) {
    if (waits_for[node] == 0) order.push_back(node);
  }
  for (size_t i = 0; i < order.size(); i++) {
    for (const size_t to : next[order[i]]) {
      if (--waits_for[to] == 0) order.push_back(to);
    }
  }
  // Where the marked nodes are one chain, as they are if none is beside another, a node waits for
  // the first `before` of them, and those from `after` on wait for it.
  const auto marks = size_t(std::count(marked.begin(), marked.end(), true));
  std::vector<size_t> before(count, 0), after(count, marks);
  for (const size_t node : order) {
    const size_t known = before[node] + (marked[node] ? 1 : 0);
    for (const size_t to : next[node]) before[to] = std::max(before[to], known);
  }
  for (auto node = order.rbegin(); node != order.rend(); ++node) {
    for (const size_t to : next[*node])
      after[*node] = std::min(after[*node], marked[to] ? before[to] : after[to]);
  }
  size_t result = 0;
  for (size_t node = 0; node < count; node++)
    result += before[node] + (marked[node] ? 1 : 0) != after[node];
  return result;
}

}  // namespace fa
