// 14_softmax_overlap: the softmax runs under products, and its exponentials wait for nothing but S.
//
// Idea         Ping-pong: consumers take turns by named barriers, so one multiplies while the other
//              computes its softmax. Overlap: O += PV of the tile before still runs meanwhile, too.
//              Exponentials first: they use the last maximum, and a new one only if P exceeds 2^8.
// Bottleneck   Removed: in 13 a consumer's products, maximum and exponentials came one after the
//              other, and only chance decided whether the other consumer filled the gap.
// Changed      An iteration has barriers around its products, two waits instead of one, and two
//              arrays for P. softmax() tests P afterwards. Config switches ping-pong and overlap.
// Run          cmake --build --preset emulator --target 14_softmax_overlap &&
//              build/emulator/bin/14_softmax_overlap
#include "common/launch/launch.h"
#include "common/launch/quad.h"
#include "common/launch/registry.h"
#include "common/launch/slabs.h"
#include "common/launch/tensor_map.h"
#include "common/layout/swizzle.h"
#include "common/layout/wgmma.h"
#include "common/ptx/barrier.h"
#include "common/ptx/convert.h"
#include "common/ptx/elect.h"
#include "common/ptx/exp2.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/setmaxnreg.h"
#include "common/ptx/tma.h"
#include "common/ptx/wgmma.h"

namespace fa::k14 {

constexpr float kLog2e = 1.44269504f;
constexpr float kMaxP = 256.0f;  // the largest P that is kept without a new maximum

template <int kHeadDim>
struct Config {
  static constexpr int kWarpgroups = 2;                     // consumers with 64 query rows each
  static constexpr int kBlockM = kWarpgroups * 64;          // query rows per CTA
  static constexpr int kBlockN = 128;                       // keys per tile
  static constexpr int kThreads = (kWarpgroups + 1) * 128;  // the last warpgroup is the producer
  static constexpr int kStages = 2;                         // tiles of K and of V in shared memory
  static constexpr int kSlabs = kHeadDim / 64;              // slabs per tile
  // A launch gives all threads equally many registers; the producer returns what consumers need.
  static constexpr int kLaunchRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
  static_assert(kWarpgroups * (kConsumerRegisters - kLaunchRegisters) <=
                    kLaunchRegisters - kProducerRegisters,
                "otherwise a consumer would wait for registers without end");
  static constexpr bool kPingPong = true;  // consumers take turns at the Tensor Cores
  static constexpr bool kOverlap = true;   // a consumer's softmax runs under its own PV
  static_assert(!kPingPong || kWarpgroups == 2);
  static_assert(kStages >= 2, "one stage is filled while another is read");
  static_assert(kBlockN * 128 % 1024 == 0 && kBlockN <= 256, "slabs begin where the swizzle does");
  static_assert(128 % kBlockM == 0 && 128 % kBlockN == 0, "seq_len is a multiple of 128");
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
template <typename T, int kHeadDim>
struct SharedStorage {
  using C = Config<kHeadDim>;
  // The swizzle depends on the address and repeats every 1024 bytes (8 rows), hence the alignment.
  alignas(1024) T sQ[C::kWarpgroups][C::kSlabs][64][64];
  alignas(1024) T sK[C::kStages][C::kSlabs][C::kBlockN][64];
  alignas(1024) T sV[C::kStages][C::kSlabs][C::kBlockN][64];
  // full expects the producer's arrival and the tile's bytes; empty expects one per consumer warp.
  uint64_t q_full, k_full[C::kStages], k_empty[C::kStages], v_full[C::kStages], v_empty[C::kStages];
};

template <typename T, int kHeadDim>
__global__ void __launch_bounds__(Config<kHeadDim>::kThreads, 1)
    attention_kernel(const __grid_constant__ ptx::TensorMap map_q,
                     const __grid_constant__ ptx::TensorMap map_k,
                     const __grid_constant__ ptx::TensorMap map_v, T* o, Strides o_strides,
                     int seq_len, float scale) {
  using C = Config<kHeadDim>;
  constexpr int kTileBytes = C::kBlockN * kHeadDim * sizeof(T);
  static_assert(kTileBytes == C::kSlabs * C::kBlockN * 128, "what the boxes of a tile bring");
  auto& smem = shared_storage<SharedStorage<T, kHeadDim>>();

  // ---- indices
  const int m_block = blockIdx.x;
  const int head = blockIdx.y, sequence = blockIdx.z;
  // The value is the same in all lanes, and the shuffle tells the compiler so.
  const int warpgroup_idx = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int warp_idx = threadIdx.x / 32 % 4;  // within the warpgroup
  const int lane_idx = threadIdx.x % 32;
  const uint32_t tiles = seq_len / C::kBlockN;

  // ---- pointers
  // The descriptors name Q's first 16 columns, those of tile 0 of K, and the first 16 keys of V.
  const uint64_t desc_q = layout::k_major_descriptor(ptx::shared_address(smem.sQ[warpgroup_idx]));
  const uint64_t desc_k = layout::k_major_descriptor(ptx::shared_address(smem.sK));
  const uint64_t desc_v = layout::mn_major_descriptor(ptx::shared_address(smem.sV), C::kBlockN);

  // ---- barriers
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&smem.q_full, 1);
    for (int stage = 0; stage < C::kStages; stage++) {
      ptx::mbarrier_init(&smem.k_full[stage], 1);
      ptx::mbarrier_init(&smem.v_full[stage], 1);
      ptx::mbarrier_init(&smem.k_empty[stage], C::kWarpgroups * 4);
      ptx::mbarrier_init(&smem.v_empty[stage], C::kWarpgroups * 4);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();  // all threads wait until the barriers are initialised, so each may use them
  // Loads tile n of K or V. One thread calls it. It first waits until all warps have released tile
  // n - kStages of that stage; the first kStages tiles wait for nothing.
  const auto load_tile = [&](const ptx::TensorMap& map, T(*tiles_of)[C::kSlabs][C::kBlockN][64],
                             uint64_t* full, uint64_t* empty, uint32_t n) {
    const int stage = n % C::kStages;
    ptx::mbarrier_wait(&empty[stage], (n / C::kStages + 1) % 2);
    ptx::mbarrier_arrive_expect_tx(&full[stage], kTileBytes);
#pragma unroll
    for (int slab = 0; slab < C::kSlabs; slab++) {
      ptx::cp_async_bulk_tensor_load(tiles_of[stage][slab], &map,
                                     {slab * 64, int(n * C::kBlockN), head, sequence},
                                     &full[stage]);
    }
  };
  // Loads group n: tile n of K and tile n - 1 of V. One thread calls it and waits in load_tile.
  const auto load_group = [&](uint32_t n) {
    if (n < tiles) load_tile(map_k, smem.sK, smem.k_full, smem.k_empty, n);
    if (n > 0 && n <= tiles) load_tile(map_v, smem.sV, smem.v_full, smem.v_empty, n - 1);
  };

  // ---- producer
  if (warpgroup_idx == C::kWarpgroups) {
    ptx::setmaxnreg_dec<C::kProducerRegisters>();
    if (warp_idx == 0 && ptx::elect_sync()) {  // one thread loads
      ptx::mbarrier_arrive_expect_tx(&smem.q_full, sizeof smem.sQ);
      for (int i = 0; i < C::kWarpgroups * C::kSlabs; i++) {
        const int warpgroup = i / C::kSlabs, slab = i % C::kSlabs;
        ptx::cp_async_bulk_tensor_load(
            smem.sQ[warpgroup][slab], &map_q,
            {slab * 64, m_block * C::kBlockM + warpgroup * 64, head, sequence}, &smem.q_full);
      }
      for (uint32_t n = 0; n <= tiles; n++) load_group(n);
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
  // rP[n % 2] is P of tile n: the Tensor Cores read one array while the warp writes the other.
  uint32_t rP[2][C::kBlockN / 16][4];
  // Each lane keeps statistics for two rows of its warpgroup: 16 * warp_idx + lane_idx / 4, and
  // that row + 8. row_max (in log2) may lag behind while P <= kMaxP; row_sum is the lane's share.
  float row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {}, rescale[2];
  const float scale_log2 = scale * kLog2e;

  // Starts S = QK^T. After the fence acc_s belongs to the Tensor Cores until wgmma_wait returns it.
  const auto multiply_qk = [&](uint32_t n_block) {
    const uint64_t desc = layout::advance(desc_k, n_block % C::kStages * kTileBytes);
    ptx::wgmma_fence(acc_s);
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; d++) {
      ptx::wgmma<T, C::kBlockN, layout::Major::kK>(
          acc_s, layout::advance(desc_q, layout::k_major_step(64, d)),
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

  // Raises row_max to the maxima that include this tile. A warp calls it once S is complete.
  const auto raise_max = [&] {
    // Even and odd columns of both rows form four independent chains.
    float score[4] = {acc_s[0], acc_s[1], acc_s[2], acc_s[3]};
#pragma unroll
    for (int i = 4; i < C::kBlockN / 2; i++) score[i % 4] = fmaxf(score[i % 4], acc_s[i]);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float tile_max = layout::quad_max(fmaxf(score[2 * h], score[2 * h + 1])) * scale_log2;
      const float new_max = fmaxf(row_max[h], tile_max);
      rescale[h] = ptx::exp2_approx(row_max[h] - new_max);
      row_max[h] = new_max;
      row_sum[h] *= rescale[h];
    }
  };
  // Computes P = 2^(S scale_log2 - row_max) as A operand (8 + 8 columns per fragment), its sums in
  // this lane, and each row's largest P of the even and of the odd columns. softmax calls it.
  const auto exponentials = [&](auto& p, float(&sum)[2], uint32_t(&most)[2]) {
    float part[4] = {};  // sums of even and odd columns of both rows
#pragma unroll
    for (int i = 0; i < C::kBlockN / 4; i++) {
      float low_high[2];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        low_high[j] = ptx::exp2_approx(fmaf(acc_s[2 * i + j], scale_log2, -row_max[i % 2]));
        part[i % 2 * 2 + j] += low_high[j];
      }
      const uint32_t pair = ptx::pack<T>(low_high[0], low_high[1]);
      most[i % 2] = i < 2 ? pair : ptx::max2<T>(most[i % 2], pair);
      p[i / 4][i % 4] = pair;
    }
    sum[0] = part[0] + part[1];
    sum[1] = part[2] + part[3];
  };
  // [softmax]
  // Computes P and row_sum of a tile once S is complete. The exponentials use the last maximum; if
  // P exceeds kMaxP, the warp computes it again with a new one. Returns whether O must be rescaled.
  const auto softmax = [&](auto& p, bool first) -> bool {
    if (first) raise_max();
    float sum[2];
    uint32_t most[2];
    exponentials(p, sum, most);
    bool exceeded = false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float2 pair = ptx::unpack<T>(most[h]);
      exceeded |= fmaxf(pair.x, pair.y) > kMaxP;
    }
    const bool grown = __any_sync(0xffffffffu, exceeded);
    if (grown) {
      raise_max();
      exponentials(p, sum, most);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) row_sum[h] += sum[h];
    return grown;
  };
  // [/softmax]
  // Multiplies O by rescale. Every warp calls it when a maximum was raised and no PV is under way.
  const auto rescale_o = [&] {
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; i++) acc_o[i] *= rescale[i / 2 % 2];
  };

  // ---- prologue
  ptx::mbarrier_wait(&smem.q_full, 0);
  wait_full(smem.k_full, 0);
  multiply_qk(0);
  ptx::wgmma_wait<0>(acc_s);
  release(smem.k_empty, 0);
  softmax(rP[0], true);

  // [turns]
  // Warpgroup g waits for its turn at barrier kTurn + g; the warpgroup before it arrives there when
  // its own turn ends. Its products then still run, but those started later queue behind them.
  const auto begin_turn = [&] {
    if constexpr (C::kPingPong) ptx::barrier_sync(C::kTurn + warpgroup_idx, 256);
  };
  const auto end_turn = [&](bool last) {
    if constexpr (C::kPingPong) {
      // Warpgroup 1 has the very last turn, and no warpgroup waits for its end.
      const int other = 1 - warpgroup_idx;
      if (!last || warpgroup_idx == 0) ptx::barrier_arrive(C::kTurn + other, 256);
    }
  };
  if (C::kPingPong && warpgroup_idx == 1) end_turn(false);  // warpgroup 0 has the first turn
  // [/turns]

  // [turn]
  // One iteration: S and P of tile n_block (into p), and O += PV of the tile before (from
  // p_before). Every consumer warp calls it; it waits for K, its turn, V, S and at last PV.
  const auto iterate = [&](uint32_t n_block, auto& p_before, auto& p) {
    wait_full(smem.k_full, n_block);
    begin_turn();
    multiply_qk(n_block);
    wait_full(smem.v_full, n_block - 1);
    multiply_pv(n_block - 1, p_before, n_block > 1);
    end_turn(false);
    ptx::wgmma_wait<C::kOverlap ? 1 : 0>(acc_s);  // S is complete; PV of the tile before goes on
    release(smem.k_empty, n_block);

    const bool grown = softmax(p, false);
    ptx::wgmma_wait<0>(acc_o, p_before);  // PV is complete, so O may be rescaled
    release(smem.v_empty, n_block - 1);
    if (grown) rescale_o();  // all lanes of the warp, or none
  };
  // [/turn]
  // Computes O += PV of the last tile. A consumer warp calls it; it waits for V, its turn and PV.
  const auto last_product = [&](const auto& p) {
    wait_full(smem.v_full, tiles - 1);
    begin_turn();
    multiply_pv(tiles - 1, p, tiles > 1);
    end_turn(true);
    ptx::wgmma_wait<0>(acc_o);
  };

  // ---- main loop
  // [loop]
  // Two iterations per pass: registers cannot be indexed, so each iteration names its P.
  for (uint32_t i = 0; i < (tiles - 1) / 2; i++) {
    iterate(2 * i + 1, rP[0], rP[1]);
    iterate(2 * i + 2, rP[1], rP[0]);
  }
  if (tiles % 2 == 0) {
    iterate(tiles - 1, rP[0], rP[1]);
    last_product(rP[1]);
  } else {
    last_product(rP[0]);
  }
  // [/loop]

  // ---- epilogue
  // Stages O in this warp's rows of sQ, after a barrier: every warp of the warpgroup has read Q.
  ptx::barrier_sync(C::kQRead + warpgroup_idx, 128);
  T(*const sO)[64][64] = smem.sQ[warpgroup_idx];  // [kSlabs][64][64]
  float inverse_sum[2];
#pragma unroll
  for (int h = 0; h < 2; h++) inverse_sum[h] = 1.0f / layout::quad_sum(row_sum[h]);
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
  // The lanes of the warp wait until all of them have stored O, so each may read the warp's rows.
  __syncwarp();
  // gO points to this warp's 16 rows, which are o_strides.row elements apart.
  T* gO =
      o + o_strides.at(sequence, head, m_block * C::kBlockM + warpgroup_idx * 64 + warp_idx * 16);
  constexpr int kChunks = kHeadDim / 8;  // 16-byte chunks per row
#pragma unroll
  for (int i = 0; i < 16 * kChunks / 32; i++) {
    const int row = (i * 32 + lane_idx) / kChunks, chunk = lane_idx % kChunks;
    *reinterpret_cast<uint4*>(gO + row * o_strides.row + chunk * 8) =
        *reinterpret_cast<const uint4*>(
            &sO[chunk / 8][warp_idx * 16 + row][layout::swizzle(row, chunk % 8) * 8]);
  }
}

// ---- host ---------------------------------------------------------------------------------------
template <typename T, int kHeadDim>
struct Launcher {
  static void run(const Attention<T>& a) {
    using C = Config<kHeadDim>;
    // Makes the map of a tensor, whose boxes are `rows` rows of a slab.
    const auto map = [&](const T* tensor, const Strides& strides, uint32_t rows) {
      return make_slab_map(tensor, kHeadDim, a.seq_len, a.heads, a.batch, strides, rows);
    };
    launch<attention_kernel<T, kHeadDim>>(
        {dim3(a.seq_len / C::kBlockM, a.heads, a.batch), dim3(C::kThreads),
         sizeof(SharedStorage<T, kHeadDim>)},
        map(a.q, a.q_strides, 64), map(a.k, a.k_strides, C::kBlockN),
        map(a.v, a.v_strides, C::kBlockN), a.o, a.o_strides, a.seq_len, a.scale);
  }
};

const Registration<Launcher> registration{"14_softmax_overlap", Needs{90, true}, Traits::kLazy,
                                          Takes{.strides = true}};

}  // namespace fa::k14
