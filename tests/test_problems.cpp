// Problems beyond the plain one: masks, lengths, heads of keys, packed sequences. The reference is
// judged against plain loops, the kernels of kernels/beyond against the reference.
#include <cuda_fp8.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "common/harness/fp8.h"
#include "common/harness/results.h"
#include "common/launch/validation.h"
#include "tests/support.h"
#ifndef FA_WITH_CUDA
#include "common/emulator/core/launch.h"
#endif

namespace fa::test {
namespace {

struct More {
  const char* name;
  int batch, heads, kv_heads;
  int q_len, kv_len;
  std::vector<Sequence> packed = {};
  int page_size = 0;
  std::vector<int> kv_lens = {};
};

// Lengths that divide nothing, more queries than keys and fewer, so many keys that split_keys has
// several pieces, sequences without queries, without keys and without both; and fewer tiles of
// queries than a persistent kernel has CTAs.
const std::vector<More> kShapes = {
    {"square", 1, 2, 2, 128, 128},
    {"odd", 1, 2, 2, 77, 77},
    {"few_queries", 2, 4, 2, 5, 131},
    {"one_query", 1, 4, 1, 1, 200},
    {"many_keys", 1, 4, 1, 3, 541},
    {"few_keys", 1, 2, 1, 131, 70},
    {"blind_tiles", 1, 2, 1, 333, 70},
    {"packed", 3, 2, 2, 0, 0, {{70, 70}, {1, 1}, {65, 65}}},
    {"packed_and_shared", 5, 4, 2, 0, 0, {{0, 9}, {7, 0}, {33, 64}, {0, 0}, {265, 3}}},
    {"packed_and_mostly_empty", 4, 1, 1, 0, 0, {{0, 3}, {0, 0}, {0, 5}, {9, 9}}},
    {"pages_of_16", 0, 4, 2, 3, 0, {}, 16, {541, 0, 1, 131}},
    {"pages_of_32", 0, 2, 1, 1, 0, {}, 32, {7, 33}},
    {"pages_of_64", 0, 2, 1, 20, 0, {}, 64, {64, 211, 0}},
    {"pages_of_256", 0, 6, 3, 1, 0, {}, 256, {1, 257, 40}},
    // The table has 256 bytes, and the last sequence has a page for each of its entries: behind the
    // last one memory ends.
    {"pages_fill_the_table", 0, 2, 1, 1, 0, {}, 16, {16, 512}},
};

Problem make_problem(const More& shape, Mask mask, Dtype dtype, int head_dim) {
  Problem p = problem(shape.batch, shape.heads, shape.q_len, head_dim, dtype);
  if (shape.kv_len != shape.q_len) p.kv_len = shape.kv_len;
  if (shape.kv_heads != shape.heads) p.kv_heads = shape.kv_heads;
  if (!shape.packed.empty()) p.pack(shape.packed);
  if (shape.page_size > 0) p.page(shape.page_size, shape.kv_lens);
  p.mask = mask;
  return p;
}

struct Outputs {
  std::vector<double> o, lse;
};

// Both outputs whole, by the definition, in loops that know nothing of the harness.
Outputs by_loops(const Problem& p, const Inputs& inputs) {
  const int d = p.head_dim, group = p.heads / p.kv_heads.value_or(p.heads);
  const int kv_heads = p.heads / group;
  std::vector<Sequence> sequences = p.packed;
  if (p.packed.empty())
    sequences.assign(size_t(p.batch), {p.seq_len, p.kv_len.value_or(p.seq_len)});
  for (size_t i = 0; i < p.kv_lens.size(); i++) sequences[i].kv_len = p.kv_lens[i];
  int total_q = 0, total_kv = 0;
  for (const Sequence& s : sequences) {
    total_q += s.q_len;
    total_kv += s.kv_len;
  }
  std::vector<double> output(inputs.q.size(), NAN), lse(p.row_count(), NAN);
  int q_before = 0, kv_before = 0;  // of a head, in sequences before
  for (int b = 0; b < int(sequences.size()); b++) {
    const auto [q_len, kv_len] = sequences[size_t(b)];
    for (int h = 0; h < p.heads; h++) {
      const bool packed = !p.packed.empty();
      const int q_row = packed ? h * total_q + q_before : (b * p.heads + h) * q_len;
      const int kv_row = packed ? h / group * total_kv + kv_before
                                : (b * kv_heads + h / group) * p.kv_len.value_or(p.seq_len);
      const auto at = [&](const std::vector<uint16_t>& tensor, int row, int c) {
        return double(to_float(tensor[size_t(row) * size_t(d) + size_t(c)], p.dtype));
      };
      for (int i = 0; i < q_len; i++) {
        std::vector<double> scores(size_t(kv_len), -INFINITY), sums(size_t(d), 0.0);
        double highest = p.sinks ? double(inputs.sinks[size_t(h)]) : -INFINITY, sum = 0;
        for (int j = 0; j < kv_len; j++) {
          const int to_the_right = j - (i + kv_len - q_len);
          if (p.mask == Mask::kCausal && to_the_right > 0) continue;
          if (p.window.left >= 0 && -to_the_right > p.window.left) continue;
          if (p.window.right >= 0 && to_the_right > p.window.right) continue;
          double& score = scores[size_t(j)] = 0;
          for (int c = 0; c < d; c++)
            score += at(inputs.q, q_row + i, c) * at(inputs.k, kv_row + j, c);
          score /= std::sqrt(double(d));
          if (p.softcap > 0) score = double(p.softcap) * std::tanh(score / double(p.softcap));
          if (p.alibi != Alibi::kNone) {
            const int slope = p.alibi == Alibi::kHead ? h : b * p.heads + h;
            score -= double(inputs.alibi_slopes[size_t(slope)]) * std::abs(to_the_right);
          }
          highest = std::max(highest, score);
        }
        if (p.sinks) sum = std::exp(double(inputs.sinks[size_t(h)]) - highest);
        for (int j = 0; j < kv_len; j++) {
          if (std::isinf(scores[size_t(j)])) continue;
          const double weight = std::exp(scores[size_t(j)] - highest);
          sum += weight;
          for (int c = 0; c < d; c++) sums[size_t(c)] += weight * at(inputs.v, kv_row + j, c);
        }
        lse[size_t(q_row + i)] = highest + std::log(sum);
        for (int c = 0; c < d; c++) {
          output[size_t(q_row + i) * size_t(d) + size_t(c)] = sum > 0 ? sums[size_t(c)] / sum : 0;
        }
      }
    }
    q_before += q_len;
    kv_before += kv_len;
  }
  return {output, lse};
}

// What may happen to scores: each by itself, then two mixtures.
struct Option {
  const char* name;
  Window window = {};
  float softcap = 0;
  Alibi alibi = Alibi::kNone;
  bool sinks = false;
};
const std::vector<Option> kOptions = {
    {"left", {40, -1}},
    {"right", {-1, 7}},
    {"both", {3, 0}},
    {"softcap", {}, 1.5f},
    {"slopes", {}, 0, Alibi::kHead},
    {"slopes_of_sequences", {}, 0, Alibi::kSequence},
    {"sinks", {}, 0, Alibi::kNone, true},
    {"all", {64, 5}, 4, Alibi::kSequence, true},
    {"model", {31, 0}, 20, Alibi::kNone, true},
};
Problem with(const Option& option, Problem p) {
  p.window = option.window;
  p.softcap = option.softcap;
  p.alibi = option.alibi;
  p.sinks = option.sinks;
  return p;
}

class Beyond : public testing::TestWithParam<More> {};

// The problem with every head_dim that a kernel takes beside 64 and 128.
std::vector<Problem> with_other_head_dims(const Kernel& kernel, Problem p) {
  std::vector<Problem> problems;
  for (const int head_dim : kernel.head_dims) {
    p.head_dim = head_dim;
    if (head_dim != 64 && head_dim != 128) problems.push_back(p);
  }
  return problems;
}

void expect_reference_of_loops(const Problem& p, const std::string& inputs) {
  const Inputs made = make_inputs(p, inputs, 3);
  const Reference reference = make_reference(p, made);
  const auto [expected, lse] = by_loops(p, made);
  const double precision = inputs == "huge_scores" ? 1e-9 : 1e-11;  // 2^19: ulp 2^-33
  double largest = 0;                                               // of V
  for (const uint16_t bits : made.v)
    largest = std::max(largest, std::fabs(double(to_float(bits, p.dtype))));
  ASSERT_EQ(reference.values.size(), expected.size());
  for (size_t i = 0; i < expected.size(); i++) {
    ASSERT_NEAR(reference.values[i], expected[i], precision * largest)
        << inputs << ", " << name_of(p.mask) << ", element " << i;
    ASSERT_TRUE(expected[i] != 0 || reference.allowed[i] == 0 || p.visible() == Window{});
  }
  for (size_t i = 0; i < lse.size(); i++) {
    ASSERT_TRUE(reference.lse[i] == lse[i] ||
                std::fabs(reference.lse[i] - lse[i]) < precision * std::max(1.0, std::fabs(lse[i])))
        << inputs << ", " << name_of(p.mask) << ", row " << i << ": " << reference.lse[i] << " and "
        << lse[i];
  }
}

TEST_P(Beyond, TheReferenceAgreesWithLoops) {
  for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
    const Problem p = make_problem(GetParam(), mask, Dtype::kFp16, 64);
    ASSERT_NO_THROW(validate(p, true));
    for (const char* const inputs : {"normal", "hot_diagonal"})
      expect_reference_of_loops(p, inputs);
    for (const Option& option : kOptions) {
      SCOPED_TRACE(option.name);
      ASSERT_NO_THROW(validate(with(option, p), true));
      expect_reference_of_loops(with(option, p), "normal");
    }
  }
}

TEST(Reference, OfAllInputsAgreesWithLoops) {
  for (const std::string& inputs : all_input_names()) {
    expect_reference_of_loops(problem(1, 2, 128, 64, Dtype::kFp16), inputs);
    expect_reference_of_loops(problem(1, 1, 256, 128, Dtype::kBf16), inputs);
  }
}

TEST_P(Beyond, AttendedPairsAreCounted) {
  for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
    const Problem p = make_problem(GetParam(), mask, Dtype::kBf16, 128);
    double pairs = 0;
    for (const HeadRows& at : head_rows(p)) {
      for (int i = 0; i < at.lengths.q_len; i++) {
        for (int j = 0; j < at.lengths.kv_len; j++)
          pairs += mask == Mask::kNone || j <= i + at.lengths.kv_len - at.lengths.q_len;
      }
    }
    EXPECT_EQ(p.attended_pairs(), pairs);
    EXPECT_EQ(p.flops(), 4 * pairs * 128);
    EXPECT_EQ(rest_to_json(p).value("attended_pairs", -1.0), p.is_plain() ? -1.0 : pairs);
  }
}

TEST_P(Beyond, PairsOfAWindowAreCounted) {
  const auto [none, causal] = std::pair(Mask::kNone, Mask::kCausal);
  for (const auto& [mask, window] : {std::pair(none, Window{0, 0}),
                                     {none, {-1, 3}},
                                     {none, {70, -1}},
                                     {none, {5, 300}},
                                     {causal, {9, -1}},
                                     {causal, {40, 40}}}) {
    Problem p = make_problem(GetParam(), mask, Dtype::kBf16, 64);
    p.window = window;
    double pairs = 0;
    for (const HeadRows& at : head_rows(p)) {
      for (int i = 0; i < at.lengths.q_len; i++) {
        for (int j = 0; j < at.lengths.kv_len; j++) {
          const int right = j - (i + at.lengths.kv_len - at.lengths.q_len);
          pairs += (mask == none || right <= 0) && (window.left < 0 || -right <= window.left) &&
                   (window.right < 0 || right <= window.right);
        }
      }
    }
    EXPECT_EQ(p.attended_pairs(), pairs) << window.left << ", " << window.right;
  }
}

TEST_P(Beyond, AllInputsAreFinite) {
  for (const Dtype dtype : {Dtype::kFp16, Dtype::kBf16}) {
    const Problem p = make_problem(GetParam(), Mask::kCausal, dtype, 64);
    for (const std::string& name : all_input_names()) {
      const Inputs inputs = make_inputs(p, name, 1);
      EXPECT_EQ(inputs.q.size(), p.element_count());
      EXPECT_EQ(inputs.k.size(), p.kv_element_count());
      EXPECT_EQ(inputs.v.size(), p.kv_element_count());
      for (const auto* tensor : {&inputs.q, &inputs.k, &inputs.v}) {
        for (const uint16_t bits : *tensor)
          ASSERT_TRUE(std::isfinite(to_float(bits, dtype))) << name;
      }
    }
  }
}

// Keys are in the pages that the table names, in every head, and all else of the pool is NaN: the
// rest of a last page, and pages that no sequence has, which the table names behind the last key.
TEST(Pages, HaveTheKeysAndElseNaN) {
  Problem p = problem(1, 4, 3, 64, Dtype::kFp16);
  p.kv_heads = 2;
  p.page(16, {541, 0, 1, 131});
  const Inputs inputs = make_inputs(p, "normal", 1);
  Pool pool = make_pool(p, inputs, 1);
  ASSERT_EQ(pool.k.size(), size_t(p.pages) * 2 * 16 * 64);
  ASSERT_EQ(pool.block_table.size(), size_t(4 * 34));
  EXPECT_FALSE(std::is_sorted(pool.block_table.begin(), pool.block_table.begin() + 34));
  EXPECT_NE(make_pool(p, inputs, 2).block_table, pool.block_table);
  std::vector<int> used(size_t(p.pages), 0);
  for (size_t i = 0; i < 4; i++) {
    for (size_t j = 0; j < 34; j++) {
      const size_t page = size_t(pool.block_table[i * 34 + j]);
      ASSERT_LT(page, used.size());
      if (j * 16 < size_t(p.kv_lens[i])) {
        EXPECT_EQ(used[page]++, 0) << "page " << page << " has keys of two runs";
      }
    }
    for (size_t row = 0; row < size_t(p.kv_lens[i]) * 2; row++) {
      const size_t head = row % 2, key = row / 2;
      const size_t page = size_t(pool.block_table[i * 34 + key / 16]);
      for (size_t c = 0; c < 64; c++) {
        const size_t from = ((i * 2 + head) * 541 + key) * 64 + c;
        const size_t at = ((page * 2 + head) * 16 + key % 16) * 64 + c;
        ASSERT_EQ(pool.k[at], inputs.k[from]) << i << ", key " << key;
        ASSERT_EQ(pool.v[at], inputs.v[from]) << i << ", key " << key;
        pool.k[at] = pool.v[at] = 0xffff;  // looked at
      }
    }
  }
  EXPECT_EQ(std::count(used.begin(), used.end(), 0), 4) << "a page more per sequence";
  for (size_t i = 0; i < 4; i++) {
    const size_t behind = i * 34 + size_t(p.kv_lens[i] + 15) / 16;
    for (size_t j = behind; j < (i + 1) * 34; j++) EXPECT_EQ(used[size_t(pool.block_table[j])], 0);
  }
  const auto is_nan = [](uint16_t bits) { return bits == 0xffff; };
  EXPECT_TRUE(std::all_of(pool.k.begin(), pool.k.end(), is_nan));
  EXPECT_TRUE(std::all_of(pool.v.begin(), pool.v.end(), is_nan));
}

// What a kernel gives whose diagonal is one key too far, or one too short, is wrong in almost every
// row that sees a key: in the whole row.
TEST(HotDiagonal, TellsAMaskThatIsOffByAKey) {
  for (const auto& [q_len, kv_len] : {std::pair{300, 300}, {100, 333}, {333, 300}}) {
    Problem p = problem(1, 1, q_len, 64, Dtype::kBf16);
    p.kv_len = kv_len;
    p.mask = Mask::kCausal;
    const Inputs inputs = make_inputs(p, "hot_diagonal", 1);
    const Reference reference = make_reference(p, inputs);
    const size_t first = size_t(std::max(0, q_len - kv_len));
    for (const int off : {-1, 1}) {
      // A query less at the end, or one more, moves the diagonal by a key.
      Problem moved = p;
      moved.seq_len = q_len - off;
      Inputs of_moved = inputs;
      of_moved.q.resize(moved.element_count());
      const Reference wrong = make_reference(moved, of_moved);
      size_t told = 0, rows = 0;
      for (size_t i = first + 1; i + 1 < size_t(q_len); i++, rows++) {
        size_t columns = 0;
        for (size_t c = 0; c < 64; c++) {
          columns += std::fabs(reference.values[i * 64 + c] - wrong.values[i * 64 + c]) >
                     reference.allowed[i * 64 + c];
        }
        told += columns > 32;
      }
      EXPECT_GT(told, rows * 9 / 10) << q_len << ", " << kv_len << ", off by " << off;
    }
  }
}

TEST(BeyondPlain, RowsWithoutAKeyMustBeZeros) {
  Problem p = problem(1, 1, 8, 64, Dtype::kFp16);
  p.kv_len = 3;
  p.mask = Mask::kCausal;
  const Reference reference = make_reference(p, make_inputs(p, "normal", 1));
  std::vector<uint16_t> output = rounded(reference, p.dtype);
  EXPECT_TRUE(compare(p, reference, output).passed);
  EXPECT_TRUE(
      std::all_of(output.begin(), output.begin() + 5 * 64, [](uint16_t o) { return o == 0; }));
  output[4 * 64 + 7] = 1;  // the smallest number there is
  const Comparison comparison = compare(p, reference, output);
  EXPECT_FALSE(comparison.passed);
  EXPECT_CONTAINS(comparison.reason, "row 4, column 7] is 5.96046e-08, should be 0 +- 0");
}

TEST(BeyondPlain, LogSumExpIsCompared) {
  Problem p = problem(1, 2, 8, 64, Dtype::kFp16);
  p.kv_len = 3;
  p.mask = Mask::kCausal;
  const Reference reference = make_reference(p, make_inputs(p, "normal", 1));
  std::vector<uint16_t> output = rounded(reference, p.dtype);
  const std::vector<float> right(reference.lse.begin(), reference.lse.end());
  EXPECT_TRUE(compare(p, reference, output, right).passed);
  EXPECT_EQ(right[8 + 4], -INFINITY);
  const auto reason = [&](size_t row, float value) {
    std::vector<float> lse = right;
    lse[row] = value;
    return compare(p, reference, output, lse).reason;
  };
  EXPECT_CONTAINS(reason(8 + 4, 0), "lse[batch 0, head 1, row 4] is 0, should be -inf +- 0");
  EXPECT_CONTAINS(reason(7, right[7] + 1e-5f), "lse[batch 0, head 0, row 7] is ");
  EXPECT_EQ(reason(7, right[7] + 1e-7f), "");
  EXPECT_EQ(reason(15, NAN), "lse[batch 0, head 1, row 7] was never written or is no number");
}

// A sink is a key without a value: O of the others is less, and log-sum-exp is more. Where no key
// is seen, O is zeros and log-sum-exp is the sink, which may be -inf as if there were none.
TEST(BeyondPlain, ASinkHasAPartOfTheRow) {
  Problem p = problem(1, 3, 8, 64, Dtype::kFp16);
  p.kv_len = 3;
  p.mask = Mask::kCausal;
  Inputs inputs = make_inputs(p, "normal", 1);
  const Reference without = make_reference(p, inputs);
  p.sinks = true;
  inputs.sinks = {1.5f, -INFINITY, -400.0f};
  const Reference reference = make_reference(p, inputs);
  for (size_t row = 0; row < 24; row++) {
    const double sink = double(inputs.sinks[row / 8]);
    const double lse = row % 8 < 5 ? sink : std::log(std::exp(sink) + std::exp(without.lse[row]));
    EXPECT_TRUE(reference.lse[row] == lse || std::fabs(reference.lse[row] - lse) < 1e-12) << row;
    for (size_t i = row * 64; i < (row + 1) * 64; i++) {
      const double part = row % 8 < 5 ? 1 : std::exp(without.lse[row] - lse);
      EXPECT_NEAR(reference.values[i], without.values[i] * part, 1e-12);
      EXPECT_EQ(reference.allowed[i] == 0, row % 8 < 5);
    }
  }
}

TEST(BeyondPlain, SamplesTheEdgesOfTheDiagonal) {
  Problem p = problem(1, 1, 3000, 64, Dtype::kBf16);
  p.kv_len = 2001;
  p.mask = Mask::kCausal;
  Reference reference = make_reference(p, make_inputs(p, "normal", 1), 512);
  const auto sampled = [&](size_t row) {
    return std::binary_search(reference.rows.begin(), reference.rows.end(), row);
  };
  for (size_t key = 0; key < 2001; key += 64) {  // query i's last key is i - 999
    EXPECT_TRUE(sampled(key + 999)) << "first row that sees key " << key;
    EXPECT_TRUE(sampled(key + 998)) << "last row that does not see key " << key;
  }
  EXPECT_TRUE(sampled(3000 / 64 * 64)) << "first row of the last tile";
  p.mask = Mask::kNone;
  p.window = {70, 5};  // query i sees keys i - 1069 to i - 994
  reference = make_reference(p, make_inputs(p, "normal", 1), 512);
  for (size_t key = 0; key < 1900; key += 64) {
    EXPECT_TRUE(sampled(key + 994)) << "first row that sees key " << key;
    EXPECT_TRUE(sampled(key + 993)) << "last row that does not see key " << key;
    EXPECT_TRUE(sampled(key + 1069)) << "first row whose first key is " << key;
    EXPECT_TRUE(sampled(key + 1068)) << "last row that sees a key before " << key;
  }
}

TEST(BeyondPlain, PackedHeadsAreFoundByTheirSequence) {
  Problem p = problem(1, 2, 128, 64, Dtype::kFp16);
  p.pack({{3, 3}, {0, 0}, {4, 4}});
  const Reference reference = make_reference(p, make_inputs(p, "normal", 1));
  std::vector<uint16_t> output = rounded(reference, p.dtype);
  EXPECT_TRUE(compare(p, reference, output).passed);
  output[(7 + 3 + 2) * 64 + 5] = from_float(9, p.dtype);
  EXPECT_CONTAINS(compare(p, reference, output).reason,
                  "O[sequence 2, head 1, row 2, column 5] is 9");
}

// ---- what kernels take --------------------------------------------------------------------------
std::vector<Problem> not_plain() {
  std::vector<Problem> problems;
  for (const More& shape : kShapes) {
    for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
      problems.push_back(make_problem(shape, mask, Dtype::kBf16, 128));
      if (problems.back().is_plain()) problems.pop_back();
    }
  }
  return problems;
}

TEST(Takes, NumberedKernelsRefuseInOneSentence) {
  int numbered = 0;
  for (const Kernel& kernel : kernels()) {
    if (is_beyond(kernel)) continue;
    numbered += !is_next(kernel);
    EXPECT_EQ(refusal(kernel, problem(2, 3, 384, 64, Dtype::kFp16)), "");
    for (const Problem& p : not_plain()) {
      const std::string why = refusal(kernel, p);
      EXPECT_TRUE(why.starts_with("takes ")) << kernel.name << describe(p);
      EXPECT_EQ(why.find_first_of(".\n"), std::string::npos) << why;
      const Record record = run_once(kernel, p, "normal", 1);
      EXPECT_EQ(record.status, Status::kSkipped);
      EXPECT_EQ(record.reason, why);
    }
  }
  EXPECT_EQ(numbered, 16);
}

TEST(Takes, TheSentenceSaysWhatWouldBeAccepted) {
  const Kernel& kernel = kernels().front();
  Problem p = problem(1, 8, 256, 64, Dtype::kFp16);
  p.mask = Mask::kCausal;
  EXPECT_EQ(refusal(kernel, p), "takes mask none, not causal");
  p.kv_heads = 2;
  EXPECT_EQ(refusal(kernel, p),
            "takes mask none, not causal; as many heads of keys as of queries (kv_heads 8), not 2");
  p.mask = Mask::kNone;
  p.kv_heads.reset();
  p.kv_len = 300;
  EXPECT_EQ(refusal(kernel, p), "takes as many keys as queries (kv_len 256), not 300");
  p.pack({{3, 3}});
  EXPECT_EQ(refusal(kernel, p), "takes sequences of one length (seq_len), not cu_seqlens");
  p = problem(1, 8, 256, 64, Dtype::kFp16);
  p.page(16, {256, 256});
  EXPECT_EQ(refusal(kernel, p), "takes K and V in one piece, not in pages (page_size)");
  p = problem(1, 8, 256, 64, Dtype::kFp16);
  EXPECT_EQ(refusal(kernel, with({"window", {128, -1}}, p)), "takes window -1,-1, not 128,-1");
  EXPECT_EQ(refusal(kernel, with({"softcap", {}, 50}, p)),
            "takes scores without a softcap (softcap)");
  EXPECT_EQ(refusal(kernel, with({"slopes", {}, 0, Alibi::kSequence, true}, p)),
            "takes alibi_slopes none, not sequence; heads without a sink (sinks)");
}

// A problem with one of them is no plain one, and no kernel takes it that does not say so.
TEST(Takes, WhatHappensToScoresIsForThoseThatSaySo) {
  for (const Option& option : kOptions) {
    const Problem p = with(option, problem(1, 8, 256, 64, Dtype::kFp16));
    EXPECT_FALSE(p.is_plain());
    std::string takers;
    for (const Kernel& kernel : kernels()) {
      const Takes& takes = kernel.takes;
      const bool all =
          (takes.window || option.window == Window{}) && (takes.softcap || option.softcap == 0) &&
          (takes.alibi || option.alibi == Alibi::kNone) && (takes.sinks || !option.sinks);
      const Problem of_kernel = for_kernel(kernel, p);
      EXPECT_EQ(refusal(kernel, of_kernel).empty(), all) << kernel.name << ", " << option.name;
      if (all) takers += kernel.name + " ";
    }
    EXPECT_CONTAINS(takers, "beyond/plain");
  }
}

TEST(Best, IsTheFastestKernelThatTakesTheProblem) {
  const auto name = [](const Problem& p, bool lse = false) {
    float memory = 0;
    Tensors tensors;
    tensors.lse = lse ? &memory : nullptr;
    return best_kernel(p, with_strides(p, tensors)).kernel->name;
  };
  const Problem plain = problem(4, 32, 2048, 64, Dtype::kFp16);  // query tiles for every GPU
  EXPECT_EQ(name(plain), "16_max_free");
  EXPECT_EQ(name(plain, true), "beyond/causal");
  for (const Problem& p : not_plain()) {
    const bool few = p.packed.empty() && p.heads / p.key_heads() * p.seq_len <= 16;
    const bool by_parts = few || p.page_size > 0;
    if (!by_parts && p.packed.empty()) continue;  // those below
    const std::string others = p.page_size > 0 ? "beyond/share_tiles" : "beyond/causal";
    const bool shares = !few && (p.page_size == 0 || name(p) == others);  // by an estimate
    EXPECT_EQ(name(p), shares ? others : "beyond/split_keys") << describe(p);
  }
  Problem many = problem(1, 8, 100, 64, Dtype::kBf16);
  many.page(64, {300, 100});
  EXPECT_EQ(name(many), "beyond/split_keys");
  // By the estimates, as the clock of an H200 says: heads of queries and of keys, their lengths.
  const auto of = [&](int batch, int heads, int kv_heads, int q_len, int kv_len, int head_dim) {
    Problem p = problem(batch, heads, q_len, head_dim, Dtype::kBf16);
    p.kv_heads = kv_heads;
    p.kv_len = kv_len;
    p.mask = Mask::kCausal;
    return name(p);
  };
  EXPECT_EQ(of(1, 32, 8, 64, 8192, 128), "beyond/share_tiles");
  EXPECT_EQ(of(1, 8, 4, 1, 2000, 128), "beyond/split_keys");
  EXPECT_EQ(of(11, 18, 2, 10, 455, 128), "beyond/share_tiles");
  EXPECT_EQ(of(8, 32, 8, 105, 105, 128), "beyond/causal");
  EXPECT_EQ(of(16, 16, 16, 1000, 1000, 64), "beyond/causal");
  EXPECT_EQ(of(2, 28, 1, 30, 5079, 64), "beyond/share_tiles");
  // share_tiles does not take these.
  EXPECT_EQ(of(1, 8, 4, 1, 2000, 256), "beyond/split_keys");
  EXPECT_EQ(of(1, 32, 8, 64, 8192, 256), "beyond/split_keys");
  EXPECT_EQ(of(1, 32, 8, 64, 8192, 96), "beyond/split_keys");
  EXPECT_EQ(of(8, 32, 8, 105, 105, 256), "beyond/causal");
  // Keys of 256 numbers make up for merging earlier.
  EXPECT_EQ(of(1, 32, 8, 64, 1300, 96), "beyond/causal");
  EXPECT_EQ(of(1, 32, 8, 64, 1300, 256), "beyond/split_keys");
  // One number for all: what is faster comes first, and peers, ceilings and kernels/next never do.
  std::string order;
  for (const Kernel* each : by_speed(plain)) order += each->name.substr(0, 9) + " ";
  EXPECT_EQ(order.find("16_max_fr beyond/ca 15_persis 14_"), 0u) << order;
  EXPECT_EQ(order.find(".next"), std::string::npos);
  EXPECT_EQ(by_speed(plain).back()->name, "beyond/plain");
  Problem fp8 = plain;
  fp8.fp8 = Fp8::kHead;
  EXPECT_EQ(name(fp8), "beyond/fp8");
}

// By estimates for a GPU with as many SMs as an H200, where these were timed.
TEST(Best, KnowsLengthsAndPages) {
#ifdef FA_WITH_CUDA
  if (sm_count() < 100) GTEST_SKIP() << "few SMs, for which tiles are not few";
#else
  const int sms = std::exchange(emu::options().sms, 132);
#endif
  const auto name = [](Problem& p) {
    p.kv_heads = p.kv_heads.value_or(8);
    return best_kernel(p, with_strides(p, {})).kernel->name;
  };
  Problem packed = problem(1, 32, 1, 128, Dtype::kBf16), paged = packed, single = packed;
  packed.mask = Mask::kCausal;
  packed.pack({{64, 4000}, {100, 8192}, {17, 3000}, {300, 300}});
  EXPECT_EQ(name(packed), "beyond/share_tiles");
  packed.heads = packed.kv_heads.emplace(16);
  packed.pack({{512, 512}, {33, 33}, {700, 700}, {1200, 1200}});
  EXPECT_EQ(name(packed), "beyond/causal");
  paged.page(64, {3000, 4000, 500, 9000});
  EXPECT_EQ(name(paged), "beyond/split_keys");
  for (const int queries : {16, 128}) {
    paged.seq_len = queries;
    EXPECT_EQ(name(paged), "beyond/share_tiles") << queries;
  }
  // Not timed: a cluster has eight CTAs at most.
  single.heads = single.kv_heads.emplace(1);
  single.seq_len = 32;
  single.kv_len = 100000;
  EXPECT_EQ(name(single), "beyond/split_keys");
#ifndef FA_WITH_CUDA
  emu::options().sms = sms;
#endif
}

TEST(Best, SaysWhyFasterOnesCannot) {
  Problem p = problem(4, 32, 2048, 64, Dtype::kFp16);
  p.mask = Mask::kCausal;
  const Choice choice = best_kernel(p, with_strides(p, {}));
  ASSERT_EQ(choice.faster.size(), 1u);
  EXPECT_EQ(choice.faster[0].first->name, "16_max_free");
  EXPECT_EQ(choice.faster[0].second, "takes mask none, not causal");
}

TEST(Takes, ShapesThatMakeNoSenseAreBadInput) {
  const auto why = [](const Problem& p) { return error_of<BadInput>([&] { validate(p, true); }); };
  const Problem good = problem(1, 6, 77, 64, Dtype::kFp16);
  EXPECT_EQ(why(good), "no error");
  EXPECT_THROW(validate(good), BadInput);
  Problem p = good;
  p.kv_heads = 4;
  EXPECT_EQ(why(p), "kv_heads must divide heads, which are 6, not be 4");
  p = good;
  p.kv_len = 0;
  EXPECT_EQ(why(p), "kv_len must be from 1 to 4194304, not 0");
  const std::tuple<int Problem::*, int, const char*> rows[] = {
      {&Problem::batch, 0, "batch must be at least 1"},
      {&Problem::heads, 0, "heads must be at least 1"},
      {&Problem::seq_len, 0, "seq_len must be at least 1, not 0"},
      {&Problem::seq_len, 1 << 23, "seq_len must be at most 4194304"}};
  for (const auto& [field, value, sentence] : rows) {
    p = good;
    p.*field = value;
    EXPECT_EQ(why(p), sentence);
  }
  for (const auto& lengths : {std::vector<Sequence>{{0, 5}, {0, 0}}, {257, {1 << 22, 1}}}) {
    p = good;
    p.pack(lengths);
    EXPECT_EQ(why(p), "cu_seqlens must have a sum from 1 to 1073741824");
  }
  p.pack({{1, 5}, {-1, 2}});
  EXPECT_EQ(why(p), "cu_seqlens must not be negative");
  p.pack({{1, 5}, {1, 2}});
  p.page(16, {5, 2});
  EXPECT_EQ(why(p), "page_size does not go with cu_seqlens");
  p = good;
  for (const int size : {8, 24, 512}) {
    p.page(size, {1, 2});
    EXPECT_EQ(why(p), "page_size must be 16, 32, 64, 128 or 256, not " + std::to_string(size));
  }
  p.page(16, {1, 2});
  EXPECT_EQ(why(p), "no error");
  p.kv_lens = {3, 0};
  EXPECT_EQ(why(p), "kv_lens must be from 0 to 2, the longest, not 3");
  for (const auto& [window, text] :
       {std::pair(Window{-2, 0}, "-2,0"), {{5, INT_MAX}, "5,2147483647"}}) {
    p = good;
    p.window = window;
    EXPECT_EQ(why(p), "window must be two numbers from -1, for all keys, to 1073741824, not " +
                          std::string(text));
  }
  p = good;
  p.window = {1 << 30, 1 << 30};
  EXPECT_EQ(why(p), "no error");
  for (const float wrong : {-1.0f, INFINITY, NAN}) {
    p.softcap = wrong;
    EXPECT_EQ(why(p), "softcap must be above 0 and finite, or 0 for none");
  }
}

TEST(Takes, SinksAndSlopesAreThere) {
  const Kernel& kernel = find_kernel("plain");
  Problem p = problem(1, 2, 128, 64, Dtype::kBf16);
  alignas(16) static float memory[4];
  Tensors t{memory, memory, memory, memory};
  p.sinks = true;
  EXPECT_EQ(error_of<BadInput>([&] { run(kernel, p, t); }), "the pointer to the sinks is null");
  t.sinks = reinterpret_cast<const float*>(reinterpret_cast<const char*>(memory) + 2);
  EXPECT_EQ(error_of<BadInput>([&] { run(kernel, p, t); }),
            "the pointer to the sinks is not a multiple of 4 bytes");
  p.sinks = false;
  p.alibi = Alibi::kHead;
  EXPECT_EQ(error_of<BadInput>([&] { run(kernel, p, t); }),
            "the pointer to ALiBi's slopes is null");
}

// With pages the pool is the tensor, however long all sequences would be if each were as long as
// the longest one.
TEST(Takes, OnlyThePagesThatThereAreCount) {
  Problem p = problem(1, 8, 1, 128, Dtype::kBf16);
  std::vector<int> lengths(512, 16);
  lengths[3] = 131'073;
  p.page(256, lengths);
  EXPECT_NO_THROW(validate(p, true));
  p.page(256, std::vector<int>(512, 131'073));
  EXPECT_THROW(validate(p, true), BadInput);
}

// ---- the ends of ranges -------------------------------------------------------------------------
// fp16 rounds a P from 65520 on to infinity, so 2^16 is too high a limit on P or on a lane's sum of
// P. Here every second group of 8 rows has a key whose P is between 2^15.99966 and 2^15.99994 if
// the reference is a tile's first score (causal), the maximum of the tile before (14, 15), or the
// greatest of a query tile's first eight scores (16). All other P of its lane are next to nothing,
// also those of the lane's other row.
TEST(Range, NoPRoundsToInfinity) {
  const Problem p = problem(1, 1, 256, 64, Dtype::kFp16);
  const double scale_log2 = double(p.scale()) * std::log2(std::exp(1.0));
  for (const size_t hot_key : {5, 13, 133}) {
    Inputs inputs = make_inputs(p, "normal", 1);
    for (size_t row = 0; row < 256; row++) {
      const double above = 15.99966 + 4e-5 * double(row % 8);
      const double score = row % 16 < 8 ? above / scale_log2 : -100;
      const float high = to_float(from_float(float(score), p.dtype), p.dtype);
      const float of_q[3] = {high, float(score - double(high)), 600};
      const float of_k[3] = {row == hot_key ? 1.0f : 0.0f, row == hot_key ? 1.0f : 0.0f,
                             row == hot_key || row % 128 == 0 ? 0.0f : -1.0f};
      for (size_t c = 0; c < 64; c++) {
        inputs.q[row * 64 + c] = from_float(c < 3 ? of_q[c] : 0, p.dtype);
        inputs.k[row * 64 + c] = from_float(c < 3 ? of_k[c] : 0, p.dtype);
      }
    }
    Protocol protocol;
    Runner runner(p, inputs, protocol);
    for (const Kernel& kernel : kernels()) {
      if (kernel.traits < Traits::kLazy) continue;
      const Record record = runner.verify(kernel);
      EXPECT_TRUE(record.status == Status::kPassed || record.status == Status::kSkipped)
          << kernel.name << ", key " << hot_key << ": " << record.reason;
    }
  }
}

// Kernel 16's O is finite and as exact as for V of N(0, 1), however large V is, and down to V of
// 2^-60, although its P begin at 2^-66: products of V below that are under 2^-126, where fp32 loses
// bits. In the stairs of 60 and 90 nats of huge_v P is scaled before it meets V.
TEST(Range, AnyV) {
  const Kernel& kernel = find_kernel("16_max_free");
  for (const std::string scores : {"normal", "growing", "huge_v"}) {
    Problem p = problem(1, 1, 384, 64, Dtype::kBf16);
    if (scores == "growing") p.scores = {20, Growth::kGrowing};
    const std::string name = scores == "huge_v" ? scores : "normal";
    const float size_of_v = scores == "huge_v" ? 0x1p100f : 1.0f;
    // In even, odd or all columns: a lane of O has two of each row.
    for (const auto& [size, parity] :
         {std::pair{1e-18f, 2}, {1e20f, 2}, {1e36f, 2}, {1e36f, 0}, {1e36f, 1}}) {
      Inputs inputs = make_inputs(p, name, 1);
      for (size_t i = 0; i < inputs.v.size(); i++) {
        const float huge = parity == 2 || i % 2 == size_t(parity) ? size : 1.0f;
        inputs.v[i] = from_float(to_float(inputs.v[i], p.dtype) / size_of_v * huge, p.dtype);
      }
      Protocol protocol;
      const Record record = Runner(p, inputs, protocol).verify(kernel);
      if (record.status == Status::kSkipped) GTEST_SKIP() << record.reason;
      EXPECT_EQ(record.status, Status::kPassed)
          << scores << ", V of " << size << " in columns " << parity << ": " << record.reason;
      ASSERT_TRUE(record.comparison);
      EXPECT_LE(record.comparison->rel, 3e-3) << scores << ", V of " << size;
    }
  }
}

// A lane of causal adds less than 2^60 per key tile before its reference rises, so a row adds less
// than 2^62, and V below 2^66 divided by the number of key tiles cannot overflow. Here 16 of 17 key
// tiles come after the one that the reference is of, and each warp has its own size of P. Only one
// of a lane's two rows has it, so the last warp that keeps its reference has lanes that add 2^59.8.
TEST(Range, VOfCausal) {
  Problem p = problem(1, 1, 256, 64, Dtype::kBf16);
  p.kv_len = 17 * 128;
  const double scale_log2 = double(p.scale()) * std::log2(std::exp(1.0));
  Inputs inputs = make_inputs(p, "normal", 1);
  std::fill(inputs.q.begin(), inputs.q.end(), 0);
  std::fill(inputs.k.begin(), inputs.k.end(), 0);
  for (size_t row = 0; row < 256; row++) {
    const double p_log2 = row % 16 < 8 ? 48.8 + double(row / 16) : 0;
    const float high = to_float(from_float(float(p_log2 / scale_log2), p.dtype), p.dtype);
    inputs.q[row * 64] = from_float(high, p.dtype);
    inputs.q[row * 64 + 1] = from_float(float(p_log2 / scale_log2 - double(high)), p.dtype);
  }
  for (size_t key = 0; key < 16 * 128; key++) {
    for (size_t c = 0; c < 2; c++) inputs.k[key * 64 + c] = from_float(1, p.dtype);
  }
  for (const auto& [size, status] :
       {std::pair{0x1p61f, Status::kPassed}, {0x1p63f, Status::kWrong}}) {
    std::fill(inputs.v.begin(), inputs.v.end(), from_float(size, p.dtype));
    Protocol protocol;
    const Record record = Runner(p, inputs, protocol).verify(find_kernel("causal"));
    if (record.status == Status::kSkipped) GTEST_SKIP() << record.reason;
    EXPECT_EQ(record.status, status) << "V of " << size << ": " << record.reason;
  }
}

// 257 heads have more rows than 16 bits with a sign count, in a grid with one CTA per query tile
// and where CTAs take one query tile after another.
TEST(Range, MoreRowsThanSixteenBitsCount) {
  const Problem p = problem(1, 257, 128, 64, Dtype::kBf16);
  Protocol protocol;
  Runner runner(p, make_inputs(p, "normal", 1), protocol);
  for (const char* const name : {"12_tma", "16_max_free"}) {
    const Record record = runner.verify(find_kernel(name));
    EXPECT_TRUE(record.status == Status::kPassed || record.status == Status::kSkipped)
        << name << ": " << record.reason;
  }
}

// ---- the kernels of kernels/beyond --------------------------------------------------------------
TEST_P(Beyond, EveryKernelThatTakesItIsRight) {
  int runs = 0;
  for (const Kernel& kernel : kernels()) {
    if (!is_beyond(kernel)) continue;
    const size_t all = all_input_names().size();
    for (size_t i = 0; i < all; i++) {
      // Kernels on CUDA cores take ten times as long as the others, and treat all scores alike:
      // half of the inputs, and the last one, whose heads differ.
      if (kernel.traits == Traits::kSlow && i >= 8 && i + 1 < all) continue;
      const std::string inputs = all_input_names()[i];
      for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
        const Problem p =
            for_kernel(kernel, make_problem(GetParam(), mask, i % 2 ? Dtype::kFp16 : Dtype::kBf16,
                                            i % 4 < 2 ? 64 : 128));
        if (!refusal(kernel, p).empty() || (mask == Mask::kNone && i % 3 != 0)) continue;
        std::vector<Problem> problems = with_other_head_dims(kernel, p);
        if (kernel.takes.fp8) problems.clear();  // OfFp8 has them
        problems.push_back(p);
        for (const Problem& each : problems) {
          const Record record = run_once(kernel, each, inputs, 1);
          EXPECT_EQ(record.status, Status::kPassed)
              << kernel.name << ", head_dim " << each.head_dim << ", " << inputs << ", "
              << name_of(mask) << ": " << record.reason;
          runs++;
        }
      }
    }
  }
  EXPECT_GT(runs, 0);
}

// Problems that nobody has chosen: options, lengths, groups, packed sequences and pages at random.
Problem random_problem(uint64_t seed) {
  uint64_t state = seed;
  const auto below = [&state](int count) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return int((state >> 33) % uint64_t(count));
  };
  for (int i = 0; i < 8; i++) below(2);
  Problem p = problem(1 + below(2), 1, 1 + below(below(4) ? 20 : 150), below(2) ? 64 : 128,
                      below(2) ? Dtype::kFp16 : Dtype::kBf16);
  const int kv_heads = 1 + below(2);
  p.heads = kv_heads * (1 + below(2));
  if (p.heads != kv_heads) p.kv_heads = kv_heads;
  if (below(2)) p.kv_len = 1 + below(200);
  if (const int kind = below(4); kind == 0) {
    std::vector<Sequence> sequences;
    for (int i = below(4); i >= 0; i--) sequences.push_back({below(50), below(150)});
    sequences.push_back({1 + below(9), 1 + below(9)});
    p.pack(sequences);
  } else if (kind == 1) {
    std::vector<int> lengths;
    for (int i = 0; i < p.batch; i++) lengths.push_back(below(150));
    lengths.push_back(1 + below(150));
    p.page(16 << below(4), lengths);
  }
  p.mask = below(2) ? Mask::kCausal : Mask::kNone;
  const int widths[] = {-1, 0, below(20), below(200), 1 << 30};
  p.window = {widths[below(5)], widths[below(5)]};
  const float caps[] = {0, 0, 0.7f, 5, 50};
  p.softcap = caps[below(5)];
  p.alibi = std::array{Alibi::kNone, Alibi::kHead, Alibi::kSequence}[size_t(below(3))];
  p.sinks = below(2) == 0;
  return p;
}

// 200 of them, in tests of 25.
class OptionsOf : public testing::TestWithParam<int> {};
TEST_P(OptionsOf, RandomProblemsAreRight) {
  std::map<std::string, int> runs;
  int in_one_piece = 0, unpacked = 0;
  for (uint64_t seed = GetParam(); seed < uint64_t(GetParam()) + 25; seed++) {
    const Problem p = random_problem(seed);
    in_one_piece += p.page_size == 0;
    unpacked += p.packed.empty();
    const std::string inputs = all_input_names()[seed % all_input_names().size()];
    for (const Kernel& kernel : kernels()) {
      if (!is_beyond(kernel) || kernel.takes.fp8 || !refusal(kernel, p).empty()) continue;
      std::vector<Problem> problems = with_other_head_dims(kernel, p);
      problems.push_back(p);
      for (const Problem& each : problems) {
        const Record record = run_once(kernel, each, inputs, seed);
        EXPECT_EQ(record.status, Status::kPassed)
            << kernel.name << ", head_dim " << each.head_dim << ", " << inputs << ", seed " << seed
            << describe_rest(p) << ": " << record.reason;
        runs[kernel.name]++;
      }
    }
  }
  EXPECT_EQ(runs["beyond/plain"], 3 * 25);
  EXPECT_EQ(runs["beyond/causal"], 3 * in_one_piece);
  EXPECT_EQ(runs["beyond/split_keys"], 3 * unpacked);
}
INSTANTIATE_TEST_SUITE_P(Seeds, OptionsOf, testing::Range(1, 200, 25),
                         testing::PrintToStringParamName());

// Windows whose edges are in tiles of their own, in the same one, and between two, with all else.
TEST(Options, AcrossSeveralTilesAreRight) {
  std::map<std::string, int> runs;
  const auto run = [&](const Problem& p, size_t i) {
    const std::string inputs = all_input_names()[i % all_input_names().size()];
    for (const Kernel& kernel : kernels()) {
      if (!is_beyond(kernel) || kernel.traits == Traits::kSlow || !refusal(kernel, p).empty())
        continue;
      std::vector<Problem> problems = with_other_head_dims(kernel, p);
      problems.push_back(p);
      for (const Problem& each : problems) {
        const Record record = run_once(kernel, each, inputs, i);
        EXPECT_EQ(record.status, Status::kPassed)
            << kernel.name << ", head_dim " << each.head_dim << ", " << inputs << describe_rest(p)
            << ": " << record.reason;
        runs[kernel.name]++;
      }
    }
  };
  constexpr std::array kLeft = {-1, 0, 60, 128, 129, 300};
  constexpr std::array kRight = {-1, 0, 127, 200};
  for (size_t i = 0; i < kLeft.size() * kRight.size(); i++) {
    const size_t left = i / kRight.size(), right = i % kRight.size();
    Problem p = problem(1, 2, 300, i % 2 ? 64 : 128, left % 2 ? Dtype::kFp16 : Dtype::kBf16);
    p.kv_heads = 1;
    p.kv_len = i % 3 == 1 ? 210 : 700;
    p.window = {kLeft[left], kRight[right]};
    p.softcap = std::array{0.0f, 3.0f, 50.0f}[i % 3];
    p.alibi = i % 5 == 0 ? Alibi::kSequence : i % 5 == 1 ? Alibi::kHead : Alibi::kNone;
    p.sinks = i % 7 < 3;
    Problem few = p;  // so many keys for it that split_keys has several pieces
    few.seq_len = 1 + int(i);
    few.kv_len = 1549;
    if ((left + right) % 4 == 1) {
      p.page(64, {700, 130, 0});
      few.page(16, {1549, 0, 300});
    } else if ((left + right) % 4 == 2) {
      p.pack({{300, 700}, {0, 4}, {131, 40}, {129, 260}});
    }
    run(p, i);
    run(few, i);
  }
  EXPECT_EQ(runs["beyond/causal"], 3 * 36);
  EXPECT_EQ(runs["beyond/split_keys"], 3 * 42);
}

// A sink far above all scores leaves next to nothing for O, and one far below takes nothing. Where
// no key is seen, log-sum-exp is the sink.
TEST(Options, SinksMayBeFarFromTheScores) {
  for (const auto& [q_len, kv_len] : {std::pair{300, 130}, {3, 400}}) {
    Problem p = problem(1, 5, q_len, 64, Dtype::kBf16);
    p.kv_len = kv_len;
    p.mask = Mask::kCausal;
    p.sinks = true;
    Inputs inputs = make_inputs(p, "normal", 1);
    inputs.sinks = {200, -INFINITY, -400, 20, 90};
    Protocol protocol;
    Runner runner(p, inputs, protocol);
    for (const Kernel& kernel : kernels()) {
      if (!is_beyond(kernel) || !refusal(kernel, p).empty()) continue;
      const Record record = runner.verify(kernel);
      EXPECT_EQ(record.status, Status::kPassed) << kernel.name << ": " << record.reason;
    }
  }
}

#ifndef FA_WITH_CUDA
// Tiles of 128 keys that no row of a tile of 128 queries sees are not multiplied.
TEST(Options, KeysOutsideAWindowCostNothing) {
  for (const auto& [left, right] :
       {std::pair{100, 0}, {-1, 30}, {0, 0}, {300, 300}, {129, -1}, {1, 126}}) {
    Problem p = problem(1, 1, 640, 64, Dtype::kBf16);
    p.kv_len = 1000;
    p.window = {left, right};
    const Sequence lengths = p.sequence(0);
    double tiles = 0;
    for (int row = 0; row < 640; row += 128) {
      const int begin = lengths.visible_keys(p.window, row).begin;
      const int end = lengths.visible_keys(p.window, row + 127).end;
      tiles += (end + 127) / 128 - begin / 128;
    }
    const Record record = run_once(find_kernel("causal"), p, "normal", 1);
    EXPECT_EQ(record.status, Status::kPassed) << record.reason;
    const std::map<std::string, double> counts(record.counts.counters.begin(),
                                               record.counts.counters.end());
    EXPECT_EQ(counts.at("matrix_flops"), tiles * 4 * 128 * 128 * 64) << left << ", " << right;
  }
  // Nor, with split_keys, blocks of 128 keys, in tiles of 16 rows.
  Problem p = problem(1, 4, 3, 128, Dtype::kBf16);
  p.kv_len = 4096;
  p.kv_heads = 1;
  for (const auto& [left, blocks] : {std::pair{-1, 32}, {0, 1}, {125, 1}, {126, 2}, {1000, 8}}) {
    p.window = {left, 0};
    const Record record = run_once(find_kernel("split_keys"), p, "normal", 1);
    EXPECT_EQ(record.status, Status::kPassed) << record.reason;
    const std::map<std::string, double> counts(record.counts.counters.begin(),
                                               record.counts.counters.end());
    EXPECT_EQ(counts.at("matrix_flops"), blocks * 4.0 * 128 * 16 * 128) << left;
  }
}
#endif

// Tiles that are full, and others that have a row more or less: the diagonal begins or ends with a
// tile of 64 or 128 keys, and packed sequences have exactly a tile of queries, or of keys.
TEST(Edges, OfTilesAndOfNumbers) {
  std::vector<More> shapes;
  for (const int tile : {-128, -64, 0, 64, 128}) {
    for (const int off : {-1, 0, 1}) {
      shapes.push_back({"diagonal", 1, 1, 1, 150, 150 + tile + off});
    }
  }
  for (const int full : {64, 128}) {
    for (const int off : {-1, 0, 1}) {
      const int rows = full + off;
      shapes.push_back({"packed", 4, 2, 2, 0, 0, {{rows, 5}, {rows, rows}, {3, rows}, {70, 70}}});
    }
  }
  // Rows of one head that 16 bits with a sign do not count.
  shapes.push_back({"many_keys", 1, 1, 1, 2, 33'000});
  shapes.push_back({"many_queries", 1, 1, 1, 33'000, 4});
  for (size_t i = 0; i < shapes.size(); i++) {
    for (const Mask mask : {Mask::kCausal, Mask::kNone}) {
      const bool diagonal = shapes[i].name == std::string("diagonal");
      if (shapes[i].packed.empty() && diagonal != (mask == Mask::kCausal)) continue;
      const Problem p =
          make_problem(shapes[i], mask, i % 2 ? Dtype::kFp16 : Dtype::kBf16, i % 4 < 2 ? 64 : 128);
      int runs = 0;
      for (const Kernel& kernel : kernels()) {
        const Problem of_kernel = for_kernel(kernel, p);
        if (!is_beyond(kernel) || !refusal(kernel, of_kernel).empty()) continue;
        std::vector<Problem> problems = with_other_head_dims(kernel, of_kernel);
        if (kernel.takes.fp8 || i + 2 >= shapes.size()) problems.clear();  // the longest ones, once
        problems.push_back(of_kernel);
        for (const Problem& each : problems) {
          const Record record = run_once(kernel, each, "hot_diagonal", 1);
          EXPECT_EQ(record.status, Status::kPassed)
              << kernel.name << describe(each) << ": " << record.reason;
        }
        runs++;
      }
      EXPECT_GE(runs, 2) << describe(p);
    }
  }
}

// Sets of buffers take turns: a head of K moves together with the heads of Q that read it.
TEST_P(Beyond, SetsOfBuffersTakeTurns) {
  const Problem p = make_problem(GetParam(), Mask::kCausal, Dtype::kFp16, 64);
  Protocol protocol;
  protocol.rotating_inputs = 3;
  for (const Kernel& kernel : kernels()) {
    const Problem of_kernel = for_kernel(kernel, p);
    if (!is_beyond(kernel) || !refusal(kernel, of_kernel).empty()) continue;
    const Record record = Runner(of_kernel, make_inputs(p, "normal", 1), protocol).verify(kernel);
    EXPECT_EQ(record.status, Status::kPassed) << kernel.name << ": " << record.reason;
  }
}

TEST_P(Beyond, TheSameBitsWhateverTheRunAndTheNumberOfThreads) {
  const Problem p = make_problem(GetParam(), Mask::kCausal, Dtype::kBf16, 64);
  int runs = 0;
  std::string skipped;
  for (const Kernel& kernel : kernels()) {
    const Problem of_kernel = for_kernel(kernel, p);
    if (!is_beyond(kernel) || !refusal(kernel, of_kernel).empty()) continue;
    const std::string reason = expect_same_bits(kernel, of_kernel);
    runs += reason.empty();
    if (!reason.empty()) skipped = reason;
  }
  if (runs == 0) GTEST_SKIP() << skipped;
}

// ---- FP8 ----------------------------------------------------------------------------------------
constexpr Fp8 kEveryFp8[] = {Fp8::kHead, Fp8::kTile, Fp8::kRotated};

TEST(OfFp8, EveryScaleOnEveryInputIsRight) {
  int runs = 0;
  for (const Kernel& kernel : kernels()) {
    for (size_t i = 0; kernel.takes.fp8 && i < all_input_names().size(); i++) {
      // The last of the tiles has few rows.
      const Dtype dtype = i % 4 < 2 ? Dtype::kBf16 : Dtype::kFp16;
      Problem p = problem(1, 1, 130, i % 5 == 4 ? 256 : i % 2 ? 64 : 128, dtype);
      p.kv_len = 265;
      p.fp8 = kEveryFp8[i % 3];
      const Record record = run_once(kernel, p, all_input_names()[i], 1);
      EXPECT_EQ(record.status, Status::kPassed)
          << kernel.name << ", " << all_input_names()[i] << ": " << record.reason;
      runs++;
    }
  }
  EXPECT_GE(runs, 18);
}

TEST(OfFp8, NumbersThatFitStayAsTheyAre) {
  Problem p = problem(1, 1, 256, 64, Dtype::kBf16);
  Inputs inputs = make_inputs(p, "one_hot_v", 1);
  for (size_t i = 0; i < inputs.k.size(); i++) {
    // 448, the largest, in every tile, and all other e4m3 of 2^-9 and more.
    __nv_fp8_e4m3 number;
    number.__x = uint8_t(i % 127);
    inputs.k[i] = from_float(float(number), p.dtype);
  }
  for (const Fp8 fp8 : {Fp8::kHead, Fp8::kTile}) {
    p.fp8 = fp8;
    const Fp8Inputs rounded = round_to_fp8(p, inputs);
    for (size_t i = 0; i < inputs.k.size(); i++) {
      ASSERT_EQ(rounded.k[i], to_float(inputs.k[i], p.dtype)) << i;
      ASSERT_EQ(rounded.v[i], to_float(inputs.v[i], p.dtype)) << i;
    }
  }
}

// What comes before the clock starts is done by fa::run, too, and by it alone gives the same O.
TEST(OfFp8, RunIsPrepareAndThenTheRest) {
  int kernels_in_fp8 = 0;
  for (const Kernel& kernel : kernels()) {
    EXPECT_EQ(kernel.takes.fp8, bool(kernel.prepare)) << kernel.name;
    if (!kernel.takes.fp8) continue;
    kernels_in_fp8++;
    Problem p = problem(1, 1, 130, 64, Dtype::kBf16);
    p.fp8 = Fp8::kTile;
    const Inputs inputs = make_inputs(p, "normal", 1);
    Buffer q("Q", p.tensor_bytes()), k("K", p.tensor_bytes()), v("V", p.tensor_bytes());
    q.upload(inputs.q.data());
    k.upload(inputs.k.data());
    v.upload(inputs.v.data());
    const size_t bytes = kernel.workspace_bytes(p, SIZE_MAX);
    const auto output = [&](const auto& launch) {
      Buffer o("O", p.tensor_bytes()), workspace("workspace", bytes);
      o.poison();
      Tensors tensors{q.data(), k.data(), v.data(), o.data(), workspace.data(), bytes};
      launch(tensors);
      synchronize();
      std::vector<uint16_t> values(p.element_count());
      o.download(values.data());
      return values;
    };
    const auto whole = output([&](const Tensors& t) { run(kernel, p, t); });
    const auto parts = output([&](const Tensors& t) {
      prepare(kernel, p, t);
      // K is not read any more.
      k.poison();
      run_prepared(kernel, p, t);
    });
    EXPECT_EQ(whole, parts) << kernel.name;
  }
  EXPECT_GE(kernels_in_fp8, 2);
}

// A library that rounds by a rule of its own is held to the norm alone: some of its elements may be
// far off, but not all.
TEST(OfFp8, OtherRoundingsAreHeldToTheNorm) {
  Problem p = problem(1, 2, 256, 128, Dtype::kBf16);
  p.fp8 = Fp8::kHead;
  const Reference reference = make_reference(p, make_inputs(p, "normal", 1), p.seq_len);
  const auto passes = [&](const std::vector<uint16_t>& output, bool own_rounding) {
    return compare(p, reference, output, {}, own_rounding).passed;
  };
  std::vector<uint16_t> output = rounded(reference, p.dtype);
  EXPECT_TRUE(passes(output, false));
  output[5] = from_float(to_float(output[5], p.dtype) + 0.5f, p.dtype);
  EXPECT_FALSE(passes(output, false));
  EXPECT_TRUE(passes(output, true));
  std::rotate(output.begin(), output.begin() + 128, output.end());  // O of other rows
  EXPECT_FALSE(passes(output, true));
}

// An outlier takes its bits from those alone that share its scale; after a rotation the row's other
// numbers get them back.
TEST(OfFp8, AnOutlierReachesAsFarAsItsScale) {
  Problem p = problem(1, 1, 384, 128, Dtype::kBf16);
  Inputs inputs = make_inputs(p, "normal", 1);
  const size_t outlier = 130 * 128 + 5;  // in row 130, of the second tile
  inputs.k[outlier] = from_float(1e5f, p.dtype);
  const auto error = [&](Fp8 fp8, size_t row) {  // of Q K^T, q the row of Q with the same number
    p.fp8 = fp8;
    const Fp8Inputs rounded = round_to_fp8(p, inputs);
    double sum = 0, size = 0;
    for (size_t other = 0; other < 384; other++) {
      double exact = 0, actual = 0;
      for (size_t c = 0; c < 128; c++) {
        exact += double(to_float(inputs.q[row * 128 + c], p.dtype)) *
                 double(to_float(inputs.k[other * 128 + c], p.dtype));
        actual += double(rounded.q[row * 128 + c]) * double(rounded.k[other * 128 + c]);
      }
      if (other / 128 == 1) continue;
      sum += (actual - exact) * (actual - exact);
      size += exact * exact;
    }
    return std::sqrt(sum / size);
  };
  EXPECT_GT(error(Fp8::kHead, 0), 0.1) << "1e5 / 448 is far above most numbers";
  EXPECT_LT(error(Fp8::kTile, 0), 0.05);
  EXPECT_LT(error(Fp8::kRotated, 0), 0.05);
}

// Whoever rounds, O is held to that of the inputs before, on the same rows; so it is in 16 bits.
TEST(OfFp8, ErrorsOfAllAreFromTheInputsBeforeRounding) {
  Problem p = problem(1, 2, 1024, 64, Dtype::kFp16);
  const Inputs inputs = make_inputs(p, "loud_channels", 1);
  const Reference exact = make_reference(p, inputs, 32);
  double squares = 0;
  for (const double value : exact.values) squares += value * value;
  const double norm = std::sqrt(squares), count = std::sqrt(double(exact.values.size()));
  for (const Fp8 fp8 : {Fp8::kNone, Fp8::kHead, Fp8::kRotated}) {
    p.fp8 = fp8;
    const Reference reference = make_reference(p, inputs, 32);
    EXPECT_EQ(reference.rows, exact.rows);
    for (const bool own_rounding : {false, true}) {
      for (const double off : {0.0, 0.25}) {
        std::vector<uint16_t> output(p.element_count());
        for (size_t i = 0; i < exact.values.size(); i++) {
          output[exact.rows[i / 64] * 64 + i % 64] =
              from_float(float(exact.values[i] + off), p.dtype);
        }
        const Comparison c = compare(p, reference, output, {}, own_rounding);
        EXPECT_NEAR(c.rmse, off, 5e-4);
        EXPECT_NEAR(c.rel_unrounded, off * count / norm, 5e-4 * count / norm);
      }
    }
  }
}

TEST(OfFp8, BytesOfRoundingCountASecondReading) {
  Problem p = problem(2, 4, 256, 64, Dtype::kBf16);
  p.kv_heads = 2;
  p.kv_len = 512;
  const size_t q = size_t(2) * 4 * 256 * 64, k = size_t(2) * 2 * 512 * 64;
  p.fp8 = Fp8::kHead;
  EXPECT_EQ(bytes_of_rounding(p), 5 * (q + k + k));
  for (const Fp8 fp8 : {Fp8::kTile, Fp8::kRotated}) {
    p.fp8 = fp8;
    EXPECT_EQ(bytes_of_rounding(p), 3 * (q + k) + 5 * k);
  }
}

// FlashAttention-3's inputs: a rotation gives back what outliers cost, and costs nothing without.
// Likewise with columns that are loud.
TEST(OfFp8, ARotationHelpsAgainstOutliers) {
  std::map<Fp8, double> of_outliers, of_normal, of_channels;
  for (const Fp8 fp8 : kEveryFp8) {
    Problem p = problem(1, 1, 1024, 128, Dtype::kBf16);
    p.fp8 = fp8;
    const auto error = [&](const std::string& inputs) {  // of a kernel that only rounds the inputs
      const Reference reference = make_reference(p, make_inputs(p, inputs, 1), p.seq_len);
      return compare(p, reference, rounded(reference, p.dtype)).rel_unrounded;
    };
    of_outliers[fp8] = error("outliers");
    of_normal[fp8] = error("normal");
    of_channels[fp8] = error("loud_channels");
  }
  EXPECT_LT(of_channels[Fp8::kRotated], 0.7 * of_channels[Fp8::kTile]);
  EXPECT_LT(of_outliers[Fp8::kRotated], 0.7 * of_outliers[Fp8::kTile]);
  EXPECT_LT(of_outliers[Fp8::kRotated], 0.7 * of_outliers[Fp8::kHead]);
  for (const Fp8 fp8 : kEveryFp8) EXPECT_NEAR(of_normal[fp8], 0.046, 0.002) << name_of(fp8);
}

// As if the second tile of V had another tile's scale.
TEST(OfFp8, AWrongScaleOfATileIsFound) {
  Problem p = problem(1, 1, 256, 64, Dtype::kBf16);
  for (const Fp8 fp8 : kEveryFp8) {
    p.fp8 = fp8;
    Inputs inputs = make_inputs(p, "normal", 1);
    const Reference reference = make_reference(p, inputs);
    EXPECT_TRUE(compare(p, reference, rounded(reference, p.dtype)).passed);
    for (size_t i = 128 * 64; i < inputs.v.size(); i++)
      inputs.v[i] = from_float(1.25f * to_float(inputs.v[i], p.dtype), p.dtype);
    EXPECT_FALSE(compare(p, reference, rounded(make_reference(p, inputs), p.dtype)).passed);
  }
}

TEST(OfFp8, IsRefusedInOneSentence) {
  Problem p = problem(1, 1, 128, 64, Dtype::kBf16);
  const Kernel& kernel = find_kernel("fp8_plain");
  EXPECT_EQ(refusal(kernel, p), "takes fp8 head, tile or rotated, not none");
  p.fp8 = Fp8::kTile;
  EXPECT_EQ(refusal(kernel, p), "");
  EXPECT_EQ(refusal(kernels().front(), p), "takes fp8 none, not tile");
  p.pack({{3, 3}});
  EXPECT_EQ(error_of<BadInput>([&] { validate(p, true); }),
            "fp8 goes with neither cu_seqlens nor page_size");
}

#ifndef FA_WITH_CUDA
// A tensor in memory of its own, with gaps between its rows. On a GPU test_python.py has such ones.
class Apart {
 public:
  Apart(const std::string& name, size_t blocks, size_t heads, size_t rows, int head_dim,
        const Strides& strides)
      : sizes_{blocks, heads, rows},
        head_dim_(size_t(head_dim)),
        strides_(strides),
        memory_(strides.at(blocks, heads, rows), kGap),
        buffer_(name, memory_.size() * 2) {
    buffer_.upload(memory_.data());
  }
  void* data() const { return buffer_.data(); }
  void take(const void* contiguous) {
    each_row([&](size_t at, size_t i) {
      std::memcpy(&memory_[at], static_cast<const uint16_t*>(contiguous) + i, head_dim_ * 2);
    });
    buffer_.upload(memory_.data());
  }
  // Also looks at the gaps, in which nothing may have been written.
  void give(void* contiguous) {
    buffer_.download(memory_.data());
    each_row([&](size_t at, size_t i) {
      std::memcpy(static_cast<uint16_t*>(contiguous) + i, &memory_[at], head_dim_ * 2);
      std::fill_n(&memory_[at], head_dim_, kGap);
    });
    EXPECT_EQ(std::count(memory_.begin(), memory_.end(), kGap), std::ptrdiff_t(memory_.size()));
  }

 private:
  static constexpr uint16_t kGap = 0x7fe1;  // NaN
  template <typename Body>
  void each_row(const Body& body) const {
    for (size_t i = 0; i < sizes_[0] * sizes_[1] * sizes_[2]; i++) {
      const size_t head = i / sizes_[2];
      body(strides_.at(head / sizes_[1], head % sizes_[1], i % sizes_[2]), i * head_dim_);
    }
  }
  std::array<size_t, 3> sizes_;
  size_t head_dim_;
  Strides strides_;
  std::vector<uint16_t> memory_;
  Buffer buffer_;
};

// With strides the same bits as without.
void expect_rows_anywhere(const Kernel& kernel, const Problem& p) {
  const long long d = p.head_dim;
  const size_t blocks = size_t(p.blocks()), heads = size_t(p.heads);
  const bool pages = p.page_size > 0;
  const size_t k_blocks = pages ? size_t(p.pages) : blocks, k_heads = size_t(p.key_heads());
  const size_t k_rows = pages ? size_t(p.page_size) : p.kv_rows();
  Kernel apart = kernel;
  apart.run = [&](const Problem& same, const Tensors& t) {
    Tensors other = t;
    // Rows before heads, as FlashAttention has them, and gaps of several lengths; of K a head of
    // all blocks before the next head; V as a slice of [blocks, rows, 3, heads, columns].
    other.q_strides.head = d + 8;
    other.q_strides.row = (long long)(heads) * (d + 8) + 16;
    other.q_strides.block = (long long)(p.q_rows()) * other.q_strides.row + 24;
    other.o_strides.row = other.q_strides.row + 8;
    other.o_strides.head = d;
    other.o_strides.block = (long long)(p.q_rows()) * other.o_strides.row + 8;
    other.k_strides = {(long long)(k_rows)*d, (long long)(k_blocks * k_rows) * d, d};
    other.v_strides = {(long long)(k_rows * 3 * k_heads) * d, d, (long long)(3 * k_heads) * d};
    Apart q("Q", blocks, heads, p.q_rows(), p.head_dim, other.q_strides);
    Apart o("O", blocks, heads, p.q_rows(), p.head_dim, other.o_strides);
    Apart k("K", k_blocks, k_heads, k_rows, p.head_dim, other.k_strides);
    Apart v("V", k_blocks, k_heads, k_rows, p.head_dim, other.v_strides);
    q.take(t.q);
    k.take(t.k);
    v.take(t.v);
    other.q = q.data();
    other.k = k.data();
    other.v = v.data();
    other.o = o.data();
    kernel.run(same, with_strides(same, other));
    synchronize();
    o.give(t.o);
  };
  const Record together = run_once(kernel, p, "normal", 1);
  const Record record = run_once(apart, p, "normal", 1);
  EXPECT_EQ(record.status, Status::kPassed) << kernel.name << ": " << record.reason;
  EXPECT_EQ(record.output, together.output) << kernel.name;
}

TEST_P(Beyond, RowsLieAnywhere) {
  const Problem p = make_problem(GetParam(), Mask::kCausal, Dtype::kBf16, 64);
  int runs = 0;
  for (const Kernel& kernel : kernels()) {
    const Problem of_kernel = for_kernel(kernel, p);
    if (!kernel.takes.strides || !refusal(kernel, of_kernel).empty()) continue;
    expect_rows_anywhere(kernel, of_kernel);
    for (const Problem& each : with_other_head_dims(kernel, of_kernel)) {
      expect_rows_anywhere(kernel, each);
    }
    runs++;
    for (const Option& option : kOptions) {
      if (option.name != std::string("all") || kernel.takes.fp8) continue;
      if (refusal(kernel, with(option, p)).empty()) expect_rows_anywhere(kernel, with(option, p));
    }
  }
  EXPECT_GT(runs, 0);
}

TEST(Strides, AreTheMapsOfTheNumberedKernels) {
  int runs = 0;
  for (const Kernel& kernel : kernels()) {
    if (is_beyond(kernel) || !kernel.takes.strides) continue;
    // The last query tile of a head has rows past its end where it has three consumers.
    expect_rows_anywhere(kernel, problem(2, 3, 256, 64, Dtype::kBf16));
    expect_rows_anywhere(kernel, problem(2, 2, 384, 128, Dtype::kFp16));
    runs += !is_next(kernel);
  }
  EXPECT_EQ(runs, 5);
}

TEST(Strides, ThatNoKernelTakesAreBadInput) {
  const Problem p = problem(2, 2, 128, 64, Dtype::kBf16);
  alignas(16) static uint16_t memory[8];
  Tensors t{memory, memory, memory, memory};
  const auto said = [&](const Strides& q, const Strides& o, const Strides& k = {},
                        const Strides& v = {}) {
    t.q_strides = q;
    t.k_strides = k;
    t.v_strides = v;
    t.o_strides = o;
    return error_of<BadInput>([&] { with_strides(p, t); });
  };
  EXPECT_EQ(said({}, {}), "no error");
  EXPECT_EQ(said({0, 0, 0}, {128 * 128, 64, 128}), "no error");
  EXPECT_EQ(said({128 * 128, 0, 64}, {}), "no error") << "one head for all";
  const std::pair<const char*, long long Strides::*> dimensions[] = {
      {"block", &Strides::block}, {"head", &Strides::head}, {"row", &Strides::row}};
  for (const auto& [name, dimension] : dimensions) {
    for (const long long wrong : {60LL, -8LL, 1LL << 39}) {
      Strides s{128 * 128, 128 * 64, 64};
      s.*dimension = wrong;
      const std::string rest = std::string("_strides.") + name +
                               " must be a multiple of 8 from 0 to 2^39 - 8, not " +
                               std::to_string(wrong);
      EXPECT_EQ(said(s, {}), "q" + rest);
      EXPECT_EQ(said({}, {}, s), "k" + rest);
      EXPECT_EQ(said({}, {}, {}, s), "v" + rest);
      EXPECT_EQ(said({}, s), "o" + rest);
    }
  }
  const std::string overlap =
      "o_strides let rows of O overlap: each must have 64 elements of its own";
  EXPECT_EQ(said({}, {128 * 128, 64, 120}), overlap);
  EXPECT_EQ(said({}, {128 * 128, 0, 64}), overlap);
  EXPECT_EQ(said({}, {128 * 128 - 8, 64, 128}), overlap);
  t.o_strides = {128 * 128, 64, 128};
  EXPECT_EQ(error_of<Unsupported>([&] { run(find_kernel("11"), p, t); }),
            "takes contiguous tensors alone");
}

// From one piece of the keys to more pieces than are merged at a time, some of them without a key,
// or none but empty ones; rows for one consumer of share_tiles and for two, and with pages.
TEST(SplitKeys, AnyNumberOfPiecesIsMerged) {
  struct Case {
    int queries, keys;
    bool pages;
  };
  for (const char* const kernel : {"split_keys", "share_tiles"}) {
    for (const int sms : {1, 20, 132}) {
      emu::options().sms = sms;
      for (const auto& [queries, keys, pages] :
           {Case{1, 30'011, false}, {3, 30'011, false}, {3, 30'011, true}, {20, 3'001, true}}) {
        Problem p = problem(1, 8, queries, 64, Dtype::kBf16);
        p.kv_len = keys;
        p.kv_heads = 1;
        p.mask = Mask::kCausal;
        if (pages) p.page(64, {keys * 3 / 10, 0, 700});
        const Record record = run_once(find_kernel(kernel), p, "normal", 1);
        EXPECT_EQ(record.status, Status::kPassed)
            << kernel << " on " << sms << " SMs, " << describe(p) << ": " << record.reason;
      }
    }
  }
  emu::options() = {};
}

// A kernel that counts at the beginning of its workspace begins with zeros there, also where
// another one has written into a workspace of the same size, and then with what its own last launch
// has left. The rest of the workspace stays as nobody has written it.
TEST(Workspace, BeginsAsZerosAndIsKept) {
  const Problem p = problem(1, 1, 3, 64, Dtype::kBf16);
  const Kernel& plain = find_kernel("plain");
  std::vector<uint32_t> seen;
  bool fails = false;
  const auto counting = [&](const std::string& name, bool zeroed) {
    Kernel kernel = plain;
    kernel.name = name;
    if (zeroed) kernel.zeroed_bytes = [] { return sizeof(uint32_t); };
    kernel.workspace_bytes = [](const Problem&, size_t) { return 2 * sizeof(uint32_t); };
    kernel.run = [&](const Problem& problem, const Tensors& tensors) {
      uint32_t& count = *static_cast<uint32_t*>(tensors.workspace);
      EXPECT_EQ((&count)[1], 0xffffffffu);
      seen.push_back(count);
      count++;
      if (fails) throw BackendError("a launch that ended early");
      plain.run(problem, tensors);
    };
    return kernel;
  };
  const Kernel zeroed = counting("zeroed", true), other = counting("other", false);
  Protocol protocol;
  protocol.rotating_inputs = 2;
  Runner runner(p, make_inputs(p, "normal", 1), protocol);
  for (const Kernel& kernel : {zeroed, other, zeroed}) {
    EXPECT_EQ(runner.verify(kernel).status, Status::kPassed);
  }
  EXPECT_EQ(seen, (std::vector<uint32_t>{0, 1, 2, 3, 0, 1}));
  // A launch that failed may have left anything.
  seen.clear();
  fails = true;
  EXPECT_EQ(runner.verify(zeroed).status, Status::kError);
  fails = false;
  EXPECT_EQ(runner.verify(zeroed).status, Status::kPassed);
  EXPECT_EQ(seen, (std::vector<uint32_t>{2, 0, 1}));
}
#endif

// Launch after launch: the same bits as the first (label long).
class LongSameBits : public testing::TestWithParam<Kernel> {};

TEST_P(LongSameBits, LaunchAfterLaunch) {
  const int launches = on_gpu() ? 5000 : 2;  // of each problem
  const int heads = on_gpu() ? 40 : 1;       // more query tiles than CTAs at a time
  // In the last problem there are fewer query tiles than SMs, so split_keys merges pieces.
  for (const auto& [plain, sms] : {std::pair{problem(1, heads, 512, 128, Dtype::kBf16), 3},
                                   {problem(1, heads, 384, 64, Dtype::kFp16), 3},
                                   {problem(1, 1, 512, 64, Dtype::kFp16), 20}}) {
#ifndef FA_WITH_CUDA
    emu::options().sms = sms;
#endif
    const Problem p = for_kernel(GetParam(), plain);
    const Inputs inputs = make_inputs(p, "normal", 5);
    const size_t bytes = p.element_count() * sizeof(uint16_t);
    Buffer q("Q", bytes), k("K", bytes), v("V", bytes), o("O", bytes);
    q.upload(inputs.q.data());
    k.upload(inputs.k.data());
    v.upload(inputs.v.data());
    const size_t limit = size_t(64) << 20;
    const size_t workspace_bytes =
        GetParam().workspace_bytes == nullptr ? 0 : GetParam().workspace_bytes(p, limit);
    Buffer workspace("workspace", std::max<size_t>(workspace_bytes, 16));
    if (GetParam().zeroed_bytes) workspace.zero(GetParam().zeroed_bytes());
    const Tensors tensors{q.data(), k.data(),         v.data(),
                          o.data(), workspace.data(), workspace_bytes};
    std::vector<uint16_t> first(p.element_count()), again(p.element_count());
    for (int i = 0; i < launches; i++) {
      o.poison();
      try {
        run(GetParam(), p, tensors);
      } catch (const Unsupported& e) {
        GTEST_SKIP() << e.what();
      }
      synchronize();
      o.download((i == 0 ? first : again).data());
      ASSERT_TRUE(i == 0 || again == first) << describe(p) << ", launch " << i;
    }
  }
#ifndef FA_WITH_CUDA
  emu::options() = {};
#endif
}
INSTANTIATE_TEST_SUITE_P(Kernels, LongSameBits, testing::ValuesIn(kernels()), kernel_name);

INSTANTIATE_TEST_SUITE_P(Shapes, Beyond, testing::ValuesIn(kShapes),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace fa::test
