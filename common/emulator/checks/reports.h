// Names for the accesses that the detector complains about.
#pragma once

#include <cstdint>
#include <string>

#include "common/emulator/checks/races.h"  // IWYU pragma: export

namespace emu {

std::string operation_of(Site site);  // "load", "ldmatrix"
std::string place_of(Site site);      // "kernels/12_tma.cu:140"
bool is_copy_site(Site site);         // of cp.async or a bulk copy
bool is_mbarrier_site(Site site);     // of its initialisation
std::string culprit_name(const Culprit& culprit);

// "\n  load at kernels/12_tma.cu:140 by thread 37 (warp 1 lane 5)"
std::string line_of(const std::string& verb, const std::string& place, const std::string& who);

std::string unwritten_text(Site site, const std::string& who, uintptr_t address, Written buffer);

}  // namespace emu
