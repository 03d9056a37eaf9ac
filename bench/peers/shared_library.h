// Libraries that are opened when they are first needed, so that `peers` starts where they are
// missing and runs where PyTorch's packages brought them.
#pragma once

#include <string>

namespace fa {

// Opens a library by its file's name ("libcudnn.so.9"): where the loader looks (LD_LIBRARY_PATH,
// its cache), else in nvidia/*/lib of Python's packages, where PyTorch has it. Python is the one in
// the environment variable PYTHON, else python3. Asks once for each name. Throws Unsupported with
// one sentence.
void* open_library(const std::string& file);

// A function of an open library, called like what its header declares:
//   find_function<decltype(cudnnGetVersion)>(library, "cudnnGetVersion")()
// Throws Unsupported if the library has none of this name.
void* find_symbol(void* library, const char* name);
template <typename Function>
Function* find_function(void* library, const char* name) {
  return reinterpret_cast<Function*>(find_symbol(library, name));
}

}  // namespace fa
