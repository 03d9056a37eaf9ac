// Loads and stores as requests of a warp, and counts by line of source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/emulator/core/counters.h"  // IWYU pragma: export
#include "common/emulator/core/events.h"
#include "common/emulator/core/lane.h"  // IWYU pragma: export

namespace emu {

// Hands the accesses that the lanes in `mask` have logged to the counters, and forgets them.
void count_accesses(Warp& warp, uint32_t mask);

// A plain access of the current thread, told by its return address: what the compiler's hooks see.
void observe_access(const void* pointer, size_t bytes, bool write, bool is_volatile,
                    uintptr_t return_address);

// The counts of each place and kind, for the CTAs that an OS thread runs.
class LineTable {
 public:
  void add(const Event& event) {
    const Key key{event.place, event.kind};
    if (!last_ || last_->first != key) last_ = &*counts_.try_emplace(key).first;
    last_->second += event.counts;
  }
  void add(const LineTable& other) {
    for (const auto& [key, counts] : other.counts_) counts_[key] += counts;
  }
  void clear() {
    counts_.clear();
    last_ = nullptr;
  }

  // With names for the places, in the order of file, line and kind.
  std::vector<LineCounts> lines() const;

 private:
  struct Key {
    Place place;
    Kind kind;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      return (uintptr_t(key.place.file) + key.place.at * 32 + uint64_t(key.kind)) *
             0x9e3779b97f4a7c15u;
    }
  };
  std::unordered_map<Key, Counts, Hash> counts_;
  std::pair<const Key, Counts>* last_ = nullptr;  // of counts_: often the next one is for the same
};

}  // namespace emu
