#include "common/cli/counter_tables.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "common/cli/result_table.h"
#include "common/emulator/core/counters.h"
#include "common/harness/results.h"
#include "common/harness/runner.h"
#include "common/harness/statements.h"

namespace fa {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kWorstLines = 3;

std::map<emu::Kind, emu::Counts> by_kind(const Record& record) {
  std::map<emu::Kind, emu::Counts> kinds;
  for (const emu::LineCounts& line : record.lines) kinds[line.kind] += line.counts;
  return kinds;
}

// Wavefronts and sectors that another layout would have saved.
uint64_t excess(const emu::Counts& counts) {
  return counts.wavefronts - counts.wavefronts_ideal + counts.sectors - counts.sectors_ideal;
}

// The lines that have some, the most first.
std::vector<emu::LineCounts> worst_lines(const Record& record) {
  std::vector<emu::LineCounts> lines = record.lines;
  std::erase_if(lines, [](const emu::LineCounts& line) { return excess(line.counts) == 0; });
  std::stable_sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) {
    return excess(a.counts) > excess(b.counts);
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
std::string cost(const emu::Counts& c) {
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
  for (const auto& [kind, c] : by_kind(record)) {
    std::string rest;
    if (c.flops > 0) rest = with_unit(double(c.flops)) + " FLOP";
    if (c.operations > 0) rest = grouped(c.operations) + " results";
    if (c.waits > 0) rest = grouped(c.waits) + " waited";
    char text[160];
    snprintf(text, sizeof text, "%-14s %10s %10s %9s %10s %9s %9s  %s", name_of(kind),
             grouped(c.requests).c_str(), grouped(c.wavefronts).c_str(),
             per_ideal(c.wavefronts, c.wavefronts_ideal).c_str(), grouped(c.sectors).c_str(),
             per_ideal(c.sectors, c.sectors_ideal).c_str(),
             c.bytes ? with_unit(double(c.bytes)).c_str() : "", rest.c_str());
    std::string line = text;
    line.erase(line.find_last_not_of(' ') + 1);
    printf("%s\n", line.c_str());
  }
}

void print_worst(const Record& record) {
  const std::vector<emu::LineCounts> worst = worst_lines(record);
  if (worst.empty()) {
    printf("No line takes more wavefronts or sectors than its ideal.\n");
    return;
  }
  printf("Most beyond the ideal:\n");
  for (size_t i = 0; i < std::min(worst.size(), kWorstLines); i++) {
    const std::string line =
        "  " + worst[i].at + ", " + name_of(worst[i].kind) + ": " + cost(worst[i].counts);
    printf("%s\n", cut(line, kColumns).c_str());
    const std::string text = cut(place_of(worst[i].at).statement, kColumns - 6);
    if (!text.empty()) printf("      %s\n", text.c_str());
  }
  if (worst.size() > kWorstLines) {
    printf("  and %zu more, which --json writes to a file\n", worst.size() - kWorstLines);
  }
}

// A kernel in a line: its totals, and its worst line.
void print_summary(const Record& record) {
  emu::Counts all;
  for (const emu::LineCounts& line : record.lines) all += line.counts;
  const std::vector<emu::LineCounts> worst = worst_lines(record);
  std::string rest = "none";
  if (!worst.empty()) {
    const emu::LineCounts& line = worst.front();
    const emu::Counts& c = line.counts;
    const bool sectors = c.sectors - c.sectors_ideal > c.wavefronts - c.wavefronts_ideal;
    const std::string own = "kernels/" + record.kernel + ".cu:";
    rest = (line.at.starts_with(own) ? "line " + line.at.substr(own.size()) : line.at) + ", " +
           name_of(line.kind) + ": " +
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

void print_counters(const std::vector<Record>& records, bool full) {
  std::vector<const Record*> counted;
  for (const Record& record : records) {
    if (!record.lines.empty()) counted.push_back(&record);
  }
  if (counted.empty()) return;
  printf("\n");
  if (full) {
    for (const Record* record : counted) {
      printf("%s, by kind of instruction\n", record->kernel.c_str());
      print_kinds(*record);
      print_worst(*record);
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
  if (!full)
    printf("--counters full shows each kernel by kind of instruction, with its worst lines.\n");
}

}  // namespace fa
