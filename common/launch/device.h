// What launchers ask of the GPU present, or of the emulator in its place. GPU: the calling thread's
// current device.
#pragma once

#include <cstddef>

namespace fa {

bool on_gpu();  // false: emulator

// Compute capability times ten (90), 0 on the emulator, which runs everything.
int device_capability();

// The most shared memory a CTA can have, in bytes.
size_t device_shared_bytes();

// How many SMs there are: as many CTAs of a persistent kernel run at the same time. The emulator
// says few, so that each CTA has several tiles even of small problems.
int sm_count();

}  // namespace fa
