// 16_max_free: no row maximum.
//
// Idea         The quotient O does not depend on what is subtracted from a row's scores while the
//              exponentials, their sum and O stay in range. So a reference replaces the maximum: a
//              little above the row's first scores, later above its sum, which is needed anyway.
// Bottleneck   Removed: 15 took maxima of a query tile's first scores, and later of all P.
// Changed      softmax() takes maxima only where P or O overflowed. Any turn may begin a query
//              tile, so heads have any number of K tiles, all of 128 keys.
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
// A reference is kMargin (log2) above a row's first scores. It rises to kMargin above the row's sum
// when a lane's share exceeds kMaxSum, and above the maximum when a tile's exceeds kMaxTileSum.
// A rise by more than 126 makes the factor of O and of the sums 0. What they had before is then
// lost, so it must be small: at most 2^100 per row (four lanes' sums) before the rise, which is
// less than 2^-14 of what the new maximum adds, 2^-kMargin.
template <typename T>
struct Range {  // fp16 ends at 2^16 and loses bits below 2^-14; bf16 has fp32's range
  static constexpr bool kWide = !std::is_same_v<T, __half>;
  static constexpr float kMargin = kWide ? 12.0f : -3.0f;
  static constexpr float kMaxSum = kWide ? 0x1p60f : 0x1p14f;
  static constexpr float kMaxTileSum = kWide ? 0x1p98f : 0x1p15f;
};
// [/range]

template <int kHeadDim, int kConsumers>
struct Config {
  static constexpr int kWarpgroups = kConsumers;            // with 64 query rows each
  static constexpr int kBlockM = kWarpgroups * 64;          // query rows per CTA
  static constexpr int kBlockN = 128;                       // keys per tile
  static constexpr int kThreads = (kWarpgroups + 1) * 128;  // the last warpgroup is the producer
  static constexpr int kStages = 2;                         // tiles of K and of V in shared memory
  static constexpr int kQTiles = 3;                         // tiles of Q, or of O, there
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
  static constexpr bool kExact = false;  // true: takes all maxima first, as kernel 09 did
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
template <typename T, int kHeadDim, int kConsumers>
struct SharedStorage {
  using C = Config<kHeadDim, kConsumers>;
  // The swizzle depends on the address and repeats every 1024 bytes (8 rows), hence the alignment.
  // sQ[t % kQTiles] holds Q of query tile t and later its O.
  alignas(1024) T sQ[C::kQTiles][C::kWarpgroups][C::kSlabs][64][64];
  alignas(1024) T sK[C::kStages][C::kSlabs][C::kBlockN][64];
  alignas(1024) T sV[C::kStages][C::kSlabs][C::kBlockN][64];
  // full expects the producer's arrival and the tile's bytes; empty expects one per consumer warp.
  uint64_t k_full[C::kStages], k_empty[C::kStages], v_full[C::kStages], v_empty[C::kStages];
  // [t % kQTiles] belongs to query tile t. o_full expects one arrival per warp of the consumer.
  uint64_t q_full[C::kQTiles][C::kWarpgroups], o_full[C::kQTiles][C::kWarpgroups];
  uint64_t pass_end;  // expects one arrival per consumer warp, once
  uint32_t again;     // then not 0 if an O is infinite or NaN: a second pass follows
};

template <typename T, int kHeadDim, int kConsumers>
__global__ void __launch_bounds__(Config<kHeadDim, kConsumers>::kThreads, 1)
    attention_kernel(const __grid_constant__ ptx::TensorMap map_q,
                     const __grid_constant__ ptx::TensorMap map_k,
                     const __grid_constant__ ptx::TensorMap map_v,
                     const __grid_constant__ ptx::TensorMap map_o, uint32_t seq_len, uint32_t heads,
                     uint32_t q_tiles, float scale) {
  using C = Config<kHeadDim, kConsumers>;
  using R = Range<T>;
  constexpr int kQBytes = C::kBlockM * kHeadDim * sizeof(T);
  constexpr int kTileBytes = C::kBlockN * kHeadDim * sizeof(T);
  auto& smem = shared_storage<SharedStorage<T, kHeadDim, kConsumers>>();

  // ---- indices
  // The value is the same in all lanes, and the shuffle tells the compiler so.
  const int warpgroup_idx = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int warp_idx = threadIdx.x / 32 % 4;  // within the warpgroup
  const int lane_idx = threadIdx.x % 32;
  const uint32_t tiles = seq_len / C::kBlockN;  // tiles of K per head
  // This CTA has the query tiles blockIdx.x + t * gridDim.x of all heads, for t below its_tiles.
  const uint32_t its_tiles = (q_tiles - 1 - blockIdx.x) / gridDim.x + 1;
  const uint32_t m_blocks = (seq_len + C::kBlockM - 1) / C::kBlockM;  // query tiles per head
  const auto tile = [&](uint32_t t) { return blockIdx.x + t * gridDim.x; };
  // Where a box begins in a tensor: the last three coordinates of its map.
  struct Place {
    int row, head, sequence;
  };
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

  // ---- pointers
  // The descriptors name Q's first 16 columns, those of tile 0 of K, and the first 16 keys of V.
  const uint64_t desc_q =
      layout::k_major_descriptor(ptx::shared_address(smem.sQ[0][warpgroup_idx]));
  const uint64_t desc_k = layout::k_major_descriptor(ptx::shared_address(smem.sK));
  const uint64_t desc_v = layout::mn_major_descriptor(ptx::shared_address(smem.sV), C::kBlockN);

  // ---- barriers
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::kQTiles * C::kWarpgroups; i++) {
      ptx::mbarrier_init(&smem.q_full[0][i], 1);
      ptx::mbarrier_init(&smem.o_full[0][i], 4);
    }
    for (int stage = 0; stage < C::kStages; stage++) {
      ptx::mbarrier_init(&smem.k_full[stage], 1);
      ptx::mbarrier_init(&smem.v_full[stage], 1);
      ptx::mbarrier_init(&smem.k_empty[stage], C::kWarpgroups * 4);
      ptx::mbarrier_init(&smem.v_empty[stage], C::kWarpgroups * 4);
    }
    ptx::mbarrier_init(&smem.pass_end, C::kWarpgroups * 4);
    smem.again = 0;
    ptx::fence_mbarrier_init();
  }
  __syncthreads();  // all threads wait until this is initialised, so each may use it

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
    for (int pass = 0; pass < 2; pass++) {
      const uint32_t first_t = pass * its_tiles;  // a second pass goes on counting
      // One thread loads group after group: tile i of K and tile i - 1 of V.
      if (warp_idx == 0 && ptx::elect_sync()) {
        uint32_t i = first_t * tiles;
        Place of_v = {};  // of the K tile before, whose V comes next
        for (uint32_t t = 0; t < its_tiles; t++) {
          Place of_k = first_key(t);
          for (uint32_t n = 0; n < tiles; n++, i++) {
            of_k.row = n * C::kBlockN;
            load_tile(map_k, smem.sK, smem.k_full, smem.k_empty, i, of_k);
            if (t + n > 0) load_tile(map_v, smem.sV, smem.v_full, smem.v_empty, i - 1, of_v);
            of_v = of_k;
          }
        }
        load_tile(map_v, smem.sV, smem.v_full, smem.v_empty, i - 1, of_v);
      }
      // One thread per consumer loads Q, later stores O, and then loads a later Q in its place.
      if (warp_idx > 0 && warp_idx <= C::kWarpgroups && ptx::elect_sync()) {
        const int consumer = warp_idx - 1;
        for (uint32_t t = 0; t < its_tiles + C::kQTiles; t++) {
          const uint32_t slot = (first_t + t) % C::kQTiles, uses = (first_t + t) / C::kQTiles;
          T(*const sQ)[64][64] = smem.sQ[slot][consumer];  // [kSlabs][64][64]
          if (t >= C::kQTiles) {
            const Place o =
                queries(t - C::kQTiles, consumer);  // where a former query tile's O belongs
            ptx::mbarrier_wait(&smem.o_full[slot][consumer], (uses + 1) % 2);
            for (int slab = 0; slab < C::kSlabs; slab++) {  // rows past the head are not written
              ptx::cp_async_bulk_tensor_store(&map_o, {slab * 64, o.row, o.head, o.sequence},
                                              sQ[slab]);
            }
            ptx::cp_async_bulk_commit();
            ptx::cp_async_bulk_wait_read<0>();
          }
          if (t < its_tiles) {
            uint64_t* const full = &smem.q_full[slot][consumer];
            ptx::mbarrier_arrive_expect_tx(full, 64 * kHeadDim * sizeof(T));
            const Place q = queries(t, consumer);  // rows past the head's end are zeros
            for (int slab = 0; slab < C::kSlabs; slab++) {
              ptx::cp_async_bulk_tensor_load(sQ[slab], &map_q,
                                             {slab * 64, q.row, q.head, q.sequence}, full);
            }
          }
        }
        ptx::cp_async_bulk_wait<0>();  // waits until the last O is written
      }
      ptx::mbarrier_wait(&smem.pass_end, 0);  // the consumers have said what follows
      if (!smem.again) return;
    }
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
  // that row + 8. row_ref (in log2) is subtracted from scores; row_sum is the lane's share.
  float row_ref[2] = {}, row_sum[2] = {}, rescale[2] = {1.0f, 1.0f};
  bool exact = false;       // exact mode: maxima are taken first
  bool failed = false;      // a P of this query tile has overflowed (fp16: as if one had)
  bool not_finite = false;  // an O of this lane was infinite or NaN
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

  // [exponentials]
  // Computes P = 2^(S scale_log2 - row_ref) as A operand (8 + 8 columns per fragment) and its sums.
  // Returns whether the sums of all lanes are small enough.
  const auto exponentials = [&](auto& p, float(&sum)[2]) -> bool {
    float part[4] = {};  // sums of even and odd columns of both rows
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
    return __all_sync(0xffffffffu, sum[0] + sum[1] <= R::kMaxTileSum);
  };
  // [/exponentials]
  // [raise]
  // Raises references to kMargin above what is `above` them (log2). Then O must be rescaled, too.
  const auto raise = [&](const float(&above)[2]) {
    for (int h = 0; h < 2; h++) {
      const float by = fmaxf(layout::quad_max(above[h]) + R::kMargin, 0.0f);
      row_ref[h] += by;
      row_sum[h] *= ptx::exp2_approx(-by);
      rescale[h] *= ptx::exp2_approx(-by);
    }
  };
  // [/raise]
  // Multiplies O by rescale. Every warp calls it when a reference rose and no PV is under way.
  const auto rescale_o = [&] {
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; i++) acc_o[i] *= rescale[i / 2 % 2];
    rescale[0] = rescale[1] = 1.0f;
  };
  float inverse_sum[2];  // of the query tile that has just ended
  // Ends the row sums of a query tile and begins the next ones. Every consumer warp calls it.
  const auto end_sums = [&] {
    for (int h = 0; h < 2; h++) {
      inverse_sum[h] = 1.0f / layout::quad_sum(row_sum[h]);
      row_sum[h] = 0.0f;
    }
  };
  // [softmax]
  // Computes P and row_sum of a tile once S is complete. Where P overflowed, or if this is done
  // `again`, references rise above the maxima first. Returns whether O must be rescaled.
  const auto softmax = [&](auto& p, bool first, bool again) -> bool {
    for (int h = 0; h < 2 && first; h++) {  // the quad's lanes have the row's first eight scores
      const float most = layout::quad_max(fmaxf(acc_s[2 * h], acc_s[2 * h + 1]));
      row_ref[h] = fmaf(most, scale_log2, R::kMargin);
    }
    float sum[2];
    bool raised = false;
    if (first) exact = C::kExact || again, failed = !R::kWide;
    if (exact || !exponentials(p, sum)) {
      exact |= failed;  // after a second failure: later tiles would probably fail, too
      failed = true;
      // Even and odd columns of both rows form four independent chains.
      float score[4] = {acc_s[0], acc_s[1], acc_s[2], acc_s[3]};
#pragma unroll
      for (int i = 4; i < C::kBlockN / 2; i++) score[i % 4] = fmaxf(score[i % 4], acc_s[i]);
      raise({fmaf(fmaxf(score[0], score[1]), scale_log2, -row_ref[0]),
             fmaf(fmaxf(score[2], score[3]), scale_log2, -row_ref[1])});
      exponentials(p, sum);
      if (first) rescale[0] = rescale[1] = 1.0f;  // there is no O yet
      raised = __any_sync(0xffffffffu, rescale[0] * rescale[1] != 1.0f);
    }
    row_sum[0] += sum[0];
    row_sum[1] += sum[1];
    return raised;
  };
  // [/softmax]

  // Stages O in this warp's rows of sQ, after a barrier: every warp of the warpgroup has read Q.
  const auto store_o = [&](uint32_t t) {
    float zeros[4] = {};  // NaN where O is not finite
    ptx::barrier_sync(C::kQRead + warpgroup_idx, 128);
    T(*const sO)[64][64] = smem.sQ[t % C::kQTiles][warpgroup_idx];  // [kSlabs][64][64]
#pragma unroll
    for (int n = 0; n < kHeadDim / 16; n++) {  // 16 columns per step
      uint32_t rO[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float low = acc_o[8 * n + 2 * i], high = acc_o[8 * n + 2 * i + 1];
        zeros[i] = fmaf(high, 0.0f, fmaf(low, 0.0f, zeros[i]));
        rO[i] = ptx::pack<T>(low * inverse_sum[i % 2], high * inverse_sum[i % 2]);
      }
      ptx::stmatrix_x4(
          rO, layout::chunk_address(sO, warp_idx * 16 + lane_idx % 16, n * 16 + lane_idx / 16 * 8));
    }
    not_finite |= zeros[0] + zeros[1] + zeros[2] + zeros[3] != 0.0f;
    ptx::fence_proxy_async();  // makes O visible to TMA, which reads by another path
    __syncwarp();              // lane 0 waits until all lanes have stored and fenced O
    if (lane_idx == 0) ptx::mbarrier_arrive(&smem.o_full[t % C::kQTiles][warpgroup_idx]);
  };

  // Warpgroup g waits for its turn at barrier kTurn + g; the warpgroup before it arrives there when
  // its own turn ends. Its products then still run, but those started later queue behind them.
  const auto begin_turn = [&] { ptx::barrier_sync(C::kTurn + warpgroup_idx, 256); };
  const auto end_turn = [&](bool last) {  // no warpgroup waits after the very last turn
    const int next = warpgroup_idx + 1 < C::kWarpgroups ? warpgroup_idx + 1 : 0;
    if (!last || next > 0) ptx::barrier_arrive(C::kTurn + next, 256);
  };

  auto& even = rP[0];
  auto& odd = rP[C::kOverlap ? 1 : 0];
  // If an O is not finite, a second pass computes all of this CTA's O again, with maxima. Unrolled,
  // it costs the first pass nothing.
#pragma unroll
  for (int pass = 0; pass < 2; pass++) {
    // t counts this CTA's query tiles, n the K tiles of a head. A second pass goes on counting t
    // and the tiles of K and V, so the barriers' phases follow those of the first one.
    uint32_t t = pass * its_tiles, n = 0;
    const uint32_t end_t = t + its_tiles, begin = t * tiles, last = end_t * tiles - 1;
    const auto begin_query_tile = [&] {
      ptx::mbarrier_wait(&smem.q_full[t % C::kQTiles][warpgroup_idx], t / C::kQTiles % 2);
      desc_q_t = layout::advance(desc_q, t % C::kQTiles * kQBytes);
    };

    // ---- prologue
    if (warpgroup_idx == C::kWarpgroups - 1) end_turn(false);  // warpgroup 0 has the first turn
    begin_query_tile();
    wait_full(smem.k_full, begin);
    multiply_qk(begin);
    ptx::wgmma_wait<0>(acc_s);
    release(smem.k_empty, begin);
    softmax(even, true, pass > 0);
    n++;

    // ---- main loop
    // A turn starts S of tile n_block and O += PV of the tile before. P of tile n_block is computed
    // under that PV. The last PV of a query tile shares its turn with the first S of the next.
    // [turn]
    const auto turn = [&](uint32_t n_block, auto& p_before, auto& p, bool test_sums) {
      wait_full(smem.k_full, n_block);
      begin_turn();
      multiply_qk(n_block);
      // QK^T runs meanwhile, so here is time for what few turns need: those with the first S, or
      // with the first PV, of a query tile. These are one turn where tiles is 1.
      const bool first_qk = n == 0, first_pv = n == 1 % tiles;
      if (first_pv && n_block > begin + 1) store_o(n > 0 ? t - 1 : t - 2);
      if (first_qk) end_sums();
      const bool high =
          test_sums && !__all_sync(0xffffffffu, row_sum[0] + row_sum[1] <= R::kMaxSum);
      if (high) raise({logbf(row_sum[0]), logbf(row_sum[1])});
      n++;
      wait_full(smem.v_full, n_block - 1);
      multiply_pv(n_block - 1, p_before, !first_pv);
      end_turn(false);
      ptx::wgmma_wait<C::kOverlap ? 1 : 0>(acc_s);  // for S, not for PV
      release(smem.k_empty, n_block);
      const bool raised = softmax(p, first_qk, pass > 0);
      // All four warps wait here, those that do not rescale, too: wgmma asks that of a warpgroup.
      ptx::wgmma_wait<0>(acc_o, p_before);
      release(smem.v_empty, n_block - 1);
      if (high || raised) rescale_o();  // all lanes of the warp, or none
    };
    // [/turn]
    // Goes on to the next query tile after the last K tile of a head. False: there is none.
    const auto more = [&]() -> bool {
      if (n < tiles) return true;
      n = 0;
      if (++t == end_t) return false;
      begin_query_tile();
      return true;
    };
    // Two turns per iteration: registers cannot be indexed, so each turn names its P. One of them
    // tests the sums, which is enough because two tiles add at most 2^99 to a lane's sums.
    for (uint32_t pair = 0; more(); pair++) {
      turn(begin + 2 * pair + 1, even, odd, true);
      if (!more()) break;
      turn(begin + 2 * pair + 2, odd, even, false);
    }

    // ---- epilogue
    wait_full(smem.v_full, last);
    begin_turn();
    if (tiles == 1 && last > begin) store_o(t - 2);
    (last - begin) % 2 == 0 ? multiply_pv(last, even, tiles > 1)
                            : multiply_pv(last, odd, tiles > 1);
    end_turn(true);
    end_sums();
    ptx::wgmma_wait<0>(acc_o, even, odd);
    release(smem.v_empty, last);
    store_o(t - 1);
    if (pass > 0) return;
    if (not_finite) atomicOr(&smem.again, 1u);
    __syncwarp();  // lane 0 arrives for all of them
    if (lane_idx == 0) ptx::mbarrier_arrive(&smem.pass_end);
    ptx::mbarrier_wait(&smem.pass_end, 0);
    if (!smem.again) return;
  }
}

// ---- host ---------------------------------------------------------------------------------------
template <typename T, int kHeadDim>
struct Launcher {
  static void run(const Attention<T>& a) {
    const auto tiles = [&](int rows) { return a.batch * a.heads * ((a.seq_len - 1) / rows + 1); };
    const auto rounds = [&](int rows) { return (tiles(rows) - 1) / sm_count() + 1; };
    // With head_dim 64, three consumers take 1.28 times as long for 192 rows as two for 128.
    constexpr int kMost = kHeadDim == 64 ? 3 : 2;
    const bool most = 1.28f * rounds(kMost * 64) <= rounds(128);
    most ? run_with<kMost>(a, tiles(kMost * 64)) : run_with<2>(a, tiles(128));
  }
  template <int kConsumers>
  static void run_with(const Attention<T>& a, int q_tiles) {
    using C = Config<kHeadDim, kConsumers>;
    // Makes the map of a tensor, whose boxes are `rows` rows of a slab.
    const auto map = [&](const T* tensor, const Strides& strides, uint32_t rows) {
      return make_slab_map(tensor, kHeadDim, a.seq_len, a.heads, a.batch, strides, rows);
    };
    launch<attention_kernel<T, kHeadDim, kConsumers>>(
        {dim3(q_tiles < sm_count() ? q_tiles : sm_count()), dim3(C::kThreads),
         sizeof(SharedStorage<T, kHeadDim, kConsumers>)},
        map(a.q, a.q_strides, 64), map(a.k, a.k_strides, C::kBlockN),
        map(a.v, a.v_strides, C::kBlockN), map(a.o, a.o_strides, 64), a.seq_len, a.heads, q_tiles,
        a.scale);
  }
};

const Registration<Launcher> registration{"16_max_free", Needs{90, true}, Traits::kMaxFree,
                                          Takes{.strides = true}};

}  // namespace fa::k16
