// tests/broken/bugs.json: what was found, and is shown in docs/bugs.md.
#pragma once

#include <nlohmann/json.hpp>

#include "tests/broken/bug.h"
#include "tests/support.h"

namespace fa::test {

inline constexpr const char* kRewrite =
    "tests/broken/bugs.json is out of date: build the target meet_checked, then\n"
    "build/emulator/bin/meet_checked --json tests/broken/bugs.json";

inline const nlohmann::json& all_committed() {
  static const auto rows = nlohmann::json::parse(read_file(FA_BUGS_FILE));
  return rows;
}

inline nlohmann::json committed(const broken::Bug& bug) {
  for (const auto& row : all_committed()) {
    if (row["name"] == bug.name) return row;
  }
  ADD_FAILURE() << bug.name << " is not there; " << kRewrite;
  return {};
}

}  // namespace fa::test
