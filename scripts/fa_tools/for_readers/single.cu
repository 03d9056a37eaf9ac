// What scripts/fa single puts around a kernel: what nvcc alone sees, then the launch, then the
// program or the library's function. Lines from `// [name]` to `// [/name]` are for kernels that use
// the name, and from `// [!name]` to `// [/!name]` for the others; as_library is for libraries.
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
// [o_strides]

// Where the rows of a tensor lie: how many elements apart neighbouring blocks (of the batch, or
// pages), heads and rows are.
struct Strides {
  long long block = 0, head = 0, row = 0;
  // The element that a row begins with.
  __host__ __device__ size_t at(size_t of_block, size_t of_head, size_t of_row) const {
    return of_block * size_t(block) + of_head * size_t(head) + of_row * size_t(row);
  }
};
// [/o_strides]
// [TensorMap]
// [make_tensor_map]

// A map for TMA: boxes of a tensor, whose innermost dimension comes first. Boxes have 64 columns:
// 128 bytes, swizzled. The driver makes the map; asked for its function at run time, it need not be
// linked.
template <typename T>
ptx::TensorMap make_tensor_map(const T* tensor, std::initializer_list<uint64_t> sizes,
                               std::initializer_list<uint64_t> strides,
                               std::initializer_list<uint32_t> box, layout::SwizzleMode) {
  const uint32_t every_element[] = {1, 1, 1, 1, 1};  // of up to five dimensions
  // [/make_tensor_map]
  // [make_slab_map]

// A map for TMA: boxes of box_rows rows and 64 columns (128 bytes, swizzled) of one head. A copy
// names {column, row, head, sequence}. The driver makes the map; asked for its function at run
// time, it need not be linked.
template <typename T>
ptx::TensorMap make_slab_map(const T* tensor, int head_dim, int seq_len, int heads, int batch,
                             const Strides& strides, uint32_t box_rows) {
  const auto bytes = [](long long elements) { return uint64_t(elements) * sizeof(T); };
  const uint64_t sizes[] = {uint64_t(head_dim), uint64_t(seq_len), uint64_t(heads),
                            uint64_t(batch)};
  const uint64_t apart[] = {bytes(strides.row), bytes(strides.head), bytes(strides.block)};
  const uint32_t box[] = {64, box_rows, 1, 1}, every_element[] = {1, 1, 1, 1};
  // [/make_slab_map]
  // [as_library]
  constexpr auto kMapType = std::is_same_v<T, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                      : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  // [/as_library]
  void* encode = nullptr;
  cudaDriverEntryPointQueryResult found{};
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault,
                                   &found);
  ptx::TensorMap map;
  if (!encode ||
      reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(encode)(
          // [make_tensor_map]
          &map, kMapType, uint32_t(sizes.size()), const_cast<T*>(tensor),
          sizes.begin(), strides.begin(), box.begin(), every_element,
          CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
          // [/make_tensor_map]
          // [make_slab_map]
          &map, kMapType, 4, const_cast<T*>(tensor), sizes, apart, box,
          every_element, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
          // [/make_slab_map]
          CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
    // [!as_library]
    std::fprintf(stderr, "error: the driver makes no tensor map; TMA needs that of CUDA 12\n");
    std::exit(3);
    // [/!as_library]
    // [as_library]
    throw cudaErrorNotSupported;
    // [/as_library]
  }
  return map;
}
// [/TensorMap]
// the launch
// [as_library]
// What a call of CUDA says, thrown to the function at the end of this file.
inline void check(cudaError_t error) {
  if (error != cudaSuccess) throw error;
}

inline thread_local cudaStream_t launch_stream = nullptr;  // of this thread's call
// [/as_library]
// [!as_library]
inline void check(cudaError_t error, int line = __builtin_LINE()) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "error: line %d: %s\n", line, cudaGetErrorString(error));
  std::exit(3);
}
// [/!as_library]

// [kv_heads]
enum class Mask { kNone, kCausal };  // causal: the last query sees all keys
// [softcap]
struct Window {
  int left, right;  // keys beside a query's own place; -1: all
};
// [/softcap]

// [/kv_heads]
// [!kv_heads]
// What a launcher gets: tensors in the GPU's memory, [batch, heads, seq_len, head_dim] each.
// [/!kv_heads]
// [kv_heads]
// What a launcher gets: tensors in the GPU's memory. Q and O are [batch, heads, seq_len, head_dim],
// and K and V are [batch, kv_heads, kv_len, head_dim].
// [/kv_heads]
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
  // [kv_heads]
  Mask mask = Mask::kCausal;
  int kv_len = 0, kv_heads = 0;
  int q_rows = 0, kv_rows = 0;  // of one head: seq_len and kv_len, or of all packed sequences
  float* lse = nullptr;         // the logarithm of the sum of each row of Q; null: not wanted
  // [/kv_heads]
  // [cu_seqlens_q]
  // Of packed sequences, batch + 1 numbers: the first row of each in a head, and the end; or null.
  // Then Q and O are [heads, q_rows, head_dim], and K and V [kv_heads, kv_rows, head_dim].
  const int *cu_seqlens_q = nullptr, *cu_seqlens_kv = nullptr;
  // [/cu_seqlens_q]
  // [block_table]
  // Of K and V in pages, [pages, kv_heads, page_size, head_dim]: the pages of each sequence and how
  // many keys it has, of sizes [batch, table_pages] and [batch]; or null.
  const int *block_table = nullptr, *kv_lens = nullptr;
  int page_size = 0, table_pages = 0;
  // [/block_table]
  // [softcap]
  Window window = {-1, 0};  // with what the mask leaves of it
  // What this file's caller does not choose: none of them.
  float softcap = 0;
  const float *sinks = nullptr, *alibi_slopes = nullptr;
  int alibi_stride = 0;
  // [/softcap]
  // [o_strides]
  Strides q_strides, k_strides, v_strides, o_strides;
  // [kv_heads]
  bool contiguous = true;
  // [/kv_heads]
  void be_contiguous(long long head_dim) {
    // [!kv_heads]
    const long long head = seq_len * head_dim;
    q_strides = k_strides = v_strides = o_strides = {heads * head, head, head_dim};
    // [/!kv_heads]
    // [kv_heads]
    const auto strides = [=](long long of_heads, long long rows) {
      return Strides{of_heads * rows * head_dim, rows * head_dim, head_dim};
    };
    q_strides = o_strides = strides(heads, q_rows);
    k_strides = v_strides = strides(kv_heads, kv_rows);
    // [block_table]
    if (block_table) k_strides = v_strides = strides(kv_heads, page_size);
    // [/block_table]
    // [/kv_heads]
  }
  // [/o_strides]
};
// [Problem]

struct Problem {
  int batch, heads, seq_len, head_dim;
  // [!kv_heads]
  size_t head_count() const { return size_t(batch) * heads; }
  // [/!kv_heads]
  // [kv_heads]
  int kv_heads;
  int key_heads() const { return kv_heads; }
  // [/kv_heads]
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
  int device = 0, count = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}
// [/sm_count]

struct LaunchShape {
  dim3 grid, block;
  size_t shared_bytes = 0;  // per CTA; more than 48 KB must be asked for
  // [clusters_at_once]
  int cluster = 1;  // CTAs of a cluster, neighbours in x
  // [/clusters_at_once]
};

// [clusters_at_once]
// A launch of clusters, whose size is in `attribute`.
inline cudaLaunchConfig_t launch_of_clusters(const LaunchShape& shape,
                                             cudaLaunchAttribute& attribute) {
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {unsigned(shape.cluster), 1, 1};
  cudaLaunchConfig_t how{};
  how.gridDim = shape.grid;
  how.blockDim = shape.block;
  how.dynamicSmemBytes = shape.shared_bytes;
  how.attrs = &attribute;
  how.numAttrs = 1;
  return how;
}

// How many clusters can run at the same time: a cluster is on SMs of one GPC, a part of the GPU.
template <auto kKernel>
int clusters_at_once(const LaunchShape& shape) {
  check(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             int(shape.shared_bytes)));
  cudaLaunchAttribute attribute{};
  const cudaLaunchConfig_t how = launch_of_clusters(shape, attribute);
  int clusters = 0;  // none of this size can
  const cudaError_t asked = cudaOccupancyMaxActiveClusters(&clusters, kKernel, &how);
  if (asked != cudaErrorInvalidClusterSize) check(asked);
  return clusters;
}

// [/clusters_at_once]
template <auto kKernel, typename... Arguments>
void launch(const LaunchShape& shape, Arguments... arguments) {
  check(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             int(shape.shared_bytes)));
  // [clusters_at_once]
  cudaLaunchAttribute attribute{};
  cudaLaunchConfig_t how = launch_of_clusters(shape, attribute);
  // [as_library]
  how.stream = launch_stream;
  // [/as_library]
  check(cudaLaunchKernelEx(&how, kKernel, arguments...));
  // [/clusters_at_once]
  // [!clusters_at_once]
  // [!as_library]
  kKernel<<<shape.grid, shape.block, shape.shared_bytes>>>(arguments...);
  check(cudaGetLastError());
  // [/!as_library]
  // [as_library]
  // Returns the error of this launch; cudaGetLastError() may have one that the program left before.
  cudaLaunchConfig_t how{};
  how.gridDim = shape.grid;
  how.blockDim = shape.block;
  how.dynamicSmemBytes = shape.shared_bytes;
  how.stream = launch_stream;
  check(cudaLaunchKernelEx(&how, kKernel, arguments...));
  // [/as_library]
  // [/!clusters_at_once]
}
// the kernel
using namespace fa;
using k00::Launcher;
using T = __nv_bfloat16;
constexpr int kHeadDim = 128;
// The most that ||error|| / ||O|| of a row may be. Rounding to 16 bits makes it 2.3e-3 on average.
constexpr double kTolerance = 4e-3;
int seq_len = 4096, heads = 16, batch = 4;  // unless the command line says otherwise
// [kv_heads]
int kv_len = 4096, kv_heads = 4;

// The mask is causal: the last query sees all keys, and each query before it one key fewer.
int visible_keys(size_t query) { return std::max(0, int(query) + 1 + kv_len - seq_len); }
// [/kv_heads]

// Compares about 16 rows per head with attention in float64, where e^score needs no maximum.
bool is_correct(const T* q, const T* k, const T* v, const T* o) {
  double worst = 0;
  bool passed = true;
  for (size_t row = 0; row < size_t(batch) * heads * seq_len; row += seq_len / 16 + 1) {
    // [!kv_heads]
    const size_t head = row / seq_len * seq_len;  // its first row
    const size_t end = head + seq_len;
    // [/!kv_heads]
    // [kv_heads]
    const size_t head = row / seq_len * kv_heads / heads * kv_len;  // its first key
    const size_t end = head + visible_keys(row % seq_len);
    // [/kv_heads]
    double value[kHeadDim] = {}, row_sum = 0, error = 0, norm = 0;
    for (size_t key = head; key < end; key++) {
      double score = 0;
      for (int d = 0; d < kHeadDim; d++) {
        score += float(q[row * kHeadDim + d]) * float(k[key * kHeadDim + d]);
      }
      const double p = std::exp(score / std::sqrt(double(kHeadDim)));
      row_sum += p;
      for (int d = 0; d < kHeadDim; d++) value[d] += p * float(v[key * kHeadDim + d]);
    }
    // [kv_heads]
    if (end == head) row_sum = norm = 1;  // the row of a query without keys is zeros
    // [/kv_heads]
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
  // [!kv_heads]
  seq_len = 256, heads = 2, batch = 1;
  // [/!kv_heads]
  // [kv_heads]
  seq_len = 200, heads = 2, batch = 1, kv_len = 300, kv_heads = 1;
  // [/kv_heads]
#endif
  // [!kv_heads]
  int* const sizes[] = {&seq_len, &heads, &batch};
  for (int i = 1; i < argc && i < 4; i++) *sizes[i - 1] = std::atoi(argv[i]);
  if (argc > 4 || seq_len <= 0 || seq_len % 128 || heads <= 0 || batch <= 0 ||
      int64_t(batch) * heads > 65535) {
    std::fprintf(stderr, "error: give [seq_len [heads [batch]]], seq_len a multiple of 128\n");
    return 2;
  }
  std::printf("00_name, seq_len %d, heads %d, batch %d\n", seq_len, heads, batch);

  const size_t count = size_t(batch) * heads * seq_len * kHeadDim, bytes = count * sizeof(T);
  // [/!kv_heads]
  // [kv_heads]
  int* const sizes[] = {&seq_len, &heads, &batch, &kv_len, &kv_heads};
  for (int i = 1; i < argc && i < 6; i++) *sizes[i - 1] = std::atoi(argv[i]);
  if (argc > 6 || seq_len <= 0 || heads <= 0 || batch <= 0 || kv_len <= 0 || kv_heads <= 0 ||
      heads % kv_heads || int64_t(batch) * heads > 65535) {
    std::fprintf(stderr,
                 "error: give [seq_len [heads [batch [kv_len [kv_heads]]]]], kv_heads a divisor\n");
    return 2;
  }
  std::printf("00_name, causal, seq_len %d, heads %d, batch %d", seq_len, heads, batch);
  std::printf(", kv_len %d, kv_heads %d\n", kv_len, kv_heads);

  const size_t q_count = size_t(batch) * heads * seq_len * kHeadDim;
  const size_t kv_count = size_t(batch) * kv_heads * kv_len * kHeadDim;
  // [/kv_heads]
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<T> host[4];  // Q, K, V and O
  T* gpu[4];
  for (int i = 0; i < 4; i++) {
    // [kv_heads]
    const size_t count = i == 1 || i == 2 ? kv_count : q_count, bytes = count * sizeof(T);
    // [/kv_heads]
    for (size_t n = 0; n < count; n++) host[i].push_back(T(i < 3 ? normal(random) : 0.0f));
    check(cudaMalloc(&gpu[i], bytes));
    check(cudaMemcpy(gpu[i], host[i].data(), bytes, cudaMemcpyHostToDevice));
  }
  Attention<T> a{gpu[0], gpu[1], gpu[2], gpu[3], batch, heads, seq_len, 1 / sqrtf(kHeadDim)};
  // [kv_heads]
  a.kv_len = a.kv_rows = kv_len, a.kv_heads = kv_heads, a.q_rows = seq_len;
  // [/kv_heads]
  // [o_strides]
  a.be_contiguous(kHeadDim);
  // [/o_strides]
  // [workspace_bytes]
  // [!kv_heads]
  a.workspace_bytes =
      Launcher<T, kHeadDim>::workspace_bytes({batch, heads, seq_len, kHeadDim}, size_t(8) << 30);
  // [/!kv_heads]
  // [kv_heads]
  a.workspace_bytes =
      Launcher<T, kHeadDim>::workspace_bytes({batch, heads, seq_len, kHeadDim, kv_heads}, 0);
  // [/kv_heads]
  check(cudaMalloc(&a.workspace, a.workspace_bytes));
  // [/workspace_bytes]
  // [zeroed_bytes]
  check(cudaMemset(a.workspace, 0, Launcher<T, kHeadDim>::zeroed_bytes()));
  // [/zeroed_bytes]

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
  // [!kv_heads]
  std::printf("%.4f ms per launch, %.1f TFLOP/s\n", ms / launches,
              4e-9 * double(count) * seq_len * launches / ms);
  // [/!kv_heads]
  // [kv_heads]
  double pairs = 0;  // of a query and a key that it sees, in one head
  for (int i = 0; i < seq_len; i++) pairs += visible_keys(i);
  std::printf("%.4f ms per launch, %.1f TFLOP/s\n", ms / launches,
              4e-9 * pairs * kHeadDim * batch * heads * launches / ms);
  // [/kv_heads]
#endif
  // O becomes NaN, which shows if this launch does not write all of it.
  // [!kv_heads]
  check(cudaMemset(gpu[3], 0xff, bytes));
  // [/!kv_heads]
  // [kv_heads]
  const size_t bytes = q_count * sizeof(T);
  check(cudaMemset(gpu[3], 0xff, bytes));
  // [/kv_heads]
  Launcher<T, kHeadDim>::run(a);
  check(cudaMemcpy(host[3].data(), gpu[3], bytes, cudaMemcpyDeviceToHost));
  return is_correct(host[0].data(), host[1].data(), host[2].data(), host[3].data()) ? 0 : 1;
}
// the library
using namespace fa;
using k00::Launcher;

// O = softmax(scale QK^T) V, forward, on the current GPU.
//
// [!kv_heads]
//   q, k, v, o    tensors [batch, heads, seq_len, head_dim] in the GPU's memory, each at a multiple
//                 of 16 bytes; o overlaps none of the others
// [!o_strides]
//                 All are contiguous.
// [/!o_strides]
//   batch, heads  from 1 on; batch * heads is at most 65535
//   seq_len       a multiple of 128, at most 4194304
// [/!kv_heads]
// [kv_heads]
//   q, o          tensors [batch, heads, seq_len, head_dim] in the GPU's memory, each at a multiple
//                 of 16 bytes; o overlaps no other tensor
//   k, v          such tensors [batch, kv_heads, kv_len, head_dim]
//   lse           [batch, heads, seq_len] fp32: becomes the natural logarithm of each row's sum of
//                 e^score, -inf for a query that sees no key. Null: not wanted
//   batch, heads  from 1 on; batch * heads is at most 65535
//   kv_heads      a divisor of heads: head h reads head h / (heads / kv_heads) of k and v
//   seq_len       queries of a sequence, from 1 to 4194304
//   kv_len        keys of a sequence, in the same range
// [/kv_heads]
//   head_dim      64 or 128
//   dtype         of q, k, v and o: 0 for fp16, 1 for bf16
//   scale         of the scores, usually 1 / sqrt(head_dim); from 1e-30 to 1000
// [kv_heads]
//   causal        1: the last query sees all keys, and each query before it one key fewer. 0: each
//                 query sees all keys
// [/kv_heads]
// [cu_seqlens_q]
//   cu_seqlens_q, cu_seqlens_kv, q_rows, kv_rows
//                 of packed sequences: batch + 1 numbers in the GPU's memory, the first row of each
//                 sequence in its head, and at the end the rows of a head, which q_rows and kv_rows
//                 are. Then q and o are [heads, q_rows, head_dim], k and v [kv_heads, kv_rows,
//                 head_dim], lse is [heads, q_rows], and seq_len and kv_len are at least the
//                 longest. Both begin with 0 and never fall. Null and 0: not packed
// [/cu_seqlens_q]
// [block_table]
//   block_table, kv_lens, page_size
//                 of k and v in pages, [pages, kv_heads, page_size, head_dim]: kv_lens[i] of kv_len
//                 keys belong to sequence i, and those from j * page_size on are in page
//                 block_table[i * columns + j], with columns = kv_len / page_size, rounded up. Both
//                 arrays are in the GPU's memory, and page_size is 16, 32, 64, 128 or 256. Null and
//                 0: not in pages
// [cu_seqlens_q]
//                 Packed sequences are not in pages.
// [/cu_seqlens_q]
// [/block_table]
// [o_strides]
//   strides       twelve numbers, in host memory: how many elements apart neighbouring blocks (of
//                 the batch, or pages), heads and rows are, of q, then k, v and o. Each is a
//                 multiple of 8 from 0 to 2^39 - 8. Null: contiguous
// [/o_strides]
//   stream        takes the launch, and the call does not wait; null is the default stream
//
// [workspace_bytes]
// The kernel's workspace comes from the stream's memory pool (cudaMallocAsync), which may be out of
// memory.
//
// [/workspace_bytes]
// Returns cudaSuccess, cudaErrorInvalidValue for an argument that is none of these, before anything
// is launched, or the error with which CUDA refuses the launch, for example on another GPU. Whether
// tensors overlap is not checked, nor is what is in the GPU's memory: what is wrong there is
// undefined behaviour.
extern "C" __attribute__((visibility("default"))) cudaError_t attention00(
    // [!kv_heads]
    const void* q, const void* k, const void* v, void* o, int batch, int heads, int seq_len,
    int head_dim, int dtype, float scale,
    // [/!kv_heads]
    // [kv_heads]
    const void* q, const void* k, const void* v, void* o, float* lse, int batch, int heads,
    int kv_heads, int seq_len, int kv_len, int head_dim, int dtype, float scale, int causal,
    // [cu_seqlens_q]
    const int* cu_seqlens_q, const int* cu_seqlens_kv, int q_rows, int kv_rows,
    // [/cu_seqlens_q]
    // [block_table]
    const int* block_table, const int* kv_lens, int page_size,
    // [/block_table]
    // [/kv_heads]
    // [o_strides]
    const long long* strides,
    // [/o_strides]
    cudaStream_t stream) {
  for (const void* tensor : {q, k, v, static_cast<const void*>(o)}) {
    if (!tensor || reinterpret_cast<uintptr_t>(tensor) % 16 != 0) return cudaErrorInvalidValue;
  }
  // [kv_heads]
  const void* const lists[] = {
      lse,
      // [cu_seqlens_q]
      cu_seqlens_q, cu_seqlens_kv,
      // [/cu_seqlens_q]
      // [block_table]
      block_table, kv_lens,
      // [/block_table]
  };
  for (const void* list : lists) {
    if (reinterpret_cast<uintptr_t>(list) % 4 != 0) return cudaErrorInvalidValue;
  }
  // [/kv_heads]
  constexpr int kMost = 1 << 22;
  // [!kv_heads]
  if (batch < 1 || heads < 1 || int64_t(batch) * heads > 65535 || seq_len < 1 || seq_len > kMost ||
      seq_len % 128 != 0 || (head_dim != 64 && head_dim != 128) || (dtype != 0 && dtype != 1) ||
      !(scale >= 1e-30f && scale <= 1000)) {
    return cudaErrorInvalidValue;
  }
  // [/!kv_heads]
  // [kv_heads]
  if (batch < 1 || heads < 1 || int64_t(batch) * heads > 65535 || kv_heads < 1 ||
      heads % kv_heads != 0 || seq_len < 1 || seq_len > kMost || kv_len < 1 || kv_len > kMost ||
      (head_dim != 64 && head_dim != 128) || (dtype != 0 && dtype != 1) ||
      (causal != 0 && causal != 1) || !(scale >= 1e-30f && scale <= 1000)) {
    return cudaErrorInvalidValue;
  }
  // [/kv_heads]
  // [o_strides]
  for (int i = 0; strides && i < 12; i++) {
    if (strides[i] < 0 || strides[i] % 8 != 0 || strides[i] >= 1LL << 39) {
      return cudaErrorInvalidValue;
    }
  }
  // [/o_strides]
  // [cu_seqlens_q]
  const bool packed = cu_seqlens_q;
  if (packed != bool(cu_seqlens_kv) || packed != (q_rows != 0) || packed != (kv_rows != 0) ||
      q_rows < 0 || kv_rows < 0) {
    return cudaErrorInvalidValue;
  }
  // [/cu_seqlens_q]
  // [block_table]
  const bool paged = block_table;
  if (paged != bool(kv_lens) || paged != (page_size != 0) ||
      (paged && (page_size < 16 || page_size > 256 || (page_size & (page_size - 1)) != 0))) {
    return cudaErrorInvalidValue;
  }
  // [cu_seqlens_q]
  if (packed && paged) return cudaErrorInvalidValue;
  // [/cu_seqlens_q]
  // [/block_table]
  // For one element type and head_dim.
  const auto run = [&](auto element, auto columns) {
    using T = decltype(element);
    using Kernel = Launcher<T, decltype(columns)::value>;
    Attention<T> a{static_cast<const T*>(q), static_cast<const T*>(k), static_cast<const T*>(v),
                   static_cast<T*>(o), batch, heads, seq_len, scale};
    // [kv_heads]
    a.mask = causal ? Mask::kCausal : Mask::kNone;
    // [softcap]
    a.window.right = causal ? 0 : -1;
    // [/softcap]
    a.kv_len = a.kv_rows = kv_len, a.kv_heads = kv_heads, a.q_rows = seq_len, a.lse = lse;
    // [/kv_heads]
    // [cu_seqlens_q]
    if (packed) a.q_rows = q_rows, a.kv_rows = kv_rows;
    a.cu_seqlens_q = cu_seqlens_q, a.cu_seqlens_kv = cu_seqlens_kv;
    // [/cu_seqlens_q]
    // [block_table]
    a.block_table = block_table, a.kv_lens = kv_lens, a.page_size = page_size;
    a.table_pages = paged ? (kv_len + page_size - 1) / page_size : 0;
    // [/block_table]
    // [o_strides]
    a.be_contiguous(head_dim);
    if (strides) {
      // [kv_heads]
      a.contiguous = false;
      // [/kv_heads]
      const auto of = [&](int i) { return Strides{strides[i], strides[i + 1], strides[i + 2]}; };
      a.q_strides = of(0), a.k_strides = of(3), a.v_strides = of(6), a.o_strides = of(9);
    }
    // [/o_strides]
    // [!workspace_bytes]
    Kernel::run(a);
    // [/!workspace_bytes]
    // [workspace_bytes]
    // [!kv_heads]
    a.workspace_bytes =
        Kernel::workspace_bytes({batch, heads, seq_len, head_dim}, size_t(1) << 30);
    // [/!kv_heads]
    // [kv_heads]
    a.workspace_bytes = Kernel::workspace_bytes({batch, heads, seq_len, head_dim, kv_heads}, 0);
    // [/kv_heads]
    check(cudaMallocAsync(&a.workspace, a.workspace_bytes, stream));
    try {
      // [zeroed_bytes]
      check(cudaMemsetAsync(a.workspace, 0, Kernel::zeroed_bytes(), stream));
      // [/zeroed_bytes]
      Kernel::run(a);
    } catch (cudaError_t) {
      cudaFreeAsync(a.workspace, stream);
      throw;
    }
    check(cudaFreeAsync(a.workspace, stream));
    // [/workspace_bytes]
  };
  constexpr std::integral_constant<int, 64> k64;
  constexpr std::integral_constant<int, 128> k128;
  launch_stream = stream;
  try {
    if (dtype == 0) {
      head_dim == 64 ? run(__half(), k64) : run(__half(), k128);
    } else {
      head_dim == 64 ? run(__nv_bfloat16(), k64) : run(__nv_bfloat16(), k128);
    }
  } catch (cudaError_t error) {
    cudaGetLastError();  // forgets it, so that no later question of the program gives it again
    return error;
  }
  return cudaSuccess;
}
