// What a reader's own CUDA program has beside its kernels and the emulator: options of the emulator
// in the environment, and the counts of the checked build after its end.
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/cli/tables.h"
#include "common/emulator/core/launch.h"
#include "common/emulator/programs/runtime.h"
#include "common/harness/device.h"
#include "common/harness/files.h"
#include "common/launch/problem.h"

namespace {

// A record for each kernel, in the order of their first launches.
std::vector<fa::Record>& records() {
  static std::vector<fa::Record> all;
  return all;
}

void add_lines(std::vector<fa::LineCounts>& all, const std::vector<fa::LineCounts>& more) {
  for (const fa::LineCounts& line : more) {
    const auto same = std::find_if(all.begin(), all.end(), [&](const fa::LineCounts& each) {
      return each.at == line.at && each.kind == line.kind;
    });
    if (same == all.end()) {
      all.push_back(line);
    } else {
      fa::add_counts(same->counts, line.counts);
    }
  }
}

void note_launch(const char* kernel) {
  const auto same = std::find_if(records().begin(), records().end(),
                                 [&](const fa::Record& each) { return each.kernel == kernel; });
  fa::Record& record = same == records().end() ? records().emplace_back() : *same;
  record.kernel = kernel;
  const fa::LaunchCounts counts = fa::take_counts();
  fa::add_counts(record.counts.counters, counts.counters);
  add_lines(record.counts.lines, counts.lines);
}

// For scripts/fa emulate --json, which says more of it.
void write_json(const char* path) {
  fa::Json kernels = fa::Json::array();
  for (const fa::Record& record : records()) {
    fa::Json& kernel = kernels.push_back({{"kernel", record.kernel}});
    for (const auto& [name, value] : record.counts.counters) kernel["counters"][name] = value;
    kernel["lines"] = fa::Json::array();
    for (const fa::LineCounts& line : record.counts.lines) {
      fa::Json& entry = kernel["lines"].push_back({{"at", line.at}, {"kind", line.kind}});
      for (const auto& [name, value] : line.counts) {
        if (value > 0) entry[name] = value;
      }
    }
  }
  try {
    fa::write_file_whole(path, fa::lines_of({{"kernels", kernels}, {"reports", emu::reports()}}));
  } catch (const fa::BadInput& error) {
    fprintf(stderr, "error: %s\n", error.what());
    _exit(2);
  }
}

// A program that has gone on after a report ends with an error, too, and so does one that does not
// notice a kernel that was not launched.
void at_end(int code, void*) {
  emu::note_nans_for_host();
  fa::print_counters(records(), true, false);
  if (const char* const path = getenv("FA_EMULATOR_JSON")) write_json(path);
  if (code != 0 || !(emu::has_unasked_refusal() || emu::has_gone_on())) return;
  fflush(nullptr);
  _exit(1);
}

// FA_EMULATOR="schedule=random seed=7 races=off", as scripts/fa emulate sets it.
void read_options() {
  const char* const text = getenv("FA_EMULATOR");
  if (!text) return;
  fa::BackendOptions options;
  const std::string all = std::string(" ") + text + " ";
  const auto number = [&](const std::string& key) {
    const size_t at = all.find(" " + key + "=");
    return at == std::string::npos ? 0 : strtoull(all.c_str() + at + key.size() + 2, nullptr, 10);
  };
  if (all.find(" schedule=random ") != std::string::npos) options.schedule = "random";
  if (all.find(" races=off ") != std::string::npos) options.races = false;
  if (all.find(" reports=all ") != std::string::npos) emu::keep_going();
  if (const uint64_t seed = number("seed")) options.seed = seed;
  if (const uint64_t threads = number("threads")) options.threads = int(threads);
  if (const size_t at = all.find(" patience="); at != std::string::npos) {
    options.patience = strtod(all.c_str() + at + sizeof " patience=" - 1, nullptr);
  }
  fa::set_backend_options(options);
}

[[maybe_unused]] const bool registered = [] {
  read_options();
  emu::options().faster = "scripts/fa emulate --fast";
  emu::options().goes_on = "--keep-going";
  emu::options().equal_stores = true;
  emu::options().absent_lanes = true;
  emu::options().notes = true;
  emu::options().calls = true;
  records();  // so that they are there when the program ends
  emu::reports();
  emu::after_launch = note_launch;
  on_exit(at_end, nullptr);
  return true;
}();

}  // namespace
