// One attention problem: O = softmax(Q K^T * scale) V, forward, without mask or dropout.
// Q, K, V and O are contiguous [batch, heads, seq_len, head_dim] tensors of fp16 or bf16.
#pragma once

#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>

namespace fa {

enum class Dtype { kFp16, kBf16 };

inline const char* name_of(Dtype dtype) { return dtype == Dtype::kFp16 ? "fp16" : "bf16"; }

struct Problem {
  int batch = 1;
  int heads = 1;
  int seq_len = 128;
  int head_dim = 128;
  Dtype dtype = Dtype::kBf16;

  float scale() const { return 1.0f / std::sqrt(float(head_dim)); }
  size_t head_count() const { return size_t(batch) * size_t(heads); }
  size_t row_count() const { return head_count() * size_t(seq_len); }
  size_t element_count() const { return row_count() * size_t(head_dim); }
  size_t tensor_bytes() const { return element_count() * 2; }
  bool operator==(const Problem&) const = default;
  // Two matrix products, a multiplication and an addition each: 4 * B * H * N^2 * D.
  double flops() const { return 4.0 * double(row_count()) * double(seq_len) * double(head_dim); }
};

// Bad input: one clear sentence. Programs print it and exit with 2.
struct BadInput : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The back end failed (CUDA error, emulator's verdict). Programs exit with 3.
struct BackendError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What this GPU or this problem lacks for a kernel: the kernel is skipped, the text is the reason.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws BadInput unless every kernel of the ladder accepts the shape.
void validate(const Problem& problem);

}  // namespace fa
