// The tile sizes of 10_instruction_tuning per architecture and head_dim, found by a search: each
// choice was built, checked and timed (docs/appendix/tuning.md). To try another, change a row.
#pragma once

#include <cstddef>

namespace fa {

struct Tuning {
  int warps;      // warps per CTA
  int row_tiles;  // 16-row tiles of S and O per warp
  int block_n;    // keys per tile of K and V
  int stages;     // tiles of K, and as many of V, in shared memory
  int ctas;       // least number of CTAs per SM, which bounds the registers per thread
  bool q_in_registers = false;  // Q's fragments are read once, and not again for each tile of K
  bool q_in_v = false;          // Q has no shared memory of its own and is read in the place of V

  constexpr int block_m() const { return warps * row_tiles * 16; }
  constexpr int threads() const { return warps * 32; }
  // Bytes of shared memory per CTA, for elements of 2 bytes.
  constexpr size_t shared_bytes(int head_dim) const {
    return size_t(2 * stages * block_n + (q_in_v ? 0 : block_m())) * head_dim * 2;
  }
};

// `architecture` is what the code is compiled for, for example 80 for sm_80. An architecture that
// was not measured takes the last choice, which fits all of them.
constexpr Tuning tuning_of_10(int architecture, int head_dim) {
  // [tuned]
  if (architecture == 90 && head_dim == 128)
    return {.warps = 4, .row_tiles = 2, .block_n = 64, .stages = 2, .ctas = 2};
  if (architecture == 90 && head_dim == 64)
    return {
        .warps = 4, .row_tiles = 2, .block_n = 32, .stages = 2, .ctas = 3, .q_in_registers = true};
  return {.warps = 4, .row_tiles = 2, .block_n = 32, .stages = 2, .ctas = 2};
  // [/tuned]
}

}  // namespace fa
