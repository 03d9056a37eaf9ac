#include "common/emulator/units/register_watch.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/emulator/core/image.h"
#include "common/emulator/core/memory.h"

namespace emu {
namespace {

// A wgmma is under way when it should not be: returns what is wrong.
std::string missing(const RegisterWatch::Use& use) {
  if (!use.committed) {
    return "Missing: wgmma_commit() after the wgmma and wgmma_wait before this line.";
  }
  if (use.wait.where.line == 0) return "Missing: wgmma_wait before this line.";
  const std::string groups = std::to_string(use.wait.groups);
  return "The last wait, at " + place(use.wait.where) + ", leaves up to " + groups +
         (use.wait.groups == 1 ? " group" : " groups") +
         " under way, and this wgmma is in one. Too great: that number; or wrong: the registers "
         "that this line touches.";
}

}  // namespace

RegisterWatch::RegisterWatch(Stamp* stamps) : stamps_(stamps) {}

void RegisterWatch::forget() {
  under_way_.clear();
  unnamed_.clear();
  restart();
}

void RegisterWatch::widen(const Use& use) {
  low_ = std::min(low_, use.begin);
  high_ = std::max(high_, use.end);
}

void RegisterWatch::restart() {
  under_way_.clear();
  low_ = ~uintptr_t{0};
  high_ = 0;
  for (const Use& use : unnamed_) widen(use);
}

void RegisterWatch::add(const Use& use) {
  name(use.begin, use.end);  // the wgmma takes them over: it comes after what was done with them
  under_way_.push_back(use);
  widen(use);
}

void RegisterWatch::end(const Use& use) {
  name(use.begin, use.end);
  unnamed_.push_back(use);
  widen(use);
}

void RegisterWatch::name(uintptr_t low, uintptr_t high) {
  std::erase_if(unnamed_, [&](const Use& use) { return low <= use.begin && use.end <= high; });
}

std::string RegisterWatch::touched_since_fence(const Lane& lane, uintptr_t begin,
                                               size_t bytes) const {
  if (begin < lane.stack_low || begin >= lane.stack_high) return "";
  const size_t first = (begin - lane.stack_low) / 4;
  for (size_t i = first; i < first + bytes / 4; i++) {
    if (stamps_[i].fences == fences_) {
      return symbolise(address_in_image(stamps_[i].program_counter) - 1);
    }
  }
  return "";
}

void RegisterWatch::access(Lane& lane, uintptr_t address, size_t bytes, uintptr_t program_counter) {
  const size_t first_word = (address - lane.stack_low) / 4,
               last_word = (address + bytes - 1 - lane.stack_low) / 4;
  for (size_t i = first_word; i <= last_word; i++) {
    stamps_[i] = {fences_, uint32_t(program_counter)};
  }
  if (address >= high_ || address + bytes <= low_) return;
  const auto touched = [&](const Use& use) {
    return address < use.end && use.begin < address + bytes;
  };
  for (const Use& use : under_way_) {
    if (!touched(use)) continue;
    fail("%s: touches %s of the wgmma at %s, which may still be under way\n  %s",
         symbolise(program_counter - 1).c_str(), use.what, place(use.where).c_str(),
         missing(use).c_str());
  }
  for (const Use& use : unnamed_) {
    if (!touched(use)) continue;
    fail(
        "%s: touches %s of the wgmma at %s, which no wait has named: the one at %s ends that wgmma "
        "but does not say which registers are ready\n  Missing: their names in wgmma_wait. Without "
        "them the compiler may move this line before the wait.",
        symbolise(program_counter - 1).c_str(), use.what, place(use.where).c_str(),
        place(use.wait.where).c_str());
  }
}

}  // namespace emu
