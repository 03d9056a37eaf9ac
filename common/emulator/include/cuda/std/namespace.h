// cuda::std when there is no CUDA: the C++ library's own names, which kernels may use here
// (libcu++, "Standard API").
#pragma once

#include <cstddef>

namespace cuda::std {

using namespace ::std;

// The C++ library's atomics are not those that the emulator counts and orders.
template <typename T>
struct atomic {
  static_assert(sizeof(T) == 0, "the emulator has no cuda::std::atomic: use cuda::atomic");
};
template <typename T>
struct atomic_ref {
  static_assert(sizeof(T) == 0, "the emulator has no cuda::std::atomic_ref: use cuda::atomic_ref");
};

}  // namespace cuda::std
