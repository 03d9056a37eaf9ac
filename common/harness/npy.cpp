#include "common/harness/npy.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <limits>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "common/harness/inputs.h"
#include "common/harness/problem.h"

namespace fa {
namespace {

template <typename T>
T load(const char* from) {
  T value;
  memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace

NpyTensor read_npy(const std::string& path, Dtype dtype) {
  auto bad = [&](const std::string& why) { return BadInput(path + ": " + why); };
  std::ifstream file(path, std::ios::binary);
  if (!file) throw bad("cannot be read: " + std::string(strerror(errno)));
  std::ostringstream all;
  all << file.rdbuf();
  const std::string content = all.str();
  if (content.empty()) throw bad("cannot be read or is empty");

  // Magic, version, length of the header, header (a Python dictionary), data.
  if (content.size() < 10 || content.compare(0, 6, "\x93NUMPY") != 0)
    throw bad("is not a .npy file");
  const int version = static_cast<unsigned char>(content[6]);
  if (version < 1 || version > 3)
    throw bad("has an unknown .npy version " + std::to_string(version));
  const size_t prefix = version == 1 ? 10 : 12;
  if (content.size() < prefix) throw bad("is cut off in its header");
  const size_t header_bytes =
      version == 1 ? load<uint16_t>(&content[8]) : load<uint32_t>(&content[8]);
  if (content.size() - prefix < header_bytes) throw bad("is cut off in its header");
  if (header_bytes > 65536) throw bad("has a header of " + std::to_string(header_bytes) + " bytes");
  const std::string header = content.substr(prefix, header_bytes);

  std::smatch match;
  if (!std::regex_search(header, match, std::regex("'descr': *'([^']+)'")))
    throw bad("has no simple element type");
  const std::string descr = match[1];
  if (!std::regex_search(header, match, std::regex("'fortran_order': *False"))) {
    throw bad("is not in C order; save numpy.ascontiguousarray(...) instead");
  }
  if (!std::regex_search(
          header, match,
          std::regex("'shape': *\\( *(\\d{1,9}), *(\\d{1,9}), *(\\d{1,9}), *(\\d{1,9}),? *\\)"))) {
    throw bad("is not a four-dimensional array [batch, heads, seq_len, head_dim]");
  }
  NpyTensor tensor;
  size_t count = 1;
  for (size_t i = 0; i < 4; i++) {
    tensor.shape[i] = std::stoi(match[i + 1]);
    if (tensor.shape[i] != 0 &&
        count > std::numeric_limits<size_t>::max() / 16 / size_t(tensor.shape[i])) {
      throw bad("has an impossible shape");
    }
    count *= size_t(tensor.shape[i]);
  }

  const bool raw_bf16 = descr == "<V2" || descr == "|V2" || descr == "<u2" || descr == "<i2";
  const size_t item = descr == "<f4" ? 4 : descr == "<f8" ? 8 : 2;
  if (!(raw_bf16 && dtype == Dtype::kBf16) && !(descr == "<f2" && dtype == Dtype::kFp16) &&
      descr != "<f4" && descr != "<f8") {
    throw bad("has elements of type '" + descr + "'; --dtype " + name_of(dtype) + " accepts " +
              (dtype == Dtype::kFp16 ? "'<f2'" : "bf16 patterns ('<V2', '<u2')") +
              ", '<f4' and '<f8'");
  }
  const char* const data = content.data() + prefix + header_bytes;
  const size_t data_bytes = content.size() - prefix - header_bytes;
  if (data_bytes != count * item) {
    throw bad("has " + std::to_string(data_bytes) + " bytes of data where its shape needs " +
              std::to_string(count * item));
  }
  tensor.bits.resize(count);
  for (size_t i = 0; i < count; i++) {
    tensor.bits[i] = item == 4   ? from_float(load<float>(data + i * 4), dtype)
                     : item == 8 ? from_float(float(load<double>(data + i * 8)), dtype)
                                 : load<uint16_t>(data + i * 2);
  }
  return tensor;
}

void write_npy(const std::string& path, const Problem& problem, const std::vector<uint16_t>& bits) {
  const bool half = problem.dtype == Dtype::kFp16;
  std::string header = std::string("{'descr': '") + (half ? "<f2" : "<f4") +
                       "', 'fortran_order': False, 'shape': (" + std::to_string(problem.batch) +
                       ", " + std::to_string(problem.heads) + ", " +
                       std::to_string(problem.seq_len) + ", " + std::to_string(problem.head_dim) +
                       "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');  // data starts at a multiple of 64
  header += '\n';
  std::string content("\x93NUMPY\x01\x00", 8);
  content += char(header.size() & 0xff);
  content += char(header.size() >> 8);
  content += header;
  for (const uint16_t element : bits) {
    const float wide = to_float(element, problem.dtype);
    content.append(
        half ? reinterpret_cast<const char*>(&element) : reinterpret_cast<const char*>(&wide),
        half ? 2 : 4);
  }
  write_file_whole(path, content);
}

void check_writable(const std::string& path) {
  const std::string temporary = path + ".tmp-" + std::to_string(getpid());
  FILE* const file = fopen(temporary.c_str(), "wb");
  if (!file) throw BadInput("cannot write " + path + ": " + strerror(errno));
  fclose(file);
  remove(temporary.c_str());
}

void write_file_whole(const std::string& path, const std::string& contents) {
  // A device, a pipe or a link is written to as it is: a rename would put an ordinary file in its place.
  namespace fs = std::filesystem;
  const bool direct = fs::is_symlink(path) || (fs::exists(path) && !fs::is_regular_file(path));
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
