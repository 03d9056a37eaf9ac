// The wrappers beside this file call these hooks for a recorder of timelines. They are empty and
// leave no instruction: only the twin of a kernel, which is compiled to record, has others
// (common/trace/record.h).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#if !defined(__CUDACC__) && !defined(FA_WITH_CUDA)
#include "common/emulator/core/lane.h"
#endif

namespace ptx {

enum class Event : uint32_t {
  kBegin,  // of the kernel
  kSyncthreads,
  kBarSync,      // detail: the barrier
  kBarArrive,    // likewise
  kClusterWait,  // barrier.cluster
  kClusterArrive,
  kMbarrierWait,           // detail: the barrier's shared address / 8
  kMbarrierArrive,         // likewise
  kMbarrierArriveCluster,  // another CTA's
  kMbarrierExpectTx,       // detail: bytes / 16
  kLoadTensor,             // detail: of the mbarrier that is told, its shared address / 8
  kLoadTensorMulticast,    // likewise
  kLoadBulk,               // likewise
  kStoreTensor,
  kStoreBulk,
  kReduceBulk,
  kBulkCommit,
  kBulkWait,      // detail: groups that may be under way
  kBulkWaitRead,  // likewise
  kCopyCommit,    // cp.async
  kCopyWait,      // detail: groups that may be under way
  kWgmmaFence,
  kWgmmaCommit,  // detail: N / 8 of the group's products, 64 times their number
  kWgmmaWait,    // detail: groups that may be under way
  kCount
};

// Where: the place where a wrapper is called, its last parameter.
#if !defined(__CUDACC__) && !defined(FA_WITH_CUDA)
using Where = emu::SourceLocation;
#endif

#if defined(__CUDACC__) && !defined(FA_RECORDING)

struct Where {
  static constexpr __device__ Where current() { return {}; }
};

// The kernel begins.
__device__ __forceinline__ void begin_recording() {}

// Something happens; `detail` is a number, or the mbarrier.
template <typename Detail = int>
__device__ __forceinline__ void record(Event, Where, Detail = {}) {}

// A product of N columns; the group of products that a commit closes.
__device__ __forceinline__ void record_product(int) {}
__device__ __forceinline__ void record_products(Where) {}

// Something lasts until the end of the block.
struct Recorded {
  template <typename Detail>
  __device__ __forceinline__ Recorded(Event, Where, Detail) {}
  __device__ __forceinline__ ~Recorded() {}  // otherwise compilers warn of variables without use
};

#endif

}  // namespace ptx
