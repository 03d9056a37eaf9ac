// C = E(A B^T): matrix products with a fused epilogue E, for the appendix docs/appendix/gemm.md.
//
//   a     [m][k]   fp16 or bf16, row-major
//   b     [n][k]   likewise: a row of B meets a row of A, as a row of K meets a row of Q
//   bias  [n]      likewise; of kBiasGelu
//   c     [m][n]   likewise: E of sums in fp32, rounded once
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <vector>

#include "common/launch/problem.h"  // IWYU pragma: export

namespace fa {
struct Library;  // registry.h
}  // namespace fa

namespace fa::gemm {

enum class Epilogue { kNone, kBiasGelu };
inline const char* name_of(Epilogue epilogue) {
  return epilogue == Epilogue::kNone ? "none" : "bias_gelu";
}

struct Product {
  int m, n, k;
  Dtype dtype;
  Epilogue epilogue;
  const void *a, *b, *bias;
  void* c;
  double flops() const { return 2.0 * m * n * k; }
};

// The kernels. Asynchronous.
void mma_sync(const Product& product);           // mma_sync.cu
void mma_sync_tma(const Product& product);       // mma_sync_tma.cu
void wgmma_tma(const Product& product);          // wgmma_tma.cu
void wgmma_tma_cluster(const Product& product);  // the same, in clusters of two CTAs
// peers/cublaslt.cpp: the library's, to compare with; and of a B that is [k][n], for a ceiling.
void cublaslt(const Product& product);
void cublaslt_of_rows(const Product& product);
Library cublaslt_library();

struct Kernel {
  const char* name;
  int capability;              // compute capability times ten that it needs
  int tile_m, tile_n, tile_k;  // of which m, n and k are multiples
  void (*run)(const Product&);
};
const std::vector<Kernel>& kernels();

// Runs a kernel. Throws Unsupported with one sentence if this GPU or these sizes are not for it.
void run(const Kernel& kernel, const Product& product);

// Launcher<T, kEpilogue>::run(product) of the product's type and epilogue.
template <template <typename, Epilogue> class Launcher>
void dispatch(const Product& p) {
  const auto with = [&]<typename T>(T*) {
    if (p.epilogue == Epilogue::kNone) {
      Launcher<T, Epilogue::kNone>::run(p);
    } else {
      Launcher<T, Epilogue::kBiasGelu>::run(p);
    }
  };
  if (p.dtype == Dtype::kFp16) {
    with(static_cast<__half*>(nullptr));
  } else {
    with(static_cast<__nv_bfloat16*>(nullptr));
  }
}

}  // namespace fa::gemm
