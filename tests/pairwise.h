// Test cases that cover all pairs: whatever two factors have, some case has together. Most bugs
// need one or two particular values to show, and the number of such cases grows with the two
// largest factors only.
#pragma once

#include <cstddef>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace fa::test {

// `levels[f]` is the number of values of factor f. Each row of the result has one value a factor.
// Greedy: a row starts from a pair that is not covered yet and takes, factor by factor, the value
// that covers most new pairs. The same rows everywhere.
inline std::vector<std::vector<int>> pairwise(const std::vector<int>& levels) {
  using Pair =
      std::tuple<size_t, int, size_t, int>;  // factor and value, twice; the first factor is lower
  std::set<Pair> open;
  for (size_t f = 0; f < levels.size(); f++) {
    for (size_t g = f + 1; g < levels.size(); g++) {
      for (int a = 0; a < levels[f]; a++) {
        for (int b = 0; b < levels[g]; b++) open.insert({f, a, g, b});
      }
    }
  }
  auto pair_of = [](size_t f, int a, size_t g, int b) {
    return f < g ? Pair{f, a, g, b} : Pair{g, b, f, a};
  };
  std::vector<std::vector<int>> rows;
  while (!open.empty()) {
    std::vector<int> row(levels.size(), -1);
    const auto [f, a, g, b] = *open.begin();
    row[f] = a;
    row[g] = b;
    for (size_t h = 0; h < levels.size(); h++) {
      if (row[h] >= 0) continue;
      int best = -1, best_gain = -1;
      for (int turn = 0; turn < levels[h]; turn++) {
        const int value =
            (turn + int(rows.size())) % levels[h];  // ties: another value in every row
        int gain = 0;
        for (size_t other = 0; other < levels.size(); other++) {
          if (other != h && row[other] >= 0)
            gain += int(open.count(pair_of(h, value, other, row[other])));
        }
        if (gain > best_gain) {
          best = value;
          best_gain = gain;
        }
      }
      row[h] = best;
    }
    for (size_t h = 0; h < levels.size(); h++) {
      for (size_t other = h + 1; other < levels.size(); other++)
        open.erase({h, row[h], other, row[other]});
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace fa::test
