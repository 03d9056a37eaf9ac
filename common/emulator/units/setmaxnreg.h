// setmaxnreg: the registers of a CTA's warps.
#pragma once

#include "common/emulator/core/lane.h"

namespace emu {

// setmaxnreg.inc and .dec, to so many registers a thread.
void set_max_registers(int registers, bool increase, SourceLocation where);

}  // namespace emu
