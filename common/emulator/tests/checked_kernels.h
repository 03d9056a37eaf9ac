// Kernels whose memory traffic is known by hand, compiled with the checked build's instrumentation.
#pragma once

#include <functional>

namespace probe {

enum class Kernel {
  kCopy4,         // out[i] = in[i], 4 bytes a lane
  kCopyTo1,       // out[i + 1] = in[i]
  kCopy16,        // the first, 16 bytes a lane
  kCopy16ByRow,   // 16 bytes a lane as four 4-byte accesses
  kStrided,       // out[i] = in[32 * i]
  kBroadcast,     // out[i] = in[0]
  kHalfWarp,      // lanes 0 to 15 copy
  kUneven,        // lane i copies i % 3 + 1 elements
  kSharedRow,     // writes a row of 32 floats and reads it
  kSharedColumn,  // the same with a column of a 32 x 32 tile
  kSharedPadded,  // the same with a column of a 32 x 33 tile
  kPastGlobal,    // lane 31 reads one element past the end, the others those before it
  kBeforeGlobal,  // lane 31 writes one element before the start, the others those behind it
  kAcrossGlobal,  // reads 16 bytes whose second half is outside
  kPastShared,    // lane 31 writes one element past the end of SharedStorage, the others before it
  kMisaligned4,   // lane 31 reads 4 bytes at an odd address
  kMisaligned16,  // reads 16 bytes at a multiple of 4
  kStackOnly,     // works on its own stack alone
  kLong,          // thread 0 loads 200,000 times
  kWithoutEnd,    // each thread stores and loads for ever
  kEveryKind,     // every kind of instruction, each in a line of its own
};

// A launch of one warp a CTA, `ctas` CTAs. `count`: elements of in and out.
std::function<void()> body(Kernel kernel, const float* in, float* out, int count);

// Bytes of shared memory that a CTA of the kernel needs.
int shared_bytes(Kernel kernel);

// The line of the access that fails.
extern int fault_line;

// The line before the first instruction of kEveryKind.
extern int line_before;

}  // namespace probe
