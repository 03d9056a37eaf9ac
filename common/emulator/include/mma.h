// Stands in for CUDA's header of this name when there is no CUDA: nvcuda::wmma, the Tensor Cores of
// CUDA C++ (CUDA C++ Programming Guide, "Warp Matrix Functions").
//
// The layout of a fragment is unspecified there, and here it is one that no GPU has: a kernel that
// relies on the element it finds in x[i] gets wrong numbers.
#pragma once

#include <cuda_bf16.h>  // IWYU pragma: export
#include <cuda_fp16.h>  // IWYU pragma: export

#include <bit>
#include <cstdint>
#include <type_traits>

#include "common/emulator/core/lane.h"
#include "common/emulator/units/wmma.h"

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}

// What a type of elements is in memory and in the products.
template <typename T>
struct fa_number;
template <emu::Number kNumber, typename Storage>
struct fa_number_is {
  static constexpr emu::Number number = kNumber;
  using type = Storage;
};
template <>
struct fa_number<__half> : fa_number_is<emu::Number::kFp16, __half> {};
template <>
struct fa_number<__nv_bfloat16> : fa_number_is<emu::Number::kBf16, __nv_bfloat16> {};
template <>
struct fa_number<precision::tf32> : fa_number_is<emu::Number::kTf32, float> {};
template <>
struct fa_number<float> : fa_number_is<emu::Number::kFloat, float> {};
template <>
struct fa_number<double> : fa_number_is<emu::Number::kDouble, double> {};
template <>
struct fa_number<signed char> : fa_number_is<emu::Number::kS8, signed char> {};
template <>
struct fa_number<unsigned char> : fa_number_is<emu::Number::kU8, unsigned char> {};
template <>
struct fa_number<int> : fa_number_is<emu::Number::kS32, int> {};

template <typename Use, int kM, int kN, int kK, typename T, typename Layout = void>
struct fragment {
  static constexpr bool kWide = std::is_same_v<T, double>,
                        kFlat = std::is_same_v<T, precision::tf32>;
  static_assert(
      (kK == 16 && ((kM == 16 && kN == 16) || (kM == 32 && kN == 8) || (kM == 8 && kN == 32)) &&
       !kWide && !kFlat) ||
          (kK == 8 && kM == 16 && kN == 16) || (kK == 4 && kM == 8 && kN == 8 && kWide),
      "wmma has no such shape for this type, or the emulator lacks it: it has 16 x 16 x 16, "
      "32 x 8 x 16 and 8 x 32 x 16, 16 x 16 x 8 for tf32 and 8 x 8 x 4 for double");
  using element_type = T;
  using storage_element_type = typename fa_number<T>::type;
  static constexpr emu::FragmentShape shape{std::is_same_v<Use, matrix_b> ? kK : kM,
                                            std::is_same_v<Use, matrix_a> ? kK : kN,
                                            sizeof(storage_element_type)};
  static constexpr int num_elements = shape.elements(), num_storage_elements = num_elements;
  storage_element_type x[num_elements];
};

template <typename Use, int kM, int kN, int kK, typename T, typename Layout>
inline void load_matrix_sync(fragment<Use, kM, kN, kK, T, Layout>& f,
                             const std::type_identity_t<typename fa_number<T>::type>* from,
                             unsigned pitch,
                             emu::SourceLocation where = emu::SourceLocation::current()) {
  emu::load_fragment(f.x, f.shape, from, pitch, std::is_same_v<Layout, col_major>, where);
}

template <int kM, int kN, int kK, typename T>
inline void load_matrix_sync(fragment<accumulator, kM, kN, kK, T>& f,
                             const std::type_identity_t<T>* from, unsigned pitch, layout_t layout,
                             emu::SourceLocation where = emu::SourceLocation::current()) {
  emu::load_fragment(f.x, f.shape, from, pitch, layout == mem_col_major, where);
}

template <int kM, int kN, int kK, typename T>
inline void store_matrix_sync(std::type_identity_t<T>* to,
                              const fragment<accumulator, kM, kN, kK, T>& f, unsigned pitch,
                              layout_t layout,
                              emu::SourceLocation where = emu::SourceLocation::current()) {
  emu::store_fragment(to, f.shape, f.x, pitch, layout == mem_col_major, where);
}

template <typename Use, int kM, int kN, int kK, typename T, typename Layout>
inline void fill_fragment(fragment<Use, kM, kN, kK, T, Layout>& f,
                          const std::type_identity_t<typename fa_number<T>::type>& value) {
  for (auto& element : f.x) element = value;
}

// The nearest number with 10 bits of mantissa, ties away from zero.
inline float __float_to_tf32(float value) {
  if (value - value != 0) return value;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(value) + 0x1000) & ~0x1fffu);
}

// d = a * b + c
template <int kM, int kN, int kK, typename D, typename A, typename LayoutA, typename B,
          typename LayoutB, typename C>
inline void mma_sync(fragment<accumulator, kM, kN, kK, D>& d,
                     const fragment<matrix_a, kM, kN, kK, A, LayoutA>& a,
                     const fragment<matrix_b, kM, kN, kK, B, LayoutB>& b,
                     const fragment<accumulator, kM, kN, kK, C>& c,
                     emu::SourceLocation where = emu::SourceLocation::current()) {
  using emu::Number;
  constexpr Number factor = fa_number<A>::number, before = fa_number<C>::number,
                   after = fa_number<D>::number;
  constexpr bool halves = factor == Number::kFp16 &&
                          (before == Number::kFp16 || before == Number::kFloat) &&
                          (after == Number::kFp16 || after == Number::kFloat);
  constexpr bool floats = (factor == Number::kBf16 || factor == Number::kTf32) &&
                          before == Number::kFloat && after == Number::kFloat;
  constexpr bool doubles = factor == Number::kDouble && before == factor && after == factor;
  constexpr bool bytes = (factor == Number::kS8 || factor == Number::kU8) &&
                         before == Number::kS32 && after == Number::kS32;
  static_assert(std::is_same_v<A, B> && (halves || floats || doubles || bytes),
                "wmma has no product of these types");
  emu::multiply_fragments(d.x, a.x, b.x, c.x, {kM, kN, kK, factor, before, after, false}, where);
}

// Sums that end at the largest number, if `saturate` says so.
template <int kM, int kN, int kK, typename T, typename LayoutA, typename LayoutB>
inline void mma_sync(fragment<accumulator, kM, kN, kK, int>& d,
                     const fragment<matrix_a, kM, kN, kK, T, LayoutA>& a,
                     const fragment<matrix_b, kM, kN, kK, T, LayoutB>& b,
                     const fragment<accumulator, kM, kN, kK, int>& c, bool saturate,
                     emu::SourceLocation where = emu::SourceLocation::current()) {
  using emu::Number;
  emu::multiply_fragments(d.x, a.x, b.x, c.x,
                          {kM, kN, kK, fa_number<T>::number, Number::kS32, Number::kS32, saturate},
                          where);
}

}  // namespace nvcuda::wmma
