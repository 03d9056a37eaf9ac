// Shows what each check says about the broken kernels of this program, in the order in which one
// debugs: numbers on ordinary inputs, on hard ones, the checked build's report, its counters.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/cli/cli.h"
#include "common/cli/parser.h"
#include "common/harness/files.h"
#include "common/harness/results.h"
#include "tests/broken/checks.h"

namespace fa::broken {
namespace {

bool colours() { return isatty(STDOUT_FILENO) && !getenv("NO_COLOR"); }

void progress(const std::string& text) {
  if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[K%s", text.c_str());
}

// The text in lines of at most 96 characters, indented; of a long one (who waits where) the
// beginning.
void print_wrapped(const std::string& text) {
  constexpr int kMostLines = 12;
  size_t line_end = 0;
  int lines = 0;
  for (size_t begin = 0; begin < text.size(); begin = line_end + 1) {
    line_end = std::min(text.find('\n', begin), text.size());
    if (lines++ == kMostLines) {
      printf("    ... and %d lines like these\n",
             int(std::count(text.begin() + ptrdiff_t(begin), text.end(), '\n')) + 1);
      return;
    }
    std::string line = text.substr(begin, line_end - begin);
    std::string indent = "  ";
    while (line.size() + indent.size() > 96) {
      size_t cut = line.rfind(' ', 96 - indent.size());
      if (cut == std::string::npos || cut < 8) break;
      printf("%s%s\n", indent.c_str(), line.substr(0, cut).c_str());
      line = line.substr(cut + 1);
      indent = "      ";  // a line goes on
    }
    printf("%s%s\n", indent.c_str(), line.c_str());
  }
}

struct Findings {
  std::vector<std::pair<std::string, Record>> numbers;  // by inputs
  Record early, report, real;
  Facts facts;

  // Numbers on ordinary inputs, and what that launch counted.
  const Record& normal() const { return numbers.front().second; }
};

Findings examine(const Bug& bug) {
  Findings findings;
  Facts& facts = findings.facts;
  facts = {{"name", bug.name}, {"kernel", bug.kernel}, {"what", bug.what}};
  for (const std::string& inputs : inputs_of(bug)) {
    progress(bug.name + ": numbers on " + inputs + " ...");
    const Record record = run(bug, bug.name, problem_of(bug), inputs);
    facts["numbers"][inputs] = verdict_of(record);
    if (record.status == Status::kError && !facts.contains("stops"))
      facts["stops"] = kind_of(record.reason);
    findings.numbers.emplace_back(inputs, record);
  }
  findings.early = run(bug, bug.name, problem_of(bug), "normal", false, true);
  facts["early"] = verdict_of(findings.early);
  progress(bug.name + ": the checked build's report ...");
  findings.report = run(bug, bug.name, problem_of(bug), inputs_of_report(facts), true);
  facts.update(facts_of_report(bug, findings.report));
  findings.real = run(bug, bug.kernel, problem_of(bug), "normal");
  facts.update(facts_of_counters(findings.normal(), findings.real));
  progress("");
  return findings;
}

// ---- for a reader -------------------------------------------------------------------------------
void print_numbers(const std::string& inputs, const Record& record) {
  const std::string verdict = verdict_of(record);
  const char* const tint = !colours() ? "" : verdict == "right" ? "\033[32m" : "\033[31m";
  printf("  %-18s %s%s%s", inputs.c_str(), tint, verdict.c_str(), colours() ? "\033[0m" : "");
  if (record.comparison) {
    printf("   relative error %.2e\n", record.comparison->rel);
  } else {
    printf("   %s\n", kind_of(record.reason).c_str());
  }
}

void print(const Bug& bug, const Findings& findings) {
  const Problem p = problem_of(bug);
  const Record& normal = findings.normal();
  std::string shown;  // the message that the reader has seen already
  const auto show = [&](const std::string& message) {
    print_wrapped(message == shown ? "the same as above" : message);
    shown = message;
  };
  printf("1. Numbers on ordinary inputs (%s, batch %d, heads %d, seq_len %d, head_dim %d%s)\n\n",
         name_of(p.dtype), p.batch, p.heads, p.seq_len, p.head_dim, describe_rest(p).c_str());
  print_numbers("normal", normal);
  if (verdict_of(findings.early) != verdict_of(normal)) {
    print_numbers("--completion early", findings.early);
  }
  if (!normal.reason.empty()) show(normal.reason);
  printf("\n2. Numbers on hard inputs\n\n");
  for (size_t i = 1; i < findings.numbers.size(); i++) {
    print_numbers(findings.numbers[i].first, findings.numbers[i].second);
  }
  for (size_t i = 1; i < findings.numbers.size() && normal.reason.empty(); i++) {
    if (findings.numbers[i].second.reason.empty()) continue;
    show(findings.numbers[i].second.reason);
    break;
  }
  const std::string inputs = inputs_of_report(findings.facts);
  printf("\n3. What the checked build reports%s\n\n",
         inputs == "normal" ? "" : (" (--inputs " + inputs + ")").c_str());
  if (findings.report.status == Status::kError) {
    show(findings.report.reason);
  } else {
    print_wrapped("nothing: no race, no access where it may not be, no thread left waiting");
  }
  printf("\n4. What it counts, over the counters of %s\n\n", bug.kernel.c_str());
  if (normal.status == Status::kError) {
    print_wrapped("nothing: the launch does not end");
  } else {
    for (const auto& [name, ratio] : ratios(normal, findings.real)) {
      printf("  %-18s %.2f%s\n", name.c_str(), ratio,
             name == findings.facts.value("counter", "") ? "   <--" : "");
    }
  }
}

// Who sees it, who does not.
void print_summary(const Findings& findings) {
  std::string seen, not_seen, hard;
  const auto put = [&](bool sees, const std::string& who) {
    std::string& list = sees ? seen : not_seen;
    list += (list.empty() ? "" : ", ") + who;
  };
  put(findings.normal().status != Status::kPassed, "numbers on ordinary inputs");
  for (const auto& [inputs, record] : findings.numbers) {
    if (inputs != "normal" && record.status != Status::kPassed) {
      hard += (hard.empty() ? "" : ", ") + inputs;
    }
  }
  put(!hard.empty(), hard.empty() ? "hard inputs" : "hard inputs (" + hard + ")");
  put(findings.report.status == Status::kError, "the checked build");
  put(findings.facts.contains("counter"), "counters");
  printf("\nSeen by\n\n");
  print_wrapped(seen);
  if (not_seen.empty()) return;
  printf("\nNot seen by\n\n");
  print_wrapped(not_seen);
}

// ---- for tests and documents --------------------------------------------------------------------

// Puts the rows into the file, in place of those of the same names; all others stay.
void write_facts(const std::map<std::string, Facts>& rows) {
  std::map<std::string, Facts> all;
  if (std::ifstream file(facts_file()); file) {
    const std::string text(std::istreambuf_iterator<char>(file), {});
    for (const Facts& each : Facts::parse(text, facts_file()))
      all[each["name"].get<std::string>()] = each;
  }
  for (const auto& [name, row] : rows) all[name] = row;
  Facts list = Facts::array();
  for (const auto& [name, row] : all) list.push_back(row);
  write_file_whole(facts_file(), lines_of(list));
}

int main(int argc, char** argv) {
  Parser app("What each check says about broken kernels.", command_of(argc, argv)[0]);
  std::vector<std::string> names;
  bool write = false;
  app.add_option("BUG", names,
                 "which, or what the names of a kernel's bugs begin with for all of\n"
                 "them: 02, causal; default: all");
  app.add_flag("--write", write,
               "write what was found to tests/broken/facts.json; other rows stay");
  app.footer("Example: " + command_of(argc, argv)[0] + " " + bugs().front().name +
             "\nExit code: 0 as tests/broken says, 1 something is not");
  if (!app.parse(argc, argv)) return 0;
  const auto is_named = [](const Bug& bug, const std::string& name) {
    return bug.name == name || bug.family() == name;
  };
  for (const std::string& name : names) {
    if (std::none_of(bugs().begin(), bugs().end(),
                     [&](const Bug& bug) { return is_named(bug, name); }))
      throw BadInput("no bug " + name + " here");
  }
  std::map<std::string, Facts> found;  // by name
  int exit_code = 0;
  for (const Bug& bug : bugs()) {
    if (!names.empty() && std::none_of(names.begin(), names.end(), [&](const std::string& name) {
          return is_named(bug, name);
        }))
      continue;
    const Findings findings = examine(bug);
    if (!write) {
      print(bug, findings);
      print_summary(findings);
    }
    found[bug.name] = findings.facts;
    std::string surprise = not_shown(bug, findings.facts);
    if (surprise.empty() && !write && findings.facts != committed(bug))
      surprise = bug.name + " is not as " + facts_file() + " says: " + findings.facts.dump();
    if (surprise.empty()) continue;
    fprintf(stderr, "%s\n", surprise.c_str());
    exit_code = 1;
  }
  if (write) write_facts(found);
  return exit_code;
}

}  // namespace
}  // namespace fa::broken

int main(int argc, char** argv) {
  return fa::with_exit_code([&] { return fa::broken::main(argc, argv); });
}
