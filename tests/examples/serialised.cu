// Kernels about which ptxas has something to say; docs/appendix/compiling.md shows what (scripts/fa
// ptxas). None of them is launched. Each makes a product, acc = A B, and does one thing that stands
// in the way of its asynchrony.
#include "common/launch/launch.h"
#include "common/ptx/setmaxnreg.h"
#include "common/ptx/wgmma.h"

struct Storage {
  alignas(1024) __half a[64 * 64];
};

__device__ __forceinline__ void store(float* out, const float (&acc)[32]) {
#pragma unroll
  for (int i = 0; i < 32; i++) out[i * 128 + threadIdx.x] = acc[i];
}

__device__ __forceinline__ uint64_t operand() {
  return layout::k_major_descriptor(ptx::shared_address(fa::shared_storage<Storage>().a));
}

// [right]
__global__ void __launch_bounds__(128) right(float* out) {
  float acc[32];
  ptx::wgmma_fence(acc);
  ptx::wgmma<__half, 64>(acc, operand(), operand(), false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(acc);
  store(out, acc);
}
// [/right]

// [read-too-early]
__global__ void __launch_bounds__(128) read_too_early(float* out) {
  float acc[32];
  ptx::wgmma_fence(acc);
  ptx::wgmma<__half, 64>(acc, operand(), operand(), false);
  ptx::wgmma_commit();
  out[threadIdx.x] = acc[3];
  ptx::wgmma_wait<0>(acc);
  store(out, acc);
}
// [/read-too-early]

// [wait-in-a-branch]
__global__ void __launch_bounds__(128) wait_in_a_branch(float* out, bool wait) {
  float acc[32];
  ptx::wgmma_fence(acc);
  ptx::wgmma<__half, 64>(acc, operand(), operand(), false);
  ptx::wgmma_commit();
  if (wait) ptx::wgmma_wait<0>(acc);
  store(out, acc);
}
// [/wait-in-a-branch]

// [changed-between]
__global__ void __launch_bounds__(128) changed_between(float* out) {
  float acc[32];
  ptx::wgmma_fence(acc);
  ptx::wgmma<__half, 64>(acc, operand(), operand(), false);
#pragma unroll
  for (int i = 0; i < 32; i++) acc[i] *= 2;
  ptx::wgmma<__half, 64>(acc, operand(), operand(), true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(acc);
  store(out, acc);
}
// [/changed-between]

// [no-fence]
__global__ void __launch_bounds__(128) no_fence(float* out) {
  float acc[32];
#pragma unroll
  for (int i = 0; i < 32; i++) acc[i] = out[i];
  ptx::wgmma<__half, 64>(acc, operand(), operand(), true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(acc);
  store(out, acc);
}
// [/no-fence]

// [no-launch-bounds]
__global__ void no_launch_bounds(float* out) {
  if (threadIdx.x < 128) {
    ptx::setmaxnreg_dec<24>();
  } else {
    ptx::setmaxnreg_inc<240>();
  }
  out[threadIdx.x] = 1;
}
// [/no-launch-bounds]
