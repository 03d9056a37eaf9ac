// Kernels that compute the gradients of attention: from dO, the gradient of some loss with respect
// to O, those with respect to Q, K and V. They take the problems of registry.h, and what the
// forward pass has left: O and log-sum-exp. A file ends with one line
//
//   const GradientRegistration<Launcher> registration{"backward_plain", needs, takes};
//
// and that is how programs and tests know of it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "common/launch/problem.h"   // IWYU pragma: export
#include "common/launch/registry.h"  // IWYU pragma: export

namespace fa {

// Device pointers of one launch, 16-byte aligned. Of `forward` O and lse are read, and lse must be
// there. dO lies as O, dQ as Q, dK as K and dV as V, with the same strides.
struct GradientTensors {
  Tensors forward;
  const void* d_o = nullptr;
  void *d_q = nullptr, *d_k = nullptr, *d_v = nullptr;
};

// The same for a kernel's launcher. With P = softmax(S) and S = scale Q K^T, over the keys that a
// query sees:
//   dV = P^T dO                          dP = dO V^T
//   dS = P (dP - D), element by element  D = the sum of dO O over a row
//   dQ = scale dS K                      dK = scale dS^T Q
// dK and dV of a head of keys are sums over the heads of queries that read it.
template <typename T>
struct Gradients : Attention<T> {
  const T* d_o;
  T *d_q, *d_k, *d_v;
};

struct GradientKernel {
  Kernel kernel;  // its name, what it needs and takes, its workspace; it has no run()
  std::function<void(const Problem&, const GradientTensors&)> run;
};

// All of this program, by name.
const std::vector<GradientKernel>& gradient_kernels();
void register_gradient_kernel(const GradientKernel& kernel);

// The one with this name. Throws BadInput.
const GradientKernel& find_gradient_kernel(std::string_view name);

// The fastest one that takes the tensors on the GPU present: the one that needs the latest GPU.
// Throws Unsupported if none does. The choice's kernels are those of gradient_kernels().
Choice best_gradient_kernel(const Problem& problem, const Tensors& with_strides);

// Throws BadInput unless all pointers but the workspace's are there and multiples of 16 bytes.
void check_pointers(const GradientTensors& tensors);

// Launches it. Throws Unsupported for a problem that the kernel does not take or a workspace that
// is too small, and BadInput for tensors that are not there or not 16-byte aligned, and for strides
// by which rows of a gradient would overlap. Asynchronous on a GPU.
void run(const GradientKernel& kernel, const Problem& problem, const GradientTensors& tensors);

// Registers a kernel: Launcher<T, kHeadDim>::run(const Gradients<T>&) launches it, and
// workspace_bytes(const Problem&, size_t limit), where it is there, sizes its workspace.
template <template <typename T, int kHeadDim> class Launcher>
class GradientRegistration {
 public:
  explicit GradientRegistration(const char* name, Needs needs = {}, Takes takes = {}) {
    GradientKernel kernel{{name, needs}, &dispatch};
    kernel.kernel.takes = takes;
    kernel.kernel.takes.lse = true;  // it is read
    if constexpr (requires { &Launcher<__half, 128>::workspace_bytes; }) {
      kernel.kernel.workspace_bytes = &Launcher<__half, 128>::workspace_bytes;
    }
    register_gradient_kernel(kernel);
  }

 private:
  static void dispatch(const Problem& problem, const GradientTensors& tensors) {
    problem.dtype == Dtype::kFp16 ? dispatch_head_dim<__half>(problem, tensors)
                                  : dispatch_head_dim<__nv_bfloat16>(problem, tensors);
  }
  template <typename T>
  static void dispatch_head_dim(const Problem& problem, const GradientTensors& tensors) {
    const Gradients<T> gradients{attention_of<T>(problem, tensors.forward),
                                 static_cast<const T*>(tensors.d_o), static_cast<T*>(tensors.d_q),
                                 static_cast<T*>(tensors.d_k), static_cast<T*>(tensors.d_v)};
    problem.head_dim == 64 ? Launcher<T, 64>::run(gradients) : Launcher<T, 128>::run(gradients);
  }
};

}  // namespace fa
