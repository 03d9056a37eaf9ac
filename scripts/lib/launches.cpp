// Prints what a kernel's launcher asks for, without launching: for both types and head sizes one
// line a launch, with dtype, head_dim, seq_len, grid (x y z), threads a CTA, bytes of shared
// memory, kernel. Compiled by scripts/fa_tools/for_readers/sass.py for the CPU, with the emulator's headers,
// -DKERNEL_FILE="..." and -DFA_ARCHITECTURE=90 (for sm_90).
#include <cstdio>

#include "common/launch/launch.h"
#include "common/launch/registry.h"
#include "common/launch/tensor_map.h"

// "const char* function_name() [with auto kFunction = fa::k08::attention_kernel<__half, 64>]"
template <auto kFunction>
const char* function_name() {
  return __PRETTY_FUNCTION__;
}

namespace fa {

const Problem* current_problem = nullptr;
std::vector<Kernel> registered;

void register_kernel(Kernel kernel) { registered.push_back(kernel); }
bool is_contiguous(const Problem&, const Tensors&) { return true; }

template <auto kFunction, typename... Arguments>
void print_launch(const LaunchShape& shape, Arguments...) {
  std::printf("%s\t%d\t%d\t%u %u %u\t%u\t%zu\t%s\n", name_of(current_problem->dtype),
              current_problem->head_dim, current_problem->seq_len, shape.grid.x, shape.grid.y,
              shape.grid.z, shape.block.x * shape.block.y * shape.block.z, shape.shared_bytes,
              function_name<kFunction>());
}

// Maps of tensors that are not there.
template <typename T>
ptx::TensorMap no_tensor_map(const T*, std::initializer_list<uint64_t>,
                             std::initializer_list<uint64_t>, std::initializer_list<uint32_t>,
                             layout::SwizzleMode) {
  return {};
}
ptx::TensorMap no_slab_map(const void*, int, int, int, int, const Strides&, uint32_t) {
  return {};
}

}  // namespace fa

// The kernel's launcher calls launch<kernel>(shape, arguments...).
#define launch print_launch
#define make_tensor_map no_tensor_map
#define make_slab_map no_slab_map
#define sm_count() 132
#include KERNEL_FILE

int main() {
  for (const fa::Dtype dtype : {fa::Dtype::kFp16, fa::Dtype::kBf16}) {
    for (const int head_dim : {64, 128}) {
      const fa::Problem problem{1, 16, 4096, head_dim, dtype};
      fa::current_problem = &problem;
      for (const fa::Kernel& kernel : fa::registered) {
        fa::Tensors tensors;  // null pointers: nothing runs
        if (kernel.workspace_bytes) {
          tensors.workspace_bytes = kernel.workspace_bytes(problem, size_t(1) << 40);
        }
        kernel.run(problem, tensors);
      }
    }
  }
}
