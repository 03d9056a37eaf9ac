// When would a GPU have done what a CTA did? A model for seeing order and overlap. It is no
// measurement.
//
// The emulator has no clock. It records what each warp of one CTA did, in order, and who waited for
// whom (trace.h). The model replays these lists on an SM that has nothing else to do:
//
//   - Warp w belongs to scheduler w % 4, which issues one instruction a cycle. Warps issue in
//     order.
//   - A unit serves one instruction at a time, first come, first served. Each scheduler has a
//     Tensor Core and a unit for exponentials (MUFU); shared memory and the path from L2 serve all
//     four.
//   - An instruction waits for the results that it needs (steps() says which), a barrier for all
//     that meet there, cp.async.wait_group for copies that have landed.
//
// Plain arithmetic is not seen, because the compiler of the CPU made it: it takes no time here. So
// a softmax looks shorter than it is, and kernels 01 to 03 are almost nothing but memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/emulator/core/step.h"  // IWYU pragma: export
#include "common/trace/timeline.h"      // IWYU pragma: export

namespace emu {

// ---- what is known: a recording -----------------------------------------------------------------
struct Recording {
  std::string kernel;
  uint64_t cta = 0, ctas = 0;  // of the launch
  std::vector<std::vector<Step>> warps;
  std::vector<std::string> meetings;  // names: "barrier 0, phase 3"
};

// ---- the model's machine ------------------------------------------------------------------------
// [sm]
// Cycles, unless it says otherwise. "Measured": on an H200, by the program rates
// (bench/results/h200/rates.json).
struct Sm {
  int schedulers = 4;
  // An m16n8k16 (4,096 FLOPs) in 6.0 cycles: measured.
  double product_flops = 4096 / 6.0;  // per cycle and Tensor Core
  // wgmma: 4,096 dense 16-bit FLOPs per cycle and SM, m64nNk16 in N / 2: measured. Of FP8 twice as
  // many, m64nNk32 in N / 2: measured.
  double async_product_flops = 1024;
  // From issue to a result that the next product can add to: measured.
  int product_latency = 24;
  // Beyond the N / 2, until a wait for its group ends: measured 55 with A in shared memory, 45 in
  // registers.
  int async_product_latency = 50;
  // 32 lanes in 8, and 17 until the result is there: measured.
  int exponential_cycles = 8;
  int exponential_latency = 9;  // beyond the 8
  int exponential_queue =
      4;  // instructions that may wait at the unit while their warp goes on; assumed
  int exchange_latency = 24;  // measured
  // One wavefront (128 bytes) per cycle. From the last wavefront to the result: measured 23 for 4
  // bytes per lane, 26 for ldmatrix, 29 for 16 bytes per lane.
  int shared_latency = 26;
  int global_latency = 286;  // from L2, beyond the transfer: measured
  int global_bytes = 37;     // per cycle and SM from L2, when all SMs load: measured
  // nvcc issues the loads of an unrolled loop together and their stores behind them: in the SASS of
  // kernel 06 eight and eight. The CPU's compiler leaves each store behind its load.
  int loads_together = 8;
};
// [/sm]

// ---- the result ---------------------------------------------------------------------------------
// Replays the recordings, one launch after the other.
Timeline replay(const std::vector<Recording>& recordings, const Sm& sm = {});

// Returns what the model replays: loads are moved together (Sm::loads_together), equal steps in a
// row are one.
std::vector<Step> steps(const std::vector<Step>& recorded, const Sm& sm = {});

}  // namespace emu
