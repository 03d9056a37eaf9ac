// 11_wgmma: a warpgroup multiplies, asynchronously and straight from shared memory.
//
// Idea         By wgmma the four warps of a warpgroup start a product together: 64 rows of S or O,
//              all columns, and 16 of the depth. Descriptors name Q, K and V in shared memory, so
//              they are not loaded into registers. Until wgmma_wait the warps can do other work.
// Bottleneck   Removed: mma.sync reaches at most two thirds of the rate of Hopper's Tensor Cores
//              and needs its fragments loaded. Left: a warpgroup's softmax and products alternate.
// Changed      Tiles are slabs of 64 columns; S and O are one array each; the products of S of the
//              next tile and of O of this tile run together. The softmax is that of 10.
// Run          cmake --build --preset emulator --target 11_wgmma && build/emulator/bin/11_wgmma
#include "common/launch/launch.h"
#include "common/launch/quad.h"
#include "common/launch/registry.h"
#include "common/launch/slabs.h"
#include "common/layout/swizzle.h"
#include "common/layout/wgmma.h"
#include "common/ptx/barrier.h"
#include "common/ptx/convert.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/exp2.h"
#include "common/ptx/fence.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/wgmma.h"

namespace fa::k11 {

constexpr float kLog2e = 1.44269504f;
constexpr float kMaxGrowthLog2 = 8.0f;  // a score may exceed row_max by this: P is at most 2^8

template <int kHeadDim>
struct Config {
  static constexpr int kWarpgroups = 2;             // each has 64 query rows
  static constexpr int kBlockM = kWarpgroups * 64;  // query rows per CTA
  static constexpr int kBlockN = 128;               // keys per tile
  static constexpr int kThreads = kWarpgroups * 128;
  static constexpr int kStages = 2;             // tiles of K and of V in shared memory
  static constexpr int kSlabs = kHeadDim / 64;  // slabs per tile
  // One pass of all threads copies kCopyRows rows, a multiple of 8, so every pass swizzles alike.
  static constexpr int kCopyRows = kThreads / (kHeadDim / 8);
  static_assert(kCopyRows % 8 == 0 && 64 % kCopyRows == 0 && kBlockN % kCopyRows == 0);
  static_assert(kStages >= 2, "one stage is filled while another is read");
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
};

// Starts to copy kRows rows from and to the thread's own first chunk, 16 bytes per thread per pass.
template <int kRows, typename T, int kHeadDim>
__device__ __forceinline__ void copy_tile(uint32_t shared, const T* g) {
  using C = Config<kHeadDim>;
#pragma unroll
  for (int row = 0; row < kRows; row += C::kCopyRows) {
    ptx::cp_async<16>(shared + row * 128, g + row * kHeadDim);
  }
}

template <typename T, int kHeadDim>
__global__ void __launch_bounds__(Config<kHeadDim>::kThreads, 1)
    attention_kernel(const T* q, const T* k, const T* v, T* o, int seq_len, float scale) {
  using C = Config<kHeadDim>;
  constexpr uint32_t kTileBytes = C::kBlockN * kHeadDim * sizeof(T);
  auto& smem = shared_storage<SharedStorage<T, kHeadDim>>();

  // ---- indices
  const int m_block = blockIdx.x;
  const size_t head = blockIdx.y;
  // The value is the same in all lanes, and the shuffle tells the compiler so.
  const int warpgroup_idx = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int warp_idx = threadIdx.x / 32 % 4;  // within the warpgroup
  const int lane_idx = threadIdx.x % 32;
  const int tiles = seq_len / C::kBlockN;

  // ---- pointers
  const int copy_row = threadIdx.x / (kHeadDim / 8);  // this thread's first chunk of a tile
  const int copy_column = threadIdx.x % (kHeadDim / 8) * 8;
  const T* gQ = q + (head * seq_len + m_block * C::kBlockM) * kHeadDim + threadIdx.x * 8;
  const T* gK = k + head * seq_len * kHeadDim + threadIdx.x * 8;
  const T* gV = v + head * seq_len * kHeadDim + threadIdx.x * 8;
  const uint32_t copy_k = layout::chunk_address(smem.sK[0], copy_row, copy_column);
  const uint32_t copy_v = layout::chunk_address(smem.sV[0], copy_row, copy_column);
  // [descriptors]
  // The descriptors name Q's first 16 columns, those of tile 0 of K, and the first 16 keys of V.
  const uint64_t desc_q = layout::k_major_descriptor(ptx::shared_address(smem.sQ[warpgroup_idx]));
  const uint64_t desc_k = layout::k_major_descriptor(ptx::shared_address(smem.sK));
  const uint64_t desc_v = layout::mn_major_descriptor(ptx::shared_address(smem.sV), C::kBlockN);
  // [/descriptors]

  // All threads copy group n: tile n of K and tile n - 1 of V. Waits count empty groups, too.
  const auto copy_group = [&](int n) {
    constexpr int kTile = C::kBlockN * kHeadDim;
    if (n < tiles) {
      copy_tile<C::kBlockN, T, kHeadDim>(copy_k + n % C::kStages * kTileBytes,
                                         gK + size_t(n) * kTile);
    }
    if (n > 0 && n <= tiles) {
      copy_tile<C::kBlockN, T, kHeadDim>(copy_v + (n - 1) % C::kStages * kTileBytes,
                                         gV + size_t(n - 1) * kTile);
    }
    ptx::cp_async_commit();
  };

  // ---- registers
  float acc_s[C::kBlockN / 2];
  float acc_o[kHeadDim / 2];
  uint32_t rP[C::kBlockN / 16][4];  // P as A fragments of 16 keys
  // Each lane keeps statistics for two rows of its warpgroup: 16 * warp_idx + lane_idx / 4, and
  // that row + 8. row_max (in log2) may lag behind by kMaxGrowthLog2; row_sum is the lane's share.
  float row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {}, rescale[2];
  const float scale_log2 = scale * kLog2e;

  // [products]
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
  // [/products]

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
#pragma unroll
  for (int i = 0; i < C::kWarpgroups; i++) {
    copy_tile<64, T, kHeadDim>(layout::chunk_address(smem.sQ[i], copy_row, copy_column),
                               gQ + i * 64 * kHeadDim);
  }
  for (int n_block = 0; n_block < C::kStages; n_block++) copy_group(n_block);
  // All warps wait until every thread's copies of Q and of tile 0 of K are visible to wgmma.
  ptx::cp_async_wait<C::kStages - 1>();
  ptx::fence_proxy_async();
  __syncthreads();
  multiply_qk(0);
  ptx::wgmma_wait<0>(acc_s);
  raise_max();
  exponentials();

  // ---- main loop
  for (int n_block = 1; n_block < tiles; n_block++) {
    // [ring]
    // This thread waits until its own copies of K's tile and of V's previous tile have arrived.
    ptx::cp_async_wait<C::kStages - 2>();
    // The fence makes them visible to wgmma, which reads by another path (the async proxy).
    ptx::fence_proxy_async();
    // All warps wait until every thread has done so: both tiles may be read. The barrier also means
    // that every warp has finished the previous products, so their stages may be refilled.
    __syncthreads();
    // [/ring]
    // [turn]
    multiply_qk(n_block);
    multiply_pv(n_block - 1, n_block > 1);
    copy_group(n_block + C::kStages - 1);  // while the Tensor Cores work
    ptx::wgmma_wait<0>(acc_s, acc_o, rP);

    const bool grown = raise_max();
    exponentials();
    if (grown) rescale_o();  // all lanes of the warp, or none
    // [/turn]
  }

  // ---- epilogue
  // All warps wait until every thread's copies of V's last tile are visible to wgmma.
  ptx::cp_async_wait<C::kStages - 2>();
  ptx::fence_proxy_async();
  __syncthreads();
  multiply_pv(tiles - 1, tiles > 1);
  ptx::wgmma_wait<0>(acc_o);

  // [epilogue]
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
  // gO has the shape [16][kHeadDim]: this warp's rows.
  T* gO =
      o + (head * seq_len + m_block * C::kBlockM + warpgroup_idx * 64 + warp_idx * 16) * kHeadDim;
  constexpr int kChunks = kHeadDim / 8;  // 16-byte chunks per row
#pragma unroll
  for (int i = 0; i < 16 * kChunks / 32; i++) {
    const int row = (i * 32 + lane_idx) / kChunks, chunk = lane_idx % kChunks;
    *reinterpret_cast<uint4*>(gO + row * kHeadDim + chunk * 8) = *reinterpret_cast<const uint4*>(
        &sO[chunk / 8][warp_idx * 16 + row][layout::swizzle(row, chunk % 8) * 8]);
  }
  // [/epilogue]
}

// ---- host ---------------------------------------------------------------------------------------
template <typename T, int kHeadDim>
struct Launcher {
  static void run(const Attention<T>& a) {
    using C = Config<kHeadDim>;
    launch<attention_kernel<T, kHeadDim>>({dim3(a.seq_len / C::kBlockM, a.batch * a.heads),
                                           dim3(C::kThreads), sizeof(SharedStorage<T, kHeadDim>)},
                                          a.q, a.k, a.v, a.o, a.seq_len, a.scale);
  }
};

const Registration<Launcher> registration{"11_wgmma", Needs{90, true}, Traits::kLazy};

}  // namespace fa::k11
