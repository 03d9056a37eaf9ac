// One wgmma, alone: S = Q K^T, or O = P V, from shared memory through descriptors made by hand.
//
//   scripts/fa emulate examples/one_wgmma.cu    without a GPU: runs, counts, checks
//   nvcc -std=c++20 -gencode arch=compute_90a,code=sm_90a -I. examples/one_wgmma.cu && ./a.out
//                                               on an H100 or H200
//
// Q has 64 rows of 16 numbers: row r, column d holds 16 r + d. K is the 16 x 16 unit matrix, so S
// must be Q again. If Q's descriptor is wrong, each element of S says which one of Q was read.
// V has 16 rows of 128 numbers, MN-major: row r, column c holds 128 r + c. P is a unit matrix.
//
// The number to look at is how many elements of S (1,024) or of O (2,048) are wrong. Tiles are
// stored plain or swizzled, and the strides of the descriptor are arguments, for you to play with:
//
//   one_wgmma                            each layout with its own strides: S = Q, and O = V
//   one_wgmma plain 256 128              LBO and SBO exchanged: 896 elements of S are wrong
//   one_wgmma swizzled 16 128            SBO leads to the next row, not over eight: again 896
//   one_wgmma mn-swizzled 1024 2048      LBO and SBO exchanged: 1,024 elements of O are wrong
//
// Chapter 11 (docs/11_wgmma.md) walks through this program. The table after the run counts one
// request of wgmma per warp: 8 in the two launches of one_wgmma without arguments.
#include <cuda_fp16.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/ptx/fence.h"
#include "common/ptx/wgmma.h"

// [place]
// Where element (row, d) of a tile is stored, in bytes from the tile's beginning.
__device__ int place(bool swizzled, int row, int d) {
  const int chunk = d / 8, byte = d % 8 * 2;  // a chunk is 16 bytes, 8 numbers
  // Rows of 128 bytes have room for eight chunks, which the XOR permutes. Q fills two of them.
  if (swizzled) return row * 128 + (chunk ^ row % 8) * 16 + byte;
  // Each core matrix, 8 rows of one chunk, is 128 bytes in a row. Two of them span the 16 columns.
  return row / 8 * 256 + chunk * 128 + row % 8 * 16 + byte;
}
// [/place]

// [descriptor]
// Describes a tile to wgmma. start, lbo and sbo are bytes, multiples of 16.
__device__ uint64_t descriptor(uint32_t start, uint32_t lbo, uint32_t sbo, bool swizzled) {
  uint64_t bits = start >> 4;        // bits 0 to 13: where element (0, 0) is, in units of 16 bytes
  bits |= uint64_t(lbo >> 4) << 16;  // bits 16 to 29: leading dimension byte offset
  bits |= uint64_t(sbo >> 4) << 32;  // bits 32 to 45: stride dimension byte offset
  bits |= uint64_t(swizzled) << 62;  // bits 62 and 63: 0 is no swizzle, 1 that of 128 bytes
  return bits;
}
// [/descriptor]

struct Tiles {
  __half q[64 * 64], k[16 * 64];  // rows of 128 bytes; the plain layout needs only a quarter
};

// [product]
// Starts one wgmma of 64 x kN x 16, waits for it, and stores its result.
template <int kN, layout::Major kMajorB = layout::Major::kK>
__device__ void multiply(float* s, uint64_t a, uint64_t b) {
  float acc[kN / 2];                                  // 64 x kN sums among 128 threads
  ptx::wgmma_fence(acc);                              // acc now belongs to the Tensor Cores
  ptx::wgmma<__half, kN, kMajorB>(acc, a, b, false);  // S = A B; true would mean S += A B
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(acc);  // no group is under way, so acc belongs to this thread again

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = 0; i < kN / 2; i++) {
    const int row = warp * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    s[row * kN + column] = acc[i];
  }
}

__global__ void one_wgmma(float* s, uint64_t* used, bool swizzled, uint32_t lbo, uint32_t sbo) {
  __shared__ alignas(1024) Tiles tiles;
  for (int i = threadIdx.x; i < 64 * 16; i += 128) {
    const int row = i / 16, d = i % 16, at = place(swizzled, row, d) / 2;
    tiles.q[at] = __float2half(i);
    if (row < 16) tiles.k[at] = __float2half(row == d);
  }
  ptx::fence_proxy_async();  // wgmma may see what this thread has stored ...
  __syncthreads();           // ... and after the barrier what the other threads have stored, too

  const uint64_t desc_q = descriptor(ptx::shared_address(tiles.q), lbo, sbo, swizzled);
  const uint32_t k = ptx::shared_address(tiles.k);
  multiply<16>(s, desc_q, descriptor(k, 128, swizzled ? 1024 : 256, swizzled));
  if (threadIdx.x == 0) *used = desc_q;
}
// [/product]

struct TilesOfPV {
  __half p[64 * 64], v[32 * 64];
};

// O = P V for V of 16 keys x 128 columns. A core matrix of V has 8 keys, as rows of 8 columns.
// Swizzled, V is two slabs of 64 columns. Plain, its core matrices are where Q's are: those of the
// same 8 columns side by side.
__global__ void one_wgmma_pv(float* o, uint64_t* used, bool swizzled, uint32_t lbo, uint32_t sbo) {
  __shared__ alignas(1024) TilesOfPV tiles;
  for (int i = threadIdx.x; i < 64 * 16; i += 128) {
    tiles.p[place(swizzled, i / 16, i % 16) / 2] = __float2half(i / 16 == i % 16);
  }
  for (int i = threadIdx.x; i < 16 * 128; i += 128) {
    const int key = i / 128, c = i % 128;
    const int at = swizzled ? place(true, c / 64 * 16 + key, c % 64)
                            : place(false, c / 8 * 8 + key % 8, key / 8 * 8 + c % 8);
    tiles.v[at / 2] = __float2half(i);
  }
  ptx::fence_proxy_async();
  __syncthreads();

  const uint64_t desc_v = descriptor(ptx::shared_address(tiles.v), lbo, sbo, swizzled);
  const uint32_t p = ptx::shared_address(tiles.p);
  multiply<128, layout::Major::kMN>(o, descriptor(p, 128, swizzled ? 1024 : 256, swizzled), desc_v);
  if (threadIdx.x == 0) *used = desc_v;
}

// What a word on the command line stands for, and the strides that are right for it.
struct Mode {
  const char* word;
  bool mn_major, swizzled;
  uint32_t lbo, sbo;
};
const Mode kModes[] = {{"plain", false, false, 128, 256},
                       {"swizzled", false, true, 16, 1024},
                       {"mn-plain", true, false, 128, 256},
                       {"mn-swizzled", true, true, 2048, 1024}};

// Multiplies, and prints what is wrong: which element of Q or V some elements of S or O are.
bool run(const Mode& mode, uint32_t lbo, uint32_t sbo) {
  struct {
    float result[64 * 128];
    uint64_t descriptor;
  } host, *device;
  cudaMalloc(&device, sizeof host);
  cudaMemset(device, 0, sizeof host);
  if (mode.mn_major) {
    one_wgmma_pv<<<1, 128>>>(device->result, &device->descriptor, mode.swizzled, lbo, sbo);
  } else {
    one_wgmma<<<1, 128>>>(device->result, &device->descriptor, mode.swizzled, lbo, sbo);
  }
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    printf("no wgmma here: %s\n", cudaGetErrorString(error));
    exit(2);
  }
  cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost);
  cudaFree(device);
  const char made = mode.mn_major ? 'O' : 'S', read = mode.mn_major ? 'V' : 'Q';
  const int rows = mode.mn_major ? 16 : 64, columns = mode.mn_major ? 128 : 16;
  const int all = rows * columns;
  int wrong = 0;
  for (int i = 0; i < all; i++) wrong += host.result[i] != float(i);
  printf("%s, LBO %u, SBO %u, descriptor 0x%016llx: %d of %d elements are wrong\n", mode.word, lbo,
         sbo, (unsigned long long)host.descriptor, wrong, all);
  for (int row = 0; row < rows && wrong > 0; row += 8) {
    for (int column = 0; column < columns; column += columns / 2) {
      const float value = host.result[row * columns + column];
      printf("  %c[%d][%d] is ", made, row, column);
      if (value >= 0 && value < all) {
        printf("%c[%d][%d]", read, int(value) / columns, int(value) % columns);
      } else {
        printf("no number of %c", read);
      }
    }
    printf("\n");
  }
  return wrong == 0;
}

int main(int count, char** words) {
  if (count == 1) {
    bool right = true;
    for (const Mode& mode : kModes) right &= run(mode, mode.lbo, mode.sbo);
    printf(right ? "right\n" : "wrong\n");
    return right ? 0 : 1;
  }
  const int lbo = count == 4 ? atoi(words[2]) : -1, sbo = count == 4 ? atoi(words[3]) : -1;
  const auto fits = [](int stride) { return stride >= 0 && stride % 16 == 0 && stride < 1 << 18; };
  for (const Mode& mode : kModes) {
    if (strcmp(words[1], mode.word) != 0 || !fits(lbo) || !fits(sbo)) continue;
    return run(mode, uint32_t(lbo), uint32_t(sbo)) ? 0 : 1;
  }
  printf(
      "usage: one_wgmma [MODE LBO SBO], MODE one of plain, swizzled, mn-plain, mn-swizzled;\n"
      "       strides in bytes, multiples of 16 below 262144\n");
  return 2;
}
