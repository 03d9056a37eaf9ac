#include "common/cli/options.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/cli/cli.h"
#include "common/cli/parser.h"
#include "common/cli/protocols.h"
#include "common/cli/trace_option.h"
#include "common/harness/files.h"
#include "common/harness/inputs.h"
#include "common/launch/gradients.h"
#include "common/launch/validation.h"

namespace fa {
namespace {

// The options as they are given, over the defaults or a protocol's values.
struct Arguments {
  std::vector<std::string> kernels;
  int batch = on_gpu() ? 0 : 1;  // 0: as many as give 16384 rows a head
  int heads = on_gpu() ? 16 : 2;
  std::vector<int> seq_lens = {on_gpu() ? 4096 : 256};
  int head_dim = 128;
  std::string mask = "none", alibi = "none";
  std::vector<int> window = {-1, -1};
  double softcap = 0;
  bool sinks = false;
  std::string fp8 = "none";
  int q_len = 0, kv_len = 0, kv_heads = 0;  // 0: seq_len, seq_len, heads
  std::vector<int> lengths, kv_lengths;     // of packed sequences; kv_lengths also with pages
  int page_size = 0;                        // 0: not in pages
  std::vector<double> score_stds;           // empty: Q and K as they are
  std::vector<std::string> score_growths = {"flat"};
  std::string dtype = "bf16", json, protocol_name, counters = "auto";
  TraceOptions trace;
  Protocol protocol;
  BackendOptions backend;
  int workspace_mib = 1024;
  bool no_races = false, list = false;
  std::vector<Problem> problems;  // of the named protocol, else empty
};

// ---- the table of options -----------------------------------------------------------------------
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

auto from_0_to(int most) {
  return [most](const std::string& text) -> std::string {
    const double value = atof(text.c_str());
    const bool fits = value >= 0 && value <= most;  // NaN does not
    return fits ? "" : "Value " + text + " is not from 0 to " + std::to_string(most);
  };
}

void declare_for_emulator(Parser& app, Arguments& arguments) {
  app.add_option(
         "--completion", arguments.backend.completion,
         "when the emulator's asynchronous copies happen: late, early or\nrandom (by --seed)")
      .one_of({"late", "early", "random"})
      .show_default();
  app.add_option("--schedule", arguments.backend.schedule,
                 "in which order the emulator runs threads: fixed or random (by --seed)")
      .one_of({"fixed", "random"})
      .show_default();
  app.add_option("--counters", arguments.counters,
                 "checked build, below the table: full (by kind of instruction, and\n"
                 "the worst lines), summary (a line a kernel), none, or auto: full\n"
                 "for one or two kernels, else summary")
      .one_of({"auto", "full", "summary", "none"})
      .show_default();
  app.add_option("--patience", arguments.backend.patience,
                 "seconds of processor time without any progress that end a launch,\n"
                 "such as in a loop without end; 0: none do")
      .check(from_0_to(1'000'000))
      .show_default();
  app.add_flag("--no-races", arguments.no_races, "checked build: do not look for races");
}

void declare(Parser& app, Arguments& arguments) {
  app.add_option("KERNEL", arguments.kernels,
                 "names or numbers (02_online_softmax, 02), or best: the fastest one\n"
                 "that takes the problem; default: all");
  constexpr int kMost = 1 << 30;
  const auto positive_seconds = [](const std::string& text) -> std::string {
    const double value = atof(text.c_str());
    return value > 0 && value < 1e9 ? ""
                                    : "Value " + text + " is not a positive number";  // NaN is not
  };
  app.add_option("--batch", arguments.batch, "sequences [default: GPU 16384/seq_len, emulator 1]")
      .range(1, kMost);
  app.add_option("--heads", arguments.heads, "heads a sequence").range(1, kMost).show_default();
  app.add_option("--seq-len", arguments.seq_lens,
                 "queries and keys a head, a multiple of 128; several: 512,1024")
      .values_with_commas()
      .show_default();
  app.add_option("--head-dim", arguments.head_dim, "64 or 128; some kernels take 96 and 256, too")
      .show_default();
  app.add_option("--mask", arguments.mask,
                 "none, or causal: query i sees keys up to i + kv-len - q-len")
      .one_of({"none", "causal"}, false)
      .show_default();
  app.add_option("--window", arguments.window,
                 "L,R: query i sees the keys from i + kv-len - q-len - L to\n"
                 "i + kv-len - q-len + R; -1: all on that side [default: -1,-1]")
      .range(-1, kMost, false)
      .values_with_commas();
  app.add_option(
      "--softcap", arguments.softcap,
      "C: a score s becomes C tanh(s / C), before ALiBi and a mask\n[default: 0, for none]");
  app.add_option("--alibi", arguments.alibi,
                 "a score loses a slope times the key's distance: with a slope per head\n"
                 "(head), or per head of each sequence (sequence)")
      .one_of({"none", "head", "sequence"}, false)
      .show_default();
  app.add_flag("--sink", arguments.sinks,
               "each head has one more score, which adds to the sums of its rows");
  app.add_option("--fp8", arguments.fp8,
                 "Q, K and V rounded to eight bits (e4m3) with a scale per head, or of Q\n"
                 "and K per tile of 128 rows, also rotated before: head, tile or rotated")
      .one_of({"none", "head", "tile", "rotated"}, false)
      .show_default();
  app.add_option("--q-len", arguments.q_len, "queries a head [default: --seq-len]").range(1, kMost);
  app.add_option("--kv-len", arguments.kv_len, "keys a head [default: --seq-len]").range(1, kMost);
  app.add_option("--kv-heads", arguments.kv_heads,
                 "heads of K and V, which --heads / --kv-heads heads of Q share\n"
                 "[default: --heads]")
      .range(1, kMost);
  app.add_option("--lengths", arguments.lengths,
                 "sequences of these lengths, packed one behind the other: 384,17")
      .range(0, 1 << 22, false)
      .values_with_commas();
  app.add_option("--kv-lengths", arguments.kv_lengths,
                 "of their keys, where these are not as many [default: --lengths];\n"
                 "with --page-size of as many sequences, with --q-len queries each")
      .range(0, 1 << 22, false)
      .values_with_commas();
  app.add_option("--page-size", arguments.page_size,
                 "keys of a page, 16 to 256: K and V in pages, in random order")
      .range(1, kMost);
  app.add_option("--dtype", arguments.dtype, "fp16 or bf16")
      .one_of({"fp16", "bf16"})
      .show_default();
  app.add_option("--inputs", arguments.protocol.inputs,
                 "what to run on:\n" + in_lines(all_input_names(), 70))
      .one_of(all_input_names(), false)
      .show_default();
  app.add_option("--score-std", arguments.score_stds,
                 "scale normal inputs so that scores have this standard\n"
                 "deviation, in nats; several: 1,10,100")
      .values_with_commas();
  app.add_option("--score-growth", arguments.score_growths,
                 "the same for all keys (flat), or growing in proportion to\n"
                 "the key's index (growing); both: flat,growing")
      .one_of({"flat", "growing"}, false)
      .values_with_commas()
      .show_default();
  app.add_option("--seed", arguments.protocol.seed, "of the inputs").show_default();
  app.add_option("--json", arguments.json, "write the results to a file (bench/schema.json)");
  app.add_option("--trace", arguments.trace.path,
                 "write a timeline of one CTA, for https://ui.perfetto.dev\n"
                 "(presets emulator-checked and cuda-timeline)");
  app.add_option("--trace-cta", arguments.trace.cta, "which CTA, the grid's x counted first")
      .range(0, 1 << 30)
      .show_default();
  app.add_option("--protocol", arguments.protocol_name,
                 "one of those below; options given choose among its problems or\nchange it");
  app.add_option("--warmup", arguments.protocol.warmup, "untimed launches")
      .range(0, 1 << 20)
      .show_default();
  app.add_option("--iters", arguments.protocol.iterations, "timed launches")
      .range(1, 1 << 20)
      .show_default();
  app.add_option("--max-seconds", arguments.protocol.max_seconds,
                 "of timing a kernel; slow ones get fewer launches")
      .check(positive_seconds)
      .show_default();
  app.add_option("--rounds", arguments.protocol.rounds, "of timing all kernels, one after another")
      .range(1, 1000)
      .show_default();
  app.add_option("--rest-ms", arguments.protocol.rest_ms,
                 "the GPU idles before a kernel's warm-up in every round\n[0: it does not]")
      .check(from_0_to(60000));
  app.add_option("--load-seconds", arguments.protocol.load_seconds,
                 "times the kernels under load, too: after so long without a\npause [0: not]")
      .check(from_0_to(60));
  app.add_flag("--flush-l2", arguments.protocol.flush_l2,
               "empty the L2 cache before every timed launch");
  app.add_option("--rotate", arguments.protocol.rotating_inputs, "sets of buffers that take turns")
      .range(1, 64)
      .show_default();
  app.add_option("--workspace-mib", arguments.workspace_mib, "memory for intermediate results")
      .range(0, 1 << 20)
      .show_default();
  app.add_option("--threads", arguments.backend.threads,
                 "OS threads of the emulator [default: one a core]")
      .range(1, 1024);
  if (!on_gpu()) declare_for_emulator(app, arguments);
  app.add_flag("--list", arguments.list,
               "print the kernels of this program and stop; with --json\n"
               "write what each needs and takes, and how it works");
}

// ---- from options to a request ------------------------------------------------------------------
// CLI11 drops what is empty between commas.
void refuse_empty_parts(int argc, char** argv) {
  for (int i = 1; i < argc; i++) {
    for (const std::string name :
         {"--seq-len", "--score-std", "--score-growth", "--lengths", "--kv-lengths", "--window"}) {
      const std::string text = argv[i];
      if (argv[i - 1] != name && !text.starts_with(name + "=")) continue;
      const std::string list = "," + text.substr(text.find('=') + 1) + ",";
      if (list.find(",,") != std::string::npos) {
        throw BadInput(name + " takes values with a comma between two, not '" + text + "'");
      }
    }
  }
}

bool parse(Parser& app, Arguments& arguments, int argc, char** argv) {
  declare(app, arguments);
  refuse_empty_parts(argc, argv);
  return app.parse(argc, argv);
}

// The defaults as a protocol wants them, and its problems as far as the options given choose them.
Arguments apply_protocol(const Parser& app, const Arguments& given) {
  NamedProtocol named = find_protocol(given.protocol_name);
  std::erase_if(named.problems, [&](const Problem& problem) {
    const std::vector<int>& lengths = given.seq_lens;
    return (app.has("--dtype") && given.dtype != name_of(problem.dtype)) ||
           (app.has("--head-dim") && given.head_dim != problem.head_dim) ||
           (app.has("--heads") && given.heads != problem.heads) ||
           (app.has("--batch") && given.batch != problem.batch) ||
           (app.has("--seq-len") &&
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
  problem.mask = arguments.mask == "causal" ? Mask::kCausal : Mask::kNone;
  problem.window = {arguments.window[0], arguments.window[1]};
  problem.softcap = float(arguments.softcap);
  for (const Alibi alibi : {Alibi::kHead, Alibi::kSequence}) {
    if (arguments.alibi == name_of(alibi)) problem.alibi = alibi;
  }
  problem.sinks = arguments.sinks;
  for (const Fp8 fp8 : {Fp8::kHead, Fp8::kTile, Fp8::kRotated}) {
    if (arguments.fp8 == name_of(fp8)) problem.fp8 = fp8;
  }
  if (arguments.q_len > 0) problem.seq_len = arguments.q_len;
  const int kv_len = arguments.kv_len > 0 ? arguments.kv_len : seq_len;
  if (kv_len != problem.seq_len) problem.kv_len = kv_len;
  if (arguments.kv_heads > 0 && arguments.kv_heads != arguments.heads)
    problem.kv_heads = arguments.kv_heads;
  const int tokens = std::max({1, problem.seq_len, kv_len});
  problem.batch = arguments.batch > 0 ? arguments.batch : std::max(1, 16384 / tokens);
  if (!arguments.lengths.empty()) {
    std::vector<Sequence> sequences;
    for (size_t i = 0; i < arguments.lengths.size(); i++) {
      const std::vector<int>& of_keys =
          arguments.kv_lengths.empty() ? arguments.lengths : arguments.kv_lengths;
      sequences.push_back({arguments.lengths[i], of_keys[i]});
    }
    problem.pack(sequences);
  } else if (arguments.page_size > 0) {
    const std::vector<int>& given = arguments.kv_lengths;
    problem.page(arguments.page_size,
                 given.empty() ? std::vector<int>(size_t(problem.batch), kv_len) : given);
  }
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

// Lengths are said in one way.
void check_lengths(const Parser& app, const Arguments& arguments) {
  const auto refuse = [&](const std::vector<std::string>& options, const std::string& list) {
    for (const std::string& option : options) {
      if (!app.has(option)) continue;
      throw BadInput(option + " does not go with " + list + ", which has all sequences");
    }
  };
  if (arguments.lengths.empty()) {
    if (!app.has("--kv-lengths")) return;
    if (!app.has("--page-size")) {
      throw BadInput(
          "--kv-lengths belongs to --lengths or --page-size: say how many queries there are");
    }
    return refuse({"--batch", "--kv-len"}, "--kv-lengths");
  }
  refuse({"--batch", "--seq-len", "--q-len", "--kv-len", "--page-size"}, "--lengths");
  if (app.has("--kv-lengths") && arguments.kv_lengths.size() != arguments.lengths.size()) {
    throw BadInput("--kv-lengths needs as many numbers as --lengths, " +
                   std::to_string(arguments.lengths.size()) + ", not " +
                   std::to_string(arguments.kv_lengths.size()));
  }
}

// Throws BadInput unless the problem is valid and at least one kernel takes it; the others are
// skipped.
void check_problem(const Problem& problem, const std::vector<const Kernel*>& chosen) {
  const auto takes = [&](const auto& what) {  // a program without kernels refuses nothing
    return chosen.empty() || std::any_of(chosen.begin(), chosen.end(), what);
  };
  validate(problem, takes([](const Kernel* each) { return each->takes.any_length; }));
  if (takes([&](const Kernel* each) { return refusal(*each, problem).empty(); })) return;
  throw BadInput((chosen.size() > 1 ? "no kernel chosen takes this problem: " : "") +
                 chosen.front()->name + " " + refusal(*chosen.front(), problem));
}

// What "best" stands for: the fastest kernel that takes all of the problems. Throws BadInput.
const Kernel* best_of_all(const std::vector<Problem>& problems) {
  for (const Problem& problem : problems) validate(problem, /*any_length=*/true);
  std::string first;
  for (const Kernel* const kernel : by_speed(problems.front())) {
    std::string why;
    for (const Problem& problem : problems) {
      if (why.empty()) why = refusal(*kernel, problem, with_strides(problem, {}));
    }
    if (why.empty()) return kernel;
    if (first.empty()) first = kernel->name + " " + why;
  }
  throw BadInput("no kernel of this program takes the problem: " + first);
}

// Before work that takes long: files that are written can be, and are two.
void check_files(const Parser& app, const Arguments& arguments) {
  const std::string &json = arguments.json, &trace = arguments.trace.path;
  for (const auto& [option, path] : {std::pair("--json", json), std::pair("--trace", trace)}) {
    if (app.has(option) && path.empty()) {
      throw BadInput(std::string(option) + " needs the name of a file");
    }
    if (!path.empty()) check_writable(path);
  }
  if (!json.empty() && !trace.empty() && same_file(json, trace)) {
    throw BadInput("--json and --trace name the same file, " + trace);
  }
}

// All kernels of this program; of one that has kernels of gradients alone, those.
std::vector<const Kernel*> all_kernels() {
  std::vector<const Kernel*> all;
  for (const Kernel& kernel : kernels()) all.push_back(&kernel);
  if (!all.empty()) return all;
  for (const GradientKernel& each : gradient_kernels()) all.push_back(&each.kernel);
  return all;
}

Request request_of(const Parser& app, const Arguments& arguments) {
  Request request;
  request.trace = arguments.trace;
  request.json = arguments.json;
  request.protocol = arguments.protocol;
  request.protocol.workspace_limit = size_t(arguments.workspace_mib) << 20;
  if (!on_gpu()) request.protocol.rounds = 1;  // nothing is timed
  request.backend = arguments.backend;
  request.backend.seed = arguments.protocol.seed;
  request.backend.races = !arguments.no_races;
  if (!arguments.trace.path.empty()) request.backend.traced_cta = arguments.trace.cta;

  for (const std::string& name : arguments.kernels) {  // null: the best, of problems read below
    request.kernels.push_back(name == kBest       ? nullptr
                              : kernels().empty() ? &find_gradient_kernel(name).kernel
                                                  : &find_kernel(name));
  }
  if (request.kernels.empty()) request.kernels = all_kernels();
  if ((arguments.counters == "full" || arguments.counters == "summary") && !sees_accesses()) {
    throw BadInput("--counters " + arguments.counters +
                   " needs the checked build (build/emulator-checked); this one does not see loads "
                   "and stores");
  }
  check_files(app, arguments);
  if (arguments.window.size() != 2) {
    throw BadInput("--window needs two numbers, L,R, not " +
                   std::to_string(arguments.window.size()));
  }
  check_lengths(app, arguments);
  request.problems = arguments.problems.empty() ? problems_of(arguments) : arguments.problems;
  for (const Kernel*& kernel : request.kernels) {
    if (!kernel) kernel = best_of_all(request.problems);
  }
  for (const Problem& problem : request.problems) check_problem(problem, request.kernels);
  if (app.has("--score-growth") && arguments.score_stds.empty()) {
    throw BadInput("--score-growth belongs to --score-std: say how far scores spread");
  }
  if (app.has("--trace-cta") && arguments.trace.path.empty()) {
    throw BadInput("--trace-cta belongs to --trace: give a file, too");
  }
  if (kernels().empty() && !arguments.trace.path.empty()) {
    throw BadInput("--trace does not go with kernels of gradients");
  }
  check_trace(arguments.trace, request.kernels.size(), request.problems.size(), request.protocol);
  request.default_shape = arguments.problems.empty() && arguments.trace.path.empty() &&
                          !app.has("--batch") && !app.has("--heads") && !app.has("--seq-len") &&
                          request.problems[0].is_plain();
  const bool few = request.kernels.size() * request.problems.size() <= 2;
  request.no_counters = arguments.counters == "none";
  request.full_counters = arguments.counters == "full" || (arguments.counters == "auto" && few);
  return request;
}

}  // namespace

std::optional<Request> read_command_line(int argc, char** argv) {
  const std::string name = command_of(argc, argv)[0];
  const char* const about =
      "Attention forward pass, O = softmax(Q K^T / sqrt(d)) V: checked against float64, then "
      "timed on\n"
      "a GPU or counted on the emulator.";
  Parser app{about, name};
  std::string some;
  if (kernels().size() > 1) {
    const std::string& first = kernels().front().name;
    some = first.find('/') == std::string::npos ? " 01 02" : " " + first;
  }
  std::string of_scores;
  for (const Kernel& kernel : kernels()) {
    if (!kernel.takes.window || !kernel.takes.sinks || !of_scores.empty()) continue;
    of_scores = "\n     or: " + name + " " + kernel.name + " --mask causal --window 128,-1 --sink";
  }
  app.footer("Protocols:\n" + describe_protocols() + "\nExample: " + name + some +
             " --seq-len 1024 --head-dim 64 --dtype fp16 --json results.json" + of_scores);
  Arguments arguments;
  if (!parse(app, arguments, argc, argv)) return std::nullopt;
  if (arguments.list) {
    Request request;
    request.list = true;
    request.json = arguments.json;
    return request;
  }
  if (app.has("--protocol")) {  // again, over the protocol's values
    for (const char* option :
         {"--score-std", "--mask", "--window", "--softcap", "--alibi", "--sink", "--fp8", "--q-len",
          "--kv-len", "--kv-heads", "--lengths", "--kv-lengths", "--page-size"}) {
      if (app.has(option)) throw BadInput(std::string(option) + " does not go with --protocol");
    }
    const Arguments defaults = apply_protocol(app, arguments);
    arguments = defaults;
    Parser again{about, name};
    parse(again, arguments, argc, argv);
    if (!(arguments.protocol == defaults.protocol)) arguments.protocol.name.clear();
  }
  return request_of(app, arguments);
}

}  // namespace fa
