// setmaxnreg: the registers of a CTA's warps.
#pragma once

#include "common/emulator/core/lane.h"

namespace emu {

// setmaxnreg.inc and .dec, to so many registers per thread.
void set_max_registers(int registers, bool increase, SourceLocation where);

// What each thread of a warp owns, and where it was set; line 0: at the launch. In a CTA that has
// not executed setmaxnreg, of which nothing is known, `count` is 0.
struct OwnedRegisters {
  int count = 0;
  SourceLocation set;
};
OwnedRegisters owned_registers(const Warp& warp);

}  // namespace emu
