#include "common/harness/sources.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "common/harness/device.h"

namespace fa {
namespace {

namespace fs = std::filesystem;

// Without indentation and comment.
std::string code_of(std::string line) {
  line.erase(std::min(line.find("//"), line.size()));
  line.erase(0, std::min(line.find_first_not_of(" \t"), line.size()));
  line.erase(line.find_last_not_of(" \t\r") + 1);
  return line;
}

// Whether the next line begins a statement.
bool ends_statement(const std::string& code) {
  return code.empty() || code.starts_with('#') || strchr(";{}:", code.back());
}

// The statement in which each line of a source file lies; nothing if the file is not there, or not
// as it was when the program was built.
std::vector<std::string> statements_of(const std::string& name) {
  std::error_code error;
  const fs::path program = fs::canonical(image_file(), error);
  fs::path file = fs::current_path(error) / name, folder = program.parent_path();
  for (; !fs::is_regular_file(file, error) && folder.has_relative_path();
       folder = folder.parent_path())
    file = folder / name;
  std::vector<std::string> result;
  // Sources in the library's own folder were installed with it, whatever came first.
  const bool installed = file == program.parent_path() / name;
  if (!installed && fs::last_write_time(file, error) > fs::last_write_time(program, error)) {
    return result;
  }
  std::ifstream stream(file);
  std::string text;
  size_t count = 0;  // of lines
  for (std::string line; std::getline(stream, line); count++) {
    const std::string code = code_of(line);
    if (!text.empty() && !code.empty() && text.back() != '(') text += ' ';
    text += code;
    if (ends_statement(code)) {
      result.resize(count + 1, text);
      text.clear();
    }
  }
  result.resize(count, text);
  return result;
}

}  // namespace

Place place_of(const std::string& at) {
  static std::map<std::string, std::vector<std::string>> known;  // by file
  const size_t colon = at.rfind(':');
  if (colon == std::string::npos) return {at == "?" ? "" : at, ""};
  const std::string file = at.substr(0, colon);
  auto found = known.find(file);
  if (found == known.end()) found = known.emplace(file, statements_of(file)).first;
  const size_t line = size_t(atoi(at.c_str() + colon + 1));
  const std::vector<std::string>& statements = found->second;
  return {file, line >= 1 && line <= statements.size() ? statements[line - 1] : ""};
}

std::string source_of(const std::string& kernel) {
  // CMake lets scripts/fa_tools/sources.py write the table.
  static const std::map<std::string, std::string> sources = {
#include FA_KERNEL_SOURCES
  };
  const auto found = sources.find(kernel);
  return found == sources.end() ? "" : found->second;
}

}  // namespace fa
