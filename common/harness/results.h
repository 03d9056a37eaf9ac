// Results for machines (JSON, bench/schema.json) and for people (a table).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/harness/problem.h"
#include "common/harness/runner.h"

namespace fa {

// The present time in UTC, as results files write it: 2026-11-21T10:00:00Z.
std::string utc_now();

// As in a results file: a record, and the fields of a record that a measurement gives.
nlohmann::ordered_json to_json(const Record& record);
nlohmann::ordered_json to_json(const Times& times);

// A sentence for each problem on which the SM clocks of two kernels lay more than 3 % apart.
std::vector<std::string> clock_notes(const std::vector<Record>& records);

// Writes the records as a results file: whole or not at all. `command`: the arguments, the program's
// name without its folder. Throws BadInput if the file cannot be written.
void write_results(const std::string& path, const std::vector<std::string>& command,
                   const Protocol& protocol, const std::vector<Record>& records);

// For people: 512, 67.1 M.
std::string with_unit(double value);

// Prints a table of at most 100 columns. `color`: with ANSI colours.
void print_table(const Problem& problem, const std::vector<Record>& records, bool color);

}  // namespace fa
