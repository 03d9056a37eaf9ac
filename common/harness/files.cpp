#include "common/harness/files.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "common/launch/problem.h"

namespace fa {
namespace fs = std::filesystem;

bool is_special(const std::string& path) {
  std::error_code unknown;
  const fs::file_status status = fs::status(path, unknown);
  return fs::exists(status) && !fs::is_regular_file(status);
}

void check_writable(const std::string& path) {
  const auto bad = [&](int reason) {
    return BadInput("cannot write " + path + ": " + strerror(reason));
  };
  std::error_code unknown;
  if (fs::is_directory(path, unknown)) throw bad(EISDIR);
  if (is_special(path)) {
    if (access(path.c_str(), W_OK) != 0) throw bad(errno);
    return;
  }
  const std::string temporary = path + ".tmp-" + std::to_string(getpid());
  FILE* const file = fopen(temporary.c_str(), "wb");
  if (!file) throw bad(errno);
  fclose(file);
  remove(temporary.c_str());
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
  const std::string temporary = direct ? path : path + ".tmp-" + std::to_string(getpid());
  FILE* const file = fopen(temporary.c_str(), "wb");
  if (!file) throw BadInput("cannot write " + path + ": " + strerror(errno));
  bool written = fwrite(contents.data(), 1, contents.size(), file) == contents.size();
  written = fflush(file) == 0 && written;
  int reason = errno;
  if (fclose(file) != 0 && written) {
    written = false;
    reason = errno;
  }
  if (written && !direct && rename(temporary.c_str(), path.c_str()) != 0) {
    written = false;
    reason = errno;
  }
  if (!written) {
    if (!direct) remove(temporary.c_str());
    throw BadInput("cannot write " + path + ": " + strerror(reason));
  }
}

}  // namespace fa
