// Which tile of C a number stands for. Tiles that are computed at the same time should share rows
// of A and of B, because then L2 has them.
#pragma once

#include <cuda_runtime.h>

namespace fa::gemm {

// [tile-of]
// Returns tile `number` of m_tiles x n_tiles: kRows rows of tiles, column by column, then the next.
template <int kRows>
__device__ __forceinline__ int2 tile_of(int number, int m_tiles, int n_tiles) {
  const int first = number / (kRows * n_tiles) * kRows;
  const int rows = m_tiles - first < kRows ? m_tiles - first : kRows;
  const int rest = number % (kRows * n_tiles);
  return {first + rest % rows, rest / rows};
}
// [/tile-of]

}  // namespace fa::gemm
