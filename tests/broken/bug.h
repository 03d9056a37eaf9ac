// What is wrong with a broken kernel, and what must catch it: a row of bugs.cmake. Sources of broken kernels
// include this in place of common/harness/registry.h.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "common/harness/registry.h"
#include "common/ptx/barrier.h"

namespace fa::broken {

struct Bug {
  std::string name, kernel;
  std::string what;                // a sentence
  std::vector<std::string> right;  // inputs on which the numbers are right
  bool right_early;                // on ordinary inputs too, if copies come early
  bool wrong_early;                // or none, where they are right if copies come late
  std::string stops;               // no wrong numbers, but launches that end with these words
  std::vector<std::string> found;  // by the checked build: its words, then texts of lines it names
  std::string counted;             // the counter that is far above the real kernel's
  bool fp16;                       // looked at in fp16 instead of bf16

  bool is_right_on(const std::string& inputs) const {
    return std::find(right.begin(), right.end(), inputs) != right.end();
  }
};

// All of this program, by name.
std::vector<Bug>& bugs();

struct Declaration {
  explicit Declaration(Bug bug);
};

// A broken kernel is compiled for one head_dim: half the work for the compiler.
template <template <typename T, int kHeadDim> class Launcher>
struct HeadDim128 {
  template <typename T, int kHeadDim>
  struct Of : Launcher<T, 128> {
    static void run(const Attention<T>& a) {
      if constexpr (kHeadDim == 128) {
        Launcher<T, 128>::run(a);
      } else {
        throw Unsupported("a broken kernel is compiled for head_dim 128 only");
      }
    }
  };
};

}  // namespace fa::broken
