// Small kernels that need one act of synchronisation each, with and without it, compiled with the checked
// build's instrumentation.
#pragma once

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
};
std::vector<RaceCase> race_cases();

// Bytes of shared memory that a CTA needs; elements of in and out.
int race_shared_bytes();
inline constexpr int kRaceCount = 1024;

// Where the two accesses are that race; second_line is 0 if there is only one.
extern int first_line, second_line;

}  // namespace probe
