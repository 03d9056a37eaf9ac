// beyond/tma_without_wgmma: the roles of kernel 13 for GPUs that have TMA and no wgmma.
//
// Idea         Compute capability 9.0 brought TMA and wgmma. GPUs of 12.0, such as RTX 50, kept TMA
//              alone. Its 128-byte swizzle is also the one that ldmatrix reads without conflicts,
//              so the consumers multiply by mma.sync what the producer has loaded.
// Bottleneck   Removed, as in 13, but beside 10: every thread issued cp.async for its part of a
//              tile, and all warps met in every iteration.
// Changed      Beside 13, a consumer is a warp, which reads fragments of Q, K and V itself, and
//              waits for no other. No product is under way when the next line begins, so the loop
//              has one tile per iteration. The producer is one warp and keeps its registers. Q and
//              all stages fit in the 99 KB that a CTA may have on 12.0.
// Run          cmake --build --preset emulator --target tma_without_wgmma &&
//              build/emulator/bin/tma_without_wgmma
#include "common/launch/launch.h"
#include "common/launch/quad.h"
#include "common/launch/registry.h"
#include "common/launch/slabs.h"
#include "common/launch/tensor_map.h"
#include "common/layout/swizzle.h"
#include "common/ptx/convert.h"
#include "common/ptx/elect.h"
#include "common/ptx/exp2.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/mma.h"
#include "common/ptx/tma.h"

namespace fa::tma_without_wgmma {

constexpr float kLog2e = 1.44269504f;
constexpr float kMaxGrowthLog2 = 8.0f;  // a score may exceed row_max by this: P is at most 2^8

template <int kHeadDim>
struct Config {
  static constexpr int kWarps = 8;                 // consumers with 16 query rows each
  static constexpr int kBlockM = kWarps * 16;      // query rows per CTA
  static constexpr int kBlockN = 8192 / kHeadDim;  // keys per tile, so that it has 16 KB
  // The last warp is the producer. One of the four schedulers has three of the nine warps, which
  // share its 16384 registers, so a thread has at most 168. To move some from the producer to the
  // others (setmaxnreg) takes code for sm_90a or sm_120a, and this file is for sm_90 and sm_120.
  static constexpr int kThreads = (kWarps + 1) * 32;
  static constexpr int kStages = 2;             // tiles of K and of V in shared memory
  static constexpr int kSlabs = kHeadDim / 64;  // slabs per tile
  // [shared-memory]
  // A CTA may have 99 KB on compute capability 12.0, and 227 KB on 9.0. With head_dim 128 the rows
  // of Q take 32 KB and two stages of K and of V 4 x 16 KB, which is 96 KB. With 64 it is 80 KB.
  static constexpr int kTileBytes = kBlockN * kHeadDim * 2;
  static constexpr int kSharedBytes = kBlockM * kHeadDim * 2 + 2 * kStages * kTileBytes;
  static constexpr int kMostBytes = 99 * 1024, kBarrierBytes = (1 + 4 * kStages) * 8;
  static_assert(kSharedBytes + kBarrierBytes <= kMostBytes, "what a CTA may have on 12.0");
  // [/shared-memory]
  static_assert(kStages >= 2, "one stage is filled while another is read");
  static_assert(kTileBytes == kSlabs * kBlockN * 128, "what the boxes of a tile bring");
  static_assert(kBlockM <= 256 && kBlockN <= 256, "a box has at most 256 rows");
  static_assert(128 % kBlockM == 0 && 128 % kBlockN == 0, "seq_len is a multiple of 128");
};

// Warps w0..w7 have 16 rows of S and O each. Lane l holds four elements of each 16 x 8 tile. Q and
// tiles of K and V are stored in slabs:
//
//               S: all keys, O: all columns   16 x 8 tile, lane l    columns 0..63   64..127
//   rows   0.. 15   w0                        row l/4:   2 (l%4),+1  +------------+  +------------+
//   rows  16.. 31   w1                        row l/4+8: the same    | slab 0:    |  | slab 1     |
//   ...                                       columns                | 128 bytes  |  | kBlockN    |
//   rows 112..127   w7                                               | per row    |  | rows later |
//                                                                    +------------+  +------------+
// The four lanes of a quad (l/4) share two rows. The 16-byte chunks of a slab's row are swizzled.
template <typename T, int kHeadDim>
struct SharedStorage {
  using C = Config<kHeadDim>;
  // The swizzle depends on the address and repeats every 1024 bytes (8 rows), hence the alignment.
  alignas(1024) T sQ[C::kSlabs][C::kBlockM][64];
  alignas(1024) T sK[C::kStages][C::kSlabs][C::kBlockN][64];
  alignas(1024) T sV[C::kStages][C::kSlabs][C::kBlockN][64];
  // full expects the producer's arrival and the tile's bytes; empty expects one per consumer warp.
  uint64_t q_full, k_full[C::kStages], k_empty[C::kStages], v_full[C::kStages], v_empty[C::kStages];
};

// [step-address]
// Returns the address of the chunk that is `row` rows (a multiple of 8) and `column` columns (of
// 16) after a lane's first chunk of a tile in slabs of kRows rows. row % 8 stays the lane's own, so
// the swizzle only flips column bits: an XOR within 8 chunks. The next 8 are in the next slab.
template <int kRows>
__device__ __forceinline__ uint32_t step_address(uint32_t lane_address, int row, int column) {
  constexpr int kRowBytes = 128, kSlabBytes = kRows * kRowBytes;
  return (lane_address ^ (column % 64 * 2)) + row * kRowBytes + column / 64 * kSlabBytes;
}
// [/step-address]

template <typename T, int kHeadDim>
__global__ void __launch_bounds__(Config<kHeadDim>::kThreads, 1)
    attention_kernel(const __grid_constant__ ptx::TensorMap map_q,
                     const __grid_constant__ ptx::TensorMap map_k,
                     const __grid_constant__ ptx::TensorMap map_v, T* o, Strides o_strides,
                     int seq_len, float scale) {
  using C = Config<kHeadDim>;
  auto& smem = shared_storage<SharedStorage<T, kHeadDim>>();

  // ---- indices
  const int m_block = blockIdx.x;
  const int head = blockIdx.y, sequence = blockIdx.z;
  // The value is the same in all lanes, and the shuffle tells the compiler so.
  const int warp_idx = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  const int lane_idx = threadIdx.x % 32;
  const int tiles = seq_len / C::kBlockN;

  // ---- barriers
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&smem.q_full, 1);
    for (int stage = 0; stage < C::kStages; stage++) {
      ptx::mbarrier_init(&smem.k_full[stage], 1);
      ptx::mbarrier_init(&smem.v_full[stage], 1);
      ptx::mbarrier_init(&smem.k_empty[stage], C::kWarps);
      ptx::mbarrier_init(&smem.v_empty[stage], C::kWarps);
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
    ptx::mbarrier_arrive_expect_tx(&full[stage], C::kTileBytes);
#pragma unroll
    for (int slab = 0; slab < C::kSlabs; slab++) {
      ptx::cp_async_bulk_tensor_load(tiles_of[stage][slab], &map,
                                     {slab * 64, n * C::kBlockN, head, sequence}, &full[stage]);
    }
  };

  // ---- producer
  // [producer]
  if (warp_idx == C::kWarps) {
    if (ptx::elect_sync()) {  // one thread loads
      ptx::mbarrier_arrive_expect_tx(&smem.q_full, sizeof smem.sQ);
      for (int slab = 0; slab < C::kSlabs; slab++) {
        ptx::cp_async_bulk_tensor_load(
            smem.sQ[slab], &map_q, {slab * 64, m_block * C::kBlockM, head, sequence}, &smem.q_full);
      }
      for (int n = 0; n < tiles; n++) {
        load_tile(map_k, smem.sK, smem.k_full, smem.k_empty, n);
        load_tile(map_v, smem.sV, smem.v_full, smem.v_empty, n);
      }
    }
    return;
  }
  // [/producer]

  // Every warp calls it before it reads tile n, to wait for phase n / kStages of its full barrier.
  const auto wait_full = [&](uint64_t* full, int n) {
    ptx::mbarrier_wait(&full[n % C::kStages], n / C::kStages % 2);
  };
  // Every warp calls it when it has read tile n, so its stage may be refilled. Its lanes wait for
  // each other, because one of them arrives for all.
  const auto release = [&](uint64_t* empty, int n) {
    __syncwarp();
    if (lane_idx == 0) ptx::mbarrier_arrive(&empty[n % C::kStages]);
  };

  // ---- registers
  float acc_s[C::kBlockN / 8][4];
  float acc_o[kHeadDim / 8][4] = {};
  uint32_t rP[C::kBlockN / 16][4];  // P as A fragments of 16 keys
  // Each lane keeps statistics for two rows: 16 * warp_idx + lane_idx / 4, and that row + 8.
  // row_max (in log2) may lag behind by kMaxGrowthLog2; row_sum is the lane's share.
  float row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {}, rescale[2];
  const float scale_log2 = scale * kLog2e;

  // [fragments]
  // This lane's addresses for the first fragments of Q, and of K and V in stage 0. One ldmatrix
  // reads a fragment of A, 16 rows x 16 columns of Q, or two of B, 16 keys x 16 columns of K or V.
  const uint32_t lane_q =
      layout::chunk_address(smem.sQ, warp_idx * 16 + lane_idx % 16, lane_idx / 16 * 8);
  const uint32_t lane_k =
      layout::chunk_address(smem.sK[0], lane_idx % 8 + lane_idx / 16 * 8, lane_idx / 8 % 2 * 8);
  const uint32_t lane_v = layout::chunk_address(smem.sV[0], lane_idx % 16, lane_idx / 16 * 8);
  // [/fragments]

  // [products]
  // Computes S = QK^T. A warp calls it when the tile of K is there.
  const auto multiply_qk = [&](int n_block) {
    const uint32_t lane_tile = lane_k + n_block % C::kStages * C::kTileBytes;
#pragma unroll
    for (int n = 0; n < C::kBlockN / 8; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) acc_s[n][i] = 0.0f;
    }
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; d++) {
      uint32_t rQ[4];
      ptx::ldmatrix_x4(rQ, step_address<C::kBlockM>(lane_q, 0, d * 16));
#pragma unroll
      for (int key = 0; key < C::kBlockN / 16; key++) {
        uint32_t rK[4];
        ptx::ldmatrix_x4(rK, step_address<C::kBlockN>(lane_tile, key * 16, d * 16));
        ptx::mma_m16n8k16<T>(acc_s[2 * key], rQ, {rK[0], rK[1]});
        ptx::mma_m16n8k16<T>(acc_s[2 * key + 1], rQ, {rK[2], rK[3]});
      }
    }
  };
  // Computes O += PV. A warp calls it when the tile of V is there.
  const auto multiply_pv = [&](int n_block) {
    const uint32_t lane_tile = lane_v + n_block % C::kStages * C::kTileBytes;
#pragma unroll
    for (int key = 0; key < C::kBlockN / 16; key++) {
#pragma unroll
      for (int d = 0; d < kHeadDim / 16; d++) {
        uint32_t rV[4];
        ptx::ldmatrix_x4_trans(rV, step_address<C::kBlockN>(lane_tile, key * 16, d * 16));
        ptx::mma_m16n8k16<T>(acc_o[2 * d], rP[key], {rV[0], rV[1]});
        ptx::mma_m16n8k16<T>(acc_o[2 * d + 1], rP[key], {rV[2], rV[3]});
      }
    }
  };
  // [/products]

  // Raises row_max if P would exceed 2^kMaxGrowthLog2 in some row of the warp, and says whether.
  // Every warp calls it once S is complete.
  const auto raise_max = [&]() -> bool {
    // Even and odd columns of both rows form four independent chains.
    float score[4] = {acc_s[0][0], acc_s[0][1], acc_s[0][2], acc_s[0][3]};
#pragma unroll
    for (int i = 4; i < C::kBlockN / 2; i++) {
      score[i % 4] = fmaxf(score[i % 4], acc_s[i / 4][i % 4]);
    }
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
        p[j] = ptx::exp2_approx(fmaf(acc_s[i / 2][i % 2 * 2 + j], scale_log2, -row_max[i % 2]));
        sum[i % 2 * 2 + j] += p[j];
      }
      rP[i / 4][i % 4] = ptx::pack<T>(p[0], p[1]);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) row_sum[h] += sum[2 * h] + sum[2 * h + 1];
  };
  // Multiplies O by rescale. Every warp calls it when a maximum was raised.
  const auto rescale_o = [&] {
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; i++) acc_o[i / 4][i % 4] *= rescale[i / 2 % 2];
  };

  // ---- prologue
  ptx::mbarrier_wait(&smem.q_full, 0);

  // ---- main loop
  for (int n_block = 0; n_block < tiles; n_block++) {
    // [iteration]
    wait_full(smem.k_full, n_block);
    multiply_qk(n_block);
    release(smem.k_empty, n_block);

    if (raise_max()) rescale_o();  // all lanes of the warp, or none
    exponentials();

    wait_full(smem.v_full, n_block);
    multiply_pv(n_block);
    release(smem.v_empty, n_block);
    // [/iteration]
  }

  // ---- epilogue
  // Stages O in this warp's rows of sQ, which no other warp reads.
  float inverse_sum[2];
#pragma unroll
  for (int h = 0; h < 2; h++) inverse_sum[h] = 1.0f / layout::quad_sum(row_sum[h]);
#pragma unroll
  for (int n = 0; n < kHeadDim / 16; n++) {  // 16 columns per step
    uint32_t rO[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float(&tile)[4] = acc_o[2 * n + i / 2];
      rO[i] = ptx::pack<T>(tile[i % 2 * 2] * inverse_sum[i % 2],
                           tile[i % 2 * 2 + 1] * inverse_sum[i % 2]);
    }
    ptx::stmatrix_x4(rO, step_address<C::kBlockM>(lane_q, 0, n * 16));
  }
  // The lanes of the warp wait until all of them have stored O, so each may read the warp's rows.
  __syncwarp();
  // gO points to this warp's 16 rows, which are o_strides.row elements apart.
  T* gO = o + o_strides.at(sequence, head, m_block * C::kBlockM + warp_idx * 16);
  constexpr int kChunks = kHeadDim / 8;  // 16-byte chunks per row
#pragma unroll
  for (int i = 0; i < 16 * kChunks / 32; i++) {
    const int row = (i * 32 + lane_idx) / kChunks, chunk = lane_idx % kChunks;
    *reinterpret_cast<uint4*>(gO + row * o_strides.row + chunk * 8) =
        *reinterpret_cast<const uint4*>(
            &smem.sQ[chunk / 8][warp_idx * 16 + row][layout::swizzle(row, chunk % 8) * 8]);
  }
}

// ---- host ---------------------------------------------------------------------------------------
template <typename T, int kHeadDim>
struct Launcher {
  static void run(const Attention<T>& a) {
    using C = Config<kHeadDim>;
    static_assert(sizeof(SharedStorage<T, kHeadDim>) <= C::kMostBytes);
    // Makes the map of a tensor, whose boxes are `rows` rows of a slab.
    const auto map = [&](const T* tensor, const Strides& strides, uint32_t rows) {
      return make_slab_map(tensor, kHeadDim, a.seq_len, a.heads, a.batch, strides, rows);
    };
    launch<attention_kernel<T, kHeadDim>>(
        {dim3(a.seq_len / C::kBlockM, a.heads, a.batch), dim3(C::kThreads),
         sizeof(SharedStorage<T, kHeadDim>)},
        map(a.q, a.q_strides, C::kBlockM), map(a.k, a.k_strides, C::kBlockN),
        map(a.v, a.v_strides, C::kBlockN), a.o, a.o_strides, a.seq_len, a.scale);
  }
};

const Registration<Launcher> registration{"beyond/tma_without_wgmma", Needs{90}, Traits::kLazy,
                                          Takes{.strides = true}};

}  // namespace fa::tma_without_wgmma
