// 13_warp_specialization: one warpgroup only loads, two only compute.
//
// Idea         The loads get threads of their own. The producer runs ahead as far as there are empty stages, and
//              waits for them at nobody's expense; a consumer waits for nothing but full stages. The two
//              consumers no longer meet, so that one can multiply while the other computes exponentials.
// Bottleneck   Removed: in 12 the thread that loads waited in its turn until the other warpgroup had emptied a
//              stage, and its own warpgroup with it.
// Changed      A third warpgroup, whose one thread runs the loop over load_group(); its registers go to the
//              consumers (setmaxnreg). The main loop loses its loads, and nothing else changes.
// Run          cmake --build --preset emulator --target 13_warp_specialization &&
//              build/emulator/bin/13_warp_specialization
#include "common/harness/launch.h"
#include "common/harness/registry.h"
#include "common/harness/tensor_map.h"
#include "common/layout/quad.h"
#include "common/layout/slabs.h"
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
constexpr float kGrowth = 8.0f;  // in units of log2: P is at most 2^8

template <int kHeadDim>
struct Config {
  static constexpr int kWarpgroups = 2;                     // consumers, of 64 query rows each
  static constexpr int kBlockM = kWarpgroups * 64;          // query rows a CTA
  static constexpr int kBlockN = 128;                       // keys a tile
  static constexpr int kThreads = (kWarpgroups + 1) * 128;  // the last warpgroup is the producer
  static constexpr int kStages = 2;                         // tiles of K and V in shared memory
  static constexpr int kSlabs = kHeadDim / 64;              // of a tile
  // Registers a thread. A launch gives all threads the same; what the producer gives back is enough.
  static constexpr int kLaunchRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
  static_assert(kWarpgroups * (kConsumerRegisters - kLaunchRegisters) <=
                    kLaunchRegisters - kProducerRegisters,
                "otherwise a consumer waits for registers for ever");
  static_assert(kStages >= 2, "one is filled while another is read");
  static_assert(kBlockN * 128 % 1024 == 0 && kBlockN <= 256, "slabs begin where the swizzle does");
  static_assert(128 % kBlockM == 0 && 128 % kBlockN == 0, "seq_len is a multiple of 128");
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
template <typename T, int kHeadDim>
struct SharedStorage {
  using C = Config<kHeadDim>;
  // 1024: the swizzle is computed from addresses, and repeats after 8 rows of 128 bytes.
  alignas(1024) T sQ[C::kWarpgroups][C::kSlabs][64][64];
  alignas(1024) T sK[C::kStages][C::kSlabs][C::kBlockN][64];
  alignas(1024) T sV[C::kStages][C::kSlabs][C::kBlockN][64];
  // full: one arrival, the producer's, and the tile's bytes. empty: one arrival of each consumer warp.
  uint64_t q_full, k_full[C::kStages], k_empty[C::kStages], v_full[C::kStages], v_empty[C::kStages];
};

template <typename T, int kHeadDim>
__global__ void __launch_bounds__(Config<kHeadDim>::kThreads, 1)
    attention_kernel(const __grid_constant__ ptx::TensorMap map_q,
                     const __grid_constant__ ptx::TensorMap map_k,
                     const __grid_constant__ ptx::TensorMap map_v, T* o, int seq_len, float scale) {
  using C = Config<kHeadDim>;
  constexpr int kTileBytes = C::kBlockN * kHeadDim * sizeof(T);
  auto& smem = shared_storage<SharedStorage<T, kHeadDim>>();

  // ---- indices
  const int m_block = blockIdx.x;
  const size_t head = blockIdx.y;
  // The same in all lanes; the shuffle tells the compiler so.
  const int warpgroup_idx = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int warp_idx = threadIdx.x / 32 % 4;  // in the warpgroup
  const int lane_idx = threadIdx.x % 32;
  const int tiles = seq_len / C::kBlockN;

  // ---- pointers
  // Of Q's first 16 columns, of the first tile of K's, and of the first 16 keys of the first tile of V.
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
  __syncthreads();  // nobody waits or arrives before that
  // Loads tile n of K or V, once all warps are done with the tile kStages before (the first ones: at once).
  const auto load_tile = [&](const ptx::TensorMap& map, T(*tiles_of)[C::kSlabs][C::kBlockN][64],
                             uint64_t* full, uint64_t* empty, int n) {
    const int stage = n % C::kStages;
    ptx::mbarrier_wait(&empty[stage], (n / C::kStages + 1) % 2);
    ptx::mbarrier_arrive_expect_tx(&full[stage], kTileBytes);
#pragma unroll
    for (int slab = 0; slab < C::kSlabs; slab++) {
      ptx::cp_async_bulk_tensor_load(tiles_of[stage][slab], &map,
                                     {slab * 64, int(head) * seq_len + n * C::kBlockN},
                                     &full[stage]);
    }
  };
  // Group n: tile n of K and tile n - 1 of V.
  const auto load_group = [&](int n) {
    if (n < tiles) load_tile(map_k, smem.sK, smem.k_full, smem.k_empty, n);
    if (n > 0 && n <= tiles) load_tile(map_v, smem.sV, smem.v_full, smem.v_empty, n - 1);
  };

  // ---- producer
  // [producer]
  if (warpgroup_idx == C::kWarpgroups) {
    ptx::setmaxnreg_dec<C::kProducerRegisters>();
    if (warp_idx == 0 && ptx::elect_sync()) {  // one thread
      ptx::mbarrier_arrive_expect_tx(&smem.q_full, sizeof smem.sQ);
      for (int i = 0; i < C::kWarpgroups * C::kSlabs; i++) {
        const int warpgroup = i / C::kSlabs, slab = i % C::kSlabs;
        ptx::cp_async_bulk_tensor_load(
            smem.sQ[warpgroup][slab], &map_q,
            {slab * 64, int(head) * seq_len + m_block * C::kBlockM + warpgroup * 64}, &smem.q_full);
      }
      for (int n = 0; n <= tiles; n++) load_group(n);
    }
    return;
  }
  ptx::setmaxnreg_inc<C::kConsumerRegisters>();
  // [/producer]

  // Waits until tile n has come, in phase n / kStages of its stage's barrier.
  const auto wait_full = [&](uint64_t* full, int n) {
    ptx::mbarrier_wait(&full[n % C::kStages], n / C::kStages % 2);
  };
  // This warp no longer reads tile n.
  const auto release = [&](uint64_t* empty, int n) {
    if (lane_idx == 0) ptx::mbarrier_arrive(&empty[n % C::kStages]);
  };

  // ---- registers
  float acc_s[C::kBlockN / 2];
  float acc_o[kHeadDim / 2];
  uint32_t rP[C::kBlockN / 16][4];  // 16 keys each
  // Of rows 16 warp_idx + lane_idx / 4 and + 8 of this warpgroup. row_max: in units of log2, lags behind by up
  // to kGrowth; row_sum: this lane's share; rescale: what O is to be multiplied by.
  float row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {}, rescale[2];
  const float scale_log2 = scale * kLog2e;

  // Starts S = Q K^T. The fence: from here on these registers are the Tensor Cores'.
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
  // Starts O += P V, or O = P V.
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

  // This lane's maxima. Has one of them grown so much that P would exceed 2^kGrowth? Then the warp has new ones.
  const auto raise_max = [&]() -> bool {
    // Of even and odd columns of both rows: four independent chains.
    float score[4] = {acc_s[0], acc_s[1], acc_s[2], acc_s[3]};
#pragma unroll
    for (int i = 4; i < C::kBlockN / 2; i++) score[i % 4] = fmaxf(score[i % 4], acc_s[i]);
    float lane_max[2];
    bool grown = false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      lane_max[h] = fmaxf(score[2 * h], score[2 * h + 1]) * scale_log2;
      grown |= lane_max[h] > row_max[h] + kGrowth;  // in the first tile: always, > -inf
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
  // P = 2^(S scale_log2 - row_max) as A operand: neighbouring 8 columns of an accumulator are one.
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
    wait_full(smem.k_full, n_block);
    multiply_qk(n_block);
    wait_full(smem.v_full, n_block - 1);
    multiply_pv(n_block - 1, n_block > 1);
    ptx::wgmma_wait<0>(acc_s, acc_o, rP);
    release(smem.k_empty, n_block);
    release(smem.v_empty, n_block - 1);

    const bool grown = raise_max();
    exponentials();
    if (grown) rescale_o();  // the whole warp, or none of it
  }

  // ---- epilogue
  wait_full(smem.v_full, tiles - 1);
  multiply_pv(tiles - 1, tiles > 1);
  ptx::wgmma_wait<0>(acc_o);

  // O through the rows of Q, this warp's own, once no warp of the warpgroup reads Q any more.
  ptx::barrier_sync(1 + warpgroup_idx, 128);
  T(*const sO)[64][64] = smem.sQ[warpgroup_idx];  // [kSlabs][64][64]
  float inverse_sum[2];
#pragma unroll
  for (int h = 0; h < 2; h++) inverse_sum[h] = 1.0f / layout::quad_sum(row_sum[h]);
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
  __syncwarp();
  T* gO = o + (head * seq_len + m_block * C::kBlockM + warpgroup_idx * 64 + warp_idx * 16) *
                  kHeadDim;              // [16][kHeadDim]
  constexpr int kChunks = kHeadDim / 8;  // of a row
#pragma unroll
  for (int i = 0; i < 16 * kChunks / 32; i++) {
    const int row = (i * 32 + lane_idx) / kChunks, chunk = lane_idx % kChunks;
    *reinterpret_cast<uint4*>(gO + row * kHeadDim + chunk * 8) = *reinterpret_cast<const uint4*>(
        &sO[chunk / 8][warp_idx * 16 + row][layout::swizzle(row, chunk % 8) * 8]);
  }
}

// ---- host ----------------------------------------------------------------------------------------
template <typename T, int kHeadDim>
struct Launcher {
  static void run(const Attention<T>& a) {
    using C = Config<kHeadDim>;
    const auto map = [&](const T* tensor, uint32_t rows) {  // boxes of `rows` rows of a slab
      return make_slab_map(tensor, kHeadDim, uint64_t(a.batch) * a.heads * a.seq_len, rows);
    };
    launch<attention_kernel<T, kHeadDim>>({dim3(a.seq_len / C::kBlockM, a.batch * a.heads),
                                           dim3(C::kThreads), sizeof(SharedStorage<T, kHeadDim>)},
                                          map(a.q, 64), map(a.k, C::kBlockN), map(a.v, C::kBlockN),
                                          a.o, a.seq_len, a.scale);
  }
};

const Registration<Launcher> registration{"13_warp_specialization", Needs{90, true}};

}  // namespace fa::k13
