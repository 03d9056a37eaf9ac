// ceiling/matmul: how fast the GPU multiplies matrices, C = A B of 8192 x 8192 elements in the
// problem's dtype with sums in fp32, by cuBLASLt and the algorithm that it proposes first.
#include <cublasLt.h>

#include <map>
#include <memory>

#include "bench/peers/checks.h"
#include "bench/peers/shared_library.h"
#include "common/harness/device.h"
#include "common/launch/registry.h"

namespace fa {
namespace {

constexpr int kSize = 8192;
constexpr size_t kBytes = size_t(kSize) * kSize * 2;
constexpr size_t kWorkspaceBytes = size_t(64) << 20;

void* cublas_lt() { return open_library("libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR)); }

// Calls a function of cuBLASLt. Throws BackendError if it fails.
#define FA_CUBLASLT(function, ...) \
  check(find_function<decltype(function)>(cublas_lt(), #function)(__VA_ARGS__), #function)

void check(cublasStatus_t status, const char* function) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const auto text =
      find_function<decltype(cublasLtGetStatusString)>(cublas_lt(), "cublasLtGetStatusString");
  throw BackendError(std::string(function) + ": cuBLASLt says: " + text(status));
}

// The product of one dtype. cuBLAS's matrices are column-major: what is row-major to us is
// transposed to it, so it is asked for C^T = B^T A^T, whose patterns in memory are those of C = A
// B.
struct Product {
  Dtype dtype;
  Factors factors;
  Buffer a{"the product's A", kBytes}, b{"the product's B", kBytes}, c{"the product's C", kBytes};
  Buffer workspace{"cuBLASLt's workspace", kWorkspaceBytes};
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;  // of all three
  cublasLtMatmulHeuristicResult_t chosen{};
  decltype(cublasLtMatmul)* matmul = nullptr;

  explicit Product(Dtype dtype_) : dtype(dtype_), factors(make_factors(kSize, dtype_, 1)) {
    a.upload(factors.a.data());
    b.upload(factors.b.data());
    const cudaDataType_t type = dtype == Dtype::kFp16 ? CUDA_R_16F : CUDA_R_16BF;
    cublasLtMatmulPreference_t preference = nullptr;
    FA_CUBLASLT(cublasLtCreate, &handle);
    FA_CUBLASLT(cublasLtMatmulDescCreate, &operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    FA_CUBLASLT(cublasLtMatrixLayoutCreate, &layout, type, kSize, kSize, kSize);
    FA_CUBLASLT(cublasLtMatmulPreferenceCreate, &preference);
    FA_CUBLASLT(cublasLtMatmulPreferenceSetAttribute, preference,
                CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes, sizeof kWorkspaceBytes);
    int found = 0;
    FA_CUBLASLT(cublasLtMatmulAlgoGetHeuristic, handle, operation, layout, layout, layout, layout,
                preference, 1, &chosen, &found);
    FA_CUBLASLT(cublasLtMatmulPreferenceDestroy, preference);
    if (found == 0) throw Unsupported("cuBLASLt has no algorithm for this product on this GPU");
    matmul = find_function<decltype(cublasLtMatmul)>(cublas_lt(), "cublasLtMatmul");
  }

  ~Product() {
    find_function<decltype(cublasLtMatrixLayoutDestroy)>(cublas_lt(),
                                                         "cublasLtMatrixLayoutDestroy")(layout);
    find_function<decltype(cublasLtMatmulDescDestroy)>(cublas_lt(),
                                                       "cublasLtMatmulDescDestroy")(operation);
    find_function<decltype(cublasLtDestroy)>(cublas_lt(), "cublasLtDestroy")(handle);
  }

  void launch(void* stream) {
    const float one = 1, zero = 0;
    check(matmul(handle, operation, &one, b.data(), layout, a.data(), layout, &zero, c.data(),
                 layout, c.data(), layout, &chosen.algo, workspace.data(), kWorkspaceBytes,
                 static_cast<cudaStream_t>(stream)),
          "cublasLtMatmul");
  }
};

// The product of the dtype asked for last, made when it is first needed. Left to the end of the
// process, as CUDA itself ends before the destructors of statics.
Product& product(Dtype dtype) {
  static Product* instance = nullptr;
  if (!instance || instance->dtype != dtype) {
    delete std::exchange(instance, nullptr);  // first, so that both need not fit
    instance = new Product(dtype);
  }
  return *instance;
}

Comparison verify(const Problem& problem) {
  Product& asked = product(problem.dtype);
  std::vector<uint16_t> c(size_t(kSize) * kSize);
  asked.c.poison();
  asked.launch(work_stream());
  synchronize();
  asked.c.download(c.data());
  return compare_product(kSize, problem.dtype, asked.factors, c);
}

Library library() {
  const size_t version =
      find_function<decltype(cublasLtGetVersion)>(cublas_lt(), "cublasLtGetVersion")();
  return {"cuBLASLt",
          std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
              std::to_string(version % 100),
          "cublasLtMatmul 8192x8192x8192"};
}

const bool registered = [] {
  static const Ceiling ceiling{2.0 * kSize * kSize * kSize, 0, &verify};
  register_kernel({"ceiling/matmul", Needs{80}, nullptr,
                   [](const Problem& problem, const Tensors& tensors) {
                     product(problem.dtype).launch(tensors.stream);
                   },
                   &library, &ceiling});
  return true;
}();

}  // namespace
}  // namespace fa
