// The judge is judged: inputs, reference, comparison, statistics, files.
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "common/cli/cli.h"
#include "common/cli/protocols.h"
#include "common/harness/files.h"
#include "common/harness/parallel.h"
#include "common/launch/validation.h"
#include "tests/support.h"

namespace fa::test {
namespace {

// ---- the loop over all cores --------------------------------------------------------------------
TEST(ParallelFor, CallsEachOnce) {
  for (const size_t count : {size_t(0), size_t(1), size_t(2), size_t(1000)}) {
    std::vector<int> calls(count);
    parallel_for(count, [&](size_t i) { calls[i]++; });
    EXPECT_EQ(calls, std::vector<int>(count, 1));
  }
}

// Whichever thread makes the call that throws: those before it wait for one another, so every
// thread makes some.
TEST(ParallelFor, AnExceptionReachesTheCaller) {
  const size_t threads = std::max(1u, std::thread::hardware_concurrency());
  std::mutex mutex;
  std::set<std::thread::id> throwing;
  for (int repeat = 0; repeat < 20; repeat++) {
    std::barrier all(static_cast<ptrdiff_t>(threads));
    const auto body = [&](size_t i) {
      all.arrive_and_wait();
      const std::lock_guard lock(mutex);
      throwing.insert(std::this_thread::get_id());
      throw BadInput("piece " + std::to_string(i));
    };
    EXPECT_THROW(parallel_for(threads, body), BadInput);
  }
  EXPECT_GE(throwing.size(), threads);
}

TEST(ParallelFor, AnExceptionEndsTheLoop) {
  std::atomic<size_t> calls{0};
  EXPECT_THROW(parallel_for(size_t(1) << 40,
                            [&](size_t i) {
                              calls++;
                              if (i == 100) throw std::bad_alloc();
                            }),
               std::bad_alloc);
  EXPECT_GT(calls, 100u);
}

TEST(ParallelFor, MissingMemoryIsOneSentence) {
  testing::internal::CaptureStderr();
  const int code = with_exit_code([] {
    parallel_for(64, [](size_t) { throw std::bad_alloc(); });
    return 0;
  });
  EXPECT_EQ(code, 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "error: not enough memory for this problem\n");
}

// The address space is full: there is no stack for another thread. 0: the caller made all calls by
// itself.
int loop_where_no_thread_can_start() {
  std::vector<int> calls(100);
  const rlimit none{0, RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &none);
  try {
    std::thread([] {}).join();
    return 1;  // one could
  } catch (const std::system_error&) {
  }
  parallel_for(calls.size(), [&](size_t i) { calls[i]++; });
  return calls == std::vector<int>(100, 1) ? 0 : 2;
}

TEST(ParallelFor, WorksWhereNoThreadCanStart) {
  testing::FLAGS_gtest_death_test_style =
      "threadsafe";  // a process without stacks of ended threads
  EXPECT_EXIT(exit(loop_where_no_thread_can_start()), testing::ExitedWithCode(0), "");
}

// ---- inputs -------------------------------------------------------------------------------------
// Q, K and V of one problem, hashed. These must be the same numbers on every platform and for ever:
// published results name a kind and a seed.
struct Golden {
  const char* name;
  uint64_t fp16, bf16;
};
constexpr Golden kGolden[] = {
    {"normal", 0x229c70886d9465d1, 0xfd2ad723195c90d5},
    {"large", 0x89ddccec1fbb70d8, 0xee03baf5699fb408},
    {"dominant_key", 0x14f2e319bf9636c2, 0x5da269407ca1e99d},
    {"equal_keys", 0x1dd6dd6f968b7dd7, 0x701ef7e61af880da},
    {"increasing_max", 0x42056ace44a8c36e, 0xe03a685fb59f8a22},
    {"tiny", 0xf4236861d830ce28, 0x20e98dd0fa8f343f},
    {"one_hot_v", 0x78d499d8a7150d24, 0x2a127ed867977e80},
    {"hot_first_block", 0x48bab8a83c583f11, 0xaf9c1226812e394e},
    {"hotter_blocks", 0xa2f7a7544f8cd6eb, 0x19a17bb4d4ee64fb},
    {"hot_row", 0xea1df07f25f26020, 0x860a1b465a96fe7b},
    {"hot_tiles", 0x7ce9342d5dc5f9fc, 0xe6122ac1400f9759},
    {"dominant_first", 0xd977e598ad0614fb, 0xafd57bc4dcb2c2cd},
    {"dominant_last", 0xdc611ebbaef95872, 0x76d3ae48277e3692},
    {"huge_scores", 0xc24649a0bae1859e, 0xa6fc70ffe16b014e},
    {"hot_diagonal", 0xad016a205476780e, 0x9fed87135efcb9e8},
    {"uneven_rows", 0x6f10ff85fd41db3b, 0x533a67dc897a72d0},
    {"huge_v", 0x6ca2cc564dabacd, 0xd3a8c9e64f0c1a15},
    {"outliers", 0x7ad9ae3dc5197b4b, 0xd31f42b0b6fbfb65},
    {"student_t", 0xf8dbff2b85ac4e2a, 0x31b43856b8530867},
    {"loud_channels", 0xed842ffd0ccb6e37, 0x71e815c451377d8f},
    {"v_mean", 0x3dce3f15b1d06dc5, 0x59d4666ec96140eb},
    {"mixed_heads", 0x40b8a4b45c5024d1, 0x8b152aea64b7218f},
};

uint64_t hash(const Inputs& inputs) {
  std::vector<uint16_t> all = inputs.q;
  all.insert(all.end(), inputs.k.begin(), inputs.k.end());
  all.insert(all.end(), inputs.v.begin(), inputs.v.end());
  return test::hash(all);
}

TEST(Inputs, AreTheSameEverywhere) {
  ASSERT_EQ(std::size(kGolden), all_input_names().size());
  for (const Golden& golden : kGolden) {
    EXPECT_EQ(hash(make_inputs(problem(1, 2, 128, 64, Dtype::kFp16), golden.name, 1)), golden.fp16)
        << golden.name;
    EXPECT_EQ(hash(make_inputs(problem(1, 2, 128, 64, Dtype::kBf16), golden.name, 1)), golden.bf16)
        << golden.name;
  }
}

TEST(Inputs, MixedHeadsAreOfTheirKinds) {
  const Problem p = problem(1, 8, 128, 64, Dtype::kBf16);
  const Inputs mixed = make_inputs(p, "mixed_heads", 1);
  size_t head = 0;
  for (const char* kind : {"normal", "equal_keys", "hot_row", "large", "tiny", "increasing_max",
                           "huge_scores", "normal"}) {
    const Inputs whole = make_inputs(p, kind, 1);
    const size_t size = 128 * 64, first = head++ * size;
    for (const auto tensor : {&Inputs::q, &Inputs::k, &Inputs::v}) {
      const uint16_t* const mine = &(mixed.*tensor)[first];
      EXPECT_TRUE(std::equal(mine, mine + size, &(whole.*tensor)[first])) << kind;
    }
  }
}

TEST(Inputs, DependOnTheSeed) {
  for (const std::string& name : input_names()) {
    const Problem p = problem(1, 1, 128, 64, Dtype::kBf16);
    EXPECT_NE(hash(make_inputs(p, name, 1)), hash(make_inputs(p, name, 2))) << name;
  }
}

// Scores in nats, [row][key], of a single head.
std::vector<std::vector<double>> scores_of(const Problem& p, const std::string& name) {
  const Inputs inputs = make_inputs(p, name, 1);
  const size_t n = size_t(p.seq_len), d = size_t(p.head_dim);
  std::vector<double> q, k;
  for (const uint16_t bits : inputs.q) q.push_back(double(to_float(bits, p.dtype)));
  for (const uint16_t bits : inputs.k) k.push_back(double(to_float(bits, p.dtype)));
  std::vector<std::vector<double>> scores(n, std::vector<double>(n));
  for (size_t row = 0; row < n; row++) {
    for (size_t j = 0; j < n; j++) {
      double sum = 0;
      for (size_t c = 0; c < d; c++) sum += q[row * d + c] * k[j * d + c];
      scores[row][j] = sum * double(p.scale());
    }
  }
  return scores;
}

double least(const std::vector<double>& scores, size_t begin, size_t end) {
  return *std::min_element(scores.begin() + long(begin), scores.begin() + long(end));
}
double most(const std::vector<double>& scores, size_t begin, size_t end) {
  return *std::max_element(scores.begin() + long(begin), scores.begin() + long(end));
}

TEST(Inputs, AreAsHardAsTheyClaim) {
  for (const Dtype dtype : {Dtype::kFp16, Dtype::kBf16}) {
    const Problem p = problem(1, 1, 256, 128, dtype);
    std::map<std::string, double> largest_score;
    for (const std::string& name : input_names()) {
      const auto first = scores_of(p, name).front();
      largest_score[name] = most(first, 0, first.size());
    }
    EXPECT_LT(largest_score["normal"], 10);
    EXPECT_GT(largest_score["large"], 200);  // e^89 is the end of fp32
    EXPECT_GT(largest_score["dominant_key"], 30);
    EXPECT_GT(largest_score["increasing_max"], 30);
    EXPECT_LT(largest_score["tiny"], 1e-4);
  }
}

TEST(Inputs, HotOnesAreHotWhereTheyClaim) {
  for (const Problem& p :
       {problem(1, 1, 512, 64, Dtype::kFp16), problem(1, 1, 512, 128, Dtype::kBf16)}) {
    for (const auto& row : scores_of(p, "hot_first_block"))
      EXPECT_GT(least(row, 0, 128), most(row, 128, 512) + 80);
    for (const auto& row : scores_of(p, "hotter_blocks")) {
      for (size_t block = 128; block < 512; block += 128)
        EXPECT_GT(least(row, block, block + 128), most(row, block - 128, block) + 25);
    }
    for (const auto& row : scores_of(p, "dominant_first"))
      EXPECT_GT(row[0], most(row, 1, 512) + 80);
    for (const auto& row : scores_of(p, "dominant_last"))
      EXPECT_GT(row[511], most(row, 0, 511) + 80);

    const auto huge_v = scores_of(p, "huge_v");
    for (size_t row = 0; row < 512; row++) {
      if (row % 8 >= 4 || row / 16 % 4 == 0) continue;
      for (size_t block = 128; block < 512; block += 128) {
        const double before = most(huge_v[row], block - 128, block);
        const double step = block / 128 % 2 ? 60 : 90;
        EXPECT_GT(least(huge_v[row], block, block + 128), before + step - 15) << row;
        EXPECT_LT(least(huge_v[row], block, block + 128), before + step + 15) << row;
      }
    }
    double squares = 0;
    const Inputs with_huge_v = make_inputs(p, "huge_v", 1);
    for (const uint16_t v : with_huge_v.v) squares += std::pow(double(to_float(v, p.dtype)), 2);
    EXPECT_NEAR(std::sqrt(squares / double(with_huge_v.v.size())) /
                    (p.dtype == Dtype::kFp16 ? 0x1p13 : 0x1p100),
                1, 0.02);

    const auto hot_row = scores_of(p, "hot_row"), hot_tiles = scores_of(p, "hot_tiles"),
               huge = scores_of(p, "huge_scores"), uneven = scores_of(p, "uneven_rows");
    const double high = std::ldexp(1 - 1e-4, 19) * double(p.scale());
    for (size_t group = 0; group < 8; group++) {
      int hot = 0;
      for (size_t row = 64 * group; row < 64 * group + 64; row++) {
        hot += most(hot_row[row], 0, 128) > 60;
        EXPECT_TRUE(most(hot_row[row], 0, 512) > 60 || most(hot_row[row], 0, 512) < 12);
        if (group % 7 == 0 || group % 7 == 1 || group % 7 == 3) {
          EXPECT_GT(least(hot_tiles[row], 0, 512), 80);
        } else {
          EXPECT_LT(most(hot_tiles[row], 0, 512), 12);
        }
        const bool bit = row & size_t(1) << row / 16 % 4;
        if (bit == (group % 2 == 1)) {
          EXPECT_GT(least(uneven[row], 0, 512), 90) << row;
        } else {
          EXPECT_LT(most(uneven[row], 0, 512), 12) << row;
        }
        const auto& all = huge[row];
        const double bottom = least(all, 0, 512), top = most(all, 0, 512);
        switch (row % 5) {
          case 0:  // high everywhere, and not all the same
            EXPECT_GT(bottom, high);
            EXPECT_GT(top, bottom + 1);
            break;
          case 1:  // low everywhere
            EXPECT_LT(top, -high);
            EXPECT_GT(top, bottom + 1);
            break;
          case 2:  // both in every block
            EXPECT_LT(least(all, 384, 512), -high);
            EXPECT_GT(most(all, 384, 512), high);
            break;
          case 3:  // low, high, low, high
            EXPECT_LT(most(all, 0, 128), -high);
            EXPECT_GT(least(all, 128, 256), high);
            break;
          default:
            EXPECT_LT(top, 10);
            EXPECT_GT(top, bottom + 1);
        }
      }
      EXPECT_EQ(hot, 1) << "hot_row, group " << group;
    }
  }
}

// As long as a sequence may be, nothing leaves the range of the type.
TEST(Inputs, HotOnesStayFiniteHoweverManyKeysThereAre) {
  const Problem p = problem(1, 1, 64 * 128 + 128, 64, Dtype::kFp16);
  for (const std::string& name : hot_input_names()) {
    const Inputs inputs = make_inputs(p, name, 1);
    for (const auto* tensor : {&inputs.q, &inputs.k, &inputs.v}) {
      for (const uint16_t bits : *tensor) ASSERT_TRUE(std::isfinite(to_float(bits, p.dtype)));
    }
  }
}

// What FP8 is judged on: tails, columns and a mean, and nothing else that differs from normal.
TEST(Inputs, ThoseOfFp8AreWhatTheirNamesSay) {
  for (const int d : {64, 128}) {
    const Problem p = problem(1, 2, 1024, d, Dtype::kFp16);
    const Inputs normal = make_inputs(p, "normal", 1), student = make_inputs(p, "student_t", 1),
                 loud = make_inputs(p, "loud_channels", 1), mean = make_inputs(p, "v_mean", 1);
    const auto number = [&](uint16_t bits) { return double(to_float(bits, p.dtype)); };
    EXPECT_TRUE(loud.v == normal.v && mean.q == normal.q && mean.k == normal.k);
    for (size_t i = 0; i < normal.q.size(); i++) {
      const int c = int(i) % d;
      const double factor = c == 5 ? 10 : c == (d == 64 ? 13 : 77) ? 8 : 1;
      EXPECT_NEAR(number(loud.q[i]), factor * number(normal.q[i]), 0.02) << c;
      EXPECT_NEAR(number(loud.k[i]), factor * number(normal.k[i]), 0.02) << c;
      EXPECT_NEAR(number(mean.v[i]), number(normal.v[i]) + 1, 0.004);
    }
    // Of |t| with three degrees of freedom, 3.182 is exceeded by 5 % and 12.92 by 0.1 %.
    for (const auto* tensor : {&student.q, &student.k, &student.v}) {
      double above = 0, far = 0, below_zero = 0;
      for (const uint16_t bits : *tensor) {
        const double t = std::sqrt(3.0) * number(bits);
        ASSERT_TRUE(std::isfinite(t));
        above += std::fabs(t) > 3.182;
        far += std::fabs(t) > 12.92;
        below_zero += t < 0;
      }
      const double count = double(tensor->size());
      EXPECT_NEAR(above / count, 0.05, 0.003);
      EXPECT_NEAR(far / count, 0.001, 0.0004);
      EXPECT_NEAR(below_zero / count, 0.5, 0.01);
    }
    EXPECT_NE(student.q, student.k);
  }
}

double root_mean_square(const std::vector<std::vector<double>>& scores, size_t begin, size_t end) {
  double sum = 0;
  for (const auto& row : scores) {
    for (size_t j = begin; j < end; j++) sum += row[j] * row[j];
  }
  return std::sqrt(sum / double(scores.size() * (end - begin)));
}

TEST(Inputs, ScoresHaveTheDeviationAskedFor) {
  Problem p = problem(1, 1, 512, 128, Dtype::kFp16);
  const auto ordinary = hash(make_inputs(p, "normal", 1));
  p.scores = {1, Growth::kFlat};
  EXPECT_EQ(hash(make_inputs(p, "normal", 1)), ordinary);
  for (const double std : {1.0, 20.0, 100.0}) {
    p.scores = {std, Growth::kFlat};
    auto scores = scores_of(p, "normal");
    EXPECT_NEAR(root_mean_square(scores, 0, 512), std, 0.03 * std);
    EXPECT_NEAR(root_mean_square(scores, 0, 64), std, 0.06 * std);
    p.scores = {std, Growth::kGrowing};
    scores = scores_of(p, "normal");
    EXPECT_NEAR(root_mean_square(scores, 0, 512), std, 0.03 * std);
    EXPECT_NEAR(root_mean_square(scores, 240, 272), 0.5 * std * std::sqrt(3.0), 0.06 * std);
    EXPECT_NEAR(root_mean_square(scores, 496, 512), std * std::sqrt(3.0), 0.2 * std);
    EXPECT_LT(root_mean_square(scores, 0, 16), 0.04 * std);
  }
}

TEST(Inputs, OnlyNormalOnesHaveScoresOfADeviation) {
  Problem p = problem(1, 1, 128, 64, Dtype::kBf16);
  p.scores = {5, Growth::kFlat};
  for (const std::string& name : input_names()) {
    if (name == "normal") continue;
    EXPECT_THROW(make_inputs(p, name, 1), BadInput) << name;
  }
}

TEST(Inputs, UnknownKindIsRefused) {
  EXPECT_THROW(make_inputs(problem(1, 1, 128, 64, Dtype::kBf16), "nice", 1), BadInput);
}

// ---- the reference: its numbers are held to plain loops in test_problems.cpp --------------------
TEST(Reference, SamplesTheEdgesOfTilesInEveryHead) {
  const Problem p = problem(1, 3, 2048, 64, Dtype::kBf16);
  const Reference reference = make_reference(p, make_inputs(p, "normal", 1), 256);
  ASSERT_EQ(reference.rows.size(), 3u * 256);
  EXPECT_TRUE(std::is_sorted(reference.rows.begin(), reference.rows.end()));
  const std::set<size_t> rows(reference.rows.begin(), reference.rows.end());
  EXPECT_EQ(rows.size(), reference.rows.size());
  for (size_t head = 0; head < 3; head++) {
    for (size_t tile = 0; tile < 2048; tile += 64) {
      EXPECT_TRUE(rows.count(head * 2048 + tile)) << "first row of tile " << tile / 64;
      EXPECT_TRUE(rows.count(head * 2048 + tile + 63)) << "last row of tile " << tile / 64;
    }
  }
}

// ---- the comparison -----------------------------------------------------------------------------
class CompareTest : public testing::TestWithParam<Dtype> {
 protected:
  Problem p = problem(2, 3, 128, 64, GetParam());
  Inputs inputs = make_inputs(p, "normal", 1);
  Reference reference = make_reference(p, inputs);
  std::vector<uint16_t> output = rounded(reference, p.dtype);

  void expect_wrong(const std::string& reason) const {
    const Comparison comparison = compare(p, reference, output);
    EXPECT_FALSE(comparison.passed);
    EXPECT_CONTAINS(comparison.reason, reason);
  }
};
INSTANTIATE_TEST_SUITE_P(Dtypes, CompareTest, testing::Values(Dtype::kFp16, Dtype::kBf16),
                         [](const auto& test) { return name_of(test.param); });

TEST_P(CompareTest, AcceptsTheRoundedReference) {
  const Comparison comparison = compare(p, reference, output);
  EXPECT_TRUE(comparison.passed) << comparison.reason;
  EXPECT_EQ(comparison.reason, "");
  EXPECT_EQ(comparison.checked_rows, p.row_count());
  EXPECT_LT(comparison.bound_ratio, 1.0);
  EXPECT_LT(comparison.rel, comparison.tolerance);
}

TEST_P(CompareTest, AcceptsTheRoundedReferenceOfHardInputs) {
  for (const std::string& name : input_names()) {
    reference = make_reference(p, make_inputs(p, name, 5));
    const Comparison comparison = compare(p, reference, rounded(reference, p.dtype));
    EXPECT_TRUE(comparison.passed) << name << ": " << comparison.reason;
  }
}

TEST_P(CompareTest, RejectsNaN) {
  output[5 * 64 + 7] = 0xffff;
  expect_wrong(
      "O[batch 0, head 0, row 5, column 7] was never written or is NaN (1 of 49152 elements)");
}

TEST_P(CompareTest, RejectsInfinity) {
  output.back() = from_float(-INFINITY, p.dtype);
  expect_wrong("O[batch 1, head 2, row 127, column 63] is not a finite number");
}

TEST_P(CompareTest, RejectsASingleWrongElement) {
  const size_t at = (4 * 128 + 100) * 64 + 13;
  output[at] = from_float(to_float(output[at], p.dtype) + 0.25f, p.dtype);
  expect_wrong("O[batch 1, head 1, row 100, column 13] is ");
}

TEST_P(CompareTest, RejectsAnUnwrittenTail) {
  std::fill(output.end() - 64, output.end(), uint16_t(0xffff));
  expect_wrong("row 127, column 0] was never written or is NaN (64 of 49152 elements)");
}

TEST_P(CompareTest, RejectsOneWrongHeadAmongMany) {
  const auto head = output.begin() + 3 * 128 * 64;
  std::copy(output.begin(), output.begin() + 128 * 64, head);
  expect_wrong("O[batch 1, head 0, row 0, column ");
}

TEST_P(CompareTest, RejectsASmallErrorThatRunsThroughOneHead) {
  for (size_t i = 2 * 128 * 64; i < 3 * 128 * 64; i++) {
    output[i] = from_float(
        to_float(output[i], p.dtype) * (p.dtype == Dtype::kFp16 ? 1.003f : 1.02f), p.dtype);
  }
  expect_wrong("");
}

TEST_P(CompareTest, RejectsZeros) {
  std::fill(output.begin(), output.end(), uint16_t(0));
  expect_wrong("O[batch 0, head 0, row 0, column ");
}

TEST_P(CompareTest, LooksForNaNBeyondTheSampledRows) {
  p = problem(1, 1, 1024, 64, GetParam());
  inputs = make_inputs(p, "normal", 1);
  output = rounded(make_reference(p, inputs, 1024), p.dtype);
  reference = make_reference(p, inputs, 64);
  EXPECT_TRUE(compare(p, reference, output).passed);
  size_t row = 1;
  while (std::count(reference.rows.begin(), reference.rows.end(), row)) row++;
  output[row * 64] = 0xffff;
  expect_wrong("never written");
}

// fp16's numbers below 2^-14 have fewer bits. Here all of O comes from such P: key 0 has the
// highest score and a V of zeros.
TEST(Compare, AcceptsWeightsThatAreSubnormal) {
  const Problem p = problem(1, 1, 128, 64, Dtype::kFp16);
  const size_t n = 128, d = 64;
  Inputs inputs{std::vector<uint16_t>(n * d), std::vector<uint16_t>(n * d),
                std::vector<uint16_t>(n * d, from_float(1, p.dtype))};
  for (size_t row = 0; row < n; row++) inputs.q[row * d] = from_float(8, p.dtype);
  inputs.k[0] = from_float(13, p.dtype);  // a score of 13, all others are 0
  std::fill_n(inputs.v.begin(), d, uint16_t(0));
  const double weight = std::exp(-13.0);
  const double rounded = double(to_float(from_float(float(weight), p.dtype), p.dtype));
  const auto o_of = [&](double of_weight) {
    const double o = 127 * of_weight / (1 + 127 * weight);
    return std::vector<uint16_t>(n * d, from_float(float(o), p.dtype));
  };
  const Reference reference = make_reference(p, inputs);
  const Comparison comparison = compare(p, reference, o_of(rounded));
  EXPECT_TRUE(comparison.passed) << comparison.reason;
  EXPECT_FALSE(compare(p, reference, o_of(weight + 0x1p-24)).passed) << "a unit more";
  const Record record = Runner(p, inputs, Protocol{}).verify(find_kernel("06"));
  EXPECT_NE(record.status, Status::kWrong) << record.reason;
}

TEST(Compare, RefusesAnOutputOfTheWrongSize) {
  const Problem p = problem(1, 1, 128, 64, Dtype::kBf16);
  const Reference reference = make_reference(p, make_inputs(p, "normal", 1));
  EXPECT_THROW(compare(p, reference, std::vector<uint16_t>(17)), BadInput);
}

// ---- statistics ---------------------------------------------------------------------------------
TEST(Times, AreQuantiles) {
  const Times times = summarise({5, 1, 4, 2, 3});
  EXPECT_EQ(times.launches, 5);
  EXPECT_DOUBLE_EQ(times.median, 3);
  EXPECT_DOUBLE_EQ(times.min, 1);
  EXPECT_DOUBLE_EQ(times.p10, 1.4);
  EXPECT_DOUBLE_EQ(times.p90, 4.6);
  EXPECT_DOUBLE_EQ(summarise({4, 1, 2, 3}).median, 2.5);
  const Times one = summarise({7});
  EXPECT_DOUBLE_EQ(one.p10 + one.median + one.p90 + one.min, 28);
  EXPECT_EQ(summarise({}).launches, 0);
}

// ---- what a launch checks before it starts ------------------------------------------------------
std::string error_of_run(const Kernel& kernel, const Problem& p, const Tensors& tensors) {
  return error_of<std::runtime_error>([&] { run(kernel, p, tensors); });
}

TEST(Run, RefusesMisalignedAndNullPointers) {
  const Problem p = problem(1, 1, 128, 64, Dtype::kBf16);
  alignas(16) static char memory[64];
  for (const Kernel& kernel : kernels()) {
    for (int which = 0; which < 4; which++) {
      for (char* const pointer : {memory + 2, memory + 8, static_cast<char*>(nullptr)}) {
        char* pointers[4] = {memory, memory, memory, memory};
        pointers[which] = pointer;
        const Tensors tensors{pointers[0], pointers[1], pointers[2], pointers[3], nullptr, 0};
        EXPECT_EQ(error_of_run(kernel, p, tensors),
                  std::string("the pointer to ") + "QKVO"[which] +
                      (pointer ? " is not a multiple of 16 bytes" : " is null"));
      }
    }
  }
}

TEST(Run, RefusesShapes) {
  alignas(16) static char memory[16];
  const Tensors tensors{memory, memory, memory, memory, nullptr, 0};
  const std::pair<Problem, std::string> cases[] = {
      {problem(1, 1, 100, 64, Dtype::kBf16), "multiple of 128"},
      {problem(1, 1, 0, 64, Dtype::kBf16), "multiple of 128"},
      {problem(1, 1, -128, 64, Dtype::kBf16), "multiple of 128"},
      {problem(1, 1, 128, 80, Dtype::kBf16), "head_dim must be 64, 96, 128 or 256, not 80"},
      {problem(0, 1, 128, 64, Dtype::kBf16), "batch"},
      {problem(1, -1, 128, 64, Dtype::kBf16), "heads"},
      {problem(65536, 65536, 128, 64, Dtype::kBf16), "at most 65535, not 4294967296"},
      {problem(1, 1, 1 << 23, 64, Dtype::kBf16), "from 128 to 4194304"},
      {problem(1, 60000, 1 << 22, 128, Dtype::kBf16), "GiB"},
  };
  for (const auto& [p, text] : cases) {
    EXPECT_CONTAINS(error_of_run(kernels().front(), p, tensors), text);
  }
  Problem wide = problem(1, 1, 128, 256, Dtype::kBf16);
  EXPECT_EQ(error_of_run(kernels().front(), wide, tensors), "takes head_dim 64 or 128, not 256");
  wide.fp8 = Fp8::kHead;
  EXPECT_NO_THROW(validate(wide, /*any_length=*/false));
  wide.head_dim = 192;
  EXPECT_CONTAINS(error_of_run(kernels().front(), wide, tensors),
                  "must be 64, 128 or 256, not 192");
  wide.head_dim = 96;  // no power of two
  EXPECT_CONTAINS(error_of_run(kernels().front(), wide, tensors), "must be 64, 128 or 256, not 96");
}

TEST(Run, SkipsAKernelWhoseWorkspaceIsTooSmall) {
  for (const Kernel& kernel : kernels()) {
    if (!kernel.workspace_bytes) continue;
    Protocol protocol;
    protocol.workspace_limit = 1000;
    const Problem p = problem(1, 1, 128, 64, Dtype::kBf16);
    const Record record = Runner(p, make_inputs(p, "normal", 1), protocol).run(kernel);
    EXPECT_EQ(record.status, Status::kSkipped);
    EXPECT_CONTAINS(record.reason, "needs a workspace of 65536 bytes, 1000 are allowed");
  }
}

TEST(Run, WorksThroughHeadsInASmallWorkspace) {
  for (const Kernel& kernel : kernels()) {
    if (!kernel.workspace_bytes) continue;
    const Problem p = problem(1, 5, 128, 64, Dtype::kBf16);
    Protocol protocol;
    protocol.workspace_limit =
        kernel.workspace_bytes(problem(1, 2, 128, 64, Dtype::kBf16), SIZE_MAX);
    const Record record = Runner(p, make_inputs(p, "normal", 1), protocol).run(kernel);
    EXPECT_EQ(record.status, Status::kPassed) << record.reason;
    EXPECT_LE(record.workspace_bytes, protocol.workspace_limit);
  }
}

TEST(Registry, FindsByNameAndNumber) {
  ASSERT_FALSE(kernels().empty());
  EXPECT_TRUE(std::is_sorted(kernels().begin(), kernels().end(),
                             [](const Kernel& a, const Kernel& b) { return a.name < b.name; }));
  for (const Kernel& kernel : kernels()) {
    EXPECT_EQ(&find_kernel(kernel.name), &kernel);
    const std::string end = is_next(kernel) ? ".next" : "";
    EXPECT_EQ(&find_kernel(kernel.name.substr(0, 2) + end), &kernel);
    EXPECT_EQ(&find_kernel(std::to_string(std::stoi(kernel.name)) + end), &kernel);
  }
  for (const char* unknown :
       {"", "99", "0", "naive", "01_naive2", "1_", "1.", "01.other", ".next", "99.next"}) {
    EXPECT_THROW(find_kernel(unknown), BadInput) << unknown;
  }
}

// ---- protocols ----------------------------------------------------------------------------------
TEST(Protocols, AreThoseOfTheFile) {
  const NamedProtocol quick = find_protocol("quick");
  EXPECT_EQ(quick.protocol.name, "quick");
  EXPECT_EQ(quick.problems.size(), 2u);

  const NamedProtocol scratch = find_protocol("from-scratch");
  EXPECT_EQ(scratch.protocol.warmup, 32);
  EXPECT_EQ(scratch.protocol.iterations, 128);
  EXPECT_TRUE(scratch.protocol.flush_l2);
  EXPECT_EQ(scratch.protocol.load_seconds, 0);
  ASSERT_EQ(scratch.problems.size(), 6u);
  EXPECT_EQ(scratch.problems[3], problem(16, 16, 4096, 128, Dtype::kBf16));
  EXPECT_EQ(scratch.problems[4], problem(8, 16, 8192, 128, Dtype::kBf16));
  EXPECT_EQ(scratch.problems[5], problem(4, 16, 16384, 128, Dtype::kBf16));

  const NamedProtocol paper = find_protocol("fa3-paper");
  EXPECT_EQ(paper.problems.size(), 12u);
  for (const Problem& p : paper.problems) {
    EXPECT_EQ(p.batch * p.seq_len, 16384);
    EXPECT_EQ(p.heads * p.head_dim, 2048);
    EXPECT_EQ(p.dtype, Dtype::kFp16);
  }
  const NamedProtocol leet = find_protocol("leetcuda");
  EXPECT_EQ(leet.problems, std::vector<Problem>{problem(1, 8, 8192, 64, Dtype::kFp16)});

  EXPECT_EQ(read_file(FA_PROTOCOLS_FILE), protocols_json()) << "the copy in the program";
  EXPECT_CONTAINS(describe_protocols(), "  leetcuda      Example of");
}

TEST(Protocols, BecomeSmallOnTheEmulator) {
  NamedProtocol paper = find_protocol("fa3-paper");
  make_small(paper);
  EXPECT_EQ(paper.problems, (std::vector<Problem>{problem(1, 1, 256, 128, Dtype::kFp16),
                                                  problem(1, 1, 256, 64, Dtype::kFp16)}));
  EXPECT_EQ(paper.protocol.name, "");
}

TEST(Protocols, BadFilesAreRefused) {
  const std::string good =
      R"({"protocols": {"p": {"description": "d", "source": "s", "problems": [{"dtype": "fp16", )"
      R"("head_dim": 64, "heads": 1, "batch": 1, "seq_len": 128}], "warmup": 0, "iterations": 1, )"
      R"("rounds": 1, "max_seconds": 0.5, "flush_l2": false, "rotating_inputs": 1, )"
      R"("load_seconds": 2.5, "rest_ms": 7.5, )"
      R"("tflops_convention": "4*B*H*N^2*D"}}})";
  EXPECT_EQ(find_protocol("p", good).protocol.load_seconds, 2.5);
  EXPECT_EQ(find_protocol("p", good).protocol.rest_ms, 7.5);
  auto changed = [&](const std::string& what, const std::string& by) {
    std::string text = good;
    return text.replace(text.find(what), what.size(), by);
  };
  const std::pair<std::string, std::string> cases[] = {
      {"", "bench/protocols.json is not JSON"},
      {good.substr(0, 100), "bench/protocols.json is not JSON"},
      {"[]", "bench/protocols.json is not a JSON object"},
      {"{}", "bench/protocols.json lacks 'protocols'"},
      {R"({"protocols": 1})", "bench/protocols.json: 'protocols' is not an object"},
      {R"({"protocols": {"q": {}}})", "unknown protocol 'p', there are: q"},
      {R"({"protocols": {"p": []}})", "bench/protocols.json: p is not a JSON object"},
      {changed("\"rounds\": 1, ", ""), "bench/protocols.json: p lacks 'rounds'"},
      {changed("\"rounds\": 1", "\"rounds\": 0"),
       "p: 'rounds' must be a whole number from 1 to 1000"},
      {changed("2.5", "-1"), "p: 'load_seconds' must be a number from 0 on, not -1"},
      {changed("7.5", "-1"), "p: 'rest_ms' must be a number from 0 on, not -1"},
      {changed("0.5", "1e999"), "bench/protocols.json is not JSON"},
      {changed("0.5", "0"), "p: 'max_seconds' must be a number above 0, not 0"},
      {changed("false", "1"), "p: 'flush_l2' must be true or false, not 1"},
      {changed("4*B", "5*B"), "p: 'tflops_convention' must be 4*B*H*N^2*D"},
      {changed("fp16", "fp8"), "p, problem 1: 'dtype' must be fp16 or bf16, not fp8"},
      {changed("128", "100"),
       "p, problem 1: seq_len must be a multiple of 128 from 128 to 4194304"},
      {changed("\"heads\": 1, ", ""), "p, problem 1 lacks 'heads'"},
      {changed("\"problems\": [{", "\"problems\": [7, {"), "p, problem 1 is not a JSON object"},
  };
  for (const auto& [json, sentence] : cases) {
    EXPECT_CONTAINS(error_of<BadInput>([&] { find_protocol("p", json); }), sentence);
  }
}

// ---- JSON ---------------------------------------------------------------------------------------
TEST(JsonValues, AreReadAsTheyWereWritten) {
  const char* const text =
      R"({"z":-1,"a":[18446744073709551615,0.1,1e+300,true,null],"t":"\u0001\"é"})";
  const Json value = Json::parse(text);
  EXPECT_EQ(value.dump(), text);
  EXPECT_EQ(Json::parse(value.dump(/*ascii=*/true)), value);
  EXPECT_EQ(Json({{"z", -1}, {"a", value["a"]}, {"t", value["t"]}}), value);
  EXPECT_EQ(Json({{"x", 1}, {"y", 2.0}}), Json({{"y", 2}, {"x", 1u}})) << "by value, in any order";
  EXPECT_NE(Json(-1), Json(UINT64_MAX));
  EXPECT_EQ(Json({0.1f, 3.0f}).dump(), "[0.1,3.0]") << "as many digits as tell floats apart";
  EXPECT_EQ(Json("\xff").dump(), "\"\ufffd\"") << "what is no UTF-8 is replaced";
  EXPECT_THROW(Json::parse("{"), BadInput);
  EXPECT_THROW((void)value["b"], std::out_of_range);
  EXPECT_THROW((void)value["a"].get<int>(), std::logic_error);
}

// ---- files that are written ---------------------------------------------------------------------
TEST(WriteFile, CanBeAskedBefore) {
  const TemporaryFolder folder;
  folder.write("file", "as it was");
  std::filesystem::create_directory(folder / "folder");
  std::filesystem::create_symlink(folder / "file", folder / "link");
  for (const char* good : {"file", "new"}) EXPECT_NO_THROW(check_writable(folder / good));
  EXPECT_NO_THROW(check_writable("/dev/null"));
  EXPECT_THROW(check_writable(folder / "folder"), BadInput);
  EXPECT_THROW(check_writable(folder / "none/file"), BadInput);
  EXPECT_EQ(read_file(folder / "file"), "as it was");
  EXPECT_EQ(folder.files().size(), 3u);

  EXPECT_TRUE(same_file(folder / "file", folder / "folder/../file"));
  EXPECT_TRUE(same_file(folder / "file", folder / "link"));
  EXPECT_TRUE(same_file(folder / "new", folder / "./new")) << "neither is there yet";
  EXPECT_FALSE(same_file(folder / "file", folder / "new"));
  EXPECT_FALSE(same_file("/dev/null", "/dev/null")) << "nothing is lost";
  EXPECT_FALSE(same_file("", ""));
}

TEST(WriteFile, IsWholeOrNotThere) {
  const TemporaryFolder folder;
  write_file_whole(folder / "a", "first");
  write_file_whole(folder / "a", "second");
  EXPECT_EQ(read_file(folder / "a"), "second");
  EXPECT_THROW(write_file_whole(folder / "none/a", "x"), BadInput);
  std::filesystem::create_directory(folder / "folder");
  EXPECT_THROW(write_file_whole(folder / "folder", "x"), BadInput);
  EXPECT_EQ(folder.files().size(), 2u);
  // What is no ordinary file is written to, never replaced by one.
  EXPECT_THROW(write_file_whole("/dev/full", "x"), BadInput);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
  write_file_whole("/dev/null", "x");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

}  // namespace
}  // namespace fa::test
