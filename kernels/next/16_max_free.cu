// 16_max_free: no row maximum.
//
// Idea         The quotient O does not depend on what is subtracted from a row's scores while the
//              exponentials, their sum and O stay in range. So a reference replaces the maximum: a
//              little above the row's first scores, and raised only where a sum grows too large.
// Bottleneck   Removed: 15 took maxima of a query tile's first scores, and later of all P.
// Changed      A turn tests its sums, which are needed anyway. Where they are too large, it leaves
//              the loop, so that maxima and new exponentials stand outside it.
// Run          cmake --build --preset emulator --target 16_max_free &&
//              build/emulator/bin/16_max_free
#include "common/launch/launch.h"
#include "common/launch/quad.h"
#include "common/launch/registry.h"
#include "common/launch/slabs.h"
#include "common/launch/tensor_map.h"
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
// A reference is kMargin (log2) above a row's first scores. Where a lane's sums of a tile exceed
// kMaxSum, it rises to kMargin above the tile's maximum. bf16 has the exponents of fp32, -126 to
// 127, which leaves room for V between 2^-50 and 2^90. fp16 ends at 2^16, and below 2^-14 it loses
// bits.
template <typename T>
struct Range {
  static constexpr bool kWide = !std::is_same_v<T, __half>;
  static constexpr float kMargin = kWide ? 66.0f : 0.0f;
  static constexpr float kMaxSum = kWide ? 0x1p20f : 0x1p15f;
};
// [/range]

// A tile of K or V has kKeys keys: 64 where 128 would make an odd number of tiles per head.
template <int kHeadDim, int kKeys>
struct Config {
  // Each consumer has 64 query rows. With head_dim 64 there are registers for a third consumer.
  static constexpr int kWarpgroups = kHeadDim == 64 ? 3 : 2;
  static constexpr int kBlockM = kWarpgroups * 64;          // query rows per CTA
  static constexpr int kBlockN = kKeys;                     // keys per tile
  static constexpr int kThreads = (kWarpgroups + 1) * 128;  // the last warpgroup is the producer
  static constexpr int kStages = 2;                         // tiles of K and of V in shared memory
  static constexpr int kSlabs = kHeadDim / 64;              // slabs per tile
  // A launch gives all threads equally many registers; the producer returns what consumers need.
  static constexpr int kLaunchRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kProducerRegisters = kWarpgroups == 3 ? 32 : 24;
  static constexpr int kConsumerRegisters = kWarpgroups == 3 ? 160 : 240;
  static_assert(kWarpgroups * (kConsumerRegisters - kLaunchRegisters) <=
                    kLaunchRegisters - kProducerRegisters,
                "otherwise a consumer would wait for registers without end");
  // A consumer's softmax runs under its own PV; three consumers run under each other's products.
  static constexpr bool kOverlap = kWarpgroups == 2;
  static_assert(kBlockN == 64 || kBlockN == 128, "a head has an even number of tiles");
  // Warpgroup g has barriers kQRead + g (its warps have read Q) and kTurn + g. 0 is __syncthreads'.
  enum NamedBarrier : int { kQRead = 1, kTurn = kQRead + kWarpgroups };
};

// Warps w0..w3 of warpgroup g have 16 rows of S and O each. Lane l holds four elements of every 8
// columns. Tiles of K and V, and the 64 rows of Q per warpgroup, are stored in slabs:
//
//               S: all keys, O: all columns   8 columns, lane l      columns 0..63   64..127
//   rows 64g +  0..15   w0                    row l/4:   2 (l%4),+1  +------------+  +------------+
//   rows 64g + 16..31   w1                    row l/4+8: the same    | slab 0:    |  | slab 1     |
//   rows 64g + 32..47   w2                    columns                | 128 bytes  |  | kBlockN    |
//   rows 64g + 48..63   w3                                           | per row    |  | rows later |
//                                                                    +------------+  +------------+
// The four lanes of a quad (l/4) share two rows. The 16-byte chunks of a slab's row are swizzled.
template <typename T, int kHeadDim, int kKeys>
struct SharedStorage {
  using C = Config<kHeadDim, kKeys>;
  // The swizzle depends on the address and repeats every 1024 bytes (8 rows), hence the alignment.
  // sQ[t % 2] holds Q of query tile t and later its O; the other half belongs to the next tile.
  alignas(1024) T sQ[2][C::kWarpgroups][C::kSlabs][64][64];
  alignas(1024) T sK[C::kStages][C::kSlabs][C::kBlockN][64];
  alignas(1024) T sV[C::kStages][C::kSlabs][C::kBlockN][64];
  // full expects the producer's arrival and the tile's bytes; empty expects one per consumer warp.
  uint64_t k_full[C::kStages], k_empty[C::kStages], v_full[C::kStages], v_empty[C::kStages];
  // [t % 2] belongs to query tile t. o_full expects one arrival per warp of the consumer.
  uint64_t q_full[2][C::kWarpgroups], o_full[2][C::kWarpgroups];
};

template <typename T, int kHeadDim, int kKeys>
__global__ void __launch_bounds__(Config<kHeadDim, kKeys>::kThreads, 1)
    attention_kernel(const __grid_constant__ ptx::TensorMap map_q,
                     const __grid_constant__ ptx::TensorMap map_k,
                     const __grid_constant__ ptx::TensorMap map_v,
                     const __grid_constant__ ptx::TensorMap map_o, uint32_t seq_len, uint32_t heads,
                     uint32_t q_tiles, float scale) {
  using C = Config<kHeadDim, kKeys>;
  using R = Range<T>;
  constexpr int kQBytes = C::kBlockM * kHeadDim * sizeof(T);
  constexpr int kTileBytes = C::kBlockN * kHeadDim * sizeof(T);
  static_assert(kTileBytes == C::kSlabs * C::kBlockN * 128, "what the boxes of a tile bring");
  auto& smem = shared_storage<SharedStorage<T, kHeadDim, kKeys>>();

  // ---- indices
  // The value is the same in all lanes, and the shuffle tells the compiler so.
  const int warpgroup_idx = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int warp_idx = threadIdx.x / 32 % 4;  // within the warpgroup
  const int lane_idx = threadIdx.x % 32;
  const uint32_t tiles = seq_len / C::kBlockN;  // tiles of K per head: an even number
  // This CTA has the query tiles blockIdx.x + t * gridDim.x of all heads, for t below its_tiles.
  const uint32_t its_tiles = (q_tiles - 1 - blockIdx.x) / gridDim.x + 1;
  const uint32_t m_blocks = (seq_len + C::kBlockM - 1) / C::kBlockM;  // query tiles per head
  const auto tile = [&](uint32_t t) { return blockIdx.x + t * gridDim.x; };
  // Where a box begins in a tensor: the last three coordinates of its map.
  struct Place {
    int row, head, sequence;
  };
  // [places]
  // Returns the place of row 0 of query tile t's head. Divisions are slow, so the producer calls it
  // once per query tile, not once per K tile.
  const auto first_key = [&](uint32_t t) {
    const uint32_t head = tile(t) / m_blocks;  // counted over all sequences
    return Place{0, int(head % heads), int(head / heads)};
  };
  // Returns where a consumer's rows of query tile t begin, in a head's last tile perhaps past the
  // head's end.
  const auto queries = [&](uint32_t t, int consumer) {
    Place place = first_key(t);
    place.row = tile(t) % m_blocks * C::kBlockM + consumer * 64;
    return place;
  };
  // [/places]

  // ---- pointers
  // The descriptors name Q's first 16 columns, those of tile 0 of K, and the first 16 keys of V.
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
  __syncthreads();  // all threads wait until the barriers are initialised, so each may use them

  // The producer loads tile n_block of K or V from `key` on, once all warps released the stage.
  const auto load_tile = [&](const ptx::TensorMap& map, T(*tiles_of)[C::kSlabs][C::kBlockN][64],
                             uint64_t* full, uint64_t* empty, uint32_t n_block, Place key) {
    const uint32_t stage = n_block % C::kStages;
    ptx::mbarrier_wait(&empty[stage], (n_block / C::kStages + 1) % 2);
    ptx::mbarrier_arrive_expect_tx(&full[stage], kTileBytes);
#pragma unroll
    for (int slab = 0; slab < C::kSlabs; slab++) {
      ptx::cp_async_bulk_tensor_load(tiles_of[stage][slab], &map,
                                     {slab * 64, key.row, key.head, key.sequence}, &full[stage]);
    }
  };

  // ---- producer
  if (warpgroup_idx == C::kWarpgroups) {
    ptx::setmaxnreg_dec<C::kProducerRegisters>();
    // [groups]
    // One thread loads group after group: tile n_block of K and tile n_block - 1 of V.
    if (warp_idx == 0 && ptx::elect_sync()) {
      uint32_t n_block = 0;
      Place of_v = {};  // of the K tile before, whose V comes next
      for (uint32_t t = 0; t < its_tiles; t++) {
        Place of_k = first_key(t);
        for (uint32_t n = 0; n < tiles; n++, n_block++) {
          of_k.row = n * C::kBlockN;
          load_tile(map_k, smem.sK, smem.k_full, smem.k_empty, n_block, of_k);
          if (n_block > 0) load_tile(map_v, smem.sV, smem.v_full, smem.v_empty, n_block - 1, of_v);
          of_v = of_k;
        }
      }
      load_tile(map_v, smem.sV, smem.v_full, smem.v_empty, n_block - 1, of_v);
    }
    // [/groups]
    // [store-warps]
    // One thread per consumer loads Q, later stores O, and then loads the next Q but one there.
    if (warp_idx > 0 && warp_idx <= C::kWarpgroups && ptx::elect_sync()) {
      const int consumer = warp_idx - 1;
      for (uint32_t t = 0; t < its_tiles + 2; t++) {
        T(*const sQ)[64][64] = smem.sQ[t % 2][consumer];  // [kSlabs][64][64]
        if (t >= 2) {
          ptx::mbarrier_wait(&smem.o_full[t % 2][consumer], t / 2 % 2 ^ 1);  // O of tile t - 2
          const Place o = queries(t - 2, consumer);
          for (int slab = 0; slab < C::kSlabs; slab++) {  // rows past the head are not written
            ptx::cp_async_bulk_tensor_store(&map_o, {slab * 64, o.row, o.head, o.sequence},
                                            sQ[slab]);
          }
          ptx::cp_async_bulk_commit();
          ptx::cp_async_bulk_wait_read<0>();
        }
        if (t < its_tiles) {
          uint64_t* const full = &smem.q_full[t % 2][consumer];
          ptx::mbarrier_arrive_expect_tx(full, 64 * kHeadDim * sizeof(T));
          const Place q = queries(t, consumer);  // rows past the head's end are zeros
          for (int slab = 0; slab < C::kSlabs; slab++) {
            ptx::cp_async_bulk_tensor_load(sQ[slab], &map_q, {slab * 64, q.row, q.head, q.sequence},
                                           full);
          }
        }
      }
      ptx::cp_async_bulk_wait<0>();  // waits until the last O is written
    }
    // [/store-warps]
    return;
  }
  ptx::setmaxnreg_inc<C::kConsumerRegisters>();

  // Every warp calls it before it reads tile n, to wait for phase n / kStages of its full barrier.
  const auto wait_full = [&](uint64_t* full, uint32_t n) {
    ptx::mbarrier_wait(&full[n % C::kStages], n / C::kStages % 2);
  };
  // Every warp calls it when it has finished reading tile n, so its stage may be refilled. No wait.
  const auto release = [&](uint64_t* empty, uint32_t n) {
    if (lane_idx == 0) ptx::mbarrier_arrive(&empty[n % C::kStages]);
  };

  // ---- registers
  float acc_s[C::kBlockN / 2];
  float acc_o[kHeadDim / 2];
  // rP[n % 2] is P of tile n: with kOverlap one array is read while the other one is written.
  uint32_t rP[C::kOverlap ? 2 : 1][C::kBlockN / 16][4];
  // Each lane keeps statistics for two rows of its warpgroup: 16 * warp_idx + lane_idx / 4, and
  // that row + 8. row_ref (in log2) is subtracted from scores; row_sum is the lane's share, and
  // tile_sum that of the last tile, which belongs to it once fits() has been asked.
  float row_ref[2], row_sum[2] = {}, tile_sum[2], rescale[2];
  bool maxima = false;  // fp16: a sum of this query tile was too large, so maxima come first
  const float scale_log2 = scale * kLog2e;
  uint64_t desc_q_t = desc_q;  // Q of the query tile under way

  // Starts S = QK^T. After the fence acc_s belongs to the Tensor Cores until wgmma_wait returns it.
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
  // Starts O += PV, or O = PV. P and acc_o belong to the Tensor Cores until wgmma_wait, too.
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

  // Begins the rows of a query tile once its first S is complete. The lanes of a quad have a row's
  // first eight scores.
  const auto begin_rows = [&] {
    maxima = false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float most = layout::quad_max(fmaxf(acc_s[2 * h], acc_s[2 * h + 1]));
      row_ref[h] = fmaf(most, scale_log2, R::kMargin);
      row_sum[h] = 0.0f;
    }
  };
  // [exponentials]
  // Computes P = 2^(S scale_log2 - row_ref) as A operand (8 + 8 columns per fragment) and its sums.
  const auto exponentials = [&](auto& p) {
    float part[4];  // sums of even and odd columns of both rows
#pragma unroll
    for (int i = 0; i < C::kBlockN / 4; i++) {
      float low_high[2];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        float& to = part[i % 2 * 2 + j];
        low_high[j] = ptx::exp2_approx(fmaf(acc_s[2 * i + j], scale_log2, -row_ref[i % 2]));
        to = i < 2 ? low_high[j] : to + low_high[j];
      }
      p[i / 4][i % 4] = ptx::pack<T>(low_high[0], low_high[1]);
    }
    tile_sum[0] = part[0] + part[1];
    tile_sum[1] = part[2] + part[3];
  };
  // Adds the sums of a tile to those of the rows. If a lane's are too large it adds nothing, and
  // returns false in all lanes of the warp: again() must follow.
  const auto fits = [&]() -> bool {
    if (!__all_sync(0xffffffffu, tile_sum[0] + tile_sum[1] <= R::kMaxSum)) return false;
#pragma unroll
    for (int h = 0; h < 2; h++) row_sum[h] += tile_sum[h];
    return true;
  };
  // [/exponentials]
  // Multiplies O by rescale. Every warp calls it when references rose and no PV is under way.
  const auto rescale_o = [&] {
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; i++) acc_o[i] *= rescale[i / 2 % 2];
  };
  // [again]
  // Raises references to kMargin above a tile's maxima. Then O must be rescaled, too.
  const auto raise = [&] {
    // Even and odd columns of both rows form four independent chains.
    float score[4] = {acc_s[0], acc_s[1], acc_s[2], acc_s[3]};
#pragma unroll
    for (int i = 4; i < C::kBlockN / 2; i++) score[i % 4] = fmaxf(score[i % 4], acc_s[i]);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float most = layout::quad_max(fmaxf(score[2 * h], score[2 * h + 1]));
      const float new_ref = fmaxf(row_ref[h], fmaf(most, scale_log2, R::kMargin));
      rescale[h] = ptx::exp2_approx(row_ref[h] - new_ref);
      row_ref[h] = new_ref;
      row_sum[h] *= rescale[h];
    }
  };
  // Computes P of a tile again, whose sums were too large, while no PV is under way. A query tile's
  // first K tile has no O yet.
  const auto again = [&](auto& p, bool first) {
    maxima = !R::kWide;  // later tiles would probably fail, too
    raise();
    if (!first) rescale_o();
    exponentials(p);
#pragma unroll
    for (int h = 0; h < 2; h++) row_sum[h] += tile_sum[h];
  };
  // [/again]
  // [store]
  float inverse_sum[2];  // of the query tile that has just ended
  // Ends the row sums of a query tile. Every consumer warp calls it.
  const auto end_sums = [&] {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      inverse_sum[h] = 1.0f / layout::quad_sum(row_sum[h]);
    }
  };
  // Stages O in this warp's rows of sQ, after a barrier: every warp of the warpgroup has read Q.
  const auto store_o = [&](uint32_t t) {
    ptx::barrier_sync(C::kQRead + warpgroup_idx, 128);
    T(*const sO)[64][64] = smem.sQ[t % 2][warpgroup_idx];  // [kSlabs][64][64]
#pragma unroll
    for (int n = 0; n < kHeadDim / 16; n++) {  // 16 columns per step
      uint32_t rO[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        rO[i] = ptx::pack<T>(acc_o[8 * n + 2 * i] * inverse_sum[i % 2],
                             acc_o[8 * n + 2 * i + 1] * inverse_sum[i % 2]);
      }
      ptx::stmatrix_x4(
          rO, layout::chunk_address(sO, warp_idx * 16 + lane_idx % 16, n * 16 + lane_idx / 16 * 8));
    }
    ptx::fence_proxy_async();  // makes O visible to TMA, which reads by another path
    __syncwarp();              // lane 0 waits until all lanes have stored and fenced O
    if (lane_idx == 0) ptx::mbarrier_arrive(&smem.o_full[t % 2][warpgroup_idx]);
  };
  // [/store]

  // [turns]
  // Warpgroup g waits for its turn at barrier kTurn + g; the warpgroup before it arrives there when
  // its own turn ends. Its products then still run, but those started later queue behind them.
  const auto begin_turn = [&] { ptx::barrier_sync(C::kTurn + warpgroup_idx, 256); };
  const auto end_turn = [&](bool last) {
    const int next = warpgroup_idx + 1 < C::kWarpgroups ? warpgroup_idx + 1 : 0;
    // No warpgroup waits after the very last turn.
    if (!last || next > 0) ptx::barrier_arrive(C::kTurn + next, 256);
  };
  if (warpgroup_idx == C::kWarpgroups - 1) end_turn(false);  // warpgroup 0 has the first turn
  // [/turns]

  // [turn]
  // A turn starts S of tile n_block and O += PV of the tile before, and waits for S, not for PV.
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
  // Computes P of tile n_block under PV of the tile before, and waits for that PV. Returns what
  // fits() does.
  const auto finish = [&](uint32_t n_block, auto& p_before, auto& p) -> bool {
    if (maxima) raise();
    exponentials(p);
    const bool good = fits();
    ptx::wgmma_wait<0>(acc_o, p_before, p);  // naming p, too, keeps it in its registers
    release(smem.v_empty, n_block - 1);
    if (maxima) rescale_o();
    return good;
  };
  // [/turn]

  // ---- prologue
  ptx::mbarrier_wait(&smem.q_full[0][warpgroup_idx], 0);
  wait_full(smem.k_full, 0);
  multiply_qk(0);
  ptx::wgmma_wait<0>(acc_s);
  release(smem.k_empty, 0);
  auto& even = rP[0];
  auto& odd = rP[C::kOverlap ? 1 : 0];
  begin_rows();
  exponentials(even);
  if (!fits()) again(even, true);

  // ---- main loop
  // [loop]
  uint32_t t = 0;     // counts this CTA's query tiles
  uint32_t pair = 0;  // counts pairs of K tiles over all its query tiles
  uint32_t n = 1;     // is the second K tile of a pair, counted within its head
  // Registers cannot be indexed, so each of two turns names its P. They return whether P is done.
  const auto odd_turn = [&]() -> bool {
    start_qk(2 * pair + 1);
    if (n == 1 && t > 0) store_o(t - 1);  // QK^T goes on
    start_pv(2 * pair + 1, even, n > 1);
    return finish(2 * pair + 1, even, odd);
  };
  const auto even_turn = [&]() -> bool {
    start_qk(2 * pair + 2);
    start_pv(2 * pair + 2, odd, true);
    return finish(2 * pair + 2, odd, even);
  };
  while (true) {
    bool odd_done, even_done = true;
    for (;; n += 2, pair++) {  // what is rare stands behind this loop, so its code has no gaps
      odd_done = odd_turn();
      if (!odd_done || n + 1 == tiles) break;
      even_done = even_turn();
      if (!even_done) break;
    }
    if (!odd_done) again(odd, false);
    if (n + 1 < tiles) {
      if (!odd_done) even_done = even_turn();
      if (!even_done) again(even, false);
      n += 2, pair++;
      continue;
    }
    if (++t == its_tiles) break;
    // The last PV of query tile t - 1 shares its turn with the first S of query tile t.
    ptx::mbarrier_wait(&smem.q_full[t % 2][warpgroup_idx], t / 2 % 2);
    desc_q_t = layout::advance(desc_q, t % 2 * kQBytes);
    start_qk(2 * pair + 2);
    start_pv(2 * pair + 2, odd, true);
    end_sums();
    begin_rows();
    exponentials(even);
    ptx::wgmma_wait<0>(acc_o, odd, even);
    release(smem.v_empty, 2 * pair + 1);
    if (!fits()) again(even, true);
    pair++;
    n = 1;
  }
  // [/loop]

  // ---- epilogue
  wait_full(smem.v_full, 2 * pair + 1);
  begin_turn();
  multiply_pv(2 * pair + 1, odd, true);
  end_turn(true);
  end_sums();
  ptx::wgmma_wait<0>(acc_o, odd);
  store_o(t - 1);
}

// ---- host ---------------------------------------------------------------------------------------
template <typename T, int kHeadDim>
struct Launcher {
  static void run(const Attention<T>& a) {
    a.seq_len % 256 == 0 ? run_with<128>(a) : run_with<64>(a);
  }
  template <int kKeys>
  static void run_with(const Attention<T>& a) {
    using C = Config<kHeadDim, kKeys>;
    // Makes the map of a tensor, whose boxes are `rows` rows of a slab.
    const auto map = [&](const T* tensor, const Strides& strides, uint32_t rows) {
      return make_slab_map(tensor, kHeadDim, a.seq_len, a.heads, a.batch, strides, rows);
    };
    const int q_tiles = a.batch * a.heads * ((a.seq_len + C::kBlockM - 1) / C::kBlockM);
    launch<attention_kernel<T, kHeadDim, kKeys>>(
        {dim3(q_tiles < sm_count() ? q_tiles : sm_count()), dim3(C::kThreads),
         sizeof(SharedStorage<T, kHeadDim, kKeys>)},
        map(a.q, a.q_strides, 64), map(a.k, a.k_strides, C::kBlockN),
        map(a.v, a.v_strides, C::kBlockN), map(a.o, a.o_strides, 64), a.seq_len, a.heads, q_tiles,
        a.scale);
  }
};

const Registration<Launcher> registration{"16_max_free", Needs{90, true}, Traits::kMaxFree,
                                          Takes{.strides = true}};

}  // namespace fa::k16
