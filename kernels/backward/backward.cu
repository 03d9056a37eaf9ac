// backward: the gradients dQ, dK and dV with wgmma and TMA.
//
// Idea         A CTA owns 128 keys and walks over the queries that see them. It computes S^T rather
//              than S, a key to a row, so that P^T comes out of the Tensor Cores as the A operand
//              of the product for dV. dK and dV stay in registers until the end. A third warpgroup
//              loads tiles, computes dQ from dS in shared memory and adds it to global memory.
// Bottleneck   Removed: in backward_mma a warp waits for each product, and adds dQ by atomics.
// Changed      From 14: five products per tile instead of two, and three roles instead of two.
// Limit        Of packed sequences a tile may hold rows of the next sequence, whose P are 0. If
//              there is a NaN or an infinity in them, the gradients of both become NaN.
// Run          cmake --build --preset emulator --target fa_gradient_tests &&
//              build/emulator/bin/fa_gradient_tests
#include <cstddef>

#include "common/launch/gradients.h"
#include "common/launch/launch.h"
#include "common/launch/slabs.h"
#include "common/launch/tensor_map.h"
#include "common/layout/swizzle.h"
#include "common/layout/wgmma.h"
#include "common/ptx/barrier.h"
#include "common/ptx/convert.h"
#include "common/ptx/elect.h"
#include "common/ptx/exp2.h"
#include "common/ptx/fence.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/setmaxnreg.h"
#include "common/ptx/tma.h"
#include "common/ptx/wgmma.h"
#include "kernels/backward/queries.h"

namespace fa::backward {

template <int kHeadDim>
struct Config {
  static constexpr int kWarpgroups = 2;             // with 64 keys each
  static constexpr int kBlockN = kWarpgroups * 64;  // keys per CTA
  static constexpr int kBlockM = kTileQueries;
  static constexpr int kThreads = (kWarpgroups + 1) * 128;  // the last: dQ and the loads
  // With 64 numbers per head the products of a tile take 1,280 cycles, and shared memory would take
  // 1,664. But registers have room for its factors K, V and dS^T, and for P^T next to dP^T.
  static constexpr bool kRoomy = kHeadDim == 64;
  static constexpr int kStages = kRoomy ? 4 : 3;  // tiles of Q and of dO in shared memory
  static constexpr int kSlabs = kHeadDim / 64;
  static constexpr int kLaunchRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kKeyRegisters = 216, kQueryRegisters = 72;
  static_assert(kWarpgroups * (kKeyRegisters - kLaunchRegisters) <=
                    kLaunchRegisters - kQueryRegisters,
                "otherwise a warpgroup would wait for registers without end");
  // Warpgroup g of keys has barrier kOwn + g. 0 is __syncthreads'.
  enum NamedBarrier : int { kOwn = 1, kStagger = kOwn + kWarpgroups };
};

template <typename T, int kHeadDim>
struct SharedStorage {
  using C = Config<kHeadDim>;
  // Tiles in slabs of 64 columns (common/launch/slabs.h), for wgmma and TMA.
  alignas(1024) T sK[C::kSlabs][C::kBlockN][64];
  alignas(1024) T sV[C::kSlabs][C::kBlockN][64];
  alignas(1024) T sQ[C::kStages][C::kSlabs][C::kBlockM][64];
  alignas(1024) T sdO[C::kStages][C::kSlabs][C::kBlockM][64];
  alignas(1024) T sdS[2][1][C::kBlockN][64];  // dS^T: a row is a key
  alignas(128) float sdQ[2][4][8][32][4];     // of each warp of the third warpgroup
  // Log-sum-exp and D of each query, in the order in which lanes need them (queries.h).
  alignas(128) float sStats[C::kStages][2][C::kBlockM];
  uint64_t k_full, v_full, q_full[C::kStages], do_full[C::kStages], ds_full[2], ds_empty[2];
};

// kMasked: not all queries of a tile may see all keys: with a causal mask, or where a sequence ends
// within a tile of keys. kInOrder: tiles of keys add to dQ one after the other (queries.h).
template <typename T, int kHeadDim, bool kMasked, bool kInOrder>
__global__ void __launch_bounds__(Config<kHeadDim>::kThreads, 1)
    backward_kernel(const __grid_constant__ ptx::TensorMap map_q,
                    const __grid_constant__ ptx::TensorMap map_k,
                    const __grid_constant__ ptx::TensorMap map_v,
                    const __grid_constant__ ptx::TensorMap map_do, const Shape shape, T* d_k,
                    T* d_v, const Strides k_strides, const Strides v_strides, int section,
                    bool causal, float scale) {
  using C = Config<kHeadDim>;
  using S = SharedStorage<T, kHeadDim>;
  constexpr int kTileBytes = C::kBlockM * kHeadDim * sizeof(T);
  auto& smem = shared_storage<S>();

  // ---- indices
  const Keys keys =
      shape.keys_of<kMasked, kInOrder>(int(blockIdx.x), C::kBlockN, section, kMasked && causal);
  const Place& at = keys.at;
  if (keys.first_key >= at.kv_len) return;
  const int warpgroup_idx = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int warp_idx = threadIdx.x / 32 % 4;
  const int lane_idx = threadIdx.x % 32;
  const int tiles = keys.tiles * keys.heads;  // of all heads that read these keys
  const bool unseen = kMasked && tiles == 0;  // by any query

  // ---- barriers
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&smem.k_full, 1);
    ptx::mbarrier_init(&smem.v_full, 1);
    for (int stage = 0; stage < C::kStages; stage++) {
      ptx::mbarrier_init(&smem.q_full[stage], 1);
      ptx::mbarrier_init(&smem.do_full[stage], 1);
    }
    for (int i = 0; i < 2; i++) {
      ptx::mbarrier_init(&smem.ds_full[i], C::kWarpgroups * 4);
      ptx::mbarrier_init(&smem.ds_empty[i], 4);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();

  // ---- dQ, and the loads
  if (warpgroup_idx == C::kWarpgroups) {
    ptx::setmaxnreg_dec<C::kQueryRegisters>();
    const auto load = [&](const ptx::TensorMap& map, auto& slabs, uint64_t* full, int row, int head,
                          int block) {
      for (int slab = 0; slab < C::kSlabs; slab++) {
        ptx::cp_async_bulk_tensor_load(slabs[slab], &map, {slab * 64, row, head, block}, full);
      }
    };
    // Both are for one thread: tile i of Q with its statistics, and of dO.
    const auto load_q = [&](int i, const QueryTile& tile) {
      uint64_t* const full = &smem.q_full[i % C::kStages];
      ptx::mbarrier_arrive_expect_tx(full, kTileBytes + sizeof smem.sStats[0]);
      load(map_q, smem.sQ[i % C::kStages], full, at.q_begin + tile.m_block * C::kBlockM, tile.head,
           at.block);
      ptx::cp_async_bulk_load(smem.sStats[i % C::kStages],
                              shape.stats + shape.tile(at, tile.head, tile.m_block) * kStats,
                              sizeof smem.sStats[0], full);
    };
    const auto load_do = [&](int i, const QueryTile& tile) {
      uint64_t* const full = &smem.do_full[i % C::kStages];
      ptx::mbarrier_arrive_expect_tx(full, kTileBytes);
      load(map_do, smem.sdO[i % C::kStages], full, at.q_begin + tile.m_block * C::kBlockM,
           tile.head, at.block);
    };
    const int kv_row = at.kv_begin + keys.first_key;
    QueryTile coming(keys);  // to be loaded next
    if (warp_idx == 0 && ptx::elect_sync() && !unseen) {
      ptx::prefetch_tensormap(&map_k);
      ptx::prefetch_tensormap(&map_q);
      ptx::prefetch_tensormap(&map_v);
      ptx::prefetch_tensormap(&map_do);
      ptx::mbarrier_arrive_expect_tx(&smem.k_full, sizeof smem.sK);
      load(map_k, smem.sK, &smem.k_full, kv_row, keys.kv_head, at.block);
      load_q(0, coming);
      ptx::mbarrier_arrive_expect_tx(&smem.v_full, sizeof smem.sV);
      load(map_v, smem.sV, &smem.v_full, kv_row, keys.kv_head, at.block);
      load_do(0, coming);
      for (int i = 1; i < min(C::kStages - 1, tiles); i++) {
        coming.next(keys);
        load_q(i, coming);
        load_do(i, coming);
      }
      coming.next(keys);
    }
    __syncwarp();
    float acc_dq[32];  // 64 columns of dQ
    const uint64_t desc_k = layout::mn_major_descriptor(ptx::shared_address(smem.sK), C::kBlockN);
    const uint64_t desc_ds = layout::mn_major_descriptor(ptx::shared_address(smem.sdS), C::kBlockN);
    QueryTile tile(keys);
    if (!unseen) ptx::mbarrier_wait(&smem.k_full, 0);
#pragma unroll 1
    for (int i = 0; i < tiles; i++) {
      ptx::mbarrier_wait(&smem.ds_full[i % 2], i / 2 % 2);
      // Both other warpgroups have waited for S of tile i, and groups end in order: so their
      // products of tile i - 1 are over, and its stage is free.
      if (warp_idx == 0 && ptx::elect_sync() && i + C::kStages - 1 < tiles) {
        load_q(i + C::kStages - 1, coming);
        load_do(i + C::kStages - 1, coming);
        coming.next(keys);
      }
      __syncwarp();
      const size_t its_tile = shape.tile(at, tile.head, tile.m_block);
      float* const to = shape.dq_sum + its_tile * (C::kBlockM * kHeadDim);
      tile.next(keys);
      const uint64_t desc_a = layout::advance(desc_ds, i % 2 * sizeof smem.sdS[0]);
#pragma unroll
      for (int slab = 0; slab < C::kSlabs; slab++) {
        ptx::wgmma_fence(acc_dq);
#pragma unroll
        for (int key = 0; key < C::kBlockN / 16; key++) {
          ptx::wgmma<T, 64, layout::Major::kMN, layout::Major::kMN>(
              acc_dq, layout::advance(desc_a, layout::mn_major_step(key)),
              layout::advance(desc_k, slab * sizeof smem.sK[0] + layout::mn_major_step(key)),
              key > 0);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>(acc_dq);
        if (slab == C::kSlabs - 1 && lane_idx == 0) ptx::mbarrier_arrive(&smem.ds_empty[i % 2]);
        if constexpr (kInOrder) {
          // The warp's other lanes wait for this one below.
          if (slab == 0 && lane_idx == 0) {
            await_next(&shape.next_tiles()[its_tile * 4 + warp_idx], keys.first_key / C::kBlockN);
          }
        }
        // [reduce]
        const int buffer = (i * C::kSlabs + slab) % 2;
        if (lane_idx == 0) ptx::cp_async_bulk_wait_read<1>();
        __syncwarp();
#pragma unroll
        for (int j = 0; j < 8; j++) {
          *reinterpret_cast<float4*>(smem.sdQ[buffer][warp_idx][j][lane_idx]) =
              float4{acc_dq[4 * j], acc_dq[4 * j + 1], acc_dq[4 * j + 2], acc_dq[4 * j + 3]};
        }
        ptx::fence_proxy_async();
        __syncwarp();
        if (lane_idx == 0) {
          ptx::cp_reduce_async_bulk_add(to + slab * 4096 + warp_idx * 1024,
                                        smem.sdQ[buffer][warp_idx],
                                        sizeof smem.sdQ[buffer][warp_idx]);
          ptx::cp_async_bulk_commit();
        }
        // [/reduce]
      }
      if constexpr (kInOrder) {
        if (lane_idx == 0) {
          set_next(&shape.next_tiles()[its_tile * 4 + warp_idx], keys.first_key / C::kBlockN);
        }
      }
    }
    if (lane_idx == 0) ptx::cp_async_bulk_wait<0>();
    return;
  }
  ptx::setmaxnreg_inc<C::kKeyRegisters>();

  // ---- registers
  float acc_s[32], acc_other[32];
  float(&acc_dp)[32] = C::kRoomy ? acc_other : acc_s;  // dP^T, else in the place of S^T
  float acc_dk[kHeadDim / 2], acc_dv[kHeadDim / 2];
  uint32_t rP[4][4], rS[4][4];  // P^T and dS^T as A fragments of 16 queries
  // What dS^T needs besides rP where dP^T takes the place of P^T: if T is bf16, with 8 bits, P^T
  // with 11, and if it is fp16, what rounding took away. Kept in fp32 P^T would take 32 registers
  // that are not there.
  constexpr bool kOfTwo = std::is_same_v<T, __half> && !C::kRoomy;  // dS^T takes P^T from both
  uint32_t rH[4][4];
  uint32_t rK[kHeadDim / 16][4], rV[kHeadDim / 16][4];  // roomy: A fragments of K and V
  // To 11 bits, as fp16 has them, but in fp32: reading rP again would take registers (T. J. Dekker,
  // A Floating-Point Technique for Extending the Available Precision, 1971).
  const auto rounded = [](float x) {
    const float by_far = 8193 * x;  // 2^13 + 1
    return by_far - (by_far - x);
  };
  const float scale_log2 = scale * kLog2e;
  const int row = warpgroup_idx * 64 + warp_idx * 16;  // the warp's first key in the tile

  // Descriptors differ in their lower halves alone, where addresses are: one addition of 32 bits
  // for each wgmma.
  const uint32_t base = ptx::shared_address(&smem) / 16;
  constexpr uint64_t kHighK = layout::k_major_descriptor(0) >> 32;
  constexpr uint32_t kLowK = uint32_t(layout::k_major_descriptor(0));
  constexpr uint64_t kHighMn = layout::mn_major_descriptor(0, C::kBlockM) >> 32;
  constexpr uint32_t kLowMn = uint32_t(layout::mn_major_descriptor(0, C::kBlockM));
  const auto k_major = [&](size_t offset, uint32_t from) {
    return kHighK << 32 | (kLowK + uint32_t(offset / 16) + from);
  };
  const auto mn_major = [&](size_t offset, uint32_t from) {
    return kHighMn << 32 | (kLowMn + uint32_t(offset / 16) + from);
  };
  const uint32_t rows_at = base + warpgroup_idx * (64 * 128 / 16);

  // S^T = K Q^T or dP^T = V dO^T.
  const auto multiply_rows = [&](float(&acc)[32], const auto& rA, size_t a, size_t b, int stage) {
    ptx::wgmma_fence(acc);
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; d++) {
      const uint64_t desc_b =
          k_major(b + layout::k_major_step(C::kBlockM, d), base + stage * (kTileBytes / 16));
      if constexpr (C::kRoomy) {
        ptx::wgmma<T, 64, layout::Major::kK>(acc, rA[d], desc_b, d > 0);
      } else {
        ptx::wgmma<T, 64, layout::Major::kK>(
            acc, k_major(a + layout::k_major_step(C::kBlockN, d), rows_at), desc_b, d > 0);
      }
    }
    ptx::wgmma_commit();
  };
  // Starts S^T of tile i; dP^T of tile i.
  const auto begin_s = [&](int i) {
    const int stage = i % C::kStages;
    ptx::mbarrier_wait(&smem.q_full[stage], i / C::kStages % 2);
    multiply_rows(acc_s, rK, offsetof(S, sK), offsetof(S, sQ), stage);
  };
  const auto begin_dp = [&](int i) {
    const int stage = i % C::kStages;
    ptx::mbarrier_wait(&smem.do_full[stage], i / C::kStages % 2);
    multiply_rows(acc_dp, rV, offsetof(S, sV), offsetof(S, sdO), stage);
  };
  // Takes away the scores of keys that a query of the tile does not see.
  const auto mask = [&](int m_block) {
    if (keys.whole(m_block, C::kBlockN)) return;
    // Element j: query j / 4 * 8 + j % 2 of the lane's, key j / 2 % 2 * 8.
    const int query = m_block * C::kBlockM + lane_idx % 4 * 2;
    const int key = keys.first_key + row + lane_idx / 4;
#pragma unroll
    for (int j = 0; j < 32; j++) {
      if (!keys.sees(query + j / 4 * 8 + j % 2, key + j / 2 % 2 * 8)) acc_s[j] = -INFINITY;
    }
  };
  // Reads the warp's 16 rows of K or V.
  const auto read_rows = [&](uint32_t(&r)[kHeadDim / 16][4], const auto& slabs) {
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; d++) {
      ptx::ldmatrix_x4(
          r[d], layout::chunk_address(slabs, row + lane_idx % 16, d * 16 + lane_idx / 16 * 8));
    }
    ptx::wgmma_fence(r);
  };

  QueryTile tile(keys);
  if (!unseen) ptx::mbarrier_wait(&smem.k_full, 0);
  if (warpgroup_idx == 1) ptx::barrier_sync(C::kStagger, 256);  // half a step behind the other
  if (unseen && warpgroup_idx == 0) ptx::barrier_arrive(C::kStagger, 256);
  if (C::kRoomy && !unseen) {
    read_rows(rK, smem.sK);
    begin_s(0);
    ptx::mbarrier_wait(&smem.v_full, 0);
    read_rows(rV, smem.sV);
  }
#pragma unroll 1
  for (int i = 0; i < tiles; i++) {
    const int stage = i % C::kStages, buffer = i % 2;
    if constexpr (C::kRoomy) {
      ptx::wgmma_wait<0>(acc_s, rP, rS);
      begin_dp(i);
    } else {
      begin_s(i);
      if (i == 0) ptx::mbarrier_wait(&smem.v_full, 0);
      ptx::wgmma_wait<0>(acc_s);
    }
    if constexpr (kMasked) {
      mask(tile.m_block);
      tile.next(keys);
    }
    // ---- 2^14 P^T
    const float4* const its_stats =
        reinterpret_cast<const float4*>(smem.sStats[stage][0]) + lane_idx % 4;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float4 lse = its_stats[4 * j];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float* const s = acc_s + 8 * j + 4 * h;
        const float even = h ? lse.z : lse.x, odd = h ? lse.w : lse.y;
        s[0] = ptx::exp2_approx(fmaf(s[0], scale_log2, -even));
        s[1] = ptx::exp2_approx(fmaf(s[1], scale_log2, -odd));
        s[2] = ptx::exp2_approx(fmaf(s[2], scale_log2, -even));
        s[3] = ptx::exp2_approx(fmaf(s[3], scale_log2, -odd));
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
          const float p0 = s[2 * pair], p1 = s[2 * pair + 1];
          if constexpr (kOfTwo) {
            const float kept0 = rounded(p0), kept1 = rounded(p1);
            rP[j][2 * h + pair] = ptx::pack<T>(kept0, kept1);
            rH[j][2 * h + pair] = ptx::pack<T>(p0 - kept0, p1 - kept1);
          } else {
            rP[j][2 * h + pair] = ptx::pack<T>(p0, p1);
            if constexpr (!C::kRoomy) rH[j][2 * h + pair] = ptx::pack<__half>(p0, p1);
          }
        }
      }
    }
    if constexpr (!C::kRoomy) begin_dp(i);
    // ---- dV += P^T dO, 2^14 times
    ptx::wgmma_fence(rP);
#pragma unroll
    for (int query = 0; query < C::kBlockM / 16; query++) {
      ptx::wgmma<T, kHeadDim, layout::Major::kMN>(
          acc_dv, rP[query],
          mn_major(offsetof(S, sdO) + layout::mn_major_step(query),
                   base + stage * (kTileBytes / 16)),
          query > 0 || i > 0);
    }
    ptx::wgmma_commit();
    // Registers 2n and 2n + 1 of P^T, which rP has as register n, as dS^T needs them.
    const auto p_of = [&](int j, int n) {
      if constexpr (C::kRoomy) return float2{acc_s[8 * j + 2 * n], acc_s[8 * j + 2 * n + 1]};
      float2 p = ptx::unpack<__half>(rH[j][n]);
      if constexpr (kOfTwo) {
        const float2 rest = ptx::unpack<T>(rP[j][n]);
        p.x += rest.x;
        p.y += rest.y;
      }
      return p;
    };
    // [ds]
    ptx::mbarrier_wait(&smem.ds_empty[buffer], (i / 2 + 1) % 2);
    if constexpr (kOfTwo) {
      ptx::wgmma_wait<0>(acc_dp, rP);
    } else {
      ptx::wgmma_wait<1>(acc_dp);
    }
    if (i == 0 && warpgroup_idx == 0) ptx::barrier_arrive(C::kStagger, 256);
      // ---- dS^T = P^T (dP^T - D), without scale
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float4 d = its_stats[16 + 4 * j];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const float* const dp = acc_dp + 8 * j + 4 * h;
        const float even = h ? d.z : d.x, odd = h ? d.w : d.y;
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
          const float2 p = p_of(j, 2 * h + pair);
          rS[j][2 * h + pair] = ptx::pack<T>(p.x * fmaf(dp[2 * pair], 1 / kP, -even),
                                             p.y * fmaf(dp[2 * pair + 1], 1 / kP, -odd));
        }
      }
      ptx::stmatrix_x4(rS[j], layout::chunk_address(smem.sdS[buffer], row + lane_idx % 16,
                                                    j * 16 + lane_idx / 16 * 8));
    }
    // Behind an `if` ptxas serialises all products (C7515), so the last tile has its S^T twice.
    if constexpr (C::kRoomy) begin_s(min(i + 1, tiles - 1));
    ptx::fence_proxy_async();
    if constexpr (C::kRoomy) {
      __syncwarp();
    } else {
      ptx::barrier_sync(C::kOwn + warpgroup_idx, 128);
    }
    if (lane_idx == 0) ptx::mbarrier_arrive(&smem.ds_full[buffer]);
    // [/ds]
    // ---- dK += dS^T Q
    if constexpr (C::kRoomy) ptx::wgmma_fence(rS);
    if constexpr (!C::kRoomy) ptx::wgmma_fence();
#pragma unroll
    for (int query = 0; query < C::kBlockM / 16; query++) {
      const uint64_t desc_q = mn_major(offsetof(S, sQ) + layout::mn_major_step(query),
                                       base + stage * (kTileBytes / 16));
      if constexpr (C::kRoomy) {
        ptx::wgmma<T, kHeadDim, layout::Major::kMN>(acc_dk, rS[query], desc_q, query > 0 || i > 0);
      } else {
        ptx::wgmma<T, kHeadDim, layout::Major::kMN>(
            acc_dk,
            k_major(offsetof(S, sdS) + layout::k_major_step(C::kBlockN, query),
                    rows_at + buffer * (sizeof smem.sdS[0] / 16)),
            desc_q, query > 0 || i > 0);
      }
    }
    ptx::wgmma_commit();
    if constexpr (!C::kRoomy && !kOfTwo) ptx::wgmma_wait<1>(rP);
  }

  // ---- epilogue: dV, then dK, through the place of V
  const auto store = [&](float(&sums)[kHeadDim / 2], float factor, T* to, const Strides& strides) {
#pragma unroll
    for (int n = 0; n < kHeadDim / 16; n++) {
      uint32_t r[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        r[i] = ptx::pack<T>(sums[8 * n + 2 * i] * factor, sums[8 * n + 2 * i + 1] * factor);
      }
      ptx::stmatrix_x4(
          r, layout::chunk_address(smem.sV, row + lane_idx % 16, n * 16 + lane_idx / 16 * 8));
    }
    __syncwarp();
    constexpr int kChunks = kHeadDim / 8;  // of 16 bytes, in a row
#pragma unroll
    for (int i = 0; i < 16 * kChunks / 32; i++) {
      const int its_row = (i * 32 + lane_idx) / kChunks, chunk = lane_idx % kChunks;
      const int key = keys.first_key + row + its_row;
      if (kMasked && key >= at.kv_len) continue;
      *reinterpret_cast<uint4*>(to + strides.at(at.block, keys.kv_head, at.kv_begin + key) +
                                chunk * 8) =
          *reinterpret_cast<const uint4*>(
              &smem.sV[chunk / 8][row + its_row][layout::swizzle(its_row, chunk % 8) * 8]);
    }
    __syncwarp();
  };
  ptx::wgmma_wait<0>(acc_dv, acc_dk, acc_s);
  if (unseen) {
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; i++) acc_dv[i] = acc_dk[i] = 0.0f;
  }
  ptx::barrier_sync(C::kOwn + warpgroup_idx, 128);  // all of its warps have read V
  store(acc_dv, 1 / kP, d_v, v_strides);
  store(acc_dk, scale, d_k, k_strides);
}

// ---- host ---------------------------------------------------------------------------------------
template <typename T, int kHeadDim>
struct Launcher {
  using C = Config<kHeadDim>;

  static size_t workspace_bytes(const Problem& p, size_t) { return backward::workspace_bytes(p); }

  static void run(const Gradients<T>& a) {
    const bool masked = a.mask == Mask::kCausal || a.kv_len % C::kBlockN != 0 || a.cu_seqlens_q;
    if (a.deterministic) {
      masked ? run_with<true, true>(a) : run_with<false, true>(a);
    } else {
      masked ? run_with<true, false>(a) : run_with<false, false>(a);
    }
  }
  template <bool kMasked, bool kInOrder>
  static void run_with(const Gradients<T>& a) {
    const bool causal = a.mask == Mask::kCausal;
    const int blocks = a.cu_seqlens_q ? 1 : a.batch;
    const Shape shape = shape_of<T, kHeadDim>(a);
    const auto map = [&](const T* tensor, int rows, int heads, const Strides& strides, int box) {
      return make_slab_map(tensor, kHeadDim, rows, heads, blocks, strides, uint32_t(box));
    };
    const int n_blocks = (a.kv_len + C::kBlockN - 1) / C::kBlockN;
    const int kv_heads = a.batch * a.kv_heads;
    launch_before<T, kHeadDim, kInOrder ? C::kBlockN : 0>(a, shape);
    if (n_blocks > 0) {
      launch<backward_kernel<T, kHeadDim, kMasked, kInOrder>>(
          {dim3(unsigned(n_blocks * kv_heads)), dim3(C::kThreads),
           sizeof(SharedStorage<T, kHeadDim>)},
          map(a.q, a.q_rows, a.heads, a.q_strides, C::kBlockM),
          map(a.k, a.kv_rows, a.kv_heads, a.k_strides, C::kBlockN),
          map(a.v, a.kv_rows, a.kv_heads, a.v_strides, C::kBlockN),
          map(a.d_o, a.q_rows, a.heads, a.o_strides, C::kBlockM), shape, a.d_k, a.d_v, a.k_strides,
          a.v_strides, section_of<T, kHeadDim>(a), causal, a.scale);
    }
    launch_after<T, kHeadDim>(a, shape);
  }
};

const GradientRegistration<Launcher> registration{"backward", Needs{90, true},
                                                  Takes{.causal = true,
                                                        .any_length = true,
                                                        .kv_heads = true,
                                                        .packed = true,
                                                        .strides = true,
                                                        .deterministic = true}};

}  // namespace fa::backward
