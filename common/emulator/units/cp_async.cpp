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
#include "common/emulator/units/group_wait.h"

namespace emu {
namespace {

// A cp.async under way.
struct AsyncCopy {
  uint8_t* to;
  const uint8_t* from;
  int bytes, source_bytes;  // written; read, the rest are zeros
  SourceLocation where;
  bool done;              // early completion
  uint64_t waits_before;  // of its thread
};

struct CopyGroup {
  std::vector<AsyncCopy> copies;
  SourceLocation committed;
};

struct LaneCopies {
  std::vector<AsyncCopy> open;   // since the last commit
  std::deque<CopyGroup> groups;  // committed, oldest first
  uint64_t committed = 0;        // groups so far
  GroupWait last_wait;
  uint64_t random_draws = 0;  // decisions taken so far under random completion
  void clear() {
    open.clear();
    groups.clear();
    committed = 0;
    last_wait = {};
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
  Cause why_under_way(const UnderWay& work, uintptr_t address) override;
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
    fail("cp.async at %s: the global address is not a multiple of %d bytes", place(where).c_str(),
         bytes);
  }
  if (source_bytes < 0 || source_bytes > bytes) {
    fail("cp.async at %s: %d source bytes of %d", place(where).c_str(), source_bytes, bytes);
  }
  if (const std::string outside = describe_outside(uintptr_t(global), size_t(source_bytes));
      source_bytes > 0 && !outside.empty()) {
    fail("cp.async at %s reads %s", place(where).c_str(), outside.c_str());
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
  AsyncCopy copy{to,    static_cast<const uint8_t*>(global), bytes, source_bytes, where,
                 false, copies().of(me).last_wait.number};
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
  mine.groups.push_back({std::move(mine.open), where});
  mine.open.clear();
  mine.committed++;
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
  mine.last_wait = {where, mine.last_wait.number + 1, mine.committed, uint64_t(groups)};
  while (mine.groups.size() > size_t(groups)) {
    for (const AsyncCopy& copy : mine.groups.front().copies) {
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

Cause Copies::why_under_way(const UnderWay& work, uintptr_t address) {
  if (work.engine) return {};
  const LaneCopies& mine = of(work.starter);
  Cause cause;
  const auto look = [&](const std::vector<AsyncCopy>& all, uint64_t group, SourceLocation commit) {
    for (const AsyncCopy& copy : all) {
      if (address - uintptr_t(copy.to) >= uintptr_t(copy.bytes)) continue;
      cause = cause_of_group("The copy may still be under way", mine.last_wait,
                             {copy.waits_before, group, commit}, "cp_async_wait", "cp_async_commit",
                             work.own);
    }
  };
  uint64_t group = mine.committed - mine.groups.size();
  for (const CopyGroup& each : mine.groups) look(each.copies, ++group, each.committed);
  look(mine.open, 0, {});
  return cause;
}

// Copies that a thread has not waited for are done at its end; on a GPU they end some time.
void Copies::thread_ends(Lane& me) {
  LaneCopies& mine = of(me);
  const AsyncCopy* pending = mine.open.empty() ? nullptr : &mine.open.front();
  for (const auto& group : mine.groups) {
    if (!pending && !group.copies.empty()) pending = &group.copies.front();
  }
  if (pending && me.cta->detector) {
    fail(
        "exits without having waited for cp.async at %s:%u\n  Missing: %scp_async_wait<0> after "
        "it.\n  Or: nobody wants what it brings, such as a tile behind the last one.",
        relative_path(pending->where.file).c_str(), pending->where.line,
        mine.open.empty() ? "" : "cp_async_commit and ");
  }
  for (const auto& group : mine.groups) {
    for (const AsyncCopy& copy : group.copies) complete(copy);
  }
  for (const AsyncCopy& copy : mine.open) complete(copy);
  mine.groups.clear();
  mine.open.clear();
}

}  // namespace emu
