// Prints what ldmatrix, stmatrix, mma.sync and cp.async of the GPU (or of the emulator) give, as
// hashes. The lines of an H200 are in warp_matrix_h200.txt; a test compares the emulator's with
// them.
#include <cstring>
#include <type_traits>
#include <utility>

#include "common/emulator/tests/golden/operands.h"
#include "common/emulator/tests/golden/probe.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mma.h"
#include "common/ptx/wmma.h"

namespace fa::probe {

// ---- ldmatrix, stmatrix: 4 KB of shared memory that number their 16-bit elements ----------------
struct MatrixStorage {
  alignas(128) uint16_t elements[2048];
};

// The address of this lane's row; of a matrix that does not exist, none that could be read.
template <int kCount>
__device__ uint32_t row_address(const MatrixStorage& smem, const uint32_t* offsets) {
  const bool exists = threadIdx.x < 8 * kCount;
  return exists ? ptx::shared_address(smem.elements) + offsets[threadIdx.x] : 0xffffffffu;
}

template <int kCount, bool kTranspose>
__global__ void ldmatrix_kernel(const uint32_t* offsets, uint32_t* out) {
  auto& smem = shared_storage<MatrixStorage>();
  for (int i = threadIdx.x; i < 2048; i += 32) smem.elements[i] = uint16_t(i);
  __syncwarp();
  uint32_t r[kCount];
  const uint32_t address = row_address<kCount>(smem, offsets);
  if constexpr (kCount == 1)
    kTranspose ? ptx::ldmatrix_x1_trans(r, address) : ptx::ldmatrix_x1(r, address);
  if constexpr (kCount == 2)
    kTranspose ? ptx::ldmatrix_x2_trans(r, address) : ptx::ldmatrix_x2(r, address);
  if constexpr (kCount == 4)
    kTranspose ? ptx::ldmatrix_x4_trans(r, address) : ptx::ldmatrix_x4(r, address);
  for (int i = 0; i < kCount; i++) out[threadIdx.x * kCount + i] = r[i];
}

template <int kCount, bool kTranspose>
__global__ void stmatrix_kernel(const uint32_t* offsets, uint32_t* out) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  auto& smem = shared_storage<MatrixStorage>();
  for (int i = threadIdx.x; i < 2048; i += 32) smem.elements[i] = 0xeeee;
  __syncwarp();
  uint32_t r[kCount];
  for (int i = 0; i < kCount; i++) {
    r[i] = (uint32_t(threadIdx.x) * 8 + i * 2) | (uint32_t(threadIdx.x) * 8 + i * 2 + 1) << 16;
  }
  const uint32_t address = row_address<kCount>(smem, offsets);
  if constexpr (kCount == 1) ptx::stmatrix_x1(r, address);
  if constexpr (kCount == 2) ptx::stmatrix_x2(r, address);
  if constexpr (kCount == 4)
    kTranspose ? ptx::stmatrix_x4_trans(r, address) : ptx::stmatrix_x4(r, address);
  __syncwarp();
  for (int i = threadIdx.x; i < 1024; i += 32) {
    out[i] = smem.elements[2 * i] | uint32_t(smem.elements[2 * i + 1]) << 16;
  }
#endif
}

void probe_matrices() {
  Random random{1};
  std::vector<uint32_t> linear(32), swizzled(32), scattered(32);
  for (uint32_t lane = 0; lane < 32; lane++) {
    linear[lane] = lane * 16;
    swizzled[lane] = lane * 128 % 4096 + (lane % 8 ^ lane / 8) * 16;
    scattered[lane] =
        lane * 128 + random.next() % 8 * 16;  // rows do not overlap: stores are defined
  }
  const std::pair<const char*, const std::vector<uint32_t>*> patterns[] = {
      {"linear", &linear}, {"swizzled", &swizzled}, {"scattered", &scattered}};
  for (const auto& [name, offsets] : patterns) {
    const Buffer in = upload("offsets", *offsets);
    const std::string ending = std::string("_") + name;
    auto probe = [&]<auto kKernel>(const std::string& what, size_t words) {
      Buffer out("out", words * 4);
      run<kKernel>({dim3(1), dim3(32), sizeof(MatrixStorage)}, in, out);
      print_hashes(what + ending, download<uint32_t>(out), words);
    };
    probe.template operator()<ldmatrix_kernel<1, false>>("ldmatrix_x1", 32);
    probe.template operator()<ldmatrix_kernel<2, false>>("ldmatrix_x2", 64);
    probe.template operator()<ldmatrix_kernel<4, false>>("ldmatrix_x4", 128);
    probe.template operator()<ldmatrix_kernel<1, true>>("ldmatrix_x1_trans", 32);
    probe.template operator()<ldmatrix_kernel<2, true>>("ldmatrix_x2_trans", 64);
    probe.template operator()<ldmatrix_kernel<4, true>>("ldmatrix_x4_trans", 128);
    probe.template operator()<stmatrix_kernel<1, false>>("stmatrix_x1", 1024);
    probe.template operator()<stmatrix_kernel<2, false>>("stmatrix_x2", 1024);
    probe.template operator()<stmatrix_kernel<4, false>>("stmatrix_x4", 1024);
    probe.template operator()<stmatrix_kernel<4, true>>("stmatrix_x4_trans", 1024);
  }
}

// ---- mma.sync: raw operands of many products ----------------------------------------------------
constexpr int kProducts = 256;  // a launch

template <typename T, int kDepth>
__global__ void mma_kernel(const uint32_t* a, const uint32_t* b, float* d) {
  for (int product = 0; product < kProducts; product++) {
    const int at = product * 32 + threadIdx.x;
    float rD[4];
    uint32_t rA[kDepth / 4], rB[kDepth / 8];
    for (int i = 0; i < 4; i++) rD[i] = d[at * 4 + i];
    for (int i = 0; i < kDepth / 4; i++) rA[i] = a[at * (kDepth / 4) + i];
    for (int i = 0; i < kDepth / 8; i++) rB[i] = b[at * (kDepth / 8) + i];
    if constexpr (kDepth == 16) ptx::mma_m16n8k16<T>(rD, rA, rB);
    if constexpr (kDepth == 8) ptx::mma_m16n8k8<T>(rD, rA, rB);
    for (int i = 0; i < 4; i++) d[at * 4 + i] = rD[i];
  }
}

template <typename T, int kDepth>
void probe_mma(const char* name, bool half) {
  for (const auto& [kind_name, kind] : kOperands) {
    Random random{100 + uint64_t(kind)};
    std::vector<uint16_t> a(size_t(kProducts) * 32 * kDepth / 2), b(a.size() / 2);
    std::vector<uint32_t> d(size_t(kProducts) * 32 * 4);
    for (uint16_t& x : a) x = operand(random, kind, half);
    for (uint16_t& x : b) x = operand(random, kind, half);
    for (uint32_t& x : d) x = accumulator(random, kind);
    const Buffer in_a = upload("a", a), in_b = upload("b", b);
    const Buffer out = upload("d", d);
    run<mma_kernel<T, kDepth>>({dim3(1), dim3(32)}, in_a, in_b, out);
    print_hashes(std::string("mma_") + name + "_" + kind_name, download<uint32_t>(out), d.size());
  }
}

// ---- wmma: the same sums, through shared memory -------------------------------------------------
template <typename T>
struct FragmentStorage {
  alignas(128) T a[16][16];
  alignas(128) T b[16][16];
  alignas(128) float c[16][16];
};

template <typename T, bool kTransposed>
__global__ void wmma_kernel(const T* a, const T* b, float* c) {
  namespace wmma = nvcuda::wmma;
  auto& smem = shared_storage<FragmentStorage<T>>();
  for (int product = 0; product < kProducts / 8; product++) {
    for (int i = threadIdx.x; i < 256; i += 32) {
      smem.a[i / 16][i % 16] = a[product * 256 + i];
      smem.b[i / 16][i % 16] = b[product * 256 + i];
      smem.c[i / 16][i % 16] = c[product * 256 + i];
    }
    __syncwarp();
    ptx::FragmentA<T> rA;
    ptx::FragmentC rC;
    wmma::load_matrix_sync(rA, &smem.a[0][0], 16);
    wmma::load_matrix_sync(rC, &smem.c[0][0], 16, wmma::mem_row_major);
    std::conditional_t<kTransposed, ptx::FragmentBTransposed<T>, ptx::FragmentB<T>> rB;
    wmma::load_matrix_sync(rB, &smem.b[0][0], 16);
    wmma::mma_sync(rC, rA, rB, rC);
    __syncwarp();
    wmma::store_matrix_sync(&smem.c[0][0], rC, 16, wmma::mem_row_major);
    __syncwarp();
    for (int i = threadIdx.x; i < 256; i += 32) c[product * 256 + i] = smem.c[i / 16][i % 16];
    __syncwarp();
  }
}

template <typename T, bool kTransposed>
void probe_wmma(const char* name, bool half) {
  Random random{half ? 200u : 201u};
  std::vector<uint16_t> a(size_t(kProducts) / 8 * 256), b(a.size());
  std::vector<uint32_t> c(a.size());
  for (uint16_t& x : a) x = operand(random, Kind::kWide, half);
  for (uint16_t& x : b) x = operand(random, Kind::kNear, half);
  for (uint32_t& x : c) x = accumulator(random, Kind::kNear);
  const Buffer in_a = upload("a", a), in_b = upload("b", b), out = upload("c", c);
  run<wmma_kernel<T, kTransposed>>({dim3(1), dim3(32), sizeof(FragmentStorage<T>)}, in_a, in_b,
                                   out);
  print_hashes(std::string("wmma_") + name, download<uint32_t>(out), c.size());
}

// ---- cp.async: every size, with and without zero-fill -------------------------------------------
struct CopyStorage {
  alignas(16) uint8_t bytes[32 * 16];
};

template <int kBytes>
__global__ void copy_kernel(const uint8_t* in, uint8_t* out, int source_bytes) {
  auto& smem = shared_storage<CopyStorage>();
  for (int i = 0; i < 16; i++) smem.bytes[threadIdx.x * 16 + i] = 0xee;
  const uint32_t to = ptx::shared_address(smem.bytes + threadIdx.x * 16);
  if (source_bytes == kBytes) {
    ptx::cp_async<kBytes>(to, in + threadIdx.x * 16);
  } else {
    ptx::cp_async_zero_fill<kBytes>(to, in + threadIdx.x * 16, source_bytes);
  }
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  for (int i = 0; i < 16; i++) out[threadIdx.x * 16 + i] = smem.bytes[threadIdx.x * 16 + i];
}

template <int kBytes>
void probe_copies() {
  std::vector<uint8_t> bytes(32 * 16);
  Random random{7};
  for (uint8_t& x : bytes) x = uint8_t(random.next());
  const Buffer in = upload("in", bytes);
  for (int source_bytes = 0; source_bytes <= kBytes; source_bytes++) {
    Buffer out("out", bytes.size());
    run<copy_kernel<kBytes>>({dim3(1), dim3(32), sizeof(CopyStorage)}, in, out, source_bytes);
    print_hashes("cp_async_" + std::to_string(kBytes) + "_of_" + std::to_string(source_bytes),
                 download<uint8_t>(out), bytes.size());
  }
}

}  // namespace fa::probe

int main() {
  using namespace fa::probe;
  probe_matrices();
  probe_mma<__half, 16>("m16n8k16_fp16", true);
  probe_mma<__nv_bfloat16, 16>("m16n8k16_bf16", false);
  probe_mma<__half, 8>("m16n8k8_fp16", true);
  probe_mma<__nv_bfloat16, 8>("m16n8k8_bf16", false);
  probe_wmma<__half, false>("fp16", true);
  probe_wmma<__nv_bfloat16, false>("bf16", false);
  probe_wmma<__half, true>("fp16_transposed", true);
  probe_wmma<__nv_bfloat16, true>("bf16_transposed", false);
  probe_copies<4>();
  probe_copies<8>();
  probe_copies<16>();
}
