// 04_wmma: Tensor Cores, the easy way.
//
// Idea         A Tensor Core multiplies whole matrices. nvcuda::wmma gives C++ access to it: a warp
//              loads two fragments of 16 x 16 elements, multiplies them and stores the result. Each
//              warp owns 16 query rows.
// Bottleneck   Removed: 03 already reached more than half of the CUDA cores' rate of multiply-adds.
// Changed      Tiles stay fp16 or bf16 in shared memory. A fragment's layout is unspecified, so the
//              softmax and the rescaling, which need single elements, go through shared memory: S,
//              P and O are kept there, and O is loaded and stored around every tile.
// Run          cmake --build --preset emulator --target 04_wmma && build/emulator/bin/04_wmma
#include "common/launch/launch.h"
#include "common/launch/registry.h"
#include "common/ptx/convert.h"
#include "common/ptx/wmma.h"

namespace fa::k04 {

namespace wmma = nvcuda::wmma;

template <int kHeadDim>
struct Config {
  static constexpr int kBlockM = 64;  // query rows per CTA
  static constexpr int kBlockN = 64;  // keys per tile
  static constexpr int kWarps = kBlockM / 16;
  static constexpr int kThreads = kWarps * 32;
  // Each row is followed by 16 unused bytes. Eight lanes that read 16 bytes of eight neighbouring
  // rows then meet all 32 banks once.
  static constexpr int kPad = 8;       // elements after an fp16 or bf16 row
  static constexpr int kPadFloat = 4;  // elements after an fp32 row
  static_assert(kHeadDim % 16 == 0 && kBlockN % 16 == 0, "a fragment is 16 x 16");
};

// A warp owns 16 rows of Q, S, P and O. For the softmax two lanes alternate over a row:
//
//            S, P: key 0 1 | 2 3 | 4 5 | 6 7 | ...        pairs of neighbouring keys
//    row 0      lane   0      1     0     1
//    row 1      lane   2      3     2     3
//     ...
//    row 15     lane  30     31    30    31
template <typename T, int kHeadDim>
struct SharedStorage {
  using C = Config<kHeadDim>;
  alignas(128) T sQ[C::kBlockM][kHeadDim + C::kPad];
  alignas(128) T sKV[C::kBlockN][kHeadDim + C::kPad];  // holds K, then V, then the next K
  alignas(128) T sP[C::kBlockM][C::kBlockN + C::kPad];
  alignas(128) float sS[C::kBlockM][C::kBlockN + C::kPadFloat];
  alignas(128) float sO[C::kBlockM][kHeadDim + C::kPadFloat];
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
  const int first_row = warp_idx * 16;       // this warp's first row in the tile
  const int row = first_row + lane_idx / 2;  // this lane's row for the softmax
  const int first_key = lane_idx % 2 * 2;    // this lane's first pair of keys

  // ---- pointers
  const T* gQ = q + (head * seq_len + m_block * C::kBlockM) * kHeadDim;  // [kBlockM][kHeadDim]
  const T* gK = k + head * seq_len * kHeadDim;                           // [seq_len][kHeadDim]
  const T* gV = v + head * seq_len * kHeadDim;                           // [seq_len][kHeadDim]
  T* gO = o + (head * seq_len + m_block * C::kBlockM) * kHeadDim;        // [kBlockM][kHeadDim]

  // ---- prologue
  load_tile<T, kHeadDim>(smem.sQ, gQ);
  for (int i = lane_idx; i < 16 * kHeadDim; i += 32) {
    smem.sO[first_row + i / kHeadDim][i % kHeadDim] = 0.0f;
  }
  float row_max = -INFINITY, row_sum = 0.0f;  // statistics of `row`, equal in both its lanes

  // ---- main loop
  for (int n_block = 0; n_block < seq_len / C::kBlockN; n_block++) {
    const size_t tile = size_t(n_block) * C::kBlockN * kHeadDim;
    load_tile<T, kHeadDim>(smem.sKV, gK + tile);
    // All warps wait until K (before the first tile, Q, too) is stored, so both may be read.
    __syncthreads();

    // S = QK^T: a row of K is a column of K^T, so the fragment of K is loaded transposed.
    // [scores]
    ptx::FragmentC acc_s[C::kBlockN / 16];
#pragma unroll
    for (int n = 0; n < C::kBlockN / 16; n++) wmma::fill_fragment(acc_s[n], 0.0f);
#pragma unroll
    for (int d = 0; d < kHeadDim; d += 16) {
      ptx::FragmentA<T> rQ;
      wmma::load_matrix_sync(rQ, &smem.sQ[first_row][d], kHeadDim + C::kPad);
#pragma unroll
      for (int n = 0; n < C::kBlockN / 16; n++) {
        ptx::FragmentBTransposed<T> rK;
        wmma::load_matrix_sync(rK, &smem.sKV[n * 16][d], kHeadDim + C::kPad);
        wmma::mma_sync(acc_s[n], rQ, rK, acc_s[n]);
      }
    }
#pragma unroll
    for (int n = 0; n < C::kBlockN / 16; n++) {
      wmma::store_matrix_sync(&smem.sS[first_row][n * 16], acc_s[n], C::kBlockN + C::kPadFloat,
                              wmma::mem_row_major);
    }
    // [/scores]
    // The lanes of the warp wait until all of them have stored S, so each may read the warp's rows.
    __syncwarp();

    // [softmax]
    float2 scores[C::kBlockN / 4];
    float tile_max = -INFINITY;
#pragma unroll
    for (int j = 0; j < C::kBlockN / 4; j++) {
      scores[j] = *reinterpret_cast<const float2*>(&smem.sS[row][first_key + 4 * j]);
      scores[j].x *= scale;
      scores[j].y *= scale;
      tile_max = fmaxf(tile_max, fmaxf(scores[j].x, scores[j].y));
    }
    tile_max = fmaxf(tile_max, __shfl_xor_sync(0xffffffffu, tile_max, 1));
    const float new_max = fmaxf(row_max, tile_max);
    const float rescale = expf(row_max - new_max);  // e^-inf = 0 in the first tile
    float tile_sum = 0.0f;
#pragma unroll
    for (int j = 0; j < C::kBlockN / 4; j++) {
      const float p0 = expf(scores[j].x - new_max), p1 = expf(scores[j].y - new_max);
      tile_sum += p0 + p1;
      *reinterpret_cast<uint32_t*>(&smem.sP[row][first_key + 4 * j]) = ptx::pack<T>(p0, p1);
    }
    tile_sum += __shfl_xor_sync(0xffffffffu, tile_sum, 1);
    row_max = new_max;
    row_sum = fmaf(row_sum, rescale, tile_sum);
    // [/softmax]
    // [rescale]
#pragma unroll
    for (int c = 0; c < kHeadDim / 8; c++) {
      float4& rO = *reinterpret_cast<float4*>(&smem.sO[row][(lane_idx % 2 + 2 * c) * 4]);
      rO = make_float4(rO.x * rescale, rO.y * rescale, rO.z * rescale, rO.w * rescale);
    }
    // [/rescale]

    // All warps wait until every warp has read K, so V may overwrite it in sKV.
    __syncthreads();
    load_tile<T, kHeadDim>(smem.sKV, gV + tile);
    // All warps wait until V is stored (and the warp's own P and O), so all three may be read.
    __syncthreads();

    // O += PV, with O loaded from and stored to shared memory.
    // [output]
#pragma unroll
    for (int c = 0; c < kHeadDim; c += 16) {
      ptx::FragmentC acc_o;
      wmma::load_matrix_sync(acc_o, &smem.sO[first_row][c], kHeadDim + C::kPadFloat,
                             wmma::mem_row_major);
#pragma unroll
      for (int n = 0; n < C::kBlockN; n += 16) {
        ptx::FragmentA<T> rP;
        ptx::FragmentB<T> rV;
        wmma::load_matrix_sync(rP, &smem.sP[first_row][n], C::kBlockN + C::kPad);
        wmma::load_matrix_sync(rV, &smem.sKV[n][c], kHeadDim + C::kPad);
        wmma::mma_sync(acc_o, rP, rV, acc_o);
      }
      wmma::store_matrix_sync(&smem.sO[first_row][c], acc_o, kHeadDim + C::kPadFloat,
                              wmma::mem_row_major);
    }
    // [/output]
    // All warps wait until every warp has read V, so the next K may overwrite it in sKV.
    __syncthreads();
  }

  // ---- epilogue: lane 2r has the sum of the warp's row r; all lanes write it, 8 (4) bytes each.
  constexpr int kColumns = kHeadDim / 32;
#pragma unroll
  for (int r = 0; r < 16; r++) {
    const float inverse_sum = 1.0f / __shfl_sync(0xffffffffu, row_sum, 2 * r);
#pragma unroll
    for (int c = 0; c < kColumns; c += 2) {
      const float2 rO =
          *reinterpret_cast<const float2*>(&smem.sO[first_row + r][lane_idx * 2 + 32 * c]);
      *reinterpret_cast<uint32_t*>(gO + size_t(first_row + r) * kHeadDim + lane_idx * 2 + 32 * c) =
          ptx::pack<T>(rO.x * inverse_sum, rO.y * inverse_sum);
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

const Registration<Launcher> registration{"04_wmma", Needs{75, false, 95232, 80}};

}  // namespace fa::k04
