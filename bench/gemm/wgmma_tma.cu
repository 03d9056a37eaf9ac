// wgmma_tma: a matrix product as kernels 11 to 15 would compute it.
//
// CTAs are persistent (15). A producer warp fills a ring of slices of A and B by TMA (12, 13). Two
// consumer warpgroups multiply them straight from shared memory by wgmma (11), 64 x 256 elements of
// C each. The epilogue works on the accumulators, which leave through stmatrix and TMA stores (15),
// 64 columns at a time, while the producer already fetches slices of the next tile. In a cluster of
// two CTAs, one above the other in C, each CTA fetches its rows of A and half of the rows of B, and
// TMA multicasts B to both CTAs.
#include "bench/gemm/epilogue.h"
#include "bench/gemm/tile_order.h"
#include "common/launch/launch.h"
#include "common/launch/tensor_map.h"
#include "common/layout/swizzle.h"
#include "common/layout/wgmma.h"
#include "common/ptx/cluster.h"
#include "common/ptx/elect.h"
#include "common/ptx/fence.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/setmaxnreg.h"
#include "common/ptx/tma.h"
#include "common/ptx/wgmma.h"

namespace fa::gemm::wgmma_tma_kernel {

struct Config {
  static constexpr int kWarpgroups = 2;             // consumers with 64 rows of C each
  static constexpr int kBlockM = kWarpgroups * 64;  // rows of C per CTA
  static constexpr int kBlockN = 256;               // columns of C: the widest wgmma
  static constexpr int kBlockK = 64;  // terms per slice: its rows of 128 bytes are a swizzle atom's
  static constexpr int kStages = 4;   // slices in shared memory
  static constexpr int kThreads = (kWarpgroups + 1) * 128;  // the last warpgroup is the producer
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
  static_assert(kWarpgroups * kConsumerRegisters + kProducerRegisters <= 65536 / 128);
  // Tiles of C that run at the same time form a block of kGroupRows rows of tiles, so they
  // share A and B in L2.
  static constexpr int kGroupRows = 16;
};

// Warps w0..w3 of warpgroup g have 16 rows of a tile of C each. Lane l holds four of every 8
// columns:
//
//               all 256 columns       8 columns, lane l
//   rows 64g +  0..15   w0            row l/4:   2 (l%4) (+ 1)
//   rows 64g + 16..31   w1            row l/4+8: the same
//   rows 64g + 32..47   w2            columns
//   rows 64g + 48..63   w3
template <typename T>
struct SharedStorage {
  using C = Config;
  // The swizzle depends on the address and repeats every 1024 bytes (8 rows), hence the alignment.
  alignas(1024) T sA[C::kStages][C::kBlockM][C::kBlockK];
  alignas(1024) T sB[C::kStages][C::kBlockN][C::kBlockK];
  // Each consumer warp stages 64 columns of its 16 rows here, while the 64 before are on their way.
  alignas(1024) T sC[C::kWarpgroups * 4][2][16][64];
  // full expects the producer's arrival and a slice's bytes; empty expects one arrival per consumer
  // warp of all CTAs of the cluster.
  uint64_t full[C::kStages], empty[C::kStages];
};

template <typename T, Epilogue kEpilogue, int kCluster>
__global__ void __launch_bounds__(Config::kThreads, 1)
    gemm_kernel(const __grid_constant__ ptx::TensorMap map_a,
                const __grid_constant__ ptx::TensorMap map_b,
                const __grid_constant__ ptx::TensorMap map_c, const T* bias, int m, int n, int k) {
  using C = Config;
  constexpr int kSliceBytes = (C::kBlockM + C::kBlockN) * C::kBlockK * sizeof(T);
  constexpr int kBoxRows = C::kBlockN / kCluster;  // rows of B that this CTA fetches
  auto& smem = shared_storage<SharedStorage<T>>();

  // ---- indices
  // The value is the same in all lanes, and the shuffle tells the compiler so.
  const int warpgroup_idx = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int warp_idx = threadIdx.x / 32 % 4;  // within the warpgroup
  const int lane_idx = threadIdx.x % 32;
  const int rank = blockIdx.x % kCluster;                                     // within the cluster
  const int m_tiles = m / (C::kBlockM * kCluster), n_tiles = n / C::kBlockN;  // of a cluster's size
  const int slices = k / C::kBlockK;
  // Calls body(row, column) for each tile of C of this CTA.
  const auto for_each_tile = [&](const auto& body) {
    for (int t = blockIdx.x / kCluster; t < m_tiles * n_tiles; t += gridDim.x / kCluster) {
      const int2 tile = tile_of<C::kGroupRows / kCluster>(t, m_tiles, n_tiles);
      body((tile.x * kCluster + rank) * C::kBlockM, tile.y * C::kBlockN);
    }
  };
  // All threads of the cluster, or of the CTA, call it and wait for each other.
  const auto meet = [] {
    if constexpr (kCluster > 1) {
      ptx::cluster_arrive();
      ptx::cluster_wait();
    } else {
      __syncthreads();
    }
  };

  // ---- barriers
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < C::kStages; stage++) {
      ptx::mbarrier_init(&smem.full[stage], 1);
      ptx::mbarrier_init(&smem.empty[stage], C::kWarpgroups * 4 * kCluster);
    }
    ptx::fence_mbarrier_init();
  }
  meet();  // all threads wait until the barriers are initialised, so each may use them

  // ---- producer
  if (warpgroup_idx == C::kWarpgroups) {
    ptx::setmaxnreg_dec<C::kProducerRegisters>();
    // [producer]
    if (warp_idx == 0 && ptx::elect_sync()) {  // one thread loads
      uint32_t slice = 0;                      // counts slices over all tiles
      for_each_tile([&](int row, int column) {
        for (int d = 0; d < slices; d++, slice++) {
          const uint32_t stage = slice % C::kStages;
          uint64_t* const full = &smem.full[stage];
          ptx::mbarrier_wait(&smem.empty[stage], (slice / C::kStages + 1) % 2);
          ptx::mbarrier_arrive_expect_tx(full, kSliceBytes);
          ptx::cp_async_bulk_tensor_load(smem.sA[stage], &map_a, {d * C::kBlockK, row}, full);
          if constexpr (kCluster == 1) {
            ptx::cp_async_bulk_tensor_load(smem.sB[stage], &map_b, {d * C::kBlockK, column}, full);
          } else {  // this CTA loads its part for all CTAs of the cluster
            ptx::cp_async_bulk_tensor_load_multicast(smem.sB[stage][rank * kBoxRows], &map_b,
                                                     {d * C::kBlockK, column + rank * kBoxRows},
                                                     full, (1 << kCluster) - 1);
          }
        }
      });
    }
    // [/producer]
    __syncwarp();
  } else {
    // ---- consumers
    ptx::setmaxnreg_inc<C::kConsumerRegisters>();
    // [release]
    // Every warp calls it after its last read of a slice, and tells all producers that fill its
    // stage.
    const auto release = [&](uint32_t slice) {
      uint64_t* const empty = &smem.empty[slice % C::kStages];
      if constexpr (kCluster == 1) {
        if (lane_idx == 0) ptx::mbarrier_arrive(empty);
      } else {
        if (lane_idx < kCluster) ptx::mbarrier_arrive_cluster(empty, lane_idx);
      }
    };
    // [/release]
    const uint64_t desc_a =
        layout::k_major_descriptor(ptx::shared_address(smem.sA[0][warpgroup_idx * 64]));
    const uint64_t desc_b = layout::k_major_descriptor(ptx::shared_address(smem.sB));
    const int warp = warpgroup_idx * 4 + warp_idx;
    float acc[C::kBlockN / 2];
    uint32_t slice = 0;  // counts slices over all tiles
    for_each_tile([&](int row, int column) {
      // ---- main loop
      // [loop]
      for (int d = 0; d < slices; d++, slice++) {
        const uint32_t stage = slice % C::kStages;
        ptx::mbarrier_wait(&smem.full[stage], slice / C::kStages % 2);
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < C::kBlockK / 16; i++) {
          ptx::wgmma<T, C::kBlockN>(
              acc,
              layout::advance(desc_a,
                              stage * C::kBlockM * 128 + layout::k_major_step(C::kBlockM, i)),
              layout::advance(desc_b,
                              stage * C::kBlockN * 128 + layout::k_major_step(C::kBlockN, i)),
              d > 0 || i > 0);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();  // the slice before has been read; this slice's products run on
        if (d > 0) release(slice - 1);
      }
      ptx::wgmma_wait<0>(acc);
      release(slice - 1);
      // [/loop]

      // ---- epilogue
      // [epilogue]
#pragma unroll
      for (int slab = 0; slab < C::kBlockN / 64; slab++) {  // 64 columns per slab
        T(*const sC)[64] = smem.sC[warp][slab % 2];
        if (lane_idx == 0) ptx::cp_async_bulk_wait_read<1>();  // the slab before the last has left
        __syncwarp();
#pragma unroll
        for (int j = 0; j < 4; j++) {  // 16 columns per step
          const float* const sums = acc + (slab * 4 + j) * 8;
          const int first = column + slab * 64 + j * 16 + lane_idx % 4 * 2;
          uint32_t rC[4];
#pragma unroll
          for (int i = 0; i < 4; i++) {
            rC[i] = finish<T, kEpilogue>(sums[2 * i], sums[2 * i + 1], bias, first + i / 2 * 8);
          }
          const int chunk = layout::swizzle(lane_idx % 16, j * 2 + lane_idx / 16);
          ptx::stmatrix_x4(rC, ptx::shared_address(&sC[lane_idx % 16][chunk * 8]));
        }
        ptx::fence_proxy_async();  // makes C visible to TMA, which reads by another path
        __syncwarp();
        if (lane_idx == 0) {
          ptx::cp_async_bulk_tensor_store(
              &map_c, {column + slab * 64, row + warpgroup_idx * 64 + warp_idx * 16}, sC);
          ptx::cp_async_bulk_commit();
        }
      }
      // [/epilogue]
    });
    if (lane_idx == 0) ptx::cp_async_bulk_wait<0>();  // waits until the last slabs are written
    __syncwarp();
  }
  // All CTAs of the cluster wait here: a CTA's shared memory must outlive what is sent to it.
  if constexpr (kCluster > 1) meet();
}

// ---- host ---------------------------------------------------------------------------------------
template <typename T, Epilogue kEpilogue, int kCluster>
void run(const Product& p) {
  using C = Config;
  const auto map = [](const void* matrix, int rows, int columns, uint32_t box_rows) {
    return make_slab_map(static_cast<const T*>(matrix), columns, rows, box_rows);
  };
  const int tiles = p.m / (C::kBlockM * kCluster) * (p.n / C::kBlockN);
  const int clusters = tiles < sm_count() / kCluster ? tiles : sm_count() / kCluster;
  launch<gemm_kernel<T, kEpilogue, kCluster>>(
      {dim3(clusters * kCluster), dim3(C::kThreads), sizeof(SharedStorage<T>), kCluster},
      map(p.a, p.m, p.k, C::kBlockM), map(p.b, p.n, p.k, C::kBlockN / kCluster),
      map(p.c, p.m, p.n, 16), static_cast<const T*>(p.bias), p.m, p.n, p.k);
}

template <typename T, Epilogue kEpilogue>
struct Launcher {
  static void run(const Product& p) { wgmma_tma_kernel::run<T, kEpilogue, 1>(p); }
};
template <typename T, Epilogue kEpilogue>
struct ClusterLauncher {
  static void run(const Product& p) { wgmma_tma_kernel::run<T, kEpilogue, 2>(p); }
};

}  // namespace fa::gemm::wgmma_tma_kernel

namespace fa::gemm {

void wgmma_tma(const Product& product) { dispatch<wgmma_tma_kernel::Launcher>(product); }
void wgmma_tma_cluster(const Product& product) {
  dispatch<wgmma_tma_kernel::ClusterLauncher>(product);
}

}  // namespace fa::gemm
