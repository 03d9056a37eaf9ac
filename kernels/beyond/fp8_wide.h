// beyond/fp8 with a head_dim of 256.
//
// Idea         That of fp8.h. A row of O is twice as long, and so are the products of a tile, but
//              its exponentials are no more than before: MUFU computes them all.
// Bottleneck   Registers and shared memory, hence other tiles than there.
//              Of a consumer's 240 registers O has 128, the sums of P have 4, and Q has 32. With 64
//              keys per tile S has 32 and P 8, which leaves 36; with 128 keys all would have 244.
//              A tile of K has 16 KB, one of V 16.5 KB with its ones. O of the windows before has
//              128 KB. Of the 227 KB of a CTA that leaves three stages, or five without windows,
//              where there are 64 KB for O on its way out. Q has no place of its own.
// Changed      From fp8.h: Q comes in a stage, as if it were a tile of keys. O is two accumulators,
//              because wgmma has at most 256 columns, and each warp stores its rows of O itself,
//              from where its sums were.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cstddef>
#include <cstdint>

#include "kernels/beyond/fp8.h"

namespace fa::fp8 {

template <bool kWindows>
struct WideConfig {
  static constexpr int kHeadDim = 256;
  static constexpr int kWarpgroups = 2;                     // consumers, 64 query rows each
  static constexpr int kBlockM = kWarpgroups * 64;          // query rows per CTA
  static constexpr int kBlockN = 64;                        // keys per tile
  static constexpr int kThreads = (kWarpgroups + 1) * 128;  // the last warpgroup is the producer
  static constexpr int kStages = kWindows ? 3 : 5;
  static constexpr int kWindow = 16;  // tiles whose O the Tensor Cores add up
  // Columns of O per accumulator. The second one has eight more, whose V is one.
  static constexpr int kHalf = kHeadDim / 2, kHalfAndSum = kHalf + 8;
  static constexpr bool kOrdered = !kWindows;  // as in fp8.h
  static constexpr float kTop = Config<128, kWindows>::kTop;
  static constexpr float kLimit = Config<128, kWindows>::kLimit;
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
  enum NamedBarrier : int { kMayStart = 1 };  // as in fp8.h
};

// A stage has a tile of K and the tile of V before it, or the CTA's rows of Q. K lies in slabs of
// 128 columns, each in two halves of keys (fp8.h); V transposed, in rows of 64 keys; Q in boxes of
// 64 columns, of which K's place has two and V's place the others.
template <bool kWindows>
struct WideStorage {
  using C = WideConfig<kWindows>;
  alignas(1024) uint8_t sK[C::kStages][2][2][C::kBlockN / 2][128];
  // Of each warp: O of the windows before, where a lane reads and writes its own alone. Then its
  // rows of the final O, 16 bits in slabs of 64 columns, until they are stored.
  alignas(1024) float4 warps[C::kWarpgroups][4][kWindows ? C::kHeadDim / 8 : C::kHeadDim / 16][32];
  alignas(512) uint8_t sV[C::kStages][C::kHeadDim + 8][C::kBlockN];  // the last eight rows: ones
  // As in fp8.h; all warps of both consumers release a stage.
  uint64_t full[C::kStages], empty[C::kStages];
  float k_scale[C::kStages];
};

// kMasked: some rows do not see all keys of their tiles.
template <typename T, bool kWindows, bool kMasked>
__global__ void __launch_bounds__(WideConfig<kWindows>::kThreads, 1)
    wide_kernel(const __grid_constant__ ptx::TensorMap map_q,
                const __grid_constant__ ptx::TensorMap map_k,
                const __grid_constant__ ptx::TensorMap map_v,
                const __grid_constant__ ptx::TensorMap map_o, const __grid_constant__ Shape shape) {
  using C = WideConfig<kWindows>;
  using layout::SwizzleMode;
  constexpr int kHeadDim = C::kHeadDim;
  constexpr int kTileBytes = C::kBlockN * kHeadDim;  // of K or V; Q has as many as both
  constexpr int kVStageBytes = C::kBlockN * (kHeadDim + 8);
  constexpr int kBoxBytes = C::kBlockM * 64;  // of Q: 64 columns
  auto& smem = shared_storage<WideStorage<kWindows>>();

  // ---- indices
  const int warpgroup_idx = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int warp_idx = threadIdx.x / 32 % 4;  // within the warpgroup
  const int lane_idx = threadIdx.x % 32;
  const uint32_t m_blocks = (shape.seq_len + C::kBlockM - 1) / C::kBlockM;  // per head
  const uint32_t its_tiles = (m_blocks * shape.all_heads - 1 - blockIdx.x) / gridDim.x + 1;
  struct QueryTile {
    uint32_t head, block, tiles;
  };
  const auto query_tile = [&](uint32_t t) {
    const uint32_t number = blockIdx.x + t * gridDim.x;
    QueryTile tile{number / m_blocks, number % m_blocks, uint32_t(shape.kv_len) / C::kBlockN};
    if constexpr (kMasked) {
      if (shape.causal) {  // the longest first
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
  const uint64_t desc_k = layout::k_major_descriptor(ptx::shared_address(smem.sK));
  // V's rows are as long as their swizzle, 64 bytes; eight of them are an atom.
  const uint64_t desc_v =
      layout::descriptor(ptx::shared_address(smem.sV), 16, 8 * C::kBlockN, SwizzleMode::k64Bytes);
  // Where columns 64 i on of Q are in a stage.
  const auto q_box = [&](uint32_t stage, int i) -> uint8_t* {
    return (i < 2 ? &smem.sK[stage][0][0][0][0] : smem.sV[stage][0]) + i % 2 * kBoxBytes;
  };

  // ---- barriers
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < C::kStages; stage++) {
      ptx::mbarrier_init(&smem.full[stage], 1);
      ptx::mbarrier_init(&smem.empty[stage], C::kWarpgroups * 4);
    }
    ptx::fence_mbarrier_init();
  }
  // Writes the ones, which no copy overwrites.
  constexpr int kWords = 8 * C::kBlockN / 4;
  for (int i = threadIdx.x; i < C::kStages * kWords; i += C::kThreads) {
    reinterpret_cast<uint32_t*>(smem.sV[i / kWords][kHeadDim])[i % kWords] = 0x38383838;
  }
  ptx::fence_proxy_async();  // makes them visible to wgmma, which reads by another path
  __syncthreads();           // all threads wait until barriers and ones are there

  // ---- producer
  if (warpgroup_idx == C::kWarpgroups) {
    ptx::setmaxnreg_dec<C::kProducerRegisters>();
    // One thread fills stage after stage, once the turn is over that had it: of each query tile Q,
    // then tile after tile of K with its scale, each with the tile of V before.
    if (warp_idx == 0 && ptx::elect_sync()) {
      uint32_t stage = 0, phase = 1;  // the first wait for a stage succeeds at once
      int v_head = -1, v_key = 0;     // the tile of V that is next, if there is one
      // The scale of a tile of K is seen by those who wait for the tile.
      const auto begin_stage = [&](int bytes, float k_scale) {
        ptx::mbarrier_wait(&smem.empty[stage], phase);
        smem.k_scale[stage] = k_scale;
        ptx::mbarrier_arrive_expect_tx(&smem.full[stage], bytes);
      };
      const auto end_stage = [&] {
        stage = stage + 1 < C::kStages ? stage + 1 : 0;
        phase ^= stage == 0;
      };
      const auto load_v = [&] {
        ptx::cp_async_bulk_tensor_load(smem.sV[stage], &map_v, {v_key, 0, v_head},
                                       &smem.full[stage]);
      };
      for (uint32_t t = 0; t < its_tiles; t++) {
        const QueryTile tile = query_tile(t);
        const int sequence = tile.head / shape.heads, q_head = tile.head % shape.heads;
        const int row = tile.block * C::kBlockM;
        begin_stage(2 * kTileBytes, 0.0f);
        for (int i = 0; i < kHeadDim / 64; i++) {  // zeros past the head's end
          ptx::cp_async_bulk_tensor_load(q_box(stage, i), &map_q, {64 * i, row, q_head, sequence},
                                         &smem.full[stage]);
        }
        end_stage();
        const uint32_t kv_head = tile.head / shape.group;  // over all sequences
        for (uint32_t n = 0; n < tile.tiles; n++) {
          const uint32_t last = (shape.kv_len - 1) / 128;  // that has a scale
          const float k_scale = shape.k_scales.at(kv_head, min(n * C::kBlockN / 128, last));
          begin_stage(v_head < 0 ? kTileBytes : 2 * kTileBytes, k_scale);
          for (int i = 0; i < 4; i++) {  // slab i / 2; two of every four keys
            ptx::cp_async_bulk_tensor_load_5d(smem.sK[stage][i / 2][i % 2], &map_k,
                                              {i / 2 * 128, i % 2 * 2, int(n * C::kBlockN / 4),
                                               q_head / int(shape.group), sequence},
                                              &smem.full[stage]);
          }
          if (v_head >= 0) load_v();
          end_stage();
          v_head = kv_head;
          v_key = n * C::kBlockN;
        }
      }
      begin_stage(kTileBytes, 0.0f);  // the last turn has no tile of K
      load_v();
    }
    return;
  }
  ptx::setmaxnreg_inc<C::kConsumerRegisters>();

  // The stage that is next, and the phase of its barrier.
  uint32_t stage = 0, phase = 0;
  const auto wait_full = [&] { ptx::mbarrier_wait(&smem.full[stage], phase); };
  const auto next_stage = [&] {
    stage = stage + 1 < C::kStages ? stage + 1 : 0;
    phase ^= stage == 0;
  };
  // Every warp calls it when it has finished reading a stage. No wait.
  const auto release = [&](uint32_t its) {
    if (lane_idx == 0) ptx::mbarrier_arrive(&smem.empty[its]);
  };

  // ---- registers
  float acc_s[C::kBlockN / 2];
  float acc_o[C::kHalf / 2], acc_o_2[C::kHalfAndSum / 2];
  uint32_t rQ[kHeadDim / 32][4];    // A operand of the query tile
  uint32_t rP[C::kBlockN / 32][4];  // and of PV
  // As in fp8.h.
  float row_ref[2] = {}, row_sum[2] = {}, rescale[2] = {}, pending[2] = {1.0f, 1.0f};
  const float scale_log2 = shape.scale * kLog2e;
  float4(*const its_warp)[32] = smem.warps[warpgroup_idx][warp_idx];
  uint32_t t = 0;                  // counts this CTA's query tiles
  uint32_t n = 0, n_before = 0;    // the tile of QK^T, and that of PV, within their query tiles
  QueryTile tile = query_tile(0);  // the query tile of QK^T
  float q_scale;                   // of its scores, times log2(e)
  bool risen = false;              // a reference in the tile before: O is still to be rescaled

  // Starts S = QK^T.
  const auto multiply_qk = [&] {
    const uint64_t desc = layout::advance(desc_k, stage * kTileBytes);
    // Nobody reads these zeros. They tell the compiler that it need not keep the scores before.
#pragma unroll
    for (int i = 0; i < C::kBlockN / 2; i++) acc_s[i] = 0.0f;
    ptx::wgmma_fence();
#pragma unroll
    for (int d = 0; d < kHeadDim / 32; d++) {
      ptx::wgmma_fp8<E4m3, C::kBlockN>(
          acc_s, rQ[d], layout::advance(desc, d / 4 * (kTileBytes / 2) + d % 4 * 32), d > 0);
    }
    ptx::wgmma_commit();
  };
  // Starts O += PV of the stage's V, or O = PV at the begin of a window or query tile.
  const auto multiply_pv = [&] {
    const bool accumulate = kWindows ? n_before % C::kWindow > 0 : n_before > 0;
    const uint64_t desc = layout::advance(desc_v, stage * kVStageBytes);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < C::kBlockN / 32; i++) {  // 32 keys each
      ptx::wgmma_fp8<E4m3, C::kHalf>(acc_o, rP[i], layout::advance(desc, i * 32),
                                     i > 0 || accumulate);
      ptx::wgmma_fp8<E4m3, C::kHalfAndSum>(acc_o_2, rP[i],
                                           layout::advance(desc, C::kHalf * C::kBlockN + i * 32),
                                           i > 0 || accumulate);
    }
    ptx::wgmma_commit();
  };

  // Where S has the j-th of the four keys of register r of P (fp8.h).
  const auto element = [](int r, int j) {
    return r / 2 * 4 + r % 2 * 2 + j % 2 + j / 2 * (C::kBlockN / 4);
  };
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
  // Computes P = 2^(S c - row_ref) in e, as softmax of fp8.h does. Returns whether O must be
  // rescaled before the next PV.
  const auto softmax = [&](float(&e)[C::kBlockN / 2], float c) -> bool {
#pragma unroll
    for (int i = 0; i < C::kBlockN / 2; i++) e[i] = acc_s[i];
    if constexpr (kMasked) hide_keys(e);
    if (n == 0) {  // the references are the largest scores of the first tile
      float chain[4] = {e[0], e[1], e[2], e[3]};
#pragma unroll
      for (int i = 4; i < C::kBlockN / 2; i++) chain[i % 4] = fmaxf(chain[i % 4], e[i]);
      // Finite, so that a row that sees no key has P = 2^-inf = 0.
      for (int h = 0; h < 2; h++) {
        const float most = layout::quad_max(fmaxf(chain[2 * h], chain[2 * h + 1]));
        row_ref[h] = fmaxf(ceilf(most * c) - C::kTop, -FLT_MAX);
      }
    }
    int most[2] = {0, 0};  // the bits of log2 of the largest P, if that is above zero
#pragma unroll
    for (int i = 0; i < C::kBlockN / 2; i++) {
      const int h = i / 2 % 2;
      e[i] = fmaf(e[i], c, -row_ref[h]);
      most[h] = max(most[h], __float_as_int(e[i]));
    }
    const bool rise = __any_sync(0xffffffffu, max(most[0], most[1]) > __float_as_int(C::kLimit));
    if (rise) {
      for (int h = 0; h < 2; h++) {
        const float its = layout::quad_max(__int_as_float(most[h]));
        const float by = its > C::kLimit ? ceilf(its) - C::kTop : 0.0f;
        row_ref[h] += by;
        rescale[h] = ptx::exp2_approx(-by);
#pragma unroll
        for (int i = 0; i < C::kBlockN / 2; i++) {
          if (i / 2 % 2 == h) e[i] -= by;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < C::kBlockN / 2; i++) e[i] = ptx::exp2_approx(e[i]);
    return rise && n > 0;  // in the first tile there is no O yet
  };
  // Rounds P to the A operand, which no PV may be reading.
  const auto pack_p = [&](const float(&e)[C::kBlockN / 2]) {
#pragma unroll
    for (int r = 0; r < C::kBlockN / 8; r++) {
      rP[r / 4][r % 4] = ptx::pack_fp8<E4m3>(e[element(r, 0)], e[element(r, 1)], e[element(r, 2)],
                                             e[element(r, 3)]);
    }
  };

  // Every warp calls it before it writes where its rows of O were: they must have been stored.
  const auto wait_until_stored = [&] {
    if (lane_idx == 0) ptx::cp_async_bulk_wait_read<0>();
    __syncwarp();
  };
  // Calls f(its float4 of the sums, four registers of O, h of the first two) for all of O.
  const auto for_sums = [&](const auto& f) {
#pragma unroll
    for (int i = 0; i < C::kHalf / 8; i++) {
      f(its_warp[i][lane_idx], &acc_o[4 * i]);
      f(its_warp[C::kHalf / 8 + i][lane_idx], &acc_o_2[4 * i]);
    }
  };
  // Makes O ready for the next PV, when none is under way: multiplies it where references rose, and
  // at the end of a window adds it to the sums of those before. The next PV then sets O anew.
  const auto complete_o = [&] {
    if (risen) {  // all lanes of the warp, or none
#pragma unroll
      for (int i = 0; i < C::kHalf / 2; i++) acc_o[i] *= rescale[i / 2 % 2];
#pragma unroll
      for (int i = 0; i < C::kHalfAndSum / 2; i++) acc_o_2[i] *= rescale[i / 2 % 2];
      for (int h = 0; h < 2; h++) pending[h] *= rescale[h];
    }
    // The last window of a query tile ends in store_o.
    if (kWindows && n_before > 0 && n_before % C::kWindow == 0) {
      const bool first = n_before == C::kWindow;
      if (first) wait_until_stored();
      for_sums([&](float4& sum, const float* o) {
        const float4 before = first ? float4{} : sum;
        sum = {fmaf(before.x, pending[0], o[0]), fmaf(before.y, pending[0], o[1]),
               fmaf(before.z, pending[1], o[2]), fmaf(before.w, pending[1], o[3])};
      });
      for (int h = 0; h < 2; h++) {
        row_sum[h] = (first ? 0.0f : row_sum[h] * pending[h]) + acc_o_2[C::kHalf / 2 + 2 * h];
        pending[h] = 1.0f;
      }
    }
  };
  // Stores O of query tile t - 1: this warp's 16 rows.
  const auto store_o = [&] {
    const QueryTile its = query_tile(t - 1);
    float total[2] = {acc_o_2[C::kHalf / 2], acc_o_2[C::kHalf / 2 + 2]};
    if (kWindows && its.tiles > C::kWindow) {
      for_sums([&](const float4 before, float* o) {
        o[0] = fmaf(before.x, pending[0], o[0]);
        o[1] = fmaf(before.y, pending[0], o[1]);
        o[2] = fmaf(before.z, pending[1], o[2]);
        o[3] = fmaf(before.w, pending[1], o[3]);
      });
      for (int h = 0; h < 2; h++) total[h] = fmaf(row_sum[h], pending[h], total[h]);
    }
    float factor[2];
    for (int h = 0; h < 2; h++) {  // a row that sees no key becomes zeros
      const float v_scale = shape.v_scales.at(its.head / shape.group, 0);
      factor[h] = kMasked && total[h] == 0.0f ? 0.0f : __fdividef(1.0f, total[h]) * v_scale;
    }
    wait_until_stored();  // of the query tile before; and all lanes have read their sums
    auto* const sO = reinterpret_cast<T(*)[16][64]>(its_warp);  // [kHeadDim / 64][16][64]
#pragma unroll
    for (int i = 0; i < kHeadDim / 16; i++) {  // 16 columns per step
      const float* const o = i < C::kHalf / 16 ? &acc_o[8 * i] : &acc_o_2[8 * i - C::kHalf / 2];
      uint32_t rO[4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        rO[j] = ptx::pack<T>(o[2 * j] * factor[j % 2], o[2 * j + 1] * factor[j % 2]);
      }
      ptx::stmatrix_x4(rO, layout::chunk_address(sO, lane_idx % 16, i * 16 + lane_idx / 16 * 8));
    }
    pending[0] = pending[1] = 1.0f;
    ptx::fence_proxy_async();  // makes O visible to TMA, which reads by another path
    __syncwarp();              // lane 0 waits until all lanes have stored and fenced O
    if (lane_idx == 0) {
      const int row = its.block * C::kBlockM + warpgroup_idx * 64 + warp_idx * 16;
      for (int slab = 0; slab < kHeadDim / 64; slab++) {  // rows past the head are not written
        ptx::cp_async_bulk_tensor_store(
            &map_o, {slab * 64, row, int(its.head % shape.heads), int(its.head / shape.heads)},
            sO[slab]);
      }
      ptx::cp_async_bulk_commit();
    }
  };

  // As in fp8.h.
  const auto begin_products = [&] {
    if (C::kOrdered) ptx::barrier_sync(C::kMayStart + warpgroup_idx, 256);
  };
  const auto end_products = [&](bool last) {
    const int next = warpgroup_idx + 1 < C::kWarpgroups ? warpgroup_idx + 1 : 0;
    if (C::kOrdered && (!last || next > 0)) ptx::barrier_arrive(C::kMayStart + next, 256);
  };
  if (warpgroup_idx == C::kWarpgroups - 1) end_products(false);  // warpgroup 0 may start first

  // Loads Q from its stage, and waits for the next one.
  const auto begin_query_tile = [&] {
    const uint32_t row = warpgroup_idx * 64 + warp_idx * 16 + lane_idx % 16;
#pragma unroll
    for (int d = 0; d < kHeadDim / 32; d++) {
      const uint32_t address = ptx::shared_address(q_box(stage, d / 2)) + row * 64 + d % 2 * 32;
      ptx::ldmatrix_x4(
          rQ[d], layout::swizzle_address(SwizzleMode::k64Bytes, address + lane_idx / 16 * 16));
    }
    __syncwarp();  // lane 0 waits until all lanes have loaded Q
    release(stage);
    next_stage();
    wait_full();
    tile = query_tile(t);
    q_scale = shape.q_scales.at(tile.head, tile.block) * scale_log2;
  };
  // What the turn's scores are multiplied by, as in fp8.h.
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
  // for it. Before that it waits for the next stage: ptxas 13.0 leaves the exponentials in front of
  // that loop, and would otherwise move them behind the wait for PV.
  const auto turn = [&] {
    begin_products();
    multiply_qk();
    complete_o();  // QK^T goes on
    if (n == 1 && t > 0) store_o();
    multiply_pv();
    end_products(false);
    const float c = score_scale();
    ptx::wgmma_wait<1>(acc_s);
    float e[C::kBlockN / 2];  // acc_s itself must not change while PV is under way
    risen = softmax(e, c);
    const uint32_t its = stage;
    next_stage();
    wait_full();
    ptx::wgmma_wait<0>(acc_o, acc_o_2, rP);
    release(its);
    pack_p(e);
  };

  // ---- prologue
  wait_full();
  begin_query_tile();
  {
    multiply_qk();
    const float c = score_scale();
    ptx::wgmma_wait<0>(acc_s);
    release(stage);
    next_stage();
    float e[C::kBlockN / 2];
    softmax(e, c);
    pack_p(e);
  }
  wait_full();

  // ---- main loop
  while (next()) turn();

  // ---- epilogue
  begin_products();
  complete_o();
  multiply_pv();
  end_products(true);
  ptx::wgmma_wait<0>(acc_o, acc_o_2);
  store_o();
  if (lane_idx == 0) ptx::cp_async_bulk_wait<0>();  // waits until the last O is written
}

// ---- host ---------------------------------------------------------------------------------------
template <typename T>
struct Launcher<T, 256> {
  static void run(const Inputs<T>& a) {
    constexpr int kBlockN = WideConfig<true>::kBlockN;
    const bool masked =
        a.mask == Mask::kCausal || a.kv_len % kBlockN != 0 || a.kv_len < 2 * kBlockN;
    const bool windows = a.kv_len > WideConfig<true>::kWindow * kBlockN;
    if (masked) {
      windows ? run_with<true, true>(a) : run_with<false, true>(a);
    } else {
      windows ? run_with<true, false>(a) : run_with<false, false>(a);
    }
  }
  template <bool kWindows, bool kMasked>
  static void run_with(const Inputs<T>& a) {
    using C = WideConfig<kWindows>;
    using layout::SwizzleMode;
    constexpr uint64_t kHeadDim = C::kHeadDim;
    const uint64_t seq_len = a.seq_len, kv_len = a.kv_len, heads = a.heads, kv_heads = a.kv_heads;
    const uint64_t batch = a.batch, padded = (kv_len + 127) / 128 * 128;
    const auto bytes = [](long long elements) { return uint64_t(elements); };
    const ptx::TensorMap map_q =
        make_tensor_map(a.q, {kHeadDim, seq_len, heads, batch},
                        {bytes(a.q_strides.row), bytes(a.q_strides.head), bytes(a.q_strides.block)},
                        {64, C::kBlockM, 1, 1}, SwizzleMode::k64Bytes);
    // Rows in fours, of which a box has two, and half of their columns.
    const ptx::TensorMap map_k =
        make_tensor_map(a.k, {kHeadDim, 4, (kv_len + 3) / 4, kv_heads, batch},
                        {bytes(a.k_strides.row), bytes(4 * a.k_strides.row),
                         bytes(a.k_strides.head), bytes(a.k_strides.block)},
                        {128, 2, C::kBlockN / 4, 1, 1}, SwizzleMode::k128Bytes);
    // Keys past the end are zeros, whatever the padding holds.
    const ptx::TensorMap map_v =
        make_tensor_map(a.v, {kv_len, kHeadDim, kv_heads * batch}, {padded, padded * kHeadDim},
                        {C::kBlockN, C::kHeadDim, 1}, SwizzleMode::k64Bytes);
    const ptx::TensorMap map_o =
        make_slab_map(a.o, kHeadDim, a.seq_len, a.heads, a.batch, a.o_strides, 16);
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
    launch<wide_kernel<T, kWindows, kMasked>>(
        {dim3(std::min(query_tiles, sm_count())), dim3(C::kThreads), sizeof(WideStorage<kWindows>)},
        map_q, map_k, map_v, map_o, shape);
  }
};

}  // namespace fa::fp8
