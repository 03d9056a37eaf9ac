// wgmma: every shape, type and way to store the operands against a plain product, on the emulator
// and on a GPU of compute capability 9.0; on the emulator also what makes it asynchronous, and
// every report.
//
// Where an element lies is written here as the PTX ISA writes it, apart from common/layout/wgmma.h.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/harness/device.h"
#include "common/launch/launch.h"
#include "common/launch/problem.h"
#include "common/layout/fragments.h"
#include "common/layout/wgmma.h"
#include "common/ptx/fence.h"
#include "common/ptx/wgmma.h"
#include "tests/golden/probe.h"

namespace fa::wgmma_test {

using layout::Major;
using probe::download;
using probe::Random;
using probe::upload;

#define SKIP_UNLESS_HOPPER()                                       \
  if (on_gpu() && device_capability() != 90) {                     \
    GTEST_SKIP() << "wgmma needs a GPU of compute capability 9.0"; \
  }

// ---- the PTX ISA's figures ----------------------------------------------------------------------
// "WGMMA .m64nNk16 register fragment layout for accumulator matrix D": row = (warp % 4) * 16 +
// laneid / 4 + 8 if the element's bit 1 is set; column = 8 * (i / 4) + (laneid % 4) * 2 + i % 2.
constexpr int d_row(int thread, int i) {
  return thread / 32 * 16 + thread % 32 / 4 + ((i & 2) ? 8 : 0);
}
constexpr int d_column(int thread, int i) { return 8 * (i / 4) + thread % 4 * 2 + (i & 1); }

// "... for matrix A", 16-bit: register i / 2 of four, i < 8.
constexpr int a_row(int thread, int i) {
  return thread / 32 * 16 + thread % 32 / 4 + ((i & 2) ? 8 : 0);
}
constexpr int a_column(int thread, int i) { return thread % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8); }

TEST(Layout, OfRegistersIsThePtxIsas) {
  for (int thread = 0; thread < 128; thread++) {
    for (int i = 0; i < 128; i++) {
      EXPECT_EQ(layout::wgmma_d(thread, i),
                (layout::Position{d_row(thread, i), d_column(thread, i)}));
    }
    for (int i = 0; i < 8; i++) {
      EXPECT_EQ(layout::wgmma_a(thread, i / 2, i % 2),
                (layout::Position{a_row(thread, i), a_column(thread, i)}));
    }
  }
}

// ---- products -----------------------------------------------------------------------------------
constexpr int kDepth = 64;  // four steps

// [columns / 64][rows][64], 128-byte swizzle
template <int kRows, int kColumns>
struct Tile {
  alignas(1024) uint16_t elements[(kColumns + 63) / 64 * kRows * 64];

  __device__ void put(int row, int column, uint16_t value) {
    elements[layout::slab_offset(kRows, row, column) / 2] = value;
  }
};

template <int kN, Major kMajorB, Major kMajorA>
struct Storage {
  Tile<kMajorA == Major::kK ? 64 : kDepth, kMajorA == Major::kK ? kDepth : 64> a;
  Tile<kMajorB == Major::kK ? kN : kDepth, kMajorB == Major::kK ? kDepth : kN> b;
};

// d[64][N] += a[64][k] b[k][N], of row-major global matrices.
template <typename T, int kN, Major kMajorB, Major kMajorA, bool kFromRegisters>
__global__ void __launch_bounds__(128)
    product_kernel(const uint16_t* a, const uint16_t* b, float* d, bool accumulate) {
#if FA_ARCHITECTURE == 90
  auto& smem = shared_storage<Storage<kN, kMajorB, kMajorA>>();
  const int thread = threadIdx.x;
  for (int i = thread; i < 64 * kDepth; i += 128) {
    const int row = i / kDepth, k = i % kDepth;
    if (kMajorA == Major::kK) {
      smem.a.put(row, k, a[i]);
    } else {
      smem.a.put(k, row, a[i]);
    }
  }
  for (int i = thread; i < kDepth * kN; i += 128) {
    const int k = i / kN, column = i % kN;
    if (kMajorB == Major::kK) {
      smem.b.put(column, k, b[i]);
    } else {
      smem.b.put(k, column, b[i]);
    }
  }
  float acc[kN / 2];
#pragma unroll
  for (int i = 0; i < kN / 2; i++) acc[i] = d[d_row(thread, i) * kN + d_column(thread, i)];
  uint32_t rA[kDepth / 16][4];
#pragma unroll
  for (int step = 0; step < kDepth / 16; step++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint16_t* const pair =
          a + a_row(thread, 2 * i) * kDepth + 16 * step + a_column(thread, 2 * i);
      rA[step][i] = pair[0] | uint32_t(pair[1]) << 16;
    }
  }
  ptx::fence_proxy_async();
  __syncthreads();

  const uint32_t at_a = ptx::shared_address(&smem.a), at_b = ptx::shared_address(&smem.b);
  const uint64_t desc_a = kMajorA == Major::kK ? layout::k_major_descriptor(at_a)
                                               : layout::mn_major_descriptor(at_a, kDepth);
  const uint64_t desc_b = kMajorB == Major::kK ? layout::k_major_descriptor(at_b)
                                               : layout::mn_major_descriptor(at_b, kDepth);
  ptx::wgmma_fence(acc, rA);
#pragma unroll
  for (int step = 0; step < kDepth / 16; step++) {
    const uint64_t step_b =
        layout::advance(desc_b, kMajorB == Major::kK ? layout::k_major_step(kN, step)
                                                     : layout::mn_major_step(step));
    if constexpr (kFromRegisters) {
      ptx::wgmma<T, kN, kMajorB>(acc, rA[step], step_b, accumulate || step > 0);
    } else {
      const uint64_t step_a =
          layout::advance(desc_a, kMajorA == Major::kK ? layout::k_major_step(64, step)
                                                       : layout::mn_major_step(step));
      ptx::wgmma<T, kN, kMajorB, kMajorA>(acc, step_a, step_b, accumulate || step > 0);
    }
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(acc, rA);
#pragma unroll
  for (int i = 0; i < kN / 2; i++) d[d_row(thread, i) * kN + d_column(thread, i)] = acc[i];
#endif
}

// Small whole numbers: every sum is exact, in any order.
template <typename T>
std::vector<uint16_t> whole_numbers(Random& random, size_t count, std::vector<int>& values) {
  std::vector<uint16_t> bits(count);
  values.resize(count);
  for (size_t i = 0; i < count; i++) {
    values[i] = int(random.next() % 17) - 8;
    const T value(static_cast<float>(values[i]));
    memcpy(&bits[i], &value, 2);
  }
  return bits;
}

template <typename T, int kN, Major kMajorB, Major kMajorA, bool kFromRegisters>
void expect_product(bool accumulate) {
  Random random{uint64_t(kN) * 8 + uint64_t(kMajorB) * 4 + uint64_t(kMajorA) * 2 + accumulate};
  std::vector<int> a, b;
  const Buffer in_a = upload("a", whole_numbers<T>(random, 64 * kDepth, a));
  const Buffer in_b = upload("b", whole_numbers<T>(random, size_t(kDepth) * kN, b));
  std::vector<float> start(64 * kN);
  for (float& x : start) x = float(int(random.next() % 100) - 50);
  const Buffer d = upload("d", start);
  launch<product_kernel<T, kN, kMajorB, kMajorA, kFromRegisters>>(
      {dim3(1), dim3(128), sizeof(Storage<kN, kMajorB, kMajorA>)},
      static_cast<const uint16_t*>(in_a.data()), static_cast<const uint16_t*>(in_b.data()),
      static_cast<float*>(d.data()), accumulate);
  synchronize();
  const auto results = download<float>(d);
  int wrong = 0;
  for (int row = 0; row < 64; row++) {
    for (int column = 0; column < kN; column++) {
      const size_t at = size_t(row * kN + column);
      int sum = accumulate ? int(start[at]) : 0;
      for (int k = 0; k < kDepth; k++)
        sum += a[size_t(row * kDepth + k)] * b[size_t(k * kN + column)];
      if (results[at] == float(sum) || wrong++ >= 4) continue;
      ADD_FAILURE() << "N = " << kN << ", B " << (kMajorB == Major::kK ? "K" : "MN") << "-major, A "
                    << (kFromRegisters         ? "in registers"
                        : kMajorA == Major::kK ? "K-major"
                                               : "MN-major")
                    << ", row " << row << " column " << column << ": " << results[at]
                    << " instead of " << sum;
    }
  }
}

template <typename T, int kN>
void expect_products() {
  SKIP_UNLESS_HOPPER();
  expect_product<T, kN, Major::kK, Major::kK, false>(false);
  expect_product<T, kN, Major::kMN, Major::kK, false>(true);
  expect_product<T, kN, Major::kK, Major::kK, true>(true);
  expect_product<T, kN, Major::kMN, Major::kK, true>(false);
  if constexpr (kN == 64 || kN == 80) {
    expect_product<T, kN, Major::kK, Major::kMN, false>(true);
    expect_product<T, kN, Major::kMN, Major::kMN, false>(false);
  }
}

template <typename Shape>
class Products : public testing::Test {};
using Shapes = testing::Types<std::integral_constant<int, 64>, std::integral_constant<int, 80>,
                              std::integral_constant<int, 128>, std::integral_constant<int, 256>>;
TYPED_TEST_SUITE(Products, Shapes);
TYPED_TEST(Products, Fp16) { expect_products<__half, TypeParam::value>(); }
TYPED_TEST(Products, Bf16) { expect_products<__nv_bfloat16, TypeParam::value>(); }

}  // namespace fa::wgmma_test

#ifndef FA_WITH_CUDA
#include "tests/wgmma_reports.h"
#endif
