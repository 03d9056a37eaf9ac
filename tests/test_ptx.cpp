// Layouts and wrappers of common/ptx against the PTX ISA, on the emulator and, built for a GPU, on
// the GPU. What ldmatrix, stmatrix, mma.sync, cp.async and ex2.approx give is compared with an
// H200's answers (golden/warp_matrix_probe.cu, golden/ex2_probe.cu).
//
// Where an element lies is written here as the PTX ISA writes it, apart from
// common/layout/fragments.h, which is held to it as well. Matrices hold distinct whole numbers: a
// wrong place gives a wrong number.
#include <array>
#include <cmath>
#include <cstring>
#include <ios>
#include <set>

#include "common/emulator/tests/golden/probe.h"
#include "common/launch/scores.h"
#include "common/layout/fragments.h"
#include "common/ptx/barrier.h"
#include "common/ptx/convert.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/wmma.h"
#include "tests/support.h"

namespace fa::ptx_test {

using probe::download;
using probe::run;
using probe::upload;

// ---- the PTX ISA's tables -----------------------------------------------------------------------
// groupID = laneid >> 2, threadID_in_group = laneid % 4; a_i, b_i, c_i: element i of a lane's
// fragment.
struct Place {
  int row, column;
};
constexpr int group(int lane) { return lane >> 2; }
constexpr int member(int lane) { return lane % 4; }

// "Matrix Fragments for mma.m16n8k16 with floating point type": A is 16 x 16, B 16 x 8, C and D 16
// x 8. "Matrix Fragments for mma.m16n8k8": A is 16 x 8, B 8 x 8.
template <int kDepth>
constexpr Place place_a(int lane, int i) {
  if (kDepth == 8) {
    return {i < 2 ? group(lane) : group(lane) + 8, member(lane) * 2 + (i & 1)};
  }
  return {(0 <= i && i < 2) || (4 <= i && i < 6) ? group(lane) : group(lane) + 8,
          i < 4 ? member(lane) * 2 + (i & 1) : member(lane) * 2 + (i & 1) + 8};
}
template <int kDepth>
constexpr Place place_b(int lane, int i) {
  if (kDepth == 8) return {member(lane) * 2 + i, group(lane)};
  return {i < 2 ? member(lane) * 2 + (i & 1) : member(lane) * 2 + (i & 1) + 8, group(lane)};
}
constexpr Place place_c(int lane, int i) {
  return {i < 2 ? group(lane) : group(lane) + 8, member(lane) * 2 + (i & 1)};
}

// "Warp-level matrix load instruction: ldmatrix", the figure of one 8 x 8 matrix: a row belongs to
// four lanes, lanes 0 to 3 hold row 0; each has two neighbouring elements, the first in the
// register's lower half. .trans: the matrix is loaded in column-major format, so rows and columns
// change roles.
constexpr Place place_ldmatrix(int lane, int half, bool transpose) {
  return transpose ? Place{2 * (lane % 4) + half, lane / 4}
                   : Place{lane / 4, 2 * (lane % 4) + half};
}

bool same(layout::Position a, Place b) { return a.row == b.row && a.column == b.column; }

TEST(Layout, OfMmaIsThePtxIsas) {
  for (int lane = 0; lane < 32; lane++) {
    for (int i = 0; i < 8; i++)
      EXPECT_TRUE(same(layout::mma_a(lane, i / 2, i % 2), place_a<16>(lane, i)));
    for (int i = 0; i < 4; i++) {
      EXPECT_TRUE(same(layout::mma_a(lane, i / 2, i % 2), place_a<8>(lane, i)));
      EXPECT_TRUE(same(layout::mma_b(lane, i / 2, i % 2), place_b<16>(lane, i)));
      EXPECT_TRUE(same(layout::mma_c(lane, i), place_c(lane, i)));
    }
    for (int i = 0; i < 2; i++) EXPECT_TRUE(same(layout::mma_b(lane, 0, i), place_b<8>(lane, i)));
  }
}

TEST(Layout, OfLdmatrixIsThePtxIsas) {
  for (int lane = 0; lane < 32; lane++) {
    for (int half = 0; half < 2; half++) {
      EXPECT_TRUE(same(layout::ldmatrix(lane, half), place_ldmatrix(lane, half, false)));
      EXPECT_TRUE(same(layout::ldmatrix_trans(lane, half), place_ldmatrix(lane, half, true)));
    }
  }
}

// ---- wmma ---------------------------------------------------------------------------------------
// What every type and layout of A and B gives: golden/warp_matrix_probe.cu. Here C is column-major.
// Rows are further apart than they are long: the elements between them are not to be touched.
constexpr int kPitch = 24;
struct WmmaStorage {
  alignas(32) __half a[16 * kPitch];
  alignas(32) __half b[16 * kPitch];
  alignas(32) float c[16 * kPitch];
};

// c = a b + c, by tiles of 16 x kPitch.
__global__ void wmma_kernel(const float* a, const float* b, float* c) {
  namespace wmma = ptx::wmma;
  auto& smem = shared_storage<WmmaStorage>();
  for (int i = threadIdx.x; i < 16 * kPitch; i += 32) {
    smem.a[i] = ptx::from_float<__half>(a[i]);
    smem.b[i] = ptx::from_float<__half>(b[i]);
    smem.c[i] = c[i];
  }
  __syncwarp();
  ptx::FragmentA<__half> rA;
  ptx::FragmentB<__half> rB;
  ptx::FragmentC rC;
  wmma::load_matrix_sync(rA, smem.a, kPitch);
  wmma::load_matrix_sync(rB, smem.b, kPitch);
  wmma::load_matrix_sync(rC, smem.c, kPitch, wmma::mem_col_major);
  wmma::mma_sync(rC, rA, rB, rC);
  wmma::store_matrix_sync(smem.c, rC, kPitch, wmma::mem_col_major);
  __syncwarp();
  for (int i = threadIdx.x; i < 16 * kPitch; i += 32) c[i] = smem.c[i];
}

TEST(Wmma, RowsApartAndColumnMajorSums) {
  // One matrix is the unit matrix, then the other: the product is the one with distinct numbers.
  for (const bool unit_a : {true, false}) {
    auto unit = [](int row, int column) { return row == column ? 1.0f : 0.0f; };
    auto number = [](int row, int column) { return float(1 + 16 * row + column); };
    std::vector<float> a(16 * kPitch, 99.0f), b = a, c = a, expected = a;
    for (int row = 0; row < 16; row++) {
      for (int column = 0; column < 16; column++) {
        const auto at = unsigned(row * kPitch + column), across = unsigned(column * kPitch + row);
        a[at] = unit_a ? unit(row, column) : number(row, column);
        b[at] = unit_a ? number(row, column) : unit(row, column);
        c[across] = 1000.0f * float(row) + float(column);
        expected[across] = 1000.0f * float(row) + float(column) + number(row, column);
      }
    }
    const Buffer in_a = upload("a", a), in_b = upload("b", b), out = upload("c", c);
    run<wmma_kernel>({dim3(1), dim3(32), sizeof(WmmaStorage)}, in_a, in_b, out);
    EXPECT_EQ(download<float>(out), expected) << (unit_a ? "A" : "B") << " is the unit matrix";
  }
}

// ---- cp.async: copies, groups and waits ---------------------------------------------------------
constexpr uint32_t kAbsent = 0xeeeeeeeeu;

struct GroupStorage {
  alignas(16) uint4 copies[4][32];
};

// Each thread copies the last kBytes of its sixteen bytes, whose address is a multiple of kBytes
// alone, into copies[0]; and into copies[1] by a zero-fill to which no zeros are left.
template <int kBytes>
__global__ void tail_kernel(const uint4* in, uint4* out) {
  auto& smem = shared_storage<GroupStorage>();
  const int thread = threadIdx.x, first = 16 - kBytes;
  const auto* const from = reinterpret_cast<const char*>(in + thread) + first;
  for (int i = 0; i < 2; i++)
    smem.copies[i][thread] = make_uint4(kAbsent, kAbsent, kAbsent, kAbsent);
  ptx::cp_async<kBytes>(ptx::shared_address(&smem.copies[0][thread]) + first, from);
  ptx::cp_async_zero_fill<kBytes>(ptx::shared_address(&smem.copies[1][thread]) + first, from,
                                  kBytes);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  for (int i = 0; i < 2; i++) out[i * 32 + thread] = smem.copies[i][thread];
}

template <int kBytes>
void expect_tails() {
  std::vector<uint32_t> data(32 * 4), expected(2 * data.size());
  for (uint32_t i = 0; i < 128; i++) data[i] = i;
  for (uint32_t i = 0; i < 256; i++) expected[i] = i % 4 * 4 + kBytes >= 16 ? i % 128 : kAbsent;
  const Buffer in = upload("in", data);
  Buffer out("out", expected.size() * 4);
  run<tail_kernel<kBytes>>({dim3(1), dim3(32), sizeof(GroupStorage)}, in, out);
  EXPECT_EQ(download<uint32_t>(out), expected) << kBytes << " bytes";
}

TEST(CpAsync, CopiesToMultiplesOfItsSize) {
  expect_tails<4>();
  expect_tails<8>();
  expect_tails<16>();
}

// While it lives, the emulator's checked build lets a kernel look at copies under way, which is a
// race.
struct MayRace {
#ifndef FA_WITH_CUDA
  MayRace() { emu::options().races = false; }
  ~MayRace() { emu::options().races = true; }
#endif
};

// The copies that are there, copy i as bit i.
__device__ inline uint32_t arrived(const GroupStorage& smem, int thread) {
  uint32_t result = 0;
  for (int i = 0; i < 4; i++) {
    const volatile uint32_t& word = smem.copies[i][thread].w;
    if (word != kAbsent) result |= 1u << i;
  }
  return result;
}

// Copies 0, 1 and 2 are a group each; after 1 comes an empty group; copy 3 is in none. Looks before
// the first wait, and after waiting until 3, 2, 1 and 0 groups may be left.
constexpr int kLooks = 5;
__global__ void group_kernel(const uint4* in, uint32_t* out) {
  auto& smem = shared_storage<GroupStorage>();
  const int thread = threadIdx.x;
  for (int i = 0; i < 4; i++)
    smem.copies[i][thread] = make_uint4(kAbsent, kAbsent, kAbsent, kAbsent);
  for (int i = 0; i < 4; i++) {
    ptx::cp_async<16>(ptx::shared_address(&smem.copies[i][thread]), in + thread);
    if (i < 3) ptx::cp_async_commit();
    if (i == 1) ptx::cp_async_commit();
  }
  out[0 * 32 + thread] = arrived(smem, thread);
  ptx::cp_async_wait<3>();
  out[1 * 32 + thread] = arrived(smem, thread);
  ptx::cp_async_wait<2>();
  out[2 * 32 + thread] = arrived(smem, thread);
  ptx::cp_async_wait<1>();
  out[3 * 32 + thread] = arrived(smem, thread);
  ptx::cp_async_wait<0>();
  out[4 * 32 + thread] = arrived(smem, thread);
}
constexpr uint32_t kPromised[kLooks] = {0b0000, 0b0001, 0b0011, 0b0011, 0b0111};

std::vector<uint32_t> look_at_groups() {
  const std::vector<uint32_t> data(32 * 4, 7);
  const Buffer in = upload("in", data);
  Buffer out("out", kLooks * 32 * 4);
  [[maybe_unused]] const MayRace may_race;
  run<group_kernel>({dim3(1), dim3(32), sizeof(GroupStorage)}, in, out);
  return download<uint32_t>(out);
}

void expect_promises(const std::vector<uint32_t>& looks) {
  for (size_t i = 0; i < looks.size(); i++) {
    EXPECT_EQ(looks[i] & kPromised[i / 32], kPromised[i / 32]) << "look " << i / 32;
    if (i < 32) continue;
    EXPECT_EQ(looks[i] & looks[i - 32], looks[i - 32]) << "what was there has gone";
  }
}

TEST(CpAsyncGroups, WaitingKeepsItsPromise) { expect_promises(look_at_groups()); }

// Every thread waits for its own copies; after a barrier it may read those of the others.
__global__ void neighbour_kernel(const uint4* in, uint4* out) {
  auto& smem = shared_storage<GroupStorage>();
  const int thread = threadIdx.x;
  ptx::cp_async<16>(ptx::shared_address(&smem.copies[0][thread]), in + thread);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  __syncthreads();
  out[thread] = smem.copies[0][31 - thread];
}

TEST(CpAsyncGroups, OthersCopiesAreThereAfterABarrier) {
  std::vector<uint32_t> data(32 * 4), expected(32 * 4);
  for (uint32_t i = 0; i < 128; i++) data[i] = i;
  for (uint32_t i = 0; i < 128; i++) expected[i] = (31 - i / 4) * 4 + i % 4;
  const Buffer in = upload("in", data);
  Buffer out("out", data.size() * 4);
  run<neighbour_kernel>({dim3(1), dim3(32), sizeof(GroupStorage)}, in, out);
  EXPECT_EQ(download<uint32_t>(out), expected);
}

// ---- named barriers -----------------------------------------------------------------------------
constexpr int kRounds = 4;
struct ChannelStorage {
  int values[32];
};

// Warp 1 hands numbers to warp 0 through one buffer: barrier 1 says that it is full, barrier 15
// that it is free again. Who has nothing to wait for arrives.
__global__ void channel_kernel(int* out) {
  auto& smem = shared_storage<ChannelStorage>();
  const int lane = threadIdx.x % 32;
  for (int round = 0; round < kRounds; round++) {
    if (threadIdx.x >= 32) {
      if (round > 0) ptx::barrier_sync(15, 64);
      smem.values[lane] = 100 * round + lane;
      ptx::barrier_arrive(1, 64);
    } else {
      ptx::barrier_sync(1, 64);
      out[round * 32 + lane] = smem.values[31 - lane];
      if (round + 1 < kRounds) ptx::barrier_arrive(15, 64);
    }
  }
}

TEST(NamedBarriers, HandABufferToAndFro) {
  Buffer out("out", kRounds * 32 * 4);
  run<channel_kernel>({dim3(1), dim3(64), sizeof(ChannelStorage)}, out);
  const auto got = download<int>(out);
  for (int i = 0; i < kRounds * 32; i++) EXPECT_EQ(got[size_t(i)], 100 * (i / 32) + 31 - i % 32);
}

// Warp 1 arrives at two barriers in one order and warp 0 waits at them in the other: if to arrive
// were to wait, nobody could go on.
__global__ void crossed_kernel(int* out) {
  auto& smem = shared_storage<ChannelStorage>();
  const int lane = threadIdx.x % 32;
  if (threadIdx.x >= 32) {
    smem.values[lane] = lane;
    ptx::barrier_arrive(2, 64);
    ptx::barrier_arrive(1, 64);
  } else {
    ptx::barrier_sync(1, 64);
    ptx::barrier_sync(2, 64);
    out[lane] = smem.values[31 - lane];
  }
}

TEST(NamedBarriers, ArriveDoesNotWait) {
  Buffer out("out", 32 * 4);
  run<crossed_kernel>({dim3(1), dim3(64), sizeof(ChannelStorage)}, out);
  const auto got = download<int>(out);
  for (int i = 0; i < 32; i++) EXPECT_EQ(got[size_t(i)], 31 - i);
}

// ---- conversions --------------------------------------------------------------------------------
// Unpacks pairs of 16-bit patterns and packs them again.
template <typename T>
__global__ void repack_kernel(const uint32_t* in, float2* unpacked, uint32_t* packed) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  unpacked[i] = ptx::unpack<T>(in[i]);
  packed[i] = ptx::pack<T>(unpacked[i].x, unpacked[i].y);
}

// The value of a pattern of `digits` mantissa bits and 15 - digits exponent bits (IEEE 754, section
// 3.4).
double value_of(uint32_t pattern, int digits) {
  const int top = (1 << (15 - digits)) - 1, exponent = int(pattern >> digits) & top, bias = top / 2;
  const double mantissa = double(pattern & ((1u << digits) - 1));
  const double sign = pattern & 0x8000 ? -1.0 : 1.0;
  if (exponent == top) return mantissa > 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - digits);
  return sign * std::ldexp(mantissa + (1 << digits), exponent - bias - digits);
}

template <typename T>
void expect_repacked(int digits) {
  // Every pattern in the lower half, another one, each once too, in the upper half.
  std::vector<uint32_t> pairs(65536);
  for (uint32_t i = 0; i < 65536; i++) pairs[i] = i | (i * 40503 % 65536) << 16;
  const Buffer in = upload("in", pairs);
  Buffer unpacked("unpacked", pairs.size() * 8), packed("packed", pairs.size() * 4);
  run<repack_kernel<T>>({dim3(256), dim3(256)}, in, unpacked, packed);
  const auto values = download<float>(unpacked);
  const auto bits = download<uint32_t>(packed);
  for (size_t i = 0; i < pairs.size(); i++) {
    for (size_t half = 0; half < 2; half++) {
      const uint32_t pattern = pairs[i] >> 16 * half & 0xffff,
                     again = bits[i] >> 16 * half & 0xffff;
      const double expected = value_of(pattern, digits);
      const float value = values[2 * i + half];
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(value)) << std::hex << pattern;
        ASSERT_EQ(again, 0x7fffu) << "PTX ISA, cvt: the canonical NaN";
      } else {
        ASSERT_EQ(double(value), expected) << std::hex << pattern;
        ASSERT_EQ(again, pattern);
      }
    }
  }
}

TEST(Conversions, RepackedPairsAreTheSameFp16) { expect_repacked<__half>(10); }
TEST(Conversions, RepackedPairsAreTheSameBf16) { expect_repacked<__nv_bfloat16>(7); }

// The greater of either half. PTX ISA, "Half Precision Floating Point Instructions: max": of a NaN
// and a number the number, of two NaN the canonical one.
template <typename T>
__global__ void max2_kernel(const uint2* in, uint32_t* out) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  out[i] = ptx::max2<T>(in[i].x, in[i].y);
}

template <typename T>
void expect_max2(int digits) {
  // Every pattern in the lower half of the first pair, others in the other three places.
  std::vector<uint32_t> words(2 * 65536);
  for (uint32_t i = 0; i < 65536; i++) {
    words[2 * i] = i | (i * 40503 % 65536) << 16;
    words[2 * i + 1] = i * 30011 % 65536 | (i * 51787 % 65536) << 16;
  }
  const Buffer in = upload("in", words);
  Buffer out("out", words.size() * 2);
  run<max2_kernel<T>>({dim3(256), dim3(256)}, in, out);
  const auto bits = download<uint32_t>(out);
  for (size_t i = 0; i < bits.size(); i++) {
    for (size_t half = 0; half < 2; half++) {
      const auto pattern = [&](uint32_t word) { return word >> 16 * half & 0xffff; };
      const uint32_t a = pattern(words[2 * i]), b = pattern(words[2 * i + 1]);
      const double x = value_of(a, digits), y = value_of(b, digits);
      if (x == 0 && y == 0) continue;  // which zero: no kernel needs to know
      const uint32_t expected =
          std::isnan(x) && std::isnan(y) ? 0x7fff : (std::isnan(y) || x > y ? a : b);
      ASSERT_EQ(pattern(bits[i]), expected) << std::hex << a << " and " << b;
    }
  }
}

TEST(Conversions, GreaterOfPairsFp16) { expect_max2<__half>(10); }
TEST(Conversions, GreaterOfPairsBf16) { expect_max2<__nv_bfloat16>(7); }

// tanh of common/launch/scores.h: both forms, where they are meant for. A result may be off by
// 2^-22 of itself, what the reference allows a softcap being twice that.
__global__ void tanh_kernel(const float* in, float2* out) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  out[i] = float2{tanh_small(in[i]), tanh_any(in[i])};
}

TEST(Tanh, IsAsExactAsFp32) {
  std::vector<float> numbers = {INFINITY, 0, 1e-30f, kTanhSmall, 88, 89, 1e30f, NAN};
  while (numbers.size() < 65536)
    numbers.push_back(std::exp2(float(numbers.size()) / 4096 - 12) * (numbers.size() % 2 ? 1 : -1));
  const Buffer in = upload("in", numbers);
  Buffer out("out", numbers.size() * sizeof(float2));
  run<tanh_kernel>({dim3(256), dim3(256)}, in, out);
  const auto results = download<float2>(out);
  double most = 0, most_small = 0;
  for (size_t i = 0; i < numbers.size(); i++) {
    const double x = double(numbers[i]), exact = std::tanh(x);
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(results[i].x) && std::isnan(results[i].y));
    } else if (x != 0) {
      most = std::max(most, std::abs(double(results[i].y) / exact - 1));
      if (std::abs(x) <= double(kTanhSmall))
        most_small = std::max(most_small, std::abs(double(results[i].x) / exact - 1));
    }
  }
  EXPECT_LE(most_small, 0x1p-22);
  EXPECT_LE(most, 0x1p-22);
}

// An element of S under a softcap of 30, as an exponent whose reference is 0.
__global__ void tiny_tanh_kernel(const float* in, const TinyTanh* tiny, float* out) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  out[i] = tiny->minus(in[i], 0.0f);
}

TEST(Tanh, OfASmallPartOfTheCapIsExactEnough) {
  const double into_tanh = 0.125 / 30, unit = 30 / std::log(2.0);
  const std::vector<TinyTanh> tiny = {TinyTanh(float(into_tanh), 30)};
  std::vector<float> numbers;
  while (numbers.size() < 65536)
    numbers.push_back(tiny[0].most * (float(numbers.size()) - 32767.5f) / 32768);
  const Buffer in = upload("in", numbers), of_cap = upload("tiny", tiny);
  Buffer out("out", numbers.size() * sizeof(float));
  run<tiny_tanh_kernel>({dim3(256), dim3(256)}, in, of_cap, out);
  const auto results = download<float>(out);
  double most = 0;
  for (size_t i = 0; i < numbers.size(); i++) {
    const double exact = unit * std::tanh(double(numbers[i]) * double(float(into_tanh)));
    most = std::max(most, std::abs(double(results[i]) / exact - 1));
  }
  EXPECT_LE(most, 0x1p-21);  // what the reference allows
  EXPECT_LT(TinyTanh().most, 0);
}

// Sums of products, which are rounded once: "Half Precision Floating Point Instructions: fma".
__global__ void fma2_kernel(const uint32_t* in, uint32_t* out) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  out[i] = ptx::fma2(in[3 * i], in[3 * i + 1], in[3 * i + 2]);
}

// The fp16 next to x, of two as near the even one; subnormal numbers are 2^-24 apart.
double nearest_fp16(double x) {
  const int exponent = x == 0 ? -14 : std::max(std::ilogb(x), -14);
  const double step = std::ldexp(1.0, exponent - 10), rounded = std::nearbyint(x / step) * step;
  return std::abs(rounded) > 65504 ? std::copysign(INFINITY, x) : rounded;
}

TEST(Conversions, SumsOfProductsOfPairsFp16) {
  // Every pattern in the lower half of a, others in the other five places. Some c all but cancel.
  std::vector<uint32_t> words(3 * 65536);
  for (uint32_t i = 0; i < 65536; i++) {
    words[3 * i] = i | (i * 40503 % 65536) << 16;
    words[3 * i + 1] = i * 30011 % 65536 | (i * 51787 % 65536) << 16;
    words[3 * i + 2] = i * 20857 % 65536 | (i * 61813 % 65536) << 16;
    if (i % 4 == 0) words[3 * i + 1] = 0x3c013c00u, words[3 * i + 2] = words[3 * i] ^ 0x80008000u;
  }
  const Buffer in = upload("in", words);
  Buffer out("out", 65536 * 4);
  run<fma2_kernel>({dim3(256), dim3(256)}, in, out);
  const auto sums = download<uint32_t>(out);
  for (size_t i = 0; i < sums.size(); i++) {
    for (size_t half = 0; half < 2; half++) {
      const auto value = [&](uint32_t word) { return value_of(word >> 16 * half & 0xffff, 10); };
      // Products of fp16 are exact in a double, and so are all but sums of very different size,
      // whose lost bits only tell on which side of a middle they are.
      const double exact = std::fma(value(words[3 * i]), value(words[3 * i + 1]),
                                    value(words[3 * i + 2])),
                   sum = value(sums[i]);
      if (std::isnan(exact)) {
        ASSERT_EQ(sums[i] >> 16 * half & 0xffff, 0x7fffu) << i;
      } else {
        ASSERT_EQ(sum, std::isinf(exact) ? exact : nearest_fp16(exact)) << i << ": " << exact;
      }
    }
  }
}

#ifndef __CUDACC__

// ---- the emulator alone: when copies happen, and what it refuses --------------------------------
class Completions : public testing::Test {
 protected:
  void TearDown() override { emu::options() = emu::Options{}; }
  static std::vector<uint32_t> look(emu::Completion completion, uint64_t seed = 1) {
    emu::options().completion = completion;
    emu::options().seed = seed;
    return look_at_groups();
  }
};

TEST_F(Completions, LateCopiesHappenInTheWaitThatPromisesThem) {
  const auto looks = look(emu::Completion::kLate);
  for (size_t i = 0; i < looks.size(); i++) EXPECT_EQ(looks[i], kPromised[i / 32]) << i;
}

TEST_F(Completions, EarlyCopiesHappenAtOnce) {
  for (const uint32_t bits : look(emu::Completion::kEarly)) EXPECT_EQ(bits, 0b1111u);
}

TEST_F(Completions, RandomCopiesHappenAtOnceOrInTheWait) {
  std::set<std::vector<uint32_t>> runs;
  int at_once = 0, mixed = 0;
  for (uint64_t seed = 1; seed <= 16; seed++) {
    const auto looks = look(emu::Completion::kRandom, seed);
    expect_promises(looks);
    for (size_t i = 0; i < 32; i++) {
      at_once += __builtin_popcount(looks[i]);
      mixed += looks[i] != 0 && looks[i] != 0b1111;
      // Between its issue and the wait that promises it nothing happens to a copy.
      for (size_t j = 1; j < kLooks; j++) EXPECT_EQ(looks[j * 32 + i], looks[i] | kPromised[j]);
    }
    EXPECT_EQ(look(emu::Completion::kRandom, seed), looks) << "the same seed, the same run";
    runs.insert(looks);
  }
  EXPECT_EQ(runs.size(), 16u) << "every seed another run";
  // 16 * 32 * 4 = 2048 fair coins: the mean is 1024, the standard deviation 23. Of 512 threads'
  // four coins 448 are not all the same, the standard deviation is 7.5.
  EXPECT_NEAR(at_once, 1024, 5 * 23);
  EXPECT_NEAR(mixed, 448, 5 * 7.5);
}

TEST_F(Completions, AWaitIsForTheThreadsOwnCopies) {
  const std::vector<uint32_t> data(32 * 4, 7);
  const Buffer in = upload("in", data);
  const auto* const from = static_cast<const uint4*>(in.data());
  std::vector<uint32_t> there(32);
  const MayRace may_race;
  emu::launch("probe", dim3(1), dim3(32), sizeof(GroupStorage), [&] {
    auto& smem = shared_storage<GroupStorage>();
    const int thread = threadIdx.x;
    smem.copies[0][thread].w = kAbsent;
    ptx::cp_async<16>(ptx::shared_address(&smem.copies[0][thread]), from + thread);
    ptx::cp_async_commit();
    if (thread % 2 == 0) ptx::cp_async_wait<0>();
    __syncwarp();
    there[size_t(thread)] = arrived(smem, thread) & 1;
  });
  for (size_t thread = 0; thread < 32; thread++)
    EXPECT_EQ(there[thread], thread % 2 == 0) << thread;
}

struct CopyStorage {
  alignas(16) uint8_t bytes[32][16];
};

// The error that a launch of one CTA of 64 threads ends with.
template <typename Body>
std::string failure(Body body) {
  const MayRace may_race;  // it is about what an instruction refuses by itself
  const std::string text = test::error_of<emu::LaunchError>(
      [&] { emu::launch("probe", dim3(1), dim3(64), sizeof(CopyStorage), body); });
  if (text != "no error") EXPECT_CONTAINS(text, "tests/test_ptx.cpp:");
  return text;
}

TEST(Refusals, CpAsync) {
  const Buffer in("K", 64);
  const auto* const from = static_cast<const uint8_t*>(in.data());
  const auto copy = [&](int to_byte, int from_byte, int source_bytes) {
    return failure([=] {
      auto& smem = shared_storage<CopyStorage>();
      const uint32_t to = ptx::shared_address(smem.bytes) + uint32_t(to_byte);
      ptx::cp_async_zero_fill<16>(to, from + from_byte, source_bytes);
    });
  };
  EXPECT_EQ(copy(496, 48, 16), "no error");
  EXPECT_EQ(copy(0, 64, 0), "no error") << "an address that nothing is read from";
  EXPECT_CONTAINS(copy(8, 0, 16), "the shared address is not a multiple of 16 bytes");
  EXPECT_CONTAINS(copy(512, 0, 16), "byte 512 of shared memory is outside the SharedStorage");
  EXPECT_CONTAINS(copy(0, 8, 16), "the global address is not a multiple of 16 bytes");
  EXPECT_CONTAINS(copy(0, 64, 16), "past the end of global buffer K");
  EXPECT_CONTAINS(copy(0, 0, 17), "17 source bytes of 16");
  EXPECT_CONTAINS(copy(0, 0, -1), "-1 source bytes of 16");
}

TEST(Refusals, NamedBarriers) {
  EXPECT_CONTAINS(failure([] { ptx::barrier_sync(16, 64); }), "barrier 16 does not exist");
  EXPECT_CONTAINS(failure([] { ptx::barrier_arrive(1, 33); }),
                  "33 threads are not a whole number of warps");
  EXPECT_CONTAINS(failure([] {
                    if (threadIdx.x < 32) ptx::barrier_sync(2, 64);
                  }),
                  "waits in bar.sync");
}

TEST(Refusals, Ldmatrix) {
  const auto load = [](uint32_t bytes) {
    return failure([=] {
      auto& smem = shared_storage<CopyStorage>();
      uint32_t r[4];
      ptx::ldmatrix_x4(r, ptx::shared_address(smem.bytes[threadIdx.x % 32]) + bytes);
    });
  };
  EXPECT_EQ(load(0), "no error");
  EXPECT_CONTAINS(load(8), "the shared address is not a multiple of 16 bytes");
  EXPECT_CONTAINS(load(16), "byte 512 of shared memory is outside the SharedStorage");

  // It names the lane that gave the address. Of two matrices the addresses are those of 16 lanes.
  const auto one_wrong = [](bool loads, unsigned wrong) {
    return failure([=] {
      auto& smem = shared_storage<CopyStorage>();
      uint32_t r[2] = {};
      const uint32_t at = ptx::shared_address(smem.bytes[threadIdx.x % 32]);
      const uint32_t address = threadIdx.x == wrong ? at + 512 : at;
      loads ? ptx::ldmatrix_x2(r, address) : ptx::stmatrix_x2(r, address);
    });
  };
  for (const bool loads : {true, false}) {
    EXPECT_CONTAINS(one_wrong(loads, 9), "thread 9 (warp 0 lane 9): ");
    EXPECT_CONTAINS(one_wrong(loads, 47), "thread 47 (warp 1 lane 15): ");
    EXPECT_EQ(one_wrong(loads, 16), "no error");
  }
}

// ---- the emulator alone: wmma's layout is nobody's business -------------------------------------
TEST(WmmaFragments, HoldEveryElementOnceInALayoutOfTheirOwn) {
  std::array<float, 32 * 8> held{};
  emu::launch("probe", dim3(1), dim3(32), 16 * 16 * sizeof(float), [&] {
    struct Storage {
      float c[16 * 16];
    };
    auto& smem = shared_storage<Storage>();
    for (int i = threadIdx.x; i < 256; i += 32) smem.c[i] = float(i);
    __syncwarp();
    ptx::FragmentC rC;
    ptx::wmma::load_matrix_sync(rC, smem.c, 16, ptx::wmma::mem_row_major);
    for (int i = 0; i < 8; i++) held[threadIdx.x * 8 + size_t(i)] = rC.x[i];
  });
  std::array<float, 32 * 8> sorted = held;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < 256; i++) EXPECT_EQ(sorted[i], float(i));
  // Two C fragments of mma.sync side by side: what code that looks inside would hope for.
  int alike = 0;
  for (int lane = 0; lane < 32; lane++) {
    for (int i = 0; i < 8; i++) {
      const Place at = place_c(lane, i % 4);
      const int hoped_for = at.row * 16 + at.column + 8 * (i / 4);
      alike += held[unsigned(lane * 8 + i)] == float(hoped_for);
    }
  }
  EXPECT_LT(alike, 64) << "of 256 elements";
}

#endif

}  // namespace fa::ptx_test
