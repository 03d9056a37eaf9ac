// Stands in for CUDA's header of this name when there is no CUDA: groups of a CTA's threads (CUDA
// C++ Programming Guide, "Cooperative Groups"), of clusters and of grids.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "common/emulator/core/lane.h"
#include "common/emulator/core/memory.h"
#include "common/emulator/core/vector_types.h"
#include "common/emulator/units/barrier.h"
#include "common/emulator/units/cluster.h"
#include "common/emulator/units/cp_async.h"
#include "common/emulator/units/warp.h"

#define FA_WHERE emu::SourceLocation where = emu::SourceLocation::current()

namespace cooperative_groups {

class thread_block {
 public:
  static void sync(FA_WHERE) { emu::barrier_sync(0, 0, "thread_block.sync()", where); }
  // As in CUDA's header: the threads meet at the wait alone.
  struct arrival_token {};
  static arrival_token barrier_arrive() { return {}; }
  static void barrier_wait(arrival_token&&, FA_WHERE) {
    emu::barrier_sync(0, 0, "thread_block.barrier_wait()", where);
  }
  static unsigned thread_rank() { return unsigned(emu::current_lane->thread); }
  static unsigned size() { return unsigned(emu::current_lane->cta->lanes.size()); }
  static unsigned num_threads() { return size(); }
  static dim3 group_index() { return emu::current_lane->cta->block_idx; }
  static dim3 thread_index() { return emu::current_lane->thread_idx; }
  static dim3 group_dim() { return emu::current_lane->cta->block_dim; }
  static dim3 dim_threads() { return emu::current_lane->cta->block_dim; }
};
inline thread_block this_thread_block() { return {}; }

// A part of a warp, by its lanes: a tile's lanes are neighbours.
class lanes_of_warp {
 public:
  void sync(FA_WHERE) const { emu::sync_warp(mask_, where); }
  unsigned thread_rank() const {
    return unsigned(std::popcount(mask_ & ((1u << emu::current_lane->lane) - 1)));
  }
  unsigned size() const { return unsigned(std::popcount(mask_)); }
  unsigned num_threads() const { return size(); }
  template <typename T>
  T shfl(T value, unsigned rank, FA_WHERE) const {
    static_assert(sizeof(T) <= 32, "shuffles of a group take up to 32 bytes");
    return emu::shuffle_words(emu::ShuffleMode::kIndex, mask_, value, lane_of(rank), 32, where);
  }
  template <typename T>
  T shfl_up(T value, unsigned delta, FA_WHERE) const {
    const unsigned rank = thread_rank();
    return shfl(value, rank >= delta ? rank - delta : rank, where);
  }
  template <typename T>
  T shfl_down(T value, unsigned delta, FA_WHERE) const {
    const unsigned rank = thread_rank();
    return shfl(value, rank + delta < size() ? rank + delta : rank, where);
  }
  template <typename T>
  T shfl_xor(T value, unsigned bits, FA_WHERE) const {
    const unsigned rank = thread_rank() ^ bits;
    return shfl(value, rank < size() ? rank : thread_rank(), where);
  }
  int any(int predicate, FA_WHERE) const {
    return emu::ballot(mask_, predicate, "any()", where) != 0;
  }
  int all(int predicate, FA_WHERE) const {
    return emu::ballot(mask_, !predicate, "all()", where) == 0;
  }
  unsigned ballot(int predicate, FA_WHERE) const {
    return packed(emu::ballot(mask_, predicate, "ballot()", where));
  }
  template <typename T>
  uint32_t lanes_with(T value, FA_WHERE) const {
    return __match_any_sync(mask_, value, where);
  }
  template <typename T>
  unsigned match_any(T value, FA_WHERE) const {
    return packed(__match_any_sync(mask_, value, where));
  }

 protected:
  friend class thread_group;
  explicit lanes_of_warp(uint32_t mask) : mask_(mask) {}
  // Bit i of the result is the group's thread i.
  unsigned packed(uint32_t lanes) const {
    unsigned result = 0;
    for (unsigned rank = 0; rank < size(); rank++) result |= (lanes >> lane_of(rank) & 1) << rank;
    return result;
  }
  int lane_of(unsigned rank) const {
    uint32_t rest = mask_;
    while (rank-- > 0) rest &= rest - 1;
    return std::countr_zero(rest);
  }
  uint32_t mask_;
};

template <unsigned kSize, typename Parent = void>
class thread_block_tile : public lanes_of_warp {
  static_assert(kSize >= 1 && kSize <= 32 && (kSize & (kSize - 1)) == 0,
                "the emulator has tiles of 1, 2, 4, 8, 16 and 32 threads");

 public:
  thread_block_tile()
      : lanes_of_warp((kSize == 32 ? ~0u : (1u << (kSize % 32)) - 1)
                      << (unsigned(emu::current_lane->lane) & ~(kSize - 1))) {}
  template <typename Other>
  thread_block_tile(const thread_block_tile<kSize, Other>&) : thread_block_tile() {}
  static constexpr unsigned num_threads() { return kSize; }
  static constexpr unsigned size() { return kSize; }
  unsigned meta_group_rank() const { return unsigned(emu::current_lane->thread) / kSize; }
  unsigned meta_group_size() const { return (thread_block::size() + kSize - 1) / kSize; }
};

class coalesced_group : public lanes_of_warp {
 public:
  explicit coalesced_group(uint32_t mask) : lanes_of_warp(mask) {}
};

template <unsigned kSize, typename Parent>
inline thread_block_tile<kSize, Parent> tiled_partition(const Parent&) {
  return {};
}
inline coalesced_group coalesced_threads(FA_WHERE) {
  return coalesced_group(emu::active_mask(where));
}
// The threads of the group whose value is this thread's.
template <typename Group, typename T>
inline coalesced_group labeled_partition(const Group& group, T label, FA_WHERE) {
  return coalesced_group(group.lanes_with(label, where));
}
template <typename Group>
inline coalesced_group binary_partition(const Group& group, bool predicate, FA_WHERE) {
  return coalesced_group(group.lanes_with(int(predicate), where));
}

// Any of these, for functions that take them all.
class thread_group {
 public:
  thread_group(const thread_block&) {}
  thread_group(const lanes_of_warp& lanes) : mask_(lanes.mask_) {}
  void sync(FA_WHERE) const {
    if (mask_) return emu::sync_warp(mask_, where);
    thread_block::sync(where);
  }
  unsigned thread_rank() const {
    if (!mask_) return thread_block::thread_rank();
    return unsigned(std::popcount(mask_ & ((1u << emu::current_lane->lane) - 1)));
  }
  unsigned size() const { return mask_ ? unsigned(std::popcount(mask_)) : thread_block::size(); }
  unsigned num_threads() const { return size(); }

 private:
  friend thread_group tiled_partition(const thread_group& parent, unsigned size);
  uint32_t mask_ = 0;  // 0: the whole CTA
};
inline thread_group tiled_partition(const thread_group& parent, unsigned size) {
  thread_group tile = parent;
  if (size == 0 || size > 32 || (size & (size - 1)) != 0) {
    emu::fail("tiled_partition: the emulator has tiles of 1, 2, 4, 8, 16 and 32 threads, not %u",
              size);
  }
  tile.mask_ = ((size == 32 ? 0u : 1u << size) - 1)
               << (unsigned(emu::current_lane->lane) & ~(size - 1));
  if (parent.mask_ && (tile.mask_ & ~parent.mask_)) {
    emu::fail("tiled_partition: the emulator parts only groups of neighbouring threads");
  }
  return tile;
}
template <typename Group>
inline void sync(const Group& group, FA_WHERE) {
  group.sync(where);
}

// ---- clusters and grids -------------------------------------------------------------------------
class cluster_group {
 public:
  struct arrival_token {};
  static arrival_token barrier_arrive(FA_WHERE) {
    if (num_blocks() > 1) {
      emu::cluster_arrive(where);
    } else {
      thread_block::sync(where);
    }
    return {};
  }
  static void barrier_wait(FA_WHERE) {
    if (num_blocks() > 1) emu::cluster_wait(where);
  }
  static void barrier_wait(arrival_token, FA_WHERE) { barrier_wait(where); }
  static void sync(FA_WHERE) {
    barrier_arrive(where);
    barrier_wait(where);
  }
  static unsigned num_blocks() { return emu::all_together ? 1 : unsigned(emu::cluster_size()); }
  static unsigned block_rank() { return emu::all_together ? 0 : unsigned(emu::cluster_rank()); }
  static dim3 dim_blocks() { return {num_blocks()}; }
  static dim3 block_index() { return {block_rank(), 0, 0}; }
  static unsigned num_threads() { return num_blocks() * thread_block::size(); }
  static unsigned size() { return num_threads(); }
  static unsigned thread_rank() {
    return block_rank() * thread_block::size() + thread_block::thread_rank();
  }
  // Where another CTA of the cluster has what this one has at `address`.
  template <typename T>
  static T* map_shared_rank(T* address, int rank, FA_WHERE) {
    if (num_blocks() == 1 && rank == 0) return address;
    return reinterpret_cast<T*>(emu::map_to_cta(uintptr_t(address), rank, where));
  }
};
inline cluster_group this_cluster() { return {}; }

class grid_group {
 public:
  static bool is_valid() { return emu::all_together || num_blocks() == 1; }
  static void sync(FA_WHERE) {
    if (!is_valid()) {
      emu::fail(
          "this_grid().sync() at %s: the CTAs of this launch need not run together\n  Missing: "
          "cudaLaunchCooperativeKernel() in place of <<<>>>.",
          emu::place(where).c_str());
    }
    emu::cluster_arrive(where);
    emu::cluster_wait(where);
  }
  static unsigned long long num_blocks() {
    const dim3& grid = emu::current_lane->cta->grid_dim;
    return 1ull * grid.x * grid.y * grid.z;
  }
  static unsigned long long block_rank() {
    const emu::Cta& cta = *emu::current_lane->cta;
    return (1ull * cta.block_idx.z * cta.grid_dim.y + cta.block_idx.y) * cta.grid_dim.x +
           cta.block_idx.x;
  }
  static dim3 dim_blocks() { return emu::current_lane->cta->grid_dim; }
  static dim3 group_dim() { return dim_blocks(); }
  static dim3 block_index() { return thread_block::group_index(); }
  static unsigned long long num_threads() { return num_blocks() * thread_block::size(); }
  static unsigned long long size() { return num_threads(); }
  static unsigned long long thread_rank() {
    return block_rank() * thread_block::size() + thread_block::thread_rank();
  }
};
inline grid_group this_grid() { return {}; }

// ---- reduce: every thread of the group gets the result ------------------------------------------
#define FA_OPERATION(NAME, RESULT)               \
  template <typename T = void>                   \
  struct NAME {                                  \
    template <typename U>                        \
    U operator()(const U& a, const U& b) const { \
      return RESULT;                             \
    }                                            \
  };
FA_OPERATION(plus, a + b)
FA_OPERATION(less, b < a ? b : a)
FA_OPERATION(greater, a < b ? b : a)
FA_OPERATION(bit_and, a& b)
FA_OPERATION(bit_or, a | b)
FA_OPERATION(bit_xor, a ^ b)
#undef FA_OPERATION

template <typename Group, typename T, typename Operation>
inline T reduce(const Group& group, T value, Operation operation, FA_WHERE) {
  if (std::has_single_bit(group.size())) {
    for (unsigned step = group.size() / 2; step > 0; step /= 2) {
      value = operation(value, group.shfl_xor(value, step, where));
    }
    return value;
  }
  T result = group.shfl(value, 0, where);
  for (unsigned rank = 1; rank < group.size(); rank++) {
    result = operation(result, group.shfl(value, rank, where));
  }
  return result;
}

// ---- scan: a thread gets the result of those up to it, or of those before it --------------------
template <typename Group, typename T, typename Operation>
inline T inclusive_scan(const Group& group, T value, Operation operation, FA_WHERE) {
  for (unsigned step = 1; step < group.size(); step *= 2) {
    const T before = group.shfl_up(value, step, where);
    if (group.thread_rank() >= step) value = operation(before, value);
  }
  return value;
}
template <typename Group, typename T>
inline T inclusive_scan(const Group& group, T value, FA_WHERE) {
  return inclusive_scan(group, value, plus<T>(), where);
}
template <typename Group, typename T, typename Operation>
inline T exclusive_scan(const Group& group, T value, Operation operation, FA_WHERE) {
  const T before = group.shfl_up(inclusive_scan(group, value, operation, where), 1, where);
  return group.thread_rank() == 0 ? T() : before;
}
template <typename Group, typename T>
inline T exclusive_scan(const Group& group, T value, FA_WHERE) {
  return exclusive_scan(group, value, plus<T>(), where);
}

// ---- one thread of a group ----------------------------------------------------------------------
template <typename Group, typename Function, typename... Arguments>
inline void invoke_one(const Group& group, Function function, Arguments&&... arguments) {
  if (group.thread_rank() == 0) function(arguments...);
}
template <typename Group, typename Function, typename... Arguments>
inline auto invoke_one_broadcast(const Group& group, Function function, Arguments&&... arguments) {
  decltype(function(arguments...)) result{};
  if (group.thread_rank() == 0) result = function(arguments...);
  return group.shfl(result, 0);
}

// ---- copies by all threads of a group: to shared memory by cp.async, else by plain accesses -----
template <typename Group, typename T>
inline void memcpy_async(const Group& group, T* to, const T* from, size_t bytes, FA_WHERE) {
  const bool whole = (uintptr_t(to) | uintptr_t(from) | bytes) % 4 == 0;
  const emu::Cta& cta = *emu::current_lane->cta;
  const bool to_shared = uintptr_t(to) - uintptr_t(cta.shared) < cta.shared_bytes;
  const bool from_shared = uintptr_t(from) - uintptr_t(cta.shared) < cta.shared_bytes;
  if (!whole || !to_shared || from_shared) {
    for (size_t i = group.thread_rank(); i < bytes / sizeof(T); i += group.size()) to[i] = from[i];
    return;
  }
  auto* const target = reinterpret_cast<char*>(to);
  auto* const source = reinterpret_cast<const char*>(from);
  const size_t bits = uintptr_t(to) | uintptr_t(from) | bytes;
  const size_t piece = bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : 4;
  for (size_t at = group.thread_rank() * piece; at < bytes; at += group.size() * piece) {
    emu::copy_async(emu::shared_address(target + at), source + at, int(piece), int(piece), where);
  }
  emu::commit_copies(where);
}
template <typename Group, typename T>
inline void memcpy_async(const Group& group, T* to, size_t to_count, const T* from,
                         size_t from_count, FA_WHERE) {
  memcpy_async(group, to, from, (to_count < from_count ? to_count : from_count) * sizeof(T), where);
}
template <unsigned kGroups, typename Group>
inline void wait_prior(const Group& group, FA_WHERE) {
  emu::wait_copies(int(kGroups), where);
  group.sync(where);
}
template <typename Group>
inline void wait(const Group& group, FA_WHERE) {
  wait_prior<0>(group, where);
}

}  // namespace cooperative_groups
#undef FA_WHERE
