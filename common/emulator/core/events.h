// How instructions report what they do: every one of the emulator calls record(), which tells
// whoever listens.
#pragma once

#include <bit>
#include <cstdint>

#include "common/emulator/core/counters.h"  // IWYU pragma: export
#include "common/emulator/core/lane.h"      // IWYU pragma: export
#include "common/emulator/core/watch.h"     // IWYU pragma: export

namespace emu {

// The place of an instruction in the kernel: a line of source, or an address of the program's code.
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

// Adds an event to the totals. An event that touches global memory has sectors, one that touches
// shared memory wavefronts.
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
    case Kind::kMma16832:
    case Kind::kWgmma:
    case Kind::kWgmmaFp8:
      totals.matrix_products += counts.requests;
      break;
    case Kind::kWmma:
    case Kind::kWmmaOther:
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
    case Kind::kTmaReduce:
    case Kind::kMbarrier:
    case Kind::kGlobalAtomic:
    case Kind::kSharedAtomic:
      break;
  }
}

inline void record(Warp& warp, const Event& event) {
  Cta& cta = *warp.lanes->cta;
  add_event(cta.counters, event);
  if (cta.checks) cta.checks->count(event);
  if (cta.recorder) cta.recorder->event(warp, event);
}

}  // namespace emu
