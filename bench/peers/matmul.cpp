// ceiling/matmul: how fast the GPU multiplies matrices, C = A B of 8192 x 8192 elements in the
// problem's dtype with sums in fp32, by cuBLASLt.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "bench/checks.h"
#include "common/harness/device.h"
#include "common/harness/inputs.h"
#include "common/launch/registry.h"

namespace fa {
namespace {

constexpr int kSize = 8192;
constexpr size_t kElements = size_t(kSize) * kSize;

// The product of one dtype, of numbers from N(0, 1).
struct Matrices {
  Dtype dtype;
  gemm::Expected expected;
  Buffer a{"the product's A", kElements * 2}, b{"the product's B", kElements * 2},
      c{"the product's C", kElements * 2};

  explicit Matrices(Dtype type) : dtype(type) {
    Problem problem;  // with as many elements
    problem.heads = kSize / problem.head_dim;
    problem.seq_len = kSize;
    problem.dtype = type;
    Inputs inputs = make_inputs(problem, "normal", 1);
    a.upload(inputs.q.data());
    b.upload(inputs.k.data());
    for (size_t row = 0; row < kSize; row++) {  // B^T, as the check wants it
      for (size_t i = 0; i < row; i++)
        std::swap(inputs.k[row * kSize + i], inputs.k[i * kSize + row]);
    }
    const gemm::Operands operands{std::move(inputs.q), std::move(inputs.k),
                                  std::vector<uint16_t>(kSize)};
    expected = gemm::make_expected({kSize, kSize, kSize}, type, gemm::Epilogue::kNone, operands);
  }
  void multiply() {
    gemm::cublaslt_of_rows(
        {kSize, kSize, kSize, dtype, gemm::Epilogue::kNone, a.data(), b.data(), nullptr, c.data()});
  }
};

// Those of the dtype asked for last, made when they are first needed. Left to the end of the
// process, as CUDA itself ends before the destructors of statics.
Matrices& matrices(Dtype dtype) {
  static Matrices* instance = nullptr;
  if (!instance || instance->dtype != dtype) {
    delete std::exchange(instance, nullptr);  // first, so that both need not fit
    instance = new Matrices(dtype);
  }
  return *instance;
}

Comparison verify(const Problem& problem) {
  Matrices& asked = matrices(problem.dtype);
  std::vector<uint16_t> c(kElements);
  asked.c.poison();
  synchronize();
  asked.multiply();
  synchronize();
  asked.c.download(c.data());
  return gemm::compare_product({kSize, kSize, kSize}, problem.dtype, asked.expected, c);
}

const bool registered = [] {
  static const Ceiling ceiling{2.0 * kSize * kSize * kSize, 0, &verify};
  register_kernel(
      {"ceiling/matmul", Needs{80}, nullptr,
       [](const Problem& problem, const Tensors&) { matrices(problem.dtype).multiply(); },
       &gemm::cublaslt_library, &ceiling});
  return true;
}();

}  // namespace
}  // namespace fa
