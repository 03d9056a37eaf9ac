// Compiled by nvcc for a GPU, and as C++ for the emulator and for tests, where memory is the CPU's.
#include "common/harness/changes.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "common/harness/device.h"
#include "common/harness/oracle.h"
#include "common/launch/launch.h"

namespace fa {
namespace {

// Threads of a CTA, which also are the keys that it takes at a time. On the CPU more would only
// cost time.
#ifdef __CUDACC__
constexpr int kThreads = 256;
#else
constexpr int kThreads = 32;
#endif

// The finaliser of splitmix64 (Steele, Lea and Flood, 2014): every bit depends on every bit.
constexpr uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The signs that eight elements of K (the lowest byte) and the same of V (the next) get: the
// finaliser of MurmurHash3 (Appleby, 2011), half as long. Nonce 0: none.
constexpr uint32_t signs_of(uint64_t nonce, size_t eight) {
  if (nonce == 0) return 0;
  uint32_t x = uint32_t(nonce) + uint32_t(eight);
  x = (x ^ (x >> 16)) * 0x85ebca6b;
  x = (x ^ uint32_t(nonce >> 32) ^ (x >> 13)) * 0xc2b2ae35;
  return x ^ (x >> 16);
}
// The lowest four bits as the signs of four elements.
constexpr uint64_t four_signs(uint32_t bits) {
  const uint64_t four = bits;
  return (four & 1) << 15 | (four & 2) << 30 | (four & 4) << 45 | (four & 8) << 60;
}
constexpr Eight with_signs(const Eight& of, uint32_t bits) {
  return {{of.words[0] ^ four_signs(bits), of.words[1] ^ four_signs(bits >> 4)}};
}

// Element i of eight.
__host__ __device__ inline float element(const Eight& of, int i, bool bf16) {
  const auto bits = uint16_t(of.words[i / 4] >> (16 * (i % 4)));
  return bf16 ? std::bit_cast<float>(uint32_t(bits) << 16)
              : __half2float(std::bit_cast<__half>(bits));
}
// The same with sign i of `signs`.
__host__ __device__ inline float element(const Eight& of, int i, bool bf16, uint32_t signs) {
  const auto bits = std::bit_cast<uint32_t>(element(of, i, bf16));
  return std::bit_cast<float>(bits ^ ((signs << (31 - i)) & 0x80000000u));
}

// ---- what is done for each eight elements -------------------------------------------------------
struct Change {
  Originals originals;
  uint64_t nonce;
  Eight *q, *k, *v;

  constexpr void operator()(size_t i) const {
    if (nonce == 0 && i < originals.q_count) q[i] = originals.q[i];
    if (i >= originals.kv_count) return;
    const uint32_t signs = signs_of(nonce, i);
    k[i] = with_signs(originals.k[i], originals.k_changes ? signs : 0);
    v[i] = with_signs(originals.v[i], signs >> 8);
  }
};

// Where rows of an output are. [heads of all blocks, rows]
struct OutputPlace {
  size_t eights, rows, heads;  // of a row; of a head; of a block
  OutputRows output;
  constexpr const Eight* row(size_t i) const {
    const size_t head = i / rows;
    const size_t at = output.strides.at(head / heads, head % heads, i % rows);
    return static_cast<const Eight*>(output.data) + at / 8;
  }
};
OutputPlace output_place(const Problem& problem, const OutputRows& output) {
  return {size_t(problem.head_dim) / 8, problem.q_rows(), size_t(problem.heads), output};
}

struct Gather {
  OutputPlace from;
  Eight* to;
  constexpr void operator()(size_t i) const { to[i] = from.row(i / from.eights)[i % from.eights]; }
};

__host__ __device__ inline void count_one(unsigned long long* counter) {
#ifdef __CUDA_ARCH__
  atomicAdd(counter, 1ull);
#else
  ++*counter;
#endif
}

// An element is finite unless all bits of its exponent are 1.
struct FindNotANumber {
  OutputPlace place;
  uint64_t exponents;  // of four elements
  unsigned long long* found;
  __host__ __device__ void operator()(size_t i) const {
    const Eight here = place.row(i / place.eights)[i % place.eights];
    const uint64_t lowest = exponents & (0 - exponents) & 0xffff;  // bit of an exponent
    bool finite = true;
    for (const uint64_t word : here.words) {
      // Adding the lowest bit to an exponent of ones carries into the sign, which was made 0.
      const uint64_t sums = (word & exponents) + lowest * 0x0001'0001'0001'0001;
      if (sums & 0x8000'8000'8000'8000) finite = false;
    }
    const bool first = i % place.eights == 0 && place.output.lse;
    if (first && std::isnan(place.output.lse[i / place.eights])) finite = false;
    if (!finite) count_one(found);
  }
};

// ---- a row computed again -----------------------------------------------------------------------
#if defined(__CUDACC__) && defined(__CUDA_ARCH__)
constexpr bool kOnDevice = true;
#else
constexpr bool kOnDevice = false;
#endif

// The threads of a CTA. On the CPU each phase is a loop over them, which comes to the same, because
// what one thread writes, others read in a later phase.
template <typename Mine>
struct Threads {
  Mine mine[kOnDevice ? 1 : kThreads];

  template <typename Phase>
  __host__ __device__ void each(const Phase& phase) {
#if defined(__CUDACC__) && defined(__CUDA_ARCH__)
    phase(int(threadIdx.x), mine[0]);
    __syncthreads();
#else
    for (int t = 0; t < kThreads; t++) phase(t, mine[t]);
#endif
  }
  // Afterwards values[0] is all of them together.
  template <typename Value, typename Join>
  __host__ __device__ void join(Value* values, const Join& joined) {
    for (int half = kThreads / 2; half > 0; half /= 2) {
      each([&](int t, Mine&) {
        if (t < half) values[t] = joined(values[t], values[t + half]);
      });
    }
  }
};

struct Rounding {
  bool bf16;
  float unit, p_unit, norm_unit, p_least, o_least, products;  // of Precision
  float short_products, short_sums, lse;                      // in FP8
};

// What a part of a row's keys gives, in this order: the highest score, the sum of p = e^(score -
// highest), the largest scale * sum |q k| of a key, the sum of p d, with d what a softcap and ALiBi
// may move the score by; then of each column the sums of p v, of p |v|, of p d |v|, and of
// min(p, t) |v|, t half the smallest subnormal: what kernels may lose of small p.
constexpr int kBeforeColumns = 4;
constexpr int kSums = 4;
constexpr int kMostHeadDim = 256;
constexpr int part_size(int head_dim) { return kBeforeColumns + kSums * head_dim; }

struct RowSums {
  Originals originals;
  uint64_t nonce;
  Rounding rounding;
  float scale, softcap;
  int head_dim, page_size, kv_heads;
  const int* block_table;
  const CheckedRow* rows;
  float* parts;  // [rows, kKeyParts, part_size(head_dim)]

  struct Mine {
    float highest, weights, products, moved, out[8], of_abs[8], moved_v[8], lost[8];
  };
  // Threads that have the same columns share the keys: kThreads / (head_dim / 8) groups. Of 96
  // columns the last four threads have none.
  struct Shared {
    float q[kMostHeadDim], scores[kThreads], moves[kThreads];
    float largest[kThreads], weights[kThreads], moved[kThreads];
    float sums[kSums][8 * kThreads];  // [groups, head_dim]
  };

  // The row of K and V that a key is in.
  __host__ __device__ size_t key_row(const CheckedRow& of, int key) const {
    if (!block_table) return of.kv_row + size_t(key);
    const int page = block_table[of.table_from + key / page_size];
    return (size_t(page) * size_t(kv_heads) + of.kv_row) * size_t(page_size) +
           size_t(key % page_size);
  }
  __host__ __device__ void operator()(Shared& shared, int cta) const {
    const auto larger = [](float a, float b) { return fmaxf(a, b); };
    const CheckedRow row = rows[cta / kKeyParts];
    const int of_part = (row.keys.end - row.keys.begin + kKeyParts - 1) / kKeyParts;
    const int begin = row.keys.begin + cta % kKeyParts * of_part;
    const int end = min(row.keys.end, begin + of_part);
    const int eights = head_dim / 8, groups = kThreads / eights;
    const int keys_of_group = (kThreads + groups - 1) / groups;
    const auto none = -std::numeric_limits<float>::infinity();
    Threads<Mine> threads;
    threads.each([&](int t, Mine& mine) {
      mine = {};
      mine.highest = none;
      if (t >= eights) return;
      const Eight of_q = originals.q[row.row * size_t(eights) + size_t(t)];
      for (int i = 0; i < 8; i++) shared.q[8 * t + i] = element(of_q, i, rounding.bf16);
    });
    for (int first = begin; first < end; first += kThreads) {
      threads.each([&](int t, Mine& mine) {  // a thread a key
        float score = none, move = 0;
        if (first + t < end) {
          const size_t at = key_row(row, first + t) * size_t(eights);
          float sum = 0, products = 0;
          for (int j = 0; j < eights; j++) {
            const Eight of_k = originals.k[at + size_t(j)];
            const uint32_t signs = originals.k_changes ? signs_of(nonce, at + size_t(j)) : 0;
            for (int i = 0; i < 8; i++) {
              const float product =
                  shared.q[8 * j + i] * element(of_k, i, rounding.bf16, signs & 0xff);
              sum += product;
              products += fabsf(product);
            }
          }
          score = sum * scale;
          if (softcap > 0) {
            score = softcap * tanhf(score / softcap);
            move = 0x1p-21f * fabsf(score);
          }
          const float taken_off = row.slope * fabsf(float(row.place - (first + t)));
          score -= taken_off;
          move += 0x1p-22f * fabsf(taken_off);
          mine.products = fmaxf(mine.products, products * scale);
        }
        shared.scores[t] = shared.largest[t] = score;
        shared.moves[t] = move;
      });
      threads.join(shared.largest, larger);
      threads.each([&](int t, Mine& mine) {  // a thread eight columns
        const float highest = fmaxf(mine.highest, shared.largest[0]);
        const float rescale = expf(mine.highest - highest);
        mine.highest = highest;
        mine.weights *= rescale;
        mine.moved *= rescale;
        for (int i = 0; i < 8; i++) {
          mine.out[i] *= rescale;
          mine.of_abs[i] *= rescale;
          mine.moved_v[i] *= rescale;
        }
        const int begin_of_group = t / eights * keys_of_group;
        const int end_of_group = min(begin_of_group + keys_of_group, kThreads);
        for (int key = begin_of_group; key < end_of_group; key++) {
          if (first + key >= end) break;
          const float p = expf(shared.scores[key] - highest);
          const float lost = fminf(p, rounding.p_least / 2);
          const float moved = p * shared.moves[key];
          mine.weights += p;
          mine.moved += moved;
          const size_t at = key_row(row, first + key) * size_t(eights) + size_t(t % eights);
          const Eight of_v = originals.v[at];
          const uint32_t signs = signs_of(nonce, at) >> 8;
          for (int i = 0; i < 8; i++) {
            const float v = element(of_v, i, rounding.bf16, signs & 0xff);
            mine.out[i] += p * v;
            mine.of_abs[i] += p * fabsf(v);
            mine.moved_v[i] += moved * fabsf(v);
            mine.lost[i] += lost * fabsf(v);
          }
        }
      });
    }
    threads.each([&](int t, Mine& mine) {
      for (int i = 0; i < 8; i++) {
        shared.sums[0][8 * t + i] = mine.out[i];
        shared.sums[1][8 * t + i] = mine.of_abs[i];
        shared.sums[2][8 * t + i] = mine.moved_v[i];
        shared.sums[3][8 * t + i] = mine.lost[i];
      }
      shared.largest[t] = mine.products;
      shared.weights[t] = t % eights == 0 ? mine.weights : 0;
      shared.moved[t] = t % eights == 0 ? mine.moved : 0;
    });
    const auto plus = [](float a, float b) { return a + b; };
    threads.join(shared.largest, larger);
    threads.join(shared.weights, plus);
    threads.join(shared.moved, plus);
    float* const part = parts + size_t(cta) * size_t(part_size(head_dim));
    threads.each([&](int t, Mine& mine) {
      if (t == 0) {
        part[0] = mine.highest;
        part[1] = shared.weights[0];
        part[2] = shared.largest[0];
        part[3] = shared.moved[0];
      }
      for (int at = t; at < kSums * head_dim; at += kThreads) {
        float sum = 0;
        for (int i = 0; i < groups; i++)
          sum += shared.sums[at / head_dim][i * head_dim + at % head_dim];
        part[kBeforeColumns + at] = sum;
      }
    });
  }
};

// Compares a row with the sums of all parts of its keys. The bounds are those of
// oracle.h, and of log-sum-exp twice those, because this one is of fp32, too. In norm a row in FP8
// may be off by 2.125 u instead of 1.5. Where one key has nearly all of the weight, P is off by up
// to half of e4m3's last place, 2 u, and no other key makes up for it. A head has other rows, too.
struct JudgeRow {
  OutputPlace place;
  Rounding rounding;
  int head_dim;
  const CheckedRow* rows;
  const float* parts;
  unsigned long long* wrong;

  struct Mine {};
  struct Squares {
    double of_error, of_value, of_inexact;
    int wrong;  // columns
  };
  struct Shared {
    Squares squares[kThreads];
  };

  __host__ __device__ void operator()(Shared& shared, int cta) const {
    const CheckedRow row = rows[cta];
    const int size = part_size(head_dim);
    const float* const part = parts + size_t(cta) * kKeyParts * size_t(size);
    float highest = row.sink, products = 0;
    for (int i = 0; i < kKeyParts; i++) highest = fmaxf(highest, part[i * size]);
    // The sum over all parts of what is at `from`, by their weights.
    const auto sum = [&](int from, bool weighted) {
      float result = 0;
      for (int i = 0; i < kKeyParts; i++) {
        if (part[i * size + 1] == 0) continue;  // no keys
        const float weight = weighted ? expf(part[i * size] - highest) : 1;
        result += weight * part[i * size + from];
      }
      return result;
    };
    for (int i = 0; i < kKeyParts; i++) products = fmaxf(products, part[i * size + 2]);
    const int keys = row.keys.end - row.keys.begin;
    const float of_sink = std::isinf(row.sink) ? 0 : expf(row.sink - highest);
    const bool empty = keys == 0 && of_sink == 0;
    const float weights = empty ? 1 : of_sink + sum(1, true);
    const float moved_sink = of_sink > 0 ? of_sink * 0x1p-22f * fabsf(row.sink) : 0;  // not 0 * inf
    const float moved = (moved_sink + sum(3, true)) / weights;
    const float error_of_sums = 2 * (rounding.products * products + float(keys) * 0x1p-24f / 8);
    const float of_short = rounding.short_products * products;
    const float short_sums = 2 * of_short + rounding.short_sums;
    Threads<Mine> threads;
    threads.each([&](int t, Mine&) {
      Squares all = {};
      for (int column = t; column < head_dim; column += kThreads) {
        const int at = kBeforeColumns + column;
        const float value = sum(at, true) / weights;
        const float of_abs = sum(at + head_dim, true) / weights;
        const float lost = (sum(at + 2 * head_dim, true) + sum(at + 3 * head_dim, false)) / weights;
        const float inexact = (error_of_sums + moved) * of_abs + lost + rounding.o_least / 2 +
                              short_sums * (fabsf(value) + fminf(of_short, 1.0f) * of_abs);
        const float allowed = keys > 0 ? rounding.unit * fabsf(value) +
                                             (2 * rounding.p_unit + short_sums) * of_abs + inexact
                                       : 0.0f;
        const float actual = element(place.row(row.row)[column / 8], column % 8, rounding.bf16);
        const double error = double(actual) - double(value);
        all.of_error += error * error;
        all.of_value += double(value) * double(value);
        all.of_inexact += double(inexact) * double(inexact);
        if (!(fabs(error) <= double(allowed))) all.wrong++;
      }
      shared.squares[t] = all;
    });
    threads.join(shared.squares, [](const Squares& a, const Squares& b) -> Squares {
      return {a.of_error + b.of_error, a.of_value + b.of_value, a.of_inexact + b.of_inexact,
              a.wrong + b.wrong};
    });
    threads.each([&](int t, Mine&) {
      if (t > 0) return;
      const Squares& all = shared.squares[0];
      const double unit = double(rounding.norm_unit);
      const double units = rounding.short_sums > 0 ? 2.125 : 1.5;
      bool right = all.wrong == 0 &&
                   sqrt(all.of_error) <= units * unit * sqrt(all.of_value) + sqrt(all.of_inexact);
      if (place.output.lse) {
        const float lse = empty ? highest : highest + logf(weights);
        const float actual = place.output.lse[row.row];
        const float allowed =
            2 * (error_of_sums + of_short + moved + 0x1p-21f + 0x1p-22f * fabsf(lse)) +
            rounding.lse;
        if (actual != lse && !(fabsf(actual - lse) <= allowed)) right = false;
      }
      if (!right) count_one(wrong);
    });
  }
};

// ---- for all of them ----------------------------------------------------------------------------
#ifdef __CUDACC__
// The profiler leaves out kernels whose names begin with harness_ (scripts/fa profile).
cudaStream_t stream() { return static_cast<cudaStream_t>(work_stream()); }

template <typename Body>
__global__ void harness_each(Body body, size_t count) {
  const size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) body(i);
}
template <typename Body>
void for_each(size_t count, const Body& body) {
  const auto ctas = unsigned((count + kThreads - 1) / kThreads);
  harness_each<<<ctas, kThreads, 0, stream()>>>(body, count);
  check_cuda(cudaGetLastError(), "changing the inputs");
}

template <typename Body>
__global__ void harness_ctas(Body body) {
  __shared__ typename Body::Shared shared;
  body(shared, int(blockIdx.x));
}
template <typename Body>
void for_ctas(int count, const Body& body) {
  harness_ctas<<<unsigned(count), kThreads, 0, stream()>>>(body);
  check_cuda(cudaGetLastError(), "checking an output");
}
#else
template <typename Body>
void for_each(size_t count, const Body& body) {
  for (size_t i = 0; i < count; i++) body(i);
}
template <typename Body>
void for_ctas(int count, const Body& body) {
  static typename Body::Shared shared;
  for (int cta = 0; cta < count; cta++) body(shared, cta);
}
#endif

}  // namespace

void change_inputs(const Originals& originals, uint64_t nonce, Eight* q, Eight* k, Eight* v) {
  for_each(std::max(originals.q_count, originals.kv_count), Change{originals, nonce, q, k, v});
}

std::vector<CheckedRow> rows_to_check(const Problem& problem, const std::vector<HeadRows>& heads,
                                      const Inputs& inputs, uint64_t nonce, int count) {
  std::vector<CheckedRow> result;
  for (int i = 0; i < count && problem.row_count() > 0; i++) {
    const size_t row = mixed(mixed(nonce) + uint64_t(i)) % problem.row_count();
    const auto before = [&](const HeadRows& each) {
      return each.q_row + size_t(each.lengths.q_len) <= row;
    };
    const HeadRows& of = *std::partition_point(heads.begin(), heads.end(), before);
    const int query = int(row - of.q_row);
    CheckedRow checked{row,
                       of.kv_row,
                       of.lengths.visible_keys(problem.visible(), query),
                       0,
                       of.lengths.place(query),
                       inputs.slope(problem, of),
                       inputs.sink(of)};
    if (problem.page_size > 0) {
      checked.kv_row = size_t(of.head) / (size_t(problem.heads) / size_t(problem.key_heads()));
      checked.table_from = of.sequence * problem.table_pages();
    }
    result.push_back(checked);
  }
  return result;
}

size_t part_floats(int rows, int head_dim) {
  return size_t(rows) * kKeyParts * size_t(part_size(head_dim));
}

void check_output(const OutputCheck& check, uint64_t nonce, const OutputRows& output,
                  Found* found) {
  const Problem& problem = check.problem;
  const bool bf16 = problem.dtype == Dtype::kBf16;
  const Precision precision = precision_of(problem, check.own_rounding);
  const Rounding rounding{bf16,
                          float(precision.unit),
                          float(precision.p_unit),
                          float(precision.norm_unit),
                          float(precision.p_least),
                          float(precision.o_least),
                          float(precision.products),
                          float(precision.short_products),
                          float(precision.short_sums),
                          problem.fp8 == Fp8::kNone ? 0.0f : 0x1p-3f};
  const OutputPlace place = output_place(problem, output);
  for_each(problem.row_count() * place.eights,
           FindNotANumber{place, bf16 ? 0x7f80'7f80'7f80'7f80u : 0x7c00'7c00'7c00'7c00u,
                          &found->not_a_number});
  for_ctas(
      check.row_count * kKeyParts,
      RowSums{check.originals, nonce, rounding, problem.scale(), problem.softcap, problem.head_dim,
              problem.page_size, problem.key_heads(), check.block_table, check.rows, check.parts});
  for_ctas(check.row_count, JudgeRow{place, rounding, problem.head_dim, check.rows, check.parts,
                                     &found->wrong_rows});
}

void gather_output(const Problem& problem, const OutputRows& output, Eight* to) {
  const OutputPlace place = output_place(problem, output);
  for_each(problem.row_count() * place.eights, Gather{place, to});
}

}  // namespace fa
