// Where the first NaN of a launch was made: told if an output turns out not to be finite.
//
// While lanes run, an SSE instruction that makes a NaN of numbers is a trap (the CPU's exception
// "invalid operation"), whose handler notes line, thread and operands, once. It goes on past
// instructions that are invalid and make none: comparisons with a NaN, conversions to integers out
// of range. Those that make one cost nothing, and neither does a NaN that comes from another. What
// the emulator computes by itself notes its NaNs by itself: products, and functions whose
// instructions would say little. On other CPUs than x86-64, and in the build for the debugger,
// which a trap would stop, these alone do so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/emulator/core/lane.h"        // IWYU pragma: export
#include "common/emulator/core/noting_nan.h"  // IWYU pragma: export

#if defined(__x86_64__) && !defined(FA_EMULATOR_DEBUG)
#define FA_TRAPS_NANS
#endif

namespace emu {

// ---- the host's side ----------------------------------------------------------------------------
// "The first NaN was made at FILE:LINE by thread 3 (warp 0 lane 3) of CTA (0,0,0): inf - inf.",
// of the first launch that made one since forget_nans(): in the first of its CTAs that did, however
// many OS threads there are. A product that had one among its factors before that, or although none
// was made, is told as well: it came from memory. "" if nothing is known.
std::string first_nan();
void forget_nans();

// The same bits as made NaNs have: what x86-64 and arm64 give, or a product of the emulator. Others
// (poison, a payload) are not told apart from what the host wrote. Returns the first byte of such a
// float or double, aligned as these are; null if there is none, or no NaN was made.
const uint8_t* find_made_nan(const void* memory, size_t bytes);

// ---- the launch's side --------------------------------------------------------------------------
struct NanOrigin {
  uint64_t cluster = 0;
  std::string kernel;
  uint3 block_idx{};
  int warp = 0, lane = 0, thread = 0;
  bool of_warp = false;                     // no thread made it alone
  std::string what;                         // "inf - inf"
  SourceLocation where;                     // line 0: it is the first of these with a line
  std::vector<uintptr_t> program_counters;  // that have led here, the innermost first
};

// What the clusters of one OS thread made. While it exists, this thread's lanes are watched.
class NanWatch {
 public:
  NanWatch();
  ~NanWatch();
  NanWatch(const NanWatch&) = delete;
  NanWatch& operator=(const NanWatch&) = delete;

  void begin_cluster(uint64_t index);
  bool wants_more() const { return !made; }

  std::optional<NanOrigin> made, taken_in;
  const Lane* unnamed = nullptr;  // whose NaN was made in the C library, if `made` is that
  int to_pass_over = 0;           // instructions that make none, in this cluster
  bool stepping = false;          // over one of these
};

// The launch has ended: the first of its clusters that made one is kept.
void keep_first_nan(const std::vector<NanOrigin>& made, const std::vector<NanOrigin>& taken_in);

// ---- the lanes' side ----------------------------------------------------------------------------
#ifdef FA_TRAPS_NANS
inline constexpr uint32_t kMaskInvalid = 0x80;  // of MXCSR

// From now on the lane's invalid operations are traps. Fibers keep that when they are switched.
inline void trap_nans() { __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() & ~kMaskInvalid); }

// While it exists, none are: the emulator computes in its own way.
class OwnArithmetic {
 public:
  OwnArithmetic() : before_(__builtin_ia32_stmxcsr()) {
    __builtin_ia32_ldmxcsr(before_ | kMaskInvalid);
  }
  ~OwnArithmetic() { __builtin_ia32_ldmxcsr(before_); }
  OwnArithmetic(const OwnArithmetic&) = delete;
  OwnArithmetic& operator=(const OwnArithmetic&) = delete;

 private:
  uint32_t before_;
};
#else
inline void trap_nans() {}
struct OwnArithmetic {
  OwnArithmetic() {}  // not trivial: a variable of it is used
};
#endif

// The first NaN among a product's results that none of its summands was.
struct ProductNan {
  bool found = false, taken_in = false;
  int row = 0, column = 0;
  std::string what;  // "inf * 0"; taken_in: the factor, "A" or "B"
};
// The warp's product made it.
void note_nan(const Warp& warp, const ProductNan& nan, SourceLocation where);

}  // namespace emu
