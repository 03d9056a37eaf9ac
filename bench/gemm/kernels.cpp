#include <string>
#include <vector>

#include "bench/gemm/gemm.h"
#include "common/harness/device.h"

namespace fa::gemm {

const std::vector<Kernel>& kernels() {
  static const std::vector<Kernel> all = {
      {"mma_sync", 80, 128, 128, 64, &mma_sync},
      {"mma_sync_tma", 90, 64, 256, 64, &mma_sync_tma},
      {"wgmma_tma", 90, 128, 256, 64, &wgmma_tma},
      {"wgmma_tma_cluster", 90, 256, 256, 64, &wgmma_tma_cluster},
      {"cublaslt", 80, 8, 8, 8, &cublaslt}};
  return all;
}

void run(const Kernel& kernel, const Product& product) {
  const auto refuse = [&](const std::string& why) { throw Unsupported(kernel.name + why); };
  const auto multiple = [&](const char* name, int size, int of) {
    if (size < of || size % of != 0) {
      refuse(std::string(" takes ") + name + " that is a multiple of " + std::to_string(of) +
             ", not " + std::to_string(size));
    }
  };
  multiple("m", product.m, kernel.tile_m);
  multiple("n", product.n, kernel.tile_n);
  multiple("k", product.k, kernel.tile_k);
  const int capability = device_capability();  // 0 on the emulator, which runs everything
  const bool exactly = kernel.capability == 90;
  if (capability != 0 && (exactly ? capability != 90 : capability < kernel.capability)) {
    refuse(std::string(" needs a GPU of compute capability ") + (exactly ? "9.0" : "8.0 or later"));
  }
  kernel.run(product);
}

}  // namespace fa::gemm
