// Launching a kernel, on a GPU or on the emulator, and what the launch used.
#pragma once

// IWYU pragma: begin_exports
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
// IWYU pragma: end_exports
#include <string>

#include "common/launch/device.h"   // IWYU pragma: export
#include "common/launch/problem.h"  // IWYU pragma: export
#ifdef __CUDACC__
#include "common/ptx/hook.h"
#endif
#ifdef FA_RECORDING
#include "common/trace/recorder.h"
#endif

namespace fa {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  // sizeof(SharedStorage)
  int cluster = 1;          // CTAs of a cluster, neighbours in x (common/ptx/cluster.h)
};

// What the kernels launched since reset() use: the most of each, by any of them.
struct LaunchRecord {
  const char* kernel = "kernel";  // the name that messages give
  int registers = 0;              // a thread; 0 on the emulator
  size_t shared_bytes = 0;        // a CTA
  size_t local_bytes = 0;         // a thread's spilled registers and arrays; 0 on the emulator
  void add(int registers, size_t shared_bytes, size_t local_bytes);
};
LaunchRecord& launch_record();  // this thread's

// The stream that takes this thread's launches, a cudaStream_t; null: the default stream. run()
// (common/launch/registry.h) sets it for the launches of one kernel. The emulator has no streams.
void*& launch_stream();

// Throws Unsupported if a CTA cannot have this much shared memory on the GPU present.
void check_shared_bytes(size_t shared_bytes);

// Throws BackendError if the grid cannot be cut in clusters, and Unsupported if the GPU has none.
void check_cluster(const LaunchShape& shape, int capability = device_capability());

}  // namespace fa

// What kernel code is being compiled for, 90 for sm_90; the emulator counts as sm_90, unless the
// compiler's command line says another. 0 in nvcc's passes for the host, which ask
// compiled_architecture().
#ifndef FA_WITH_CUDA
#ifndef FA_ARCHITECTURE
#define FA_ARCHITECTURE 90
#endif
#elif defined(__CUDA_ARCH__)
#define FA_ARCHITECTURE (__CUDA_ARCH__ / 10)
#else
#define FA_ARCHITECTURE 0
#endif

#ifdef FA_WITH_CUDA

namespace fa {

// Throws BackendError with the sentence for a CUDA error.
void check_cuda(cudaError_t error, const char* what);

// The kernel's attributes on the current device, where it may then be launched with so many bytes
// of dynamic shared memory. Throws Unsupported or BackendError.
cudaFuncAttributes prepare_kernel(const void* kernel, size_t shared_bytes);

// A launch in clusters, as CUDA's functions take it.
struct ClusterLaunch {
  explicit ClusterLaunch(const LaunchShape& shape) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {unsigned(shape.cluster), 1, 1};
    configuration.gridDim = shape.grid;
    configuration.blockDim = shape.block;
    configuration.dynamicSmemBytes = shape.shared_bytes;
    configuration.attrs = &attribute;
    configuration.numAttrs = 1;
  }
  ClusterLaunch(const ClusterLaunch&) = delete;  // it points to itself
  cudaLaunchAttribute attribute{};
  cudaLaunchConfig_t configuration{};
};

// How many clusters of a kernel can run at the same time. A cluster is on SMs of one GPC, a part of
// the GPU, where SMs may be left that are too few for another one. 0: none of this size can. Throws
// BackendError.
int clusters_at_once(const void* kernel, const LaunchShape& shape);

#ifdef __CUDACC__
template <auto kKernel>
int clusters_at_once(const LaunchShape& shape) {
  prepare_kernel(reinterpret_cast<const void*>(kKernel), shape.shared_bytes);
  return clusters_at_once(reinterpret_cast<const void*>(kKernel), shape);
}

// At the kernel's begin. The CTA's shared memory as the kernel's own struct; the launch's
// shared_bytes is its sizeof.
template <typename SharedStorage>
__device__ __forceinline__ SharedStorage& shared_storage() {
  extern __shared__ __align__(1024) unsigned char fa_shared_memory[];
  ptx::begin_recording();
  return *reinterpret_cast<SharedStorage*>(fa_shared_memory);
}

// The FA_ARCHITECTURE of the kernel's code that runs on the GPU present.
template <auto kKernel>
int compiled_architecture() {
  return prepare_kernel(reinterpret_cast<const void*>(kKernel), 0).ptxVersion;
}

// launch<kernel<T, 128>>({grid, block, sizeof(SharedStorage)}, arguments...): kernel<<<...>>>(...)
// with the checks that everyone forgets. Throws Unsupported or BackendError. Asynchronous.
template <auto kKernel, typename... Arguments>
void launch(const LaunchShape& shape, Arguments... arguments) {
  const cudaFuncAttributes attributes =
      prepare_kernel(reinterpret_cast<const void*>(kKernel), shape.shared_bytes);
  launch_record().add(attributes.numRegs, shape.shared_bytes + attributes.sharedSizeBytes,
                      attributes.localSizeBytes);
#ifdef FA_RECORDING
  RecordedLaunch recorded(shape);
  if (!(ptx::known_record_target == recorded.target())) {
    ptx::known_record_target = recorded.target();
    check_cuda(cudaMemcpyToSymbol(ptx::record_target, &ptx::known_record_target,
                                  sizeof ptx::known_record_target),
               "telling a kernel where to record");
  }
#endif
  if (shape.cluster == 1) {
    const auto stream = static_cast<cudaStream_t>(launch_stream());
    kKernel<<<shape.grid, shape.block, shape.shared_bytes, stream>>>(arguments...);
    check_cuda(cudaGetLastError(), launch_record().kernel);
  } else {
    check_cluster(shape);
    ClusterLaunch in_clusters(shape);
    in_clusters.configuration.stream = static_cast<cudaStream_t>(launch_stream());
    check_cuda(cudaLaunchKernelEx(&in_clusters.configuration, kKernel, arguments...),
               launch_record().kernel);
  }
#ifdef FA_RECORDING
  recorded.finish();
#endif
}
#endif

}  // namespace fa

#else

#include "common/emulator/core/lane.h"
#include "common/emulator/core/launch.h"

namespace fa {

template <typename SharedStorage>
inline SharedStorage& shared_storage() {
  const emu::Cta& cta = *emu::current_lane->cta;
  const size_t launched_with = cta.shared_bytes - cta.static_bytes;
  if (sizeof(SharedStorage) > launched_with) {
    emu::fail("the kernel's SharedStorage has %zu bytes, but it was launched with %zu",
              sizeof(SharedStorage), launched_with);
  }
  return *reinterpret_cast<SharedStorage*>(cta.shared + cta.static_bytes);
}

template <auto kKernel>
int compiled_architecture() {
  return FA_ARCHITECTURE;
}

// How many clusters can run at the same time, if a CTA has an SM for itself.
template <auto kKernel>
int clusters_at_once(const LaunchShape& shape) {
  return std::max(1, sm_count() / shape.cluster);
}

template <auto kKernel, typename... Arguments>
void launch(const LaunchShape& shape, Arguments... arguments) {
  check_shared_bytes(shape.shared_bytes);
  check_cluster(shape);
  launch_record().add(0, shape.shared_bytes, 0);
  try {
    emu::launch(
        launch_record().kernel, shape.grid, shape.block, shape.shared_bytes,
        [=] { kKernel(arguments...); }, shape.cluster);
  } catch (const emu::LaunchError& error) {
    throw BackendError(error.what());
  }
}

}  // namespace fa

#endif
