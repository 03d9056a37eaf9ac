// mma_sync: a matrix product as kernels 07 to 10 would compute it.
//
// A CTA computes a tile of C. Slices of A and B, kBlockK columns deep, pass through a swizzled ring
// in shared memory (cp.async, 07; swizzle, 08). Each warp multiplies its part of the tile from
// fragments (ldmatrix, mma.sync, 05). The epilogue works on the accumulators and stores them from
// registers.
#include "bench/gemm/epilogue.h"
#include "common/launch/launch.h"
#include "common/layout/swizzle.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mma.h"

namespace fa::gemm::mma_sync_kernel {

struct Config {
  static constexpr int kBlockM = 128, kBlockN = 128;  // rows and columns of C per CTA
  static constexpr int kBlockK = 64;                  // terms per slice: its rows have 128 bytes
  static constexpr int kStages = 3;                   // slices in shared memory
  static constexpr int kWarpM = 64, kWarpN = 64;      // rows and columns of C per warp
  static constexpr int kWarpsN = kBlockN / kWarpN;
  static constexpr int kThreads = kBlockM / kWarpM * kWarpsN * 32;
};

// Each warp w0..w3 computes a quarter of a tile of C. Lane l holds four of each 16 x 8 elements:
//
//               columns 0..63   64..127        16 x 8, lane l
//   rows  0..63      w0           w1           row l/4:    2 (l%4), 2 (l%4) + 1
//   rows 64..127     w2           w3           row l/4+8:  the same columns
template <typename T>
struct SharedStorage {
  using C = Config;
  alignas(128) T sA[C::kStages][C::kBlockM][C::kBlockK];
  alignas(128) T sB[C::kStages][C::kBlockN][C::kBlockK];
};

// Returns the shared address of the 16-byte chunk that begins at `column`, a multiple of 8.
template <typename T>
__device__ __forceinline__ uint32_t chunk_address(const T (*slice)[Config::kBlockK], int row,
                                                  int column) {
  return ptx::shared_address(&slice[row][layout::swizzle(row, column / 8) * 8]);
}

// Starts to copy kRows rows of a slice from rows that are k elements long.
template <int kRows, typename T>
__device__ __forceinline__ void copy_slice(T (*slice)[Config::kBlockK], const T* g, int k) {
  constexpr int kChunks = Config::kBlockK / 8;  // 16-byte chunks per row
#pragma unroll
  for (int i = 0; i < kRows * kChunks / Config::kThreads; i++) {
    const int chunk = i * Config::kThreads + threadIdx.x;
    const int row = chunk / kChunks, column = chunk % kChunks * 8;
    ptx::cp_async<16>(chunk_address(slice, row, column), g + size_t(row) * k + column);
  }
}

template <typename T, Epilogue kEpilogue>
__global__ void __launch_bounds__(Config::kThreads, 2)
    gemm_kernel(const T* a, const T* b, const T* bias, T* c, int n, int k) {
  using C = Config;
  constexpr int kRowTiles = C::kWarpM / 16, kColumnTiles = C::kWarpN / 8;  // tiles per warp
  auto& smem = shared_storage<SharedStorage<T>>();

  // ---- indices
  const int m_row = blockIdx.x * C::kBlockM, n_row = blockIdx.y * C::kBlockN;
  const int warp_idx = threadIdx.x / 32, lane_idx = threadIdx.x % 32;
  const int warp_m = warp_idx / C::kWarpsN * C::kWarpM, warp_n = warp_idx % C::kWarpsN * C::kWarpN;
  const int slices = k / C::kBlockK;

  // ---- prologue
  // [ring]
  const auto copy = [&](int slice) {
    if (slice < slices) {
      const int stage = slice % C::kStages;
      copy_slice<C::kBlockM>(smem.sA[stage], a + size_t(m_row) * k + slice * C::kBlockK, k);
      copy_slice<C::kBlockN>(smem.sB[stage], b + size_t(n_row) * k + slice * C::kBlockK, k);
    }
    ptx::cp_async_commit();  // an empty group is committed, too: waits count groups
  };
  // [/ring]
  for (int slice = 0; slice < C::kStages - 1; slice++) copy(slice);
  float acc[kRowTiles][kColumnTiles][4] = {};

  // ---- main loop
  // [loop]
  for (int slice = 0; slice < slices; slice++) {
    ptx::cp_async_wait<C::kStages - 2>();
    // All warps wait until every thread's part of this slice has arrived, so it may be read. The
    // barrier also means that every warp has finished the previous slice, so its stage may be
    // refilled.
    __syncthreads();
    copy(slice + C::kStages - 1);
    const auto* const sA = smem.sA[slice % C::kStages];
    const auto* const sB = smem.sB[slice % C::kStages];
#pragma unroll
    for (int d = 0; d < C::kBlockK; d += 16) {
      uint32_t rA[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; m++) {
        ptx::ldmatrix_x4(rA[m],
                         chunk_address(sA, warp_m + m * 16 + lane_idx % 16, d + lane_idx / 16 * 8));
      }
#pragma unroll
      for (int j = 0; j < kColumnTiles; j += 2) {
        uint32_t rB[4];  // two B fragments: 16 rows of B
        ptx::ldmatrix_x4(rB, chunk_address(sB, warp_n + j * 8 + lane_idx % 8 + lane_idx / 16 * 8,
                                           d + lane_idx / 8 % 2 * 8));
#pragma unroll
        for (int m = 0; m < kRowTiles; m++) {
          ptx::mma_m16n8k16<T>(acc[m][j], rA[m], {rB[0], rB[1]});
          ptx::mma_m16n8k16<T>(acc[m][j + 1], rA[m], {rB[2], rB[3]});
        }
      }
    }
  }
  // [/loop]

  // ---- epilogue
  // [epilogue]
#pragma unroll
  for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
    for (int j = 0; j < kColumnTiles; j++) {
      const int column = n_row + warp_n + j * 8 + lane_idx % 4 * 2;
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int row = m_row + warp_m + m * 16 + h * 8 + lane_idx / 4;
        *reinterpret_cast<uint32_t*>(c + size_t(row) * n + column) =
            finish<T, kEpilogue>(acc[m][j][2 * h], acc[m][j][2 * h + 1], bias, column);
      }
    }
  }
  // [/epilogue]
}

// ---- host ---------------------------------------------------------------------------------------
template <typename T, Epilogue kEpilogue>
struct Launcher {
  static void run(const Product& p) {
    launch<gemm_kernel<T, kEpilogue>>({dim3(p.m / Config::kBlockM, p.n / Config::kBlockN),
                                       dim3(Config::kThreads), sizeof(SharedStorage<T>)},
                                      static_cast<const T*>(p.a), static_cast<const T*>(p.b),
                                      static_cast<const T*>(p.bias), static_cast<T*>(p.c), p.n,
                                      p.k);
  }
};

}  // namespace fa::gemm::mma_sync_kernel

namespace fa::gemm {

void mma_sync(const Product& product) { dispatch<mma_sync_kernel::Launcher>(product); }

}  // namespace fa::gemm
