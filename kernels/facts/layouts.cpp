// Prints the layouts of common/layout as tables: which lane holds which element, what a
// descriptor's strides do, where a swizzle puts a chunk, what a tensor map may say.
// docs/appendix/layouts.md shows them. Also prints the data of docs/interactive, as JSON.
//
// Everything printed is computed by the constexpr functions that kernels and emulator use.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "common/launch/tensor_map.h"
#include "common/layout/fragments.h"
#include "common/layout/swizzle.h"
#include "common/layout/wgmma.h"
#include "kernels/facts/facts.h"

namespace {

using layout::Major, layout::Position, layout::SwizzleMode;

// snprintf into a string.
template <typename... Arguments>
std::string text(const char* format, Arguments... arguments) {
  char line[256];
  std::snprintf(line, sizeof line, format, arguments...);
  return line;
}

// ---- grids: who holds element (row, column) -----------------------------------------------------
struct Holder {
  int thread, i;
};

// Prints, two columns a cell, thread:register; a register of two halves holds both, otherwise it is
// two registers.
struct Grid {
  int rows, columns;
  const char* letter;  // of the registers
  std::vector<Holder> cells = std::vector<Holder>(size_t(rows) * size_t(columns), Holder{-1, -1});
  Holder& at(Position p) { return cells[size_t(p.row * columns + p.column)]; }
};

std::string both(const Grid& grid, Holder left, Holder right) {
  std::string result = text("%d:%s%d", left.thread, grid.letter, left.i);
  if (left.thread != right.thread)
    return result + text(",%d:%s%d", right.thread, grid.letter, right.i);
  return left.i == right.i ? result : result + text(",%d", right.i);
}

void print(Grid grid, const char* corner, const std::vector<int>& rows) {
  const int width = grid.columns > 8 ? 9 : 10;
  std::string line = text("%9s", corner);
  for (int column = 0; column < grid.columns; column += 2) {
    line += text("%*s", width, text("%d,%d", column, column + 1).c_str());
  }
  std::printf("%s\n", line.c_str());
  for (const int row : rows) {
    line = text("%9d", row);
    for (int column = 0; column < grid.columns; column += 2) {
      line += text("%*s", width,
                   both(grid, grid.at({row, column}), grid.at({row, column + 1})).c_str());
    }
    std::printf("%s\n", line.c_str());
  }
}

std::vector<int> up_to(int count) {
  std::vector<int> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

using Fragment = std::function<Position(int thread, int i, int h)>;

// The grid of a fragment: each register of a thread, and in it each half.
void print(const char* title, Grid grid, const Fragment& f, int threads, int registers, int halves,
           const char* corner, const std::vector<int>& rows) {
  std::printf("%s\n\n", title);
  for (int thread = 0; thread < threads; thread++) {
    for (int i = 0; i < registers; i++) {
      for (int h = 0; h < halves; h++) grid.at(f(thread, i, h)) = {thread, i};
    }
  }
  print(grid, corner, rows);
}

void print_a() {
  print("A, 16 x 16, of mma.m16n8k16: lane:register; a register holds two neighbouring k",
        {16, 16, "a"}, layout::mma_a, 32, 4, 2, "row \\ k", up_to(16));
}

void print_b() {
  const auto turned = [](int lane, int i, int h) {
    const Position p = layout::mma_b(lane, i, h);
    return Position{p.column, p.row};
  };
  print(
      "B, 16 x 8, of mma.m16n8k16, a column a line: lane:register; a register holds two "
      "neighbouring k",
      {8, 16, "b"}, turned, 32, 2, 2, "column \\ k", up_to(8));
}

void print_c() {
  const auto c = [](int lane, int i, int) { return layout::mma_c(lane, i); };
  print("C and D, 16 x 8, of mma.m16n8k16: lane:registers, each an fp32", {16, 8, "c"}, c, 32, 4, 1,
        "row \\ col", up_to(16));
}

void print_ldmatrix() {
  std::puts("One 8 x 8 matrix of ldmatrix: the lane that gets an element, as it lies in memory\n");
  std::puts("                plain                                    .trans");
  std::array<std::array<std::array<int, 8>, 8>, 2> lanes{};
  for (int lane = 0; lane < 32; lane++) {
    for (int h = 0; h < 2; h++) {
      const Position p = layout::ldmatrix(lane, h), q = layout::ldmatrix_trans(lane, h);
      lanes[0][size_t(p.row)][size_t(p.column)] = lane;
      lanes[1][size_t(q.row)][size_t(q.column)] = lane;
    }
  }
  for (size_t row = 0; row < 8; row++) {
    std::string line = text("  row %zu ", row);
    for (const auto& one : lanes) {
      for (const int lane : one[row]) line += text("%4d", lane);
      line += "         ";
    }
    std::printf("%s\n", line.substr(0, line.find_last_not_of(' ') + 1).c_str());
  }
  std::puts("\nAddresses, and what the matrices must be for the registers to be a fragment\n");
  std::puts(
      "  matrix, register   row r at the address of   as A, rows x k   as two of B, .trans of k x "
      "columns");
  for (int m = 0; m < 4; m++) {
    const Position a = layout::mma_a(0, m, 0), b = layout::mma_b(0, m % 2, 0);
    std::printf("  %-19slane %-20s%2d.. x %2d..%9s%2d.. x %2d.. of tile %d\n",
                text("%d", m).c_str(), text("%d + r", 8 * m).c_str(), a.row, a.column, "", b.row,
                b.column, m / 2);
  }
}

void print_wgmma() {
  const auto d = [](int thread, int i, int) { return layout::wgmma_d(thread, i); };
  print("D, 64 x N, of wgmma: its first 16 columns, thread:registers of the warpgroup",
        {64, 16, "d"}, d, 128, 8, 1, "row \\ col", {0, 1, 7, 8, 15, 16, 24, 32, 40, 48, 56, 63});
}

// ---- by bits: what every bit of lane, register and half adds to the position --------------------
std::string step(Position p, const char* row, const char* column) {
  std::string result;
  if (p.row) result += text("%s+%d", row, p.row);
  if (p.column) result += text("%s%s+%d", result.empty() ? "" : " ", column, p.column);
  return result.empty() ? "-" : result;
}

// One line; false if the layout is not the sum of what its bits say.
bool print_bits(const char* name, const Fragment& f, int threads, int registers, int halves,
                const char* row, const char* column) {
  std::string line = text("%-20s", name);
  struct Bit {
    int thread, i, h;
  };
  const Bit bits[] = {{0, 0, 1}, {0, 1, 0}, {0, 2, 0},  {0, 4, 0},  {1, 0, 0}, {2, 0, 0},
                      {4, 0, 0}, {8, 0, 0}, {16, 0, 0}, {32, 0, 0}, {64, 0, 0}};
  for (const Bit& bit : bits) {
    const bool exists = bit.thread < threads && bit.i < registers && bit.h < halves;
    line += text("%7s", exists ? step(f(bit.thread, bit.i, bit.h), row, column).c_str() : "");
  }
  std::printf("%s\n", line.substr(0, line.find_last_not_of(' ') + 1).c_str());
  for (int thread = 0; thread < threads; thread++) {
    for (int i = 0; i < registers; i++) {
      for (int h = 0; h < halves; h++) {
        Position sum{0, 0};
        const auto add = [&](Position p) { sum = {sum.row + p.row, sum.column + p.column}; };
        for (int bit = 1; bit < threads; bit *= 2) {
          if (thread & bit) add(f(bit, 0, 0));
        }
        for (int bit = 1; bit < registers; bit *= 2) {
          if (i & bit) add(f(0, bit, 0));
        }
        if (h) add(f(0, 0, 1));
        if (f(thread, i, h) != sum) return false;
      }
    }
  }
  return true;
}

bool print_all_bits() {
  std::puts("What each bit adds to the position of an element: r row, c column, k depth\n");
  std::puts(
      "                       half    register                   lane                          "
      "warp");
  std::puts(
      "                          1      1      2      4      1      2      4      8     16     32  "
      "   64");
  const auto c = [](int lane, int i, int) { return layout::mma_c(lane, i); };
  const auto plain = [](int lane, int, int h) { return layout::ldmatrix(lane, h); };
  const auto trans = [](int lane, int, int h) { return layout::ldmatrix_trans(lane, h); };
  const auto d = [](int thread, int i, int) { return layout::wgmma_d(thread, i); };
  return print_bits("mma A 16 x 16", layout::mma_a, 32, 4, 2, "r", "k") &&
         print_bits("mma B 16 x 8", layout::mma_b, 32, 2, 2, "k", "c") &&
         print_bits("mma C, D 16 x 8", c, 32, 4, 1, "r", "c") &&
         print_bits("ldmatrix 8 x 8", plain, 32, 1, 2, "r", "c") &&
         print_bits("ldmatrix.trans 8 x 8", trans, 32, 1, 2, "r", "c") &&
         print_bits("wgmma A 64 x 16", layout::wgmma_a, 128, 4, 2, "r", "k") &&
         print_bits("wgmma D 64 x 16", d, 128, 8, 1, "r", "c");
}

// ---- swizzle and banks --------------------------------------------------------------------------
constexpr SwizzleMode kModes[] = {SwizzleMode::kNone, SwizzleMode::k32Bytes, SwizzleMode::k64Bytes,
                                  SwizzleMode::k128Bytes};
const char* name_of(SwizzleMode mode) {
  switch (mode) {
    case SwizzleMode::k32Bytes:
      return "32 bytes";
    case SwizzleMode::k64Bytes:
      return "64 bytes";
    case SwizzleMode::k128Bytes:
      return "128 bytes";
    case SwizzleMode::kNone:
      break;
  }
  return "none";
}

void print_swizzle() {
  std::puts("Which of eight 16-byte chunks lies in places 0 to 7 of each 128 bytes\n");
  std::puts("  128 bytes       32 bytes                   64 bytes                   128 bytes");
  for (uint32_t row = 0; row < 8; row++) {
    std::string line = text("  number %u", row);
    for (const SwizzleMode mode :
         {SwizzleMode::k32Bytes, SwizzleMode::k64Bytes, SwizzleMode::k128Bytes}) {
      std::array<int, 8> places{};
      for (uint32_t chunk = 0; chunk < 8; chunk++) {
        places[layout::swizzle_address(mode, row * 128 + chunk * 16) / 16 % 8] = int(chunk);
      }
      line += text("%s", mode == SwizzleMode::k32Bytes ? "        " : "            ");
      for (const int chunk : places) line += text("%d ", chunk);
      line.pop_back();
    }
    std::printf("%s\n", line.c_str());
  }
}

// Wavefronts of eight lanes that read chunk 0 of eight neighbouring rows.
int wavefronts(SwizzleMode mode, uint32_t pitch) {
  std::array<int, 8> met{};
  for (uint32_t row = 0; row < 8; row++) {
    met[layout::swizzle_address(mode, row * pitch) / 16 % 8]++;
  }
  return *std::max_element(met.begin(), met.end());
}

void print_banks() {
  std::puts("Wavefronts for one matrix of ldmatrix: chunk 0 of eight neighbouring rows\n");
  std::puts("  bytes from row to row       none   32 bytes   64 bytes  128 bytes   (swizzle)");
  for (const uint32_t pitch : {16u, 32u, 64u, 128u, 144u, 256u, 272u}) {
    std::string line = text("  %-22u", pitch);
    for (const SwizzleMode mode : kModes) {
      // A swizzle is for rows of its own span, or of several.
      const bool makes_sense =
          mode == SwizzleMode::kNone || pitch % uint32_t(layout::swizzle_span(mode)) == 0;
      line += text("%11s", makes_sense ? std::to_string(wavefronts(mode, pitch)).c_str() : "-");
    }
    std::printf("%s\n", line.c_str());
  }
}

// ---- descriptors --------------------------------------------------------------------------------
// How far element (mn, k) lies from (0, 0), in words, with strides that nothing else can be.
std::string distance(Major major, SwizzleMode mode, uint32_t mn, uint32_t k) {
  constexpr uint32_t kLeading = 0x1000, kStride = 0x10000;
  const uint32_t bytes =
      layout::element_address(layout::descriptor(0, kLeading, kStride, mode), major, mn, k);
  std::string result;
  const auto add = [&](uint32_t times, const std::string& what) {
    if (times)
      result += (result.empty() ? "" : " + ") + (times > 1 ? text("%u ", times) : "") + what;
  };
  add(bytes / kStride, "SBO");
  add(bytes % kStride / kLeading, "LBO");
  add(bytes % kLeading ? 1 : 0, std::to_string(bytes % kLeading) + " B");
  return result;
}

void print_strides() {
  std::puts(
      "How far elements lie from element (0, 0) of an operand (mn: row of A or column of B)\n");
  for (const Major major : {Major::kK, Major::kMN}) {
    std::printf("  %-12s%9s%9s%9s%9s%9s%9s%9s\n", major == Major::kK ? "K-major" : "MN-major",
                "mn + 1", "mn + 8", "mn + 16", "mn + 32", "mn + 64", "k + 1", "k + 8");
    for (const SwizzleMode mode : kModes) {
      std::printf("  %-12s", name_of(mode));
      for (const uint32_t mn : {1u, 8u, 16u, 32u, 64u})
        std::printf("%9s", distance(major, mode, mn, 0).c_str());
      for (const uint32_t k : {1u, 8u}) std::printf("%9s", distance(major, mode, 0, k).c_str());
      std::puts("");
    }
    if (major == Major::kK) std::puts("");
  }
}

void print_descriptor(const char* what, uint64_t d, const std::string& steps) {
  std::printf("  %-26s%6u%8u%6u%6u  0x%016llx  %s\n", what, layout::descriptor_start(d),
              layout::descriptor_leading(d), layout::descriptor_stride(d),
              unsigned(layout::mode_number(layout::descriptor_mode(d))),
              static_cast<unsigned long long>(d), steps.c_str());
}

void print_descriptors() {
  std::puts("Descriptors of kernels 11 to 16, for tiles at shared address 0\n");
  std::puts(
      "  operand                    start     LBO   SBO  mode  all 64 bits         k + 16, 32, ... "
      "start at");
  const auto k_steps = [](int rows) {
    std::string steps;
    for (int i = 1; i < 5; i++)
      steps += text("%s%u", i > 1 ? ", " : "", layout::k_major_step(rows, i));
    return steps;
  };
  for (const int rows : {64, 128}) {
    print_descriptor(text("%s, %d rows, K-major", rows == 64 ? "Q" : "K", rows).c_str(),
                     layout::k_major_descriptor(0), k_steps(rows));
  }
  for (const int rows : {64, 128}) {
    std::string steps;
    for (int i = 1; i < 5; i++) steps += text("%s%u", i > 1 ? ", " : "", layout::mn_major_step(i));
    print_descriptor(text("V, %d keys, MN-major", rows).c_str(),
                     layout::mn_major_descriptor(0, rows), steps);
  }
}

// ---- TMA ----------------------------------------------------------------------------------------
void print_boxes() {
  std::puts("What a tensor map may say, by trying (16-bit elements)\n");
  const auto map = [] {
    fa::TensorMapArguments a;
    a.pointer = nullptr;
    a.type = fa::TensorType::kHalf;
    a.sizes = {64, 64};
    a.strides = {128};
    a.box = {64, 64};
    a.swizzle = SwizzleMode::kNone;
    return a;
  };
  // The greatest (least) value that is taken, of those up to `most` in steps of one.
  const auto bounds = [&](uint64_t first, uint64_t most,
                          const std::function<void(fa::TensorMapArguments&, uint64_t)>& set) {
    std::string least = "none", greatest = "none";
    for (uint64_t value = first; value <= most; value++) {
      fa::TensorMapArguments a = map();
      set(a, value);
      if (!fa::tensor_map_error(a).empty()) continue;
      if (least == "none") least = std::to_string(value);
      greatest = std::to_string(value);
    }
    return least + " to " + greatest;
  };
  const auto row = [](const char* what, const std::string& value) {
    std::printf("  %-58s%s\n", what, value.c_str());
  };
  row("dimensions", bounds(0, 8, [](auto& a, uint64_t n) {
        a.sizes.assign(n, 64);
        a.strides.assign(n ? n - 1 : 0, 128);
        a.box.assign(n, 8);
      }));
  row("elements of a box, each dimension",
      bounds(0, 512, [](auto& a, uint64_t n) { a.box[1] = uint32_t(n); }));
  for (const SwizzleMode mode : kModes) {
    row(text("innermost elements of a box, swizzle %s", name_of(mode)).c_str(),
        bounds(0, 512, [&](auto& a, uint64_t n) {
          a.swizzle = mode;
          a.box = {uint32_t(n), 1};
        }));
  }
  row("bytes of a box in all, in KiB", bounds(1, 300, [](auto& a, uint64_t n) {
        a.sizes = {64, 256, 64};  // 8 elements are 16 bytes: KiBs in the last two dimensions
        a.strides = {128, 32768};
        a.box = {32, 16, uint32_t(n)};
      }));
  const auto sentence = [&](const char* what,
                            const std::function<void(fa::TensorMapArguments&)>& set) {
    fa::TensorMapArguments a = map();
    set(a);
    std::printf("  %s: %s\n", what, fa::tensor_map_error(a).c_str());
  };
  std::puts("\nWhat else is refused\n");
  sentence("tensor at byte 8", [](auto& a) { a.pointer = reinterpret_cast<const void*>(8); });
  sentence("rows 136 bytes apart", [](auto& a) { a.strides = {136}; });
  sentence("a box 12 elements wide", [](auto& a) { a.box = {12, 8}; });
}

struct Table {
  const char* name;
  const char* what;
  std::function<bool()> print;
};

std::function<bool()> always(void (*print)()) {
  return [print] {
    print();
    return true;
  };
}

std::function<bool()> json(facts::Json (*data)()) {
  return [data] { return std::puts(data().dump().c_str()) >= 0; };
}

}  // namespace

int main(int count, char** arguments) {
  const Table tables[] = {
      {"bits", "every fragment: what each bit of lane and register adds", print_all_bits},
      {"a", "operand A of mma.m16n8k16", always(print_a)},
      {"b", "operand B of mma.m16n8k16", always(print_b)},
      {"c", "accumulators of mma.m16n8k16", always(print_c)},
      {"ldmatrix", "ldmatrix, plain and .trans; stmatrix", always(print_ldmatrix)},
      {"wgmma", "accumulators of wgmma", always(print_wgmma)},
      {"swizzle", "the three swizzles of TMA and wgmma", always(print_swizzle)},
      {"banks", "wavefronts by row pitch and swizzle", always(print_banks)},
      {"strides", "what LBO and SBO mean, by major dimension and swizzle", always(print_strides)},
      {"descriptors", "the descriptors of kernels 11 to 16", always(print_descriptors)},
      {"boxes", "limits of tensor maps", always(print_boxes)},
      {"facts", "of kernels and layouts, for docs/pictures", json(facts::constants)},
      {"dump fragments", "fragments, for docs/interactive.md", json(facts::fragments)},
      {"dump descriptor", "descriptors, for docs/interactive.md", json(facts::descriptor)},
      {"banks-page", "accesses, for docs/interactive.md", json(facts::banks)},
      {"softmax-page", "softmax of rows, for docs/interactive.md", json(facts::softmax)},
  };
  std::string name;
  for (int i = 1; i < count; i++) name += (i > 1 ? " " : "") + std::string(arguments[i]);
  for (const Table& table : tables) {
    if (name != table.name) continue;
    if (table.print()) return 0;
    std::fprintf(stderr, "error: the layout is not the sum of what its bits add\n");
    return 1;
  }
  if (count == 1 || name == "--help") {
    std::puts("usage: layouts TABLE\n");
    for (const Table& table : tables) std::printf("  %-17s%s\n", table.name, table.what);
    std::puts("\nExample: layouts ldmatrix");
    return 0;
  }
  std::fprintf(stderr, "error: layouts takes one table; layouts --help lists them\n");
  return 2;
}
