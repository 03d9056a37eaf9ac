// 08_swizzle: no bank conflicts, no padding.
//
// Idea         Each 16-byte chunk of a row is stored at another place in the same row, chosen by
//              XOR with the row's number (common/layout/swizzle.h). Eight rows that are read at the
//              same column are then in eight different groups of banks.
// Bottleneck   Removed: padded rows, for which cp.async fetches an eighth of the sectors twice.
// Changed      Every address in shared memory goes through chunk_address(); kPad is gone.
// Run          cmake --build --preset emulator --target 08_swizzle && build/emulator/bin/08_swizzle
#include "common/launch/launch.h"
#include "common/launch/registry.h"
#include "common/layout/swizzle.h"
#include "common/ptx/convert.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mma.h"

namespace fa::k08 {

template <int kHeadDim>
struct Config {
  static constexpr int kBlockM = 64;  // query rows per CTA
  static constexpr int kBlockN = 64;  // keys per tile
  static constexpr int kWarps = kBlockM / 16;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kStages = 2;  // tiles of K and of V in shared memory
};

// Each warp w0..w3 computes one part of S and O. Lane l holds four elements of each 16 x 8 tile:
//
//               S: all keys             O: all columns             16 x 8 tile, lane l
//   rows  0..15     w0                      w0                     row l/4:    2 (l%4), 2 (l%4) + 1
//   rows 16..31     w1                      w1                     row l/4+8:  the same columns
//   rows 32..47     w2                      w2
//   rows 48..63     w3                      w3
//
// The four lanes of a quad (l/4) share two rows of each tile.
template <typename T, int kHeadDim>
struct SharedStorage {
  using C = Config<kHeadDim>;
  alignas(128) T sQ[C::kBlockM][kHeadDim];
  alignas(128) T sK[C::kStages][C::kBlockN][kHeadDim];
  alignas(128) T sV[C::kStages][C::kBlockN][kHeadDim];
};

// [chunk-address]
// Returns the shared address of the 16-byte chunk that begins at `column`, a multiple of 8.
template <typename T, int kHeadDim>
__device__ __forceinline__ uint32_t chunk_address(const T (*tile)[kHeadDim], int row, int column) {
  return ptx::shared_address(&tile[row][layout::swizzle(row, column / 8) * 8]);
}
// [/chunk-address]

// [copy-tile]
// Starts to copy a tile of 64 rows from global memory, 16 bytes (8 elements) per thread per pass.
template <typename T, int kHeadDim>
__device__ __forceinline__ void copy_tile(T (*tile)[kHeadDim], const T* g) {
  using C = Config<kHeadDim>;
  constexpr int kVectorsPerRow = kHeadDim / 8;
#pragma unroll
  for (int i = 0; i < C::kBlockN * kVectorsPerRow / C::kThreads; i++) {
    const int vector = i * C::kThreads + threadIdx.x;
    const int row = vector / kVectorsPerRow, column = vector % kVectorsPerRow * 8;
    ptx::cp_async<16>(chunk_address<T, kHeadDim>(tile, row, column),
                      g + size_t(row) * kHeadDim + column);
  }
}
// [/copy-tile]

// The four lanes of a quad share their rows, so two exchanges combine all four values.
__device__ __forceinline__ float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

__device__ __forceinline__ float quad_sum(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

template <typename T, int kHeadDim>
__global__ void __launch_bounds__(Config<kHeadDim>::kThreads)
    attention_kernel(const T* q, const T* k, const T* v, T* o, int seq_len, float scale) {
  using C = Config<kHeadDim>;
  constexpr int kKeyTiles = C::kBlockN / 8;  // 8-key tiles of S
  constexpr int kOutTiles = kHeadDim / 8;    // 8-column tiles of O
  auto& smem = shared_storage<SharedStorage<T, kHeadDim>>();

  // ---- indices
  const int m_block = blockIdx.x;
  const size_t head = blockIdx.y;
  const int warp_idx = threadIdx.x / 32;
  const int lane_idx = threadIdx.x % 32;
  const int quad = lane_idx / 4;      // this lane has rows quad and quad + 8 of a 16 x 8 tile
  const int pair = lane_idx % 4 * 2;  // this lane has columns pair and pair + 1 of it

  // ---- pointers
  const T* gQ = q + (head * seq_len + m_block * C::kBlockM) * kHeadDim;  // [kBlockM][kHeadDim]
  const T* gK = k + head * seq_len * kHeadDim;                           // [seq_len][kHeadDim]
  const T* gV = v + head * seq_len * kHeadDim;                           // [seq_len][kHeadDim]
  T* gO = o + (head * seq_len + m_block * C::kBlockM) * kHeadDim;        // [kBlockM][kHeadDim]

  // ---- prologue
  // [first-tiles]
  const int tiles = seq_len / C::kBlockN;
  copy_tile<T, kHeadDim>(smem.sQ, gQ);
  for (int n_block = 0; n_block < C::kStages - 1; n_block++) {
    if (n_block < tiles) {
      copy_tile<T, kHeadDim>(smem.sK[n_block], gK + size_t(n_block) * C::kBlockN * kHeadDim);
      copy_tile<T, kHeadDim>(smem.sV[n_block], gV + size_t(n_block) * C::kBlockN * kHeadDim);
    }
    ptx::cp_async_commit();  // one group per tile; Q belongs to the first group
  }
  // [/first-tiles]
  // Each lane keeps statistics for two rows: 16 * warp_idx + quad, and that row + 8. row_sum is
  // this lane's share of the sum.
  float row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {};
  float acc_o[kOutTiles][4] = {};

  // ---- main loop
  for (int n_block = 0; n_block < tiles; n_block++) {
    // [ring]
    const int stage = n_block % C::kStages;
    // This thread waits until its own copies of the tile have arrived.
    ptx::cp_async_wait<C::kStages - 2>();
    // All warps wait until every thread's copies have arrived, so the tile may be read. The barrier
    // also means that every warp has finished the previous tile, so its stage may be refilled.
    __syncthreads();
    const int next = n_block + C::kStages - 1;
    if (next < tiles) {
      copy_tile<T, kHeadDim>(smem.sK[next % C::kStages], gK + size_t(next) * C::kBlockN * kHeadDim);
      copy_tile<T, kHeadDim>(smem.sV[next % C::kStages], gV + size_t(next) * C::kBlockN * kHeadDim);
    }
    ptx::cp_async_commit();  // an empty group is committed, too: the wait above counts groups
    // [/ring]

    // S = QK^T for this warp's rows.
    // [scores]
    float acc_s[kKeyTiles][4] = {};
#pragma unroll
    for (int d = 0; d < kHeadDim; d += 16) {
      uint32_t rQ[4];
      ptx::ldmatrix_x4(rQ, chunk_address<T, kHeadDim>(smem.sQ, warp_idx * 16 + lane_idx % 16,
                                                      d + lane_idx / 16 * 8));
#pragma unroll
      for (int n = 0; n < kKeyTiles; n += 2) {
        uint32_t rK[4];  // two B fragments: 16 keys
        ptx::ldmatrix_x4(
            rK, chunk_address<T, kHeadDim>(smem.sK[stage], n * 8 + lane_idx % 8 + lane_idx / 16 * 8,
                                           d + lane_idx / 8 % 2 * 8));
        ptx::mma_m16n8k16<T>(acc_s[n], rQ, {rK[0], rK[1]});
        ptx::mma_m16n8k16<T>(acc_s[n + 1], rQ, {rK[2], rK[3]});
      }
    }
    // [/scores]

    // [softmax]
    // P = e^(S - max) replaces S in its registers. O and the sums are rescaled.
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float new_max = row_max[h];
#pragma unroll
      for (int n = 0; n < kKeyTiles; n++) {
        acc_s[n][2 * h] *= scale;
        acc_s[n][2 * h + 1] *= scale;
        new_max = fmaxf(new_max, fmaxf(acc_s[n][2 * h], acc_s[n][2 * h + 1]));
      }
      new_max = quad_max(new_max);
      const float rescale = expf(row_max[h] - new_max);  // e^-inf = 0 in the first tile
      row_max[h] = new_max;
      row_sum[h] *= rescale;
#pragma unroll
      for (int n = 0; n < kKeyTiles; n++) {
        acc_s[n][2 * h] = expf(acc_s[n][2 * h] - new_max);
        acc_s[n][2 * h + 1] = expf(acc_s[n][2 * h + 1] - new_max);
        row_sum[h] += acc_s[n][2 * h] + acc_s[n][2 * h + 1];
      }
#pragma unroll
      for (int n = 0; n < kOutTiles; n++) {
        acc_o[n][2 * h] *= rescale;
        acc_o[n][2 * h + 1] *= rescale;
      }
    }
    // [/softmax]

    // [output]
    // O += PV for this warp's rows.
#pragma unroll
    for (int key = 0; key < C::kBlockN; key += 16) {
      const float(&low)[4] = acc_s[key / 8], (&high)[4] = acc_s[key / 8 + 1];
      const uint32_t rP[4] = {ptx::pack<T>(low[0], low[1]), ptx::pack<T>(low[2], low[3]),
                              ptx::pack<T>(high[0], high[1]), ptx::pack<T>(high[2], high[3])};
#pragma unroll
      for (int n = 0; n < kOutTiles; n += 2) {
        uint32_t rV[4];  // two B fragments: 16 columns
        ptx::ldmatrix_x4_trans(rV, chunk_address<T, kHeadDim>(smem.sV[stage], key + lane_idx % 16,
                                                              n * 8 + lane_idx / 16 * 8));
        ptx::mma_m16n8k16<T>(acc_o[n], rP, {rV[0], rV[1]});
        ptx::mma_m16n8k16<T>(acc_o[n + 1], rP, {rV[2], rV[3]});
      }
    }
    // [/output]
  }

  // ---- epilogue
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const float inverse_sum = 1.0f / quad_sum(row_sum[h]);
    T* const row = gO + size_t(warp_idx * 16 + 8 * h + quad) * kHeadDim;
#pragma unroll
    for (int n = 0; n < kOutTiles; n++) {
      *reinterpret_cast<uint32_t*>(row + n * 8 + pair) =
          ptx::pack<T>(acc_o[n][2 * h] * inverse_sum, acc_o[n][2 * h + 1] * inverse_sum);
    }
  }
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

const Registration<Launcher> registration{"08_swizzle", Needs{80}, Traits::kAsync};

}  // namespace fa::k08
