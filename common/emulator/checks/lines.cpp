#include "common/emulator/checks/lines.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "common/emulator/core/counters.h"
#include "common/emulator/core/memory.h"

namespace emu {

std::vector<LineCounts> LineTable::lines() const {
  // A hook's return address lies behind its call.
  std::vector<uintptr_t> program_counters;
  for (const auto& [key, counts] : counts_) {
    if (!key.place.file) program_counters.push_back(key.place.at - 1);
  }
  const std::vector<std::string> places = symbolise(program_counters);

  std::map<std::tuple<std::string, uint64_t, Kind>, Counts> sorted;  // by file, line and kind
  auto place = places.begin();
  for (const auto& [key, counts] : counts_) {
    std::string file = "?";
    uint64_t line = 0;
    if (key.place.file) {
      file = relative_path(key.place.file);
      line = key.place.at;
    } else if (const size_t colon = place->rfind(':'); colon != std::string::npos) {
      file = place->substr(0, colon);
      line = strtoull(place->c_str() + colon + 1, nullptr, 10);
    }
    if (!key.place.file) place++;
    sorted[{file, line, key.kind}] += counts;
  }

  std::vector<LineCounts> result;
  for (const auto& [key, counts] : sorted) {
    const auto& [file, line, kind] = key;
    result.push_back({line ? file + ":" + std::to_string(line) : file, kind, counts});
  }
  return result;
}

}  // namespace emu
