// nvcuda::wmma, the Tensor Cores of CUDA C++ (CUDA C++ Programming Guide, "Warp Matrix Functions"):
// the compiler chooses the instructions. A fragment is a tile spread over the registers of a warp
// in a layout that is not specified: it can be loaded, multiplied and stored, but not looked into.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>  // IWYU pragma: export

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
