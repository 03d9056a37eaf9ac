// A loop over all cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace fa {

// Calls body(i) for every i < count, from as many threads as there are cores. The calls must not
// depend on each other and must not throw.
template <typename Body>
void parallel_for(size_t count, const Body& body) {
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i; (i = next++) < count;) body(i);
  };
  std::vector<std::thread> others;
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  for (size_t i = 1; i < std::min(cores, count); i++) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
}

}  // namespace fa
