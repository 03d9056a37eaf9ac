// What the golden probes share: deterministic inputs, and outputs as hashes that fit in a small
// file.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/harness/device.h"

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

// Prints one line a block of `block` elements: name, first element, FNV-1a hash of the bytes. With
// FA_PROBE_DUMP=folder the bytes go to folder/name as well, for looking at a difference.
template <typename T>
void print_hashes(const std::string& name, const std::vector<T>& values, size_t block) {
  if (const char* folder = getenv("FA_PROBE_DUMP")) {
    if (FILE* file = fopen((std::string(folder) + "/" + name).c_str(), "wb")) {
      fwrite(values.data(), sizeof(T), values.size(), file);
      fclose(file);
    }
  }
  for (size_t first = 0; first < values.size(); first += block) {
    const size_t last = std::min(values.size(), first + block);
    const auto* const bytes = reinterpret_cast<const unsigned char*>(values.data());
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = first * sizeof(T); i < last * sizeof(T); i++)
      hash = (hash ^ bytes[i]) * 0x100000001b3u;
    printf("%s %06zx %016llx\n", name.c_str(), first, static_cast<unsigned long long>(hash));
  }
}

}  // namespace fa::probe
