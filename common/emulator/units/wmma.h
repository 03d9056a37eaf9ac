// nvcuda::wmma: fragments of every shape, and their products.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/emulator/core/lane.h"

namespace emu {

// A warp's part of a matrix: rows * columns / 32 elements per lane.
struct FragmentShape {
  int rows, columns;
  size_t bytes;  // of an element
  constexpr int elements() const { return rows * columns / 32; }
};

// `memory` is the tile's first element in shared or global memory, its rows (columns, if
// `column_major`) are `pitch` elements apart.
void load_fragment(void* elements, FragmentShape shape, const void* memory, unsigned pitch,
                   bool column_major, SourceLocation where);
void store_fragment(void* memory, FragmentShape shape, const void* elements, unsigned pitch,
                    bool column_major, SourceLocation where);

enum class Number : uint8_t { kFp16, kBf16, kTf32, kFloat, kDouble, kS8, kU8, kS32 };

struct FragmentProduct {
  int m, n, k;
  Number factor, before, after;  // of a and b, of c, of d
  bool saturate;                 // sums of whole numbers end at the largest
};

// d = a * b + c
void multiply_fragments(void* d, const void* a, const void* b, const void* c,
                        FragmentProduct product, SourceLocation where);

}  // namespace emu
