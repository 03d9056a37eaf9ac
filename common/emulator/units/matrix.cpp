// ldmatrix, stmatrix and mma.sync, as the PTX ISA describes them and as an H200 computes them.
#include "common/emulator/units/matrix.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "common/emulator/core/events.h"
#include "common/emulator/core/float16.h"
#include "common/emulator/core/float8.h"
#include "common/emulator/core/memory.h"
#include "common/emulator/core/wavefronts.h"
#include "common/layout/fragments.h"

namespace emu {

// ---- ldmatrix, stmatrix -------------------------------------------------------------------------
namespace {

struct MatrixOperands {
  uint32_t* registers;
  uint32_t address;
  uint8_t* row;  // of the first 8 * count lanes; the addresses of the others are ignored
};

// The operands of the current lane. A wrong address is reported here, so the report names its lane.
MatrixOperands operands(uint32_t* registers, int count, uint32_t address, const char* operation,
                        SourceLocation where) {
  const bool has_row = current_lane->lane < 8 * count;
  return {registers, address, has_row ? shared_pointer(address, 16, operation, where) : nullptr};
}

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
      pieces.push_back({0, uintptr_t(lanes[row]->row), 16, row});
    }
    recorder->moves(*current_lane->warp, kind, pieces);
  }
  record(*current_lane->warp, event);
}

// The rows that the warp reads or writes, for the detector.
void note_rows(MatrixOperands** lanes, int count, bool write, const char* operation,
               SourceLocation where) {
  Detector* const detector = current_lane->cta->detector;
  if (!detector) return;
  const Site site = detector->site(operation, where);
  for (int row = 0; row < 8 * count; row++) {
    detector->access(*current_lane->warp, uintptr_t(lanes[row]->row), 16, write, site);
  }
}

layout::Position element_of(int lane, int half, bool transpose) {
  return transpose ? layout::ldmatrix_trans(lane, half) : layout::ldmatrix(lane, half);
}

}  // namespace

void load_matrices(uint32_t* registers, int count, bool transpose, uint32_t address,
                   SourceLocation where) {
  MatrixOperands mine = operands(registers, count, address, "ldmatrix", where);
  warp_collective(
      kFullMask, transpose ? "ldmatrix.trans" : "ldmatrix", mine, where,
      [&](MatrixOperands** lanes) {
        record_matrices(Kind::kLdmatrix, lanes, count, where);
        note_rows(lanes, count, false, "ldmatrix", where);
        for (int matrix = 0; matrix < count; matrix++) {
          uint16_t elements[8][8];
          for (int row = 0; row < 8; row++) {
            memcpy(elements[row], lanes[8 * matrix + row]->row, 16);
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
  MatrixOperands mine =
      operands(const_cast<uint32_t*>(registers), count, address, "stmatrix", where);
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
                        memcpy(lanes[8 * matrix + row]->row, elements[row], 16);
                      }
                    }
                  });
}

// ---- mma.sync -----------------------------------------------------------------------------------
// How a Tensor Core of an H200 adds, in mma.sync and wgmma alike (found by fitting its answers,
// common/emulator/tests/golden): the products are exact; products and accumulator are aligned to
// the largest exponent among them, where a product's exponent is the sum of its factors' exponents;
// bits below 2^-25 of that are cut off, each term by itself; the sum is exact; and it is cut to 24
// bits. Nothing is rounded to nearest.
//
// wgmma of FP8 adds by the same rule with fewer bits: what is below 2^-13 of the largest exponent
// is cut off, and the sum is cut to 14 bits. (Measured on an H200: 4096.75 + 1 is 4097.5, and
// 16384 + 1 is 16384, also if there are 32 such ones in a product. mmaemu 0.1.0, which has an H100
// PCIe's bits, and Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores", have the same
// numbers.)
namespace {

float widen(uint16_t bits, Element element) {
  switch (element) {
    case Element::kFp16:
      return fp16_to_float(bits);
    case Element::kBf16:
      return bf16_to_float(bits);
    case Element::kE4m3:
      return fp8_to_float(uint8_t(bits), kFormatE4m3);
    default:
      return fp8_to_float(uint8_t(bits), kFormatE5m2);
  }
}

// Element k of a row of A or a column of B.
uint16_t element_at(const uint16_t* row, int k, Element element) {
  return is_fp8(element) ? row[k / 2] >> 8 * (k % 2) & 0xff : row[k];
}

// How a sum is cut.
struct Cut {
  int kept;    // bits below the largest exponent
  int digits;  // of the result
};
constexpr Cut kCut16{25, 24}, kCutFp8{13, 14};

constexpr int kDeepest = 32;  // the largest k

// Eight columns are added side by side, in vector registers of the CPU.
constexpr int kColumns = 8;
typedef int32_t Eight __attribute__((vector_size(32)));
typedef int64_t EightWide __attribute__((vector_size(64)));
typedef double EightDoubles __attribute__((vector_size(64)));
typedef float EightFloats __attribute__((vector_size(32)));

// Vectors are passed by reference, because how they are passed by value depends on the CPU.
bool any(const EightWide& x) {
  int64_t bits = 0;
  for (int i = 0; i < kColumns; i++) bits |= x[i];
  return bits != 0;
}

// Numbers with their exponents as a Tensor Core counts them: a subnormal's is that of the smallest
// normal number, a zero's is far below any other. Doubles hold them and their products exactly.
struct Numbers {
  EightDoubles values;
  Eight exponents, special;  // special: not 0 where infinite or not a number

  Numbers() = default;
  Numbers(const Eight& bits, int digits, int exponent_bits) {
    const int32_t bias = (1 << (exponent_bits - 1)) - 1, most = (1 << exponent_bits) - 1;
    const Eight field = (bits >> digits) & most, one = Eight{} + 1;
    const Eight magnitude = (bits & ((1 << digits) - 1)) | ((field > 0) & (1 << digits));
    const Eight sign = -((bits >> (digits + exponent_bits)) & 1);  // -1 or 0
    const Eight exponent = (field > 0 ? field : one) - bias;
    const EightWide power = __builtin_convertvector(exponent - digits, EightWide);
    values = __builtin_convertvector((magnitude ^ sign) - sign, EightDoubles);
    values *= EightDoubles((1023 + power) << 52);  // * 2^power
    exponents = magnitude == 0 ? Eight{} + kZeroExponent : exponent;
    special = field == most;
  }
};

void take_apart(const Eight& bits, Element element, Numbers& numbers) {
  switch (element) {
    case Element::kFp16:
      numbers = Numbers(bits, 10, 5);
      break;
    case Element::kBf16:
      numbers = Numbers(bits, 7, 8);
      break;
    case Element::kE4m3:  // its largest exponent has numbers, too
      numbers = Numbers(bits, 3, 4);
      numbers.special = (bits & 0x7f) == 0x7f;
      break;
    case Element::kE5m2:
      numbers = Numbers(bits, 2, 5);
      break;
  }
}

// sums[column] = c + the sum over k of a[k] * b[k], for one row. Infinities and NaNs count as large
// numbers here; multiply_tile replaces those sums. A scaled term keeps kCut.kept bits below the
// largest exponent and is below 2^27 (FP8: 2^15): half of them, and c, do not overflow 32 bits.
template <Cut kCut>
void add_products(const double* a, const int32_t* a_exponents, const Numbers* b, int depth,
                  const Numbers& c, float* sums) {
  Eight largest = c.exponents;
  for (int k = 0; k < depth; k++) {
    const Eight sum = b[k].exponents + a_exponents[k];
    largest = largest > sum ? largest : sum;
  }
  // The smallest product has the exponent -252. At -400 all terms are zero, and the scale, 2^425,
  // is still a double.
  const Eight lowest = Eight{} - 400;
  largest = largest > lowest ? largest : lowest;

  const EightWide exponent = __builtin_convertvector(largest, EightWide) - kCut.kept;
  const EightDoubles unit = EightDoubles((1023 + exponent) << 52);          // 2^exponent
  const EightDoubles scale = EightDoubles((1023 - exponent) << 52);         // 2^-exponent
  Eight even = __builtin_convertvector(c.values * scale, Eight), odd = {};  // cut toward zero
  for (int k = 0; k < depth; k += 2) {
    even += __builtin_convertvector(b[k].values * a[k] * scale, Eight);
    odd += __builtin_convertvector(b[k + 1].values * a[k + 1] * scale, Eight);
  }
  const EightDoubles sum =
      __builtin_convertvector(even, EightDoubles) + __builtin_convertvector(odd, EightDoubles);
  constexpr int64_t kBits = ~((int64_t{1} << (53 - kCut.digits)) - 1);  // of a double's 53
  const EightDoubles cut = EightDoubles(EightWide(sum) & kBits) * unit;
  const EightFloats result = __builtin_convertvector(cut, EightFloats);  // infinity if too large
  memcpy(sums, &result, sizeof result);
  const EightWide subnormal = (cut < 0x1p-126) & (cut > -0x1p-126) & (cut != 0);
  if (!any(subnormal)) return;
  for (int column = 0; column < kColumns; column++) {  // a float below 2^-126 has fewer bits
    if (subnormal[column]) sums[column] = float(std::trunc(cut[column] * 0x1p149) * 0x1p-149);
  }
}

// The sum if an operand is infinite or not a number: float arithmetic decides which of the two it
// is.
float special_sum(const uint16_t* a, const uint16_t* b, int count, Element of_a, Element of_b,
                  float accumulator) {
  float sum = accumulator;
  bool not_a_number = accumulator != accumulator;
  for (int i = 0; i < count; i++) {
    const float x = widen(element_at(a, i, of_a), of_a), y = widen(element_at(b, i, of_b), of_b);
    if (std::isfinite(x) && std::isfinite(y)) continue;  // cannot change an infinity
    const float product = x * y;
    const bool infinite = sum == std::numeric_limits<float>::infinity() ||
                          sum == -std::numeric_limits<float>::infinity();
    not_a_number = not_a_number || product != product || (infinite && (sum > 0) != (product > 0));
    sum = product;
  }
  return not_a_number ? std::bit_cast<float>(0x7fffffffu) : sum;
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
  double values[16][kDeepest];
  int32_t exponents[16][kDeepest];
  bool special[16] = {};

  Rows(const uint16_t (&rows)[16][16], int k_count, Element type)
      : a(rows), depth(k_count), element(type) {
    for (int row = 0; row < 16; row++) {
      for (int first = 0; first < depth; first += 8) {
        Eight bits;
        for (int i = 0; i < 8; i++) bits[i] = element_at(a[row], first + i, element);
        Numbers numbers;
        take_apart(bits, element, numbers);
        memcpy(&values[row][first], &numbers.values, sizeof numbers.values);
        memcpy(&exponents[row][first], &numbers.exponents, sizeof numbers.exponents);
        for (int i = 0; i < 8; i++) special[row] |= numbers.special[i] != 0;
      }
    }
  }
};

// c[row][column] += sum over k of a[row][k] * b[column][k], `pitch` floats per row of c: one
// m16n8k<depth> product. `first_column` is that of c in a larger one.
template <Cut kCut>
void multiply_tile(const Rows& rows, const uint16_t (*b)[16], Element of_b, float* c, int pitch,
                   ProductNan& nan, int first_column = 0) {
  Numbers columns[kDeepest];
  Eight special = {};
  for (int k = 0; k < rows.depth; k++) {
    Eight bits;
    for (int column = 0; column < kColumns; column++) {
      bits[column] = element_at(b[column], k, of_b);
    }
    take_apart(bits, of_b, columns[k]);
    special |= columns[k].special;
  }
  for (int row = 0; row < 16; row++) {
    float* const sums = c + row * pitch;
    float before[kColumns];
    Eight bits;
    memcpy(before, sums, sizeof before);
    memcpy(&bits, sums, sizeof bits);
    const Numbers accumulators(bits, 23, 8);
    add_products<kCut>(rows.values[row], rows.exponents[row], columns, rows.depth, accumulators,
                       sums);
    const Eight special_here = special | accumulators.special;
    for (int column = 0; column < kColumns; column++) {
      if (!rows.special[row] && special_here[column] == 0) continue;
      sums[column] =
          special_sum(rows.a[row], b[column], rows.depth, rows.element, of_b, before[column]);
      if (nan.found || sums[column] == sums[column] || before[column] != before[column]) continue;
      nan = nan_of_product(row, first_column + column, rows.depth, [&](int k) {
        return std::pair(widen(element_at(rows.a[row], k, rows.element), rows.element),
                         widen(element_at(b[column], k, of_b), of_b));
      });
    }
  }
}

ProductNan multiply_warp(ProductOperands** lanes, int depth, Element element) {
  // Gather the fragments: A by rows, B by columns.
  uint16_t a[16][16], b[kColumns][16];
  float c[16][kColumns];
  const auto for_each_sum = [&](const auto& action) {
    for (int lane = 0; lane < kWarpSize; lane++) {
      for (int i = 0; i < 4; i++) {
        const auto at = layout::mma_c(lane, i);
        action(c[at.row][at.column], lanes[lane]->d[i]);
      }
    }
  };
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
  }
  for_each_sum([](float& sum, const float& d) { sum = d; });
  const OwnArithmetic own;
  ProductNan nan;
  multiply_tile<kCut16>(Rows(a, depth, element), b, element, c[0], kColumns, nan);
  for_each_sum([](const float& sum, float& d) { d = sum; });
  return nan;
}

// Two of the four numbers of FP8 in a register as a pair of fp16, exactly.
uint32_t as_fp16(uint32_t four, int half, Element element) {
  const auto two = uint16_t(four >> 16 * half);
  const Fp8Format& format = element == Element::kE4m3 ? kFormatE4m3 : kFormatE5m2;
  return fp8_to_fp16(uint8_t(two), format) | uint32_t(fp8_to_fp16(uint8_t(two >> 8), format)) << 16;
}

// A GPU of compute capability 9.0 has no mma.sync of FP8. ptxas writes conversions to fp16, two
// m16n8k16, the first with a sum of zero and the lower half of every register, the second with the
// upper halves, and an addition of the accumulators, which rounds to nearest. (Seen in what nvcc 13
// makes for sm_90a. For sm_89, which has the instruction, it is one, with other bits.)
ProductNan multiply_warp_fp8(ProductOperands** lanes, Element of_a, Element of_b) {
  float sums[kWarpSize][4] = {};
  ProductNan nan;
  for (int half = 0; half < 2; half++) {
    uint32_t a[kWarpSize][4], b[kWarpSize][2];
    ProductOperands operands[kWarpSize], *pointers[kWarpSize];
    for (int lane = 0; lane < kWarpSize; lane++) {
      for (int i = 0; i < 4; i++) a[lane][i] = as_fp16(lanes[lane]->a[i], half, of_a);
      for (int i = 0; i < 2; i++) b[lane][i] = as_fp16(lanes[lane]->b[i], half, of_b);
      operands[lane] = {sums[lane], a[lane], b[lane]};
      pointers[lane] = &operands[lane];
    }
    const ProductNan here = multiply_warp(pointers, 16, Element::kFp16);
    if (!nan.found) nan = here;
  }
  const OwnArithmetic own;
  for (int lane = 0; lane < kWarpSize; lane++) {
    for (int i = 0; i < 4; i++) {
      float& d = lanes[lane]->d[i];
      const bool was_number = d == d && sums[lane][i] == sums[lane][i];
      d += sums[lane][i];
      if (d == d) continue;
      d = std::bit_cast<float>(0x7fffffffu);
      const layout::Position at = layout::mma_c(lane, i);
      if (was_number && !nan.found) nan = {true, false, at.row, at.column, "inf - inf"};
    }
  }
  return nan;
}

// The registers of a product, for a timeline.
void record_registers(ProductOperands** lanes, size_t count_a, size_t count_b) {
  Recorder* const recorder = current_lane->cta->recorder;
  if (!recorder) return;
  const Warp& warp = *current_lane->warp;
  const bool known_a =
      use_registers(*recorder, warp, count_a, [&](int lane) { return lanes[lane]->a; });
  const bool known_b =
      use_registers(*recorder, warp, count_b, [&](int lane) { return lanes[lane]->b; });
  if (!known_a || !known_b) recorder->uses_computed(warp);
  recorder->accumulates(warp, lanes[0]->d);
}

}  // namespace

void multiply_strip(const uint16_t (&a)[16][16], const uint16_t (*b)[16], int columns, Element of_a,
                    Element of_b, float* sums, int pitch, ProductNan& nan) {
  const OwnArithmetic own;
  const Rows rows(a, depth_of(of_a), of_a);
  for (int first = 0; first < columns; first += kColumns) {
    if (is_fp8(of_a)) {
      multiply_tile<kCutFp8>(rows, b + first, of_b, sums + first, pitch, nan, first);
    } else {
      multiply_tile<kCut16>(rows, b + first, of_b, sums + first, pitch, nan, first);
    }
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
        record_registers(lanes, size_t(depth) / 4, size_t(depth) / 8);
        note_nan(*current_lane->warp, multiply_warp(lanes, depth, element), where);
      });
}

void multiply_accumulate_fp8(float* d, const uint32_t* a, const uint32_t* b, Element of_a,
                             Element of_b, SourceLocation where) {
  ProductOperands mine{d, a, b};
  warp_collective(kFullMask, "mma.m16n8k32", mine, where, [&](ProductOperands** lanes) {
    const uint64_t flops = 2 * 16 * 8 * 32;
    record(*current_lane->warp,
           {Kind::kMma16832, kFullMask, where, {.requests = 1, .flops = flops}});
    record_registers(lanes, 4, 2);
    note_nan(*current_lane->warp, multiply_warp_fp8(lanes, of_a, of_b), where);
  });
}

}  // namespace emu
