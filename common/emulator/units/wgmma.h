// wgmma: asynchronous matrix products of a warpgroup. Each of its four warps computes 16 of the 64
// rows and keeps its own commit groups. A warp's wait ends when all four warps have issued what it
// waits for and it is over, and orders what all four have read from shared memory. (Measured on an
// H200, 26 November 2026: with one warp late by a million cycles, the wait of another took
// 1,000,140.) Registers are each warp's own.
//
// A wgmma is executed late, when its warp waits for it, or early or at random moments in between
// (Options::completion). A's registers are read at that moment, and operands in shared memory then
// or at the first wait of another warp for the same wgmma.
// From the issue to the result the accumulators hold NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/emulator/units/matrix.h"
#include "common/layout/wgmma.h"

namespace emu {

struct WgmmaKind {
  int columns;                     // N
  Element of_a, of_b;              // both of 16 bits and the same, or both of FP8
  layout::Major major_a, major_b;  // of FP8 kK
  int depth() const { return depth_of(of_a); }
  bool operator==(const WgmmaKind&) const = default;
};

// The operands of one thread.
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
// Instead: the thread may use the registers of all wgmma that have ended. (asm() that waits cannot
// name them; ptxas knows them.)
void name_done_registers();

}  // namespace emu
