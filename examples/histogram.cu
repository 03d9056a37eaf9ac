// How often each of 64 values occurs: atomics, and where they should be.
//
//   scripts/fa emulate examples/histogram.cu             without a GPU: runs, counts, checks
//   nvcc -arch=sm_75 examples/histogram.cu && ./a.out    on one
//
// All threads add to the same few counters. Without an atomic, two threads read 5, both store 6,
// and one count is lost; the checked build of the emulator reports that as a race (try it: replace
// atomicAdd(&bins[...], 1) by bins[...]++).
//
// histogram_global adds every value in global memory. histogram_shared counts in shared memory, a
// histogram per CTA, and each CTA adds its 64 sums to global memory once. histogram_copies has four
// histograms per CTA, so that fewer lanes of a warp meet in one counter.
//
// The numbers to look at are the lines "atomic" in the table after the run. Global atomics go from
// 2,048 requests to 32. In shared memory the lanes that want one bank come one after another: half
// of these values are 0, so the 2,048 requests take 33,735 wavefronts with one histogram and 12,567
// with four. (How many passes an atomic takes is a model of the emulator, not measured.)
#include <cstdio>
#include <vector>

constexpr int kBins = 64;
constexpr int kThreads = 256;
constexpr int kCtas = 16;
constexpr int kCopies = 4;

__global__ void histogram_global(const int* values, unsigned* bins, int count) {
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < count; i += kCtas * kThreads) {
    atomicAdd(&bins[values[i]], 1);
  }
}

__global__ void histogram_shared(const int* values, unsigned* bins, int count) {
  __shared__ unsigned mine[kBins];
  if (threadIdx.x < kBins) mine[threadIdx.x] = 0;
  __syncthreads();  // all counters are zero
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < count; i += kCtas * kThreads) {
    atomicAdd(&mine[values[i]], 1);
  }
  __syncthreads();  // all values are counted
  if (threadIdx.x < kBins) atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}

// [copies]
// Lane l counts in copy l mod 4. A pitch of 65 puts the copies of one bin in different banks.
__global__ void histogram_copies(const int* values, unsigned* bins, int count) {
  constexpr int kPitch = kBins + 1;
  __shared__ unsigned mine[kCopies * kPitch];
  for (int i = threadIdx.x; i < kCopies * kPitch; i += kThreads) mine[i] = 0;
  __syncthreads();
  unsigned* const copy = mine + threadIdx.x % kCopies * kPitch;
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < count; i += kCtas * kThreads) {
    atomicAdd(&copy[values[i]], 1);
  }
  __syncthreads();
  if (threadIdx.x < kBins) {
    unsigned sum = 0;
    for (int i = 0; i < kCopies; i++) sum += mine[i * kPitch + threadIdx.x];
    atomicAdd(&bins[threadIdx.x], sum);
  }
}
// [/copies]

int main() {
  const int count = 1 << 16;
  std::vector<int> numbers(count);
  std::vector<unsigned> expected(kBins), result(kBins);
  unsigned random = 1;
  for (int i = 0; i < count; i++) {
    random = random * 1664525 + 1013904223;
    numbers[i] = random >> 31 ? 0 : random >> 20 & (kBins - 1);
    expected[numbers[i]]++;
  }
  int* values;
  unsigned* bins;
  cudaMalloc(&values, count * sizeof(int));
  cudaMalloc(&bins, kBins * sizeof(unsigned));
  cudaMemcpy(values, numbers.data(), count * sizeof(int), cudaMemcpyHostToDevice);

  bool right = true;
  const char* const names[] = {"histogram_global", "histogram_shared", "histogram_copies"};
  for (int variant = 0; variant < 3; variant++) {
    cudaMemset(bins, 0, kBins * sizeof(unsigned));
    if (variant == 0) histogram_global<<<kCtas, kThreads>>>(values, bins, count);
    if (variant == 1) histogram_shared<<<kCtas, kThreads>>>(values, bins, count);
    if (variant == 2) histogram_copies<<<kCtas, kThreads>>>(values, bins, count);
    cudaMemcpy(result.data(), bins, kBins * sizeof(unsigned), cudaMemcpyDeviceToHost);
    for (int i = 0; i < kBins && right; i++) {
      right = result[i] == expected[i];
      if (!right) {
        printf("%s: value %d occurs %u times, not %u\n", names[variant], i, expected[i], result[i]);
      }
    }
  }
  cudaFree(values);
  cudaFree(bins);
  printf(right ? "right\n" : "wrong\n");
  return right ? 0 : 1;
}
