// wgmma's operands: how a tile lies in shared memory, the 64-bit descriptor that says so, and which
// lane holds which element of the accumulators. Kernels, the emulator, tests and the docs' pictures
// all use these. PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": "Shared Memory Matrix
// Layout", "Strides", "Matrix Descriptor Format"; where it leaves something open, an H200's answers
// decide (common/emulator/tests/golden).
//
// A wgmma multiplies A, 64 x 16, by B, 16 x N; elements have 16 bits. The two dimensions of an
// operand are k (16, along which the products are summed) and the other one, "MN": the rows of A or
// the columns of B.
//
//   K-major   elements with neighbouring k lie side by side   attention's Q and K: rows of head_dim
//   MN-major  elements with neighbouring row/column do        V: k is the key, a row is one key's
//
// The unit is the core matrix: 8 rows of 16 bytes, 8 x 8 elements, as ldmatrix reads them; a "row"
// is along the major dimension. Without swizzle its 8 rows lie one after the other, 128 bytes. With
// a swizzle of S bytes (32, 64, 128) rows of S bytes lie one after the other, eight of them form an
// atom of 8 x S bytes, and in it the 16-byte chunks are permuted by the XOR of
// common/layout/swizzle.h: S / 16 core matrices, interleaved.
//
// Two strides, LBO and SBO, say how the operand goes on beyond a core matrix or atom:
//
//                  K-major                            MN-major
//   no swizzle     k + 8: LBO    row + 8: SBO         k + 8: LBO   row + 8: SBO
//   swizzle        k + 8: next chunk of the same      k + 8: SBO   row + S / 2: LBO
//                  row; LBO unused    row + 8: SBO
#pragma once

#include <array>
#include <cstdint>

#include "common/layout/fragments.h"
#include "common/layout/swizzle.h"

namespace layout {

enum class Major : uint8_t { kK = 0, kMN = 1 };  // the values of wgmma's imm-trans-a, imm-trans-b

#ifndef __CUDACC__
// Never returns. The emulator, which runs kernels on a CPU, defines it.
void not_a_multiple_of_16(uint64_t bytes);
#endif

// A number of bytes that must be a multiple of 16. Code that runs on a CPU checks that it is.
constexpr uint64_t whole_16(uint64_t bytes) {
#ifndef __CUDACC__
  if (bytes % 16 != 0) not_a_multiple_of_16(bytes);
#endif
  return bytes;
}

// ---- the matrix descriptor ----------------------------------------------------------------------
// 64 bits; addresses and strides are in units of 16 bytes, 14 bits each, so up to 256 KB:
//
//   63 62 | 61 .. 52 | 51 .. 49    | 48 46 | 45 .. 32 | 31 30 | 29 .. 16 | 15 14 | 13 .. 0
//   mode  |          | base offset |       |   SBO    |       |   LBO    |       | start address
constexpr uint64_t address_field(uint64_t bytes) { return (whole_16(bytes) & 0x3ffff) >> 4; }

// The address of the operand's element (0, 0), of shared memory (ptx::shared_address), a multiple
// of 16.
constexpr uint64_t start_field(uint32_t address) { return address_field(address); }

// LBO, "leading dimension byte offset", and SBO, "stride dimension byte offset": see the table
// above.
constexpr uint64_t leading_field(uint32_t bytes) { return address_field(bytes) << 16; }
constexpr uint64_t stride_field(uint32_t bytes) { return address_field(bytes) << 32; }

// The XOR takes a row's number from bits 7-9 of its address, so atoms start at multiples of 1024
// bytes (512, 256 in the smaller modes). One that starts elsewhere says here at which row: (address
// / 128) % 8.
constexpr uint64_t base_offset_field(uint64_t row) { return (row & 7) << 49; }

constexpr uint64_t mode_number(SwizzleMode mode) {
  return mode == SwizzleMode::k128Bytes  ? 1
         : mode == SwizzleMode::k64Bytes ? 2
         : mode == SwizzleMode::k32Bytes ? 3
                                         : 0;
}

// How rows of an atom are swizzled.
constexpr uint64_t mode_field(SwizzleMode mode) { return mode_number(mode) << 62; }

constexpr uint64_t descriptor(uint32_t start, uint32_t leading, uint32_t stride, SwizzleMode mode,
                              uint32_t base_offset = 0) {
  return start_field(start) | leading_field(leading) | stride_field(stride) |
         base_offset_field(base_offset) | mode_field(mode);
}

// The fields back, in bytes (rows, mode).
constexpr uint32_t descriptor_start(uint64_t d) { return static_cast<uint32_t>(d & 0x3fff) << 4; }
constexpr uint32_t descriptor_leading(uint64_t d) {
  return static_cast<uint32_t>(d >> 16 & 0x3fff) << 4;
}
constexpr uint32_t descriptor_stride(uint64_t d) {
  return static_cast<uint32_t>(d >> 32 & 0x3fff) << 4;
}
constexpr uint32_t descriptor_base_offset(uint64_t d) { return static_cast<uint32_t>(d >> 49 & 7); }
constexpr SwizzleMode descriptor_mode(uint64_t d) {
  constexpr SwizzleMode kModes[] = {SwizzleMode::kNone, SwizzleMode::k128Bytes,
                                    SwizzleMode::k64Bytes, SwizzleMode::k32Bytes};
  return kModes[d >> 62];
}

// The same operand `bytes` bytes further on: only the start changes.
constexpr uint64_t advance(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (whole_16(bytes) >> 4);
}

static_assert(descriptor(0x12340, 0, 0, SwizzleMode::kNone) == 0x1234);
static_assert(descriptor(0, 128, 1024, SwizzleMode::k128Bytes) == 0x4000004000080000u);
static_assert(descriptor_start(descriptor(0x3fff0, 0x3fff0, 0x3fff0, SwizzleMode::k32Bytes, 7)) ==
                      0x3fff0 &&
                  descriptor_leading(descriptor(0, 0x3fff0, 0, SwizzleMode::kNone)) == 0x3fff0 &&
                  descriptor_stride(descriptor(0, 0, 0x3fff0, SwizzleMode::kNone)) == 0x3fff0 &&
                  descriptor_base_offset(descriptor(0, 0, 0, SwizzleMode::kNone, 5)) == 5 &&
                  descriptor_mode(descriptor(0, 0, 0, SwizzleMode::k64Bytes)) ==
                      SwizzleMode::k64Bytes,
              "no field spills into another");
static_assert(advance(descriptor(1024, 16, 1024, SwizzleMode::k128Bytes), 32) ==
              descriptor(1056, 16, 1024, SwizzleMode::k128Bytes));

// ---- from an element to its address -------------------------------------------------------------
// Where element (mn, k) lies from the start on if nothing is swizzled; rows have `span` bytes.
constexpr uint32_t k_major_offset(uint32_t span, uint32_t leading, uint32_t stride, uint32_t mn,
                                  uint32_t k) {
  return mn / 8 * stride + mn % 8 * span + 2 * k / span * leading + 2 * k % span;
}
constexpr uint32_t mn_major_offset(uint32_t span, uint32_t next_mn, uint32_t next_k, uint32_t mn,
                                   uint32_t k) {
  return 2 * mn / span * next_mn + 2 * mn % span + k / 8 * next_k + k % 8 * span;
}

// Shared address of element (mn, k) of the operand that a descriptor describes.
constexpr uint32_t element_address(uint64_t d, Major major, uint32_t mn, uint32_t k) {
  const SwizzleMode mode = descriptor_mode(d);
  const auto span = static_cast<uint32_t>(swizzle_span(mode));
  const uint32_t leading = descriptor_leading(d), stride = descriptor_stride(d);
  uint32_t address = descriptor_start(d);
  if (major == Major::kK) {
    address += k_major_offset(span, leading, stride, mn, k);
  } else if (mode == SwizzleMode::kNone) {
    address += mn_major_offset(span, stride, leading, mn, k);
  } else {
    address += mn_major_offset(span, leading, stride, mn, k);
  }
  const uint32_t first_row = 128 * descriptor_base_offset(d);
  return swizzle_address(mode, address - first_row) + first_row;
}

// ---- the tiles of attention ---------------------------------------------------------------------
// A tile of `rows` rows of head_dim elements is kept as slabs of 64 columns: 128 bytes a row, rows
// * 128 bytes a slab, each slab a multiple of 1024 bytes from the next, 128-byte swizzle. It is
// what TMA writes for a box of 64 columns. The same bytes serve as a K-major operand (k along a
// row: Q, K) and as an MN-major one (k is the row: V), by different descriptors.
constexpr int slab_bytes(int rows) { return rows * 128; }

// Byte of element (row, column) in a tile of `rows` rows.
constexpr int slab_offset(int rows, int row, int column) {
  return column / 64 * slab_bytes(rows) + row * 128 + swizzle(row, column % 64 / 8) * 16 +
         column % 8 * 2;
}

// A slab's first 16 columns as K-major operand; the next 16 are k_major_step(1), and so on.
constexpr uint64_t k_major_descriptor(uint32_t slab) {
  return descriptor(slab, 16, 1024, SwizzleMode::k128Bytes);
}
// Where the 16 columns k = 16 step begin in the tile: 32 bytes further in the rows, four times a
// slab.
constexpr uint32_t k_major_step(int rows, int step) {
  return static_cast<uint32_t>(step / 4 * slab_bytes(rows) + step % 4 * 32);
}

// A tile's first 16 rows as MN-major operand with all its columns.
constexpr uint64_t mn_major_descriptor(uint32_t tile, int rows) {
  return descriptor(tile, static_cast<uint32_t>(slab_bytes(rows)), 1024, SwizzleMode::k128Bytes);
}
// Where the rows k = 16 step begin: two atoms further.
constexpr uint32_t mn_major_step(int step) { return static_cast<uint32_t>(step * 16 * 128); }

// Each wgmma of a product over a whole tile finds elements where slab_offset puts them: of every
// chunk of eight one (compilers limit what they evaluate).
constexpr bool descriptors_match_slabs(int rows, int head_dim) {
  const uint32_t tile = 5 * 1024;
  for (int row = 0; row < rows; row++) {
    for (int column = row % 8; column < head_dim; column += 8) {
      const uint32_t wanted = tile + static_cast<uint32_t>(slab_offset(rows, row, column));
      const uint64_t as_k = advance(k_major_descriptor(tile), k_major_step(rows, column / 16));
      const uint64_t as_mn = advance(mn_major_descriptor(tile, rows), mn_major_step(row / 16));
      const auto r = static_cast<uint32_t>(row), c = static_cast<uint32_t>(column);
      if (element_address(as_k, Major::kK, r, c % 16) != wanted) return false;
      if (element_address(as_mn, Major::kMN, c, r % 16) != wanted) return false;
    }
  }
  return true;
}
static_assert(descriptors_match_slabs(48, 128), "Q, K and V of attention");

// ---- registers ----------------------------------------------------------------------------------
// PTX ISA, "Register Fragments and Shared Memory Matrix Layouts". A warpgroup is four warps, 128
// threads; warp w % 4 holds rows 16w to 16w + 15 of D (64 x N) and, if A is in registers, of A.
// Inside of them it is the layout of mma.m16n8k16: D is N / 8 tiles of 16 x 8 side by side, A one
// of 16 x 16.

// Element `i` (0 .. N / 2 - 1) of D of thread `thread` (0..127): (row, column).
constexpr Position wgmma_d(int thread, int i) {
  return {thread / 32 * 16 + mma_c(thread % 32, i % 4).row,
          i / 4 * 8 + mma_c(thread % 32, i % 4).column};
}

// Half `h` of register `i` (0..3) of A: (row, k).
constexpr Position wgmma_a(int thread, int i, int h) {
  return {thread / 32 * 16 + mma_a(thread % 32, i, h).row, mma_a(thread % 32, i, h).column};
}

// Every element of a 64 x n accumulator has one place.
constexpr bool accumulators_are_bijective(int n) {
  std::array<bool, 64 * 256> met{};
  for (int thread = 0; thread < 128; thread++) {
    for (int i = 0; i < n / 2; i++) {
      const Position p = wgmma_d(thread, i);
      if (p.row >= 64 || p.column >= n || met[static_cast<unsigned>(p.row * n + p.column)])
        return false;
      met[static_cast<unsigned>(p.row * n + p.column)] = true;
    }
  }
  return true;
}
static_assert(accumulators_are_bijective(64) && accumulators_are_bijective(176));

}  // namespace layout
