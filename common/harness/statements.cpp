#include "common/harness/statements.h"

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

#include "common/emulator/core/counters.h"

namespace fa {
namespace {

namespace fs = std::filesystem;

// The lines of a source file as they were when the program was built; none if that is not known.
std::vector<std::string> lines_of(const std::string& name) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  std::vector<fs::path> folders = {fs::current_path(error)};
  for (fs::path folder = program.parent_path(); folder.has_relative_path();) {
    folders.push_back(folder);
    folder = folder.parent_path();
  }
  for (const fs::path& folder : folders) {
    const fs::path file = folder / name;
    if (!fs::is_regular_file(file, error)) continue;
    if (fs::last_write_time(file, error) > fs::last_write_time(program, error)) return {};
    std::ifstream stream(file);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
  return {};
}

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

// Of each line: the statement in which it lies.
std::vector<std::string> statements_of(const std::vector<std::string>& lines) {
  std::vector<std::string> result(lines.size());
  for (size_t first = 0, end; first < lines.size(); first = end) {
    std::string text;
    for (end = first; end < lines.size();) {
      const std::string code = code_of(lines[end++]);
      if (!text.empty() && !code.empty() && text.back() != '(') text += ' ';
      text += code;
      if (ends_statement(code)) break;
    }
    std::fill(result.begin() + ptrdiff_t(first), result.begin() + ptrdiff_t(end), text);
  }
  return result;
}

}  // namespace

Place place_of(const std::string& at) {
  static std::map<std::string, std::vector<std::string>> known;  // by file
  const size_t colon = at.rfind(':');
  if (colon == std::string::npos) return {at == "?" ? "" : at, ""};
  const std::string file = at.substr(0, colon);
  auto found = known.find(file);
  if (found == known.end()) found = known.emplace(file, statements_of(lines_of(file))).first;
  const size_t line = size_t(atoi(at.c_str() + colon + 1));
  const std::vector<std::string>& statements = found->second;
  return {file, line >= 1 && line <= statements.size() ? statements[line - 1] : ""};
}

std::vector<StatementCounts> by_statement(const std::vector<emu::LineCounts>& lines) {
  std::vector<StatementCounts> result;
  for (const emu::LineCounts& line : lines) {
    const Place place = place_of(line.at);
    const auto same = std::find_if(result.begin(), result.end(), [&](const auto& each) {
      return each.kind == line.kind && each.place.file == place.file &&
             each.place.statement == place.statement;
    });
    if (same == result.end()) {
      result.push_back({place, line.kind, line.counts});
    } else {
      same->counts += line.counts;
    }
  }
  return result;
}

}  // namespace fa
