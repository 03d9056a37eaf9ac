// Running sums of 16,384 numbers (an inclusive scan): what CTAs may tell each other, and when.
//
//   scripts/fa emulate examples/scan.cu               without a GPU: runs, counts, checks
//   scripts/fa emulate examples/scan.cu unfenced      the third way without its fence: a report
//   nvcc -arch=sm_75 examples/scan.cu && ./a.out      on a GPU
//
// A CTA scans its 512 numbers on its own: each warp by shuffles, then the warps' sums. What it
// lacks is the sum of all CTAs before it. There are three ways to get it.
//
// In separate launches. scan_ctas leaves each CTA's sum in memory, add_before adds the sums of the
// CTAs before. The end of a launch orders everything, so nothing can go wrong. It costs a second
// walk through memory: add_before loads 9,984 sectors and stores 2,048.
//
// In one launch by looking back (Merrill and Garland, "Single-pass Parallel Prefix Scan with
// Decoupled Look-back", 2016). A CTA publishes its own sum, then walks back over its neighbours'
// words and adds what they have published, up to one that knows all before it. State and sum share
// one 64-bit word that is written and read by atomics alone: whoever sees the state sees the sum.
// What the emulator says of it: no race, the right sums, 31 steps back for 32 CTAs. That number is
// not a GPU's. The emulator lets a CTA's global atomics begin when all CTAs before it have ended,
// so every look back finds a neighbour that has finished. It cannot show how long a CTA would wait,
// nor that the scheme hangs if a CTA waits for one that has not begun. (A GPU promises no order
// either; a ticket from an atomic counter in place of blockIdx.x makes it safe.)
//
// In one launch by flags: a CTA stores its sum, executes a fence and stores a flag, on which the
// next CTA spins. Three things make it right. The flag is volatile, so the compiler asks memory
// each time. The fence before the flag puts the sum before it, and the fence behind the spin keeps
// the load of the sum from coming early. Leave the first one out, and the emulator ends the launch:
// "Before the second, its CTA met an atomic that the first one's CTA had executed. Missing: a
// __threadfence() between the first and that atomic." (A volatile access of global memory counts as
// an atomic.)
#include <cstdio>
#include <cstring>
#include <vector>

constexpr int kThreads = 512;  // per CTA: one number each
constexpr int kCtas = 32;
using Word = unsigned long long;  // the state in the upper 32 bits, a sum in the lower
constexpr Word kOwn = Word(1) << 32, kAll = Word(2) << 32;

// The sum of this thread's number and all before it in the CTA.
__device__ int scan_cta(int number) {
  __shared__ int sums[kThreads / 32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffff, number, step);
    if (lane >= step) number += other;
  }
  if (lane == 31) sums[warp] = number;
  __syncthreads();  // the sums of all warps are there
  for (int before = 0; before < warp; before++) number += sums[before];
  return number;
}

__global__ void scan_ctas(const int* in, int* out, int* sums) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const int sum = scan_cta(in[i]);
  out[i] = sum;
  if (threadIdx.x == kThreads - 1) sums[blockIdx.x] = sum;
}

__global__ void add_before(int* out, const int* sums) {
  int before = 0;
  for (int cta = 0; cta < blockIdx.x; cta++) before += sums[cta];
  out[blockIdx.x * kThreads + threadIdx.x] += before;
}

__global__ void scan_lookback(const int* in, int* out, Word* words) {
  __shared__ int before;
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const int sum = scan_cta(in[i]);
  if (threadIdx.x == kThreads - 1) {
    atomicExch(&words[blockIdx.x], kOwn | unsigned(sum));
    before = 0;
    for (int cta = int(blockIdx.x) - 1; cta >= 0; cta--) {
      Word word;
      do {
        word = atomicAdd(&words[cta], Word(0));  // reads
      } while (word < kOwn);
      before += int(unsigned(word));
      if (word >= kAll) break;
    }
    atomicExch(&words[blockIdx.x], kAll | unsigned(before + sum));
  }
  __syncthreads();  // `before` is known
  out[i] = before + sum;
}

template <bool kFenced>
__global__ void scan_flags(const int* in, int* out, int* sums, volatile int* flags) {
  __shared__ int before;
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const int sum = scan_cta(in[i]);
  // [flags]
  if (threadIdx.x == kThreads - 1) {
    before = 0;
    if (blockIdx.x > 0) {
      while (flags[blockIdx.x - 1] == 0) __nanosleep(100);
      __threadfence();
      before = sums[blockIdx.x - 1];
    }
    sums[blockIdx.x] = before + sum;
    if (kFenced) __threadfence();  // the sum is there before the flag
    flags[blockIdx.x] = 1;
  }
  __syncthreads();
  out[i] = before + sum;
  // [/flags]
}

int main(int argc, char** argv) {
  const int count = kCtas * kThreads;
  std::vector<int> numbers(count), result(count);
  for (int i = 0; i < count; i++) numbers[i] = i % 19 - 8;
  int *in, *out, *sums;
  Word* words;
  cudaMalloc(&in, count * sizeof(int));
  cudaMalloc(&out, count * sizeof(int));
  cudaMalloc(&sums, 2 * kCtas * sizeof(int));
  cudaMalloc(&words, kCtas * sizeof(Word));
  cudaMemcpy(in, numbers.data(), count * sizeof(int), cudaMemcpyHostToDevice);

  bool right = true;
  const char* const names[] = {"add_before", "scan_lookback", "scan_flags", "unfenced"};
  const bool unfenced = argc > 1 && strcmp(argv[1], "unfenced") == 0;
  for (int way = unfenced ? 3 : 0; way < (unfenced ? 4 : 3); way++) {
    cudaMemset(sums, 0, 2 * kCtas * sizeof(int));
    cudaMemset(words, 0, kCtas * sizeof(Word));
    if (way == 0) {
      scan_ctas<<<kCtas, kThreads>>>(in, out, sums);
      add_before<<<kCtas, kThreads>>>(out, sums);
    }
    if (way == 1) scan_lookback<<<kCtas, kThreads>>>(in, out, words);
    if (way == 2) scan_flags<true><<<kCtas, kThreads>>>(in, out, sums, sums + kCtas);
    if (way == 3) scan_flags<false><<<kCtas, kThreads>>>(in, out, sums, sums + kCtas);
    cudaMemcpy(result.data(), out, count * sizeof(int), cudaMemcpyDeviceToHost);
    for (int i = 0, sum = 0; i < count && right; i++) {
      right = result[i] == (sum += numbers[i]);
      if (!right) printf("%s: number %d is %d, not %d\n", names[way], i, result[i], sum);
    }
  }
  printf(right ? "right\n" : "wrong\n");
  return right ? 0 : 1;
}
