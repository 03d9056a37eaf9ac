#include "common/harness/json_lines.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace fa {
namespace {

using json = nlohmann::ordered_json;

bool takes_lines(const json& value, bool whole = false) {
  if (value.is_array()) {
    return std::any_of(value.begin(), value.end(),
                       [](const json& each) { return each.is_object(); });
  }
  return value.is_object() && (whole || !value.contains("kernel")) &&
         std::any_of(value.begin(), value.end(),
                     [](const json& each) { return takes_lines(each); });
}

std::string text_of(const json& value, bool whole = false) {
  if (!takes_lines(value, whole)) return value.dump();
  std::string text = value.is_array() ? "[" : "{";
  const char* separator = "\n";
  for (const auto& [key, part] : value.items()) {
    text += separator;
    if (value.is_object()) text += json(key).dump() + ": ";
    text += text_of(part);
    separator = ",\n";
  }
  return text + (value.is_array() ? "\n]" : "\n}");
}

}  // namespace

std::string lines_of(const json& value) { return text_of(value, true) + "\n"; }

}  // namespace fa
