// Steps: that which an instruction says about itself to a recorder of timelines (watch.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace emu {

// The work of an instruction; its unit and its waits follow from that.
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
  uint64_t ideal = 0;       // wavefronts without bank conflicts, of loads and stores
  // What it moves or multiplies, as far as addresses and values tell (Recorder::moves): the global
  // buffers "Q", "K" ..., also where shared memory has a copy of them; "exp2" for exponentials;
  // "Q*K" for products of the two. Several names have spaces between.
  std::string of = {};
  uint64_t flops = 0;
  int speed = 1;  // of the Tensor Cores: 2 for wgmma of FP8
  Group group = Group::kNone;
  int pending = 0;
  // Meetings (indices that the recording gives): where this step arrives, when it is done; where it
  // waits.
  int arrives = -1, awaits = -1;
  std::vector<uint32_t> needs = {};  // earlier steps of this warp whose results it needs
  bool computed = false;             // a product of what the warp has computed: P
};

}  // namespace emu
