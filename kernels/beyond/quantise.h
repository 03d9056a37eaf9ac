// From 16 bits to e4m3: what comes before the kernel of fp8.h.
//
// Idea         A CTA keeps 128 rows in registers, finds their largest number, and only then divides
//              by it, so memory is read once. Four lanes share a row, so a rotation takes two steps
//              by shuffles and the others in registers. V is written transposed, as wgmma wants it.
// Bottleneck   The memory's bandwidth: two bytes are read per number and one is written. V, whose
//              scale is that of a head, is read twice.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <cstring>

#include "common/launch/launch.h"
#include "common/launch/registry.h"
#include "common/launch/rotation.h"
#include "common/ptx/convert.h"
#include "common/ptx/convert_fp8.h"

namespace fa::quantise {

constexpr float kLargest = 448.0f;   // of e4m3
constexpr float kLeast = 0x1p-100f;  // a head of zeros has a scale, too

struct Config {
  static constexpr int kRows = kFp8TileRows;  // per CTA
  static constexpr int kLanes = 4;            // that share a row
  static constexpr int kThreads = kRows * kLanes;
  static constexpr int kWarps = kThreads / 32;
  // CTAs per SM of kernels that keep rows: a lane has a quarter of a row, and two CTAs leave it 64
  // registers.
  static constexpr int ctas(int head_dim) { return head_dim > 128 ? 1 : 2; }
};

// One tensor, of 16 bits or e4m3, and what becomes of it. blockIdx.x: tile of 128 rows; y: head; z:
// block.
template <typename T>
struct Task {
  const T* x;  // [blocks, heads, rows, kHeadDim], strides apart
  Strides strides;
  int heads, rows;
  uint8_t* out;              // e4m3: [blocks, heads, out_rows, kHeadDim], or transposed as below
  int out_rows;              // at least rows: zeros behind them
  float* scales = nullptr;   // of 16 bits: per head and tile, or per head
  float* largest = nullptr;  // per head and tile: the largest numbers, where a scale is per head
};

// ---- pieces that the kernels below share --------------------------------------------------------
// Lane j of four has columns 32 i + 8 j + s of its row, as x[8 i + s]: eight neighbours are one
// load of 16 bytes, and four lanes together load 64. Rows past the end are zeros.
template <typename T, int kHeadDim>
__device__ __forceinline__ void load_row(const Task<T>& task, float (&x)[kHeadDim / 4]) {
  const int row = blockIdx.x * Config::kRows + threadIdx.x / 4, j = threadIdx.x % 4;
  const T* const begin = task.x + task.strides.at(blockIdx.z, blockIdx.y, row);
#pragma unroll
  for (int i = 0; i < kHeadDim / 32; i++) {
    uint4 chunk = {0, 0, 0, 0};
    if (row < task.rows) chunk = reinterpret_cast<const uint4*>(begin)[4 * i + j];
    T numbers[8];
    memcpy(numbers, &chunk, sizeof chunk);
#pragma unroll
    for (int s = 0; s < 8; s++) x[8 * i + s] = ptx::to_float(numbers[s]);
  }
}

// Rotates the row (common/launch/rotation.h), which becomes sqrt(kHeadDim) times as long. Each lane
// of a row calls it.
template <int kHeadDim>
__device__ __forceinline__ void rotate(float (&x)[kHeadDim / 4]) {
  const int j = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < kHeadDim / 4; i++) {
    if (has_minus(32 * (i / 8) + 8 * j + i % 8)) x[i] = -x[i];
  }
  const auto step_in_lane = [&](int distance) {
#pragma unroll
    for (int i = 0; i < kHeadDim / 4; i++) {
      if (i & distance) continue;
      const float low = x[i], high = x[i + distance];
      x[i] = low + high;
      x[i + distance] = low - high;
    }
  };
#pragma unroll
  for (int distance = 1; distance < 8; distance *= 2) step_in_lane(distance);  // columns 1, 2, 4
#pragma unroll
  for (int lanes = 1; lanes < 4; lanes *= 2) {  // columns 8 and 16 apart are in lanes 1 and 2 apart
    const float sign = j & lanes ? -1.0f : 1.0f;
#pragma unroll
    for (int i = 0; i < kHeadDim / 4; i++) {
      x[i] = fmaf(sign, x[i], __shfl_xor_sync(0xffffffffu, x[i], lanes));
    }
  }
#pragma unroll
  for (int distance = 8; distance < kHeadDim / 4; distance *= 2) step_in_lane(distance);  // 32, 64
}

// The largest of what all threads of the CTA have. Each thread calls it, once per kernel.
__device__ __forceinline__ float largest_of_cta(float value, float (&of_warps)[Config::kWarps]) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Config::kWarps; i++) value = fmaxf(value, of_warps[i]);
  return value;
}

template <int kCount>
__device__ __forceinline__ float largest_of_lane(const float (&x)[kCount]) {
  float largest = kLeast;
#pragma unroll
  for (int i = 0; i < kCount; i++) largest = fmaxf(largest, fabsf(x[i]));
  return largest;
}

// The largest of a head, from those of its tiles.
template <typename T>
__device__ __forceinline__ float largest_of_head(const Task<T>& task,
                                                 float (&of_warps)[Config::kWarps]) {
  const float* const of_tiles =
      task.largest + (size_t(blockIdx.z) * task.heads + blockIdx.y) * gridDim.x;
  float largest = kLeast;
  for (int i = threadIdx.x; i < gridDim.x; i += Config::kThreads) {
    largest = fmaxf(largest, of_tiles[i]);
  }
  return largest_of_cta(largest, of_warps);
}

struct SharedStorage {
  float of_warps[Config::kWarps];
};

// ---- the largest number of each tile, for a scale per head --------------------------------------
template <typename T, int kHeadDim, bool kRotated>
__global__ void __launch_bounds__(Config::kThreads) largest_kernel(const Task<T> task) {
  auto& smem = shared_storage<SharedStorage>();
  float x[kHeadDim / 4];
  load_row<T, kHeadDim>(task, x);
  if constexpr (kRotated) rotate<kHeadDim>(x);
  const float largest = largest_of_cta(largest_of_lane(x), smem.of_warps);
  const size_t head = size_t(blockIdx.z) * task.heads + blockIdx.y;
  if (threadIdx.x == 0) task.largest[head * gridDim.x + blockIdx.x] = largest;
}

// ---- Q and K ------------------------------------------------------------------------------------
// Writes the tile's e4m3 in their rows. kPerHead: with the scale of the whole head, for which
// largest_kernel ran before; otherwise with that of the tile.
template <typename T, int kHeadDim, bool kRotated, bool kPerHead>
__global__ void __launch_bounds__(Config::kThreads, Config::ctas(kHeadDim))
    rows_kernel(const Task<T> task) {
  auto& smem = shared_storage<SharedStorage>();
  float x[kHeadDim / 4];
  load_row<T, kHeadDim>(task, x);
  if constexpr (kRotated) rotate<kHeadDim>(x);
  const float largest = kPerHead ? largest_of_head(task, smem.of_warps)
                                 : largest_of_cta(largest_of_lane(x), smem.of_warps);

  const size_t head = size_t(blockIdx.z) * task.heads + blockIdx.y;
  if (threadIdx.x == 0 && (!kPerHead || blockIdx.x == 0)) {
    // The rotation's factor goes into the scale.
    const float rotated_by = kRotated ? 1.0f / sqrtf(float(kHeadDim)) : 1.0f;
    task.scales[kPerHead ? head : head * gridDim.x + blockIdx.x] = largest / kLargest * rotated_by;
  }
  const float inverse = kLargest / largest;
  const int row = blockIdx.x * Config::kRows + threadIdx.x / 4, j = threadIdx.x % 4;
  if (row >= task.out_rows) return;
  auto* const to = reinterpret_cast<uint2*>(task.out + (head * task.out_rows + row) * kHeadDim);
#pragma unroll
  for (int i = 0; i < kHeadDim / 4; i += 8) {
    const auto pack = [&](int from) {
      return ptx::pack_fp8<__nv_fp8_e4m3>(x[from] * inverse, x[from + 1] * inverse,
                                          x[from + 2] * inverse, x[from + 3] * inverse);
    };
    to[i / 2 + j] = make_uint2(pack(i), pack(i + 4));
  }
}

// ---- V ------------------------------------------------------------------------------------------
template <int kHeadDim>
struct TransposedStorage {
  float of_warps[Config::kWarps];
  // A row is a column of V. With four bytes more, lanes that write columns eight or 16 apart and
  // lanes that read a row's words meet 32 banks.
  uint8_t sV[kHeadDim][Config::kRows + 4];
};

// Writes the tile from sV, a warp the 128 keys of a column, four per lane.
template <int kHeadDim, int kWarps, typename T>
__device__ __forceinline__ void write_columns(const uint8_t (&sV)[kHeadDim][Config::kRows + 4],
                                              const Task<T>& task) {
  const int warp_idx = threadIdx.x / 32, lane_idx = threadIdx.x % 32;
  const size_t head = size_t(blockIdx.z) * task.heads + blockIdx.y;
  for (int column = warp_idx; column < kHeadDim; column += kWarps) {
    auto* const to = reinterpret_cast<uint32_t*>(
        task.out + (head * kHeadDim + column) * task.out_rows + blockIdx.x * Config::kRows);
    to[lane_idx] = reinterpret_cast<const uint32_t*>(sV[column])[lane_idx];
  }
}

// Writes the tile transposed: out is [blocks, heads, kHeadDim, out_rows], out_rows a multiple of
// 128, with the scale of its head.
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(Config::kThreads, Config::ctas(kHeadDim))
    transpose_kernel(const Task<T> task) {
  auto& smem = shared_storage<TransposedStorage<kHeadDim>>();
  const int key = threadIdx.x / 4, j = threadIdx.x % 4;
  float x[kHeadDim / 4];
  load_row<T, kHeadDim>(task, x);
  const float largest = largest_of_head(task, smem.of_warps), inverse = kLargest / largest;
  const size_t head = size_t(blockIdx.z) * task.heads + blockIdx.y;
  if (threadIdx.x == 0 && blockIdx.x == 0) task.scales[head] = largest / kLargest;
#pragma unroll
  for (int i = 0; i < kHeadDim / 4; i += 4) {
    const uint32_t bytes = ptx::pack_fp8<__nv_fp8_e4m3>(x[i] * inverse, x[i + 1] * inverse,
                                                        x[i + 2] * inverse, x[i + 3] * inverse);
#pragma unroll
    for (int s = 0; s < 4; s++) {
      smem.sV[32 * (i / 8) + 8 * j + i % 8 + s][key] = uint8_t(bytes >> (8 * s));
    }
  }
  __syncthreads();  // all threads wait until the tile is in sV
  write_columns<kHeadDim, Config::kWarps>(smem.sV, task);
}

// The same for a tile that is e4m3 already. A lane has four keys of 16 columns, and turns four
// times four bytes in registers. Two lanes together load the 32 bytes that memory gives at least.
template <int kHeadDim>
__global__ void __launch_bounds__(kHeadDim * 2) transpose_e4m3_kernel(const Task<uint8_t> task) {
  auto& smem = shared_storage<TransposedStorage<kHeadDim>>();
  const int warp_idx = threadIdx.x / 32, lane_idx = threadIdx.x % 32;
  const int column = warp_idx / 2 * 32 + lane_idx % 2 * 16;  // the first of 16
  const int key = warp_idx % 2 * 64 + lane_idx / 2 * 4;      // the first of four
  uint32_t rows[4][4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int row = blockIdx.x * Config::kRows + key + i;
    uint4 chunk = {0, 0, 0, 0};
    if (row < task.rows) {
      chunk = *reinterpret_cast<const uint4*>(
          task.x + task.strides.at(blockIdx.z, blockIdx.y, row) + column);
    }
    memcpy(rows[i], &chunk, sizeof chunk);
  }
#pragma unroll
  for (int word = 0; word < 4; word++) {
    const uint32_t a = rows[0][word], b = rows[1][word], c = rows[2][word], d = rows[3][word];
    // Bytes of two keys next to each other, of columns 0 and 1, and of 2 and 3.
    const uint32_t ab[2] = {__byte_perm(a, b, 0x5140), __byte_perm(a, b, 0x7362)};
    const uint32_t cd[2] = {__byte_perm(c, d, 0x5140), __byte_perm(c, d, 0x7362)};
#pragma unroll
    for (int s = 0; s < 4; s++) {
      *reinterpret_cast<uint32_t*>(&smem.sV[column + 4 * word + s][key]) =
          __byte_perm(ab[s / 2], cd[s / 2], s % 2 == 0 ? 0x5410 : 0x7632);
    }
  }
  __syncthreads();  // all threads wait until the tile is in sV
  write_columns<kHeadDim, kHeadDim / 16>(smem.sV, task);
}

// Copies rows of e4m3, with zeros behind the last one.
template <int kHeadDim>
__global__ void __launch_bounds__(Config::kThreads) copy_kernel(const Task<uint8_t> task) {
  constexpr int kLanes = kHeadDim / 16;  // that share a row
  const size_t head = size_t(blockIdx.z) * task.heads + blockIdx.y;
  const int end = min(task.out_rows, int(blockIdx.x + 1) * Config::kRows);
  for (int row = blockIdx.x * Config::kRows + threadIdx.x / kLanes; row < end;
       row += Config::kThreads / kLanes) {
    uint4 chunk = {0, 0, 0, 0};
    if (row < task.rows) {
      chunk = reinterpret_cast<const uint4*>(
          task.x + task.strides.at(blockIdx.z, blockIdx.y, row))[threadIdx.x % kLanes];
    }
    reinterpret_cast<uint4*>(task.out +
                             (head * task.out_rows + row) * kHeadDim)[threadIdx.x % kLanes] = chunk;
  }
}

// ---- host ---------------------------------------------------------------------------------------
// Where Q, K and V lie in e4m3, with their scales, in one piece of memory: [batch, heads, seq_len,
// head_dim], [batch, kv_heads, k_rows, head_dim] and [batch, kv_heads, head_dim, v_rows].
struct Place {
  uint8_t *q, *k, *v;
  uint8_t* v_in_rows;  // [batch, kv_heads, kv_len, head_dim] where it is wanted, or null
  float *q_scales, *k_scales, *v_scales;
  float* largest;  // of tiles, for a while
  int k_rows;      // a multiple of four: TMA copies rows in fours
  int v_rows;      // a multiple of 128
  int q_tiles, k_tiles;
  size_t bytes;  // in all

  Place(void* memory, int batch, int heads, int kv_heads, int q_len, int kv_len, int head_dim,
        bool with_v_in_rows = false)
      : k_rows((kv_len + 3) / 4 * 4),
        v_rows((kv_len + 127) / 128 * 128),
        q_tiles((q_len + Config::kRows - 1) / Config::kRows),
        k_tiles((kv_len + Config::kRows - 1) / Config::kRows) {
    auto* at = static_cast<uint8_t*>(memory);
    const auto take = [&](size_t count) {  // TMA wants 16 bytes, its boxes like 128
      uint8_t* const here = at;
      at += (count + 127) / 128 * 128;
      return here;
    };
    const size_t of_q = size_t(batch) * heads, of_k = size_t(batch) * kv_heads;
    q = take(of_q * q_len * head_dim);
    k = take(of_k * k_rows * head_dim);
    v = take(of_k * v_rows * head_dim);
    v_in_rows = with_v_in_rows ? take(of_k * kv_len * head_dim) : nullptr;
    const auto floats = [&](size_t count) {
      return reinterpret_cast<float*>(take(count * sizeof(float)));
    };
    q_scales = floats(of_q * q_tiles);
    k_scales = floats(of_k * k_tiles);
    v_scales = floats(of_k);
    largest = floats(of_q * q_tiles > of_k * k_tiles ? of_q * q_tiles : of_k * k_tiles);
    bytes = size_t(at - static_cast<uint8_t*>(memory));
  }
};

// What becomes of K and V that are e4m3 already: copies where the kernel cannot have them as they
// lie, or null. K's last rows are read four at a time, and behind the caller's there may be none.
struct PlaceOfE4m3 {
  uint8_t *k, *v;  // [batch, kv_heads, k_rows, head_dim], [batch, kv_heads, head_dim, v_rows]
  int k_rows, v_rows;
  size_t bytes;  // in all

  PlaceOfE4m3(void* memory, int batch, int kv_heads, int kv_len, int head_dim, bool v_transposed)
      : k_rows((kv_len + 3) / 4 * 4), v_rows((kv_len + 127) / 128 * 128) {
    const size_t rows = size_t(batch) * kv_heads * head_dim;
    const size_t of_k = k_rows > kv_len ? rows * k_rows : 0,
                 of_v = v_transposed ? 0 : rows * v_rows;
    auto* const begin = static_cast<uint8_t*>(memory);
    v = of_v > 0 ? begin : nullptr;
    k = of_k > 0 ? begin + of_v : nullptr;
    bytes = of_k + of_v;
  }
};

// One launch: V transposed, or K's rows with zeros behind them. task.out_rows is v_rows or k_rows.
template <int kHeadDim>
void transpose(const Task<uint8_t>& task, int batch) {
  launch<transpose_e4m3_kernel<kHeadDim>>({dim3(task.out_rows / Config::kRows, task.heads, batch),
                                           dim3(kHeadDim * 2), sizeof(TransposedStorage<kHeadDim>)},
                                          task);
}
template <int kHeadDim>
void copy(const Task<uint8_t>& task, int batch) {
  const int tiles = (task.out_rows + Config::kRows - 1) / Config::kRows;
  launch<copy_kernel<kHeadDim>>({dim3(tiles, task.heads, batch), dim3(Config::kThreads), 0}, task);
}

// Three to six launches, one behind the other, on 16-byte aligned rows. Of Fp8::kHead the scales
// are q_scales[head], otherwise q_scales[head * q_tiles + tile], and likewise those of K. V's are
// per head. V is written transposed, or in its rows where `to` has a place for them.
template <typename T, int kHeadDim>
void run(const Attention<T>& a, const Place& to) {
  const auto launch_for = [&]<auto kKernel>(const Task<T>& task, int tiles, size_t shared_bytes) {
    launch<kKernel>({dim3(tiles, task.heads, a.batch), dim3(Config::kThreads), shared_bytes}, task);
  };
  constexpr size_t kShared = sizeof(SharedStorage);
  const auto rows = [&](const Task<T>& task, int tiles) {
    if (a.fp8 == Fp8::kHead) {
      launch_for.template operator()<largest_kernel<T, kHeadDim, false>>(task, tiles, kShared);
      launch_for.template operator()<rows_kernel<T, kHeadDim, false, true>>(task, tiles, kShared);
    } else if (a.fp8 == Fp8::kTile) {
      launch_for.template operator()<rows_kernel<T, kHeadDim, false, false>>(task, tiles, kShared);
    } else {
      launch_for.template operator()<rows_kernel<T, kHeadDim, true, false>>(task, tiles, kShared);
    }
  };
  rows({a.q, a.q_strides, a.heads, a.seq_len, to.q, a.seq_len, to.q_scales, to.largest},
       to.q_tiles);
  rows({a.k, a.k_strides, a.kv_heads, a.kv_len, to.k, to.k_rows, to.k_scales, to.largest},
       to.k_tiles);
  Task<T> of_v{a.v, a.v_strides, a.kv_heads, a.kv_len, to.v, to.v_rows, to.v_scales, to.largest};
  launch_for.template operator()<largest_kernel<T, kHeadDim, false>>(of_v, to.k_tiles, kShared);
  if (to.v_in_rows) {
    of_v.out = to.v_in_rows;
    of_v.out_rows = a.kv_len;
    launch_for.template operator()<rows_kernel<T, kHeadDim, false, true>>(of_v, to.k_tiles,
                                                                          kShared);
    return;
  }
  launch_for.template operator()<transpose_kernel<T, kHeadDim>>(
      of_v, to.k_tiles, sizeof(TransposedStorage<kHeadDim>));
}

}  // namespace fa::quantise
