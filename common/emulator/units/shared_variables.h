// __shared__ variables. What a reader writes in a kernel,
//
//   __shared__ float tile[32][33];
//
// becomes (common/emulator/programs/cuda_source.py) a struct with that member and a reference to
// the CTA's own copy of it.
#pragma once

#include <cstddef>

#include "common/emulator/core/memory.h"

namespace emu {

// Notes that the lane's CTA has the variable, for what its end says of too many bytes.
void use_shared_variable(size_t offset, size_t bytes);

template <typename Holder>
inline const size_t shared_offset = add_shared_variable(Holder::fa_name(), sizeof(Holder),
                                                        alignof(Holder));

template <typename Holder>
inline Holder& shared_variable() {
  use_shared_variable(shared_offset<Holder>, sizeof(Holder));
  return *reinterpret_cast<Holder*>(current_lane->cta->shared + shared_offset<Holder>);
}

// extern __shared__ T name[]: what the launch asked for beyond the variables, as a pointer.
template <typename T>
inline T* dynamic_shared() {
  return reinterpret_cast<T*>(current_lane->cta->shared + current_lane->cta->static_bytes);
}

// At namespace scope, where no lane is known, the name is an object's: of an array, or of one T.
template <typename T>
struct DynamicShared {
  operator T*() const { return dynamic_shared<T>(); }
};
template <typename T>
struct DynamicObject {
  operator T&() const { return *dynamic_shared<T>(); }
};

// What the name stands for in a function. Anything else may have the name there, and stays.
template <typename T>
constexpr T* dynamic(DynamicShared<T>& array) {
  return array;
}
template <typename T>
constexpr T& dynamic(DynamicObject<T>& object) {
  return object;
}
template <typename T>
constexpr T&& dynamic(T&& other) {
  return static_cast<T&&>(other);
}

}  // namespace emu
