// Races between the CTAs of a launch.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/emulator/checks/reports.h"
#include "common/emulator/core/lane.h"
#include "common/emulator/core/launch.h"
#include "common/emulator/core/memory.h"

namespace emu {

LaunchAccesses::LaunchAccesses(const char* kernel, dim3 grid, int cluster)
    : kernel_(kernel), grid_(grid), ctas_(uint64_t(cluster)) {
  note_host_writes();
}

// ---- which clusters -----------------------------------------------------------------------------
bool ClusterSet::contains(uint64_t cluster) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& range) {
    return range.first <= cluster && cluster < range.second;
  });
}

void ClusterSet::add(const ClusterSet& others) {
  std::vector<std::pair<uint64_t, uint64_t>> all, merged;
  std::merge(ranges_.begin(), ranges_.end(), others.ranges_.begin(), others.ranges_.end(),
             std::back_inserter(all));
  for (const auto& range : all) {
    if (merged.empty() || range.first > merged.back().second) {
      merged.push_back(range);
    } else {
      merged.back().second = std::max(merged.back().second, range.second);
    }
  }
  ranges_ = std::move(merged);
}

void ClusterSet::add(uint64_t cluster) {
  ClusterSet one;
  one.ranges_ = {{cluster, cluster + 1}};
  add(one);
}

ClusterSet LaunchAccesses::heard_of_at(uintptr_t address) {
  const std::lock_guard lock(heard_mutex_);
  const auto found = heard_of_.find(address);
  return found == heard_of_.end() ? ClusterSet() : found->second;
}

void LaunchAccesses::pass_on_at(uintptr_t address, uint64_t cluster, const ClusterSet* known) {
  const std::lock_guard lock(heard_mutex_);
  ClusterSet& here = heard_of_[address];
  if (known) here.add(*known);
  here.add(cluster);
}

// ---- what they did ------------------------------------------------------------------------------
std::string LaunchAccesses::name(const Culprit& culprit) const {
  char text[96];
  snprintf(text, sizeof text, " of CTA (%u,%u,%u)", unsigned(culprit.cta % grid_.x),
           unsigned(culprit.cta / grid_.x % grid_.y), unsigned(culprit.cta / grid_.x / grid_.y));
  return culprit_name(culprit) + text;
}

void LaunchAccesses::report(const Culprit& one, bool one_writes, const Culprit& other,
                            bool other_writes, uintptr_t address, Site atomic) {
  std::string text = std::string(kernel_) + ": data race on " + describe_place(address) +
                     line_of(operation_of(one.site), place_of(one.site), name(one)) +
                     line_of(operation_of(other.site), place_of(other.site), name(other));
  const bool both_write = one_writes && other_writes;
  const bool both_store = both_write && !is_atomic(one.site) && !is_atomic(other.site);
  if (atomic && both_store) {
    text +=
        "\n  Both CTAs store the same place, and before the second its CTA met an atomic that the "
        "first one's CTA had executed:\n  " +
        operation_of(atomic) + " at " + place_of(atomic) +
        ". If CTAs take their parts from a counter there, two have taken the same one.\n  "
        "Wrong: where the counter begins, its step, or an index made of it."
        "\n  Or: the second is to overwrite the first. Missing: a __threadfence() between the "
        "first and that atomic.";
    return end_with({one.site, other.site, text});
  }
  if (atomic) {
    text +=
        "\n  Before the second, its CTA met an atomic that the first one's CTA had executed."
        "\n  Missing: a __threadfence() between the first and that atomic.";
    return end_with({one.site, other.site, text});
  }
  text += "\n  CTAs of a launch run in any order and cannot wait for each other. ";
  text += both_write
              ? "Let each write its own part: an index lacks blockIdx, or the grid is too large."
              : "Do the two in separate launches.";
  if (both_store && atomics_) {
    text +=
        "\n  Or: they take parts from a counter, as this launch has atomics, and two take the same "
        "one: the counter begins or\n  steps wrongly.";
  }
  if (both_write && place_of(one.site) == place_of(other.site)) {
    text += "\n  Or: all add to one value: atomicAdd().";
  }
  if (is_atomic(one.site) != is_atomic(other.site)) {
    text += "\n  Or: make both of them atomic";
    if (!(is_atomic(one.site) ? other_writes : one_writes)) {
      text += ":\n  load through volatile, or by atomicAdd() of 0";
    }
    text += ".";
  } else if (one_writes && !other_writes) {
    text +=
        "\n  Or: pass the first on: __threadfence() after it, then an atomic, whose address the "
        "other's CTA meets by an\n  atomic before it reads.";
  }
  end_with({one.site, other.site, text});
}

void LaunchAccesses::end_with(const Report& report) {
  if (!options().keep_going) throw LaunchError(report.text + how_to_repeat());
  const auto same = [&](const Report& each) { return each.is_of(report.one, report.other); };
  if (std::none_of(reports_.begin(), reports_.end(), same)) reports_.push_back(report);
}

// Also if the launch has ended for another reason, which may be the consequence.
LaunchAccesses::~LaunchAccesses() {
  for (const Report& each : reports_) options().keep_going(each.text + how_to_repeat());
}

void LaunchAccesses::merge(uint64_t cluster, const Races& races, const ShadowPage& from) {
  Page& page = pages_.try_emplace(from.number, &memory_).first->second;
  const auto is_none = [](const Culprits& all) { return all.empty(); };
  const bool is_new = std::all_of(std::begin(page.by), std::end(page.by), is_none);
  if (is_new) {
    page.log2 = from.log2;
    page.stored.assign(from.stored.begin(), from.stored.end());
  } else if (from.log2 < page.log2) {
    const int parts_log2 = page.log2 - from.log2;
    for (Culprits& all : page.by) {
      Culprits finer(all.size() << parts_log2, &memory_);
      for (size_t i = 0; i < finer.size(); i++) finer[i] = all[i >> parts_log2];
      all = std::move(finer);
    }
    page.log2 = from.log2;
  }
  const size_t pieces = size_t(1) << (kPageLog2 - page.log2);
  for (size_t i = 0; i < pieces; i++) {
    const Access& mine = from.pieces[i >> (from.log2 - page.log2)];
    if (!mine.lanes && !mine.next) continue;
    const auto kept = [&](Who who) { return page.by[who].empty() ? Culprit() : page.by[who][i]; };
    const uintptr_t address = (from.number << kPageLog2) + (i << page.log2);
    // An access and one of an earlier cluster.
    const auto heard_of = [&](const Culprit& other, const Access& access) {
      return access.lesson && races.lessons_[access.lesson - 1].known.contains(other.cta / ctas_);
    };
    const auto heard_at = [&](const Culprit& other, const Access& access) {
      for (size_t lesson = 0; lesson < access.lesson; lesson++) {
        if (races.lessons_[lesson].known.contains(other.cta / ctas_))
          return races.lessons_[lesson].atomic;
      }
      return Site(0);
    };
    const auto race = [&](const Culprit& other, const Access& access) {
      return other.thread >= 0 && other.cta / ctas_ != cluster &&
             !(is_atomic(other.site) && is_atomic(access.site)) &&
             !(heard_of(other, access) && other.passed_on);
    };
    const auto meet = [&](const Culprit& other, bool other_writes, const Access& access,
                          const Culprit& me, bool writes) {
      if (!race(other, access)) return;
      report(other, other_writes, me, writes, address, heard_at(other, access));
    };
    const auto culprit = [&](const Access& access, uint32_t lanes) {
      Culprit who = races.culprit(access.warp, lanes, access.site);
      // An atomic passes itself on, as far as its own address goes.
      who.passed_on =
          tag_of(access.site) == kAtomicTag || Races::before(access, races.passed_on_.data());
      return who;
    };
    // The access that is hardest to order stands for all of its kind.
    const auto keep = [&](Who who, const Culprit& other) {
      page.by[who].resize(pieces);
      Culprit& known = page.by[who][i];
      if (known.thread < 0 || known.passed_on) known = other;
    };
    const Access *read = nullptr, *atomic = nullptr;
    for (uint32_t at = mine.next; at; at = races.reads_[at].next) {
      const Access& other = races.reads_[at];
      const Access*& first = modifies(other.site) ? atomic : read;
      if (!first || std::pair(is_atomic(other.site), other.lesson) <
                        std::pair(is_atomic(first->site), first->lesson)) {
        first = &other;
      }
    }
    if (mine.lanes) {
      const Culprit writer = culprit(mine, mine.lanes);
      const size_t at = i << page.log2, bytes = size_t(1) << page.log2;
      // Who reads what two CTAs store may find either of them not yet done.
      const bool equal = tag_of(mine.site) == kStoreTag &&
                         tag_of(kept(kWriter).site) == kStoreTag && !from.stored.empty() &&
                         !page.stored.empty() &&
                         memcmp(&from.stored[at], &page.stored[at], bytes) == 0 &&
                         !race(kept(kReader), mine) && !(read && race(kept(kWriter), *read));
      if (!equal) {
        meet(kept(kWriter), true, mine, writer, true);
      } else if (equal_stores_.one.thread < 0 && race(kept(kWriter), mine)) {
        equal_stores_ = {address, kept(kWriter), writer};
      }
      meet(kept(kReader), false, mine, writer, true);
      meet(kept(kAtomic), true, mine, writer, true);
      const Culprit before = kept(kWriter);
      if (!is_new && (before.thread < 0 || before.passed_on)) {
        page.stored.resize(from.stored.empty() ? page.stored.size() : size_t(1) << kPageLog2);
        if (!from.stored.empty()) memcpy(&page.stored[at], &from.stored[at], bytes);
      }
      keep(kWriter, writer);
    }
    if (read) {
      const Culprit reader = culprit(*read, read->lanes & -read->lanes);
      meet(kept(kWriter), true, *read, reader, false);
      meet(kept(kAtomic), true, *read, reader, false);
      keep(kReader, reader);
    }
    if (atomic) {
      const Culprit changer = culprit(*atomic, atomic->lanes & -atomic->lanes);
      meet(kept(kWriter), true, *atomic, changer, true);
      meet(kept(kReader), false, *atomic, changer, true);
      keep(kAtomic, changer);
    }
  }
}

void LaunchAccesses::add(uint64_t cluster, const Races* races) {
  std::unique_lock lock(mutex_);
  turn_.wait(lock, [&] { return next_ == cluster; });
  next_++;
  turn_.notify_all();
  if (!races) return;
  // By buffer, in the order in which these were made: addresses differ from run to run.
  std::vector<std::tuple<size_t, uintptr_t, const ShadowPage*>> pages;
  for (const auto& [number, page] : races->pages_) {
    const uintptr_t first = number << kPageLog2;
    const auto overlaps = [&](const Cta& cta) {
      const uintptr_t shared = uintptr_t(cta.shared);
      return first < shared + cta.shared_bytes && first + kPageMask >= shared;
    };
    const auto& ctas = races->cluster_.ctas;
    if (std::none_of(ctas.begin(), ctas.end(), overlaps))
      pages.emplace_back(region_index(first), number, page.get());
  }
  std::sort(pages.begin(), pages.end());
  atomics_ |= !races->lessons_.empty() || races->has_passed_on_;
  for (const Report& each : races->reports_) end_with(each);
  if (options().keep_going) report_unwritten(races->unwritten_shared_);
  for (const auto& [buffer, number, page] : pages) merge(cluster, *races, *page);
  if (unwritten_.reader.thread < 0) unwritten_ = races->unwritten_global_;
  if (equal_stores_.one.thread < 0) equal_stores_ = races->equal_stores_;
}

// Once per two places of the program.
void LaunchAccesses::note(const EqualStores& stores) const {
  static std::set<std::string> noted;
  const std::string one = place_of(stores.one.site), other = place_of(stores.other.site);
  if (!noted.insert(kernel_ + one + other).second) return;
  const std::string text =
      "note: " + std::string(kernel_) + ": several threads store the same value in any order, in " +
      describe_place(stores.address) + line_of("store", one, name(stores.one)) +
      line_of("store", other, name(stores.other)) +
      "\n  CUDA keeps one of the stores, so this is no race. Were the values "
      "different, it would be one.\n";
  fflush(stdout);
  fputs(text.c_str(), stderr);
}

void LaunchAccesses::report_unwritten(const Races::Unwritten& read) {
  if (read.reader.thread < 0) return;
  end_with({0, read.reader.site,
            std::string(kernel_) + ": " +
                unwritten_text(read.reader.site, name(read.reader), read.address, written(read))});
}

// Atomics do not count where they are what reads.
Written LaunchAccesses::written(const Races::Unwritten& read) const {
  const bool allocated = region_name(read.address).starts_with("the cuda");
  if (!allocated || !none_written(read.address)) return Written::kBefore;
  const size_t buffer = region_index(read.address);
  for (const auto& [number, page] : pages_) {
    for (const Who who : {kWriter, kAtomic}) {
      const Culprits& all = page.by[who];
      if (who == kAtomic && is_atomic(read.reader.site)) continue;
      for (size_t i = 0; i < all.size(); i++) {
        const uintptr_t address = (number << kPageLog2) + (i << page.log2);
        if (all[i].thread >= 0 && region_index(address) == buffer) return Written::kNow;
      }
    }
  }
  return Written::kNever;
}

void LaunchAccesses::finish() {
  report_unwritten(unwritten_);
  for (const auto& [number, page] : pages_) {
    const Culprits& writers = page.by[kWriter];
    for (size_t i = 0, first = 0; i <= writers.size(); i++) {
      if (i < writers.size() && writers[i].thread >= 0) continue;
      const uintptr_t address = (number << kPageLog2) + (first << page.log2);
      if (i > first) mark_written(address, (i - first) << page.log2);
      first = i + 1;
    }
  }
  if (equal_stores_.one.thread >= 0) note(equal_stores_);
}

}  // namespace emu
