// 06_mma_split_q: the warps split the queries (FlashAttention-2).
//
// Idea         Each warp owns 16 query rows and computes all their scores. A row then belongs to
//              one quad of one warp, so its maximum, sum and P need no other warp.
// Bottleneck   Removed: warps exchanged maxima, sums and P. P stays in registers, because two tiles
//              of S have the layout of an operand of PV (common/layout/fragments.h proves it).
// Changed      Loops over rows become loops over keys; sP, sMax and sSum are gone.
// Run          cmake --build --preset emulator --target 06_mma_split_q &&
//              build/emulator/bin/06_mma_split_q
#include "common/launch/launch.h"
#include "common/launch/registry.h"
#include "common/ptx/convert.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mma.h"

namespace fa::k06 {

template <int kHeadDim>
struct Config {
  static constexpr int kBlockM = 64;  // query rows per CTA
  static constexpr int kBlockN = 64;  // keys per tile
  static constexpr int kWarps = kBlockM / 16;
  static constexpr int kThreads = kWarps * 32;
  // Each row of a tile is followed by kPad unused elements, 16 bytes. With 0, the eight rows of a
  // matrix that ldmatrix reads would share four banks: an 8-way conflict. 08 needs no kPad.
  static constexpr int kPad = 8;
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
  alignas(128) T sQ[C::kBlockM][kHeadDim + C::kPad];
  alignas(128) T sKV[C::kBlockN][kHeadDim + C::kPad];  // holds K, then V, then the next K
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
  load_tile<T, kHeadDim>(smem.sQ, gQ);
  // Each lane keeps statistics for two rows: 16 * warp_idx + quad, and that row + 8. row_sum is
  // this lane's share of the sum.
  float row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {};
  float acc_o[kOutTiles][4] = {};

  // ---- main loop
  for (int n_block = 0; n_block < seq_len / C::kBlockN; n_block++) {
    const size_t tile = size_t(n_block) * C::kBlockN * kHeadDim;
    load_tile<T, kHeadDim>(smem.sKV, gK + tile);
    // All warps wait until K (before the first tile, Q, too) is stored, so both may be read.
    __syncthreads();

    // S = QK^T for this warp's rows.
    // [scores]
    float acc_s[kKeyTiles][4] = {};
#pragma unroll
    for (int d = 0; d < kHeadDim; d += 16) {
      uint32_t rQ[4];
      ptx::ldmatrix_x4(
          rQ, ptx::shared_address(&smem.sQ[warp_idx * 16 + lane_idx % 16][d + lane_idx / 16 * 8]));
#pragma unroll
      for (int n = 0; n < kKeyTiles; n += 2) {
        uint32_t rK[4];  // two B fragments: 16 keys
        ptx::ldmatrix_x4(
            rK, ptx::shared_address(
                    &smem.sKV[n * 8 + lane_idx % 8 + lane_idx / 16 * 8][d + lane_idx / 8 % 2 * 8]));
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

    // All warps wait until every warp has read K, so V may overwrite it in sKV.
    __syncthreads();
    load_tile<T, kHeadDim>(smem.sKV, gV + tile);
    // All warps wait until V is stored, so it may be read.
    __syncthreads();

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
        ptx::ldmatrix_x4_trans(
            rV, ptx::shared_address(&smem.sKV[key + lane_idx % 16][n * 8 + lane_idx / 16 * 8]));
        ptx::mma_m16n8k16<T>(acc_o[n], rP, {rV[0], rV[1]});
        ptx::mma_m16n8k16<T>(acc_o[n + 1], rP, {rV[2], rV[3]});
      }
    }
    // [/output]
    // All warps wait until every warp has read V, so the next K may overwrite it in sKV.
    __syncthreads();
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

// spills: 6__halfLi128E 40 bytes on sm_75 (for a test; fp16, head_dim 128)
const Registration<Launcher> registration{"06_mma_split_q", Needs{75, false, 0, 80}};

}  // namespace fa::k06
