#include "common/harness/cli.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "common/harness/device.h"
#include "common/harness/npy.h"
#include "common/harness/results.h"
#ifndef FA_WITH_CUDA
#include "common/emulator/launch.h"
#endif

namespace fa {
namespace {

struct Arguments {
  std::vector<std::string> kernels;
  int batch = on_gpu() ? 0 : 1;  // 0: as many as give 16384 rows a head
  int heads = on_gpu() ? 16 : 2;
  std::vector<int> seq_lens = {on_gpu() ? 4096 : 256};
  int head_dim = 128;
  std::string dtype = "bf16", q, k, v, o, json;
  Protocol protocol;
  int workspace_mib = 1024;
  int threads = 0;
  std::string completion = "late";
  bool list = false;
};

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
  app.add_option("--inputs", arguments.protocol.inputs, "what to run on")
      ->check(CLI::IsMember(input_names()))
      ->capture_default_str();
  app.add_option("--seed", arguments.protocol.seed, "of the inputs")
      ->check(CLI::Validator(not_negative, ""))
      ->capture_default_str();
  app.add_option("--q", arguments.q, "read Q from a .npy file (with --k and --v; sets the shape)");
  app.add_option("--k", arguments.k, "read K from a .npy file");
  app.add_option("--v", arguments.v, "read V from a .npy file");
  app.add_option("--o", arguments.o, "write O of the (last) kernel to a .npy file");
  app.add_option("--json", arguments.json, "write the results to a file (bench/schema.json)");
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
#endif
  app.add_flag("--list", arguments.list, "print the kernels of this program and stop");
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

// Q, K and V from files; the shape comes from them.
Inputs read_inputs(const Arguments& arguments, Problem& problem) {
  if (arguments.q.empty() || arguments.k.empty() || arguments.v.empty()) {
    throw BadInput("--q, --k and --v belong together: give all three");
  }
  Inputs inputs;
  const std::string* const paths[] = {&arguments.q, &arguments.k, &arguments.v};
  std::vector<uint16_t>* const tensors[] = {&inputs.q, &inputs.k, &inputs.v};
  std::array<int, 4> shape{};
  for (size_t i = 0; i < 3; i++) {
    NpyTensor tensor = read_npy(*paths[i], problem.dtype);
    if (i > 0 && tensor.shape != shape)
      throw BadInput(*paths[i] + ": its shape differs from that of " + arguments.q);
    shape = tensor.shape;
    *tensors[i] = std::move(tensor.bits);
  }
  problem.batch = shape[0];
  problem.heads = shape[1];
  problem.seq_len = shape[2];
  problem.head_dim = shape[3];
  validate(problem);
  return inputs;
}

int run_arguments(const Arguments& arguments, const std::vector<std::string>& command) {
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
                    protocol.seed};
#endif
  const bool from_files = !arguments.q.empty() || !arguments.k.empty() || !arguments.v.empty();
  for (const std::string& path : {arguments.json, arguments.o}) {
    if (!path.empty()) check_writable(path);
  }
  std::vector<Problem> problems;
  for (const int seq_len : arguments.seq_lens) problems.push_back(problem_of(arguments, seq_len));
  if (from_files) {
    problems.resize(1);
    protocol.inputs = "files";
  } else {
    for (const Problem& problem : problems) validate(problem);
  }

  const bool progress = isatty(STDERR_FILENO), color = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
  auto say = [&](const std::string& what) {
    if (progress) fprintf(stderr, "\r\033[K%s", what.c_str());
  };
  std::vector<Record> records;
  for (Problem& problem : problems) {
    say("making inputs and reference ...");
    const Inputs inputs = from_files ? read_inputs(arguments, problem)
                                     : make_inputs(problem, protocol.inputs, protocol.seed);
    Runner runner(problem, inputs, protocol);
    std::vector<Record> of_problem;
    for (const Kernel* kernel : chosen) {
      say("running " + kernel->name + " ...");
      of_problem.push_back(runner.run(*kernel));
    }
    say("");
    if (!records.empty()) printf("\n");
    print_table(problem, of_problem, color);
    records.insert(records.end(), of_problem.begin(), of_problem.end());
  }
  if (!arguments.json.empty()) write_results(arguments.json, command, protocol, records);
  if (!arguments.o.empty()) {
    const Record& last = records.back();
    if (last.output.empty())
      throw BadInput("no output to write to " + arguments.o + ": " + last.reason);
    write_npy(arguments.o, last.problem, last.output);
  }
  int exit_code = 0;
  for (const Record& record : records) {
    if (record.status == Status::kWrong) exit_code = std::max(exit_code, 1);
    if (record.status == Status::kError) exit_code = 3;
  }
  return exit_code;
}

}  // namespace

int run_program(int argc, char** argv) {
  try {
    const std::string program = std::string(argv[0]).substr(std::string(argv[0]).rfind('/') + 1);
    CLI::App app{
        "Attention forward pass, O = softmax(Q K^T / sqrt(d)) V: checked against float64, then "
        "timed on\n"
        "a GPU or counted on the emulator.",
        program};
    app.footer("Example: " + program + (kernels().size() > 1 ? " 01 02" : "") +
               " --seq-len 1024 --head-dim 64 --dtype fp16 --json results.json");
    Arguments arguments;
    declare(app, arguments);
    try {
      app.parse(argc, argv);
    } catch (const CLI::CallForHelp& help) {
      return app.exit(help);
    } catch (const CLI::ParseError& error) {
      throw BadInput(std::string(error.what()) + " (see --help)");
    }
    if (arguments.list) {
      for (const Kernel& kernel : kernels()) printf("%s\n", kernel.name.c_str());
      return 0;
    }
    std::vector<std::string> command{program};
    for (int i = 1; i < argc;
         i++) {  // file names may name this machine's folders: only their last part
      const std::string argument = argv[i];
      command.push_back(argument.substr(argument.rfind('/') + 1));
    }
    return run_arguments(arguments, command);
  } catch (const BadInput& error) {
    fprintf(stderr, "error: %s\n", error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    fprintf(stderr, "error: not enough memory for this problem\n");
    return 2;
  } catch (const BackendError& error) {
    fprintf(stderr, "error: %s\n", error.what());
    return 3;
  }
}

}  // namespace fa
