#include "common/harness/inputs.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/harness/parallel.h"
#include "common/launch/problem.h"

namespace fa {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014) as a hash of (stream, index): any element can be computed
// alone, so that the values depend neither on the number of threads nor on the order.
uint64_t hash(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Close to N(0, 1): the sum of twelve uniform numbers less its mean (Irwin-Hall; variance 1, at
// most 6 in magnitude). Whole numbers only until the last step, hence exact on every platform,
// which logarithms and the standard library's normal_distribution are not.
float normal(uint64_t stream, uint64_t index) {
  int64_t sum = 0;
  for (uint64_t i = 0; i < 6; i++) {
    const uint64_t bits = hash(stream ^ hash(index * 6 + i));
    sum += int64_t(bits >> 32) + int64_t(bits & 0xffffffffu);
  }
  return float(double(sum - 6 * ((int64_t(1) << 32) - 1)) * 0x1p-32);
}

// +1 or -1.
float sign(uint64_t stream, uint64_t index) {
  return hash(stream ^ hash(index)) & 1 ? 1.0f : -1.0f;
}

}  // namespace

float to_float(uint16_t bits, Dtype dtype) {
  return dtype == Dtype::kFp16 ? __half2float(std::bit_cast<__half>(bits))
                               : __bfloat162float(std::bit_cast<__nv_bfloat16>(bits));
}

uint16_t from_float(float value, Dtype dtype) {
  return dtype == Dtype::kFp16 ? std::bit_cast<uint16_t>(__float2half_rn(value))
                               : std::bit_cast<uint16_t>(__float2bfloat16_rn(value));
}

const std::vector<std::string>& input_names() {
  static const std::vector<std::string> names = {
      "normal",    "large",          "dominant_key",    "equal_keys",    "increasing_max",
      "tiny",      "one_hot_v",      "hot_first_block", "hotter_blocks", "hot_row",
      "hot_tiles", "dominant_first", "dominant_last",   "huge_scores"};
  return names;
}

const std::vector<std::string>& hot_input_names() {
  static const std::vector<std::string> names(
      std::find(input_names().begin(), input_names().end(), "hot_first_block"),
      input_names().end());
  return names;
}

Inputs make_inputs(const Problem& problem, const std::string& name, uint64_t seed) {
  if (std::find(input_names().begin(), input_names().end(), name) == input_names().end()) {
    std::string known;
    for (const std::string& each : input_names()) known += (known.empty() ? "" : ", ") + each;
    throw BadInput("unknown inputs '" + name + "', there are: " + known);
  }
  if (problem.scores && name != "normal") {
    throw BadInput("--score-std is of the inputs normal, not of " + name);
  }
  Inputs inputs;
  for (auto* const tensor : {&inputs.q, &inputs.k, &inputs.v})
    tensor->resize(problem.element_count());
  const uint64_t q_stream = hash(seed * 4), k_stream = hash(seed * 4 + 1),
                 v_stream = hash(seed * 4 + 2);
  const uint64_t direction_stream = hash(seed * 4 + 3);
  const uint64_t n = uint64_t(problem.seq_len), d = uint64_t(problem.head_dim);
  // Added to q and to k along the direction, the product of two such amounts in nats is added to
  // the score.
  const float root_nat = float(1 / std::sqrt(std::sqrt(double(d))));

  // Of normal inputs both q and k are multiplied by the root of what the scores are to be.
  const float root_std = problem.scores ? float(std::sqrt(problem.scores->std)) : 1.0f;
  const bool growing = problem.scores && problem.scores->growth == Growth::kGrowing;

  parallel_for(problem.row_count(), [&](size_t row) {
    const uint64_t head = row / n, position = row % n;
    for (uint64_t c = 0; c < d; c++) {
      const uint64_t index = row * d + c;
      float q = normal(q_stream, index), k = normal(k_stream, index), v = normal(v_stream, index);
      // A direction of +-1 a head: what is added along it to both q and k adds head_dim * scale
      // times the product of the two amounts to the score.
      const float direction = sign(direction_stream, head * d + c);
      if (problem.scores) {
        q *= root_std;
        k *= root_std;
        if (growing) k *= float(std::sqrt(3.0) * double(position + 1) / double(n));
      } else if (name == "large") {
        q *= 12.0f;
        k *= 12.0f;
      } else if (name == "dominant_key") {
        const bool dominant = position == hash(direction_stream + head) % n;
        q = 0.25f * q + 2.0f * direction;
        k = dominant ? 3.0f * direction : 0.25f * k;
      } else if (name == "equal_keys") {
        k = normal(k_stream, head * d + c);
      } else if (name == "increasing_max") {
        q = 0.25f * q + direction;
        k = 0.25f * k + direction * 6.0f * (float(position) / float(n));
      } else if (name == "hot_first_block") {
        q = 0.25f * q + 10.0f * root_nat * direction;
        k = 0.25f * k + (position < 128 ? 10.0f : 0.0f) * root_nat * direction;
      } else if (name == "hotter_blocks") {
        q = 0.25f * q + 4.0f * root_nat * direction;
        k = 0.25f * k + 10.0f * float(position / 128 % 64) * root_nat * direction;
      } else if (name == "hot_row") {
        if (position % 64 == hash(direction_stream + row / 64) % 64) q *= 40.0f;
      } else if (name == "hot_tiles") {
        // Seven groups of 64 rows, of which 0, 1 and 3 are hot: however many lie between two tiles
        // of a CTA (not a multiple of seven), one that is not hot comes after one that is.
        const uint64_t group = row / 64 % 7;
        if (group == 0 || group == 1 || group == 3) q = 0.25f * q + 20.0f * root_nat * direction;
        k = 0.25f * k + 5.0f * root_nat * direction;
      } else if (name == "dominant_first" || name == "dominant_last") {
        const bool dominant = position == (name == "dominant_first" ? 0 : n - 1);
        q = 0.25f * q + 10.0f * root_nat * direction;
        k = dominant ? 10.0f * root_nat * direction : 0.25f * k;
      } else if (name == "huge_scores" && c < 3) {
        // Three columns, in each of which a kind of query finds what it multiplies.
        const float of_key[3] = {1.0f, sign(direction_stream, row),
                                 position / 128 % 2 ? 1.0f : -1.0f};
        const uint64_t kind = position % 5;
        q = c != (kind < 2 ? 0 : kind - 1) ? 0.0f : kind == 1 ? -1024.0f : 1024.0f;
        k = 512.0f * of_key[c];
      } else if (name == "tiny") {
        q *= 0x1p-14f;
        k *= 0x1p-14f;
        v *= 0x1p-14f;
      } else if (name == "one_hot_v") {
        v = position % d == c ? 1.0f : 0.0f;
      }
      inputs.q[index] = from_float(q, problem.dtype);
      inputs.k[index] = from_float(k, problem.dtype);
      inputs.v[index] = from_float(v, problem.dtype);
    }
  });
  return inputs;
}

}  // namespace fa
