// Results for machines: JSON, bench/schema.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/harness/runner.h"
#include "common/launch/problem.h"

namespace fa {

// The present time in UTC, as results files write it: 2026-11-21T10:00:00Z.
std::string utc_now();

// As in a results file: a record, and the fields of a record that a measurement gives.
nlohmann::ordered_json to_json(const Record& record);

// ", scores of std 20, growing", or nothing.
std::string describe(const std::optional<Scores>& scores);

// A sentence for each problem on which the SM clocks of two kernels lay more than 3 % apart.
std::vector<std::string> clock_notes(const std::vector<Record>& records);

// Writes the records as a results file: whole or not at all. `command`: the arguments, the
// program's name without its folder. Throws BadInput if the file cannot be written.
void write_results(const std::string& path, const std::vector<std::string>& command,
                   const Protocol& protocol, const std::vector<Record>& records);

}  // namespace fa
