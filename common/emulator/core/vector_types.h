// CUDA's built-in vector types for the emulator.
//
// On the GPU one 8- or 16-byte access is one instruction. A compiler for the CPU is free to split
// the copy of a plain struct into four 4-byte loads, and the checked build would then count four
// requests. Copies here go through a vector register, so that both g++ and clang++ make it one
// access.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emu {

template <int kBytes>
struct Packet;
template <>
struct Packet<2> {
  typedef uint16_t type __attribute__((may_alias));
};
template <>
struct Packet<4> {
  typedef uint32_t type __attribute__((may_alias));
};
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
  using Whole = typename Packet<(sizeof(Vector) > 16 ? 16 : sizeof(Vector))>::type;
  for (size_t i = 0; i < sizeof(Vector) / sizeof(Whole); i++) {  // double4 is two accesses
    reinterpret_cast<Whole*>(to)[i] = reinterpret_cast<const Whole*>(from)[i];
  }
}

template <typename T>
struct Vector1 {
  T x;
};

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
struct Vector3 {  // three accesses, as on the GPU: its alignment is that of an element
  T x, y, z;
  Vector3() = default;
  constexpr Vector3(T x_, T y_, T z_) : x(x_), y(y_), z(z_) {}
  constexpr Vector3(const Vector3& other) : x(other.x), y(other.y), z(other.z) {}
  Vector3& operator=(const Vector3& other) {
    x = other.x;
    y = other.y;
    z = other.z;
    return *this;
  }
};

template <typename T>
struct alignas(sizeof(T) == 8 ? 16 : 4 * sizeof(T)) Vector4 {
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

#define FA_VECTORS(NAME, T)                                          \
  using NAME##1 = emu::Vector1<T>;                                   \
  using NAME##2 = emu::Vector2<T>;                                   \
  using NAME##3 = emu::Vector3<T>;                                   \
  using NAME##4 = emu::Vector4<T>;                                   \
  inline NAME##1 make_##NAME##1(T x) { return {x}; }                 \
  inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }         \
  inline NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; } \
  inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }
FA_VECTORS(char, signed char)
FA_VECTORS(uchar, unsigned char)
FA_VECTORS(short, short)
FA_VECTORS(ushort, unsigned short)
FA_VECTORS(int, int)
FA_VECTORS(uint, unsigned)
FA_VECTORS(long, long)
FA_VECTORS(ulong, unsigned long)
FA_VECTORS(longlong, long long)
FA_VECTORS(ulonglong, unsigned long long)
FA_VECTORS(float, float)
FA_VECTORS(double, double)
#undef FA_VECTORS

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(const uint3& v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
