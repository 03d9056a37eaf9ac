#include "common/harness/inputs.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/harness/parallel.h"

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

// N(0, 1) and, of one element of a thousand, N(0, 100) besides.
float with_outliers(uint64_t stream, uint64_t index) {
  constexpr uint64_t kOneOfAThousand = ~uint64_t(0) / 1000;
  const uint64_t other = hash(stream);
  const bool outlier = hash(other ^ hash(index)) < kOneOfAThousand;
  return normal(stream, index) + (outlier ? 10.0f * normal(other, index) : 0.0f);
}

// Student's t of three degrees of freedom over the root of three, which has variance 1. Finite: at
// most 6 * 2^10.
float student_t(uint64_t stream, uint64_t index) {
  const uint64_t other = hash(stream);
  double squares = 0;
  for (uint64_t i = 0; i < 3; i++) {
    const double x = normal(other, index * 3 + i);
    squares += x * x;
  }
  return float(normal(stream, index) / std::sqrt(std::max(squares, 0x1p-20)));
}

// By what column `c` of loud channels is multiplied.
float loudness(uint64_t c, uint64_t columns) {
  return c == 5 ? 10.0f : c == 77 % columns ? 8.0f : 1.0f;
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

const std::vector<std::string>& all_input_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = input_names();
    all.insert(all.end(), {"hot_diagonal", "uneven_rows", "huge_v", "outliers", "student_t",
                           "loud_channels", "v_mean", "mixed_heads"});
    return all;
  }();
  return names;
}

std::vector<HeadRows> head_rows(const Problem& problem) {
  std::vector<HeadRows> result;
  const int group = problem.heads / problem.key_heads();
  if (problem.packed.empty()) {
    for (int sequence = 0; sequence < problem.batch; sequence++) {
      for (int head = 0; head < problem.heads; head++) {
        const size_t before = size_t(sequence) * size_t(problem.heads) + size_t(head);
        result.push_back({sequence, head, before * problem.q_rows(),
                          before / size_t(group) * problem.kv_rows(), problem.sequence(sequence)});
      }
    }
    return result;
  }
  for (int head = 0; head < problem.heads; head++) {
    size_t q_row = size_t(head) * problem.q_rows();
    size_t kv_row = size_t(head / group) * problem.kv_rows();
    for (int sequence = 0; sequence < problem.batch; sequence++) {
      const Sequence& lengths = problem.packed[size_t(sequence)];
      result.push_back({sequence, head, q_row, kv_row, lengths});
      q_row += size_t(lengths.q_len);
      kv_row += size_t(lengths.kv_len);
    }
  }
  return result;
}

float Inputs::sink(const HeadRows& of) const {
  return sinks.empty() ? -std::numeric_limits<float>::infinity() : sinks[size_t(of.head)];
}

float Inputs::slope(const Problem& problem, const HeadRows& of) const {
  if (problem.alibi == Alibi::kNone) return 0;
  const size_t before = problem.alibi == Alibi::kHead ? 0 : size_t(of.sequence);
  return alibi_slopes[before * size_t(problem.heads) + size_t(of.head)];
}

Pool make_pool(const Problem& problem, const Inputs& inputs, uint64_t seed) {
  const size_t d = size_t(problem.head_dim), kv_heads = size_t(problem.key_heads());
  const size_t size = size_t(problem.page_size), columns = size_t(problem.table_pages());
  std::vector<int> order(size_t(problem.pages));
  for (size_t i = 0; i < order.size(); i++) {  // Fisher and Yates' shuffle
    const size_t other = hash(hash(seed) + i) % (i + 1);
    order[i] = order[other];
    order[other] = int(i);
  }
  Pool pool;
  pool.k.assign(problem.kv_tensor_bytes() / 2, 0xffff);
  pool.v = pool.k;
  pool.block_table.assign(size_t(problem.batch) * columns, order.back());
  auto next = order.begin();
  for (size_t sequence = 0; sequence < problem.kv_lens.size(); sequence++) {
    const size_t keys = size_t(problem.kv_lens[sequence]);
    for (size_t key = 0; key < keys; key += size) {
      const int page = pool.block_table[sequence * columns + key / size] = *next++;
      for (size_t head = 0; head < kv_heads; head++) {
        const size_t from = (sequence * kv_heads + head) * problem.kv_rows() + key;
        const size_t to = (size_t(page) * kv_heads + head) * size;
        const size_t count = std::min(size, keys - key) * d;
        std::copy_n(&inputs.k[from * d], count, &pool.k[to * d]);
        std::copy_n(&inputs.v[from * d], count, &pool.v[to * d]);
      }
    }
  }
  return pool;
}

Inputs make_inputs(const Problem& problem, const std::string& name, uint64_t seed) {
  const std::vector<std::string>& names = all_input_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    std::string known;
    for (const std::string& each : names) known += (known.empty() ? "" : ", ") + each;
    throw BadInput("unknown inputs '" + name + "', there are: " + known);
  }
  if (problem.scores && name != "normal") {
    throw BadInput("--score-std is of the inputs normal, not of " + name);
  }
  Inputs inputs;
  inputs.q.resize(problem.element_count());
  inputs.k.resize(problem.kv_element_count());
  inputs.v.resize(problem.kv_element_count());
  const uint64_t q_stream = hash(seed * 4), k_stream = hash(seed * 4 + 1),
                 v_stream = hash(seed * 4 + 2);
  const uint64_t direction_stream = hash(seed * 4 + 3);
  const uint64_t d = uint64_t(problem.head_dim);
  // Added to q and to k along the direction, the product of two such amounts in nats is added to
  // the score.
  const float root_nat = float(1 / std::sqrt(std::sqrt(double(d))));
  // The same for amounts in a single column.
  const float root_nat_of_column = float(std::sqrt(std::sqrt(double(d))));

  // Normal inputs: q and k are both multiplied by the root of what the scores are to be.
  const float root_std = problem.scores ? float(std::sqrt(problem.scores->std)) : 1.0f;
  const bool growing = problem.scores && problem.scores->growth == Growth::kGrowing;

  // A direction of +-1 for a head of K and the heads of Q that read it: what is added along it to
  // both q and k adds head_dim * scale times the product of the two amounts to the score.
  const uint64_t group = uint64_t(problem.heads / problem.key_heads());
  const auto direction_of = [&](const HeadRows& at) {
    return uint64_t(at.sequence) * uint64_t(problem.key_heads()) + uint64_t(at.head) / group;
  };
  // The kind of a head of K and of the heads of Q that read it. However many heads lie between two
  // tiles of a CTA (not a multiple of seven), their kinds differ.
  static const std::vector<std::string> mixed = {"normal", "equal_keys",     "hot_row",    "large",
                                                 "tiny",   "increasing_max", "huge_scores"};
  const auto kind_of = [&](const HeadRows& at) -> const std::string& {
    return name == "mixed_heads" ? mixed[direction_of(at) % mixed.size()] : name;
  };
  // Writes one row of Q, query `position` of its sequence.
  const auto make_q = [&](const HeadRows& at, uint64_t position) {
    const std::string& kind = kind_of(at);
    const uint64_t row = at.q_row + position, tile = at.q_row / 64 + position / 64;
    for (uint64_t c = 0; c < d; c++) {
      float q = normal(q_stream, row * d + c);
      const float direction = sign(direction_stream, direction_of(at) * d + c);
      if (problem.scores) {
        q *= root_std;
      } else if (kind == "large") {
        q *= 12.0f;
      } else if (kind == "dominant_key") {
        q = 0.25f * q + 2.0f * direction;
      } else if (kind == "increasing_max") {
        q = 0.25f * q + direction;
      } else if (kind == "hot_first_block" || kind == "dominant_first" || kind == "dominant_last") {
        q = 0.25f * q + 10.0f * root_nat * direction;
      } else if (kind == "hotter_blocks") {
        q = 0.25f * q + 4.0f * root_nat * direction;
      } else if (kind == "huge_v") {
        const bool high = position % 8 < 4 && position / 16 % 4 > 0;
        q = 0.25f * q + (high ? 4.0f : 0.0f) * root_nat * direction;
      } else if (kind == "hot_row") {
        if (position % 64 == hash(direction_stream + tile) % 64) q *= 40.0f;
      } else if (kind == "hot_tiles") {
        // Seven groups of 64 rows, of which 0, 1 and 3 are hot: however many lie between two tiles
        // of a CTA (not a multiple of seven), one that is not hot comes after one that is.
        const uint64_t of_seven = tile % 7;
        if (of_seven == 0 || of_seven == 1 || of_seven == 3)
          q = 0.25f * q + 20.0f * root_nat * direction;
      } else if (kind == "uneven_rows") {
        const bool high = ((position >> position / 16 % 4) + position / 64) % 2 == 0;
        q = 0.25f * q + (high ? 22.0f : 0.0f) * root_nat * direction;
      } else if (kind == "huge_scores" && c < 3) {
        // Three columns, in each of which a kind of query finds what it multiplies.
        const uint64_t of_five = position % 5;
        q = c != (of_five < 2 ? 0 : of_five - 1) ? 0.0f : of_five == 1 ? -1024.0f : 1024.0f;
      } else if (kind == "tiny") {
        q *= 0x1p-14f;
      } else if (kind == "outliers") {
        q = with_outliers(q_stream, row * d + c);
      } else if (kind == "student_t") {
        q = student_t(q_stream, row * d + c);
      } else if (kind == "loud_channels") {
        q *= loudness(c, d);
      } else if (kind == "hot_diagonal") {
        // The column of the last key that this query sees under a causal mask.
        const int64_t last = int64_t(position) + at.lengths.kv_len - at.lengths.q_len;
        const bool hot = last >= -1 && uint64_t(last + int64_t(d)) % d == c;
        q = 0.25f * q + (hot ? 10.0f * root_nat_of_column : 0.0f);
      }
      inputs.q[row * d + c] = from_float(q, problem.dtype);
    }
  };
  // Writes one row of K and V, key `position` of its sequence.
  const auto make_kv = [&](const HeadRows& at, uint64_t position) {
    const std::string& kind = kind_of(at);
    const uint64_t row = at.kv_row + position, n = uint64_t(at.lengths.kv_len);
    for (uint64_t c = 0; c < d; c++) {
      const uint64_t index = row * d + c;
      float k = normal(k_stream, index), v = normal(v_stream, index);
      const float direction = sign(direction_stream, direction_of(at) * d + c);
      if (problem.scores) {
        k *= root_std;
        if (growing) k *= float(std::sqrt(3.0) * double(position + 1) / double(n));
      } else if (kind == "large") {
        k *= 12.0f;
      } else if (kind == "dominant_key") {
        const bool dominant = position == hash(direction_stream + direction_of(at)) % n;
        k = dominant ? 3.0f * direction : 0.25f * k;
      } else if (kind == "equal_keys") {
        k = normal(k_stream, direction_of(at) * d + c);
      } else if (kind == "increasing_max") {
        k = 0.25f * k + direction * 6.0f * (float(position) / float(n));
      } else if (kind == "hot_first_block") {
        k = 0.25f * k + (position < 128 ? 10.0f : 0.0f) * root_nat * direction;
      } else if (kind == "hotter_blocks") {
        k = 0.25f * k + 10.0f * float(position / 128 % 64) * root_nat * direction;
      } else if (kind == "huge_v") {
        const uint64_t block = position / 128 % 64;
        k = 0.25f * k + (18.75f * float(block) - (block % 2 ? 3.75f : 0.0f)) * root_nat * direction;
        v *= problem.dtype == Dtype::kFp16 ? 0x1p13f : 0x1p100f;
      } else if (kind == "hot_tiles" || kind == "uneven_rows") {
        k = 0.25f * k + 5.0f * root_nat * direction;
      } else if (kind == "dominant_first" || kind == "dominant_last") {
        const bool dominant = position == (kind == "dominant_first" ? 0 : n - 1);
        k = dominant ? 10.0f * root_nat * direction : 0.25f * k;
      } else if (kind == "huge_scores" && c < 3) {
        const float of_key[3] = {1.0f, sign(direction_stream, row),
                                 position / 128 % 2 ? 1.0f : -1.0f};
        k = 512.0f * of_key[c];
      } else if (kind == "tiny") {
        k *= 0x1p-14f;
        v *= 0x1p-14f;
      } else if (kind == "outliers") {
        k = with_outliers(k_stream, index);
        v = with_outliers(v_stream, index);
      } else if (kind == "student_t") {
        k = student_t(k_stream, index);
        v = student_t(v_stream, index);
      } else if (kind == "loud_channels") {
        k *= loudness(c, d);
      } else if (kind == "v_mean") {
        v += 1.0f;
      } else if (kind == "one_hot_v") {
        v = position % d == c ? 1.0f : 0.0f;
      } else if (kind == "hot_diagonal") {
        // Hot for the query whose last key this is, and for the query before that. Each round of
        // head_dim keys is 8 nats hotter than the round before, over sixteen rounds; then again.
        const bool hot = position % d == c || (position + d - 1) % d == c;
        const float amount = 1.0f + 0.8f * float(position / d % 16);
        k = 0.25f * k + (hot ? amount * root_nat_of_column : 0.0f);
      }
      inputs.k[index] = from_float(k, problem.dtype);
      inputs.v[index] = from_float(v, problem.dtype);
    }
  };
  for (int head = 0; problem.sinks && head < problem.heads; head++) {
    inputs.sinks.push_back(3.0f + 2.0f * normal(hash(~seed), uint64_t(head)));
  }
  const int sets_of_slopes = problem.alibi == Alibi::kSequence ? problem.batch
                             : problem.alibi == Alibi::kHead   ? 1
                                                               : 0;
  for (int set = 1; set <= sets_of_slopes; set++) {
    for (int head = 1; head <= problem.heads; head++) {
      const double slope = set * std::exp2(-8.0 * head / problem.heads);
      inputs.alibi_slopes.push_back(float(slope));
    }
  }

  // A piece of work is 16 rows of Q of one head, or of K and V where its first query head is.
  constexpr int kRowsPerPiece = 16;
  struct Piece {
    HeadRows at;
    bool of_q;
    int first, last;
  };
  std::vector<Piece> pieces;
  for (const HeadRows& at : head_rows(problem)) {
    for (const bool of_q : {true, false}) {
      if (!of_q && uint64_t(at.head) % group != 0) continue;
      const int rows = of_q ? at.lengths.q_len : at.lengths.kv_len;
      for (int first = 0; first < rows; first += kRowsPerPiece)
        pieces.push_back({at, of_q, first, std::min(first + kRowsPerPiece, rows)});
    }
  }
  parallel_for(pieces.size(), [&](size_t i) {
    const Piece& piece = pieces[i];
    for (int position = piece.first; position < piece.last; position++)
      piece.of_q ? make_q(piece.at, uint64_t(position)) : make_kv(piece.at, uint64_t(position));
  });
  return inputs;
}

}  // namespace fa
