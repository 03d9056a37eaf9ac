#include "common/emulator/units/shared_variables.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/emulator/core/memory.h"
#include "common/emulator/core/unit.h"

namespace emu {
namespace {

constexpr size_t kMostStatic = 48 * 1024;  // CUDA C++ Programming Guide, "Shared Memory"
constexpr size_t kMost = 227 * 1024;       // of compute capability 9.0

class SharedVariables : public Unit {
 public:
  explicit SharedVariables(const Cluster& cluster)
      : used_(cluster.ctas.size(), std::vector<size_t>(shared_variables().size())) {}

  void begin() override {
    for (std::vector<size_t>& of_cta : used_) of_cta.assign(of_cta.size(), 0);
  }

  void use(const Cta& cta, size_t offset, size_t bytes) {
    const std::vector<SharedVariable>& all = shared_variables();
    for (size_t i = 0; i < all.size(); i++) {
      if (all[i].offset == offset) used_[size_t(cta.rank)][i] = bytes;
    }
  }

  std::string complaint(const Cta& cta) override {
    size_t sum = 0;
    for (const size_t bytes : used_[size_t(cta.rank)]) sum += bytes;
    if (sum > kMostStatic) {
      return "its __shared__ variables have " + std::to_string(sum) + " bytes, but nvcc takes " +
             std::to_string(kMostStatic) + " at most: make some of them extern __shared__";
    }
    if (sum + cta.shared_bytes - cta.static_bytes > kMost) {
      return "it has more shared memory, static and dynamic, than the " + std::to_string(kMost) +
             " bytes that a CTA can have";
    }
    // The gaps between variables are still poison, unless something was written past an end.
    size_t at = 0;
    for (const SharedVariable& variable : shared_variables()) {
      for (; at < variable.offset; at++) {
        if (cta.shared[at] != kPoison) return "wrote " + describe_outside(address(cta, at), 1);
      }
      at = variable.offset + variable.bytes;
    }
    for (; at < cta.static_bytes; at++) {
      if (cta.shared[at] != kPoison) return "wrote " + describe_outside(address(cta, at), 1);
    }
    return "";
  }

 private:
  static uintptr_t address(const Cta& cta, size_t at) { return uintptr_t(cta.shared) + at; }

  std::vector<std::vector<size_t>> used_;  // [CTAs][variables]: bytes; 0: not used
};

const UnitOf<SharedVariables> shared_variables_of{5};

}  // namespace

void use_shared_variable(size_t offset, size_t bytes) {
  shared_variables_of().use(*current_lane->cta, offset, bytes);
}

}  // namespace emu
