#include "common/emulator/checks/reports.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/emulator/core/describe.h"
#include "common/emulator/core/image.h"
#include "common/emulator/core/launch.h"
#include "common/emulator/core/memory.h"
#include "common/emulator/core/unit.h"
#include "common/emulator/core/watch.h"

namespace emu {
namespace {

// ---- sites --------------------------------------------------------------------------------------
// The top byte says what the rest is: the address of a NamedSite, or a load's or a store's program
// counter.
constexpr uint64_t kContents = (uint64_t(1) << kTagShift) - 1;

struct NamedSite {
  const char* operation;
  const char* file;
  unsigned line;
  bool operator<(const NamedSite& other) const {
    return std::tie(line, file, operation) < std::tie(other.line, other.file, other.operation);
  }
};

const NamedSite* named(Site site) {
  if (!is_named(site)) return nullptr;
  return reinterpret_cast<const NamedSite*>(uintptr_t(site & kContents));
}

std::string thread_name(int thread) {
  char text[64];
  snprintf(text, sizeof text, "thread %d (warp %d lane %d)", thread, thread / kWarpSize,
           thread % kWarpSize);
  return text;
}

// "line 1" if `other` is in the same file.
std::string line_name(const std::string& place, const std::string& other) {
  const size_t colon = place.rfind(':');
  const bool one_file = place.substr(0, colon) == other.substr(0, other.rfind(':'));
  return one_file && colon != std::string::npos ? "line " + place.substr(colon + 1) : place;
}

// Whether a place is in the file of two others and between them, where the way from the first to
// the second may lead round a loop.
bool is_between(const std::string& place, const std::string& first, const std::string& second) {
  const auto file = [](const std::string& text) { return text.substr(0, text.rfind(':')); };
  const auto line = [](const std::string& text) { return atoi(&text[text.rfind(':') + 1]); };
  if (place.empty() || file(place) != file(first) || file(place) != file(second)) return false;
  const int at = line(place), from = line(first), to = line(second);
  return from < to ? from < at && at < to : at > from || at < to;
}

// `both_write`: so what is missing within one line has no place but between iterations. `again`:
// the second is a store that has been there before.
std::string between_places(const std::string& first, const std::string& second, bool both_write,
                           bool again) {
  if (again && first != second) {
    return "between " + line_name(first, second) + " and the next time that " +
           line_name(second, first) + " is reached";
  }
  if (first != second) {
    return "between " + line_name(first, second) + " and " + line_name(second, first);
  }
  const std::string line = line_name(first, second);
  return both_write ? "between two iterations of " + line + ", if it is in a loop"
                    : "between the loads and the stores of " + line +
                          ", or, if it is in a loop, between two iterations";
}

}  // namespace

Site Races::atomic_site(const char* operation, bool writes, SourceLocation where) {
  return this->site(operation, where) | uint64_t(writes ? kAtomicTag : kAtomicLoadTag) << kTagShift;
}

Site Races::site(const char* operation, SourceLocation where) {
  static std::mutex mutex;
  static std::set<NamedSite> sites;
  const std::lock_guard lock(mutex);
  return uintptr_t(&*sites.insert({operation, where.file, where.line}).first);
}

std::string operation_of(Site site) {
  if (const NamedSite* const it = named(site)) return it->operation;
  switch (tag_of(site)) {
    case kStoreTag:
    case kOtherStoreTag:
      return "store";
    case kVolatileLoadTag:
      return "volatile load";
    case kVolatileStoreTag:
      return "volatile store";
    default:
      return "load";
  }
}

bool is_copy_site(Site site) {
  const NamedSite* const it = is_atomic(site) ? nullptr : named(site);
  return it && strncmp(it->operation, "cp.async", 8) == 0;
}

bool is_mbarrier_site(Site site) {
  const NamedSite* const it = is_atomic(site) ? nullptr : named(site);
  return it && strcmp(it->operation, "mbarrier.init") == 0;
}

std::string place_of(Site site) {
  if (const NamedSite* const it = named(site)) {
    return relative_path(it->file) + ":" + std::to_string(it->line);
  }
  return symbolise(uintptr_t(without_calls(site) & kContents) - 1);
}

std::string culprit_name(const Culprit& culprit) {
  return culprit.warp ? "warp " + std::to_string(culprit.thread / kWarpSize)
                      : thread_name(culprit.thread);
}

std::string line_of(const std::string& verb, const std::string& place, const std::string& who) {
  return "\n  " + verb + " at " + place + " by " + who;
}

std::string unwritten_text(Site site, const std::string& who, uintptr_t address, Written buffer) {
  const std::string text = "read of memory that nothing has written, " + describe_place(address) +
                           line_of(operation_of(site), place_of(site), who) + "\n  ",
                    option = options().keep_going ? "" : options().goes_on,
                    go_on = option.empty() ? "" : "go on with " + option;
  if (buffer == Written::kNever) {
    return text + "Nothing has written this buffer: cudaMemset() or cudaMemcpy() to it" +
           (go_on.empty() ? "" : ", or " + go_on) + ".";
  }
  const std::string cure =
      "Write it first: a tile's tail, a row or a copy is missing.\n  Or: the index of this read is "
      "wrong.";
  if (buffer == Written::kNow) {
    return text + cure +
           "\n  Or: before this launch nothing has written this buffer: cudaMemset() it" +
           (go_on.empty() ? "" : ", or " + go_on) + ".";
  }
  return text + cure + (go_on.empty() ? "" : "\n  Or: it does no harm: " + go_on + ".");
}

// ---- calls --------------------------------------------------------------------------------------
namespace {

// Written before their numbers are known. The first one is none.
constexpr size_t kMostCalls = size_t(1) << 16;
struct Call {
  uint32_t before, return_address;
};
Call all_calls[kMostCalls];

}  // namespace

uint32_t enter_call(uint32_t calls, uintptr_t return_address) {
  struct Known {
    uint64_t call = 0;
    uint32_t number = 0;
  };
  thread_local Known recent[256];
  const uint64_t call = uint64_t(calls) << 32 ^ return_address;
  Known& known = recent[(call * 0x9e3779b97f4a7c15u) >> 56];
  if (known.call == call) return known.number;
  static std::mutex mutex;
  static std::map<uint64_t, uint32_t> numbers;
  const std::lock_guard lock(mutex);
  const auto number = uint32_t(numbers.size() + 1);
  // What is called from another image has no callers.
  if (number >= kMostCalls || (return_address - image().moved) >> 32) return 0;
  const auto [place, is_new] = numbers.try_emplace(call, number);
  if (is_new) all_calls[number] = {calls, uint32_t(return_address)};
  known = {call, place->second};
  return place->second;
}

uint32_t leave_call(uint32_t calls) { return all_calls[calls].before; }

Site without_calls(Site site) {
  if (!options().calls || named(site)) return site;
  return (site & ~kContents) | address_in_image(uint32_t(site));
}

Callers callers_of(Site site, const std::string& place) {
  if (!options().calls || named(site)) return {};
  const uintptr_t program_counter = address_in_image(uint32_t(site));
  std::vector<uintptr_t> program_counters{program_counter - 1};
  for (auto call = uint32_t(((site & kContents) ^ program_counter) >> 32); call;
       call = leave_call(call)) {
    program_counters.push_back(address_in_image(all_calls[call].return_address) - 1);
  }
  std::vector<CodePlace> places = all_places(program_counters);
  // The outermost one is the launch, as <<<>>> is translated.
  const std::string outermost = places.empty() ? "" : places.back().function;
  const auto has = [&](const char* text) { return outermost.find(text) != std::string::npos; };
  if (has("operator()") || (has("emu::Launch::start") && !has("emu::launch_kernel"))) {
    const std::string launch = places.back().place;
    while (!places.empty() && places.back().place == launch) places.pop_back();
  }
  Callers callers;
  for (size_t i = 1; i < places.size(); i++) {
    if (places[i].place == places[i - 1].place) continue;  // a function that calls itself
    callers.text += ", called at " + line_name(places[i].place, place);
    callers.last = places[i].place;
  }
  return callers;
}

// ---- reports ------------------------------------------------------------------------------------
const Lane* Races::lane_of(int warp, uint32_t lanes) const {
  const size_t at = size_t(warp) * kWarpSize + size_t(std::countr_zero(lanes));
  return at >= threads_ ? engines_[at - threads_].starter
                        : &cluster_.warps[size_t(warp)].lanes[std::countr_zero(lanes)];
}

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
  if (unwritten_shared_.reader.thread < 0 || options().keep_going) return "";
  return unwritten_text(unwritten_shared_.reader.site, culprit_name(unwritten_shared_.reader),
                        unwritten_shared_.address, Written::kBefore);
}

// A bulk copy belongs to a phase of its mbarrier: returns which, and which the other
// side knows to be over.
std::string Races::phase_of_copy(const Access& copy, const Actor& other) const {
  const size_t at = size_t(copy.warp) * kWarpSize + size_t(std::countr_zero(copy.lanes));
  if (at < threads_) return "";
  if (other.seen[at] == 0) {
    return ": it belongs to phase " + std::to_string(copy.clock - 1) +
           " of its mbarrier, and the other side has waited for none";
  }
  return ": it belongs to phase " + std::to_string(copy.clock - 1) +
         " of its mbarrier, and phase " + std::to_string(other.seen[at] - 1) +
         ", which the other side has waited for, ended without its bytes";
}

// The accesses of copies, of products and of threads that wait for mbarriers often meet because one
// of them goes to the wrong place, or because a thread has waited for the wrong phase. Returns
// that, with the last wait of each side.
std::string Races::or_else(const Access& earlier, const Actor& now) const {
  std::string text =
      "\n  Or: an index, a stage or a parity is wrong, so that these two should not "
      "have met.";
  const Lane* const sides[] = {lane_of(earlier.warp, earlier.lanes), lane_of(now.warp, now.lanes)};
  std::string waits;
  for (const Lane* const lane : sides) {
    const PhaseWait& wait = lane->last_wait;
    if (wait.where.line == 0 || (lane == sides[1] && lane == sides[0] && !waits.empty())) continue;
    waits += (waits.empty() ? "\n  The last waits: " : ";\n  ") +
             ("thread " + std::to_string(lane->thread)) + " at " + place(wait.where) + ", for " +
             phase_name(wait.phase) + " of the mbarrier at " + describe_place(wait.bar);
  }
  return text + waits + (waits.empty() ? "" : ".");
}

// Returns what is missing; the caller adds where it is missing.
std::string Races::cure(const Access& earlier, bool earlier_writes, const Actor& now, bool writes,
                        bool same_thread, bool swapped) const {
  const Engine* engine = engine_of(earlier.warp, earlier.lanes);
  const Engine* const later = engine_of(now.warp, now.lanes);
  if (!engine && later && before(earlier, now.seen)) {
    return "Stores of threads do not show to the asynchronous engines by themselves. Missing: "
           "fence_proxy_async() in the thread that stores, before the barrier, ";
  }
  if (swapped && later) engine = later;  // what came first should have waited for it
  if (engine) {
    switch (*engine) {
      case Engine::kLoad:
        return "The copy may still be under way" + phase_of_copy(earlier, now) +
               ". Missing: an mbarrier_wait for the phase that the copy belongs to, ";
      case Engine::kStoreRead:
        return "The copy may not have read yet. Missing: cp_async_bulk_wait_read in the thread "
               "that started it, then a barrier, ";
      case Engine::kStoreWrite:
        return "The copy may still be under way. Missing: cp_async_bulk_wait in the thread that "
               "started it, then a barrier, ";
      case Engine::kProduct:
        return "The product may still be running. Missing: a wgmma_wait in the warp that releases "
               "the operands, before its arrival or barrier, ";
      case Engine::kLesson:
        break;
    }
  }
  if (later && earlier_writes && !writes && has_fenced(earlier)) {
    return "Missing: a barrier between the fence_proxy_async() of the threads that store and the "
           "copy or product, ";
  }
  if (later && earlier_writes && !writes && earlier.clock == kInFlight) {
    return "The copy may still be under way. Missing: cp_async_wait and fence_proxy_async() in the "
           "thread that copies, then a barrier, ";
  }
  if (later && earlier_writes && !writes) {
    return "Missing: fence_proxy_async() in the thread that stores, then a barrier, ";
  }
  if (later) {
    return "The copy overwrites what may still be in use. Missing: an mbarrier_arrive after it "
           "that the copying thread waits for (or an mbarrier_wait before it), ";
  }
  if (now.clock == kInFlight && swapped && earlier.warp != now.warp) {
    return "The copy comes after what should have waited for it. Missing: a __syncthreads() "
           "behind a cp_async_wait of the thread that copies, ";
  }
  if (now.clock == kInFlight && !earlier_writes && earlier.clock != kInFlight) {
    return cure_of_early_copy(earlier, now, false);
  }
  if (earlier.clock == kInFlight && same_thread) {
    return "The copy may still be under way. Missing: cp_async_wait ";
  }
  if (earlier.clock == kInFlight) {
    return "The copy may still be under way. Missing: cp_async_wait in the thread that copies, "
           "then a barrier, ";
  }
  const ThreadCure between = thread_cure(earlier, now);
  return std::string(between.why) + ". Missing: a " + between.barrier + " ";
}

// A copy that has been issued before all have read what it overwrites. `too_early`: the copy is the
// earlier of the two here.
std::string Races::cure_of_early_copy(const Access& earlier, const Actor& now,
                                      bool too_early) const {
  const std::string text = "The copy overwrites what may still be in use";
  const bool bulk = engine_of(earlier.warp, earlier.lanes) != nullptr;
  const std::string missing =
      bulk ? "issing: an mbarrier_arrive behind that read, which the copying thread waits for, "
           : std::string("issing: a ") + thread_cure(earlier, now).barrier + " ";
  if (too_early) {
    return text + ": it is issued before thread " +
           std::to_string(lane_of(now.warp, now.lanes)->thread) +
           " has read what an earlier copy brought. M" + missing;
  }
  const Lane& reader = *lane_of(earlier.warp, earlier.lanes);
  const std::string at = reader.operation;
  if (reader.state == LaneState::kParked && (at == "__syncthreads()" || at == "bar.sync")) {
    return text + ": thread " + std::to_string(reader.thread) + ", which has read it, waits in " +
           at + " at " + place(reader.where) +
           ", and the copy is issued before that. Move it behind.\n  Or: m" + missing;
  }
  return text + ". M" + missing;
}

// The same of work under way, if its unit knows why it is.
std::string Races::cure_of_work(const Access& earlier, const Actor& now, uintptr_t address) const {
  if (!is_engine(earlier) && earlier.clock != kInFlight) return "";
  const Lane& starter = *lane_of(earlier.warp, earlier.lanes);
  const UnderWay work{starter, engine_of(earlier.warp, earlier.lanes),
                      lane_of(now.warp, now.lanes) == &starter && !(now.lanes & (now.lanes - 1))};
  for (Unit* const unit : cluster_.units_in_order) {
    const Cause cause = unit->why_under_way(work, address);
    if (!cause.why.empty()) return cause.why + ". Missing: " + cause.missing + " ";
  }
  return "";
}

// The last of the barriers at which the second thread has waited.
Order Races::order(const Lane& first, const Lane& second) const {
  Order last;
  for (Unit* const unit : cluster_.units_in_order) {
    Order order = unit->order(first, second);
    if (order.when > last.when) last = std::move(order);
  }
  return last;
}

Races::ThreadCure Races::thread_cure(const Access& earlier, const Actor& now) const {
  if (earlier.warp == now.warp) {
    return {"The lanes of a warp need not run in step", "__syncwarp()"};
  }
  if (cluster_.warps[earlier.warp].lanes->cta != cluster_.warps[now.warp].lanes->cta) {
    return {"CTAs run in any order", "barrier of the cluster (cluster_arrive, cluster_wait)"};
  }
  return {"Warps run in any order", "__syncthreads()"};
}

void Races::report_overwritten(const Access& made, const Actor& now, Site site, uintptr_t address) {
  if (operation_of(site).starts_with("mbarrier.")) return;  // its own instructions may
  const std::string what = is_copy_site(site) ? "copy" : "store",
                    at = describe_place(address & ~uintptr_t{7});
  const std::string text = operation_of(site) + " at " + place_of(site) + " by " +
                           culprit_name(culprit(now.warp, now.lanes, site)) +
                           " overwrites the mbarrier at " + at + ", initialised at " +
                           place_of(made.site) +
                           "\n  Missing: an mbarrier_inval when nobody waits there any more, then "
                           "a barrier, before its memory holds data.\n  Or: the index of this " +
                           what + " is wrong.";
  if (options().keep_going) {
    const Report report{without_calls(made.site), without_calls(site),
                        cta_name(cluster_.ctas[0]) + ": " + text};
    if (std::none_of(reports_.begin(), reports_.end(),
                     [&](const Report& each) { return each.is_of(report.one, report.other); })) {
      reports_.push_back(report);
    }
  } else if (!current_lane) {
    within_warp_ = text;
  } else {
    fail_cta(text);
  }
}

void Races::report(const Access& earlier, bool earlier_writes, const Actor& now, bool writes,
                   Site site, uintptr_t address, bool was_written, uint32_t former) {
  const bool within_warp =
      earlier.warp == now.warp && earlier.clock != kInFlight && !is_engine(earlier);
  if (within_warp && !within_warp_.empty()) return;
  if (std::any_of(reports_.begin(), reports_.end(), [&](const Report& each) {
        return each.is_of(without_calls(earlier.site), without_calls(site));
      })) {
    return;
  }

  // A plain access by several lanes is told by its first lane that is not ordered.
  uint32_t lanes = earlier.lanes;
  const bool whole_warp = named(earlier.site) && !is_atomic(earlier.site) && !is_engine(earlier) &&
                          (lanes & (lanes - 1));
  if (!whole_warp && !before(earlier, now.seen)) {
    const uint32_t* const seen = now.seen + earlier.warp * kWarpSize;
    while (seen[std::countr_zero(lanes)] >= earlier.clock) lanes &= lanes - 1;
  }
  const Culprit one = culprit(earlier.warp, whole_warp ? lanes : lanes & -lanes, earlier.site);
  const Culprit other = culprit(now.warp, now.lanes, site);
  const std::string place = place_of(one.site), other_place = place_of(site);

  // The two are named in the order in which they should happen: a read that found nothing belongs
  // after the write.
  const bool between_threads = !is_engine(earlier) && earlier.clock != kInFlight &&
                               !engine_of(now.warp, now.lanes) && earlier_writes != writes;
  // A store has come too early if the reader has not yet read what the same store left before, and
  // so has a copy.
  const bool copy_too_early = is_copy(earlier.warp, earlier.lanes, earlier.clock) && !writes &&
                              (former & kCopied) && !(former >> now.warp % 30 & 1);
  const bool too_early = copy_too_early || (between_threads && earlier_writes &&
                                            (former & kAgain) && !(former >> now.warp % 30 & 1));
  const bool again = (too_early && !is_engine(earlier) && (former & kAgain)) ||
                     (between_threads && writes && (former & kAgain));
  const bool swapped = (!earlier_writes && !was_written) || too_early;
  const bool same_thread = !other.warp && one.thread == other.thread;
  const Callers callers = callers_of(one.site, place),
                other_callers = callers_of(site, other_place);
  // Between the kernel's own lines, if these differ.
  std::string from = callers.last.empty() ? place : callers.last,
              to = other_callers.last.empty() ? other_place : other_callers.last;
  const bool same_caller = from == to || (from == place && to == other_place);
  if (same_caller) {
    from = place;
    to = other_place;
  }
  const std::string between = between_places(swapped ? to : from, swapped ? from : to,
                                             earlier_writes && writes, again && same_caller);
  std::string missing = copy_too_early ? cure_of_early_copy(earlier, now, true)
                        : swapped      ? ""
                                       : cure_of_work(earlier, now, address);
  if (missing.empty()) missing = cure(earlier, earlier_writes, now, writes, same_thread, swapped);
  missing += between;
  std::vector<std::string> others;  // causes that look the same
  const bool later_engine = engine_of(now.warp, now.lanes) != nullptr;
  const bool asynchronous = earlier.clock == kInFlight || is_engine(earlier) || later_engine;
  const bool plain = !named(earlier.site) && !named(site) && !is_atomic(earlier.site) &&
                     !is_atomic(site) && earlier.clock != kInFlight;
  const bool update = plain && earlier_writes != writes && place == other_place &&
                      is_update(writes ? site : earlier.site, writes ? earlier.site : site);
  // For an mbarrier, whose phase may have been the wrong one.
  const bool waited = lane_of(earlier.warp, earlier.lanes)->last_wait.where.line ||
                      lane_of(now.warp, now.lanes)->last_wait.where.line;
  const dim3& grid = cluster_.ctas[0].grid_dim;
  if (update) {
    const ThreadCure in_a_loop = thread_cure(earlier, now);
    missing = std::string(in_a_loop.why) +
              ", and both threads change one value. Missing: an atomic in " +
              line_name(place, place) + ", such as atomicAdd();\n  a " + in_a_loop.barrier +
              " is enough only if they meet in different iterations of a loop";
  } else if (plain && earlier_writes != writes && !is_shared(address) &&
             uint64_t(grid.x) * grid.y * grid.z > cluster_.ctas.size()) {
    missing += "; but if CTAs meet there, too, a second launch";
  }
  if (is_atomic(earlier.site) != is_atomic(site)) {
    std::string atomic = "make both of them atomic";
    if (!(is_atomic(site) ? earlier_writes : writes)) {  // volatile loads of global memory count
      atomic += is_shared(address) ? ":\n  load by atomicAdd() of 0"
                                   : ":\n  load through volatile, or by atomicAdd() of 0";
    }
    others.push_back(atomic);
    if (!is_shared(address)) {
      others.push_back(
          "missing: a __threadfence() between the first and an atomic, by which the second's "
          "thread hears of it");
    }
  } else if (place == other_place && earlier_writes && writes && !asynchronous) {
    others.push_back("both write the same bytes by mistake");
  } else if (!asynchronous && !update && !waited) {
    others.push_back("an index is wrong, so that these two should not have met");
  }
  // What their threads have done at the barrier that should have ordered them.
  bool explained = false;
  const Lane *first = lane_of(earlier.warp, earlier.lanes), *second = lane_of(now.warp, now.lanes);
  if (swapped && !copy_too_early) std::swap(first, second);
  if (first->warp != second->warp && !update &&
      (!asynchronous || (later_engine && !earlier_writes && !swapped))) {
    const Order last = order(*first, *second);
    const std::string why = last.why + (last.cure.empty() ? "" : ". " + last.cure);
    if (!last.why.empty() && !asynchronous &&
        (last.sure ||
         is_between(emu::place(last.where), swapped ? to : from, swapped ? from : to))) {
      const ThreadCure usual = thread_cure(earlier, now);
      missing = std::string(usual.why) + ", and " + why;
      others.insert(others.begin(), std::string("missing: a ") + usual.barrier + " " + between);
    } else if (!last.why.empty() && (last.sure || !asynchronous)) {
      others.insert(others.begin(), why);
      explained = last.sure;
    }
  } else if (is_engine(earlier) && is_copy(earlier.warp, earlier.lanes, 0) && !writes) {
    const Order last = order(*second, *first);  // which should have read before
    if (last.too_many) others.insert(others.begin(), last.why);
  }
  if (!explained && missing.find("Move it behind") == missing.npos &&
      (copy_too_early ||
       (is_copy(now.warp, now.lanes, now.clock) && !earlier_writes && !swapped))) {
    others.push_back("the copy is issued before the barrier or wait that protects what it fills");
  }
  if (asynchronous && earlier_writes && writes && !is_shared(address)) {
    missing[0] = char(std::tolower(missing[0]));
    others.insert(others.begin(), missing);
    missing =
        "Both store the same place, so that one of them is lost: an index is wrong, or a counter "
        "gives one part twice";
  }
  missing += ".";
  for (const std::string& cause : others) missing += "\n  Or: " + cause + ".";
  // What lacks a proxy fence alone is ordered: there it is clear what is missing.
  if (asynchronous ? !(later_engine && before(earlier, now.seen)) : waited && !update) {
    missing += or_else(earlier, now);
  }
  const bool clusters = cluster_.ctas.size() > 1;
  const auto name = [&](const Culprit& who) {
    return culprit_name(who) +
           (clusters ? " of CTA " + std::to_string(who.cta % cluster_.ctas.size()) : "");
  };
  const std::string text =
      "data race on " + describe_place(address) +
      line_of(operation_of(one.site), place, name(one) + callers.text) +
      line_of(operation_of(site), other_place, name(other) + other_callers.text) + "\n  " + missing;
  if (options().keep_going) {
    reports_.push_back({without_calls(earlier.site), without_calls(site),
                        cta_name(cluster_.ctas[0]) + ": " + text});
  } else if (within_warp || !current_lane) {  // at the end of the cluster there is no lane to end
    within_warp_ = text;
  } else {
    within_warp_.clear();
    fail_cta(text);
  }
}

}  // namespace emu
