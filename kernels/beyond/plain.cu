// beyond/plain: every problem that a model has, in the simplest way that is right.
//
// Idea         One warp computes one row of O. The mask, a window, the lengths and the heads of
//              keys are only a matter of where the row's keys begin and end; what else happens to a
//              score is a line each.
// Bottleneck   None is removed: this is what the other kernels of this folder are measured against
//              on the emulator, and the shortest example of how a kernel receives such a problem.
// Run          cmake --build --preset emulator --target beyond &&
//              build/emulator/bin/beyond plain --mask causal --lengths 300,0,17 --kv-heads 1
#include "common/launch/launch.h"
#include "common/launch/registry.h"
#include "common/ptx/convert.h"

namespace fa::plain {

struct Config {
  static constexpr int kWarps = 4;  // per CTA, one query row per warp
};

__device__ __forceinline__ float warp_sum(float value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

// Each lane has kHeadDim / 32 columns of its row of Q and O: lane 5 has columns 5, 37, 69 and 101
// of 128. One CTA computes kWarps rows of one head (blockIdx.y) of one sequence (blockIdx.z).
template <typename T, int kHeadDim>
__global__ void attention_kernel(Attention<T> a) {
  constexpr int kColumns = kHeadDim / 32;
  const int sequence = blockIdx.z, head = blockIdx.y;
  const int query = blockIdx.x * Config::kWarps + threadIdx.x / 32, lane_idx = threadIdx.x % 32;

  // ---- where the sequence begins, and how long it is ----
  // Packed sequences are one behind the other within a head; others have a block of their own.
  int q_begin = 0, kv_begin = 0, q_len = a.seq_len, kv_len = a.kv_len, block = sequence;
  if (a.cu_seqlens_q) {
    q_begin = a.cu_seqlens_q[sequence];
    kv_begin = a.cu_seqlens_kv[sequence];
    q_len = a.cu_seqlens_q[sequence + 1] - q_begin;
    kv_len = a.cu_seqlens_kv[sequence + 1] - kv_begin;
    block = 0;
  }
  if (a.block_table) kv_len = a.kv_lens[sequence];
  if (query >= q_len) return;
  const int kv_head = head / (a.heads / a.kv_heads);
  // From this lane's first column on, [kHeadDim].
  const T* gQ = a.q + a.q_strides.at(block, head, q_begin + query) + lane_idx;
  T* gO = a.o + a.o_strides.at(block, head, q_begin + query) + lane_idx;
  // Returns where a key's row begins in K or V. The sequence's row of the table names its page.
  const auto key_row = [&](const Strides& strides, int key) -> size_t {
    if (!a.block_table) return strides.at(block, kv_head, kv_begin + key);
    const int page = a.block_table[size_t(sequence) * a.table_pages + key / a.page_size];
    return strides.at(page, kv_head, key % a.page_size);
  };

  // ---- which keys the row sees ----
  // The last query is at the place of the last key, and each query before it one further left. A
  // causal mask is a window without keys to the right of that place. Without a key, end <= begin.
  const int place = query + kv_len - q_len;
  const int begin = a.window.left < 0 ? 0 : max(0, place - a.window.left);
  const int end = a.window.right < 0 ? kv_len : min(kv_len, place + a.window.right + 1);

  // ---- online softmax over the visible keys ----
  float rQ[kColumns], acc_o[kColumns];
  for (int i = 0; i < kColumns; i++) {
    rQ[i] = ptx::to_float(gQ[32 * i]) * a.scale;
    acc_o[i] = 0.0f;
  }
  const float slope = a.alibi_slopes ? a.alibi_slopes[sequence * a.alibi_stride + head] : 0.0f;
  // A sink is a score before all others, to which no row of V belongs.
  float row_max = a.sinks ? a.sinks[head] : -INFINITY, row_sum = a.sinks ? 1.0f : 0.0f;
  for (int key = begin; key < end; key++) {
    const T* gK = a.k + key_row(a.k_strides, key) + lane_idx;
    const T* gV = a.v + key_row(a.v_strides, key) + lane_idx;
    float acc_s = 0.0f;
    for (int i = 0; i < kColumns; i++) {
      acc_s = fmaf(rQ[i], ptx::to_float(gK[32 * i]), acc_s);
    }
    acc_s = warp_sum(acc_s);
    if (a.softcap > 0.0f) acc_s = a.softcap * tanhf(acc_s / a.softcap);
    acc_s = fmaf(-slope, fabsf(float(place - key)), acc_s);
    const float new_max = fmaxf(row_max, acc_s);
    const float rescale = expf(row_max - new_max), p = expf(acc_s - new_max);
    row_max = new_max;
    row_sum = row_sum * rescale + p;
    for (int i = 0; i < kColumns; i++) {
      acc_o[i] = fmaf(p, ptx::to_float(gV[32 * i]), acc_o[i] * rescale);
    }
  }

  // ---- epilogue ----
  // A row that sees no key is zeros. Without a sink its sum is 0, and 0 / 0 would be NaN.
  const float inverse_sum = row_sum > 0.0f ? 1.0f / row_sum : 0.0f;
  for (int i = 0; i < kColumns; i++) {
    gO[32 * i] = ptx::from_float<T>(acc_o[i] * inverse_sum);
  }
  // Results of several parts of the keys can be merged if each has its log-sum-exp, which is -inf
  // without a key and a sink.
  const size_t q_row = (size_t(block) * a.heads + head) * a.q_rows + q_begin + query;
  if (a.lse && lane_idx == 0) a.lse[q_row] = row_max + logf(row_sum);
}

// ---- host ---------------------------------------------------------------------------------------
template <typename T, int kHeadDim>
struct Launcher {
  static constexpr bool kTakesHeadDim96 = true, kTakesHeadDim256 = true;
  static void run(const Attention<T>& a) {
    const unsigned tiles = (a.seq_len + Config::kWarps - 1) / Config::kWarps;
    launch<attention_kernel<T, kHeadDim>>(
        {dim3(tiles, a.heads, a.batch), dim3(Config::kWarps * 32)}, a);
  }
};

const Registration<Launcher> registration{"beyond/plain", Needs{}, Traits::kSlow,
                                          Takes{.causal = true,
                                                .any_length = true,
                                                .kv_heads = true,
                                                .packed = true,
                                                .lse = true,
                                                .paged = true,
                                                .strides = true,
                                                .window = true,
                                                .sinks = true,
                                                .softcap = true,
                                                .alibi = true}};

}  // namespace fa::plain
