#include "common/harness/results.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "common/harness/files.h"
#include "common/harness/fp8.h"
#include "common/harness/oracle.h"
#include "common/harness/sources.h"
#include "common/launch/registry.h"

namespace fa {
namespace {

// JSON has no NaN: what is not a number becomes null.
Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

// The fields of a record that say how fast it was, in bursts or under load.
Json times_of(const Record& record, const Times& t, const std::vector<Times>& rounds) {
  Json result = {{"time_ms",
                  {{"median", t.median},
                   {"p10", t.p10},
                   {"p90", t.p90},
                   {"min", t.min},
                   {"launches", t.launches}}},
                 {"clock_mhz", or_null(t.clock_mhz)},
                 {"power_w", or_null(t.power_w)}};
  if (record.tflops(t) > 0) result["tflops"] = record.tflops(t);
  if (record.gbytes_per_s(t) > 0) result["gbytes_per_s"] = record.gbytes_per_s(t);
  if (rounds.size() > 1) {
    for (const Times& round : rounds) {
      result["round_ms"].push_back(round.median);
      result["round_clock_mhz"].push_back(or_null(round.clock_mhz));
    }
  }
  return result;
}

// What the instructions of one kind in one statement did.
struct StatementCounts {
  Place place;
  std::string kind;
  Counts counts;
};

// The sums over the lines of each statement, in the order of the lines. Statements of one file with
// the same text are summed.
std::vector<StatementCounts> by_statement(const std::vector<LineCounts>& lines) {
  std::vector<StatementCounts> result;
  for (const LineCounts& line : lines) {
    const Place place = place_of(line.at);
    auto sum = std::find_if(result.begin(), result.end(), [&](const StatementCounts& each) {
      return each.kind == line.kind && each.place == place;
    });
    if (sum == result.end()) sum = result.insert(sum, {place, line.kind, {}});
    add_counts(sum->counts, line.counts);
  }
  return result;
}

}  // namespace

std::string utc_now() {
  const time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
  return text;
}

Json counts_to_json(const std::string& kernel, const LaunchCounts& of_launch) {
  Json result = Json::object();
  for (const auto& [name, value] : of_launch.counters) result["counters"][name] = value;
  for (const auto& [place, kind, counts] : by_statement(of_launch.lines)) {
    Json& entry = result["statements"].push_back(Json::object());
    if (!place.file.empty() && place.file != "kernels/" + kernel + ".cu")
      entry["file"] = place.file;
    if (!place.statement.empty()) entry["statement"] = place.statement;
    entry["kind"] = kind;
    for (const auto& [name, value] : counts) {
      if (value > 0) entry[name] = value;
    }
  }
  return result;
}

Json to_json(const Record& record) {
  Json result = {{"kernel", record.kernel}};
  if (const std::string source = source_of(record.kernel); !source.empty()) {
    result["source"] = source;
  }
  result.update({{"dtype", name_of(record.problem.dtype)},
                 {"batch", record.problem.batch},
                 {"heads", record.problem.heads},
                 {"seq_len", record.problem.seq_len},
                 {"head_dim", record.problem.head_dim}});
  if (record.problem.scores) {
    result["score_std"] = record.problem.scores->std;
    result["score_growth"] = name_of(record.problem.scores->growth);
  }
  result.update(rest_to_json(record.problem));
  result["status"] = name_of(record.status);
  if (!record.reason.empty()) result["reason"] = record.reason;
  if (record.comparison) {
    const Comparison& c = *record.comparison;
    result["error"] = {{"max_abs", finite(c.max_abs)},
                       {"rel", finite(c.rel)},
                       {"tolerance", finite(c.tolerance)},
                       {"bound_ratio", finite(c.bound_ratio)},
                       {"checked_rows", c.checked_rows}};
    if (!record.ceiling && (record.problem.fp8 != Fp8::kNone || on_gpu())) {
      result["error"]["rel_unrounded"] = finite(c.rel_unrounded);
      result["error"]["rmse"] = finite(c.rmse);
    }
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
  }
  if (record.times) {
    result.update(times_of(record, *record.times, record.rounds));
    if (record.times->rounding) {
      result["rounding_ms"] = *record.times->rounding;
      result["rounding_bytes"] = uint64_t(bytes_of_rounding(record.problem));
    }
  }
  if (record.loaded) {
    Json& loaded = result["under_load"] = times_of(record, *record.loaded, record.loaded_rounds);
    const double tflops = record.tflops(*record.loaded);
    if (tflops > 0 && record.loaded->power_w) {
      loaded["joules_per_tflop"] = *record.loaded->power_w / tflops;
    }
  }
  result.update(counts_to_json(record.kernel, record.counts));
  return result;
}

std::string describe_rest(const Problem& problem) {
  std::string result;
  if (problem.scores) {
    char text[64];
    snprintf(text, sizeof text, ", scores of std %g, %s", problem.scores->std,
             name_of(problem.scores->growth));
    result = text;
  }
  const Json rest = rest_to_json(problem);
  for (const auto& [name, value] : rest.items()) {
    if (name == "attended_pairs") continue;
    result += ", " + name + " " + (value.is_text() ? value.get<std::string>() : value.dump());
  }
  return result;
}

Json rest_to_json(const Problem& problem) {
  Json result = Json::object();
  if (problem.is_plain()) return result;
  if (problem.mask != Mask::kNone) result["mask"] = name_of(problem.mask);
  if (problem.window != Window{}) result["window"] = {problem.window.left, problem.window.right};
  if (problem.softcap > 0) result["softcap"] = double(problem.softcap);
  if (problem.alibi != Alibi::kNone) result["alibi"] = name_of(problem.alibi);
  if (problem.sinks) result["sinks"] = true;
  if (problem.fp8 != Fp8::kNone) result["fp8"] = name_of(problem.fp8);
  if (problem.kv_heads) result["kv_heads"] = *problem.kv_heads;
  if (problem.kv_len) result["kv_len"] = *problem.kv_len;
  bool differ = false;
  for (const Sequence& each : problem.packed) {
    result["lengths"].push_back(each.q_len);
    differ = differ || each.q_len != each.kv_len;
  }
  for (const Sequence& each : problem.packed) {
    if (differ) result["kv_lengths"].push_back(each.kv_len);
  }
  if (problem.page_size > 0) {
    result["page_size"] = problem.page_size;
    result["kv_lengths"] = problem.kv_lens;
  }
  result["attended_pairs"] = uint64_t(problem.attended_pairs());
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
    char text[512];
    snprintf(
        text, sizeof text,
        "%s, head_dim %d, seq_len %d%s: the SM clock was %.0f MHz under %s and %.0f MHz under %s",
        name_of(problem.dtype), problem.head_dim, problem.seq_len, describe_rest(problem).c_str(),
        *slow->times->clock_mhz, slow->kernel.c_str(), *fast->times->clock_mhz,
        fast->kernel.c_str());
    notes.emplace_back(text);
  }
  return notes;
}

void write_results(const std::string& path, const std::vector<std::string>& command,
                   const Protocol& protocol, const std::vector<Record>& records) {
  Json result = {{"schema_version", 6},
                 {"created", utc_now()},
                 {"command", command},
                 {"machine", describe_machine()},
                 {"protocol",
                  {{"warmup", protocol.warmup},
                   {"iterations", protocol.iterations},
                   {"rest_ms", protocol.rest_ms},
                   {"load_seconds", protocol.load_seconds},
                   {"flush_l2", protocol.flush_l2},
                   {"rotating_inputs", protocol.rotating_inputs},
                   {"max_seconds", protocol.max_seconds},
                   {"inputs", protocol.inputs},
                   {"seed", protocol.seed},
                   {"tflops_convention", "4*B*H*N^2*D"}}},
                 {"records", Json::array()}};
  if (!protocol.name.empty()) result["protocol"]["name"] = protocol.name;
  if (protocol.rounds > 1) result["protocol"]["rounds"] = protocol.rounds;
  for (const Record& record : records) result["records"].push_back(to_json(record));
  if (const auto notes = clock_notes(records); !notes.empty()) result["notes"] = notes;
  write_file_whole(path, lines_of(result));
}

}  // namespace fa
