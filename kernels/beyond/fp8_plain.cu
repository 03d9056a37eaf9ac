// beyond/fp8_plain: attention on numbers of eight bits, in the simplest way that is right.
//
// Idea         Q, K and V become e4m3: a sign, four bits of exponent and three of mantissa, from
//              2^-9 to 448. A scale, which many numbers share, moves them into that range. Scores
//              and O are multiplied by the scales again, so only the rounding is left behind.
// Bottleneck   None is removed: on CUDA cores eight bits are no faster than sixteen. It shows what
//              FP8 costs in accuracy, and what a scale per tile and a rotation win back of it.
// Changed      From beyond/plain: a launch before it rounds Q, K and V into the workspace, and P is
//              rounded to e4m3 before it meets V.
// Run          cmake --build --preset emulator --target beyond &&
//              build/emulator/bin/beyond fp8_plain --fp8 rotated --mask causal --kv-heads 2
#include <cuda_fp8.h>

#include <algorithm>

#include "common/launch/launch.h"
#include "common/launch/registry.h"
#include "common/launch/rotation.h"
#include "common/ptx/convert.h"

namespace fa::fp8_plain {

using E4m3 = __nv_fp8_e4m3;
constexpr float kLargest = 448.0f;  // of e4m3
// P is at most 1, and e4m3 has three bits of mantissa from 2^-6 on. Times 256, the largest power of
// two that fits, they reach down to a P of 2^-14.
constexpr float kScaleOfP = 256.0f;

struct Config {
  static constexpr int kWarps = 4;          // per CTA of attention, one query row per warp
  static constexpr int kQuantiseWarps = 8;  // per CTA that rounds
};

// A tensor in e4m3, contiguous [blocks, heads, rows, kHeadDim], and its scales: `parts` per head,
// each of rows_per_scale rows.
struct Quantised {
  E4m3* numbers;
  float* scales;
  int heads, rows, parts, rows_per_scale;

  __host__ __device__ size_t head_of_all(int block, int head) const {
    return size_t(block) * heads + head;
  }
  __device__ float scale(int block, int head, int row) const {
    return scales[head_of_all(block, head) * parts + row / rows_per_scale];
  }
};

__device__ __forceinline__ float warp_sum(float value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

__device__ __forceinline__ float warp_max(float value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

// ---- from 16 bits to e4m3 -----------------------------------------------------------------------
// Rotates a row, of which each lane has columns lane_idx, lane_idx + 32, ...: signs, then sums and
// differences of columns 1, 2, 4, ... apart (common/launch/rotation.h). It becomes sqrt(kHeadDim)
// times as long.
template <int kHeadDim>
__device__ __forceinline__ void rotate(float (&row)[kHeadDim / 32]) {
  // [rotate]
  const int lane_idx = threadIdx.x % 32;
  for (int i = 0; i < kHeadDim / 32; i++) {
    if (has_minus(32 * i + lane_idx)) row[i] = -row[i];
  }
  for (int distance = 1; distance < 32; distance *= 2) {  // columns of two lanes
    for (int i = 0; i < kHeadDim / 32; i++) {
      const float other = __shfl_xor_sync(0xffffffffu, row[i], distance);
      row[i] = lane_idx & distance ? other - row[i] : row[i] + other;
    }
  }
  for (int distance = 1; distance < kHeadDim / 32; distance *= 2) {  // of the same lane
    for (int i = 0; i < kHeadDim / 32; i++) {
      if (i & distance) continue;
      const float low = row[i], high = row[i + distance];
      row[i] = low + high;
      row[i + distance] = low - high;
    }
  }
  // [/rotate]
}

struct SharedStorage {
  float largest[Config::kQuantiseWarps];  // number of each warp's rows
};

// One CTA rounds the rows that share a scale: part blockIdx.x of a head (blockIdx.y) of a block
// (blockIdx.z) of x. It reads them twice: for the largest number, and to divide by the scale.
template <typename T, int kHeadDim>
__global__ void quantise_kernel(const T* x, Strides strides, Quantised to, bool rotated) {
  constexpr int kColumns = kHeadDim / 32;
  auto& smem = shared_storage<SharedStorage>();
  const int head = blockIdx.y, block = blockIdx.z;
  const int warp_idx = threadIdx.x / 32, lane_idx = threadIdx.x % 32;
  const int begin = blockIdx.x * to.rows_per_scale;
  const int end = min(begin + to.rows_per_scale, to.rows);
  float numbers[kColumns];
  const auto load_row = [&](int row) {
    for (int i = 0; i < kColumns; i++) {
      numbers[i] = ptx::to_float(x[strides.at(block, head, row) + 32 * i + lane_idx]);
    }
    if (rotated) rotate<kHeadDim>(numbers);
  };

  float largest = 0x1p-100f;  // a head of zeros has a scale, too
  for (int row = begin + warp_idx; row < end; row += Config::kQuantiseWarps) {
    load_row(row);
    for (int i = 0; i < kColumns; i++) largest = fmaxf(largest, fabsf(numbers[i]));
  }
  largest = warp_max(largest);
  if (lane_idx == 0) smem.largest[warp_idx] = largest;
  __syncthreads();
  for (int i = 0; i < Config::kQuantiseWarps; i++) largest = fmaxf(largest, smem.largest[i]);

  const float inverse = kLargest / largest;
  const size_t head_of_all = to.head_of_all(block, head);
  for (int row = begin + warp_idx; row < end; row += Config::kQuantiseWarps) {
    load_row(row);
    E4m3* to_row = to.numbers + (head_of_all * to.rows + row) * kHeadDim + lane_idx;
    for (int i = 0; i < kColumns; i++) to_row[32 * i] = E4m3(numbers[i] * inverse);
  }
  if (threadIdx.x == 0) {
    // The rotation's factor goes into the scale.
    const float rotated_by = rotated ? 1.0f / sqrtf(float(kHeadDim)) : 1.0f;
    to.scales[head_of_all * to.parts + blockIdx.x] = largest / kLargest * rotated_by;
  }
}

// ---- attention ----------------------------------------------------------------------------------
// As in beyond/plain, each lane has kHeadDim / 32 columns of its row of Q and O, and one CTA
// computes kWarps rows of one head (blockIdx.y) of one sequence (blockIdx.z).
template <typename T, int kHeadDim>
__global__ void attention_kernel(Attention<T> a, Quantised q, Quantised k, Quantised v) {
  constexpr int kColumns = kHeadDim / 32;
  const int block = blockIdx.z, head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads);
  const int query = blockIdx.x * Config::kWarps + threadIdx.x / 32, lane_idx = threadIdx.x % 32;
  if (query >= a.seq_len) return;
  const size_t q_row = q.head_of_all(block, head) * a.seq_len + query;
  const size_t first_key = k.head_of_all(block, kv_head) * a.kv_len;
  const int keys = a.mask == Mask::kCausal ? query + 1 + a.kv_len - a.seq_len : a.kv_len;

  // Products of e4m3 are exact in fp32. Q's scale and that of the scores are in every score.
  float rQ[kColumns], acc_o[kColumns];
  for (int i = 0; i < kColumns; i++) {
    rQ[i] = float(q.numbers[q_row * kHeadDim + 32 * i + lane_idx]);
    acc_o[i] = 0.0f;
  }
  const float q_scale = q.scale(block, head, query) * a.scale;
  float row_max = -INFINITY, row_sum = 0.0f;
  for (int key = 0; key < keys; key++) {
    const E4m3* gK = k.numbers + (first_key + key) * kHeadDim + lane_idx;
    const E4m3* gV = v.numbers + (first_key + key) * kHeadDim + lane_idx;
    float acc_s = 0.0f;
    for (int i = 0; i < kColumns; i++) acc_s = fmaf(rQ[i], float(gK[32 * i]), acc_s);
    acc_s = warp_sum(acc_s) * (q_scale * k.scale(block, kv_head, key));
    const float new_max = fmaxf(row_max, acc_s);
    const float rescale = expf(row_max - new_max);
    // What is summed is the rounded P, so that the weights of V still add up to 1.
    const float p = float(E4m3(expf(acc_s - new_max) * kScaleOfP));
    row_max = new_max;
    row_sum = row_sum * rescale + p;
    for (int i = 0; i < kColumns; i++) {
      acc_o[i] = fmaf(p, float(gV[32 * i]), acc_o[i] * rescale);
    }
  }

  // ---- epilogue ----
  const float inverse_sum = row_sum > 0.0f ? v.scale(block, kv_head, 0) / row_sum : 0.0f;
  T* gO = a.o + a.o_strides.at(block, head, query) + lane_idx;
  for (int i = 0; i < kColumns; i++) {
    gO[32 * i] = ptx::from_float<T>(acc_o[i] * inverse_sum);
  }
  if (a.lse && lane_idx == 0) a.lse[q_row] = row_max + logf(row_sum / kScaleOfP);
}

// ---- host ---------------------------------------------------------------------------------------
template <typename T, int kHeadDim>
struct Launcher {
  static constexpr bool kTakesHeadDim256 = true;
  static int parts_of(int rows, int rows_per_scale) {
    return (rows + rows_per_scale - 1) / rows_per_scale;
  }
  // Q, K and V in e4m3, one behind the other, then the scales of all three.
  static size_t workspace_bytes(const Problem& problem, size_t) {
    const size_t heads = problem.batch * size_t(problem.heads + 2 * problem.key_heads());
    const int most = std::max(problem.seq_len, problem.key_len());
    return problem.element_count() + 2 * problem.kv_element_count() +
           heads * parts_of(most, problem.rows_per_scale(most)) * sizeof(float);
  }

  // Where the three are in the workspace.
  struct Rounded {
    Quantised q, k, v;
  };
  static Rounded place(const Attention<T>& a) {
    const int most = std::max(a.seq_len, a.kv_len);
    const int rows_per_scale = a.fp8 == Fp8::kHead ? most : kFp8TileRows;
    const auto of = [&](E4m3* numbers, float* scales, int heads, int rows, int per_scale) {
      return Quantised{numbers, scales, heads, rows, parts_of(rows, per_scale), per_scale};
    };
    const auto scales_of = [&](const Quantised& x) { return size_t(a.batch) * x.heads * x.parts; };
    const size_t kv_elements = size_t(a.batch) * a.kv_heads * a.kv_len * kHeadDim;
    auto* const numbers = static_cast<E4m3*>(a.workspace);
    E4m3* const k_place = numbers + size_t(a.batch) * a.heads * a.seq_len * kHeadDim;
    E4m3* const v_place = k_place + kv_elements;
    auto* const scales = reinterpret_cast<float*>(v_place + kv_elements);
    const Quantised q = of(numbers, scales, a.heads, a.seq_len, rows_per_scale);
    const Quantised k = of(k_place, scales + scales_of(q), a.kv_heads, a.kv_len, rows_per_scale);
    return {q, k, of(v_place, k.scales + scales_of(k), a.kv_heads, a.kv_len, a.kv_len)};
  }

  static void prepare(const Attention<T>& a) {
    const auto quantise = [&](const T* x, const Strides& strides, const Quantised& to,
                              bool rotated) {
      launch<quantise_kernel<T, kHeadDim>>(
          {dim3(to.parts, to.heads, a.batch), dim3(Config::kQuantiseWarps * 32),
           sizeof(SharedStorage)},
          x, strides, to, rotated);
    };
    const auto [q, k, v] = place(a);
    const bool rotated = a.fp8 == Fp8::kRotated;
    quantise(a.q, a.q_strides, q, rotated);
    quantise(a.k, a.k_strides, k, rotated);
    quantise(a.v, a.v_strides, v, false);
  }

  static void run(const Attention<T>& a) {
    const auto [q, k, v] = place(a);
    const unsigned tiles = (a.seq_len + Config::kWarps - 1) / Config::kWarps;
    launch<attention_kernel<T, kHeadDim>>(
        {dim3(tiles, a.heads, a.batch), dim3(Config::kWarps * 32)}, a, q, k, v);
  }
};

const Registration<Launcher> registration{"beyond/fp8_plain", Needs{}, Traits::kSlow,
                                          Takes{.causal = true,
                                                .any_length = true,
                                                .kv_heads = true,
                                                .lse = true,
                                                .strides = true,
                                                .fp8 = true}};

}  // namespace fa::fp8_plain
