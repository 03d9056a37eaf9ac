// Sentences about the machine's state, for messages.
#pragma once

#include <cstdint>
#include <string>

#include "common/emulator/core/lane.h"  // IWYU pragma: export

namespace emu {

// Tells for the dump of a deadlock which thread waits for what, and where: a line for each group of
// warps that do the same.
std::string describe_all(const Cluster& cluster);

// "lane 5", "lanes 0-15", "lanes 1-3,5-7"
std::string describe_lanes(uint32_t lanes);

// "phase 3", or what a thread waits for whose parity is that of the phase before the first.
std::string phase_name(uint64_t phase);

// "02_online_softmax, CTA (3,0,0)"
std::string cta_name(const Cta& cta);

// What a report is about, in few words ("race between warps"), and the section of docs/bugs.md that
// has bugs like it. Both are "" for a report of no known kind.
struct ReportKind {
  std::string name, section;
};
ReportKind kind_of(const std::string& report);

// "docs/bugs.md#it-hangs has bugs like this one.", or "" for a report of no known kind.
std::string bugs_like(const std::string& report);

}  // namespace emu
