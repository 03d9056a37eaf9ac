// One attention problem: O = softmax(Q K^T * scale) V, forward, without mask or dropout.
// Q, K, V and O are contiguous [batch, heads, seq_len, head_dim] tensors of fp16 or bf16.
#pragma once

#include <cmath>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>

namespace fa {

enum class Dtype { kFp16, kBf16 };

inline const char* name_of(Dtype dtype) { return dtype == Dtype::kFp16 ? "fp16" : "bf16"; }

// How far the scores of normal inputs spread. kGrowing: in proportion to the key's index, from next
// to nothing to sqrt(3) times as far as on average.
enum class Growth { kFlat, kGrowing };

inline const char* name_of(Growth growth) { return growth == Growth::kFlat ? "flat" : "growing"; }

struct Scores {
  double std = 1;  // standard deviation after scaling, in nats, over all keys (root mean square)
  Growth growth = Growth::kFlat;
  bool operator==(const Scores&) const = default;
};

struct Problem {
  int batch = 1;
  int heads = 1;
  int seq_len = 128;
  int head_dim = 128;
  Dtype dtype = Dtype::kBf16;
  std::optional<Scores> scores;  // without: those of Q and K from N(0, 1), whose std is 1

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
