// The operands of an instruction that was invalid, from the state that a signal's handler is given.
#pragma once

#include <string>

namespace emu {

// "inf - inf", if the interrupted instruction makes a NaN of numbers: a sum, difference, product,
// quotient, square root or fused multiply-add of SSE or AVX. "" if it makes none (a comparison, a
// conversion, one of its operands is NaN) or is another one. `names_all`: it is a square root or a
// fused multiply-add, which says what it is even within the C library.
std::string made_nan_by(const void* context, bool& names_all);

}  // namespace emu
