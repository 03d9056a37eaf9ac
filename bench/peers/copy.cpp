// ceiling/copy: how fast the GPU's memory is, as bytes read plus bytes written of a copy from one
// buffer to another.
#include <cuda_runtime.h>

#include <memory>

#include "bench/peers/checks.h"
#include "common/harness/device.h"
#include "common/launch/launch.h"
#include "common/launch/registry.h"

namespace fa {
namespace {

constexpr size_t kBytes = size_t(1) << 30;  // far beyond every L2 cache

struct Copy {
  Buffer from{"the copy's source", kBytes}, to{"the copy's destination", kBytes};
  Copy() { from.upload(make_words(kBytes / sizeof(uint64_t)).data()); }

  void launch() {
    check_cuda(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, nullptr),
               "copying on the GPU");
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
  copy().launch();
  synchronize();
  copy().to.download(words.data());
  return compare_words(words);
}

Library library() {
  int version = 0;
  check_cuda(cudaRuntimeGetVersion(&version), "asking for CUDA's version");
  return {"CUDA", std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10),
          "cudaMemcpyAsync"};
}

const bool registered = [] {
  static const Ceiling ceiling{0, 2.0 * kBytes, &verify};
  register_kernel({"ceiling/copy",
                   {},
                   nullptr,
                   [](const Problem&, const Tensors&) { copy().launch(); },
                   &library,
                   &ceiling});
  return true;
}();

}  // namespace
}  // namespace fa
