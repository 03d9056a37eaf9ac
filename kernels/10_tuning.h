// Tile sizes of 10_instruction_tuning for an architecture and head_dim. The table is written by
// scripts/autotune.sh, which builds, checks and times every choice of a space on the GPU present; the whole
// space and its times are in bench/results/tuning/.
#pragma once

#include <cstddef>

namespace fa {

struct Tuning {
  int warps;            // a CTA
  int row_tiles;        // 16-row tiles of S and O a warp
  int block_n;          // keys a tile of K and V
  int stages;           // tiles of K, and of V, in shared memory
  int ctas;             // on an SM, at least: bounds the registers a thread
  bool q_in_registers;  // Q's fragments are read once; otherwise for each tile of K
  bool q_in_v;          // Q has no shared memory of its own: it is read where V's tiles will be

  constexpr int block_m() const { return warps * row_tiles * 16; }
  constexpr int threads() const { return warps * 32; }
  // Shared memory of a CTA, for elements of 2 bytes.
  constexpr size_t shared_bytes(int head_dim) const {
    return size_t(2 * stages * block_n + (q_in_v ? 0 : block_m())) * head_dim * 2;
  }
};

// `architecture`: what the code is compiled for, 80 for sm_80. An architecture that was not measured has the
// last row, which fits all of them.
constexpr Tuning tuning_of_10(int architecture, int head_dim) {
#ifdef FA_TUNING  // one choice of the space: 4, 2, 64, 2, 2, false, false
  static_cast<void>(architecture), static_cast<void>(head_dim);
  return {FA_TUNING};
#else
  // warps, row_tiles, block_n, stages, ctas, q_in_registers, q_in_v
  // [tuned]
  if (architecture == 90 && head_dim == 128) return {4, 2, 64, 2, 2, false, false};
  if (architecture == 90 && head_dim == 64) return {4, 2, 32, 2, 3, true, false};
  return {4, 2, 32, 2, 2, false, false};
  // [/tuned]
#endif
}

}  // namespace fa
