// What kernels' functions call that make a NaN where the CPU's instructions would not say how
// (first_nan.h).
#pragma once

namespace emu {

// The current lane made a NaN, as this function of x.
void note_nan_of(const char* function, double x);

// Returns `result`, of a function of x, and notes it if it is a NaN that x was not.
template <typename T>
inline T noting_nan(const char* function, T x, T result) {
  if (result != result && x == x) note_nan_of(function, double(x));
  return result;
}

}  // namespace emu
