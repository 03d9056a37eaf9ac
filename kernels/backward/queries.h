// What kernels of gradients do before and after their products: D, log-sum-exp in base 2, and the
// sums of dQ, which several CTAs add to, in fp32 and in the order of the accumulators.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/launch/gradients.h"
#include "common/launch/launch.h"
#include "common/layout/swizzle.h"
#include "common/ptx/convert.h"

namespace fa::backward {

constexpr float kLog2e = 1.44269504f;
constexpr int kTileQueries = 64;

// Where the statistics of query q of a tile lie: lane l needs those of 16j + 2 (l % 4), + 1, + 8
// and + 9 together.
__host__ __device__ constexpr int stats_place(int q) {
  return q / 16 * 16 + q % 8 / 2 * 4 + q % 16 / 8 * 2 + q % 2;
}

// What all kernels here know of the problem. A CTA has a tile of keys, [keys_of].
struct Shape {
  int batch, heads, kv_heads, q_len, kv_len;
  const int *cu_seqlens_q, *cu_seqlens_kv;  // null: not packed
  int tiles;      // of queries, of a head: with packed sequences of all of them
  float* dq_sum;  // [heads of all][tiles][kSlabs][4 warps][8][32 lanes][4]: sums in fp32
  float* stats;   // [heads of all][tiles][2][kBlockM]

  // One sequence, whose rows begin at q_begin and kv_begin of its block and whose query tiles begin
  // at first_tile of its head.
  struct Sequence {
    int block, q_begin, kv_begin, q_len, kv_len, first_tile;
  };
  __device__ Sequence sequence(int i) const {
    if (!cu_seqlens_q) return {i, 0, 0, q_len, kv_len, 0};
    const int q_begin = cu_seqlens_q[i], kv_begin = cu_seqlens_kv[i];
    // Rounding down and one more per sequence: room for all tiles, and none belongs to two.
    return {0,
            q_begin,
            kv_begin,
            cu_seqlens_q[i + 1] - q_begin,
            cu_seqlens_kv[i + 1] - kv_begin,
            q_begin / 64 + i};
  }
  __device__ size_t tile(const Sequence& at, int head, int m) const {
    return (size_t(at.block) * heads + head) * tiles + at.first_tile + m;
  }

  // The keys of a CTA, and the tiles of queries that see them.
  struct Keys {
    Sequence at;
    int kv_head, first_key;  // within the sequence
    bool causal;
    int ahead;              // causal: query i sees key j if j <= i + ahead
    int first, tiles;       // of one head of queries
    int first_head, heads;  // that read these keys

    // Tile i of all heads that read them: its number within the head, and the head.
    __device__ int m(int i) const { return first + i % tiles; }
    __device__ int head(int i) const { return first_head + i / tiles; }
    // Whether all queries of tile m see all `count` keys.
    __device__ bool whole(int m, int count) const {
      return first_key + count <= at.kv_len &&
             (!causal || m * kTileQueries + ahead >= first_key + count - 1);
    }
    __device__ bool sees(int query, int key) const {  // both within the sequence
      return key < at.kv_len && (!causal || key <= query + ahead);
    }
  };
  // CTA `block` of all has `count` keys, perhaps none. With a mask the key tiles of `section`
  // heads, which fit in L2 together, come longest first.
  __device__ Keys keys_of(int block, int count, int section, bool causal) const {
    const int n_blocks = (kv_len + count - 1) / count, of_section = section * n_blocks;
    const int before = block / of_section * section, place = block % of_section;
    const int its_heads = min(section, batch * kv_heads - before);
    const int head = before + (section > 1 ? place % its_heads : place / n_blocks);
    Keys result;
    result.at = sequence(head / kv_heads);
    result.kv_head = head % kv_heads;
    result.first_key = (section > 1 ? place / its_heads : place % n_blocks) * count;
    result.causal = causal;
    result.ahead = result.at.kv_len - result.at.q_len;
    result.first = causal ? max(result.first_key - result.ahead, 0) / kTileQueries : 0;
    const int all = (result.at.q_len + kTileQueries - 1) / kTileQueries;
    result.tiles = max(all - result.first, 0);
    result.heads = heads / kv_heads;
    result.first_head = result.kv_head * result.heads;
    return result;
  }
};

// ---- before: D, and dQ = 0 -------------------------------------------------------------------
// A CTA has a tile of queries of head blockIdx.y of sequence blockIdx.z, a warp eight of them.
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(256)
    before_kernel(const T* o, const T* d_o, const float* lse, const Strides strides,
                  const Shape shape, int q_rows) {
  const int lane_idx = threadIdx.x % 32, m = blockIdx.x, head = blockIdx.y;
  const Shape::Sequence at = shape.sequence(blockIdx.z);
  if (m * 64 >= at.q_len) return;
  constexpr int kLanes = kHeadDim / 8;  // that share a row
  constexpr int kPerTurn = 32 / kLanes;
  const size_t tile = shape.tile(at, head, m);
  float4* const zero = reinterpret_cast<float4*>(shape.dq_sum + tile * (64 * kHeadDim));
#pragma unroll
  for (int i = 0; i < 64 * kHeadDim / 4 / 256; i++) {
    zero[i * 256 + threadIdx.x] = float4{0.0f, 0.0f, 0.0f, 0.0f};
  }
#pragma unroll
  for (int i = 0; i < 8 / kPerTurn; i++) {
    const int query = threadIdx.x / 32 * 8 + i * kPerTurn + lane_idx / kLanes;
    const int row = at.q_begin + m * 64 + query;
    const bool there = m * 64 + query < at.q_len;
    uint4 of_o = {}, of_do = {};
    // A row that sees no key, or is none, has P = 2^(S - infinity) = 0.
    float its_lse = INFINITY;
    if (there) {
      const size_t from = strides.at(at.block, head, row) + lane_idx % kLanes * 8;
      of_o = *reinterpret_cast<const uint4*>(o + from);
      of_do = *reinterpret_cast<const uint4*>(d_o + from);
      its_lse = lse[(size_t(at.block) * shape.heads + head) * q_rows + row] * kLog2e;
      if (its_lse == -INFINITY) its_lse = INFINITY;
    }
    const uint32_t a[4] = {of_o.x, of_o.y, of_o.z, of_o.w};
    const uint32_t b[4] = {of_do.x, of_do.y, of_do.z, of_do.w};
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float2 x = ptx::unpack<T>(a[j]), y = ptx::unpack<T>(b[j]);
      sum = fmaf(x.x, y.x, fmaf(x.y, y.y, sum));
    }
#pragma unroll
    for (int j = 1; j < kLanes; j *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, j);
    if (lane_idx % kLanes == 0) {
      float* const to = shape.stats + tile * 128 + stats_place(query);
      to[0] = its_lse;
      to[64] = sum;
    }
  }
}

// ---- after: dQ in T ----------------------------------------------------------------------------
// A CTA has a tile of queries, a warp 16 of them.
template <typename T, int kHeadDim>
struct Staged {
  alignas(1024) T sdQ[kHeadDim / 64][64][64];
};
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(128)
    after_kernel(T* d_q, const Strides strides, const Shape shape, float scale) {
  auto& smem = shared_storage<Staged<T, kHeadDim>>();
  const int lane_idx = threadIdx.x % 32, warp_idx = threadIdx.x / 32;
  const int m = blockIdx.x, head = blockIdx.y;
  const Shape::Sequence at = shape.sequence(blockIdx.z);
  if (m * 64 >= at.q_len) return;
  const float4* const from =
      reinterpret_cast<const float4*>(shape.dq_sum + shape.tile(at, head, m) * (64 * kHeadDim));
#pragma unroll
  for (int j = 0; j < kHeadDim / 8; j++) {  // eight columns
    const float4 x = from[j / 8 * 1024 + warp_idx * 256 + j % 8 * 32 + lane_idx];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int row = warp_idx * 16 + h * 8 + lane_idx / 4;
      T* const chunk = &smem.sdQ[j / 8][row][layout::swizzle(row, j % 8) * 8];
      reinterpret_cast<uint32_t*>(chunk)[lane_idx % 4] =
          h ? ptx::pack<T>(x.z * scale, x.w * scale) : ptx::pack<T>(x.x * scale, x.y * scale);
    }
  }
  __syncwarp();
  constexpr int kChunks = kHeadDim / 8;
#pragma unroll
  for (int i = 0; i < 16 * kChunks / 32; i++) {
    const int row = warp_idx * 16 + (i * 32 + lane_idx) / kChunks, chunk = lane_idx % kChunks;
    if (m * 64 + row >= at.q_len) continue;
    T* const to = d_q + strides.at(at.block, head, at.q_begin + m * 64 + row);
    *reinterpret_cast<uint4*>(to + chunk * 8) = *reinterpret_cast<const uint4*>(
        &smem.sdQ[chunk / 8][row][layout::swizzle(row, chunk % 8) * 8]);
  }
}

// ---- host ---------------------------------------------------------------------------------------
// Tiles of queries of a head; of packed sequences of all together.
inline size_t tiles_of_head(bool packed, size_t q_rows, int batch) {
  return packed ? q_rows / kTileQueries + size_t(batch)
                : (q_rows + kTileQueries - 1) / kTileQueries;
}
inline size_t workspace_bytes(const Problem& p) {
  const size_t each = size_t(kTileQueries) * (size_t(p.head_dim) + 2) * sizeof(float);
  return size_t(p.blocks()) * size_t(p.heads) *
         tiles_of_head(!p.packed.empty(), p.q_rows(), p.batch) * each;
}

template <typename T, int kHeadDim>
Shape shape_of(const Gradients<T>& a) {
  const bool packed = a.cu_seqlens_q != nullptr;
  const size_t tiles = tiles_of_head(packed, size_t(a.q_rows), a.batch);
  float* const dq_sum = static_cast<float*>(a.workspace);
  const size_t sums = size_t(packed ? 1 : a.batch) * a.heads * tiles * (kTileQueries * kHeadDim);
  return {a.batch,        a.heads,         a.kv_heads, a.seq_len, a.kv_len,
          a.cu_seqlens_q, a.cu_seqlens_kv, int(tiles), dq_sum,    dq_sum + sums};
}
// Heads of keys whose Q, dO and sums of dQ (8 bytes per element of a query) fit in 16 MB.
template <typename T, int kHeadDim>
int section_of(const Gradients<T>& a) {
  if (a.mask != Mask::kCausal) return 1;
  const long long bytes = 8LL * kHeadDim * std::max(a.seq_len, 1) * (a.heads / a.kv_heads);
  return int(std::clamp((16LL << 20) / bytes, 1LL, std::min(8LL, 1LL * a.batch * a.kv_heads)));
}
template <typename T, int kHeadDim>
void launch_before(const Gradients<T>& a, const Shape& shape) {
  if (a.seq_len == 0) return;
  const auto m_blocks = unsigned((a.seq_len + kTileQueries - 1) / kTileQueries);
  launch<before_kernel<T, kHeadDim>>({dim3(m_blocks, a.heads, a.batch), dim3(256)}, a.o, a.d_o,
                                     a.lse, a.o_strides, shape, a.q_rows);
}
template <typename T, int kHeadDim>
void launch_after(const Gradients<T>& a, const Shape& shape) {
  if (a.seq_len == 0) return;
  const auto m_blocks = unsigned((a.seq_len + kTileQueries - 1) / kTileQueries);
  launch<after_kernel<T, kHeadDim>>(
      {dim3(m_blocks, a.heads, a.batch), dim3(128), sizeof(Staged<T, kHeadDim>)}, a.d_q,
      a.q_strides, shape, a.scale);
}

}  // namespace fa::backward
