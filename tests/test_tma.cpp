// Hopper's wrappers of common/ptx against the PTX ISA, on the emulator and, built for a GPU, on the
// GPU: bulk copies, tensor maps, the proxy fence, clusters, setmaxnreg, elect.sync. What boxes of
// every form hold, and what each operation does to an mbarrier, is compared with an H200's answers
// (golden/tma_probe.cu).
#include <array>
#include <cstring>
#include <map>
#include <numeric>
#include <stdexcept>

#include "common/emulator/core/counters.h"
#include "common/emulator/tests/golden/probe.h"
#include "common/launch/tensor_map.h"
#include "common/layout/swizzle.h"
#include "common/ptx/cluster.h"
#include "common/ptx/elect.h"
#include "common/ptx/fence.h"
#include "common/ptx/flag.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/setmaxnreg.h"
#include "common/ptx/tma.h"
#include "tests/support.h"

// A kernel's fault takes the GPU from its process, tests that come later in it included.
#define FA_NEEDS_THE_GPU \
  if (gpu_is_lost()) FAIL() << "not run: an earlier test's fault took the GPU from this process"

// The kernels are compiled for nothing older.
#define FA_HOPPER (FA_ARCHITECTURE == 0 || FA_ARCHITECTURE >= 90)
#define FA_NEEDS_HOPPER \
  FA_NEEDS_THE_GPU;     \
  if (on_gpu() && device_capability() < 90) GTEST_SKIP() << "these instructions came with sm_90"

// setmaxnreg and multicast are for sm_90a (and some later GPUs of data centres).
#define FA_SM_90A (FA_ARCHITECTURE == 0 || FA_ARCHITECTURE == 90)
#define FA_NEEDS_SM_90A \
  FA_NEEDS_THE_GPU;     \
  if (on_gpu() && device_capability() != 90) GTEST_SKIP() << "these instructions are sm_90a's"

namespace fa::tma_test {

using layout::SwizzleMode;
using probe::download;
using probe::run;
using probe::upload;
using ptx::TensorMap;

constexpr int kTileBytes = 16384;

struct Storage {
  alignas(1024) uint8_t tile[kTileBytes];
  uint64_t full;
};

// Rows of 64 words, to be moved one by one.
TensorMap rows_of(const Buffer& buffer, uint64_t rows) {
  return make_tensor_map(static_cast<const uint32_t*>(buffer.data()), {64, rows}, {256}, {64, 1},
                         SwizzleMode::kNone);
}

// ---- bytes in a row -----------------------------------------------------------------------------
__global__ void bulk_kernel(const uint8_t* in, uint8_t* out, int bytes) {
#if FA_HOPPER
  auto& smem = shared_storage<Storage>();
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&smem.full, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(&smem.full, bytes);
    ptx::cp_async_bulk_load(smem.tile + 16, in, bytes, &smem.full);
    ptx::mbarrier_wait(&smem.full, 0);
    ptx::cp_async_bulk_store(out, smem.tile + 16, bytes);
    ptx::cp_async_bulk_commit();
    ptx::cp_async_bulk_wait_read<0>();
    ptx::mbarrier_inval(&smem.full);
  }
#endif
}

TEST(Bulk, BytesInARow) {
  FA_NEEDS_HOPPER;
  std::vector<uint8_t> bytes(4096);
  for (size_t i = 0; i < bytes.size(); i++) bytes[i] = uint8_t(i * 37 + i / 256 * 11);
  const Buffer in = upload("in", bytes);
  Buffer out("out", bytes.size());
  run<bulk_kernel>({dim3(1), dim3(32), sizeof(Storage)}, in, out, int(bytes.size()));
  EXPECT_EQ(download<uint8_t>(out), bytes);
}

// ---- sums ---------------------------------------------------------------------------------------
// Each warp of each CTA adds its floats to the same ones, 1 KB at a time. Integers, so the order of
// additions doesn't show.
struct SumStorage {
  alignas(16) float floats[4][256];
};
__global__ void sum_kernel(float* out, int rounds) {
#if FA_HOPPER
  auto& mine = shared_storage<SumStorage>().floats[threadIdx.x / 32];
  const int lane = threadIdx.x % 32;
  for (int i = lane; i < 256; i += 32)
    mine[i] = float(i + 1000 * int(threadIdx.x / 32) + int(blockIdx.x));
  ptx::fence_proxy_async();
  __syncwarp();
  if (lane == 0) {
    for (int round = 0; round < rounds; round++) {
      ptx::cp_reduce_async_bulk_add(out, mine, sizeof mine);
      ptx::cp_async_bulk_commit();
    }
    ptx::cp_async_bulk_wait<0>();
  }
#endif
}

TEST(Bulk, SumsOfAllWarpsAndCtas) {
  FA_NEEDS_HOPPER;
  constexpr int kCtas = 5, kWarps = 4, kRounds = 3;
  const Buffer out = upload("out", std::vector<float>(256, 0.5f));
  run<sum_kernel>({dim3(kCtas), dim3(kWarps * 32), sizeof(SumStorage)}, out, kRounds);
  const std::vector<float> sums = download<float>(out);
  for (int i = 0; i < 256; i++) {
    const int each =
        kCtas * kWarps * i + kCtas * 1000 * (0 + 1 + 2 + 3) + kWarps * (0 + 1 + 2 + 3 + 4);
    ASSERT_EQ(sums[size_t(i)], 0.5f + float(kRounds * each)) << i;
  }
}

// ---- rows in another order ----------------------------------------------------------------------
// A tensor of rows of 128 bytes as one of five dimensions: rows 4c + 2b + e of every 16 become rows
// 8b + 2c + e of the box.
__global__ void permuted_kernel(const __grid_constant__ TensorMap map, uint8_t* out, int group) {
#if FA_HOPPER
  auto& smem = shared_storage<Storage>();
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&smem.full, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(&smem.full, 64 * 128);
    ptx::cp_async_bulk_tensor_load_5d(smem.tile, &map, {0, 0, 0, 0, group}, &smem.full);
  }
  __syncthreads();
  ptx::mbarrier_wait(&smem.full, 0);
  for (int i = threadIdx.x; i < 64 * 128; i += 32) out[i] = smem.tile[i];
#endif
}

TEST(Rows, InAnotherOrderByFiveDimensions) {
  FA_NEEDS_HOPPER;
  constexpr uint64_t kRow = 128, kGroups = 6;
  std::vector<uint8_t> rows(kGroups * 16 * kRow);
  for (size_t i = 0; i < rows.size(); i++) rows[i] = uint8_t(i / kRow * 5 + i % kRow * 3);
  const Buffer in = upload("K", rows);
  Buffer out("out", 64 * kRow);
  const TensorMap map = make_tensor_map(
      static_cast<const uint8_t*>(in.data()), {kRow, 2, 4, 2, kGroups},
      {kRow, 4 * kRow, 2 * kRow, 16 * kRow}, {kRow, 2, 4, 2, 4}, SwizzleMode::k128Bytes);
  for (const int group : {1, 4}) {  // of the second box, half lies past the end
    run<permuted_kernel>({dim3(1), dim3(32), sizeof(Storage)}, map, out, group);
    const auto box = download<uint8_t>(out);
    for (int row = 0; row < 64; row++) {
      const int e = row % 2, c = row / 2 % 4, b = row / 8 % 2;
      const size_t from = size_t(16 * (group + row / 16) + 4 * c + 2 * b + e);
      for (int i = 0; i < int(kRow); i++) {
        const int at = row * int(kRow) + (i / 16 ^ row % 8) * 16 + i % 16;
        const int expected = from < kGroups * 16 ? rows[from * kRow + size_t(i)] : 0;
        ASSERT_EQ(int(box[size_t(at)]), expected) << "row " << row << ", byte " << i;
      }
    }
  }
}

// The way back: rows of the box to where the five dimensions say.
__global__ void returned_kernel(const __grid_constant__ TensorMap map, const uint8_t* rows,
                                int group) {
#if FA_HOPPER
  auto& smem = shared_storage<Storage>();
  for (int i = threadIdx.x; i < 64 * 128; i += 32) smem.tile[i] = rows[i];
  ptx::fence_proxy_async();
  __syncwarp();
  if (threadIdx.x == 0) {
    ptx::cp_async_bulk_tensor_store_5d(&map, {0, 0, 0, 0, group}, smem.tile);
    ptx::cp_async_bulk_commit();
    ptx::cp_async_bulk_wait<0>();
  }
#endif
}

TEST(Rows, ReturnToTheirPlacesByFiveDimensions) {
  FA_NEEDS_HOPPER;
  constexpr uint64_t kRow = 128, kGroups = 6;
  std::vector<uint8_t> rows(64 * kRow);
  for (size_t i = 0; i < rows.size(); i++)
    rows[i] = uint8_t(1 + (i / kRow * 5 + i % kRow * 3) % 255);
  const Buffer box = upload("rows", rows);
  for (const int group : {1, 4}) {  // of the second box, half lies past the end
    const Buffer out = upload("out", std::vector<uint8_t>(kGroups * 16 * kRow));
    const TensorMap map = make_tensor_map(
        static_cast<const uint8_t*>(out.data()), {kRow, 2, 4, 2, kGroups},
        {kRow, 4 * kRow, 2 * kRow, 16 * kRow}, {kRow, 2, 4, 2, 4}, SwizzleMode::k128Bytes);
    run<returned_kernel>({dim3(1), dim3(32), sizeof(Storage)}, map, box, group);
    const auto result = download<uint8_t>(out);
    std::vector<uint8_t> expected(result.size());
    for (int row = 0; row < 64; row++) {
      const int e = row % 2, c = row / 2 % 4, b = row / 8 % 2;
      const size_t to = size_t(16 * (group + row / 16) + 4 * c + 2 * b + e);
      for (int i = 0; i < int(kRow) && to < kGroups * 16; i++) {
        const int at = row * int(kRow) + (i / 16 ^ row % 8) * 16 + i % 16;
        expected[to * kRow + size_t(i)] = rows[size_t(at)];
      }
    }
    EXPECT_EQ(result, expected);
  }
}

// ---- a ring of stages over many laps ------------------------------------------------------------
constexpr int kStages = 2, kRounds = 37, kConsumers = 3;

struct RingStorage {
  alignas(128) uint32_t stages[kStages][64];
  uint64_t full[kStages], empty[kStages];
};

// Warp 0 fills the stages by TMA, one row a round, three warps read them. out[round][warp][lane]
__global__ void ring_kernel(const __grid_constant__ TensorMap map, uint32_t* out) {
#if FA_HOPPER
  auto& smem = shared_storage<RingStorage>();
  const int warp_idx = threadIdx.x / 32, lane_idx = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    ptx::prefetch_tensormap(&map);
    for (int stage = 0; stage < kStages; stage++) {
      ptx::mbarrier_init(&smem.full[stage], 1);
      ptx::mbarrier_init(&smem.empty[stage], kConsumers);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (warp_idx == 0) {
    if (ptx::elect_sync()) {
      for (int round = 0; round < kRounds; round++) {
        const int stage = round % kStages, phase = round / kStages % 2;
        ptx::mbarrier_wait(&smem.empty[stage], phase ^ 1);
        ptx::mbarrier_arrive_expect_tx(&smem.full[stage], 64 * 4);
        ptx::cp_async_bulk_tensor_load(smem.stages[stage], &map, {0, round}, &smem.full[stage]);
      }
    }
    return;
  }
  for (int round = 0; round < kRounds; round++) {
    const int stage = round % kStages, phase = round / kStages % 2;
    if (warp_idx == 1) {
      while (!ptx::mbarrier_try_wait(&smem.full[stage], phase)) {
      }
    } else {
      ptx::mbarrier_wait(&smem.full[stage], phase);
    }
    out[(round * kConsumers + warp_idx - 1) * 32 + lane_idx] =
        smem.stages[stage][lane_idx] + smem.stages[stage][63 - lane_idx];
    __syncwarp();
    if (lane_idx == 0) ptx::mbarrier_arrive(&smem.empty[stage]);
  }
#endif
}

void expect_ring() {
  std::vector<uint32_t> numbers(size_t(kRounds) * 64);
  for (size_t i = 0; i < numbers.size(); i++) numbers[i] = uint32_t(i * i);
  const Buffer in = upload("in", numbers);
  Buffer out("out", size_t(kRounds) * kConsumers * 32 * 4);
  const TensorMap map = rows_of(in, kRounds);
  run<ring_kernel>({dim3(1), dim3(32 * (1 + kConsumers)), sizeof(RingStorage)}, map, out);
  const auto sums = download<uint32_t>(out);
  for (size_t i = 0; i < sums.size(); i++) {
    const size_t row = i / (32 * kConsumers) * 64, lane = i % 32;
    ASSERT_EQ(sums[i], numbers[row + lane] + numbers[row + 63 - lane]) << i;
  }
}

TEST(Ring, OfManyLaps) {
  FA_NEEDS_HOPPER;
  expect_ring();
}

// ---- groups of stores ---------------------------------------------------------------------------
constexpr int kGroups = 9;

// One buffer of two at a time is filled with the group's number and stored to the group's row.
__global__ void groups_kernel(const __grid_constant__ TensorMap map) {
#if FA_HOPPER
  auto& smem = shared_storage<Storage>();
  for (int group = 0; group < kGroups; group++) {
    uint8_t* const buffer = smem.tile + group % 2 * 256;
    if (threadIdx.x == 0)
      ptx::cp_async_bulk_wait_read<1>();  // of the group before last: this buffer
    __syncthreads();
    reinterpret_cast<uint32_t*>(buffer)[threadIdx.x] = uint32_t(group * 100) + threadIdx.x;
    ptx::fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      ptx::cp_async_bulk_tensor_store(&map, {0, group}, buffer);
      ptx::cp_async_bulk_commit();
    }
  }
  if (threadIdx.x == 0) ptx::cp_async_bulk_wait<0>();
#endif
}

void expect_groups() {
  Buffer out("out", kGroups * 64 * 4);
  const TensorMap map = rows_of(out, kGroups);
  run<groups_kernel>({dim3(1), dim3(64), sizeof(Storage)}, map);
  const auto rows = download<uint32_t>(out);
  for (uint32_t i = 0; i < rows.size(); i++) ASSERT_EQ(rows[i], i / 64 * 100 + i % 64);
}

TEST(Groups, ABufferIsReusedWhenItHasBeenRead) {
  FA_NEEDS_HOPPER;
  expect_groups();
}

// ---- clusters -----------------------------------------------------------------------------------
struct ClusterStorage {
  alignas(128) uint32_t words[2][64];
  uint64_t full, ready;
};

// Each CTA loads half a tile and gives it to both; then each reads a word of the other's shared
// memory.
__global__ void cluster_kernel(const __grid_constant__ TensorMap map, uint32_t* out) {
#if FA_SM_90A
  auto& smem = shared_storage<ClusterStorage>();
  const int rank = ptx::cluster_ctarank(), thread = threadIdx.x;
  if (thread == 0) {
    ptx::mbarrier_init(&smem.full, 1);
    ptx::mbarrier_init(&smem.ready, 2);
    ptx::fence_mbarrier_init();
  }
  ptx::cluster_arrive();
  ptx::cluster_wait();
  if (thread == 0) {
    ptx::mbarrier_arrive_expect_tx(&smem.full, 2 * 256);
    ptx::cp_async_bulk_tensor_load_multicast(smem.words[rank], &map,
                                             {0, int(blockIdx.x / 2 * 2) + rank}, &smem.full, 0b11);
  }
  ptx::mbarrier_wait(&smem.full, 0);
  uint32_t* const mine = out + blockIdx.x * 256;
  mine[thread] = smem.words[0][thread];
  mine[64 + thread] = smem.words[1][thread];
  __syncthreads();
  smem.words[0][thread] = uint32_t(1000 * rank + thread);
  __syncthreads();
  if (thread < 2) ptx::mbarrier_arrive_cluster(&smem.ready, thread);  // one arrival at each CTA's
  ptx::mbarrier_wait(&smem.ready, 0);
  ptx::cluster_arrive();
  ptx::cluster_wait();
  mine[128 + thread] = *ptx::mapa(&smem.words[0][thread], rank ^ 1);
  mine[192 + thread] = uint32_t(rank * 10 + ptx::cluster_nctarank());
  ptx::cluster_arrive();
  ptx::cluster_wait();
#endif
}

void expect_clusters() {
  constexpr uint32_t kCtas = 6;
  std::vector<uint32_t> numbers(kCtas * 64);
  std::iota(numbers.begin(), numbers.end(), 5000u);
  const Buffer in = upload("in", numbers);
  Buffer out("out", kCtas * 256 * 4);
  const TensorMap map = rows_of(in, kCtas);
  run<cluster_kernel>({dim3(kCtas), dim3(64), sizeof(ClusterStorage), 2}, map, out);
  const auto words = download<uint32_t>(out);
  for (uint32_t cta = 0; cta < kCtas; cta++) {
    const uint32_t* const mine = &words[cta * 256];
    for (uint32_t i = 0; i < 64; i++) {
      ASSERT_EQ(mine[i], numbers[cta / 2 * 2 * 64 + i]);
      ASSERT_EQ(mine[64 + i], numbers[cta / 2 * 2 * 64 + 64 + i]);
      ASSERT_EQ(mine[128 + i], 1000 * (cta % 2 ^ 1) + i);
      ASSERT_EQ(mine[192 + i], cta % 2 * 10 + 2);
    }
  }
}

TEST(Clusters, MulticastAndDistributedSharedMemory) {
  FA_NEEDS_SM_90A;
  expect_clusters();
}

struct PushStorage {
  alignas(16) float4 parts[3][32];
  float numbers[3][32];
  uint64_t full;
};

// Each CTA of a cluster of three sends 32 vectors and numbers to each CTA, also to itself.
__global__ void push_kernel(float* out) {
#if FA_SM_90A
  auto& smem = shared_storage<PushStorage>();
  const int rank = ptx::cluster_ctarank(), lane = threadIdx.x;
  if (lane == 0) {
    ptx::mbarrier_init(&smem.full, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(&smem.full, 3 * 32 * 20);
  }
  __syncwarp();
  ptx::cluster_arrive();
  ptx::cluster_wait();
  for (int cta = 0; cta < 3; cta++) {
    const float first = float(1000 * rank + 100 * cta + lane);
    ptx::st_async(&smem.parts[rank][lane], float4{first, first + 0.25f, first + 0.5f, -first},
                  &smem.full, cta);
    ptx::st_async(&smem.numbers[rank][lane], 2 * first, &smem.full, cta);
  }
  ptx::mbarrier_wait(&smem.full, 0);
  for (int from = 0; from < 3; from++) {
    const float4 part = smem.parts[from][lane];
    float* const mine = out + ((blockIdx.x * 3 + from) * 32 + lane) * 5;
    mine[0] = part.x;
    mine[1] = part.y;
    mine[2] = part.z;
    mine[3] = part.w;
    mine[4] = smem.numbers[from][lane];
  }
#endif
}

TEST(Clusters, StAsyncBringsItsBytesToTheOtherCta) {
  FA_NEEDS_SM_90A;
  Buffer out("out", 6 * 3 * 32 * 5 * 4);
  run<push_kernel>({dim3(6), dim3(32), sizeof(PushStorage), 3}, out);
  const auto numbers = download<float>(out);
  for (size_t i = 0; i < numbers.size() / 5; i++) {
    const size_t cta = i / 96, from = i / 32 % 3, lane = i % 32;
    const auto first = float(1000 * from + 100 * (cta % 3) + lane);
    const std::array<float, 5> expected = {first, first + 0.25f, first + 0.5f, -first, 2 * first};
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), &numbers[i * 5])) << i;
  }
}

TEST(Clusters, AreWholePartsOfTheGrid) {
  const auto refusal = [](unsigned grid, int cluster, int capability = 90) {
    return test::error_of<std::runtime_error>([=] {
      check_cluster({dim3(grid), dim3(32), 0, cluster}, capability);
    });
  };
  EXPECT_EQ(refusal(6, 2), "no error");
  EXPECT_EQ(refusal(8, 8), "no error");
  EXPECT_EQ(refusal(5, 2),
            "a cluster has 1 to 8 CTAs, and the grid's x a multiple of them: not 2 in 5");
  EXPECT_NE(refusal(32, 16), "no error");
  EXPECT_NE(refusal(32, 0), "no error");
  EXPECT_EQ(refusal(6, 1, 80), "no error");
  EXPECT_EQ(refusal(6, 2, 80),
            "needs clusters, which a GPU has from compute capability 9.0 on, this one has 8.0");
}

// ---- elect.sync, setmaxnreg ---------------------------------------------------------------------
__global__ void elect_kernel(uint32_t* out) {
#if FA_HOPPER
  for (int turn = 0; turn < 3; turn++) {
    out[turn * 64 + threadIdx.x] = ptx::elect_sync() ? 1 : 0;
  }
#endif
}

TEST(Elect, OneLaneTheSameEachTime) {
  FA_NEEDS_HOPPER;
  Buffer out("out", 3 * 64 * 4);
  run<elect_kernel>({dim3(1), dim3(64)}, out);
  const auto elected = download<uint32_t>(out);
  for (size_t warp = 0; warp < 2; warp++) {
    const auto first = elected.begin() + std::ptrdiff_t(32 * warp);
    EXPECT_EQ(std::accumulate(first, first + 32, 0u), 1u);
    for (std::ptrdiff_t turn = 1; turn < 3; turn++) {
      EXPECT_TRUE(std::equal(first, first + 32, first + 64 * turn));
    }
  }
}

__global__ void __launch_bounds__(384, 1) registers_kernel(uint32_t* out) {
#if FA_SM_90A
  if (threadIdx.x < 128) {
    ptx::setmaxnreg_dec<24>();
    out[threadIdx.x] = 24;
  } else {
    ptx::setmaxnreg_inc<240>();
    out[threadIdx.x] = 240;
  }
#endif
}

TEST(Setmaxnreg, FromTheProducerToTheConsumers) {
  FA_NEEDS_SM_90A;
  Buffer out("out", 384 * 4);
  run<registers_kernel>({dim3(1), dim3(384)}, out);
  const auto registers = download<uint32_t>(out);
  for (size_t i = 0; i < registers.size(); i++) EXPECT_EQ(registers[i], i < 128 ? 24u : 240u);
}

// ---- tensor maps: what is refused ---------------------------------------------------------------
// Which maps a driver takes: golden/tma_probe.cu.
TEST(TensorMaps, SayWhichArgumentIsWrong) {
  FA_NEEDS_THE_GPU;
  const Buffer in("tensor", 65536);
  const auto* const data = static_cast<const uint16_t*>(in.data());
  const TensorMapArguments right{data,     TensorType::kUint16,   {128, 64}, {256},
                                 {64, 16}, SwizzleMode::k128Bytes};
  const auto error = [&](auto change) {
    TensorMapArguments wrong = right;
    change(wrong);
    return tensor_map_error(wrong);
  };
  using A = TensorMapArguments;
  EXPECT_EQ(error([](A&) {}), "");
  EXPECT_EQ(error([](A& a) { a.sizes.clear(); }), "a tensor has 1 to 5 dimensions, not 0");
  EXPECT_EQ(error([](A& a) { a.sizes.resize(6, 1); }), "a tensor has 1 to 5 dimensions, not 6");
  EXPECT_EQ(error([](A& a) { a.strides.clear(); }),
            "a tensor of 2 dimensions has 1 strides (the innermost has none), not 0");
  EXPECT_EQ(error([](A& a) {
              a.sizes = {8, 8, 8}, a.strides = {16, 128};
            }),
            "the box of a tensor of 3 dimensions has as many, not 2");
  EXPECT_EQ(error([&](A& a) { a.pointer = data + 4; }),
            "the tensor's address must be a multiple of 16 bytes");
  EXPECT_EQ(error([](A& a) { a.sizes[1] = 0; }), "size 1 must be 1 to 2^32 elements, not 0");
  EXPECT_EQ(error([](A& a) { a.box[1] = 257; }), "box size 1 must be 1 to 256 elements, not 257");
  EXPECT_EQ(error([](A& a) { a.box[1] = 0; }), "box size 1 must be 1 to 256 elements, not 0");
  EXPECT_EQ(error([](A& a) { a.strides[0] = 264; }),
            "the stride of dimension 1 must be a multiple of 16 bytes below 2^40, not 264");
  EXPECT_EQ(
      error([](A& a) { a.strides[0] = uint64_t(1) << 40; }),
      "the stride of dimension 1 must be a multiple of 16 bytes below 2^40, not 1099511627776");
  EXPECT_EQ(error([](A& a) { a.box[0] = 12; }),
            "the box's innermost size must be a multiple of 16 bytes, not 24");
  EXPECT_EQ(error([](A& a) { a.box[0] = 72; }),
            "with 128-byte swizzle the box's innermost size is at most 128 bytes, not 144");
  EXPECT_EQ(error([](A& a) {
              a.box[0] = 40;
              a.swizzle = SwizzleMode::k64Bytes;
            }),
            "with 64-byte swizzle the box's innermost size is at most 64 bytes, not 80");
  EXPECT_EQ(error([](A& a) {
              a.type = TensorType::kUint32;
              a.box = {256, 256};
              a.swizzle = SwizzleMode::kNone;
            }),
            "a box has at most 232448 bytes, what a CTA's shared memory has, not 262144");
  EXPECT_THROW(make_tensor_map(data, {128, 64}, {264}, {64, 16}, SwizzleMode::kNone), BackendError);
}

#ifndef __CUDACC__

// ---- the emulator alone: when copies happen, whoever runs first ---------------------------------
class AnyOrder : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (GetParam() == 1) emu::options().completion = emu::Completion::kEarly;
    if (GetParam() >= 2) {
      emu::options().completion = emu::Completion::kRandom;
      emu::options().schedule = emu::Schedule::kRandom;
      emu::options().seed = uint64_t(GetParam());
    }
  }
  void TearDown() override { emu::options() = {}; }
};
TEST_P(AnyOrder, Ring) { expect_ring(); }
TEST_P(AnyOrder, Groups) { expect_groups(); }
TEST_P(AnyOrder, Clusters) { expect_clusters(); }
INSTANTIATE_TEST_SUITE_P(Seeds, AnyOrder, testing::Range(0, 12));

// Late, a copy happens when nobody can go on without it, the latest first; early, at once.
std::vector<bool> copies_there(emu::Completion completion) {
  const std::vector<uint32_t> numbers(4 * 64, 7);
  const Buffer in = upload("in", numbers);
  const auto* const data = static_cast<const uint32_t*>(in.data());
  std::vector<bool> there;
  emu::options().completion = completion;
  emu::options().races = false;  // it looks at what is under way
  emu::launch("probe", dim3(1), dim3(1), sizeof(RingStorage), [&] {
    auto& smem = shared_storage<RingStorage>();
    const auto look = [&] {
      for (auto& stage : smem.stages) {
        there.push_back(*const_cast<const volatile uint32_t*>(stage) == 7);
      }
    };
    for (int stage = 0; stage < kStages; stage++) {
      ptx::mbarrier_init(&smem.full[stage], 1);
      ptx::mbarrier_arrive_expect_tx(&smem.full[stage], 256);
      ptx::cp_async_bulk_load(smem.stages[stage], data + 64 * stage, 256, &smem.full[stage]);
    }
    look();
    ptx::mbarrier_wait(&smem.full[1], 0);
    look();
    ptx::mbarrier_wait(&smem.full[0], 0);
    look();
  });
  emu::options() = {};
  return there;
}

TEST(Completion, LateOnlyWhatIsWaitedFor) {
  EXPECT_EQ(copies_there(emu::Completion::kLate),
            (std::vector<bool>{false, false, false, true, true, true}));
}
TEST(Completion, EarlyAtOnce) {
  EXPECT_EQ(copies_there(emu::Completion::kEarly), std::vector<bool>(6, true));
}

TEST(Completion, LateTheLatestFirst) {
  const Buffer in = upload("in", std::vector<uint32_t>(64, 7));
  const auto* const data = static_cast<const uint32_t*>(in.data());
  std::vector<int> order;
  emu::launch("probe", dim3(1), dim3(2), sizeof(RingStorage), [&] {
    auto& smem = shared_storage<RingStorage>();
    const int thread = threadIdx.x;
    if (thread == 0) {
      for (int stage = 0; stage < kStages; stage++) {
        ptx::mbarrier_init(&smem.full[stage], 1);
        ptx::fence_mbarrier_init();
        ptx::mbarrier_arrive_expect_tx(&smem.full[stage], 256);
        ptx::cp_async_bulk_load(smem.stages[stage], data, 256, &smem.full[stage]);
      }
    }
    __syncthreads();
    ptx::mbarrier_wait(&smem.full[thread], 0);
    order.push_back(thread);
  });
  EXPECT_EQ(order, (std::vector<int>{1, 0}));
}

// A store reads its shared memory late as well: what was written there too early is what arrives.
uint32_t stored(emu::Completion completion) {
  Buffer out("out", 256);
  auto* const data = static_cast<uint32_t*>(out.data());
  emu::options().completion = completion;
  emu::options().races = false;
  emu::launch("probe", dim3(1), dim3(1), sizeof(Storage), [&] {
    auto* const words = reinterpret_cast<volatile uint32_t*>(shared_storage<Storage>().tile);
    for (int i = 0; i < 64; i++) words[i] = 1;
    ptx::fence_proxy_async();
    ptx::cp_async_bulk_store(data, shared_storage<Storage>().tile, 256);
    ptx::cp_async_bulk_commit();
    for (int i = 0; i < 64; i++) words[i] = 2;
    ptx::cp_async_bulk_wait_read<0>();
    EXPECT_EQ(data[0] == 0xffffffffu, completion == emu::Completion::kLate) << "not written yet";
    for (int i = 0; i < 64; i++) words[i] = 3;
    ptx::cp_async_bulk_wait<0>();
  });
  emu::options() = {};
  return download<uint32_t>(out)[0];
}
// A reduction reads and adds as late, once.
float summed(emu::Completion completion) {
  const Buffer out = upload("out", std::vector<float>(64, 10));
  auto* const data = static_cast<float*>(out.data());
  emu::options().completion = completion;
  emu::options().races = false;
  emu::launch("probe", dim3(1), dim3(1), sizeof(Storage), [&] {
    auto* const floats = reinterpret_cast<volatile float*>(shared_storage<Storage>().tile);
    for (int i = 0; i < 64; i++) floats[i] = 1;
    ptx::fence_proxy_async();
    ptx::cp_reduce_async_bulk_add(data, shared_storage<Storage>().tile, 256);
    ptx::cp_async_bulk_commit();
    for (int i = 0; i < 64; i++) floats[i] = 2;
    ptx::cp_async_bulk_wait_read<0>();
    EXPECT_EQ(data[0] == 10, completion == emu::Completion::kLate) << "not added yet";
    ptx::cp_async_bulk_wait<0>();
  });
  emu::options() = {};
  return download<float>(out)[63];
}
TEST(Completion, ReductionsAddAtTheirWaits) {
  EXPECT_EQ(summed(emu::Completion::kLate), 12);
  EXPECT_EQ(summed(emu::Completion::kEarly), 11);
}
TEST(Completion, StoresReadAndWriteAtTheirWaits) {
  EXPECT_EQ(stored(emu::Completion::kLate), 2u);
  EXPECT_EQ(stored(emu::Completion::kEarly), 1u);
}

// CTA 0 waits for CTA 1, which waits for a copy before it answers. A copy happens late, but not
// after whoever looks at memory again and again.
TEST(Completion, ComesToCtasThatWaitForEachOther) {
  const Buffer in = upload("in", std::vector<uint32_t>(64, 7));
  const auto run = [&](int together) {
    const Buffer out = upload("out", std::vector<int>(1, 0));
    auto* const flag = static_cast<int*>(out.data());
    emu::options().together = together;
    emu::launch("probe", dim3(2), dim3(1), sizeof(RingStorage), [&] {
      if (blockIdx.x == 0) {
        while (ptx::load_acquire(flag) == 0) {
        }
        return;
      }
      auto& smem = shared_storage<RingStorage>();
      ptx::mbarrier_init(&smem.full[0], 1);
      ptx::fence_mbarrier_init();
      ptx::mbarrier_arrive_expect_tx(&smem.full[0], 256);
      ptx::cp_async_bulk_load(smem.stages[0], in.data(), 256, &smem.full[0]);
      ptx::mbarrier_wait(&smem.full[0], 0);
      ptx::store_release(flag, int(smem.stages[0][0]));
    });
    return download<int>(out)[0];
  };
  EXPECT_EQ(run(2), 7);
  EXPECT_CONTAINS(test::error_of<emu::LaunchError>([&] { run(1); }), "a later CTA");
  emu::options() = {};
}

// ---- the emulator alone: what is counted --------------------------------------------------------
TEST(Counted, CopiesAndBarriersByLine) {
  if (!emu::is_checked()) GTEST_SKIP() << "lines are counted in the checked build";
  emu::take_lines();
  expect_groups();
  expect_ring();
  std::map<emu::Kind, emu::Counts> found;
  for (const emu::LineCounts& line : emu::take_lines()) {
    if (line.kind < emu::Kind::kTmaLoad) continue;
    EXPECT_EQ(line.at.rfind("tests/test_tma.cpp:", 0), 0u) << line.at;
    found[line.kind] += line.counts;
  }
  EXPECT_EQ(found[emu::Kind::kTmaLoad].requests, unsigned(kRounds));
  EXPECT_EQ(found[emu::Kind::kTmaLoad].bytes, 256u * kRounds);
  EXPECT_EQ(found[emu::Kind::kTmaLoad].sectors, 8u * kRounds);
  EXPECT_EQ(found[emu::Kind::kTmaStore].requests, unsigned(kGroups));
  EXPECT_EQ(found[emu::Kind::kTmaStore].sectors_ideal, 8u * kGroups);
  // A round: the producer waits and arrives; three warps arrive, of which two wait once and one
  // polls.
  const emu::Counts barriers = found[emu::Kind::kMbarrier];
  EXPECT_GE(barriers.requests, 8u * kRounds);
  EXPECT_GT(barriers.waits, 0u);
}

TEST(Counted, ReductionsByTheirBytesAndSectors) {
  if (!emu::is_checked()) GTEST_SKIP() << "lines are counted in the checked build";
  emu::take_lines();
  const Buffer out = upload("out", std::vector<float>(256));
  run<sum_kernel>({dim3(2), dim3(64), sizeof(SumStorage)}, out, 1);
  emu::Counts found;
  for (const emu::LineCounts& line : emu::take_lines()) {
    if (line.kind == emu::Kind::kTmaReduce) found += line.counts;
  }
  EXPECT_EQ(found.requests, 4u);
  EXPECT_EQ(found.bytes, 4u * 1024);
  EXPECT_EQ(found.sectors, 4u * 32);
}

// ---- the emulator alone: what it refuses --------------------------------------------------------
template <typename Body>
std::string failure(int threads, Body body, int cluster = 1) {
  const std::string text = test::error_of<emu::LaunchError>([&] {
    emu::launch("probe", dim3(unsigned(cluster)), dim3(unsigned(threads)), sizeof(Storage), body,
                cluster);
  });
  if (text != "no error") EXPECT_CONTAINS(text, "tests/test_tma.cpp:");
  return text;
}

template <typename Body>
void refuses(const char* sentence, int threads, Body body, int cluster = 1) {
  EXPECT_CONTAINS(failure(threads, body, cluster), sentence);
}

uint64_t* full() { return &shared_storage<Storage>().full; }

TEST(Refusals, Mbarrier) {
  refuses("there is no mbarrier at byte", 1, [] { ptx::mbarrier_arrive(full()); });
  refuses("Missing: mbarrier_init", 1, [] { ptx::mbarrier_wait(full(), 0); });
  refuses("a phase has 1 to 1048575 arrivals, not 0", 1, [] { ptx::mbarrier_init(full(), 0); });
  refuses("is in use: one thread", 2, [] { ptx::mbarrier_init(full(), 1); });
  refuses("8 bytes of this CTA's shared memory", 1, [] {
    uint64_t elsewhere;
    ptx::mbarrier_init(&elsewhere, 1);
  });
}

TEST(Refusals, MbarrierOfOneArrival) {
  const auto refuses = [](const char* sentence, auto body) {
    tma_test::refuses(sentence, 1, [=] {
      ptx::mbarrier_init(full(), 1);
      body();
    });
  };
  refuses("there is no mbarrier at byte", [] {
    ptx::mbarrier_inval(full());
    ptx::mbarrier_arrive(full());
  });
  refuses("a parity is 0 or 1, not 2", [] { ptx::mbarrier_wait(full(), 2); });
  refuses("one arrival too many: all 1 of phase 0", [] {
    ptx::mbarrier_arrive_expect_tx(full(), 64);
    ptx::mbarrier_arrive(full());
  });
  refuses("a phase can expect 0 to 1048575 bytes",
          [] { ptx::mbarrier_expect_tx(full(), 1 << 20); });
  refuses("64 bytes more than expected have come", [] {
    ptx::mbarrier_complete_tx(full(), 64);
    ptx::mbarrier_arrive(full());
    ptx::mbarrier_wait(full(), 0);
  });
  refuses(emu::is_checked() ? "overwrites the mbarrier at byte" : "has been overwritten", [] {
    *const_cast<volatile uint64_t*>(full()) = 0;
    ptx::mbarrier_arrive(full());
  });
  // A thread that asks for ever.
  refuses("deadlock in probe", [] {
    while (!ptx::mbarrier_try_wait(full(), 0)) {
    }
  });
}

TEST(Refusals, ADeadlockNamesTheBarrierAndWhatItLacks) {
  const std::string text = failure(32, [] {
    if (threadIdx.x == 0) ptx::mbarrier_init(full(), 2);
    __syncthreads();
    if (threadIdx.x == 0) ptx::mbarrier_arrive_expect_tx(full(), 4096);
    ptx::mbarrier_wait(full(), 0);
  });
  EXPECT_CONTAINS(text, "deadlock in probe");
  EXPECT_CONTAINS(text, "waits in mbarrier.try_wait at ");
  EXPECT_CONTAINS(text, "the mbarrier at byte 16384 of shared memory (initialised at tests/");
  EXPECT_CONTAINS(text, "phase 0: 1 of 2 arrivals and 4096 bytes are still to come");
}

// A launch of one thread that loads a box of the tensor {64, 16} of 16-bit elements.
struct Box {
  int tile_byte = 0, column = 0, row = 0;
  int expected = 64 * 8 * 2;
  SwizzleMode mode = SwizzleMode::k128Bytes;
};

std::string load_box(Box box, int times = 1) {
  const Buffer in = upload("K", std::vector<uint16_t>(64 * 16, 3));
  const TensorMap map =
      make_tensor_map(static_cast<const uint16_t*>(in.data()), {64, 16}, {128}, {64, 8}, box.mode);
  return failure(1, [=] {
    auto& smem = shared_storage<Storage>();
    ptx::mbarrier_init(full(), 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(full(), box.expected);
    for (int i = 0; i < times; i++) {
      ptx::cp_async_bulk_tensor_load(smem.tile + box.tile_byte + i * 1024, &map,
                                     {box.column, box.row}, full());
    }
    ptx::mbarrier_wait(full(), 0);
  });
}

TEST(Refusals, TensorLoads) {
  EXPECT_EQ(load_box({}), "no error");
  EXPECT_CONTAINS(load_box({.tile_byte = 512}), "must be a multiple of 1024 bytes");
  EXPECT_CONTAINS(load_box({.tile_byte = 64, .mode = SwizzleMode::kNone}),
                  "must be a multiple of 128 bytes");
  EXPECT_CONTAINS(load_box({.tile_byte = kTileBytes + 1024}), "are not inside the SharedStorage");
  EXPECT_CONTAINS(load_box({.column = 4}), "is 8 bytes, not a multiple of 16");
  EXPECT_CONTAINS(load_box({.expected = 512}), "512 bytes more than were expected");
  EXPECT_CONTAINS(load_box({.expected = 2048}), "0 of 1 arrivals and 1024 bytes are still to come");
  EXPECT_CONTAINS(load_box({}, 2), "ends although 1 bulk copy is still under way");
  refuses("the tensor map was not made by make_tensor_map", 1, [] {
    const TensorMap map;
    ptx::mbarrier_init(full(), 1);
    ptx::cp_async_bulk_tensor_load(shared_storage<Storage>().tile, &map, {0}, full());
  });
}

TEST(Refusals, ACopyOverItsOwnMbarrier) {
  emu::options().races = false;  // which would find it first
  EXPECT_CONTAINS(load_box({.tile_byte = kTileBytes}), "has been overwritten before the copy of");
  emu::options() = {};
}

TEST(Refusals, TensorMaps) {
  const Buffer in = upload("K", std::vector<uint16_t>(64 * 16, 3));
  const auto* const data = static_cast<const uint16_t*>(in.data());
  const auto map = [](const uint16_t* tensor, uint64_t rows) {
    return make_tensor_map(tensor, {64, rows}, {128}, {64, 8}, SwizzleMode::k128Bytes);
  };
  const TensorMap flat = make_tensor_map(data, {1024}, {}, {64}, SwizzleMode::kNone);
  const auto load = [](const TensorMap& from, const auto& coords) {
    return failure(1, [&] {
      ptx::mbarrier_init(full(), 1);
      ptx::fence_mbarrier_init();
      ptx::cp_async_bulk_tensor_load(shared_storage<Storage>().tile, &from, coords, full());
    });
  };
  const int first[2] = {0, 0}, outside[2] = {0, 12}, one[1] = {0};
  EXPECT_CONTAINS(load(map(data, 32), outside), "past the end of global buffer K");
  EXPECT_CONTAINS(load(map(data, 32), one), "1 coordinates for a tensor of 2 dimensions");
  EXPECT_CONTAINS(load(map(nullptr, 16), first), "the tensor map's address is null");
  EXPECT_CONTAINS(load(flat, one), "ends while the bulk copy at tests/test_tma.cpp:");
}

// Not for a GPU: the fault would take it from this process. That an H200 refuses them:
// golden/tma_h200.txt.
template <int kRank>
std::string store_error(const std::vector<uint64_t>& sizes, const std::vector<uint32_t>& box,
                        const std::array<int, kRank>& coords) {
  std::vector<uint64_t> strides;
  uint64_t bytes = sizes[0] * 2;
  for (size_t i = 1; i < sizes.size(); bytes *= sizes[i++]) strides.push_back(bytes);
  const Buffer out("O", bytes);
  const TensorMap map = make_tensor_map(
      TensorMapArguments{out.data(), TensorType::kUint16, sizes, strides, box, SwizzleMode::kNone});
  return failure(1, [&] {
    int at[kRank];
    std::copy_n(coords.begin(), kRank, at);
    ptx::cp_async_bulk_tensor_store(&map, at, shared_storage<Storage>().tile);
  });
}

TEST(Refusals, StoresThatBeginBeforeTheTensor) {
  const auto sentence = [](int i, int at) {
    return "coordinate " + std::to_string(i) + " is " + std::to_string(at) +
           ": a store must not begin before the tensor";
  };
  EXPECT_CONTAINS(store_error<1>({1000}, {128}, {-16}), sentence(0, -16));
  EXPECT_CONTAINS(store_error<2>({248, 40}, {64, 16}, {64, -3}), sentence(1, -3));
  EXPECT_CONTAINS(store_error<2>({248, 40}, {64, 16}, {-8, 8}), sentence(0, -8));
  EXPECT_CONTAINS(store_error<2>({248, 40}, {64, 16}, {-64, 8}), sentence(0, -64));
  EXPECT_CONTAINS(store_error<2>({248, 40}, {64, 16}, {64, -16}), sentence(1, -16));
  EXPECT_CONTAINS(store_error<3>({64, 10, 4}, {64, 8, 3}, {0, -2, 2}), sentence(1, -2));
  EXPECT_CONTAINS(store_error<4>({64, 4, 3, 3}, {64, 2, 2, 2}, {0, 3, -1, 2}), sentence(2, -1));
}

TEST(Refusals, AStoreOverTheEndOfItsBuffer) {
  const auto store = [](size_t bytes) {
    const Buffer out("O", bytes);
    const TensorMap map =
        make_tensor_map(static_cast<uint16_t*>(out.data()), {250}, {}, {64}, SwizzleMode::kNone);
    return failure(1, [&] {
      auto& tile = shared_storage<Storage>().tile;
      for (int i = 0; i < 128; i++) tile[i] = 1;
      ptx::fence_proxy_async();
      ptx::cp_async_bulk_tensor_store(&map, {192}, tile);
      ptx::cp_async_bulk_commit();
      ptx::cp_async_bulk_wait<0>();
    });
  };
  EXPECT_EQ(store(512), "no error");
  EXPECT_CONTAINS(store(500), "past the end of global buffer O");
}

TEST(Refusals, BulkBytes) {
  const Buffer in("K", 256);
  const auto* const data = static_cast<const uint8_t*>(in.data());
  const auto load = [=](int to, int from, int bytes) {
    return failure(1, [=] {
      ptx::mbarrier_init(full(), 1);
      ptx::fence_mbarrier_init();
      ptx::cp_async_bulk_load(shared_storage<Storage>().tile + to, data + from, bytes, full());
    });
  };
  EXPECT_CONTAINS(load(0, 0, 24), "must be multiples of 16");
  EXPECT_CONTAINS(load(0, 8, 16), "must be multiples of 16");
  EXPECT_CONTAINS(load(8, 0, 16), "the shared address must be a multiple of 16 bytes");
  EXPECT_CONTAINS(load(0, 0, 272), "past the end of global buffer K");
}

// The CTA ends before its last copy.
TEST(Refusals, CopiesThatNobodyWaitsFor) {
  const Buffer in = upload("in", std::vector<uint32_t>(64, 7));
  const auto refuses = [&](const char* sentence, auto waits) {
    tma_test::refuses(sentence, 1, [&, waits] {
      ptx::mbarrier_init(full(), 1);
      ptx::fence_mbarrier_init();
      const auto load = [&] {
        ptx::mbarrier_arrive_expect_tx(full(), 256);
        ptx::cp_async_bulk_load(shared_storage<Storage>().tile, in.data(), 256, full());
      };
      waits(load);
    });
  };
  refuses("Nobody has waited for it. Missing: an mbarrier_wait for its phase.\n  Or: there is one",
          [](auto load) { load(); });
  refuses(
      ", was for phase 0, and this copy belongs to phase 1.\n  Probably there is one copy too "
      "many, or one wait too few.\n  Or: the parity of a wait is wrong",
      [](auto load) {
        load();
        ptx::mbarrier_wait(full(), 0);
        load();
      });
  refuses("this copy belongs to phase 0.\n  Probably the parity of a wait is wrong", [](auto load) {
    load();
    ptx::mbarrier_wait(full(), 1);
  });
}

TEST(Refusals, Clusters) {
  refuses("Missing: cluster_arrive", 1, [] { ptx::cluster_wait(); });
  const auto refuses_two = [](const char* sentence, auto body) { refuses(sentence, 1, body, 2); };
  refuses_two("this thread has arrived already", [] {
    ptx::cluster_arrive();
    ptx::cluster_arrive();
  });
  refuses_two("CTA 2 does not exist", [] { ptx::mapa(full(), 2); });
  refuses_two("CTA 0 of the cluster:", [] {
    ptx::mbarrier_init(full(), 1);
    if (ptx::cluster_ctarank() == 0) ptx::mbarrier_wait(full(), 0);
  });
  // The last CTA to look finds the first gone.
  refuses_two("has ended, and its shared memory with it", [] {
    if (ptx::cluster_ctarank() == 1) __syncthreads();
    ptx::mapa(full(), ptx::cluster_ctarank() ^ 1);
  });
}

TEST(Refusals, Setmaxnreg) {
  refuses("asks for 240: the CTA's pool has", 384, [] {
    if (threadIdx.x < 128) {
      ptx::setmaxnreg_dec<40>();
    } else {
      ptx::setmaxnreg_inc<240>();
    }
  });
  refuses("168 registers per thread", 384, [] { ptx::setmaxnreg_inc<160>(); });
  refuses("fewer than 176", 384, [] { ptx::setmaxnreg_dec<176>(); });
  refuses("but not by warp 3: all warps of a warpgroup must", 384, [] {
    if (threadIdx.x < 96) ptx::setmaxnreg_dec<24>();
  });
}

#endif

}  // namespace fa::tma_test
