// Prints what ex2.approx.ftz.f32 gives on the GPU (or on the emulator). The lines of an H200 are in
// ex2_h200.txt and ex2_all_h200.txt; tests compare the emulator's with them.
//
//   ex2_probe        some thousand results: of small groups the bits, GROUP INDEX BITS..., eight a
//                    line; of large ones a hash for every 256
//   ex2_probe all    all 2^32 floats: how many results are how far from the correctly rounded ones
//
// The correctly rounded result is exp2 in double, rounded to float, subnormals to zero. CUDA's exp2
// is within 1 ulp (CUDA C++ Programming Guide, "Mathematical Functions"), 2^-29 of a float's: it
// decides the rounding unless it lies within 1 ulp of the middle of two floats. The inputs where it
// does (6 on an H200) are counted on stderr. No result lies in the middle itself: 2^x is rational
// for whole x only.
//
// `all` with FA_PROBE_DUMP=folder: the differences for all floats in [1, 2) go to folder/ex2_1_2, a
// signed byte each. The emulator's model was fitted to an H200's.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <mutex>

#include "common/emulator/tests/golden/probe.h"
#include "common/harness/parallel.h"
#include "common/ptx/exp2.h"

namespace fa::probe {

constexpr int kThreads = 256;

__global__ void ex2_kernel(const float* in, float* out, int count) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < count) out[i] = ptx::exp2_approx(in[i]);
}

void probe_group(const char* name, std::vector<float> inputs) {
  const size_t count = inputs.size();
  const Buffer in = upload("in", inputs);
  Buffer out("out", count * 4);
  run<ex2_kernel>({dim3(unsigned(count + kThreads - 1) / kThreads), dim3(kThreads)}, in, out,
                  int(count));
  const auto bits = download<uint32_t>(out);
  if (count > 200) return print_hashes(name, bits, 256);
  for (size_t first = 0; first < count; first += 8) {
    printf("%s %04zu", name, first);
    for (size_t i = first; i < std::min(count, first + 8); i++) printf(" %08x", bits[i]);
    printf("\n");
  }
}

void probe_samples() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();

  // Zeros, infinities, NaNs, subnormals; results that are too large or too small.
  std::vector<float> special{0.0f, -0.0f, kInfinity, -kInfinity};
  for (const uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xff800001u, 0x7fffffffu})
    special.push_back(std::bit_cast<float>(bits));
  for (const float x : {0x1p-149f, 0x1p-140f, 0x1.fffffcp-127f, 0x1p-126f, 0x1p-60f}) {
    special.insert(special.end(), {x, -x});
  }
  for (const float x : {128.0f, 128.5f, 1e3f, 0x1.fffffep127f, -127.0f, -149.0f, -150.0f, -151.0f,
                        -1e3f, -0x1.fffffep127f, -126.5f, std::nextafterf(-126.0f, -kInfinity)}) {
    special.push_back(x);
  }
  probe_group("special", special);

  std::vector<float> whole, halves, fractions, edges, tiny;
  for (int n = -126; n <= 127; n++) whole.push_back(float(n));
  probe_group("whole", whole);
  for (int n = -126; n <= 127; n++) halves.push_back(float(n) + 0.5f);
  probe_group("halves", halves);
  for (int i = -256; i < 256; i++) fractions.push_back(float(i) / 256.0f);
  probe_group("fractions", fractions);
  for (const float center : {-126.0f, -125.0f, -1.0f, -0.5f, 0.5f, 1.0f, 2.0f, 127.0f, 128.0f}) {
    float x = center;
    for (int i = 0; i < 8; i++) x = std::nextafterf(x, -kInfinity);
    for (int i = 0; i < 16; i++, x = std::nextafterf(x, kInfinity)) edges.push_back(x);
  }
  probe_group("edges", edges);
  for (int exponent = -30; exponent < 0; exponent++) {
    for (const float x : {std::ldexp(1.0f, exponent), std::ldexp(1.75f, exponent)}) {
      tiny.insert(tiny.end(), {x, -x});
    }
  }
  probe_group("tiny", tiny);

  // Where the emulator's sum is a whole multiple of the last place, or just below one: a rounding
  // constant that is larger or smaller by one shows here.
  std::vector<float> steps;
  for (const uint32_t fraction :
       {0x0104a2u, 0x10f8c0u, 0x24e49fu, 0x35d704u, 0x45018bu, 0x5508f4u, 0x657285u, 0x75d916u,
        0x01a20bu, 0x1b593fu, 0x2ec5c7u, 0x40da6du, 0x51e278u, 0x61a0c5u, 0x75c0beu}) {
    steps.push_back(std::bit_cast<float>(0x3f800000u | fraction));
  }
  probe_group("steps", steps);

  // What a softmax asks for, and all that gives a normal number.
  Random random{2};
  std::vector<float> softmax(2000), range(1500);
  for (float& x : softmax) x = -30.0f * std::ldexp(float(random.next() >> 7), -24);
  probe_group("softmax", softmax);
  for (float& x : range) x = -126.0f + 254.0f * std::ldexp(float(random.next() >> 7), -24);
  probe_group("range", range);
}

// ---- all 2^32 floats ----------------------------------------------------------------------------
constexpr int kMost = 8;  // differences are counted from -kMost to kMost, the rest as `kFurther`
enum Counter {
  kNan,
  kOtherNan,  // results that are not 7fffffff
  kOverflow,  // x >= 128
  kNotInfinite,
  kUnderflow,  // x < -126
  kNotZero,
  kOrdinary,  // all others
  kDoubtful,
  kWhole,  // x is a whole number
  kWholeDiffer,
  kFurther,
  kDifferences,
  kCounters = kDifferences + 2 * kMost + 1
};
struct Sweep {
  unsigned long long count[kCounters];
  unsigned long long
      largest_error;  // relative; the bits of a double, which order as the numbers do
};

template <typename To, typename From>
__device__ inline To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  memcpy(&result, &value, sizeof result);
  return result;
}

__device__ inline void add_result(Sweep& sweep, uint32_t input, signed char* dump) {
  const float x = bits_as<float>(input);
  const float y = ptx::exp2_approx(x);
  const auto bits = bits_as<uint32_t>(y);
  if (x != x) {
    sweep.count[kNan]++;
    sweep.count[kOtherNan] += bits != 0x7fffffffu;
  } else if (x >= 128.0f) {
    sweep.count[kOverflow]++;
    sweep.count[kNotInfinite] += bits != 0x7f800000u;
  } else if (x < -126.0f) {
    sweep.count[kUnderflow]++;
    sweep.count[kNotZero] += bits != 0;
  } else {
    const double exact = exp2(double(x));
    const auto below = bits_as<unsigned long long>(exact) & ((1ull << 29) - 1);
    const int difference = int(bits) - int(bits_as<uint32_t>(float(exact)));
    const bool further = difference < -kMost || difference > kMost;
    const auto error = bits_as<unsigned long long>(fabs(double(y) - exact) / exact);
    sweep.count[kOrdinary]++;
    sweep.count[kDoubtful] += below + 1 >= (1ull << 28) && below <= (1ull << 28) + 1;
    sweep.count[kWhole] += x == floorf(x);
    sweep.count[kWholeDiffer] += x == floorf(x) && difference != 0;
    sweep.count[further ? int(kFurther) : kDifferences + kMost + difference]++;
    if (error > sweep.largest_error) sweep.largest_error = error;
    if (x >= 1.0f && x < 2.0f) dump[input & 0x7fffffu] = static_cast<signed char>(difference);
  }
}

#ifdef __CUDACC__

__global__ void sweep_kernel(Sweep* sweep, signed char* dump) {
  Sweep mine{};
  const uint64_t step = uint64_t(gridDim.x) * blockDim.x;
  for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < 1ull << 32; i += step) {
    add_result(mine, uint32_t(i), dump);
  }
  for (int i = 0; i < kCounters; i++) atomicAdd(&sweep->count[i], mine.count[i]);
  atomicMax(&sweep->largest_error, mine.largest_error);
}

Sweep sweep_all(std::vector<signed char>& dump) {
  Sweep sweep{};
  Buffer out("sweep", sizeof sweep), dumped("dump", dump.size());
  out.upload(&sweep);
  run<sweep_kernel>({dim3(4096), dim3(kThreads)}, out, dumped);
  out.download(&sweep);
  dumped.download(dump.data());
  return sweep;
}

#else

// Without threads of a CTA, which would take ten times as long.
Sweep sweep_all(std::vector<signed char>& dump) {
  Sweep sweep{};
  std::mutex mutex;
  size_t done = 0;
  constexpr size_t kSlices = 4096;
  parallel_for(kSlices, [&](size_t slice) {
    Sweep mine{};
    const uint64_t first = (uint64_t(slice) << 32) / kSlices;
    for (uint64_t i = 0; i < (1ull << 32) / kSlices; i++) {
      add_result(mine, uint32_t(first + i), dump.data());
    }
    const std::lock_guard lock(mutex);
    for (int i = 0; i < kCounters; i++) sweep.count[i] += mine.count[i];
    sweep.largest_error = std::max(sweep.largest_error, mine.largest_error);
    if (++done % 256 == 0) fprintf(stderr, "\r%zu of %zu", done, kSlices);
  });
  fprintf(stderr, "\n");
  return sweep;
}

#endif

void probe_all() {
  std::vector<signed char> differences(1 << 23);
  const Sweep sweep = sweep_all(differences);
  const auto& count = sweep.count;
  printf("nan: %llu inputs, %llu results not 7fffffff\n", count[kNan], count[kOtherNan]);
  printf("from 128: %llu inputs, %llu results not +inf\n", count[kOverflow], count[kNotInfinite]);
  printf("below -126: %llu inputs, %llu results not +0\n", count[kUnderflow], count[kNotZero]);
  printf("others: %llu inputs, largest relative error 2^%.3f\n", count[kOrdinary],
         std::log2(std::bit_cast<double>(sweep.largest_error)));
  printf("whole, of the others: %llu inputs, %llu results not exact\n", count[kWhole],
         count[kWholeDiffer]);
  for (int i = -kMost; i <= kMost; i++) {
    const auto results = count[kDifferences + kMost + i];
    if (results) printf("%+d ulp from correctly rounded: %llu results\n", i, results);
  }
  printf("further: %llu results\n", count[kFurther]);
  printf("hash of the differences in [1, 2): %016llx\n",
         hash(differences.data(), differences.size()));
  fprintf(stderr, "%llu inputs too near to a tie to tell\n", count[kDoubtful]);
  dump("ex2_1_2", differences);
}

}  // namespace fa::probe

int main(int count, char** arguments) {
  if (count > 1 && strcmp(arguments[1], "all") == 0) {
    fa::probe::probe_all();
  } else {
    fa::probe::probe_samples();
  }
}
