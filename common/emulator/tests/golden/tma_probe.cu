// What mbarriers, bulk copies, clusters and elect.sync give on this machine: hashes for comparison
// with what an H200 gave: phases, boxes of every swizzle, rank, element size and edge, stores,
// multicast, sums in global memory, which tensor maps the driver takes, and copies that a GPU may
// refuse, usually by an illegal instruction.
//
// After a load a whole piece of shared memory is dumped, after a store the whole tensor.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>

#include "common/emulator/tests/golden/probe.h"
#include "common/launch/problem.h"
#include "common/launch/tensor_map.h"
#include "common/layout/swizzle.h"
#include "common/ptx/cluster.h"
#include "common/ptx/elect.h"
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/tma.h"

// Multicast is for sm_90a.
#define FA_SM_90A (FA_ARCHITECTURE == 0 || FA_ARCHITECTURE == 90)

namespace fa::probe {

using layout::SwizzleMode;
using ptx::TensorMap;

// Runs a function in a process of its own, because a kernel's fault takes the GPU from its process.
// The exit status: 0; 3 if the back end failed, the reason is on stderr; 128 and more if a signal
// ended it.
int run_alone(const std::function<void()>& function) {
  constexpr unsigned kMostSeconds = 20;  // then SIGALRM
  fflush(stdout);
  const pid_t child = fork();
  if (child < 0) {
    perror("fork");
    exit(3);
  }
  if (child == 0) {
    alarm(kMostSeconds);
    int status = 0;
    try {
      function();
    } catch (const BackendError& error) {
      fprintf(stderr, "%s\n", error.what());
      status = 3;
    }
    fflush(stdout);
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Prints what the function prints, or that the case was refused.
void probe_alone(const std::string& name, const std::function<void()>& function) {
  const int status = run_alone(function);
  if (status == 3) {
    printf("%s refused\n", name.c_str());
    fprintf(stderr, "  this was %s\n", name.c_str());
  } else if (status != 0) {
    printf("%s ended with status %d\n", name.c_str(), status);
  }
}

// ---- mbarrier: a program of one thread ----------------------------------------------------------
enum : int { kInit, kArrive, kArriveExpect, kExpect, kComplete };

struct BarrierStorage {
  alignas(128) volatile uint32_t words[32];
  uint64_t full, empty;
};

// After every step: bit 0, whether a phase of parity 0 is over, bit 1, of parity 1.
__global__ void phase_kernel(const int* program, int steps, uint32_t* out) {
#if FA_SM_90A
  uint64_t* const bar = &shared_storage<BarrierStorage>().full;
  if (threadIdx.x != 0) return;
  for (int i = 0; i < steps; i++) {
    const int operation = program[2 * i], number = program[2 * i + 1];
    if (operation == kInit) ptx::mbarrier_init(bar, number);
    if (operation == kArrive) ptx::mbarrier_arrive(bar);
    if (operation == kArriveExpect) ptx::mbarrier_arrive_expect_tx(bar, number);
    if (operation == kExpect) ptx::mbarrier_expect_tx(bar, number);
    if (operation == kComplete) ptx::mbarrier_complete_tx(bar, number);
    out[i] = (ptx::mbarrier_test_wait(bar, 0) ? 1 : 0) | (ptx::mbarrier_test_wait(bar, 1) ? 2 : 0);
  }
#endif
}

// Three warps write and arrive, warp 0 waits, reads and lets them go on; many phases.
__global__ void laps_kernel(uint32_t* out, int rounds) {
#if FA_SM_90A
  auto& smem = shared_storage<BarrierStorage>();
  const int warp_idx = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&smem.full, 3);
    ptx::mbarrier_init(&smem.empty, 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x % 32 != 0) return;
  for (int round = 0; round < rounds; round++) {
    if (warp_idx > 0) {
      ptx::mbarrier_wait(&smem.empty, round % 2 ^ 1);
      smem.words[warp_idx] = uint32_t(1000 * round + warp_idx);
      ptx::mbarrier_arrive(&smem.full);
    } else {
      ptx::mbarrier_wait(&smem.full, round % 2);
      out[round] = smem.words[1] + smem.words[2] + smem.words[3];
      ptx::mbarrier_arrive(&smem.empty);
    }
  }
#endif
}

__global__ void elect_kernel(uint32_t* out) {
#if FA_SM_90A
  out[threadIdx.x] = ptx::elect_sync() ? 1 : 0;
#endif
}

void probe_barriers() {
  const std::pair<const char*, std::vector<int>> programs[] = {
      {"count2",
       {kInit, 2, kArrive, 0, kArrive, 0, kArrive, 0, kArrive, 0, kArrive, 0, kArrive, 0, kArrive,
        0}},
      {"count1", {kInit, 1, kArrive, 0, kArrive, 0, kArrive, 0, kArrive, 0}},
      {"tx",
       {kInit, 1, kArriveExpect, 64, kComplete, 32, kComplete, 32, kArrive, 0, kArriveExpect, 128,
        kComplete, 128, kArrive, 0}},
      {"expect_then_arrive", {kInit, 1, kExpect, 64, kArrive, 0, kComplete, 64, kArrive, 0}},
      {"count2_tx",
       {kInit, 2, kArriveExpect, 16, kComplete, 16, kArrive, 0, kArrive, 0, kArriveExpect, 48,
        kComplete, 16, kComplete, 32}},
      {"two_expects",
       {kInit, 2, kArriveExpect, 16, kArriveExpect, 32, kComplete, 32, kComplete, 16}},
      {"bytes_before_expect", {kInit, 1, kComplete, 64, kArriveExpect, 64, kArrive, 0}},
      {"bytes_arrive_expect", {kInit, 1, kComplete, 64, kArrive, 0, kExpect, 64}}};
  for (const auto& [name, program] : programs) {
    const Buffer in = upload("program", program);
    Buffer out("out", program.size() / 2 * 4);
    run<phase_kernel>({dim3(1), dim3(32), sizeof(BarrierStorage)}, in, int(program.size() / 2),
                      out);
    print_hashes(std::string("mbar_") + name, download<uint32_t>(out), program.size() / 2);
  }
  Buffer laps("laps", 64 * 4), elected("elected", 32 * 4);
  run<laps_kernel>({dim3(1), dim3(128), sizeof(BarrierStorage)}, laps, 64);
  run<elect_kernel>({dim3(1), dim3(32)}, elected);
  print_hashes("mbar_phases64", download<uint32_t>(laps), 64);
  print_hashes("misc_elect", download<uint32_t>(elected), 32);
}

// ---- boxes --------------------------------------------------------------------------------------
constexpr int kDumpBytes = 12288, kFirst = 1024;  // the box lies from kFirst on
static_assert(kFirst % 1024 == 0 && kFirst < kDumpBytes);

struct BoxStorage {
  alignas(1024) uint8_t bytes[kDumpBytes];
  uint64_t full;
};

struct Coords {
  int at[4];
};

template <int kRank>
__global__ void load_kernel(const __grid_constant__ TensorMap map, Coords coords, int offset,
                            int bytes, uint32_t* out) {
#if FA_SM_90A
  auto& smem = shared_storage<BoxStorage>();
  auto* const words = reinterpret_cast<volatile uint32_t*>(smem.bytes);
  for (int i = threadIdx.x; i < kDumpBytes / 4; i += 32) words[i] = 0xeeeeeeee;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&smem.full, 1);
    ptx::fence_mbarrier_init();
  }
  ptx::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    int at[kRank];
    for (int i = 0; i < kRank; i++) at[i] = coords.at[i];
    ptx::mbarrier_arrive_expect_tx(&smem.full, bytes);
    ptx::cp_async_bulk_tensor_load(smem.bytes + kFirst + offset, &map, at, &smem.full);
  }
  ptx::mbarrier_wait(&smem.full, 0);
  for (int i = threadIdx.x; i < kDumpBytes / 4; i += 32) out[i] = words[i];
#endif
}

template <int kRank>
__global__ void store_kernel(const __grid_constant__ TensorMap map, Coords coords) {
#if FA_SM_90A
  auto& smem = shared_storage<BoxStorage>();
  auto* const words = reinterpret_cast<volatile uint32_t*>(smem.bytes);
  for (int i = threadIdx.x; i < kDumpBytes / 4; i += 32) words[i] = uint32_t(i) * 2654435761u;
  ptx::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    int at[kRank];
    for (int i = 0; i < kRank; i++) at[i] = coords.at[i];
    ptx::cp_async_bulk_tensor_store(&map, at, smem.bytes + kFirst);
    ptx::cp_async_bulk_commit();
    ptx::cp_async_bulk_wait<0>();
  }
#endif
}

struct Case {
  const char* name;
  int element_bytes;
  std::vector<uint64_t> sizes;
  std::vector<uint32_t> box;
  Coords coords;
  SwizzleMode swizzle = SwizzleMode::kNone;
  int offset = 0;
};

// A tensor in memory, 16 bytes of 0xdb and what fills a row up to a multiple of 16 after every row.
struct Tensor {
  std::vector<uint64_t> strides;
  std::vector<uint8_t> bytes;

  explicit Tensor(const Case& c) {
    const auto size = uint64_t(c.element_bytes);
    const uint64_t pitch = (c.sizes[0] * size + 15) / 16 * 16 + 16;
    uint64_t stride = pitch;
    for (size_t i = 1; i < c.sizes.size(); i++) {
      strides.push_back(stride);
      stride *= c.sizes[i];
    }
    bytes.assign(stride, 0xdb);
    for (uint64_t row = 0; row < stride / pitch; row++) {
      for (uint64_t x = 0; x < c.sizes[0]; x++) {
        const uint64_t value = size == 1 ? row * 7 + x * 3 + 1 : row * 256 + x + 1;
        memcpy(&bytes[row * pitch + x * size], &value, size);
      }
    }
  }
};

TensorMap map_of(const Case& c, const Tensor& tensor, const void* pointer) {
  const TensorType type = c.element_bytes == 1   ? TensorType::kUint8
                          : c.element_bytes == 2 ? TensorType::kUint16
                                                 : TensorType::kUint32;
  return make_tensor_map(
      TensorMapArguments{pointer, type, c.sizes, tensor.strides, c.box, c.swizzle});
}

template <int kRank>
void probe_load(const Case& c) {
  const Tensor tensor(c);
  const Buffer in = upload("tensor", tensor.bytes);
  Buffer out("out", kDumpBytes);
  int bytes = c.element_bytes;
  for (const uint32_t size : c.box) bytes *= int(size);
  run<load_kernel<kRank>>({dim3(1), dim3(32), sizeof(BoxStorage)}, map_of(c, tensor, in.data()),
                          c.coords, c.offset, bytes, out);
  print_hashes(std::string("tma_") + c.name, download<uint32_t>(out), kDumpBytes / 4);
}

template <int kRank>
void probe_store(const Case& c) {
  const Tensor tensor(c);
  const Buffer out = upload("tensor", tensor.bytes);
  run<store_kernel<kRank>>({dim3(1), dim3(32), sizeof(BoxStorage)}, map_of(c, tensor, out.data()),
                           c.coords);
  print_hashes(std::string("tma_store_") + c.name, download<uint8_t>(out), tensor.bytes.size());
}

void probe_plain_boxes() {
  probe_load<2>({"none_64x32", 2, {256, 128}, {64, 32}, {{0, 0}}});
  probe_load<2>({"none_128x16", 2, {256, 128}, {128, 16}, {{64, 16}}});
  probe_load<2>({"none_16x16", 2, {256, 128}, {16, 16}, {{8, 8}}});
  probe_load<2>({"none_8x64", 2, {256, 128}, {8, 64}, {{24, 3}}});
  probe_load<2>({"oob_right_none", 2, {250, 120}, {64, 16}, {{208, 0}}});
}

// By rank - 1.
constexpr void (*kLoads[])(const Case&) = {probe_load<1>, probe_load<2>, probe_load<3>,
                                           probe_load<4>},
                                 (*kStores[])(const Case&) = {probe_store<1>, probe_store<2>,
                                                              probe_store<3>, probe_store<4>};

void probe_load_alone(const Case& c) {
  probe_alone(std::string("tma_") + c.name, [&] { kLoads[c.sizes.size() - 1](c); });
}
void probe_store_alone(const Case& c) {
  probe_alone(std::string("tma_store_") + c.name, [&] { kStores[c.sizes.size() - 1](c); });
}

void probe_boxes() {
  constexpr SwizzleMode kNone = SwizzleMode::kNone, k32 = SwizzleMode::k32Bytes,
                        k64 = SwizzleMode::k64Bytes, k128 = SwizzleMode::k128Bytes;
  const Case cases[] = {{"sw128_64x32", 2, {256, 128}, {64, 32}, {{64, 32}}, k128},
                        {"sw64_32x32", 2, {256, 128}, {32, 32}, {{64, 32}}, k64},
                        {"sw32_16x32", 2, {256, 128}, {16, 32}, {{64, 32}}, k32},
                        {"sw128_64x5", 2, {256, 128}, {64, 5}, {{64, 32}}, k128},
                        {"none_24x8", 2, {256, 128}, {24, 8}, {{8, 3}}, kNone},
                        // Rows shorter than the swizzle.
                        {"sw128_32x16_narrow", 2, {256, 128}, {32, 16}, {{0, 0}}, k128},
                        {"sw128_16x16_narrow", 2, {256, 128}, {16, 16}, {{0, 0}}, k128},
                        {"sw64_16x16_narrow", 2, {256, 128}, {16, 16}, {{0, 0}}, k64},
                        {"sw32_8x16_narrow", 2, {256, 128}, {8, 16}, {{0, 0}}, k32},
                        // Other elements.
                        {"u32_sw128_32x16", 4, {128, 64}, {32, 16}, {{32, 8}}, k128},
                        {"u32_none_32x16", 4, {128, 64}, {32, 16}, {{4, 8}}, kNone},
                        {"u8_sw128_128x16", 1, {256, 64}, {128, 16}, {{16, 8}}, k128},
                        {"u8_none_16x16", 1, {256, 64}, {16, 16}, {{16, 8}}, kNone},
                        // Elsewhere in shared memory.
                        {"none_off64", 2, {256, 128}, {32, 16}, {{0, 0}}, kNone, 64},
                        {"none_off128", 2, {256, 128}, {32, 16}, {{0, 0}}, kNone, 128},
                        {"sw64_off512", 2, {256, 128}, {32, 16}, {{0, 0}}, k64, 512},
                        {"sw32_off256", 2, {256, 128}, {16, 16}, {{0, 0}}, k32, 256},
                        {"sw128_off1024", 2, {256, 128}, {64, 16}, {{0, 0}}, k128, 1024},
                        // Over the edges; rows end within 16 bytes ...
                        {"oob_left_none", 2, {250, 120}, {64, 16}, {{-8, 0}}, kNone},
                        {"oob_top", 2, {250, 120}, {64, 16}, {{0, -3}}, kNone},
                        {"oob_bottom", 2, {250, 120}, {64, 16}, {{0, 113}}, kNone},
                        {"oob_right", 2, {250, 120}, {64, 16}, {{208, 0}}, kNone},
                        {"oob_all_right", 2, {250, 120}, {64, 16}, {{1000, 0}}, kNone},
                        {"oob_all_left", 2, {250, 120}, {64, 16}, {{-512, -500}}, kNone},
                        {"oob_sw128_corner", 2, {250, 120}, {64, 16}, {{208, 111}}, k128},
                        {"oob_sw128_left_corner", 2, {250, 120}, {64, 16}, {{-8, -6}}, k128},
                        {"oob_sw64_corner", 2, {250, 120}, {32, 16}, {{232, 111}}, k64},
                        {"oob_sw32_corner", 2, {250, 120}, {16, 16}, {{240, 111}}, k32},
                        {"oob_u32_sw128", 4, {125, 60}, {32, 16}, {{112, 51}}, k128},
                        {"oob_u8", 1, {250, 60}, {128, 16}, {{208, 51}}, k128},
                        // ... or with them.
                        {"edge_left", 2, {248, 120}, {64, 16}, {{-8, 0}}, kNone},
                        {"edge_left_sw128", 2, {248, 120}, {64, 16}, {{-8, 0}}, k128},
                        {"edge_top", 2, {248, 120}, {64, 16}, {{64, -3}}, kNone},
                        {"edge_top_left", 2, {248, 120}, {64, 16}, {{-8, -3}}, kNone},
                        {"edge_right", 2, {248, 120}, {64, 16}, {{208, 0}}, kNone},
                        {"edge_corner", 2, {248, 120}, {64, 16}, {{208, 111}}, kNone},
                        {"edge_all_left", 2, {248, 120}, {64, 16}, {{-64, 8}}, kNone},
                        {"edge_all_above", 2, {248, 120}, {64, 16}, {{64, -16}}, kNone},
                        {"edge_all_right", 2, {248, 120}, {64, 16}, {{248, 8}}, kNone},
                        {"edge_all_below", 2, {248, 120}, {64, 16}, {{64, 120}}, kNone},
                        {"edge_small_tensor", 2, {40, 5}, {64, 16}, {{0, 0}}, kNone},
                        // Columns that are no multiple of 16 bytes.
                        {"column_4", 2, {256, 128}, {64, 32}, {{4, 3}}, kNone},
                        {"column_5_sw128", 2, {256, 128}, {64, 32}, {{5, 3}}, k128},
                        {"column_minus_4", 2, {256, 128}, {64, 32}, {{-4, 3}}, kNone}};
  for (const Case& c : cases) probe_load_alone(c);
  for (const Case& c : cases) {
    if (c.offset == 0) probe_store_alone(c);
  }
  const Case other_ranks[] = {{"1d", 2, {1000}, {256}, {{800}}},
                              {"1d_left", 2, {1000}, {256}, {{-16}}},
                              {"1d_right", 2, {1000}, {256}, {{912}}},
                              {"3d", 2, {64, 40, 6}, {64, 12, 3}, {{0, 32, 4}}, k128},
                              {"3d_above", 2, {64, 10, 4}, {64, 8, 3}, {{0, -2, 2}}, k128},
                              {"3d_below", 2, {64, 10, 4}, {64, 8, 3}, {{0, 6, 2}}, k128},
                              {"4d", 2, {64, 9, 5, 4}, {32, 4, 2, 3}, {{16, 3, 1, 1}}},
                              {"4d_above", 2, {64, 4, 3, 3}, {64, 2, 2, 2}, {{0, 3, -1, 2}}, k128},
                              {"4d_below", 2, {64, 4, 3, 3}, {64, 2, 2, 2}, {{0, 3, 2, 2}}, k128}};
  for (const Case& c : other_ranks) {
    probe_load_alone(c);
    probe_store_alone(c);
  }
}

// ---- which tensor maps can be had ---------------------------------------------------------------
void probe_maps() {
  const Buffer in("tensor", 65536);
  const auto probe = [&](const char* name, auto change) {
    TensorMapArguments arguments{in.data(), TensorType::kUint16, {128, 64}, {256},
                                 {64, 16},  SwizzleMode::kNone};
    change(arguments);
#ifdef FA_WITH_CUDA
    const bool accepted = driver_accepts(arguments);
#else
    const bool accepted = tensor_map_error(arguments).empty();
#endif
    printf("map_%s %s\n", name, accepted ? "accepted" : "refused");
  };
  using A = TensorMapArguments;
  const auto flat = [](uint64_t size, uint32_t box) {
    return [=](A& a) { a.sizes = {size}, a.strides = {}, a.box = {box}; };
  };
  probe("plain", [](A&) {});
  probe("1d", flat(1024, 64));
  probe("1d_long_box", flat(1024, 256));
  probe("1d_uneven", flat(1001, 64));
  probe("1d_short", flat(8, 64));
  probe("null", [](A& a) { a.pointer = nullptr; });
  probe("address_8", [](A& a) { a.pointer = static_cast<const char*>(a.pointer) + 8; });
  probe("size_0", [](A& a) { a.sizes[1] = 0; });
  probe("size_2_32", [](A& a) { a.sizes[1] = uint64_t(1) << 32; });
  probe("size_over_2_32", [](A& a) { a.sizes[1] = (uint64_t(1) << 32) + 1; });
  probe("stride_0", [](A& a) { a.strides[0] = 0; });
  probe("stride_16", [](A& a) { a.strides[0] = 16; });
  probe("stride_264", [](A& a) { a.strides[0] = 264; });
  probe("stride_under_2_40", [](A& a) { a.strides[0] = (uint64_t(1) << 40) - 16; });
  probe("stride_2_40", [](A& a) { a.strides[0] = uint64_t(1) << 40; });
  probe("box_0", [](A& a) { a.box[1] = 0; });
  probe("box_256", [](A& a) { a.box = {256, 256}; });
  probe("box_257", [](A& a) { a.box[1] = 257; });
  probe("box_of_256_kib", [](A& a) {
    a.type = TensorType::kUint32;
    a.box = {256, 256};
  });
  probe("box_row_24_bytes", [](A& a) { a.box[0] = 12; });
  const std::pair<const char*, SwizzleMode> swizzles[] = {{"32", SwizzleMode::k32Bytes},
                                                          {"64", SwizzleMode::k64Bytes},
                                                          {"128", SwizzleMode::k128Bytes}};
  for (const auto& [span, swizzle] : swizzles) {
    for (const uint32_t columns : {8, 16, 24, 32, 40, 64, 72}) {
      probe(("sw" + std::string(span) + "_row_" + std::to_string(columns * 2)).c_str(),
            [&, mode = swizzle](A& a) { a.box[0] = columns, a.swizzle = mode; });
    }
  }
}

// ---- clusters: each CTA loads a row for all, then reads the next one's shared memory ------------
struct ClusterStorage {
  alignas(128) uint32_t rows[4][64];
  uint64_t full;
};

__global__ void cluster_kernel(const __grid_constant__ TensorMap map, uint32_t* out) {
#if FA_SM_90A
  auto& smem = shared_storage<ClusterStorage>();
  const int rank = ptx::cluster_ctarank(), count = ptx::cluster_nctarank(), thread = threadIdx.x;
  if (thread == 0) {
    ptx::mbarrier_init(&smem.full, 1);
    ptx::fence_mbarrier_init();
  }
  ptx::cluster_arrive();
  ptx::cluster_wait();
  if (thread == 0) {
    ptx::mbarrier_arrive_expect_tx(&smem.full, count * 256);
    ptx::cp_async_bulk_tensor_load_multicast(smem.rows[rank], &map, {0, int(blockIdx.x)},
                                             &smem.full, uint16_t((1 << count) - 1));
  }
  ptx::mbarrier_wait(&smem.full, 0);
  uint32_t* const mine = out + blockIdx.x * (count + 1) * 64;
  for (int row = 0; row < count; row++) mine[row * 64 + thread] = smem.rows[row][thread];
  ptx::cluster_arrive();
  ptx::cluster_wait();
  smem.rows[0][thread] = uint32_t(rank * 1000 + thread);
  ptx::cluster_arrive();
  ptx::cluster_wait();
  mine[count * 64 + thread] = *ptx::mapa(&smem.rows[0][thread], (rank + 1) % count);
  ptx::cluster_arrive();
  ptx::cluster_wait();
#endif
}

void probe_clusters() {
  for (const int count : {2, 4}) {
    const Case c = {"", 4, {64, 8}, {64, 1}, {}};
    const Tensor tensor(c);
    const Buffer in = upload("tensor", tensor.bytes);
    Buffer out("out", size_t(8 * (count + 1) * 64 * 4));
    run<cluster_kernel>({dim3(8), dim3(64), sizeof(ClusterStorage), count},
                        map_of(c, tensor, in.data()), out);
    print_hashes("cluster_of_" + std::to_string(count), download<uint32_t>(out),
                 size_t((count + 1) * 64));
  }
}

// ---- additions to global memory -----------------------------------------------------------------
constexpr int kSums = 256;

struct SumsStorage {
  alignas(16) volatile float addends[kSums];
};

__global__ void reduce_kernel(float* sums, const float* addends) {
#if FA_SM_90A
  auto& smem = shared_storage<SumsStorage>();
  for (int i = threadIdx.x; i < kSums; i += 32) smem.addends[i] = addends[i];
  ptx::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::cp_reduce_async_bulk_add(sums, const_cast<const float*>(smem.addends),
                                  sizeof smem.addends);
    ptx::cp_async_bulk_commit();
    ptx::cp_async_bulk_wait<0>();
  }
#endif
}

std::vector<uint32_t> sums_of(const std::vector<uint32_t>& before,
                              const std::vector<uint32_t>& addends) {
  const Buffer sums = upload("sums", before), in = upload("addends", addends);
  run<reduce_kernel>({dim3(1), dim3(32), sizeof(SumsStorage)}, sums, in);
  return download<uint32_t>(sums);
}

// Floats of every exponent from `first` on, `count` of them, with either sign.
std::vector<uint32_t> floats(uint64_t seed, uint32_t first, uint32_t count) {
  Random random{seed};
  std::vector<uint32_t> bits(kSums);
  for (uint32_t& each : bits) {
    const uint32_t sign = random.next() % 2, exponent = first + random.next() % count;
    each = sign << 31 | exponent << 23 | random.next() % (1u << 23);
  }
  return bits;
}

void probe_additions() {
  print_hashes("reduce_near", sums_of(floats(1, 120, 8), floats(2, 120, 8)), kSums);
  print_hashes("reduce_far", sums_of(floats(3, 100, 40), floats(4, 100, 40)), kSums);
  print_hashes("reduce_large", sums_of(floats(5, 250, 5), floats(6, 250, 5)), kSums);
  // Subnormal operands, or small ones whose sum may be subnormal.
  print_hashes("reduce_subnormal", sums_of(floats(7, 0, 1), floats(8, 0, 1)), kSums);
  print_hashes("reduce_to_subnormal", sums_of(floats(9, 1, 2), floats(10, 0, 3)), kSums);
  constexpr uint32_t kOne = 0x3f800000, kLeast = 1, kLeastNormal = 0x00800000, kInf = 0x7f800000,
                     kNan = 0x7fc01234, kMinus = 0x80000000;
  const uint32_t special[] = {
      0,    kMinus,        kOne, kLeast, kMinus | kLeast, kLeastNormal, kMinus | kLeastNormal,
      kInf, kMinus | kInf, kNan};
  std::vector<uint32_t> before, addends;
  for (const uint32_t a : special) {
    for (const uint32_t b : special) before.push_back(a), addends.push_back(b);
  }
  before.resize(kSums), addends.resize(kSums);
  const std::vector<uint32_t> sums = sums_of(before, addends);
  for (size_t i = 0; i < std::size(special) * std::size(special); i++) {
    printf("reduce %08x + %08x = %08x\n", before[i], addends[i], sums[i]);
  }
}

}  // namespace fa::probe

int main() {
  using namespace fa::probe;
  setvbuf(stdout, nullptr, _IOLBF, 0);
  // Not in this process, which must not touch the GPU: processes begun later could not use it.
  const int status = run_alone([] {
    if (!fa::on_gpu() || fa::device_capability() == 90) return;
    throw fa::BackendError("error: TMA's probes need a GPU of compute capability 9.0");
  });
  if (status != 0) return 4;
  probe_alone("mbar", probe_barriers);
  probe_alone("tma", probe_plain_boxes);
  probe_alone("map", probe_maps);
  probe_alone("cluster", probe_clusters);
  probe_alone("reduce", probe_additions);
  probe_boxes();
}
