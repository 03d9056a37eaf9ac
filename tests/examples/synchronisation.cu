// One small kernel for each kind of synchronisation; docs/appendix/synchronisation.md shows them.
// Each reads `in`, 0, 1, 2 ..., and what it must write to `out` is in the list at the end.
//
// The file is compiled twice: as it is, and without the lines that end in "// <-". The program
// `examples` runs both, in the fixed order and in random ones.
#include "tests/examples/examples.h"

#include "common/launch/launch.h"
#include "common/ptx/barrier.h"
#include "common/ptx/cluster.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/setmaxnreg.h"
#include "common/ptx/tma.h"
#include "common/ptx/wgmma.h"

#ifndef FA_EXAMPLES  // the namespace of this copy
#define FA_EXAMPLES as_it_is
#endif
namespace fa::FA_EXAMPLES {

constexpr uint32_t kAllLanes = 0xffffffff;

struct Storage {
  alignas(1024) float words[4096];
  alignas(8) uint64_t full[2], empty[2];
};

// [syncwarp]
// Lanes of a warp exchange numbers through shared memory.
__global__ void syncwarp(const float* in, float* out) {
  auto& smem = shared_storage<Storage>();
  const int lane_idx = threadIdx.x;
  smem.words[lane_idx] = in[lane_idx];
  __syncwarp();  // <-
  out[lane_idx] = smem.words[lane_idx ^ 1];
}
// [/syncwarp]

// [shuffle]
// The sum over each quad, as a row's sum in kernels 05 to 16. The exchange itself waits for the
// lanes of its mask.
__global__ void shuffle(const float* in, float* out) {
  float sum = in[threadIdx.x];
  sum += __shfl_xor_sync(kAllLanes, sum, 1);
  sum += __shfl_xor_sync(kAllLanes, sum, 2);  // <-
  out[threadIdx.x] = sum;
}
// [/shuffle]

// [syncthreads]
// A CTA of two warps reverses a vector.
__global__ void syncthreads(const float* in, float* out) {
  auto& smem = shared_storage<Storage>();
  smem.words[threadIdx.x] = in[threadIdx.x];
  __syncthreads();  // <-
  out[threadIdx.x] = smem.words[63 - threadIdx.x];
}
// [/syncthreads]

// [named-barrier]
// Warp 0 writes and goes on, warp 1 waits and reads. 64 threads come to barrier 1, but only those
// of warp 1 wait there.
__global__ void named_barrier(const float* in, float* out) {
  auto& smem = shared_storage<Storage>();
  const int warp_idx = threadIdx.x / 32, lane_idx = threadIdx.x % 32;
  if (warp_idx == 0) {
    smem.words[lane_idx] = in[lane_idx];
    ptx::barrier_arrive(1, 64);
    out[32 + lane_idx] = in[32 + lane_idx];
  } else {
    ptx::barrier_sync(1, 64);  // <-
    out[lane_idx] = smem.words[lane_idx];
  }
}
// [/named-barrier]

// [cp-async]
// Each of 64 threads copies 16 bytes in each of two groups, then reads what others have copied.
__global__ void cp_async(const float* in, float* out) {
  auto& smem = shared_storage<Storage>();
  const int thread = threadIdx.x;
  for (int group = 0; group < 2; group++) {
    const int first = group * 256 + thread * 4;
    ptx::cp_async<16>(ptx::shared_address(&smem.words[first]), in + first);
    ptx::cp_async_commit();
  }
  ptx::cp_async_wait<1>();  // <-
  __syncthreads();          // the wait was for this thread's copies only
  out[thread] = smem.words[255 - thread];
  ptx::cp_async_wait<0>();
  __syncthreads();
  out[64 + thread] = smem.words[511 - thread];
}
// [/cp-async]

// [mbarrier]
// Warp 0 fills a ring of two stages four times, and warp 1 empties it. Each waits only for the
// other, and no longer than it must.
__global__ void mbarrier(const float* in, float* out) {
  auto& smem = shared_storage<Storage>();
  const int warp_idx = threadIdx.x / 32, lane_idx = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < 2; stage++) {
      ptx::mbarrier_init(&smem.full[stage], 32);  // arrivals that end a phase
      ptx::mbarrier_init(&smem.empty[stage], 32);
    }
  }
  __syncthreads();
  for (int tile = 0; tile < 4; tile++) {
    const int stage = tile % 2, parity = tile / 2 % 2;
    float& word = smem.words[stage * 32 + lane_idx];
    if (warp_idx == 0) {
      ptx::mbarrier_wait(&smem.empty[stage],
                         parity ^ 1);  // over at once when new: see common/ptx/mbarrier.h
      word = in[tile * 32 + lane_idx];
      ptx::mbarrier_arrive(&smem.full[stage]);
    } else {
      ptx::mbarrier_wait(&smem.full[stage], parity);  // <-
      out[tile * 32 + lane_idx] = word;
      ptx::mbarrier_arrive(&smem.empty[stage]);
    }
  }
}
// [/mbarrier]

// [expect-tx]
// One thread orders 256 bytes. The barrier's phase ends when that thread has arrived and the bytes
// are written.
__global__ void expect_tx(const float* in, float* out) {
  auto& smem = shared_storage<Storage>();
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&smem.full[0], 1);
    ptx::fence_mbarrier_init();  // for the copy engine: __syncthreads() does not reach it
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(&smem.full[0], 256);
    ptx::cp_async_bulk_load(smem.words, in, 256, &smem.full[0]);
  }
  ptx::mbarrier_wait(&smem.full[0], 0);  // <-
  out[threadIdx.x] = smem.words[63 - threadIdx.x];
}
// [/expect-tx]

// [proxy-fence]
// The copy engine reads by another proxy what threads have written. So each of them executes a
// fence, and then comes a barrier.
__global__ void proxy_fence(const float* in, float* out) {
  auto& smem = shared_storage<Storage>();
  smem.words[threadIdx.x] = in[threadIdx.x];
  ptx::fence_proxy_async();  // <-
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::cp_async_bulk_store(out, smem.words, 256);
    ptx::cp_async_bulk_commit();
    ptx::cp_async_bulk_wait<0>();  // until it is written: the CTA may not end before
  }
}
// [/proxy-fence]

// [wait-read]
// The buffer of a store is used again: .read waits until the engine has read it, not until out is
// written.
__global__ void wait_read(const float* in, float* out) {
  auto& smem = shared_storage<Storage>();
  for (int tile = 0; tile < 2; tile++) {
    smem.words[threadIdx.x] = in[tile * 32 + threadIdx.x];
    ptx::fence_proxy_async();
    __syncwarp();
    if (threadIdx.x == 0) {
      ptx::cp_async_bulk_store(out + tile * 32, smem.words, 128);
      ptx::cp_async_bulk_commit();
      ptx::cp_async_bulk_wait_read<0>();  // <-
    }
    __syncwarp();
  }
  if (threadIdx.x == 0) ptx::cp_async_bulk_wait<0>();
}
// [/wait-read]

// [wgmma]
// D = A B, 64 x 64 x 16, all ones: every element of D is 16.
__global__ void __launch_bounds__(128) wgmma(const float*, float* out) {
  auto& smem = shared_storage<Storage>();
  auto* const ones = reinterpret_cast<__half*>(smem.words);  // a slab of 64 rows, 128 bytes each
  for (int i = threadIdx.x; i < 64 * 64; i += 128) ones[i] = __float2half(1.0f);
  ptx::fence_proxy_async();
  __syncthreads();
  float acc[32];
  const uint64_t desc = layout::k_major_descriptor(ptx::shared_address(smem.words));
  ptx::wgmma_fence(acc);
  ptx::wgmma<__half, 64>(acc, desc, desc, false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(acc);  // <-
  out[threadIdx.x] = acc[threadIdx.x % 32];
}
// [/wgmma]

// [setmaxnreg]
// 384 threads begin with 168 registers each. Two warpgroups can have 240 when the third has given
// its own back.
__global__ void __launch_bounds__(384, 1) setmaxnreg(const float* in, float* out) {
  if (threadIdx.x < 128) {
    ptx::setmaxnreg_dec<24>();  // <-
  } else {
    ptx::setmaxnreg_inc<240>();
  }
  out[threadIdx.x] = in[threadIdx.x];
}
// [/setmaxnreg]

// [cluster]
// Two CTAs read each other's shared memory. The second barrier keeps a CTA from ending while the
// other one reads.
__global__ void cluster(const float* in, float* out) {
  auto& smem = shared_storage<Storage>();
  const int rank = ptx::cluster_ctarank();
  smem.words[threadIdx.x] = in[rank * 32 + threadIdx.x];
  ptx::cluster_arrive();  // <-
  ptx::cluster_wait();    // <-
  out[rank * 32 + threadIdx.x] = *ptx::mapa(&smem.words[threadIdx.x], rank ^ 1);
  ptx::cluster_arrive();
  ptx::cluster_wait();
}
// [/cluster]

namespace {

template <auto kKernel>
void start(int ctas, int threads, const float* in, float* out) {
  launch<kKernel>({dim3(unsigned(ctas)), dim3(unsigned(threads)), sizeof(Storage), ctas}, in, out);
}

}  // namespace

std::vector<Example> examples() {
  const auto same = [](int i) { return float(i); };
  return {
      {"syncwarp", 1, 32, 32, start<syncwarp>, [](int i) { return float(i ^ 1); }},
      {"shuffle", 1, 32, 32, start<shuffle>, [](int i) { return float(i / 4 * 16 + 6); }},
      {"syncthreads", 1, 64, 64, start<syncthreads>, [](int i) { return float(63 - i); }},
      {"named_barrier", 1, 64, 64, start<named_barrier>, same},
      {"cp_async", 1, 64, 128, start<cp_async>,
       [](int i) { return float(i < 64 ? 255 - i : 511 - (i - 64)); }},
      {"mbarrier", 1, 64, 128, start<mbarrier>, same},
      {"expect_tx", 1, 64, 64, start<expect_tx>, [](int i) { return float(63 - i); }},
      {"proxy_fence", 1, 64, 64, start<proxy_fence>, same},
      {"wait_read", 1, 32, 64, start<wait_read>, same},
      {"wgmma", 1, 128, 128, start<wgmma>, [](int) { return 16.0f; }},
      {"setmaxnreg", 1, 384, 384, start<setmaxnreg>, same},
      {"cluster", 2, 32, 64, start<cluster>, [](int i) { return float(i ^ 32); }},
  };
}

}  // namespace fa::FA_EXAMPLES
