// A loop over all cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace fa {

// Calls body(i) for every i < count, from as many threads as there are cores, or from fewer where
// the system refuses more threads. The calls must not depend on each other. If one throws, no
// further call begins, and parallel_for throws the first exception once every thread has ended.
template <typename Body>
void parallel_for(size_t count, const Body& body) {
  std::atomic<size_t> next{0};
  std::atomic_flag failed;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (size_t i; !failed.test() && (i = next++) < count;) body(i);
    } catch (...) {
      if (!failed.test_and_set()) failure = std::current_exception();
    }
  };
  {
    const size_t cores = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::jthread> others;  // joined at the end of this block, however it is left
    others.reserve(cores);
    try {
      while (others.size() + 1 < std::min(cores, count)) others.emplace_back(work);
    } catch (const std::system_error&) {  // the threads that have started do the work
    }
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace fa
