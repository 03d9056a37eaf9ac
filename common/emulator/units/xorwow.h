// What curand_kernel.h asks for: skipping ahead in XORWOW's sequence.
#pragma once

#include <cstdint>  // IWYU pragma: export

namespace emu {

// Takes n 2^shift steps of the shift register at once; shift + 64 <= 131.
void skip_xorwow(uint32_t (&v)[5], uint64_t n, int shift);

}  // namespace emu
