// CUDA as people write it, translated for the emulator as scripts/fa emulate does (docs/
// your_own_kernel.md), in the checked build: what it computes, what is counted, what is reported.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_fp8.h>
#include <gtest/gtest.h>
#include <mma.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

namespace {

// Memory of the device with what a kernel has left in it.
template <typename T>
struct Device {
  explicit Device(size_t count, int fill = 0) : size(count) {
    cudaMalloc(&data, count * sizeof(T));
    cudaMemset(data, fill, count * sizeof(T));
  }
  explicit Device(const std::vector<T>& from) : Device(from.size()) {
    cudaMemcpy(data, from.data(), size * sizeof(T), cudaMemcpyHostToDevice);
  }
  ~Device() { cudaFree(data); }
  std::vector<T> host() const {
    std::vector<T> result(size);
    cudaMemcpy(result.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost);
    return result;
  }
  T* data = nullptr;
  size_t size;
};

template <typename T>
std::vector<T> numbers(size_t count) {
  std::vector<T> result(count);
  std::iota(result.begin(), result.end(), T(0));
  return result;
}

// The program's own table of counts takes no part here.
class Quiet : public testing::Environment {
  void SetUp() override { emu::after_launch = nullptr; }
};
const testing::Environment* const quiet = testing::AddGlobalTestEnvironment(new Quiet);

emu::Counts counts_of(emu::Kind kind) {
  emu::Counts sum;
  for (const emu::LineCounts& line : emu::take_lines()) {
    if (line.kind == kind) sum += line.counts;
  }
  return sum;
}

// A launch that must end the program with this report.
void expect_report(const std::function<void()>& launch, const char* report) {
  EXPECT_EXIT(launch(), testing::ExitedWithCode(1), report);
}

// ---- shared memory ------------------------------------------------------------------------------
template <typename T, int kRows>
__global__ void turn_tile(T* out) {
  __shared__ T tile[kRows][33], unused;
  __shared__ __align__(16) volatile int flag;
  const int lane = threadIdx.x;
  if (lane == 0) flag = blockIdx.x;
  for (int row = 0; row < kRows; row++) tile[row][lane] = T(row * 32 + lane);
  __syncthreads();
  auto at = [=](int row, int column) { return tile[row][column] + T(flag); };
  if (lane < kRows) out[blockIdx.x * kRows + lane] = at(lane, 3);
}

TEST(Shared, EachCtaHasItsOwnVariables) {
  Device<float> out(4 * 8);
  turn_tile<float, 8><<<4, 32>>>(out.data);
  for (int i = 0; i < 32; i++) EXPECT_EQ(out.host()[i], float(i % 8 * 32 + 3 + i / 8)) << i;
  Device<double> wide(2 * 5);
  turn_tile<double, 5><<<2, 32>>>(wide.data);
  EXPECT_EQ(wide.host()[9], 4 * 32 + 3 + 1);
}

template <typename T>
__global__ void dynamic(T* out) {
  extern __shared__ __align__(16) unsigned char bytes[];
  T* const words = reinterpret_cast<T*>(bytes);
  words[threadIdx.x] = T(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = words[blockDim.x - 1 - threadIdx.x];
}

TEST(Shared, DynamicMemoryIsWhatTheLaunchSays) {
  Device<int> out(64);
  dynamic<int><<<1, 64, 64 * sizeof(int)>>>(out.data);
  EXPECT_EQ(out.host()[0], 63);
  expect_report(
      [] {
        Device<int> more(64);
        dynamic<int><<<1, 64, 32 * sizeof(int)>>>(more.data);
      },
      "store of 4 bytes 0 bytes past the end of shared memory");
}

__global__ void too_much_dynamic() {}

TEST(Shared, MoreThan48KilobytesMustBeAskedFor) {
  too_much_dynamic<<<1, 32, 50000>>>();
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);  // as on an H200
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  cudaFuncSetAttribute(too_much_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 50000);
  too_much_dynamic<<<1, 32, 50000>>>();
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

__global__ void no_barrier(int* out) {
  __shared__ int words[64];
  words[threadIdx.x] = 1;
  out[threadIdx.x] = words[63 - threadIdx.x];
}
__global__ void past_the_end(int* out) {
  __shared__ int first[32], second[32];
  second[threadIdx.x] = 0;
  first[threadIdx.x + 1] = 1;
  out[threadIdx.x] = second[threadIdx.x];
}
__global__ void never_written(int* out) {
  __shared__ int words[32];
  out[threadIdx.x] = words[threadIdx.x];
}
__global__ void written_beside(int* out) {
  __shared__ int words[32];
  words[0] = 1;
  out[0] = words[1];
}
__global__ void written_beside_in_global(int* x) {
  x[0] = 1;
  x[1] = x[2];
}

TEST(Shared, MistakesAreReported) {
  Device<int> out(64);
  expect_report([&] { no_barrier<<<1, 64>>>(out.data); },
                "data race on byte 128 of words .shared memory.");
  expect_report([&] { past_the_end<<<1, 32>>>(out.data); },
                "store of 4 bytes 0 bytes past the end of first .128 bytes of shared memory.");
  expect_report([&] { never_written<<<1, 32>>>(out.data); },
                "read of memory that nothing has written, byte 0 of words");
  expect_report([&] { written_beside<<<1, 1>>>(out.data); },
                "read of memory that nothing has written, byte 4 of words");
  int* fresh = nullptr;
  cudaMalloc(&fresh, 4 * sizeof(int));
  expect_report([&] { written_beside_in_global<<<1, 1>>>(fresh); },
                "read of memory that nothing has written, byte 8 of ");
  cudaFree(fresh);
}

__global__ void conflicts(float* out, int pitch) {
  __shared__ float words[32 * 33];
  for (int i = threadIdx.x; i < 32 * 33; i += 32) words[i] = 0;
  __syncwarp();
  out[threadIdx.x] = words[threadIdx.x * pitch];
}

TEST(Shared, BankConflictsAreCounted) {
  Device<float> out(32);
  emu::take_lines();
  conflicts<<<1, 32>>>(out.data, 32);
  EXPECT_EQ(counts_of(emu::Kind::kSharedLoad).wavefronts, 32u);
  conflicts<<<1, 32>>>(out.data, 33);
  EXPECT_EQ(counts_of(emu::Kind::kSharedLoad).wavefronts, 1u);
}

// ---- stores of the same value -------------------------------------------------------------------
__global__ void store_one(int* found, int per_warp, int per_cta) {
  found[0] = 1 + threadIdx.x / 32 * per_warp + blockIdx.x * per_cta;
}
// On a page that the CTA has stored to before.
__global__ void store_one_late(int* found, int per_cta) {
  found[1 + blockIdx.x] = 0;
  found[0] = 1 + blockIdx.x * per_cta;
}
__global__ void store_in_shared(int* out, int step) {
  __shared__ int sum;
  sum = 7 + threadIdx.x * step;
  __syncthreads();
  out[threadIdx.x] = sum;
}
__global__ void store_and_look(int* found, int* out) {
  out[blockIdx.x] = found[0];
  found[0] = 1;
}
// The second store hides the first one, and that the load.
__global__ void look_and_store_twice(int* found, int* out) {
  out[blockIdx.x] = found[0];
  found[0] = 1;
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  found[0] = 1;
}
__global__ void look_then_store(int* out) {
  __shared__ int flag;
  flag = 1;
  __syncthreads();
  out[threadIdx.x] = flag;
  __syncthreads();
  flag = 0;
  __syncthreads();
  out[threadIdx.x] += flag;
}
__global__ void store_four(int4* out, int last) { *out = make_int4(1, 2, 3, last * blockIdx.x); }

// What a launch says on standard error.
std::string said(const std::function<void()>& launch) {
  testing::internal::CaptureStderr();
  launch();
  return testing::internal::GetCapturedStderr();
}

TEST(EqualStores, AreNotedOnce) {
  Device<int> x(64);
  const std::string note = said([&] { store_one<<<3, 64>>>(x.data, 0, 0); });
  EXPECT_NE(note.find("note: store_one: several threads store the same value in any order, in byte "
                      "0 of the cudaMalloc"),
            std::string::npos)
      << note;
  EXPECT_NE(note.find("by thread 0 (warp 0 lane 0) of CTA (0,0,0)"), std::string::npos) << note;
  EXPECT_EQ(x.host()[0], 1);
  EXPECT_EQ(said([&] { store_one<<<3, 64>>>(x.data, 0, 0); }), "");
  EXPECT_NE(said([&] { store_one_late<<<2, 1>>>(x.data, 0); }).find("note: "), std::string::npos);
  EXPECT_NE(said([&] { store_in_shared<<<1, 64>>>(x.data, 0); }).find("note: "), std::string::npos);
  EXPECT_EQ(x.host()[63], 7);
  EXPECT_NE(said([&] { look_then_store<<<1, 64>>>(x.data); }).find("note: "), std::string::npos);
  Device<int4> four(1);
  EXPECT_NE(said([&] { store_four<<<5, 1>>>(four.data, 0); }).find("note: "), std::string::npos);
}

TEST(EqualStores, OfOtherValuesAreRaces) {
  Device<int> x(64);
  expect_report([&] { store_one<<<1, 64>>>(x.data, 1, 0); }, "data race on byte 0");
  expect_report([&] { store_one<<<8, 1>>>(x.data, 0, 1); }, "data race on byte 0");
  expect_report([&] { store_one_late<<<2, 1>>>(x.data, 1); }, "data race on byte 0");
  expect_report([&] { store_in_shared<<<1, 64>>>(x.data, 1); }, "data race on byte 0 of sum");
  expect_report([&] { store_in_shared<<<1, 32>>>(x.data, 1); }, "Missing: a __syncwarp");
  Device<int4> four(1);
  expect_report([&] { store_four<<<5, 1>>>(four.data, 1); }, "data race on byte 0");
}

TEST(EqualStores, AreRacesWhereSomebodyReads) {
  Device<int> x(64), y(64);
  expect_report([&] { store_and_look<<<2, 1>>>(x.data, y.data); }, "data race on byte 0");
  expect_report([&] { store_and_look<<<1, 64>>>(x.data, y.data); }, "data race on byte 0");
  expect_report([&] { look_and_store_twice<<<2, 1>>>(x.data, y.data); }, "data race on byte 0");
}

// ---- a guess, and the comparison that tests it --------------------------------------------------
// As in the CUDA C++ Programming Guide, "Atomic Functions".
__device__ double add_to(double* address, double value) {
  auto* const bits = reinterpret_cast<unsigned long long*>(address);
  unsigned long long old = *bits, assumed;
  do {
    assumed = old;
    old = atomicCAS(bits, assumed, __double_as_longlong(value + __longlong_as_double(assumed)));
  } while (assumed != old);
  return __longlong_as_double(old);
}
__global__ void add_from(double* sum, const double* from) { add_to(sum, from[threadIdx.x]); }
__global__ void keep_the_guess(int* x, int* out) {
  const int old = *x;
  out[threadIdx.x] = old;
  atomicCAS(x, old, old + 1);
}

TEST(Guesses, OfComparisonsAreNoRaces) {
  Device<double> sum(1), from(numbers<double>(64));
  add_from<<<3, 64>>>(sum.data, from.data);
  EXPECT_EQ(sum.host()[0], 3 * 63 * 32);
}

TEST(Guesses, ThatAreUsedOtherwiseAreRaces) {
  Device<int> x(1), out(64);
  expect_report([&] { keep_the_guess<<<1, 64>>>(x.data, out.data); }, "data race on byte 0");
}

// ---- numbers ------------------------------------------------------------------------------------
struct Directions {
  float down, up, zero;
};
__global__ void round_all(const float* from, Directions* to) {
  const float x = from[threadIdx.x], y = from[(threadIdx.x + 1) % blockDim.x];
  Directions* const mine = to + 5 * threadIdx.x;
  mine[0] = {__fmul_rd(x, y), __fmul_ru(x, y), __fmul_rz(x, y)};
  mine[1] = {__fsub_rd(x, y), __fsub_ru(x, y), __fsub_rz(x, y)};
  mine[2] = {__fdiv_rd(x, y), __fdiv_ru(x, y), __fdiv_rz(x, y)};
  mine[3] = {__fsqrt_rd(x), __fsqrt_ru(x), __fsqrt_rz(x)};
  mine[4] = {__double2float_rd(x + 1e-9), __double2float_ru(x + 1e-9),
             __double2float_rz(-x - 1e-9)};
}

TEST(Numbers, AreRoundedInEveryDirection) {
  std::vector<float> from(64);
  for (int i = 0; i < 64; i++) from[i] = 1.0f + float(i * 7919 % 64) / 3.0f;
  Device<float> numbers(from);
  Device<Directions> rounded(5 * 64);
  round_all<<<1, 64>>>(numbers.data, rounded.data);
  const auto all = rounded.host();
  for (int i = 0; i < 64; i++) {
    const double x = from[i], y = from[(i + 1) % 64];
    const Directions* const each = &all[5 * i];
    for (int op = 0; op < 5; op++) {
      EXPECT_LE(each[op].up, std::nextafter(each[op].down, INFINITY)) << op;
    }
    // In float64 these are exact, but for the last one.
    EXPECT_TRUE(each[0].down <= x * y && x * y <= each[0].up && each[0].zero == each[0].down);
    EXPECT_TRUE(each[1].down <= x - y && x - y <= each[1].up);
    EXPECT_EQ(each[1].zero, x < y ? each[1].up : each[1].down);
    EXPECT_TRUE(each[2].down * y <= x && x <= each[2].up * y && each[2].zero == each[2].down);
    EXPECT_TRUE(double(each[3].down) * each[3].down <= x && x <= double(each[3].up) * each[3].up);
    EXPECT_TRUE(each[4].down == from[i] && each[4].up > from[i] && each[4].zero == -from[i]);
  }
}

__global__ void side_by_side(unsigned* to) {
  const unsigned results[] = {__vadd2(0x7fff0001, 0x0001ffff),
                              __vaddss2(0x7fff0001, 0x0001ffff),
                              __vaddus4(0xff01ff80, 0x01010180),
                              __vsubss4(0x80007f01, 0x0101ff02),
                              __vabsdiffu4(0x0a0b0c0d, 0x0c0b0a0f),
                              __vabs4(0x80ff7f01),
                              __vabsss4(0x80ff7f01),
                              __vnegss2(0x80000001),
                              __vcmpgts2(0x00018000, 0x00007fff),
                              __vsetgtu2(0x00018000, 0x00007fff),
                              __vavgs2(0xffff0001, 0xfffe0002),
                              __vavgu4(0xff000102, 0xfe010102),
                              __vhaddu4(0xff000102, 0xfe010103),
                              __vmins4(0x80017f02, 0x7f02ff01),
                              __vmaxu4(0x80017f02, 0x7f02ff01),
                              __vsads2(0xffff0001, 0xfffe0002),
                              __vsadu4(0xff000102, 0x00010201)};
  for (int i = 0; i < 17; i++) to[i] = results[i];
}

TEST(Numbers, StandSideBySideInAWord) {
  Device<unsigned> to(17);
  side_by_side<<<1, 1>>>(to.data);
  EXPECT_EQ(to.host(), (std::vector<unsigned>{
                           0x80000000, 0x7fff0000, 0xff02ffff, 0x80ff7fff, 0x02000202, 0x80017f01,
                           0x7f017f01, 0x7fffffff, 0xffff0000, 0x00010001, 0xfffe0002, 0xff010102,
                           0xfe000102, 0x8001ff01, 0x8002ff02, 2, 0xff + 1 + 1 + 1}));
}

// ---- variables of the device --------------------------------------------------------------------
__device__ int counter;
__device__ float table[4] = {1, 2, 3, 4};
__constant__ float weights[32], half_of = 0.5f, *no_one = nullptr, pair[2] = {5, 6};

__global__ void use_variables(float* out) {
  out[threadIdx.x] = table[threadIdx.x % 4] * weights[threadIdx.x];
  atomicAdd(&counter, 2);
}
__global__ void race_on_variable() { counter = counter + 1; }
__global__ void write_constant() { weights[threadIdx.x] = 1; }
__global__ void add_to_constant() { weights[threadIdx.x] += 1; }
__global__ void past_table(float* out) { out[threadIdx.x] = table[threadIdx.x]; }
__global__ void use_neighbours(float* out) { out[threadIdx.x] = pair[threadIdx.x] * half_of; }

TEST(Variables, AreCopiedAndCounted) {
  const auto from = numbers<float>(32);
  EXPECT_EQ(cudaMemcpyToSymbol(weights, from.data(), 32 * sizeof(float)), cudaSuccess);
  const int zero = 0;
  cudaMemcpyToSymbol(counter, &zero, sizeof zero);
  Device<float> out(32);
  emu::take_lines();
  use_variables<<<1, 32>>>(out.data);
  const emu::Counts loads = counts_of(emu::Kind::kGlobalLoad);
  EXPECT_EQ(loads.requests, 2u);
  EXPECT_EQ(out.host()[6], 3 * 6);
  int sum = 0;
  cudaMemcpyFromSymbol(&sum, counter, sizeof sum);
  EXPECT_EQ(sum, 64);
}

TEST(Variables, MistakesAreReported) {
  Device<float> out(64);
  expect_report([] { race_on_variable<<<1, 64>>>(); }, "data race on byte 0 of __device__ counter");
  expect_report([] { race_on_variable<<<2, 1>>>(); }, "CTAs of a launch run in any order");
  expect_report([] { write_constant<<<1, 32>>>(); },
                "__constant__ weights, which kernels may only");
  expect_report([] { add_to_constant<<<1, 1>>>(); },
                "__constant__ weights, which kernels may only");
  expect_report([&] { past_table<<<1, 32>>>(out.data); },
                "load of 4 bytes 0 bytes past the end of __device__ table .16 bytes.");
  use_neighbours<<<1, 2>>>(out.data);
  EXPECT_EQ(out.host()[1], 3);
  expect_report([&] { use_neighbours<<<1, 3>>>(out.data); }, "__constant__ pair .8 bytes.");
}

// ---- atomics ------------------------------------------------------------------------------------
template <typename T>
__global__ void add_all(T* sum, T value) {
  __shared__ int local;
  if (threadIdx.x == 0) local = 0;
  __syncthreads();
  atomicAdd(&local, 1);
  atomicAdd(sum, value);
  __syncthreads();
  if (threadIdx.x == 0 && local != int(blockDim.x)) atomicAdd(sum, value);
}

TEST(Atomics, AddInEveryType) {
  Device<int> i(1);
  add_all<int><<<8, 96>>>(i.data, -2);
  EXPECT_EQ(i.host()[0], -2 * 8 * 96);
  Device<unsigned long long> u(1);
  add_all<<<8, 96>>>(u.data, 1ull << 33);
  EXPECT_EQ(u.host()[0], (8ull * 96) << 33);
  Device<float> f(1);
  add_all<float><<<8, 96>>>(f.data, 0.5f);
  EXPECT_EQ(f.host()[0], 384.0f);
  Device<double> d(1);
  add_all<double><<<8, 96>>>(d.data, 0.25);
  EXPECT_EQ(d.host()[0], 192.0);
  Device<__half> h(1);
  add_all<__half><<<1, 32>>>(h.data, __half(0.5f));
  EXPECT_EQ(float(h.host()[0]), 16.0f);
}

__global__ void every_operation(int* v, unsigned* u) {
  const int t = threadIdx.x;
  atomicSub(&v[0], t);
  atomicMax(&v[1], t);
  atomicMin(&v[2], t - 40);
  atomicAnd(&v[3], ~(1 << t));
  atomicOr(&v[4], 1 << t);
  atomicXor(&v[5], 1 << t);
  atomicInc(&u[0], 9);
  atomicDec(&u[1], 9);
  int old = v[6] * 0, seen;
  do {
    seen = old;
    old = atomicCAS(&v[7], seen, seen + t);
  } while (old != seen);
  atomicExch(&u[2], 5u);
  atomicAdd_block(&v[8], 1);
  atomicAdd_system(&v[8], 1);
}

TEST(Atomics, Operations) {
  Device<int> v(9);
  Device<unsigned> u(3);
  std::vector<int> start = {0, -1, 0, -1, 0, 0, 0, 0, 0};
  cudaMemcpy(v.data, start.data(), sizeof(int) * 9, cudaMemcpyHostToDevice);
  every_operation<<<1, 32>>>(v.data, u.data);
  EXPECT_EQ(v.host(), (std::vector<int>{-496, 31, -40, 0, -1, -1, 0, 496, 64}));
  EXPECT_EQ(u.host(), (std::vector<unsigned>{2, 8, 5}));
}

// The order of global atomics is that of the CTAs, whatever the number of OS threads.
__global__ void tickets(int* next, int* taken) {
  if (threadIdx.x == 0) taken[atomicAdd(next, 1)] = blockIdx.x;
}

TEST(Atomics, DoNotDependOnTheNumberOfThreads) {
  for (const int threads : {1, 2, 5}) {
    emu::options().os_threads = threads;
    Device<int> next(1), taken(40);
    tickets<<<40, 32>>>(next.data, taken.data);
    EXPECT_EQ(taken.host(), numbers<int>(40)) << threads;
  }
  emu::options().os_threads = 0;
}

__global__ void locked(int* lock, int* sum) {
  for (bool done = false; !done;) {
    if (atomicCAS(lock, 0, 1) == 0) {
      atomicAdd(sum, 1);
      atomicExch(lock, 0);
      done = true;
    }
  }
}

TEST(Atomics, ALockLetsOthersRun) {
  Device<int> lock(1), sum(1);
  locked<<<2, 64>>>(lock.data, sum.data);
  EXPECT_EQ(sum.host()[0], 128);
}

__global__ void atomic_and_plain_store(int* x) {
  if (threadIdx.x < 32) atomicAdd(&x[threadIdx.x], 1);
  if (threadIdx.x >= 32) x[threadIdx.x - 32] = 1;
}
__global__ void atomic_and_plain_load(int* x) {
  if (threadIdx.x < 32) atomicAdd(x, 1);
  if (threadIdx.x == 32) x[1] = x[0];
}
__global__ void atomics_of_two_warps_then_load(int* x) {
  atomicAdd(x, 1);
  __syncwarp();
  if (threadIdx.x == 0) x[1] = x[0];  // warp 1 may still add
}
__global__ void atomic_in_one_cta(int* x) {
  if (blockIdx.x == 0) atomicAdd(x, 1);
  if (blockIdx.x == 1 && threadIdx.x == 0) x[1] = x[0];
}

TEST(Atomics, RaceWithPlainAccessesAlone) {
  Device<int> x(64);
  expect_report([&] { atomic_and_plain_store<<<1, 64>>>(x.data); }, "make both of them atomic\\.");
  expect_report([&] { atomic_and_plain_load<<<1, 64>>>(x.data); },
                "atomicAdd.. at common/emulator/tests/test_cuda(.|\n)*make both of them atomic:\n  "
                "load through volatile, ");
  expect_report([&] { atomics_of_two_warps_then_load<<<1, 64>>>(x.data); }, "data race on byte 0");
  expect_report([&] { atomic_in_one_cta<<<2, 32>>>(x.data); },
                "Or: make both of them atomic:\n  load through volatile, ");
  add_all<int><<<4, 64>>>(x.data, 1);  // no report
}

// ---- what atomics pass on -----------------------------------------------------------------------
enum class Fenced { kRight, kByEach, kNever, kLate, kForCta, kBeforeOthers };

// Each CTA stores 64 numbers and takes a ticket; the one with the last ticket adds up all.
template <Fenced kFenced>
__global__ void last_adds(int* numbers, unsigned* tickets, int* sum) {
  __shared__ bool last;
  if (kFenced == Fenced::kBeforeOthers && threadIdx.x == 0) __threadfence();
  numbers[blockIdx.x * 64 + threadIdx.x] = threadIdx.x;
  if (kFenced == Fenced::kByEach) __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    if (kFenced == Fenced::kRight) __threadfence();
    if (kFenced == Fenced::kForCta) __threadfence_block();
    last = atomicInc(tickets, gridDim.x - 1) == gridDim.x - 1;
    if (kFenced == Fenced::kLate) __threadfence();
  }
  __syncthreads();
  if (!last) return;
  for (int cta = 0; cta < gridDim.x; cta++) atomicAdd(sum, numbers[cta * 64 + threadIdx.x]);
  if (threadIdx.x == 0) *tickets = 0;  // for the next launch
}

__global__ void reads_before_its_ticket(int* numbers, unsigned* tickets, int* sum) {
  const int before = blockIdx.x ? numbers[blockIdx.x - 1] : 0;
  numbers[blockIdx.x] = before + 1;
  __threadfence();
  atomicInc(tickets, gridDim.x);
  if (atomicAdd(tickets, 0u) == gridDim.x) *sum = before;
}

// Each CTA waits for the one before it, adds its own number, and lets the next one go on.
template <bool kFenced, typename Flag>
__global__ void chain(int* numbers, Flag* flags) {
  if (blockIdx.x > 0) {
    while (flags[blockIdx.x - 1] == 0) __nanosleep(20);
    if (kFenced) __threadfence();
  }
  int sum = blockIdx.x;
  for (int cta = 0; cta < blockIdx.x; cta++) sum += numbers[cta] - numbers[cta] / 2;
  numbers[blockIdx.x] = sum;
  if (kFenced) __threadfence();
  flags[blockIdx.x] = 1;
}
template <bool kFenced>
__global__ void chain_of_atomics(int* numbers,
                                 cuda::atomic<int, cuda::thread_scope_device>* flags) {
  if (blockIdx.x > 0) {
    while (flags[blockIdx.x - 1].load(cuda::memory_order_acquire) == 0) {
    }
    numbers[0] += 1;
  } else {
    numbers[0] = 1;
  }
  flags[blockIdx.x].store(1, kFenced ? cuda::memory_order_release : cuda::memory_order_relaxed);
}

// Warp 1 waits for what warp 0 has stored.
template <bool kFenced, typename Flag>
__global__ void in_one_cta(int* x, Flag* flag) {
  cuda::atomic_ref<int, cuda::thread_scope_block> ready(x[1]);
  if (threadIdx.x == 0) {
    x[0] = 7;
    ready.store(1, kFenced ? cuda::memory_order_release : cuda::memory_order_relaxed);
  } else if (threadIdx.x == 32) {
    while (ready.load(cuda::memory_order_acquire) == 0) {
    }
    x[2] = x[0];
    if (kFenced) __threadfence();
    *flag = 1;
  } else if (threadIdx.x == 64) {
    while (*flag == 0) {
    }
    x[3] = x[0] + x[2];
  }
}

TEST(Handover, TheLastCtaSeesWhatLiesBeforeAFence) {
  for (const int threads : {1, 3}) {
    emu::options().os_threads = threads;
    Device<int> numbers(8 * 64), sum(1);
    Device<unsigned> tickets(1);
    last_adds<Fenced::kRight><<<8, 64>>>(numbers.data, tickets.data, sum.data);
    last_adds<Fenced::kByEach><<<8, 64>>>(numbers.data, tickets.data, sum.data);
    EXPECT_EQ(sum.host()[0], 2 * 8 * 63 * 32);
    const char* const report =
        "Before the second, its CTA met an atomic that the first one's CTA had executed.\n"
        "  Missing: a __threadfence.. between the first and that atomic";
    for (const auto kernel : {last_adds<Fenced::kNever>, last_adds<Fenced::kLate>,
                              last_adds<Fenced::kForCta>, last_adds<Fenced::kBeforeOthers>}) {
      expect_report([&] { kernel<<<8, 64>>>(numbers.data, tickets.data, sum.data); }, report);
    }
    expect_report(
        [&] { reads_before_its_ticket<<<8, 1>>>(numbers.data, tickets.data, sum.data); },
        "cannot wait for each other. Do the two in separate launches.\n  Or: pass the first on");
  }
  emu::options().os_threads = 0;
}

TEST(Handover, FlagsBetweenCtasNeedFencesAndVolatile) {
  using Atomic = cuda::atomic<int, cuda::thread_scope_device>;
  Device<int> numbers(8), flags(8);
  Device<Atomic> atomics(8);
  chain<true, volatile int><<<8, 1>>>(numbers.data, flags.data);
  EXPECT_EQ(numbers.host()[3], 3 + 0 + 1 + 2);
  chain_of_atomics<true><<<8, 1>>>(numbers.data, atomics.data);
  EXPECT_EQ(numbers.host()[0], 8);
  cudaMemset(flags.data, 0, 8 * sizeof(int));
  cudaMemset(atomics.data, 0, 8 * sizeof(int));
  const char* const fence = "Missing: a __threadfence";
  expect_report([&] { chain<false, volatile int><<<8, 1>>>(numbers.data, flags.data); }, fence);
  expect_report([&] { chain_of_atomics<false><<<8, 1>>>(numbers.data, atomics.data); }, fence);
  cudaMemset(flags.data, 1, 8 * sizeof(int));  // or the plain loop would never end
  expect_report([&] { chain<true, int><<<8, 1>>>(numbers.data, flags.data); },
                "data race on byte .* of the cudaMalloc");
}

TEST(Handover, WithinACta) {
  Device<int> x(4), flag(1);
  in_one_cta<true, volatile int><<<1, 96>>>(x.data, flag.data);
  EXPECT_EQ(x.host()[3], 14);
  cudaMemset(x.data, 0, 16);
  expect_report([&] { in_one_cta<false, volatile int><<<1, 96>>>(x.data, flag.data); },
                "data race on byte 0");
}

__global__ void waits_at_barriers(const int* done) {
  while (*done == 0) __syncthreads();
}
__global__ void meets_often(int* sum) {
  for (int i = 0; i < 20000; i++) __syncthreads();
  if (threadIdx.x == 0) *sum = 1;
}

__global__ void waits_for_a_later_cta(volatile int* flags) {
  while (blockIdx.x == 0 && flags[1] == 0) {
  }
  flags[blockIdx.x] = 1;
}

TEST(Handover, NeverComesFromALaterCta) {
  Device<int> flags(2);
  expect_report([&] { waits_for_a_later_cta<<<2, 1>>>(flags.data); },
                "4194304 times in a row, and none has got anywhere");
}

TEST(Barriers, WithoutEndAreEnded) {
  Device<int> done(1), sum(1);
  expect_report([&] { waits_at_barriers<<<1, 64>>>(done.data); },
                "waits_at_barriers, CTA .0,0,0.: its.*1048576 barriers in a row without a store");
  meets_often<<<1, 64>>>(sum.data);
  EXPECT_EQ(sum.host()[0], 1);
}

__global__ void count_atomics(int* x, int stride) {
  __shared__ int words[32];
  words[threadIdx.x] = 0;
  __syncwarp();
  atomicAdd(&words[threadIdx.x * stride % 32], 1);
  atomicAdd(&x[threadIdx.x], 1);
}

TEST(Atomics, AreCountedAsRequestsOfAWarp) {
  Device<int> x(32);
  emu::take_lines();
  count_atomics<<<1, 32>>>(x.data, 1);
  EXPECT_EQ(counts_of(emu::Kind::kSharedAtomic).wavefronts, 1u);
  count_atomics<<<1, 32>>>(x.data, 0);  // 32 lanes in one word
  EXPECT_EQ(counts_of(emu::Kind::kSharedAtomic).wavefronts, 32u);
  count_atomics<<<1, 32>>>(x.data, 1);
  const emu::Counts global = counts_of(emu::Kind::kGlobalAtomic);
  EXPECT_EQ(global.requests, 1u);
  EXPECT_EQ(global.sectors, 4u);
}

// ---- warps and barriers -------------------------------------------------------------------------
template <typename T>
__global__ void shuffle_all(T* out) {
  const T mine = T(float(threadIdx.x));
  const T a = __shfl_sync(0xffffffff, mine, 3);
  const T b = __shfl_up_sync(0xffffffff, mine, 1);
  const T c = __shfl_down_sync(0xffffffff, mine, 1);
  const T d = __shfl_xor_sync(0xffffffff, mine, 16);
  out[threadIdx.x] = T(float(a) + float(b) + float(c) + float(d));
}

template <typename T>
void expect_shuffles() {
  Device<T> out(32);
  shuffle_all<T><<<1, 32>>>(out.data);
  for (int i = 0; i < 32; i++) {
    EXPECT_EQ(float(out.host()[i]), 3 + std::max(i - 1, 0) + std::min(i + 1, 31) + (i ^ 16)) << i;
  }
}

TEST(Warp, ShufflesOfEveryType) {
  expect_shuffles<int>();
  expect_shuffles<unsigned long long>();
  expect_shuffles<float>();
  expect_shuffles<double>();
  expect_shuffles<__half>();
  expect_shuffles<__nv_bfloat16>();
}

__global__ void warp_intrinsics(unsigned* out) {
  const unsigned t = threadIdx.x;
  unsigned* const o = out + t;
  o[0 * 32] = __match_any_sync(0xffffffff, t / 8);
  int same;
  o[1 * 32] = __match_all_sync(0xffffffff, 7, &same) + (same ? 0 : 1);
  o[2 * 32] = __reduce_add_sync(0xffffffff, t);
  o[3 * 32] = __reduce_max_sync(0xffffffff, int(t) - 50);
  o[4 * 32] = __reduce_or_sync(0xffffffff, 1u << t);
  o[5 * 32] = __syncthreads_count(t % 3 == 0);
  o[6 * 32] = __syncthreads_or(t == 40) * 2 + __syncthreads_and(t < 32);
  o[7 * 32] = t % 2 ? __activemask() : 0;
  if (t < 4) o[8 * 32] = __activemask();
  __threadfence();
  __nanosleep(10);
}

TEST(Warp, VotesMatchesReductionsAndBarriers) {
  Device<unsigned> out(9 * 32);
  warp_intrinsics<<<1, 32>>>(out.data);
  const auto o = out.host();
  const auto at = [&](int row, int lane) { return o[row * 32 + lane]; };
  EXPECT_EQ(at(0, 9), 0xff00u);
  EXPECT_EQ(at(1, 0), 0xffffffffu);
  EXPECT_EQ(at(2, 31), 496u);
  EXPECT_EQ(int(at(3, 4)), -19);
  EXPECT_EQ(at(4, 0), 0xffffffffu);
  EXPECT_EQ(at(5, 17), 11u);
  EXPECT_EQ(at(6, 2), 1u);
  EXPECT_EQ(at(7, 1), 0xaaaaaaaau);
  EXPECT_EQ(at(7, 2), 0u);
  EXPECT_EQ(at(8, 3), 15u);
}

// ---- numbers ------------------------------------------------------------------------------------
TEST(Numbers, IntegerIntrinsics) {
  EXPECT_EQ(__popc(0xf0f0u), 8);
  EXPECT_EQ(__popcll(~0ull), 64);
  EXPECT_EQ(__clz(1), 31);
  EXPECT_EQ(__clz(0), 32);
  EXPECT_EQ(__ffs(8), 4);
  EXPECT_EQ(__ffs(0), 0);
  EXPECT_EQ(__brev(1u), 0x80000000u);
  EXPECT_EQ(__brevll(2ull), 1ull << 62);
  EXPECT_EQ(__mulhi(-2, 3), -1);
  EXPECT_EQ(__umulhi(0x80000000u, 4u), 2u);
  EXPECT_EQ(__umul64hi(1ull << 63, 6), 3ull);
  EXPECT_EQ(__byte_perm(0x33221100u, 0x77665544u, 0x7531u), 0x77553311u);
  EXPECT_EQ(__byte_perm(0x00008000u, 0, 0x9999u), 0xffffffffu);
  EXPECT_EQ(__funnelshift_l(0x80000000u, 1u, 1), 3u);
  EXPECT_EQ(__funnelshift_r(2u, 1u, 1), 0x80000001u);
  EXPECT_EQ(__funnelshift_rc(2u, 9u, 40), 9u);
  EXPECT_EQ(__dp4a(int(0xff010203), 0x01010101, 10), 15);
  EXPECT_EQ(__dp4a(0xff010203u, 0x01010101u, 10u), 271u);
  EXPECT_EQ(__dp4a(make_char4(-1, 2, 3, 4), make_char4(5, 6, 7, -8), 10), 6);
  EXPECT_EQ(__dp4a(make_uchar4(255, 2, 3, 4), make_uchar4(5, 6, 7, 8), 10u), 1350u);
  EXPECT_EQ(__dp2a_lo(make_short2(-300, 2), make_char4(5, 6, -7, 8), 10), -1478);
  EXPECT_EQ(__dp2a_hi(make_short2(-300, 2), make_char4(5, 6, -7, 8), 10), 2126);
  EXPECT_EQ(__dp2a_lo(make_ushort2(65535, 2), make_uchar4(255, 6, 7, 8), 10u), 16711447u);
  EXPECT_EQ(__dp2a_hi(make_ushort2(65535, 2), make_uchar4(255, 6, 7, 8), 10u), 458771u);
  EXPECT_EQ(__sad(-3, 4, 5u), 12u);
  EXPECT_EQ(__hadd(3, 4), 3);
  EXPECT_EQ(__rhadd(3, 4), 4);
  EXPECT_EQ(min(3, -2) + max(2u, 7u), 5u);
  EXPECT_EQ(max(1.5f, 2.5f), 2.5f);
  EXPECT_EQ(__float2int_rn(2.5f), 2);
  EXPECT_EQ(__float2int_rz(-2.7f), -2);
  EXPECT_EQ(__float2int_rn(1e20f), INT32_MAX);
  EXPECT_EQ(__float2uint_rn(-5.0f), 0u);
  EXPECT_EQ(__saturatef(1.5f), 1.0f);
  EXPECT_EQ(rsqrtf(16.0f), 0.25f);
  EXPECT_EQ(__fdividef(3.0f, 2.0f), 1.5f);
  EXPECT_EQ(__int_as_float(__float_as_int(1.5f)), 1.5f);
  EXPECT_TRUE(isnan(NAN));
  EXPECT_EQ(warpSize, 32);
  EXPECT_FLOAT_EQ(__expf(1.0f), 2.7182818f);
  EXPECT_FLOAT_EQ(tanhf(0.5f), 0.46211716f);
  EXPECT_EQ(pow(2, 3) + std::pow(1.5, 2) + powf(2.0f, 3.0f), 18.25);
  EXPECT_EQ(exp(0) + exp2(3) + std::log(1), 9);
}

TEST(Numbers, Halves) {
  const __half a = 1.5f, b = __float2half(2.25f);
  EXPECT_EQ(float(a + b), 3.75f);
  EXPECT_EQ(float(__hmul(a, b)), 3.375f);
  EXPECT_EQ(float(__hfma(a, b, a)), 4.875f);
  EXPECT_TRUE(__hlt(a, b) && a < b && !(a == b));
  // 2048 + 1 is between two halves: to even, down. With 1.5 + 0.5 more than half a step: up.
  EXPECT_EQ(float(__hadd(__half(2048.0f), __half(1.0f))), 2048.0f);
  EXPECT_EQ(float(__hfma(__half(2048.0f), __half(1.0f), __half(1.0009765625f))), 2050.0f);
  const __half2 pair = __floats2half2_rn(1, 2), sum = __hadd2(pair, __float2half2_rn(3));
  EXPECT_EQ(__low2float(sum), 4);
  EXPECT_EQ(__high2float(sum), 5);
  EXPECT_EQ(float(__hmax(a, b)), 2.25f);
  EXPECT_EQ(float(-a), -1.5f);
  EXPECT_EQ(float(hsqrt(__half(9.0f))), 3.0f);
  const __nv_bfloat16 c = 1.0f, d = 0.00390625f;  // 2^-8: half a step of bf16 at 1
  EXPECT_EQ(float(c + d), 1.0f);
  EXPECT_EQ(float(__hfma(c, c, d)), 1.0f);
  EXPECT_EQ(float(__float2bfloat162_rn(3).y), 3.0f);
  EXPECT_EQ(__half_as_ushort(__half(1.0f)), 0x3c00);
}

__global__ void copy_vectors(const char* from, char* to) {
  const int t = threadIdx.x;
  reinterpret_cast<double2*>(to)[t] = reinterpret_cast<const double2*>(from)[t];
}
__global__ void copy_small(const uchar4* from, uchar4* to) { to[threadIdx.x] = from[threadIdx.x]; }

__global__ void add_pairs(__half2* p) { p[threadIdx.x] = __hadd2(p[threadIdx.x], p[threadIdx.x]); }
__global__ void copy_threes(const float3* from, float3* to) { to[threadIdx.x] = from[threadIdx.x]; }

template <typename T>
int bits_of(T value) {
  return value.bits;
}

TEST(Numbers, HalvesInEveryDirection) {
  // Between the halves 1 and 1 + 2^-10; past the largest; between the two smallest.
  EXPECT_EQ(bits_of(__float2half_rz(1.0005f)) << 16 | bits_of(__float2half_ru(1.0005f)),
            0x3c003c01);
  EXPECT_EQ(bits_of(__float2half_rd(-1.0005f)) << 16 | bits_of(__float2half_ru(-1.0005f)),
            0xbc01bc00);
  EXPECT_EQ(bits_of(__float2half_rz(1e6f)) << 16 | bits_of(__float2half_ru(1e6f)), 0x7bff7c00);
  EXPECT_EQ(bits_of(__float2half_rd(1e-9f)) << 16 | bits_of(__float2half_ru(1e-9f)), 0x00000001);
  EXPECT_EQ(bits_of(__float2half_rd(-1e-9f)) << 16 | bits_of(__float2half_ru(-1e-9f)), 0x80018000);
  EXPECT_EQ(bits_of(__float2bfloat16_rz(1.007f)) << 16 | bits_of(__float2bfloat16_ru(1.007f)),
            0x3f803f81);
  // 2^62 + 2^54 is half a step of bfloat16 above 2^62, and one more makes it more than half.
  EXPECT_EQ(bits_of(__ll2bfloat16_rn((1ll << 62) + (1ll << 54))), 0x5e80);
  EXPECT_EQ(bits_of(__ll2bfloat16_rn((1ll << 62) + (1ll << 54) + 1)), 0x5e81);
  EXPECT_EQ(bits_of(__ull2half_rd(~0ull)) << 16 | bits_of(__ull2half_rn(~0ull)), 0x7bff7c00);
  EXPECT_EQ(__half2int_rn(2.5f) + 10 * __half2int_ru(2.5f) + 100 * __half2int_rd(-2.5f), -268);
  EXPECT_EQ(__half2short_rz(60000.0f), 32767);
  EXPECT_EQ(__half2ushort_rz(-1.0f) + __half2int_rz(NAN), 0);
  EXPECT_EQ(__half2ll_rz(NAN), INT64_MIN);
  EXPECT_EQ(__half2uchar_rz(300.0f) - __half2char_rz(-300.0f), 255 + 128);

  const __half2 a = __floats2half2_rn(0.75f, NAN), b = __floats2half2_rn(0.5f, 1);
  EXPECT_EQ(float(__hadd2_sat(a, b).x), 1);
  EXPECT_EQ(float(__hsub2_sat(b, a).x) + float(__hadd2_sat(a, b).y), 0);
  EXPECT_EQ(bits_of(__hfma2_relu(a, b, __float2half2_rn(-2)).x), 0);
  EXPECT_EQ(bits_of(__hfma_relu(a.y, b.x, b.x)), 0x7fff);
  EXPECT_EQ(__hgt2_mask(a, b), 0xffffu);
  EXPECT_EQ(__hltu2_mask(a, b), 0xffff0000u);
  EXPECT_TRUE(__hbgeu2(a, b) && !__hbge2(a, b));
  EXPECT_EQ(bits_of(__hmax(__half(-0.0f), __half(0.0f))), 0);
  EXPECT_EQ(bits_of(__hmin(__half(0.0f), __half(-0.0f))), 0x8000);
  EXPECT_EQ(bits_of(__hmax_nan(a.y, b.y)), 0x7fff);
  EXPECT_EQ(float(__hmax(a.y, b.y)), 1);
  const __half2 turned = __hcmadd(__floats2half2_rn(1, 2), __floats2half2_rn(3, 4), b);
  EXPECT_EQ(float(turned.x), -4.5f);
  EXPECT_EQ(float(turned.y), 11);
  EXPECT_EQ(float(hrint(__half(2.5f))) + float(hceil(__half(0.1f))), 3);
  EXPECT_EQ(__hisinf(__half(-1e9f)), -1);
}

TEST(Numbers, OfEightBits) {
  const auto e4m3 = [](double x) { return int(__nv_fp8_e4m3(x).__x); };
  const auto e5m2 = [](double x) { return int(__nv_fp8_e5m2(x).__x); };
  // Ties go to even, also between the smallest; 464 is half a step above the largest e4m3.
  EXPECT_EQ(std::vector<int>({e4m3(1.0625), e4m3(-1.1875), e4m3(0x1p-10), e4m3(0x1.8p-9)}),
            std::vector<int>({0x38, 0xba, 0, 2}));
  EXPECT_EQ(std::vector<int>({e4m3(464), e4m3(465), e4m3(-INFINITY), e4m3(NAN)}),
            std::vector<int>({0x7e, 0x7e, 0xfe, 0x7f}));
  EXPECT_EQ(std::vector<int>({e5m2(1.125), e5m2(61439), e5m2(61440), e5m2(0x1p-17)}),
            std::vector<int>({0x3c, 0x7b, 0x7b, 0}));
  EXPECT_EQ(__nv_cvt_float_to_fp8(465, __NV_NOSAT, __NV_E4M3), 0x7f);
  EXPECT_EQ(__nv_cvt_float_to_fp8(-1e9f, __NV_NOSAT, __NV_E5M2), 0xfc);
  for (int bits = 0; bits < 256; bits++) {
    __nv_fp8_e4m3 x;
    x.__x = uint8_t(bits);
    if (bits % 128 < 127) EXPECT_EQ(e4m3(float(x)), bits);
    __nv_fp8_e5m2 y;
    y.__x = uint8_t(bits);
    if (bits % 128 < 124) EXPECT_EQ(e5m2(double(y)), bits);
  }
  const float4 four = float4(__nv_fp8x4_e4m3(make_float4(1, -2, 1000, 0.0625f)));
  EXPECT_EQ(four.x + four.y + four.z + four.w, 1 - 2 + 448 + 0.0625f);
  EXPECT_EQ(int(__nv_fp8_e5m2(-3.6f)) + int(bool(__nv_fp8_e5m2(0.5f))), -2);
  EXPECT_EQ(float(__half(__nv_cvt_fp8_to_halfraw(0x39, __NV_E4M3))), 1.125f);
}

TEST(Numbers, FunctionsOfProbability) {
  for (const double x : {-5.5, -1.0, -1e-5, 0.0, 0.3, 0.9, 4.0}) {
    EXPECT_NEAR(erfinv(erf(x)) - x, 0, x < -5 ? 1 : 1e-8) << x;
    EXPECT_NEAR(erfcinv(erfc(x)) - x, 0, x < -5 ? 1 : 1e-8) << x;
    EXPECT_NEAR(normcdfinv(normcdf(x)) - x, 0, 1e-8) << x;
  }
  EXPECT_DOUBLE_EQ(erfcinv(1e-300), 26.209469960516124);
  EXPECT_EQ(erfinvf(1.0f), INFINITY);
  EXPECT_TRUE(std::isnan(erfinv(1.5)));
  EXPECT_EQ(sinpi(1e15) + cospi(3), -1);
  EXPECT_EQ(norm3df(2, 3, 6) + rhypotf(3, 4), 7.2f);
  EXPECT_EQ(max(-1ll, 3ull) + min(5l, 7ul), ~0ull + 5);
}

TEST(Numbers, VectorTypes) {
  static_assert(sizeof(float3) == 12 && alignof(float3) == 4);
  static_assert(sizeof(char3) == 3 && sizeof(uchar4) == 4 && alignof(uchar4) == 4);
  static_assert(sizeof(double4) == 32 && alignof(double2) == 16 && sizeof(ulonglong2) == 16);
  const float3 v = make_float3(1, 2, 3);
  EXPECT_EQ(v.x + v.y + v.z, 6);
  EXPECT_EQ(make_double4(1, 2, 3, 4).w, 4);
  EXPECT_EQ(make_short2(1, -2).y, -2);
  Device<char> from(512), to(512);
  emu::take_lines();
  copy_vectors<<<1, 32>>>(from.data, to.data);
  EXPECT_EQ(counts_of(emu::Kind::kGlobalLoad).requests, 1u);
  copy_small<<<1, 32>>>(reinterpret_cast<uchar4*>(from.data), reinterpret_cast<uchar4*>(to.data));
  EXPECT_EQ(counts_of(emu::Kind::kGlobalLoad).requests, 1u);
  add_pairs<<<1, 32>>>(reinterpret_cast<__half2*>(from.data));
  EXPECT_EQ(counts_of(emu::Kind::kGlobalStore).requests, 1u);
  copy_threes<<<1, 32>>>(reinterpret_cast<float3*>(from.data), reinterpret_cast<float3*>(to.data));
  const emu::Counts threes = counts_of(emu::Kind::kGlobalLoad);
  EXPECT_EQ(threes.requests, 3u);
  EXPECT_EQ(threes.sectors, 36u);
}

// ---- the host -----------------------------------------------------------------------------------
__global__ void past_buffer(int* x) { x[threadIdx.x] = 1; }
// The first eight lanes add up what they have; lanes 4 to 7 read lanes without a part in it.
__global__ void sum_of_eight(int* x) {
  int value = threadIdx.x;
  if (threadIdx.x < 8) {
    for (int step = 4; step > 0; step /= 2) value += __shfl_down_sync(0xff, value, step);
  }
  if (threadIdx.x < 5) x[threadIdx.x] = value;
}

TEST(Warp, AnAbsentLaneIsNotedOnceAndGivesPoison) {
  Device<int> x(32);
  const std::string note = said([&] { sum_of_eight<<<1, 32>>>(x.data); });
  EXPECT_NE(note.find("note: __shfl_down_sync() at common/emulator/tests/test_cuda.cu:"),
            std::string::npos)
      << note;
  EXPECT_NE(note.find(": lane 4 reads lane 8, which does not take part"), std::string::npos)
      << note;
  EXPECT_EQ(x.host()[0], 28);
  EXPECT_NE(x.host()[4], 4);  // it has added what lane 8 would have given
  EXPECT_EQ(said([&] { sum_of_eight<<<1, 32>>>(x.data); }), "");
}

__global__ void read_buffer(const int* x, int* y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void print_ctas() {
  if (threadIdx.x == 0) printf("CTA %d\n", blockIdx.x);
}

TEST(Host, MemoryHasEdges) {
  expect_report(
      [] {
        int* x;
        cudaMalloc(&x, 31 * sizeof(int));
        past_buffer<<<1, 32>>>(x);
      },
      "0 bytes past the end of the cudaMalloc at common/emulator/tests/test_cuda.cu");
  expect_report(
      [] {
        int *x, *y;
        cudaMalloc(&x, 128);
        cudaMalloc(&y, 128);
        read_buffer<<<1, 32>>>(x, y);
      },
      "read of memory that nothing has written, byte 0 of the cudaMalloc");
}

// What the host writes into memory that kernels reach may have any value, -1, too.
template <typename T>
void expect_that_the_host_may_write(cudaError_t (*allocate)(T**, size_t), T value) {
  T* x;
  int* y;
  const size_t bytes = 32 * sizeof(T), threads = bytes / sizeof(int);
  EXPECT_EQ(allocate(&x, bytes), cudaSuccess);
  cudaMalloc(&y, bytes);
  expect_report([&] { read_buffer<<<1, threads>>>((int*)x, y); },
                "read of memory that nothing has written, byte 0 of the cuda");
  for (int i = 0; i < 32; i++) x[i] = value;
  read_buffer<<<1, threads>>>((int*)x, y);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST(Host, MayWriteMinusOne) {
  const auto managed = [](auto** x, size_t bytes) { return cudaMallocManaged(x, bytes); };
  const auto pinned = [](auto** x, size_t bytes) { return cudaMallocHost(x, bytes); };
  expect_that_the_host_may_write<int>(managed, -1);
  expect_that_the_host_may_write<int>(pinned, -1);
  expect_that_the_host_may_write<signed char>(managed, -1);
  expect_that_the_host_may_write<short>(managed, -1);
  // Some of it by a kernel, the rest by the host afterwards.
  int *x, *y;
  cudaMallocManaged(&x, 128);
  cudaMalloc(&y, 128);
  store_one<<<1, 1>>>(x, 0, 0);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (int i = 1; i < 32; i++) x[i] = -1;
  read_buffer<<<1, 32>>>(x, y);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST(Host, WrongCallsAreErrors) {
  int on_host[4] = {};
  Device<int> x(4);
  EXPECT_EQ(cudaMemcpy(x.data, on_host, 32, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(on_host, x.data, 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(on_host), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  past_buffer<<<1, 2000>>>(x.data);
  EXPECT_STREQ(cudaGetErrorString(cudaGetLastError()), "invalid configuration argument");
  EXPECT_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

TEST(Host, PrintsInTheOrderOfTheCtas) {
  testing::internal::CaptureStdout();
  print_ctas<<<12, 32>>>();
  std::string expected;
  for (int i = 0; i < 12; i++) expected += "CTA " + std::to_string(i) + "\n";
  fflush(stdout);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), expected);
}

struct Extreme {
  float value;
  int index;
  double weight;
};
__global__ void parts_of_groups(const int* from, int* out, Extreme* extreme) {
  namespace cg = cooperative_groups;
  __shared__ int tile[64], late[64];
  const cg::thread_block block = cg::this_thread_block();
  cg::memcpy_async(block, tile, from, sizeof(int) * 32);
  cg::memcpy_async(block, tile + 32, 32, from + 32, 40);
  cg::wait_prior<1>(block);
  cg::wait(block);
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  if (threadIdx.x == 0) init(&bar, 64);
  block.sync();
  cuda::memcpy_async(block, late, from, sizeof late, bar);
  bar.arrive_and_wait();
  const auto warp = cg::tiled_partition<32>(block);
  const int mine = tile[63 - threadIdx.x];
  const auto odd = cg::binary_partition(warp, mine % 2);
  const auto same = cg::labeled_partition(odd, mine % 3);
  int* const to = out + 8 * threadIdx.x;
  to[0] = cg::inclusive_scan(warp, mine);
  to[1] = cg::exclusive_scan(odd, mine);
  to[2] = cg::inclusive_scan(warp, mine ^ 5, cg::greater<int>());
  to[3] = int(odd.size() + 100 * same.size());
  to[4] = cg::reduce(same, mine, cg::plus<int>());
  to[5] = cg::invoke_one_broadcast(warp, [&] { return mine; });
  to[6] = late[threadIdx.x ^ 1];
  const Extreme largest =
      cg::reduce(warp, Extreme{float(mine * 37 % 101), mine, 0.5 * mine},
                 [](const Extreme& a, const Extreme& b) { return a.value > b.value ? a : b; });
  if (warp.thread_rank() == 3) extreme[threadIdx.x / 32] = largest;
}

TEST(Groups, PartsScansCopiesAndStructs) {
  Device<int> from(numbers<int>(72)), out(8 * 64);
  Device<Extreme> extreme(2);
  parts_of_groups<<<1, 64>>>(from.data, out.data, extreme.data);
  const std::vector<int> all = out.host();
  for (int t = 0; t < 64; t++) {
    const auto value = [](int thread) { return 63 - thread; };
    int sum = 0, odd_before = 0, largest = 0, odds = 0, sames = 0, same_sum = 0;
    for (int i = t / 32 * 32; i < t / 32 * 32 + 32; i++) {
      const bool is_odd = value(i) % 2 == value(t) % 2,
                 is_same = is_odd && value(i) % 3 == value(t) % 3;
      odds += is_odd;
      sames += is_same;
      same_sum += is_same ? value(i) : 0;
      if (i <= t) sum += value(i), largest = std::max(largest, value(i) ^ 5);
      if (i < t && is_odd) odd_before += value(i);
    }
    const std::vector<int> want = {sum,      odd_before,         largest, odds + 100 * sames,
                                   same_sum, value(t / 32 * 32), t ^ 1};
    EXPECT_EQ(std::vector<int>(&all[8 * t], &all[8 * t + 7]), want) << t;
  }
  EXPECT_EQ(extreme.host()[1].weight, 0.5 * extreme.host()[1].index);
  EXPECT_EQ(extreme.host()[1].value, 100);
}

// ---- clusters and grids whose CTAs wait for each other ------------------------------------------
__device__ void exchange_in_cluster(int* out) {
  namespace cg = cooperative_groups;
  __shared__ int mine;
  const cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) mine = 10 * blockIdx.x + int(cluster.block_rank());
  cluster.sync();
  if (threadIdx.x == 0) {
    out[blockIdx.x] = *cluster.map_shared_rank(&mine, cluster.block_rank() ^ 1) +
                      1000 * int(cluster.num_threads());
  }
  cluster.sync();
}
__global__ void __cluster_dims__(2, 1, 1) exchange(int* out) { exchange_in_cluster(out); }
__global__ void exchange_any(int* out) { exchange_in_cluster(out); }
template <bool kSync>
__global__ void rotate(int* x, int* y, int steps) {
  const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
  const auto i = unsigned(grid.thread_rank()), count = unsigned(grid.size());
  for (int step = 0; step < steps; step++) {
    y[i] = x[(i + 1) % count];
    if (kSync) grid.sync();
    x[i] = y[i] + 1;
    if (kSync) grid.sync();
  }
}
__global__ void whole_number(int* out, int number, float more) { *out = number + int(more); }

TEST(Together, ClustersReachTheMemoryOfTheirCtas) {
  Device<int> out(4);
  exchange<<<4, 32>>>(out.data);
  EXPECT_EQ(out.host(), (std::vector<int>{64011, 64000, 64031, 64020}));
  cudaLaunchAttribute attribute = {cudaLaunchAttributeClusterDimension, {}};
  attribute.val.clusterDim = {4, 1, 1};
  cudaLaunchConfig_t config = {4, 64, 0, nullptr, &attribute, 1};
  EXPECT_EQ(cudaLaunchKernelEx(&config, exchange_any, out.data), cudaSuccess);
  EXPECT_EQ(out.host(), (std::vector<int>{256011, 256000, 256033, 256022}));
  exchange<<<3, 32>>>(out.data);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
}

TEST(Together, AGridWaits) {
  Device<int> x(numbers<int>(96)), y(96);
  int steps = 3;
  void* arguments[] = {&x.data, &y.data, &steps};
  EXPECT_EQ(cudaLaunchCooperativeKernel((void*)rotate<true>, dim3(3), 32, arguments), cudaSuccess);
  EXPECT_EQ(x.host()[0], 3 + 3);
  EXPECT_EQ(x.host()[95], 2 + 3);
  expect_report([&] { cudaLaunchCooperativeKernel((const void*)rotate<false>, 3, 32, arguments); },
                "rotate<false>.*data race");
  expect_report([&] { rotate<true><<<3, 32>>>(x.data, y.data, 1); },
                "Missing: cudaLaunchCooperativeKernel.. in place of <<<>>>");
  EXPECT_EQ(cudaLaunchCooperativeKernel(rotate<true>, 1024, 1024, arguments),
            cudaErrorCooperativeLaunchTooLarge);
  cudaGetLastError();
}

TEST(Together, KernelsByFunctions) {
  Device<int> out(1);
  int number = 5;
  float more = 2;
  void* arguments[] = {&out.data, &number, &more};
  EXPECT_EQ(cudaLaunchKernel(reinterpret_cast<const void*>(whole_number), 1, 1, arguments, 0, 0),
            cudaSuccess);
  EXPECT_EQ(out.host()[0], 7);
  EXPECT_EQ(cudaLaunchKernel((void*)&whole_number, 1, 1025, arguments),
            cudaErrorInvalidConfiguration);
  cudaGetLastError();
}

// ---- wmma: the bits that an H100 has ------------------------------------------------------------
using namespace nvcuda;

template <int kM, int kN, int kK, typename T, typename D, typename A, typename C>
__global__ void multiply(const A* a, const A* b, const C* c, D* d, bool saturate) {
  const int tile = blockIdx.x;
  wmma::fragment<wmma::matrix_a, kM, kN, kK, T, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, kM, kN, kK, T, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, kM, kN, kK, C> fc;
  wmma::fragment<wmma::accumulator, kM, kN, kK, D> fd;
  wmma::load_matrix_sync(fa, a + tile * kM * kK, kK);
  wmma::load_matrix_sync(fb, b + tile * kK * kN, kK);
  wmma::load_matrix_sync(fc, c + tile * kM * kN, kN, wmma::mem_row_major);
  if constexpr (std::is_same_v<D, int>) {
    wmma::mma_sync(fd, fa, fb, fc, saturate);
  } else {
    wmma::mma_sync(fd, fa, fb, fc);
  }
  wmma::store_matrix_sync(d + tile * kM * kN, fd, kN, wmma::mem_row_major);
}

struct Bits {
  uint64_t state;
  uint32_t next() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return uint32_t(state >> 33) ^ uint32_t(state >> 17);
  }
  // A number of `digits` bits of mantissa, whose exponent is one of `count` from `first` on.
  uint64_t number(int digits, int sign, int first, int count) {
    const uint64_t x = uint64_t(next()) << 32 | next();
    const uint64_t exponent = uint64_t(first + int(next() % uint32_t(count)));
    return x >> 63 << sign | exponent << digits | (x & ((uint64_t(1) << digits) - 1));
  }
};

template <typename T>
T random_number(Bits& bits, int tile) {
  if constexpr (sizeof(T) == 1) return T(bits.next());
  // Similar exponents, or all of a half's range with subnormals, infinities and NaNs.
  const bool wide = tile % 2 == 1;
  if constexpr (std::is_same_v<T, __half>) {
    return __ushort_as_half(uint16_t(bits.number(10, 15, wide ? 0 : 11, wide ? 32 : 8)));
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __ushort_as_bfloat16(uint16_t(bits.number(7, 15, wide ? 90 : 123, wide ? 80 : 8)));
  } else if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(uint32_t(bits.number(23, 31, wide ? 90 : 123, wide ? 80 : 8)));
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<double>(uint64_t(bits.number(52, 63, wide ? 900 : 1020, wide ? 200 : 6)));
  } else {
    return T(wide ? 0x7fffffff - int(bits.next() % 100000) : int(bits.next()));
  }
}

// A hash of 8 products' results.
template <int kM, int kN, int kK, typename T, typename D, typename A, typename C>
uint64_t products(bool saturate = false) {
  constexpr int kTiles = 8;
  Bits bits{kM + 2 * kN + 3 * kK + 100 * sizeof(A) + sizeof(D)};
  const auto fill = [&]<typename X>(std::vector<X>& numbers, int elements) {
    for (int i = 0; i < kTiles * elements; i++) {
      numbers.push_back(random_number<X>(bits, i / elements));
    }
  };
  std::vector<A> a, b;
  std::vector<C> c;
  fill(a, kM * kK);
  fill(b, kK * kN);
  fill(c, kM * kN);
  Device<A> device_a(a), device_b(b);
  Device<C> device_c(c);
  Device<D> d(kTiles * kM * kN);
  multiply<kM, kN, kK, T>
      <<<kTiles, 32>>>(device_a.data, device_b.data, device_c.data, d.data, saturate);
  const std::vector<D> result = d.host();
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < result.size() * sizeof(D); i++) {
    hash = (hash ^ reinterpret_cast<const uint8_t*>(result.data())[i]) * 1099511628211u;
  }
  return hash;
}

TEST(Wmma, HasTheBitsOfAnH100) {
  const std::vector<uint64_t> emulator = {
      products<16, 16, 16, __half, __half, __half, __half>(),
      products<32, 8, 16, __half, __half, __half, __half>(),
      products<8, 32, 16, __half, __half, __half, float>(),
      products<8, 32, 16, __half, float, __half, __half>(),
      products<32, 8, 16, __half, float, __half, float>(),
      products<8, 32, 16, __nv_bfloat16, float, __nv_bfloat16, float>(),
      products<16, 16, 8, wmma::precision::tf32, float, float, float>(),
      products<8, 8, 4, double, double, double, double>(),
      products<16, 16, 16, signed char, int, signed char, int>(),
      products<32, 8, 16, unsigned char, int, unsigned char, int>(),
      products<8, 32, 16, signed char, int, signed char, int>(true)};
  const std::vector<uint64_t> h100 = {0x475c641fe3d3c94c, 0x6659a5586d167f6f, 0x94a045382c4c6615,
                                      0x42b283e6992cd233, 0x90d6269148c7e092, 0x8dce94f912b46b61,
                                      0xb07ddf46332dcb88, 0xcb5155fc9dc45136, 0x6d3cf3d4a30769e9,
                                      0x1d87a46bb71a2148, 0x2e7a4ed194e39f28};
  EXPECT_EQ(emulator, h100);
}

TEST(Wmma, ChecksTilesOfEveryShape) {
  Device<__half> a(512), b(512), c(256), d(256);
  expect_report(
      [&] { multiply<32, 8, 16, __half><<<1, 32>>>(a.data, b.data, c.data + 128, d.data, false); },
      "a row of the 32 x 8 tile is .*past the end");
  emu::take_lines();
  multiply<32, 8, 16, __half><<<1, 32>>>(a.data, b.data, c.data, d.data, false);
  const auto lines = emu::take_lines();
  uint64_t sectors = 0;
  for (const emu::LineCounts& line : lines) sectors += line.counts.sectors;
  EXPECT_EQ(sectors, 32u + 8 + 16 + 16);
  EXPECT_EQ(__half_as_ushort(d.host()[0]), 0);
  const Device<signed char> bytes(528);  // a row of 16 bytes may start at any multiple of 16
  Device<int> sums(256);
  multiply<16, 16, 16, signed char>
      <<<1, 32>>>(bytes.data + 16, bytes.data + 272, sums.data, sums.data, false);
  expect_report(
      [&] {
        multiply<16, 16, 16, signed char>
            <<<1, 32>>>(bytes.data + 8, bytes.data, sums.data, sums.data, false);
      },
      "starts at a multiple of 16 bytes");
}

// ---- cooperative groups, cuda::barrier, cuda::pipeline ------------------------------------------
namespace cg = cooperative_groups;

__global__ void groups(int* out) {
  __shared__ int words[64];
  const cg::thread_block block = cg::this_thread_block();
  words[block.thread_rank()] = block.thread_rank();
  block.sync();
  const auto tile = cg::tiled_partition<16>(block);
  int sum = cg::reduce(tile, words[63 - block.thread_rank()], cg::plus<int>());
  sum += tile.shfl(int(tile.thread_rank()), 3) + int(tile.size()) + int(tile.meta_group_rank());
  if (block.thread_rank() % 2 == 0) {
    const auto active = cg::coalesced_threads();
    sum += 1000 * int(active.size()) + 100000 * int(active.shfl(int(block.thread_rank()), 1));
  }
  out[block.thread_rank()] = sum;
}

TEST(Groups, TilesAndCoalescedThreads) {
  Device<int> out(64);
  groups<<<1, 64>>>(out.data);
  const auto o = out.host();
  EXPECT_EQ(o[1], (48 + 63) * 8 + 3 + 16);
  EXPECT_EQ(o[0], (48 + 63) * 8 + 3 + 16 + 16 * 1000 + 2 * 100000);
  EXPECT_EQ(o[33], (16 + 31) * 8 + 3 + 16 + 2);
}

__global__ void barrier_of_cuda(int* out) {
  using Barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ Barrier barrier;
  __shared__ int words[64];
  if (threadIdx.x == 0) init(&barrier, blockDim.x);
  __syncthreads();
  for (int turn = 0; turn < 3; turn++) {
    words[threadIdx.x] = threadIdx.x + turn;
    barrier.arrive_and_wait();
    out[threadIdx.x] = words[63 - threadIdx.x];
    auto token = barrier.arrive();
    barrier.wait(std::move(token));
  }
}

TEST(Groups, BarrierOfCuda) {
  Device<int> out(64);
  barrier_of_cuda<<<1, 64>>>(out.data);
  EXPECT_EQ(out.host()[0], 63 + 2);
}

__global__ void pipeline_of_cuda(const int* in, int* out) {
  __shared__ alignas(16) int stages[2][64 * 4];
  auto pipe = cuda::make_pipeline();
  const int t = threadIdx.x;
  for (int tile = 0; tile < 2; tile++) {
    pipe.producer_acquire();
    cuda::memcpy_async(&stages[tile][t * 4], &in[(tile * 64 + t) * 4], cuda::aligned_size_t<16>(16),
                       pipe);
    pipe.producer_commit();
  }
  for (int tile = 0; tile < 2; tile++) {
    pipe.consumer_wait();
    __syncthreads();
    out[tile * 64 + t] = stages[tile][(63 - t) * 4];
    pipe.consumer_release();
  }
}

TEST(Groups, PipelineOfCuda) {
  Device<int> in(numbers<int>(512)), out(128);
  pipeline_of_cuda<<<1, 64>>>(in.data, out.data);
  EXPECT_EQ(out.host()[0], 63 * 4);
  EXPECT_EQ(out.host()[64 + 63], 64 * 4);
}

}  // namespace
