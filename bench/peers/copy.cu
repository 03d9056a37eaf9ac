// ceiling/copy: how fast the GPU's memory is, as bytes read plus bytes written of a copy from one
// buffer to another. A kernel does it: cudaMemcpyAsync in a CUDA graph takes a way that is slower
// (on an H200 2.8 TB/s, where it has 4.3 outside of a graph).
#include <cuda_runtime.h>

#include <memory>

#include "bench/checks.h"
#include "common/harness/device.h"
#include "common/launch/launch.h"
#include "common/launch/registry.h"

namespace fa {
namespace {

constexpr size_t kBytes = size_t(1) << 30;  // far beyond every L2 cache

constexpr int kThreads = 512, kWords = 8;  // of 16 bytes a thread, all of them under way at once

__global__ void copy_words(const uint4* from, uint4* to) {
  const size_t first = size_t(blockIdx.x) * kThreads * kWords + threadIdx.x;
  uint4 words[kWords];
#pragma unroll
  for (int i = 0; i < kWords; i++) words[i] = __ldcs(&from[first + size_t(i) * kThreads]);
#pragma unroll
  for (int i = 0; i < kWords; i++) __stcs(&to[first + size_t(i) * kThreads], words[i]);
}

struct Copy {
  Buffer from{"the copy's source", kBytes}, to{"the copy's destination", kBytes};
  Copy() { from.upload(make_words(kBytes / sizeof(uint64_t)).data()); }

  void launch(void* stream) {
    constexpr size_t kOfCta = sizeof(uint4) * kThreads * kWords;
    static_assert(kBytes % kOfCta == 0);
    copy_words<<<kBytes / kOfCta, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const uint4*>(from.data()), static_cast<uint4*>(to.data()));
    check_cuda(cudaGetLastError(), "copying on the GPU");
  }
};

// Made when it is first needed, and left to the end of the process, as CUDA itself ends before the
// destructors of statics.
Copy& copy() {
  static Copy& instance = *new Copy;
  return instance;
}

Comparison verify(const Problem&) {
  std::vector<uint64_t> words(kBytes / sizeof(uint64_t));
  copy().to.poison();
  copy().launch(work_stream());
  synchronize();
  copy().to.download(words.data());
  return compare_words(words);
}

Library library() {
  int version = 0;
  check_cuda(cudaRuntimeGetVersion(&version), "asking for CUDA's version");
  return {"CUDA", std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10),
          "a kernel that copies 1 GiB"};
}

const bool registered = [] {
  static const Ceiling ceiling{0, 2.0 * kBytes, &verify};
  register_kernel({"ceiling/copy",
                   {},
                   nullptr,
                   [](const Problem&, const Tensors& tensors) { copy().launch(tensors.stream); },
                   &library,
                   &ceiling});
  return true;
}();

}  // namespace
}  // namespace fa
