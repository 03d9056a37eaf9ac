// Races between the CTAs of a launch.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/emulator/checks/races.h"
#include "common/emulator/checks/reports.h"
#include "common/emulator/core/lane.h"
#include "common/emulator/core/launch.h"
#include "common/emulator/core/memory.h"
#include "common/emulator/core/vector_types.h"
#include "common/emulator/core/watch.h"

namespace emu {

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
  if (is_atomic(one.site) != is_atomic(other.site)) text += " Or make both of them atomic.";
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
      if (conflicts(all.atomic)) report(all.atomic, true, writer, true, address);
      if (all.writer.thread < 0) all.writer = writer;
    }
    const Access *read = nullptr, *atomic = nullptr;
    for (uint32_t at = mine.next; at && !(read && atomic); at = races.reads_[at].next) {
      const Access*& first = is_atomic(races.reads_[at].site) ? atomic : read;
      if (!first) first = &races.reads_[at];
    }
    if (read) {
      const Culprit reader = races.culprit(read->warp, read->lanes & -read->lanes, read->site);
      if (conflicts(all.writer)) report(all.writer, true, reader, false, address);
      if (conflicts(all.atomic)) report(all.atomic, true, reader, false, address);
      if (all.reader.thread < 0) all.reader = reader;
    }
    if (atomic) {
      const Culprit changer =
          races.culprit(atomic->warp, atomic->lanes & -atomic->lanes, atomic->site);
      if (conflicts(all.writer)) report(all.writer, true, changer, true, address);
      if (conflicts(all.reader)) report(all.reader, false, changer, true, address);
      if (all.atomic.thread < 0) all.atomic = changer;
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
