// What a launch did, counted the way the GPU's profiler counts it: in total, and by line of source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

namespace emu {

// Every instruction is counted as one of these.
enum class Kind : uint8_t {
  kGlobalLoad,
  kGlobalStore,
  kSharedLoad,
  kSharedStore,
  kLdmatrix,
  kStmatrix,
  kCpAsync,
  kMma16816,
  kMma1688,
  kMma16832,  // of FP8
  kWmma,
  kWmmaOther,  // of any other shape or type
  kWmmaLoad,
  kWmmaStore,
  kExp2,
  kBarrier,  // __syncthreads, bar.sync, bar.arrive
  kShuffle,
  kVote,
  kSyncwarp,
  kWgmma,
  kWgmmaFp8,
  kTmaLoad,  // bulk copies from global to shared memory, of boxes or of bytes in a row
  kTmaStore,
  kTmaReduce,  // likewise from shared to global memory, added there
  kMbarrier,   // arrivals, waits
  kGlobalAtomic,
  kSharedAtomic,
};
inline constexpr const char* kKindNames[] = {
    "global load", "global store",  "shared load",  "shared store", "ldmatrix",       "stmatrix",
    "cp.async",    "mma.m16n8k16",  "mma.m16n8k8",  "mma.m16n8k32", "wmma.m16n16k16", "wmma other",
    "wmma load",   "wmma store",    "exp2",         "barrier",      "shuffle",        "vote",
    "syncwarp",    "wgmma",         "wgmma of FP8", "tma load",     "tma store",      "tma reduce",
    "mbarrier",    "global atomic", "shared atomic"};
static_assert(std::size(kKindNames) == size_t(Kind::kSharedAtomic) + 1);
inline const char* name_of(Kind kind) { return kKindNames[size_t(kind)]; }

// Counts of what an instruction did, or several; 0: nothing of the kind. Wavefronts, sectors and
// bytes are known in the checked build only.
struct Counts {
  uint64_t requests = 0;          // instructions of a warp, whatever the number of its lanes
  uint64_t wavefronts = 0;        // passes through the 32 banks of shared memory
  uint64_t wavefronts_ideal = 0;  // passes if no two lanes collided in a bank
  uint64_t sectors = 0;           // 32-byte pieces of global memory that are touched
  uint64_t sectors_ideal = 0;     // as many as the bytes touched would fill
  uint64_t cache_lines = 0;  // 128-byte lines that a plain load or store touches: passes through L1
  uint64_t bytes = 0;        // that the lanes asked for, each lane counted
  uint64_t flops = 0;        // of a matrix product; a multiply-add is two
  uint64_t operations = 0;   // results of single threads: exponentials
  uint64_t waits = 0;        // arrivals of a warp at a barrier that others had not reached

  // Applies f(name, value) to every count.
  template <typename F>
  void for_each(F f) const {
    for (const Field& field : kFields) f(field.name, this->*field.value);
  }

  Counts& operator+=(const Counts& other) {
    for (const Field& field : kFields) this->*field.value += other.*field.value;
    return *this;
  }

 private:
  struct Field {
    const char* name;
    uint64_t Counts::*value;
  };
  static const Field kFields[10];
};

inline constexpr Counts::Field Counts::kFields[10] = {
    {"requests", &Counts::requests},
    {"wavefronts", &Counts::wavefronts},
    {"wavefronts_ideal", &Counts::wavefronts_ideal},
    {"sectors", &Counts::sectors},
    {"sectors_ideal", &Counts::sectors_ideal},
    {"cache_lines", &Counts::cache_lines},
    {"bytes", &Counts::bytes},
    {"flops", &Counts::flops},
    {"operations", &Counts::operations},
    {"waits", &Counts::waits}};

// The counts of the instructions of one kind in one line of source.
struct LineCounts {
  std::string at;  // "kernels/08_swizzle.cu:123"; "?" if the program does not know its lines
  Kind kind;
  Counts counts;
};

// Totals over all instructions. `shared_` includes what ldmatrix, stmatrix, wmma and cp.async do in
// shared memory, `global_` what cp.async reads.
struct Counters {
  // Counted in every build. A warp instruction counts once, whatever the number of its lanes.
  uint64_t barriers = 0;       // barrier instructions (__syncthreads and named barriers), per warp
  uint64_t barrier_waits = 0;  // those at which the warp had to wait for others
  uint64_t syncwarps = 0;      // __syncwarp, per warp
  uint64_t shuffles = 0;       // __shfl_*_sync, per warp
  uint64_t votes = 0;          // __any_sync, __all_sync, __ballot_sync, per warp
  uint64_t exp2 = 0;           // exponentials, per thread
  uint64_t ldmatrix = 0;       // per warp
  uint64_t stmatrix = 0;       // per warp
  uint64_t matrix_products = 0;  // mma and wgmma, per warp; a wmma product is two of them
  uint64_t matrix_flops = 0;     // what they multiply and add
  uint64_t async_copies = 0;     // cp.async, per thread

  // Counted by the checked build only: loads and stores of a warp, as one request.
  uint64_t global_requests = 0;
  uint64_t global_sectors = 0;        // 32-byte pieces of memory that the requests touch
  uint64_t global_sectors_ideal = 0;  // as many as the bytes that they touch would fill
  uint64_t global_bytes = 0;          // bytes that the lanes asked for
  uint64_t shared_requests = 0;
  uint64_t shared_wavefronts = 0;        // passes through the 32 banks
  uint64_t shared_wavefronts_ideal = 0;  // passes if no two lanes collided in a bank

  // Applies f(name, value) to every counter.
  template <typename F>
  void for_each(F f) const {
    for (const Field& field : kFields) f(field.name, this->*field.value);
  }

  Counters& operator+=(const Counters& other) {
    for (const Field& field : kFields) this->*field.value += other.*field.value;
    return *this;
  }

 private:
  struct Field {
    const char* name;
    uint64_t Counters::*value;
  };
  static const Field kFields[18];
};

inline constexpr Counters::Field Counters::kFields[18] = {
    {"barriers", &Counters::barriers},
    {"barrier_waits", &Counters::barrier_waits},
    {"syncwarps", &Counters::syncwarps},
    {"shuffles", &Counters::shuffles},
    {"votes", &Counters::votes},
    {"exp2", &Counters::exp2},
    {"ldmatrix", &Counters::ldmatrix},
    {"stmatrix", &Counters::stmatrix},
    {"matrix_products", &Counters::matrix_products},
    {"matrix_flops", &Counters::matrix_flops},
    {"async_copies", &Counters::async_copies},
    {"global_requests", &Counters::global_requests},
    {"global_sectors", &Counters::global_sectors},
    {"global_sectors_ideal", &Counters::global_sectors_ideal},
    {"global_bytes", &Counters::global_bytes},
    {"shared_requests", &Counters::shared_requests},
    {"shared_wavefronts", &Counters::shared_wavefronts},
    {"shared_wavefronts_ideal", &Counters::shared_wavefronts_ideal}};

}  // namespace emu
