// What each check says about a broken kernel, and whether that is what bugs.toml declares.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/harness/runner.h"
#include "common/launch/problem.h"
#include "tests/broken/bug.h"

namespace fa::broken {

// bf16, batch 1, heads 2, seq_len 256, head_dim 128: what the programs run on if not told
// otherwise. From kernel 11 on seq_len 512, so that rings of two stages go round twice; heads 1, or
// 2 if a CTA is to have three query tiles.
Problem problem_of(const Bug& bug);

// What its numbers are looked at on: all inputs; of a kernel before 16, whose row maximum lags
// behind by little, without the hot ones.
const std::vector<std::string>& inputs_of(const Bug& bug);

// One launch, with the detector of races or without. `early`: copies happen at once.
Record run(const std::string& kernel, const Problem& problem, const std::string& inputs,
           bool races = false, bool early = false);

// "right", "wrong", or "stops": the launch ended without a result.
std::string verdict_of(const Record& record);

// The kind of a report, in few words: "race between warps", "deadlock", ...
std::string kind_of(const std::string& report);

// Inputs on which the checked build must show it.
std::string inputs_of_report(const Bug& bug);

// The counters that COUNTED may name, as the bug's over the real kernel's.
std::map<std::string, double> ratios(const Record& broken, const Record& real);

// Each returns a sentence on what is not as declared, or nothing.
std::string unlike_numbers(const Bug& bug, const std::string& inputs, const Record& record);
std::string unlike_early(const Bug& bug, const Record& record);
std::string unlike_report(const Bug& bug, const Record& record);
std::string unlike_places(const Bug& bug, const Record& record);  // lines that the report must name
std::string unlike_counters(const Bug& bug, const Record& broken, const Record& real);

}  // namespace fa::broken
