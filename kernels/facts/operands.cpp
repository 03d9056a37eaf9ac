// The constexpr layouts of common/layout as JSON. Not a formula is its own; what it says of kernel
// 11 comes from the kernel's source.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/emulator/core/half_types.h"
#include "common/layout/fragments.h"
#include "common/layout/swizzle.h"
#include "common/layout/wgmma.h"
#include "kernels/11_wgmma.cu"
#include "kernels/facts/facts.h"

namespace facts {
namespace {

using layout::Position;

void check(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

// ---- fragments ----------------------------------------------------------------------------------

// Where half `h` of register `i` of a thread belongs.
using Place = std::function<Position(int thread, int i, int h)>;

struct Fragment {
  const char *id, *name, *section;
  int rows, columns;
  const char *row_name, *column_name, *register_name;
  int threads, registers, halves;  // halves: elements of a register
  Place place;
};

Json fragment(const Fragment& f) {
  Json positions = Json::array();  // of each thread: row, column of each half of each register
  for (int thread = 0; thread < f.threads; thread++) {
    Json mine = Json::array();
    for (int i = 0; i < f.registers; i++) {
      for (int h = 0; h < f.halves; h++) {
        const Position p = f.place(thread, i, h);
        mine.push_back(p.row);
        mine.push_back(p.column);
      }
    }
    positions.push_back(mine);
  }
  return {{"id", f.id},
          {"name", f.name},
          {"section", f.section},
          {"rows", f.rows},
          {"columns", f.columns},
          {"row_name", f.row_name},
          {"column_name", f.column_name},
          {"register", f.register_name},
          {"registers", f.registers},
          {"halves", f.halves},
          {"positions", positions}};
}

// ldmatrix.x4 that brings a fragment: `place` says where in a 16 x 16 tile of shared memory half h
// of register m of a lane comes from. Which address a lane has to give follows: lane 8m + r gives
// that of row r of matrix m.
Json ldmatrix(const char* id, const char* name, bool trans, const char* row_name,
              const char* column_name, const Place& place) {
  const auto in_matrix = trans ? layout::ldmatrix_trans : layout::ldmatrix;
  Json addresses = Json::array();  // of each lane: row, column
  for (int giver = 0; giver < 32; giver++) {
    const int m = giver / 8;
    Position first{-1, -1};
    for (int lane = 0; lane < 32; lane++) {
      for (int h = 0; h < 2; h++) {
        if (in_matrix(lane, h) == Position{giver % 8, 0}) first = place(lane, m, h);
      }
    }
    for (int lane = 0; lane < 32; lane++) {
      for (int h = 0; h < 2; h++) {
        const Position p = in_matrix(lane, h);
        check(
            p.row != giver % 8 || place(lane, m, h) == Position{first.row, first.column + p.column},
            "ldmatrix does not bring this fragment");
      }
    }
    addresses.push_back({first.row, first.column});
  }
  Json view = fragment({id, name, "Warp-level matrix load instruction: ldmatrix", 16, 16, row_name,
                        column_name, "r", 32, 4, 2, place});
  view["addresses"] = addresses;
  return view;
}

}  // namespace

Json fragments() {
  const char* mma = "Matrix Fragments for mma.m16n8k16 with floating point type";
  const char* wgmma = "Register Fragments and Shared Memory Matrix Layouts";
  const Place mma_c = [](int lane, int i, int) { return layout::mma_c(lane, i); };
  Json views = Json::array();
  views.push_back(fragment({"mma_a", "mma.sync.m16n8k16: A, 16 x 16", mma, 16, 16, "row", "k", "a",
                            32, 4, 2, layout::mma_a}));
  views.push_back(fragment({"mma_b", "mma.sync.m16n8k16: B, 16 x 8", mma, 16, 8, "k", "column", "b",
                            32, 2, 2, layout::mma_b}));
  views.push_back(fragment({"mma_c", "mma.sync.m16n8k16: C and D, 16 x 8", mma, 16, 8, "row",
                            "column", "c", 32, 4, 1, mma_c}));

  // As kernels 05 on load them: registers 0 and 1 of K and V are the B of 8 keys or columns, 2 and
  // 3 of the next.
  views.push_back(
      ldmatrix("ldmatrix_q", "ldmatrix.x4: Q becomes A", false, "query", "d", layout::mma_a));
  views.push_back(ldmatrix("ldmatrix_k", "ldmatrix.x4: K becomes two B", false, "key", "d",
                           [](int lane, int m, int h) {
                             const Position b = layout::mma_b(lane, m % 2, h);
                             return Position{b.column + m / 2 * 8, b.row};
                           }));
  views.push_back(ldmatrix("ldmatrix_v", "ldmatrix.x4.trans: V becomes two B", true, "key",
                           "column", [](int lane, int m, int h) {
                             const Position b = layout::mma_b(lane, m % 2, h);
                             return Position{b.row, b.column + m / 2 * 8};
                           }));

  // Two C side by side, registers c[0..3] of the left and of the right one; and the A of the same
  // elements.
  Json c_is_a = fragment({"c_is_a", "mma.sync: two C of S are one A of P", mma, 16, 16, "row",
                          "column", "c", 32, 8, 1, [](int lane, int i, int) {
                            const Position c = layout::mma_c(lane, i % 4);
                            return Position{c.row, c.column + i / 4 * 8};
                          }});
  c_is_a["registers_of_tile"] = 4;
  c_is_a["becomes"] = "mma_a";
  views.push_back(c_is_a);

  Json d =
      fragment({"wgmma_d", "wgmma.m64n128k16: D, 64 x 128", wgmma, 64, 128, "row", "column", "d",
                128, 64, 1, [](int thread, int i, int) { return layout::wgmma_d(thread, i); }});
  d["becomes"] = "wgmma_a";
  views.push_back(d);
  views.push_back(fragment({"wgmma_a", "wgmma.m64nNk16: A in registers, 64 x 16", wgmma, 64, 16,
                            "row", "k", "a", 128, 4, 2, layout::wgmma_a}));
  return {{"source", {"common/layout/fragments.h", "common/layout/wgmma.h"}}, {"views", views}};
}

// ---- descriptor ---------------------------------------------------------------------------------
namespace {

constexpr layout::SwizzleMode kModes[] = {
    layout::SwizzleMode::kNone, layout::SwizzleMode::k128Bytes, layout::SwizzleMode::k64Bytes,
    layout::SwizzleMode::k32Bytes};

// `all`: the field with all its bits set; `unit`: what its lowest bit counts.
Json field(const char* id, const char* name, const char* short_name, uint64_t all, int unit,
           const char* of) {
  const int low = std::countr_zero(all), width = std::popcount(all);
  check(all >> low == (uint64_t{1} << width) - 1, "a field is not in one piece");
  return {{"id", id},     {"name", name}, {"short", short_name}, {"low", low}, {"width", width},
          {"unit", unit}, {"of", of}};
}

std::string hex(uint64_t value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%0*llx", digits, static_cast<unsigned long long>(value));
  return text;
}

// A CTA's own shared memory begins here; CUDA keeps what is before
// (cudaDevAttrReservedSharedMemoryPerBlock).
constexpr uint32_t kFirstAddress = 1024;
constexpr uint32_t kLines = 16;  // of 128 bytes that the page shows of a tile

// A tile of kernel 11 as an operand: a descriptor for each 16 of k, and of the first lines of a
// slab in which that wgmma begins, the 16-byte places that it reads.
Json preset(const std::string& id, const std::string& name, int head_dim, uint32_t tile, int rows,
            layout::Major major) {
  const bool mn_major = major == layout::Major::kMN;
  const uint64_t first =
      mn_major ? layout::mn_major_descriptor(tile, rows) : layout::k_major_descriptor(tile);
  const int count = (mn_major ? rows : head_dim) / 16;
  Json steps = Json::array();
  for (int step = 0; step < count; step++) {
    const uint32_t further =
        mn_major ? layout::mn_major_step(step) : layout::k_major_step(rows, step);
    const uint64_t d = layout::advance(first, further);
    const uint32_t first_line = further / 128;
    Json reads = Json::array();  // line, place
    const uint32_t mn_count = mn_major ? 64 : kLines, mn_step = mn_major ? 8 : 1;
    const uint32_t k_step = mn_major ? 1 : 8;
    for (uint32_t mn = 0; mn < mn_count; mn += mn_step) {
      for (uint32_t k = 0; k < 16; k += k_step) {
        const uint32_t at = layout::element_address(d, major, mn, k) - tile - first_line * 128;
        check(at < kLines * 128 && at % 16 == 0, "a chunk is not where it is shown");
        reads.push_back({at / 128, at % 128 / 16});
      }
    }
    const std::string last = std::to_string(16 * step + 15);
    steps.push_back(
        {{"what", (mn_major ? "keys " : "columns ") + std::to_string(16 * step) + " to " + last},
         {"bytes", further},
         {"descriptor", hex(d, 16)},
         {"slab", first_line / static_cast<uint32_t>(rows)},
         {"first_row", first_line % static_cast<uint32_t>(rows)},
         {"reads", reads}});
  }
  return {{"id", id},      {"name", name},         {"head_dim", head_dim},
          {"rows", rows},  {"tile", hex(tile, 1)}, {"major", mn_major ? "MN" : "K"},
          {"steps", steps}};
}

template <int kHeadDim>
void add_presets(Json& presets) {
  using Storage = fa::k11::SharedStorage<__half, kHeadDim>;
  using C = fa::k11::Config<kHeadDim>;
  const auto add = [&](const char* id, const char* name, size_t offset, int rows,
                       layout::Major major) {
    presets.push_back(preset(id + std::to_string(kHeadDim),
                             std::string(name) + ", head_dim " + std::to_string(kHeadDim), kHeadDim,
                             kFirstAddress + static_cast<uint32_t>(offset), rows, major));
  };
  const size_t stage_k = sizeof(Storage::sK) / C::kStages,
               stage_v = sizeof(Storage::sV) / C::kStages;
  const size_t q = offsetof(Storage, sQ), k = offsetof(Storage, sK), v = offsetof(Storage, sV);
  const size_t warpgroup = sizeof(Storage::sQ) / C::kWarpgroups;
  add("q", "Q of warpgroup 0", q, 64, layout::Major::kK);
  add("q1_", "Q of warpgroup 1", q + warpgroup, 64, layout::Major::kK);
  add("k", "K in stage 0", k, C::kBlockN, layout::Major::kK);
  add("k1_", "K in stage 1", k + stage_k, C::kBlockN, layout::Major::kK);
  add("v", "V in stage 0", v, C::kBlockN, layout::Major::kMN);
  add("v1_", "V in stage 1", v + stage_v, C::kBlockN, layout::Major::kMN);
}

}  // namespace

Json descriptor() {
  constexpr uint32_t kAll = 0xffffffff / 16 * 16;
  uint64_t all_modes = 0;
  Json modes = Json::array();
  for (layout::SwizzleMode mode : kModes) {
    all_modes |= layout::mode_field(mode);
    check(layout::descriptor_mode(layout::mode_field(mode)) == mode, "a mode is read otherwise");
    modes.push_back({{"value", layout::mode_number(mode)},
                     {"span", layout::swizzle_span(mode)},
                     {"period", layout::swizzle_period(mode)}});
  }
  const int unit = 1 << std::countr_zero(uint64_t{layout::descriptor_start(1)});
  Json fields = {
      field("start", "start address", "start", layout::start_field(kAll), unit, "bytes"),
      field("leading", "leading byte offset (LBO)", "LBO", layout::leading_field(kAll), unit,
            "bytes"),
      field("stride", "stride byte offset (SBO)", "SBO", layout::stride_field(kAll), unit, "bytes"),
      field("base_offset", "base offset", "base", layout::base_offset_field(~uint64_t{0}), 1,
            "rows"),
      field("mode", "swizzle mode", "mode", all_modes, 1, "mode")};

  // Which chunk of 8 columns lies in each place of a slab's first lines.
  Json chunks = Json::array();
  for (uint32_t line = 0; line < kLines; line++) {
    std::vector<int> places(8, -1);
    for (int chunk = 0; chunk < 8; chunk++) {
      const auto at = static_cast<uint32_t>(layout::slab_offset(kLines, int(line), 8 * chunk));
      check(at / 128 == line, "a row has left its line");
      places[at % 128 / 16] = chunk;
    }
    chunks.push_back(places);
  }
  Json presets = Json::array();
  add_presets<128>(presets);
  add_presets<64>(presets);
  return {{"source", {"common/layout/wgmma.h", "common/layout/swizzle.h", "kernels/11_wgmma.cu"}},
          {"fields", fields},
          {"modes", modes},
          {"chunks", chunks},
          {"presets", presets}};
}

// ---- pictures -----------------------------------------------------------------------------------
namespace {

Json json(Position at) { return {at.row, at.column}; }
Json json(uint32_t value) { return value; }

// of(i, j) for all i < count and j < each.
template <typename Of>
Json table(int count, int each, const Of& of) {
  Json rows = Json::array();
  for (int i = 0; i < count; i++) {
    Json row = Json::array();
    for (int j = 0; j < each; j++) row.push_back(json(of(i, j)));
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

Json layouts() {
  constexpr uint32_t kStart = 0x8400, kStride = 1024;  // of the descriptor that is drawn
  Json starts = Json::array();                         // of its four steps
  for (int step = 0; step < 4; step++) {
    starts.push_back(layout::start_field(kStart + layout::k_major_step(128, step)));
  }
  return {
      {"swizzle", table(128, 16, layout::swizzle)},  // of a row, each chunk's place
      // Of a lane or thread: where its elements belong, register by register.
      {"mma_a", table(32, 8, [](int t, int i) { return layout::mma_a(t, i / 2, i % 2); })},
      {"mma_b", table(32, 4, [](int t, int i) { return layout::mma_b(t, i / 2, i % 2); })},
      {"mma_c", table(32, 4, layout::mma_c)},
      {"wgmma_d", table(128, 8, layout::wgmma_d)},
      {"ldmatrix", table(32, 2, layout::ldmatrix)},
      {"ldmatrix_trans", table(32, 2, layout::ldmatrix_trans)},
      // Of a row's chunks in a slab and, without swizzle, of core matrices: their bytes.
      {"slab",
       table(16, 8, [](int r, int c) { return uint32_t(layout::slab_offset(64, r, 8 * c)); })},
      {"k_major",
       table(8, 8,
             [](int r, int c) { return layout::k_major_offset(16, 128, kStride, 8 * r, 8 * c); })},
      {"mn_major",
       table(8, 8,
             [](int r, int c) { return layout::mn_major_offset(16, 128, kStride, 8 * c, 8 * r); })},
      {"k_major_step", layout::k_major_step(64, 1)},
      {"mn_major_step", layout::mn_major_step(1)},
      {"start", kStart},
      {"stride", kStride},
      {"starts", starts},
      {"LBO", layout::leading_field(16)},
      {"SBO", layout::stride_field(kStride)},
      {"base_offset", layout::base_offset_field(0)},
      {"mode", layout::mode_field(layout::SwizzleMode::k128Bytes)}};
}

}  // namespace facts
