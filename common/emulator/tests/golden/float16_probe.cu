// Prints what the 16-bit conversions of the GPU (or of the emulator) give, as a hash for every
// 65,536 results. The lines of an H200 are in float16_h200.txt; a test compares the emulator's with
// them.
//
//   widen:  all 65,536 patterns of fp16 and bf16
//   narrow: for every pattern, the float in the middle between it and the next one (a tie), the
//           floats right below and above that, and the value itself
#include <bit>

#include "common/emulator/tests/golden/probe.h"
#include "common/ptx/convert.h"

namespace fa::probe {

constexpr int kPatterns = 65536;
constexpr int kThreads = 256;

template <typename T>
__global__ void widen_kernel(const T* in, float* out) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  out[i] = ptx::to_float(in[i]);
}

template <typename T>
__global__ void narrow_kernel(const float* in, T* out) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  out[i] = ptx::from_float<T>(in[i]);
}

template <typename T>
void probe(const char* widen_name, const char* narrow_name) {
  std::vector<uint16_t> patterns(kPatterns);
  for (int i = 0; i < kPatterns; i++) patterns[size_t(i)] = uint16_t(i);
  const Buffer narrow_in = upload("patterns", patterns);
  Buffer wide_out("floats", kPatterns * 4);
  run<widen_kernel<T>>({dim3(kPatterns / kThreads), dim3(kThreads)}, narrow_in, wide_out);
  const auto wide = download<uint32_t>(wide_out);
  print_hashes(widen_name, wide, kPatterns);

  std::vector<uint32_t> cases;
  for (size_t i = 0; i < kPatterns; i++) {
    // Halfway on the way to the next pattern: both are multiples of the spacing, so that the middle
    // of the bit patterns is the middle of the values (from subnormals of fp16 on, which are normal
    // floats).
    const uint32_t next = wide[(i + 1) % kPatterns];
    const auto a = std::bit_cast<float>(wide[i]), b = std::bit_cast<float>(next);
    const float middle_value = a + (b - a) * 0.5f;
    auto middle = std::bit_cast<uint32_t>(middle_value);
    if (middle_value != middle_value)
      middle = 0x7fc00000u;  // which NaN arithmetic makes differs by CPU
    cases.insert(cases.end(), {wide[i], middle, middle - 1, middle + 1});
  }
  const Buffer wide_in = upload("floats", cases);
  Buffer narrow_out("patterns", cases.size() * 2);
  run<narrow_kernel<T>>({dim3(unsigned(cases.size()) / kThreads), dim3(kThreads)}, wide_in,
                        narrow_out);
  print_hashes(narrow_name, download<uint16_t>(narrow_out), kPatterns);
}

}  // namespace fa::probe

int main() {
  fa::probe::probe<__half>("widen_fp16", "narrow_fp16");
  fa::probe::probe<__nv_bfloat16>("widen_bf16", "narrow_bf16");
}
