// backward_plain: the gradients dQ, dK and dV, in the simplest way that is right.
//
// Idea         The forward pass has kept of each row only O and log-sum-exp, and that is enough: P
//              is computed again. One warp has a query and computes its row of dQ, one warp has a
//              key and computes its rows of dK and dV, so nobody adds to another one's sums.
// Bottleneck   None is removed: this is what other kernels of gradients are measured against. Each
//              score is computed twice, once for its query and once for its key.
// Run          cmake --build --preset emulator --target fa_gradient_tests &&
//              build/emulator/bin/fa_gradient_tests
#include "common/launch/gradients.h"
#include "common/launch/launch.h"
#include "common/ptx/convert.h"

namespace fa::backward_plain {

struct Config {
  static constexpr int kWarps = 4;  // per CTA, one row per warp
};

__device__ __forceinline__ float warp_sum(float value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

// A lane's kHeadDim / 32 columns of a row: lane 5 has columns 5, 37, 69 and 101 of 128.
template <typename T, int kHeadDim>
struct Columns {
  static constexpr int kCount = kHeadDim / 32;
  float at[kCount] = {};

  __device__ static Columns of(const T* row) {
    Columns result;
    for (int i = 0; i < kCount; i++) result.at[i] = ptx::to_float(row[32 * i + threadIdx.x % 32]);
    return result;
  }
  // The sum of the products of two rows, in all lanes.
  __device__ float dot(const Columns& other) const {
    float sum = 0.0f;
    for (int i = 0; i < kCount; i++) sum = fmaf(at[i], other.at[i], sum);
    return warp_sum(sum);
  }
  __device__ void add(float factor, const Columns& other) {
    for (int i = 0; i < kCount; i++) at[i] = fmaf(factor, other.at[i], at[i]);
  }
  __device__ void store(T* row, float factor) const {
    for (int i = 0; i < kCount; i++) {
      row[32 * i + threadIdx.x % 32] = ptx::from_float<T>(at[i] * factor);
    }
  }
};

// One sequence: where its queries and keys begin, and how many there are.
struct Place {
  int block, q_begin, kv_begin, q_len, kv_len;

  // Packed sequences are one behind the other within a head; others have a block of their own.
  template <typename T>
  __device__ static Place of(const Gradients<T>& a, int sequence) {
    if (!a.cu_seqlens_q) return {sequence, 0, 0, a.seq_len, a.kv_len};
    const int q_begin = a.cu_seqlens_q[sequence], kv_begin = a.cu_seqlens_kv[sequence];
    return {0, q_begin, kv_begin, a.cu_seqlens_q[sequence + 1] - q_begin,
            a.cu_seqlens_kv[sequence + 1] - kv_begin};
  }
};

// dQ: a warp has a row of Q and walks over its keys. One CTA has kWarps rows of one head
// (blockIdx.y) of one sequence (blockIdx.z).
template <typename T, int kHeadDim>
__global__ void query_kernel(Gradients<T> a) {
  using Row = Columns<T, kHeadDim>;
  const int head = blockIdx.y, query = blockIdx.x * Config::kWarps + threadIdx.x / 32;
  const Place place = Place::of(a, blockIdx.z);
  if (query >= place.q_len) return;
  const int kv_head = head / (a.heads / a.kv_heads), q_row = place.q_begin + query;
  const size_t in_o = a.o_strides.at(place.block, head, q_row);
  const size_t in_q = a.q_strides.at(place.block, head, q_row);
  const Row q = Row::of(a.q + in_q), d_o = Row::of(a.d_o + in_o);
  // A row of softmax has the sum 1, so what all its weights gain together they lose again: D.
  const float lost = d_o.dot(Row::of(a.o + in_o));
  const float lse = a.lse[(size_t(place.block) * a.heads + head) * a.q_rows + q_row];
  const int keys = a.mask == Mask::kCausal ? query + 1 + place.kv_len - place.q_len : place.kv_len;

  Row d_q;
  for (int key = 0; key < keys; key++) {
    const int kv_row = place.kv_begin + key;
    const Row k = Row::of(a.k + a.k_strides.at(place.block, kv_head, kv_row));
    const Row v = Row::of(a.v + a.v_strides.at(place.block, kv_head, kv_row));
    // [row]
    const float p = expf(q.dot(k) * a.scale - lse);
    d_q.add(p * (d_o.dot(v) - lost), k);  // dS K
    // [/row]
  }
  d_q.store(a.d_q + in_q, a.scale);
}

// dK and dV: a warp has a row of K and V and walks over the queries that see it, of all heads that
// read it.
template <typename T, int kHeadDim>
__global__ void key_kernel(Gradients<T> a) {
  using Row = Columns<T, kHeadDim>;
  const int kv_head = blockIdx.y, key = blockIdx.x * Config::kWarps + threadIdx.x / 32;
  const Place place = Place::of(a, blockIdx.z);
  if (key >= place.kv_len) return;
  const size_t in_k = a.k_strides.at(place.block, kv_head, place.kv_begin + key);
  const size_t in_v = a.v_strides.at(place.block, kv_head, place.kv_begin + key);
  const Row k = Row::of(a.k + in_k), v = Row::of(a.v + in_v);
  // The last query sees all keys, and each before it one key fewer.
  const int first = a.mask == Mask::kCausal ? max(key - (place.kv_len - place.q_len), 0) : 0;
  const int group = a.heads / a.kv_heads;

  Row d_k, d_v;
  for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
    for (int query = first; query < place.q_len; query++) {
      const int q_row = place.q_begin + query;
      const size_t in_o = a.o_strides.at(place.block, head, q_row);
      const Row q = Row::of(a.q + a.q_strides.at(place.block, head, q_row));
      const Row d_o = Row::of(a.d_o + in_o);
      const float lost = d_o.dot(Row::of(a.o + in_o));
      const float lse = a.lse[(size_t(place.block) * a.heads + head) * a.q_rows + q_row];
      // [column]
      const float p = expf(q.dot(k) * a.scale - lse);
      d_v.add(p, d_o);                      // P^T dO
      d_k.add(p * (d_o.dot(v) - lost), q);  // dS^T Q
      // [/column]
    }
  }
  d_k.store(a.d_k + in_k, a.scale);
  d_v.store(a.d_v + in_v, 1.0f);
}

// ---- host ---------------------------------------------------------------------------------------
template <typename T, int kHeadDim>
struct Launcher {
  static void run(const Gradients<T>& a) {
    const auto ctas = [](int rows) { return unsigned(rows + Config::kWarps - 1) / Config::kWarps; };
    const dim3 threads(Config::kWarps * 32);
    if (a.seq_len > 0) {
      launch<query_kernel<T, kHeadDim>>({dim3(ctas(a.seq_len), a.heads, a.batch), threads}, a);
    }
    if (a.kv_len > 0) {
      launch<key_kernel<T, kHeadDim>>({dim3(ctas(a.kv_len), a.kv_heads, a.batch), threads}, a);
    }
  }
};

const GradientRegistration<Launcher> registration{"backward_plain", Needs{},
                                                  Takes{.causal = true,
                                                        .any_length = true,
                                                        .kv_heads = true,
                                                        .packed = true,
                                                        .strides = true,
                                                        .deterministic = true}};

}  // namespace fa::backward_plain
