#include "tests/broken/checks.h"
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/cli/options.h"
#include "common/emulator/core/describe.h"
#include "common/emulator/core/launch.h"
#include "common/harness/inputs.h"
#include "common/launch/gradients.h"

namespace fa::broken {
namespace {

constexpr double kMuch = 1.5;  // times the real kernel's counter

double counter(const Record& record, const std::string& name) {
  return double(count_of(record.counts.counters, name));
}

// The lines of a file without the blanks around them.
std::vector<std::string> lines_of_file(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t first = std::min(line.find_first_not_of(' '), line.size());
    lines.push_back(line.substr(first));
  }
  return lines;
}

// The first line of the statement that has line `number`, counted from 1: compilers give the parts
// of a statement to different lines of it.
std::string statement_at(const std::vector<std::string>& lines, size_t number) {
  const auto ends = [&](const std::string& line) {
    const std::string code = line.substr(0, line.find("//"));
    const size_t last = code.find_last_not_of(' ');
    return last == std::string::npos || std::string(";{}:>").find(code[last]) != std::string::npos;
  };
  if (number == 0 || number > lines.size()) return "";
  size_t first = number - 1;
  while (first > 0 && !ends(lines[first - 1])) first--;
  return lines[first];
}

// By its name, with or without the folder; null: it computes O, and is in the other list.
const GradientKernel* gradient_kernel(const std::string& name) {
  const std::vector<GradientKernel>& all = gradient_kernels();
  const auto it = std::find_if(all.begin(), all.end(), [&](const GradientKernel& each) {
    return each.kernel.name == name.substr(name.find('/') + 1);
  });
  return it == all.end() ? nullptr : &*it;
}

}  // namespace

const Kernel& kernel_of(const Bug& bug) {
  const GradientKernel* const gradients = gradient_kernel(bug.name);
  return gradients ? gradients->kernel : find_kernel(bug.name);
}

std::vector<Bug>& bugs() {
  static std::vector<Bug> list;
  return list;
}

Declaration::Declaration(Bug bug) {
  auto& list = bugs();
  const auto after = [](const Bug& a, const Bug& b) { return a.name < b.name; };
  list.insert(std::upper_bound(list.begin(), list.end(), bug, after), std::move(bug));
}

std::string facts_file() { return std::string(FA_BUGS_FOLDER) + "/facts.json"; }

Facts committed(const Bug& bug) {
  std::ifstream file(facts_file());
  if (!file) return Facts::object();
  const std::string text(std::istreambuf_iterator<char>(file), {});
  for (const Facts& row : Facts::parse(text, facts_file())) {
    if (row.value("name", "") == bug.name) return row;
  }
  return Facts::object();
}

Problem problem_of(const Bug& bug) {
  const Kernel& kernel = kernel_of(bug);
  const bool rings = kernel.needs.exactly, persistent = kernel.traits >= Traits::kPersistent;
  Problem result;
  result.heads = rings && !persistent ? 1 : 2;
  result.seq_len = rings ? 512 : 256;
  if (!bug.problem.empty()) {
    std::istringstream options(bug.problem);
    std::vector<std::string> words{"bugs"};
    words.insert(words.end(), std::istream_iterator<std::string>(options), {});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    result = read_command_line(int(argv.size()), argv.data())->problems.at(0);
  }
  if (bug.fp16) result.dtype = Dtype::kFp16;
  return result;
}

const std::vector<std::string>& inputs_of(const Bug& bug) {
  static const std::vector<std::string> ordinary(
      input_names().begin(), input_names().end() - long(hot_input_names().size()));
  // All but the last five: from outliers to v_mean they are hard on FP8 alone, and mixed_heads has
  // several kinds.
  static const std::vector<std::string> all(all_input_names().begin(), all_input_names().end() - 5);
  static const std::vector<std::string> on_fp8 = [] {
    std::vector<std::string> inputs = ordinary;
    inputs.insert(inputs.end(), all_input_names().end() - 5, all_input_names().end() - 1);
    return inputs;
  }();
  if (problem_of(bug).fp8 != Fp8::kNone) return on_fp8;
  return kernel_of(bug).traits == Traits::kMaxFree ? all : ordinary;
}

Record run(const Bug& bug, const std::string& kernel, const Problem& problem,
           const std::string& inputs, bool races, bool early) {
  Protocol protocol;
  protocol.inputs = inputs;
  protocol.rotating_inputs = bug.launches;
  const emu::Options options = emu::options();
  emu::options().races = races;
  if (bug.sms > 0) emu::options().sms = bug.sms;
  if (bug.sms == 1) emu::options().os_threads = 1;  // one CTA after the other, as bugs.toml says
  if (early) emu::options().completion = emu::Completion::kEarly;
  const Inputs given = make_inputs(problem, inputs, protocol.seed);
  Runner runner(problem, given, protocol);
  const GradientKernel* const gradients = gradient_kernel(kernel);
  const Record record =
      gradients ? runner.verify(*gradients, given) : runner.verify(find_kernel(kernel));
  emu::options() = options;
  return record;
}

std::string verdict_of(const Record& record) {
  return record.status == Status::kPassed  ? "right"
         : record.status == Status::kWrong ? "wrong"
                                           : "stops";
}

std::string kind_of(const std::string& report) { return emu::kind_of(report).name; }

std::string inputs_of_report(const Facts& facts) {
  const Facts& numbers = facts.at("numbers");
  if (numbers.at("normal") != "right") return "normal";
  for (const auto& [inputs, verdict] : numbers.items()) {
    if (verdict != "right") return inputs;
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

Facts facts_of_report(const Bug& bug, const Record& record) {
  Facts facts = Facts::object();
  if (record.status != Status::kError) return facts;
  const std::string kind = kind_of(record.reason);
  facts["report"] = kind.empty() ? "unknown: " + record.reason : kind;
  const auto lines = lines_of_file(std::string(FA_BUGS_SOURCES) + "/" + bug.name + ".cu");
  const std::regex place(bug.name + R"(\.cu:(\d+))");
  std::vector<std::string> at;
  for (std::sregex_iterator it(record.reason.begin(), record.reason.end(), place), end; it != end;
       ++it) {
    const std::string statement = statement_at(lines, std::stoul((*it)[1]));
    if (std::find(at.begin(), at.end(), statement) == at.end()) at.push_back(statement);
  }
  facts["at"] = at;
  return facts;
}

Facts facts_of_counters(const Record& broken, const Record& real) {
  Facts facts = Facts::object();
  if (broken.status == Status::kError) return facts;
  double most = kMuch;
  for (const auto& [name, ratio] : ratios(broken, real)) {
    if (ratio < most) continue;
    most = ratio;
    facts = {{"counter", name}, {"ratio", std::round(ratio * 100) / 100}};
  }
  return facts;
}

std::string not_shown(const Bug& bug, const Facts& facts) {
  const Facts& numbers = facts.at("numbers");
  bool shown = false;
  if (bug.shown_by == "ordinary inputs") shown = numbers.at("normal") == "wrong";
  if (bug.shown_by == "hard inputs") {
    shown =
        numbers.at("normal") == "right" &&
        std::any_of(numbers.begin(), numbers.end(), [](const Facts& v) { return v != "right"; });
  }
  if (bug.shown_by == "report") shown = facts.contains("report");
  if (bug.shown_by == "counters") shown = facts.contains("counter");
  return shown ? "" : bug.name + " is not shown by " + bug.shown_by;
}

}  // namespace fa::broken
