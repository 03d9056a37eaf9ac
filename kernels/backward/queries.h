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
#include "common/ptx/fence.h"
#include "common/ptx/flag.h"
#include "common/ptx/tma.h"

namespace fa::backward {

constexpr float kLog2e = 1.44269504f;
constexpr int kTileQueries = 64;

// fp16 has 11 bits down to 2^-14 alone, and among many keys P is less. So 2^14 P is what the
// exponentials give, and D is divided by 2^14.
constexpr float kPLog2 = 14.0f;
constexpr float kP = 0x1p14f;

// Where the statistics of query q of a tile lie: lane l needs those of 16j + 2 (l % 4), + 1, + 8
// and + 9 together.
__host__ __device__ constexpr int stats_place(int q) {
  return q / 16 * 16 + q % 8 / 2 * 4 + q % 16 / 8 * 2 + q % 2;
}
constexpr int kStats = 2 * kTileQueries;  // floats per tile of queries: log-sum-exp, then D

// One sequence: its rows begin at q_begin and kv_begin of its block, and its tiles of queries at
// first_tile of each head.
struct Place {
  int block, q_begin, kv_begin, q_len, kv_len, first_tile;
};

// The keys of a CTA, and the tiles of queries that see them.
struct Keys {
  Place at;
  int kv_head, first_key;  // within the sequence
  bool causal;
  int ahead;              // causal: query i sees key j if j <= i + ahead
  int first, tiles;       // of one head of queries
  int first_head, heads;  // that read these keys

  // Whether all queries of tile m_block see all `count` keys.
  __device__ bool whole(int m_block, int count) const {
    return first_key + count <= at.kv_len &&
           (!causal || m_block * kTileQueries + ahead >= first_key + count - 1);
  }
  __device__ bool sees(int query, int key) const {  // both within the sequence
    return key < at.kv_len && (!causal || key <= query + ahead);
  }
};

// A tile of queries, on the way through all that see some keys, head after head.
struct QueryTile {
  int m_block, head;
  __device__ explicit QueryTile(const Keys& keys) : m_block(keys.first), head(keys.first_head) {}
  __device__ void next(const Keys& keys) {
    if (++m_block == keys.first + keys.tiles) {
      m_block = keys.first;
      head++;
    }
  }
};

// What all kernels here know of the problem.
struct Shape {
  int batch, heads, kv_heads, q_len, kv_len;
  const int *cu_seqlens_q, *cu_seqlens_kv;  // null: not packed
  int tiles;                                // of queries per head; packed: of all sequences
  float* dq_sum;  // [blocks][heads][tiles][head_dim / 64][4 warps][8][32 lanes][4], in fp32
  float* stats;   // [blocks][heads][tiles][kStats]

  template <bool kMayBePacked = true>
  __host__ __device__ Place sequence(int i) const {
    if (!kMayBePacked || !cu_seqlens_q) return {i, 0, 0, q_len, kv_len, 0};
    const int q_begin = cu_seqlens_q[i], kv_begin = cu_seqlens_kv[i];
    // Rounded down, and one more per sequence: room for all tiles, and none belongs to two.
    return {0,
            q_begin,
            kv_begin,
            cu_seqlens_q[i + 1] - q_begin,
            cu_seqlens_kv[i + 1] - kv_begin,
            q_begin / kTileQueries + i};
  }
  __device__ size_t tile(const Place& at, int head, int m_block) const {
    return (size_t(at.block) * heads + head) * tiles + at.first_tile + m_block;
  }
  // [blocks][heads][tiles][4 warps], behind the statistics of a deterministic problem: which tile
  // of keys is the next to add to a warp's rows of the tile.
  __device__ int* next_tiles() const {
    return reinterpret_cast<int*>(stats +
                                  size_t(cu_seqlens_q ? 1 : batch) * heads * tiles * kStats);
  }
  // What CTA number `block` has: `count` keys, or none where a packed sequence is shorter than the
  // longest one. With a mask the tiles of keys of `section` heads, which fit in L2 together, come
  // longest first, but last first where they add to dQ in order.
  template <bool kMayBePacked = true, bool kInOrder = false>
  __host__ __device__ Keys keys_of(int block, int count, int section, bool causal) const {
    const int n_blocks = (kv_len + count - 1) / count, of_section = section * n_blocks;
    const int before = block / of_section * section, place = block % of_section;
    const int left = batch * kv_heads - before, its_heads = left < section ? left : section;
    const int head = before + (section > 1 ? place % its_heads : place / n_blocks);
    Keys result;
    result.at = sequence<kMayBePacked>(head / kv_heads);
    result.kv_head = head % kv_heads;
    const int n_block = section > 1 ? place / its_heads : place % n_blocks;
    result.first_key = (kInOrder ? n_blocks - 1 - n_block : n_block) * count;
    result.causal = causal;
    result.ahead = result.at.kv_len - result.at.q_len;
    const int first_query = result.first_key - result.ahead;  // that sees the first of the keys
    result.first = causal && first_query > 0 ? first_query / kTileQueries : 0;
    const int all = (result.at.q_len + kTileQueries - 1) / kTileQueries;
    result.tiles = all > result.first ? all - result.first : 0;
    result.heads = heads / kv_heads;
    result.first_head = result.kv_head * result.heads;
    return result;
  }
};

// ---- dQ in one order ----------------------------------------------------------------------------
// The tiles of keys add to a tile of queries one after the other, from the last that sees it down
// to number 0. CTAs have them in this order, too (keys_of), so that each waits for a CTA before it,
// which runs already or is over if CTAs begin in the order of their numbers. CUDA does not promise
// that, and in another order a launch might never end. With a mask the CTA that is waited for is
// also two tiles of queries ahead: a tile of keys begins at its diagonal, where it is the first to
// add.

// [next]
// Waits until tile n_block is the next to add. One thread calls it, which then has the engine add.
// The acquire orders what this thread does itself. The engine adds in the async proxy, and that its
// additions come after as well takes a fence (PTX ISA, "Memory Consistency Model: Proxies").
__device__ inline void await_next(int* next, int n_block) {
  while (ptx::load_acquire(next) != n_block) {
  }
  ptx::fence_proxy_async_global();
}
// Waits until all additions of this thread are there, not just read from shared memory, and lets
// the tile before it add. No fence between the two: the end of a bulk copy is one of the proxies,
// its writes are then visible to this thread (PTX ISA, "Async proxy" and
// "cp.async.bulk.wait_group"), and a release passes on all that is.
__device__ inline void set_next(int* next, int n_block) {
  ptx::cp_async_bulk_wait<0>();
  ptx::store_release(next, n_block - 1);
}
// [/next]

// ---- before: log-sum-exp and D, and dQ = 0 -----------------------------------------------------
// A CTA has a tile of queries of head blockIdx.y of sequence blockIdx.z, a warp eight of them.
// kTileKeys: with how many keys at a time dQ is added up in order; 0: in any order.
template <typename T, int kHeadDim, int kTileKeys>
__global__ void __launch_bounds__(256)
    before_kernel(const T* o, const T* d_o, const float* lse, const Strides strides,
                  const Shape shape, int q_rows, bool causal) {
  const int lane_idx = threadIdx.x % 32, m_block = blockIdx.x, head = blockIdx.y;
  const Place at = shape.sequence(blockIdx.z);
  if (m_block * kTileQueries >= at.q_len) return;
  constexpr int kLanes = kHeadDim / 8;  // that share a row
  constexpr int kTurns = kLanes / 4;    // 32 / kLanes rows at a time, of eight
  const size_t tile = shape.tile(at, head, m_block);
  const int first = threadIdx.x / 32 * 8 + lane_idx / kLanes;  // of this lane's rows in the tile
  // All loads are under way before the first is needed.
  uint4 of_o[kTurns], of_do[kTurns];
  float its_lse[kTurns];
#pragma unroll
  for (int i = 0; i < kTurns; i++) {
    const int query = m_block * kTileQueries + first + i * (32 / kLanes);
    of_o[i] = of_do[i] = uint4{};
    its_lse[i] = -INFINITY;
    if (query >= at.q_len) continue;
    const int row = at.q_begin + query;
    const size_t from = strides.at(at.block, head, row) + lane_idx % kLanes * 8;
    of_o[i] = *reinterpret_cast<const uint4*>(o + from);
    of_do[i] = *reinterpret_cast<const uint4*>(d_o + from);
    its_lse[i] = lse[(size_t(at.block) * shape.heads + head) * q_rows + row];
  }
  if constexpr (kTileKeys > 0) {
    // The first to add is the tile with the last key that a query of the whole tile sees.
    const int last = m_block * kTileQueries + kTileQueries - 1 + at.kv_len - at.q_len;
    const int key = causal ? min(last, at.kv_len - 1) : at.kv_len - 1;
    if (threadIdx.x < 4) shape.next_tiles()[tile * 4 + threadIdx.x] = key / kTileKeys;
  }
  float4* const zero = reinterpret_cast<float4*>(shape.dq_sum + tile * (kTileQueries * kHeadDim));
#pragma unroll
  for (int i = 0; i < kTileQueries * kHeadDim / 4 / 256; i++) {
    zero[i * 256 + threadIdx.x] = float4{0.0f, 0.0f, 0.0f, 0.0f};
  }
#pragma unroll
  for (int i = 0; i < kTurns; i++) {
    const uint32_t a[4] = {of_o[i].x, of_o[i].y, of_o[i].z, of_o[i].w};
    const uint32_t b[4] = {of_do[i].x, of_do[i].y, of_do[i].z, of_do[i].w};
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float2 x = ptx::unpack<T>(a[j]), y = ptx::unpack<T>(b[j]);
      sum = fmaf(x.x, y.x, fmaf(x.y, y.y, sum));
    }
#pragma unroll
    for (int j = 1; j < kLanes; j *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, j);
    if (lane_idx % kLanes != 0) continue;
    // A row that sees no key, or is none, has P = 2^(S - infinity) = 0.
    const bool sees_keys = its_lse[i] > -INFINITY;
    float* const to = shape.stats + tile * kStats + stats_place(first + i * (32 / kLanes));
    to[0] = sees_keys ? its_lse[i] * kLog2e - kPLog2 : INFINITY;
    to[kTileQueries] = sees_keys ? sum / kP : 0.0f;
  }
}

// ---- after: dQ in T ----------------------------------------------------------------------------
template <typename T, int kHeadDim>
struct Staged {
  alignas(1024) T sdQ[kHeadDim / 64][kTileQueries][64];
};

// A CTA has a tile of queries, a warp 16 of them.
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(128)
    after_kernel(T* d_q, const Strides strides, const Shape shape, float scale) {
  auto& smem = shared_storage<Staged<T, kHeadDim>>();
  const int lane_idx = threadIdx.x % 32, warp_idx = threadIdx.x / 32;
  const int m_block = blockIdx.x, head = blockIdx.y;
  const Place at = shape.sequence(blockIdx.z);
  if (m_block * kTileQueries >= at.q_len) return;
  const float4* const from = reinterpret_cast<const float4*>(
      shape.dq_sum + shape.tile(at, head, m_block) * (kTileQueries * kHeadDim));
  float4 sums[kHeadDim / 8];  // of eight columns each
#pragma unroll
  for (int j = 0; j < kHeadDim / 8; j++) {
    sums[j] = from[j / 8 * 1024 + warp_idx * 256 + j % 8 * 32 + lane_idx];
  }
#pragma unroll
  for (int j = 0; j < kHeadDim / 8; j++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int row = warp_idx * 16 + h * 8 + lane_idx / 4;
      T* const chunk = &smem.sdQ[j / 8][row][layout::swizzle(row, j % 8) * 8];
      reinterpret_cast<uint32_t*>(chunk)[lane_idx % 4] =
          h ? ptx::pack<T>(sums[j].z * scale, sums[j].w * scale)
            : ptx::pack<T>(sums[j].x * scale, sums[j].y * scale);
    }
  }
  __syncwarp();
  constexpr int kChunks = kHeadDim / 8;  // of 16 bytes, in a row
#pragma unroll
  for (int i = 0; i < 16 * kChunks / 32; i++) {
    const int row = warp_idx * 16 + (i * 32 + lane_idx) / kChunks, chunk = lane_idx % kChunks;
    const int query = m_block * kTileQueries + row;
    if (query >= at.q_len) continue;
    T* const to = d_q + strides.at(at.block, head, at.q_begin + query);
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
  const size_t each = size_t(kTileQueries) * (size_t(p.head_dim) + 2) * sizeof(float) +
                      (p.deterministic ? 4 * sizeof(int) : 0);
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
template <typename T, int kHeadDim, int kTileKeys = 0>
void launch_before(const Gradients<T>& a, const Shape& shape) {
  const auto m_blocks = unsigned((a.seq_len + kTileQueries - 1) / kTileQueries);
  launch<before_kernel<T, kHeadDim, kTileKeys>>({dim3(m_blocks, a.heads, a.batch), dim3(256)}, a.o,
                                                a.d_o, a.lse, a.o_strides, shape, a.q_rows,
                                                a.mask == Mask::kCausal);
}
template <typename T, int kHeadDim>
void launch_after(const Gradients<T>& a, const Shape& shape) {
  const auto m_blocks = unsigned((a.seq_len + kTileQueries - 1) / kTileQueries);
  launch<after_kernel<T, kHeadDim>>(
      {dim3(m_blocks, a.heads, a.batch), dim3(128), sizeof(Staged<T, kHeadDim>)}, a.d_q,
      a.q_strides, shape, a.scale);
}

}  // namespace fa::backward
