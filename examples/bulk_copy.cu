// A tile there and back by TMA, in plain inline PTX: cp.async.bulk, an mbarrier, a proxy fence.
//
//   scripts/fa emulate examples/bulk_copy.cu            without a GPU: runs, counts, checks
//   nvcc -arch=sm_90 examples/bulk_copy.cu && ./a.out   on an H100 or H200
//
// doubled_by_threads loads 4,096 numbers per CTA into shared memory, doubles them there and stores
// them, 128 threads with 32 numbers each. In doubled_by_tma one thread starts a copy of all 16 KB,
// an engine does it, and the mbarrier tells when the bytes have come: every thread waits for the
// end of its phase 0. The copy back is started by one thread, too.
//
// The number to look at is how many requests move the tiles between global and shared memory: 256
// of "global load" and 256 of "global store" become 2 of "tma load" and 2 of "tma store".
//
//   bulk_copy unfenced    without the fence: threads write shared memory by another path than the
//                         engine reads it, so it may read what was there before; a report
#include <cstdint>
#include <cstdio>
#include <cstring>

constexpr int kTile = 4096, kThreads = 128, kCtas = 2;

__global__ void doubled_by_threads(float* x) {
  __shared__ float tile[kTile];
  float* const mine = x + blockIdx.x * kTile;
  for (int i = threadIdx.x; i < kTile; i += kThreads) tile[i] = mine[i];
  __syncthreads();
  for (int i = threadIdx.x; i < kTile; i += kThreads) tile[i] *= 2;
  __syncthreads();
  for (int i = threadIdx.x; i < kTile; i += kThreads) mine[i] = tile[i];
}

__global__ void doubled_by_tma(float* x, bool fenced) {
  __shared__ alignas(128) float tile[kTile];
  __shared__ uint64_t arrived;
  float* const mine = x + blockIdx.x * kTile;
  const auto shared_tile = uint32_t(__cvta_generic_to_shared(tile));
  const auto bar = uint32_t(__cvta_generic_to_shared(&arrived));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  // visible to the engine
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar),
                 "r"(int(sizeof tile))
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared_tile),
        "l"(mine), "r"(int(sizeof tile)), "r"(bar)
        : "memory");
  }
  __syncthreads();  // the mbarrier exists
  asm volatile(
      "{\n"
      ".reg .pred over;\n"
      "WAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], 0;\n"
      "@!over bra WAIT;\n"
      "}" ::"r"(bar)
      : "memory");

  for (int i = threadIdx.x; i < kTile; i += kThreads) tile[i] *= 2;

  if (fenced) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // in each writer
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(mine),
                 "r"(shared_tile), "r"(int(sizeof tile))
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // the tile lives until then
  }
}

int main(int count, char** words) {
  const bool fenced = count < 2 || std::strcmp(words[1], "unfenced") != 0;
  static float x[kCtas * kTile];
  for (int i = 0; i < kCtas * kTile; i++) x[i] = float(i);
  float* device;
  cudaMalloc(&device, sizeof x);
  cudaMemcpy(device, x, sizeof x, cudaMemcpyHostToDevice);
  doubled_by_threads<<<kCtas, kThreads>>>(device);
  doubled_by_tma<<<kCtas, kThreads>>>(device, fenced);
  cudaMemcpy(x, device, sizeof x, cudaMemcpyDeviceToHost);
  bool right = cudaGetLastError() == cudaSuccess;
  for (int i = 0; i < kCtas * kTile; i++) right = right && x[i] == 4 * float(i);
  std::printf("x[1] is %g: %s\n", x[1], right ? "right" : "wrong");
  return right ? 0 : 1;
}
