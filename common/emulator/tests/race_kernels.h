// Small kernels that need one act of synchronisation each, with and without it, compiled with the
// checked build's instrumentation.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/launch/launch.h"

namespace probe {

struct RaceCase {
  std::string name;
  int ctas, cluster, threads;
  void (*body)(bool right, const float* in, float* out);  // `right`: with the synchronisation
  std::string problem;                                    // how the report begins
  std::string cure;                                       // what it says is missing
  std::string file;
};
std::vector<RaceCase>& race_cases();

struct ListedRace {
  explicit ListedRace(const RaceCase& each) { race_cases().push_back(each); }
};

// RACE(threads, name, problem, cure) { the body of a kernel of one CTA }: defines it and lists it.
#define RACE_KERNEL(ctas, cluster, threads, name, problem, cure)                \
  void name(bool right, const float* in, float* out);                           \
  const ListedRace name##_listed(                                               \
      RaceCase{#name, ctas, cluster, threads, &name, problem, cure, __FILE__}); \
  void name(bool right, const float* in, float* out)
#define RACE(...) RACE_KERNEL(1, 1, __VA_ARGS__)

// The next line is the first (second) access of the race.
#define FIRST first_line = __LINE__ + 1
#define SECOND second_line = __LINE__ + 1

inline int thread() { return int(threadIdx.x); }
inline int lane() { return thread() % 32; }

// Bytes of shared memory that a CTA has; elements of in and out.
inline constexpr size_t kRaceSharedBytes = 4096;
inline constexpr int kRaceCount = 1024;

// Where the two accesses are that race; second_line is 0 if there is only one.
extern int first_line, second_line;

}  // namespace probe
