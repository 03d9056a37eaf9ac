#include "common/emulator/units/cp_async.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "common/emulator/core/events.h"
#include "common/emulator/core/launch.h"
#include "common/emulator/core/memory.h"
#include "common/emulator/core/random.h"
#include "common/emulator/core/step.h"
#include "common/emulator/core/unit.h"

namespace emu {
namespace {

// A cp.async under way.
struct AsyncCopy {
  uint8_t* to;
  const uint8_t* from;
  int bytes, source_bytes;  // written; read, the rest are zeros
  SourceLocation where;
  bool done;  // early completion
};

struct LaneCopies {
  std::vector<AsyncCopy> open;                // since the last commit
  size_t waited_for = 0;                      // of these the first ones, in vain
  std::deque<std::vector<AsyncCopy>> groups;  // committed, oldest first
  uint64_t random_draws = 0;                  // decisions taken so far under random completion
  void clear() {
    open.clear();
    waited_for = 0;
    groups.clear();
    random_draws = 0;
  }
};

class Copies : public Unit {
 public:
  explicit Copies(const Cluster& cluster) : lanes_(cluster.lanes.size()) {}
  void begin() override {
    for (LaneCopies& lane : lanes_) lane.clear();
  }
  void thread_ends(Lane& me) override;
  Uncommitted uncommitted(const Lane& lane, uintptr_t address) override;
  LaneCopies& of(const Lane& lane) { return lanes_[size_t(lane.number)]; }

 private:
  std::vector<LaneCopies> lanes_;
};

const UnitOf<Copies> copies{20};

void complete(const AsyncCopy& copy) {
  if (copy.done) return;
  memcpy(copy.to, copy.from, size_t(copy.source_bytes));
  memset(copy.to + copy.source_bytes, 0, size_t(copy.bytes - copy.source_bytes));
}

uint64_t next_random(const Lane& lane) {
  const uint3& block = lane.cta->block_idx;
  return random_bits(options().seed, {block.x, block.y, block.z, uint64_t(lane.thread),
                                      copies().of(lane).random_draws++});
}

// The global bytes that a copy reads; 16 at a time, or as aligned as they are.
void note_source(Detector& detector, const Lane& lane, const uint8_t* from, int bytes, Site site) {
  for (int at = 0, piece; at < bytes; at += piece) {
    for (piece = 16; piece > bytes - at || uintptr_t(from + at) % uintptr_t(piece) != 0;)
      piece /= 2;
    detector.access(lane, uintptr_t(from + at), size_t(piece), false, site);
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
  if (me.cta->checks) {
    me.add_access(
        {uintptr_t(__builtin_return_address(0)), uintptr_t(to), Kind::kCpAsync, uint16_t(bytes)},
        {where, uintptr_t(global), uint32_t(source_bytes)});
  } else {
    record(*me.warp, {Kind::kCpAsync, 1u << me.lane, where, {}});
  }
  if (Detector* const detector = me.cta->detector) {
    const Site site = detector->site("cp.async", where);
    note_source(*detector, me, static_cast<const uint8_t*>(global), source_bytes, site);
    detector->begin_copy(me, uintptr_t(to), size_t(bytes), site);
  }
  AsyncCopy copy{to, static_cast<const uint8_t*>(global), bytes, source_bytes, where, false};
  const bool now = options().completion == Completion::kEarly ||
                   (options().completion == Completion::kRandom && next_random(me) % 2 == 0);
  if (now) complete(copy);
  copy.done = now;
  copies().of(me).open.push_back(copy);
}

void commit_copies(SourceLocation where) {
  const Lane& me = *current_lane;
  if (me.cta->recorder) {
    me.cta->recorder->note(
        me, where,
        {.work = Work::kCommit, .name = "cp.async.commit_group", .group = Group::kCopies});
  }
  LaneCopies& mine = copies().of(me);
  mine.groups.push_back(std::move(mine.open));
  mine.open.clear();
  mine.waited_for = 0;
}

void wait_copies(int groups, SourceLocation where) {
  const Lane& me = *current_lane;
  if (me.cta->recorder) {
    me.cta->recorder->note(me, where,
                           {.work = Work::kWaitGroups,
                            .name = "cp.async.wait_group",
                            .group = Group::kCopies,
                            .pending = groups});
  }
  LaneCopies& mine = copies().of(me);
  mine.waited_for = mine.open.size();
  while (mine.groups.size() > size_t(groups)) {
    for (const AsyncCopy& copy : mine.groups.front()) {
      complete(copy);
      if (Detector* const detector = me.cta->detector) {
        detector->end_copy(me, uintptr_t(copy.to), size_t(copy.bytes));
        note_source(*detector, me, copy.from, copy.source_bytes,
                    detector->site("cp.async", copy.where));
      }
    }
    mine.groups.pop_front();
  }
}

Uncommitted Copies::uncommitted(const Lane& lane, uintptr_t address) {
  const LaneCopies& mine = of(lane);
  for (size_t i = 0; i < mine.waited_for; i++) {
    if (address - uintptr_t(mine.open[i].to) >= uintptr_t(mine.open[i].bytes)) continue;
    return {"The copy may still be under way", "cp_async_commit"};
  }
  return {};
}

// Copies that a thread has not waited for are done at its end; on a GPU they end some time.
void Copies::thread_ends(Lane& me) {
  LaneCopies& mine = of(me);
  const AsyncCopy* pending = mine.open.empty() ? nullptr : &mine.open.front();
  for (const auto& group : mine.groups) {
    if (!pending && !group.empty()) pending = &group.front();
  }
  if (pending && me.cta->detector) {
    fail(
        "exits without having waited for cp.async at %s:%u\n  Missing: cp_async_commit and "
        "cp_async_wait<0> after it.",
        relative_path(pending->where.file).c_str(), pending->where.line);
  }
  for (const auto& group : mine.groups) {
    for (const AsyncCopy& copy : group) complete(copy);
  }
  for (const AsyncCopy& copy : mine.open) complete(copy);
  mine.groups.clear();
  mine.open.clear();
}

}  // namespace emu
