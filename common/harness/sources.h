// What a kernel of this program was when it was built.
#pragma once

#include <string>

namespace fa {

// The hash of the kernel's statements (scripts/fa_tools/sources.py). Empty for what is not in
// kernels/, and for all if no Python was there to compute it.
std::string source_of(const std::string& kernel);

}  // namespace fa
