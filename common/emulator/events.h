// How instructions report what they do: every one of the emulator calls record(), which tells whoever listens.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/emulator/counters.h"
#include "common/emulator/lane.h"

namespace emu {

// Where in the kernel an instruction stands: in a line of source, or at an address of the program's code.
struct Place {
  const char* file;  // null: `at` is an address
  uint64_t at;       // line, or address
  Place(SourceLocation where) : file(where.file), at(where.line) {}
  explicit Place(uintptr_t program_counter) : file(nullptr), at(program_counter) {}
  bool operator==(const Place&) const = default;
};

// One instruction of a warp (of exponentials and, in the fast build, cp.async: of one lane).
struct Event {
  Kind kind;
  uint32_t mask;  // the lanes that take part
  Place place;
  Counts counts;
};

// Counts by place and kind, of the CTAs that an OS thread runs.
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

// Adds an event to the totals. What touches global memory has sectors, what touches shared memory wavefronts.
inline void add_event(Counters& totals, const Event& event) {
  const Counts& counts = event.counts;
  if (counts.sectors > 0) {
    totals.global_requests += counts.requests;
    totals.global_sectors += counts.sectors;
    totals.global_sectors_ideal += counts.sectors_ideal;
    totals.global_bytes += counts.bytes;
  }
  if (counts.wavefronts > 0) {
    totals.shared_requests += counts.requests;
    totals.shared_wavefronts += counts.wavefronts;
    totals.shared_wavefronts_ideal += counts.wavefronts_ideal;
  }
  totals.matrix_flops += counts.flops;
  switch (event.kind) {
    case Kind::kLdmatrix:
      totals.ldmatrix += counts.requests;
      break;
    case Kind::kStmatrix:
      totals.stmatrix += counts.requests;
      break;
    case Kind::kCpAsync:
      totals.async_copies += uint64_t(std::popcount(event.mask));
      break;
    case Kind::kMma16816:
    case Kind::kMma1688:
    case Kind::kWgmma:
      totals.matrix_products += counts.requests;
      break;
    case Kind::kWmma:
      totals.matrix_products += 2 * counts.requests;
      break;
    case Kind::kExp2:
      totals.exp2 += counts.operations;
      break;
    case Kind::kBarrier:
      totals.barriers += counts.requests;
      totals.barrier_waits += counts.waits;
      break;
    case Kind::kShuffle:
      totals.shuffles += counts.requests;
      break;
    case Kind::kVote:
      totals.votes += counts.requests;
      break;
    case Kind::kSyncwarp:
      totals.syncwarps += counts.requests;
      break;
    case Kind::kGlobalLoad:
    case Kind::kGlobalStore:
    case Kind::kSharedLoad:
    case Kind::kSharedStore:
    case Kind::kWmmaLoad:
    case Kind::kWmmaStore:
    case Kind::kTmaLoad:
    case Kind::kTmaStore:
    case Kind::kMbarrier:
      break;
  }
}

// The recorder's part of record() (trace.cpp).
void trace_event(Trace& trace, const Warp& warp, const Event& event);

inline void record(Warp& warp, const Event& event) {
  Cta& cta = *warp.lanes->cta;
  add_event(cta.counters, event);
  if (cta.lines) cta.lines->add(event);
  if (cta.trace) trace_event(*cta.trace, warp, event);
}

}  // namespace emu
