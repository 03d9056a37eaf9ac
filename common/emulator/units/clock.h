// Time, as a kernel asks for it: clock(), clock64(), %clock, %globaltimer. The emulator measures
// none.
#pragma once

#include <cstdint>

namespace emu {

// 1000 more at each question of the thread, so that a loop which waits for an hour to pass ends.
// Says once that this is no time. Lets others run.
int64_t asked_time(const char* operation);

}  // namespace emu
