#include "common/cli/result_table.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "common/harness/device.h"
#include "common/harness/oracle.h"
#include "common/harness/results.h"
#include "common/harness/runner.h"
#include "common/launch/problem.h"

namespace fa {
std::string with_unit(double value) {
  char text[32];
  const char* const units[] = {"", " k", " M", " G", " T"};
  size_t unit = 0;
  for (; value >= 9999.5 && unit < 4; unit++) value /= 1000;
  snprintf(text, sizeof text, unit ? "%.1f%s" : "%.0f%s", value, units[unit]);
  return text;
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
        return count_of(record.counts.counters, "global_sectors") > 0;
      });
  auto bar_value = [&](const Record& record) {
    return gpu ? record.tflops(record.times)
               : double(count_of(record.counts.counters, counted ? "global_sectors" : "exp2"));
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
    if (record.gbytes_per_s(record.times) > 0) {
      printf("%12.4f %9.0f GB/s  ", record.times->median, record.gbytes_per_s(record.times));
    } else if (record.times) {
      printf("%12.4f %14.2f  ", record.times->median, record.tflops(record.times));
    } else if (!gpu) {
      printf("%12s %14s  ",
             counted
                 ? with_unit(double(count_of(record.counts.counters, "shared_wavefronts"))).c_str()
                 : "-",
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
