#include "tests/broken/checks.h"
#include <cctype>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/emulator/core/describe.h"
#include "common/emulator/core/launch.h"
#include "common/harness/device.h"
#include "common/harness/inputs.h"
#include "common/harness/runner.h"
#include "common/launch/problem.h"
#include "common/launch/registry.h"
#include "tests/broken/bug.h"

namespace fa::broken {
namespace {

constexpr double kMuch = 1.5;  // times the real kernel's counter

double counter(const Record& record, const std::string& name) {
  return double(count_of(record.counts.counters, name));
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// `words`: one of several, " | " between them, or the only ones.
bool says(const std::string& report, const std::string& words) {
  const size_t end = words.find(" | ");
  return contains(report, words.substr(0, end)) ||
         (end != std::string::npos && says(report, words.substr(end + 3)));
}

std::string instead(const std::string& what, const std::string& found,
                    const std::string& declared) {
  return what + ": " + found.substr(0, 400) + ", declared " + declared;
}

}  // namespace

Problem problem_of(const Bug& bug) {
  const bool rings = bug.kernel >= "11", persistent = bug.kernel >= "15";
  Problem result;
  result.heads = rings && !persistent ? 1 : 2;
  result.seq_len = rings ? 512 : 256;
  if (bug.heads) result.heads = bug.heads;
  if (bug.seq_len) result.seq_len = bug.seq_len;
  if (bug.fp16) result.dtype = Dtype::kFp16;
  return result;
}

const std::vector<std::string>& inputs_of(const Bug& bug) {
  static const std::vector<std::string> ordinary(
      input_names().begin(), input_names().end() - long(hot_input_names().size()));
  return bug.kernel < "16" ? ordinary : input_names();
}

Record run(const std::string& kernel, const Problem& problem, const std::string& inputs, bool races,
           bool early) {
  Protocol protocol;
  protocol.inputs = inputs;
  emu::options().races = races;
  if (early) emu::options().completion = emu::Completion::kEarly;
  const Record record = Runner(problem, make_inputs(problem, inputs, protocol.seed), protocol)
                            .verify(find_kernel(kernel));
  emu::options().races = emu::Options().races;
  if (early) emu::options().completion = emu::Options().completion;
  return record;
}

std::string verdict_of(const Record& record) {
  return record.status == Status::kPassed  ? "right"
         : record.status == Status::kWrong ? "wrong"
                                           : "stops";
}

std::string kind_of(const std::string& report) { return emu::kind_of(report).name; }

std::string inputs_of_report(const Bug& bug) {
  const bool speaks = !bug.stops.empty() || !bug.found.empty();
  if (!speaks || !bug.is_right_on("normal")) return "normal";
  for (const std::string& each : inputs_of(bug)) {
    if (!bug.is_right_on(each)) return each;
  }
  return "normal";
}

std::map<std::string, double> ratios(const Record& broken, const Record& real) {
  std::map<std::string, double> result;
  for (const std::string name : {"shared_wavefronts", "global_sectors"}) {
    if (counter(real, name) > 0) result[name] = counter(broken, name) / counter(real, name);
  }
  return result;
}

std::string unlike_numbers(const Bug& bug, const std::string& inputs, const Record& record) {
  const std::string declared = bug.is_right_on(inputs) ? "right"
                               : bug.stops.empty()     ? "wrong"
                                                       : "stops";
  if (verdict_of(record) != declared)
    return instead("numbers on " + inputs, verdict_of(record), declared);
  if (declared == "stops" && !says(record.reason, bug.stops)) {
    return instead("numbers on " + inputs, record.reason, "'" + bug.stops + "'");
  }
  return "";
}

std::string unlike_early(const Bug& bug, const Record& record) {
  const bool right = record.status == Status::kPassed;
  const bool declared = bug.early == "right" || (bug.is_right_on("normal") && bug.early != "wrong");
  if (right == declared) return "";
  return instead("numbers with early copies", verdict_of(record), declared ? "right" : "wrong");
}

std::string unlike_report(const Bug& bug, const Record& record) {
  const bool reported = record.status == Status::kError;
  const std::string words = !bug.found.empty() ? bug.found : bug.stops;
  if (!words.empty() && !reported) return instead("checked build", "no report", "'" + words + "'");
  if (words.empty() && reported) return instead("checked build", record.reason, "no report");
  if (reported && !says(record.reason, words)) {
    return instead("checked build", record.reason, "'" + words + "'");
  }
  if (reported && kind_of(record.reason).empty())
    return "a report of no known kind: " + record.reason;
  return "";
}

std::string unlike_places(const Bug& bug, const Record& record) {
  for (const auto& [first, last] : bug.at) {
    bool named = false;
    for (int line = first; line <= last; line++) {
      const std::string place = bug.name + ".cu:" + std::to_string(line);
      for (size_t at = record.reason.find(place); at != std::string::npos;
           at = record.reason.find(place, at + 1)) {
        const size_t end = at + place.size();  // not the ":10" of ":105"
        named |= end == record.reason.size() || !isdigit(record.reason[end]);
      }
    }
    if (!named) {
      return instead("checked build", record.reason,
                     "a report that names line " + std::to_string(first) +
                         (last == first ? "" : " to " + std::to_string(last)));
    }
  }
  return "";
}

std::string unlike_counters(const Bug& bug, const Record& broken, const Record& real) {
  if (broken.status == Status::kError) {
    return bug.counted.empty() ? "" : "no counters: " + broken.reason;
  }
  const auto found = ratios(broken, real);
  if (!bug.counted.empty() && !found.contains(bug.counted))
    return bug.counted + " is no counter to compare";
  for (const auto& [name, ratio] : found) {
    if ((ratio >= kMuch) == (name == bug.counted)) continue;
    return instead(name, std::to_string(ratio) + " times the real kernel's",
                   bug.counted.empty() ? "nothing" : bug.counted);
  }
  return "";
}

}  // namespace fa::broken
