#include "common/harness/sources.h"

#include <map>
#include <string>

namespace fa {

std::string source_of(const std::string& kernel) {
  // CMake lets scripts/fa_tools/sources.py write the table.
  static const std::map<std::string, std::string> sources = {
#include FA_KERNEL_SOURCES
  };
  const auto found = sources.find(kernel);
  return found == sources.end() ? "" : found->second;
}

}  // namespace fa
