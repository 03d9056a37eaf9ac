#include "common/emulator/core/wavefronts.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace emu {
namespace {

// Returns whether every active lane of [first, first + lanes) accesses the same address as the lane
// whose number differs by `distance`, or that one is not active.
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

// Shared memory has 32 banks of 4 bytes, successive words in successive banks. A wavefront delivers
// one word a bank, to any number of lanes. Lanes are served in groups: all 32 together for up to 4
// bytes a lane, 16 for 8 bytes and 8 for 16 bytes, because that many distinct words fill the banks.
// Two neighbouring groups are served as one if the lanes are paired: each asks for the same address
// as its neighbour at distance 1, or each as the one at distance 2. The vendor documents the groups
// (CUDA C++ Best Practices Guide, "Shared Memory and Memory Banks"); the pairing rule explains what
// ncu counts on an H200 for 16-byte loads: 2 wavefronts if all lanes of a group ask for one
// address, but 4 if all groups ask for the same eight addresses. The order in which a bank delivers
// its words is not known; here it is the order of the lanes.
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

Wavefronts atomic_wavefronts(const std::array<uint32_t, kWarpSize>& offsets, uint32_t active,
                             uint32_t bytes) {
  std::array<uint32_t, 32> words{};  // of each bank
  uint32_t all = 0;
  for (uint32_t rest = active; rest; rest &= rest - 1) {
    const uint32_t first = offsets[size_t(std::countr_zero(rest))] / 4;
    for (uint32_t word = first; word < first + std::max(1u, bytes / 4); word++, all++) {
      words[word % 32]++;
    }
  }
  return {*std::max_element(words.begin(), words.end()), (all + 31) / 32};
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

}  // namespace emu
