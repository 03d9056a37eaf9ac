#include "common/emulator/cp_async.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "common/emulator/counters.h"
#include "common/emulator/events.h"
#include "common/emulator/lane.h"
#include "common/emulator/launch.h"
#include "common/emulator/matrix.h"
#include "common/emulator/memory.h"
#include "common/emulator/races.h"
#include "common/emulator/random.h"
#include "common/emulator/timing.h"
#include "common/emulator/trace.h"
#include "common/emulator/vector_types.h"

namespace emu {
namespace {

void complete(const AsyncCopy& copy) {
  if (copy.done) return;
  memcpy(copy.to, copy.from, size_t(copy.source_bytes));
  memset(copy.to + copy.source_bytes, 0, size_t(copy.bytes - copy.source_bytes));
}

uint64_t next_random(Lane& lane) {
  const uint3& block = lane.cta->block_idx;
  return random_bits(options().seed,
                     {block.x, block.y, block.z, uint64_t(lane.thread), lane.random_draws++});
}

// The global bytes that a copy reads; 16 at a time, or as aligned as they are.
void note_source(Races& races, const Lane& lane, const uint8_t* from, int bytes, Site site) {
  for (int at = 0, piece; at < bytes; at += piece) {
    for (piece = 16; piece > bytes - at || uintptr_t(from + at) % uintptr_t(piece) != 0;)
      piece /= 2;
    races.access(lane, uintptr_t(from + at), size_t(piece), false, site);
  }
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
  if (is_checked()) {
    me.accesses.push_back({uintptr_t(__builtin_return_address(0)), Kind::kCpAsync, uint32_t(bytes),
                           uintptr_t(to), uintptr_t(global), uint32_t(source_bytes), where});
  } else {
    record(*me.warp, {Kind::kCpAsync, 1u << me.lane, where, {}});
  }
  if (Races* const races = me.cta->races) {
    const Site site = named_site("cp.async", where);
    note_source(*races, me, static_cast<const uint8_t*>(global), source_bytes, site);
    races->begin_copy(me, uintptr_t(to), size_t(bytes), site);
  }
  AsyncCopy copy{to, static_cast<const uint8_t*>(global), bytes, source_bytes, where, false};
  const bool now = options().completion == Completion::kEarly ||
                   (options().completion == Completion::kRandom && next_random(me) % 2 == 0);
  if (now) complete(copy);
  copy.done = now;
  me.open_copies.push_back(copy);
}

void commit_copies(SourceLocation where) {
  Lane& me = *current_lane;
  if (me.cta->trace) {
    me.cta->trace->note(
        me, where,
        {.work = Work::kCommit, .name = "cp.async.commit_group", .group = Group::kCopies});
  }
  me.copy_groups.push_back(std::move(me.open_copies));
  me.open_copies.clear();
}

void wait_copies(int groups, SourceLocation where) {
  Lane& me = *current_lane;
  if (me.cta->trace) {
    me.cta->trace->note(me, where,
                        {.work = Work::kWaitGroups,
                         .name = "cp.async.wait_group",
                         .group = Group::kCopies,
                         .pending = groups});
  }
  while (me.copy_groups.size() > size_t(groups)) {
    for (const AsyncCopy& copy : me.copy_groups.front()) {
      complete(copy);
      if (Races* const races = me.cta->races) {
        races->end_copy(me, uintptr_t(copy.to), size_t(copy.bytes));
        note_source(*races, me, copy.from, copy.source_bytes, named_site("cp.async", copy.where));
      }
    }
    me.copy_groups.pop_front();
  }
}

void finish_copies(Lane& lane) {
  const AsyncCopy* pending = lane.open_copies.empty() ? nullptr : &lane.open_copies.front();
  for (const auto& group : lane.copy_groups) {
    if (!pending && !group.empty()) pending = &group.front();
  }
  if (pending && lane.cta->races) {
    fail(
        "exits without having waited for cp.async at %s:%u\n  Missing: cp_async_commit and "
        "cp_async_wait<0> after it.",
        relative_path(pending->where.file).c_str(), pending->where.line);
  }
  for (const auto& group : lane.copy_groups) {
    for (const AsyncCopy& copy : group) complete(copy);
  }
  for (const AsyncCopy& copy : lane.open_copies) complete(copy);
  lane.copy_groups.clear();
  lane.open_copies.clear();
}

}  // namespace emu
