// backward_mma: the gradients dQ, dK and dV with mma.sync, on GPUs from 8.0 on.
//
// Idea         A CTA owns 128 keys and walks over the queries that see them, as FlashAttention-2
//              does. A warp has 16 of the keys: their rows of P^T and dS^T are accumulators, which
//              become A operands of the products for dV and dK without leaving registers. dQ alone
//              needs all keys, so dS goes through shared memory, and the sums into global memory.
// Bottleneck   Removed: every score was computed twice, and on CUDA cores.
// Changed      From backward_plain: tiles, Tensor Cores and cp.async; D is computed once, before.
// Run          cmake --build --preset emulator --target fa_gradient_tests &&
//              build/emulator/bin/fa_gradient_tests
#include "common/launch/gradients.h"
#include "common/launch/launch.h"
#include "common/launch/slabs.h"
#include "common/layout/swizzle.h"
#include "common/ptx/convert.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/exp2.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mma.h"
#include "kernels/backward/queries.h"

namespace fa::backward_mma {

using backward::Keys;
using backward::kLog2e;
using backward::kP;
using backward::kStats;
using backward::Place;
using backward::QueryTile;
using backward::Shape;

template <int kHeadDim>
struct Config {
  static constexpr int kWarps = 8;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBlockN = kWarps * 16;  // keys per CTA, 16 per warp
  static constexpr int kBlockM = backward::kTileQueries;
  static constexpr int kStages = 2;  // tiles of Q and of dO in shared memory
  static constexpr int kSlabs = kHeadDim / 64;
};

template <typename T, int kHeadDim>
struct SharedStorage {
  using C = Config<kHeadDim>;
  // Slabs of 64 columns, whose chunks of 16 bytes are swizzled (common/launch/slabs.h).
  alignas(1024) T sK[C::kSlabs][C::kBlockN][64];
  alignas(1024) T sV[C::kSlabs][C::kBlockN][64];
  alignas(1024) T sQ[C::kStages][C::kSlabs][C::kBlockM][64];
  alignas(1024) T sdO[C::kStages][C::kSlabs][C::kBlockM][64];
  alignas(1024) T sdS[1][C::kBlockN][64];  // dS^T: a row is a key
  // Log-sum-exp and D of each query, in the order in which lanes need them (queries.h).
  alignas(16) float sStats[C::kStages][2][C::kBlockM];
};

// Starts copies of kRows rows into a tile; rows from `rows` on become zeros. All threads take part.
template <typename T, int kHeadDim, int kRows>
__device__ __forceinline__ void copy_tile(T (*tile)[kRows][64], const T* from, long long row_stride,
                                          int rows) {
  constexpr int kChunks = kHeadDim / 8, kThreads = Config<kHeadDim>::kThreads;
#pragma unroll
  for (int i = 0; i < kRows * kChunks / kThreads; i++) {
    const int at = i * kThreads + threadIdx.x, row = at / kChunks, column = at % kChunks * 8;
    const bool there = row < rows;
    ptx::cp_async_zero_fill<16>(layout::chunk_address(tile, row, column),
                                from + (there ? row * row_stride : 0) + column, there ? 16 : 0);
  }
}

template <typename T, int kHeadDim>
__global__ void __launch_bounds__(Config<kHeadDim>::kThreads, 1)
    backward_kernel(const Gradients<T> a, const Shape shape, int section) {
  using C = Config<kHeadDim>;
  constexpr int kEights = C::kBlockM / 8;     // tiles of eight queries: columns of S^T
  constexpr int kColumnTiles = kHeadDim / 8;  // of dK and dV
  auto& smem = shared_storage<SharedStorage<T, kHeadDim>>();

  // ---- indices
  const Keys keys = shape.keys_of(int(blockIdx.x), C::kBlockN, section, a.mask == Mask::kCausal);
  const Place& at = keys.at;
  if (keys.first_key >= at.kv_len) return;
  const int warp_idx = threadIdx.x / 32, lane_idx = threadIdx.x % 32;
  const int row = warp_idx * 16;                    // the warp's first key in the tile
  const int tiles = keys.tiles * keys.heads;        // of all heads that read these keys
  const int its_keys = at.kv_len - keys.first_key;  // perhaps more than the tile has

  // ---- prologue
  QueryTile tile(keys), coming(keys);  // under way, and to be loaded next
  const auto load = [&](int i) {
    const int stage = i % C::kStages, first = coming.m_block * C::kBlockM, rows = at.q_len - first;
    copy_tile<T, kHeadDim>(smem.sQ[stage],
                           a.q + a.q_strides.at(at.block, coming.head, at.q_begin + first),
                           a.q_strides.row, rows);
    copy_tile<T, kHeadDim>(smem.sdO[stage],
                           a.d_o + a.o_strides.at(at.block, coming.head, at.q_begin + first),
                           a.o_strides.row, rows);
    const float* const stats = shape.stats + shape.tile(at, coming.head, coming.m_block) * kStats;
    if (threadIdx.x < kStats / 4) {
      ptx::cp_async<16>(ptx::shared_address(&smem.sStats[stage][0][threadIdx.x * 4]),
                        stats + threadIdx.x * 4);
    }
    coming.next(keys);
  };
  const size_t kv_row = size_t(at.kv_begin + keys.first_key);
  copy_tile<T, kHeadDim>(smem.sK, a.k + a.k_strides.at(at.block, keys.kv_head, kv_row),
                         a.k_strides.row, its_keys);
  copy_tile<T, kHeadDim>(smem.sV, a.v + a.v_strides.at(at.block, keys.kv_head, kv_row),
                         a.v_strides.row, its_keys);
  if (tiles > 0) load(0);
  ptx::cp_async_commit();

  // ---- registers
  // Lane l has rows l / 4 and l / 4 + 8 of the warp's keys, and columns 2 (l % 4) and the next of
  // every eight.
  float acc_dk[kColumnTiles][4] = {}, acc_dv[kColumnTiles][4] = {};
  const float scale_log2 = a.scale * kLog2e;

  // The product of the warp's rows of K or V with a tile of Q or dO: S^T or dP^T.
  const auto multiply_rows = [&](float(&acc)[kEights][4], const T(*rows_of_keys)[C::kBlockN][64],
                                 const T(*queries)[C::kBlockM][64]) {
#pragma unroll
    for (int n = 0; n < kEights; n++) {
#pragma unroll
      for (int j = 0; j < 4; j++) acc[n][j] = 0.0f;
    }
#pragma unroll 1  // otherwise addresses of later steps take registers that are not there
    for (int d = 0; d < kHeadDim; d += 16) {
      uint32_t rA[4];
      ptx::ldmatrix_x4(
          rA, layout::chunk_address(rows_of_keys, row + lane_idx % 16, d + lane_idx / 16 * 8));
#pragma unroll
      for (int n = 0; n < kEights; n += 2) {
        uint32_t rB[4];  // two B fragments: 16 queries
        ptx::ldmatrix_x4(rB,
                         layout::chunk_address(queries, n * 8 + lane_idx % 8 + lane_idx / 16 * 8,
                                               d + lane_idx / 8 % 2 * 8));
        ptx::mma_m16n8k16<T>(acc[n], rA, {rB[0], rB[1]});
        ptx::mma_m16n8k16<T>(acc[n + 1], rA, {rB[2], rB[3]});
      }
    }
  };
  // dV += P^T dO or dK += dS^T Q: the A operands are 16 queries each.
  const auto multiply_columns = [&](float(&acc)[kColumnTiles][4], const uint32_t(&rA)[4][4],
                                    const T(*queries)[C::kBlockM][64]) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
      for (int n = 0; n < kColumnTiles; n += 2) {
        uint32_t rB[4];  // two B fragments: 16 columns
        ptx::ldmatrix_x4_trans(
            rB, layout::chunk_address(queries, j * 16 + lane_idx % 16, n * 8 + lane_idx / 16 * 8));
        ptx::mma_m16n8k16<T>(acc[n], rA[j], {rB[0], rB[1]});
        ptx::mma_m16n8k16<T>(acc[n + 1], rA[j], {rB[2], rB[3]});
      }
    }
  };

  // ---- main loop
#pragma unroll 1
  for (int i = 0; i < tiles; i++) {
    const int stage = i % C::kStages;
    ptx::cp_async_wait<0>();
    // The tile is there for all, and all have finished the one before, with its dS.
    __syncthreads();
    if (i + 1 < tiles) load(i + 1);
    ptx::cp_async_commit();

    // ---- 2^14 P^T = 2^(S^T - log-sum-exp + 14)
    float acc[kEights][4], p[kEights][4];
    multiply_rows(p, smem.sK, smem.sQ[stage]);
    if (!keys.whole(tile.m_block, C::kBlockN)) {
      const int query = tile.m_block * C::kBlockM + lane_idx % 4 * 2;
      const int key = keys.first_key + row + lane_idx / 4;
#pragma unroll
      for (int j = 0; j < kEights * 4; j++) {
        if (!keys.sees(query + j / 4 * 8 + j % 2, key + j / 2 % 2 * 8)) p[j / 4][j % 4] = -INFINITY;
      }
    }
    const float4* const its_stats =
        reinterpret_cast<const float4*>(smem.sStats[stage][0]) + lane_idx % 4;
    uint32_t rA[4][4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float4 lse = its_stats[4 * j];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float(&s)[4] = p[2 * j + h];
        const float even = h ? lse.z : lse.x, odd = h ? lse.w : lse.y;
        s[0] = ptx::exp2_approx(fmaf(s[0], scale_log2, -even));
        s[1] = ptx::exp2_approx(fmaf(s[1], scale_log2, -odd));
        s[2] = ptx::exp2_approx(fmaf(s[2], scale_log2, -even));
        s[3] = ptx::exp2_approx(fmaf(s[3], scale_log2, -odd));
        rA[j][2 * h] = ptx::pack<T>(s[0], s[1]);
        rA[j][2 * h + 1] = ptx::pack<T>(s[2], s[3]);
      }
    }
    multiply_columns(acc_dv, rA, smem.sdO[stage]);

    // ---- dS^T = P^T (dP^T - D), without scale
    multiply_rows(acc, smem.sV, smem.sdO[stage]);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float4 d = its_stats[16 + 4 * j];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int n = 2 * j + h;
        const float even = h ? d.z : d.x, odd = h ? d.w : d.y;
        rA[j][2 * h] = ptx::pack<T>(p[n][0] * fmaf(acc[n][0], 1 / kP, -even),
                                    p[n][1] * fmaf(acc[n][1], 1 / kP, -odd));
        rA[j][2 * h + 1] = ptx::pack<T>(p[n][2] * fmaf(acc[n][2], 1 / kP, -even),
                                        p[n][3] * fmaf(acc[n][3], 1 / kP, -odd));
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const int its_row = row + half * 8 + lane_idx / 4;
          T* const chunk = &smem.sdS[0][its_row][layout::swizzle(its_row, n) * 8];
          reinterpret_cast<uint32_t*>(chunk)[lane_idx % 4] = rA[j][2 * h + half];
        }
      }
    }
    multiply_columns(acc_dk, rA, smem.sQ[stage]);

    // ---- dQ += dS K: a warp has 16 queries and half of the columns
    __syncthreads();  // all of dS is there
    constexpr int kHalf = kColumnTiles / 2;
    const int query = warp_idx % 4 * 16, column = warp_idx / 4 * kHalf * 8;
    float acc_dq[kHalf][4] = {};
#pragma unroll 2
    for (int key = 0; key < C::kBlockN; key += 16) {
      uint32_t rS[4];
      ptx::ldmatrix_x4_trans(rS,
                             layout::chunk_address(smem.sdS, key + lane_idx % 8 + lane_idx / 16 * 8,
                                                   query + lane_idx / 8 % 2 * 8));
#pragma unroll
      for (int n = 0; n < kHalf; n += 2) {
        uint32_t rB[4];
        ptx::ldmatrix_x4_trans(rB, layout::chunk_address(smem.sK, key + lane_idx % 16,
                                                         column + n * 8 + lane_idx / 16 * 8));
        ptx::mma_m16n8k16<T>(acc_dq[n], rS, {rB[0], rB[1]});
        ptx::mma_m16n8k16<T>(acc_dq[n + 1], rS, {rB[2], rB[3]});
      }
    }
    float* const to = shape.dq_sum +
                      shape.tile(at, tile.head, tile.m_block) * (C::kBlockM * kHeadDim) +
                      warp_idx % 4 * 1024 + lane_idx * 4;
    tile.next(keys);
#pragma unroll
    for (int n = 0; n < kHalf; n++) {
      const int eight = column / 8 + n;  // columns
#pragma unroll
      for (int j = 0; j < 4; j++) {
        atomicAdd(to + eight / 8 * 4096 + eight % 8 * 128 + j, acc_dq[n][j]);
      }
    }
  }
  ptx::cp_async_wait<0>();
  __syncthreads();  // nobody reads V any more

  // ---- epilogue: dV, then dK, through the warp's rows of V
  const auto store = [&](const float(&sums)[kColumnTiles][4], float factor, T* to,
                         const Strides& strides) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; n++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int its_row = row + half * 8 + lane_idx / 4;
        T* const chunk = &smem.sV[n / 8][its_row][layout::swizzle(its_row, n % 8) * 8];
        reinterpret_cast<uint32_t*>(chunk)[lane_idx % 4] =
            ptx::pack<T>(sums[n][2 * half] * factor, sums[n][2 * half + 1] * factor);
      }
    }
    __syncwarp();
    constexpr int kChunks = kHeadDim / 8;
#pragma unroll
    for (int i = 0; i < 16 * kChunks / 32; i++) {
      const int its_row = row + (i * 32 + lane_idx) / kChunks, chunk = lane_idx % kChunks;
      if (its_row >= its_keys) continue;
      *reinterpret_cast<uint4*>(to + strides.at(at.block, keys.kv_head, kv_row + its_row) +
                                chunk * 8) =
          *reinterpret_cast<const uint4*>(
              &smem.sV[chunk / 8][its_row][layout::swizzle(its_row, chunk % 8) * 8]);
    }
    __syncwarp();
  };
  store(acc_dv, 1 / kP, a.d_v, a.v_strides);
  store(acc_dk, a.scale, a.d_k, a.k_strides);
}

// ---- host ---------------------------------------------------------------------------------------
template <typename T, int kHeadDim>
struct Launcher {
  using C = Config<kHeadDim>;

  static size_t workspace_bytes(const Problem& p, size_t) { return backward::workspace_bytes(p); }

  static void run(const Gradients<T>& a) {
    const Shape shape = backward::shape_of<T, kHeadDim>(a);
    const int n_blocks = (a.kv_len + C::kBlockN - 1) / C::kBlockN;
    backward::launch_before<T, kHeadDim>(a, shape);
    if (n_blocks > 0) {
      launch<backward_kernel<T, kHeadDim>>({dim3(unsigned(n_blocks * a.batch * a.kv_heads)),
                                            dim3(C::kThreads), sizeof(SharedStorage<T, kHeadDim>)},
                                           a, shape, backward::section_of<T, kHeadDim>(a));
    }
    backward::launch_after<T, kHeadDim>(a, shape);
  }
};

const GradientRegistration<Launcher> registration{
    "backward_mma", Needs{80, false, sizeof(SharedStorage<__half, 128>)},
    Takes{.causal = true, .any_length = true, .kv_heads = true, .packed = true, .strides = true}};

}  // namespace fa::backward_mma
