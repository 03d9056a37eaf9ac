// nvcuda::wmma, as an H200 and an H100 compute it.
#include "common/emulator/units/wmma.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/emulator/core/events.h"
#include "common/emulator/core/float16.h"
#include "common/emulator/core/half_types.h"
#include "common/emulator/core/memory.h"
#include "common/emulator/core/wavefronts.h"
#include "common/emulator/units/matrix.h"
#include "common/layout/fragments.h"

namespace emu {
namespace {

// Element `i` of lane `lane` belongs here. Any bijection will do; no GPU has this one.
constexpr layout::Position opaque(int lane, int i, int rows) {
  const int at = 32 * i + (7 * lane + 5 * i) % 32;
  return {at % rows, at / rows};
}
static_assert(layout::is_bijective([](int lane, int i, int) { return opaque(lane, i, 16); }, 8, 1,
                                   16, 16));

constexpr uint64_t kSectorBytes = 32;

struct FragmentOperands {
  uint8_t* elements;
  uint8_t* memory;
};

// Most elements have 2 or 4 bytes, which a compiler copies without a call.
void copy_element(uint8_t* to, const uint8_t* from, size_t bytes) {
  if (bytes == 2) {
    memcpy(to, from, 2);
  } else if (bytes == 4) {
    memcpy(to, from, 4);
  } else {
    memcpy(to, from, bytes);
  }
}

uint8_t* element_at(uint8_t* memory, layout::Position at, size_t bytes, unsigned pitch,
                    bool column_major) {
  const size_t index = column_major ? size_t(at.column) * pitch + size_t(at.row)
                                    : size_t(at.row) * pitch + size_t(at.column);
  return memory + index * bytes;
}

// What is contiguous: rows, or columns if these are.
struct Lines {
  size_t count, bytes;
};
Lines lines_of(FragmentShape shape, bool column_major) {
  const int count = column_major ? shape.columns : shape.rows;
  return {size_t(count), size_t(shape.rows * shape.columns / count) * shape.bytes};
}

// Returns whether the tile is in shared memory; else it is in global memory.
bool check_fragment(const void* memory, FragmentShape shape, unsigned pitch, bool column_major,
                    bool write, const char* operation, SourceLocation where) {
  const Cta& cta = *current_lane->cta;
  const Lines lines = lines_of(shape, column_major);
  const size_t step = size_t(pitch) * shape.bytes;
  const auto first = uintptr_t(memory), begin = uintptr_t(cta.shared);
  const uintptr_t last = first + (lines.count - 1) * step + lines.bytes;
  const bool among_dynamic = first >= begin + cta.static_bytes && last <= begin + cta.shared_bytes;
  for (size_t line = 0; line < lines.count && !among_dynamic; line++) {
    const std::string outside = describe_outside(first + line * step, lines.bytes);
    if (!outside.empty()) {
      fail("%s at %s: a row of the %d x %d tile is %s", operation, place(where).c_str(), shape.rows,
           shape.columns, outside.c_str());
    }
  }
  if (!among_dynamic && !inside_region(first, lines.bytes)) {
    fail("%s at %s: the %d x %d tile is neither in shared nor in global memory", operation,
         place(where).c_str(), shape.rows, shape.columns);
  }
  if (!among_dynamic && write && is_read_only(first)) {
    fail("%s at %s: store to %s, which kernels may only read: it is __constant__", operation,
         place(where).c_str(), describe_place(first).c_str());
  }
  const size_t aligned = std::min<size_t>(lines.bytes, 32);  // PTX ISA, "wmma.load"
  if (first % aligned != 0 || step % 16 != 0) {
    fail(
        "%s at %s: a tile starts at a multiple of %zu bytes and its rows are multiples of 16 "
        "bytes apart",
        operation, place(where).c_str(), aligned);
  }
  return first - begin < cta.shared_bytes;
}

// A request: the address that each lane has, of `bytes` bytes.
void count_request(Counts& counts, bool shared, const std::array<uintptr_t, kWarpSize>& addresses,
                   uint32_t lanes, size_t bytes) {
  std::array<uint32_t, kWarpSize> offsets{};
  std::set<uintptr_t> sectors;
  for (size_t lane = 0; lane < kWarpSize; lane++) {
    if (!(lanes >> lane & 1)) continue;
    offsets[lane] = uint32_t(addresses[lane] - uintptr_t(current_lane->cta->shared));
    if (!shared) sectors.insert(addresses[lane] / kSectorBytes);
  }
  if (!shared) {
    counts.sectors += sectors.size();
    const size_t useful = size_t(std::popcount(lanes)) * bytes;
    counts.sectors_ideal += (useful + kSectorBytes - 1) / kSectorBytes;
    return;
  }
  const Wavefronts wavefronts = shared_wavefronts(offsets, lanes, uint32_t(bytes));
  counts.wavefronts += wavefronts.actual;
  counts.wavefronts_ideal += wavefronts.ideal;
}

// wmma's loads and stores. Of tiles of 16 x 16 elements, what nvcc makes of them from sm_80 on:
// 16-bit tiles in shared memory are one ldmatrix.x4; others four requests of two elements per lane,
// in the layout of mma's accumulator. Of other tiles it is a model: two elements per lane, along
// the lines.
void record_fragment(Kind kind, bool shared, const uint8_t* memory, FragmentShape shape,
                     unsigned pitch, bool column_major, SourceLocation where) {
  const size_t bytes = shape.bytes;
  const bool square = shape.rows == 16 && shape.columns == 16 && bytes > 1;
  Event event{kind, kFullMask, where, {.requests = 1}};
  if (current_lane->cta->checks && !square) {
    const Lines lines = lines_of(shape, column_major);
    const size_t per_line = lines.bytes / bytes / 2, pairs = lines.count * per_line;
    event.counts.requests = (pairs + kWarpSize - 1) / kWarpSize;
    event.counts.bytes = lines.count * lines.bytes;
    for (size_t first = 0; first < pairs; first += kWarpSize) {
      std::array<uintptr_t, kWarpSize> addresses{};
      uint32_t active = 0;
      for (size_t lane = 0; lane < kWarpSize && first + lane < pairs; lane++) {
        const size_t pair = first + lane;
        addresses[lane] =
            uintptr_t(memory) + pair / per_line * pitch * bytes + pair % per_line * 2 * bytes;
        active |= 1u << lane;
      }
      count_request(event.counts, shared, addresses, active, 2 * bytes);
    }
  } else if (current_lane->cta->checks) {
    const bool matrices = shared && bytes == 2;
    event.counts.requests = matrices ? 1 : 4;
    event.counts.bytes = 16 * 16 * bytes;
    for (int quarter = 0; quarter < 4; quarter++) {
      std::array<uintptr_t, kWarpSize> addresses{};
      for (int lane = 0; lane < kWarpSize; lane++) {
        const auto at = layout::mma_c(lane, 0);
        const int row = (matrices ? lane % 8 : at.row) + 8 * (quarter % 2);
        const int column = (matrices ? 0 : at.column) + 8 * (quarter / 2);
        addresses[size_t(lane)] =
            uintptr_t(memory) + (size_t(row) * pitch + size_t(column)) * bytes;
      }
      count_request(event.counts, shared, addresses, matrices ? 0xff : kFullMask,
                    matrices ? 16 : 2 * bytes);
    }
  }
  if (Recorder* const recorder = current_lane->cta->recorder; recorder && shared) {
    std::vector<Recorder::Piece> pieces;
    const Lines lines = lines_of(shape, column_major);
    for (size_t line = 0; line < lines.count; line++)
      pieces.push_back(
          {0, uintptr_t(memory) + line * pitch * bytes, uint32_t(lines.bytes), int(line)});
    recorder->moves(*current_lane->warp, kind, pieces);
  }
  record(*current_lane->warp, event);
}

// The elements that each lane reads or writes, for the detector.
void note_fragment(FragmentOperands** lanes, FragmentShape shape, unsigned pitch, bool column_major,
                   bool write, const char* operation, SourceLocation where) {
  Detector* const detector = current_lane->cta->detector;
  if (!detector) return;
  const Site site = detector->site(operation, where);
  for (int lane = 0; lane < kWarpSize; lane++) {
    for (int i = 0; i < shape.elements(); i++) {
      const uint8_t* const at = element_at(lanes[lane]->memory, opaque(lane, i, shape.rows),
                                           shape.bytes, pitch, column_major);
      detector->access(current_lane->warp->lanes[lane], uintptr_t(at), shape.bytes, write, site);
    }
  }
}

// Between a warp's part of a tile and memory.
void move_fragment(FragmentOperands mine, FragmentShape shape, unsigned pitch, bool column_major,
                   bool write, SourceLocation where) {
  const char* const name = write ? "wmma::store_matrix_sync" : "wmma::load_matrix_sync";
  warp_collective(kFullMask, name, mine, where, [&](FragmentOperands** lanes) {
    const bool shared = check_fragment(mine.memory, shape, pitch, column_major, write, name, where);
    record_fragment(write ? Kind::kWmmaStore : Kind::kWmmaLoad, shared, mine.memory, shape, pitch,
                    column_major, where);
    note_fragment(lanes, shape, pitch, column_major, write, name, where);
    const size_t bytes = shape.bytes;
    for (int lane = 0; lane < kWarpSize; lane++) {
      for (int i = 0; i < shape.elements(); i++) {
        uint8_t* const element = lanes[lane]->elements + size_t(i) * bytes;
        uint8_t* const in_memory = element_at(lanes[lane]->memory, opaque(lane, i, shape.rows),
                                              bytes, pitch, column_major);
        copy_element(write ? in_memory : element, write ? element : in_memory, bytes);
      }
    }
    Recorder* const recorder = current_lane->cta->recorder;
    const size_t part = size_t(shape.elements()) * bytes;  // of a lane
    if (write || !recorder || part % 4 != 0) return;
    for (size_t i = 0; i < part; i += 4) {
      recorder->loads(*current_lane->warp,
                      register_at([&](int lane) { return lanes[lane]->elements + i; }));
    }
  });
}

}  // namespace

void load_fragment(void* elements, FragmentShape shape, const void* memory, unsigned pitch,
                   bool column_major, SourceLocation where) {
  auto* const from = static_cast<uint8_t*>(const_cast<void*>(memory));
  move_fragment({static_cast<uint8_t*>(elements), from}, shape, pitch, column_major, false, where);
}

void store_fragment(void* memory, FragmentShape shape, const void* elements, unsigned pitch,
                    bool column_major, SourceLocation where) {
  auto* const from = static_cast<uint8_t*>(const_cast<void*>(elements));
  move_fragment({from, static_cast<uint8_t*>(memory)}, shape, pitch, column_major, true, where);
}

// ---- products -----------------------------------------------------------------------------------
namespace {

// One product's operands and its result: b by columns, the others by rows.
struct Matrices {
  FragmentProduct product;
  uint8_t a[1024], b[1024], c[1024], d[1024];
  ProductNan nan = {};

  template <typename T>
  T element(const uint8_t* matrix, int row, int column) const {
    const int pitch = matrix == c ? product.n : product.k;
    T value;
    memcpy(&value, matrix + size_t(row * pitch + column) * sizeof value, sizeof value);
    return value;
  }
  template <typename T>
  void set(int row, int column, T value) {
    memcpy(d + size_t(row * product.n + column) * sizeof value, &value, sizeof value);
  }
};

// Copies between a lane's part of a matrix and the whole.
void copy_part(int lane, FragmentShape shape, bool by_columns, uint8_t* part, uint8_t* matrix,
               bool to_matrix) {
  for (int i = 0; i < shape.elements(); i++) {
    const auto at = opaque(lane, i, shape.rows);
    const int index =
        by_columns ? at.column * shape.rows + at.row : at.row * shape.columns + at.column;
    uint8_t* const element = part + size_t(i) * shape.bytes;
    uint8_t* const in_matrix = matrix + size_t(index) * shape.bytes;
    copy_element(to_matrix ? in_matrix : element, to_matrix ? element : in_matrix, shape.bytes);
  }
}

size_t bytes_of(Number number) {
  switch (number) {
    case Number::kFp16:
    case Number::kBf16:
      return 2;
    case Number::kS8:
    case Number::kU8:
      return 1;
    case Number::kDouble:
      return 8;
    default:
      return 4;
  }
}

// A finite number, or the product of two: mantissa * 2^(exponent - digits).
struct Term {
  int64_t mantissa;
  int exponent, digits;
};

template <int kDigits, int kExponentBits>
Term term(uint32_t bits) {
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
  return {bits >> (kDigits + kExponentBits) ? -mantissa : mantissa, exponent, kDigits};
}

// The terms' sum as a Tensor Core adds (matrix.cpp): each is cut to whole multiples of 2^-25 of the
// largest exponent, and their sum is exact.
double aligned_sum(const Term* terms, int count) {
  constexpr int kBitsKept = 25;
  int largest = kZeroExponent;
  for (int i = 0; i < count; i++) largest = std::max(largest, terms[i].exponent);
  int64_t sum = 0;
  for (int i = 0; i < count; i++) {
    const Term& term = terms[i];
    if (term.exponent == kZeroExponent) continue;
    const int shift = kBitsKept - term.digits - (largest - term.exponent);
    const int64_t size = std::abs(term.mantissa);
    const int64_t kept = shift >= 0 ? size << shift : size >> std::min(-shift, 63);
    sum += term.mantissa < 0 ? -kept : kept;
  }
  return sum == 0 ? 0.0 : std::ldexp(double(sum), largest - kBitsKept);
}

Term times(const Term& x, const Term& y) {
  if (x.mantissa == 0 || y.mantissa == 0) return {0, kZeroExponent, 0};
  return {x.mantissa * y.mantissa, x.exponent + y.exponent, x.digits + y.digits};
}

// To the float next to it toward zero.
float cut(double value) {
  const float nearest = float(value);
  if (std::fabs(value) >= 0x1p128 || std::fabs(double(nearest)) <= std::fabs(value)) return nearest;
  return std::nextafter(nearest, 0.0f);
}

// A sum with factors or a summand that are infinite or no numbers: what is finite cannot change it.
template <typename Factors>
float special_sum(const Factors& factors, int count, float before) {
  float sum = std::isfinite(before) ? 0.0f : before;
  for (int i = 0; i < count; i++) {
    const auto [x, y] = factors(i);
    if (!std::isfinite(x) || !std::isfinite(y)) sum += x * y;
  }
  return sum != sum ? std::bit_cast<float>(0x7fffffffu) : sum;
}

// The same, of which the first NaN is kept.
template <typename Factors>
float special_sum(Matrices& all, int row, int column, const Factors& factors, int count,
                  float before) {
  const float sum = special_sum(factors, count, before);
  if (!all.nan.found && sum != sum && before == before) {
    all.nan = nan_of_product(row, column, count, factors);
  }
  return sum;
}

// Half sums: all 16 products and the summand are added, and the sum is rounded to the nearest half.
// One that becomes zero is +0.
void add_halves(Matrices& all, int row, int column) {
  const FragmentProduct& product = all.product;
  const auto bits = [&](const uint8_t* of, int i, int k) {
    return all.element<uint16_t>(of, i, k);
  };
  const float before = product.before == Number::kFp16
                           ? fp16_to_float(all.element<uint16_t>(all.c, row, column))
                           : all.element<float>(all.c, row, column);
  Term terms[17];
  bool finite = std::isfinite(before);
  for (int k = 0; k < 16; k++) {
    const uint16_t x = bits(all.a, row, k), y = bits(all.b, column, k);
    finite = finite && (x & 0x7c00) != 0x7c00 && (y & 0x7c00) != 0x7c00;
    terms[k] = times(term<10, 5>(x), term<10, 5>(y));
  }
  terms[16] = term<23, 8>(std::bit_cast<uint32_t>(before));
  const auto factors = [&](int k) {
    return std::pair(fp16_to_float(bits(all.a, row, k)), fp16_to_float(bits(all.b, column, k)));
  };
  const double sum =
      finite ? aligned_sum(terms, 17) : double(special_sum(all, row, column, factors, 16, before));
  if (product.after == Number::kFloat) return all.set(row, column, finite ? cut(sum) : float(sum));
  const __half rounded(sum);
  all.set(row, column, uint16_t(rounded.bits & 0x7fff ? rounded.bits : 0));
}

// Four products at a time; of the factors the last 13 bits are not looked at.
void add_tf32(Matrices& all, int row, int column) {
  float sum = all.element<float>(all.c, row, column);
  for (int first = 0; first < all.product.k; first += 4) {
    const auto factors = [&](int k) {
      const auto cut_off = [](uint32_t bits) { return std::bit_cast<float>(bits & ~0x1fffu); };
      return std::pair(cut_off(all.element<uint32_t>(all.a, row, first + k)),
                       cut_off(all.element<uint32_t>(all.b, column, first + k)));
    };
    Term terms[5];
    bool finite = std::isfinite(sum);
    for (int k = 0; k < 4; k++) {
      const auto [x, y] = factors(k);
      finite = finite && std::isfinite(x) && std::isfinite(y);
      terms[k] = times(term<10, 8>(std::bit_cast<uint32_t>(x) >> 13),
                       term<10, 8>(std::bit_cast<uint32_t>(y) >> 13));
    }
    terms[4] = term<23, 8>(std::bit_cast<uint32_t>(sum));
    sum = finite ? cut(aligned_sum(terms, 5)) : special_sum(all, row, column, factors, 4, sum);
  }
  all.set(row, column, sum);
}

void add_doubles(Matrices& all, int row, int column) {
  auto sum = all.element<double>(all.c, row, column);
  for (int k = 0; k < all.product.k; k++) {
    sum = std::fma(all.element<double>(all.a, row, k), all.element<double>(all.b, column, k), sum);
  }
  all.set(row, column, sum);
}

template <typename T>
void add_bytes(Matrices& all, int row, int column) {
  int64_t sum = all.element<int32_t>(all.c, row, column);
  for (int k = 0; k < all.product.k; k++) {
    sum += all.element<T>(all.a, row, k) * all.element<T>(all.b, column, k);
  }
  using Limits = std::numeric_limits<int32_t>;
  if (all.product.saturate) sum = std::clamp<int64_t>(sum, Limits::min(), Limits::max());
  all.set(row, column, int32_t(sum));
}

// Sums of floats, 16 rows at a time.
void add_strips(Matrices& all) {
  const FragmentProduct& product = all.product;
  uint16_t b[32][16];
  memcpy(b, all.b, size_t(product.n) * sizeof b[0]);
  for (int first = 0; first < product.m; first += 16) {
    uint16_t a[16][16] = {};
    float sums[16][32] = {};
    const int rows = std::min(16, product.m - first);
    memcpy(a, all.a + size_t(first) * sizeof a[0], size_t(rows) * sizeof a[0]);
    for (int row = 0; row < rows; row++) {
      memcpy(sums[row], all.c + size_t((first + row) * product.n) * 4, size_t(product.n) * 4);
    }
    const bool before = all.nan.found;
    const Element element = product.factor == Number::kFp16 ? Element::kFp16 : Element::kBf16;
    multiply_strip(a, b, product.n, element, element, sums[0], 32, all.nan);
    if (all.nan.found && !before) all.nan.row += first;
    for (int row = 0; row < rows; row++) {
      memcpy(all.d + size_t((first + row) * product.n) * 4, sums[row], size_t(product.n) * 4);
    }
  }
}

void multiply(Matrices& all) {
  const FragmentProduct& product = all.product;
  std::optional<OwnArithmetic> own;
  if (product.factor != Number::kDouble) own.emplace();  // whose sums are the CPU's
  if (product.before == Number::kFloat && product.after == Number::kFloat &&
      product.factor != Number::kTf32) {
    return add_strips(all);
  }
  void (*const add)(Matrices&, int, int) = product.factor == Number::kFp16     ? add_halves
                                           : product.factor == Number::kTf32   ? add_tf32
                                           : product.factor == Number::kDouble ? add_doubles
                                           : product.factor == Number::kS8     ? add_bytes<int8_t>
                                                                               : add_bytes<uint8_t>;
  for (int row = 0; row < product.m; row++) {
    for (int column = 0; column < product.n; column++) add(all, row, column);
  }
}

}  // namespace

void multiply_fragments(void* d, const void* a, const void* b, const void* c,
                        FragmentProduct product, SourceLocation where) {
  const auto bytes = [](const void* fragment) {
    return static_cast<uint8_t*>(const_cast<void*>(fragment));
  };
  struct Fragments {
    uint8_t *d, *a, *b, *c;
  } mine{bytes(d), bytes(a), bytes(b), bytes(c)};
  warp_collective(kFullMask, "wmma::mma_sync", mine, where, [&](Fragments** lanes) {
    const uint64_t flops = 2ull * uint64_t(product.m) * uint64_t(product.n) * uint64_t(product.k);
    const bool usual = product.m == 16 && product.k == 16 && bytes_of(product.factor) == 2 &&
                       product.after == Number::kFloat;
    record(*current_lane->warp, {usual ? Kind::kWmma : Kind::kWmmaOther,
                                 kFullMask,
                                 where,
                                 {.requests = 1, .flops = flops}});
    const FragmentShape of_a{product.m, product.k, bytes_of(product.factor)},
        of_b{product.k, product.n, bytes_of(product.factor)},
        of_c{product.m, product.n, bytes_of(product.before)},
        of_d{product.m, product.n, bytes_of(product.after)};
    if (Recorder* const recorder = current_lane->cta->recorder; recorder && of_d.bytes == 4) {
      const Warp& warp = *current_lane->warp;
      const auto use = [&](FragmentShape shape, uint8_t* Fragments::*fragment) {
        return use_registers(
            *recorder, warp, size_t(shape.elements()) * shape.bytes / 4,
            [&](int lane) { return reinterpret_cast<uint32_t*>(lanes[lane]->*fragment); });
      };
      const bool known_a = use(of_a, &Fragments::a), known_b = use(of_b, &Fragments::b);
      if (!known_a || !known_b) recorder->uses_computed(warp);
      use(of_c, &Fragments::c);
      recorder->accumulates(warp, reinterpret_cast<const float*>(lanes[0]->d));
    }
    Matrices all{product, {}, {}, {}, {}};
    for (int lane = 0; lane < kWarpSize; lane++) {
      const Fragments& its = *lanes[lane];
      copy_part(lane, of_a, false, its.a, all.a, true);
      copy_part(lane, of_b, true, its.b, all.b, true);
      copy_part(lane, of_c, false, its.c, all.c, true);
    }
    multiply(all);
    note_nan(*current_lane->warp, all.nan, where);
    for (int lane = 0; lane < kWarpSize; lane++) {
      copy_part(lane, of_d, false, lanes[lane]->d, all.d, false);
    }
  });
}

}  // namespace emu
