#include "common/cli/tables.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "common/emulator/core/counters.h"
#include "common/harness/oracle.h"
#include "common/harness/results.h"
#include "common/harness/sources.h"

namespace fa {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kWorstLines = 3, kWorstLinesWithoutFile = 10;

// For people: 512, 67.1 M.
std::string with_unit(double value) {
  char text[32];
  const char* const units[] = {"", " k", " M", " G", " T"};
  size_t unit = 0;
  for (; value >= 9999.5 && unit < 4; unit++) value /= 1000;
  snprintf(text, sizeof text, unit ? "%.1f%s" : "%.0f%s", value, units[unit]);
  return text;
}

// What costs: passes through shared memory, pieces of global memory, and as many as would do.
struct Costs {
  uint64_t wavefronts, wavefronts_ideal, sectors, sectors_ideal;
  explicit Costs(const Counts& counts)
      : wavefronts(count_of(counts, "wavefronts")),
        wavefronts_ideal(count_of(counts, "wavefronts_ideal")),
        sectors(count_of(counts, "sectors")),
        sectors_ideal(count_of(counts, "sectors_ideal")) {}
  // Those that another layout would have saved.
  uint64_t excess() const { return wavefronts - wavefronts_ideal + sectors - sectors_ideal; }
};

// The lines that have some excess, the most first.
std::vector<LineCounts> worst_lines(const Record& record) {
  std::vector<LineCounts> lines = record.counts.lines;
  std::erase_if(lines, [](const LineCounts& line) { return Costs(line.counts).excess() == 0; });
  std::stable_sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) {
    return Costs(a.counts).excess() > Costs(b.counts).excess();
  });
  return lines;
}

// 1,048,576; from a hundred million on 104.9 M. Nothing for 0.
std::string grouped(uint64_t value) {
  if (value == 0) return "";
  if (value >= 100'000'000) return with_unit(double(value));
  std::string text = std::to_string(value);
  for (size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

std::string per_ideal(uint64_t actual, uint64_t ideal) {
  if (ideal == 0) return "";
  char text[32];
  snprintf(text, sizeof text, "%.2f", double(actual) / double(ideal));
  return text;
}

// "65,536 wavefronts, 8.00 per ideal one"
std::string cost(const Costs& c) {
  std::string text;
  if (c.wavefronts > c.wavefronts_ideal) {
    text = grouped(c.wavefronts) + " wavefronts, " + per_ideal(c.wavefronts, c.wavefronts_ideal) +
           " per ideal one";
  }
  if (c.sectors > c.sectors_ideal) {
    text += (text.empty() ? "" : "; ") + grouped(c.sectors) + " sectors, " +
            per_ideal(c.sectors, c.sectors_ideal) + " per ideal one";
  }
  return text;
}

std::string cut(std::string text, size_t columns) {
  if (text.size() <= columns) return text;
  size_t end = columns - 3;
  while (end > 0 && (text[end] & 0xc0) == 0x80) end--;  // not within a character
  return text.substr(0, end) + "...";
}

void print_kinds(const Record& record) {
  printf("%-14s %10s %10s %9s %10s %9s %9s\n", "kind", "requests", "wavefronts", "per ideal",
         "sectors", "per ideal", "bytes");
  for (const char* const kind : emu::kKindNames) {
    Counts counts;
    for (const LineCounts& line : record.counts.lines) {
      if (line.kind == kind) add_counts(counts, line.counts);
    }
    if (counts.empty()) continue;
    const Costs c(counts);
    const uint64_t bytes = count_of(counts, "bytes"), flops = count_of(counts, "flops");
    const uint64_t operations = count_of(counts, "operations"), waits = count_of(counts, "waits");
    std::string rest;
    if (flops > 0) rest = with_unit(double(flops)) + " FLOP";
    if (operations > 0) rest = grouped(operations) + " results";
    if (waits > 0) rest = grouped(waits) + " waited";
    char text[160];
    snprintf(text, sizeof text, "%-14s %10s %10s %9s %10s %9s %9s  %s", kind,
             grouped(count_of(counts, "requests")).c_str(), grouped(c.wavefronts).c_str(),
             per_ideal(c.wavefronts, c.wavefronts_ideal).c_str(), grouped(c.sectors).c_str(),
             per_ideal(c.sectors, c.sectors_ideal).c_str(),
             bytes ? with_unit(double(bytes)).c_str() : "", rest.c_str());
    std::string line = text;
    line.erase(line.find_last_not_of(' ') + 1);
    printf("%s\n", line.c_str());
  }
}

void print_worst(const Record& record, bool file) {
  const std::vector<LineCounts> worst = worst_lines(record);
  if (worst.empty()) {
    printf("No line takes more wavefronts or sectors than its ideal.\n");
    return;
  }
  printf("Most beyond the ideal:\n");
  const size_t shown = std::min(worst.size(), file ? kWorstLines : kWorstLinesWithoutFile);
  for (size_t i = 0; i < shown; i++) {
    const std::string line =
        "  " + worst[i].at + ", " + worst[i].kind + ": " + cost(Costs(worst[i].counts));
    printf("%s\n", cut(line, kColumns).c_str());
    const std::string text = cut(place_of(worst[i].at).statement, kColumns - 6);
    if (!text.empty()) printf("      %s\n", text.c_str());
  }
  if (worst.size() > shown) {
    printf("  and %zu more%s\n", worst.size() - shown,
           file ? ", which --json writes to a file" : "");
  }
}

// A kernel in a line: its totals, and its worst line.
void print_summary(const Record& record) {
  Counts sums;
  for (const LineCounts& line : record.counts.lines) add_counts(sums, line.counts);
  const Costs all(sums);
  const std::vector<LineCounts> worst = worst_lines(record);
  std::string rest = "none";
  if (!worst.empty()) {
    const LineCounts& line = worst.front();
    const Costs c(line.counts);
    const bool sectors = c.sectors - c.sectors_ideal > c.wavefronts - c.wavefronts_ideal;
    const std::string own = "kernels/" + record.kernel + ".cu:";
    rest = (line.at.starts_with(own) ? "line " + line.at.substr(own.size()) : line.at) + ", " +
           line.kind + ": " +
           (sectors ? per_ideal(c.sectors, c.sectors_ideal) + " sectors"
                    : per_ideal(c.wavefronts, c.wavefronts_ideal) + " wavefronts");
  }
  const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
  char text[160];
  snprintf(text, sizeof text, "%-24s %10s %8s  %s", record.kernel.c_str(),
           or_dash(per_ideal(all.wavefronts, all.wavefronts_ideal)).c_str(),
           or_dash(per_ideal(all.sectors, all.sectors_ideal)).c_str(), rest.c_str());
  printf("%s\n", cut(text, kColumns).c_str());
}

}  // namespace

void print_table(const Problem& problem, const std::vector<Record>& records, bool color) {
  constexpr int kBarWidth = 22;  // of the longest bar
  constexpr int kPerDecade = 7;  // a fixed scale: kernels that are nearly alike look alike
  printf("%s\n%s, batch %d, heads %d, seq_len %d, head_dim %d%s\n\n", machine_title().c_str(),
         name_of(problem.dtype), problem.batch, problem.heads, problem.seq_len, problem.head_dim,
         describe_rest(problem).c_str());
  const bool gpu = on_gpu();
  // Bars compare kernels, so a single one has none. What they show: speed on a GPU, memory traffic
  // on the emulator where it is counted.
  const bool counted =
      !gpu && std::any_of(records.begin(), records.end(), [](const Record& record) {
        return count_of(record.counts.counters, "global_sectors") > 0;
      });
  const char* const shown = gpu ? "TFLOP/s" : counted ? "sectors" : "exp2";
  auto bar_value = [&](const Record& record) {
    return gpu ? record.tflops(record.times)
               : double(count_of(record.counts.counters, counted ? "global_sectors" : "exp2"));
  };
  double longest = 0;
  if (records.size() > 1) {
    for (const Record& record : records) longest = std::max(longest, bar_value(record));
  }
  printf("%-24s %-8s %9s %12s %14s\n", "kernel", "status", "error",
         gpu ? "median ms" : "wavefronts", shown);
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
    if (record.gbytes_per_s(record.times) > 0) {
      printf("%12.4f %9.0f GB/s", record.times->median, record.gbytes_per_s(record.times));
    } else if (record.times) {
      printf("%12.4f %14.2f", record.times->median, record.tflops(record.times));
    } else if (!gpu) {
      printf("%12s %14s",
             counted
                 ? with_unit(double(count_of(record.counts.counters, "shared_wavefronts"))).c_str()
                 : "-",
             with_unit(bar_value(record)).c_str());
    } else {
      printf("%12s %14s", "-", "-");
    }
    int length = 0;
    if (longest > 0 && bar_value(record) > 0) {
      const double below = kPerDecade * std::log10(longest / bar_value(record));
      length = std::max(1, kBarWidth - int(std::lround(below)));
    }
    for (int i = 0; i < length; i++) printf("%s\u2588", i ? "" : "  ");
    printf("\n");
  }
  if (longest > 0) {
    printf("\nBars: %s, logarithmic; %d blocks are a factor of ten.\n", shown, kPerDecade);
  }
  if (longest > 0 && counted) {
    printf(
        "Sector: 32 aligned bytes of memory. Wavefront: what shared memory passes in one cycle,\n"
        "128 bytes at most.\n");
  }
  for (const Record& record : records) {
    if (!record.comparison || record.problem.fp8 == Fp8::kNone) continue;
    if (record.status != Status::kPassed) continue;
    printf(
        "\n%s: 'error' is the kernel's alone. With what rounding Q, K and V costs,\n"
        "O is off by %.2e of its norm.\n",
        record.kernel.c_str(), record.comparison->rel_unrounded);
  }
  std::set<std::string> like;  // of several kernels with one kind of bug a single sentence
  for (const Record& record : records) {
    if (record.status == Status::kWrong || record.status == Status::kError) {
      printf("\n%s: %s\n", record.kernel.c_str(), record.reason.c_str());
    }
    if (record.status == Status::kError) like.insert(bugs_like(record.reason));
  }
  like.erase("");
  for (const std::string& sentence : like) printf("\n%s\n", sentence.c_str());
  for (const std::string& note : clock_notes(records)) {
    printf("\nNote: %s\n", note.substr(note.find(": ") + 2).c_str());
  }
}

void print_counters(const std::vector<Record>& records, bool full, bool file) {
  std::vector<const Record*> counted;
  for (const Record& record : records) {
    if (!record.counts.lines.empty()) counted.push_back(&record);
  }
  if (counted.empty()) return;
  printf("\n");
  if (full) {
    for (const Record* record : counted) {
      printf("%s, by kind of instruction\n", record->kernel.c_str());
      print_kinds(*record);
      print_worst(*record, file);
      printf("\n");
    }
  } else {
    printf("%-24s %10s %8s  %s\n", "for each ideal one", "wavefronts", "sectors",
           "most beyond the ideal");
    for (const Record* record : counted) print_summary(*record);
    printf("\n");
  }
  printf(
      "Ideal: no two lanes collide in a bank; no sector is moved for fewer than its 32 bytes.\n");
  const auto uses_wgmma = [](const Record* record) {
    return std::any_of(record->counts.lines.begin(), record->counts.lines.end(),
                       [](const LineCounts& line) { return line.kind == "wgmma"; });
  };
  if (std::any_of(counted.begin(), counted.end(), uses_wgmma)) {
    printf("Wavefronts leave out what wgmma reads, and what TMA writes, in shared memory.\n");
  }
  if (!full)
    printf("--counters full shows each kernel by kind of instruction, with its worst lines.\n");
}

}  // namespace fa
