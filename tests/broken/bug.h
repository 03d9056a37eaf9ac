// What is wrong with a broken kernel, and what must catch it: a table of bugs.toml. Sources of
// broken kernels include this in place of common/launch/registry.h or gradients.h.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

#include "common/launch/gradients.h"
#include "common/launch/problem.h"  // IWYU pragma: export
#include "common/launch/registry.h"
#include "common/ptx/barrier.h"

namespace fa::broken {

struct Bug {
  std::string name, kernel;
  std::string what;      // a sentence
  std::string shown_by;  // "ordinary inputs", "hard inputs", "report" or "counters"
  bool fp16;             // looked at in fp16 instead of bf16
  std::string problem;   // looked at on this, options of programs; empty: as problem_of says
  int sms;               // looked at on a GPU of so many SMs; 0: the emulator's own
  int launches;          // looked at in so many, one after the other with the same workspace

  // What the names of its kernel's bugs begin with: "02", or "causal" of beyond/causal.
  std::string family() const {
    const size_t folder = kernel.find('/');
    return folder == std::string::npos ? kernel.substr(0, 2) : kernel.substr(folder + 1);
  }
};

// Without it GoogleTest prints the bytes of a bug instead of its name.
inline void PrintTo(const Bug& bug, std::ostream* stream) { *stream << bug.name; }

// All of this program, by name.
std::vector<Bug>& bugs();

struct Declaration {
  explicit Declaration(Bug bug);
};

// A broken kernel is compiled for one head_dim, and mostly for one type: a quarter of the work for
// the compiler. causal and split_keys have a variant for tensors that are not contiguous, which is
// left out: in those two it is an eighth.
template <template <typename T, int kHeadDim> class Launcher, typename... Types>
struct Only {
  template <typename T, int kHeadDim>
  struct Of : Launcher<T, 128> {
    static void run(const auto& a) {  // Attention<T> or Gradients<T>
      if constexpr (kHeadDim == 128 && (std::is_same_v<T, Types> || ...)) {
        if (!a.contiguous) throw Unsupported("a broken kernel takes contiguous tensors only");
        Launcher<T, 128>::run(a);
      } else {
        throw Unsupported(kHeadDim == 128 ? "this broken kernel is compiled for the other type only"
                                          : "a broken kernel is compiled for head_dim 128 only");
      }
    }
    struct run_e4m3 {};  // instead of the launcher's function, which is not registered then
  };
};

}  // namespace fa::broken
