// 13_warp_specialization: one warpgroup only loads, two only compute.
//
// Idea         The loads get their own threads. The producer runs ahead while there are empty
//              stages and delays no consumer when it waits; a consumer waits only for full stages.
//              Consumers no longer meet, so one can multiply while the other computes exponentials.
// Bottleneck   Removed: in 12 the loading thread waited in every iteration until the other
//              warpgroup had emptied a stage, and its own warpgroup waited with it.
// Changed      One thread of a third warpgroup runs the loop over load_group(). That warpgroup's
//              registers go to the consumers (setmaxnreg). The main loop only loses its loads.
// Run          cmake --build --preset emulator --target 13_warp_specialization &&
//              build/emulator/bin/13_warp_specialization
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

namespace fa::k13 {

constexpr float kLog2e = 1.44269504f;
constexpr float kMaxGrowthLog2 = 8.0f;  // a score may exceed row_max by this: P is at most 2^8

template <int kHeadDim>
struct Config {
  static constexpr int kWarpgroups = 2;                     // consumers with 64 query rows each
  static constexpr int kBlockM = kWarpgroups * 64;          // query rows per CTA
  static constexpr int kBlockN = 128;                       // keys per tile
  static constexpr int kThreads = (kWarpgroups + 1) * 128;  // the last warpgroup is the producer
  static constexpr int kStages = 2;                         // tiles of K and of V in shared memory
  static constexpr int kSlabs = kHeadDim / 64;              // slabs per tile
  // [registers]
  // A launch gives all threads equally many registers; the producer returns what consumers need.
  static constexpr int kLaunchRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
  static_assert(kWarpgroups * (kConsumerRegisters - kLaunchRegisters) <=
                    kLaunchRegisters - kProducerRegisters,
                "otherwise a consumer would wait for registers without end");
  // [/registers]
  static_assert(kStages >= 2, "one stage is filled while another is read");
  static_assert(kBlockN * 128 % 1024 == 0 && kBlockN <= 256, "slabs begin where the swizzle does");
  static_assert(128 % kBlockM == 0 && 128 % kBlockN == 0, "seq_len is a multiple of 128");
  // Warpgroup g has barrier kQRead + g: its warps have read Q. Barrier 0 is __syncthreads'.
  enum NamedBarrier : int { kQRead = 1 };
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
  const int tiles = seq_len / C::kBlockN;

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
                             uint64_t* full, uint64_t* empty, int n) {
    const int stage = n % C::kStages;
    ptx::mbarrier_wait(&empty[stage], (n / C::kStages + 1) % 2);
    ptx::mbarrier_arrive_expect_tx(&full[stage], kTileBytes);
#pragma unroll
    for (int slab = 0; slab < C::kSlabs; slab++) {
      ptx::cp_async_bulk_tensor_load(tiles_of[stage][slab], &map,
                                     {slab * 64, n * C::kBlockN, head, sequence}, &full[stage]);
    }
  };
  // Loads group n: tile n of K and tile n - 1 of V. One thread calls it and waits in load_tile.
  const auto load_group = [&](int n) {
    if (n < tiles) load_tile(map_k, smem.sK, smem.k_full, smem.k_empty, n);
    if (n > 0 && n <= tiles) load_tile(map_v, smem.sV, smem.v_full, smem.v_empty, n - 1);
  };

  // ---- producer
  // [producer]
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
      for (int n = 0; n <= tiles; n++) load_group(n);
    }
    return;
  }
  ptx::setmaxnreg_inc<C::kConsumerRegisters>();
  // [/producer]

  // Every warp calls it before it reads tile n, to wait for phase n / kStages of its full barrier.
  const auto wait_full = [&](uint64_t* full, int n) {
    ptx::mbarrier_wait(&full[n % C::kStages], n / C::kStages % 2);
  };
  // Every warp calls it when it has finished reading tile n, so its stage may be refilled. No wait.
  const auto release = [&](uint64_t* empty, int n) {
    if (lane_idx == 0) ptx::mbarrier_arrive(&empty[n % C::kStages]);
  };

  // ---- registers
  float acc_s[C::kBlockN / 2];
  float acc_o[kHeadDim / 2];
  uint32_t rP[C::kBlockN / 16][4];  // P as A fragments of 16 keys
  // Each lane keeps statistics for two rows of its warpgroup: 16 * warp_idx + lane_idx / 4, and
  // that row + 8. row_max (in log2) may lag behind by kMaxGrowthLog2; row_sum is the lane's share.
  float row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {}, rescale[2];
  const float scale_log2 = scale * kLog2e;

  // Starts S = QK^T. After the fence acc_s belongs to the Tensor Cores until wgmma_wait returns it.
  const auto multiply_qk = [&](int n_block) {
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
  const auto multiply_pv = [&](int n_block, bool accumulate) {
    const uint64_t desc = layout::advance(desc_v, n_block % C::kStages * kTileBytes);
    ptx::wgmma_fence();
#pragma unroll
    for (int key = 0; key < C::kBlockN / 16; key++) {
      ptx::wgmma<T, kHeadDim, layout::Major::kMN>(
          acc_o, rP[key], layout::advance(desc, layout::mn_major_step(key)), key > 0 || accumulate);
    }
    ptx::wgmma_commit();
  };

  // Raises row_max if P would exceed 2^kMaxGrowthLog2 in some row of the warp, and says whether.
  // Every warp calls it once S is complete.
  const auto raise_max = [&]() -> bool {
    // Even and odd columns of both rows form four independent chains.
    float score[4] = {acc_s[0], acc_s[1], acc_s[2], acc_s[3]};
#pragma unroll
    for (int i = 4; i < C::kBlockN / 2; i++) score[i % 4] = fmaxf(score[i % 4], acc_s[i]);
    float lane_max[2];
    bool grown = false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      lane_max[h] = fmaxf(score[2 * h], score[2 * h + 1]) * scale_log2;
      grown |= lane_max[h] > row_max[h] + kMaxGrowthLog2;  // > -inf in the first tile
    }
    if (!__any_sync(0xffffffffu, grown)) return false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float new_max = fmaxf(row_max[h], layout::quad_max(lane_max[h]));
      rescale[h] = ptx::exp2_approx(row_max[h] - new_max);
      row_max[h] = new_max;
      row_sum[h] *= rescale[h];
    }
    return true;
  };
  // Computes P = 2^(S scale_log2 - row_max), adds it to row_sum and packs it: 8 + 8 columns of
  // acc_s are one A fragment. A warp calls it after raise_max.
  const auto exponentials = [&] {
    float sum[4] = {};
#pragma unroll
    for (int i = 0; i < C::kBlockN / 4; i++) {
      float p[2];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        p[j] = ptx::exp2_approx(fmaf(acc_s[2 * i + j], scale_log2, -row_max[i % 2]));
        sum[i % 2 * 2 + j] += p[j];
      }
      rP[i / 4][i % 4] = ptx::pack<T>(p[0], p[1]);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) row_sum[h] += sum[2 * h] + sum[2 * h + 1];
  };
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
  raise_max();
  exponentials();

  // ---- main loop
  for (int n_block = 1; n_block < tiles; n_block++) {
    // [iteration]
    wait_full(smem.k_full, n_block);
    multiply_qk(n_block);
    wait_full(smem.v_full, n_block - 1);
    multiply_pv(n_block - 1, n_block > 1);
    ptx::wgmma_wait<0>(acc_s, acc_o, rP);
    release(smem.k_empty, n_block);
    release(smem.v_empty, n_block - 1);

    const bool grown = raise_max();
    exponentials();
    if (grown) rescale_o();  // all lanes of the warp, or none
    // [/iteration]
  }

  // ---- epilogue
  // [epilogue]
  wait_full(smem.v_full, tiles - 1);
  multiply_pv(tiles - 1, tiles > 1);
  ptx::wgmma_wait<0>(acc_o);

  // Stages O in this warp's rows of sQ, after a barrier: every warp of the warpgroup has read Q.
  ptx::barrier_sync(C::kQRead + warpgroup_idx, 128);
  T(*const sO)[64][64] = smem.sQ[warpgroup_idx];  // [kSlabs][64][64]
  // [/epilogue]
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

const Registration<Launcher> registration{"13_warp_specialization", Needs{90, true}, Traits::kLazy,
                                          Takes{.strides = true}};

}  // namespace fa::k13
