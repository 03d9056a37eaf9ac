// Comes before a kernel of kernels/next, whose source has the name that it will have in kernels: it
// registers the kernel as "16_max_free.next". CMake also renames the namespace, so that one program
// has both kernels.
#pragma once

#include <string>

#include "common/launch/registry.h"

namespace fa {

template <template <typename T, int kHeadDim> class Launcher>
class NextRegistration {
 public:
  explicit NextRegistration(const char* name, Needs needs = {}, Traits traits = Traits::kPlain,
                            Takes takes = {})
      : registration_((std::string(name) + std::string(kNext)).c_str(), needs, traits, takes) {}

 private:
  Registration<Launcher> registration_;
};

}  // namespace fa

#define Registration NextRegistration
