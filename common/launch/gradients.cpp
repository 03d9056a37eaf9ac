#include "common/launch/gradients.h"

#include <string>
#include <vector>

#include "common/launch/launch.h"

namespace fa {

std::vector<GradientKernel>& gradient_kernels() {
  static std::vector<GradientKernel> all;
  return all;
}

void run(const GradientKernel& kernel, const Problem& problem, const GradientTensors& tensors) {
  validate(problem, kernel.kernel.takes.any_length);
  check_pointers(tensors.forward);
  for (const void* const each :
       {tensors.d_o, static_cast<const void*>(tensors.d_q), static_cast<const void*>(tensors.d_k),
        static_cast<const void*>(tensors.d_v), static_cast<const void*>(tensors.forward.lse)}) {
    if (!each) throw BadInput("dO, dQ, dK, dV and log-sum-exp must all be there");
  }
  GradientTensors all = tensors;
  all.forward = with_strides(problem, tensors.forward);
  if (const std::string why = refusal(kernel.kernel, problem, all.forward); !why.empty()) {
    throw Unsupported(why);
  }
  if (kernel.kernel.workspace_bytes) {
    const size_t given = tensors.forward.workspace_bytes;
    const size_t needed = kernel.kernel.workspace_bytes(problem, given);
    if (needed > given) {
      throw Unsupported("needs a workspace of " + std::to_string(needed) + " bytes, " +
                        std::to_string(given) + " are allowed");
    }
  }
  launch_record().kernel = kernel.kernel.name.c_str();
  struct WithStream {
    explicit WithStream(void* stream) { launch_stream() = stream; }
    ~WithStream() { launch_stream() = nullptr; }
  } const with_stream(tensors.forward.stream);
  kernel.run(problem, all);
}

}  // namespace fa
