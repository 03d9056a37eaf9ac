// Products by cuBLASLt, with the epilogues of bench/gemm, by the algorithm that it proposes first.
#include "bench/gemm/gemm.h"
#include "common/launch/registry.h"
#ifdef FA_WITHOUT_MATMUL

namespace fa::gemm {

void cublaslt(const Product&) { throw Unsupported(FA_WITHOUT_MATMUL); }
void cublaslt_of_rows(const Product&) { throw Unsupported(FA_WITHOUT_MATMUL); }
Library cublaslt_library() { throw Unsupported(FA_WITHOUT_MATMUL); }

}  // namespace fa::gemm

#else

#include <cublasLt.h>

#include <map>
#include <memory>
#include <string>
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

// cuBLAS's matrices are column-major: what is row-major to us is transposed to it. So our C is its
// C^T, n x m, in which a bias of our columns is one of its rows. It is the product of B, transposed
// if its rows are [n][k], and A^T.
struct Plan {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t layout_a = nullptr, layout_b = nullptr, layout_c = nullptr;
  cublasLtMatmulHeuristicResult_t chosen{};
  Buffer workspace{"cuBLASLt's workspace", kWorkspaceBytes};

  Plan(const Product& p, bool rows_of_b) {
    const cudaDataType_t type = p.dtype == Dtype::kFp16 ? CUDA_R_16F : CUDA_R_16BF;
    const uint64_t m = uint64_t(p.m), n = uint64_t(p.n), k = uint64_t(p.k);
    FA_CUBLASLT(cublasLtCreate, &handle);
    FA_CUBLASLT(cublasLtMatmulDescCreate, &operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const cublasOperation_t of_b = rows_of_b ? CUBLAS_OP_N : CUBLAS_OP_T;
    set(CUBLASLT_MATMUL_DESC_TRANSA, of_b);
    if (p.epilogue == Epilogue::kBiasGelu) {
      const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_GELU_BIAS;
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
    }
    FA_CUBLASLT(cublasLtMatrixLayoutCreate, &layout_b, type, rows_of_b ? n : k, rows_of_b ? k : n,
                int64_t(rows_of_b ? n : k));
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

void multiply(const Product& p, bool rows_of_b) {
  // Plans are left to the end of the process, as CUDA itself ends before the destructors of
  // statics.
  static auto* const plans =
      new std::map<std::tuple<int, int, int, Dtype, Epilogue, const void*, bool>,
                   std::unique_ptr<Plan>>;
  auto& plan = (*plans)[{p.m, p.n, p.k, p.dtype, p.epilogue, p.bias, rows_of_b}];
  if (!plan) plan = std::make_unique<Plan>(p, rows_of_b);
  const float one = 1, zero = 0;
  FA_CUBLASLT(cublasLtMatmul, plan->handle, plan->operation, &one, p.b, plan->layout_b, p.a,
              plan->layout_a, &zero, p.c, plan->layout_c, p.c, plan->layout_c, &plan->chosen.algo,
              plan->workspace.data(), kWorkspaceBytes, static_cast<cudaStream_t>(launch_stream()));
}

}  // namespace

void cublaslt(const Product& product) { multiply(product, false); }
void cublaslt_of_rows(const Product& product) { multiply(product, true); }

Library cublaslt_library() {
  const size_t version =
      find_function<decltype(cublasLtGetVersion)>(library(), "cublasLtGetVersion")();
  return {"cuBLASLt",
          std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
              std::to_string(version % 100),
          "cublasLtMatmul 8192x8192x8192"};
}

}  // namespace fa::gemm

#endif
