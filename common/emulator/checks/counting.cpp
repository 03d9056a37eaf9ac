// The accesses of single lanes become requests of a warp, and these are counted in sectors and
// wavefronts.
#include "common/emulator/checks/counting.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/emulator/core/events.h"
#include "common/emulator/core/memory.h"
#include "common/emulator/core/wavefronts.h"

namespace emu {
namespace {

using Request = std::array<const MemoryAccess*, kWarpSize>;  // null: the lane takes no part

uint32_t lanes_of(const Request& request) {
  uint32_t lanes = 0;
  for (size_t i = 0; i < request.size(); i++) lanes |= uint32_t(request[i] != nullptr) << i;
  return lanes;
}

// A sector is a 32-byte piece of global memory. A request counts every sector that it touches once,
// however many lanes share it. The ideal is the number of sectors that the touched bytes would fill
// side by side: 32 neighbouring floats touch 4 of 4, 32 floats 128 bytes apart touch 32 of 4, and
// one float for all lanes touches 1 of 1.
// A cp.async counts a sector once for each 128-byte line of shared memory that it goes to, because
// an H200 fetches it for each. In rows with 16 bytes of padding such a sector ends each line of
// every other row; rows with none or with 32 bytes have none (07_cp_async, kPad = 8, 0, 16).
class Sectors {
 public:
  void add(uintptr_t address, uint32_t bytes, uintptr_t line = 0) {
    for (const uintptr_t end = address + bytes; address < end;) {
      const uintptr_t number = address / 32, first = address % 32;
      const uintptr_t count = std::min<uintptr_t>(32 - first, end - address);
      size_t i = 0;
      while (i < count_ && (numbers_[i] != number || lines_[i] != line)) i++;
      if (i == numbers_.size()) return;
      if (i == count_) {
        numbers_[count_] = number;
        lines_[count_] = line;
        touched_[count_++] = 0;
      }
      touched_[i] |= uint32_t(((uint64_t(1) << count) - 1) << first);
      address += count;
    }
  }
  uint64_t actual() const { return count_; }
  uint64_t cache_lines() const {  // of four sectors
    std::array<uintptr_t, kWarpSize * 2> lines;
    const auto end = std::transform(numbers_.begin(), numbers_.begin() + count_, lines.begin(),
                                    [](uintptr_t number) { return number / 4; });
    std::sort(lines.begin(), end);
    return uint64_t(std::unique(lines.begin(), end) - lines.begin());
  }
  uint64_t ideal() const {
    int bytes = 0;
    for (size_t i = 0; i < count_; i++) bytes += std::popcount(touched_[i]);
    return uint64_t(bytes + 31) / 32;
  }

 private:
  std::array<uintptr_t, kWarpSize * 2> numbers_;  // 16 bytes lie in one or, misaligned, in two
  std::array<uintptr_t, kWarpSize * 2> lines_;    // of shared memory, which each goes to
  std::array<uint32_t, kWarpSize * 2> touched_;   // bytes of each
  size_t count_ = 0;
};

// The usual case, quickly: the lanes access bytes that lie side by side. False: they do not.
bool count_side_by_side(const Request& request, uint32_t mask, Counts& counts) {
  const MemoryAccess& first = *request[size_t(std::countr_zero(mask))];
  uintptr_t end = first.address;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    const MemoryAccess& access = *request[size_t(std::countr_zero(rest))];
    if (access.address != end || access.bytes != first.bytes) return false;
    end += first.bytes;
  }
  counts.bytes = end - first.address;
  counts.sectors = (end - 1) / 32 - first.address / 32 + 1;
  counts.sectors_ideal = (counts.bytes + 31) / 32;
  counts.cache_lines = (end - 1) / 128 - first.address / 128 + 1;
  return true;
}

void record_request(Warp& warp, const Request& request, uint32_t mask) {
  const auto first = size_t(std::countr_zero(mask));
  const MemoryAccess& any = *request[first];
  const bool copy = any.kind == Kind::kCpAsync;
  const bool in_shared = any.kind == Kind::kSharedLoad || any.kind == Kind::kSharedStore ||
                         any.kind == Kind::kSharedAtomic;
  const bool in_global = any.kind == Kind::kGlobalLoad || any.kind == Kind::kGlobalStore ||
                         any.kind == Kind::kGlobalAtomic;
  Event event{any.kind, mask, Place(any.program_counter), {.requests = 1}};
  const AccessDetails* const details = warp.lanes[first].details_of(any);
  if (details && details->where.line > 0) event.place = details->where;
  Counts& counts = event.counts;

  if (!in_shared && (copy || !count_side_by_side(request, mask, counts))) {
    Sectors sectors;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
      const int lane = std::countr_zero(rest);
      const MemoryAccess& access = *request[size_t(lane)];
      if (copy) {
        const AccessDetails& of_copy = *warp.lanes[lane].details_of(access);
        sectors.add(of_copy.source, of_copy.source_bytes,
                    (access.address - uintptr_t(warp.lanes->cta->shared)) / 128);
        counts.bytes += of_copy.source_bytes;
      } else {
        sectors.add(access.address, access.bytes);
        counts.bytes += access.bytes;
      }
    }
    counts.sectors = sectors.actual();
    counts.sectors_ideal = sectors.ideal();
    if (!copy) counts.cache_lines = sectors.cache_lines();
  }
  if (!in_global) {
    std::array<uint32_t, kWarpSize> offsets{};
    for (int lane = 0; lane < kWarpSize; lane++) {
      const MemoryAccess* const access = request[size_t(lane)];
      if (!access) continue;
      offsets[size_t(lane)] = uint32_t(access->address - uintptr_t(warp.lanes->cta->shared));
      if (!copy) counts.bytes += access->bytes;
    }
    const Wavefronts wavefronts = any.kind == Kind::kSharedAtomic
                                      ? atomic_wavefronts(offsets, event.mask, any.bytes)
                                      : shared_wavefronts(offsets, event.mask, any.bytes);
    counts.wavefronts = wavefronts.actual;
    counts.wavefronts_ideal = wavefronts.ideal;
  }
  if (Recorder* const recorder = warp.lanes->cta->recorder) {
    std::vector<Recorder::Piece> pieces;
    for (int lane = 0; lane < kWarpSize; lane++) {
      const MemoryAccess* const access = request[size_t(lane)];
      if (!access) continue;
      pieces.push_back({copy        ? warp.lanes[lane].details_of(*access)->source
                        : in_global ? access->address
                                    : 0,
                        in_global ? 0 : access->address, access->bytes, lane});
    }
    recorder->moves(warp, any.kind, pieces);
  }
  record(warp, event);
}

}  // namespace

void count_accesses(Warp& warp, uint32_t mask) {
  Cta& cta = *warp.lanes[0].cta;
  const int lanes = std::min(kWarpSize, int(cta.lanes.size()) - warp.index * kWarpSize);

  // Usually all lanes have done the same: the same instructions in the same order.
  const std::vector<MemoryAccess>* first = nullptr;
  bool same = true;
  for (int lane = 0; lane < lanes; lane++) {
    if (!(mask >> lane & 1)) continue;
    const auto& accesses = warp.lanes[lane].accesses;
    if (!first) {
      first = &accesses;
    } else {
      same = same && std::equal(accesses.begin(), accesses.end(), first->begin(), first->end(),
                                [](const MemoryAccess& a, const MemoryAccess& b) {
                                  return a.program_counter == b.program_counter;
                                });
    }
  }
  if (!first) return;
  if (same) {
    Request request{};
    for (int lane = 0; lane < lanes; lane++) {
      if (mask >> lane & 1) request[size_t(lane)] = warp.lanes[lane].accesses.data();
    }
    const uint32_t present = lanes_of(request);
    for (size_t i = 0; i < first->size(); i++) {
      record_request(warp, request, present);
      for (const MemoryAccess*& access : request) access += access ? 1 : 0;
    }
  } else {
    // Diverged: the n-th execution of an instruction by each lane is one request.
    std::map<std::pair<uintptr_t, int>, Request> requests;
    for (int lane = 0; lane < lanes; lane++) {
      if (!(mask >> lane & 1)) continue;
      std::map<uintptr_t, int> executions;
      for (const MemoryAccess& access : warp.lanes[lane].accesses) {
        requests[{access.program_counter, executions[access.program_counter]++}][size_t(lane)] =
            &access;
      }
    }
    for (const auto& [execution, request] : requests) {
      record_request(warp, request, lanes_of(request));
    }
  }
  if (cta.recorder) cta.recorder->meet(warp, mask);
  for (int lane = 0; lane < lanes; lane++) {
    if (mask >> lane & 1) warp.lanes[lane].forget_accesses();
  }
}

std::vector<LineCounts> LineTable::lines() const {
  // A hook's return address lies behind its call.
  std::vector<uintptr_t> program_counters;
  for (const auto& [key, counts] : counts_) {
    if (!key.place.file) program_counters.push_back(key.place.at - 1);
  }
  const std::vector<std::string> places = symbolise(program_counters);

  std::map<std::tuple<std::string, uint64_t, Kind>, Counts> sorted;  // by file, line and kind
  auto place = places.begin();
  for (const auto& [key, counts] : counts_) {
    std::string file = "?";
    uint64_t line = 0;
    if (key.place.file) {
      file = relative_path(key.place.file);
      line = key.place.at;
    } else if (const size_t colon = place->rfind(':'); colon != std::string::npos) {
      file = place->substr(0, colon);
      line = strtoull(place->c_str() + colon + 1, nullptr, 10);
    }
    if (!key.place.file) place++;
    sorted[{file, line, key.kind}] += counts;
  }

  std::vector<LineCounts> result;
  for (const auto& [key, counts] : sorted) {
    const auto& [file, line, kind] = key;
    result.push_back({line ? file + ":" + std::to_string(line) : file, kind, counts});
  }
  return result;
}

}  // namespace emu
