#include "common/emulator/races.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <set>
#include <tuple>

#include "common/emulator/launch.h"
#include "common/emulator/memory.h"

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
Races::Races(Cta& cta)
    : cta_(cta),
      stride_((cta.lanes.size() + 7) / 8 * 8),
      clocks_(cta.lanes.size() * stride_),
      views_(cta.warps.size()) {}

void Races::begin() {
  if (ticked_) {
    std::fill(clocks_.begin(), clocks_.end(), 0);
    for (size_t i = 0; i < cta_.lanes.size(); i++) clocks(int(i))[i] = 1;
    for (auto& barrier : barriers_) barrier.clear();
    for (WarpView& view : views_) view.valid = false;
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

void Races::tick(const Lane& lane) {
  clocks(lane.thread)[lane.thread]++;
  ticked_ = true;
  views_[size_t(lane.warp->index)].valid = false;
}

void Races::synchronise_warp(const Warp& warp, uint32_t lanes) {
  std::vector<uint32_t> all(stride_);
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    raise_to(all.data(), clocks(warp.lanes[std::countr_zero(rest)].thread), stride_);
  }
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    const Lane& lane = warp.lanes[std::countr_zero(rest)];
    std::copy(all.begin(), all.end(), clocks(lane.thread));
    tick(lane);
  }
}

void Races::arrive(const Lane& lane, int barrier) {
  auto& seen = barriers_[barrier];
  seen.resize(stride_);
  raise_to(seen.data(), clocks(lane.thread), stride_);
  tick(lane);
}

void Races::leave(const Lane& lane, int barrier) {
  raise_to(clocks(lane.thread), barriers_[barrier].data(), barriers_[barrier].size());
  views_[size_t(lane.warp->index)].valid = false;
}

void Races::reset(int barrier) { barriers_[barrier].clear(); }

// ---- shadow ------------------------------------------------------------------------------------------
bool Races::is_shared(uintptr_t address) const {
  return address - uintptr_t(cta_.shared) < cta_.shared_bytes;
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
bool Races::before(const Access& access, const Actor& actor) {
  const uint32_t* const seen = actor.seen + access.warp * kWarpSize;
  for (uint32_t rest = access.lanes; rest; rest &= rest - 1) {
    if (seen[std::countr_zero(rest)] < access.clock) return false;
  }
  return true;
}

void Races::read(const Actor& actor, Access& piece, uintptr_t address, Site site) {
  if (!before(piece, actor)) report(piece, true, actor, false, site, address, true);
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
    if (before(other, actor)) {
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
  if (!before(piece, actor)) report(piece, true, actor, true, site, address, was_written);
  for (uint32_t at = piece.next; at; at = reads_[at].next) {
    if (!before(reads_[at], actor)) {
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
  const uint32_t* const seen = clocks(lane.thread);
  access({seen, seen[lane.thread], 1u << lane.lane, uint16_t(lane.warp->index)}, address, bytes,
         write, site);
}

const Races::WarpView& Races::view(const Warp& warp) {
  WarpView& view = views_[size_t(warp.index)];
  if (view.valid && view.lanes == warp.live) return view;
  view.lanes = warp.live;
  view.clock = 0;
  // The lanes' clocks are made equal, so that one number stands for all. (A clock may run ahead.)
  for (uint32_t rest = warp.live; rest; rest &= rest - 1) {
    const int thread = warp.lanes[std::countr_zero(rest)].thread;
    view.clock = std::max(view.clock, clocks(thread)[thread]);
  }
  view.seen.assign(stride_, kInFlight);
  for (uint32_t rest = warp.live; rest; rest &= rest - 1) {
    const int thread = warp.lanes[std::countr_zero(rest)].thread;
    uint32_t* const mine = clocks(thread);
    mine[thread] = view.clock;
    for (size_t i = 0; i < stride_; i++) view.seen[i] = std::min(view.seen[i], mine[i]);
  }
  view.valid = true;
  return view;
}

void Races::access(const Warp& warp, uintptr_t address, size_t bytes, bool write, Site site) {
  const WarpView& all = view(warp);
  access({all.seen.data(), all.clock, all.lanes, uint16_t(warp.index)}, address, bytes, write,
         site);
}

void Races::begin_copy(const Lane& lane, uintptr_t to, size_t bytes, Site site) {
  const uint32_t* const seen = clocks(lane.thread);
  access({seen, kInFlight, 1u << lane.lane, uint16_t(lane.warp->index)}, to, bytes, true, site);
}

void Races::end_copy(const Lane& lane, uintptr_t to, size_t bytes) {
  ShadowPage& page = page_of(to);
  for (uintptr_t at = to; at < to + bytes; at += uintptr_t(1) << page.log2) {
    Access& piece = page.pieces[(at & kPageMask) >> page.log2];
    piece.clock = clocks(lane.thread)[lane.thread];
  }
}

// ---- reports -----------------------------------------------------------------------------------------
Culprit Races::culprit(int warp, uint32_t lanes, Site site) const {
  const uint3& block = cta_.block_idx;
  const uint64_t cta =
      block.x + uint64_t(cta_.grid_dim.x) * (block.y + uint64_t(cta_.grid_dim.y) * block.z);
  return {site, cta, warp * kWarpSize + std::countr_zero(lanes), (lanes & (lanes - 1)) != 0};
}

std::string Races::unwritten_read() const {
  if (unwritten_shared_.reader.thread < 0) return "";
  return unwritten_text(unwritten_shared_.reader.site, culprit_name(unwritten_shared_.reader),
                        unwritten_shared_.address);
}

void Races::report(const Access& earlier, bool earlier_writes, const Actor& now, bool writes,
                   Site site, uintptr_t address, bool was_written) {
  const bool in_flight = earlier.clock == kInFlight;
  const bool within_warp = earlier.warp == now.warp && !in_flight;
  if (within_warp && !within_warp_.empty()) return;

  // Of a plain access by several lanes: the first that is not ordered.
  uint32_t lanes = earlier.lanes;
  const bool whole_warp = named(earlier.site) && (lanes & (lanes - 1));
  const uint32_t* const seen = now.seen + earlier.warp * kWarpSize;
  while (!whole_warp && seen[std::countr_zero(lanes)] >= earlier.clock) lanes &= lanes - 1;
  const Culprit one = culprit(earlier.warp, whole_warp ? lanes : lanes & -lanes, earlier.site);
  const Culprit other = culprit(now.warp, now.lanes, site);
  const std::string place = place_of(one.site), other_place = place_of(site);

  // In the order in which they should happen: a read that found nothing belongs after the write.
  const bool swapped = !earlier_writes && !was_written;
  const std::string between = between_places(swapped ? other_place : place,  //
                                             swapped ? place : other_place);
  std::string cure;
  if (in_flight && !other.warp && one.thread == other.thread) {
    cure = "The copy may still be under way. Missing: cp_async_wait " + between;
  } else if (in_flight) {
    cure =
        "The copy may still be under way. Missing: cp_async_wait in the thread that copies, then a "
        "barrier, " +
        between;
  } else if (within_warp) {
    cure = "The lanes of a warp need not run in step. Missing: a __syncwarp() " + between;
  } else {
    cure = "Warps run in any order. Missing: a __syncthreads() " + between;
  }
  if (place == other_place && earlier_writes && writes) {
    cure += "; or both write the same bytes by mistake";
  }
  const std::string text = "data race on " + describe_place(address) +
                           line_of(operation_of(one.site), place, culprit_name(one)) +
                           line_of(operation_of(site), other_place, culprit_name(other)) + "\n  " +
                           cure + ".";
  if (within_warp) {
    within_warp_ = text;
  } else {
    within_warp_.clear();
    fail_cta(text);
  }
}

// ---- between CTAs ------------------------------------------------------------------------------------
LaunchAccesses::LaunchAccesses(const char* kernel, dim3 grid) : kernel_(kernel), grid_(grid) {
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

void LaunchAccesses::merge(uint64_t cta, const Races& races, const ShadowPage& from) {
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
      return other.thread >= 0 && other.cta != cta;
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

void LaunchAccesses::add(uint64_t cta, const Races* races) {
  std::unique_lock lock(mutex_);
  turn_.wait(lock, [&] { return next_ == cta; });
  next_++;
  turn_.notify_all();
  if (!races) return;
  std::vector<const ShadowPage*> pages;
  const uintptr_t shared = uintptr_t(races->cta_.shared), end = shared + races->cta_.shared_bytes;
  for (const auto& [number, page] : races->pages_) {
    const uintptr_t begin = number << kPageLog2;
    if (begin >= end || begin + kPageMask < shared) pages.push_back(page.get());
  }
  std::sort(pages.begin(), pages.end(), [](auto* a, auto* b) { return a->number < b->number; });
  for (const ShadowPage* page : pages) merge(cta, *races, *page);
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
