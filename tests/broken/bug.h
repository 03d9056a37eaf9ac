// What is wrong with a broken kernel, and what must catch it: a table of bugs.toml. Sources of
// broken kernels include this in place of common/launch/registry.h.
#pragma once

#include <algorithm>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/launch/problem.h"
#include "common/launch/registry.h"
#include "common/ptx/barrier.h"

namespace fa::broken {

struct Bug {
  std::string name, kernel;
  std::string what;                     // a sentence
  std::vector<std::string> right;       // inputs on which the numbers are right
  std::string early;                    // "right" or "wrong" if copies come early, or ""
  std::string stops;                    // no wrong numbers, but launches that end with these words
  std::string found;                    // words of the checked build's report
  std::vector<std::pair<int, int>> at;  // first and last line of each statement that it names
  std::string counted;                  // the counter that is far above the real kernel's
  bool fp16;                            // looked at in fp16 instead of bf16
  int heads, seq_len;                   // looked at with these; 0: as problem_of says

  bool is_right_on(const std::string& inputs) const {
    return std::find(right.begin(), right.end(), inputs) != right.end();
  }
};

// Without it GoogleTest prints the bytes of a bug instead of its name.
inline void PrintTo(const Bug& bug, std::ostream* stream) { *stream << bug.name; }

// All of this program, by name.
std::vector<Bug>& bugs();

struct Declaration {
  explicit Declaration(Bug bug);
};

// A broken kernel is compiled for one head_dim and mostly for one type: a quarter of the work for
// the compiler.
template <template <typename T, int kHeadDim> class Launcher, typename... Types>
struct Only {
  template <typename T, int kHeadDim>
  struct Of : Launcher<T, 128> {
    static void run(const Attention<T>& a) {
      if constexpr (kHeadDim == 128 && (std::is_same_v<T, Types> || ...)) {
        Launcher<T, 128>::run(a);
      } else {
        throw Unsupported(kHeadDim == 128 ? "this broken kernel is compiled for the other type only"
                                          : "a broken kernel is compiled for head_dim 128 only");
      }
    }
  };
};

}  // namespace fa::broken
