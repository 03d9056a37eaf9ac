#include "common/emulator/races.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/emulator/lane.h"
#include "common/emulator/launch.h"
#include "common/emulator/memory.h"
#include "common/emulator/vector_types.h"

namespace emu {
namespace {

constexpr uint32_t kInFlight = 0xffffffffu;  // the clock of a copy under way: nobody is past it
constexpr uintptr_t kPageMask = (uintptr_t(1) << kPageLog2) - 1;

// ---- sites -------------------------------------------------------------------------------------------
// The top byte says what the rest is: the address of a NamedSite, or a load's or a store's program counter.
constexpr int kTagShift = 56;
constexpr uint64_t kLoadTag = 1, kStoreTag = 2;

struct NamedSite {
  const char* operation;
  const char* file;
  unsigned line;
  bool operator<(const NamedSite& other) const {
    return std::tie(line, file, operation) < std::tie(other.line, other.file, other.operation);
  }
};

const NamedSite* named(Site site) {
  return site >> kTagShift ? nullptr : reinterpret_cast<const NamedSite*>(uintptr_t(site));
}

std::string operation_of(Site site) {
  if (const NamedSite* const it = named(site)) return it->operation;
  return site >> kTagShift == kStoreTag ? "store" : "load";
}

std::string place_of(Site site) {
  if (const NamedSite* const it = named(site)) {
    return relative_path(it->file) + ":" + std::to_string(it->line);
  }
  return symbolise(uintptr_t(site & ~(uint64_t(0xff) << kTagShift)) - 1);
}

std::string thread_name(int thread) {
  char text[64];
  snprintf(text, sizeof text, "thread %d (warp %d lane %d)", thread, thread / kWarpSize,
           thread % kWarpSize);
  return text;
}

std::string culprit_name(const Culprit& culprit) {
  return culprit.warp ? "warp " + std::to_string(culprit.thread / kWarpSize)
                      : thread_name(culprit.thread);
}

std::string line_of(const std::string& verb, const std::string& place, const std::string& who) {
  return "\n  " + verb + " at " + place + " by " + who;
}

// "between line 1 and line 2" if both are in one file.
std::string between_places(const std::string& first, const std::string& second) {
  const size_t colon = first.rfind(':');
  const bool one_file = first.substr(0, colon) == second.substr(0, second.rfind(':'));
  const auto name = [&](const std::string& place) {
    return one_file && colon != std::string::npos ? "line " + place.substr(colon + 1) : place;
  };
  if (first == second) return "between two turns of " + name(first);
  return "between " + name(first) + " and " + name(second);
}

void raise_to(uint32_t* to, const uint32_t* from, size_t count) {
  for (size_t i = 0; i < count; i++) to[i] = std::max(to[i], from[i]);
}

void raise_to(std::vector<uint32_t>& to, const std::vector<uint32_t>& from) {
  if (to.size() < from.size()) to.resize(from.size());
  raise_to(to.data(), from.data(), from.size());
}

std::string unwritten_text(Site site, const std::string& who, uintptr_t address) {
  return "read of memory that nothing has written, " + describe_place(address) +
         line_of(operation_of(site), place_of(site), who) +
         "\n  Write it first: a tile's tail, a row or a copy is missing, or an index is wrong.";
}

}  // namespace

Site plain_site(uintptr_t program_counter, bool write) {
  return program_counter | (write ? kStoreTag : kLoadTag) << kTagShift;
}

Site named_site(const char* operation, SourceLocation where) {
  static std::mutex mutex;
  static std::set<NamedSite> sites;
  const std::lock_guard lock(mutex);
  return uintptr_t(&*sites.insert({operation, where.file, where.line}).first);
}

// ---- clocks ------------------------------------------------------------------------------------------
Races::Races(Cluster& cluster)
    : cluster_(cluster),
      threads_(cluster.warps.size() * kWarpSize),
      stride_(threads_),
      clocks_(threads_ * stride_),
      ends_(threads_),
      barriers_(cluster.ctas.size() * kNamedBarriers),
      last_turn_(barriers_.size()),
      views_(cluster.warps.size()) {}

void Races::begin() {
  if (ticked_) {
    std::fill(clocks_.begin(), clocks_.end(), 0);
    for (size_t i = 0; i < threads_; i++) clocks(int(i))[i] = 1;
    std::fill(fenced_.begin(), fenced_.end(), 0);
    for (std::vector<uint32_t>& ends : ends_) ends.clear();
    for (Clocks& barrier : barriers_) barrier.clear();
    for (Clocks& barrier : last_turn_) barrier.clear();
    for (WarpView& view : views_) view.valid = false;
    engines_.clear();
    ticked_ = false;
  }
  for (auto& page : pages_) free_pages_.push_back(std::move(page.second));
  pages_.clear();
  for (CachedPage& cached : cache_) cached = {};
  reads_.resize(1);
  free_read_ = 0;
  unwritten_shared_ = unwritten_global_ = {};
  within_warp_.clear();
}

// Room for more engines.
void Races::resize(size_t stride) {
  for (std::vector<uint32_t>* const all : {&clocks_, &fenced_}) {
    if (all->empty()) continue;
    std::vector<uint32_t> larger(threads_ * stride);
    for (size_t i = 0; i < threads_; i++) {
      std::copy_n(&(*all)[i * stride_], stride_, &larger[i * stride]);
    }
    *all = std::move(larger);
  }
  stride_ = stride;
  for (WarpView& view : views_) view.valid = false;
}

uint32_t* Races::fenced(int slot) {
  if (fenced_.empty()) fenced_.resize(threads_ * stride_);
  return &fenced_[size_t(slot) * stride_];
}

void Races::tick(const Lane& lane) {
  clocks(slot(lane))[slot(lane)]++;
  ticked_ = true;
  views_[size_t(lane.warp->slot)].valid = false;
}

void Races::release(const Lane& lane, Clocks& into) {
  into.seen.resize(stride_);
  raise_to(into.seen.data(), clocks(slot(lane)), stride_);
  if (!fenced_.empty()) {
    into.fenced.resize(stride_);
    raise_to(into.fenced.data(), fenced(slot(lane)), stride_);
  }
  raise_to(into.ends, known_ends(lane));
  tick(lane);
}

void Races::acquire(const Lane& lane, const Clocks& from) {
  raise_to(clocks(slot(lane)), from.seen.data(), from.seen.size());
  if (!from.fenced.empty()) raise_to(fenced(slot(lane)), from.fenced.data(), from.fenced.size());
  if (!from.ends.empty()) raise_to(ends_[size_t(slot(lane))], from.ends);
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

void Races::arrive(const Lane& lane, int barrier) {
  release(lane, barriers_[size_t(lane.cta->rank * kNamedBarriers + barrier)]);
}

void Races::leave(const Lane& lane, int barrier) {
  acquire(lane, barriers_[size_t(lane.cta->rank * kNamedBarriers + barrier)]);
}

void Races::reset(const Cta& cta, int barrier) {
  const auto at = size_t(cta.rank * kNamedBarriers + barrier);
  std::swap(last_turn_[at], barriers_[at]);
  barriers_[at].clear();
}

bool Races::has_seen(const Lane& lane, const Clocks& them, int but_engine) const {
  const uint32_t* const mine = clocks(slot(lane));
  const size_t but = but_engine < 0 ? stride_ : threads_ + size_t(but_engine);
  for (size_t i = 0; i < them.seen.size(); i++) {
    if (them.seen[i] > mine[i] && i != but) return false;
  }
  return true;
}

bool Races::knows_last_turn(const Lane& lane, int barrier) const {
  return has_seen(lane, last_turn_[size_t(lane.cta->rank * kNamedBarriers + barrier)]);
}

// ---- engines -----------------------------------------------------------------------------------------
int Races::new_engine(Engine kind) {
  if (threads_ + engines_.size() == stride_) resize(stride_ + kWarpSize);
  engines_.push_back({kind, nullptr});
  ticked_ = true;
  return int(engines_.size() - 1);
}

void Races::access(int engine, uint32_t clock, const Lane& starter, uintptr_t address, size_t bytes,
                   bool write, Site site) {
  engines_[size_t(engine)].starter = &starter;
  const size_t at = threads_ + size_t(engine);
  access({clocks(slot(starter)), clock, 1u << at % kWarpSize, uint16_t(at / kWarpSize),
          fenced(slot(starter))},
         address, bytes, write, site);
}

void Races::learn(Clocks& to, int engine, uint32_t clock) {
  to.seen.resize(stride_);
  uint32_t& known = to.seen[threads_ + size_t(engine)];
  known = std::max(known, clock);
}

void Races::learn(const Lane& lane, int engine, uint32_t clock) {
  uint32_t& known = clocks(slot(lane))[threads_ + size_t(engine)];
  known = std::max(known, clock);
  views_[size_t(lane.warp->slot)].valid = false;
}

bool Races::knows_end(const Lane& lane, int engine, uint32_t phase) const {
  if (cluster_.ctas.size() == 1) return false;
  const std::vector<uint32_t>& ends = ends_[size_t(slot(lane))];
  return size_t(engine) < ends.size() && ends[size_t(engine)] >= phase;
}

std::vector<uint32_t> Races::known_ends(const Lane& starter) const {
  if (cluster_.ctas.size() == 1) return {};
  const uint32_t* const mine = clocks(slot(starter)) + threads_;
  std::vector<uint32_t> ends(mine, mine + engines_.size());
  raise_to(ends, ends_[size_t(slot(starter))]);
  return ends;
}

void Races::fence_proxy(const Lane& lane) {
  raise_to(fenced(slot(lane)), clocks(slot(lane)), stride_);
  tick(lane);  // what comes later does not lie before the fence
}

bool Races::has_fenced(const Access& access) const {
  if (fenced_.empty()) return false;
  for (uint32_t rest = access.lanes; rest; rest &= rest - 1) {
    const auto at = size_t(access.warp * kWarpSize + std::countr_zero(rest));
    if (fenced_[at * stride_ + at] < access.clock) return false;
  }
  return true;
}

const Engine* Races::engine_of(int warp, uint32_t lanes) const {
  const size_t at = size_t(warp) * kWarpSize + size_t(std::countr_zero(lanes));
  return at < threads_ ? nullptr : &engines_[at - threads_].kind;
}

// ---- shadow ------------------------------------------------------------------------------------------
bool Races::is_shared(uintptr_t address) const {
  for (const Cta& cta : cluster_.ctas) {
    if (address - uintptr_t(cta.shared) < cta.shared_bytes) return true;
  }
  return false;
}

ShadowPage& Races::page_of(uintptr_t address) {
  const uintptr_t number = address >> kPageLog2;
  CachedPage& cached = cache_[number % std::size(cache_)];
  if (cached.number == number) return *cached.page;
  std::unique_ptr<ShadowPage>& page = pages_[number];
  if (!page) {
    if (free_pages_.empty()) free_pages_.push_back(std::make_unique<ShadowPage>());
    page = std::move(free_pages_.back());
    free_pages_.pop_back();
    page->number = number;
    page->log2 = 4;
    page->pieces.assign(size_t(1) << (kPageLog2 - page->log2), Access{});
  }
  cached = {number, page.get()};
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
  page.pieces = std::move(pieces);
  page.log2 = log2;
}

uint32_t Races::new_read(const Access& read) {
  if (!free_read_) {
    reads_.push_back(read);
    return uint32_t(reads_.size() - 1);
  }
  const uint32_t index = free_read_;
  free_read_ = reads_[index].next;
  reads_[index] = read;
  return index;
}

void Races::release_reads(uint32_t first) {
  while (first) {
    const uint32_t next = reads_[first].next;
    reads_[first].next = free_read_;
    free_read_ = first;
    first = next;
  }
}

// ---- accesses ----------------------------------------------------------------------------------------
bool Races::before(const Access& access, const uint32_t* seen) {
  const uint32_t* const of_warp = seen + access.warp * kWarpSize;
  for (uint32_t rest = access.lanes; rest; rest &= rest - 1) {
    if (of_warp[std::countr_zero(rest)] < access.clock) return false;
  }
  return true;
}

void Races::read(const Actor& actor, Access& piece, uintptr_t address, Site site) {
  if (!before(piece, actor.seen) ||
      (actor.fenced && !is_engine(piece) && !before(piece, actor.fenced))) {
    report(piece, true, actor, false, site, address, true);
  }
  for (uint32_t at = piece.next; at; at = reads_[at].next) {
    Access& other = reads_[at];
    if (other.warp != actor.warp || other.clock != actor.clock) continue;
    if ((actor.lanes & ~other.lanes) == 0) return;
    if (other.site == site) {
      other.lanes |= actor.lanes;
      return;
    }
  }
  if (piece.lanes == 0) {  // perhaps only not yet: then whoever writes it finds this read
    const bool shared = is_shared(address);
    Unwritten& first = shared ? unwritten_shared_ : unwritten_global_;
    if (first.reader.thread < 0 && (shared || never_written(address))) {
      first = {address, culprit(actor.warp, actor.lanes, site)};
    }
  }
  // Whoever writes must come after this read, and so after those that came before it: they can go.
  for (uint32_t* link = &piece.next; *link;) {
    Access& other = reads_[*link];
    if (before(other, actor.seen)) {
      const uint32_t gone = *link;
      *link = other.next;
      other.next = free_read_;
      free_read_ = gone;
    } else {
      link = &other.next;
    }
  }
  piece.next = new_read({site, actor.clock, actor.lanes, piece.next, actor.warp});
}

void Races::write(const Actor& actor, Access& piece, uintptr_t address, Site site) {
  const bool was_written = piece.lanes != 0;
  if (!before(piece, actor.seen) ||
      (actor.fenced && !is_engine(piece) && !before(piece, actor.fenced))) {
    report(piece, true, actor, true, site, address, was_written);
  }
  for (uint32_t at = piece.next; at; at = reads_[at].next) {
    if (!before(reads_[at], actor.seen)) {
      report(reads_[at], false, actor, true, site, address, was_written);
    }
  }
  release_reads(piece.next);
  piece = {site, actor.clock, actor.lanes, 0, actor.warp};
}

void Races::access(const Actor& actor, uintptr_t address, size_t bytes, bool writes, Site site) {
  ShadowPage& page = page_of(address);
  if (bytes < size_t(1) << page.log2) refine(page, std::countr_zero(bytes));
  const uintptr_t size = uintptr_t(1) << page.log2;
  for (uintptr_t at = address; at < address + bytes; at += size) {
    Access& piece = page.pieces[(at & kPageMask) >> page.log2];
    if (writes) {
      write(actor, piece, at, site);
    } else {
      read(actor, piece, at, site);
    }
  }
}

void Races::access(const Lane& lane, uintptr_t address, size_t bytes, bool write, Site site) {
  access({clocks(slot(lane)), clock(lane), 1u << lane.lane, uint16_t(lane.warp->slot)}, address,
         bytes, write, site);
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
    const int at = slot(warp.lanes[std::countr_zero(rest)]);
    uint32_t* const mine = clocks(at);
    mine[at] = view.clock;
    for (size_t i = 0; i < stride_; i++) view.seen[i] = std::min(view.seen[i], mine[i]);
  }
  view.valid = true;
  return view;
}

void Races::access(const Warp& warp, uintptr_t address, size_t bytes, bool write, Site site) {
  const WarpView& all = view(warp);
  access({all.seen.data(), all.clock, all.lanes, uint16_t(warp.slot)}, address, bytes, write, site);
}

void Races::begin_copy(const Lane& lane, uintptr_t to, size_t bytes, Site site) {
  access({clocks(slot(lane)), kInFlight, 1u << lane.lane, uint16_t(lane.warp->slot)}, to, bytes,
         true, site);
}

void Races::end_copy(const Lane& lane, uintptr_t to, size_t bytes) {
  ShadowPage& page = page_of(to);
  for (uintptr_t at = to; at < to + bytes; at += uintptr_t(1) << page.log2) {
    Access& piece = page.pieces[(at & kPageMask) >> page.log2];
    piece.clock = clock(lane);
  }
}

// ---- reports -----------------------------------------------------------------------------------------
Culprit Races::culprit(int warp, uint32_t lanes, Site site) const {
  const size_t at = size_t(warp) * kWarpSize + size_t(std::countr_zero(lanes));
  const bool engine = at >= threads_;
  const Warp& starter =
      engine ? *engines_[at - threads_].starter->warp : cluster_.warps[size_t(warp)];
  const Cta& cta = *starter.lanes->cta;
  const uint3& block = cta.block_idx;
  const uint64_t index =
      block.x + uint64_t(cta.grid_dim.x) * (block.y + uint64_t(cta.grid_dim.y) * block.z);
  if (engine) return {site, index, engines_[at - threads_].starter->thread, false};
  return {site, index, starter.index * kWarpSize + std::countr_zero(lanes),
          (lanes & (lanes - 1)) != 0};
}

std::string Races::unwritten_read() const {
  if (unwritten_shared_.reader.thread < 0) return "";
  return unwritten_text(unwritten_shared_.reader.site, culprit_name(unwritten_shared_.reader),
                        unwritten_shared_.address);
}

// What is missing, up to where it is missing.
std::string Races::cure(const Access& earlier, bool earlier_writes, const Actor& now, bool writes,
                        bool same_thread, bool swapped) const {
  const Engine* engine = engine_of(earlier.warp, earlier.lanes);
  const Engine* const later = engine_of(now.warp, now.lanes);
  if (!engine && later && before(earlier, now.seen)) {
    return "Stores of threads do not show to the asynchronous engines by themselves. Missing: "
           "fence_proxy_async() in the thread that stores, before the barrier, ";
  }
  if (!engine && swapped) engine = later;
  if (engine) {
    switch (*engine) {
      case Engine::kLoad:
        return "The copy may still be under way. Missing: an mbarrier_wait for the phase that the "
               "copy belongs to, ";
      case Engine::kStoreRead:
        return "The copy may not have read yet. Missing: cp_async_bulk_wait_read in the thread "
               "that started it, then a barrier, ";
      case Engine::kStoreWrite:
        return "The copy may still be under way. Missing: cp_async_bulk_wait in the thread that "
               "started it, then a barrier, ";
      case Engine::kProduct:
        return "The product may still be running. Missing: wgmma_wait in its warps, then a "
               "barrier, ";
    }
  }
  if (later && earlier_writes && !writes && has_fenced(earlier)) {
    return "Missing: a barrier between the fence_proxy_async() of the threads that store and the "
           "copy or product, ";
  }
  if (later && earlier_writes && !writes) {
    return "Missing: fence_proxy_async() in the thread that stores, then a barrier, ";
  }
  if (later) {
    return "The copy overwrites what may still be in use. Missing: an mbarrier_arrive after it "
           "that the copying thread waits for (or an mbarrier_wait before it), ";
  }
  if (earlier.clock == kInFlight && same_thread) {
    return "The copy may still be under way. Missing: cp_async_wait ";
  }
  if (earlier.clock == kInFlight) {
    return "The copy may still be under way. Missing: cp_async_wait in the thread that copies, "
           "then a barrier, ";
  }
  if (earlier.warp == now.warp) {
    return "The lanes of a warp need not run in step. Missing: a __syncwarp() ";
  }
  if (cluster_.warps[earlier.warp].lanes->cta != cluster_.warps[now.warp].lanes->cta) {
    return "CTAs run in any order. Missing: a barrier of the cluster (cluster_arrive, "
           "cluster_wait) ";
  }
  return "Warps run in any order. Missing: a __syncthreads() ";
}

void Races::report(const Access& earlier, bool earlier_writes, const Actor& now, bool writes,
                   Site site, uintptr_t address, bool was_written) {
  const bool within_warp =
      earlier.warp == now.warp && earlier.clock != kInFlight && !is_engine(earlier);
  if (within_warp && !within_warp_.empty()) return;

  // Of a plain access by several lanes: the first that is not ordered.
  uint32_t lanes = earlier.lanes;
  const bool whole_warp = named(earlier.site) && (lanes & (lanes - 1));
  if (!whole_warp && !before(earlier, now.seen)) {
    const uint32_t* const seen = now.seen + earlier.warp * kWarpSize;
    while (seen[std::countr_zero(lanes)] >= earlier.clock) lanes &= lanes - 1;
  }
  const Culprit one = culprit(earlier.warp, whole_warp ? lanes : lanes & -lanes, earlier.site);
  const Culprit other = culprit(now.warp, now.lanes, site);
  const std::string place = place_of(one.site), other_place = place_of(site);

  // In the order in which they should happen: a read that found nothing belongs after the write.
  const bool swapped = !earlier_writes && !was_written;
  std::string missing = cure(earlier, earlier_writes, now, writes,
                             !other.warp && one.thread == other.thread, swapped) +
                        between_places(swapped ? other_place : place,  //
                                       swapped ? place : other_place);
  if (place == other_place && earlier_writes && writes) {
    missing += "; or both write the same bytes by mistake";
  }
  const bool clusters = cluster_.ctas.size() > 1;
  const auto name = [&](const Culprit& who) {
    return culprit_name(who) +
           (clusters ? " of CTA " + std::to_string(who.cta % cluster_.ctas.size()) : "");
  };
  const std::string text = "data race on " + describe_place(address) +
                           line_of(operation_of(one.site), place, name(one)) +
                           line_of(operation_of(site), other_place, name(other)) + "\n  " +
                           missing + ".";
  if (within_warp) {
    within_warp_ = text;
  } else {
    within_warp_.clear();
    fail_cta(text);
  }
}

void Races::end_of_cta(const Cta& cta) {
  if (cluster_.ctas.size() == 1) return;
  std::vector<uint32_t> all(stride_);  // what its threads have seen
  for (const Lane& lane : cta.lanes) raise_to(all.data(), clocks(slot(lane)), stride_);
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

// ---- between CTAs ------------------------------------------------------------------------------------
LaunchAccesses::LaunchAccesses(const char* kernel, dim3 grid, int cluster)
    : kernel_(kernel), grid_(grid), ctas_(uint64_t(cluster)) {
  note_host_writes();
}

std::string LaunchAccesses::name(const Culprit& culprit) const {
  char text[96];
  snprintf(text, sizeof text, " of CTA (%u,%u,%u)", unsigned(culprit.cta % grid_.x),
           unsigned(culprit.cta / grid_.x % grid_.y), unsigned(culprit.cta / grid_.x / grid_.y));
  return culprit_name(culprit) + text;
}

void LaunchAccesses::report(const Culprit& one, bool one_writes, const Culprit& other,
                            bool other_writes, uintptr_t address) const {
  std::string text = std::string(kernel_) + ": data race on " + describe_place(address) +
                     line_of(operation_of(one.site), place_of(one.site), name(one)) +
                     line_of(operation_of(other.site), place_of(other.site), name(other)) +
                     "\n  CTAs of a launch run in any order and cannot wait for each other. ";
  text += one_writes && other_writes
              ? "Let each write its own part: an index lacks blockIdx, or the grid is too large."
              : "Do the two in separate launches.";
  throw LaunchError(text + how_to_repeat());
}

void LaunchAccesses::merge(uint64_t cluster, const Races& races, const ShadowPage& from) {
  Page& page = pages_[from.number];
  if (page.pieces.empty()) {
    page.log2 = from.log2;
    page.pieces.resize(from.pieces.size());
  } else if (from.log2 < page.log2) {
    std::vector<Piece> pieces(from.pieces.size());
    for (size_t i = 0; i < pieces.size(); i++) {
      pieces[i] = page.pieces[i >> (page.log2 - from.log2)];
    }
    page.pieces = std::move(pieces);
    page.log2 = from.log2;
  }
  for (size_t i = 0; i < page.pieces.size(); i++) {
    const Access& mine = from.pieces[i >> (from.log2 - page.log2)];
    Piece& all = page.pieces[i];
    const uintptr_t address = (from.number << kPageLog2) + (i << page.log2);
    const auto conflicts = [&](const Culprit& other) {
      return other.thread >= 0 && other.cta / ctas_ != cluster;
    };
    if (mine.lanes) {
      const Culprit writer = races.culprit(mine.warp, mine.lanes, mine.site);
      if (conflicts(all.writer)) report(all.writer, true, writer, true, address);
      if (conflicts(all.reader)) report(all.reader, false, writer, true, address);
      if (all.writer.thread < 0) all.writer = writer;
    }
    if (mine.next) {
      const Access& read = races.reads_[mine.next];
      const Culprit reader = races.culprit(read.warp, read.lanes & -read.lanes, read.site);
      if (conflicts(all.writer)) report(all.writer, true, reader, false, address);
      if (all.reader.thread < 0) all.reader = reader;
    }
  }
}

void LaunchAccesses::add(uint64_t cluster, const Races* races) {
  std::unique_lock lock(mutex_);
  turn_.wait(lock, [&] { return next_ == cluster; });
  next_++;
  turn_.notify_all();
  if (!races) return;
  std::vector<const ShadowPage*> pages;
  for (const auto& [number, page] : races->pages_) {
    const uintptr_t first = number << kPageLog2;
    const auto overlaps = [&](const Cta& cta) {
      const uintptr_t shared = uintptr_t(cta.shared);
      return first < shared + cta.shared_bytes && first + kPageMask >= shared;
    };
    const auto& ctas = races->cluster_.ctas;
    if (std::none_of(ctas.begin(), ctas.end(), overlaps)) pages.push_back(page.get());
  }
  std::sort(pages.begin(), pages.end(), [](auto* a, auto* b) { return a->number < b->number; });
  for (const ShadowPage* page : pages) merge(cluster, *races, *page);
  if (unwritten_.reader.thread < 0) unwritten_ = races->unwritten_global_;
}

void LaunchAccesses::finish() {
  if (unwritten_.reader.thread >= 0) {
    throw LaunchError(
        std::string(kernel_) + ": " +
        unwritten_text(unwritten_.reader.site, name(unwritten_.reader), unwritten_.address) +
        how_to_repeat());
  }
  for (const auto& [number, page] : pages_) {
    for (size_t i = 0; i < page.pieces.size(); i++) {
      if (page.pieces[i].writer.thread >= 0) {
        mark_written((number << kPageLog2) + (i << page.log2), size_t(1) << page.log2);
      }
    }
  }
}

}  // namespace emu
