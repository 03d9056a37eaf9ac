// The softmax of each row of a matrix, one warp per row: the kernel that attention is built around.
//
//   scripts/fa emulate examples/softmax_row.cu             without a GPU: runs, counts, checks
//   nvcc -arch=sm_75 examples/softmax_row.cu && ./a.out    on one
//
// A row's largest element is subtracted before the exponentials, because e^100 overflows a float.
// That seems to need three passes over the row: the maximum, the sum of the exponentials, the
// division. softmax_three does that, and reads the row from memory three times. softmax_online
// needs two: it keeps a running maximum m and a running sum s, and when the maximum grows from m to
// m' it repairs the sum by the factor e^(m - m'). With m = 1, s = 1 and a new element 3, s becomes
// 1 * e^(1 - 3) + 1. The kernels of this repository do the same with tiles of keys (docs/
// 02_online_softmax.md).
//
// The numbers to look at are "global load" and "exp2" in the table after the run. The online kernel
// loads 12,288 sectors in place of 18,432, a third less, and pays with 150,528 exponentials in
// place of 98,304, since each element that it meets takes two.
#include <cmath>
#include <cstdio>
#include <vector>

constexpr int kColumns = 512;
constexpr int kRows = 96;
constexpr int kWarps = 4;  // per CTA: as many rows
constexpr unsigned kAllLanes = 0xffffffff;

// After five exchanges with the lanes 16, 8, 4, 2 and 1 away every lane has the result.
__device__ float max_of_warp(float value) {
  for (int step = 16; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, step));
  }
  return value;
}
__device__ float sum_of_warp(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

__global__ void softmax_three(const float* in, float* out) {
  const int row = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  in += row * kColumns;
  out += row * kColumns;
  float largest = -INFINITY;
  for (int i = lane; i < kColumns; i += 32) largest = fmaxf(largest, in[i]);
  largest = max_of_warp(largest);
  float sum = 0;
  for (int i = lane; i < kColumns; i += 32) sum += expf(in[i] - largest);
  sum = sum_of_warp(sum);
  for (int i = lane; i < kColumns; i += 32) out[i] = expf(in[i] - largest) / sum;
}

__global__ void softmax_online(const float* in, float* out) {
  const int row = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  in += row * kColumns;
  out += row * kColumns;
  // [online]
  float largest = -INFINITY, sum = 0;  // of the elements that this lane has seen
  for (int i = lane; i < kColumns; i += 32) {
    const float value = in[i], grown = fmaxf(largest, value);
    sum = sum * expf(largest - grown) + expf(value - grown);
    largest = grown;
  }
  // The lanes' maxima differ: each sum is brought to the row's before they are added.
  const float of_row = max_of_warp(largest);
  sum = sum_of_warp(sum * expf(largest - of_row));
  // [/online]
  for (int i = lane; i < kColumns; i += 32) out[i] = expf(in[i] - of_row) / sum;
}

int main() {
  const size_t bytes = kRows * kColumns * sizeof(float);
  std::vector<float> matrix(kRows * kColumns), result(kRows * kColumns);
  for (int i = 0; i < kRows * kColumns; i++) {
    // In even rows e^x overflows a float; in odd ones it is 0.
    matrix[i] = 0.25f * float(i * 37 % 101) + (i / kColumns % 2 == 0 ? 80 : -130);
  }
  float *in, *out;
  cudaMalloc(&in, bytes);
  cudaMalloc(&out, bytes);
  cudaMemcpy(in, matrix.data(), bytes, cudaMemcpyHostToDevice);

  bool right = true;
  for (const bool online : {false, true}) {
    cudaMemset(out, 0xff, bytes);
    if (online) {
      softmax_online<<<kRows / kWarps, kWarps * 32>>>(in, out);
    } else {
      softmax_three<<<kRows / kWarps, kWarps * 32>>>(in, out);
    }
    cudaMemcpy(result.data(), out, bytes, cudaMemcpyDeviceToHost);
    for (int row = 0; row < kRows; row++) {
      const float* const x = &matrix[row * kColumns];
      double largest = x[0], sum = 0;
      for (int i = 0; i < kColumns; i++) largest = std::fmax(largest, x[i]);
      for (int i = 0; i < kColumns; i++) sum += std::exp(x[i] - largest);
      for (int i = 0; i < kColumns; i++) {
        const double expected = std::exp(x[i] - largest) / sum;
        const double value = result[row * kColumns + i];
        if (right && !(std::fabs(value - expected) <= 1e-5 * expected)) {
          printf("softmax_%s: row %d, column %d is %g, not %g\n", online ? "online" : "three", row,
                 i, value, expected);
          right = false;
        }
      }
    }
  }
  cudaFree(in);
  cudaFree(out);
  printf(right ? "right\n" : "wrong\n");
  return right ? 0 : 1;
}
