// Clocks, and the shadow that remembers who accessed what.
#include "common/emulator/checks/races.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/emulator/checks/reports.h"
#include "common/emulator/core/launch.h"

namespace emu {
namespace {

uint64_t count(const dim3& grid) { return uint64_t(grid.x) * grid.y * grid.z; }

void raise_to(uint32_t* to, const uint32_t* from, size_t count) {
  for (size_t i = 0; i < count; i++) to[i] = std::max(to[i], from[i]);
}

void raise_to(std::vector<uint32_t>& to, const std::vector<uint32_t>& from) {
  if (to.size() < from.size()) to.resize(from.size());
  raise_to(to.data(), from.data(), from.size());
}

}  // namespace

// ---- clocks -------------------------------------------------------------------------------------
Races::Races(Cluster& cluster, LaunchAccesses& launch)
    : cluster_(cluster),
      allows_equal_stores_(options().equal_stores),
      is_alone_(count(cluster.ctas[0].grid_dim) == cluster.ctas.size()),
      threads_(cluster.warps.size() * kWarpSize),
      stride_(threads_),
      clocks_(threads_ * stride_),
      ends_(threads_),
      views_(cluster.warps.size()),
      launch_(launch),
      passed_on_(stride_) {}

void Races::begin() {
  if (ticked_) {
    std::fill(clocks_.begin(), clocks_.end(), 0);
    for (size_t i = 0; i < threads_; i++) clocks(int(i))[i] = 1;
    for (std::vector<uint32_t>& kind : fenced_) std::fill(kind.begin(), kind.end(), 0);
    std::fill(passed_on_.begin(), passed_on_.end(), 0);
    for (std::vector<uint32_t>& ends : ends_) ends.clear();
    for (WarpView& view : views_) view.valid = false;
    engines_.clear();
    ticked_ = false;
  }
  handovers_.clear();
  lessons_.clear();
  lesson_engine_ = -1;
  has_passed_on_ = false;
  for (auto& page : pages_) free_pages_.push_back(std::move(page.second));
  pages_.clear();
  for (CachedPage& cached : cache_) cached = {};
  reads_.resize(1);
  free_read_ = 0;
  unwritten_shared_ = unwritten_global_ = {};
  within_warp_.clear();
  reports_.clear();
  under_way_ = {};
  unsettled_.clear();
  guesses_.clear();
  equal_stores_ = {};
  for (Update& update : updates_) update = {};
}

// Room for more engines.
void Races::resize(size_t stride) {
  for (std::vector<uint32_t>* const all : {&clocks_, &fenced_[0], &fenced_[1], &fenced_[2]}) {
    if (all->empty()) continue;
    std::vector<uint32_t> larger(threads_ * stride);
    for (size_t i = 0; i < threads_; i++) {
      std::copy_n(&(*all)[i * stride_], stride_, &larger[i * stride]);
    }
    *all = std::move(larger);
  }
  stride_ = stride;
  passed_on_.resize(stride);
  for (WarpView& view : views_) view.valid = false;
}

uint32_t* Races::fenced(Fence kind, int slot) {
  std::vector<uint32_t>& all = fenced_[size_t(kind)];
  if (all.empty()) all.resize(threads_ * stride_);
  return &all[size_t(slot) * stride_];
}

void Races::tick(const Lane& lane) {
  clocks(slot_of(lane))[slot_of(lane)]++;
  ticked_ = true;
  views_[size_t(lane.warp->slot)].valid = false;
}

void Races::release(const Lane& lane, Clocks& into) {
  settle_all();
  into.seen.resize(stride_);
  raise_to(into.seen.data(), clocks(slot_of(lane)), stride_);
  for (const Fence kind : {Fence::kProxy, Fence::kCta, Fence::kGpu}) {
    if (fenced_[size_t(kind)].empty()) continue;
    std::vector<uint32_t>& known = into.fenced[size_t(kind)];
    known.resize(stride_);
    raise_to(known.data(), fenced(kind, slot_of(lane)), stride_);
  }
  raise_to(into.ends, known_ends(lane));
  tick(lane);
}

void Races::acquire(const Lane& lane, const Clocks& from) {
  settle_all();
  raise_to(clocks(slot_of(lane)), from.seen.data(), from.seen.size());
  for (const Fence kind : {Fence::kProxy, Fence::kCta, Fence::kGpu}) {
    const std::vector<uint32_t>& known = from.fenced[size_t(kind)];
    if (!known.empty()) raise_to(fenced(kind, slot_of(lane)), known.data(), known.size());
  }
  if (!from.ends.empty()) raise_to(ends_[size_t(slot_of(lane))], from.ends);
  views_[size_t(lane.warp->slot)].valid = false;
}

void Races::synchronise_warp(const Warp& warp, uint32_t lanes) {
  Clocks all;
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    release(warp.lanes[std::countr_zero(rest)], all);
  }
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    acquire(warp.lanes[std::countr_zero(rest)], all);
  }
}

bool Races::has_seen(const Lane& lane, const Clocks& them, int but_engine) const {
  const uint32_t* const mine = clocks(slot_of(lane));
  const size_t but = but_engine < 0 ? stride_ : threads_ + size_t(but_engine);
  for (size_t i = 0; i < them.seen.size(); i++) {
    if (them.seen[i] > mine[i] && i != but) return false;
  }
  return true;
}

// ---- engines ------------------------------------------------------------------------------------
int Races::new_engine(Engine kind) {
  settle_all();
  if (threads_ + engines_.size() == stride_) resize(stride_ + kWarpSize);
  engines_.push_back({kind, nullptr});
  ticked_ = true;
  return int(engines_.size() - 1);
}

void Races::access(int engine, uint32_t clock, const Lane& starter, uintptr_t address, size_t bytes,
                   bool write, Site site) {
  engines_[size_t(engine)].starter = &starter;
  const size_t at = threads_ + size_t(engine);
  access({clocks(slot_of(starter)), clock, 1u << at % kWarpSize, uint16_t(at / kWarpSize),
          fenced(Fence::kProxy, slot_of(starter))},
         address, bytes, write, site);
}

void Races::learn(Clocks& to, int engine, uint32_t clock) {
  to.seen.resize(stride_);
  uint32_t& known = to.seen[threads_ + size_t(engine)];
  known = std::max(known, clock);
}

void Races::learn(const Lane& lane, int engine, uint32_t clock) {
  settle_all();
  uint32_t& known = clocks(slot_of(lane))[threads_ + size_t(engine)];
  known = std::max(known, clock);
  views_[size_t(lane.warp->slot)].valid = false;
}

bool Races::knows_end(const Lane& lane, int engine, uint32_t phase) const {
  if (cluster_.ctas.size() == 1) return false;
  const std::vector<uint32_t>& ends = ends_[size_t(slot_of(lane))];
  return size_t(engine) < ends.size() && ends[size_t(engine)] >= phase;
}

std::vector<uint32_t> Races::known_ends(const Lane& starter) const {
  if (cluster_.ctas.size() == 1) return {};
  const uint32_t* const mine = clocks(slot_of(starter)) + threads_;
  std::vector<uint32_t> ends(mine, mine + engines_.size());
  raise_to(ends, ends_[size_t(slot_of(starter))]);
  return ends;
}

void Races::note_fence(const Lane& lane, Fence kind) {
  settle_all();
  raise_to(fenced(kind, slot_of(lane)), clocks(slot_of(lane)), stride_);
  if (kind == Fence::kGpu) {
    raise_to(fenced(Fence::kCta, slot_of(lane)), clocks(slot_of(lane)), stride_);
  }
  tick(lane);  // what comes later does not lie before the fence
}

bool Races::has_fenced(const Access& access) const {
  const std::vector<uint32_t>& all = fenced_[size_t(Fence::kProxy)];
  if (all.empty()) return false;
  for (uint32_t rest = access.lanes; rest; rest &= rest - 1) {
    const auto at = size_t(access.warp * kWarpSize + std::countr_zero(rest));
    if (all[at * stride_ + at] < access.clock) return false;
  }
  return true;
}

const Engine* Races::engine_of(int warp, uint32_t lanes) const {
  const size_t at = size_t(warp) * kWarpSize + size_t(std::countr_zero(lanes));
  return at < threads_ ? nullptr : &engines_[at - threads_].kind;
}

// ---- shadow -------------------------------------------------------------------------------------
bool Races::is_shared(uintptr_t address) const {
  for (const Cta& cta : cluster_.ctas) {
    if (address - uintptr_t(cta.shared) < cta.shared_bytes) return true;
  }
  return false;
}

ShadowPage& Races::page_of(uintptr_t address, size_t bytes) {
  const uintptr_t number = address >> kPageLog2;
  CachedPage& cached = cache_[spread(number) % std::size(cache_)];
  if (cached.number != number) cached = {number, &find_page(address, bytes)};
  return *cached.page;
}

ShadowPage& Races::find_page(uintptr_t address, size_t bytes) {
  const uintptr_t number = address >> kPageLog2;
  std::unique_ptr<ShadowPage>& page = pages_[number];
  if (!page) {
    if (free_pages_.empty()) free_pages_.push_back(std::make_unique<ShadowPage>());
    page = std::move(free_pages_.back());
    free_pages_.pop_back();
    page->number = number;
    page->log2 = std::min(4, std::countr_zero(bytes));  // no coarser than its first access
    page->pieces.assign(size_t(1) << (kPageLog2 - page->log2), Access{});
    page->stored.clear();
    page->former.clear();
    page->shared = is_shared(address);
    // In a cluster every access to shared memory is checked, because its CTA may have ended.
    const bool is_plain = !page->shared || cluster_.ctas.size() == 1;
    page->plain = is_plain ? plain_bytes_around(address) : ByteRange{};
  }
  return *page;
}

// Halves a page's pieces until they have 2^log2 bytes: each half gets what the whole had.
void Races::refine(ShadowPage& page, int log2) {
  std::vector<Access> pieces(size_t(1) << (kPageLog2 - log2));
  const size_t parts = size_t(1) << (page.log2 - log2);
  for (size_t i = 0; i < pieces.size(); i++) {
    pieces[i] = page.pieces[i / parts];
    if (i % parts == 0) continue;
    pieces[i].next = 0;
    for (uint32_t read = page.pieces[i / parts].next; read; read = reads_[read].next) {
      Access copy = reads_[read];
      copy.next = pieces[i].next;
      pieces[i].next = new_read(copy);
    }
  }
  if (!page.former.empty()) {
    std::vector<uint32_t> former(pieces.size());
    for (size_t i = 0; i < former.size(); i++) former[i] = page.former[i / parts];
    page.former = std::move(former);
  }
  page.pieces = std::move(pieces);
  page.log2 = log2;
}

void Races::release_reads(uint32_t first) {
  while (first) {
    const uint32_t next = reads_[first].next;
    reads_[first].next = free_read_;
    free_read_ = first;
    first = next;
  }
}

// ---- accesses -----------------------------------------------------------------------------------
void Races::read(const Actor& actor, ShadowPage& page, uintptr_t address, Site site) {
  const size_t index = (address & kPageMask) >> page.log2;
  Access& piece = page.pieces[index];
  const bool atomic = is_atomic(site);
  const bool both_atomic = atomic && is_atomic(piece.site);
  if ((!before(piece, actor.seen) && !both_atomic) ||
      (actor.fenced && !is_engine(piece) && !before(piece, actor.fenced))) {
    report(piece, true, actor, modifies(site), site, address, true,
           page.former.empty() ? 0 : page.former[index]);
  }
  const uint16_t lesson_known = lesson(actor.seen);
  for (uint32_t at = piece.next; at; at = reads_[at].next) {
    Access& other = reads_[at];
    if (is_atomic(other.site) != atomic) {
      if ((modifies(other.site) || modifies(site)) && !before(other, actor.seen)) {
        if (tag_of(site) == kLoadTag) {
          guesses_.push_back({other, lane_of(actor.warp, actor.lanes), site, address});
        } else {
          report(other, modifies(other.site), actor, modifies(site), site, address, true);
        }
      }
      continue;
    }
    if (other.warp != actor.warp || other.clock != actor.clock || other.lesson != lesson_known) {
      continue;
    }
    if ((actor.lanes & ~other.lanes) == 0) return;
    if (other.site == site) {
      other.lanes |= actor.lanes;
      return;
    }
  }
  if (piece.lanes == 0) {  // perhaps only not yet: then whoever writes it finds this read
    const bool shared = page.shared;
    Unwritten& first = shared ? unwritten_shared_ : unwritten_global_;
    if (first.reader.thread < 0 && (shared || never_written(address))) {
      first = {address, culprit(actor.warp, actor.lanes, site)};
    }
  }
  // Whoever writes must come after this read, and so after those that came before it: they can go.
  // Reads are in the way of atomics and atomics in that of reads, so each makes room for its own.
  for (uint32_t* link = &piece.next; *link;) {
    Access& other = reads_[*link];
    if (is_atomic(other.site) == atomic && modifies(other.site) == modifies(site) &&
        other.lesson == lesson_known && before(other, actor.seen)) {
      const uint32_t gone = *link;
      *link = other.next;
      other.next = free_read_;
      free_read_ = gone;
    } else {
      link = &other.next;
    }
  }
  piece.next = new_read({site, actor.clock, actor.lanes, piece.next, actor.warp, lesson_known});
}

void Races::write(const Actor& actor, ShadowPage& page, uintptr_t address, Site site) {
  const size_t index = (address & kPageMask) >> page.log2;
  Access& piece = page.pieces[index];
  const bool was_written = piece.lanes != 0, atomic = is_atomic(site);
  if (was_written && is_mbarrier_site(piece.site) && before(piece, actor.seen)) {
    report_overwritten(piece, actor, site, address);
  }
  if ((!before(piece, actor.seen) && !(atomic && is_atomic(piece.site))) ||
      (actor.fenced && !is_engine(piece) && !before(piece, actor.fenced))) {
    if (allows_equal_stores_ && tag_of(site) == kStoreTag && tag_of(piece.site) == kStoreTag) {
      const uint8_t* const stored = &page.stored[address & kPageMask];
      const Lane* const lane = lane_of(actor.warp, actor.lanes);
      unsettled_.push_back(
          {piece, {stored, stored + (size_t(1) << page.log2)}, lane, site, address});
    } else {
      report(piece, true, actor, true, site, address, was_written);
    }
  }
  const Site kept = store_site(actor, page, piece, site);
  for (uint32_t at = piece.next; at; at = reads_[at].next) {
    const Access& read = reads_[at];
    if (read.warp == actor.warp && (read.lanes & actor.lanes)) {
      update_of(site) = {site, read.site};
      update_of(kept) = {kept, read.site};
    }
  }
  // The same store, or another copy, has been there before, and what came between was passed on.
  const bool known = was_written && before(piece, actor.seen) &&
                     (piece.warp != actor.warp || piece.clock != actor.clock);
  const bool again = known && ((piece.site ^ site) << (64 - kTagShift)) == 0;
  const bool copied =
      known && is_copy(actor.warp, actor.lanes, actor.clock) && (again || is_copy_site(piece.site));
  uint32_t former = (again ? kAgain : 0) | (copied ? kCopied : 0);
  for (uint32_t at = piece.next; at; at = reads_[at].next) {
    if (!before(reads_[at], actor.seen) && !(atomic && is_atomic(reads_[at].site))) {
      report(reads_[at], modifies(reads_[at].site), actor, true, site, address, was_written,
             former);
    }
  }
  if (former) {
    for (uint32_t at = piece.next; at; at = reads_[at].next) former |= 1u << reads_[at].warp % 30;
    page.former.resize(page.pieces.size());
  }
  if (!page.former.empty()) page.former[index] = former;
  release_reads(piece.next);
  piece = {kept, actor.clock, actor.lanes, 0, actor.warp, lesson(actor.seen)};
}

// A store hides the reads before it. Where one of them is in the way of others' stores, so is the
// store, even of the same value: the read of its own thread since the thread last met others, and
// every read of the CTA where other CTAs store.
Site Races::store_site(const Actor& actor, const ShadowPage& page, const Access& piece,
                       Site site) const {
  if (!allows_equal_stores_ || tag_of(site) != kStoreTag) return site;
  const Site other = other_store(site);
  if (between_clusters(page)) {
    return piece.next || tag_of(piece.site) == kOtherStoreTag ? other : site;
  }
  for (uint32_t at = piece.next; at; at = reads_[at].next) {
    const Access& read = reads_[at];
    if (read.warp == actor.warp && (read.lanes & actor.lanes) && read.clock == actor.clock) {
      return other;
    }
  }
  return site;
}

void Races::access(const Actor& actor, uintptr_t address, size_t bytes, bool writes, Site site) {
  settle();
  // A thread may load other things between its guess and the comparison.
  if (!guesses_.empty() &&
      !(tag_of(site) == kLoadTag && lane_of(actor.warp, actor.lanes) == guesses_[0].lane &&
        std::none_of(guesses_.begin(), guesses_.end(),
                     [&](const Guess& guess) { return guess.address - address < bytes; }))) {
    end_guesses();
  }
  ShadowPage& page = page_of(address, bytes);
  if (bytes < size_t(1) << page.log2) refine(page, std::countr_zero(bytes));
  // The next threads will most likely want what comes next.
  __builtin_prefetch(&page.pieces[(address & kPageMask) >> page.log2] + 3, 1);
  __builtin_prefetch(reinterpret_cast<const void*>(address + 64));
  const uintptr_t size = uintptr_t(1) << page.log2;
  for (uintptr_t at = address; at < address + bytes; at += size) {
    if (writes) {
      write(actor, page, at, site);
    } else {
      read(actor, page, at, site);
    }
  }
  if (writes && tag_of(site) == kStoreTag && allows_equal_stores_)
    begin_store(page, address, bytes);
}

void Races::begin_store(ShadowPage& page, uintptr_t address, size_t bytes) {
  if (!page.shared) store_lock_ = launch_.lock_stores_to(page.number);
  under_way_ = {&page, address, bytes};
}

void Races::settle_all() {
  settle();
  if (!guesses_.empty()) end_guesses();
}

void Races::end_guesses() {
  for (const Guess& each : std::exchange(guesses_, {})) {
    const Lane& lane = *each.lane;
    const Actor now{clocks(slot_of(lane)), clock(lane), 1u << lane.lane, uint16_t(lane.warp->slot)};
    report(each.atomic, true, now, false, each.site, each.address, true);
  }
}

void Races::compare(const Lane& lane, uintptr_t address, size_t bytes) {
  std::erase_if(guesses_, [&](const Guess& guess) {
    return guess.lane == &lane && guess.address - address < bytes;
  });
  settle_all();
  ShadowPage& page = page_of(address, bytes);
  const size_t first = (address & kPageMask) >> page.log2;
  for (size_t i = 0; i << page.log2 < bytes; i++) {
    for (uint32_t* link = &page.pieces[first + i].next; *link;) {
      Access& read = reads_[*link];
      if (tag_of(read.site) == kLoadTag && read.warp == lane.warp->slot &&
          read.clock == clock(lane)) {
        read.lanes &= ~(1u << lane.lane);
      }
      if (read.lanes != 0) {
        link = &read.next;
        continue;
      }
      const uint32_t gone = *link;
      *link = read.next;
      read.next = free_read_;
      free_read_ = gone;
    }
  }
}

void Races::settle() {
  if (under_way_.page) settle(*under_way_.page);
}

void Races::settle(ShadowPage& page) {
  page.stored.resize(size_t(1) << kPageLog2);
  memcpy(&page.stored[under_way_.address & kPageMask],
         reinterpret_cast<const void*>(under_way_.address), under_way_.bytes);
  under_way_ = {};
  if (store_lock_) store_lock_.unlock();
  const std::vector<Unsettled> all = std::exchange(unsettled_, {});
  for (const Unsettled& each : all) {
    const Lane& lane = *each.lane;
    const Actor now{clocks(slot_of(lane)), clock(lane), 1u << lane.lane, uint16_t(lane.warp->slot)};
    if (memcmp(each.stored.data(), &page.stored[each.address & kPageMask], each.stored.size())) {
      report(each.earlier, true, now, true, each.site, each.address, true);
    } else if (equal_stores_.one.thread < 0) {
      equal_stores_ = {each.address,
                       culprit(each.earlier.warp, each.earlier.lanes, each.earlier.site),
                       culprit(now.warp, now.lanes, each.site)};
    }
  }
}

void Races::access(const Lane& lane, uintptr_t address, size_t bytes, bool write, Site site) {
  access({clocks(slot_of(lane)), clock(lane), 1u << lane.lane, uint16_t(lane.warp->slot)}, address,
         bytes, write, site);
}

// What is remembered of an atomic is what is remembered of a read; its site tells the difference.
void Races::atomic(const Lane& lane, uintptr_t address, size_t bytes, bool reads, bool writes,
                   Site site) {
  settle_all();
  if (reads) pass_on(lane, address, true, false, site);
  access(lane, address, bytes, !reads, site);
  if (writes) pass_on(lane, address, false, true, site);
}

void Races::volatile_access(const Lane& lane, uintptr_t address, size_t bytes, bool write,
                            uintptr_t program_counter) {
  atomic(lane, address, bytes, !write, write,
         program_counter | uint64_t(write ? kVolatileStoreTag : kVolatileLoadTag) << kTagShift);
}

void Races::pass_on(const Lane& lane, uintptr_t address, bool reads, bool writes, Site site) {
  const bool between_clusters = !is_shared(address);
  const bool fences = !fenced_[size_t(Fence::kCta)].empty();
  if (!between_clusters && !fences) return;
  Handover& here = handovers_[address / 8];
  const int slot = slot_of(lane);
  if (reads) {
    acquire(lane, here.clocks);
    if (between_clusters && !here.asked) {
      here.asked = true;
      if (ClusterSet known = launch_.heard_of_at(address / 8); !known.empty()) {
        if (lesson_engine_ < 0) lesson_engine_ = new_engine(Engine::kLesson);
        if (!lessons_.empty()) known.add(lessons_.back().known);
        if (lessons_.size() == 0xffff) lessons_.pop_back();
        lessons_.push_back({std::move(known), site});
        here.lesson = uint32_t(lessons_.size());
      }
    }
    if (here.lesson) learn(lane, lesson_engine_, here.lesson);
  }
  if (!writes) return;
  if (fences) {
    here.clocks.seen.resize(stride_);
    raise_to(here.clocks.seen.data(), fenced(Fence::kCta, slot), stride_);
    for (const Fence kind : {Fence::kProxy, Fence::kCta, Fence::kGpu}) {
      if (fenced_[size_t(kind)].empty()) continue;
      std::vector<uint32_t>& known = here.clocks.fenced[size_t(kind)];
      known.resize(stride_);
      raise_to(known.data(), fenced(kind, slot), stride_);
    }
  }
  if (!between_clusters) return;
  uint32_t known = 0;
  if (!fenced_[size_t(Fence::kGpu)].empty()) {
    const uint32_t* const seen = fenced(Fence::kGpu, slot);
    raise_to(passed_on_.data(), seen, stride_);
    known = lesson(seen);
  }
  if (here.passed_on && known <= here.passed_on_lesson) return;
  launch_.pass_on_at(address / 8, cluster_.index, known ? &lessons_[known - 1].known : nullptr);
  has_passed_on_ = true;
  here.passed_on = true;
  here.passed_on_lesson = known;
}

const Races::WarpView& Races::view(const Warp& warp) {
  WarpView& view = views_[size_t(warp.slot)];
  if (view.valid && view.lanes == warp.live) return view;
  view.lanes = warp.live;
  view.clock = 0;
  // The lanes' clocks are made equal, so that one number stands for all. (A clock may run ahead.)
  for (uint32_t rest = warp.live; rest; rest &= rest - 1) {
    view.clock = std::max(view.clock, clock(warp.lanes[std::countr_zero(rest)]));
  }
  view.seen.assign(stride_, kInFlight);
  for (uint32_t rest = warp.live; rest; rest &= rest - 1) {
    const int at = slot_of(warp.lanes[std::countr_zero(rest)]);
    uint32_t* const mine = clocks(at);
    mine[at] = view.clock;
    for (size_t i = 0; i < stride_; i++) view.seen[i] = std::min(view.seen[i], mine[i]);
  }
  view.valid = true;
  return view;
}

void Races::access(const Warp& warp, uintptr_t address, size_t bytes, bool write, Site site) {
  settle_all();
  const WarpView& all = view(warp);
  access({all.seen.data(), all.clock, all.lanes, uint16_t(warp.slot)}, address, bytes, write, site);
}

void Races::begin_copy(const Lane& lane, uintptr_t to, size_t bytes, Site site) {
  access({clocks(slot_of(lane)), kInFlight, 1u << lane.lane, uint16_t(lane.warp->slot)}, to, bytes,
         true, site);
}

void Races::end_copy(const Lane& lane, uintptr_t to, size_t bytes) {
  settle_all();
  ShadowPage& page = page_of(to, 16);
  for (uintptr_t at = to; at < to + bytes; at += uintptr_t(1) << page.log2) {
    Access& piece = page.pieces[(at & kPageMask) >> page.log2];
    piece.clock = clock(lane);
  }
}

// ---- the end ------------------------------------------------------------------------------------
void Races::end_of_cta(const Cta& cta) {
  settle_all();
  if (cluster_.ctas.size() == 1) return;
  std::vector<uint32_t> all(stride_);  // what its threads have seen
  for (const Lane& lane : cta.lanes) raise_to(all.data(), clocks(slot_of(lane)), stride_);
  const auto check = [&](const Access& access, uintptr_t address) {
    if (access.lanes == 0 || before(access, all.data())) return;
    const Culprit who = culprit(access.warp, access.lanes, access.site);
    fail_cta(
        "ends while CTA " + std::to_string(who.cta % cluster_.ctas.size()) +
        " of the cluster may still reach " + describe_place(address) +
        line_of(operation_of(access.site), place_of(access.site), culprit_name(who)) +
        "\n  Missing: a barrier of the cluster (cluster_arrive, cluster_wait) before the end.");
  };
  const uintptr_t begin = uintptr_t(cta.shared), end = begin + cta.shared_bytes;
  for (uintptr_t number = begin >> kPageLog2; number <= (end - 1) >> kPageLog2; number++) {
    const auto found = pages_.find(number);
    if (found == pages_.end()) continue;
    const ShadowPage& page = *found->second;
    for (size_t i = 0; i < page.pieces.size(); i++) {
      const uintptr_t address = (number << kPageLog2) + (i << page.log2);
      if (address < begin || address >= end) continue;
      check(page.pieces[i], address);
      for (uint32_t at = page.pieces[i].next; at; at = reads_[at].next) check(reads_[at], address);
    }
  }
}

}  // namespace emu
