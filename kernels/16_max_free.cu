// 16_max_free: no row maximum.
//
// Idea         Whatever is subtracted from a row's scores, the quotient O is the same, as long as the exponentials and
//              their sum stay in range. So it is not the maximum that is subtracted, but a reference: the row's first
//              score. The sums of P, which are needed anyway, tell whether it is good.
// Bottleneck   Removed: the maxima that 15 still took, of a query tile's first scores and of all P after that.
// Changed      softmax() and the reference in the maximum's place; a warp whose sums say that a key stands out takes
//              the maximum first, as 13 does, and goes on so (careful) until no key stands out any more.
// Run          cmake --build --preset emulator --target 16_max_free && build/emulator/bin/16_max_free
#include "common/harness/launch.h"
#include "common/harness/registry.h"
#include "common/harness/tensor_map.h"
#include "common/layout/quad.h"
#include "common/layout/slabs.h"
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

namespace fa::k16 {

constexpr float kLog2e = 1.44269504f;

// [range]
// What a lane's sums of P may be, of a tile of K. At most kMost for its two rows: no P overflows (fp16 ends at 65504),
// nor does a row's sum. At most kShare times the lane's sum of all tiles before, of each row: a key that outweighs those
// is to have an exact P, as with a maximum. And where a query tile's first maxima are within kNear (in units of log2)
// of those that the rows before had in the end, no key stood out there: the warp need not be careful any more.
constexpr float kMost = 32768.0f;
constexpr float kShare = 16.0f;
constexpr float kNear = 8.0f;
// [/range]

// kKeys: of a tile of K and V. 64 where 128 would make an odd number of tiles a head.
template <int kHeadDim, int kKeys>
struct Config {
  // Consumers, of 64 query rows each. With head_dim 64 a third one finds registers.
  static constexpr int kWarpgroups = kHeadDim == 64 ? 3 : 2;
  static constexpr int kBlockM = kWarpgroups * 64;          // query rows a CTA
  static constexpr int kBlockN = kKeys;                     // keys a tile
  static constexpr int kThreads = (kWarpgroups + 1) * 128;  // the last warpgroup is the producer
  static constexpr int kStages = 2;                         // tiles of K and V in shared memory
  static constexpr int kSlabs = kHeadDim / 64;              // of a tile
  // Registers a thread. A launch gives all threads the same; what the producer gives back is enough.
  static constexpr int kLaunchRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kProducerRegisters = kWarpgroups == 3 ? 32 : 24;
  static constexpr int kConsumerRegisters = kWarpgroups == 3 ? 160 : 240;
  static_assert(kWarpgroups * (kConsumerRegisters - kLaunchRegisters) <=
                    kLaunchRegisters - kProducerRegisters,
                "otherwise a consumer waits for registers for ever");
  // A consumer's softmax runs under its own P V. Among three there are two others, and no registers for it.
  static constexpr bool kOverlap = kWarpgroups == 2;
  static_assert(kBlockN == 64 || kBlockN == 128, "whole swizzles, an even number of tiles");
};

// Who computes what (warpgroup g, its warps w0..w3), what a lane holds of each 8 columns of S or O, and how a
// tile of K or V lies in shared memory (Q: the 64 rows of each warpgroup likewise):
//
//               S: all keys, O: all columns    8 columns, lane l            columns 0..63    64..127
//   rows 64g +  0..15   w0                     row l/4:   2 (l%4) (+ 1)     +------------+  +------------+
//   rows 64g + 16..31   w1                     row l/4+8: the same          | slab 0:    |  | slab 1     |
//   rows 64g + 32..47   w2                     columns                      | 128 bytes  |  | kBlockN    |
//   rows 64g + 48..63   w3                                                  | a row      |  | rows later |
//                                                                           +------------+  +------------+
// The four lanes of a quad (l/4) share two rows. The 16-byte chunks of a slab's row are swizzled.
template <typename T, int kHeadDim, int kKeys>
struct SharedStorage {
  using C = Config<kHeadDim, kKeys>;
  // 1024: the swizzle is computed from addresses, and repeats after 8 rows of 128 bytes.
  // Q of this query tile and of the next; later their O.
  alignas(1024) T sQ[2][C::kWarpgroups][C::kSlabs][64][64];
  alignas(1024) T sK[C::kStages][C::kSlabs][C::kBlockN][64];
  alignas(1024) T sV[C::kStages][C::kSlabs][C::kBlockN][64];
  // full: one arrival, the producer's, and the tile's bytes. empty: one arrival of each consumer warp.
  uint64_t k_full[C::kStages], k_empty[C::kStages], v_full[C::kStages], v_empty[C::kStages];
  // Of query tile t: [t % 2]. o_full: one arrival of each warp of the consumer.
  uint64_t q_full[2][C::kWarpgroups], o_full[2][C::kWarpgroups];
};

template <typename T, int kHeadDim, int kKeys>
__global__ void __launch_bounds__(Config<kHeadDim, kKeys>::kThreads, 1)
    attention_kernel(const __grid_constant__ ptx::TensorMap map_q,
                     const __grid_constant__ ptx::TensorMap map_k,
                     const __grid_constant__ ptx::TensorMap map_v,
                     const __grid_constant__ ptx::TensorMap map_o, uint32_t seq_len,
                     uint32_t q_tiles, float scale) {
  using C = Config<kHeadDim, kKeys>;
  constexpr int kQBytes = C::kBlockM * kHeadDim * sizeof(T);
  constexpr int kTileBytes = C::kBlockN * kHeadDim * sizeof(T);
  auto& smem = shared_storage<SharedStorage<T, kHeadDim, kKeys>>();

  // ---- indices
  // The same in all lanes; the shuffle tells the compiler so.
  const int warpgroup_idx = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int warp_idx = threadIdx.x / 32 % 4;  // in the warpgroup
  const int lane_idx = threadIdx.x % 32;
  const uint32_t tiles = seq_len / C::kBlockN;  // of K and V, of a head: an even number
  // This CTA has the query tiles blockIdx.x + t gridDim.x, t = 0 .. its_tiles - 1, of all heads' rows.
  const uint32_t its_tiles = (q_tiles - 1 - blockIdx.x) / gridDim.x + 1;
  const uint32_t m_blocks = (seq_len + C::kBlockM - 1) / C::kBlockM;  // query tiles of a head
  const auto tile = [&](uint32_t t) { return blockIdx.x + t * gridDim.x; };
  const auto head_row = [&](uint32_t t) { return tile(t) / m_blocks * seq_len; };
  // Where in its head the rows of a consumer begin. Of a head's last tile, a consumer may have none.
  const auto q_row = [&](uint32_t t, int consumer) {
    return tile(t) % m_blocks * C::kBlockM + consumer * 64;
  };

  // ---- pointers
  // Of Q's first 16 columns, of the first tile of K's, and of the first 16 keys of the first tile of V.
  const uint64_t desc_q =
      layout::k_major_descriptor(ptx::shared_address(smem.sQ[0][warpgroup_idx]));
  const uint64_t desc_k = layout::k_major_descriptor(ptx::shared_address(smem.sK));
  const uint64_t desc_v = layout::mn_major_descriptor(ptx::shared_address(smem.sV), C::kBlockN);

  // ---- barriers
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2 * C::kWarpgroups; i++) {
      ptx::mbarrier_init(&smem.q_full[i % 2][i / 2], 1);
      ptx::mbarrier_init(&smem.o_full[i % 2][i / 2], 4);
    }
    for (int stage = 0; stage < C::kStages; stage++) {
      ptx::mbarrier_init(&smem.k_full[stage], 1);
      ptx::mbarrier_init(&smem.v_full[stage], 1);
      ptx::mbarrier_init(&smem.k_empty[stage], C::kWarpgroups * 4);
      ptx::mbarrier_init(&smem.v_empty[stage], C::kWarpgroups * 4);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();  // nobody waits or arrives before that

  // Loads tile n_block of K or V, from `row` on, once all warps are done with the tile kStages before, if any.
  const auto load_tile = [&](const ptx::TensorMap& map, T(*tiles_of)[C::kSlabs][C::kBlockN][64],
                             uint64_t* full, uint64_t* empty, uint32_t n_block, int row) {
    const uint32_t stage = n_block % C::kStages;
    ptx::mbarrier_wait(&empty[stage], (n_block / C::kStages + 1) % 2);
    ptx::mbarrier_arrive_expect_tx(&full[stage], kTileBytes);
#pragma unroll
    for (int slab = 0; slab < C::kSlabs; slab++) {
      ptx::cp_async_bulk_tensor_load(tiles_of[stage][slab], &map, {slab * 64, row}, &full[stage]);
    }
  };

  // ---- producer
  if (warpgroup_idx == C::kWarpgroups) {
    ptx::setmaxnreg_dec<C::kProducerRegisters>();
    // One thread loads group after group: tile n_block of K, and V's of the one before.
    if (warp_idx == 0 && ptx::elect_sync()) {
      uint32_t n_block = 0;
      int v_row = 0;
      for (uint32_t t = 0; t < its_tiles; t++) {
        // A division, which takes long: not for every tile of K and V.
        const uint32_t first_row = head_row(t);
        for (uint32_t n = 0; n < tiles; n++, n_block++) {
          const int row = first_row + n * C::kBlockN;
          load_tile(map_k, smem.sK, smem.k_full, smem.k_empty, n_block, row);
          if (n_block > 0) load_tile(map_v, smem.sV, smem.v_full, smem.v_empty, n_block - 1, v_row);
          v_row = row;
        }
      }
      load_tile(map_v, smem.sV, smem.v_full, smem.v_empty, n_block - 1, v_row);
    }
    // One thread for each consumer: a tile's Q in; later its O out, and then the Q after the next in its place.
    if (warp_idx > 0 && warp_idx <= C::kWarpgroups && ptx::elect_sync()) {
      const int consumer = warp_idx - 1;
      for (uint32_t t = 0; t < its_tiles + 2; t++) {
        T(*const sQ)[64][64] = smem.sQ[t % 2][consumer];  // [kSlabs][64][64]
        if (t >= 2) {
          ptx::mbarrier_wait(&smem.o_full[t % 2][consumer], t / 2 % 2 ^ 1);  // of tile t - 2
          const uint32_t row = q_row(t - 2, consumer);
          for (int slab = 0; slab < C::kSlabs && row < seq_len; slab++) {
            ptx::cp_async_bulk_tensor_store(&map_o, {slab * 64, int(head_row(t - 2) + row)},
                                            sQ[slab]);
          }
          ptx::cp_async_bulk_commit();
          ptx::cp_async_bulk_wait_read<0>();
        }
        if (t < its_tiles) {
          uint64_t* const full = &smem.q_full[t % 2][consumer];
          ptx::mbarrier_arrive_expect_tx(full, 64 * kHeadDim * sizeof(T));
          const int row = head_row(t) + q_row(t, consumer);  // beyond its head: any rows, or zeros
          for (int slab = 0; slab < C::kSlabs; slab++) {
            ptx::cp_async_bulk_tensor_load(sQ[slab], &map_q, {slab * 64, row}, full);
          }
        }
      }
      ptx::cp_async_bulk_wait<0>();  // the last O has left shared memory and is written
    }
    return;
  }
  ptx::setmaxnreg_inc<C::kConsumerRegisters>();

  // Waits until tile n has come, in phase n / kStages of its stage's barrier.
  const auto wait_full = [&](uint64_t* full, uint32_t n) {
    ptx::mbarrier_wait(&full[n % C::kStages], n / C::kStages % 2);
  };
  // This warp no longer reads tile n.
  const auto release = [&](uint64_t* empty, uint32_t n) {
    if (lane_idx == 0) ptx::mbarrier_arrive(&empty[n % C::kStages]);
  };

  // ---- registers
  float acc_s[C::kBlockN / 2];
  float acc_o[kHeadDim / 2];
  // 16 keys each; of tile n: [n % 2]. One is read by the Tensor Cores while the other is written (without kOverlap,
  // nothing is, and one is enough).
  uint32_t rP[C::kOverlap ? 2 : 1][C::kBlockN / 16][4];
  // Of rows 16 warp_idx + lane_idx / 4 and + 8 of this warpgroup. row_ref: what is subtracted from scores, in units of
  // log2; row_sum: this lane's share; rescale: what O is to be multiplied by.
  float row_ref[2] = {}, row_sum[2] = {}, rescale[2];
  bool careful = false;  // of this warp: a reference has failed, so that the maximum comes first
  const float scale_log2 = scale * kLog2e;
  uint64_t desc_q_t = desc_q;  // of the query tile under way

  // Starts S = Q K^T. The fence: from here on these registers are the Tensor Cores'.
  const auto multiply_qk = [&](uint32_t n_block) {
    const uint64_t desc = layout::advance(desc_k, n_block % C::kStages * kTileBytes);
    ptx::wgmma_fence(acc_s);
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; d++) {
      ptx::wgmma<T, C::kBlockN, layout::Major::kK>(
          acc_s, layout::advance(desc_q_t, layout::k_major_step(64, d)),
          layout::advance(desc, layout::k_major_step(C::kBlockN, d)), d > 0);
    }
    ptx::wgmma_commit();
  };
  // Starts O += P V, or O = P V.
  const auto multiply_pv = [&](uint32_t n_block, const auto& p, bool accumulate) {
    const uint64_t desc = layout::advance(desc_v, n_block % C::kStages * kTileBytes);
    ptx::wgmma_fence();
#pragma unroll
    for (int key = 0; key < C::kBlockN / 16; key++) {
      ptx::wgmma<T, kHeadDim, layout::Major::kMN>(
          acc_o, p[key], layout::advance(desc, layout::mn_major_step(key)), key > 0 || accumulate);
    }
    ptx::wgmma_commit();
  };

  // [maximum]
  // The row's maximum as its reference: of a query tile's first tile, later of all so far. True if O is to be rescaled.
  const auto take_maximum = [&](bool first) -> bool {
    // Of even and odd columns of both rows: four independent chains.
    float score[4] = {acc_s[0], acc_s[1], acc_s[2], acc_s[3]};
#pragma unroll
    for (int i = 4; i < C::kBlockN / 2; i++) score[i % 4] = fmaxf(score[i % 4], acc_s[i]);
    float lane_max[2];
    bool grown = false, far = false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      lane_max[h] = fmaxf(score[2 * h], score[2 * h + 1]) * scale_log2;
      grown |= lane_max[h] > row_ref[h];
      far |= fabsf(lane_max[h] - row_ref[h]) > kNear;
    }
    if (first) careful = __any_sync(0xffffffffu, far);
    if (!first && !__any_sync(0xffffffffu, grown)) return false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float tile_max = layout::quad_max(lane_max[h]);
      const float new_ref = first ? tile_max : fmaxf(row_ref[h], tile_max);
      rescale[h] = ptx::exp2_approx(row_ref[h] - new_ref);
      row_ref[h] = new_ref;
      if (!first) row_sum[h] *= rescale[h];
    }
    return true;
  };
  // [/maximum]
  // [exponentials]
  // P = 2^(S scale_log2 - row_ref) as A operand (neighbouring 8 columns of S are one); this lane's sums of it.
  const auto exponentials = [&](auto& p, float(&sum)[2]) {
    float part[4] = {};  // of even and odd columns of both rows
#pragma unroll
    for (int i = 0; i < C::kBlockN / 4; i++) {
      float low_high[2];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        low_high[j] = ptx::exp2_approx(fmaf(acc_s[2 * i + j], scale_log2, -row_ref[i % 2]));
        part[i % 2 * 2 + j] += low_high[j];
      }
      p[i / 4][i % 4] = ptx::pack<T>(low_high[0], low_high[1]);
    }
    sum[0] = part[0] + part[1];
    sum[1] = part[2] + part[3];
  };
  // [/exponentials]
  // [softmax]
  // P and row_sum of a tile; `first` of a query tile. True if O is to be rescaled.
  const auto softmax = [&](auto& p, bool first) -> bool {
    float sum[2];
    bool grown = false;
    if (!careful) {
      if (first) {  // the rows' first scores, of their quads' first lanes
#pragma unroll
        for (int h = 0; h < 2; h++) {
          row_ref[h] = __shfl_sync(0xffffffffu, acc_s[2 * h], 0, 4) * scale_log2;
        }
      }
      exponentials(p, sum);
      bool in_range = sum[0] + sum[1] <= kMost;  // not if a sum is infinite
      if (!first) {
        in_range &=
            fmaxf(fmaf(-kShare, row_sum[0], sum[0]), fmaf(-kShare, row_sum[1], sum[1])) <= 0.0f;
      }
      careful = !__all_sync(0xffffffffu, in_range);
    }
    if (careful) {
      grown = take_maximum(first);
      exponentials(p, sum);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) row_sum[h] += sum[h];
    return grown;
  };
  // [/softmax]
  const auto rescale_o = [&] {
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; i++) acc_o[i] *= rescale[i / 2 % 2];
  };

  float inverse_sum[2];  // of the query tile that has just ended
  // Its row sums are complete, those of the next one begin.
  const auto end_sums = [&] {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      inverse_sum[h] = 1.0f / layout::quad_sum(row_sum[h]);
      row_sum[h] = 0.0f;
    }
  };
  // O through the rows of Q, this warp's own, once no warp of the warpgroup reads Q any more.
  const auto store_o = [&](uint32_t t) {
    ptx::barrier_sync(1 + warpgroup_idx, 128);
    T(*const sO)[64][64] = smem.sQ[t % 2][warpgroup_idx];  // [kSlabs][64][64]
#pragma unroll
    for (int n = 0; n < kHeadDim / 16; n++) {  // of 16 columns
      uint32_t rO[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        rO[i] = ptx::pack<T>(acc_o[8 * n + 2 * i] * inverse_sum[i % 2],
                             acc_o[8 * n + 2 * i + 1] * inverse_sum[i % 2]);
      }
      ptx::stmatrix_x4(
          rO, layout::chunk_address(sO, warp_idx * 16 + lane_idx % 16, n * 16 + lane_idx / 16 * 8));
    }
    ptx::fence_proxy_async();  // TMA, which reads by another path, will see it
    __syncwarp();
    if (lane_idx == 0) ptx::mbarrier_arrive(&smem.o_full[t % 2][warpgroup_idx]);
  };

  // Warpgroup g waits for its turn at a named barrier of its own, where the one before it (of warpgroup 0: the last
  // one) arrives when its turn is over. The products that it has started then still run, but those started later
  // queue up behind them.
  constexpr int kTurn = 1 + C::kWarpgroups;  // the barriers' numbers: kTurn + g
  const auto begin_turn = [&] { ptx::barrier_sync(kTurn + warpgroup_idx, 256); };
  const auto end_turn = [&](bool last) {
    const int next = warpgroup_idx + 1 < C::kWarpgroups ? warpgroup_idx + 1 : 0;
    // After the last turn of all, nobody waits.
    if (!last || next > 0) ptx::barrier_arrive(kTurn + next, 256);
  };
  if (warpgroup_idx == C::kWarpgroups - 1) end_turn(false);  // warpgroup 0 has the first one

  // A turn: starts S of tile n_block, and O += P V of the one before. Then S is there; P V goes on.
  const auto start_qk = [&](uint32_t n_block) {
    wait_full(smem.k_full, n_block);
    begin_turn();
    multiply_qk(n_block);
  };
  const auto start_pv = [&](uint32_t n_block, const auto& p_before, bool accumulate) {
    wait_full(smem.v_full, n_block - 1);
    multiply_pv(n_block - 1, p_before, accumulate);
    end_turn(false);
    ptx::wgmma_wait<C::kOverlap ? 1 : 0>(acc_s);
    release(smem.k_empty, n_block);
  };
  // What follows it: P of tile n_block, while P V goes on. It ends here.
  const auto finish = [&](uint32_t n_block, auto& p_before, auto& p) {
    const bool grown = softmax(p, false);
    ptx::wgmma_wait<0>(acc_o, p_before);  // now O may be rescaled
    release(smem.v_empty, n_block - 1);
    if (grown) rescale_o();  // the whole warp, or none of it
  };

  // ---- prologue
  ptx::mbarrier_wait(&smem.q_full[0][warpgroup_idx], 0);
  wait_full(smem.k_full, 0);
  multiply_qk(0);
  ptx::wgmma_wait<0>(acc_s);
  release(smem.k_empty, 0);
  auto& even = rP[0];
  auto& odd = rP[C::kOverlap ? 1 : 0];
  softmax(even, true);

  // ---- main loop
  // Two turns a round: registers cannot be indexed, so that each turn names its P.
  uint32_t t = 0;     // the query tile of this CTA
  uint32_t pair = 0;  // two tiles of K and V, of all its query tiles
  while (true) {
    for (uint32_t n = 1;; n += 2, pair++) {
      start_qk(2 * pair + 1);
      if (n == 1 && t > 0) store_o(t - 1);  // Q K^T goes on
      start_pv(2 * pair + 1, even, n > 1);
      finish(2 * pair + 1, even, odd);
      if (n + 1 == tiles) break;
      start_qk(2 * pair + 2);
      start_pv(2 * pair + 2, odd, true);
      finish(2 * pair + 2, odd, even);
    }
    if (++t == its_tiles) break;
    // The last P V of query tile t - 1 shares its turn with the first S of query tile t.
    ptx::mbarrier_wait(&smem.q_full[t % 2][warpgroup_idx], t / 2 % 2);
    desc_q_t = layout::advance(desc_q, t % 2 * kQBytes);
    start_qk(2 * pair + 2);
    start_pv(2 * pair + 2, odd, true);
    end_sums();
    softmax(even, true);
    ptx::wgmma_wait<0>(acc_o, odd);
    release(smem.v_empty, 2 * pair + 1);
    pair++;
  }

  // ---- epilogue
  wait_full(smem.v_full, 2 * pair + 1);
  begin_turn();
  multiply_pv(2 * pair + 1, odd, true);
  end_turn(true);
  end_sums();
  ptx::wgmma_wait<0>(acc_o, odd);
  store_o(t - 1);
}

// ---- host ----------------------------------------------------------------------------------------
template <typename T, int kHeadDim>
struct Launcher {
  static void run(const Attention<T>& a) {
    a.seq_len % 256 == 0 ? run_with<128>(a) : run_with<64>(a);
  }
  template <int kKeys>
  static void run_with(const Attention<T>& a) {
    using C = Config<kHeadDim, kKeys>;
    const auto map = [&](const T* tensor, uint32_t rows) {  // boxes of `rows` rows of a slab
      return make_slab_map(tensor, kHeadDim, uint64_t(a.batch) * a.heads * a.seq_len, rows);
    };
    const int q_tiles = a.batch * a.heads * ((a.seq_len + C::kBlockM - 1) / C::kBlockM);
    launch<attention_kernel<T, kHeadDim, kKeys>>(
        {dim3(q_tiles < sm_count() ? q_tiles : sm_count()), dim3(C::kThreads),
         sizeof(SharedStorage<T, kHeadDim, kKeys>)},
        map(a.q, 64), map(a.k, C::kBlockN), map(a.v, C::kBlockN), map(a.o, 64), a.seq_len, q_tiles,
        a.scale);
  }
};

const Registration<Launcher> registration{"16_max_free", Needs{90, true}};

}  // namespace fa::k16
