// mma_sync_tma: the same instruction as in mma_sync, fed by all that kernels 09 to 15 know.
//
// CTAs are persistent (15). A producer warp fills a swizzled ring of slices of A and B by TMA (08,
// 12, 13). Eight consumer warps multiply them from fragments (ldmatrix, mma.sync, 05), which they
// load ahead of their use (09) from addresses that cost an XOR per step (10), and store the sums
// from registers, while the producer already fetches slices of the next tile.
#include <type_traits>

#include "bench/gemm/epilogue.h"
#include "bench/gemm/tile_order.h"
#include "common/launch/launch.h"
#include "common/launch/tensor_map.h"
#include "common/layout/swizzle.h"
#include "common/ptx/elect.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/mma.h"
#include "common/ptx/setmaxnreg.h"
#include "common/ptx/tma.h"

namespace fa::gemm::mma_sync_tma_kernel {

struct Config {
  static constexpr int kBlockM = 192, kBlockN = 256;  // rows and columns of C per CTA
  static constexpr int kHalfM = kBlockM / 2;          // rows of the tiles that come last
  static constexpr int kBlockK = 64;                  // terms per slice: its rows have 128 bytes
  static constexpr int kStages = 4;                   // slices in shared memory
  static constexpr int kWarpsM = 2, kWarpsN = 4, kWarps = kWarpsM * kWarpsN;  // consumers
  static constexpr int kWarpN = kBlockN / kWarpsN;
  static constexpr int kThreads = kWarps * 32 + 128;  // the last warpgroup is the producer
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
  // Tiles that are computed at the same time form a block of kGroupRows rows of tiles, so they
  // share A and B in L2.
  static constexpr int kGroupRows = 11;
};

// Each warp w0..w7 computes an eighth of a tile of C. Lane l holds four of each 16 x 8 elements:
//
//             columns 0..63  ..127  ..191  ..255        16 x 8, lane l
//   rows  0..95        w0      w1     w2     w3         row l/4:    2 (l%4), 2 (l%4) + 1
//   rows 96..191       w4      w5     w6     w7         row l/4+8:  the same columns
template <typename T>
struct SharedStorage {
  using C = Config;
  // The swizzle depends on the address and repeats every 1024 bytes (8 rows), hence the alignment.
  alignas(1024) T slices[C::kStages][C::kBlockM + C::kBlockN][C::kBlockK];  // A's rows, then B's
  // full expects the producer's arrival and a slice's bytes; empty one arrival per consumer warp.
  uint64_t full[C::kStages], empty[C::kStages];
};

// Returns the shared address of the 16-byte chunk that begins at `column`, a multiple of 8.
template <typename T>
__device__ __forceinline__ uint32_t chunk_address(const T (*slice)[Config::kBlockK], int row,
                                                  int column) {
  return ptx::shared_address(&slice[row][layout::swizzle(row, column / 8) * 8]);
}

template <typename T, Epilogue kEpilogue>
__global__ void __launch_bounds__(Config::kThreads, 1)
    gemm_kernel(const __grid_constant__ ptx::TensorMap map_a,
                const __grid_constant__ ptx::TensorMap map_b, const T* bias, T* c, int m, int n,
                int k) {
  using C = Config;
  constexpr uint32_t kRowBytes = C::kBlockK * sizeof(T);
  constexpr uint32_t kSliceBytes = (C::kBlockM + C::kBlockN) * kRowBytes;
  auto& smem = shared_storage<SharedStorage<T>>();

  // ---- indices
  // The value is the same in all lanes, and the shuffle tells the compiler so.
  const int warp_idx = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  const int lane_idx = threadIdx.x % 32;
  const int m_tiles = (m + C::kBlockM - 1) / C::kBlockM, n_tiles = n / C::kBlockN;
  const int slices = k / C::kBlockK;
  // [tiles]
  // Calls body(row, column, whole) for each tile of C of this CTA. Tiles that do not fill all CTAs
  // are cut in an upper and a lower half, so more CTAs share the last of the work.
  const auto for_each_tile = [&](const auto& body) {
    const int tiles = m_tiles * n_tiles, wholes = tiles / gridDim.x * gridDim.x;
    for (int t = blockIdx.x; t < wholes + 2 * (tiles - wholes); t += gridDim.x) {
      const int half = t < wholes ? 0 : (t - wholes) % 2;
      const int2 tile =
          tile_of<C::kGroupRows>(t < wholes ? t : wholes + (t - wholes) / 2, m_tiles, n_tiles);
      body(tile.x * C::kBlockM + half * C::kHalfM, tile.y * C::kBlockN, t < wholes);
    }
  };
  // [/tiles]

  // ---- barriers
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < C::kStages; stage++) {
      ptx::mbarrier_init(&smem.full[stage], 1);
      ptx::mbarrier_init(&smem.empty[stage], C::kWarps);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();  // all threads wait until the barriers are initialised, so each may use them

  // ---- producer
  if (warp_idx >= C::kWarps) {
    ptx::setmaxnreg_dec<C::kProducerRegisters>();
    // [producer]
    if (warp_idx == C::kWarps && ptx::elect_sync()) {  // one thread loads
      uint32_t slice = 0;                              // counts slices over all tiles
      for_each_tile([&](int row, int column, bool whole) {
        for (int d = 0; d < slices; d++, slice++) {
          const uint32_t stage = slice % C::kStages;
          uint64_t* const full = &smem.full[stage];
          ptx::mbarrier_wait(&smem.empty[stage], (slice / C::kStages + 1) % 2);
          ptx::mbarrier_arrive_expect_tx(
              full, ((whole ? C::kBlockM : C::kHalfM) + C::kBlockN) * kRowBytes);
          // TMA fills rows past the last one with zeros.
          ptx::cp_async_bulk_tensor_load(smem.slices[stage], &map_a, {d * C::kBlockK, row}, full);
          if (whole) {
            ptx::cp_async_bulk_tensor_load(smem.slices[stage][C::kHalfM], &map_a,
                                           {d * C::kBlockK, row + C::kHalfM}, full);
          }
          ptx::cp_async_bulk_tensor_load(smem.slices[stage][C::kBlockM], &map_b,
                                         {d * C::kBlockK, column}, full);
        }
      });
    }
    // [/producer]
    __syncwarp();
    return;
  }

  // ---- consumers
  ptx::setmaxnreg_inc<C::kConsumerRegisters>();
  const int warp_n = warp_idx % C::kWarpsN * C::kWarpN;
  uint32_t slice = 0;  // counts slices over all tiles
  // Computes a tile of C in which this warp has kTiles x 8 tiles of 16 x 8. All consumer warps call
  // it; each waits for slices, not for another warp.
  const auto multiply = [&]<int kTiles>(std::integral_constant<int, kTiles>, int m_row, int n_row) {
    constexpr int kSteps = C::kBlockK / 16, kPairs = C::kWarpN / 16;  // an mma adds 16 terms
    const int warp_m = warp_idx / C::kWarpsN * kTiles * 16;
    float acc[kTiles][2 * kPairs][4] = {};
    // [fragments]
    // This lane's addresses for step 0 in stage 0. A step is 32 bytes, which the swizzle turns from
    // an addition into an XOR.
    const uint32_t lane_a =
        chunk_address(smem.slices[0], warp_m + lane_idx % 16, lane_idx / 16 * 8);
    const uint32_t lane_b =
        chunk_address(smem.slices[0], C::kBlockM + warp_n + lane_idx % 8 + lane_idx / 16 * 8,
                      lane_idx / 8 % 2 * 8);
    uint32_t read = 0;                    // offset of the stage that is read
    uint32_t rA[2][4], rB[2][kPairs][4];  // fragments that are used and that are loaded
    // Load 16 rows of A and 16 rows of B, 16 columns each, of a slice that has arrived.
    const auto load_a = [&](int step, int i) {
      ptx::ldmatrix_x4(rA[(step * kTiles + i) % 2],
                       ((lane_a + read) ^ (step * 32)) + i * 16 * kRowBytes);
    };
    const auto load_b = [&](int step, int i) {
      ptx::ldmatrix_x4(rB[step % 2][i], ((lane_b + read) ^ (step * 32)) + i * 16 * kRowBytes);
    };
    // [/fragments]
    // Waits until a slice has arrived, so the warp may load it.
    const auto wait = [&](uint32_t number) {
      read = number % C::kStages * kSliceBytes;
      ptx::mbarrier_wait(&smem.full[number % C::kStages], number / C::kStages % 2);
    };

    wait(slice);
    load_a(0, 0);
#pragma unroll
    for (int i = 0; i < kPairs; i++) load_b(0, i);
      // [loop]
#pragma unroll 1
    for (int d = 1; d <= slices; d++, slice++) {
#pragma unroll
      for (int step = 0; step < kSteps; step++) {
#pragma unroll
        for (int i = 0; i < kTiles; i++) {
          const bool last = i == kTiles - 1;
          if (!last) {
            load_a(step, i + 1);
          } else {
            // After the tile's last slice the loads below read it again, and nothing uses them.
            if (step == kSteps - 1 && d < slices) wait(slice + 1);
            load_a((step + 1) % kSteps, 0);
          }
#pragma unroll
          for (int j = 0; j < 2 * kPairs; j++) {
            const uint32_t* const pair = &rB[step % 2][j / 2][j % 2 * 2];
            ptx::mma_m16n8k16<T>(acc[i][j], rA[(step * kTiles + i) % 2], {pair[0], pair[1]});
            if (last && j % 2 == 1) load_b((step + 1) % kSteps, j / 2);
          }
        }
      }
      // The warp has loaded all it needs of this slice, so the producer may refill its stage.
      __syncwarp();
      if (lane_idx == 0) ptx::mbarrier_arrive(&smem.empty[slice % C::kStages]);
    }
    // [/loop]

    // [epilogue]
    const bool odd = lane_idx % 2;
#pragma unroll
    for (int i = 0; i < kTiles; i++) {
#pragma unroll
      for (int j = 0; j < 2 * kPairs; j += 2) {
        const int column = n_row + warp_n + j * 8 + lane_idx % 4 * 2;
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int row = m_row + warp_m + i * 16 + h * 8 + lane_idx / 4;
          // An even lane takes four neighbours of its left 8 columns, an odd one of the right 8.
          const float *const left = &acc[i][j][2 * h], *const right = &acc[i][j + 1][2 * h];
          const uint32_t two[2] = {finish<T, kEpilogue>(left[0], left[1], bias, column),
                                   finish<T, kEpilogue>(right[0], right[1], bias, column + 8)};
          const uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? two[0] : two[1], 1);
          const uint2 four = odd ? uint2{other, two[1]} : uint2{two[0], other};
          T* const to = c + size_t(row) * n + column + (odd ? 8 - 2 : 0);
          if (row < m) *reinterpret_cast<uint2*>(to) = four;
        }
      }
    }
    // [/epilogue]
  };
  for_each_tile([&](int row, int column, bool whole) {
    if (whole) {
      multiply(std::integral_constant<int, C::kBlockM / C::kWarpsM / 16>{}, row, column);
    } else {
      multiply(std::integral_constant<int, C::kHalfM / C::kWarpsM / 16>{}, row, column);
    }
  });
}

// ---- host ---------------------------------------------------------------------------------------
template <typename T, Epilogue kEpilogue>
struct Launcher {
  static void run(const Product& p) {
    using C = Config;
    const auto map = [](const void* matrix, int rows, int columns, uint32_t box_rows) {
      return make_slab_map(static_cast<const T*>(matrix), columns, rows, box_rows);
    };
    const int halves = (p.m + C::kHalfM - 1) / C::kHalfM * (p.n / C::kBlockN);
    const int ctas = halves < sm_count() ? halves : sm_count();
    launch<gemm_kernel<T, kEpilogue>>({dim3(ctas), dim3(C::kThreads), sizeof(SharedStorage<T>)},
                                      map(p.a, p.m, p.k, C::kHalfM), map(p.b, p.n, p.k, C::kBlockN),
                                      static_cast<const T*>(p.bias), static_cast<T*>(p.c), p.m, p.n,
                                      p.k);
  }
};

}  // namespace fa::gemm::mma_sync_tma_kernel

namespace fa::gemm {

void mma_sync_tma(const Product& product) { dispatch<mma_sync_tma_kernel::Launcher>(product); }

}  // namespace fa::gemm
