// One wgmma, alone: S = Q K^T from shared memory, through descriptors that are made by hand.
//
//   scripts/fa emulate examples/one_wgmma.cu    without a GPU: runs, counts, checks
//   nvcc -std=c++20 -gencode arch=compute_90a,code=sm_90a -I. examples/one_wgmma.cu && ./a.out
//                                               on an H100 or H200
//
// Q has 64 rows of 16 numbers: row r, column d holds 16 r + d. K is the 16 x 16 unit matrix, so S
// must be Q again. If Q's descriptor is wrong, each element of S says which one of Q was read.
//
// The number to look at is how many of the 1,024 elements of S are wrong. Tiles are stored plain or
// swizzled, and the two strides of Q's descriptor are arguments, for you to play with:
//
//   one_wgmma                    both layouts with their own strides: S = Q
//   one_wgmma plain 256 128      LBO and SBO exchanged: 896 elements are wrong
//   one_wgmma swizzled 16 128    SBO leads to the next row, not over eight: again 896
//
// Chapter 11 (docs/11_wgmma.md) walks through this program. The table after the run counts one
// request of wgmma per warp: 8 in the two launches without arguments.
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
  const uint64_t desc_k =
      descriptor(ptx::shared_address(tiles.k), 128, swizzled ? 1024 : 256, swizzled);
  float acc[8];                                        // 64 x 16 sums among 128 threads
  ptx::wgmma_fence(acc);                               // acc now belongs to the Tensor Cores
  ptx::wgmma<__half, 16>(acc, desc_q, desc_k, false);  // S = Q K^T; true would mean S += Q K^T
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(acc);  // no group is under way, so acc belongs to this thread again

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = 0; i < 8; i++) {
    const int row = warp * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    s[row * 16 + column] = acc[i];
  }
  if (threadIdx.x == 0) *used = desc_q;
}
// [/product]

// Prints which element of Q an element of S is.
void print_source(int row, int column, float value) {
  printf("  S[%d][%d] is ", row, column);
  if (value >= 0 && value < 1024) printf("Q[%d][%d]", int(value) / 16, int(value) % 16);
  if (!(value >= 0 && value < 1024)) printf("no number of Q");
}

bool run(bool swizzled, uint32_t lbo, uint32_t sbo) {
  struct {
    float s[64 * 16];
    uint64_t desc_q;
  } host, *device;
  cudaMalloc(&device, sizeof host);
  one_wgmma<<<1, 128>>>(device->s, &device->desc_q, swizzled, lbo, sbo);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    printf("no wgmma here: %s\n", cudaGetErrorString(error));
    exit(2);
  }
  cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost);
  cudaFree(device);
  int wrong = 0;
  for (int i = 0; i < 64 * 16; i++) wrong += host.s[i] != float(i);
  printf("%s, LBO %u, SBO %u, descriptor 0x%016llx: %d of 1024 elements are wrong\n",
         swizzled ? "swizzled" : "plain", lbo, sbo, (unsigned long long)host.desc_q, wrong);
  for (int row = 0; row < 64 && wrong > 0; row += 8) {
    print_source(row, 0, host.s[row * 16]);
    print_source(row, 8, host.s[row * 16 + 8]);
    printf("\n");
  }
  return wrong == 0;
}

int main(int count, char** words) {
  if (count == 1) {
    const bool plain = run(false, 128, 256), swizzled = run(true, 16, 1024);
    printf(plain && swizzled ? "right\n" : "wrong\n");
    return plain && swizzled ? 0 : 1;
  }
  const bool swizzled = strcmp(words[1], "swizzled") == 0;
  const int lbo = count == 4 ? atoi(words[2]) : -1, sbo = count == 4 ? atoi(words[3]) : -1;
  const auto fits = [](int stride) { return stride >= 0 && stride % 16 == 0 && stride < 1 << 18; };
  if ((!swizzled && strcmp(words[1], "plain") != 0) || !fits(lbo) || !fits(sbo)) {
    printf("usage: one_wgmma [plain|swizzled LBO SBO], bytes, multiples of 16 below 262144\n");
    return 2;
  }
  return run(swizzled, uint32_t(lbo), uint32_t(sbo)) ? 0 : 1;
}
