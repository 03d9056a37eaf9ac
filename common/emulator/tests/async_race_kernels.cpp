// Races with what runs beside the threads: bulk copies, mbarriers, clusters (race_kernels.h).
#include <string>
#include <vector>

#include "common/emulator/tests/race_kernels.h"
#include "common/launch/launch.h"
#include "common/launch/tensor_map.h"
#include "common/layout/swizzle.h"
#include "common/ptx/cluster.h"
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/tma.h"

namespace probe {
namespace {

struct Storage {
  alignas(128) float tile[2][64];
  uint64_t full[2], empty[2];
};
static_assert(sizeof(Storage) <= kRaceSharedBytes);

Storage& smem() { return fa::shared_storage<Storage>(); }
float* tile(int stage = 0) {  // what is done with it is done after all that comes before
  asm volatile("" ::: "memory");
  return smem().tile[stage];
}
bool first_thread() { return thread() == 0; }

// Rows of 64 numbers.
ptx::TensorMap rows_of(const float* rows) {
  return fa::make_tensor_map(rows, {64, kRaceCount / 64}, {256}, {64, 1},
                             layout::SwizzleMode::kNone);
}

// How reports begin, and what they say is missing.
const std::string kRace = "data race on byte ", kWait = "Missing: an mbarrier_wait for the phase",
                  kFence = "Missing: fence_proxy_async()",
                  kSync = "Missing: a barrier of the cluster (cluster_arrive, cluster_wait)";

void make_barriers(int readers = 1) {
  if (first_thread()) {
    for (int stage = 0; stage < 2; stage++) {
      ptx::mbarrier_init(&smem().full[stage], 1);
      ptx::mbarrier_init(&smem().empty[stage], readers);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
}

void load_row(const float* in, int row, int stage = 0, int& line = first_line) {
  const ptx::TensorMap map = rows_of(in);
  ptx::mbarrier_arrive_expect_tx(&smem().full[stage], 256);
  line = __LINE__ + 1;
  ptx::cp_async_bulk_tensor_load(smem().tile[stage], &map, {0, row}, &smem().full[stage]);
}

// The first access of many races, and the second one.
void write_tile(int at) {
  FIRST;
  tile()[at] = 1.0f;
}
void read_tile(float* out, int at) {
  SECOND;
  out[at] = tile()[at];
}

// ---- a copy's data ------------------------------------------------------------------------------
RACE(64, load_not_waited_for, kRace, kWait) {
  make_barriers();
  if (first_thread()) load_row(in, 0);
  if (right) ptx::mbarrier_wait(&smem().full[0], 0);
  read_tile(out, thread());
  ptx::mbarrier_wait(&smem().full[0], 0);
}

// On a fresh barrier a wait for parity 1 is over at once.
RACE(64, wait_for_the_other_parity, kRace, kWait) {
  make_barriers();
  if (first_thread()) load_row(in, 0);
  ptx::mbarrier_wait(&smem().full[0], right ? 0 : 1);
  read_tile(out, thread());
  ptx::mbarrier_wait(&smem().full[0], 0);
}

RACE(64, wait_for_another_stage, kRace, kWait) {
  make_barriers();
  if (first_thread()) {
    load_row(in, 1, 1);
    load_row(in, 0, 0);
  }
  ptx::mbarrier_wait(&smem().full[right ? 0 : 1], 0);
  read_tile(out, thread());
  ptx::mbarrier_wait(&smem().full[0], 0);
  ptx::mbarrier_wait(&smem().full[1], 0);
}

// One warp waits for all: a barrier passes on what it has seen.
RACE(64, one_warp_waits, kRace, kWait) {
  make_barriers();
  if (first_thread()) load_row(in, 0);
  if (thread() < 32) ptx::mbarrier_wait(&smem().full[0], 0);
  if (right) __syncthreads();
  read_tile(out, thread());
}

RACE(64, bytes_not_waited_for, kRace, kWait) {
  make_barriers();
  if (first_thread()) {
    ptx::mbarrier_arrive_expect_tx(&smem().full[0], 256);
    FIRST;
    ptx::cp_async_bulk_load(smem().tile[0], in, 256, &smem().full[0]);
  }
  if (right) ptx::mbarrier_wait(&smem().full[0], 0);
  read_tile(out, thread());
  ptx::mbarrier_wait(&smem().full[0], 0);
}

// ---- a stage that is used again -----------------------------------------------------------------
// Warp 1 reads what thread 0 loads, two rows through one stage.
RACE(64, stage_released_before_it_is_read, kRace, "Missing: an mbarrier_") {
  make_barriers(32);
  if (first_thread()) {
    for (int row = 0; row < 2; row++) {
      ptx::mbarrier_wait(&smem().empty[0], row ^ 1);
      load_row(in, row);
    }
  }
  if (thread() < 32) return;
  for (int row = 0; row < 2; row++) {
    ptx::mbarrier_wait(&smem().full[0], row);
    if (!right) ptx::mbarrier_arrive(&smem().empty[0]);
    SECOND;
    out[row * 32 + lane()] = tile()[lane()];
    if (right) ptx::mbarrier_arrive(&smem().empty[0]);
  }
}

RACE(64, stage_not_waited_for, kRace, "Missing: an mbarrier_") {
  make_barriers(32);
  if (first_thread()) {
    for (int row = 0; row < 2; row++) {
      if (right || row == 0) ptx::mbarrier_wait(&smem().empty[0], row ^ 1);
      if (row == 1) ptx::mbarrier_wait(&smem().full[0], 0);
      load_row(in, row);
    }
    ptx::mbarrier_wait(&smem().full[0], 1);
  }
  if (thread() < 32) return;
  ptx::mbarrier_wait(&smem().full[0], 0);
  read_tile(out, lane());
  ptx::mbarrier_arrive(&smem().empty[0]);
}

// Threads write where a copy will: also from stores to copies there is a fence.
RACE(64, load_over_stores, kRace, kFence) {
  make_barriers();
  FIRST;
  tile()[thread()] = 0.0f;
  if (right) ptx::fence_proxy_async();
  __syncthreads();
  if (first_thread()) load_row(in, 0, 0, second_line);
  ptx::mbarrier_wait(&smem().full[0], 0);
}

// ---- stores -------------------------------------------------------------------------------------
void store_tile(float* out, int& line) {
  const ptx::TensorMap map = rows_of(out);
  line = __LINE__ + 1;
  ptx::cp_async_bulk_tensor_store(&map, {0, 0}, smem().tile[0]);
}

// Thread 0 stores the tile, whose numbers are those of all threads, until it has been read.
void store_whole(float* out) {
  if (!first_thread()) return;
  store_tile(out, second_line);
  ptx::cp_async_bulk_commit();
  ptx::cp_async_bulk_wait_read<0>();
}

// Copies may read it.
void fill_tile() {
  tile()[thread()] = 1.0f;
  ptx::fence_proxy_async();
  __syncthreads();
}

RACE(64, store_without_proxy_fence, kRace, kFence) {
  write_tile(thread());
  if (right) ptx::fence_proxy_async();
  __syncthreads();
  store_whole(out);
}

// The fence covers what lies before it.
RACE(64, store_with_proxy_fence_too_early, kRace, kFence) {
  if (!right) ptx::fence_proxy_async();
  write_tile(thread());
  if (right) ptx::fence_proxy_async();
  __syncthreads();
  store_whole(out);
}

// In the thread that copies a fence does as well, after the barrier.
RACE(64, store_fenced_by_the_copying_thread, kRace, kFence) {
  write_tile(thread());
  if (!right && first_thread()) ptx::fence_proxy_async();
  __syncthreads();
  if (right && first_thread()) ptx::fence_proxy_async();
  store_whole(out);
}

RACE(64, store_without_barrier, kRace, "Missing: ") {
  write_tile(thread());
  ptx::fence_proxy_async();
  if (right) __syncthreads();
  store_whole(out);
}

RACE(64, buffer_reused_before_it_is_read, kRace, "Missing: cp_async_bulk_wait_read") {
  fill_tile();
  if (first_thread()) {
    store_tile(out, first_line);
    ptx::cp_async_bulk_commit();
    if (right) ptx::cp_async_bulk_wait_read<0>();
  }
  __syncthreads();
  SECOND;
  tile()[thread()] = 2.0f;
  __syncthreads();
  if (first_thread()) ptx::cp_async_bulk_wait_read<0>();
}

// ---- reductions
// The sums have been written before, as `in` has.
float* sums_of(const float* in) { return const_cast<float*>(in); }

// Additions are in no one's way, whoever adds: these of both warps, and an atomicAdd. What reads
// the sums must come after a wait for them.
RACE(64, sums_read_before_they_are_there, kRace, "Missing: cp_async_bulk_wait ") {
  fill_tile();
  if (lane() == 0) {
    FIRST;
    ptx::cp_reduce_async_bulk_add(sums_of(in), smem().tile[0], 256);
    ptx::cp_async_bulk_commit();
    atomicAdd(sums_of(in), 1.0f);
    right ? ptx::cp_async_bulk_wait<0>() : ptx::cp_async_bulk_wait_read<0>();
  }
  __syncthreads();
  SECOND;
  if (thread() == 40) out[0] = in[0];
}

RACE(64, reduction_read_too_late, kRace, "Missing: cp_async_bulk_wait_read") {
  fill_tile();
  if (first_thread()) {
    FIRST;
    ptx::cp_reduce_async_bulk_add(sums_of(in), smem().tile[0], 256);
    ptx::cp_async_bulk_commit();
    if (right) ptx::cp_async_bulk_wait_read<0>();
  }
  __syncthreads();
  SECOND;
  tile()[thread()] = 2.0f;
  __syncthreads();
  if (first_thread()) ptx::cp_async_bulk_wait_read<0>();
}

// The zeros, stored by a thread, must lie before a proxy fence, too.
RACE(64, sums_of_zeros_without_proxy_fence, kRace, kFence) {
  tile()[thread()] = 1.0f;
  ptx::fence_proxy_async();
  FIRST;
  sums_of(in)[thread()] = 0.0f;
  if (right) ptx::fence_proxy_async();
  __syncthreads();
  if (first_thread()) {
    SECOND;
    ptx::cp_reduce_async_bulk_add(sums_of(in), smem().tile[0], 256);
    ptx::cp_async_bulk_commit();
    ptx::cp_async_bulk_wait<0>();
  }
}

// Two CTAs may add to the same sums, but not one add and the other store there.
RACE_KERNEL(2, 1, 64, sums_of_one_cta_and_stores_of_another, kRace, "") {
  fill_tile();
  FIRST;
  if (!right && blockIdx.x == 0) sums_of(in)[thread()] = 0.0f;
  if ((right || blockIdx.x == 1) && first_thread()) {
    SECOND;
    ptx::cp_reduce_async_bulk_add(sums_of(in), smem().tile[0], 256);
    ptx::cp_async_bulk_commit();
    ptx::cp_async_bulk_wait_read<0>();
  }
}

RACE(64, store_not_committed, kRace, "Missing: cp_async_bulk_commit before the wait") {
  fill_tile();
  if (first_thread()) {
    store_tile(out, first_line);
    if (right) ptx::cp_async_bulk_commit();
    ptx::cp_async_bulk_wait_read<0>();
  }
  __syncthreads();
  SECOND;
  tile()[thread()] = 2.0f;
}

RACE(64, wait_read_leaves_one, kRace, "leaves 1 group under way, and this copy's is one of them") {
  fill_tile();
  if (first_thread()) {
    store_tile(out, first_line);
    ptx::cp_async_bulk_commit();
    if (right) {
      ptx::cp_async_bulk_wait_read<0>();
    } else {
      ptx::cp_async_bulk_wait_read<1>();
    }
  }
  __syncthreads();
  SECOND;
  tile()[thread()] = 2.0f;
  __syncthreads();
  if (first_thread()) ptx::cp_async_bulk_wait_read<0>();
}

RACE(64, wait_read_before_the_commit, kRace, "came before the commit at ") {
  fill_tile();
  if (first_thread()) {
    store_tile(out, first_line);
    if (right) ptx::cp_async_bulk_commit();
    ptx::cp_async_bulk_wait_read<0>();
    if (!right) ptx::cp_async_bulk_commit();
  }
  __syncthreads();
  SECOND;
  tile()[thread()] = 2.0f;
  __syncthreads();
  if (first_thread()) ptx::cp_async_bulk_wait_read<0>();
}

// A tile that is stored a second time, as where a counter gives it twice.
RACE(64, one_place_stored_twice, kRace,
     "Both store the same place, so that one of them is lost: ") {
  fill_tile();
  if (!first_thread()) return;
  for (int i = 0; i < 2; i++) {
    store_tile(right ? out + 64 * i : out, first_line);
    ptx::cp_async_bulk_commit();
  }
  ptx::cp_async_bulk_wait_read<0>();
}

// What has been read need not have been written.
RACE(64, result_before_it_is_written, kRace,
     "waits until it has read, and not until it has written. Missing: cp_async_bulk_wait there,") {
  fill_tile();
  if (!first_thread()) return;
  store_tile(out, first_line);
  ptx::cp_async_bulk_commit();
  if (right) {
    ptx::cp_async_bulk_wait<0>();
  } else {
    ptx::cp_async_bulk_wait_read<0>();
  }
  SECOND;
  out[64] = out[0];
}

RACE(64, store_not_waited_for, "may not have read its shared memory yet",
     "cp_async_bulk_wait_read<0>") {
  fill_tile();
  if (!first_thread()) return;
  store_tile(out, first_line);
  ptx::cp_async_bulk_commit();
  if (right) ptx::cp_async_bulk_wait_read<0>();
}

// ---- mbarriers themselves -----------------------------------------------------------------------
RACE(64, arrival_orders, kRace, " has arrived before its access, at ") {
  make_barriers(32);
  if (thread() < 32) {
    if (!right) ptx::mbarrier_arrive(&smem().empty[0]);
    write_tile(lane());
    if (right) ptx::mbarrier_arrive(&smem().empty[0]);
  } else {
    ptx::mbarrier_wait(&smem().empty[0], 0);
    read_tile(out, lane());
  }
}

// All lanes store, and one arrives for them.
RACE(64, one_lane_arrives_for_all, kRace, "Missing: a __syncwarp() before that arrival, or") {
  make_barriers();
  if (thread() < 32) {
    write_tile(lane());
    if (right) __syncwarp();
    if (first_thread()) ptx::mbarrier_arrive(&smem().empty[0]);
  } else {
    ptx::mbarrier_wait(&smem().empty[0], 0);
    read_tile(out, lane());
  }
}

// Warp 0 gives the place free for warp 1 as well.
RACE(96, one_warp_arrives_for_two, kRace, "where no thread of warp 1 has arrived in that phase") {
  if (thread() < 64) tile()[thread()] = 1.0f;
  make_barriers(right ? 2 : 1);
  if (thread() < 64) {
    FIRST;
    out[thread()] = tile()[lane()];
    __syncwarp();
    if (lane() == 0 && (right || thread() == 0)) ptx::mbarrier_arrive(&smem().empty[0]);
  } else {
    ptx::mbarrier_wait(&smem().empty[0], 0);
    SECOND;
    tile()[lane()] = 1.0f;
  }
}

// Thread 32 arrives twice, so that warp 2 is not waited for.
RACE(128, one_arrival_too_many, kRace, "has arrived twice in phase 0") {
  make_barriers(2);
  if (thread() < 64) tile()[thread()] = 1.0f;
  ptx::fence_proxy_async();
  __syncthreads();
  if (first_thread()) {
    ptx::mbarrier_wait(&smem().empty[0], 0);
    load_row(in, 0, 0, second_line);
  } else if (thread() == 96) {
    ptx::mbarrier_wait(&smem().full[0], 0);
  } else if (thread() == 32) {
    ptx::mbarrier_arrive(&smem().empty[0]);
    if (!right) ptx::mbarrier_arrive(&smem().empty[0]);
  } else if (thread() == 64) {
    FIRST;
    out[0] = tile()[0];
    if (right) ptx::mbarrier_arrive(&smem().empty[0]);
  }
}

RACE(64, barrier_used_before_it_is_made, "mbarrier at byte ", "__syncthreads()") {
  if (first_thread()) {
    FIRST;
    ptx::mbarrier_init(&smem().full[0], 64);
  }
  if (right) __syncthreads();
  ptx::mbarrier_arrive(&smem().full[0]);
}

RACE(64, barrier_not_visible_to_copies, "may not be visible to bulk copies",
     "Missing: fence_mbarrier_init()") {
  if (first_thread()) {
    FIRST;
    ptx::mbarrier_init(&smem().full[0], 1);
    if (right) ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (first_thread()) load_row(in, 0, 0, second_line);
  ptx::mbarrier_wait(&smem().full[0], 0);
}

// Two phases end while warp 1 does something else: their parity is what it was.
RACE(64, two_phases_ahead, "two phases ahead, a parity says nothing",
     "must wait until all have seen") {
  make_barriers(1);
  if (first_thread()) {
    ptx::mbarrier_arrive(&smem().full[0]);
    if (!right) ptx::mbarrier_arrive(&smem().full[0]);
    ptx::mbarrier_arrive(&smem().empty[0]);
  }
  if (thread() != 32) return;
  while (!ptx::mbarrier_test_wait(&smem().empty[0], 0)) {
  }
  ptx::mbarrier_wait(&smem().full[0], 0);
}

// Whoever comes last arrives in the next phase, and cannot know it.
RACE(64, more_arrivals_than_counted,
     "may count in the phase before: ", "its count, 32, is too small") {
  make_barriers(right ? 64 : 32);
  SECOND;
  ptx::mbarrier_arrive(&smem().empty[0]);
}

RACE(64, arrives_again_without_waiting,
     "may count in the phase before: ", "Or: missing: a wait for that phase") {
  make_barriers(2);
  if (lane() > 0) return;
  for (int turn = 0; turn < 2; turn++) {
    SECOND;
    ptx::mbarrier_arrive(&smem().empty[0]);
    if (right) ptx::mbarrier_wait(&smem().empty[0], turn);
  }
}

// A barrier and its phases are known to others, too, who have heard of the waiting thread.
RACE(64, arrives_after_another_has_waited,
     "may count in the phase before: ", "Or: missing: a wait for that phase") {
  make_barriers(2);
  for (int turn = 0; turn < 2; turn++) {
    SECOND;
    if (lane() == 0) ptx::mbarrier_arrive(&smem().empty[0]);
    if (thread() == 5) ptx::mbarrier_wait(&smem().empty[0], turn);
    if (right) __syncthreads();
  }
}

// The bytes of the row before may be still to come, or that phase may be over.
RACE(64, bytes_expected_too_early, " phase 0 of the mbarrier at byte ", "expect_tx") {
  make_barriers();
  if (!first_thread()) return;
  for (int row = 0; row < 2; row++) {
    SECOND;
    ptx::mbarrier_arrive_expect_tx(&smem().full[0], 256);
    ptx::cp_async_bulk_load(smem().tile[0], in + 64 * row, 256, &smem().full[0]);
    if (right) ptx::mbarrier_wait(&smem().full[0], row);
  }
}

// ---- clusters -----------------------------------------------------------------------------------
void sync_cluster() {
  ptx::cluster_arrive();
  ptx::cluster_wait();
}

RACE_KERNEL(2, 2, 64, read_of_the_other_cta, kRace, kSync) {
  write_tile(thread());
  if (right) sync_cluster();
  const float* const other = ptx::mapa(tile(), ptx::cluster_ctarank() ^ 1);
  SECOND;
  out[blockIdx.x * 64 + thread()] = other[thread()];
  sync_cluster();
}

// CTA 0 has something else to do, so that mostly it ends last: even so it might have ended first.
void dawdle() {
  for (int i = 0; i < 20; i++) __syncthreads();
}

RACE_KERNEL(2, 2, 64, end_while_the_other_reads, "of the cluster ", kSync) {
  tile()[thread()] = 1.0f;
  sync_cluster();
  if (ptx::cluster_ctarank() == 0) {
    dawdle();
  } else {
    const float* const other = ptx::mapa(tile(), 0);
    out[thread()] = other[thread()];
  }
  if (right) sync_cluster();
}

// The other way round: CTA 0 ends first, mostly.
RACE_KERNEL(2, 2, 64, end_before_the_other_reads, "of the cluster ", kSync) {
  tile()[thread()] = 1.0f;
  sync_cluster();
  if (ptx::cluster_ctarank() == 1) {
    const float* const other = ptx::mapa(tile(), 0);
    dawdle();
    out[thread()] = other[thread()];
  }
  if (right) sync_cluster();
}

RACE_KERNEL(2, 2, 64, end_while_the_other_arrives, "of the cluster ", kSync) {
  make_barriers(64);
  sync_cluster();
  if (ptx::cluster_ctarank() == 1) {
    ptx::mbarrier_arrive_cluster(&smem().empty[0], 0);
  } else if (right) {
    ptx::mbarrier_wait(&smem().empty[0], 0);
  } else {
    dawdle();
  }
}

RACE_KERNEL(2, 2, 64, multicast_not_waited_for, kRace, kWait) {
  make_barriers();
  sync_cluster();
  const int rank = ptx::cluster_ctarank();
  if (first_thread()) {
    const ptx::TensorMap map = rows_of(in);
    ptx::mbarrier_arrive_expect_tx(&smem().full[0], 512);
    FIRST;
    ptx::cp_async_bulk_tensor_load_multicast(smem().tile[rank], &map, {0, rank}, &smem().full[0],
                                             0b11);
  }
  if (right) ptx::mbarrier_wait(&smem().full[0], 0);
  SECOND;
  out[blockIdx.x * 64 + thread()] = tile(rank ^ 1)[thread()];
  ptx::mbarrier_wait(&smem().full[0], 0);
  sync_cluster();
}

}  // namespace
}  // namespace probe
