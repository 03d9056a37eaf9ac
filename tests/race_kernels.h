// Small kernels that need one act of synchronisation each, with and without it, compiled with the
// checked build's instrumentation.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace probe {

struct RaceCase {
  std::string name;
  int ctas, threads;
  void (*body)(bool right, const float* in, float* out);  // `right`: with the synchronisation
  std::string problem;                                    // how the report begins
  std::string cure;                                       // what it says is missing
  std::string file = "tests/race_kernels.cpp";
  int cluster = 1;
};
std::vector<RaceCase> race_cases();        // of what threads do
std::vector<RaceCase> async_race_cases();  // of what runs beside them

// Bytes of shared memory that a CTA has; elements of in and out.
inline constexpr size_t kRaceSharedBytes = 4096;
inline constexpr int kRaceCount = 1024;

// Where the two accesses are that race; second_line is 0 if there is only one.
extern int first_line, second_line;

}  // namespace probe
