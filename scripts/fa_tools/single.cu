// What scripts/fa single puts above and below a kernel. Lines from `// [name]` to `// [/name]` are
// for kernels that use the name.
namespace fa {

// ---- launching ----------------------------------------------------------------------------------
inline void check(cudaError_t error, int line = __builtin_LINE()) {
  if (error == cudaSuccess) return;
  throw std::runtime_error("line " + std::to_string(line) + ": " + cudaGetErrorString(error));
}

// What a launcher gets: tensors in the GPU's memory, [batch, heads, seq_len, head_dim] each.
template <typename T>
struct Attention {
  const T *q, *k, *v;
  T* o;
  int batch, heads, seq_len;
  float scale;  // of the scores: 1 / sqrt(head_dim)
  // [workspace_bytes]
  void* workspace;
  size_t workspace_bytes;
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
  check(cudaFuncGetAttributes(&attributes, kKernel));
  return attributes.ptxVersion;
}
// [/compiled_architecture]
// [sm_count]

inline int sm_count() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
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
// [make_slab_map]

// A map for TMA: boxes of box_rows rows and 64 columns (128 bytes, swizzled) of a row-major matrix.
// The driver makes it; asked for its function at run time, it need not be linked.
template <typename T>
ptx::TensorMap make_slab_map(const T* matrix, uint64_t columns, uint64_t rows, uint32_t box_rows) {
  void* encode = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000,
                                         cudaEnableDefault, &found));
  const uint64_t sizes[] = {columns, rows}, row_bytes[] = {columns * sizeof(T)};
  const uint32_t box[] = {64, box_rows}, every_element[] = {1, 1};
  ptx::TensorMap map;
  if (found != cudaDriverEntryPointSuccess ||
      reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(encode)(
          &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<T*>(matrix), sizes, row_bytes, box,
          every_element, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
          CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
    throw std::runtime_error("the driver makes no tensor map; TMA needs that of CUDA 12");
  }
  return map;
}
// [/make_slab_map]

}  // namespace fa
// the kernel
namespace {

using fa::k00::Launcher;
using T = __nv_bfloat16;
constexpr int kHeadDim = 128;
constexpr int kCheckedRows = 16;  // per head: the first, the last and random ones
// The most that ||error|| / ||O|| of a head may be. Rounding to 16 bits makes it 2.3e-3.
constexpr double kTolerance = 3e-3;
#ifdef __CUDACC__
constexpr int kLaunches = 160;              // of which the first fifth only warms up
int seq_len = 4096, heads = 16, batch = 4;  // unless the command line says otherwise
#else                                       // the emulator is slow and does not measure time
constexpr int kLaunches = 1;
int seq_len = 256, heads = 2, batch = 1;
#endif

// Compares rows of all heads with attention in float64, where e^score needs no maximum.
bool is_correct(const T* q, const T* k, const T* v, const T* o) {
  std::mt19937 random(2);
  double max_error = 0, max_relative = 0;
  bool passed = true;
  for (int head = 0; head < batch * heads; head++) {
    double error_squares = 0, value_squares = 0;
    for (int i = 0; i < kCheckedRows; i++) {
      const int row = i == 0 ? 0 : i == 1 ? seq_len - 1 : int(random() % seq_len);
      double value[kHeadDim] = {}, row_sum = 0;
      for (int key = 0; key < seq_len; key++) {
        double score = 0;
        for (int d = 0; d < kHeadDim; d++) {
          score += double(float(q[row * kHeadDim + d])) * float(k[key * kHeadDim + d]);
        }
        const double p = std::exp(score / std::sqrt(double(kHeadDim)));
        row_sum += p;
        for (int d = 0; d < kHeadDim; d++) value[d] += p * float(v[key * kHeadDim + d]);
      }
      for (int d = 0; d < kHeadDim; d++) {
        const double error = std::abs(float(o[row * kHeadDim + d]) - value[d] / row_sum);
        max_error = std::max(max_error, error);
        error_squares += error * error;
        value_squares += value[d] / row_sum * value[d] / row_sum;
      }
    }
    const double relative = std::sqrt(error_squares / value_squares);
    max_relative = std::max(max_relative, relative);
    passed &= relative <= kTolerance;  // false if O is not a number
    for (const T** tensor : {&q, &k, &v, &o}) *tensor += size_t(seq_len) * kHeadDim;
  }
  std::printf("max error %.2g, relative error %.2g (at most %.2g): %s\n", max_error, max_relative,
              kTolerance, passed ? "passed" : "WRONG");
  return passed;
}

bool run() {
  const size_t count = size_t(batch) * heads * seq_len * kHeadDim, bytes = count * sizeof(T);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<T> host[4];  // Q, K, V and O
  T* gpu[4];
  for (int i = 0; i < 4; i++) {
    for (size_t n = 0; n < count; n++) host[i].push_back(T(i < 3 ? normal(random) : 0.0f));
    fa::check(cudaMalloc(&gpu[i], bytes));
    fa::check(cudaMemcpy(gpu[i], host[i].data(), bytes, cudaMemcpyHostToDevice));
  }
  const float scale = 1 / std::sqrt(float(kHeadDim));
  fa::Attention<T> a{gpu[0], gpu[1], gpu[2], gpu[3], batch, heads, seq_len, scale};
  // [workspace_bytes]
  a.workspace_bytes = Launcher<T, kHeadDim>::workspace_bytes({batch, heads, seq_len, kHeadDim},
                                                             size_t(8) << 30);
  fa::check(cudaMalloc(&a.workspace, a.workspace_bytes));
  // [/workspace_bytes]

  cudaEvent_t begin, end;
  fa::check(cudaEventCreate(&begin));
  fa::check(cudaEventCreate(&end));
  std::vector<float> times;  // ms
  float total = 0;
  for (bool last = false; !last; total += times.back()) {
    last = times.size() + 1 == kLaunches || total > 2000;  // 2 s are enough
    // O becomes NaN, which is found if the last launch does not write all of it.
    if (last) fa::check(cudaMemset(gpu[3], 0xff, bytes));
    fa::check(cudaEventRecord(begin));
    Launcher<T, kHeadDim>::run(a);
    fa::check(cudaEventRecord(end));
    fa::check(cudaEventSynchronize(end));
    fa::check(cudaEventElapsedTime(&times.emplace_back(), begin, end));
  }
  fa::check(cudaMemcpy(host[3].data(), gpu[3], bytes, cudaMemcpyDeviceToHost));
  std::sort(times.begin() + times.size() / 5, times.end());
  if (const float ms = times[times.size() * 3 / 5]; kLaunches > 1) {
    std::printf("%.4f ms (median), %.1f TFLOP/s\n", ms, 4e-9 * double(count) * seq_len / ms);
  }
  return is_correct(host[0].data(), host[1].data(), host[2].data(), host[3].data());
}

}  // namespace

int main(int argc, char** argv) try {
  int* const sizes[] = {&seq_len, &heads, &batch};
  bool good = argc <= 4;
  for (int i = 1; i < argc && good; i++) {
    char rest;
    good = std::sscanf(argv[i], "%7d%c", sizes[i - 1], &rest) == 1 && *sizes[i - 1] > 0;
  }
  if (!good || seq_len % 128 != 0 || int64_t(batch) * heads > 65535) {
    std::fprintf(stderr, "error: the arguments are [seq_len [heads [batch]]]: seq_len a multiple "
                         "of 128, heads * batch at most 65535\n");
    return 2;
  }
  std::printf("00_name, seq_len %d, heads %d, batch %d\n", seq_len, heads, batch);
  return run() ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 3;
}
