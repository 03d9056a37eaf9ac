// 02_online_softmax: one kernel computes everything, and S never leaves the chip.
//
// Idea         A CTA owns a tile of query rows and walks over the keys in tiles. The softmax is
//              computed on the way: the largest score so far and the sum of e^(score - largest) are
//              kept. When a tile raises the largest, all sums are scaled by e^(old - new).
// Bottleneck   Removed: every multiply-add fetched its operands from global memory.
// Changed      One kernel replaces three. Tiles of K and V are in shared memory for the whole CTA.
// Run          cmake --build --preset emulator --target 02_online_softmax &&
//              build/emulator/bin/02_online_softmax
#include "common/launch/launch.h"
#include "common/launch/registry.h"
#include "common/ptx/convert.h"

namespace fa::k02 {

template <int kHeadDim>
struct Config {
  static constexpr int kBlockM = 32;  // query rows per CTA
  static constexpr int kBlockN = 32;  // keys per tile
  static constexpr int kWarps = 8;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kRows = kBlockM / kWarps;  // query rows per warp
  static constexpr int kColumns = kHeadDim / 32;  // columns of O per lane
  // Each row of K is followed by two unused elements (4 bytes). Lanes that read the same column of
  // 32 neighbouring rows then meet 32 different banks instead of one.
  static constexpr int kPad = 2;
  static_assert(kBlockN == 32, "lane j of a warp computes the score of key j of the tile");
  static_assert(kBlockM % kWarps == 0, "every warp owns the same number of query rows");
};

// A warp owns kRows query rows. Its lanes divide the keys in QK^T and the columns of O in PV:
//
//            S = QK^T                                   O = PV
//            key 0  1  2 ... 31                         column 0 1 ... 31 | 32 ... 63 | ...
//    row 0  lane 0  1  2 ... 31        sP        row 0    lane 0 1 ... 31 |  0 ... 31 | ...
//    row 1  lane 0  1  2 ... 31    -- [row] -->  row 1    lane 0 1 ... 31 |  0 ... 31 | ...
//     ...                              [key]      ...
//
// Therefore row_max and row_sum are reductions over a warp, and P crosses lanes through sP.
template <typename T, int kHeadDim>
struct SharedStorage {
  using C = Config<kHeadDim>;
  T sQ[C::kBlockM][kHeadDim];
  T sK[C::kBlockN][kHeadDim + C::kPad];
  T sV[C::kBlockN][kHeadDim];
  float sP[C::kBlockM][C::kBlockN];
};

// [reductions]
__device__ __forceinline__ float warp_max(float value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

__device__ __forceinline__ float warp_sum(float value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}
// [/reductions]

// spills: Li128E 32 bytes on sm_120 (for a test; head_dim 128), so four CTAs fit on an SM
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(Config<kHeadDim>::kThreads)
    attention_kernel(const T* q, const T* k, const T* v, T* o, int seq_len, float scale) {
  using C = Config<kHeadDim>;
  auto& smem = shared_storage<SharedStorage<T, kHeadDim>>();

  // ---- indices
  const int m_block = blockIdx.x;
  const size_t head = blockIdx.y;
  const int warp_idx = threadIdx.x / 32;
  const int lane_idx = threadIdx.x % 32;
  const int first_row = warp_idx * C::kRows;  // this warp's first row in the tile

  // ---- pointers
  const T* gQ = q + (head * seq_len + m_block * C::kBlockM) * kHeadDim;  // [kBlockM][kHeadDim]
  const T* gK = k + head * seq_len * kHeadDim;                           // [seq_len][kHeadDim]
  const T* gV = v + head * seq_len * kHeadDim;                           // [seq_len][kHeadDim]
  T* gO = o + (head * seq_len + m_block * C::kBlockM) * kHeadDim;        // [kBlockM][kHeadDim]

  // ---- prologue
  for (int i = threadIdx.x; i < C::kBlockM * kHeadDim; i += C::kThreads) {
    smem.sQ[i / kHeadDim][i % kHeadDim] = gQ[i];
  }
  float row_max[C::kRows], row_sum[C::kRows];
  float acc_o[C::kRows][C::kColumns];  // columns lane_idx, lane_idx + 32, ...
  for (int row = 0; row < C::kRows; row++) {
    row_max[row] = -INFINITY;
    row_sum[row] = 0.0f;
    for (int c = 0; c < C::kColumns; c++) acc_o[row][c] = 0.0f;
  }

  // ---- main loop
  for (int n_block = 0; n_block < seq_len / C::kBlockN; n_block++) {
    // [load]
    // All warps wait until every warp has read the previous tile, so sK and sV may be overwritten.
    __syncthreads();
    const size_t tile = size_t(n_block) * C::kBlockN * kHeadDim;
    for (int i = threadIdx.x; i < C::kBlockN * kHeadDim; i += C::kThreads) {
      smem.sK[i / kHeadDim][i % kHeadDim] = gK[tile + i];
      smem.sV[i / kHeadDim][i % kHeadDim] = gV[tile + i];
    }
    // All warps wait until every thread has stored its part of the tile (before the first tile, of
    // Q, too), so sQ, sK and sV may be read.
    __syncthreads();
    // [/load]

    // S = QK^T: lane j computes the scores of key j of the tile.
    // [scores]
    float acc_s[C::kRows] = {};
    for (int d = 0; d < kHeadDim; d++) {
      const float rK = ptx::to_float(smem.sK[lane_idx][d]);
      for (int row = 0; row < C::kRows; row++) {
        acc_s[row] = fmaf(ptx::to_float(smem.sQ[first_row + row][d]), rK, acc_s[row]);
      }
    }
    // [/scores]

    // [online-softmax]
    for (int row = 0; row < C::kRows; row++) {
      const float score = acc_s[row] * scale;
      const float new_max = fmaxf(row_max[row], warp_max(score));
      const float rescale = expf(row_max[row] - new_max);  // e^-inf = 0 in the first tile
      const float p = expf(score - new_max);
      row_max[row] = new_max;
      row_sum[row] = fmaf(row_sum[row], rescale, warp_sum(p));
      for (int c = 0; c < C::kColumns; c++) acc_o[row][c] *= rescale;
      smem.sP[first_row + row][lane_idx] = p;
    }
    // [/online-softmax]
    // The lanes of the warp wait until all of them have stored P, so each may read the warp's rows.
    __syncwarp();

    // O += PV: each lane computes kColumns columns.
    // [output]
    for (int key = 0; key < C::kBlockN; key++) {
      float rV[C::kColumns];
      for (int c = 0; c < C::kColumns; c++) rV[c] = ptx::to_float(smem.sV[key][lane_idx + 32 * c]);
      for (int row = 0; row < C::kRows; row++) {
        const float p = smem.sP[first_row + row][key];
        for (int c = 0; c < C::kColumns; c++) acc_o[row][c] = fmaf(p, rV[c], acc_o[row][c]);
      }
    }
    // [/output]
  }

  // ---- epilogue
  for (int row = 0; row < C::kRows; row++) {
    const float inverse_sum = 1.0f / row_sum[row];
    for (int c = 0; c < C::kColumns; c++) {
      gO[size_t(first_row + row) * kHeadDim + lane_idx + 32 * c] =
          ptx::from_float<T>(acc_o[row][c] * inverse_sum);
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

const Registration<Launcher> registration{"02_online_softmax", {}, Traits::kSlow};

}  // namespace fa::k02
