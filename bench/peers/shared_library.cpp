#include "bench/peers/shared_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "common/launch/problem.h"

namespace fa {
namespace {

// Folders in which Python looks for packages; none without Python.
std::vector<std::string> python_folders() {
  std::vector<std::string> folders;
  FILE* const pipe = popen(
      "\"${PYTHON:-python3}\" -c 'import sys; print(*sys.path, sep=\"\\n\")' 2>/dev/null "
      "</dev/null",
      "r");
  if (!pipe) return folders;
  std::string line;
  for (int c; (c = fgetc(pipe)) != EOF;) {
    if (c != '\n') {
      line += char(c);
    } else {
      if (!line.empty()) folders.push_back(line);
      line.clear();
    }
  }
  pclose(pipe);
  return folders;
}

// folder/nvidia/*/lib/file, in alphabetical order.
std::vector<std::string> candidates(const std::string& file) {
  namespace fs = std::filesystem;
  std::vector<std::string> found;
  for (const std::string& folder : python_folders()) {
    std::error_code ignored;  // a folder that is not there or not ours to read holds no library
    std::vector<std::string> here;
    for (const auto& package : fs::directory_iterator(fs::path(folder) / "nvidia", ignored)) {
      const fs::path path = package.path() / "lib" / file;
      if (fs::exists(path, ignored)) here.push_back(path);
    }
    std::sort(here.begin(), here.end());
    found.insert(found.end(), here.begin(), here.end());
  }
  return found;
}

struct Opened {
  void* library = nullptr;
  std::string reason;  // if there is none
};

Opened open_first(const std::string& file) {
  const std::string missing = file + " was not found by the loader or in Python's packages " +
                              "(LD_LIBRARY_PATH, nvidia/*/lib)";
  if (void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return {library, ""};
  // The loader's text begins with the path of the file that it stumbled over; results name no
  // folders.
  auto without_folder = [](const std::string& text) {
    const size_t colon = text.find(':');
    const size_t slash = text.substr(0, colon).rfind('/');
    return slash == std::string::npos ? text : text.substr(slash + 1);
  };
  std::string problem = without_folder(dlerror());
  if (problem.starts_with(file + ": cannot open shared object file")) problem.clear();
  for (const std::string& path : candidates(file)) {
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return {library, ""};
    problem = without_folder(dlerror());
  }
  return {nullptr, problem.empty() ? missing : file + " does not load: " + problem};
}

}  // namespace

void* open_library(const std::string& file) {
  static std::map<std::string, Opened> opened;
  auto at = opened.find(file);
  if (at == opened.end()) at = opened.emplace(file, open_first(file)).first;
  if (!at->second.library) throw Unsupported(at->second.reason);
  return at->second.library;
}

void* find_symbol(void* library, const char* name) {
  void* const symbol = dlsym(library, name);
  if (!symbol) throw Unsupported(std::string("the library found has no function ") + name);
  return symbol;
}

}  // namespace fa
