#include "common/emulator/tests/race_kernels.h"

#include <string>
#include <vector>

#include "common/launch/launch.h"
#include "common/ptx/barrier.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/wmma.h"

namespace probe {

int first_line = 0, second_line = 0;

std::vector<RaceCase>& race_cases() {
  static std::vector<RaceCase> all;
  return all;
}

namespace {

struct Storage {
  alignas(128) float words[512];
  alignas(128) __half tile[16][16];
};
static_assert(sizeof(Storage) <= kRaceSharedBytes);

// Keeps the accesses before it apart from those behind it. Volatile ones the checked build sees in
// another way, and kernels have few.
void keep_apart() { asm volatile("" ::: "memory"); }
float* words() {
  keep_apart();
  return fa::shared_storage<Storage>().words;
}

// How reports begin, and what they say is missing.
const std::string kRace = "data race on byte ",
                  kUnwritten = "read of memory that nothing has written, byte ",
                  kSyncthreads = "Missing: a __syncthreads() between",
                  kSyncwarp = "Missing: a __syncwarp() between",
                  kWait =
                      "may still be under way: nobody has waited for it. Missing: "
                      "cp_async_wait ",
                  kLeaves =
                      "leaves 1 group under way, and this copy's is one of them. Missing: "
                      "cp_async_wait<0> there, ";

// The first access of most races, and the second one.
void store(int at) {
  FIRST;
  words()[at] = 1.0f;
}
void read(float* out, int to, int from) {
  SECOND;
  out[to] = words()[from];
}

// ---- __syncthreads ------------------------------------------------------------------------------
RACE(64, read_after_write, kRace, kSyncthreads) {
  store(thread());
  if (right) __syncthreads();
  read(out, thread(), (thread() + 32) % 64);
}

RACE(64, write_after_read, kRace, kSyncthreads) {
  words()[thread()] = 1.0f;
  __syncthreads();
  FIRST;
  out[thread()] = words()[(thread() + 32) % 64];
  if (right) __syncthreads();
  SECOND;
  words()[thread()] = 2.0f;
}

// The report leaves a function that is to end an object of its own.
struct Noted {
  volatile int* place;
  ~Noted() { *place = 1; }
};

RACE(96, beside_an_object, kRace, kSyncthreads) {
  int place = 0;
  const Noted noted{&place};
  if (thread() >= 64) {  // another warp asks for what never comes
    while (!right && *static_cast<const volatile float*>(in) == 1) {
    }
    return;
  }
  store(thread());
  __syncwarp();
  if (right) ptx::barrier_sync(1, 64);
  read(out, thread(), (thread() + 32) % 64);
}

// What is missing is missing at the iteration's end, whichever of the two comes first.
RACE(64, next_iteration, kRace, "and the next time that line ") {
#pragma unroll 1  // else each iteration's store has an address of its own
  for (int i = 0; i < 3; i++) {
    SECOND;
    words()[thread()] = float(i);
    __syncthreads();
    FIRST;
    out[thread()] = words()[(thread() + 32) % 64];
    if (right) __syncthreads();
  }
}

// The store has been there before, but no barrier was in between: it is missing behind the loop.
RACE(64, after_a_loop, kRace, kSyncthreads + " line ") {
  for (int i = 0; i < 3; i++) {
    FIRST;
    words()[thread()] = float(i);
  }
  if (right) __syncthreads();
  read(out, thread(), (thread() + 32) % 64);
}

RACE(64, write_after_write, kRace, kSyncthreads) {
  if (thread() == 0) store(0);
  if (right) __syncthreads();
  if (thread() == 32) {
    SECOND;
    words()[0] = 2.0f;
  }
}

// The halves of a word belong to different threads: no race with the barrier, one without.
RACE(64, halves_of_a_word, kRace, kSyncthreads) {
  const auto halves = [] { return reinterpret_cast<uint16_t*>(words()); };
  FIRST;
  halves()[thread()] = uint16_t(thread());
  if (right) __syncthreads();
  SECOND;
  out[thread()] = halves()[thread() ^ 32];
}

// ---- __syncwarp ---------------------------------------------------------------------------------
RACE(32, between_lanes, kRace, kSyncwarp) {
  store(lane());
  if (right) __syncwarp();
  read(out, lane(), lane() ^ 1);
}

RACE(32, between_halves_of_a_warp, kRace, kSyncwarp) {
  store(lane());
  if (right) {
    __syncwarp();
  } else {
    __syncwarp(lane() < 16 ? 0x0000ffffu : 0xffff0000u);
  }
  read(out, lane(), lane() ^ 16);
}

RACE(32, within_halves_of_a_warp, kRace, kSyncwarp) {
  store(lane());
  if (right) __syncwarp(lane() < 16 ? 0x0000ffffu : 0xffff0000u);
  read(out, lane(), lane() ^ 1);
}

// A __syncwarp passes on what a lane has learnt from others: 0 to 1, then 1 to 2.
RACE(32, through_another_lane, kRace, kSyncwarp) {
  if (lane() == 0) store(0);
  if (lane() < 2) __syncwarp(0x3u);
  if (right && (lane() == 1 || lane() == 2)) __syncwarp(0x6u);
  if (lane() == 2) read(out, 0, 0);
}

RACE(32, shuffle_does_not_order, kRace, kSyncwarp) {
  store(lane());
  __shfl_xor_sync(0xffffffffu, 1, 1);
  if (right) __syncwarp();
  read(out, lane(), lane() ^ 1);
}

RACE(32, vote_does_not_order, kRace, kSyncwarp) {
  store(lane());
  __any_sync(0xffffffffu, 1);
  if (right) __syncwarp();
  read(out, lane(), lane() ^ 1);
}

// ---- ldmatrix, stmatrix, wmma -------------------------------------------------------------------
uint32_t row_address() {
  return ptx::shared_address(&fa::shared_storage<Storage>().tile[lane() % 16][lane() / 16 * 8]);
}

void fill_tile() {  // rows of this lane's own
  auto* const row = reinterpret_cast<uint32_t*>(
      &fa::shared_storage<Storage>().tile[lane() % 16][lane() / 16 * 8]);
  for (int i = 0; i < 4; i++) {
    keep_apart();
    FIRST;
    row[i] = 0;
  }
}

RACE(32, ldmatrix_within_a_warp, kRace, kSyncwarp) {
  fill_tile();
  if (right) __syncwarp();
  uint32_t r[4];
  SECOND;
  ptx::ldmatrix_x4(r, row_address());
  out[lane()] = float(r[0] + r[1] + r[2] + r[3]);
}

RACE(64, ldmatrix_of_another_warp, kRace, kSyncthreads) {
  if (thread() < 32) fill_tile();
  if (right) __syncthreads();
  if (thread() < 32) return;
  uint32_t r[4];
  SECOND;
  ptx::ldmatrix_x4(r, row_address());
  out[lane()] = float(r[0] + r[1] + r[2] + r[3]);
}

RACE(64, overwritten_under_ldmatrix, kRace, kSyncthreads) {
  if (thread() < 32) fill_tile();
  __syncthreads();
  if (thread() < 32) {
    uint32_t r[4];
    SECOND;
    ptx::ldmatrix_x4(r, row_address());
    out[lane()] = float(r[0] + r[1] + r[2] + r[3]);
  }
  if (right) __syncthreads();
  if (thread() >= 32) fill_tile();
}

RACE(32, stmatrix_then_loads, kRace, kSyncwarp) {
  const uint32_t r[4] = {};
  FIRST;
  ptx::stmatrix_x4(r, row_address());
  if (right) __syncwarp();
  const __half* const tile = &fa::shared_storage<Storage>().tile[0][0];
  SECOND;
  out[lane()] = float(reinterpret_cast<const uint16_t*>(tile)[lane()]);
}

RACE(32, wmma_then_loads, kRace, kSyncwarp) {
  ptx::FragmentC c;
  nvcuda::wmma::fill_fragment(c, 0.0f);
  FIRST;
  nvcuda::wmma::store_matrix_sync(words(), c, 16, nvcuda::wmma::mem_row_major);
  if (right) __syncwarp();
  read(out, lane(), lane());
}

RACE(32, stores_then_wmma, kRace, kSyncwarp) {
  for (int i = 0; i < 8; i++) {
    FIRST;
    words()[32 * i + lane()] = 1.0f;
  }
  if (right) __syncwarp();
  ptx::FragmentC c;
  SECOND;
  nvcuda::wmma::load_matrix_sync(c, words(), 16, nvcuda::wmma::mem_row_major);
  out[lane()] = c.x[0];
}

// ---- cp.async -----------------------------------------------------------------------------------
void copy(int to, const float* from) {  // 16 bytes a thread
  FIRST;
  ptx::cp_async<16>(ptx::shared_address(&words()[to + thread() * 4]), from + thread() * 4);
}

RACE(64, own_copy, kRace, kWait + "between") {
  copy(0, in);
  ptx::cp_async_commit();
  if (right) ptx::cp_async_wait<0>();
  read(out, thread(), thread() * 4);
  ptx::cp_async_wait<0>();
}

RACE(64, latest_group, kRace, kLeaves + "between") {
  copy(256, in);
  ptx::cp_async_commit();
  copy(0, in);
  ptx::cp_async_commit();
  ptx::cp_async_wait<1>();
  if (right) ptx::cp_async_wait<0>();
  read(out, thread(), thread() * 4);
  ptx::cp_async_wait<0>();
}

RACE(64, copy_not_committed, kRace, "Missing: cp_async_commit before the wait, between") {
  copy(0, in);
  if (right) ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  __syncthreads();
  read(out, thread(), (thread() ^ 32) * 4);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
}

RACE(64, copy_of_another_warp, kRace,
     "Missing: a __syncthreads() behind a cp_async_wait of the thread that copies, between") {
  copy(0, in);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  if (right) __syncthreads();
  read(out, thread(), (thread() ^ 32) * 4);
}

RACE(64, wait_after_the_barrier, kRace, kWait + "in the thread that copies") {
  copy(0, in);
  ptx::cp_async_commit();
  if (right) ptx::cp_async_wait<0>();
  __syncthreads();
  if (!right) ptx::cp_async_wait<0>();
  read(out, thread(), (thread() ^ 32) * 4);
}

RACE(64, copy_over_what_is_read, kRace, kSyncthreads) {
  words()[thread() * 4] = 1.0f;
  __syncthreads();
  read(out, thread(), (thread() ^ 32) * 4);
  if (right) __syncthreads();
  copy(0, in);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
}

// Nobody waits, and no barrier is there: warp 0 reads before warp 1 copies.
RACE(64, nobody_waits, kRace,
     "Missing: a __syncthreads() behind a cp_async_wait of the thread that copies, between") {
  copy(0, in);
  ptx::cp_async_commit();
  if (right) {
    ptx::cp_async_wait<0>();
    __syncthreads();
  }
  read(out, thread(), (thread() ^ 32) * 4);
  ptx::cp_async_wait<0>();
}

RACE(64, copy_behind_a_barrier_alone, kRace, kWait + "in the thread that copies, then a barrier") {
  copy(0, in);
  ptx::cp_async_commit();
  if (right) ptx::cp_async_wait<0>();
  __syncthreads();
  read(out, thread(), (thread() ^ 32) * 4);
  ptx::cp_async_wait<0>();
}

RACE(64, wait_leaves_one_group, kRace, kLeaves + "then a barrier, between") {
  copy(0, in);
  ptx::cp_async_commit();
  if (right) {
    ptx::cp_async_wait<0>();
  } else {
    ptx::cp_async_wait<1>();
  }
  __syncthreads();
  read(out, thread(), (thread() ^ 32) * 4);
  ptx::cp_async_wait<0>();
}

RACE(64, wait_before_the_commit, kRace, "came before the commit at ") {
  copy(0, in);
  if (right) ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  if (!right) ptx::cp_async_commit();
  __syncthreads();
  read(out, thread(), (thread() ^ 32) * 4);
  ptx::cp_async_wait<0>();
}

// Two stages. The copy fills the one that others may still read, and the barrier comes after it.
RACE(64, prefetch_before_the_barrier, kRace, "Or: the copy is issued before the barrier or wait") {
  const auto prefetch = [&](int to) {
    ptx::cp_async_wait<0>();
    if (right) __syncthreads();
    FIRST;
    ptx::cp_async<16>(ptx::shared_address(&words()[to + thread() * 4]), in + thread() * 4);
    ptx::cp_async_commit();
    if (!right) __syncthreads();
  };
  copy(0, in);
  ptx::cp_async_commit();
  prefetch(256);
  read(out, thread(), (thread() ^ 32) * 4);
  prefetch(0);
  read(out, thread(), 256 + (thread() ^ 32) * 4);
  ptx::cp_async_wait<0>();
}

// ---- named barriers -----------------------------------------------------------------------------
RACE(128, named_barrier_of_too_few, "may count in the phase before: ",
     " threads have come to it so far, and its number is 64: the number is too small") {
  words()[thread()] = 1.0f;
  SECOND;
  ptx::barrier_sync(1, right ? 128 : 64);
}

RACE(128, named_barrier_without_a_warp, kRace,
     "has the number 64, and warps 0, 1 passed it without warp ") {
  store(thread());
  if (right || thread() < 64) ptx::barrier_sync(1, right ? 128 : 64);
  if (thread() < 64) read(out, thread(), thread() + 64);
}

RACE(64, producer_arrives, kRace, kSyncthreads) {
  if (thread() < 32) {
    if (!right) ptx::barrier_arrive(1, 64);
    store(lane());
    if (right) ptx::barrier_arrive(1, 64);
  } else {
    ptx::barrier_sync(1, 64);
    read(out, lane(), lane());
  }
}

// Who only arrives knows nothing of what the others did before.
RACE(64, arriving_is_not_waiting, kRace, kSyncthreads) {
  if (thread() < 32) {
    if (right) {
      ptx::barrier_sync(1, 64);
    } else {
      ptx::barrier_arrive(1, 64);
    }
    store(lane());
  } else {
    SECOND;
    words()[lane()] = 2.0f;
    ptx::barrier_sync(1, 64);
  }
}

RACE(96, barrier_of_two_warps, kRace, kSyncthreads) {
  if (thread() < 32) store(lane());
  if (right || thread() < 64) ptx::barrier_sync(3, right ? 96 : 64);
  if (thread() >= 64) read(out, lane(), lane());
}

// Two groups of two warps: without a barrier each, a warp of one may meet a warp of the other.
RACE(128, barrier_of_two_groups,
     "may count in the phase before: ", "two groups of warps use one barrier") {
  SECOND;
  ptx::barrier_sync(right ? 1 + thread() / 64 : 1, 64);
}

// Warp 0 arrives a second time and has not heard that warp 1 came.
RACE(64, arrives_again, "has not seen the end of barrier 1's last phase",
     "Too many threads arrive") {
  for (int i = 0; i < 2; i++) {
    if (thread() < 32) {
      ptx::barrier_arrive(1, 64);
      if (right) ptx::barrier_sync(2, 64);
    } else {
      ptx::barrier_sync(1, 64);
      if (right) ptx::barrier_arrive(2, 64);
    }
  }
}

// ---- global memory ------------------------------------------------------------------------------
RACE(64, global_within_a_cta, kRace, kSyncthreads) {
  FIRST;
  out[thread()] = 1.0f;
  if (right) __syncthreads();
  SECOND;
  words()[thread()] = out[thread() ^ 32];
}

RACE_KERNEL(2, 1, 32, two_ctas_write, kRace, "Let each write its own part") {
  FIRST;
  out[thread() + (right ? 32 * blockIdx.x : 0)] = 1.0f;
}

RACE_KERNEL(2, 1, 32, one_cta_writes, kRace, "Do the two in separate launches.") {
  if (blockIdx.x == 0) {
    FIRST;
    out[thread()] = 1.0f;
  }
  if (blockIdx.x == 1 && !right) {
    SECOND;
    words()[thread()] = out[thread()];
  }
}

// CTAs take tiles from a counter, whose start or step is wrong.
uint32_t take(const float* in) {
  uint32_t taken = 0;
  auto* const counter = const_cast<uint32_t*>(reinterpret_cast<const uint32_t*>(in));
  if (lane() == 0) taken = atomicAdd(counter, 1u) - 0x3f800000u;  // 1.0f is what it begins with
  return __shfl_sync(0xffffffffu, taken, 0);
}
void store_rows(float* out, uint32_t tile) {
  FIRST;
  out[32 * tile + uint32_t(lane())] = float(blockIdx.x);
}

RACE_KERNEL(3, 1, 32, tile_taken_twice, kRace, "Both CTAs store the same place") {
  const uint32_t taken = take(in);
  store_rows(out, right ? taken : taken / 2);
}

RACE_KERNEL(3, 1, 32, first_tile_taken_again, kRace, "a counter") {
  store_rows(out, blockIdx.x);
  store_rows(out, (right ? 3 : 1) + take(in));
}

// ---- what nobody wrote --------------------------------------------------------------------------
RACE(32, unwritten_shared, kUnwritten, "Or: the index of this read is wrong") {
  if (right) words()[thread()] = 1.0f;
  FIRST;
  out[thread()] = words()[thread()];
}

RACE(32, unwritten_tail, kUnwritten + "12", "Write it first") {
  if (right || thread() < 30) words()[thread()] = 1.0f;
  __syncwarp();
  FIRST;
  out[thread()] = words()[thread() ^ 1];
}

RACE(32, unwritten_global, kUnwritten, "Write it first") {
  if (right) out[thread()] = 1.0f;
  keep_apart();
  FIRST;
  words()[thread()] = out[thread()];
}

// ---- left behind --------------------------------------------------------------------------------
RACE(32, copy_not_waited_for, "exits without having waited for cp.async", "cp_async_wait<0>") {
  copy(0, in);
  ptx::cp_async_commit();
  if (right) ptx::cp_async_wait<0>();
}

RACE(64, unbalanced_barrier, "ends with barrier 5 out of balance: 32 of 64 threads",
     "or its number is too great") {
  if (right || thread() < 32) ptx::barrier_arrive(5, 64);
}

RACE(32, barrier_in_a_branch, "of the same warp is in __syncthreads()", "the same instruction") {
  if (right || lane() < 16) {
    FIRST;
    __syncthreads();
  } else {
    SECOND;
    __syncthreads();
  }
}

RACE(32, ldmatrix_in_a_branch, "of the same warp is in ldmatrix", "the same instruction") {
  fill_tile();
  __syncwarp();
  uint32_t r[4];
  if (right || lane() < 16) {
    FIRST;
    ptx::ldmatrix_x4(r, row_address());
  } else {
    SECOND;
    ptx::ldmatrix_x4(r, row_address());
  }
  out[lane()] = float(r[0]);
}

}  // namespace
}  // namespace probe
