#include "common/harness/cli.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <iterator>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "common/emulator/timing.h"
#include "common/harness/counter_tables.h"
#include "common/harness/device.h"
#include "common/harness/gpu_timeline.h"
#include "common/harness/inputs.h"
#include "common/harness/npy.h"
#include "common/harness/problem.h"
#include "common/harness/protocols.h"
#include "common/harness/recorder.h"
#include "common/harness/registry.h"
#include "common/harness/results.h"
#include "common/harness/runner.h"
#include "common/harness/serve.h"
#include "common/harness/trace_file.h"
#include "common/ptx/record.h"
#ifndef FA_WITH_CUDA
#include "common/emulator/launch.h"
#include "common/emulator/trace.h"
#endif

namespace fa {
namespace {

struct Arguments {
  std::vector<std::string> kernels;
  int batch = on_gpu() ? 0 : 1;  // 0: as many as give 16384 rows a head
  int heads = on_gpu() ? 16 : 2;
  std::vector<int> seq_lens = {on_gpu() ? 4096 : 256};
  int head_dim = 128;
  std::vector<double> score_stds;  // empty: Q and K as they are
  std::vector<std::string> score_growths = {"flat"};
  std::string dtype = "bf16", q, k, v, o, json, trace;
  int trace_cta = 0;
  Protocol protocol;
  int workspace_mib = 1024;
  int threads = 0;
  std::string completion = "late", schedule = "fixed", protocol_name;
  std::string counters = "auto";
  bool no_races = false;
  bool list = false, serve = false;
  std::vector<Problem> problems;  // of the named protocol, else empty
};

// Separated by commas, in lines of at most `width` characters.
std::string in_lines(const std::vector<std::string>& names, size_t width) {
  std::string text;
  size_t begin = 0;  // of the last line
  for (const std::string& name : names) {
    const bool fits = text.size() + name.size() + 2 <= begin + width;
    if (!text.empty()) text += fits ? " " : "\n";
    if (!fits) begin = text.size();
    text += name + (&name == &names.back() ? "" : ",");
  }
  return text;
}

void declare(CLI::App& app, Arguments& arguments) {
  if (kernels().size() > 1) {
    app.add_option("KERNEL", arguments.kernels,
                   "names or numbers (02_online_softmax, 02); default: all");
  }
  const auto positive = CLI::Range(1, 1 << 30);
  const auto not_negative = [](const std::string& text) -> std::string {
    return text.starts_with("-") ? "Value " + text + " is negative" : "";
  };
  const auto positive_seconds = [](const std::string& text) -> std::string {
    const double value = atof(text.c_str());
    return value > 0 && value < 1e9 ? ""
                                    : "Value " + text + " is not a positive number";  // NaN is not
  };
  const auto milliseconds = [](const std::string& text) -> std::string {
    const double value = atof(text.c_str());
    return value >= 0 && value <= 60000 ? "" : "Value " + text + " is not from 0 to 60000";
  };
  app.add_option("--batch", arguments.batch, "sequences [default: GPU 16384/seq_len, emulator 1]")
      ->check(positive);
  app.add_option("--heads", arguments.heads, "heads a sequence")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--seq-len", arguments.seq_lens,
                 "queries and keys a head, a multiple of 128; several: 512,1024")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  app.add_option("--head-dim", arguments.head_dim, "64 or 128")->capture_default_str();
  app.add_option("--dtype", arguments.dtype, "fp16 or bf16")
      ->check(CLI::IsMember({"fp16", "bf16"}))
      ->capture_default_str();
  app.add_option("--inputs", arguments.protocol.inputs,
                 "what to run on:\n" + in_lines(input_names(), 70))
      ->check(CLI::IsMember(input_names()).description(""))
      ->capture_default_str();
  app.add_option("--score-std", arguments.score_stds,
                 "scale normal inputs so that scores have this standard\n"
                 "deviation, in nats; several: 1,10,100")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--score-growth", arguments.score_growths,
                 "the same for all keys (flat), or growing in proportion to\n"
                 "the key's index (growing); both: flat,growing")
      ->check(CLI::IsMember({"flat", "growing"}).description(""))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  app.add_option("--seed", arguments.protocol.seed, "of the inputs")
      ->check(CLI::Validator(not_negative, ""))
      ->capture_default_str();
  app.add_option("--q", arguments.q, "read Q from a .npy file (with --k and --v; sets the shape)");
  app.add_option("--k", arguments.k, "read K from a .npy file");
  app.add_option("--v", arguments.v, "read V from a .npy file");
  app.add_option("--o", arguments.o, "write O of the (last) kernel to a .npy file");
  app.add_option("--json", arguments.json, "write the results to a file (bench/schema.json)");
  app.add_option("--trace", arguments.trace,
                 "write a timeline of one CTA, for https://ui.perfetto.dev\n"
                 "(presets emulator-checked and cuda-timeline)");
  app.add_option("--trace-cta", arguments.trace_cta, "which CTA, the grid's x counted first")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--protocol", arguments.protocol_name,
                 "one of those below; options given choose among its problems or change it");
  app.add_option("--warmup", arguments.protocol.warmup, "untimed launches")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--iters", arguments.protocol.iterations, "timed launches")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-seconds", arguments.protocol.max_seconds,
                 "of timing a kernel; slow ones get fewer launches")
      ->check(CLI::Validator(positive_seconds, ""))
      ->capture_default_str();
  app.add_option("--rounds", arguments.protocol.rounds, "of timing all kernels, one after another")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--idle-ms", arguments.protocol.idle_ms,
                 "burst: the GPU idles before every timed launch [0: sustained]")
      ->check(CLI::Validator(milliseconds, ""));
  app.add_option("--rest-ms", arguments.protocol.rest_ms,
                 "the GPU idles before a kernel's warm-up in every round [0: it does not]")
      ->check(CLI::Validator(milliseconds, ""));
  app.add_flag("--flush-l2", arguments.protocol.flush_l2,
               "empty the L2 cache before every timed launch");
  app.add_option("--rotate", arguments.protocol.rotating_inputs, "sets of buffers that take turns")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--workspace-mib", arguments.workspace_mib, "memory for intermediate results")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--threads", arguments.threads, "OS threads of the emulator [default: one a core]")
      ->check(CLI::Range(1, 1024));
#ifndef FA_WITH_CUDA
  app.add_option(
         "--completion", arguments.completion,
         "when the emulator's asynchronous copies happen: late, early or random (by --seed)")
      ->check(CLI::IsMember({"late", "early", "random"}))
      ->capture_default_str();
  app.add_option("--schedule", arguments.schedule,
                 "in which order the emulator runs threads: fixed or random (by --seed)")
      ->check(CLI::IsMember({"fixed", "random"}))
      ->capture_default_str();
  app.add_option("--counters", arguments.counters,
                 "checked build, below the table: full (by kind of instruction, and\n"
                 "the worst lines), summary (a line a kernel), none, or auto: full\n"
                 "for one or two kernels, else summary")
      ->check(CLI::IsMember({"auto", "full", "summary", "none"}))
      ->capture_default_str();
  app.add_flag("--no-races", arguments.no_races, "checked build: do not look for races");
#endif
  app.add_flag("--serve", arguments.serve,
               "answer requests, JSON lines on standard input (common/harness/serve.h)");
  app.add_flag("--list", arguments.list, "print the kernels of this program and stop");
}

// CLI11 drops what is empty between commas.
void refuse_empty_parts(int argc, char** argv) {
  for (int i = 1; i < argc; i++) {
    for (const std::string name : {"--seq-len", "--score-std", "--score-growth"}) {
      const std::string text = argv[i];
      if (argv[i - 1] != name && !text.starts_with(name + "=")) continue;
      const std::string list = "," + text.substr(text.find('=') + 1) + ",";
      if (list.find(",,") != std::string::npos) {
        throw BadInput(name + " takes values with a comma between two, not '" + text + "'");
      }
    }
  }
}

void parse(CLI::App& app, Arguments& arguments, int argc, char** argv) {
  declare(app, arguments);
  refuse_empty_parts(argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    throw;
  } catch (const CLI::ParseError& error) {
    throw BadInput(std::string(error.what()) + " (see --help)");
  }
}

// The defaults as a protocol wants them, and its problems as far as the options given choose them.
Arguments apply_protocol(const CLI::App& app, const Arguments& given) {
  NamedProtocol named = find_protocol(given.protocol_name);
  std::erase_if(named.problems, [&](const Problem& problem) {
    const std::vector<int>& lengths = given.seq_lens;
    return (app.count("--dtype") && given.dtype != name_of(problem.dtype)) ||
           (app.count("--head-dim") && given.head_dim != problem.head_dim) ||
           (app.count("--heads") && given.heads != problem.heads) ||
           (app.count("--batch") && given.batch != problem.batch) ||
           (app.count("--seq-len") &&
            std::find(lengths.begin(), lengths.end(), problem.seq_len) == lengths.end());
  });
  if (named.problems.empty()) {
    throw BadInput("no problem of the protocol " + given.protocol_name + " is as the options say");
  }
  if (!on_gpu()) make_small(named);
  Arguments result;
  result.protocol = named.protocol;
  result.problems = named.problems;
  return result;
}

Problem problem_of(const Arguments& arguments, int seq_len) {
  Problem problem;
  problem.heads = arguments.heads;
  problem.seq_len = seq_len;
  problem.head_dim = arguments.head_dim;
  problem.dtype = arguments.dtype == "fp16" ? Dtype::kFp16 : Dtype::kBf16;
  problem.batch = arguments.batch > 0 ? arguments.batch : std::max(1, 16384 / std::max(1, seq_len));
  return problem;
}

// One for each length, growth and standard deviation.
std::vector<Problem> problems_of(const Arguments& arguments) {
  std::vector<Problem> problems;
  for (const int seq_len : arguments.seq_lens) {
    const Problem problem = problem_of(arguments, seq_len);
    if (arguments.score_stds.empty()) problems.push_back(problem);
    for (const std::string& growth : arguments.score_growths) {
      for (const double std : arguments.score_stds) {
        problems.push_back(problem);
        problems.back().scores = {std, growth == "flat" ? Growth::kFlat : Growth::kGrowing};
      }
    }
  }
  return problems;
}

// Before work that takes long: files that are written can be, and are none of the other files.
void check_files(const CLI::App& app, const Arguments& arguments) {
  struct File {
    std::string option;
    const std::string& path;
  };
  const File files[] = {{"--o", arguments.o},         {"--json", arguments.json},
                        {"--trace", arguments.trace}, {"--q", arguments.q},
                        {"--k", arguments.k},         {"--v", arguments.v}};
  constexpr size_t kWritten = 3;  // the first of these
  for (const File& file : files) {
    if (app.count(file.option) && file.path.empty())
      throw BadInput(file.option + " needs the name of a file");
  }
  for (size_t i = 0; i < kWritten; i++) {
    if (files[i].path.empty()) continue;
    check_writable(files[i].path);
    for (size_t j = i + 1; j < std::size(files); j++) {
      if (same_file(files[i].path, files[j].path)) {
        throw BadInput(files[i].option + " and " + files[j].option + " name the same file, " +
                       files[j].path);
      }
    }
  }
}

// What files say themselves is no option beside them.
void check_options_beside_files(const CLI::App& app, const Arguments& arguments) {
  if (arguments.q.empty() || arguments.k.empty() || arguments.v.empty()) {
    throw BadInput("--q, --k and --v belong together: give all three");
  }
  for (const std::string option : {"--batch", "--heads", "--seq-len", "--head-dim", "--inputs",
                                   "--score-std", "--score-growth", "--seed"}) {
    const bool orders =
        option == "--seed" && (arguments.schedule == "random" || arguments.completion == "random");
    if (app.count(option) && !orders) {
      throw BadInput(option + " does not go with --q, --k and --v: the files have the shape and " +
                     "the values");
    }
  }
}

// Q, K and V from files; the shape comes from them.
Inputs read_inputs(const Arguments& arguments, Problem& problem) {
  Inputs inputs;
  const std::string* const paths[] = {&arguments.q, &arguments.k, &arguments.v};
  std::vector<uint16_t>* const tensors[] = {&inputs.q, &inputs.k, &inputs.v};
  std::array<int, 4> shape{};
  for (size_t i = 0; i < 3; i++) {
    NpyTensor tensor = read_npy(*paths[i], problem.dtype);
    problem.batch = tensor.shape[0];
    problem.heads = tensor.shape[1];
    problem.seq_len = tensor.shape[2];
    problem.head_dim = tensor.shape[3];
    try {
      validate(problem);
    } catch (const BadInput& error) {
      throw BadInput(*paths[i] + ": no kernel takes its shape: " + error.what());
    }
    if (i > 0 && tensor.shape != shape)
      throw BadInput(*paths[i] + ": its shape differs from that of " + arguments.q);
    shape = tensor.shape;
    *tensors[i] = std::move(tensor.bits);
  }
  return inputs;
}

// --trace shows one launch of one kernel by the build that sees everything.
void check_trace(const CLI::App& app, const Arguments& arguments, size_t kernel_count,
                 size_t problem_count) {
  if (arguments.trace.empty()) {
    if (app.count("--trace-cta"))
      throw BadInput("--trace-cta belongs to --trace: give a file, too");
    return;
  }
  if (on_gpu() && !has_recording_twins()) {
    throw BadInput(
        "--trace belongs to the emulator, preset emulator-checked, or on a GPU to kernels that "
        "record themselves: preset cuda-timeline");
  }
#ifndef FA_WITH_CUDA
  if (!on_gpu() && !emu::is_checked()) {
    throw BadInput(
        "--trace needs the checked build, which sees loads and stores: preset emulator-checked");
  }
#endif
  if (kernel_count != 1) {
    throw BadInput("--trace shows one kernel, but " + std::to_string(kernel_count) +
                   " would run: name one");
  }
  if (problem_count != 1) {
    throw BadInput("--trace shows one problem, but there are " + std::to_string(problem_count));
  }
  if (arguments.protocol.rotating_inputs != 1) {
    throw BadInput("--trace shows one launch: leave out --rotate");
  }
}

#ifndef FA_WITH_CUDA
void write_trace(const Arguments& arguments, const Record& record) {
  const std::vector<emu::Recording> recordings = emu::take_recordings();
  if (record.status == Status::kError || record.status == Status::kSkipped) {
    throw BadInput("no trace to write to " + arguments.trace + ": " + record.reason);
  }
  if (recordings.empty()) {
    throw BadInput("CTA " + std::to_string(arguments.trace_cta) +
                   " is not there: " + record.kernel + " launches fewer");
  }
  const emu::Timeline timeline = emu::replay(recordings);
  write_file_whole(arguments.trace, trace_json(recordings, record.problem, timeline));
  printf("\n%s: CTA %d in %lld cycles of the model; open it at https://ui.perfetto.dev\n",
         arguments.trace.c_str(), arguments.trace_cta, static_cast<long long>(timeline.cycles));
}
#endif

// A kernel and its twin that records, timed in turns.
struct Traced {
  Record plain, recording;
  std::vector<GpuRecording>
      recordings;  // of the twin's second launch: the first one loads its code
};

Traced measure_traced(Runner& runner, const Kernel& kernel, int cta, int rounds) {
  const Kernel* const twin = recording_twin(kernel);
  if (!twin) throw BadInput(kernel.name + " has nothing that a GPU would record: no barrier");
  Traced traced;
  traced.plain = runner.verify(kernel);
  traced.recording = runner.verify(*twin);
  if (traced.recording.status == Status::kPassed) {
    start_recording(uint32_t(cta));
    runner.launch(*twin, 0);
    traced.recordings = take_gpu_recordings();
  }
  for (int round = 0; round < rounds; round++) {
    if (round % 2 == 0) runner.add_round(kernel, traced.plain);
    runner.add_round(*twin, traced.recording);
    if (round % 2 == 1) runner.add_round(kernel, traced.plain);
  }
  traced.recording.kernel = "  recording";
  return traced;
}

void write_trace(const Arguments& arguments, Traced traced) {
  const Record& plain = traced.plain;
  if (traced.recording.status != Status::kPassed) {
    throw BadInput("no trace to write to " + arguments.trace + ": " + traced.recording.reason);
  }
  if (traced.recordings.empty()) {
    throw BadInput("CTA " + std::to_string(arguments.trace_cta) + " is not there: " + plain.kernel +
                   " launches fewer");
  }
  GpuTrace trace;
  trace.recordings = std::move(traced.recordings);
  trace.timeline = decode(trace.recordings, "kernels/" + plain.kernel + ".cu");
  trace.gpu = machine_title();
  if (plain.times) trace.ms = plain.times->median;
  if (traced.recording.times) trace.recording_ms = traced.recording.times->median;
  write_file_whole(arguments.trace, trace_json(trace, plain.problem));
  const GpuTimeline& recorded = trace.timeline;
  printf(
      "\n%s: CTA %d in %lld cycles of SM %d's clock, %llu records; open it at "
      "https://ui.perfetto.dev\n",
      arguments.trace.c_str(), arguments.trace_cta,
      static_cast<long long>(recorded.timeline.cycles), recorded.sm,
      static_cast<unsigned long long>(recorded.records));
  if (trace.ms > 0 && trace.recording_ms > 0) {
    printf("a launch takes %.4f ms, recording %.4f ms (%+.1f %%)\n", trace.ms, trace.recording_ms,
           100 * (trace.recording_ms / trace.ms - 1));
  }
  if (!recorded.out_of_space.empty()) {
    printf("Note: of warp %d%s only the first %u records are there: choose fewer tokens\n",
           recorded.out_of_space[0], recorded.out_of_space.size() > 1 ? " and others" : "",
           ptx::kRecordsOfWarp - ptx::kFirstRecord);
  }
}

int run_arguments(const CLI::App& app, const Arguments& arguments,
                  const std::vector<std::string>& command) {
  std::vector<const Kernel*> chosen;
  for (const std::string& name : arguments.kernels) chosen.push_back(&find_kernel(name));
  if (chosen.empty()) {
    for (const Kernel& kernel : kernels()) chosen.push_back(&kernel);
  }
  Protocol protocol = arguments.protocol;
  protocol.workspace_limit = size_t(arguments.workspace_mib) << 20;
#ifndef FA_WITH_CUDA
  emu::options() = {arguments.threads,
                    arguments.completion == "early"    ? emu::Completion::kEarly
                    : arguments.completion == "random" ? emu::Completion::kRandom
                                                       : emu::Completion::kLate,
                    protocol.seed,
                    arguments.schedule == "random" ? emu::Schedule::kRandom : emu::Schedule::kFixed,
                    !arguments.no_races,
                    {}};
  if (!arguments.trace.empty()) emu::options().traced_cta = uint64_t(arguments.trace_cta);
#endif
#ifndef FA_WITH_CUDA
  if ((arguments.counters == "full" || arguments.counters == "summary") && !emu::is_checked()) {
    throw BadInput("--counters " + arguments.counters +
                   " needs the checked build (build/emulator-checked); this one does not see loads "
                   "and stores");
  }
#endif
  if (!on_gpu()) protocol.rounds = 1;  // nothing is timed
  if (arguments.serve) return serve(std::cin, std::cout, protocol);
  const bool from_files = !arguments.q.empty() || !arguments.k.empty() || !arguments.v.empty();
  check_files(app, arguments);
  std::vector<Problem> problems = arguments.problems;
  if (problems.empty()) problems = problems_of(arguments);
  if (from_files) {
    check_options_beside_files(app, arguments);
    problems.resize(1);
    protocol.inputs = "files";
  } else {
    for (const Problem& problem : problems) validate(problem);
  }

  if (app.count("--score-growth") && arguments.score_stds.empty()) {
    throw BadInput("--score-growth belongs to --score-std: say how far scores spread");
  }

  check_trace(app, arguments, chosen.size(), problems.size());

  const bool progress = isatty(STDERR_FILENO), color = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
  auto say = [&](const std::string& what) {
    if (progress) fprintf(stderr, "\r\033[K%s", what.c_str());
  };
  std::vector<Record> records;
  const bool records_on_gpu = on_gpu() && !arguments.trace.empty();
  Traced traced;
  for (Problem& problem : problems) {
    say("making inputs and reference ...");
    const Inputs inputs = from_files ? read_inputs(arguments, problem)
                                     : make_inputs(problem, protocol.inputs, protocol.seed);
    Runner runner(problem, inputs, protocol);
    std::vector<Record> of_problem;
    if (records_on_gpu) {
      say("recording " + chosen[0]->name + " ...");
      traced = measure_traced(runner, *chosen[0], arguments.trace_cta, protocol.rounds);
      of_problem = {traced.plain, traced.recording};
    } else {
      of_problem = measure(runner, chosen, protocol.rounds, say);
    }
    say("");
    if (!records.empty()) printf("\n");
    print_table(problem, of_problem, color);
    if (records_on_gpu) of_problem.pop_back();  // the twin is no result
    const bool few = chosen.size() * problems.size() <= 2;
    if (arguments.counters != "none") {
      print_counters(of_problem,
                     arguments.counters == "full" || (arguments.counters == "auto" && few));
    }
    if (!records.empty()) records.back().output = std::vector<uint16_t>();  // much memory
    std::move(of_problem.begin(), of_problem.end(), std::back_inserter(records));
  }
  if (records_on_gpu) write_trace(arguments, traced);
#ifndef FA_WITH_CUDA
  if (!arguments.trace.empty() && !on_gpu()) write_trace(arguments, records.back());
#endif
  if (!arguments.json.empty()) write_results(arguments.json, command, protocol, records);
  if (!arguments.o.empty()) {
    const Record& last = records.back();
    if (last.output.empty())
      throw BadInput("no output to write to " + arguments.o + ": " + last.reason);
    write_npy(arguments.o, last.problem, last.output);
  }
  int exit_code = 0;
  if (records_on_gpu) records.push_back(traced.recording);
  for (const Record& record : records) {
    if (record.status == Status::kWrong) exit_code = std::max(exit_code, 1);
    if (record.status == Status::kError) exit_code = 3;
  }
  return exit_code;
}

}  // namespace

std::vector<Record> measure(Runner& runner, const std::vector<const Kernel*>& chosen, int rounds,
                            const std::function<void(const std::string&)>& say) {
  std::vector<Record> records;
  auto forget = [&] {  // outputs take much memory
    for (size_t i = 0; i + 1 < records.size(); i++) records[i].output = std::vector<uint16_t>();
  };
  for (const Kernel* kernel : chosen) {
    say("verifying " + kernel->name + " ...");
    records.push_back(runner.verify(*kernel));
    forget();
  }
  for (int round = 0; round < (on_gpu() ? rounds : 0); round++) {
    for (size_t i = 0; i < chosen.size(); i++) {
      const size_t at = (i + size_t(round)) % chosen.size();
      say("timing " + chosen[at]->name + ", round " + std::to_string(round + 1) + " of " +
          std::to_string(rounds) + " ...");
      runner.add_round(*chosen[at], records[at]);
      forget();
    }
  }
  return records;
}

std::vector<std::string> command_of(int argc, char** argv) {
  std::vector<std::string> command;
  for (int i = 0; i < argc; i++) {
    const std::string argument = argv[i];
    command.push_back(argument.substr(argument.rfind('/') + 1));
  }
  return command;
}

int with_exit_code(const std::function<int()>& body) {
  int code = 2;
  try {
    code = body();
  } catch (const BadInput& error) {
    fprintf(stderr, "error: %s\n", error.what());
  } catch (const std::bad_alloc&) {
    fprintf(stderr, "error: not enough memory for this problem\n");
  } catch (const BackendError& error) {
    fprintf(stderr, "error: %s\n", error.what());
    code = 3;
  }
  std::cout.flush();
  if (fflush(stdout) == 0 && !ferror(stdout)) return code;
  fprintf(stderr, "error: cannot write to standard output: %s\n", strerror(errno));
  return code ? code : 2;
}

int run_program(int argc, char** argv) {
  return with_exit_code([&] {
    const std::vector<std::string> command = command_of(argc, argv);
    const char* const about =
        "Attention forward pass, O = softmax(Q K^T / sqrt(d)) V: checked against float64, then "
        "timed on\n"
        "a GPU or counted on the emulator.";
    CLI::App app{about, command[0]};
    std::string some;
    if (kernels().size() > 1) {
      const std::string& first = kernels().front().name;
      some = first.find('/') == std::string::npos ? " 01 02" : " " + first;
    }
    app.footer("Protocols:\n" + describe_protocols() + "\nExample: " + command[0] + some +
               " --seq-len 1024 --head-dim 64 --dtype fp16 --json results.json");
    Arguments arguments;
    try {
      parse(app, arguments, argc, argv);
    } catch (const CLI::CallForHelp& help) {
      return app.exit(help);
    }
    if (arguments.list) {
      for (const Kernel& kernel : kernels()) printf("%s\n", kernel.name.c_str());
      return 0;
    }
    for (const CLI::Option* option : app.get_options()) {
      const std::string name = option->get_name();
      if (arguments.serve && option->count() && name != "--serve" && name != "--threads" &&
          name != "--completion" && name != "--schedule" && name != "--no-races" &&
          name != "--workspace-mib") {
        throw BadInput("--serve takes everything from its requests: leave out " + name);
      }
    }
    if (!arguments.protocol_name.empty()) {  // again, over the protocol's values
      for (const char* option : {"--q", "--k", "--v", "--score-std"}) {
        if (app.count(option)) throw BadInput(std::string(option) + " does not go with --protocol");
      }
      const Arguments defaults = apply_protocol(app, arguments);
      arguments = defaults;
      CLI::App again{about, command[0]};
      parse(again, arguments, argc, argv);
      if (!(arguments.protocol == defaults.protocol)) arguments.protocol.name.clear();
    }
    return run_arguments(app, arguments, command);
  });
}

}  // namespace fa
