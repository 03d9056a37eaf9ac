// What launch() has asked the driver about kernels, and what it has allowed them.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace fa {

// A kernel has attributes of its own on every device, and only there may it have the shared memory
// that was allowed.
template <typename Attributes>
class KnownKernels {
 public:
  // The kernel's attributes on the device, ready for a launch with so many bytes of shared memory:
  // allow() is called unless it has succeeded there for as many bytes, read() unless it has
  // succeeded there. Throws what these throw.
  template <typename Allow, typename Read>
  Attributes prepare(int device, const void* kernel, size_t shared_bytes, const Allow& allow,
                     const Read& read) {
    const std::lock_guard lock(mutex_);
    Known& known = known_[{device, kernel}];
    if (known.allowed_bytes < shared_bytes) {
      allow();
      known.allowed_bytes = shared_bytes;
    }
    if (!known.attributes) known.attributes = read();
    return *known.attributes;
  }

 private:
  struct Known {
    size_t allowed_bytes = 0;  // 0: any device allows it
    std::optional<Attributes> attributes;
  };
  std::mutex mutex_;
  std::map<std::pair<int, const void*>, Known> known_;
};

}  // namespace fa
