// 10_instruction_tuning: fewer instructions besides the matrix products, and the rest between them.
//
// Idea         The Tensor Cores wait because a warp has other instructions to issue. Now it has
//              fewer: 2^x takes the scale in one FMA; O is rescaled only when a maximum has grown
//              by more than 8 in log2; an ldmatrix of K or V serves four mma, not two. The rest
//              goes between products: exponentials between mma, the next QK^T after PV.
// Bottleneck   Eased: 09 issued five other instructions per mma. Left: the rate of mma.sync.
// Changed      Nearly every loop has the index m. The new softmax begins an iteration. Copies'
//              addresses are computed once. O leaves in 16-byte chunks. 10_tuning.h has tile sizes.
// Run          cmake --build --preset emulator --target 10_instruction_tuning &&
//              build/emulator/bin/10_instruction_tuning
#include "common/launch/launch.h"
#include "common/launch/registry.h"
#include "common/layout/swizzle.h"
#include "common/ptx/convert.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/exp2.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mma.h"
#include "kernels/10_tuning.h"

namespace fa::k10 {

constexpr float kLog2e = 1.44269504f;
constexpr float kMaxGrowthLog2 = 8.0f;  // a score may exceed row_max by this: P is at most 2^8

template <int kHeadDim>
struct Config {
  static constexpr Tuning kTuning = tuning_of_10(FA_ARCHITECTURE, kHeadDim);
  static constexpr int kRowTiles = kTuning.row_tiles;  // 16-row tiles per warp
  static constexpr int kWarps = kTuning.warps;
  static constexpr int kBlockM = kTuning.block_m();  // query rows per CTA
  static constexpr int kBlockN = kTuning.block_n;    // keys per tile
  static constexpr int kThreads = kTuning.threads();
  static constexpr int kStages = kTuning.stages;  // tiles of K and of V in shared memory
  static constexpr bool kQInRegisters = kTuning.q_in_registers;
  static constexpr bool kQInV = kTuning.q_in_v;
  // One pass of all threads copies kCopyRows rows, a multiple of 8, so every pass swizzles alike.
  static constexpr int kCopyRows = kThreads / (kHeadDim / 8);
  static_assert(kCopyRows % 8 == 0 && kBlockN % kCopyRows == 0 && kBlockM % kCopyRows == 0);
  static_assert(128 % kBlockM == 0 && 128 % kBlockN == 0, "seq_len is a multiple of 128");
  static_assert(!kQInV || (kQInRegisters && kBlockM <= kStages * kBlockN));
};

// Each warp w0..w3 computes two row tiles of S and O. Lane l holds four elements per 16 x 8 tile:
//
//               S: all keys             O: all columns             16 x 8 tile, lane l
//   rows  0..31     w0                      w0                     row l/4:    2 (l%4), 2 (l%4) + 1
//   rows 32..63     w1                      w1                     row l/4+8:  the same columns
//   rows 64..95     w2                      w2
//   rows 96..127    w3                      w3
//
// The four lanes of a quad (l/4) share two rows of each tile.
template <typename T, int kHeadDim>
struct SharedStorage {
  using C = Config<kHeadDim>;
  static constexpr int kRing = C::kStages * C::kBlockN;    // rows of all tiles of K; as many of V
  static constexpr int kQ = C::kQInV ? kRing : 2 * kRing;  // Q's first row: after K and V, or in V
  alignas(128) T rows[C::kQInV ? 2 * kRing : kQ + C::kBlockM][kHeadDim];
  static_assert(sizeof(rows) == C::kTuning.shared_bytes(kHeadDim));
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
// Starts to copy kRows rows from and to the thread's own first chunk, 16 bytes per thread per pass.
template <int kRows, typename T, int kHeadDim>
__device__ __forceinline__ void copy_tile(uint32_t shared, const T* g) {
  using C = Config<kHeadDim>;
#pragma unroll
  for (int row = 0; row < kRows; row += C::kCopyRows) {
    ptx::cp_async<16>(shared + row * kHeadDim * sizeof(T), g + row * kHeadDim);
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
__global__ void __launch_bounds__(Config<kHeadDim>::kThreads, Config<kHeadDim>::kTuning.ctas)
    attention_kernel(const T* q, const T* k, const T* v, T* o, int seq_len, float scale) {
  using C = Config<kHeadDim>;
  using Storage = SharedStorage<T, kHeadDim>;
  constexpr int kRowTiles = C::kRowTiles;    // 16-row tiles of S and O
  constexpr int kKeyTiles = C::kBlockN / 8;  // 8-key tiles of S
  constexpr int kOutTiles = kHeadDim / 8;    // 8-column tiles of O
  // A step is 16 keys x 16 columns. QK^T takes all keys first, PV takes all columns first.
  constexpr int kScoreSteps = kKeyTiles / 2 * (kHeadDim / 16);
  constexpr int kOutSteps = kOutTiles / 2 * (C::kBlockN / 16);
  constexpr uint32_t kTileBytes = C::kBlockN * kHeadDim * sizeof(T);
  auto& smem = shared_storage<Storage>();
  T(*const sK)[kHeadDim] = smem.rows;
  T(*const sV)[kHeadDim] = smem.rows + Storage::kRing;
  T(*const sQ)[kHeadDim] = smem.rows + Storage::kQ;

  // ---- indices
  const int m_block = blockIdx.x;
  const size_t head = blockIdx.y;
  const int warp_idx = threadIdx.x / 32;
  const int lane_idx = threadIdx.x % 32;
  const int quad = lane_idx / 4;      // this lane has rows quad and quad + 8 of a 16 x 8 tile
  const int pair = lane_idx % 4 * 2;  // this lane has columns pair and pair + 1 of it
  const int warp_row = warp_idx * kRowTiles * 16;

  // ---- pointers
  const int copy_row = threadIdx.x / (kHeadDim / 8);  // this thread's first chunk of a tile
  const int copy_column = threadIdx.x % (kHeadDim / 8) * 8;
  const T* gQ = q + (head * seq_len + m_block * C::kBlockM) * kHeadDim + threadIdx.x * 8;
  // `next` is the index in K of this thread's chunk of the next tile.
  size_t next = head * seq_len * kHeadDim + threadIdx.x * 8;
  const uint32_t copy_q = chunk_address<T, kHeadDim>(sQ, copy_row, copy_column);
  const uint32_t copy_k = chunk_address<T, kHeadDim>(sK, copy_row, copy_column);
  const uint32_t copy_v = chunk_address<T, kHeadDim>(sV, copy_row, copy_column);
  // lane_q, lane_k and lane_v are this lane's addresses for ldmatrix in step 0 of stage 0.
  const uint32_t lane_q =
      chunk_address<T, kHeadDim>(sQ, warp_row + lane_idx % 16, lane_idx / 16 * 8);
  const uint32_t lane_k =
      chunk_address<T, kHeadDim>(sK, lane_idx % 8 + lane_idx / 16 * 8, lane_idx / 8 % 2 * 8);
  const uint32_t lane_v = chunk_address<T, kHeadDim>(sV, lane_idx % 16, lane_idx / 16 * 8);

  // ---- registers
  float acc_s[kRowTiles][kKeyTiles][4];
  float acc_o[kRowTiles][kOutTiles][4] = {};
  // Each lane keeps statistics for rows 16 m + quad and + 8 of its warp. row_max, in units of log2,
  // may lag behind by kMaxGrowthLog2; row_sum is this lane's share.
  float row_max[kRowTiles][2], row_sum[kRowTiles][2] = {};
#pragma unroll
  for (int m = 0; m < kRowTiles; m++) row_max[m][0] = row_max[m][1] = -INFINITY;
  const float scale_log2 = scale * kLog2e;

  // [fragments]
  // rQ holds Q's fragments: all, or two of them. A warp calls load_q, load_k and load_v ahead.
  constexpr int kHeld = C::kQInRegisters ? kHeadDim / 16 : 2;
  uint32_t rQ[kHeld][kRowTiles][4];
  const auto load_q = [&](int d) {
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
      ptx::ldmatrix_x4(rQ[d % kHeld][m], step_address<T, kHeadDim>(lane_q, m * 16, d * 16));
    }
  };
  const auto load_k = [&](uint32_t(&rK)[4], int stage, int step) {
    const int key = step % (kKeyTiles / 2) * 16, d = step / (kKeyTiles / 2) * 16;
    ptx::ldmatrix_x4(rK, step_address<T, kHeadDim>(lane_k, key, d) + stage * kTileBytes);
  };
  const auto load_v = [&](uint32_t(&rV)[4], int stage, int step) {
    const int key = step / (kOutTiles / 2) * 16, d = step % (kOutTiles / 2) * 16;
    ptx::ldmatrix_x4_trans(rV, step_address<T, kHeadDim>(lane_v, key, d) + stage * kTileBytes);
  };
  // [/fragments]

  // [scores]
  // Computes S = QK^T for this warp's rows. A warp calls it once the tile of K has arrived.
  const auto multiply_qk = [&](int stage) {
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
      for (int n = 0; n < kKeyTiles; n++) {
        acc_s[m][n][0] = acc_s[m][n][1] = acc_s[m][n][2] = acc_s[m][n][3] = 0.0f;
      }
    }
    uint32_t rK[2][4];  // the fragments of this step and of the next
    if constexpr (!C::kQInRegisters) load_q(0);
    load_k(rK[0], stage, 0);
#pragma unroll
    for (int step = 0; step < kScoreSteps; step++) {
      const int n = step % (kKeyTiles / 2) * 2, d = step / (kKeyTiles / 2);
      if (step + 1 < kScoreSteps) load_k(rK[(step + 1) % 2], stage, step + 1);
      if (!C::kQInRegisters && n == 2 && d + 1 < kHeadDim / 16) load_q(d + 1);
      const uint32_t(&now)[4] = rK[step % 2];
#pragma unroll
      for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++) {
          ptx::mma_m16n8k16<T>(acc_s[m][n + half], rQ[d % kHeld][m],
                               {now[2 * half], now[2 * half + 1]});
        }
      }
    }
  };
  // [/scores]

  // [exponentials]
  // Computes P = 2^(S scale_log2 - row_max) in place and packs register `r` of the A fragment of 16
  // keys, from 16 * key on. A warp calls it between its mma, 16 keys ahead.
  uint32_t rP[2][kRowTiles][4];  // the fragments of these 16 keys and of the next 16
  const auto exponentials = [&](int key, int m, int r) {
    float* const s = &acc_s[m][2 * key + r / 2][r % 2 * 2];
    s[0] = ptx::exp2_approx(fmaf(s[0], scale_log2, -row_max[m][r % 2]));
    s[1] = ptx::exp2_approx(fmaf(s[1], scale_log2, -row_max[m][r % 2]));
    row_sum[m][r % 2] += s[0];
    row_sum[m][r % 2] += s[1];
    rP[key % 2][m][r] = ptx::pack<T>(s[0], s[1]);
  };
  // [/exponentials]

  // ---- prologue
  // [first-tiles]
  const int tiles = seq_len / C::kBlockN;
  // All threads copy group n: tile n of K and tile n - 1 of V. Waits count empty groups, too.
  const auto copy_group = [&](int n) {
    constexpr int kTile = C::kBlockN * kHeadDim;
    next += kTile;
    if (n < tiles)
      copy_tile<C::kBlockN, T, kHeadDim>(copy_k + n % C::kStages * kTileBytes, k + next);
    if (n - 1 < tiles) {
      copy_tile<C::kBlockN, T, kHeadDim>(copy_v + (n - 1) % C::kStages * kTileBytes,
                                         v + next - kTile);
    }
    ptx::cp_async_commit();
  };
  copy_tile<C::kBlockM, T, kHeadDim>(copy_q, gQ);
  copy_tile<C::kBlockN, T, kHeadDim>(copy_k, k + next);
  ptx::cp_async_commit();
  // All warps wait until Q has arrived, read it, and wait for each other, so V may take its place.
  if constexpr (C::kQInV) {
    ptx::cp_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; d++) load_q(d);
    __syncthreads();
  }
  for (int n_block = 1; n_block < C::kStages; n_block++) copy_group(n_block);
  // All warps wait until every thread's copies of Q and of K's first tile have arrived.
  ptx::cp_async_wait<C::kStages - 1>();
  __syncthreads();
  // [/first-tiles]
  if constexpr (C::kQInRegisters && !C::kQInV) {
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; d++) load_q(d);
  }
  multiply_qk(0);

  // ---- main loop
  for (int n_block = 0; n_block < tiles; n_block++) {
    // [ring]
    const int stage = n_block % C::kStages;
    // This thread waits until its own copies of V's tile and of K's next tile have arrived.
    ptx::cp_async_wait<C::kStages - 2>();
    // All warps wait until every thread's copies have arrived, so both tiles may be read. The
    // barrier also means that every warp has read this tile of K and V's previous one: refill them.
    __syncthreads();
    copy_group(n_block + C::kStages);
    // [/ring]

    uint32_t rV[2][4];
    load_v(rV[0], stage, 0);  // the fragment arrives during the softmax

    // [maximum]
    // Takes this lane's maxima; `grown` says whether one would let P exceed 2^kMaxGrowthLog2.
    float lane_max[kRowTiles][2];
    bool grown = false;
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float score = fmaxf(acc_s[m][0][2 * h], acc_s[m][0][2 * h + 1]);
#pragma unroll
        for (int n = 1; n < kKeyTiles; n++) {
          score = fmaxf(score, fmaxf(acc_s[m][n][2 * h], acc_s[m][n][2 * h + 1]));
        }
        lane_max[m][h] = score * scale_log2;
        grown |= lane_max[m][h] > row_max[m][h] + kMaxGrowthLog2;  // > -inf in the first tile
      }
    }
    // [/maximum]
    // [rescale]
    if (__any_sync(0xffffffffu, grown)) {  // all lanes of the warp, or none
#pragma unroll
      for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const float new_max = fmaxf(row_max[m][h], quad_max(lane_max[m][h]));
          const float rescale = ptx::exp2_approx(row_max[m][h] - new_max);  // 2^-inf = 0 at first
          row_max[m][h] = new_max;
          row_sum[m][h] *= rescale;
#pragma unroll
          for (int n = 0; n < kOutTiles; n++) {
            acc_o[m][n][2 * h] *= rescale;
            acc_o[m][n][2 * h + 1] *= rescale;
          }
        }
      }
    }
    // [/rescale]

    // [output]
    // O += PV for this warp's rows.
    constexpr int kRegisters = 4 * kRowTiles;  // registers of P's fragments for 16 keys
    constexpr int kEach = (kRegisters + kOutTiles / 2 - 1) / (kOutTiles / 2);  // of them per step
#pragma unroll
    for (int i = 0; i < kRegisters; i++) exponentials(0, i / 4, i % 4);
#pragma unroll
    for (int step = 0; step < kOutSteps; step++) {
      const int n = step % (kOutTiles / 2) * 2, key = step / (kOutTiles / 2);
      if (step + 1 < kOutSteps) load_v(rV[(step + 1) % 2], stage, step + 1);
      const uint32_t(&now)[4] = rV[step % 2];
#pragma unroll
      for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++) {
          ptx::mma_m16n8k16<T>(acc_o[m][n + half], rP[key % 2][m],
                               {now[2 * half], now[2 * half + 1]});
        }
      }
      // While the Tensor Cores work, the warp computes a part of the next keys' P.
#pragma unroll
      for (int i = n / 2 * kEach; i < (n / 2 + 1) * kEach && i < kRegisters; i++) {
        if (key + 1 < C::kBlockN / 16) exponentials(key + 1, i / 4, i % 4);
      }
    }
    // [/output]

    if (n_block + 1 < tiles) multiply_qk((n_block + 1) % C::kStages);
  }

  // ---- epilogue
  // [epilogue]
  // gO has the shape [16 kRowTiles][kHeadDim]: this warp's rows.
  T* gO = o + (head * seq_len + m_block * C::kBlockM + warp_row) * kHeadDim;
  // Stages O in this warp's rows of sQ, because each lane can then store 16 bytes of a row.
  if constexpr (C::kQInV) __syncthreads();  // all warps wait until V is read, whose place O takes
#pragma unroll
  for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float inverse_sum = 1.0f / quad_sum(row_sum[m][h]);
      const int row = warp_row + 16 * m + 8 * h + quad;
#pragma unroll
      for (int n = 0; n < kOutTiles; n++) {
        *reinterpret_cast<uint32_t*>(&sQ[row][layout::swizzle(row, n) * 8 + pair]) =
            ptx::pack<T>(acc_o[m][n][2 * h] * inverse_sum, acc_o[m][n][2 * h + 1] * inverse_sum);
      }
    }
  }
  // The lanes of the warp wait until all of them have stored O, so each may read the warp's rows.
  __syncwarp();
  constexpr int kChunks = kHeadDim / 8;  // 16-byte chunks per row
#pragma unroll
  for (int i = 0; i < kRowTiles * 16 * kChunks / 32; i++) {
    const int row = (i * 32 + lane_idx) / kChunks, chunk = lane_idx % kChunks;
    *reinterpret_cast<uint4*>(gO + row * kHeadDim + chunk * 8) =
        *reinterpret_cast<const uint4*>(&sQ[warp_row + row][layout::swizzle(row, chunk) * 8]);
  }
  // [/epilogue]
}

// ---- host ---------------------------------------------------------------------------------------
template <typename T, int kHeadDim>
struct Launcher {
  static void run(const Attention<T>& a) {
    constexpr auto kKernel = attention_kernel<T, kHeadDim>;
    const Tuning t = tuning_of_10(compiled_architecture<kKernel>(), kHeadDim);
    launch<kKernel>({dim3(a.seq_len / t.block_m(), a.batch * a.heads), dim3(t.threads()),
                     t.shared_bytes(kHeadDim)},
                    a.q, a.k, a.v, a.o, a.seq_len, a.scale);
  }
};

const Registration<Launcher> registration{"10_instruction_tuning", Needs{80}, Traits::kLazy};

}  // namespace fa::k10
