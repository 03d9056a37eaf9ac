// A matrix turned over, tile by tile: what a column of 32 floats costs in shared memory.
//
//   scripts/fa emulate examples/transpose.cu             without a GPU: runs, counts, checks
//   nvcc -arch=sm_75 examples/transpose.cu && ./a.out    on one
//
// A warp that reads a row of `in` and writes a column of `out` touches 32 sectors of global memory
// where 4 would do. So the CTA goes through a tile in shared memory: rows are read from global
// memory, and rows are written to it. Only the tile is read by columns.
//
// Shared memory has 32 banks of 4 bytes, and the word at row r, column c of a tile with 32 columns
// is in bank (32 r + c) mod 32 = c. The 32 lanes that read column c all want bank c: the bank
// serves them one after another, 32 wavefronts in place of one. With a pitch of 33 words the bank
// is (33 r + c) mod 32 = (r + c) mod 32, another one for each row. With c = 3 lane 5 reads
// from bank 8.
//
// The numbers to look at are the wavefronts of "shared load" in the table after the run. For this
// 128 x 128 matrix they are 16,384 with a pitch of 32 and 512 with a pitch of 33, for 512 requests
// each. One unused word per row makes the difference.
#include <cstdio>
#include <vector>

constexpr int kSize = 128;  // rows and columns of the matrix
constexpr int kTile = 32;   // rows and columns of a tile; each thread moves four elements of it
constexpr int kRows = 8;    // rows of a tile that the CTA's 256 threads move at a time

// Without shared memory: reads rows and writes columns.
__global__ void transpose_naive(const float* in, float* out) {
  const int column = blockIdx.x * kTile + threadIdx.x;
  for (int row = threadIdx.y; row < kTile; row += kRows) {
    const int from = blockIdx.y * kTile + row;
    out[column * kSize + from] = in[from * kSize + column];
  }
}

template <int kPitch>  // words from one row of the tile to the next
__global__ void transpose(const float* in, float* out) {
  // [tile]
  __shared__ float tile[kTile][kPitch];
  const int x = threadIdx.x;
  for (int y = threadIdx.y; y < kTile; y += kRows) {
    tile[y][x] = in[(blockIdx.y * kTile + y) * kSize + blockIdx.x * kTile + x];
  }
  __syncthreads();  // each warp reads what all eight have stored
  for (int y = threadIdx.y; y < kTile; y += kRows) {
    out[(blockIdx.x * kTile + y) * kSize + blockIdx.y * kTile + x] = tile[x][y];  // column y
  }
  // [/tile]
}

int main() {
  const size_t bytes = kSize * kSize * sizeof(float);
  std::vector<float> matrix(kSize * kSize), turned(kSize * kSize);
  for (int i = 0; i < kSize * kSize; i++) matrix[i] = float(i);
  float *in, *out;
  cudaMalloc(&in, bytes);
  cudaMalloc(&out, bytes);
  cudaMemcpy(in, matrix.data(), bytes, cudaMemcpyHostToDevice);

  bool right = true;
  const dim3 grid(kSize / kTile, kSize / kTile), block(kTile, kRows);
  const char* const names[] = {"transpose_naive", "transpose<32>", "transpose<33>"};
  for (int variant = 0; variant < 3; variant++) {
    cudaMemset(out, 0xff, bytes);  // NaN: an element that nothing writes is noticed
    if (variant == 0) transpose_naive<<<grid, block>>>(in, out);
    if (variant == 1) transpose<32><<<grid, block>>>(in, out);
    if (variant == 2) transpose<33><<<grid, block>>>(in, out);
    cudaMemcpy(turned.data(), out, bytes, cudaMemcpyDeviceToHost);
    for (int row = 0; row < kSize; row++) {
      for (int column = 0; column < kSize; column++) {
        const float value = turned[column * kSize + row], expected = matrix[row * kSize + column];
        if (right && value != expected) {
          printf("%s: row %d, column %d of out is %g, not %g\n", names[variant], column, row, value,
                 expected);
          right = false;
        }
      }
    }
  }
  cudaFree(in);
  cudaFree(out);
  printf(right ? "right\n" : "wrong\n");
  return right ? 0 : 1;
}
