// 05_mma_split_kv: Tensor Cores with a known layout; the warps split the keys (FlashAttention-1).
//
// Idea         mma.sync specifies which lane holds which element, so a thread can compute with its
//              part of S and O in registers. ldmatrix loads tiles from shared memory in exactly
//              that layout. The warps split K and V: each computes the scores of 16 keys for all
//              rows of the CTA, and a quarter of the columns of O.
// Bottleneck   Removed: S and O crossed shared memory around every tile.
// Changed      ldmatrix and mma.sync replace wmma; acc_s and acc_o are in registers. Row maximum
//              and sum are spread over the warps and cross through shared memory, and so does P.
// Run          cmake --build --preset emulator --target 05_mma_split_kv &&
//              build/emulator/bin/05_mma_split_kv
#include "common/launch/launch.h"
#include "common/launch/registry.h"
#include "common/ptx/convert.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mma.h"

namespace fa::k05 {

template <int kHeadDim>
struct Config {
  static constexpr int kBlockM = 64;  // query rows per CTA
  static constexpr int kBlockN = 64;  // keys per tile
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kKeys = kBlockN / kWarps;      // columns of S per warp: 16, one ldmatrix.x4
  static constexpr int kColumns = kHeadDim / kWarps;  // columns of O per warp
  // Each row of a tile is followed by kPad unused elements, 16 bytes. With 0, the eight rows of a
  // matrix that ldmatrix reads would share four banks: an 8-way conflict. 08 needs no kPad.
  static constexpr int kPad = 8;
};

// Each warp w0..w3 computes one part of S and O. Lane l holds four elements of each 16 x 8 tile:
//
//            S: keys                    O: columns                 16 x 8 tile, lane l
//         w0 | w1 | w2 | w3          w0 | w1 | w2 | w3             row l/4:    2 (l%4), 2 (l%4) + 1
//   rows  all 64 rows each           all 64 rows each              row l/4+8:  the same columns
//
// The four lanes of a quad (l/4) share two rows of each tile.
template <typename T, int kHeadDim>
struct SharedStorage {
  using C = Config<kHeadDim>;
  alignas(128) T sQ[C::kBlockM][kHeadDim + C::kPad];
  alignas(128) T sKV[C::kBlockN][kHeadDim + C::kPad];  // holds K, then V, then the next K
  alignas(128) T sP[C::kBlockM][C::kBlockN + C::kPad];
  float sMax[C::kWarps][C::kBlockM];  // the maximum of each row over one warp's keys
  float sSum[C::kWarps][C::kBlockM];  // the sum of each row over one warp's keys
};

// Copies a tile of 64 rows from global memory, 16 bytes (8 elements) per thread per pass.
template <typename T, int kHeadDim>
__device__ __forceinline__ void load_tile(T (*tile)[kHeadDim + Config<kHeadDim>::kPad],
                                          const T* g) {
  using C = Config<kHeadDim>;
  constexpr int kVectorsPerRow = kHeadDim / 8;
#pragma unroll
  for (int i = 0; i < C::kBlockN * kVectorsPerRow / C::kThreads; i++) {
    const int vector = i * C::kThreads + threadIdx.x;
    const int row = vector / kVectorsPerRow, column = vector % kVectorsPerRow * 8;
    const uint4 packed = *reinterpret_cast<const uint4*>(g + size_t(row) * kHeadDim + column);
    *reinterpret_cast<uint4*>(&tile[row][column]) = packed;
  }
}

// The four lanes of a quad share their rows, so two exchanges combine all four values.
__device__ __forceinline__ float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

__device__ __forceinline__ float quad_sum(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

// spills: Li64E 16 bytes on sm_120 (for a test; head_dim 64), so four CTAs fit on an SM
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(Config<kHeadDim>::kThreads)
    attention_kernel(const T* q, const T* k, const T* v, T* o, int seq_len, float scale) {
  using C = Config<kHeadDim>;
  constexpr int kRowTiles = C::kBlockM / 16;  // 16-row tiles of S and O
  constexpr int kOutTiles = C::kColumns / 8;  // 8-column tiles of O per warp
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
  load_tile<T, kHeadDim>(smem.sQ, gQ);
  // Each lane keeps statistics for rows 16 m + quad and 16 m + quad + 8, equal in all warps.
  float row_max[kRowTiles][2], row_sum[kRowTiles][2] = {};
#pragma unroll
  for (int i = 0; i < kRowTiles * 2; i++) row_max[i / 2][i % 2] = -INFINITY;
  float acc_o[kRowTiles][kOutTiles][4] = {};

  // ---- main loop
  for (int n_block = 0; n_block < seq_len / C::kBlockN; n_block++) {
    const size_t tile = size_t(n_block) * C::kBlockN * kHeadDim;
    load_tile<T, kHeadDim>(smem.sKV, gK + tile);
    // All warps wait until K (before the first tile, Q, too) is stored, so both may be read.
    __syncthreads();

    // S = QK^T for this warp's keys.
    // [scores]
    float acc_s[kRowTiles][2][4] = {};
#pragma unroll
    for (int d = 0; d < kHeadDim; d += 16) {
      uint32_t rK[4];  // two B fragments: 16 keys
      ptx::ldmatrix_x4(
          rK, ptx::shared_address(&smem.sKV[warp_idx * C::kKeys + lane_idx % 8 + lane_idx / 16 * 8]
                                           [d + lane_idx / 8 % 2 * 8]));
#pragma unroll
      for (int m = 0; m < kRowTiles; m++) {
        uint32_t rQ[4];
        ptx::ldmatrix_x4(
            rQ, ptx::shared_address(&smem.sQ[m * 16 + lane_idx % 16][d + lane_idx / 16 * 8]));
        ptx::mma_m16n8k16<T>(acc_s[m][0], rQ, {rK[0], rK[1]});
        ptx::mma_m16n8k16<T>(acc_s[m][1], rQ, {rK[2], rK[3]});
      }
    }
    // [/scores]

    // [row-max]
    // Each warp stores the maximum of every row over its own keys.
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float warp_max = -INFINITY;
#pragma unroll
        for (int n = 0; n < 2; n++) {
          acc_s[m][n][2 * h] *= scale;
          acc_s[m][n][2 * h + 1] *= scale;
          warp_max = fmaxf(warp_max, fmaxf(acc_s[m][n][2 * h], acc_s[m][n][2 * h + 1]));
        }
        warp_max = quad_max(warp_max);
        if (lane_idx % 4 == 0) smem.sMax[warp_idx][m * 16 + 8 * h + quad] = warp_max;
      }
    }
    // All warps wait until all maxima are stored, so they may be read, and until V may replace K.
    __syncthreads();
    load_tile<T, kHeadDim>(smem.sKV, gV + tile);
    // [/row-max]

    // [softmax]
    // P = e^(S - max) goes to shared memory, because every warp needs all of P. O is rescaled.
    float rescale[kRowTiles][2];
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int row = m * 16 + 8 * h + quad;
        float new_max = row_max[m][h];
#pragma unroll
        for (int w = 0; w < C::kWarps; w++) new_max = fmaxf(new_max, smem.sMax[w][row]);
        rescale[m][h] = expf(row_max[m][h] - new_max);  // e^-inf = 0 in the first tile
        row_max[m][h] = new_max;
        float warp_sum = 0.0f;
#pragma unroll
        for (int n = 0; n < 2; n++) {
          const float p0 = expf(acc_s[m][n][2 * h] - new_max),
                      p1 = expf(acc_s[m][n][2 * h + 1] - new_max);
          warp_sum += p0 + p1;
          *reinterpret_cast<uint32_t*>(&smem.sP[row][warp_idx * C::kKeys + n * 8 + pair]) =
              ptx::pack<T>(p0, p1);
        }
        warp_sum = quad_sum(warp_sum);
        if (lane_idx % 4 == 0) smem.sSum[warp_idx][row] = warp_sum;
#pragma unroll
        for (int n = 0; n < kOutTiles; n++) {
          acc_o[m][n][2 * h] *= rescale[m][h];
          acc_o[m][n][2 * h + 1] *= rescale[m][h];
        }
      }
    }
    // [/softmax]
    // All warps wait until V, P and the sums are stored, so all three may be read.
    __syncthreads();
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        row_sum[m][h] *= rescale[m][h];
#pragma unroll
        for (int w = 0; w < C::kWarps; w++) row_sum[m][h] += smem.sSum[w][m * 16 + 8 * h + quad];
      }
    }

    // [output]
    // O += PV for this warp's columns.
#pragma unroll
    for (int key = 0; key < C::kBlockN; key += 16) {
      uint32_t rP[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; m++) {
        ptx::ldmatrix_x4(
            rP[m], ptx::shared_address(&smem.sP[m * 16 + lane_idx % 16][key + lane_idx / 16 * 8]));
      }
#pragma unroll
      for (int n = 0; n < kOutTiles; n += 2) {
        uint32_t rV[4];  // two B fragments: 16 columns
        ptx::ldmatrix_x4_trans(
            rV, ptx::shared_address(&smem.sKV[key + lane_idx % 16]
                                             [warp_idx * C::kColumns + n * 8 + lane_idx / 16 * 8]));
#pragma unroll
        for (int m = 0; m < kRowTiles; m++) {
          ptx::mma_m16n8k16<T>(acc_o[m][n], rP[m], {rV[0], rV[1]});
          ptx::mma_m16n8k16<T>(acc_o[m][n + 1], rP[m], {rV[2], rV[3]});
        }
      }
    }
    // [/output]
    // All warps wait until every warp has read V and P, so the next tile may overwrite both.
    __syncthreads();
  }

  // ---- epilogue
#pragma unroll
  for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float inverse_sum = 1.0f / row_sum[m][h];
      T* const row = gO + size_t(m * 16 + 8 * h + quad) * kHeadDim + warp_idx * C::kColumns;
#pragma unroll
      for (int n = 0; n < kOutTiles; n++) {
        *reinterpret_cast<uint32_t*>(row + n * 8 + pair) =
            ptx::pack<T>(acc_o[m][n][2 * h] * inverse_sum, acc_o[m][n][2 * h + 1] * inverse_sum);
      }
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

const Registration<Launcher> registration{"05_mma_split_kv", Needs{75, false, 0, 80}};

}  // namespace fa::k05
