#include "common/harness/results.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/emulator/counters.h"
#include "common/harness/device.h"
#include "common/harness/json_lines.h"
#include "common/harness/npy.h"
#include "common/harness/oracle.h"
#include "common/harness/problem.h"
#include "common/harness/registry.h"
#include "common/harness/runner.h"
#include "common/harness/statements.h"

namespace fa {
namespace {

using json = nlohmann::ordered_json;  // keys in the order written

// JSON has no NaN: what is not a number becomes null.
json finite(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }
json or_null(const std::optional<double>& value) { return value ? json(*value) : json(nullptr); }

uint64_t counter(const Record& record, const std::string& name) {
  for (const auto& [key, value] : record.counters) {
    if (key == name) return value;
  }
  return 0;
}

// ", scores of std 20, growing", or nothing.
std::string describe(const std::optional<Scores>& scores) {
  if (!scores) return "";
  char text[64];
  snprintf(text, sizeof text, ", scores of std %g, %s", scores->std, name_of(scores->growth));
  return text;
}

}  // namespace

std::string with_unit(double value) {
  char text[32];
  const char* const units[] = {"", " k", " M", " G", " T"};
  size_t unit = 0;
  for (; value >= 9999.5 && unit < 4; unit++) value /= 1000;
  snprintf(text, sizeof text, unit ? "%.1f%s" : "%.0f%s", value, units[unit]);
  return text;
}

std::string utc_now() {
  const time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
  return text;
}

json to_json(const Times& t) {
  return {{"time_ms",
           {{"median", t.median},
            {"p10", t.p10},
            {"p90", t.p90},
            {"min", t.min},
            {"launches", t.launches}}},
          {"clock_mhz", or_null(t.clock_mhz)},
          {"power_w", or_null(t.power_w)}};
}

json to_json(const Record& record) {
  json result = {{"kernel", record.kernel},           {"dtype", name_of(record.problem.dtype)},
                 {"batch", record.problem.batch},     {"heads", record.problem.heads},
                 {"seq_len", record.problem.seq_len}, {"head_dim", record.problem.head_dim}};
  if (record.problem.scores) {
    result["score_std"] = record.problem.scores->std;
    result["score_growth"] = name_of(record.problem.scores->growth);
  }
  result["status"] = name_of(record.status);
  if (!record.reason.empty()) result["reason"] = record.reason;
  if (record.comparison) {
    const Comparison& c = *record.comparison;
    result["error"] = {{"max_abs", finite(c.max_abs)},
                       {"rel", finite(c.rel)},
                       {"tolerance", finite(c.tolerance)},
                       {"bound_ratio", finite(c.bound_ratio)},
                       {"checked_rows", c.checked_rows}};
    if (!record.library) result["shared_memory_bytes"] = record.shared_bytes;
    if (!record.ceiling) result["workspace_bytes"] = record.workspace_bytes;
    if (on_gpu() && !record.library) {
      result["registers"] = record.registers;
      result["spill_bytes"] = record.local_bytes;
    }
  }
  if (record.library) {
    const Library& library = *record.library;
    result["library"] = {{"name", library.name},
                         {"version", library.version},
                         {"implementation", library.implementation}};
  }
  if (record.ceiling && record.status == Status::kPassed) {
    const Ceiling& ceiling = *record.ceiling;
    if (ceiling.flops > 0) result["flops"] = ceiling.flops;
    if (ceiling.bytes > 0 && !record.times) result["bytes"] = ceiling.bytes;  // for who times it
  }
  if (record.times) {
    result.update(to_json(*record.times));
    if (record.tflops() > 0) result["tflops"] = record.tflops();
    if (record.gbytes_per_s() > 0) result["gbytes_per_s"] = record.gbytes_per_s();
    if (record.rounds.size() > 1) {
      for (const Times& round : record.rounds) {
        result["round_ms"].push_back(round.median);
        result["round_clock_mhz"].push_back(or_null(round.clock_mhz));
      }
    }
  }
  if (!record.counters.empty()) {
    for (const auto& [name, value] : record.counters) result["counters"][name] = value;
  }
  for (const auto& [place, kind, counts] : by_statement(record.lines)) {
    json entry = json::object();
    if (!place.file.empty() && place.file != "kernels/" + record.kernel + ".cu")
      entry["file"] = place.file;
    if (!place.statement.empty()) entry["statement"] = place.statement;
    entry["kind"] = name_of(kind);
    counts.for_each([&](const char* name, uint64_t value) {
      if (value > 0) entry[name] = value;
    });
    result["statements"].push_back(entry);
  }
  return result;
}

std::vector<std::string> clock_notes(const std::vector<Record>& records) {
  std::vector<std::string> notes;
  for (size_t first = 0, last; first < records.size(); first = last) {
    const Record *slow = nullptr, *fast = nullptr;
    for (last = first; last < records.size() && records[last].problem == records[first].problem;
         last++) {
      const Record& each = records[last];
      if (!each.times || !each.times->clock_mhz) continue;
      if (!slow || *each.times->clock_mhz < *slow->times->clock_mhz) slow = &each;
      if (!fast || *each.times->clock_mhz > *fast->times->clock_mhz) fast = &each;
    }
    if (!slow || *fast->times->clock_mhz <= 1.03 * *slow->times->clock_mhz) continue;
    const Problem& problem = slow->problem;
    char text[256];
    snprintf(
        text, sizeof text,
        "%s, head_dim %d, seq_len %d%s: the SM clock was %.0f MHz under %s and %.0f MHz under %s",
        name_of(problem.dtype), problem.head_dim, problem.seq_len, describe(problem.scores).c_str(),
        *slow->times->clock_mhz, slow->kernel.c_str(), *fast->times->clock_mhz,
        fast->kernel.c_str());
    notes.emplace_back(text);
  }
  return notes;
}

void write_results(const std::string& path, const std::vector<std::string>& command,
                   const Protocol& protocol, const std::vector<Record>& records) {
  json result = {{"schema_version", 5},
                 {"created", utc_now()},
                 {"command", command},
                 {"machine", describe_machine()},
                 {"protocol",
                  {{"warmup", protocol.warmup},
                   {"iterations", protocol.iterations},
                   {"idle_ms", protocol.idle_ms},
                   {"rest_ms", protocol.rest_ms},
                   {"flush_l2", protocol.flush_l2},
                   {"rotating_inputs", protocol.rotating_inputs},
                   {"max_seconds", protocol.max_seconds},
                   {"inputs", protocol.inputs},
                   {"seed", protocol.seed},
                   {"tflops_convention", "4*B*H*N^2*D"}}},
                 {"records", json::array()}};
  if (!protocol.name.empty()) result["protocol"]["name"] = protocol.name;
  if (protocol.rounds > 1) result["protocol"]["rounds"] = protocol.rounds;
  for (const Record& record : records) result["records"].push_back(to_json(record));
  if (const auto notes = clock_notes(records); !notes.empty()) result["notes"] = notes;
  write_file_whole(path, lines_of(result));
}

void print_table(const Problem& problem, const std::vector<Record>& records, bool color) {
  constexpr int kBarWidth = 22;
  printf("%s\n%s, batch %d, heads %d, seq_len %d, head_dim %d%s\n\n", machine_title().c_str(),
         name_of(problem.dtype), problem.batch, problem.heads, problem.seq_len, problem.head_dim,
         describe(problem.scores).c_str());
  const bool gpu = on_gpu();
  // What the bar shows: speed on a GPU, memory traffic on the emulator where it is counted.
  const bool counted =
      !gpu && std::any_of(records.begin(), records.end(), [](const Record& record) {
        return counter(record, "global_sectors") > 0;
      });
  auto bar_value = [&](const Record& record) {
    return gpu ? record.tflops() : double(counter(record, counted ? "global_sectors" : "exp2"));
  };
  double longest = 0;
  for (const Record& record : records) longest = std::max(longest, bar_value(record));
  printf("%-24s %-8s %9s %12s %14s  %s\n", "kernel", "status", "error",
         gpu ? "median ms" : "wavefronts",
         gpu       ? "TFLOP/s"
         : counted ? "sectors"
                   : "exp2",
         "");
  for (const Record& record : records) {
    const char* const tint = !color                              ? ""
                             : record.status == Status::kPassed  ? "\033[32m"
                             : record.status == Status::kSkipped ? "\033[33m"
                                                                 : "\033[31m";
    printf("%-24s %s%-8s%s ", record.kernel.c_str(), tint, name_of(record.status),
           color ? "\033[0m" : "");
    if (!record.comparison || record.status == Status::kSkipped) {
      printf("%s\n",
             record.reason.substr(0, std::min<size_t>(66, record.reason.find('\n'))).c_str());
      continue;
    }
    printf("%9.2e ", record.comparison->rel);
    if (record.gbytes_per_s() > 0) {
      printf("%12.4f %9.0f GB/s  ", record.times->median, record.gbytes_per_s());
    } else if (record.times) {
      printf("%12.4f %14.2f  ", record.times->median, record.tflops());
    } else if (!gpu) {
      printf("%12s %14s  ",
             counted ? with_unit(double(counter(record, "shared_wavefronts"))).c_str() : "-",
             with_unit(bar_value(record)).c_str());
    } else {
      printf("%12s %14s  ", "-", "-");
    }
    const int length = longest > 0 ? int(std::lround(kBarWidth * bar_value(record) / longest)) : 0;
    for (int i = 0; i < length; i++) printf("\u2588");
    printf("\n");
  }
  for (const Record& record : records) {
    if (record.status == Status::kWrong || record.status == Status::kError) {
      printf("\n%s: %s\n", record.kernel.c_str(), record.reason.c_str());
    }
  }
  for (const std::string& note : clock_notes(records)) {
    printf("\nNote: %s\n", note.substr(note.find(": ") + 2).c_str());
  }
}

}  // namespace fa
