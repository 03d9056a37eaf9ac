#include "common/emulator/cp_async.h"

#include <cstring>

#include "common/emulator/launch.h"
#include "common/emulator/matrix.h"
#include "common/emulator/memory.h"

namespace emu {
namespace {

void complete(const AsyncCopy& copy) {
  memcpy(copy.to, copy.from, size_t(copy.source_bytes));
  memset(copy.to + copy.source_bytes, 0, size_t(copy.bytes - copy.source_bytes));
}

// A hash of the seed and of the thread's place in the run: the same decisions in every run.
uint64_t next_random(Lane& lane) {
  const uint3& block = lane.cta->block_idx;
  uint64_t x = options().seed + (lane.random_draws++ << 40) + (uint64_t(block.x) << 20) +
               (uint64_t(block.y) << 10) + uint64_t(lane.thread) + 1;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

void copy_async(uint32_t shared, const void* global, int bytes, int source_bytes,
                SourceLocation where) {
  Lane& me = *current_lane;
  uint8_t* const to = shared_pointer(shared, size_t(bytes), "cp.async", where);
  if (uintptr_t(global) % uintptr_t(bytes) != 0) {
    fail("cp.async at %s:%u: the global address is not a multiple of %d bytes", where.file,
         where.line, bytes);
  }
  if (source_bytes < 0 || source_bytes > bytes) {
    fail("cp.async at %s:%u: %d source bytes of %d", where.file, where.line, source_bytes, bytes);
  }
  if (const std::string outside = describe_outside(uintptr_t(global), size_t(source_bytes));
      source_bytes > 0 && !outside.empty()) {
    fail("cp.async at %s:%u reads %s", where.file, where.line, outside.c_str());
  }
  me.cta->counters.async_copies++;
  if (is_checked()) {
    const auto here = uintptr_t(__builtin_return_address(0));
    if (source_bytes > 0) me.accesses.push_back({here, uintptr_t(global), uint32_t(source_bytes)});
    me.accesses.push_back({here + 1, uintptr_t(to), uint32_t(bytes)});
  }
  const AsyncCopy copy{to, static_cast<const uint8_t*>(global), bytes, source_bytes};
  const bool now = options().completion == Completion::kEarly ||
                   (options().completion == Completion::kRandom && next_random(me) % 2 == 0);
  if (now) {
    complete(copy);
  } else {
    me.open_copies.push_back(copy);
  }
}

void commit_copies() {
  Lane& me = *current_lane;
  me.copy_groups.push_back(std::move(me.open_copies));
  me.open_copies.clear();
}

void wait_copies(int groups) {
  Lane& me = *current_lane;
  while (me.copy_groups.size() > size_t(groups)) {
    for (const AsyncCopy& copy : me.copy_groups.front()) complete(copy);
    me.copy_groups.pop_front();
  }
}

void finish_copies(Lane& lane) {
  for (const auto& group : lane.copy_groups) {
    for (const AsyncCopy& copy : group) complete(copy);
  }
  for (const AsyncCopy& copy : lane.open_copies) complete(copy);
  lane.copy_groups.clear();
  lane.open_copies.clear();
}

}  // namespace emu
