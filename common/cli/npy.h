// NumPy's .npy files, so that a kernel can be checked on tensors of one's own model. Format:
// numpy.lib.format, "Format Version 1.0" and 2.0. (The libraries that Debian packages for it know
// neither 16-bit floats nor truncated files.)
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/harness/inputs.h"
#include "common/launch/problem.h"

namespace fa {

struct NpyTensor {
  std::array<int, 4> shape{};  // [batch, heads, seq_len, head_dim]
  std::vector<uint16_t> bits;  // in the dtype asked for
};

// Reads a C-ordered, four-dimensional array. Accepted element types: '<f2' (for fp16 exactly),
// '<f4' and '<f8' (rounded to the dtype), and '<V2' or '<u2' as bf16 patterns, which is how
// ml_dtypes.bfloat16 arrays and int16 views of them are stored. Throws BadInput, naming the file,
// for anything else, for what is not a regular file, and for the first element that is not finite.
NpyTensor read_npy(const std::string& path, Dtype dtype);

// Writes a tensor in the shape of O: '<f2' for fp16 and '<f4' for bf16 (exactly widened: NumPy has
// no bf16 of its own). The file appears whole or not at all. Throws BadInput.
void write_npy(const std::string& path, const Problem& problem, const std::vector<uint16_t>& bits);

// The files of Q, K and V.
struct NpyPaths {
  std::string q, k, v;
};

// Q, K and V from files of one shape that every kernel takes; the problem gets this shape. Throws
// BadInput.
Inputs read_inputs(const NpyPaths& paths, Problem& problem);

}  // namespace fa
