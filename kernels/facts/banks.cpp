// For each access pattern of a warp, row length and layout of a tile in shared memory that the page
// offers: the address of every lane and the wavefront that serves it. The counting is that of the
// emulator (common/emulator/core/wavefronts.h), the layouts are the kernels' (common/layout).
#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/emulator/core/wavefronts.h"
#include "common/layout/fragments.h"
#include "common/layout/swizzle.h"
#include "common/layout/wgmma.h"
#include "kernels/facts/facts.h"

namespace facts {
namespace {

using layout::Position;

// An element has 2 bytes. `bytes`: a lane's access, which begins at `first(lane, head_dim)` of the
// tile.
struct Pattern {
  const char *id, *name, *instruction;
  bool matrices;  // ldmatrix.x4 or stmatrix.x4: served matrix by matrix
  uint32_t bytes;
  Position (*first)(int lane, int head_dim);
};

// Lane after lane along the rows.
template <int kBytes>
Position along_rows(int lane, int head_dim) {
  const int element = lane * kBytes / 2;
  return {element / head_dim, element % head_dim};
}
// Each lane a row.
Position column(int lane, int) { return {lane, 0}; }

constexpr Pattern kPatterns[] = {
    {"ldmatrix_q", "ldmatrix.x4 of Q or V (also stmatrix.x4 of O)",
     "Lane i: row i % 16, column i / 16 * 8. Kernels 05 to 10; O of 15 and 16", true, 16,
     [](int lane, int) {
       return Position{lane % 16, lane / 16 * 8};
     }},
    {"ldmatrix_k", "ldmatrix.x4 of K",
     "Lane i: row i % 8 + i / 16 * 8, column i / 8 % 2 * 8. Kernels 05 to 10", true, 16,
     [](int lane, int) {
       return Position{lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8};
     }},
    {"rows_16", "16 bytes a lane along rows (cp.async)",
     "Lane after lane along the rows: copies of a tile, kernels 05 to 11", false, 16,
     along_rows<16>},
    {"rows_8", "8 bytes a lane along rows", "Lane after lane along the rows", false, 8,
     along_rows<8>},
    {"rows_4", "4 bytes a lane along rows", "Lane after lane along the rows", false, 4,
     along_rows<4>},
    {"column_16", "16 bytes a lane down a column", "Lane i: row i, column 0", false, 16, column},
    {"column_8", "8 bytes a lane down a column", "Lane i: row i, column 0", false, 8, column},
    {"column_4", "4 bytes a lane down a column", "Lane i: row i, column 0", false, 4, column},
    {"column_2", "one element a lane down a column",
     "Lane i: row i, column 0, 2 bytes. K in kernel 02", false, 2, column},
    {"fragment", "a fragment by 4-byte loads or stores",
     "Lane i: row i / 4, column 2 (i % 4), as mma.sync holds it. P in kernel 05", false, 4,
     [](int lane, int) { return layout::mma_c(lane, 0); }},
    {"quads_16", "16 bytes a lane, the four lanes of a quad alike",
     "Lane i: row i / 4, column 0: the same address for the four lanes of a quad", false, 16,
     [](int lane, int) {
       return Position{lane / 4, 0};
     }},
};

// Where element (row, column) lies in a tile of kRows rows of `pitch` elements, of which head_dim
// are used. In bytes.
constexpr int kRows = 64;
struct Layout {
  const char *id, *name, *formula;
  bool padding;  // may rows be longer than head_dim?
  int (*offset)(int row, int column, int pitch);
};

int in_chunks(int row, int chunk, int column, int pitch) {
  return 2 * row * pitch + 16 * chunk + 2 * (column % 8);
}
// Slabs of as many columns as the mode swizzles together, one after the other.
template <layout::SwizzleMode kMode>
int slabs(int row, int column, int) {
  constexpr int kSpan = layout::swizzle_span(kMode);
  const int slab = 2 * column / kSpan, inside = row * kSpan + 2 * column % kSpan;
  return slab * kRows * kSpan + int(layout::swizzle_address(kMode, uint32_t(inside)));
}

constexpr Layout kLayouts[] = {
    {"none", "none: rows one after the other", "2 · (row · pitch + column) bytes", true,
     [](int row, int column, int pitch) { return in_chunks(row, column / 8, column, pitch); }},
    {"xor", "XOR (chapter 08)", "chunk c of row r lies in the place of chunk c ^ (r % 8)", true,
     [](int row, int column, int pitch) {
       return in_chunks(row, layout::swizzle(row, column / 8), column, pitch);
     }},
    {"rotation", "rotation (08, exercise 1)",
     "chunk c of row r lies in place (c + r) % 8 of its group of eight", false,
     [](int row, int column, int pitch) {
       const int chunk = column / 8;
       return in_chunks(row, chunk / 8 * 8 + (chunk + row) % 8, column, pitch);
     }},
    {"every_other_row", "XOR by every other row (08, exercise 2)",
     "chunk c of row r lies in the place of chunk c ^ (r / 2 % 8)", false,
     [](int row, int column, int pitch) {
       return in_chunks(row, layout::swizzle(row / 2, column / 8), column, pitch);
     }},
    {"mode_128", "128-byte mode (TMA, wgmma)",
     "slabs of 64 columns; in them chunk c of row r lies in place c ^ (r % 8)", false,
     [](int row, int column, int) { return layout::slab_offset(kRows, row, column); }},
    {"mode_64", "64-byte mode (08, exercise 3)",
     "slabs of 32 columns; in them chunk c of row r lies in place c ^ (r / 2 % 4)", false,
     slabs<layout::SwizzleMode::k64Bytes>},
    {"mode_32", "32-byte mode",
     "slabs of 16 columns; in them chunk c of row r lies in place c ^ (r / 4 % 2)", false,
     slabs<layout::SwizzleMode::k32Bytes>},
};

constexpr int kHeadDims[] = {64, 128};
constexpr int kPads[] = {0, 2, 8};  // elements after each row

// The case, or null where an access would not be aligned to its size.
Json count(const Pattern& pattern, const Layout& how, int head_dim, int pad) {
  std::array<uint32_t, emu::kWarpSize> offsets{};
  for (int lane = 0; lane < emu::kWarpSize; lane++) {
    const Position at = pattern.first(lane, head_dim);
    const int offset = how.offset(at.row, at.column, head_dim + pad);
    if (uint32_t(offset) % pattern.bytes != 0) return nullptr;
    offsets[size_t(lane)] = uint32_t(offset);
  }
  std::vector<emu::Delivery> deliveries;
  const emu::Wavefronts wavefronts =
      pattern.matrices ? emu::matrix_wavefronts(offsets, 4, &deliveries)
                       : emu::shared_wavefronts(offsets, ~0u, pattern.bytes, &deliveries);
  // Aligned as they are, all words of a lane come in the same wavefront.
  std::array<int, emu::kWarpSize> served;
  served.fill(-1);
  for (const emu::Delivery& delivery : deliveries) {
    int& mine = served[size_t(delivery.lane)];
    if (mine >= 0 && mine != int(delivery.wavefront)) {
      throw std::logic_error(std::string(pattern.id) + ", " + how.id +
                             ": two wavefronts serve lane " + std::to_string(delivery.lane));
    }
    mine = int(delivery.wavefront);
  }
  return {{"wavefronts", wavefronts.actual},
          {"ideal", wavefronts.ideal},
          {"addresses", offsets},
          {"served", served}};
}

}  // namespace

Json banks() {
  Json patterns = Json::array(), layouts = Json::array(), cases = Json::object();
  for (const Layout& how : kLayouts)
    layouts.push_back({{"id", how.id}, {"name", how.name}, {"formula", how.formula}});
  for (const Pattern& pattern : kPatterns) {
    Json elements = Json::object();  // the row and column of each lane's first element
    for (const int head_dim : kHeadDims) {
      Json& lanes = elements[std::to_string(head_dim)];
      for (int lane = 0; lane < emu::kWarpSize; lane++) {
        const Position at = pattern.first(lane, head_dim);
        lanes.push_back({at.row, at.column});
      }
      for (const int pad : kPads) {
        for (const Layout& how : kLayouts) {
          if (pad > 0 && !how.padding) continue;
          const Json found = count(pattern, how, head_dim, pad);
          if (found.is_null()) continue;
          cases[std::string(pattern.id) + " " + std::to_string(head_dim) + " " +
                std::to_string(pad) + " " + how.id] = found;
        }
      }
    }
    patterns.push_back({{"id", pattern.id},
                        {"name", pattern.name},
                        {"about", pattern.instruction},
                        {"bytes", pattern.bytes},
                        {"elements", elements}});
  }
  return {{"head_dims", kHeadDims},
          {"pads", kPads},
          {"patterns", patterns},
          {"layouts", layouts},
          {"cases", cases}};
}

}  // namespace facts
