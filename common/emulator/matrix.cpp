// ldmatrix, stmatrix and mma.sync, as the PTX ISA describes them and as an H200 computes them.
#include "common/emulator/matrix.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "common/emulator/float16.h"
#include "common/emulator/launch.h"
#include "common/emulator/wavefronts.h"
#include "common/layout/fragments.h"

namespace emu {

// ---- shared addresses --------------------------------------------------------------------------------
namespace {
constexpr uint32_t kFirstAddress = 1024;
}

uint32_t shared_address(const void* pointer) {
  const Cta& cta = *current_lane->cta;
  return uint32_t(uintptr_t(pointer) - uintptr_t(cta.shared)) + kFirstAddress;
}

uint8_t* shared_pointer(uint32_t address, size_t bytes, const char* operation,
                        SourceLocation where) {
  const Cta& cta = *current_lane->cta;
  if (address < kFirstAddress || address - kFirstAddress + bytes > cta.shared_bytes) {
    fail("%s at %s:%u: byte %lld of shared memory is outside the SharedStorage of %zu bytes",
         operation, where.file, where.line, (long long)(address) - (long long)(kFirstAddress),
         cta.shared_bytes);
  }
  if (address % bytes != 0) {
    fail("%s at %s:%u: the shared address is not a multiple of %zu bytes", operation, where.file,
         where.line, bytes);
  }
  return cta.shared + (address - kFirstAddress);
}

// ---- ldmatrix, stmatrix ------------------------------------------------------------------------------
namespace {

struct MatrixOperands {
  uint32_t* registers;
  uint32_t address;
};

// A matrix is eight rows of 16 bytes: at best one wavefront, which delivers 128 bytes.
void count_matrices(MatrixOperands** lanes, int count) {
  Counters& counters = current_lane->cta->counters;
  counters.shared_requests++;
  for (int matrix = 0; matrix < count; matrix++) {
    std::array<uint32_t, kWarpSize> offsets{};
    for (int row = 0; row < 8; row++) offsets[size_t(row)] = lanes[8 * matrix + row]->address;
    const Wavefronts wavefronts = shared_wavefronts(offsets, 0xff, 16);
    counters.shared_wavefronts += wavefronts.actual;
    counters.shared_wavefronts_ideal += wavefronts.ideal;
  }
}

uint8_t* row_of(MatrixOperands** lanes, int matrix, int row, const char* operation,
                SourceLocation where) {
  return shared_pointer(lanes[8 * matrix + row]->address, 16, operation, where);
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
        current_lane->cta->counters.ldmatrix++;
        if (is_checked()) count_matrices(lanes, count);
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
      });
}

void store_matrices(const uint32_t* registers, int count, bool transpose, uint32_t address,
                    SourceLocation where) {
  MatrixOperands mine{const_cast<uint32_t*>(registers), address};
  warp_collective(kFullMask, transpose ? "stmatrix.trans" : "stmatrix", mine, where,
                  [&](MatrixOperands** lanes) {
                    current_lane->cta->counters.stmatrix++;
                    if (is_checked()) count_matrices(lanes, count);
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

// ---- mma.sync ----------------------------------------------------------------------------------------
// How a Tensor Core of an H200 adds (found by fitting its answers, tests/golden): the products are exact;
// products and accumulator are aligned to the largest exponent among them, where a product's exponent is
// the sum of its factors' exponents; bits below 2^-25 of that are cut off, each term by itself; the sum is
// exact; and it is cut to 24 bits. Nothing is rounded to nearest.
namespace {

// A number as sign, exponent and whole mantissa: value = (-1)^negative * mantissa * 2^(exponent - digits),
// with `digits` mantissa bits after the leading one. A zero's exponent is far below any other.
struct Parts {
  int32_t mantissa;  // with its sign
  int32_t exponent;
};
constexpr int32_t kZeroExponent = -100000;

template <int kDigits, int kExponentBits>
Parts take_apart(uint32_t bits) {
  constexpr int32_t kBias = (1 << (kExponentBits - 1)) - 1;
  const int32_t field = int32_t(bits >> kDigits) & ((1 << kExponentBits) - 1);
  int32_t mantissa = int32_t(bits & ((1u << kDigits) - 1));
  int32_t exponent = field - kBias;
  if (field > 0) {
    mantissa |= 1 << kDigits;
  } else if (mantissa == 0) {
    exponent = kZeroExponent;
  } else {
    exponent = 1 - kBias;  // subnormal: the leading bit is missing
  }
  return {bits >> (kDigits + kExponentBits) ? -mantissa : mantissa, exponent};
}

Parts take_apart(uint16_t bits, Element element) {
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

// The sum for finite operands, already taken apart.
float aligned_sum(const Parts* a, const Parts* b, int count, int digits, float accumulator) {
  const Parts c = take_apart<23, 8>(std::bit_cast<uint32_t>(accumulator));
  int32_t exponents[16];
  int32_t largest = c.exponent;
  for (int i = 0; i < count; i++) {
    exponents[i] = a[i].exponent + b[i].exponent;
    largest = std::max(largest, exponents[i]);
  }
  if (largest <= kZeroExponent / 2) return accumulator + 0.0f;  // zeros only
  // A product has 2 * digits bits after the leading one; its unit becomes 2^(largest - kKeptBits).
  const int up = kKeptBits - 2 * digits;
  int64_t sum = 0;
  for (int i = 0; i < count; i++) {
    const int32_t product = a[i].mantissa * b[i].mantissa;
    const uint32_t magnitude = uint32_t(product < 0 ? -product : product) << up;
    const int32_t term = int32_t(magnitude >> std::min(largest - exponents[i], 31));
    sum += product < 0 ? -term : term;
  }
  const uint32_t magnitude = uint32_t(c.mantissa < 0 ? -c.mantissa : c.mantissa)
                             << (kKeptBits - 23);
  const int32_t term = int32_t(magnitude >> std::min(largest - c.exponent, 31));
  sum += c.mantissa < 0 ? -term : term;
  return cut_to_float(sum, largest - kKeptBits);
}

// The sum if an operand is infinite or not a number: float arithmetic decides which of the two it is.
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

bool is_finite(float value) {
  return (std::bit_cast<uint32_t>(value) & 0x7f800000u) != 0x7f800000u;
}

}  // namespace

float tensor_core_dot(const uint16_t* a, const uint16_t* b, int count, Element element, float c) {
  Parts a_parts[16], b_parts[16];
  bool finite = is_finite(c);
  for (int i = 0; i < count; i++) {
    finite = finite && is_finite(a[i], element) && is_finite(b[i], element);
    a_parts[i] = take_apart(a[i], element);
    b_parts[i] = take_apart(b[i], element);
  }
  if (!finite) return special_sum(a, b, count, element, c);
  return aligned_sum(a_parts, b_parts, count, element == Element::kFp16 ? 10 : 7, c);
}

void multiply_accumulate(float* d, const uint32_t* a, const uint32_t* b, int depth, Element element,
                         SourceLocation where) {
  struct Operands {
    float* d;
    const uint32_t* a;
    const uint32_t* b;
  } mine{d, a, b};
  warp_collective(
      kFullMask, depth == 16 ? "mma.m16n8k16" : "mma.m16n8k8", mine, where, [&](Operands** lanes) {
        Counters& counters = current_lane->cta->counters;
        counters.matrix_products++;
        counters.matrix_flops += 2ull * 16 * 8 * uint64_t(depth);

        // Gather the fragments: A by rows, B by columns.
        uint16_t a_bits[16][16], b_bits[8][16];
        Parts a_parts[16][16], b_parts[8][16];
        bool finite = true;
        for (int lane = 0; lane < kWarpSize; lane++) {
          for (int half = 0; half < 2; half++) {
            for (int i = 0; i < depth / 4; i++) {
              const auto at = layout::mma_a(lane, i, half);
              const uint16_t bits = uint16_t(lanes[lane]->a[i] >> 16 * half);
              finite = finite && is_finite(bits, element);
              a_bits[at.row][at.column] = bits;
              a_parts[at.row][at.column] = take_apart(bits, element);
            }
            for (int i = 0; i < depth / 8; i++) {
              const auto at = layout::mma_b(lane, i, half);
              const uint16_t bits = uint16_t(lanes[lane]->b[i] >> 16 * half);
              finite = finite && is_finite(bits, element);
              b_bits[at.column][at.row] = bits;
              b_parts[at.column][at.row] = take_apart(bits, element);
            }
          }
        }
        const int digits = element == Element::kFp16 ? 10 : 7;
        for (int lane = 0; lane < kWarpSize; lane++) {
          for (int i = 0; i < 4; i++) {
            const auto at = layout::mma_c(lane, i);
            float& sum = lanes[lane]->d[i];
            sum = finite && is_finite(sum)
                      ? aligned_sum(a_parts[at.row], b_parts[at.column], depth, digits, sum)
                      : tensor_core_dot(a_bits[at.row], b_bits[at.column], depth, element, sum);
          }
        }
      });
}

}  // namespace emu
