// 03_register_tiling: CUDA cores at their best.
//
// Idea         A value that is in a register costs nothing to read again. Each thread computes a
//              tile of S (8 x 4) and one of O (8 x 8), so 12 (16) values from shared memory feed 32
//              (64) multiplications, where 02 loads 40 (32). Each load takes 16 bytes.
// Bottleneck   Removed: 02 read about as many values from shared memory as it multiplied.
// Changed      Tiles are 64 x 64 and fp32: they are converted once, when they are stored, instead
//              of at every load. K and V share one buffer. All loads take 16 bytes.
// Run          cmake --build --preset emulator --target 03_register_tiling &&
//              build/emulator/bin/03_register_tiling
#include "common/launch/launch.h"
#include "common/launch/registry.h"
#include "common/ptx/convert.h"

namespace fa::k03 {

template <int kHeadDim>
struct Config {
  static constexpr int kBlockM = 64;  // query rows per CTA
  static constexpr int kBlockN = 64;  // keys per tile
  // The CTA's threads form a grid of 8 x 16 over a tile.
  static constexpr int kThreadRows = 8, kThreadColumns = 16;
  static constexpr int kThreads = kThreadRows * kThreadColumns;
  static constexpr int kRows = kBlockM / kThreadRows;     // rows of S and O per thread: 8
  static constexpr int kKeys = kBlockN / kThreadColumns;  // columns of S per thread: 4
  // A thread has kVectors vectors of four columns of O.
  static constexpr int kVectors = kHeadDim / (4 * kThreadColumns);
  // Each row is followed by four unused floats (16 bytes). Eight lanes that read 16 bytes of eight
  // neighbouring rows then meet all 32 banks once.
  static constexpr int kPad = 4;
  static_assert(kThreadColumns == 16,
                "the threads of a row are half a warp: reductions use shuffles");
  static_assert(kHeadDim % 64 == 0,
                "a row of O is divided among 16 threads, four columns at a time");
};

// Thread (ty, tx) of the 8 x 16 grid owns the elements marked x. They are spread out because then
// neighbouring lanes read neighbouring rows of K and columns of V. A warp is two rows of the grid.
//
//            S: key  tx, tx+16, tx+32, tx+48         O: columns 4tx..4tx+3, 64+4tx..64+4tx+3
//          +---------------------------------      +------------------------------------------
//   row ty |  x         x         x        x       |  xxxx              xxxx
//     ty+8 |  x         x         x        x       |  xxxx              xxxx
//      ... |                                       |
//    ty+56 |  x         x         x        x       |  xxxx              xxxx
template <int kHeadDim>
struct SharedStorage {
  using C = Config<kHeadDim>;
  alignas(16) float sQ[C::kBlockM][kHeadDim + C::kPad];
  alignas(16) float sKV[C::kBlockN][kHeadDim + C::kPad];  // holds K, then V, then the next K
  alignas(16) float sP[C::kBlockM][C::kBlockN + C::kPad];
};

// [load-tile]
// Copies a tile of 64 rows from global memory, 16 bytes (8 elements) per thread per pass, as fp32.
template <typename T, int kHeadDim>
__device__ __forceinline__ void load_tile(float (*tile)[kHeadDim + Config<kHeadDim>::kPad],
                                          const T* g) {
  using C = Config<kHeadDim>;
  constexpr int kVectorsPerRow = kHeadDim / 8;
#pragma unroll
  for (int i = 0; i < C::kBlockN * kVectorsPerRow / C::kThreads; i++) {
    const int vector = i * C::kThreads + threadIdx.x;
    const int row = vector / kVectorsPerRow, column = vector % kVectorsPerRow * 8;
    const uint4 packed = *reinterpret_cast<const uint4*>(g + size_t(row) * kHeadDim + column);
    const float2 a = ptx::unpack<T>(packed.x), b = ptx::unpack<T>(packed.y);
    const float2 c = ptx::unpack<T>(packed.z), d = ptx::unpack<T>(packed.w);
    *reinterpret_cast<float4*>(&tile[row][column]) = make_float4(a.x, a.y, b.x, b.y);
    *reinterpret_cast<float4*>(&tile[row][column + 4]) = make_float4(c.x, c.y, d.x, d.y);
  }
}
// [/load-tile]

// The 16 threads that share a row are half a warp, so four exchanges combine all their values.
__device__ __forceinline__ float half_warp_max(float value) {
  for (int distance = 8; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

__device__ __forceinline__ float half_warp_sum(float value) {
  for (int distance = 8; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

template <typename T, int kHeadDim>
__global__ void __launch_bounds__(Config<kHeadDim>::kThreads)
    attention_kernel(const T* q, const T* k, const T* v, T* o, int seq_len, float scale) {
  using C = Config<kHeadDim>;
  auto& smem = shared_storage<SharedStorage<kHeadDim>>();

  // ---- indices
  const int m_block = blockIdx.x;
  const size_t head = blockIdx.y;
  const int ty = threadIdx.x / C::kThreadColumns;
  const int tx = threadIdx.x % C::kThreadColumns;

  // ---- pointers
  const T* gQ = q + (head * seq_len + m_block * C::kBlockM) * kHeadDim;  // [kBlockM][kHeadDim]
  const T* gK = k + head * seq_len * kHeadDim;                           // [seq_len][kHeadDim]
  const T* gV = v + head * seq_len * kHeadDim;                           // [seq_len][kHeadDim]
  T* gO = o + (head * seq_len + m_block * C::kBlockM) * kHeadDim;        // [kBlockM][kHeadDim]

  // ---- prologue
  load_tile<T, kHeadDim>(smem.sQ, gQ);
  float row_max[C::kRows], row_sum[C::kRows];
  float acc_o[C::kRows][C::kVectors][4];
#pragma unroll
  for (int i = 0; i < C::kRows; i++) {
    row_max[i] = -INFINITY;
    row_sum[i] = 0.0f;
#pragma unroll
    for (int c = 0; c < C::kVectors * 4; c++) acc_o[i][c / 4][c % 4] = 0.0f;
  }

  // ---- main loop
  for (int n_block = 0; n_block < seq_len / C::kBlockN; n_block++) {
    const size_t tile = size_t(n_block) * C::kBlockN * kHeadDim;
    load_tile<T, kHeadDim>(smem.sKV, gK + tile);
    // All warps wait until K (before the first tile, Q, too) is stored, so both may be read.
    __syncthreads();

    // S = QK^T: a step takes four columns of Q and K, 12 loads of 16 bytes for 128 multiplications.
    // [scores]
    float acc_s[C::kRows][C::kKeys] = {};
#pragma unroll 4
    for (int d = 0; d < kHeadDim; d += 4) {
      float4 rK[C::kKeys];
#pragma unroll
      for (int j = 0; j < C::kKeys; j++) {
        rK[j] = *reinterpret_cast<const float4*>(&smem.sKV[tx + j * C::kThreadColumns][d]);
      }
#pragma unroll
      for (int i = 0; i < C::kRows; i++) {
        const float4 rQ = *reinterpret_cast<const float4*>(&smem.sQ[ty + i * C::kThreadRows][d]);
#pragma unroll
        for (int j = 0; j < C::kKeys; j++) {
          acc_s[i][j] = fmaf(rQ.x, rK[j].x, acc_s[i][j]);
          acc_s[i][j] = fmaf(rQ.y, rK[j].y, acc_s[i][j]);
          acc_s[i][j] = fmaf(rQ.z, rK[j].z, acc_s[i][j]);
          acc_s[i][j] = fmaf(rQ.w, rK[j].w, acc_s[i][j]);
        }
      }
    }
    // [/scores]

#pragma unroll
    for (int i = 0; i < C::kRows; i++) {
      float tile_max = -INFINITY;
#pragma unroll
      for (int j = 0; j < C::kKeys; j++) {
        acc_s[i][j] *= scale;
        tile_max = fmaxf(tile_max, acc_s[i][j]);
      }
      const float new_max = fmaxf(row_max[i], half_warp_max(tile_max));
      const float rescale = expf(row_max[i] - new_max);  // e^-inf = 0 in the first tile
      float tile_sum = 0.0f;
#pragma unroll
      for (int j = 0; j < C::kKeys; j++) {
        const float p = expf(acc_s[i][j] - new_max);
        tile_sum += p;
        smem.sP[ty + i * C::kThreadRows][tx + j * C::kThreadColumns] = p;
      }
      row_max[i] = new_max;
      row_sum[i] = fmaf(row_sum[i], rescale, half_warp_sum(tile_sum));
#pragma unroll
      for (int c = 0; c < C::kVectors * 4; c++) acc_o[i][c / 4][c % 4] *= rescale;
    }

    // [share-kv]
    // All warps wait until every warp has read K, so V may overwrite it in sKV.
    __syncthreads();
    load_tile<T, kHeadDim>(smem.sKV, gV + tile);
    // All warps wait until V and P are stored, so both may be read.
    __syncthreads();
    // [/share-kv]

    // O += PV: a step takes four keys, 16 loads of 16 bytes for 256 multiplications (head_dim 128).
    // [output]
#pragma unroll 4
    for (int key = 0; key < C::kBlockN; key += 4) {
      float4 rV[4][C::kVectors];
#pragma unroll
      for (int n = 0; n < 4; n++) {
#pragma unroll
        for (int c = 0; c < C::kVectors; c++) {
          rV[n][c] = *reinterpret_cast<const float4*>(&smem.sKV[key + n][c * 64 + tx * 4]);
        }
      }
#pragma unroll
      for (int i = 0; i < C::kRows; i++) {
        const float4 rP = *reinterpret_cast<const float4*>(&smem.sP[ty + i * C::kThreadRows][key]);
        const float p[4] = {rP.x, rP.y, rP.z, rP.w};
#pragma unroll
        for (int n = 0; n < 4; n++) {
#pragma unroll
          for (int c = 0; c < C::kVectors; c++) {
            acc_o[i][c][0] = fmaf(p[n], rV[n][c].x, acc_o[i][c][0]);
            acc_o[i][c][1] = fmaf(p[n], rV[n][c].y, acc_o[i][c][1]);
            acc_o[i][c][2] = fmaf(p[n], rV[n][c].z, acc_o[i][c][2]);
            acc_o[i][c][3] = fmaf(p[n], rV[n][c].w, acc_o[i][c][3]);
          }
        }
      }
    }
    // [/output]
    // All warps wait until every warp has read V and P, so the next tile may overwrite both.
    __syncthreads();
  }

  // ---- epilogue
#pragma unroll
  for (int i = 0; i < C::kRows; i++) {
    const float inverse_sum = 1.0f / row_sum[i];
#pragma unroll
    for (int c = 0; c < C::kVectors; c++) {
      const uint32_t low = ptx::pack<T>(acc_o[i][c][0] * inverse_sum, acc_o[i][c][1] * inverse_sum);
      const uint32_t high =
          ptx::pack<T>(acc_o[i][c][2] * inverse_sum, acc_o[i][c][3] * inverse_sum);
      T* const row = gO + size_t(ty + i * C::kThreadRows) * kHeadDim;
      *reinterpret_cast<uint2*>(row + c * 64 + tx * 4) = make_uint2(low, high);
    }
  }
}

// ---- host ---------------------------------------------------------------------------------------
template <typename T, int kHeadDim>
struct Launcher {
  static void run(const Attention<T>& a) {
    using C = Config<kHeadDim>;
    launch<attention_kernel<T, kHeadDim>>({dim3(a.seq_len / C::kBlockM, a.batch * a.heads),
                                           dim3(C::kThreads), sizeof(SharedStorage<kHeadDim>)},
                                          a.q, a.k, a.v, a.o, a.seq_len, a.scale);
  }
};

const Registration<Launcher> registration{"03_register_tiling", Needs{75, false, 84992}};

}  // namespace fa::k03
