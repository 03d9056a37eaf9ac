// What scripts/fa single puts around a kernel: what nvcc alone sees, then the launch, then the
// program. Lines from `// [name]` to `// [/name]` are for kernels that use the name.
// nvcc alone
// [compiled_architecture]

// What kernel code is compiled for, 80 for sm_80. The host asks which code the GPU present runs.
#ifdef __CUDA_ARCH__
#define FA_ARCHITECTURE (__CUDA_ARCH__ / 10)
#else
#define FA_ARCHITECTURE 0
#endif

template <auto kKernel>
int compiled_architecture() {
  cudaFuncAttributes attributes{};
  cudaFuncGetAttributes(&attributes, kKernel);  // the launch that follows reports an error
  return attributes.ptxVersion;
}
// [/compiled_architecture]
// [make_slab_map]

// A map for TMA: boxes of box_rows rows and 64 columns (128 bytes, swizzled) of a row-major matrix.
// The driver makes it; asked for its function at run time, it need not be linked.
template <typename T>
ptx::TensorMap make_slab_map(const T* matrix, uint64_t columns, uint64_t rows, uint32_t box_rows) {
  void* encode = nullptr;
  cudaDriverEntryPointQueryResult found{};
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault,
                                   &found);
  const uint64_t sizes[] = {columns, rows}, row_bytes[] = {columns * sizeof(T)};
  const uint32_t box[] = {64, box_rows}, every_element[] = {1, 1};
  ptx::TensorMap map;
  if (!encode ||
      reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(encode)(
          &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<T*>(matrix), sizes, row_bytes, box,
          every_element, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
          CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
    std::fprintf(stderr, "error: the driver makes no tensor map; TMA needs that of CUDA 12\n");
    std::exit(3);
  }
  return map;
}
// [/make_slab_map]
// the launch
inline void check(cudaError_t error, int line = __builtin_LINE()) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "error: line %d: %s\n", line, cudaGetErrorString(error));
  std::exit(3);
}

// What a launcher gets: tensors in the GPU's memory, [batch, heads, seq_len, head_dim] each.
template <typename T>
struct Attention {
  const T *q, *k, *v;
  T* o;
  int batch, heads, seq_len;
  float scale;  // of the scores: 1 / sqrt(head_dim)
  // [workspace_bytes]
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  // [/workspace_bytes]
};
// [Problem]

struct Problem {
  int batch, heads, seq_len, head_dim;
  size_t head_count() const { return size_t(batch) * heads; }
};
// [/Problem]
// [shared_storage]

// The CTA's shared memory as the kernel's own struct.
template <typename SharedStorage>
__device__ __forceinline__ SharedStorage& shared_storage() {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  return *reinterpret_cast<SharedStorage*>(shared_memory);
}
// [/shared_storage]
// [sm_count]

inline int sm_count() {
  int count = 0;
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
  return count;
}
// [/sm_count]

struct LaunchShape {
  dim3 grid, block;
  size_t shared_bytes = 0;  // per CTA; more than 48 KB must be asked for
};

template <auto kKernel, typename... Arguments>
void launch(const LaunchShape& shape, Arguments... arguments) {
  check(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             int(shape.shared_bytes)));
  kKernel<<<shape.grid, shape.block, shape.shared_bytes>>>(arguments...);
  check(cudaGetLastError());
}
// the kernel
using namespace fa;
using k00::Launcher;
using T = __nv_bfloat16;
constexpr int kHeadDim = 128;
// The most that ||error|| / ||O|| of a row may be. Rounding to 16 bits makes it 2.3e-3 on average.
constexpr double kTolerance = 4e-3;
int seq_len = 4096, heads = 16, batch = 4;  // unless the command line says otherwise

// Compares about 16 rows per head with attention in float64, where e^score needs no maximum.
bool is_correct(const T* q, const T* k, const T* v, const T* o) {
  double worst = 0;
  bool passed = true;
  for (size_t row = 0; row < size_t(batch) * heads * seq_len; row += seq_len / 16 + 1) {
    const size_t head = row / seq_len * seq_len;  // its first row
    double value[kHeadDim] = {}, row_sum = 0, error = 0, norm = 0;
    for (size_t key = head; key < head + seq_len; key++) {
      double score = 0;
      for (int d = 0; d < kHeadDim; d++) {
        score += float(q[row * kHeadDim + d]) * float(k[key * kHeadDim + d]);
      }
      const double p = std::exp(score / std::sqrt(double(kHeadDim)));
      row_sum += p;
      for (int d = 0; d < kHeadDim; d++) value[d] += p * float(v[key * kHeadDim + d]);
    }
    for (int d = 0; d < kHeadDim; d++) {
      error += std::pow(float(o[row * kHeadDim + d]) - value[d] / row_sum, 2);
      norm += std::pow(value[d] / row_sum, 2);
    }
    worst = std::fmax(worst, std::sqrt(error / norm));
    passed &= std::sqrt(error / norm) <= kTolerance;  // false if O is not a number
  }
  std::printf("relative error %.2g (at most %.2g): %s\n", worst, kTolerance,
              passed ? "passed" : "WRONG");
  return passed;
}

int main(int argc, char** argv) {
#ifndef __CUDACC__  // the emulator is slow
  seq_len = 256, heads = 2, batch = 1;
#endif
  int* const sizes[] = {&seq_len, &heads, &batch};
  for (int i = 1; i < argc && i < 4; i++) *sizes[i - 1] = std::atoi(argv[i]);
  if (argc > 4 || seq_len <= 0 || seq_len % 128 || heads <= 0 || batch <= 0 ||
      int64_t(batch) * heads > 65535) {
    std::fprintf(stderr, "error: give [seq_len [heads [batch]]], seq_len a multiple of 128\n");
    return 2;
  }
  std::printf("00_name, seq_len %d, heads %d, batch %d\n", seq_len, heads, batch);

  const size_t count = size_t(batch) * heads * seq_len * kHeadDim, bytes = count * sizeof(T);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<T> host[4];  // Q, K, V and O
  T* gpu[4];
  for (int i = 0; i < 4; i++) {
    for (size_t n = 0; n < count; n++) host[i].push_back(T(i < 3 ? normal(random) : 0.0f));
    check(cudaMalloc(&gpu[i], bytes));
    check(cudaMemcpy(gpu[i], host[i].data(), bytes, cudaMemcpyHostToDevice));
  }
  Attention<T> a{gpu[0], gpu[1], gpu[2], gpu[3], batch, heads, seq_len, 1 / sqrtf(kHeadDim)};
  // [workspace_bytes]
  a.workspace_bytes =
      Launcher<T, kHeadDim>::workspace_bytes({batch, heads, seq_len, kHeadDim}, size_t(8) << 30);
  check(cudaMalloc(&a.workspace, a.workspace_bytes));
  // [/workspace_bytes]

#ifdef __CUDACC__  // the emulator does not measure time
  const int launches = 128;
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  for (int i = -launches / 4; i < launches; i++) {  // those before 0 warm up
    if (i == 0) check(cudaEventRecord(begin));
    Launcher<T, kHeadDim>::run(a);
  }
  check(cudaEventRecord(end));
  check(cudaEventSynchronize(end));
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin, end));
  std::printf("%.4f ms per launch, %.1f TFLOP/s\n", ms / launches,
              4e-9 * double(count) * seq_len * launches / ms);
#endif
  // O becomes NaN, which shows if this launch does not write all of it.
  check(cudaMemset(gpu[3], 0xff, bytes));
  Launcher<T, kHeadDim>::run(a);
  check(cudaMemcpy(host[3].data(), gpu[3], bytes, cudaMemcpyDeviceToHost));
  return is_correct(host[0].data(), host[1].data(), host[2].data(), host[3].data()) ? 0 : 1;
}
