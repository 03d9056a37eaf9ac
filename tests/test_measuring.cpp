// Times, clocks, rounds and requests on a GPU that is made up (fake_gpu.h).
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <ios>
#include <memory>
#include <nlohmann/json.hpp>
#include <ratio>
#include <sstream>
#include <string>
#include <vector>

#include "common/cli/cli.h"
#include "common/cli/serve.h"
#include "common/harness/inputs.h"
#include "common/harness/results.h"
#include "common/harness/runner.h"
#include "common/launch/problem.h"
#include "common/launch/registry.h"
#include "tests/fake_gpu.h"
#include "tests/support.h"

namespace fa::test {
namespace {

using nlohmann::json;

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
TEST_F(MeasuringTest, SustainedLaunchesAreQueuedWithoutWaiting) {
  fake_gpu().polls_until_done = 4;
  const auto log = timed(*make_runner(), "01", protocol);
  // The first sample is there so that the driver's library is loaded when it counts, the first
  // launch is the warm-up, and each of the last samples polls twice, before the pause and after.
  const std::vector<std::string> expected = {"sampled", "start",   "right",   "stop",    "start",
                                             "right",   "stop",    "start",   "right",   "stop",
                                             "start",   "right",   "stop",    "start",   "right",
                                             "stop",    "sampled", "sampled", "sampled", "waited"};
  EXPECT_EQ(log, expected);
}

TEST_F(MeasuringTest, BurstsBeginAfterTheGpuIdled) {
  protocol.idle_ms = 3;
  protocol.flush_l2 = true;
  const auto log = timed(*make_runner(), "01", protocol);
  const std::vector<std::string> launch = {
      "L2 flush poisoned", "waited", "held", "start", "right", "stop", "sampled"};
  std::vector<std::string> expected = {"sampled", "start", "right", "stop"};
  for (int i = 0; i < 4; i++) expected.insert(expected.end(), launch.begin(), launch.end());
  expected.emplace_back("waited");
  EXPECT_EQ(log, expected);
  for (size_t i = 5; i + 1 < log.size(); i++) {
    if (log[i] != "held") continue;
    const std::chrono::duration<double, std::milli> idle =
        fake_gpu().log[i].when - fake_gpu().log[i - 1].when;
    EXPECT_GE(idle.count(), 3.0);
  }
}

TEST_F(MeasuringTest, TheGpuRestsBeforeTheWarmUpOfARound) {
  protocol.rest_ms = 4;
  auto runner = make_runner();
  Record record = runner->verify(find_kernel("01"));
  EXPECT_EQ(record.status, Status::kPassed) << record.reason;
  fake_gpu().log.clear();
  runner->add_round(find_kernel("01"), record);
  const auto& log = fake_gpu().log;
  const auto log_of = fake_gpu().what();
  const size_t rested = size_t(std::find(log_of.begin(), log_of.end(), "waited") - log_of.begin());
  ASSERT_LT(rested + 2, log.size());
  EXPECT_EQ(std::count(log_of.begin(), log_of.begin() + std::ptrdiff_t(rested), "start"), 0);
  EXPECT_EQ(log_of[rested + 2], "start") << "after a sample";
  const std::chrono::duration<double, std::milli> rest = log[rested + 1].when - log[rested].when;
  EXPECT_GE(rest.count(), 4.0);
}

TEST_F(MeasuringTest, ColdLaunchesFlushBeforeTheTimedInterval) {
  protocol.flush_l2 = true;
  const auto log = timed(*make_runner(), "01", protocol);
  EXPECT_EQ(std::count(log.begin(), log.end(), "L2 flush poisoned"), 4);
  for (size_t i = 4; i < log.size(); i++) {
    EXPECT_TRUE(log[i] != "start" || log[i - 1] == "L2 flush poisoned") << i;
  }
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
  EXPECT_EQ(std::count(log.begin(), log.end(), "slow"), 2) << "one of them to warm up";
  // Idling counts too: 1 s for launches of 1 ms and pauses of 99 ms.
  protocol.idle_ms = 99;
  protocol.warmup = 0;
  EXPECT_EQ(make_runner()->time(find_kernel("01"), protocol).launches, 10);
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
  const Times all = merge(rounds);
  EXPECT_DOUBLE_EQ(all.median, 2);
  EXPECT_DOUBLE_EQ(all.p10, 1.5);
  EXPECT_DOUBLE_EQ(all.p90, 2.5);
  EXPECT_DOUBLE_EQ(all.min, 0.25);
  EXPECT_EQ(all.launches, 10);
  EXPECT_DOUBLE_EQ(all.clock_mhz.value_or(0), 1500);
  EXPECT_FALSE(all.power_w);
}

// ---- checks -------------------------------------------------------------------------------------
TEST_F(MeasuringTest, APassedKernelHasTimes) {
  const Record record = make_runner()->run(find_kernel("01"));
  EXPECT_EQ(record.status, Status::kPassed) << record.reason;
  ASSERT_TRUE(record.times);
  EXPECT_EQ(record.rounds.size(), 1u);
  EXPECT_NEAR(record.tflops(), kSmall.flops() * 1e-9, 1e-12);
  EXPECT_TRUE(record.counts.counters.empty());
}

TEST_F(MeasuringTest, WhatTimedLaunchesLeaveIsCheckedToo) {
  const Record record = make_runner()->run(find_kernel("04"));
  EXPECT_EQ(record.status, Status::kWrong);
  EXPECT_NE(record.reason.find("never written"), std::string::npos) << record.reason;
  EXPECT_FALSE(record.times);
  EXPECT_TRUE(record.rounds.empty());
  EXPECT_FALSE(to_json(record).contains("time_ms"));
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
  std::vector<std::string> said;
  const auto records = measure(*make_runner(), {&find_kernel("01"), &find_kernel("02")}, 3,
                               [&](const std::string& what) { said.push_back(what); });
  const std::vector<std::string> expected = {"verifying 01_right ...",
                                             "verifying 02_warm ...",
                                             "timing 01_right, round 1 of 3 ...",
                                             "timing 02_warm, round 1 of 3 ...",
                                             "timing 02_warm, round 2 of 3 ...",
                                             "timing 01_right, round 2 of 3 ...",
                                             "timing 01_right, round 3 of 3 ...",
                                             "timing 02_warm, round 3 of 3 ..."};
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
const char kProblem[] =
    R"({"op":"problem","dtype":"fp16","batch":1,"heads":1,"seq_len":128,"head_dim":64,)"
    R"("inputs":"normal","seed":1,"flush_l2":false,"rotating_inputs":1})";

std::string time_of(const std::string& kernel) {
  return R"({"op":"time","kernel":")" + kernel +
         R"(","warmup":0,"iterations":2,"max_seconds":9,"idle_ms":0})";
}

std::vector<json> answers(const std::vector<std::string>& requests, int exit_code = 0) {
  std::stringstream in, out;
  for (const std::string& request : requests) in << request << "\n";
  EXPECT_EQ(serve(in, out, Protocol{}), exit_code);
  std::vector<json> result;
  for (std::string line; std::getline(out, line);) result.push_back(json::parse(line));
  return result;
}

TEST_F(MeasuringTest, ServeVerifiesAndTimes) {
  const auto got = answers({R"({"op":"describe"})", kProblem, R"({"op":"verify","kernel":"02"})",
                            time_of("02_warm"), time_of("03"), R"({"op":"quit"})", kProblem});
  ASSERT_EQ(got.size(), 6u) << "nothing after quit";
  EXPECT_EQ(got[0]["machine"]["backend"], "cuda");
  EXPECT_EQ(got[0]["kernels"][1], "02_warm");
  EXPECT_GT(got[1]["seconds"], 0);
  const json& record = got[2]["record"];
  EXPECT_EQ(record["kernel"], "02_warm");
  EXPECT_EQ(record["status"], "passed");
  EXPECT_EQ(record["registers"], 64);
  EXPECT_EQ(record["shared_memory_bytes"], 1024);
  EXPECT_TRUE(record.contains("error"));
  EXPECT_FALSE(record.contains("time_ms"));
  EXPECT_EQ(got[3], json::parse(R"({"time_ms":{"median":2.0,"p10":2.0,"p90":2.0,"min":2.0,
            "launches":2},"clock_mhz":1700.0,"power_w":500.0})"));
  EXPECT_TRUE(got[4]["clock_mhz"].is_null());
  EXPECT_EQ(got[5], json::object());
}

TEST_F(MeasuringTest, ServeWritesTheTensorsOfAProblem) {
  const std::string folder = testing::TempDir();
  for (const char* name : {"normal", "dominant_key"}) {
    std::string request = kProblem;
    request.replace(request.find("problem"), 7, "tensors");
    request.replace(request.find("normal"), 6, name);
    request.replace(request.find("\"seed\":1"), 8, "\"seed\":7,\"folder\":\"" + folder + "\"");
    const auto got = answers({request});
    ASSERT_EQ(got[0]["files"].size(), 3u);
    const Inputs wanted = make_inputs(kSmall, name, 7);
    const std::vector<uint16_t>* tensors[] = {&wanted.q, &wanted.k, &wanted.v};
    for (int i = 0; i < 3; i++) {
      std::ifstream file(got[0]["files"][i].get<std::string>(), std::ios::binary);
      std::vector<uint16_t> bits(tensors[i]->size() + 1);
      file.read(reinterpret_cast<char*>(bits.data()), bits.size() * 2);
      EXPECT_EQ(size_t(file.gcount()), tensors[i]->size() * 2);
      bits.pop_back();
      EXPECT_EQ(bits, *tensors[i]) << name << " " << i;
    }
  }
  const auto nowhere =
      answers({R"({"op":"tensors","dtype":"fp16","batch":1,"heads":1,"seq_len":128,"head_dim":64,)"
               R"("inputs":"normal","seed":1,"folder":"/no/such/folder"})"});
  EXPECT_NE(nowhere[0]["error"].get<std::string>().find("/no/such/folder"), std::string::npos);
}

TEST_F(MeasuringTest, ServeGoesOnAfterWhatFails) {
  fake_gpu().memory_bytes = 20000;
  std::string large = kProblem;
  large.replace(large.find("\"heads\":1"), 9, "\"heads\":2");
  const auto got = answers({kProblem, time_of("05"), R"({"op":"verify","kernel":"05"})", large,
                            time_of("01"), kProblem, time_of("01")});
  ASSERT_EQ(got.size(), 7u);
  EXPECT_EQ(got[1]["error"], "needs another GPU");
  EXPECT_EQ(got[2]["record"]["status"], "skipped");
  EXPECT_EQ(got[3]["error"], "allocating 32768 bytes for Q: out of memory");
  EXPECT_EQ(got[4]["error"], "there is no problem yet: ask for one with the op problem");
  EXPECT_EQ(got[6]["time_ms"]["median"], 1.0);
}

TEST_F(MeasuringTest, ServeEndsWithALostGpuAfterTheAnswer) {
  const auto of_time = answers({kProblem, time_of("06"), kProblem}, 3);
  ASSERT_EQ(of_time.size(), 2u);
  EXPECT_EQ(of_time[1]["error"], "06_fatal: an illegal address");
  fake_gpu().lost = false;
  const auto of_verify = answers({kProblem, R"({"op":"verify","kernel":"06"})", kProblem}, 3);
  ASSERT_EQ(of_verify.size(), 2u);
  EXPECT_EQ(of_verify[1]["record"]["status"], "error");
}

TEST_F(MeasuringTest, PeersNameTheirLibraryAndCeilingsWhatTheyDo) {
  const auto got = answers({kProblem, R"({"op":"verify","kernel":"peer/fake"})",
                            R"({"op":"verify","kernel":"ceiling/matmul"})",
                            R"({"op":"verify","kernel":"ceiling/copy"})"});
  const json library = json::parse(R"({"name":"Fake","version":"1.0","implementation":"none"})");
  for (size_t i = 1; i < got.size(); i++) {
    EXPECT_EQ(got[i]["record"]["status"], "passed");
    EXPECT_EQ(got[i]["record"]["library"], library);
    EXPECT_FALSE(got[i]["record"].contains("registers"));
  }
  EXPECT_FALSE(got[1]["record"].contains("flops"));
  EXPECT_EQ(got[2]["record"]["flops"], 1e9);
  EXPECT_EQ(got[3]["record"]["bytes"], 2e6);
  auto runner = make_runner();
  const auto matmul = to_json(runner->run(find_kernel("ceiling/matmul")));
  EXPECT_DOUBLE_EQ(matmul["tflops"], 0.5);  // 1e9 operations in 2 ms
  EXPECT_FALSE(matmul.contains("gbytes_per_s"));
  const auto copy = to_json(runner->run(find_kernel("ceiling/copy")));
  EXPECT_DOUBLE_EQ(copy["gbytes_per_s"], 1);  // 2e6 bytes in 2 ms
  EXPECT_FALSE(copy.contains("tflops") || copy.contains("bytes"));
}

// ---- programs -----------------------------------------------------------------------------------
TEST(FakePrograms, TheTableTellsOfClocks) {
  const ProgramResult result =
      shell("$BIN/fake_attention 01 02 ceiling/copy --protocol quick --dtype fp16");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("Note: the SM clock was 1700 MHz under 02_warm and 1980"),
            std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("1 GB/s"), std::string::npos) << result.out;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }),
              100)
        << line;
  }
}

TEST(FakePrograms, WriteProtocolsAndRounds) {
  const TemporaryFolder folder;
  const std::string program =
      "cd " + (folder / ".") + " && $BIN/fake_attention 01 02 --json r.json ";
  auto results = [&](const std::string& options) {
    const ProgramResult result = shell(program + options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(read_file(folder / "r.json"));
  };
  const json whole = results("--protocol quick");
  EXPECT_EQ(whole["protocol"]["name"], "quick");
  EXPECT_EQ(whole["protocol"]["rounds"], 3);
  EXPECT_EQ(whole["protocol"]["idle_ms"], 0.5);
  EXPECT_EQ(whole["protocol"]["rest_ms"], 0.25);
  EXPECT_EQ(whole["protocol"]["flush_l2"], true);
  EXPECT_EQ(whole["records"].size(), 4u);
  EXPECT_EQ(whole["records"][0]["round_ms"].size(), 3u);
  EXPECT_EQ(whole["records"][0]["time_ms"]["launches"], 4);
  EXPECT_EQ(whole["notes"].size(), 2u);

  const json part = results("--protocol quick --dtype bf16 --head-dim 64");
  EXPECT_EQ(part["protocol"]["name"], "quick")
      << "a choice among its problems leaves them as they are";
  EXPECT_EQ(part["records"].size(), 2u);

  const json changed = results("--protocol quick --iters 2 --rounds 1");
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
