// The XOR swizzle of a tile in shared memory: the same for ldmatrix (kernels 08 on) as for TMA and
// wgmma's 128-byte mode (kernels 11 on).
//
// A row of a tile is cut in chunks of 16 bytes, what one lane of ldmatrix reads. Eight lanes read
// the same chunk of eight rows; if rows are 128 bytes (or a multiple) apart, all eight chunks lie
// in the same four banks. Chunk c of row r is therefore stored in the place of chunk c ^ (r % 8):
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
// Any column of chunks meets every place once: no conflict. A row keeps its chunks: writing rows
// does not conflict either.
#pragma once

#include <array>
#include <cstdint>

namespace layout {

// [swizzle]
// Where chunk `chunk` of row `row` is stored, for rows of at least eight chunks: in the same group
// of eight.
constexpr int swizzle(int row, int chunk) { return chunk ^ (row % 8); }
// [/swizzle]

// Eight lanes that read chunk `chunk` of rows 0..7 (128 bytes or a multiple apart) meet eight
// places.
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

// The hardware's swizzles, of TMA and of wgmma (PTX ISA, "Tensors: Swizzling modes", "Asynchronous
// Warpgroup Level Matrix Multiply: Strides"): the same XOR on shared addresses, for rows of 32, 64
// or 128 bytes. Eight chunks, 128 bytes, are numbered by the address, and so are the rows: rows of
// 64 bytes lie two to a number, and their chunks move within four places; rows of 32 bytes lie four
// to a number, within two places. The pattern repeats after 256, 512 or 1024 bytes, of which a
// tile's address is a multiple.
enum class SwizzleMode { kNone, k32Bytes, k64Bytes, k128Bytes };

// Bytes within which chunks move.
constexpr int swizzle_span(SwizzleMode mode) {
  switch (mode) {
    case SwizzleMode::k32Bytes:
      return 32;
    case SwizzleMode::k64Bytes:
      return 64;
    case SwizzleMode::k128Bytes:
      return 128;
    case SwizzleMode::kNone:
      break;
  }
  return 16;
}

// Bytes after which the pattern repeats.
constexpr int swizzle_period(SwizzleMode mode) {
  return mode == SwizzleMode::kNone ? 16 : 8 * swizzle_span(mode);
}

// Where the byte is stored that would lie at `address` without swizzle.
constexpr uint32_t swizzle_address(SwizzleMode mode, uint32_t address) {
  const int places = swizzle_span(mode) / 16;
  const int row = int(address / 128) % places, chunk = int(address / 16 % 8);
  return address / 128 * 128 + uint32_t(swizzle(row, chunk)) * 16 + address % 16;
}
static_assert(swizzle_address(SwizzleMode::kNone, 0x3f7) == 0x3f7);
static_assert(swizzle_address(SwizzleMode::k32Bytes, 0x3f7) == 0x3e7, "bit 4 ^= bit 7");
static_assert(swizzle_address(SwizzleMode::k64Bytes, 0x3f7) == 0x3c7, "bits 4-5 ^= bits 7-8");
static_assert(swizzle_address(SwizzleMode::k128Bytes, 0x3f7) == 0x387, "bits 4-6 ^= bits 7-9");

}  // namespace layout
