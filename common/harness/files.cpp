#include "common/harness/files.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "common/launch/problem.h"

namespace fa {
namespace fs = std::filesystem;

namespace {

bool takes_lines(const Json& value, bool whole = false) {
  if (value.is_list()) {
    return std::any_of(value.begin(), value.end(),
                       [](const Json& each) { return each.is_object(); });
  }
  return value.is_object() && (whole || !value.contains("kernel")) &&
         std::any_of(value.begin(), value.end(),
                     [](const Json& each) { return takes_lines(each); });
}

std::string text_of(const Json& value, bool whole = false) {
  if (!takes_lines(value, whole)) return value.dump();
  std::string text = value.is_list() ? "[" : "{";
  for (size_t i = 0; i < value.size(); i++) {
    text += i == 0 ? "\n" : ",\n";
    if (value.is_object()) text += Json(value.key(i)).dump() + ": ";
    text += text_of(value[i]);
  }
  return text + (value.is_list() ? "\n]" : "\n}");
}

BadInput cannot_write(const std::string& path, int reason) {
  return BadInput("cannot write " + path + ": " + strerror(reason));
}

// A file of ours beside the one that is to be written.
std::string beside(const std::string& path) { return path + ".tmp-" + std::to_string(getpid()); }

}  // namespace

bool is_special(const std::string& path) {
  std::error_code unknown;
  const fs::file_status status = fs::status(path, unknown);
  return fs::exists(status) && !fs::is_regular_file(status);
}

void check_writable(const std::string& path) {
  std::error_code unknown;
  if (fs::is_directory(path, unknown)) throw cannot_write(path, EISDIR);
  if (is_special(path)) {
    if (access(path.c_str(), W_OK) != 0) throw cannot_write(path, errno);
    return;
  }
  FILE* const file = fopen(beside(path).c_str(), "wb");
  if (!file) throw cannot_write(path, errno);
  fclose(file);
  remove(beside(path).c_str());
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code unknown;
  return !a.empty() && !b.empty() && !is_special(a) &&
         fs::weakly_canonical(fs::absolute(a, unknown), unknown) ==
             fs::weakly_canonical(fs::absolute(b, unknown), unknown);
}

void write_file_whole(const std::string& path, const std::string& contents) {
  // A device, a pipe or a link is written to as it is: a rename would put an ordinary file in its
  // place.
  std::error_code unknown;
  const bool direct = fs::is_symlink(path, unknown) || is_special(path);
  const std::string written = direct ? path : beside(path);
  FILE* const file = fopen(written.c_str(), "wb");
  if (!file) throw cannot_write(path, errno);
  const bool complete =
      fwrite(contents.data(), 1, contents.size(), file) == contents.size() && fflush(file) == 0;
  int reason = complete ? 0 : errno;
  if (fclose(file) != 0 && !reason) reason = errno;
  if (!reason && !direct && rename(written.c_str(), path.c_str()) != 0) reason = errno;
  if (!reason) return;
  if (!direct) remove(written.c_str());
  throw cannot_write(path, reason);
}

std::string lines_of(const Json& value) { return text_of(value, true) + "\n"; }

}  // namespace fa
