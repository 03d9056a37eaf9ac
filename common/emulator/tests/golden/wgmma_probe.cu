// What wgmma reads and how it adds, on this machine: hashes for comparison with what an H200 gave.
// Addresses, layouts, chains of products; every N, type and source of A, with operands that are
// hard on the addition.
//
// Addresses: one operand's memory holds the number of every element, the other operand is a unit
// matrix, so the result says which element was taken for each (mn, k).
#include <bit>
#include <cstdio>
#include <cstring>
#include <map>

#include "common/emulator/tests/golden/operands.h"
#include "common/emulator/tests/golden/probe.h"
#include "common/layout/swizzle.h"
#include "common/layout/wgmma.h"
#include "common/ptx/fence.h"
#include "common/ptx/wgmma.h"

namespace fa::probe {

using layout::Major;
using layout::SwizzleMode;

// ---- one wgmma on an image of shared memory -----------------------------------------------------
constexpr int kImageBytes = 64 * 1024;
using Image = std::vector<uint16_t>;

struct ImageStorage {
  alignas(1024) uint16_t image[kImageBytes / 2];
};

// Start addresses in the descriptors are relative to the image; A is in the image, or it is
// registers, [128 threads][4]. d: [128 threads][N / 2].
template <typename T, int kN, Major kMajorA, Major kMajorB, bool kRegisters>
__global__ void __launch_bounds__(128)
    image_kernel(const uint16_t* image, uint64_t a, const uint32_t* registers, uint64_t b,
                 bool accumulate, float* d) {
#if FA_ARCHITECTURE == 90
  auto& smem = shared_storage<ImageStorage>();
  for (int i = threadIdx.x; i < kImageBytes / 2; i += 128) smem.image[i] = image[i];
  ptx::fence_proxy_async();
  __syncthreads();
  const uint32_t base = ptx::shared_address(smem.image);
  float acc[kN / 2];
#pragma unroll
  for (int i = 0; i < kN / 2; i++) acc[i] = d[threadIdx.x * (kN / 2) + i];
  if constexpr (kRegisters) {
    uint32_t rA[4];
    for (int i = 0; i < 4; i++) rA[i] = registers[threadIdx.x * 4 + i];
    ptx::wgmma_fence(acc, rA);
    ptx::wgmma<T, kN, kMajorB>(acc, rA, layout::advance(b, base), accumulate);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(acc, rA);
  } else {
    ptx::wgmma_fence(acc);
    ptx::wgmma<T, kN, kMajorB, kMajorA>(acc, layout::advance(a, base), layout::advance(b, base),
                                        accumulate);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(acc);
  }
#pragma unroll
  for (int i = 0; i < kN / 2; i++) d[threadIdx.x * (kN / 2) + i] = acc[i];
#endif
}

template <typename T, int kN, Major kMajorA, Major kMajorB, bool kRegisters = false>
std::vector<float> multiply(const Image& image, uint64_t a, uint64_t b, bool accumulate,
                            const std::vector<float>& start,
                            const std::vector<uint32_t>& registers = {0}) {
  const Buffer in = upload("image", image), rA = upload("a", registers), d = upload("d", start);
  run<image_kernel<T, kN, kMajorA, kMajorB, kRegisters>>({dim3(1), dim3(128), sizeof(ImageStorage)},
                                                         in, a, rA, b, accumulate, d);
  return download<float>(d);
}

// Element (row, k) of a K-major tile of one slab at byte `base` of the image.
uint16_t& element(Image& image, int base, int row, int k) {
  return image[size_t(base + layout::slab_offset(64, row, k)) / 2];
}

template <typename T>
uint16_t encode(float value) {
  const T rounded(value);
  uint16_t bits;
  memcpy(&bits, &rounded, 2);
  return bits;
}

// About normally distributed, from whole numbers: the same on every platform.
float normal(Random& random) {
  float sum = 0;
  for (int i = 0; i < 4; i++) {
    sum += float(int(random.next() & 0xffff) - 32768) * (1.0f / 32768.0f);
  }
  return sum * 0.8660254f;
}

// Where thread and register of element (row, column) of a 64-column accumulator are, in d.
size_t place(int row, int column) {
  for (int thread = 0; thread < 128; thread++) {
    for (int i = 0; i < 32; i++) {
      if (layout::wgmma_d(thread, i) == layout::Position{row, column}) {
        return size_t(thread * 32 + i);
      }
    }
  }
  return 0;
}

constexpr int kSecond = 16384;  // where the second operand lies in the image

uint64_t tile_at(int base) { return layout::k_major_descriptor(uint32_t(base)); }

template <typename T>
void probe_layout(const std::string& type) {
  Image image(kImageBytes / 2);
  for (int row = 0; row < 64; row++) {  // D[m][n] = m + 64 n
    element(image, 0, row, 0) = encode<T>(float(row));
    element(image, 0, row, 1) = element(image, kSecond, row, 0) = encode<T>(1);
    element(image, kSecond, row, 1) = encode<T>(float(64 * row));
  }
  std::vector<float> start(4096, 12345.0f);
  const auto probe = [&](const std::string& what, const Image& operands, bool accumulate) {
    print_hashes(what + type,
                 multiply<T, 64, Major::kK, Major::kK>(operands, tile_at(0), tile_at(kSecond),
                                                       accumulate, start),
                 4096);
  };
  probe("wg_fragment_", image, false);
  for (int i = 0; i < 4096; i++) start[size_t(i)] = float(i * 1024);
  probe("wg_scale_d1_", image, true);
  Image numbers(kImageBytes / 2);
  Random random{9};
  for (int row = 0; row < 64; row++) {
    for (int k = 0; k < 16; k++) {
      element(numbers, 0, row, k) = encode<T>(normal(random));
      element(numbers, kSecond, row, k) = encode<T>(normal(random));
    }
  }
  for (float& x : start) x = normal(random);
  probe("wg_rnd_", numbers, true);
}

// A has one 1, B numbers.
void probe_onehot() {
  std::vector<float> all;
  for (const int row : {0, 1, 7, 8, 15, 16, 33, 63}) {
    for (int k = 0; k < 16; k++) {
      Image image(kImageBytes / 2);
      element(image, 0, row, k) = encode<__nv_bfloat16>(1);
      for (int n = 0; n < 64; n++) {
        for (int i = 0; i < 16; i++) {
          element(image, kSecond, n, i) = encode<__nv_bfloat16>(float(n * 4 + i / 4));
        }
      }
      const auto d = multiply<__nv_bfloat16, 64, Major::kK, Major::kK>(
          image, tile_at(0), tile_at(kSecond), false, std::vector<float>(4096, -1.0f));
      all.insert(all.end(), d.begin(), d.end());
    }
  }
  print_hashes("wg_onehot", all, all.size());
}

// ---- addresses ----------------------------------------------------------------------------------
struct AddressCase {
  const char* name;
  bool of_b;
  Major major;
  SwizzleMode mode;
  uint32_t start, leading, stride, base_offset;
};

constexpr auto kNone = SwizzleMode::kNone, k32 = SwizzleMode::k32Bytes, k64 = SwizzleMode::k64Bytes,
               k128 = SwizzleMode::k128Bytes;
constexpr auto kK = Major::kK, kMN = Major::kMN;
constexpr AddressCase kAddressCases[] = {
    {"B_k128", true, kK, k128, 0, 16, 1024, 0},
    {"B_k128_k1", true, kK, k128, 32, 16, 1024, 0},
    {"B_k128_k2", true, kK, k128, 64, 16, 1024, 0},
    {"B_k128_k3", true, kK, k128, 96, 16, 1024, 0},
    {"B_k128_sbo2048", true, kK, k128, 1024, 16, 2048, 0},
    {"B_k128_lbo4096", true, kK, k128, 0, 4096, 1024, 0},
    {"B_k128_lbo0", true, kK, k128, 0, 0, 1024, 0},
    {"B_k64", true, kK, k64, 0, 16, 512, 0},
    {"B_k64_k1", true, kK, k64, 32, 16, 512, 0},
    {"B_k32", true, kK, k32, 0, 16, 256, 0},
    {"B_k32_sbo512", true, kK, k32, 256, 4096, 512, 0},
    {"B_k0_lbo128", true, kK, kNone, 0, 128, 256, 0},
    {"B_k0_lbo1024", true, kK, kNone, 0, 1024, 128, 0},
    {"B_k0_lbo2048_start64", true, kK, kNone, 64, 2048, 160, 0},
    {"B_mn128", true, kMN, k128, 0, 8192, 1024, 0},
    {"B_mn128_k1", true, kMN, k128, 2048, 8192, 1024, 0},
    {"B_mn128_sbo4096", true, kMN, k128, 1024, 16, 4096, 0},
    {"B_mn64_a", true, kMN, k64, 0, 1024, 512, 0},
    {"B_mn64_b", true, kMN, k64, 0, 512, 2048, 0},
    {"B_mn32_a", true, kMN, k32, 0, 256, 4096, 0},
    {"B_mn32_b", true, kMN, k32, 0, 512, 256, 0},
    {"B_mn0_a", true, kMN, kNone, 0, 128, 2048, 0},
    {"B_mn0_b", true, kMN, kNone, 0, 2048, 128, 0},
    {"B_mn0_c", true, kMN, kNone, 64, 384, 4096, 0},
    {"A_k128", false, kK, k128, 0, 16, 1024, 0},
    {"A_k128_k3", false, kK, k128, 96, 16, 1024, 0},
    {"A_k64", false, kK, k64, 0, 16, 512, 0},
    {"A_k32", false, kK, k32, 0, 16, 256, 0},
    {"A_k0_lbo128", false, kK, kNone, 0, 128, 256, 0},
    {"A_k0_lbo1024", false, kK, kNone, 0, 1024, 128, 0},
    {"A_mn128", false, kMN, k128, 0, 8192, 1024, 0},
    {"A_mn64", false, kMN, k64, 0, 1024, 512, 0},
    {"A_mn32", false, kMN, k32, 0, 512, 256, 0},
    {"A_mn0_a", false, kMN, kNone, 0, 128, 2048, 0},
    {"A_mn0_b", false, kMN, kNone, 0, 2048, 128, 0},
    {"B_k128_row2_bo2", true, kK, k128, 256, 16, 1024, 2},
};

void probe_addresses() {
  using T = __nv_bfloat16;
  constexpr int kUnit = 57344;  // where the unit matrix lies
  for (const AddressCase& test : kAddressCases) {
    std::vector<float> parts[2];  // the element's number modulo 256, and by 256
    for (int part = 0; part < 2; part++) {
      Image image(kImageBytes / 2);
      for (int i = 0; i < kUnit / 2; i++) {
        image[size_t(i)] = encode<T>(float(part ? i >> 8 : i & 255));
      }
      for (int k = 0; k < 16; k++) element(image, kUnit, k, k) = encode<T>(1);
      const uint64_t probed =
          layout::descriptor(test.start, test.leading, test.stride, test.mode, test.base_offset);
      const std::vector<float> start(4096, -1.0f);
      const bool mn = test.major == Major::kMN;
      parts[part] =
          test.of_b ? (mn ? multiply<T, 64, kK, kMN>(image, tile_at(kUnit), probed, false, start)
                          : multiply<T, 64, kK, kK>(image, tile_at(kUnit), probed, false, start))
                    : (mn ? multiply<T, 64, kMN, kK>(image, probed, tile_at(kUnit), false, start)
                          : multiply<T, 64, kK, kK>(image, probed, tile_at(kUnit), false, start));
    }
    std::vector<uint32_t> addresses(64 * 16);  // [mn][k], in bytes
    for (int mn = 0; mn < 64; mn++) {
      for (int k = 0; k < 16; k++) {
        const size_t at = test.of_b ? place(k, mn) : place(mn, k);
        addresses[size_t(mn * 16 + k)] =
            2 * (uint32_t(parts[1][at]) * 256 + uint32_t(parts[0][at]));
      }
    }
    print_hashes(std::string("wg_") + test.name, addresses, addresses.size());
  }
}

// ---- chains: C = A B with a long k, 64 x 64 -----------------------------------------------------
struct ChainStorage {
  alignas(1024) uint16_t a[64 * 64];
  alignas(1024) uint16_t b[64 * 64];
};

// a: [64][depth]; b: [64 columns][depth], or [depth][64] if kMajorB is MN.
template <Major kMajorB>
__global__ void __launch_bounds__(128)
    chain_kernel(const uint16_t* a, const uint16_t* b, float* c, int depth) {
#if FA_ARCHITECTURE == 90
  auto& smem = shared_storage<ChainStorage>();
  float acc[32];
#pragma unroll
  for (int i = 0; i < 32; i++) acc[i] = 0;
  for (int tile = 0; tile < depth; tile += 64) {
    for (int i = threadIdx.x; i < 64 * 64; i += 128) {
      const int row = i / 64, column = i % 64, at = layout::slab_offset(64, row, column) / 2;
      smem.a[at] = a[row * depth + tile + column];
      smem.b[at] =
          kMajorB == Major::kK ? b[row * depth + tile + column] : b[(tile + row) * 64 + column];
    }
    ptx::fence_proxy_async();
    __syncthreads();
    const uint64_t desc_a = layout::k_major_descriptor(ptx::shared_address(smem.a));
    const uint32_t at_b = ptx::shared_address(smem.b);
    ptx::wgmma_fence(acc);
#pragma unroll
    for (int step = 0; step < 4; step++) {
      const uint64_t desc_b =
          kMajorB == Major::kK
              ? layout::advance(layout::k_major_descriptor(at_b), layout::k_major_step(64, step))
              : layout::advance(layout::mn_major_descriptor(at_b, 64), layout::mn_major_step(step));
      ptx::wgmma<__nv_bfloat16, 64, kMajorB>(
          acc, layout::advance(desc_a, layout::k_major_step(64, step)), desc_b, true);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(acc);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 32; i++) {
    const layout::Position at = layout::wgmma_d(threadIdx.x, i);
    c[at.row * 64 + at.column] = acc[i];
  }
#endif
}

template <Major kMajorB>
void probe_chain(int depth, bool whole_numbers) {
  std::vector<uint16_t> a(size_t(64 * depth)), b(a.size());
  Random random{uint64_t(2 + depth)};
  for (auto* operand : {&a, &b}) {
    for (uint16_t& x : *operand) {
      x = encode<__nv_bfloat16>(whole_numbers ? float(int(random.next() % 17) - 8)
                                              : normal(random));
    }
  }
  const Buffer in_a = upload("a", a), in_b = upload("b", b);
  Buffer c("c", 64 * 64 * 4);
  run<chain_kernel<kMajorB>>({dim3(1), dim3(128), sizeof(ChainStorage)}, in_a, in_b, c, depth);
  print_hashes("ws_TB" + std::to_string(int(kMajorB)) + "_K" + std::to_string(depth) +
                   (whole_numbers ? "_int" : "_rnd"),
               download<float>(c), 4096);
}

// ---- every N, type and source of A ---------------------------------------------------------
// One step; A at the image's start, or registers, B behind it.
template <typename T, int kN>
void probe_shape(const std::string& type, bool half) {
  constexpr int kRows = 256;                          // of a slab: room for every N
  std::map<std::string, std::vector<float>> results;  // of all kinds of operands
  for (const Operands& kind : kOperands) {
    Random random{300 + uint64_t(kind.kind)};
    Image image(kImageBytes / 2);
    for (uint16_t& x : image) x = operand(random, kind.kind, half);
    std::vector<uint32_t> rA(128 * 4);
    for (uint32_t& x : rA) {
      x = operand(random, kind.kind, half) | uint32_t(operand(random, kind.kind, half)) << 16;
    }
    std::vector<float> start(size_t(64) * kN);
    for (float& x : start) x = std::bit_cast<float>(accumulator(random, kind.kind));
    const auto keep = [&](const char* what, const std::vector<float>& d) {
      results[what].insert(results[what].end(), d.begin(), d.end());
    };
    const uint64_t a = tile_at(0), b_k = tile_at(kSecond),
                   b_mn = layout::mn_major_descriptor(kSecond, 16);
    keep("shared_k", multiply<T, kN, kK, kK>(image, a, b_k, true, start));
    keep("shared_mn", multiply<T, kN, kK, kMN>(image, a, b_mn, true, start));
    keep("both_mn",
         multiply<T, kN, kMN, kMN>(image, layout::mn_major_descriptor(0, 16), b_mn, false, start));
    keep("registers_k", multiply<T, kN, kK, kK, true>(image, 0, b_k, true, start, rA));
    keep("registers_mn", multiply<T, kN, kK, kMN, true>(image, 0, b_mn, true, start, rA));
  }
  for (const auto& [what, d] : results) {
    print_hashes(what + "_n" + std::to_string(kN) + "_" + type, d, d.size());
  }
  static_assert(kSecond + kRows * 128 <= kImageBytes);
}

template <typename T>
void probe_shapes(const std::string& type, bool half) {
  probe_shape<T, 64>(type, half);
  probe_shape<T, 80>(type, half);
  probe_shape<T, 128>(type, half);
  probe_shape<T, 256>(type, half);
}

}  // namespace fa::probe

int main() {
  using namespace fa::probe;
  if (fa::on_gpu() && fa::device_capability() != 90) {
    fprintf(stderr, "error: wgmma needs a GPU of compute capability 9.0\n");
    return 4;
  }
  probe_layout<__nv_bfloat16>("bf16");
  probe_layout<__half>("fp16");
  probe_addresses();
  probe_onehot();
  for (const int depth : {256, 1024}) {
    for (const bool whole_numbers : {true, false}) {
      probe_chain<Major::kK>(depth, whole_numbers);
      probe_chain<Major::kMN>(depth, whole_numbers);
    }
  }
  probe_shapes<__nv_bfloat16>("bf16", false);
  probe_shapes<__half>("fp16", true);
}
