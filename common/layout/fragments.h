// Which lane holds which element: the register layouts of ldmatrix and mma.sync as constexpr
// functions. Kernels, the emulator, tests and the docs' pictures all use these, so there is one
// truth about them.
//
// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" and "... mma.m16n8k8":
//
//   A (16 x k)           B (k x 8)            C, D (16 x 8, fp32)
//   row    l/4 (+8)      k      2(l%4) (+8)   row     l/4 (+8)
//   k      2(l%4) (+8)   column l/4           column  2(l%4), 2(l%4)+1
//
// l: lane. A 32-bit register of A or B holds two 16-bit elements with neighbouring k; half 0 is the
// lower.
#pragma once

#include <array>

namespace layout {

struct Position {
  int row, column;
  constexpr bool operator==(const Position&) const = default;
};

// Register `i` (0..3 for k = 16, 0..1 for k = 8), half `h`, of lane `lane`: (row, k) of A.
constexpr Position mma_a(int lane, int i, int h) {
  return {lane / 4 + 8 * (i % 2), 2 * (lane % 4) + h + 8 * (i / 2)};
}

// Register `i` (0..1 for k = 16, 0 for k = 8), half `h`: (k, column) of B.
constexpr Position mma_b(int lane, int i, int h) { return {2 * (lane % 4) + h + 8 * i, lane / 4}; }

// Element `i` (0..3): (row, column) of C and D.
constexpr Position mma_c(int lane, int i) {
  return {lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2};
}

// ldmatrix: half `h` of the register that lane `lane` gets of one 8 x 8 matrix: (row, column) of
// it; with .trans of its transpose. Row r of matrix m is read at the address that lane 8m + r
// gives.
constexpr Position ldmatrix(int lane, int h) { return {lane / 4, 2 * (lane % 4) + h}; }
constexpr Position ldmatrix_trans(int lane, int h) { return {2 * (lane % 4) + h, lane / 4}; }

// True if `position(lane, i, h)` meets every element of a rows x columns matrix exactly once.
template <typename Function>
constexpr bool is_bijective(Function position, int registers, int halves, int rows, int columns) {
  std::array<bool, 16 * 16> met{};
  int count = 0;
  for (int lane = 0; lane < 32; lane++) {
    for (int i = 0; i < registers; i++) {
      for (int h = 0; h < halves; h++) {
        const Position p = position(lane, i, h);
        if (p.row < 0 || p.row >= rows || p.column < 0 || p.column >= columns) return false;
        bool& here = met[static_cast<unsigned>(p.row * columns + p.column)];
        if (here) return false;
        here = true;
        count++;
      }
    }
  }
  return count == rows * columns;
}

static_assert(is_bijective(mma_a, 4, 2, 16, 16), "A of m16n8k16");
static_assert(is_bijective(mma_a, 2, 2, 16, 8), "A of m16n8k8");
static_assert(is_bijective(mma_b, 2, 2, 16, 8), "B of m16n8k16");
static_assert(is_bijective(mma_b, 1, 2, 8, 8), "B of m16n8k8");
static_assert(is_bijective([](int lane, int i, int) { return mma_c(lane, i); }, 4, 1, 16, 8), "C");
static_assert(is_bijective([](int lane, int, int h) { return ldmatrix(lane, h); }, 1, 2, 8, 8));
static_assert(is_bijective([](int lane, int, int h) { return ldmatrix_trans(lane, h); }, 1, 2, 8,
                           8));

// Why P needs no shuffle between the two products: the C fragments of two neighbouring 16 x 8 tiles
// are, element by element, the A fragment of the 16 x 16 tile that they form.
constexpr bool c_pair_is_a() {
  for (int lane = 0; lane < 32; lane++) {
    for (int i = 0; i < 4; i++) {
      for (int h = 0; h < 2; h++) {
        const int tile = i / 2, element = 2 * (i % 2) + h;
        const Position c = mma_c(lane, element);
        if (mma_a(lane, i, h) != Position{c.row, c.column + 8 * tile}) return false;
      }
    }
  }
  return true;
}
static_assert(c_pair_is_a());

}  // namespace layout
