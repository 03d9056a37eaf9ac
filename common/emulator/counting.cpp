// From the accesses of single lanes to the requests of a warp, and from those to sectors and wavefronts.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "common/emulator/counters.h"
#include "common/emulator/events.h"
#include "common/emulator/lane.h"
#include "common/emulator/trace.h"
#include "common/emulator/wavefronts.h"

namespace emu {
namespace {

using Request = std::array<const MemoryAccess*, kWarpSize>;  // null: the lane takes no part

// Sectors: the 32-byte pieces of global memory that a request touches, each once, however many lanes share it.
// Ideal: as many as the touched bytes would fill if they lay side by side. So 32 neighbouring floats are 4
// of 4, 32 floats 128 bytes apart 32 of 4, one float for all lanes 1 of 1.
class Sectors {
 public:
  void add(uintptr_t address, uint32_t bytes) {
    for (const uintptr_t end = address + bytes; address < end;) {
      const uintptr_t number = address / 32, first = address % 32;
      const uintptr_t count = std::min<uintptr_t>(32 - first, end - address);
      size_t i = 0;
      while (i < count_ && numbers_[i] != number) i++;
      if (i == numbers_.size()) return;
      if (i == count_) {
        numbers_[count_] = number;
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
  std::array<uint32_t, kWarpSize * 2> touched_;   // bytes of each
  size_t count_ = 0;
};

void record_request(Warp& warp, const Request& request) {
  const MemoryAccess& any =
      **std::find_if(request.begin(), request.end(), [](auto* a) { return a; });
  const bool copy = any.kind == Kind::kCpAsync;
  Event event{any.kind, 0, Place(any.program_counter), {.requests = 1}};
  if (copy) event.place = any.where;
  Counts& counts = event.counts;
  for (int lane = 0; lane < kWarpSize; lane++)
    event.mask |= uint32_t(request[size_t(lane)] != nullptr) << lane;

  if (any.kind != Kind::kSharedLoad && any.kind != Kind::kSharedStore) {
    Sectors sectors;
    for (const MemoryAccess* access : request) {
      if (!access) continue;
      const uint32_t bytes = copy ? access->source_bytes : access->bytes;
      sectors.add(copy ? access->source : access->address, bytes);
      counts.bytes += bytes;
    }
    counts.sectors = sectors.actual();
    counts.sectors_ideal = sectors.ideal();
    if (!copy) counts.cache_lines = sectors.cache_lines();
  }
  if (any.kind != Kind::kGlobalLoad && any.kind != Kind::kGlobalStore) {
    std::array<uint32_t, kWarpSize> offsets{};
    for (int lane = 0; lane < kWarpSize; lane++) {
      const MemoryAccess* const access = request[size_t(lane)];
      if (!access) continue;
      offsets[size_t(lane)] = uint32_t(access->address - uintptr_t(warp.lanes->cta->shared));
      if (!copy) counts.bytes += access->bytes;
    }
    const Wavefronts wavefronts = shared_wavefronts(offsets, event.mask, any.bytes);
    counts.wavefronts = wavefronts.actual;
    counts.wavefronts_ideal = wavefronts.ideal;
  }
  record(warp, event);
}

}  // namespace

namespace {

// True if every active lane of [first, first + lanes) accesses the same address as the lane whose number
// differs by `distance`, or that one is not active.
bool pairs_agree(const std::array<uint32_t, kWarpSize>& offsets, uint32_t active, int first,
                 int lanes, int distance) {
  for (int lane = first; lane < first + lanes; lane++) {
    const int other = lane ^ distance;
    if ((active >> lane & 1) && (active >> other & 1) &&
        offsets[size_t(lane)] != offsets[size_t(other)]) {
      return false;
    }
  }
  return true;
}

}  // namespace

// Shared memory has 32 banks of 4 bytes, successive words in successive banks. A wavefront delivers one
// word a bank, to any number of lanes. Lanes are served in groups: all 32 together for up to 4 bytes a
// lane, 16 for 8 bytes and 8 for 16 bytes, because that many distinct words fill the banks. Two
// neighbouring groups are served as one if the lanes are paired: each asks for the same address as its
// neighbour at distance 1, or each as the one at distance 2. The vendor documents the groups (CUDA C++
// Best Practices Guide, "Shared Memory and Memory Banks"); the pairing rule explains what ncu counts on an
// H200 for 16-byte loads: 2 wavefronts if all lanes of a group ask for one address, but 4 if all groups
// ask for the same eight addresses.
// In which order a bank delivers its words is not known: here in that of the lanes.
Wavefronts shared_wavefronts(const std::array<uint32_t, kWarpSize>& offsets, uint32_t active,
                             uint32_t bytes, std::vector<Delivery>* deliveries) {
  const int group = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
  const uint32_t words_per_lane = std::max(1u, bytes / 4);
  Wavefronts result;
  for (int first = 0; first < kWarpSize;) {
    int lanes = group;
    if (group < 32 && first % (2 * group) == 0 &&
        (pairs_agree(offsets, active, first, 2 * group, 1) ||
         pairs_agree(offsets, active, first, 2 * group, 2))) {
      lanes = 2 * group;
    }
    std::array<uint32_t, kWarpSize * 2> words;  // distinct words of the group
    std::array<uint32_t, kWarpSize * 2> turns;  // which of its bank's each is
    std::array<uint32_t, kWarpSize> per_bank{};
    size_t count = 0;
    uint32_t most = 0;
    for (int lane = first; lane < first + lanes; lane++) {
      if (!(active >> lane & 1)) continue;
      for (uint32_t k = 0; k < words_per_lane; k++) {
        const uint32_t word = offsets[size_t(lane)] / 4 + k;
        const auto end = words.begin() + std::ptrdiff_t(count);
        const auto found = std::find(words.begin(), end, word);
        const auto i = size_t(found - words.begin());
        if (found == end) {
          words[count] = word;
          turns[count++] = per_bank[word % 32]++;
          most = std::max(most, per_bank[word % 32]);
        }
        if (deliveries) deliveries->push_back({lane, word, result.actual + turns[i]});
      }
    }
    result.actual += most;
    result.ideal += most > 0;
    first += lanes;
  }
  return result;
}

Wavefronts matrix_wavefronts(const std::array<uint32_t, kWarpSize>& offsets, int matrices,
                             std::vector<Delivery>* deliveries) {
  Wavefronts result;
  for (int matrix = 0; matrix < matrices; matrix++) {
    const size_t before = deliveries ? deliveries->size() : 0;
    const auto one = shared_wavefronts(offsets, 0xffu << 8 * matrix, 16, deliveries);
    for (size_t i = before; deliveries && i < deliveries->size(); i++)
      (*deliveries)[i].wavefront += result.actual;
    result.actual += one.actual;
    result.ideal += one.ideal;
  }
  return result;
}

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
    for (size_t i = 0; i < first->size(); i++) {
      Request request{};
      for (int lane = 0; lane < lanes; lane++) {
        if (mask >> lane & 1) request[size_t(lane)] = &warp.lanes[lane].accesses[i];
      }
      record_request(warp, request);
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
    for (const auto& entry : requests) record_request(warp, entry.second);
  }
  if (cta.trace) cta.trace->meet(warp, mask);
  for (int lane = 0; lane < lanes; lane++) {
    if (mask >> lane & 1) warp.lanes[lane].accesses.clear();
  }
}

}  // namespace emu
