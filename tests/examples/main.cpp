// Runs the examples: as they are, and without the line that each is about. Exit code 1 if one of
// them gives a wrong result, or none of its orders shows that the line is missing.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "common/emulator/core/launch.h"
#include "common/harness/device.h"
#include "common/launch/launch.h"
#include "common/launch/problem.h"
#include "tests/examples/examples.h"

namespace {

constexpr int kCount = 1024;  // numbers in `in`, and room in `out`

// "" if the numbers are right; otherwise what the emulator says, or which number is wrong.
std::string outcome(const fa::Example& example) {
  fa::Buffer in("in", kCount * sizeof(float)), out("out", kCount * sizeof(float));
  std::vector<float> numbers(kCount);
  for (int i = 0; i < kCount; i++) numbers[size_t(i)] = float(i);
  in.upload(numbers.data());
  out.poison();
  try {
    fa::launch_record().kernel = example.name;
    example.start(example.ctas, example.threads, static_cast<const float*>(in.data()),
                  static_cast<float*>(out.data()));
  } catch (const fa::BackendError& error) {
    return error.what();
  }
  out.download(numbers.data());
  for (int i = 0; i < example.count; i++) {
    const float wanted = example.expected(i), got = numbers[size_t(i)];
    if (!(got == wanted)) {
      return "out[" + std::to_string(i) + "] is " + std::to_string(int(got)) + " instead of " +
             std::to_string(int(wanted));
    }
  }
  return "";
}

// The fixed order, then five random ones: the first that is not right.
std::string first_problem(const fa::Example& example) {
  std::string result;
  for (uint64_t seed = 0; seed <= 5 && result.empty(); seed++) {
    emu::options() = {};
    emu::options().os_threads = 1;
    if (seed > 0) {
      emu::options().schedule = emu::Schedule::kRandom;
      emu::options().completion = emu::Completion::kRandom;
      emu::options().seed = seed;
    }
    result = outcome(example);
  }
  return result;
}

// At most three lines, in 96 columns.
void print(const std::string& text) {
  size_t begin = 0;
  for (int line = 0; line < 3 && begin < text.size(); line++) {
    size_t end = std::min(text.find('\n', begin), text.size());
    if (end - begin > 94) end = text.rfind(' ', begin + 94);
    std::printf("    %s\n", text.substr(begin, end - begin).c_str());
    begin = text.find_first_not_of(" \n", end);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1) {
    const bool help = std::string(arguments[1]) == "--help";
    if (help)
      std::puts("Runs all examples, with and without their lines.\nExample: examples");
    else
      std::fputs("error: examples takes no argument but --help\n", stderr);
    return help ? 0 : 2;
  }
  const auto as_it_is = fa::as_it_is::examples(), left_out = fa::left_out::examples();
  int bad = 0;
  for (size_t i = 0; i < as_it_is.size(); i++) {
    const std::string problem = first_problem(as_it_is[i]), without = first_problem(left_out[i]);
    std::printf("%-16s%s; without the line marked <-:\n", as_it_is[i].name,
                problem.empty() ? "right" : problem.c_str());
    print(without.empty() ? "right as well" : without);
    bad += !problem.empty() || without.empty();
  }
  return bad != 0;
}
