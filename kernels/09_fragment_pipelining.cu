// 09_fragment_pipelining: reads of shared memory leave the critical path.
//
// Idea         Fragments are read one step before they are multiplied: while the Tensor Cores work
//              on this step, ldmatrix fills other registers for the next step. Q is read once and
//              stays in registers. A lane computes its addresses once; a step adds a constant.
// Bottleneck   Eased: Q was read in every tile, and parts of addresses took registers. nvcc reads
//              fragments ahead by itself, so that part of the idea changes no instruction.
// Changed      A lane holds two fragments of K (of V). It reads V's first fragment before the
//              softmax and rQ before the main loop, where step_address() replaces chunk_address().
// Run          cmake --build --preset emulator --target 09_fragment_pipelining &&
//              build/emulator/bin/09_fragment_pipelining
#include "common/launch/launch.h"
#include "common/launch/registry.h"
#include "common/layout/swizzle.h"
#include "common/ptx/convert.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mma.h"

namespace fa::k09 {

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

// [step-address]
// Returns the address of the chunk that is `row` rows (a multiple of 8) and `column` columns (of
// 16) after a lane's first chunk. row % 8 stays the lane's own, so the swizzle only flips column
// bits: an XOR within 8 chunks. The next 8 chunks are 128 bytes on; a row has kHeadDim elements.
template <typename T, int kHeadDim>
__device__ __forceinline__ uint32_t step_address(uint32_t lane_address, int row, int column) {
  constexpr int kElement = sizeof(T);
  return (lane_address ^ (column % 64 * kElement)) + (row * kHeadDim + column / 64 * 64) * kElement;
}
// [/step-address]

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
  // A step is 16 keys x 16 columns. QK^T takes all keys first, PV takes all columns first.
  constexpr int kScoreSteps = kKeyTiles / 2 * (kHeadDim / 16);
  constexpr int kOutSteps = kOutTiles / 2 * (C::kBlockN / 16);
  constexpr uint32_t kTileBytes = C::kBlockN * kHeadDim * sizeof(T);
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
  ptx::cp_async_commit();
  for (int n_block = 0; n_block < C::kStages - 1; n_block++) {
    if (n_block < tiles) {
      copy_tile<T, kHeadDim>(smem.sK[n_block], gK + size_t(n_block) * C::kBlockN * kHeadDim);
      copy_tile<T, kHeadDim>(smem.sV[n_block], gV + size_t(n_block) * C::kBlockN * kHeadDim);
    }
    ptx::cp_async_commit();  // one group per tile
  }
  // [/first-tiles]

  // [fragments]
  // Q's fragments are read while the first tiles are still on their way. All warps wait until every
  // thread's copies of Q have arrived, so sQ may be read.
  ptx::cp_async_wait<C::kStages - 1>();
  __syncthreads();
  uint32_t rQ[kHeadDim / 16][4];
#pragma unroll
  for (int d = 0; d < kHeadDim; d += 16) {
    ptx::ldmatrix_x4(rQ[d / 16], chunk_address<T, kHeadDim>(smem.sQ, warp_idx * 16 + lane_idx % 16,
                                                            d + lane_idx / 16 * 8));
  }
  // lane_k and lane_v are this lane's addresses for step 0 in stage 0. load_k and load_v read a
  // step's two B fragments by one ldmatrix; a warp calls them one step ahead. They never wait.
  const uint32_t lane_k = chunk_address<T, kHeadDim>(smem.sK[0], lane_idx % 8 + lane_idx / 16 * 8,
                                                     lane_idx / 8 % 2 * 8);
  const uint32_t lane_v = chunk_address<T, kHeadDim>(smem.sV[0], lane_idx % 16, lane_idx / 16 * 8);
  const auto load_k = [&](uint32_t(&rK)[4], int stage, int step) {
    const int key = step % (kKeyTiles / 2) * 16, d = step / (kKeyTiles / 2) * 16;
    ptx::ldmatrix_x4(rK, step_address<T, kHeadDim>(lane_k, key, d) + stage * kTileBytes);
  };
  const auto load_v = [&](uint32_t(&rV)[4], int stage, int step) {
    const int key = step / (kOutTiles / 2) * 16, d = step % (kOutTiles / 2) * 16;
    ptx::ldmatrix_x4_trans(rV, step_address<T, kHeadDim>(lane_v, key, d) + stage * kTileBytes);
  };
  // [/fragments]

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
    uint32_t rK[2][4];  // the fragments of this step and of the next
    load_k(rK[0], stage, 0);
#pragma unroll
    for (int step = 0; step < kScoreSteps; step++) {
      if (step + 1 < kScoreSteps) load_k(rK[(step + 1) % 2], stage, step + 1);
      const uint32_t(&now)[4] = rK[step % 2];
      const int n = step % (kKeyTiles / 2) * 2, d = step / (kKeyTiles / 2);
      ptx::mma_m16n8k16<T>(acc_s[n], rQ[d], {now[0], now[1]});
      ptx::mma_m16n8k16<T>(acc_s[n + 1], rQ[d], {now[2], now[3]});
    }
    // [/scores]

    uint32_t rV[2][4];
    load_v(rV[0], stage, 0);  // the fragment arrives during the softmax

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
    uint32_t rP[4];
#pragma unroll
    for (int step = 0; step < kOutSteps; step++) {
      if (step + 1 < kOutSteps) load_v(rV[(step + 1) % 2], stage, step + 1);
      const uint32_t(&now)[4] = rV[step % 2];
      const int n = step % (kOutTiles / 2) * 2, key = step / (kOutTiles / 2) * 2;
      if (n == 0) {
        const float(&low)[4] = acc_s[key], (&high)[4] = acc_s[key + 1];
        rP[0] = ptx::pack<T>(low[0], low[1]);
        rP[1] = ptx::pack<T>(low[2], low[3]);
        rP[2] = ptx::pack<T>(high[0], high[1]);
        rP[3] = ptx::pack<T>(high[2], high[3]);
      }
      ptx::mma_m16n8k16<T>(acc_o[n], rP, {now[0], now[1]});
      ptx::mma_m16n8k16<T>(acc_o[n + 1], rP, {now[2], now[3]});
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

const Registration<Launcher> registration{"09_fragment_pipelining", Needs{80}, Traits::kAsync};

}  // namespace fa::k09
