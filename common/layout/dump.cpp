// layout_dump fragments: the constexpr layouts of this folder as JSON, for the interactive pages of docs/interactive.
#include <cstdio>
#include <functional>
#include <string>

#include <nlohmann/json.hpp>

#include "common/layout/fragments.h"
#include "common/layout/wgmma.h"

namespace {

using Json = nlohmann::ordered_json;

// Which thread holds which element of a matrix, and in which register.
struct Fragment {
  const char *id, *name, *section;
  int rows, columns;
  const char *row_name, *column_name;
  const char* register_name;
  int threads, registers, halves;  // halves: elements of a register
  std::function<layout::Position(int thread, int i, int h)> position;
};

Json fragment(const Fragment& f) {
  Json positions = Json::array();  // of each thread: row, column of each half of each register
  for (int thread = 0; thread < f.threads; thread++) {
    Json mine = Json::array();
    for (int i = 0; i < f.registers; i++) {
      for (int h = 0; h < f.halves; h++) {
        const layout::Position p = f.position(thread, i, h);
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

Json fragments() {
  const char* mma = "Matrix Fragments for mma.m16n8k16 with floating point type";
  const auto mma_c = [](int lane, int i, int) { return layout::mma_c(lane, i); };
  Json views = Json::array();
  views.push_back(fragment({"mma_a", "mma.sync.m16n8k16: A, 16 x 16", mma, 16, 16, "row", "k", "a",
                            32, 4, 2, layout::mma_a}));
  views.push_back(fragment({"mma_b", "mma.sync.m16n8k16: B, 16 x 8", mma, 16, 8, "k", "column", "b",
                            32, 2, 2, layout::mma_b}));
  views.push_back(fragment({"mma_c", "mma.sync.m16n8k16: C and D, 16 x 8", mma, 16, 8, "row",
                            "column", "c", 32, 4, 1, mma_c}));
  return {{"source", "common/layout/fragments.h"}, {"views", views}};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 2 ? argv[1] : "";
  if (what != "fragments") {
    std::fputs("usage: layout_dump fragments\n", stderr);
    return 2;
  }
  std::puts(fragments().dump().c_str());
  return 0;
}
