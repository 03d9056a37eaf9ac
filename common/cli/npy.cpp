#include "common/cli/npy.h"

#include <array>
#include <cerrno>
#include <cmath>
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
#include <system_error>
#include <utility>
#include <vector>

#include "common/harness/files.h"
#include "common/harness/inputs.h"
#include "common/launch/problem.h"

namespace fa {
namespace fs = std::filesystem;
namespace {

// What a file says, for a message: short, and nothing in it moves the terminal's cursor.
std::string quoted(const std::string& text) {
  std::string result;
  for (const char c : text.substr(0, 40)) {
    char hex[8];
    snprintf(hex, sizeof hex, c >= ' ' && c <= '~' ? "%c" : "\\x%02x",
             static_cast<unsigned char>(c));
    result += hex;
  }
  return "'" + result + (text.size() > 40 ? "...'" : "'");
}

template <typename T>
T load(const char* from) {
  T value;
  memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace

NpyTensor read_npy(const std::string& path, Dtype dtype) {
  auto bad = [&](const std::string& why) { return BadInput(path + ": " + why); };
  if (is_special(path)) throw bad("cannot be read: it is not a regular file");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw bad("cannot be read: " + std::string(strerror(errno)));
  const auto read = [&](size_t bytes) {
    std::string text(bytes, '\0');
    file.read(text.data(), std::streamsize(bytes));
    text.resize(size_t(file.gcount()));
    return text;
  };

  // Magic, version, length of the header, header (a Python dictionary), data.
  std::string prefix = read(10);
  if (prefix.empty()) throw bad("cannot be read or is empty");
  if (prefix.size() < 10 || prefix.compare(0, 6, "\x93NUMPY") != 0) throw bad("is not a .npy file");
  const int version = static_cast<unsigned char>(prefix[6]);
  if (version < 1 || version > 3)
    throw bad("has an unknown .npy version " + std::to_string(version));
  if (version > 1) prefix += read(2);
  if (version > 1 && prefix.size() < 12) throw bad("is cut off in its header");
  const size_t header_bytes =
      version == 1 ? load<uint16_t>(&prefix[8]) : load<uint32_t>(&prefix[8]);
  if (header_bytes > 10000) throw bad("has a header of " + std::to_string(header_bytes) + " bytes");
  const std::string header = read(header_bytes);
  if (header.size() < header_bytes) throw bad("is cut off in its header");

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
    throw bad("has elements of type " + quoted(descr) + "; --dtype " + name_of(dtype) +
              " accepts " + (dtype == Dtype::kFp16 ? "'<f2'" : "bf16 patterns ('<V2', '<u2')") +
              ", '<f4' and '<f8'");
  }
  std::error_code unknown;
  const size_t data_bytes = fs::file_size(path, unknown) - prefix.size() - header_bytes;
  if (data_bytes != count * item) {
    throw bad("has " + std::to_string(data_bytes) + " bytes of data where its shape needs " +
              std::to_string(count * item));
  }
  const std::string data = read(data_bytes);
  if (data.size() != data_bytes) throw bad("cannot be read to its end");
  tensor.bits.resize(count);
  for (size_t i = 0; i < count; i++) {
    const double value = item == 4   ? double(load<float>(&data[i * 4]))
                         : item == 8 ? load<double>(&data[i * 8])
                                     : double(to_float(load<uint16_t>(&data[i * 2]), dtype));
    // Two bytes are the pattern itself.
    tensor.bits[i] =
        item == 2 ? load<uint16_t>(&data[i * 2]) : from_float(static_cast<float>(value), dtype);
    if (std::isfinite(to_float(tensor.bits[i], dtype))) continue;
    std::string index;
    for (size_t dimension = 4, rest = i; dimension-- > 0;) {
      const size_t extent = size_t(tensor.shape[dimension]);
      index = std::to_string(rest % extent) + (index.empty() ? "" : ", ") + index;
      rest /= extent;
    }
    char text[32];
    snprintf(text, sizeof text, "%g", value);
    throw bad("element [" + index + "] is " + text +
              (std::isfinite(value) ? std::string(", which ") + name_of(dtype) + " cannot hold"
                                    : ", but every element must be a finite number"));
  }
  return tensor;
}

void write_npy(const std::string& path, const Problem& problem, const std::vector<uint16_t>& bits) {
  const bool half = problem.dtype == Dtype::kFp16;
  std::string header = std::string("{'descr': '") + (half ? "<f2" : "<f4") +
                       "', 'fortran_order': False, 'shape': (" + std::to_string(problem.blocks()) +
                       ", " + std::to_string(problem.heads) + ", " +
                       std::to_string(problem.q_rows()) + ", " + std::to_string(problem.head_dim) +
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

Inputs read_inputs(const NpyPaths& from, Problem& problem) {
  Inputs inputs;
  const std::string* const paths[] = {&from.q, &from.k, &from.v};
  std::vector<uint16_t>* const tensors[] = {&inputs.q, &inputs.k, &inputs.v};
  std::array<int, 4> shape{};
  for (size_t i = 0; i < 3; i++) {
    NpyTensor tensor = read_npy(*paths[i], problem.dtype);
    problem.batch = tensor.shape[0];
    problem.heads = tensor.shape[1];
    problem.seq_len = tensor.shape[2];
    problem.head_dim = tensor.shape[3];
    try {
      validate(problem);
    } catch (const BadInput& error) {
      throw BadInput(*paths[i] + ": no kernel takes its shape: " + error.what());
    }
    if (i > 0 && tensor.shape != shape)
      throw BadInput(*paths[i] + ": its shape differs from that of " + from.q);
    shape = tensor.shape;
    *tensors[i] = std::move(tensor.bits);
  }
  return inputs;
}

}  // namespace fa
