#include "common/launch/gradients.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/launch/launch.h"
#include "common/launch/validation.h"

namespace fa {

namespace {
std::vector<GradientKernel>& all_of_gradients() {
  static std::vector<GradientKernel> all;
  return all;
}
}  // namespace

void register_gradient_kernel(const GradientKernel& kernel) {
  std::vector<GradientKernel>& all = all_of_gradients();
  all.insert(std::find_if(all.begin(), all.end(),
                          [&](const auto& each) { return each.kernel.name > kernel.kernel.name; }),
             kernel);
}

const std::vector<GradientKernel>& gradient_kernels() { return all_of_gradients(); }

const GradientKernel& find_gradient_kernel(std::string_view name) {
  std::string names;
  for (const GradientKernel& each : gradient_kernels()) {
    if (each.kernel.name == name) return each;
    names += (names.empty() ? "" : ", ") + each.kernel.name;
  }
  throw BadInput("unknown kernel of gradients '" + std::string(name) + "', there are: " + names);
}

Choice best_gradient_kernel(const Problem& problem, const Tensors& with_strides) {
  std::vector<const Kernel*> by_speed;
  for (const GradientKernel& each : gradient_kernels()) by_speed.push_back(&each.kernel);
  std::stable_sort(by_speed.begin(), by_speed.end(), [](const Kernel* a, const Kernel* b) {
    return a->needs.compute_capability > b->needs.compute_capability;
  });
  return first_that_takes(by_speed, problem, with_strides);
}

void check_pointers(const GradientTensors& tensors) {
  check_pointers(tensors.forward);
  check_alignment(tensors.forward.lse, "log-sum-exp");
  check_alignment(tensors.d_o, "dO");
  check_alignment(tensors.d_q, "dQ");
  check_alignment(tensors.d_k, "dK");
  check_alignment(tensors.d_v, "dV");
}

void run(const GradientKernel& kernel, const Problem& problem, const GradientTensors& tensors) {
  validate(problem, kernel.kernel.takes.any_length);
  check_pointers(tensors);
  GradientTensors all = tensors;
  all.forward = with_strides(problem, tensors.forward, true);
  if (const std::string why = refusal(kernel.kernel, problem, all.forward); !why.empty()) {
    throw Unsupported(why);
  }
  if (kernel.kernel.workspace_bytes) {
    const size_t given = tensors.forward.workspace_bytes;
    const size_t needed = kernel.kernel.workspace_bytes(problem, given);
    if (needed > given) {
      throw Unsupported("needs a workspace of " + std::to_string(needed) + " bytes, " +
                        std::to_string(given) + " are there");
    }
    check_alignment(tensors.forward.workspace, "the workspace");
  }
  launch_record().kernel = kernel.kernel.name.c_str();
  struct WithStream {
    explicit WithStream(void* stream) { launch_stream() = stream; }
    ~WithStream() { launch_stream() = nullptr; }
  } const with_stream(tensors.forward.stream);
  kernel.run(problem, all);
}

}  // namespace fa
