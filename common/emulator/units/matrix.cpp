// ldmatrix, stmatrix and mma.sync, as the PTX ISA describes them and as an H200 computes them.
#include "common/emulator/units/matrix.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "common/emulator/core/counters.h"
#include "common/emulator/core/events.h"
#include "common/emulator/core/float16.h"
#include "common/emulator/core/lane.h"
#include "common/emulator/core/memory.h"
#include "common/emulator/core/watch.h"
#include "common/emulator/core/wavefronts.h"
#include "common/layout/fragments.h"

namespace emu {

// ---- ldmatrix, stmatrix -------------------------------------------------------------------------
namespace {

struct MatrixOperands {
  uint32_t* registers;
  uint32_t address;
};

void record_matrices(Kind kind, MatrixOperands** lanes, int count, SourceLocation where) {
  Event event{kind, kFullMask, where, {.requests = 1}};
  if (current_lane->cta->checks) {
    std::array<uint32_t, kWarpSize> offsets{};
    for (int row = 0; row < 8 * count; row++) offsets[size_t(row)] = lanes[row]->address;
    const Wavefronts wavefronts = matrix_wavefronts(offsets, count);
    event.counts.wavefronts = wavefronts.actual;
    event.counts.wavefronts_ideal = wavefronts.ideal;
    event.counts.bytes = uint64_t(count) * 8 * 16;
  }
  if (Recorder* const recorder = current_lane->cta->recorder) {
    std::vector<Recorder::Piece> pieces;
    for (int row = 0; row < 8 * count; row++) {
      const uint8_t* const at = shared_pointer(lanes[row]->address, 16, name_of(kind), where);
      pieces.push_back({0, uintptr_t(at), 16, row});
    }
    recorder->moves(*current_lane->warp, kind, pieces);
  }
  record(*current_lane->warp, event);
}

uint8_t* row_of(MatrixOperands** lanes, int matrix, int row, const char* operation,
                SourceLocation where) {
  return shared_pointer(lanes[8 * matrix + row]->address, 16, operation, where);
}

// The rows that the warp reads or writes, for the detector.
void note_rows(MatrixOperands** lanes, int count, bool write, const char* operation,
               SourceLocation where) {
  Detector* const detector = current_lane->cta->detector;
  if (!detector) return;
  const Site site = detector->site(operation, where);
  for (int row = 0; row < 8 * count; row++) {
    const uint8_t* const at = row_of(lanes, row / 8, row % 8, operation, where);
    detector->access(*current_lane->warp, uintptr_t(at), 16, write, site);
  }
}

layout::Position element_of(int lane, int half, bool transpose) {
  return transpose ? layout::ldmatrix_trans(lane, half) : layout::ldmatrix(lane, half);
}

}  // namespace

void load_matrices(uint32_t* registers, int count, bool transpose, uint32_t address,
                   SourceLocation where) {
  MatrixOperands mine{registers, address};
  warp_collective(
      kFullMask, transpose ? "ldmatrix.trans" : "ldmatrix", mine, where,
      [&](MatrixOperands** lanes) {
        record_matrices(Kind::kLdmatrix, lanes, count, where);
        note_rows(lanes, count, false, "ldmatrix", where);
        for (int matrix = 0; matrix < count; matrix++) {
          uint16_t elements[8][8];
          for (int row = 0; row < 8; row++) {
            memcpy(elements[row], row_of(lanes, matrix, row, "ldmatrix", where), 16);
          }
          for (int lane = 0; lane < kWarpSize; lane++) {
            const auto low = element_of(lane, 0, transpose), high = element_of(lane, 1, transpose);
            lanes[lane]->registers[matrix] =
                elements[low.row][low.column] | uint32_t(elements[high.row][high.column]) << 16;
          }
        }
        if (Recorder* const recorder = current_lane->cta->recorder) {
          for (int i = 0; i < count; i++) {
            recorder->loads(*current_lane->warp,
                            register_at([&](int lane) { return &lanes[lane]->registers[i]; }));
          }
        }
      });
}

void store_matrices(const uint32_t* registers, int count, bool transpose, uint32_t address,
                    SourceLocation where) {
  MatrixOperands mine{const_cast<uint32_t*>(registers), address};
  warp_collective(kFullMask, transpose ? "stmatrix.trans" : "stmatrix", mine, where,
                  [&](MatrixOperands** lanes) {
                    record_matrices(Kind::kStmatrix, lanes, count, where);
                    note_rows(lanes, count, true, "stmatrix", where);
                    for (int matrix = 0; matrix < count; matrix++) {
                      uint16_t elements[8][8];
                      for (int lane = 0; lane < kWarpSize; lane++) {
                        for (int half = 0; half < 2; half++) {
                          const auto at = element_of(lane, half, transpose);
                          elements[at.row][at.column] =
                              uint16_t(lanes[lane]->registers[matrix] >> 16 * half);
                        }
                      }
                      for (int row = 0; row < 8; row++) {
                        memcpy(row_of(lanes, matrix, row, "stmatrix", where), elements[row], 16);
                      }
                    }
                  });
}

// ---- mma.sync -----------------------------------------------------------------------------------
// How a Tensor Core of an H200 adds, in mma.sync and wgmma alike (found by fitting its answers,
// tests/golden): the products are exact; products and accumulator are aligned to the largest
// exponent among them, where a product's exponent is the sum of its factors' exponents; bits below
// 2^-25 of that are cut off, each term by itself; the sum is exact; and it is cut to 24 bits.
// Nothing is rounded to nearest.
namespace {

Parts parts_of(uint16_t bits, Element element) {
  return element == Element::kFp16 ? take_apart<10, 5>(bits) : take_apart<7, 8>(bits);
}

bool is_finite(uint16_t bits, Element element) {
  const uint16_t exponent = element == Element::kFp16 ? 0x7c00 : 0x7f80;
  return (bits & exponent) != exponent;
}

float widen(uint16_t bits, Element element) {
  return element == Element::kFp16 ? fp16_to_float(bits) : bf16_to_float(bits);
}

constexpr int kKeptBits = 25;  // below the largest exponent

// sum * 2^unit, cut to a float: toward zero, infinity if too large.
float cut_to_float(int64_t sum, int unit) {
  if (sum == 0) return 0.0f;
  const uint32_t sign = sum < 0 ? 0x80000000u : 0u;
  const uint64_t magnitude = uint64_t(sum < 0 ? -sum : sum);
  const int exponent = 63 - std::countl_zero(magnitude) + unit;
  if (exponent > 127) return std::bit_cast<float>(sign | 0x7f800000u);
  const int lowest = std::max(exponent, -126) - 23;  // exponent of the last bit that a float keeps
  const int shift = lowest - unit;
  const uint64_t mantissa = shift >= 64 ? 0 : shift >= 0 ? magnitude >> shift : magnitude << -shift;
  if (exponent < -126) return std::bit_cast<float>(sign | uint32_t(mantissa));
  return std::bit_cast<float>(sign |
                              (uint32_t(exponent + 127) << 23 | (uint32_t(mantissa) & 0x7fffffu)));
}

// Eight columns are added side by side, in one vector register of the CPU.
constexpr int kColumns = 8;
typedef int32_t Eight __attribute__((vector_size(32)));

// Vectors are passed by reference, because how they are passed by value depends on the CPU.
void set_all(Eight& x, int32_t value) { x = Eight{} + value; }
void raise_to(Eight& x, const Eight& y) { x = x > y ? x : y; }

// Cuts signed mantissas of `bits` bits after the leading one to whole multiples of 2^(largest -
// kKeptBits).
void align(Eight& mantissa, const Eight& exponent, int bits, const Eight& largest) {
  const Eight negative = mantissa >> 31;  // -1 or 0
  const Eight magnitude = ((mantissa ^ negative) - negative) << (kKeptBits - bits);
  Eight distance = largest - exponent;
  distance = distance < 31 ? distance : 31;
  const Eight kept = magnitude >> distance;
  mantissa = (kept ^ negative) - negative;
}

// c[column] += sum over k of a[k] * b[k][column], for finite numbers whose mantissas have `digits`
// bits after the leading one.
void add_products(const Parts* a, const Eight* b_mantissa, const Eight* b_exponent, int depth,
                  int digits, float* const (&c)[kColumns]) {
  Eight c_mantissa, c_exponent;
  for (int column = 0; column < kColumns; column++) {
    const Parts parts = take_apart<23, 8>(std::bit_cast<uint32_t>(*c[column]));
    c_mantissa[column] = parts.mantissa;
    c_exponent[column] = parts.exponent;
  }
  Eight largest = c_exponent;
  for (int k = 0; k < depth; k++) raise_to(largest, b_exponent[k] + a[k].exponent);

  // A term has up to 28 bits: sums of upper and lower halves do not overflow.
  align(c_mantissa, c_exponent, 23, largest);
  Eight upper = c_mantissa >> 16, lower = c_mantissa & 0xffff;
  for (int k = 0; k < depth; k++) {
    Eight term = b_mantissa[k] * a[k].mantissa;
    align(term, b_exponent[k] + a[k].exponent, 2 * digits, largest);
    upper += term >> 16;
    lower += term & 0xffff;
  }
  for (int column = 0; column < kColumns; column++) {
    const bool zeros_only = largest[column] <= kZeroExponent / 2;
    const int64_t sum = int64_t(upper[column]) * 65536 + lower[column];
    *c[column] = zeros_only ? *c[column] + 0.0f : cut_to_float(sum, largest[column] - kKeptBits);
  }
}

bool is_finite(float value) {
  return (std::bit_cast<uint32_t>(value) & 0x7f800000u) != 0x7f800000u;
}

// The sum if an operand is infinite or not a number: float arithmetic decides which of the two it
// is.
float special_sum(const uint16_t* a, const uint16_t* b, int count, Element element,
                  float accumulator) {
  float sum = accumulator;
  bool not_a_number = accumulator != accumulator;
  for (int i = 0; i < count; i++) {
    const bool finite = is_finite(a[i], element) && is_finite(b[i], element);
    if (finite) continue;  // cannot change an infinity
    const float product = widen(a[i], element) * widen(b[i], element);
    const bool infinite = sum == std::numeric_limits<float>::infinity() ||
                          sum == -std::numeric_limits<float>::infinity();
    not_a_number = not_a_number || product != product || (infinite && (sum > 0) != (product > 0));
    sum = product;
  }
  return not_a_number ? std::bit_cast<float>(0x7fffffffu) : sum;
}

// One element of a row or column that is not all finite numbers.
float add_one(const uint16_t* a, const uint16_t* b, int depth, Element element, float accumulator) {
  bool finite = is_finite(accumulator);
  Parts a_parts[16];
  Eight b_mantissa[16], b_exponent[16];
  for (int k = 0; k < depth; k++) {
    finite = finite && is_finite(a[k], element) && is_finite(b[k], element);
    a_parts[k] = parts_of(a[k], element);
    set_all(b_mantissa[k], parts_of(b[k], element).mantissa);
    set_all(b_exponent[k], parts_of(b[k], element).exponent);
  }
  if (!finite) return special_sum(a, b, depth, element, accumulator);
  float sums[kColumns];
  float* pointers[kColumns];
  for (int column = 0; column < kColumns; column++) {
    sums[column] = accumulator;
    pointers[column] = &sums[column];
  }
  add_products(a_parts, b_mantissa, b_exponent, depth, element == Element::kFp16 ? 10 : 7,
               pointers);
  return sums[0];
}

struct ProductOperands {
  float* d;
  const uint32_t* a;
  const uint32_t* b;
};

// A, taken apart once for all tiles that it is multiplied with.
struct Rows {
  const uint16_t (&a)[16][16];
  int depth;
  Element element;
  Parts parts[16][16];
  bool finite[16];

  Rows(const uint16_t (&rows)[16][16], int k_count, Element type)
      : a(rows), depth(k_count), element(type) {
    for (int row = 0; row < 16; row++) {
      finite[row] = true;
      for (int k = 0; k < depth; k++) {
        parts[row][k] = parts_of(a[row][k], element);
        finite[row] = finite[row] && is_finite(a[row][k], element);
      }
    }
  }
};

// *c[row][column] += sum over k of a[row][k] * b[column][k]: one m16n8k<depth> product.
void multiply_tile(const Rows& rows, const uint16_t (&b)[kColumns][16],
                   float* const (&c)[16][kColumns]) {
  const auto& [a, depth, element, parts_of_a, a_finite] = rows;
  Eight b_mantissa[16], b_exponent[16];
  bool b_finite = true;
  for (int k = 0; k < depth; k++) {
    for (int column = 0; column < kColumns; column++) {
      const Parts parts = parts_of(b[column][k], element);
      b_mantissa[k][column] = parts.mantissa;
      b_exponent[k][column] = parts.exponent;
      b_finite = b_finite && is_finite(b[column][k], element);
    }
  }
  for (int row = 0; row < 16; row++) {
    bool finite = b_finite && a_finite[row];
    for (int column = 0; column < kColumns; column++) finite = finite && is_finite(*c[row][column]);
    if (finite) {
      add_products(parts_of_a[row], b_mantissa, b_exponent, depth,
                   element == Element::kFp16 ? 10 : 7, c[row]);
      continue;
    }
    for (int column = 0; column < kColumns; column++) {
      *c[row][column] = add_one(a[row], b[column], depth, element, *c[row][column]);
    }
  }
}

void multiply_warp(ProductOperands** lanes, int depth, Element element) {
  // Gather the fragments: A by rows, B by columns.
  uint16_t a[16][16], b[kColumns][16];
  float* c[16][kColumns];
  for (int lane = 0; lane < kWarpSize; lane++) {
    for (int half = 0; half < 2; half++) {
      for (int i = 0; i < depth / 4; i++) {
        const auto at = layout::mma_a(lane, i, half);
        a[at.row][at.column] = uint16_t(lanes[lane]->a[i] >> 16 * half);
      }
      for (int i = 0; i < depth / 8; i++) {
        const auto at = layout::mma_b(lane, i, half);
        b[at.column][at.row] = uint16_t(lanes[lane]->b[i] >> 16 * half);
      }
    }
    for (int i = 0; i < 4; i++) {
      const auto at = layout::mma_c(lane, i);
      c[at.row][at.column] = &lanes[lane]->d[i];
    }
  }
  multiply_tile(Rows(a, depth, element), b, c);
}

}  // namespace

void multiply_strip(const uint16_t (&a)[16][16], const uint16_t (*b)[16], int columns,
                    Element element, float* sums, int pitch) {
  const Rows rows(a, 16, element);
  for (int first = 0; first < columns; first += kColumns) {
    uint16_t tile[kColumns][16];
    memcpy(tile, b[first], sizeof tile);
    float* c[16][kColumns];
    for (int row = 0; row < 16; row++) {
      for (int i = 0; i < kColumns; i++) c[row][i] = sums + row * pitch + first + i;
    }
    multiply_tile(rows, tile, c);
  }
}

void multiply_accumulate(float* d, const uint32_t* a, const uint32_t* b, int depth, Element element,
                         SourceLocation where) {
  ProductOperands mine{d, a, b};
  warp_collective(
      kFullMask, depth == 16 ? "mma.m16n8k16" : "mma.m16n8k8", mine, where,
      [&](ProductOperands** lanes) {
        const Kind kind = depth == 16 ? Kind::kMma16816 : Kind::kMma1688;
        const uint64_t flops = 2ull * 16 * 8 * uint64_t(depth);
        record(*current_lane->warp, {kind, kFullMask, where, {.requests = 1, .flops = flops}});
        if (Recorder* const recorder = current_lane->cta->recorder) {
          const Warp& warp = *current_lane->warp;
          const bool known_a = use_registers(*recorder, warp, size_t(depth) / 4,
                                             [&](int lane) { return lanes[lane]->a; });
          const bool known_b = use_registers(*recorder, warp, size_t(depth) / 8,
                                             [&](int lane) { return lanes[lane]->b; });
          if (!known_a || !known_b) recorder->uses_computed(warp);
          recorder->accumulates(warp, lanes[0]->d);
        }
        multiply_warp(lanes, depth, element);
      });
}

}  // namespace emu
