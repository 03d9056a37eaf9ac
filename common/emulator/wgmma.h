// wgmma: asynchronous matrix products of a warpgroup. Each of its four warps computes 16 of the 64 rows, keeps
// its own commit groups, and waits for its own part alone.
//
// A wgmma is executed late, when its warp waits for it, or early or at random moments in between
// (Options::completion). Operands in shared memory, and A's registers, are read at that moment. From the
// issue to the result the accumulators hold NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/emulator/lane.h"
#include "common/emulator/matrix.h"
#include "common/layout/wgmma.h"

namespace emu {

struct WgmmaKind {
  int columns;  // N
  Element element;
  layout::Major major_a, major_b;
  bool operator==(const WgmmaKind&) const = default;
};

// What one thread gives.
struct WgmmaOperands {
  float* d;              // columns / 2 accumulators
  const uint32_t* rows;  // A's 4 registers; null: A is in shared memory
  uint64_t a, b;         // descriptors; `a` only if A is in shared memory
  bool accumulate;       // otherwise D begins as 0
};

void wgmma_fence(SourceLocation where);
void wgmma_issue(const WgmmaKind& kind, WgmmaOperands operands, SourceLocation where);
void wgmma_commit(SourceLocation where);
void wgmma_wait(int groups, SourceLocation where);

// After wgmma_wait<groups>: ends the launch if a wgmma under way still uses these registers.
void expect_done(const void* registers, size_t bytes, int groups, SourceLocation where);

// ---- for the scheduler and the hooks ------------------------------------------------------------------
void begin_products(Cta& cta);     // another CTA
void finish_products(Lane& lane);  // the end of a lane: nothing may be under way
std::string unfinished_products(
    const Cta& cta);              // at the end of the CTA: what only some warps executed
void advance_products(Cta& cta);  // random completion: some wgmma may happen now

// Checked build: a plain access to the stack of a lane that uses wgmma.
void note_register_access(Lane& lane, uintptr_t address, size_t bytes, uintptr_t program_counter);

}  // namespace emu
