// CUDA's built-in vector types for the emulator.
//
// On the GPU one 8- or 16-byte access is one instruction. A compiler for the CPU is free to split
// the copy of a plain struct into four 4-byte loads, and the checked build would then count four
// requests. Copies here go through a vector register, so that both g++ and clang++ make it one
// access.
#pragma once

#include <cstdint>

namespace emu {

template <int kBytes>
struct Packet;
template <>
struct Packet<8> {
  typedef uint32_t type __attribute__((vector_size(8), may_alias));
};
template <>
struct Packet<16> {
  typedef uint32_t type __attribute__((vector_size(16), may_alias));
};

template <typename Vector>
inline void copy_whole(Vector* to, const Vector* from) {
  using Whole = typename Packet<sizeof(Vector)>::type;
  *reinterpret_cast<Whole*>(to) = *reinterpret_cast<const Whole*>(from);
}

template <typename T>
struct alignas(2 * sizeof(T)) Vector2 {
  T x, y;
  Vector2() = default;
  constexpr Vector2(T x_, T y_) : x(x_), y(y_) {}
  Vector2(const Vector2& other) { copy_whole(this, &other); }
  Vector2& operator=(const Vector2& other) {
    copy_whole(this, &other);
    return *this;
  }
};

template <typename T>
struct alignas(4 * sizeof(T)) Vector4 {
  T x, y, z, w;
  Vector4() = default;
  constexpr Vector4(T x_, T y_, T z_, T w_) : x(x_), y(y_), z(z_), w(w_) {}
  Vector4(const Vector4& other) { copy_whole(this, &other); }
  Vector4& operator=(const Vector4& other) {
    copy_whole(this, &other);
    return *this;
  }
};

}  // namespace emu

using float2 = emu::Vector2<float>;
using float4 = emu::Vector4<float>;
using int2 = emu::Vector2<int>;
using int4 = emu::Vector4<int>;
using uint2 = emu::Vector2<uint32_t>;
using uint4 = emu::Vector4<uint32_t>;

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
