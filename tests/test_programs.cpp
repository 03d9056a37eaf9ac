// The programs as a user meets them: what they print, write and return.
#include <cmath>
#include <filesystem>
#include <regex>
#include <utility>

#include "common/api/fa.h"
#include "tests/support.h"

namespace fa::test {
namespace {

const std::string kSmall = " --batch 1 --heads 1 --seq-len 128 --head-dim 64 --warmup 0 --iters 3 ";

// ---- good ---------------------------------------------------------------------------------------
TEST(Programs, ListIsTheRegistry) {
  std::string names;
  for (const Kernel& kernel : numbered_kernels()) names += kernel.name + "\n";
  EXPECT_EQ(shell("$BIN/attention --list").out, names);
  for (const Kernel& kernel : kernels()) {
    EXPECT_EQ(shell("$BIN/" + kernel.name + " --list").out, kernel.name + "\n")
        << "one program a kernel";
  }
}

TEST(Programs, HelpHasAnExample) {
  for (const std::string& program : {std::string("attention"), kernels().front().name}) {
    const ProgramResult result = shell("$BIN/" + program + " --help");
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
    EXPECT_CONTAINS(result.out, "Example: " + program);
    for (const char* option :
         {"--batch",     "--heads",    "--seq-len",       "--head-dim",     "--dtype",
          "--seed",      "--inputs",   "--warmup",        "--iters",        "--max-seconds",
          "--flush-l2",  "--rotate",   "--workspace-mib", "--json",         "--threads",
          "--list",      "--protocol", "--rounds",        "--load-seconds", "--trace",
          "--trace-cta", "--rest-ms",  "--score-std",     "--score-growth", "--mask",
          "--q-len",     "--kv-len",   "--kv-heads",      "--lengths",      "--kv-lengths",
          "--page-size", "--window",   "--softcap",       "--alibi",        "--sink"}) {
      EXPECT_CONTAINS(result.out, std::string(option) + " ");
    }
    for (const std::string& inputs : input_names()) EXPECT_CONTAINS(result.out, inputs);
  }
}

TEST(Programs, SayTheirVersion) {
  EXPECT_EQ(shell("$BIN/attention --version").out, "fast-attention " FA_VERSION "\n");
}

TEST(Programs, TheExampleOfTheHelpRuns) {
  const TemporaryFolder folder;
  std::string example = shell("$BIN/attention --help").out;
  example = example.substr(example.find("Example: ") + 9);
  example = std::regex_replace(example.substr(0, example.find('\n')), std::regex("1024"), "128");
  const ProgramResult result = shell("cd " + (folder / ".") + " && $BIN/" + example);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(folder.files(), std::vector<std::string>{"results.json"});
}

TEST(Programs, TableFitsAndIsPlain) {
  const ProgramResult result = shell("$BIN/attention" + kSmall);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out.find('\033'), std::string::npos) << "no colours in a file";
  EXPECT_EQ(result.err.find('\r'), std::string::npos) << "no progress in a file";
  expect_100_columns(result.out);
  for (const Kernel& kernel : numbered_kernels()) EXPECT_CONTAINS(result.out, kernel.name);
}

TEST(Programs, JsonHasTheContractsFields) {
  const TemporaryFolder folder;
  const std::string path = folder / "r.json";
  ASSERT_EQ(shell("$BIN/attention --dtype fp16 --seed 9 --inputs large --json " + path + kSmall)
                .exit_code,
            0);
  EXPECT_EQ(folder.files().size(), 1u) << "no temporary file is left";
  const Json results = Json::parse(read_file(path));
  EXPECT_EQ(results["schema_version"], 6);
  EXPECT_TRUE(std::regex_match(results["created"].get<std::string>(),
                               std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)")));
  EXPECT_EQ(results["command"][0], "attention");
  EXPECT_EQ(results.dump().find("/tmp"), std::string::npos) << "no folders of this machine";
  EXPECT_EQ(results["machine"]["backend"], on_gpu() ? "cuda" : "emulator");
  for (const char* key : {"warmup", "iterations", "flush_l2", "rotating_inputs", "max_seconds",
                          "rest_ms", "load_seconds", "tflops_convention"}) {
    EXPECT_TRUE(results["protocol"].contains(key)) << key;
  }
  EXPECT_EQ(results["protocol"]["inputs"], "large");
  EXPECT_EQ(results["protocol"]["seed"], 9);
  const std::vector<Kernel> expected = numbered_kernels();
  ASSERT_EQ(results["records"].size(), expected.size());
  for (size_t i = 0; i < expected.size(); i++) {
    const Json& record = results["records"][i];
    EXPECT_EQ(record["kernel"], expected[i].name);
    EXPECT_EQ(record["dtype"], "fp16");
    EXPECT_EQ(record["batch"], 1);
    EXPECT_EQ(record["heads"], 1);
    EXPECT_EQ(record["seq_len"], 128);
    EXPECT_EQ(record["head_dim"], 64);
    if (record["status"] == "skipped") {
      EXPECT_TRUE(record.contains("reason"));
      continue;
    }
    EXPECT_EQ(record["status"], "passed");
    EXPECT_FALSE(record.contains("reason"));
    EXPECT_EQ(record["error"]["checked_rows"], 128);
    EXPECT_LE(record["error"]["rel"], record["error"]["tolerance"]);
    EXPECT_TRUE(record["shared_memory_bytes"].is_whole());
    EXPECT_TRUE(record["workspace_bytes"].is_whole());
    if (on_gpu()) {
      EXPECT_GT(record["time_ms"]["median"], 0);
      EXPECT_GT(record["tflops"], 0);
      EXPECT_GT(record["registers"], 0);
      EXPECT_TRUE(record.contains("clock_mhz") && record.contains("power_w"));
    } else {
      EXPECT_GT(record["counters"]["exp2"], 0);
      EXPECT_FALSE(record.contains("time_ms"));
    }
  }
}

TEST(Programs, TheListSaysWhatKernelsNeedAndTake) {
  const TemporaryFolder folder;
  ASSERT_EQ(shell("$BIN/attention --list --json " + (folder / "list.json")).exit_code, 0);
  const Json list = Json::parse(read_file(folder / "list.json"));
  ASSERT_EQ(list.size(), numbered_kernels().size());
  for (const Json& row : list) {
    const std::string name = row["kernel"].get<std::string>();
    const Kernel& kernel = find_kernel(name);
    EXPECT_EQ(row["compute_capability"], kernel.needs.compute_capability);
    EXPECT_EQ(row["exactly"], kernel.needs.exactly);
    EXPECT_EQ(row["traits"] == "max_free", kernel.traits == Traits::kMaxFree);
    EXPECT_EQ(row["takes"]["causal"], kernel.takes.causal);
  }
}

TEST(Programs, EveryScheduleGivesTheSameOutput) {
  if (on_gpu()) GTEST_SKIP() << "the GPU has a schedule of its own";
  const TemporaryFolder folder;
  // The errors against float64 in all digits: of one head, so that each element of O is in them.
  const auto errors = [&](const std::string& options) {
    const std::string file = folder / "r.json";
    const ProgramResult result = shell("$BIN/attention 08" + kSmall + options + " --json " + file);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(read_file(file))["records"][0]["error"];
  };
  const Json fixed = errors("--schedule fixed");
  for (const char* options : {"--schedule random", "--schedule random --completion random"}) {
    EXPECT_EQ(errors(options), fixed) << options;
  }
  EXPECT_EQ(shell("$BIN/attention_checked 08" + kSmall + "--no-races").exit_code, 0);
  EXPECT_EQ(shell("$BIN/attention 08 --schedule sometimes").exit_code, 2);
}

// ---- counters -----------------------------------------------------------------------------------
size_t count_of(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at++) count++;
  return count;
}

TEST(Programs, CountersOfFewKernelsInFullOfManyInALine) {
  if (on_gpu()) GTEST_SKIP() << "of the checked emulator";
  const auto run = [](const std::string& arguments) {
    const ProgramResult result = shell("$BIN/attention_checked --no-races " + arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    expect_100_columns(result.out);
    return result.out;
  };
  // Kernel 04 rescales O with four wavefronts for each ideal one.
  const std::string full = run("04 08 --heads 1 --seq-len 128");
  EXPECT_EQ(count_of(full, ", by kind of instruction\n"), 2u) << full;
  EXPECT_TRUE(std::regex_search(full, std::regex("\nshared load +[0-9,]+ +[0-9,]+ +2\\.[0-9]+ ")));
  EXPECT_TRUE(std::regex_search(full, std::regex("\nldmatrix +[0-9,]+ +[0-9,]+ +1\\.00 ")));
  EXPECT_TRUE(std::regex_search(
      full,
      std::regex("  kernels/04_wmma.cu:[0-9]+, shared load: [0-9,]+ wavefronts, 4.00 per ideal "
                 "one\n      rO = make_float4")))
      << full;
  EXPECT_EQ(full.find("08_swizzle.cu:"), full.rfind("08_swizzle.cu:")) << "only the stores of O";
  EXPECT_EQ(full.find("wgmma"), std::string::npos) << "neither kernel has any";
  // 10 stores O in whole sectors: nothing is left to say. A bar compares it with nothing.
  const std::string alone = run("10" + kSmall);
  EXPECT_CONTAINS(alone, "\nNo line takes more wavefronts or sectors than its ideal.\n");
  EXPECT_EQ(alone.find("\u2588"), std::string::npos) << alone;
  EXPECT_CONTAINS(full, "  \u2588");
  // 01 moves 285 times the sectors of 04, and 7 log10(285) is 17.2.
  const std::string far = run("01 04 --heads 2 --seq-len 256");
  const auto bar_of = [&](const std::string& kernel) {
    const size_t line = far.find("\n" + kernel + ' ') + 1;
    return count_of(far.substr(line, far.find('\n', line) - line), "\u2588");
  };
  EXPECT_EQ(bar_of("01_naive"), 22u) << far;
  EXPECT_EQ(bar_of("04_wmma"), 5u) << far;
  EXPECT_CONTAINS(far, "\nBars: sectors, logarithmic; 7 blocks are a factor of ten.\nSector: 32 ");

  const std::string summary = run("04 06 08" + kSmall);
  EXPECT_EQ(count_of(summary, ", by kind of instruction\n"), 0u) << summary;
  EXPECT_EQ(count_of(run("10 12" + kSmall), "\nWavefronts leave out what wgmma reads"), 1u);
  EXPECT_EQ(count_of(summary, "shared load: 4.00 wavefronts"), 1u) << summary;
  EXPECT_EQ(run("07 --counters summary" + kSmall).find(", by kind"), std::string::npos);
  EXPECT_EQ(count_of(run("06 07 08 --counters full" + kSmall), ", by kind"), 3u);
  EXPECT_EQ(run("07 --counters none" + kSmall).find("deal"), std::string::npos);
  EXPECT_CONTAINS(run("best --counters none" + kSmall), "16_max_free");
  EXPECT_EQ(shell("$BIN/attention_checked 07 --counters all").exit_code, 2);
  if (shell("$BIN/attention 07" + kSmall).out.starts_with("emulator, fast build")) {
    const ProgramResult fast = shell("$BIN/attention 07 --counters full" + kSmall);
    EXPECT_EQ(fast.exit_code, 2);
    EXPECT_CONTAINS(fast.err, "needs the checked build");
  }
}

// A protocol's problems would take the emulator hours; it does small ones.
TEST(Programs, AProtocolRuns) {
  const TemporaryFolder folder;
  const ProgramResult result = shell(
      "cd " + (folder / ".") + " && $BIN/attention " + numbered_kernels().back().name +
      " --protocol quick --json r.json --max-seconds 0.1" + (on_gpu() ? " --seq-len 1024" : ""));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json results = Json::parse(read_file(folder / "r.json"));
  EXPECT_EQ(results["protocol"]["warmup"], 8);
  EXPECT_FALSE(results["protocol"].contains("name")) << "--max-seconds makes it another one";
  ASSERT_EQ(results["records"].size(), 1u);
  EXPECT_EQ(results["records"][0]["seq_len"], on_gpu() ? 1024 : 256);
  EXPECT_EQ(results["records"][0]["dtype"], "bf16");
}

TEST(Programs, ScoresAreScaledAndRecorded) {
  const TemporaryFolder folder;
  const std::string path = folder / "r.json";
  const ProgramResult result = shell(
      "$BIN/attention 2 --score-std 1,30 --score-growth flat,growing" + kSmall + "--json " + path);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_CONTAINS(result.out, "head_dim 64, scores of std 30, growing\n");
  const Json records = Json::parse(read_file(path))["records"];
  ASSERT_EQ(records.size(), 4u);
  std::vector<std::string> seen;
  for (const Json& record : records)
    seen.push_back(record["score_growth"].get<std::string>() + record["score_std"].dump());
  EXPECT_EQ(seen, (std::vector<std::string>{"flat1.0", "flat30.0", "growing1.0", "growing30.0"}));
}

// What each option asks for is in the record, and has been computed: without a key a row is zeros.
TEST(Programs, WhatHappensToScoresIsRecorded) {
  const TemporaryFolder folder;
  const std::string path = folder / "r.json";
  const ProgramResult result = shell(
      "$BIN/plain --window -1,3 --softcap 2 --alibi sequence --sink" + kSmall + "--json " + path);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json record = Json::parse(read_file(path))["records"][0];
  EXPECT_EQ(record["status"], "passed");
  EXPECT_EQ(record["window"], Json({-1, 3}));
  EXPECT_EQ(record["softcap"], 2.0);
  EXPECT_EQ(record["alibi"], "sequence");
  EXPECT_EQ(record["sinks"], true);
  for (const auto& [option, sentence] :
       {std::pair{"--window=1", "--window"},
        {"--window 3,", "--window"},
        {"--window 3,-2", "Value -2 not in range -1 to 1073741824"},
        {"--softcap -1", "--softcap must be above 0"},
        {"--alibi some", "some not in {none,head,sequence}"},
        {"--window 3,0 --protocol quick", "--window does not go with --protocol"}}) {
    const ProgramResult refused = shell(std::string("$BIN/plain ") + option + kSmall);
    EXPECT_EQ(refused.exit_code, 2) << option;
    EXPECT_CONTAINS(refused.err, sentence);
  }
}

// ---- bad: one sentence on stderr, exit code 2, nothing left behind ------------------------------
struct BadCommand {
  std::string arguments;  // in a folder with the files below
  std::string sentence;   // part of the answer
};

const BadCommand kBadCommands[] = {
    {"99", "unknown kernel '99', there are: "},
    {"no_such_kernel", "unknown kernel 'no_such_kernel'"},
    {"best --mask causal",
     "no kernel of this program takes the problem: 16_max_free takes --mask none, not causal"},
    {"best --kv-heads 0", "--kv-heads"},
    {"best 99", "unknown kernel '99', there are: "},
    {"--seq-len 100", "--seq-len must be a multiple of 128 from 128 to 4194304, not 100"},
    {"--seq-len 0", "--seq-len must be a multiple of 128 from 128 to 4194304"},
    {"--seq-len -128", "--seq-len must be a multiple of 128 from 128 to 4194304, not -128"},
    {"--seq-len 8388608", "--seq-len must be a multiple of 128 from 128 to 4194304, not 8388608"},
    {"--seq-len 99999999999", "--seq-len"},
    {"--seq-len many", "--seq-len"},
    {"--head-dim 80", "--head-dim must be 64, 96, 128 or 256, not 80"},
    {"--head-dim 0", "--head-dim must be 64, 96, 128 or 256"},
    {"--head-dim -64", "--head-dim must be 64, 96, 128 or 256"},
    {"--batch 0", "--batch"},
    {"--batch -1", "--batch"},
    {"--batch 4294967297", "--batch"},
    {"--heads 0", "--heads"},
    {"--batch 1 --heads 65536", "batch * heads must be at most 65535, not 65536"},
    {"--batch 1073741824 --heads 1073741824",
     "batch * heads must be at most 65535, not 1152921504606846976"},
    {"--batch 1 --heads 60000 --seq-len 4194304", "at most 128 GiB are supported"},
    {"--dtype fp32", "fp32 not in {fp16,bf16}"},
    {"--inputs nice", "nice not in {normal"},
    {"--mask some", "some not in {none,causal}"},
    {"--mask causal", "takes --mask none, not causal"},
    {"--q-len 100",
     "takes a multiple of 128 as the number of queries (--seq-len), not 100; as many"},
    {"--seq-len 256 --kv-len 300", "takes as many keys as queries (--kv-len 256), not 300"},
    {"--heads 4 --kv-heads 2", "takes as many heads of keys as of queries (--kv-heads 4), not 2"},
    {"--heads 4 --kv-heads 3", "--kv-heads must divide --heads, which are 4, not be 3"},
    {"--lengths 384,17", "takes sequences of one length (--seq-len), not --lengths"},
    {"--lengths 384,,17", "--lengths takes values with a comma between two"},
    {"--lengths 0", "--lengths must have a sum from 1 to 1073741824"},
    {"--lengths 384 --batch 1", "--batch does not go with --lengths"},
    {"--lengths 384 --kv-lengths 1,2", "--kv-lengths needs as many numbers as --lengths, 1, not 2"},
    {"--kv-lengths 384", "--kv-lengths belongs to --lengths or --page-size"},
    {"--page-size 16", "takes K and V in one piece, not in pages (--page-size)"},
    {"--page-size 24", "--page-size must be 16, 32, 64, 128 or 256, not 24"},
    {"--page-size 16 --lengths 384", "--page-size does not go with --lengths"},
    {"--page-size 16 --kv-lengths 384,0 --batch 2", "--batch does not go with --kv-lengths"},
    {"--page-size 16 --kv-lengths 0,0", "--kv-len must be from 1 to 4194304, not 0"},
    {"--mask causal --protocol quick", "--mask does not go with --protocol"},
    {"--score-std 0", "--score-std must be above 0 and at most 1000"},
    {"--score-std nan", "--score-std must be above 0 and at most 1000"},
    {"--score-std 1,2000", "--score-std must be above 0 and at most 1000"},
    {"--score-std much", "--score-std"},
    {"--score-std 5 --score-growth down", "down not in {flat,growing}"},
    {"--score-growth growing", "--score-growth belongs to --score-std"},
    {"--score-std 5 --inputs tiny", "--score-std is of the inputs normal, not of tiny"},
    {"--score-std 5 --protocol quick", "--score-std does not go with --protocol"},
    {"--seed -1", "--seed"},
    {"--seed x", "--seed"},
    {"--seed 18446744073709551616", "--seed: Value 18446744073709551616 is out of range"},
    {"--seq-len 0256", "--seq-len: Value 0256 has a zero in front"},
    {"--protocol ''", "unknown protocol '', there are: "},
    {"--patience nan", "--patience"},
    {"--warmup -1", "--warmup"},
    {"--iters 0", "--iters"},
    {"--max-seconds 0", "--max-seconds"},
    {"--max-seconds nan", "--max-seconds"},
    {"--threads 0", "--threads"},
    {"--workspace-mib -1", "--workspace-mib"},
    {"--load-seconds -1", "--load-seconds"},
    {"--load-seconds nan", "--load-seconds"},
    {"--rest-ms -1", "--rest-ms"},
    {"--rounds 0", "--rounds"},
    {"--protocol", "--protocol"},
    {"--protocol nice", "unknown protocol 'nice', there are: quick, from-scratch"},
    {"--protocol quick --dtype fp16", "no problem of the protocol quick is as the options say"},
    {"--json", "--json"},
    {"--no-such-option", "--no-such-option"},
    {"--seq-len 128,", "--seq-len takes values with a comma between two, not '128,'"},
    {"--seq-len=128,,256", "--seq-len takes values with a comma between two"},
    {"--score-std ,5", "--score-std takes values with a comma between two, not ',5'"},
    {"--json ''", "--json needs the name of a file"},
    {"--json none/r.json", "cannot write none/r.json: No such file or directory"},
    {"--json .", "cannot write .: Is a directory"},
    {"--json /dev/full", "cannot write /dev/full: No space left on device"},
    {"--trace ./r.json --json r.json", "--json and --trace name the same file"},
    {"--trace .", "cannot write .: Is a directory"},
    {"--trace none/t.json", "cannot write none/t.json: No such file or directory"},
};

class BadCommands : public testing::TestWithParam<BadCommand> {};

TEST_P(BadCommands, GetOneSentence) {
  const TemporaryFolder folder;
  const size_t files = folder.files().size();

  const auto& [arguments, sentence] = GetParam();
  const bool shaped = arguments.find("--seq-len") != std::string::npos ||
                      arguments.find("--lengths") != std::string::npos;
  const ProgramResult result = shell("cd " + (folder / ".") + " && timeout 60 $BIN/attention " +
                                     (shaped ? "" : "--seq-len 128 ") + arguments);
  EXPECT_EQ(result.exit_code, 2) << result.out;
  EXPECT_EQ(result.err.rfind("error: ", 0), 0u) << result.err;
  EXPECT_CONTAINS(result.err, sentence);
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  // A disk may fill up while a program runs; everything else is refused before.
  EXPECT_TRUE(result.out.empty() || sentence.find("No space") != std::string::npos) << result.out;
  EXPECT_EQ(folder.files().size(), files) << "a file was left";
}
INSTANTIATE_TEST_SUITE_P(Arguments, BadCommands, testing::ValuesIn(kBadCommands),
                         [](const auto& test) {
                           return std::regex_replace(
                               std::to_string(test.index) + "_" + test.param.arguments,
                               std::regex("[^A-Za-z0-9]+"), "_");
                         });

// ---- disks --------------------------------------------------------------------------------------
// The disk is full in the middle of a file: stood in for by a limit on the size of files.
TEST(Programs, AFullDiskLeavesNoPartialFile) {
  const TemporaryFolder folder;
  folder.write("r.json", "old");
  const ProgramResult result =
      shell("cd " + (folder / ".") +
            " && trap '' XFSZ && ulimit -f 1 && $BIN/attention --json r.json" + kSmall);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_CONTAINS(result.err, "error: cannot write ");
  if (const std::string kept = read_file(folder / "r.json"); kept != "old") Json::parse(kept);
  for (const std::string& name : folder.files()) EXPECT_EQ(name, "r.json");
}

TEST(Programs, AStandardOutputThatCannotBeWrittenIsSaid) {
  for (const std::string& arguments :
       {"01" + kSmall, std::string("--list"), std::string("--help")}) {
    const ProgramResult result = shell("$BIN/attention " + arguments + " > /dev/full");
    EXPECT_EQ(result.exit_code, 2) << arguments;
    EXPECT_EQ(result.err, "error: cannot write to standard output: No space left on device\n");
  }
  EXPECT_EQ(shell("$BIN/attention --list >&-").exit_code, 2);
}

TEST(Programs, DevicesAreWrittenTo) {
  const ProgramResult result =
      shell("$BIN/attention --json /dev/stderr" + kSmall + "2>&1 >/dev/null | cat");
  EXPECT_CONTAINS(result.out, "\"schema_version\": 6");
  EXPECT_TRUE(std::filesystem::is_symlink("/dev/stderr"));
}

}  // namespace
}  // namespace fa::test
