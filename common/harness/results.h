// Results for machines: JSON, bench/schema.json.
#pragma once

#include <string>
#include <vector>

#include "common/harness/device.h"  // IWYU pragma: export
#include "common/harness/json.h"    // IWYU pragma: export
#include "common/harness/runner.h"  // IWYU pragma: export
#include "common/launch/problem.h"  // IWYU pragma: export

namespace fa {

// The present time in UTC, as results files write it: 2026-11-21T10:00:00Z.
std::string utc_now();

// A record as in a results file.
Json to_json(const Record& record);

// The fields "counters" and "statements" of a record: what one emulated run of a kernel did.
Json counts_to_json(const std::string& kernel, const LaunchCounts& counts);

// What of a problem is more than dtype and shape: ", scores of std 20, growing, mask causal", or
// nothing.
std::string describe_rest(const Problem& problem);

// The fields of a record that only problems beyond the plain one have: mask, kv_len, kv_heads,
// lengths, kv_lengths and attended_pairs.
Json rest_to_json(const Problem& problem);

// A sentence for each problem on which the SM clocks of two kernels lay more than 3 % apart.
std::vector<std::string> clock_notes(const std::vector<Record>& records);

// Writes the records as a results file: whole or not at all. `command`: the arguments, the
// program's name without its folder. Throws BadInput if the file cannot be written.
void write_results(const std::string& path, const std::vector<std::string>& command,
                   const Protocol& protocol, const std::vector<Record>& records);

}  // namespace fa
