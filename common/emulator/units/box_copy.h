// Which tensor copy has filled a place of shared memory, for those that read it with a swizzle.
#pragma once

#include <cstdint>

#include "common/emulator/core/lane.h"
#include "common/layout/swizzle.h"

namespace emu {

struct BoxCopy {
  SourceLocation where;  // line 0: no tensor copy has
  layout::SwizzleMode swizzle = layout::SwizzleMode::kNone;
  const char* operation = "";
};

// The last bulk copy to the 16 bytes of this CTA's shared memory at `address`. (Threads may have
// written there since.) Checked build.
BoxCopy box_copied_to(const Cta& cta, uintptr_t address);

}  // namespace emu
