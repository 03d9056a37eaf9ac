// beyond/fp8: attention on numbers of eight bits.
//
// Idea         Q, K, V and P are e4m3, of which Tensor Cores multiply twice as many per cycle. Each
//              tile of 128 tokens of Q and K has a scale, and each head of V.
// Bottleneck   Removed: half of the cycles of QK^T and PV. The exponentials alone would then take
//              as long as both, so the FMA pipes compute seven of sixteen.
// Changed      From 15: TMA brings K's rows in the order that lets S become P in its registers, and
//              Q stays in registers. Row sums are a column of O, so they are of the rounded P.
//              Tensor Cores add e4m3 with 14 bits, so O is added to a sum in fp32 after every 1024
//              keys. A reference comes from the maximum of a row's first tile, and it rises only
//              where a later P would leave e4m3.
// Run          cmake --build --preset emulator --target fa_fp8_kernel_tests &&
//              build/emulator/bin/fa_fp8_kernel_tests
#pragma once

// IWYU pragma: begin_exports
#include <cuda_fp8.h>

#include <algorithm>
#include <cfloat>
#include <cstddef>
#include <cstdint>

#include "common/launch/launch.h"
#include "common/launch/problem.h"
#include "common/launch/quad.h"
#include "common/launch/slabs.h"
#include "common/launch/tensor_map.h"
#include "common/layout/swizzle.h"
#include "common/layout/wgmma.h"
#include "common/ptx/barrier.h"
#include "common/ptx/convert.h"
#include "common/ptx/convert_fp8.h"
#include "common/ptx/elect.h"
#include "common/ptx/exp2.h"
#include "common/ptx/fence.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/setmaxnreg.h"
#include "common/ptx/tma.h"
#include "common/ptx/wgmma_fp8.h"
// IWYU pragma: end_exports

namespace fa::fp8 {

using E4m3 = __nv_fp8_e4m3;
constexpr float kLog2e = 1.44269504f;

// kWindows: for more keys than a window has.
template <int kHeadDim, bool kWindows>
struct Config {
  static constexpr int kWarpgroups = 2;                     // consumers, 64 query rows each
  static constexpr int kBlockM = kWarpgroups * 64;          // query rows per CTA
  static constexpr int kBlockN = 128;                       // keys per tile
  static constexpr int kThreads = (kWarpgroups + 1) * 128;  // the last warpgroup is the producer
  // Turn i has tile i of K in stage i % kStages, and tile i - 1 of V in stage i % kStagesV.
  static constexpr int kStages = 4, kStagesV = kWindows ? 2 : 4;
  static constexpr int kWindow = 8;  // tiles whose O the Tensor Cores add up
  // O's columns, and eight whose V is one: there a lane finds the sums of its two rows.
  static constexpr int kColumnsO = kHeadDim + 8;
  // Warpgroups that start their products one after the other are faster where query tiles are
  // short, and slower where they are long (measured on an H200).
  static constexpr bool kOrdered = !kWindows;
  static constexpr float kTop = 6.0f;     // log2 of the largest P that a new reference allows
  static constexpr float kLimit = 8.75f;  // and of any P: 430, where e4m3 ends at 448
  static constexpr int kOnFmaPipes = 7;   // of a lane's 16 registers of P per tile
  // A launch gives all threads equally many registers; the producer returns what consumers need.
  static constexpr int kLaunchRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
  static_assert(kWarpgroups * (kConsumerRegisters - kLaunchRegisters) <=
                    kLaunchRegisters - kProducerRegisters,
                "otherwise a consumer would wait for registers without end");
  // Warpgroup g has barrier kMayStart + g. 0 is __syncthreads'.
  enum NamedBarrier : int { kMayStart = 1 };
};

// Scale of tile t of head h, heads counted over all sequences: head h % heads of block h / heads,
// where `group` neighbouring heads share one. With a tile_stride of 0 all tiles of a head have the
// same. Unless it is said otherwise all heads are in one block.
struct Scales {
  const float* first;  // null: 1
  uint32_t head_stride, tile_stride;
  uint32_t block_stride = 0, heads = UINT32_MAX, group = 1;

  __device__ float at(uint32_t head, uint32_t tile) const {
    if (!first) return 1.0f;
    return __ldg(first + size_t(head / heads) * block_stride +
                 size_t(head % heads / group) * head_stride + size_t(tile) * tile_stride);
  }
};

// What a launch computes. Heads of Q are counted over all sequences.
struct Shape {
  int seq_len, kv_len;
  uint32_t heads, all_heads;  // of a sequence; of all
  uint32_t group;             // neighbouring heads that share one head of K and V
  int diagonal;               // row i of a head sees the keys below min(kv_len, i + diagonal)
  bool causal;
  float scale;
  Scales q_scales, k_scales, v_scales;
};

// Warps w0..w3 of warpgroup g have 16 rows of S and O each; lane l has rows l/4 and l/4 + 8, and of
// S two of every 8 columns. In a register of P it needs four neighbouring keys of every 16. So a
// tile of K lies in shared memory in two halves, which two copies of TMA fill:
//
//   rows of sK, columns of S    0..63                     64..127
//   keys                        0, 1, 4, 5, 8, 9, ..      2, 3, 6, 7, 10, 11, ..
//   lane l, c = l%4, has        8j + 2c, 8j + 2c + 1      64 + 8j + 2c, 64 + 8j + 2c + 1
//   which are the keys          16j + 4c, 16j + 4c + 1    16j + 4c + 2, 16j + 4c + 3
//
// V lies transposed, a row per column of O, because wgmma wants 8-bit operands K-major.
template <typename T, int kHeadDim, bool kWindows>
struct SharedStorage {
  using C = Config<kHeadDim, kWindows>;
  // The swizzle depends on the address and repeats every 1024 bytes, hence the alignment.
  alignas(1024) uint8_t sQ[2][C::kWarpgroups][64][kHeadDim];  // [t % 2] of query tile t
  alignas(1024) uint8_t sK[C::kStages][2][C::kBlockN / 2][kHeadDim];
  alignas(1024) uint8_t sV[C::kStagesV][C::kColumnsO][C::kBlockN];  // the last eight rows: ones
  alignas(1024) T sO[C::kWarpgroups][kHeadDim / 64][64][64];
  // O of the windows before. Each thread reads and writes its own alone.
  float4 sums[kWindows ? C::kWarpgroups : 1][kWindows ? kHeadDim / 8 : 1][128];
  // full expects the producer's arrival and the bytes of the turn's two tiles; empty expects one
  // arrival per consumer warp when the turn is over.
  uint64_t full[C::kStages], empty[C::kStages], q_full[2][C::kWarpgroups];
  // o_full expects one arrival per warp of the consumer, o_empty that of the thread that stores.
  uint64_t o_full[C::kWarpgroups], o_empty[C::kWarpgroups];
  float k_scale[C::kStages];  // of the tile in the stage
};

// kMasked: some rows do not see all keys of their tiles. A turn is a tile of keys. Every query tile
// has at least two, the second perhaps past the end: in that turn the O before is stored.
template <typename T, int kHeadDim, bool kWindows, bool kMasked>
__global__ void __launch_bounds__(Config<kHeadDim, kWindows>::kThreads, 1)
    attention_kernel(const __grid_constant__ ptx::TensorMap map_q,
                     const __grid_constant__ ptx::TensorMap map_k,
                     const __grid_constant__ ptx::TensorMap map_v,
                     const __grid_constant__ ptx::TensorMap map_o,
                     const __grid_constant__ Shape shape) {
  using C = Config<kHeadDim, kWindows>;
  constexpr int kKBytes = C::kBlockN * kHeadDim;
  constexpr int kVBytes = C::kBlockN * kHeadDim;           // of a tile
  constexpr int kVStageBytes = C::kBlockN * C::kColumnsO;  // and the ones
  auto& smem = shared_storage<SharedStorage<T, kHeadDim, kWindows>>();

  // ---- indices
  // The value is the same in all lanes, and the shuffle tells the compiler so.
  const int warpgroup_idx = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int warp_idx = threadIdx.x / 32 % 4;  // within the warpgroup
  const int lane_idx = threadIdx.x % 32;
  const uint32_t m_blocks = (shape.seq_len + C::kBlockM - 1) / C::kBlockM;  // per head
  // This CTA has the query tiles blockIdx.x + t * gridDim.x of all heads, for t below its_tiles.
  const uint32_t its_tiles = (m_blocks * shape.all_heads - 1 - blockIdx.x) / gridDim.x + 1;
  struct QueryTile {
    uint32_t head, block;  // block: which 128 rows of its head
    uint32_t tiles;        // of keys
  };
  // Divisions are slow, so nobody calls it for each tile of keys.
  const auto query_tile = [&](uint32_t t) {
    const uint32_t number = blockIdx.x + t * gridDim.x;
    QueryTile tile{number / m_blocks, number % m_blocks, uint32_t(shape.kv_len) / C::kBlockN};
    if constexpr (kMasked) {
      if (shape.causal) {  // the longest first, so that no CTA begins one when others end
        tile.head = number % shape.all_heads;
        tile.block = m_blocks - 1 - number / shape.all_heads;
      }
      const int last_row = tile.block * C::kBlockM + C::kBlockM - 1;
      const int keys = min(shape.kv_len, last_row + shape.diagonal);
      tile.tiles = max(2, (keys + C::kBlockN - 1) / C::kBlockN);
    }
    return tile;
  };

  // ---- pointers
  // A row of Q or K is as long as its swizzle: 128 bytes, or with head_dim 64 half of that.
  constexpr auto kRowSwizzle =
      kHeadDim == 64 ? layout::SwizzleMode::k64Bytes : layout::SwizzleMode::k128Bytes;
  const uint64_t desc_k =
      layout::descriptor(ptx::shared_address(smem.sK), 16, 8 * kHeadDim, kRowSwizzle);
  const uint64_t desc_v = layout::k_major_descriptor(ptx::shared_address(smem.sV));

  // ---- barriers
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::kWarpgroups; i++) {
      ptx::mbarrier_init(&smem.q_full[0][i], 1);
      ptx::mbarrier_init(&smem.q_full[1][i], 1);
      ptx::mbarrier_init(&smem.o_full[i], 4);
      ptx::mbarrier_init(&smem.o_empty[i], 1);
    }
    for (int stage = 0; stage < C::kStages; stage++) {
      ptx::mbarrier_init(&smem.full[stage], 1);
      ptx::mbarrier_init(&smem.empty[stage], C::kWarpgroups * 4);
    }
    ptx::fence_mbarrier_init();
  }
  // Writes the ones, which no copy overwrites: rows all alike, so that no swizzle matters.
  constexpr int kWords = 8 * C::kBlockN / 4;
  for (int i = threadIdx.x; i < C::kStagesV * kWords; i += C::kThreads) {
    reinterpret_cast<uint32_t*>(smem.sV[i / kWords][kHeadDim])[i % kWords] = 0x38383838;
  }
  ptx::fence_proxy_async();  // makes them visible to wgmma, which reads by another path
  __syncthreads();           // all threads wait until barriers and ones are there

  // ---- producer
  if (warpgroup_idx == C::kWarpgroups) {
    ptx::setmaxnreg_dec<C::kProducerRegisters>();
    // One thread loads group after group: tile n_block of K with its scale, and tile n_block - 1 of
    // V. Before it replaces a tile it waits until the turn is over that had it.
    if (warp_idx == 0 && ptx::elect_sync()) {
      uint32_t n_block = 0;
      int v_head = 0, v_key = 0;
      const auto wait_until_over = [&](uint32_t turn) {
        ptx::mbarrier_wait(&smem.empty[turn % C::kStages], turn / C::kStages % 2);
      };
      const auto load_v = [&](uint64_t* full) {
        if (n_block >= C::kStagesV) wait_until_over(n_block - C::kStagesV);
        ptx::cp_async_bulk_tensor_load(smem.sV[n_block % C::kStagesV], &map_v, {v_key, 0, v_head},
                                       full);
      };
      for (uint32_t t = 0; t < its_tiles; t++) {
        const QueryTile tile = query_tile(t);
        const int sequence = tile.head / shape.heads;
        const int head = tile.head % shape.heads / shape.group;
        const uint32_t kv_head = tile.head / shape.group;  // over all sequences
        for (uint32_t n = 0; n < tile.tiles; n++, n_block++) {
          const uint32_t stage = n_block % C::kStages;
          const uint32_t last = (shape.kv_len - 1) / C::kBlockN;  // that has a scale
          const float k_scale = shape.k_scales.at(kv_head, kMasked ? min(n, last) : n);
          if (n_block >= C::kStages) wait_until_over(n_block - C::kStages);
          smem.k_scale[stage] = k_scale;  // seen by those who wait for the tile
          ptx::mbarrier_arrive_expect_tx(&smem.full[stage], kKBytes + (n_block > 0 ? kVBytes : 0));
          // [k-order]
          for (int half = 0; half < 2; half++) {  // two of every four keys
            ptx::cp_async_bulk_tensor_load_5d(
                smem.sK[stage][half], &map_k,
                {0, 2 * half, int(n * C::kBlockN / 4), head, sequence}, &smem.full[stage]);
          }
          // [/k-order]
          if (n_block > 0) load_v(&smem.full[stage]);
          v_head = kv_head;
          v_key = n * C::kBlockN;
        }
      }
      // The last turn has no tile of K.
      if (n_block >= C::kStages) wait_until_over(n_block - C::kStages);
      uint64_t* const full = &smem.full[n_block % C::kStages];
      ptx::mbarrier_arrive_expect_tx(full, kVBytes);
      load_v(full);
    }
    // One thread per consumer loads Q, and stores O two query tiles later, before the next Q.
    if (warp_idx > 0 && warp_idx <= C::kWarpgroups && ptx::elect_sync()) {
      const int consumer = warp_idx - 1;
      for (uint32_t t = 0; t < its_tiles + 2; t++) {
        if (t >= 2) {
          ptx::mbarrier_wait(&smem.o_full[consumer], t % 2);
          const QueryTile tile = query_tile(t - 2);
          const int row = tile.block * C::kBlockM + consumer * 64;
          for (int slab = 0; slab < kHeadDim / 64; slab++) {  // rows past the head are not written
            ptx::cp_async_bulk_tensor_store(
                &map_o,
                {slab * 64, row, int(tile.head % shape.heads), int(tile.head / shape.heads)},
                smem.sO[consumer][slab]);
          }
          ptx::cp_async_bulk_commit();
          ptx::cp_async_bulk_wait_read<0>();
          ptx::mbarrier_arrive(&smem.o_empty[consumer]);
        }
        if (t < its_tiles) {
          uint64_t* const full = &smem.q_full[t % 2][consumer];
          ptx::mbarrier_arrive_expect_tx(full, 64 * kHeadDim);
          const QueryTile tile = query_tile(t);
          const int row = tile.block * C::kBlockM + consumer * 64;  // zeros past the head's end
          ptx::cp_async_bulk_tensor_load(
              smem.sQ[t % 2][consumer], &map_q,
              {0, row, int(tile.head % shape.heads), int(tile.head / shape.heads)}, full);
        }
      }
      ptx::cp_async_bulk_wait<0>();  // waits until the last O is written
    }
    return;
  }
  ptx::setmaxnreg_inc<C::kConsumerRegisters>();

  // The turn's stage, and the phase of its barrier.
  uint32_t stage = 0, phase = 0;
  // Every warp calls it when a turn begins, to wait for both tiles.
  const auto wait_full = [&] { ptx::mbarrier_wait(&smem.full[stage], phase); };
  // Every warp calls it when it has finished reading them, so they may be replaced. No wait.
  const auto release = [&] {
    if (lane_idx == 0) ptx::mbarrier_arrive(&smem.empty[stage]);
    stage = (stage + 1) % C::kStages;
    phase ^= stage == 0;
  };

  // ---- registers
  float acc_s[C::kBlockN / 2];
  float acc_o[C::kColumnsO / 2];
  uint32_t rQ[kHeadDim / 32][4];       // A operand of the query tile
  uint32_t rP[2][C::kBlockN / 32][4];  // of two tiles in turn: one is read, the other is written
  // Each lane keeps statistics for two rows of its warpgroup: 16 * warp_idx + lane_idx / 4, and
  // that row + 8. row_ref (in log2) is subtracted from scores. row_sum is of the windows before,
  // and it and their O in `sums` still want to be multiplied by `pending`.
  float row_ref[2] = {}, row_sum[2] = {}, rescale[2] = {}, pending[2] = {1.0f, 1.0f};
  const float scale_log2 = shape.scale * kLog2e;
  float4(*const sums)[128] = smem.sums[kWindows ? warpgroup_idx : 0];  // its column: thread_idx
  const int thread_idx = threadIdx.x % 128;
  uint32_t t = 0;                  // counts this CTA's query tiles
  uint32_t n = 0, n_before = 0;    // the tile of QK^T, and that of PV, within their query tiles
  QueryTile tile = query_tile(0);  // the query tile of QK^T
  float q_scale;                   // of its scores, times log2(e)

  // Starts S = QK^T. After the fence acc_s belongs to the Tensor Cores until wgmma_wait returns it.
  const auto multiply_qk = [&] {
    const uint64_t desc = layout::advance(desc_k, stage * kKBytes);
    // Nobody reads these zeros. They tell the compiler that it need not keep the scores before.
#pragma unroll
    for (int i = 0; i < C::kBlockN / 2; i++) acc_s[i] = 0.0f;
    ptx::wgmma_fence();
#pragma unroll
    for (int d = 0; d < kHeadDim / 32; d++) {
      ptx::wgmma_fp8<E4m3, C::kBlockN>(acc_s, rQ[d], layout::advance(desc, d * 32), d > 0);
    }
    ptx::wgmma_commit();
  };
  // Starts O += PV of the turn's V, or O = PV at the begin of a window or query tile. P and acc_o
  // belong to the Tensor Cores until wgmma_wait, too.
  const auto multiply_pv = [&](const auto& p) {
    const bool accumulate = kWindows ? n_before % C::kWindow > 0 : n_before > 0;
    const uint64_t desc = layout::advance(desc_v, stage % C::kStagesV * kVStageBytes);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < C::kBlockN / 32; i++) {  // 32 keys each
      ptx::wgmma_fp8<E4m3, C::kColumnsO>(acc_o, p[i], layout::advance(desc, i * 32),
                                         i > 0 || accumulate);
    }
    ptx::wgmma_commit();
  };

  // Register r of P holds a row's four neighbouring keys r / 2 * 16 + lane_idx % 4 * 4 on, of row
  // r % 2. This is where S has the j-th of them, and which registers the FMA pipes compute.
  const auto element = [](int r, int j) {
    return r / 2 * 4 + r % 2 * 2 + j % 2 + j / 2 * (C::kBlockN / 4);
  };
  const auto on_fma_pipes = [](int r) {
    return r * C::kOnFmaPipes / 16 != (r + 1) * C::kOnFmaPipes / 16;
  };
  // [half-pair]
  // Two of P as fp16 without MUFU, from their places: (log2(P) + 15) / kMost, from 0 to 1.
  constexpr float kMost = 31743.0f / 1024.0f;  // log2 of the largest fp16 over the smallest step
  const auto exp2_pair = [&](float low, float high) {
    // A float of 256 + u / 2^15 ends in the bits of u. Those of u = 1024 (log2(P) + 15) are an fp16
    // with P's exponent, whose mantissa is the fraction of log2(P) and not yet of P.
    const auto bits = [&](float place) {
      return __float_as_uint(fmaf(place, 31743.0f / 32768.0f, 256.0f));
    };
    const uint32_t linear = __byte_perm(bits(low), bits(high), 0x5410);
    // With f the fraction and g = 1 + f, 2^f = 0.33716 g^2 - 0.016739 g + 0.681152 within 0.25 %.
    const uint32_t g = (linear & 0x03ff03ffu) | 0x3c003c00u;
    const uint32_t power = ptx::fma2(ptx::fma2(g, 0x35653565u, 0xa449a449u), g, 0x39733973u);
    return (linear & 0x7c007c00u) | (power & 0x03ff03ffu);
  };
  // [/half-pair]
  // Writes -inf over scores of keys that their rows do not see; it costs something in few tiles.
  const auto hide_keys = [&](float(&s)[C::kBlockN / 2]) {
    const int row = tile.block * C::kBlockM + warpgroup_idx * 64 + warp_idx * 16;
    const int key = n * C::kBlockN;
    if (key + C::kBlockN <= min(shape.kv_len, row + shape.diagonal)) return;
    int end[2];  // in this lane's keys
    for (int h = 0; h < 2; h++) {
      const int its_row = row + lane_idx / 4 + 8 * h;
      end[h] = min(shape.kv_len, its_row + shape.diagonal) - key - lane_idx % 4 * 4;
    }
#pragma unroll
    for (int r = 0; r < C::kBlockN / 8; r++) {
#pragma unroll
      for (int j = 0; j < 4; j++) {
        if (r / 2 * 16 + j >= end[r % 2]) s[element(r, j)] = -INFINITY;
      }
    }
  };
  // Sets the references of a query tile to the largest scores of its first tile of keys.
  const auto set_references = [&](const float(&s)[C::kBlockN / 2], float c) {
    // Even and odd columns of both rows form four independent chains.
    float chain[4] = {s[0], s[1], s[2], s[3]};
#pragma unroll
    for (int i = 4; i < C::kBlockN / 2; i++) chain[i % 4] = fmaxf(chain[i % 4], s[i]);
    const float most[2] = {layout::quad_max(fmaxf(chain[0], chain[1])),
                           layout::quad_max(fmaxf(chain[2], chain[3]))};
    // Finite, so that a row that sees no key has P = 2^-inf = 0.
    for (int h = 0; h < 2; h++) row_ref[h] = fmaxf(ceilf(most[h] * c) - C::kTop, -FLT_MAX);
  };
  // Computes P = 2^(S c - row_ref) as A operand, once S is complete. Where some P is too large for
  // e4m3, references rise before by whole numbers, for which rescaling is exact. Returns, the same
  // in all lanes of the warp, whether O must be rescaled once PV is complete: not here, because the
  // warp may be the only one, and all four must wait for PV together.
  const auto softmax = [&](auto& p, float c) -> bool {
    float s[C::kBlockN / 2];  // acc_s itself must not change while PV is under way
#pragma unroll
    for (int i = 0; i < C::kBlockN / 2; i++) s[i] = acc_s[i];
    if constexpr (kMasked) hide_keys(s);
    if (n == 0) set_references(s, c);

    // e: log2 of P for MUFU, its place for the FMA pipes, where a NaN becomes 0: so one of K may be
    // missing from some rows of O. Floats above zero are ordered as their bits are, and what is
    // below is too small to matter.
    float e[C::kBlockN / 8][4];
    int most[2] = {0, 0}, most_placed[2] = {0, 0};  // the bits of the largest
    const auto place_exponents = [&](int r) {
      const float offset = (15.0f - row_ref[r % 2]) * (1.0f / kMost);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        e[r][j] = on_fma_pipes(r) ? __saturatef(fmaf(s[element(r, j)], c * (1.0f / kMost), offset))
                                  : fmaf(s[element(r, j)], c, -row_ref[r % 2]);
      }
    };
#pragma unroll
    for (int r = 0; r < C::kBlockN / 8; r++) {
      place_exponents(r);
      int& its = on_fma_pipes(r) ? most_placed[r % 2] : most[r % 2];
#pragma unroll
      for (int j = 0; j < 4; j++) its = max(its, __float_as_int(e[r][j]));
    }
    const bool large =
        max(most[0], most[1]) > __float_as_int(C::kLimit) ||
        max(most_placed[0], most_placed[1]) > __float_as_int((C::kLimit + 15.0f) / kMost);
    const bool rise = __any_sync(0xffffffffu, large);
    if (rise) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float its =
            fmaxf(__int_as_float(most[h]), fmaf(__int_as_float(most_placed[h]), kMost, -15.0f));
        if (most_placed[h] == __float_as_int(1.0f)) {  // the last place: P may be larger still
#pragma unroll
          for (int r = h; r < C::kBlockN / 8; r += 2) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
              if (on_fma_pipes(r)) its = fmaxf(its, fmaf(s[element(r, j)], c, -row_ref[h]));
            }
          }
        }
        its = layout::quad_max(its);
        const float by = its > C::kLimit ? ceilf(its) - C::kTop : 0.0f;
        row_ref[h] += by;
        rescale[h] = ptx::exp2_approx(-by);
#pragma unroll
        for (int r = h; r < C::kBlockN / 8; r += 2) {
          if (on_fma_pipes(r)) {
            place_exponents(r);
          } else {
#pragma unroll
            for (int j = 0; j < 4; j++) e[r][j] -= by;
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < C::kBlockN / 8; r++) {
      uint32_t& to = p[r / 4][r % 4];
      if (on_fma_pipes(r)) {
        to = ptx::pack_fp8<E4m3>(exp2_pair(e[r][0], e[r][1]), exp2_pair(e[r][2], e[r][3]));
      } else {
        to = ptx::pack_fp8<E4m3>(ptx::exp2_approx(e[r][0]), ptx::exp2_approx(e[r][1]),
                                 ptx::exp2_approx(e[r][2]), ptx::exp2_approx(e[r][3]));
      }
    }
    return rise && n > 0;  // in the first tile there is no O yet
  };
  // Multiplies O by rescale, and notes that the sums of the windows before need it, too. Every warp
  // whose references rose calls it when no PV is under way.
  const auto rescale_o = [&] {
#pragma unroll
    for (int i = 0; i < C::kColumnsO / 2; i++) acc_o[i] *= rescale[i / 2 % 2];
    for (int h = 0; h < 2; h++) pending[h] *= rescale[h];
  };
  // [window]
  // Ends a window: adds O to the sums of those before, if there are any. The next PV sets O anew.
  const auto end_window = [&] {
    const bool first = n_before < C::kWindow;
#pragma unroll
    for (int i = 0; i < kHeadDim / 8; i++) {
      const float4 before = first ? float4{} : sums[i][thread_idx];
      sums[i][thread_idx] = {fmaf(before.x, pending[0], acc_o[4 * i]),
                             fmaf(before.y, pending[0], acc_o[4 * i + 1]),
                             fmaf(before.z, pending[1], acc_o[4 * i + 2]),
                             fmaf(before.w, pending[1], acc_o[4 * i + 3])};
    }
    for (int h = 0; h < 2; h++) {
      row_sum[h] = (first ? 0.0f : row_sum[h] * pending[h]) + acc_o[kHeadDim / 2 + 2 * h];
      pending[h] = 1.0f;
    }
  };
  // [/window]
  // Stages O of query tile t - 1 in this warp's rows of sO, once the O before is stored.
  const auto store_o = [&] {
    const QueryTile its = query_tile(t - 1);
    float total[2] = {acc_o[kHeadDim / 2], acc_o[kHeadDim / 2 + 2]};
    if (kWindows && its.tiles > C::kWindow) {
#pragma unroll
      for (int i = 0; i < kHeadDim / 8; i++) {
        const float4 before = sums[i][thread_idx];
        acc_o[4 * i] = fmaf(before.x, pending[0], acc_o[4 * i]);
        acc_o[4 * i + 1] = fmaf(before.y, pending[0], acc_o[4 * i + 1]);
        acc_o[4 * i + 2] = fmaf(before.z, pending[1], acc_o[4 * i + 2]);
        acc_o[4 * i + 3] = fmaf(before.w, pending[1], acc_o[4 * i + 3]);
      }
      for (int h = 0; h < 2; h++) total[h] = fmaf(row_sum[h], pending[h], total[h]);
    }
    float factor[2];
    for (int h = 0; h < 2; h++) {  // a row that sees no key becomes zeros
      const float v_scale = shape.v_scales.at(its.head / shape.group, 0);
      factor[h] = kMasked && total[h] == 0.0f ? 0.0f : __fdividef(1.0f, total[h]) * v_scale;
    }
    ptx::mbarrier_wait(&smem.o_empty[warpgroup_idx], t % 2);
    T(*const sO)[64][64] = smem.sO[warpgroup_idx];  // [kHeadDim / 64][64][64]
#pragma unroll
    for (int i = 0; i < kHeadDim / 16; i++) {  // 16 columns per step
      uint32_t rO[4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        rO[j] = ptx::pack<T>(acc_o[8 * i + 2 * j] * factor[j % 2],
                             acc_o[8 * i + 2 * j + 1] * factor[j % 2]);
      }
      ptx::stmatrix_x4(
          rO, layout::chunk_address(sO, warp_idx * 16 + lane_idx % 16, i * 16 + lane_idx / 16 * 8));
    }
    pending[0] = pending[1] = 1.0f;
    ptx::fence_proxy_async();  // makes O visible to TMA, which reads by another path
    __syncwarp();              // lane 0 waits until all lanes have stored and fenced O
    if (lane_idx == 0) ptx::mbarrier_arrive(&smem.o_full[warpgroup_idx]);
  };

  // Warpgroup g waits at barrier kMayStart + g before its products; the warpgroup before it arrives
  // there when it has started its own. They still run then, but those started later queue behind.
  const auto begin_products = [&] {
    if (C::kOrdered) ptx::barrier_sync(C::kMayStart + warpgroup_idx, 256);
  };
  const auto end_products = [&](bool last) {
    const int next = warpgroup_idx + 1 < C::kWarpgroups ? warpgroup_idx + 1 : 0;
    // No warpgroup waits after the very last products.
    if (C::kOrdered && (!last || next > 0)) ptx::barrier_arrive(C::kMayStart + next, 256);
  };
  if (warpgroup_idx == C::kWarpgroups - 1) end_products(false);  // warpgroup 0 may start first

  // Waits for Q of query tile t and loads it: two chunks of 16 bytes for 32 columns.
  const auto begin_query_tile = [&] {
    ptx::mbarrier_wait(&smem.q_full[t % 2][warpgroup_idx], t / 2 % 2);
    const uint32_t row =
        ptx::shared_address(smem.sQ[t % 2][warpgroup_idx][warp_idx * 16 + lane_idx % 16]);
#pragma unroll
    for (int d = 0; d < kHeadDim / 32; d++) {
      ptx::ldmatrix_x4(rQ[d],
                       layout::swizzle_address(kRowSwizzle, row + d * 32 + lane_idx / 16 * 16));
    }
    tile = query_tile(t);
    q_scale = shape.q_scales.at(tile.head, tile.block) * scale_log2;
  };
  // What the turn's scores are multiplied by. Lane 0 reads for all lanes, because it alone tells
  // the producer that the tile's scale may be replaced. A scale of 0, as a tile of zeros may have
  // it, would make a NaN of the -inf of hidden keys.
  const auto score_scale = [&] {
    const float k_scale = lane_idx == 0 ? smem.k_scale[stage] : 0.0f;
    const float c = __shfl_sync(0xffffffffu, k_scale, 0) * q_scale;
    return c == 0.0f ? FLT_MIN : c;
  };
  // Goes on to the next tile of keys, of the same query tile or of the next one. False: none left.
  const auto next = [&]() -> bool {
    n_before = n;
    if (++n < tile.tiles) return true;
    n = 0;
    if (++t == its_tiles) return false;
    begin_query_tile();
    return true;
  };
  // A turn starts S of tile n and O += PV of the tile before, computes P under that PV, and waits
  // for it.
  const auto turn = [&](auto& p_before, auto& p) {
    wait_full();
    begin_products();
    multiply_qk();
    if (n == 1 && t > 0) store_o();  // QK^T goes on
    multiply_pv(p_before);
    end_products(false);
    const float c = score_scale();
    ptx::wgmma_wait<1>(acc_s);
    const bool risen = softmax(p, c);
    ptx::wgmma_wait<0>(acc_o, p_before);
    release();
    if (risen) rescale_o();  // all lanes of the warp, or none
    // The last window of a query tile ends in store_o.
    if (kWindows && n > 0 && n % C::kWindow == 0) end_window();
  };

  // ---- prologue
  begin_query_tile();
  wait_full();
  multiply_qk();
  const float c = score_scale();
  ptx::wgmma_wait<0>(acc_s);
  release();
  softmax(rP[0], c);

  // ---- main loop
  // Registers cannot be indexed, so each of two turns names its P.
  bool last_is_odd = false;
  while (next()) {
    turn(rP[0], rP[1]);
    last_is_odd = !next();
    if (last_is_odd) break;
    turn(rP[1], rP[0]);
  }

  // ---- epilogue
  wait_full();
  begin_products();
  last_is_odd ? multiply_pv(rP[1]) : multiply_pv(rP[0]);
  end_products(true);
  ptx::wgmma_wait<0>(acc_o, rP[0], rP[1]);
  store_o();
}

// ---- host ---------------------------------------------------------------------------------------
// The arguments of a launch. K's last rows are read four at a time: up to three rows behind the end
// of K must be readable.
template <typename T>
struct Inputs {
  const uint8_t* q;  // e4m3: [batch, heads, seq_len, head_dim], q_strides apart
  const uint8_t* k;  // e4m3: [batch, kv_heads, kv_len, head_dim], k_strides apart
  const uint8_t* v;  // e4m3: [batch, kv_heads, head_dim, kv_len rounded up to 128]
  T* o;              // [batch, heads, seq_len, head_dim], o_strides apart
  Scales q_scales, k_scales;
  Scales v_scales;  // per head: PV adds up tiles, which therefore share a scale
  int batch, heads, kv_heads, seq_len, kv_len;
  float scale;
  Mask mask;
  Strides q_strides, k_strides, o_strides;  // multiples of 16 bytes
};

template <typename T, int kHeadDim>
struct Launcher {
  static void run(const Inputs<T>& a) {
    const bool masked = a.mask == Mask::kCausal || a.kv_len % 128 != 0 || a.kv_len < 256;
    const bool windows = a.kv_len > Config<kHeadDim, true>::kWindow * 128;
    if (masked) {
      windows ? run_with<true, true>(a) : run_with<false, true>(a);
    } else {
      windows ? run_with<true, false>(a) : run_with<false, false>(a);
    }
  }
  template <bool kWindows, bool kMasked>
  static void run_with(const Inputs<T>& a) {
    using C = Config<kHeadDim, kWindows>;
    using layout::SwizzleMode;
    const auto row_swizzle = kHeadDim == 64 ? SwizzleMode::k64Bytes : SwizzleMode::k128Bytes;
    const uint64_t seq_len = a.seq_len, kv_len = a.kv_len, heads = a.heads, kv_heads = a.kv_heads;
    const uint64_t batch = a.batch, padded = (kv_len + 127) / 128 * 128;
    const auto bytes = [](long long elements) { return uint64_t(elements); };
    const ptx::TensorMap map_q =
        make_tensor_map(a.q, {kHeadDim, seq_len, heads, batch},
                        {bytes(a.q_strides.row), bytes(a.q_strides.head), bytes(a.q_strides.block)},
                        {kHeadDim, 64, 1, 1}, row_swizzle);
    // Rows in fours: a box has two of each.
    const ptx::TensorMap map_k =
        make_tensor_map(a.k, {kHeadDim, 4, (kv_len + 3) / 4, kv_heads, batch},
                        {bytes(a.k_strides.row), bytes(4 * a.k_strides.row),
                         bytes(a.k_strides.head), bytes(a.k_strides.block)},
                        {kHeadDim, 2, C::kBlockN / 4, 1, 1}, row_swizzle);
    // Keys past the end are zeros, whatever the padding holds.
    const ptx::TensorMap map_v =
        make_tensor_map(a.v, {kv_len, kHeadDim, kv_heads * batch}, {padded, padded * kHeadDim},
                        {C::kBlockN, kHeadDim, 1}, SwizzleMode::k128Bytes);
    const ptx::TensorMap map_o =
        make_slab_map(a.o, kHeadDim, a.seq_len, a.heads, a.batch, a.o_strides, 64);
    const int m_blocks = (a.seq_len + C::kBlockM - 1) / C::kBlockM;
    const int query_tiles = a.batch * a.heads * m_blocks;
    const bool causal = a.mask == Mask::kCausal;
    const Shape shape{a.seq_len,
                      a.kv_len,
                      uint32_t(a.heads),
                      uint32_t(a.batch * a.heads),
                      uint32_t(a.heads / a.kv_heads),
                      causal ? a.kv_len - a.seq_len + 1 : a.kv_len,
                      causal,
                      a.scale,
                      a.q_scales,
                      a.k_scales,
                      a.v_scales};
    launch<attention_kernel<T, kHeadDim, kWindows, kMasked>>(
        {dim3(std::min(query_tiles, sm_count())), dim3(C::kThreads),
         sizeof(SharedStorage<T, kHeadDim, kWindows>)},
        map_q, map_k, map_v, map_o, shape);
  }
};

}  // namespace fa::fp8
