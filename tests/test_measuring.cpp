// Times, clocks, rounds and requests on a GPU that is made up (fake_gpu.h).
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <ratio>
#include <utility>

#include "bench/library.h"
#include "common/harness/changes.h"
#include "common/harness/fp8.h"
#include "common/harness/results.h"
#include "tests/fake_gpu.h"
#include "tests/support.h"

namespace fa::test {
namespace {

const Problem kSmall = problem(1, 1, 128, 64, Dtype::kFp16);

class MeasuringTest : public testing::Test {
 protected:
  Protocol protocol;
  MeasuringTest() {
    fake_gpu() = FakeGpu{};
    protocol.warmup = 1;
    protocol.iterations = 4;
  }
  std::unique_ptr<Runner> make_runner() const {
    return std::make_unique<Runner>(kSmall, make_inputs(kSmall, "normal", 1), protocol);
  }
  // What the fake GPU was asked for in timing a kernel.
  static std::vector<std::string> timed(Runner& runner, const char* kernel, const Timing& timing) {
    fake_gpu().log.clear();
    runner.time(find_kernel(kernel), timing);
    return fake_gpu().what();
  }
};

// ---- times --------------------------------------------------------------------------------------
TEST_F(MeasuringTest, LaunchesComeFromGraphs) {
  fake_gpu().polls_until_done = 2;
  auto log = timed(*make_runner(), "01", protocol);
  std::erase_if(log, [](const std::string& what) { return what.ends_with(" made"); });
  // The first sample is there so that the driver's library is loaded when it counts. A launch tells
  // how long it takes; then the warm-up and the timed launches are recorded, and nothing but the
  // graphs' launches comes after the rest. Of the last samples each polls twice.
  std::vector<std::string> expected = {"sampled",  "start", "right",   "stop",
                                       "graph of", "right", "graph of"};
  for (int i = 0; i < 4; i++) {
    for (const char* each : {"O poisoned", "start", "right", "stop"}) expected.push_back(each);
  }
  for (const char* each : {"waited", "start", "graph", "stop", "graph", "start", "stop", "sampled",
                           "sampled", "waited"}) {
    expected.push_back(each);
  }
  EXPECT_EQ(log, expected);
}

// The first launch tells how many launches fit, so it must not be timed with an allocation.
TEST_F(MeasuringTest, TheWorkspaceIsMadeBeforeTheFirstLaunchIsTimed) {
  Kernel kernel = find_kernel("01");
  kernel.workspace_bytes = [](const Problem&, size_t) { return size_t(64); };
  const auto runner = make_runner();
  fake_gpu().log.clear();
  runner->time(kernel, protocol);
  const auto log = fake_gpu().what();
  const auto made = std::find(log.begin(), log.end(), "workspace made");
  const auto start = std::find(log.begin(), log.end(), "start");
  ASSERT_NE(made, log.end());
  EXPECT_LT(made - log.begin(), start - log.begin());
}

TEST_F(MeasuringTest, TheGpuRestsBeforeTheWarmUp) {
  protocol.rest_ms = 4;
  timed(*make_runner(), "01", protocol);
  const auto& log = fake_gpu().log;
  const auto what = fake_gpu().what();
  const size_t rested = size_t(std::find(what.begin(), what.end(), "waited") - what.begin());
  ASSERT_LT(rested + 2, log.size());
  EXPECT_EQ(std::count(what.begin(), what.begin() + std::ptrdiff_t(rested), "graph"), 0);
  const std::chrono::duration<double, std::milli> rest = log[rested + 1].when - log[rested].when;
  EXPECT_GE(rest.count(), 4.0);
}

TEST_F(MeasuringTest, UnderLoadTheWarmUpRunsForSeconds) {
  protocol.load_seconds = 0.005;  // the warm-up is one launch of 2 ms
  auto runner = make_runner();
  Record record = runner->verify(find_kernel("02"));
  runner->add_round(find_kernel("02"), record);
  fake_gpu().log.clear();
  runner->add_round(find_kernel("02"), record, /*under_load=*/true);
  const auto log = fake_gpu().what();
  EXPECT_EQ(std::count(log.begin(), log.end(), "graph"), 1 + 2 + 1);
  ASSERT_TRUE(record.loaded);
  EXPECT_EQ(record.loaded->launches, 250) << "half a second";
  const auto written = to_json(record);
  EXPECT_EQ(written["time_ms"]["launches"], 4);
  EXPECT_EQ(written["under_load"]["time_ms"]["launches"], 250);
  const double tflops = kSmall.flops() * 1e-9 / 2;  // in 2 ms
  EXPECT_DOUBLE_EQ(written["under_load"]["tflops"].get<double>(), tflops);
  EXPECT_DOUBLE_EQ(written["under_load"]["joules_per_tflop"].get<double>(), 500 / tflops);
  EXPECT_FALSE(written.contains("joules_per_tflop")) << "a burst is over before the driver knows";
}

TEST_F(MeasuringTest, ColdLaunchesFlushBeforeTheTimedInterval) {
  protocol.flush_l2 = true;
  const auto log = timed(*make_runner(), "01", protocol);
  EXPECT_EQ(std::count(log.begin(), log.end(), "L2 flush poisoned"), 4);
  int flushed = 0;
  for (size_t i = 1; i < log.size(); i++) {
    flushed += log[i] == "start" && log[i - 1] == "L2 flush poisoned";
  }
  EXPECT_EQ(flushed, 4);
}

TEST_F(MeasuringTest, ClockAndPowerAreMedians) {
  const Times times = make_runner()->time(find_kernel("02"), protocol);
  EXPECT_DOUBLE_EQ(times.median, 2);
  EXPECT_EQ(times.launches, 4);
  EXPECT_DOUBLE_EQ(times.clock_mhz.value_or(0), 1700);
  EXPECT_DOUBLE_EQ(times.power_w.value_or(0), 500);
}

TEST_F(MeasuringTest, SlowKernelsObeyMaxSeconds) {
  protocol.max_seconds = 25;  // 10 s a launch
  protocol.iterations = 100;
  EXPECT_EQ(make_runner()->time(find_kernel("03"), protocol).launches, 2);
  protocol.max_seconds = 1;
  protocol.warmup = 100;
  fake_gpu().log.clear();
  const Times times = make_runner()->time(find_kernel("03"), protocol);
  EXPECT_EQ(times.launches, 1);
  EXPECT_FALSE(times.clock_mhz) << "the driver did not tell";
  const auto log = fake_gpu().what();
  EXPECT_EQ(std::count(log.begin(), log.end(), "slow"), 3) << "one to see, one to warm up";
}

TEST_F(MeasuringTest, AKernelSaysWhichGpuItNeeds) {
  alignas(16) static uint16_t memory[8];
  const Tensors tensors{memory, memory, memory, memory};
  for (const auto& [needs, words] :
       {std::pair<Needs, const char*>{{100}, "10.0 or later, this one has 9.0"},
        {{80, true}, "8.0, this one has 9.0"}}) {
    try {
      run({"kernel", needs}, kSmall, tensors);
      ADD_FAILURE() << words;
    } catch (const Unsupported& error) {
      EXPECT_EQ(error.what(), std::string("needs a GPU of compute capability ") + words);
    }
  }
  const Kernel with_bf16 = {"kernel", {75, false, 0, 100}, nullptr, [](auto&&...) {}};
  Problem of_bf16 = kSmall;
  of_bf16.dtype = Dtype::kBf16;
  run(with_bf16, kSmall, tensors);
  EXPECT_EQ(error_of<Unsupported>([&] { run(with_bf16, of_bf16, tensors); }),
            "takes --dtype fp16, not bf16, which needs a GPU of compute capability 10.0 or later, "
            "this one has 9.0");
}

TEST(Rounds, AreMerged) {
  std::vector<Times> rounds(3);
  const double medians[] = {3, 1, 2};
  for (size_t i = 0; i < 3; i++) {
    rounds[i].median = medians[i];
    rounds[i].p10 = medians[i] - 0.5;
    rounds[i].p90 = medians[i] + 0.5;
    rounds[i].min = medians[i] - 0.75;
    rounds[i].launches = 10 + int(i);
  }
  rounds[0].clock_mhz = 1000;
  rounds[2].clock_mhz = 2000;
  rounds[0].rounding = 7;
  rounds[1].rounding = 4;
  const Times all = merge(rounds);
  EXPECT_DOUBLE_EQ(all.median, 2);
  EXPECT_DOUBLE_EQ(all.p10, 1.5);
  EXPECT_DOUBLE_EQ(all.p90, 2.5);
  EXPECT_DOUBLE_EQ(all.min, 0.25);
  EXPECT_EQ(all.launches, 10);
  EXPECT_DOUBLE_EQ(all.clock_mhz.value_or(0), 1500);
  EXPECT_FALSE(all.power_w);
  EXPECT_DOUBLE_EQ(all.rounding.value_or(0), 5.5);
}

// ---- checks of timed launches -------------------------------------------------------------------
// Changes inputs on the CPU as a timed launch's are, and has outputs checked.
class CheckedOutput {
 public:
  CheckedOutput(const Problem& problem, const std::string& inputs, uint64_t nonce)
      : problem_(problem), nonce_(nonce), made_(make_inputs(problem, inputs, 1)) {
    if (problem.page_size > 0) pool_ = make_pool(problem, made_, 1);
    const auto eights = [](const std::vector<uint16_t>& of) {
      std::vector<Eight> result(of.size() / 8);
      memcpy(result.data(), of.data(), of.size() * 2);
      return result;
    };
    q_ = eights(made_.q);
    k_ = eights(problem.page_size > 0 ? pool_.k : made_.k);
    v_ = eights(problem.page_size > 0 ? pool_.v : made_.v);
    k_changes_ = inputs == "normal" && problem.fp8 != Fp8::kRotated;
    std::vector<Eight> q = q_, k = k_, v = v_;
    change_inputs(originals(), nonce, q.data(), k.data(), v.data());
    changed_ = made_;
    read(k, changed_.k);
    read(v, changed_.v);
    reference_ = make_reference(problem, changed_, problem.seq_len);
    if (problem.fp8 == Fp8::kNone) return;
    const Inputs rounded = in_16_bits(problem, round_to_fp8(problem, made_));
    q_ = eights(rounded.q);
    k_ = eights(rounded.k);
    v_ = eights(rounded.v);
  }
  const Inputs& made() const { return made_; }
  const Inputs& changed() const { return changed_; }
  // What a perfect kernel gives.
  std::vector<uint16_t> output() const {
    std::vector<uint16_t> result(problem_.element_count());
    for (size_t i = 0; i < result.size(); i++)
      result[i] = from_float(float(reference_.values[i]), problem_.dtype);
    return result;
  }
  std::vector<float> lse() const { return {reference_.lse.begin(), reference_.lse.end()}; }
  Found check(const std::vector<uint16_t>& output, const std::vector<float>& lse) const {
    const auto rows = rows_to_check(problem_, head_rows(problem_), made_, nonce_);
    std::vector<float> parts(part_floats(kRowsChecked, problem_.head_dim));
    const OutputCheck check{originals(), problem_,     pool_.block_table.data(),
                            rows.data(), kRowsChecked, parts.data()};
    std::vector<Eight> aligned(output.size() / 8);
    memcpy(aligned.data(), output.data(), output.size() * 2);
    Found found{};
    check_output(check, nonce_, {aligned.data(), problem_.strides(), lse.data()}, &found);
    return found;
  }

 private:
  // Reads a tensor as kernels find it, its rows in the order of Inputs.
  void read(const std::vector<Eight>& from, std::vector<uint16_t>& to) const {
    const auto* const elements = reinterpret_cast<const uint16_t*>(from.data());
    if (problem_.page_size == 0) {
      std::copy_n(elements, to.size(), to.data());
      return;
    }
    const auto d = size_t(problem_.head_dim), size = size_t(problem_.page_size);
    const auto heads = size_t(problem_.key_heads());
    for (size_t sequence = 0; sequence < problem_.kv_lens.size(); sequence++) {
      for (size_t head = 0; head < heads; head++) {
        for (size_t key = 0; key < size_t(problem_.kv_lens[sequence]); key++) {
          const size_t entry = sequence * size_t(problem_.table_pages()) + key / size;
          const size_t row = (size_t(pool_.block_table[entry]) * heads + head) * size + key % size;
          std::copy_n(elements + row * d, d,
                      &to[((sequence * heads + head) * problem_.kv_rows() + key) * d]);
        }
      }
    }
  }
  Originals originals() const {
    return {q_.data(), k_.data(), v_.data(), q_.size(), k_.size(), k_changes_};
  }
  Problem problem_;
  uint64_t nonce_;
  bool k_changes_ = true;
  Inputs made_, changed_;
  Pool pool_;
  std::vector<Eight> q_, k_, v_;
  Reference reference_;
};

TEST(CheckedOutputs, AreRightWhereTheOracleSaysSo) {
  Problem causal = problem(2, 4, 192, 64, Dtype::kBf16), packed = causal, grouped = causal,
          paged = causal;
  causal.mask = Mask::kCausal;
  packed.mask = Mask::kCausal;
  packed.pack({{70, 130}, {0, 3}, {129, 128}, {5, 2}, {3, 0}});
  grouped.kv_heads = 2;
  grouped.seq_len = 197;
  grouped.kv_len = 2500;
  paged.kv_heads = 2;
  paged.page(16, {100, 0, 17, 301});
  Problem tiles = grouped, rotated = causal, capped = packed, sloped = grouped, in_window = paged;
  Problem wide = problem(1, 2, 192, 256, Dtype::kBf16);
  wide.fp8 = Fp8::kHead;
  tiles.fp8 = Fp8::kTile;
  rotated.fp8 = Fp8::kRotated;
  capped.softcap = 1.5f;
  capped.sinks = true;
  sloped.alibi = Alibi::kSequence;
  sloped.window = {300, 2000};
  in_window.seq_len = 20;
  in_window.window = {120, 1};
  in_window.sinks = true;
  in_window.alibi = Alibi::kHead;
  Problem odd = paged;
  odd.head_dim = 96;  // whose columns do not divide the threads; and a part of more keys than these
  odd.page(16, {8 * 300, 0, 517, 301});
  for (Problem each :
       {causal, packed, grouped, paged, tiles, rotated, capped, sloped, in_window, wide, odd}) {
    for (const Dtype dtype : {Dtype::kFp16, Dtype::kBf16}) {
      each.dtype = dtype;
      const CheckedOutput checked(each, "normal", 12345);
      std::vector<uint16_t> output = checked.output();
      std::vector<float> lse = checked.lse();
      Found found = checked.check(output, lse);
      EXPECT_EQ(found.wrong_rows, 0u);
      EXPECT_EQ(found.not_a_number, 0u);
      // More than roundings give a row, and less than one element may be off.
      for (size_t i = 0; i < output.size(); i++) {
        const float value = to_float(output[i], dtype);
        const float factor = each.fp8 != Fp8::kNone  ? 1.2f
                             : dtype == Dtype::kFp16 ? 1.003f
                                                     : 1.012f;
        output[i] = from_float(value * factor, dtype);
      }
      EXPECT_GE(checked.check(output, lse).wrong_rows, 16u) << "some rows see no key";
      output = checked.output();
      for (float& row : lse) row += each.fp8 != Fp8::kNone ? 0.3f : 1e-3f;
      EXPECT_GE(checked.check(output, lse).wrong_rows, 16u);
      lse = checked.lse();
      output.front() = output.back() = 0xffff;
      lse[3] = NAN;
      found = checked.check(output, lse);
      EXPECT_EQ(found.not_a_number, 3u);
    }
  }
}

TEST(CheckedOutputs, AreJudgedOnHardInputs) {
  for (const std::string& inputs : all_input_names()) {
    for (const Dtype dtype : {Dtype::kFp16, Dtype::kBf16}) {
      const Problem hard = problem(1, inputs == "mixed_heads" ? 7 : 1, 256, 64, dtype);
      const CheckedOutput checked(hard, inputs, 987654321);
      const Found found = checked.check(checked.output(), checked.lse());
      EXPECT_EQ(found.wrong_rows, 0u) << inputs;
      EXPECT_EQ(found.not_a_number, 0u) << inputs;
    }
  }
}

// Of K and V about half of all elements have another sign, each by itself, and K of hard inputs is
// as it was.
TEST(CheckedOutputs, AreOfOtherInputsEachTime) {
  const Problem small = problem(1, 2, 128, 64, Dtype::kBf16);
  const auto flipped = [](const std::vector<uint16_t>& a, const std::vector<uint16_t>& b) {
    size_t count = 0;
    for (size_t i = 0; i < a.size(); i++) {
      EXPECT_EQ(a[i] & 0x7fff, b[i] & 0x7fff);
      count += a[i] != b[i];
    }
    return double(count) / double(a.size());
  };
  const CheckedOutput one(small, "normal", 1), other(small, "normal", 2), hard(small, "large", 1);
  for (const auto tensor : {&Inputs::k, &Inputs::v}) {
    EXPECT_NEAR(flipped(one.made().*tensor, one.changed().*tensor), 0.5, 0.02);
    EXPECT_NEAR(flipped(other.changed().*tensor, one.changed().*tensor), 0.5, 0.02);
  }
  EXPECT_EQ(hard.made().k, hard.changed().k);
  EXPECT_NEAR(flipped(hard.made().v, hard.changed().v), 0.5, 0.02);
}

// ---- checks -------------------------------------------------------------------------------------
TEST_F(MeasuringTest, APassedKernelHasTimes) {
  const Record record = make_runner()->run(find_kernel("01"));
  EXPECT_EQ(record.status, Status::kPassed) << record.reason;
  ASSERT_TRUE(record.times);
  EXPECT_EQ(record.rounds.size(), 1u);
  EXPECT_NEAR(record.tflops(record.times), kSmall.flops() * 1e-9, 1e-12);
  EXPECT_TRUE(record.counts.counters.empty());
}

TEST_F(MeasuringTest, WhatTimedLaunchesLeaveIsCheckedToo) {
  const Record record = make_runner()->run(find_kernel("04"));
  EXPECT_EQ(record.status, Status::kWrong);
  EXPECT_EQ(record.reason,
            "timed launch 1 of 4: 32 of 32 rows of O that were computed again are not what its "
            "inputs give");
  EXPECT_FALSE(record.times);
  EXPECT_TRUE(record.rounds.empty());
  EXPECT_FALSE(to_json(record).contains("time_ms"));
}

// Who computes less in the timed launches than when it is checked is found out: each gets inputs of
// its own, and all of its output is looked at before the next one.
TEST_F(MeasuringTest, NoTimedLaunchMayDoLess) {
  for (const char* name :
       {"04_right_once", "08_remembers", "09_skips", "11_other_stream", "12_remembers_sums",
        "13_half", "15_lse_once", "16_repeats_signs", "17_rough_between", "18_empties_v"}) {
    for (const int sets : {1, 3}) {
      protocol.rotating_inputs = sets;
      fake_gpu() = FakeGpu{};
      const Record record = make_runner()->run(find_kernel(name));
      EXPECT_EQ(record.status, Status::kWrong) << name << ", sets: " << sets;
      EXPECT_FALSE(record.times) << name;
    }
  }
  // The output that is kept is that of the inputs as they were made.
  const std::vector<uint16_t> output = make_runner()->verify(find_kernel("01")).output;
  for (const int sets : {1, 2}) {
    protocol.rotating_inputs = sets;
    const Record record = make_runner()->run(find_kernel("01"));
    EXPECT_EQ(record.status, Status::kPassed) << record.reason;
    EXPECT_EQ(record.output, output);
  }
}

// A timer then has several launches, and a time is that of one.
TEST_F(MeasuringTest, LaunchesInARow) {
  protocol.in_a_row = 4;
  Kernel kernel = find_kernel("01");
  const auto right = kernel.run;
  kernel.run = [&](const Problem& problem, const Tensors& tensors) {
    fake_gpu().add("launch");
    right(problem, tensors);
  };
  const Record record = make_runner()->run(kernel);
  ASSERT_EQ(record.status, Status::kPassed) << record.reason;
  EXPECT_EQ(record.times->median, 0.25);
  const std::vector<std::string> log = fake_gpu().what();
  int most = 0, since = 0;
  for (const std::string& each : log) {
    since = each == "start" ? 0 : since + (each == "launch");
    if (each == "stop") most = std::max(most, since);
  }
  EXPECT_EQ(most, 4);
}

// Before every timed launch O is NaN, so who looks for that finds it, and is timed as it is then.
TEST_F(MeasuringTest, NoTimedLaunchFindsAnOldOutput) {
  const Record record = make_runner()->run(find_kernel("10_exact_at_nan"));
  EXPECT_EQ(record.status, Status::kPassed) << record.reason;
  ASSERT_TRUE(record.times);
  EXPECT_EQ(record.times->min, 1);
  const std::vector<std::string> log = fake_gpu().what();
  EXPECT_GT(std::count(log.begin(), log.end(), "rough"), 0) << "in the warm-up";
}

TEST_F(MeasuringTest, EveryElementMustBeWritten) {
  const Record record = make_runner()->run(find_kernel("19_leaves_one"));
  EXPECT_EQ(record.status, Status::kWrong);
  EXPECT_CONTAINS(record.reason, "timed launch 1 of 4: ");
}

// Other bits are not wrong: a library may add in another order each time.
TEST_F(MeasuringTest, RowsMayBeRoundedOtherwiseInEachLaunch) {
  const Record record = make_runner()->run(find_kernel("14_noisy"));
  EXPECT_EQ(record.status, Status::kPassed) << record.reason;
}

TEST_F(MeasuringTest, InputsOfEveryProblemChange) {
  Problem causal = problem(2, 4, 128, 64, Dtype::kBf16), packed = causal, grouped = causal;
  causal.mask = Mask::kCausal;
  packed.pack({{70, 130}, {0, 3}, {129, 128}});
  grouped.kv_heads = 2;
  grouped.seq_len = 197;
  grouped.kv_len = 65;
  for (const Problem& each : {causal, packed, grouped}) {
    Runner runner(each, make_inputs(each, "normal", 1), protocol);
    const Record record = runner.run(find_kernel("peer/fake"));
    EXPECT_EQ(record.status, Status::kPassed) << record.reason;
  }
}

// In the same launches, which it is no part of; not of a library, whose rounding is PyTorch's.
TEST_F(MeasuringTest, RoundingIsTimedByItself) {
  Problem p = problem(1, 1, 128, 64, Dtype::kBf16);
  p.fp8 = Fp8::kHead;
  Kernel kernel = find_kernel("01");
  kernel.takes.fp8 = true;
  kernel.prepare = [](const Problem&, const Tensors&) { fake_gpu().launch_ms = 0.25; };
  Runner runner(p, make_inputs(p, "normal", 1), protocol);
  Record record = runner.run(kernel);
  runner.add_round(kernel, record);
  ASSERT_EQ(record.status, Status::kPassed) << record.reason;
  const auto written = to_json(record);
  EXPECT_EQ(written["rounding_ms"], 0.25);
  EXPECT_EQ(written["rounding_bytes"], 5 * 3 * 128 * 64);
  EXPECT_EQ(written["time_ms"]["median"], 1.0);
  EXPECT_GT(written["error"]["rmse"].get<double>(), 0);

  kernel.library = [] { return Library{"other", "1.0", "FP8"}; };
  const auto of_library = to_json(runner.run(kernel));
  EXPECT_TRUE(of_library.contains("time_ms"));
  EXPECT_FALSE(of_library.contains("rounding_ms"));
}

TEST_F(MeasuringTest, EverySetOfBuffersIsChecked) {
  protocol.rotating_inputs = 3;
  auto runner = make_runner();
  EXPECT_EQ(runner->verify(find_kernel("07")).status, Status::kWrong);
  EXPECT_EQ(runner->run(find_kernel("01")).status, Status::kPassed);
}

TEST_F(MeasuringTest, AFailureInALaterRoundTakesTheTimes) {
  auto runner = make_runner();
  Record record = runner->run(find_kernel("01"));
  record.kernel = "06_fatal";
  runner->add_round(find_kernel("06"), record);
  EXPECT_EQ(record.status, Status::kError);
  EXPECT_FALSE(record.times);
  const auto written = to_json(record);
  EXPECT_FALSE(written.contains("error")) << "bench/schema.json: only of a result";
  EXPECT_EQ(written["reason"], "06_fatal: an illegal address");
  fake_gpu().log.clear();
  runner->add_round(find_kernel("01"), record);
  EXPECT_TRUE(fake_gpu().log.empty()) << "and no further round is run";
}

TEST_F(MeasuringTest, RoundsGoOverTheKernelsAndMoveOn) {
  protocol.warmup = 0;  // one launch all the same
  protocol.iterations = 1;
  protocol.rounds = 3;
  std::vector<std::string> said;
  const auto records = measure(*make_runner(), {&find_kernel("01"), &find_kernel("02")}, protocol,
                               [&](const std::string& what, int done, int steps) {
                                 EXPECT_EQ(done, int(said.size()));
                                 EXPECT_EQ(steps, 8);
                                 said.push_back(what);
                               });
  const std::vector<std::string> expected = {"verifying 01_right",
                                             "verifying 02_warm",
                                             "timing 01_right, round 1 of 3",
                                             "timing 02_warm, round 1 of 3",
                                             "timing 02_warm, round 2 of 3",
                                             "timing 01_right, round 2 of 3",
                                             "timing 02_warm, round 3 of 3",
                                             "timing 01_right, round 3 of 3"};
  EXPECT_EQ(said, expected);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].rounds.size(), 3u);
  EXPECT_TRUE(records[0].output.empty());
  EXPECT_FALSE(records[1].output.empty()) << "of the last kernel, for --o";
  const auto written = to_json(records[1]);
  EXPECT_EQ(written["round_ms"].dump(), "[2.0,2.0,2.0]");
  EXPECT_EQ(written["round_clock_mhz"].dump(), "[1700.0,1700.0,1700.0]");
  const auto notes = clock_notes(records);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0],
            "fp16, head_dim 64, seq_len 128: the SM clock was 1700 MHz under 02_warm and 1980 MHz "
            "under 01_right");
}

TEST_F(MeasuringTest, ClocksWithinThreePercentAreNotNoted) {
  auto runner = make_runner();
  std::vector<Record> records = {runner->run(find_kernel("01")), runner->run(find_kernel("02")),
                                 runner->run(find_kernel("03"))};
  records[0].times->clock_mhz = 1700 * 1.029;
  EXPECT_TRUE(clock_notes(records).empty());
  records[0].times->clock_mhz = 1700 * 1.031;
  EXPECT_EQ(clock_notes(records).size(), 1u);
  records[1].problem.seq_len = 256;  // another problem: not compared
  EXPECT_TRUE(clock_notes(records).empty());
}

// ---- requests -----------------------------------------------------------------------------------
const char kRequest[] =
    R"({"op":"measure","kernels":["01"],"dtype":"fp16","batch":1,"heads":1,"seq_len":128,)"
    R"("head_dim":64,"inputs":"normal","seed":1,"warmup":0,"iterations":2,"rounds":2,)"
    R"("max_seconds":9,"rest_ms":0,"load_seconds":0,"flush_l2":false,"rotating_inputs":1})";

Json answer(const std::string& request, FaBenchSay say = nullptr) {
  return Json::parse(fa_bench_request(request.c_str(), say));
}

std::string changed(const std::string& what, const std::string& by) {
  std::string request = kRequest;
  return request.replace(request.find(what), what.size(), by);
}

TEST_F(MeasuringTest, RequestsAreMeasured) {
  const Json described = answer(R"({"op":"describe"})");
  EXPECT_EQ(described["machine"]["backend"], "cuda");
  EXPECT_EQ(described["kernels"][1], "02_warm");
  static int steps_told;
  steps_told = 0;
  const Json records = answer(changed("\"01\"", R"("02_warm","05","peer/fake","ceiling/matmul")"),
                              [](const char*, int, int steps) {
                                steps_told = steps;
                                return 0;
                              })["records"];
  EXPECT_EQ(steps_told, 4 * 3);
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[0]["kernel"], "02_warm");
  EXPECT_EQ(records[0]["status"], "passed");
  EXPECT_EQ(records[0]["registers"], 64);
  EXPECT_EQ(records[0]["time_ms"]["median"], 2.0);
  EXPECT_EQ(records[0]["round_ms"], Json::parse("[2.0,2.0]"));
  EXPECT_EQ(records[1]["status"], "skipped");
  EXPECT_EQ(records[1]["reason"], "needs another GPU");
  const Json library = Json::parse(R"({"name":"Fake","version":"1.0","implementation":"none"})");
  EXPECT_EQ(records[2]["library"], library);
  EXPECT_FALSE(records[2].contains("registers"));
  EXPECT_EQ(records[3]["flops"], 1e9);
  EXPECT_DOUBLE_EQ(records[3]["tflops"].get<double>(), 0.5);  // 1e9 operations in 2 ms
  const Json copy = answer(changed("\"01\"", "\"ceiling/copy\""))["records"][0];
  EXPECT_DOUBLE_EQ(copy["gbytes_per_s"].get<double>(), 1);  // 2e6 bytes in 2 ms
  EXPECT_FALSE(copy.contains("tflops"));
}

// A library with its output in memory of its own.
std::vector<uint16_t> latest;
int peer_launches, peer_answer;

int peer(int task, const void* q, const void* k, const void* v, void* o, void*, char* sentence,
         int capacity) {
  latest.resize(kSmall.element_count());
  if (task == kFaBenchLaunch) {
    snprintf(sentence, size_t(capacity), "it does not like this");
    if (peer_answer != 0) return peer_answer;
    peer_launches++;
    find_kernel("01").run(kSmall, {q, k, v, latest.data()});
  }
  const long long row = kSmall.head_dim, head = row * kSmall.seq_len;
  if (task == kFaBenchOutput) *static_cast<FaBenchOutput*>(o) = {latest.data(), head, head, row};
  return 0;
}

TEST_F(MeasuringTest, ALibraryIsMeasuredBesideTheKernels) {
  ASSERT_EQ(fa_bench_add(R"({"kernel":"peer/added","library":{"name":"Added","version":"2",)"
                         R"("implementation":"a function"}})",
                         peer),
            nullptr);
  const auto of_peer = [] {
    return answer(changed("\"01\"", R"("01","peer/added")"))["records"][1];
  };
  peer_answer = peer_launches = 0;
  const Json record = of_peer();
  EXPECT_EQ(record["status"], "passed") << record;
  EXPECT_EQ(record["library"]["implementation"], "a function");
  EXPECT_EQ(record["round_ms"].size(), 2u);
  EXPECT_EQ(peer_launches, 1 + 2 * (1 + 1 + 2)) << "in each round one to see, one warm-up, two";
  // In a window it leaves what is right without one, and that is noticed.
  const Json in_window = answer(changed(
      "\"01\"],", R"("01","peer/fake","peer/added"],"window":[9,0],"softcap":30.5,)"))["records"];
  EXPECT_EQ(in_window[0]["reason"],
            "takes --window -1,-1, not 9,0; scores without a softcap (--softcap)");
  EXPECT_EQ(in_window[1]["status"], "passed") << in_window[1];
  EXPECT_EQ(in_window[1]["softcap"], 30.5);
  constexpr int kPairs = 128 * 10 - 45;
  EXPECT_EQ(in_window[1]["attended_pairs"], kPairs);
  EXPECT_DOUBLE_EQ(in_window[1]["tflops"].get<double>(), 4.0 * kPairs * 64 * 1e-9);  // in 1 ms
  EXPECT_EQ(in_window[2]["status"], "wrong") << in_window[2];
  peer_answer = 1;
  EXPECT_EQ(of_peer()["status"], "skipped");
  peer_answer = 2;
  EXPECT_EQ(of_peer()["status"], "error");
  EXPECT_EQ(of_peer()["reason"], "it does not like this");
  EXPECT_STREQ(fa_bench_add("{}", peer), "the peer lacks 'library'");
}

TEST_F(MeasuringTest, RequestsGoOnAfterWhatFails) {
  fake_gpu().memory_bytes = 300000;
  EXPECT_EQ(
      answer(changed("\"heads\":1", "\"heads\":20")),
      Json::parse(R"({"error":"allocating 327680 bytes for Q: out of memory","lost":false})"));
  EXPECT_EQ(answer(kRequest)["records"][0]["status"], "passed");
  const auto stop = [](const char*, int, int) { return 1; };
  EXPECT_EQ(answer(kRequest, stop)["error"], "interrupted");
  EXPECT_EQ(answer(kRequest)["records"][0]["status"], "passed");
}

TEST_F(MeasuringTest, BadRequestsAreAnsweredWithOneSentence) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "the request is not JSON"},
      {"{\"op\":", "the request is not JSON"},
      {"{\"op\":\"\xff\"}", "the request is not JSON"},
      {"[]", "the request is not a JSON object"},
      {"{}", "the request lacks 'op'"},
      {R"({"op":1})", "the request: 'op' must be a text, not 1"},
      {R"({"op":"fly"})", "unknown op 'fly', there are: describe, measure"},
      {changed("[\"01\"]", "[]"), "measure: 'kernels' must be names"},
      {changed("[\"01\"]", "[1]"), "measure: 'kernels' must be names"},
      {changed("\"01\"", "\"99\""), "unknown kernel '99', there are: "},
      {changed("\"seed\":1,", ""), "measure lacks 'seed'"},
      {changed("\"seed\":1", "\"seed\":-1"), "measure: 'seed' must be a whole number from 0"},
      {changed("\"batch\":1", "\"batch\":1.5"), "measure: 'batch' must be a whole number"},
      {changed("128", "0"), "measure: 'seq_len' must be a whole number from 1"},
      {changed("normal", "nice"), "unknown inputs 'nice'"},
      {changed("false", "0"), "measure: 'flush_l2' must be true or false, not 0"},
      {changed("\"iterations\":2", "\"iterations\":0"), "'iterations' must be a whole number"},
      {changed("\"max_seconds\":9", "\"max_seconds\":0"), "'max_seconds' must be a number above 0"},
      {changed("\"load_seconds\":0", "\"load_seconds\":-1"),
       "'load_seconds' must be a number from 0"},
      {changed("\"seed\"", "\"score_std\":5,\"seed\""), "measure lacks 'score_growth'"},
      {changed("\"seed\"", "\"score_std\":0,\"score_growth\":\"flat\",\"seed\""),
       "measure: --score-std must be above 0 and at most 1000"},
      {changed("\"seed\"", "\"window\":7,\"seed\""),
       "measure: 'window' must be two numbers, not 7"},
      {changed("\"seed\"", "\"window\":[7],\"seed\""), "'window' must be two numbers, not [7]"},
      {changed("\"seed\"", "\"window\":[7,-2],\"seed\""),
       "measure: 'window': 'right' must be a whole number from -1 to 1073741824, not -2"},
      {changed("\"seed\"", "\"softcap\":-1,\"seed\""),
       "'softcap' must be a number from 0 on, not -1"},
      {changed("\"seed\"", "\"softcap\":1e99,\"seed\""),
       "measure: --softcap must be above 0 and finite, or 0 for none"},
  };
  for (const auto& [request, sentence] : cases) {
    const Json got = answer(request);
    EXPECT_CONTAINS(got.value("error", "").get<std::string>(), sentence);
    EXPECT_EQ(got["lost"], false);
  }
}

// ---- programs -----------------------------------------------------------------------------------
TEST(FakePrograms, TheTableTellsOfClocks) {
  const ProgramResult result =
      shell("$BIN/fake_attention 01 02 ceiling/copy --protocol quick --dtype fp16");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_CONTAINS(result.out, "Note: the SM clock was 1700 MHz under 02_warm and 1980");
  EXPECT_CONTAINS(result.out, "1 GB/s");
  expect_100_columns(result.out);
}

TEST(FakePrograms, WriteProtocolsAndRounds) {
  const TemporaryFolder folder;
  const std::string program =
      "cd " + (folder / ".") + " && $BIN/fake_attention 01 02 --json r.json ";
  auto results = [&](const std::string& options) {
    const ProgramResult result = shell(program + options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(read_file(folder / "r.json"));
  };
  const Json whole = results("--protocol quick");
  EXPECT_EQ(whole["protocol"]["name"], "quick");
  EXPECT_EQ(whole["protocol"]["rounds"], 3);
  EXPECT_EQ(whole["protocol"]["load_seconds"], 0);
  EXPECT_EQ(whole["protocol"]["rest_ms"], 0.25);
  EXPECT_EQ(whole["protocol"]["flush_l2"], true);
  EXPECT_EQ(whole["records"].size(), 4u);
  EXPECT_EQ(whole["records"][0]["round_ms"].size(), 3u);
  EXPECT_EQ(whole["records"][0]["time_ms"]["launches"], 4);
  EXPECT_EQ(whole["notes"].size(), 2u);

  const Json part = results("--protocol quick --dtype bf16 --head-dim 64");
  EXPECT_EQ(part["protocol"]["name"], "quick")
      << "a choice among its problems leaves them as they are";
  EXPECT_EQ(part["records"].size(), 2u);

  const Json changed = results("--protocol quick --iters 2 --rounds 1");
  EXPECT_FALSE(changed["protocol"].contains("name"));
  EXPECT_FALSE(changed["protocol"].contains("rounds"));
  EXPECT_EQ(changed["protocol"]["iterations"], 2);
  EXPECT_EQ(changed["protocol"]["warmup"], 1);
  EXPECT_FALSE(changed["records"][0].contains("round_ms"));
  EXPECT_EQ(changed["records"][0]["clock_mhz"], 1980);

  const ProgramResult none = shell(program + "--protocol quick --head-dim 128");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_EQ(none.err, "error: no problem of the protocol quick is as the options say\n");
}

}  // namespace
}  // namespace fa::test
