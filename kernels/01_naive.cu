// 01_naive: attention computed as the formula says it, with one thread per element.
//
// Idea         Three kernels make three passes: S = scale * QK^T, P = softmax(S), O = PV. Every
//              thread computes one element of the result on its own (in the second pass, one row).
// Bottleneck   None is removed: this is the start. S has N x N elements per head and crosses global
//              memory seven times: QK^T writes it, the softmax reads it three times and writes it
//              twice, and PV reads it again.
// Next         02 keeps S on the chip.
// Run          cmake --build --preset emulator --target 01_naive && build/emulator/bin/01_naive
#include "common/launch/launch.h"
#include "common/launch/registry.h"
#include "common/ptx/convert.h"

namespace fa::k01 {

struct Config {
  static constexpr int kTile = 16;         // a CTA computes 16 x 16 elements with 256 threads
  static constexpr int kRowThreads = 128;  // threads per CTA of the softmax, one row per thread
};

// Each thread has one element in passes 1 and 3. x is the fast index: lanes of a warp differ in x.
//
//              key (S) or column (O)
//            0 ...  16 x blockIdx.x + threadIdx.x
//          +-----------------------------
//    query |            .
//          |   one thread, one element
//    16 x blockIdx.y + threadIdx.y
//
// A warp is two rows of 16 threads, so its lanes read 16 different keys, head_dim elements apart.

// ---- pass 1: S = scale * QK^T -------------------------------------------------------------------
// [scores]
template <typename T, int kHeadDim>
__global__ void scores_kernel(const T* q, const T* k, float* s, int seq_len, float scale) {
  const int key = blockIdx.x * Config::kTile + threadIdx.x;
  const int query = blockIdx.y * Config::kTile + threadIdx.y;
  const size_t head = blockIdx.z;
  const T* gQ = q + (head * seq_len + query) * kHeadDim;  // [kHeadDim], this thread's row of Q
  const T* gK = k + (head * seq_len + key) * kHeadDim;    // [kHeadDim], this thread's row of K

  float acc_s = 0.0f;
  for (int d = 0; d < kHeadDim; d++) {
    acc_s = fmaf(ptx::to_float(gQ[d]), ptx::to_float(gK[d]), acc_s);
  }
  s[(head * seq_len + query) * seq_len + key] = acc_s * scale;
}
// [/scores]

// ---- pass 2: P = softmax(S), in place -----------------------------------------------------------
// [softmax]
__global__ void softmax_kernel(float* s, int seq_len) {
  const int query = blockIdx.x * Config::kRowThreads + threadIdx.x;
  const size_t head = blockIdx.y;
  float* gS = s + (head * seq_len + query) * seq_len;  // [seq_len], this thread's row of S

  // The largest score is subtracted, because e^x overflows for x > 88; the quotient is the same.
  float row_max = -INFINITY;
  for (int key = 0; key < seq_len; key++) row_max = fmaxf(row_max, gS[key]);
  float row_sum = 0.0f;
  for (int key = 0; key < seq_len; key++) {
    const float p = expf(gS[key] - row_max);
    gS[key] = p;
    row_sum += p;
  }
  const float inverse_sum = 1.0f / row_sum;
  for (int key = 0; key < seq_len; key++) gS[key] *= inverse_sum;
}
// [/softmax]

// ---- pass 3: O = PV -----------------------------------------------------------------------------
// [output]
template <typename T, int kHeadDim>
__global__ void output_kernel(const float* p, const T* v, T* o, int seq_len) {
  const int column = blockIdx.x * Config::kTile + threadIdx.x;
  const int query = blockIdx.y * Config::kTile + threadIdx.y;
  const size_t head = blockIdx.z;
  const float* gP = p + (head * seq_len + query) * seq_len;  // [seq_len], this thread's row of P
  const T* gV = v + head * seq_len * kHeadDim + column;  // [seq_len] with stride kHeadDim: a column

  float acc_o = 0.0f;
  for (int key = 0; key < seq_len; key++) {
    acc_o = fmaf(gP[key], ptx::to_float(gV[size_t(key) * kHeadDim]), acc_o);
  }
  o[(head * seq_len + query) * kHeadDim + column] = ptx::from_float<T>(acc_o);
}
// [/output]

// ---- host ---------------------------------------------------------------------------------------
template <typename T, int kHeadDim>
struct Launcher {
  // S is fp32, [heads at a time][seq_len][seq_len]. All heads share one launch if the limit allows,
  // otherwise as many as fit, but at least one.
  static size_t workspace_bytes(const Problem& problem, size_t limit) {
    const size_t head_bytes = size_t(problem.seq_len) * problem.seq_len * sizeof(float);
    const size_t fit = limit / head_bytes;
    const size_t heads = fit < 1 ? 1 : fit < problem.head_count() ? fit : problem.head_count();
    return heads * head_bytes;
  }

  static void run(const Attention<T>& a) {
    const int n = a.seq_len;
    const size_t heads = size_t(a.batch) * a.heads;
    const size_t heads_at_a_time = a.workspace_bytes / (size_t(n) * n * sizeof(float));
    float* const s = static_cast<float*>(a.workspace);
    for (size_t first = 0; first < heads; first += heads_at_a_time) {
      const unsigned count = heads - first < heads_at_a_time ? heads - first : heads_at_a_time;
      const size_t offset = first * n * kHeadDim;  // elements before this head
      const dim3 block(Config::kTile, Config::kTile);
      launch<scores_kernel<T, kHeadDim>>({dim3(n / Config::kTile, n / Config::kTile, count), block},
                                         a.q + offset, a.k + offset, s, n, a.scale);
      launch<softmax_kernel>({dim3(n / Config::kRowThreads, count), dim3(Config::kRowThreads)}, s,
                             n);
      launch<output_kernel<T, kHeadDim>>(
          {dim3(kHeadDim / Config::kTile, n / Config::kTile, count), block}, (const float*)s,
          a.v + offset, a.o + offset, n);
    }
  }
};

const Registration<Launcher> registration{"01_naive", {}, Traits::kSlow};

}  // namespace fa::k01
