// When would a GPU have done what a CTA did? A model for seeing order and overlap. It is no measurement.
//
// The emulator has no clock. It records what each warp of one CTA did, in order, and who waited for whom
// (trace.h). The model replays these lists on an SM that has nothing else to do:
//
//   - Warp w belongs to scheduler w % 4, which issues one instruction a cycle. Warps issue in order.
//   - A unit serves one instruction at a time, first come, first served. Each scheduler has a Tensor Core and
//     a unit for exponentials (MUFU); shared memory and the path from L2 serve all four.
//   - An instruction waits for the results that it needs (steps() says which), a barrier for all that meet
//     there, cp.async.wait_group for copies that have landed.
//
// Plain arithmetic is not seen, because the compiler of the CPU made it: it takes no time here. So a softmax
// looks shorter than it is, and kernels 01 to 03 are almost nothing but memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace emu {

// ---- what is known: a recording ----------------------------------------------------------------------
// What an instruction does; its unit and its waits follow from that.
enum class Work : uint8_t {
  kIssue,        // nothing but its place in the order
  kGlobalLoad,   // bytes through the path from L2, into registers
  kGlobalStore,  // bytes through the same path
  kSharedLoad,   // wavefronts of shared memory, into registers
  kSharedStore,
  kFragmentLoad,  // ldmatrix: like a load; products name the ones they need
  kProduct,       // mma.sync, wmma: flops of this warp's Tensor Core
  kExponential,   // `count` of a thread: the MUFU
  kExchange,      // shuffles and votes: registers of other lanes
  kCopy,          // asynchronous, global to shared memory: bytes, then wavefronts
  kAsyncProduct,  // wgmma, this warp's quarter: flops and wavefronts
  kAsyncStore,    // asynchronous, shared to global memory: wavefronts, then bytes
  kCommit,        // closes the open group of `group`
  kWaitGroups,    // until at most `pending` groups of `group` are under way
};

// Asynchronous work whose end is waited for by groups; every warp has its own.
enum class Group : uint8_t { kNone, kCopies, kProducts, kStores };

// One instruction of a warp, or several equal ones in a row.
struct Step {
  Work work = Work::kIssue;
  std::string name = {};    // "ldmatrix"
  std::string at = {};      // "kernels/07_cp_async.cu:120"
  uint32_t count = 1;       // instructions of the warp
  uint64_t bytes = 0;       // moved between L2 and the SM, whole sectors
  uint64_t wavefronts = 0;  // of shared memory
  uint64_t flops = 0;
  Group group = Group::kNone;
  int pending = 0;
  // Meetings (indices that the recording gives): where this step arrives, when it is done; where it waits.
  int arrives = -1, awaits = -1;
  std::vector<uint32_t> needs = {};  // earlier steps of this warp whose results it needs
  bool computed = false;             // a product of what the warp has computed: P
};

struct Recording {
  std::string kernel;
  uint64_t cta = 0, ctas = 0;  // of the launch
  std::vector<std::vector<Step>> warps;
  std::vector<std::string> meetings;  // names: "barrier 0, phase 3"
};

// ---- the model's machine -----------------------------------------------------------------------------
// [sm]
// Cycles, unless it says otherwise. "Measured": on an H200, by the program rates (bench/results/h200_rates.json).
struct Sm {
  int schedulers = 4;
  // An m16n8k16 (4,096 FLOPs) in 6.0 cycles: measured.
  double product_flops = 4096 / 6.0;  // a cycle and Tensor Core
  // wgmma: 4,096 dense 16-bit FLOPs a cycle and SM, m64nNk16 in N / 2: measured.
  double async_product_flops = 1024;
  // From issue to a result that the next product can add to: measured.
  int product_latency = 24;
  // Beyond the N / 2, until a wait for its group ends: measured 55 with A in shared memory, 45 in registers.
  int async_product_latency = 50;
  // 32 lanes in 8, and 17 until the result is there: measured.
  int exponential_cycles = 8;
  int exponential_latency = 9;  // beyond the 8
  int exponential_queue =
      4;  // instructions that may wait at the unit while their warp goes on; assumed
  int exchange_latency = 24;  // measured
  // One wavefront (128 bytes) a cycle. From the last wavefront to the result: measured 23 for 4 bytes a lane,
  // 26 for ldmatrix, 29 for 16 bytes a lane.
  int shared_latency = 26;
  int global_latency = 286;  // from L2, beyond the transfer: measured
  int global_bytes = 37;     // a cycle and SM from L2, when all SMs load: measured
  // nvcc issues the loads of an unrolled loop together and their stores behind them: in the SASS of kernel 06
  // eight and eight. The CPU's compiler leaves each store behind its load.
  int loads_together = 8;
};
// [/sm]

// ---- the result: a timeline --------------------------------------------------------------------------
// A row of the timeline. Its slices follow each other and do not overlap.
struct Track {
  std::string group;  // "Tensor Cores"
  std::string name;   // "of warps 0, 4, ..."
};

struct Slice {
  int track = 0;
  int64_t start = 0, end = 0;  // cycles since the launch began
  std::string name = {};       // "mma.m16n8k16", "waits: barrier"
  std::string unit =
      {};  // what works, or what is waited for: "tensor", "shared", "global", "barrier" ...
  std::string at = {};  // the source line
  uint64_t bytes = 0, wavefronts = 0, flops = 0;
  bool waits = false;
};

// What ended a wait: from the slice that was the last to arrive to the slice that waited.
struct Flow {
  std::string name;
  size_t from, to;  // slices
};

struct Timeline {
  std::vector<Track> tracks;
  std::vector<Slice> slices;  // by track, then by start
  std::vector<Flow> flows;
  int64_t cycles = 0;
};

// Rows by group and number, slices by row and time.
Timeline in_order(Timeline timeline);

// Replays the recordings, one launch after the other.
Timeline replay(const std::vector<Recording>& recordings, const Sm& sm = {});

// What the model replays: loads moved together (Sm::loads_together), equal steps in a row made one.
std::vector<Step> steps(const std::vector<Step>& recorded, const Sm& sm = {});

}  // namespace emu
