// A tile of 16-bit elements in slabs of 64 columns: rows of 128 bytes, whose 16-byte chunks are
// swizzled. So wgmma reads its operands and TMA writes and reads its boxes with
// SwizzleMode::k128Bytes (kernels 11 on).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/layout/swizzle.h"
#include "common/ptx/shared_address.h"

namespace layout {

// The shared address of the 16-byte chunk of a tile that begins at `column`, a multiple of 8.
// slabs: [][kRows][64], at a multiple of 1024 bytes, where the swizzle begins.
template <typename T, int kRows>
__device__ __forceinline__ uint32_t chunk_address(const T (*slabs)[kRows][64], int row,
                                                  int column) {
  static_assert(sizeof(T) == 2);
  return ptx::shared_address(&slabs[column / 64][row][swizzle(row, column % 64 / 8) * 8]);
}

}  // namespace layout
