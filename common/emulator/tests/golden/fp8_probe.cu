// What conversions to FP8 and back, wgmma m64nNk32 and mma.sync m16n8k32 give on this machine:
// hashes for comparison with what an H200 gives.
#include <cuda_fp8.h>

#include <bit>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "common/emulator/tests/golden/operands.h"
#include "common/emulator/tests/golden/probe.h"
#include "common/layout/swizzle.h"
#include "common/layout/wgmma.h"
#include "common/ptx/convert_fp8.h"
#include "common/ptx/fence.h"
#include "common/ptx/mma_fp8.h"
#include "common/ptx/wgmma_fp8.h"

namespace fa::probe {

using E4m3 = __nv_fp8_e4m3;
using E5m2 = __nv_fp8_e5m2;

// ---- conversions --------------------------------------------------------------------------------
constexpr int kNumbers = 65536;

// Converts each float, each pair of fp16 (here its bits, twice) and each pattern.
template <typename T>
__global__ void convert_kernel(const float* in, uint32_t* floats, uint32_t* halves, float* back) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  const uint32_t pair = uint32_t(i) * 0x10001u;
  floats[i] = ptx::pack_fp8<T>(in[i], -in[i], in[i ^ 1], in[i ^ 2]);
  halves[i] = ptx::pack_fp8<T>(pair, pair ^ 0x80000001u);
  if (i >= 256) return;
  const float4 four = ptx::unpack_fp8<T>(uint32_t(i) * 0x01010101u);
  back[i] = four.x;
  back[256 + i] = four.w;
}

template <typename T>
void probe_conversions(const std::string& type) {
  Random random{11};
  std::vector<float> numbers(kNumbers);
  for (float& x : numbers) {  // near the type's own numbers, so that there are ties
    const uint32_t exponent = 100 + random.next() % 48, digits = random.next() & 0x1fu;
    const uint32_t beside = random.next() % 3 - 1;
    x = std::bit_cast<float>((exponent << 23 | digits << 18) + beside);
  }
  const Buffer in = upload("in", numbers);
  Buffer floats("floats", kNumbers * 4), halves("halves", kNumbers * 4), back("back", 512 * 4);
  run<convert_kernel<T>>({dim3(kNumbers / 256), dim3(256)}, in, floats, halves, back);
  print_hashes("cvt_" + type + "_f32", download<uint32_t>(floats), kNumbers);
  print_hashes("cvt_" + type + "_f16x2", download<uint32_t>(halves), kNumbers);
  print_hashes("cvt_f32_" + type, download<float>(back), 512);
}

// ---- operands -----------------------------------------------------------------------------------
// The upper byte of what a number of 16 bits would be: fp16's is one of e5m2; e4m3's exponents are
// half as wide.
template <typename T>
uint8_t operand8(Random& random, Kind kind) {
  const uint16_t half = operand(random, kind, true);
  if (ptx::kFp8Kind<T> == __NV_E5M2) return uint8_t(half >> 8);
  const uint32_t any = random.next();
  switch (kind) {
    case Kind::kNear:
      return uint8_t((any & 0x87) | (3 + (any >> 8) % 7) << 3);
    case Kind::kZeros:
      return any & 0x100 ? uint8_t(any & 0x80) : uint8_t((any & 0x87) | (1 + (any >> 9) % 14) << 3);
    case Kind::kSubnormal:
      return any & 0x100 ? uint8_t(any & 0x87) : uint8_t((any & 0x87) | (3 + (any >> 9) % 7) << 3);
    case Kind::kCancel:
      return uint8_t((any & 0x87) | 7 << 3);
    case Kind::kLarge:
      return uint8_t((any & 0x86) | 15 << 3);
    case Kind::kSpecial:
      return (any >> 8) % 24 == 0 ? uint8_t((any & 0x80) | 0x7f) : uint8_t((any & 0x87) | 6 << 3);
    case Kind::kWide:
      break;
  }
  return uint8_t((any & 0x87) | (1 + (any >> 8) % 14) << 3);
}

template <typename T>
std::vector<uint32_t> operands8(Random& random, Kind kind, size_t bytes) {
  std::vector<uint32_t> words(bytes / 4);
  for (uint32_t& word : words) {
    for (int i = 0; i < 4; i++) word |= uint32_t(operand8<T>(random, kind)) << 8 * i;
  }
  return words;
}

// ---- wgmma: one K-major slab of A and one of B, four steps --------------------------------------
struct Storage {
  alignas(1024) uint32_t a[64 * 32];
  alignas(1024) uint32_t b[256 * 32];
};

// d: [128 threads][N / 2].
template <typename T, typename TB, int kN, bool kRegisters>
__global__ void __launch_bounds__(128)
    product_kernel(const uint32_t* a, const uint32_t* b, float* d, int steps) {
#if FA_ARCHITECTURE == 90
  auto& smem = shared_storage<Storage>();
  for (int i = threadIdx.x; i < 64 * 32; i += 128) smem.a[i] = a[i];
  for (int i = threadIdx.x; i < 256 * 32; i += 128) smem.b[i] = b[i];
  ptx::fence_proxy_async();
  __syncthreads();
  const uint64_t of_a = layout::k_major_descriptor(ptx::shared_address(smem.a)),
                 of_b = layout::k_major_descriptor(ptx::shared_address(smem.b));
  float acc[kN / 2];
#pragma unroll
  for (int i = 0; i < kN / 2; i++) acc[i] = d[threadIdx.x * (kN / 2) + i];
  for (int step = 0; step < steps; step++) {
    const uint32_t bytes = layout::k_major_step(64, step % 4);
    uint32_t rA[4];
    for (int i = 0; i < 4; i++) rA[i] = a[threadIdx.x * 16 + step % 4 * 4 + i];
    ptx::wgmma_fence(acc, rA);
    if constexpr (kRegisters) {
      ptx::wgmma_fp8<T, kN, TB>(acc, rA, layout::advance(of_b, bytes), true);
    } else {
      ptx::wgmma_fp8<T, kN, TB>(acc, layout::advance(of_a, bytes), layout::advance(of_b, bytes),
                                true);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(acc, rA);
  }
#pragma unroll
  for (int i = 0; i < kN / 2; i++) d[threadIdx.x * (kN / 2) + i] = acc[i];
#endif
}

template <typename T, typename TB, int kN>
void probe_products(const std::string& types) {
  std::vector<float> results[2];
  for (const Operands& each : kOperands) {
    Random random{500 + uint64_t(each.kind)};
    const auto a = operands8<T>(random, each.kind, 64 * 128);
    const auto b = operands8<TB>(random, each.kind, 256 * 128);
    std::vector<float> start(size_t(64) * kN);
    for (float& x : start) x = std::bit_cast<float>(accumulator(random, each.kind));
    const Buffer in_a = upload("a", a), in_b = upload("b", b);
    for (const int steps : {1, 16}) {
      const Buffer shared = upload("d", start), registers = upload("d", start);
      const LaunchShape shape{dim3(1), dim3(128), sizeof(Storage)};
      run<product_kernel<T, TB, kN, false>>(shape, in_a, in_b, shared, steps);
      run<product_kernel<T, TB, kN, true>>(shape, in_a, in_b, registers, steps);
      const auto from_shared = download<float>(shared), from_registers = download<float>(registers);
      results[0].insert(results[0].end(), from_shared.begin(), from_shared.end());
      results[1].insert(results[1].end(), from_registers.begin(), from_registers.end());
    }
  }
  const std::string name = "wgmma_" + types + "_n" + std::to_string(kN);
  print_hashes(name + "_shared", results[0], results[0].size());
  print_hashes(name + "_registers", results[1], results[1].size());
}

// ---- mma.sync -----------------------------------------------------------------------------------
constexpr int kProducts = 256;  // a launch

template <typename T, typename TB>
__global__ void mma_kernel(const uint32_t* a, const uint32_t* b, float* d) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
  for (int product = 0; product < kProducts; product++) {
    const int at = product * 32 + threadIdx.x;
    float rD[4];
    uint32_t rA[4], rB[2];
    for (int i = 0; i < 4; i++) rD[i] = d[at * 4 + i];
    for (int i = 0; i < 4; i++) rA[i] = a[at * 4 + i];
    for (int i = 0; i < 2; i++) rB[i] = b[at * 2 + i];
    ptx::mma_m16n8k32<T, TB>(rD, rA, rB);
    for (int i = 0; i < 4; i++) d[at * 4 + i] = rD[i];
  }
#endif
}

template <typename T, typename TB>
void probe_mma(const std::string& types) {
  for (const auto& [name, kind] : kOperands) {
    Random random{600 + uint64_t(kind)};
    const auto a = operands8<T>(random, kind, size_t(kProducts) * 32 * 16);
    const auto b = operands8<TB>(random, kind, size_t(kProducts) * 32 * 8);
    std::vector<uint32_t> d(size_t(kProducts) * 32 * 4);
    for (uint32_t& x : d) x = accumulator(random, kind);
    const Buffer in_a = upload("a", a), in_b = upload("b", b), out = upload("d", d);
    run<mma_kernel<T, TB>>({dim3(1), dim3(32)}, in_a, in_b, out);
    print_hashes("mma_" + types + "_" + name, download<uint32_t>(out), d.size());
  }
}

}  // namespace fa::probe

int main() {
  using namespace fa::probe;
  if (fa::on_gpu() && fa::device_capability() != 90) {
    fprintf(stderr, "error: wgmma needs a GPU of compute capability 9.0\n");
    return 4;
  }
  probe_conversions<E4m3>("e4m3");
  probe_conversions<E5m2>("e5m2");
  probe_products<E4m3, E4m3, 64>("e4m3");
  probe_products<E4m3, E4m3, 72>("e4m3");
  probe_products<E4m3, E4m3, 128>("e4m3");
  probe_products<E4m3, E4m3, 136>("e4m3");
  probe_products<E4m3, E4m3, 256>("e4m3");
  probe_products<E5m2, E5m2, 64>("e5m2");
  probe_products<E4m3, E5m2, 64>("e4m3_e5m2");
  probe_products<E5m2, E4m3, 64>("e5m2_e4m3");
  probe_mma<E4m3, E4m3>("e4m3");
  probe_mma<E5m2, E5m2>("e5m2");
  probe_mma<E4m3, E5m2>("e4m3_e5m2");
}
