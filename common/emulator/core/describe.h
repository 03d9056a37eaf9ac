// Sentences about the machine's state, for messages.
#pragma once

#include <string>

#include "common/emulator/core/lane.h"

namespace emu {

// Tells for the dump of a deadlock which thread waits for what, and where: a line for each group of
// warps that do the same.
std::string describe_all(const Cluster& cluster);

// "02_online_softmax, CTA (3,0,0)"
std::string cta_name(const Cta& cta);

}  // namespace emu
