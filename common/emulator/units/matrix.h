// The warp's matrix instructions: ldmatrix, stmatrix, mma.sync.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "common/emulator/core/first_nan.h"  // IWYU pragma: export
#include "common/emulator/core/lane.h"       // IWYU pragma: export
#include "common/emulator/core/watch.h"      // IWYU pragma: export

namespace emu {

// ldmatrix.x<count>[.trans], stmatrix.x<count>[.trans]: `registers` has `count` elements.
void load_matrices(uint32_t* registers, int count, bool transpose, uint32_t address,
                   SourceLocation where);
void store_matrices(const uint32_t* registers, int count, bool transpose, uint32_t address,
                    SourceLocation where);

enum class Element : uint8_t { kFp16, kBf16, kE4m3, kE5m2 };
constexpr bool is_fp8(Element element) {
  return element == Element::kE4m3 || element == Element::kE5m2;
}
// The k of a product, whose operands have rows (columns) of 32 bytes.
constexpr int depth_of(Element element) { return is_fp8(element) ? 32 : 16; }

// mma.sync.m16n8k<depth>, depth 8 or 16: d[4] += A fragment a[depth / 4] * B fragment b[depth / 8].
void multiply_accumulate(float* d, const uint32_t* a, const uint32_t* b, int depth, Element element,
                         SourceLocation where);

// mma.sync.m16n8k32 of FP8: d[4] += A fragment a[4] * B fragment b[2], with the bits of compute
// capability 9.0.
void multiply_accumulate_fp8(float* d, const uint32_t* a, const uint32_t* b, Element of_a,
                             Element of_b, SourceLocation where);

// sums[row][column] += sum over k of a[row][k] * b[column][k], as a Tensor Core adds: 16 x
// `columns` sums, `pitch` floats per row. `columns` is a multiple of 8. A row of A and a column of
// B are 32 bytes: 16 elements, or 32 of FP8, two in every 16 bits, the first in the lower half.
// Keeps the first NaN that it makes or takes in.
void multiply_strip(const uint16_t (&a)[16][16], const uint16_t (*b)[16], int columns, Element of_a,
                    Element of_b, float* sums, int pitch, ProductNan& nan);

// Why the sum of these products, of which one is infinite or NaN, is NaN although the summand is
// not: "inf * 0", "inf - inf", or "A" or "B", where the first factor is that is NaN already.
// factors(k): a[k] and b[k], which are floats.
template <typename Factors>
ProductNan nan_of_product(int row, int column, int depth, const Factors& factors) {
  ProductNan nan{true, false, row, column, "inf - inf"};
  for (int k = 0; k < depth; k++) {
    const auto [x, y] = factors(k);
    if (x != x || y != y) return {true, true, row, column, x != x ? "A" : "B"};
    const float product = x * y;
    char text[64];
    if (product == product) continue;
    snprintf(text, sizeof text, "%g * %g", double(x), double(y));
    nan.what = text;
    return nan;
  }
  return nan;
}

// ---- for wmma and wgmma too ---------------------------------------------------------------------
constexpr int32_t kZeroExponent = -100000;  // of a zero: far below any other

// A register of the warp for a timeline: each lane has 32 bits, from `pointer_of(lane)` on.
template <typename PointerOf>
Recorder::Register register_at(const PointerOf& pointer_of) {
  Recorder::Register contents;
  for (int lane = 0; lane < kWarpSize; lane++) memcpy(&contents[size_t(lane)], pointer_of(lane), 4);
  return contents;
}

// Tells a timeline that the warp uses `count` registers, of which a lane's are `of(lane)` and those
// behind it. Returns whether it is known of all what they hold.
template <typename Of>
bool use_registers(Recorder& recorder, const Warp& warp, size_t count, const Of& of) {
  bool known = true;
  for (size_t i = 0; i < count; i++) {
    known &= recorder.uses(warp, register_at([&](int lane) { return of(lane) + i; }));
  }
  return known;
}

}  // namespace emu
