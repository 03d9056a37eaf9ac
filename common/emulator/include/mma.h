// Stands in for CUDA's header of this name when there is no CUDA: nvcuda::wmma, the Tensor Cores of
// CUDA C++ (CUDA C++ Programming Guide, "Warp Matrix Functions"). 16 x 16 x 16 products of fp16 or
// bf16, fp32 sums.
//
// The layout of a fragment is unspecified there, and here it is one that no GPU has: a kernel that
// relies on the element it finds in x[i] gets wrong numbers.
#pragma once

#include <cuda_bf16.h>  // IWYU pragma: export
#include <cuda_fp16.h>  // IWYU pragma: export

#include <type_traits>

#include "common/emulator/core/lane.h"
#include "common/emulator/units/matrix.h"

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

template <typename Use, int kM, int kN, int kK, typename T, typename Layout = void>
struct fragment {
  static_assert(kM == 16 && kN == 16 && kK == 16, "the emulator has the 16 x 16 x 16 shape");
  static constexpr int num_elements = 8;
  T x[num_elements];
};

template <typename Use, typename T, typename Layout>
inline void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout>& f, const T* from, unsigned pitch,
                             emu::SourceLocation where = emu::SourceLocation::current()) {
  emu::load_fragment(f.x, sizeof(T), from, pitch, std::is_same_v<Layout, col_major>, where);
}

template <typename T>
inline void load_matrix_sync(fragment<accumulator, 16, 16, 16, T>& f, const T* from, unsigned pitch,
                             layout_t layout,
                             emu::SourceLocation where = emu::SourceLocation::current()) {
  emu::load_fragment(f.x, sizeof(T), from, pitch, layout == mem_col_major, where);
}

template <typename T>
inline void store_matrix_sync(T* to, const fragment<accumulator, 16, 16, 16, T>& f, unsigned pitch,
                              layout_t layout,
                              emu::SourceLocation where = emu::SourceLocation::current()) {
  emu::store_fragment(to, sizeof(T), f.x, pitch, layout == mem_col_major, where);
}

template <typename Use, typename T, typename Layout>
inline void fill_fragment(fragment<Use, 16, 16, 16, T, Layout>& f, const T& value) {
  for (T& element : f.x) element = value;
}

// d = a * b + c
template <typename T, typename LayoutA, typename LayoutB>
inline void mma_sync(fragment<accumulator, 16, 16, 16, float>& d,
                     const fragment<matrix_a, 16, 16, 16, T, LayoutA>& a,
                     const fragment<matrix_b, 16, 16, 16, T, LayoutB>& b,
                     const fragment<accumulator, 16, 16, 16, float>& c,
                     emu::SourceLocation where = emu::SourceLocation::current()) {
  emu::multiply_fragments(d.x, a.x, b.x, c.x,
                          std::is_same_v<T, __half> ? emu::Element::kFp16 : emu::Element::kBf16,
                          where);
}

template <typename D, typename A, typename B, typename C>
inline void mma_sync(D&, const A&, const B&, const C&) {
  static_assert(sizeof(D) == 0,
                "of wmma's products the emulator has those of __half and __nv_bfloat16 with sums "
                "of float");
}

}  // namespace nvcuda::wmma
