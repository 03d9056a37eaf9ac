// How fast the parts of an SM are, one instruction at a time: cycles between results that do not need each
// other (throughput) and cycles until a result can be used (latency): ceilings to calculate with, as
// chapters and scripts/bounds.sh do.
//
//   build/cuda/bin/rates                        every instruction
//   build/cuda/bin/rates mma ex2 --json rates.json
//
// One CTA an SM. Each warp notes the SM's clock, executes an instruction kSteps * kChains times, and notes the clock
// again; the latest end minus the earliest begin are the cycles. Throughput: kChains independent chains, as many warps
// as are best. Latency: one warp, one chain in which each instruction needs the result of the one before.
#include <cuda_runtime.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/harness/cli.h"
#include "common/harness/device.h"
#include "common/harness/launch.h"
#include "common/harness/npy.h"
#include "common/harness/results.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mma.h"
#include "common/ptx/shared_address.h"

namespace fa::rates {

constexpr int kSteps = 512;

struct SharedStorage {
  uint4 words[32 * 8];  // a row of 16 bytes for each lane and step of a chain
};

// ---- the instructions ----------------------------------------------------------------------------
// Each is a struct with kChains chains: step() executes the instruction once for each of them, so that a
// chain's result is an operand of its next. `use()` keeps the results from being thrown away. What is not
// volatile asm already is written so here, or the compiler could move it across the reading of the clock.

template <int kChains>
struct Fma {
  static constexpr const char *kName = "fma", *kPtx = "fma.rn.f32";
  static constexpr double kWork = 32, kFlops = 64;
  float x[kChains];
  __device__ explicit Fma(float seed) {
    for (int i = 0; i < kChains; i++) x[i] = seed + i;
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

// Every word is 0 and is added to the address of the next load, which therefore has to wait for it. (So the
// latency contains an addition.)
__device__ uint4 zeros[32 * 8];

enum class From { kShared, kL1, kL2 };

template <int kChains, From kFrom>
struct Load {
  static constexpr const char* kName = kFrom == From::kShared ? "ld.shared"
                                       : kFrom == From::kL1   ? "ld.global.ca"
                                                              : "ld.global.cg";
  static constexpr const char* kPtx = kFrom == From::kShared ? "ld.shared.v4.b32"
                                      : kFrom == From::kL1   ? "ld.global.ca.v4.b32 (L1)"
                                                             : "ld.global.cg.v4.b32 (L2)";
  static constexpr double kWork = 512, kFlops = 0;  // bytes
  uint64_t address[kChains];
  uint32_t sum = 0;  // or ptxas would load only what is used
  __device__ explicit Load(float) {
    const uint64_t base = kFrom == From::kShared
                              ? ptx::shared_address(&shared_storage<SharedStorage>())
                              : reinterpret_cast<uint64_t>(zeros);
    for (int i = 0; i < kChains; i++) address[i] = base + (i % 8 * 32 + threadIdx.x % 32) * 16;
  }
  __device__ void step() {
#pragma unroll
    for (int i = 0; i < kChains; i++) {
      uint4 v;
      if constexpr (kFrom == From::kShared) {
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(uint32_t(address[i])));
      } else if constexpr (kFrom == From::kL1) {
        asm volatile("ld.global.ca.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(address[i]));
      } else {
        asm volatile("ld.global.cg.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(address[i]));
      }
      address[i] += v.x;
      sum += v.y + v.z + v.w;
    }
  }
  __device__ float use() const {
    uint64_t all = sum;
    for (uint64_t each : address) all += each;
    return float(all);
  }
};
template <int kChains>
using LoadShared = Load<kChains, From::kShared>;
template <int kChains>
using LoadL1 = Load<kChains, From::kL1>;
template <int kChains>
using LoadL2 = Load<kChains, From::kL2>;

template <int kChains>
struct Ldmatrix {
  static constexpr const char *kName = "ldmatrix",
                              *kPtx = "ldmatrix.sync.aligned.m8n8.x4.shared.b16";
  static constexpr double kWork = 512, kFlops = 0;  // bytes
  uint32_t address[kChains], sum = 0;
  __device__ explicit Ldmatrix(float) {
    const uint32_t base =
        ptx::shared_address(&shared_storage<SharedStorage>()) + threadIdx.x % 32 * 16;
    for (int i = 0; i < kChains; i++) address[i] = base + i % 8 * 512;
  }
  __device__ void step() {
#pragma unroll
    for (int i = 0; i < kChains; i++) {
      uint32_t r[4];
      ptx::ldmatrix_x4(r, address[i]);
      address[i] += r[0];
      sum += r[1] + r[2] + r[3];
    }
  }
  __device__ float use() const {
    uint32_t all = sum;
    for (uint32_t each : address) all += each;
    return float(all);
  }
};

template <int kChains, int kK>
struct Mma {
  static constexpr const char *kName = kK == 16 ? "mma.m16n8k16" : "mma.m16n8k8",
                              *kPtx = kK == 16
                                          ? "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
                                          : "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32";
  static constexpr double kWork = 2.0 * 16 * 8 * kK, kFlops = kWork;
  float d[kChains][4];
  uint32_t a[kK / 4], b[kK / 8];
  __device__ explicit Mma(float seed) {
    for (auto& each : d) {
      for (float& x : each) x = seed;
    }
    for (uint32_t& x : a) x = uint32_t(seed);
    for (uint32_t& x : b) x = uint32_t(seed);
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

// ---- the measurement ----------------------------------------------------------------------------
// times: [CTA][warp] begin, end. unused: never written, since no result is equal to a NaN.
template <typename Instruction>
__global__ void run(float seed, long long* times, float* unused) {
  auto& smem = shared_storage<SharedStorage>();
  for (int i = threadIdx.x; i < 32 * 8; i += blockDim.x) smem.words[i] = uint4{0, 0, 0, 0};
  Instruction instruction(seed);
  __syncthreads();
  const long long begin = clock64();
#pragma unroll 4
  for (int i = 0; i < kSteps; i++) instruction.step();
  const long long end = clock64();
  if (instruction.use() == seed) *unused = seed;  // seed: 0/0 as seen from the host
  if (threadIdx.x % 32 == 0) {
    long long* mine = times + 2 * (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
    mine[0] = begin;
    mine[1] = end;
  }
}

struct Throughput {
  int warps = 0;      // a CTA, with which it is highest
  double cycles = 0;  // of an SM for one instruction of a warp
};

using Launch = void (*)(int ctas, int warps, long long* times, float* unused);

template <typename Instruction>
void launch_run(int ctas, int warps, long long* times, float* unused) {
  launch<&run<Instruction>>(
      {dim3(unsigned(ctas)), dim3(unsigned(32 * warps)), sizeof(SharedStorage)},
      std::numeric_limits<float>::quiet_NaN(), times, unused);
}

struct Entry {
  const char *name, *ptx;
  double work, flops;  // of one instruction of a warp
  const char* unit;    // of work
  Launch many, one;    // kChains chains; one chain
};
constexpr int kChains = 8;

template <template <int> typename Instruction>
Entry entry(const char* unit) {
  using Many = Instruction<kChains>;
  return {Many::kName,
          Many::kPtx,
          Many::kWork,
          Many::kFlops,
          unit,
          &launch_run<Many>,
          &launch_run<Instruction<1>>};
}

std::vector<Entry> entries() {
  return {entry<Fma>("results"),  entry<Max>("results"),     entry<Exp2>("results"),
          entry<Pack>("results"), entry<Shuffle>("results"), entry<LoadShared>("bytes"),
          entry<LoadL1>("bytes"), entry<LoadL2>("bytes"),    entry<Ldmatrix>("bytes"),
          entry<MmaK16>("FLOPs"), entry<MmaK8>("FLOPs")};
}

class Bench {
 public:
  explicit Bench(int ctas)
      : ctas_(ctas),
        times_("clock readings", size_t(ctas) * kMostWarps * 2 * sizeof(long long)),
        unused_("unused results", sizeof(float)) {}

  // Cycles of an SM from the first warp's begin to the last one's end, a repeat: the median over the SMs, of
  // the second of two launches.
  double cycles(Launch launch_it, int warps) {
    std::vector<long long> times(size_t(ctas_) * kMostWarps * 2);
    for (int i = 0; i < 2; i++)
      launch_it(ctas_, warps, static_cast<long long*>(times_.data()), unused());
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
      each.push_back(double(end - begin) / kSteps);
    }
    std::nth_element(each.begin(), each.begin() + ptrdiff_t(each.size() / 2), each.end());
    return each[each.size() / 2];
  }

  Throughput throughput(const Entry& entry) {
    Throughput best;
    for (int warps = 4; warps <= kMostWarps; warps *= 2) {
      const double each = cycles(entry.many, warps) / (warps * kChains);
      if (best.warps == 0 || each < best.cycles) best = {warps, each};
    }
    return best;
  }

  double latency(const Entry& entry) { return cycles(entry.one, 1); }

  // Of the whole GPU over about 100 ms, and the SMs' clock meanwhile.
  std::pair<double, std::optional<double>> sustained(const Entry& entry, const Throughput& best) {
    const double a_launch =
        best.cycles * best.warps * kChains * kSteps / 1.7e9;  // seconds, roughly
    const int launches = int(0.1 / a_launch) + 1;
    EventTimer timer;
    timer.start();
    for (int i = 0; i < launches; i++) {
      entry.many(ctas_, best.warps, static_cast<long long*>(times_.data()), unused());
    }
    timer.stop();
    std::vector<double> clocks;
    while (!timer.done()) {
      if (const auto now = sample_gpu().clock_mhz) clocks.push_back(*now);
    }
    const double flops = entry.flops * ctas_ * best.warps * kChains * kSteps * launches;
    std::nth_element(clocks.begin(), clocks.begin() + ptrdiff_t(clocks.size() / 2), clocks.end());
    return {flops / timer.milliseconds() * 1e-9,
            clocks.empty() ? std::nullopt : std::optional<double>(clocks[clocks.size() / 2])};
  }

 private:
  static constexpr int kMostWarps = 16;
  float* unused() { return static_cast<float*>(unused_.data()); }

  int ctas_;
  Buffer times_, unused_;
};

int measure_all(int argc, char** argv) {
  CLI::App app{
      "Measures how fast an SM executes single instructions: cycles between independent ones and "
      "cycles until a "
      "result can be used.\n\nExample:\n  rates mma ex2 --json rates.json"};
  std::vector<std::string> wanted;
  std::string file;
  app.add_option("INSTRUCTION", wanted, "names, or how they begin (mma, ex2); default: all");
  app.add_option("--json", file, "write the results to a file");
  bool list = false;
  app.add_flag("--list", list, "only list the instructions");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& problem) {
    throw BadInput(problem.what());
  }
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
    for (const Entry& entry : chosen) printf("%-14s %s\n", entry.name, entry.ptx);
    return 0;
  }

  const std::string created = utc_now();
  const nlohmann::json machine = describe_machine();
  Bench bench(machine.at("sm_count").get<int>());
  printf("%s\n\n%-14s %5s %15s %22s %15s\n", machine_title().c_str(), "instruction", "warps",
         "cycles each", "an SM and cycle", "latency, cycles");
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const Entry& entry : chosen) {
    const Throughput best = bench.throughput(entry);
    const double latency = bench.latency(entry);
    char work[32];
    snprintf(work, sizeof work, "%.1f %s", entry.work / best.cycles, entry.unit);
    printf("%-14s %5d %15.3f %22s %15.1f", entry.name, best.warps, best.cycles, work, latency);
    nlohmann::ordered_json result = {{"name", entry.name},       {"ptx", entry.ptx},
                                     {"warps", best.warps},      {"cycles", best.cycles},
                                     {"work", entry.work},       {"unit", entry.unit},
                                     {"latency_cycles", latency}};
    if (entry.flops > 0) {
      const auto [tflops, clock] = bench.sustained(entry, best);
      printf("   %.0f TFLOP/s", tflops);
      if (clock) printf(" at %.0f MHz", *clock);
      result["tflops"] = tflops;
      result["clock_mhz"] =
          clock ? nlohmann::ordered_json(*clock) : nlohmann::ordered_json(nullptr);
    }
    printf("\n");
    results.push_back(result);
  }
  if (!file.empty()) {
    const nlohmann::ordered_json all = {{"rates_version", 1},
                                        {"created", created},
                                        {"command", command_of(argc, argv)},
                                        {"machine", machine},
                                        {"instructions", results}};
    write_file_whole(file, all.dump(2) + "\n");
  }
  return 0;
}

}  // namespace fa::rates

int main(int argc, char** argv) {
  return fa::with_exit_code([&] { return fa::rates::measure_all(argc, argv); });
}
