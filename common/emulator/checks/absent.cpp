#include "common/emulator/checks/absent.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/emulator/core/describe.h"
#include "common/emulator/core/memory.h"

namespace emu {
namespace {

void sort_once(std::vector<uintptr_t>& places) {
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
}

std::vector<uintptr_t> places_of(const Warp& warp, uint32_t lanes) {
  std::vector<uintptr_t> places;
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    for (const MemoryAccess& access : warp.lanes[std::countr_zero(rest)].accesses) {
      if (access.program_counter) places.push_back(access.program_counter);
    }
  }
  sort_once(places);
  return places;
}

std::vector<uintptr_t> without(const std::vector<uintptr_t>& all,
                               const std::vector<uintptr_t>& some) {
  std::vector<uintptr_t> rest;
  std::set_difference(all.begin(), all.end(), some.begin(), some.end(), std::back_inserter(rest));
  return rest;
}

uint32_t lanes_of(const Warp& warp) {
  const int count = int(warp.lanes->cta->lanes.size()) - warp.index * kWarpSize;
  return count >= kWarpSize ? kFullMask : (1u << count) - 1;
}

// The body of the kernel in a file; "" if it is not found there.
std::string body_of(const std::string& kernel, const std::string& file) {
  std::ifstream stream(file);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const auto is_word = [&](size_t at) {
    return std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_';
  };
  for (size_t at = text.find("__global__"); at != text.npos; at = text.find("__global__", at + 1)) {
    const size_t open = text.find('{', at), name = text.find(kernel, at);
    if (open == text.npos || name > open || is_word(name - 1) || is_word(name + kernel.size())) {
      continue;
    }
    int depth = 0;
    for (size_t end = open; end < text.size(); end++) {
      depth += (text[end] == '{') - (text[end] == '}');
      if (depth == 0) return text.substr(open + 1, end - open - 1);
    }
  }
  return "";
}

// Whether a thread that has ended has left by no way that has code of its own, which compilers may
// join with what lies behind the shuffle: by `if (...) return;` at most.
bool leaves_at_end(const std::string& body) {
  if (body.empty() || body.find("exit;") != body.npos) return false;
  for (size_t at = body.find("return"); at != body.npos; at = body.find("return", at + 1)) {
    std::string before = body.substr(0, at);
    const auto cut = [&] {
      before.erase(before.find_last_not_of(" \t\r\n") + 1);
      return before.empty() ? '\0' : before.back();
    };
    if (cut() == '{') {
      before.pop_back();
      cut();
    }
    if (before.empty() || (before.back() != ')' && !before.ends_with("else"))) return false;
  }
  return true;
}

// A function that the kernel calls at two places may have one of them before.
bool is_in_kernel(const CodePlace& place, const std::string& kernel) {
  const std::string& function = place.function;
  const std::string name = kernel.substr(0, kernel.find('<'));
  return function.find(name) != std::string::npos ||
         function.find("operator()") != std::string::npos ||
         function.find("emu::Launch::start") != std::string::npos;
}

bool is_first(const std::string& place) {
  static std::mutex mutex;
  static std::set<std::string> noted;
  const std::scoped_lock lock(mutex);
  return noted.insert(place).second;
}

}  // namespace

void Absent::begin() {
  for (Places& each : last_) each.clear();
  for (std::vector<Watch>& each : watched_) each.clear();
}

void Absent::collective(const Warp& warp, uint32_t mask, const char* operation,
                        SourceLocation where) {
  const uint32_t ended = mask & lanes_of(warp) & ~warp.live;
  if (!ended) return;
  Places behind = without(places_of(warp, ended), places_of(warp, mask & warp.live));
  if (behind.empty()) return;
  watched_[size_t(warp.slot)].push_back(
      {std::move(behind), mask & warp.live, operation, where, describe_lanes(ended)});
}

void Absent::comes(const Warp& warp) {
  last_[size_t(warp.slot)] = places_of(warp, 1u << (warp.live ? std::countr_zero(warp.live) : 0));
}

void Absent::barrier(const Cta& cta, const char* operation, SourceLocation where) {
  Places behind, before;
  std::string absent;
  for (const Warp& warp : cta.warps) {
    const Places& mine = last_[size_t(warp.slot)];
    Places& all = warp.live ? before : behind;
    all.insert(all.end(), mine.begin(), mine.end());
    if (!warp.live && absent.empty()) absent = "warp " + std::to_string(warp.index);
  }
  sort_once(behind);
  sort_once(before);
  behind = without(behind, before);
  if (behind.empty()) return;
  for (const Warp& warp : cta.warps) {
    // What has ended is told of once: it can be absent from the next barrier as well.
    if (!warp.live) last_[size_t(warp.slot)].clear();
    if (warp.live)
      watched_[size_t(warp.slot)].push_back({behind, kFullMask, operation, where, absent});
  }
}

void Absent::look(const Warp& warp, uint32_t mask) {
  Lane* const lane = std::exchange(current_lane, nullptr);  // as in symbolise()
  std::vector<Watch>& all = watched_[size_t(warp.slot)];
  const Places here = places_of(warp, mask & lanes_of(warp));
  std::erase_if(all, [&](const Watch& watch) {
    Places both;
    std::set_intersection(here.begin(), here.end(), watch.behind.begin(), watch.behind.end(),
                          std::back_inserter(both));
    if (both.empty()) return false;
    const std::string at = place(watch.where);
    const std::vector<CodePlace> places = all_places({both.front() - 1});
    const Cta& cta = *warp.lanes->cta;
    if (places.empty() || !is_in_kernel(places.back(), cta.kernel)) return true;
    const std::string& last = places.back().place;
    std::string kernel = cta.kernel;
    kernel.erase(std::min(kernel.find('<'), kernel.size()));
    kernel.erase(0, kernel.rfind(':') + 1);
    if (!leaves_at_end(body_of(kernel, last.substr(0, last.rfind(':')))) || !is_first(at)) {
      return true;
    }
    const bool is_barrier = std::string(watch.operation).starts_with("__syncthreads");
    fflush(stdout);
    fprintf(stderr,
            "note: %s: %s at %s is passed without %s, which %s past it to %s and end%s\n  CUDA "
            "leaves that undefined. %s\n",
            cta.kernel, watch.operation, at.c_str(), watch.absent.c_str(),
            watch.absent.starts_with("lanes") ? "go" : "goes", places.front().place.c_str(),
            watch.absent.starts_with("lanes") ? "" : "s",
            is_barrier ? "Have all threads of the block come to it."
                       : "Name in its mask the lanes that come, or have all come.");
    return true;
  });
  current_lane = lane;
}

}  // namespace emu
