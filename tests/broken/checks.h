// What each check says about a broken kernel: the facts of its row in tests/broken/facts.json.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/harness/json.h"    // IWYU pragma: export
#include "common/harness/runner.h"  // IWYU pragma: export
#include "common/launch/problem.h"  // IWYU pragma: export
#include "tests/broken/bug.h"       // IWYU pragma: export

namespace fa::broken {

// A row of tests/broken/facts.json, or some keys of one:
//   numbers          "right", "wrong" or "stops" by inputs, in the emulator's own order of threads,
//                    copies as late as they may come
//   stops            the kind of report with which the first launch of those ended that did
//   early            the verdict on ordinary inputs if copies come early
//   report, at       the kind of the checked build's report, and the statements that it names, each
//                    by its first line; not there if it has nothing to report
//   counter, ratio   the counter that is at least half as large again as the real kernel's
using Facts = Json;

// Its kernel, of whichever list: of a kernel of gradients what it needs and takes.
const Kernel& kernel_of(const Bug& bug);

// The path of facts.json, which has a row for each bug.
std::string facts_file();

// The bug's committed row, {} if it has none.
Facts committed(const Bug& bug);

// bf16, batch 1, heads 2, seq_len 256, head_dim 128: what the programs run on if not told
// otherwise. From kernel 11 on seq_len 512, so that rings of two stages go round twice; heads 1, or
// 2 if a CTA is to have three query tiles.
Problem problem_of(const Bug& bug);

// What its numbers are looked at on: all inputs; of a kernel before 16, whose row maximum lags
// behind by little, without the hot ones. Of FP8 without them, too, but with those that are hard on
// FP8 alone.
const std::vector<std::string>& inputs_of(const Bug& bug);

// Inputs on which the checked build is asked: ordinary ones if numbers are wrong there, or nowhere;
// else the first on which they are. `facts` has "numbers".
std::string inputs_of_report(const Facts& facts);

// The bug's launches, or those of another kernel in its place, with the detector of races or
// without. `early`: copies happen at once.
Record run(const Bug& bug, const std::string& kernel, const Problem& problem,
           const std::string& inputs, bool races = false, bool early = false);

// "right", "wrong", or "stops": the launch ended without a result.
std::string verdict_of(const Record& record);

// The kind of a report, in few words: "race between warps", "deadlock", ...
std::string kind_of(const std::string& report);

// The counters that are compared, as the bug's over the real kernel's.
std::map<std::string, double> ratios(const Record& broken, const Record& real);

// "report" and "at", of a launch with the detector of races.
Facts facts_of_report(const Bug& bug, const Record& record);

// "counter" and "ratio".
Facts facts_of_counters(const Record& broken, const Record& real);

// A sentence if the check of shown_by does not show the bug, by its facts; else "".
std::string not_shown(const Bug& bug, const Facts& facts);

}  // namespace fa::broken
