// C = A B with tiles in shared memory: why a tile, and why each thread should own more than one
// element.
//
//   scripts/fa emulate examples/tiled_gemm.cu             without a GPU: runs, counts, checks
//   nvcc -arch=sm_75 examples/tiled_gemm.cu && ./a.out    on one
//
// Each element of C needs a row of A and a column of B. A CTA computes a tile of 32 x 32 elements,
// which share 32 rows and 32 columns: it loads them once, 32 x 32 pieces at a time, and every
// element that was loaded serves 32 multiply-adds.
//
// gemm_tile gives each of 1,024 threads one element of C. In its inner loop each multiply-add needs
// two loads from shared memory. gemm_register gives each of 256 threads a column of four elements:
// the element of B is loaded once for all four, five loads for four multiply-adds.
//
// The numbers to look at are "shared load" in the table after the run: the tile alone makes 131,072
// requests, the registers 81,920, five eighths. Global memory sees the same 4,096 loads of A and B
// in both. Kernels 02 and 03 of this repository are the same step for attention.
#include <cmath>
#include <cstdio>
#include <vector>

constexpr int kSize = 128;  // rows and columns of A, B and C
constexpr int kTile = 32;
constexpr int kEach = 4;  // elements of C per thread of gemm_register

__global__ void gemm_tile(const float* A, const float* B, float* C) {
  __shared__ float sA[kTile][kTile], sB[kTile][kTile];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * kTile + y, column = blockIdx.x * kTile + x;
  float sum = 0;
  for (int k0 = 0; k0 < kSize; k0 += kTile) {
    // [tile]
    sA[y][x] = A[row * kSize + k0 + x];
    sB[y][x] = B[(k0 + y) * kSize + column];
    __syncthreads();  // both pieces are complete
    for (int k = 0; k < kTile; k++) sum = fmaf(sA[y][k], sB[k][x], sum);
    __syncthreads();  // no thread reads them any more: the next ones may be stored
    // [/tile]
  }
  C[row * kSize + column] = sum;
}

// Thread (x, y) owns rows 4 y to 4 y + 3 of column x.
__global__ void gemm_register(const float* A, const float* B, float* C) {
  __shared__ float sA[kTile][kTile], sB[kTile][kTile];
  const int x = threadIdx.x, y = threadIdx.y * kEach;
  const int row = blockIdx.y * kTile + y, column = blockIdx.x * kTile + x;
  float sums[kEach] = {};
  for (int k0 = 0; k0 < kSize; k0 += kTile) {
    for (int i = 0; i < kEach; i++) {
      sA[y + i][x] = A[(row + i) * kSize + k0 + x];
      sB[y + i][x] = B[(k0 + y + i) * kSize + column];
    }
    __syncthreads();
    for (int k = 0; k < kTile; k++) {
      const float b = sB[k][x];
      for (int i = 0; i < kEach; i++) sums[i] = fmaf(sA[y + i][k], b, sums[i]);
    }
    __syncthreads();
  }
  for (int i = 0; i < kEach; i++) C[(row + i) * kSize + column] = sums[i];
}

int main() {
  const size_t bytes = kSize * kSize * sizeof(float);
  std::vector<float> a(kSize * kSize), b(kSize * kSize), c(kSize * kSize);
  for (int i = 0; i < kSize * kSize; i++) {
    a[i] = float(i % 13) - 6;
    b[i] = float(i % 17) - 8;
  }
  float *A, *B, *C;
  cudaMalloc(&A, bytes);
  cudaMalloc(&B, bytes);
  cudaMalloc(&C, bytes);
  cudaMemcpy(A, a.data(), bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(B, b.data(), bytes, cudaMemcpyHostToDevice);

  bool right = true;
  const dim3 grid(kSize / kTile, kSize / kTile);
  for (const bool registers : {false, true}) {
    cudaMemset(C, 0xff, bytes);
    if (registers) {
      gemm_register<<<grid, dim3(kTile, kTile / kEach)>>>(A, B, C);
    } else {
      gemm_tile<<<grid, dim3(kTile, kTile)>>>(A, B, C);
    }
    cudaMemcpy(c.data(), C, bytes, cudaMemcpyDeviceToHost);
    for (int row = 0; row < kSize; row++) {
      for (int column = 0; column < kSize; column++) {
        float sum = 0;  // whole numbers: exact
        for (int k = 0; k < kSize; k++) sum += a[row * kSize + k] * b[k * kSize + column];
        const float value = c[row * kSize + column];
        if (right && value != sum) {
          printf("gemm_%s: row %d, column %d of C is %g, not %g\n", registers ? "register" : "tile",
                 row, column, value, sum);
          right = false;
        }
      }
    }
  }
  cudaFree(A);
  cudaFree(B);
  cudaFree(C);
  printf(right ? "right\n" : "wrong\n");
  return right ? 0 : 1;
}
