// One mma.sync, alone, in plain inline PTX: C = A B with A 16 x 16, B 16 x 8, sums of float.
//
//   scripts/fa emulate examples/mma_sync.cu             without a GPU: runs, counts, checks
//   nvcc -arch=sm_80 examples/mma_sync.cu && ./a.out    on one
//
// product_fma computes C with ordinary loads: each lane has four elements, and reads two numbers
// from shared memory for every multiply-add. product_mma lets the warp's Tensor Core do all of it.
// The registers that the instruction expects in each lane, ldmatrix fills: lane l names one row of
// 16 bytes, and the four (two) 8 x 8 matrices that 32 (16) rows make are dealt out to all lanes.
//
// The number to look at is how often shared memory is read: 128 requests of "shared load" become 2
// of "ldmatrix", and 64 multiply-adds per lane become one mma.m16n8k16. (These two take 10 passes
// through the banks where 6 would do, because rows of A are 32 bytes apart: chapter 05.)
#include <cuda_fp16.h>

#include <cstdint>
#include <cstdio>

constexpr int kM = 16, kN = 8, kK = 16;

__global__ void product_fma(const __half* a, const __half* b, float* c) {
  __shared__ __half sA[kM * kK], sB[kK * kN];
  for (int i = threadIdx.x; i < kM * kK; i += 32) sA[i] = a[i];
  for (int i = threadIdx.x; i < kK * kN; i += 32) sB[i] = b[i];
  __syncthreads();
  for (int i = threadIdx.x; i < kM * kN; i += 32) {
    float sum = 0;
    for (int k = 0; k < kK; k++) {
      sum += __half2float(sA[i / kN * kK + k]) * __half2float(sB[k * kN + i % kN]);
    }
    c[i] = sum;
  }
}

__global__ void product_mma(const __half* a, const __half* b, float* c) {
  __shared__ alignas(16) __half sA[kM * kK], sB[kK * kN];
  for (int i = threadIdx.x; i < kM * kK; i += 32) sA[i] = a[i];
  for (int i = threadIdx.x; i < kK * kN; i += 32) sB[i] = b[i];
  __syncthreads();

  // A is four 8 x 8 matrices: rows 0 to 7, rows 8 to 15, then the same of the right half. Lanes 0
  // to 7 name the rows of the first one, lanes 8 to 15 those of the second, and so on.
  const int lane = threadIdx.x;
  const auto row_a = uint32_t(__cvta_generic_to_shared(&sA[lane % 16 * kK + lane / 16 * 8]));
  uint32_t a0, a1, a2, a3;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a0), "=r"(a1), "=r"(a2), "=r"(a3)
               : "r"(row_a)
               : "memory");

  // B's rows are k, but the instruction wants its columns in a lane: ldmatrix transposes.
  const auto row_b = uint32_t(__cvta_generic_to_shared(&sB[lane % 16 * kN]));
  uint32_t b0, b1;
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(b0), "=r"(b1)
               : "r"(row_b)
               : "memory");

  float d[4] = {};
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));

  // A lane has two neighbours in row lane / 4, and two in the row eight below.
  float* const to = c + lane / 4 * kN + lane % 4 * 2;
  to[0] = d[0], to[1] = d[1];
  to[8 * kN] = d[2], to[8 * kN + 1] = d[3];
}

int main() {
  __half a[kM * kK], b[kK * kN], *device_a, *device_b;
  float c[kM * kN], *device_c;
  for (int i = 0; i < kM * kK; i++) a[i] = __float2half(float(i * 7 % 13 - 6));
  for (int i = 0; i < kK * kN; i++) b[i] = __float2half(float(i * 5 % 11 - 5));
  cudaMalloc(&device_a, sizeof a);
  cudaMalloc(&device_b, sizeof b);
  cudaMalloc(&device_c, sizeof c);
  cudaMemcpy(device_a, a, sizeof a, cudaMemcpyHostToDevice);
  cudaMemcpy(device_b, b, sizeof b, cudaMemcpyHostToDevice);

  bool right = true;
  for (const bool tensor_core : {false, true}) {
    if (tensor_core) {
      product_mma<<<1, 32>>>(device_a, device_b, device_c);
    } else {
      product_fma<<<1, 32>>>(device_a, device_b, device_c);
    }
    cudaMemcpy(c, device_c, sizeof c, cudaMemcpyDeviceToHost);
    for (int i = 0; i < kM * kN; i++) {  // whole numbers, so every order of the sums is exact
      float sum = 0;
      for (int k = 0; k < kK; k++) {
        sum += __half2float(a[i / kN * kK + k]) * __half2float(b[k * kN + i % kN]);
      }
      right = right && c[i] == sum;
    }
  }
  if (cudaGetLastError() != cudaSuccess) right = false;
  std::printf("C[0][0] is %g: %s\n", c[0], right ? "right" : "wrong");
  return right ? 0 : 1;
}
