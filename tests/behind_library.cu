// Behind a library's function: a program that asks for too much memory, and goes on; and a kernel
// with a race.
extern "C" __attribute__((visibility("default"))) int leave_error() {
  void* memory = nullptr;
  return cudaMalloc(&memory, size_t(1) << 60);
}

__device__ __noinline__ void put(int* s) { s[threadIdx.x] = 1; }
__global__ void racy(int* out) {
  __shared__ int s[64];
  put(s);
  out[threadIdx.x] = s[threadIdx.x ^ 32];
}
extern "C" __attribute__((visibility("default"))) void race() {
  int* out = nullptr;
  cudaMalloc(&out, 64 * sizeof(int));
  racy<<<1, 64>>>(out);
}
