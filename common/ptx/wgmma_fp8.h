// wgmma of FP8: D = A B + D on the Tensor Cores, four warps together and asynchronously. PTX ISA,
// "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions", .m64nNk32 (sm_90a).
//
//   d: N / 2 floats    64 x N    accumulators
//   a: descriptor      64 x 32   in shared memory or in registers
//      or 4 registers
//   b: descriptor      32 x N    in shared memory
//
// T: __nv_fp8_e4m3 or __nv_fp8_e5m2, of A; TB of B. N: a multiple of 8; those of
// wgmma_fp8_instructions.h exist. Fences, commits and waits are those of common/ptx/wgmma.h.
//
// Both operands are K-major: there is no other form, so V, whose k is the row, must lie transposed.
// An operand lies in shared memory like one of 16 bits whose every element is two neighbours in k:
// a row of 128 bytes has 128 elements, a step of k = 32 is 32 bytes, and the descriptors of
// common/layout/wgmma.h hold as they are. In A's registers, too: register i has four neighbours in
// k, the first in the lowest byte,
//
//   row    l/4 + 8 (i % 2)    k    4 (l % 4) + 16 (i / 2) + 0 .. 3        l: lane
//
// where the accumulators of another product give a lane two neighbours of every eight columns.
//
// A sum is shorter than a float. The products of a step and the accumulator are aligned to the
// largest exponent among them, and of each only 13 bits behind that one's leading bit are kept; the
// rest is cut off, not rounded. So a sum has 14 bits: from 16384 on, ones add nothing. Long sums
// are done in pieces, which are then added as floats. (Measured on an H200.)
#pragma once

#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "common/ptx/hook.h"
#include "common/ptx/wgmma.h"  // IWYU pragma: export
#ifdef __CUDACC__
#include "common/ptx/wgmma_fp8_instructions.h"
#else
#include "common/emulator/units/matrix.h"
#include "common/emulator/units/wgmma.h"
#endif

namespace ptx {

#ifdef __CUDACC__

template <>
struct WgmmaElement<__nv_fp8_e4m3> {
  static constexpr const char kName[] = "e4m3";
};
template <>
struct WgmmaElement<__nv_fp8_e5m2> {
  static constexpr const char kName[] = "e5m2";
};

// d = a b, plus d if `accumulate`. A and B from shared memory.
template <typename T, int kN, typename TB = T>
__device__ __forceinline__ void wgmma_fp8(float (&d)[kN / 2], uint64_t a, uint64_t b,
                                          bool accumulate) {
  WgmmaFp8Instruction<kN>::template multiply_shared<WgmmaElement<T>, WgmmaElement<TB>>(d, a, b,
                                                                                       accumulate);
}

// The same with A from registers.
template <typename T, int kN, typename TB = T>
__device__ __forceinline__ void wgmma_fp8(float (&d)[kN / 2], const uint32_t (&a)[4], uint64_t b,
                                          bool accumulate) {
  WgmmaFp8Instruction<kN>::template multiply_registers<WgmmaElement<T>, WgmmaElement<TB>>(
      d, a, b, accumulate);
}

#else  // the emulator: common/emulator/units/wgmma.cpp

template <typename T, typename TB, int kN>
constexpr emu::WgmmaKind wgmma_fp8_kind() {
  static_assert(kN % 8 == 0 && kN >= 8 && kN <= 256);
  constexpr auto kElement = [](bool e4m3) {
    return e4m3 ? emu::Element::kE4m3 : emu::Element::kE5m2;
  };
  return {kN, kElement(std::is_same_v<T, __nv_fp8_e4m3>),
          kElement(std::is_same_v<TB, __nv_fp8_e4m3>), layout::Major::kK, layout::Major::kK};
}

template <typename T, int kN, typename TB = T>
inline void wgmma_fp8(float (&d)[kN / 2], uint64_t a, uint64_t b, bool accumulate,
                      Where where = Where::current()) {
  emu::wgmma_issue(wgmma_fp8_kind<T, TB, kN>(), {d, nullptr, a, b, accumulate}, where);
}

template <typename T, int kN, typename TB = T>
inline void wgmma_fp8(float (&d)[kN / 2], const uint32_t (&a)[4], uint64_t b, bool accumulate,
                      Where where = Where::current()) {
  emu::wgmma_issue(wgmma_fp8_kind<T, TB, kN>(), {d, a, 0, b, accumulate}, where);
}

#endif

}  // namespace ptx
