// The sum of 262,144 floats: the first kernel after "vector add" in which threads need each other.
//
//   scripts/fa emulate examples/reduction.cu             without a GPU: runs, counts, checks
//   nvcc -arch=sm_75 examples/reduction.cu && ./a.out    on one
//
// Each CTA adds up its share in three steps. First, every thread walks through global memory with
// the whole grid as its stride and keeps a sum in a register. Then the 32 lanes of a warp add up
// their registers by shuffles, which need no memory and no barrier. At last each warp leaves one
// number in shared memory, and the first warp adds up these eight.
//
// The number to look at is in the line "barrier" of the table after the run. The tree in shared
// memory (sum_tree) needs a barrier per round, 2,048 in all, counted per warp; the shuffles need
// one per CTA, 256 in all. Shared memory sees 1,440 requests of the tree and 288 of the shuffles.
//
// What the emulator does not count: in the tree's last five rounds most lanes of the only working
// warp have nothing to do. It counts instructions of warps, whatever the number of their lanes.
#include <cmath>
#include <cstdio>
#include <vector>

constexpr int kThreads = 256;  // per CTA: 8 warps
constexpr int kCtas = 32;

// [shuffles]
// Lane 0 gets the sum over its warp: 16, 8, 4, 2 and 1 lanes up, each lane adds what the lane
// `step` above it holds.
__device__ float sum_of_warp(float sum) {
  for (int step = warpSize / 2; step > 0; step /= 2) {
    sum += __shfl_down_sync(0xffffffff, sum, step);
  }
  return sum;
}

__global__ void sum_shuffle(const float* in, float* out, int count) {
  __shared__ float sums[kThreads / 32];  // one per warp
  const int warp = threadIdx.x / warpSize, lane = threadIdx.x % warpSize;

  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    sum += in[i];  // neighbouring threads read neighbouring floats: 4 sectors of 32 bytes per warp
  }
  sum = sum_of_warp(sum);
  if (lane == 0) sums[warp] = sum;
  __syncthreads();  // the first warp reads what all warps have stored
  if (warp == 0) {
    sum = sum_of_warp(lane < kThreads / 32 ? sums[lane] : 0);
    if (lane == 0) atomicAdd(out, sum);  // CTAs add to one number
  }
}
// [/shuffles]

// The same with a tree in shared memory, as most introductions show it.
__global__ void sum_tree(const float* in, float* out, int count) {
  __shared__ float sums[kThreads];
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    sum += in[i];
  }
  sums[threadIdx.x] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();  // the round before is complete
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) atomicAdd(out, sums[0]);
}

int main() {
  const int count = 1 << 18;
  std::vector<float> numbers(count);
  double expected = 0;
  for (int i = 0; i < count; i++) {
    numbers[i] = float(i % 7);
    expected += numbers[i];
  }
  float *in, *out;  // on the device
  cudaMalloc(&in, count * sizeof(float));
  cudaMalloc(&out, sizeof(float));
  cudaMemcpy(in, numbers.data(), count * sizeof(float), cudaMemcpyHostToDevice);

  bool right = true;
  for (const bool tree : {false, true}) {
    cudaMemset(out, 0, sizeof(float));
    if (tree) {
      sum_tree<<<kCtas, kThreads>>>(in, out, count);
    } else {
      sum_shuffle<<<kCtas, kThreads>>>(in, out, count);
    }
    float sum = NAN;
    cudaMemcpy(&sum, out, sizeof(float), cudaMemcpyDeviceToHost);
    right = right && std::fabs(sum - expected) < 1;
    printf("%-12s %.1f, expected %.1f\n", tree ? "sum_tree" : "sum_shuffle", sum, expected);
  }
  cudaFree(in);
  cudaFree(out);
  printf(right ? "right\n" : "wrong\n");
  return right ? 0 : 1;
}
