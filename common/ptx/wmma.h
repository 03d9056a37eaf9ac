// nvcuda::wmma, the Tensor Cores of CUDA C++ (CUDA C++ Programming Guide, "Warp Matrix Functions"):
// the compiler chooses the instructions. A fragment is a tile spread over the registers of a warp
// in a layout that is not specified: it can be loaded, multiplied and stored, but not looked into.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>  // IWYU pragma: export

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800

// On sm_75 mma.h has no fragments of bf16, because the Tensor Cores have no bf16. A kernel is
// compiled for it all the same, but not launched (Needs in common/launch/registry.h); if one were,
// it would end here.
namespace nvcuda::wmma {

template <typename Use, typename Layout>
class fragment<Use, 16, 16, 16, __nv_bfloat16, Layout> {};

template <typename Use, typename Layout>
__device__ void load_matrix_sync(fragment<Use, 16, 16, 16, __nv_bfloat16, Layout>&,
                                 const __nv_bfloat16*, unsigned) {
  __trap();
}

template <typename Sums, typename LayoutA, typename LayoutB>
__device__ void mma_sync(Sums&, const fragment<matrix_a, 16, 16, 16, __nv_bfloat16, LayoutA>&,
                         const fragment<matrix_b, 16, 16, 16, __nv_bfloat16, LayoutB>&,
                         const Sums&) {
  __trap();
}

}  // namespace nvcuda::wmma

#endif

namespace ptx {

namespace wmma = nvcuda::wmma;

// The 16 x 16 x 16 shapes that the kernels use: a is row-major, b either, sums are fp32.
template <typename T>
using FragmentA = wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major>;
template <typename T>
using FragmentB = wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major>;
template <typename T>
using FragmentBTransposed = wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major>;
using FragmentC = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

}  // namespace ptx
