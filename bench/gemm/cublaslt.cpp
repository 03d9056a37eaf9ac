// The library's product, with the same epilogues, by the algorithm that it proposes first.
#include "bench/gemm/gemm.h"

#include "common/launch/problem.h"
#ifdef FA_WITHOUT_MATMUL

namespace fa::gemm {

void cublaslt(const Product&) { throw Unsupported(FA_WITHOUT_MATMUL); }

}  // namespace fa::gemm

#else

#include <cublasLt.h>

#include <map>
#include <memory>
#include <tuple>

#include "bench/peers/shared_library.h"
#include "common/harness/device.h"
#include "common/launch/launch.h"

namespace fa::gemm {
namespace {

constexpr size_t kWorkspaceBytes = size_t(64) << 20;

void* library() { return open_library("libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR)); }

void check(cublasStatus_t status, const char* function) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const auto text =
      find_function<decltype(cublasLtGetStatusString)>(library(), "cublasLtGetStatusString");
  throw BackendError(std::string(function) + ": cuBLASLt says: " + text(status));
}

// Calls a function of cuBLASLt. Throws BackendError if it fails.
#define FA_CUBLASLT(function, ...) \
  check(find_function<decltype(function)>(library(), #function)(__VA_ARGS__), #function)

// cuBLAS's matrices are column-major: our C is its C^T = B A^T, n x m, in which a bias of our
// columns is one of its rows.
struct Plan {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t layout_a = nullptr, layout_b = nullptr, layout_c = nullptr;
  cublasLtMatmulHeuristicResult_t chosen{};
  Buffer workspace{"cuBLASLt's workspace", kWorkspaceBytes};

  explicit Plan(const Product& p) {
    const cudaDataType_t type = p.dtype == Dtype::kFp16 ? CUDA_R_16F : CUDA_R_16BF;
    const uint64_t m = uint64_t(p.m), n = uint64_t(p.n), k = uint64_t(p.k);
    FA_CUBLASLT(cublasLtCreate, &handle);
    FA_CUBLASLT(cublasLtMatmulDescCreate, &operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    set(CUBLASLT_MATMUL_DESC_TRANSA, transposed);
    if (p.epilogue == Epilogue::kBiasGelu) {
      const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_GELU_BIAS;
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
    }
    FA_CUBLASLT(cublasLtMatrixLayoutCreate, &layout_b, type, k, n, int64_t(k));  // our B
    FA_CUBLASLT(cublasLtMatrixLayoutCreate, &layout_a, type, k, m, int64_t(k));
    FA_CUBLASLT(cublasLtMatrixLayoutCreate, &layout_c, type, n, m, int64_t(n));
    cublasLtMatmulPreference_t preference = nullptr;
    FA_CUBLASLT(cublasLtMatmulPreferenceCreate, &preference);
    FA_CUBLASLT(cublasLtMatmulPreferenceSetAttribute, preference,
                CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes, sizeof kWorkspaceBytes);
    int found = 0;
    FA_CUBLASLT(cublasLtMatmulAlgoGetHeuristic, handle, operation, layout_b, layout_a, layout_c,
                layout_c, preference, 1, &chosen, &found);
    FA_CUBLASLT(cublasLtMatmulPreferenceDestroy, preference);
    if (found == 0) throw Unsupported("cuBLASLt has no algorithm for this product on this GPU");
  }

  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    FA_CUBLASLT(cublasLtMatmulDescSetAttribute, operation, attribute, &value, sizeof value);
  }
};

}  // namespace

void cublaslt(const Product& p) {
  // Plans are left to the end of the process, as CUDA itself ends before the destructors of
  // statics.
  static auto* const plans =
      new std::map<std::tuple<int, int, int, Dtype, Epilogue, const void*>, std::unique_ptr<Plan>>;
  auto& plan = (*plans)[{p.m, p.n, p.k, p.dtype, p.epilogue, p.bias}];
  if (!plan) plan = std::make_unique<Plan>(p);
  const float one = 1, zero = 0;
  FA_CUBLASLT(cublasLtMatmul, plan->handle, plan->operation, &one, p.b, plan->layout_b, p.a,
              plan->layout_a, &zero, p.c, plan->layout_c, p.c, plan->layout_c, &plan->chosen.algo,
              plan->workspace.data(), kWorkspaceBytes, static_cast<cudaStream_t>(launch_stream()));
}

}  // namespace fa::gemm

#endif
