// What the golden probes share: deterministic inputs, and outputs as hashes that fit in a small
// file.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <ios>
// IWYU pragma: begin_exports
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/harness/device.h"
#include "common/launch/launch.h"
// IWYU pragma: end_exports

namespace fa::probe {

// Whole numbers only: the same on every platform.
struct Random {
  uint64_t state;
  uint32_t next() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return uint32_t(state >> 33);
  }
};

template <typename T>
Buffer upload(const char* name, const std::vector<T>& values) {
  Buffer buffer(name, values.size() * sizeof(T));
  buffer.upload(values.data());
  return buffer;
}

template <typename T>
std::vector<T> download(const Buffer& buffer) {
  std::vector<T> values(buffer.size() / sizeof(T));
  buffer.download(values.data());
  return values;
}

// An argument of a kernel; of a buffer its memory, as the pointer that the kernel takes.
template <typename T>
const T& argument(const T& value) {
  return value;
}
struct Memory {
  void* data;
  template <typename T>
  operator T*() const {
    return static_cast<T*>(data);
  }
};
inline Memory argument(const Buffer& buffer) { return {buffer.data()}; }

// Launches a kernel and waits for it.
template <auto kKernel, typename... Arguments>
void run(const LaunchShape& shape, const Arguments&... arguments) {
  launch<kKernel>(shape, argument(arguments)...);
  synchronize();
}

// FNV-1a.
inline unsigned long long hash(const void* data, size_t bytes) {
  uint64_t result = 0xcbf29ce484222325u;
  for (size_t i = 0; i < bytes; i++)
    result = (result ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3u;
  return result;
}

// With FA_PROBE_DUMP=folder the bytes go to folder/name, for looking at a difference.
template <typename T>
void dump(const std::string& name, const std::vector<T>& values) {
  const char* const folder = getenv("FA_PROBE_DUMP");
  if (folder == nullptr) return;
  std::ofstream(std::string(folder) + "/" + name, std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()),
             std::streamsize(values.size() * sizeof(T)));
}

// Prints one line a block of `block` elements: name, first element, hash of the bytes.
template <typename T>
void print_hashes(const std::string& name, const std::vector<T>& values, size_t block) {
  dump(name, values);
  for (size_t first = 0; first < values.size(); first += block) {
    const size_t count = std::min(block, values.size() - first);
    printf("%s %06zx %016llx\n", name.c_str(), first, hash(&values[first], count * sizeof(T)));
  }
}

}  // namespace fa::probe
