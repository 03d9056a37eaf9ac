// How fast the parts of an SM are, one instruction at a time: cycles between results that do not
// need each other (throughput) and cycles until a result can be used (latency): ceilings to
// calculate with, as chapters and scripts/fa bounds do.
//
//   build/cuda/bin/rates                        every instruction
//   build/cuda/bin/rates mma ex2 --json rates.json
//
// One CTA an SM. Each warp notes the SM's clock, executes an instruction over and over, and notes
// the clock again; the latest end minus the earliest begin are the cycles. Throughput: independent
// chains, as many and in as many warps as are best. Latency: one chain, in which each instruction
// needs the result of the one before.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "common/cli/cli.h"
#include "common/cli/parser.h"
#include "common/harness/files.h"
#include "common/harness/results.h"
#include "common/launch/launch.h"
#include "common/layout/wgmma.h"
#include "common/ptx/fence.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mma.h"
#include "common/ptx/shared_address.h"
#include "common/ptx/wgmma.h"

namespace fa::rates {

constexpr int kMostChains = 16, kMostWarps = 16;
// Instructions between two jumps of the loop, which then take little of the time; of wgmma, each of
// which takes some sixty cycles, fewer.
constexpr int kUnrolled = 256, kUnrolledProducts = 32;

struct SharedStorage {
  union {
    uint32_t words[kMostChains * 128];  // 512 bytes a chain
    struct {
      alignas(1024) uint16_t a[64][64], b[128][64];  // of wgmma: slabs (common/layout/wgmma.h)
    };
  };
};

// ---- the instructions ---------------------------------------------------------------------------
// Each is a struct with kChains chains: step() executes the instruction once for each of them, so
// that a chain's result is an operand of its next. `use()` keeps the results from being thrown
// away. What is not volatile asm already is written so here, or the compiler could move it across
// the reading of the clock. The constructor fills shared memory.

template <int kChains>
struct Fma {
  static constexpr const char *kName = "fma", *kPtx = "fma.rn.f32";
  static constexpr double kWork = 32, kFlops = 64;
  static constexpr int kWarps = 1;  // that execute it together
  float x[kChains];
  __device__ explicit Fma(float seed) {
    // Not the same in all lanes, as far as the compiler knows: it would leave out a shuffle.
    for (int i = 0; i < kChains; i++) x[i] = seed + i + threadIdx.x;
  }
  __device__ void step() {
#pragma unroll
    for (int i = 0; i < kChains; i++) asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x[i]));
  }
  __device__ float use() const {
    float sum = 0;
    for (float each : x) sum += each;
    return sum;
  }
};

template <int kChains>
struct Max : Fma<kChains> {
  static constexpr const char *kName = "max", *kPtx = "max.f32";
  static constexpr double kWork = 32, kFlops = 0;
  float other;
  __device__ explicit Max(float seed) : Fma<kChains>(seed), other(seed - 1) {}
  __device__ void step() {
#pragma unroll
    for (int i = 0; i < kChains; i++) {
      asm volatile("max.f32 %0, %0, %1;" : "+f"(this->x[i]) : "f"(other));
    }
  }
};

template <int kChains>
struct Exp2 : Fma<kChains> {
  static constexpr const char *kName = "ex2", *kPtx = "ex2.approx.ftz.f32";
  static constexpr double kWork = 32, kFlops = 0;
  using Fma<kChains>::Fma;
  __device__ void step() {
#pragma unroll
    for (int i = 0; i < kChains; i++) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(this->x[i]));
  }
};

template <int kChains>
struct Pack : Fma<kChains> {
  static constexpr const char *kName = "cvt", *kPtx = "cvt.rn.bf16x2.f32";
  static constexpr double kWork = 64, kFlops = 0;  // two conversions a lane
  using Fma<kChains>::Fma;
  __device__ void step() {
#pragma unroll
    for (int i = 0; i < kChains; i++) {
      uint32_t packed;
      asm volatile("cvt.rn.bf16x2.f32 %0, %1, %1;" : "=r"(packed) : "f"(this->x[i]));
      this->x[i] = __uint_as_float(packed);
    }
  }
};

template <int kChains>
struct Shuffle : Fma<kChains> {
  static constexpr const char *kName = "shfl", *kPtx = "shfl.sync.bfly.b32";
  static constexpr double kWork = 32, kFlops = 0;
  using Fma<kChains>::Fma;
  __device__ void step() {
#pragma unroll
    for (int i = 0; i < kChains; i++) {
      asm volatile("shfl.sync.bfly.b32 %0, %0, 1, 0x1f, 0xffffffff;" : "+f"(this->x[i]));
    }
  }
};

// What a load brings is the address of the chain's next one.
template <int kChains, int kWords>
struct LoadShared {
  static constexpr const char *kName = kWords == 4 ? "ld.shared" : "ld.shared.b32",
                              *kPtx = kWords == 4 ? "ld.shared.v4.b32" : "ld.shared.b32";
  static constexpr double kWork = 128.0 * kWords, kFlops = 0;  // bytes
  static constexpr int kWarps = 1;
  uint32_t address[kChains], sum = 0;  // sum: or ptxas would load only what is used
  __device__ explicit LoadShared(float) {
    auto& smem = shared_storage<SharedStorage>();
    const uint32_t base = ptx::shared_address(smem.words);
    for (uint32_t i = threadIdx.x; i < kChains * 32 * kWords; i += blockDim.x) {
      smem.words[i] = base + i * 4;  // each its own
    }
    for (int i = 0; i < kChains; i++) {
      address[i] = base + (i * 32 + threadIdx.x % 32) * kWords * 4;
    }
  }
  __device__ void step() {
#pragma unroll
    for (int i = 0; i < kChains; i++) {
      if constexpr (kWords == 1) {
        asm volatile("ld.shared.b32 %0, [%0];" : "+r"(address[i]));
      } else {
        uint4 v;
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(address[i]));
        address[i] = v.x;
        sum += v.y + v.z + v.w;
      }
    }
  }
  __device__ float use() const {
    uint32_t all = sum;
    for (uint32_t each : address) all += each;
    return float(all);
  }
};
template <int kChains>
using LoadSharedWord = LoadShared<kChains, 1>;
template <int kChains>
using LoadSharedWords = LoadShared<kChains, 4>;

// In global memory: what fits into L1, and what fits into L2 only. An element's first 8 bytes are
// an address: in near_words its own, in far_words that of an element far away, so that every L2
// slice is asked.
constexpr int kFarWords = (8 << 20) / 16;
__device__ uint4 near_words[kMostChains * 32], far_words[kFarWords];

__global__ void lay_addresses() {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  const auto element = [](const uint4* next) {
    const auto address = reinterpret_cast<uint64_t>(next);
    return uint4{uint32_t(address), uint32_t(address >> 32), 0, 0};
  };
  if (i < kMostChains * 32) near_words[i] = element(&near_words[i]);
  if (i < kFarWords) far_words[i] = element(&far_words[(i + 4099 * 32) % kFarWords]);
}

template <int kChains, bool kFar>
struct LoadGlobal {
  static constexpr const char *kName = kFar ? "ld.global.cg" : "ld.global.ca",
                              *kPtx =
                                  kFar ? "ld.global.cg.v4.b32 (L2)" : "ld.global.ca.v4.b32 (L1)";
  static constexpr double kWork = 512, kFlops = 0;  // bytes
  static constexpr int kWarps = 1;
  uint64_t address[kChains];
  uint32_t sum = 0;  // or ptxas would load only what is used
  __device__ explicit LoadGlobal(float) {
    const int warp = int((blockIdx.x * blockDim.x + threadIdx.x) / 32), lane = threadIdx.x % 32;
    for (int i = 0; i < kChains; i++) {
      const uint4* first = kFar ? &far_words[((warp * kChains + i) * 32 + lane) % kFarWords]
                                : &near_words[i * 32 + lane];
      address[i] = reinterpret_cast<uint64_t>(first);
    }
  }
  __device__ void step() {
#pragma unroll
    for (int i = 0; i < kChains; i++) {
      uint4 v;
      if constexpr (kFar) {
        asm volatile("ld.global.cg.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(address[i]));
      } else {
        asm volatile("ld.global.ca.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(address[i]));
      }
      address[i] = uint64_t(v.y) << 32 | v.x;
      sum += v.z + v.w;
    }
  }
  __device__ float use() const {
    uint64_t all = sum;
    for (uint64_t each : address) all += each;
    return float(all);
  }
};
template <int kChains>
using LoadL1 = LoadGlobal<kChains, false>;
template <int kChains>
using LoadL2 = LoadGlobal<kChains, true>;

// Lane l gives the address of row l of four matrices, and is given word l of each: the address it
// needs next.
template <int kChains>
struct Ldmatrix {
  static constexpr const char *kName = "ldmatrix",
                              *kPtx = "ldmatrix.sync.aligned.m8n8.x4.shared.b16";
  static constexpr double kWork = 512, kFlops = 0;  // bytes
  static constexpr int kWarps = 1;
  uint32_t address[kChains], sum = 0;
  __device__ explicit Ldmatrix(float) {
    auto& smem = shared_storage<SharedStorage>();
    const uint32_t base = ptx::shared_address(smem.words);
    for (uint32_t i = threadIdx.x; i < kChains * 128; i += blockDim.x) {
      smem.words[i] = base + i / 128 * 512 + i % 32 * 16;
    }
    for (int i = 0; i < kChains; i++) address[i] = base + i * 512 + threadIdx.x % 32 * 16;
  }
  __device__ void step() {
#pragma unroll
    for (int i = 0; i < kChains; i++) {
      uint32_t r[4];
      ptx::ldmatrix_x4(r, address[i]);
      address[i] = r[0];
      sum += r[1] + r[2] + r[3];
    }
  }
  __device__ float use() const {
    uint32_t all = sum;
    for (uint32_t each : address) all += each;
    return float(all);
  }
};

// Two bf16 of random sign in [1, 2), others for each i: products of zeros would take less power
// than real ones.
__device__ uint32_t operand(uint32_t i) {
  uint32_t bits = (i + 1) * 0x9e3779b9u;
  bits = (bits ^ bits >> 15) * 0x85ebca6bu;
  bits = ((bits ^ bits >> 13) & 0x807f807fu) | 0x3f803f80u;
  asm volatile("" : "+r"(bits));  // computed here, and not between the readings of the clock
  return bits;
}

template <int kChains, int kK>
struct Mma {
  static constexpr const char *kName = kK == 16 ? "mma.m16n8k16" : "mma.m16n8k8",
                              *kPtx = kK == 16
                                          ? "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
                                          : "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32";
  static constexpr double kWork = 2.0 * 16 * 8 * kK, kFlops = kWork;
  static constexpr int kWarps = 1;
  float d[kChains][4];
  uint32_t a[kK / 4], b[kK / 8];
  __device__ explicit Mma(float) {
    for (auto& each : d) {
      for (float& x : each) x = 0;
    }
    for (int i = 0; i < kK / 4; i++) a[i] = operand(threadIdx.x * 8 + i);
    for (int i = 0; i < kK / 8; i++) b[i] = operand(threadIdx.x * 8 + 4 + i);
  }
  __device__ void step() {
#pragma unroll
    for (int i = 0; i < kChains; i++) {
      if constexpr (kK == 16) {
        ptx::mma_m16n8k16<__nv_bfloat16>(d[i], a, b);
      } else {
        ptx::mma_m16n8k8<__nv_bfloat16>(d[i], a, b);
      }
    }
  }
  __device__ float use() const {
    float sum = 0;
    for (const auto& each : d) {
      for (float x : each) sum += x;
    }
    return sum;
  }
};
template <int kChains>
using MmaK16 = Mma<kChains, 16>;
template <int kChains>
using MmaK8 = Mma<kChains, 8>;

// wgmma add to the same accumulators one after the other, so kChains of them are a group that
// nothing waits for but the next but one; one alone (latency) is waited for.
template <int kChains, int kN, bool kRegisters>
struct Wgmma {
  static constexpr const char *kName = kN == 64 ? kRegisters ? "wgmma.n64.reg" : "wgmma.n64.shared"
                                       : kRegisters ? "wgmma.n128.reg"
                                                    : "wgmma.n128.shared",
                              *kPtx = kN == 64     ? kRegisters
                                                         ? "wgmma.m64n64k16, A from registers"
                                                         : "wgmma.m64n64k16, A from shared memory"
                                      : kRegisters ? "wgmma.m64n128k16, A from registers"
                                                   : "wgmma.m64n128k16, A from shared memory";
  static constexpr double kWork = 2.0 * 64 * kN * 16, kFlops = kWork;
  static constexpr int kWarps = 4;
  float d[kN / 2];
  uint32_t a[4];
  uint64_t desc_a, desc_b;
  __device__ explicit Wgmma(float) {
    auto& smem = shared_storage<SharedStorage>();
    auto* words = reinterpret_cast<uint32_t*>(smem.a);  // of b as well, which comes next
    for (uint32_t i = threadIdx.x; i < (64 + 128) * 32; i += blockDim.x) words[i] = operand(i);
    for (float& x : d) x = 0;
    ptx::keep_registers(d);
    for (int i = 0; i < 4; i++) a[i] = operand(threadIdx.x * 4 + i);
    desc_a = layout::k_major_descriptor(ptx::shared_address(smem.a));
    desc_b = layout::k_major_descriptor(ptx::shared_address(smem.b));
#if FA_ARCHITECTURE == 90
    ptx::fence_proxy_async();
#endif
  }
  __device__ void step() {
#if FA_ARCHITECTURE == 90
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kChains; i++) {
      const uint32_t step = layout::k_major_step(kN, i % 4);
      const uint64_t b = layout::advance(desc_b, step);
      if constexpr (kRegisters) {
        ptx::wgmma<__nv_bfloat16, kN>(d, a, b, true);
      } else {
        ptx::wgmma<__nv_bfloat16, kN>(d, layout::advance(desc_a, step), b, true);
      }
    }
    ptx::wgmma_commit();
    if constexpr (kChains == 1) {
      ptx::wgmma_wait<0>(d);
    } else {
      ptx::wgmma_wait<1>();
    }
#endif
  }
  __device__ float use() {
#if FA_ARCHITECTURE == 90
    ptx::wgmma_wait<0>(d);
#endif
    float sum = 0;
    for (float x : d) sum += x;
    return sum;
  }
};
template <int kChains>
using WgmmaN64 = Wgmma<kChains, 64, false>;
template <int kChains>
using WgmmaN64Registers = Wgmma<kChains, 64, true>;
template <int kChains>
using WgmmaN128 = Wgmma<kChains, 128, false>;
template <int kChains>
using WgmmaN128Registers = Wgmma<kChains, 128, true>;

// ---- the measurement ----------------------------------------------------------------------------
// steps: a multiple of kUnrolled. times: [CTA][warp] begin, end. unused: never written, since no
// result is equal to a NaN.
template <typename Instruction, int kUnroll>
__global__ void __launch_bounds__(32 * kMostWarps)
    run(int steps, float seed, long long* times, float* unused) {
  Instruction instruction(seed);
  __syncthreads();
  const long long begin = clock64();
#pragma unroll 1
  for (int i = 0; i < steps; i += kUnroll) {
#pragma unroll
    for (int j = 0; j < kUnroll; j++) instruction.step();
  }
  const long long end = clock64();
  if (instruction.use() == seed) *unused = seed;  // seed: 0/0 as seen from the host
  if (threadIdx.x % 32 == 0) {
    long long* mine = times + 2 * (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
    mine[0] = begin;
    mine[1] = end;
  }
}

using Launch = void (*)(int ctas, int warps, int steps, long long* times, float* unused);

template <typename Instruction, int kChains>
void launch_run(int ctas, int warps, int steps, long long* times, float* unused) {
  constexpr int kUnroll = (Instruction::kWarps == 1 ? kUnrolled : kUnrolledProducts) / kChains;
  launch<&run<Instruction, kUnroll>>(
      {dim3(unsigned(ctas)), dim3(unsigned(32 * warps)), sizeof(SharedStorage)}, steps,
      std::numeric_limits<float>::quiet_NaN(), times, unused);
}

// A way to execute an instruction: so many chains.
struct Variant {
  int chains;
  Launch launch;
};

struct Entry {
  const char *name, *ptx;
  double work, flops;         // of one instruction
  const char* unit;           // of work
  int warps;                  // that execute it together
  std::vector<Variant> many;  // for the throughput
  Variant one;                // for the latency
};

template <template <int> typename Instruction>
Entry entry(const char* unit) {
  using One = Instruction<1>;
  return {One::kName,
          One::kPtx,
          One::kWork,
          One::kFlops,
          unit,
          One::kWarps,
          {{8, &launch_run<Instruction<8>, 8>},
           {kMostChains, &launch_run<Instruction<kMostChains>, kMostChains>}},
          {1, &launch_run<One, 1>}};
}

std::vector<Entry> entries() {
  return {entry<Fma>("results"),           entry<Max>("results"),
          entry<Exp2>("results"),          entry<Pack>("results"),
          entry<Shuffle>("results"),       entry<LoadSharedWord>("bytes"),
          entry<LoadSharedWords>("bytes"), entry<LoadL1>("bytes"),
          entry<LoadL2>("bytes"),          entry<Ldmatrix>("bytes"),
          entry<MmaK16>("FLOPs"),          entry<MmaK8>("FLOPs"),
          entry<WgmmaN64>("FLOPs"),        entry<WgmmaN64Registers>("FLOPs"),
          entry<WgmmaN128>("FLOPs"),       entry<WgmmaN128Registers>("FLOPs")};
}

struct Throughput {
  Variant variant{};  // with which it is highest
  int warps = 0;      // likewise, a CTA
  double cycles = 0;  // of an SM for one instruction
};

class Bench {
 public:
  explicit Bench(int ctas)
      : ctas_(ctas),
        times_("clock readings", size_t(ctas) * kMostWarps * 2 * sizeof(long long)),
        unused_("unused results", sizeof(float)) {
    launch<&lay_addresses>({dim3(kFarWords / 256), dim3(256)});
  }

  // Cycles of an SM for one step: of the second of two launches.
  double cycles(const Variant& variant, int warps) {
    constexpr int kSteps = 8 * kUnrolled;
    for (int i = 0; i < 2; i++) queue(variant, warps, kSteps);
    return cycles_of_launch(warps) / kSteps;
  }

  Throughput throughput(const Entry& entry) {
    Throughput best;
    for (const Variant& variant : entry.many) {
      for (int warps = 4; warps <= kMostWarps; warps += 4) {
        const double each = cycles(variant, warps) / (warps / entry.warps * variant.chains);
        if (best.warps == 0 || each < best.cycles) best = {variant, warps, each};
      }
    }
    return best;
  }

  double latency(const Entry& entry) { return cycles(entry.one, entry.warps); }

  struct Sustained {
    double tflops, clock_mhz;
  };
  // For the whole GPU over a second, after half a second in which it grows warm; and the SMs' clock
  // in the last launch, as their own counters have it: cycles by the time that the launch took.
  Sustained sustained(const Entry& entry, const Throughput& best) {
    constexpr double kClock = 1.7e9, kLaunch = 0.02;  // Hz, seconds: roughly
    const int instructions = best.warps / entry.warps * best.variant.chains;  // a CTA and step
    const double a_step = best.cycles * instructions / kClock;
    const int steps = (int(kLaunch / a_step) / kUnrolled + 1) * kUnrolled;
    const int launches = int(1 / (a_step * steps)) + 1;
    for (int i = 0; i < launches / 2; i++) queue(best.variant, best.warps, steps);
    EventTimer all, last;
    all.start();
    for (int i = 0; i < launches; i++) {
      if (i == launches - 1) last.start();
      queue(best.variant, best.warps, steps);
    }
    last.stop();
    all.stop();
    const double flops = entry.flops * ctas_ * instructions * steps * launches;
    return {flops / all.milliseconds() * 1e-9,
            cycles_of_launch(best.warps) / last.milliseconds() * 1e-3};
  }

 private:
  // Cycles of the latest launch, from the first warp's begin to the last one's end: the median over
  // the SMs.
  double cycles_of_launch(int warps) {
    std::vector<long long> times(size_t(ctas_) * kMostWarps * 2);
    synchronize();
    times_.download(times.data());
    std::vector<double> each;
    for (int cta = 0; cta < ctas_; cta++) {
      const long long* mine = &times[size_t(cta) * size_t(warps) * 2];
      long long begin = mine[0], end = mine[1];
      for (int w = 1; w < warps; w++) {
        begin = std::min(begin, mine[2 * w]);
        end = std::max(end, mine[2 * w + 1]);
      }
      each.push_back(double(end - begin));
    }
    const auto middle = each.begin() + ptrdiff_t(each.size() / 2);
    std::nth_element(each.begin(), middle, each.end());
    return *middle;
  }

  void queue(const Variant& variant, int warps, int steps) {
    variant.launch(ctas_, warps, steps, static_cast<long long*>(times_.data()),
                   static_cast<float*>(unused_.data()));
  }

  int ctas_;
  Buffer times_, unused_;
};

int measure_all(int argc, char** argv) {
  Parser app(
      "Measures how fast an SM executes single instructions: cycles between independent ones and\n"
      "cycles until a result can be used.\n\nExample:\n  rates mma ex2 --json rates.json");
  std::vector<std::string> wanted;
  std::string file;
  app.add_option("INSTRUCTION", wanted, "names, or how they begin (mma, ex2); default: all");
  app.add_option("--json", file, "write the results to a file");
  bool list = false;
  app.add_flag("--list", list, "only list the instructions");
  if (!app.parse(argc, argv)) return 0;
  std::vector<Entry> chosen;
  const auto begins_with = [](const Entry& entry) {
    return [&entry](const std::string& name) { return std::string(entry.name).starts_with(name); };
  };
  for (const Entry& entry : entries()) {
    if (wanted.empty() || std::any_of(wanted.begin(), wanted.end(), begins_with(entry)))
      chosen.push_back(entry);
  }
  for (const std::string& name : wanted) {
    const auto all = entries();
    if (std::none_of(all.begin(), all.end(),
                     [&](const Entry& e) { return begins_with(e)(name); })) {
      throw BadInput("there is no instruction '" + name + "'; --list shows them");
    }
  }
  if (list) {
    for (const Entry& entry : chosen) printf("%-17s %s\n", entry.name, entry.ptx);
    return 0;
  }

  if (!file.empty()) check_writable(file);
  const std::string created = utc_now();
  const Json machine = describe_machine();
  Bench bench(machine.at("sm_count").get<int>());
  printf("%s\n\n%-17s %6s %6s %11s %15s %8s\n", machine_title().c_str(), "instruction", "warps",
         "chains", "cycles each", "an SM and cycle", "latency");
  Json results = Json::array();
  for (const Entry& entry : chosen) {
    if (entry.warps == 4 && device_capability() != 90) {
      printf("%-17s only compute capability 9.0 has it\n", entry.name);
      continue;
    }
    const Throughput best = bench.throughput(entry);
    const double latency = bench.latency(entry);
    char work[32];
    snprintf(work, sizeof work, "%.1f %s", entry.work / best.cycles, entry.unit);
    printf("%-17s %6d %6d %11.3f %15s %8.1f", entry.name, best.warps, best.variant.chains,
           best.cycles, work, latency);
    Json result = {{"name", entry.name},    {"ptx", entry.ptx},
                   {"warps", best.warps},   {"chains", best.variant.chains},
                   {"cycles", best.cycles}, {"work", entry.work},
                   {"unit", entry.unit},    {"latency_cycles", latency}};
    if (entry.flops > 0) {
      const auto [tflops, clock] = bench.sustained(entry, best);
      printf("   %.0f TFLOP/s at %.0f MHz", tflops, clock);
      result["tflops"] = tflops;
      result["clock_mhz"] = clock;
    }
    printf("\n");
    results.push_back(result);
  }
  if (!file.empty()) {
    const Json all = {{"rates_version", 1},
                      {"created", created},
                      {"command", command_of(argc, argv)},
                      {"machine", machine},
                      {"instructions", results}};
    write_file_whole(file, lines_of(all));
  }
  return 0;
}

}  // namespace fa::rates

int main(int argc, char** argv) {
  return fa::with_exit_code([&] { return fa::rates::measure_all(argc, argv); });
}
