// The XOR swizzle of a tile in shared memory: the same for ldmatrix (kernels 08 on) as for TMA and wgmma's
// 128-byte mode (kernels 12 on).
//
// A row of a tile is cut in chunks of 16 bytes, what one lane of ldmatrix reads. Eight lanes read the same
// chunk of eight rows; if rows are 128 bytes (or a multiple) apart, all eight chunks lie in the same four
// banks. Chunk c of row r is therefore stored in the place of chunk c ^ (r % 8):
//
//            place 0 1 2 3 4 5 6 7      (16 bytes, four banks each)
//     row 0        0 1 2 3 4 5 6 7
//     row 1        1 0 3 2 5 4 7 6
//     row 2        2 3 0 1 6 7 4 5
//     row 3        3 2 1 0 7 6 5 4      which chunk lies there
//     row 4        4 5 6 7 0 1 2 3
//     row 5        5 4 7 6 1 0 3 2
//     row 6        6 7 4 5 2 3 0 1
//     row 7        7 6 5 4 3 2 1 0
//
// Any column of chunks meets every place once: no conflict. A row keeps its chunks: writing rows does not
// conflict either.
#pragma once

#include <array>

namespace layout {

// Where chunk `chunk` of row `row` is stored, for rows of at least eight chunks: in the same group of eight.
constexpr int swizzle(int row, int chunk) { return chunk ^ (row % 8); }

// Eight lanes that read chunk `chunk` of rows 0..7 (128 bytes or a multiple apart) meet eight places.
constexpr bool column_is_conflict_free(int chunk) {
  std::array<bool, 8> met{};
  for (int row = 0; row < 8; row++) {
    bool& here = met[static_cast<unsigned>(swizzle(row, chunk) % 8)];
    if (here) return false;
    here = true;
  }
  return true;
}

// Eight lanes that write chunks 0..7 of one row meet eight places.
constexpr bool row_is_bijective(int row) {
  std::array<bool, 8> met{};
  for (int chunk = 0; chunk < 8; chunk++) {
    bool& here = met[static_cast<unsigned>(swizzle(row, chunk))];
    if (here) return false;
    here = true;
  }
  return true;
}

static_assert(column_is_conflict_free(0) && column_is_conflict_free(1) &&
              column_is_conflict_free(2) && column_is_conflict_free(3) &&
              column_is_conflict_free(4) && column_is_conflict_free(5) &&
              column_is_conflict_free(6) && column_is_conflict_free(7));
static_assert(row_is_bijective(0) && row_is_bijective(1) && row_is_bijective(2) &&
              row_is_bijective(3) && row_is_bijective(4) && row_is_bijective(5) &&
              row_is_bijective(6) && row_is_bijective(7));
static_assert(swizzle(13, 9) == 12, "chunks 8..15 stay in their own group of eight");

}  // namespace layout
