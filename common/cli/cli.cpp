#include "common/cli/cli.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <iterator>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/cli/options.h"
#include "common/cli/tables.h"
#include "common/cli/trace_option.h"
#include "common/harness/files.h"
#include "common/harness/inputs.h"
#include "common/harness/json.h"
#include "common/harness/results.h"
#include "common/harness/sources.h"
#include "common/launch/gradients.h"
#include "common/launch/validation.h"

namespace fa {
namespace {

int exit_code_of(const std::vector<Record>& records) {
  int code = 0;
  for (const Record& record : records) {
    if (record.status == Status::kWrong) code = std::max(code, 1);
    if (record.status == Status::kError) code = 3;
  }
  return code;
}

// With two tiles per stage or fewer, no stage is filled while it may still be read. So the checked
// build also runs kernels with asynchronous copies on a longer sequence, and those with TMA on as
// many query tiles as give a persistent CTA five, whose barriers then have used both parities, if
// the arguments leave the shape to the program. It says whether they pass. Nothing of these runs is
// counted. Returns the exit code.
int check_more_tiles(const Request& request, const std::vector<Record>& records, bool color) {
  if (!request.default_shape || !sees_accesses() || !request.backend.races) return 0;
  if (kernels().empty()) return 0;  // they compute gradients
  std::vector<const Kernel*> kernels, tma_kernels;
  for (size_t i = 0; i < records.size(); i++) {
    const auto copies_by = [&](const char* kind) {
      const auto& lines = records[i].counts.lines;
      return std::any_of(lines.begin(), lines.end(),
                         [&](const LineCounts& line) { return line.kind == kind; });
    };
    if (records[i].status != Status::kPassed) continue;
    if (copies_by("tma load")) tma_kernels.push_back(request.kernels[i]);
    if (copies_by("cp.async") || copies_by("tma load")) kernels.push_back(request.kernels[i]);
  }
  if (kernels.empty()) return 0;
  const Protocol& protocol = request.protocol;
  const auto failures = [&](const std::vector<const Kernel*>& all, int heads, int seq_len) {
    std::vector<Record> failed;
    if (all.empty()) return failed;
    Problem problem = request.problems[0];
    problem.heads = heads;
    problem.seq_len = seq_len;
    Runner runner(problem, make_inputs(problem, protocol.inputs, protocol.seed), protocol);
    for (const Kernel* const kernel : all) {
      Record record = runner.verify(*kernel);
      if (record.status != Status::kPassed) failed.push_back(std::move(record));
    }
    return failed;
  };
  std::vector<Record> failed = failures(kernels, 1, 640);
  std::vector<Record> failed_by_tiles = failures(tma_kernels, 15, 128);
  printf(
      "\nAlso checked, not counted: 1 head of 640 tokens, where stages are filled again%s. %s\n",
      tma_kernels.empty() ? "" : ", and with TMA\n15 heads of 128, of which a persistent CTA has 5",
      failed.empty() && failed_by_tiles.empty() ? "No error." : "Errors:");
  for (auto* const all : {&failed, &failed_by_tiles}) {
    if (!all->empty()) print_table(all->front().problem, *all, color);
  }
  failed.insert(failed.end(), failed_by_tiles.begin(), failed_by_tiles.end());
  return exit_code_of(failed);
}

// The names; or for machines, into a file, a line per kernel: what it needs, how it works, what it
// takes.
void list_kernels(const std::string& file) {
  const char* const kTraits[] = {"slow", "plain", "async", "lazy", "persistent", "max_free"};
  std::string lines;
  for (const Kernel& kernel : kernels()) {
    if (file.empty()) printf("%s\n", kernel.name.c_str());
    const auto& [causal, any_length, kv_heads, packed, lse, paged, strides, fp8, of_gradients,
                 window, sinks, softcap, alibi] = kernel.takes;
    const Json about = {{"kernel", kernel.name},
                        {"source", source_of(kernel.name)},
                        {"compute_capability", kernel.needs.compute_capability},
                        {"exactly", kernel.needs.exactly},
                        {"traits", kTraits[int(kernel.traits)]},
                        {"takes",
                         {{"causal", causal},
                          {"any_length", any_length},
                          {"kv_heads", kv_heads},
                          {"packed", packed},
                          {"lse", lse},
                          {"paged", paged},
                          {"strides", strides},
                          {"fp8", fp8},
                          {"window", window},
                          {"sinks", sinks},
                          {"softcap", softcap},
                          {"alibi", alibi}}}};
    lines += (lines.empty() ? "[" : ",\n ") + about.dump();
  }
  if (!file.empty()) write_file_whole(file, lines + "]\n");
}

// Problem after problem: tensors, measurements, tables; then the files.
int run_kernels(Request& request, const std::vector<std::string>& command) {
  const bool progress = isatty(STDERR_FILENO), color = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
  const auto say = [&](const std::string& what) {
    if (progress) fprintf(stderr, "\r\033[K%s", what.c_str());
  };
  const Say tell = [&](const std::string& what, int done, int steps) {
    say(what + " (" + std::to_string(done + 1) + " of " + std::to_string(steps) + ") ...");
  };
  const Protocol& protocol = request.protocol;
  const bool traced = !request.trace.path.empty();
  int exit_code = 0;
  std::vector<Record> records;
  std::vector<Record> recorded;  // what the timeline shows
  for (Problem& problem : request.problems) {
    say("making inputs and reference ...");
    Runner runner(problem, make_inputs(problem, protocol.inputs, protocol.seed), protocol);
    std::vector<Record> measured;
    if (kernels().empty()) {  // a program of gradients
      const Inputs inputs = make_inputs(problem, protocol.inputs, protocol.seed);
      for (const Kernel* const each : request.kernels) {
        measured.push_back(runner.verify(find_gradient_kernel(each->name), inputs));
      }
    } else if (traced) {
      measured = measure_traced(runner, *request.kernels[0], request.trace, protocol, tell);
      recorded = measured;
    } else {
      measured = measure(runner, request.kernels, protocol, tell);
    }
    say("");
    if (!records.empty()) printf("\n");
    print_table(problem, measured, color);
    exit_code = std::max(exit_code, exit_code_of(measured));
    measured.resize(request.kernels.size());  // a recording twin is no result
    if (!request.no_counters) print_counters(measured, request.full_counters);
    exit_code = std::max(exit_code, check_more_tiles(request, measured, color));
    if (!records.empty()) records.back().output = std::vector<uint16_t>();  // much memory
    std::move(measured.begin(), measured.end(), std::back_inserter(records));
  }
  if (traced) write_trace(request.trace, recorded);
  if (!request.json.empty()) write_results(request.json, command, protocol, records);
  return exit_code;
}

}  // namespace

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
  name_fields_as_options();
  return with_exit_code([&] {
    std::optional<Request> request = read_command_line(argc, argv);
    if (!request) return 0;
    if (request->list) {
      list_kernels(request->json);
      return 0;
    }
    set_backend_options(request->backend);
    return run_kernels(*request, command_of(argc, argv));
  });
}

}  // namespace fa
