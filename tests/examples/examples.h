// Small kernels that docs/appendix/synchronisation.md shows, and what they must give.
#pragma once

#include <functional>
#include <vector>  // IWYU pragma: export

namespace fa {

struct Example {
  const char* name;
  int ctas, threads;  // the CTAs are one cluster
  int count;          // numbers that it writes to out
  void (*start)(int ctas, int threads, const float* in, float* out);
  std::function<float(int i)> expected;
};

namespace as_it_is {
std::vector<Example> examples();
}
namespace left_out {  // the same without the lines that end in "// <-"
std::vector<Example> examples();
}

}  // namespace fa
