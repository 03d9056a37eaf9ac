// Races with what runs beside the threads: bulk copies, mbarriers, clusters (race_kernels.h).
#include <string>
#include <vector>

#include "common/launch/launch.h"
#include "common/launch/tensor_map.h"
#include "common/layout/swizzle.h"
#include "common/ptx/cluster.h"
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/tma.h"
#include "tests/race_kernels.h"

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
int thread() { return int(threadIdx.x); }
int lane() { return thread() % 32; }
bool first_thread() { return thread() == 0; }

// Rows of 64 numbers.
ptx::TensorMap rows_of(const float* rows) {
  return fa::make_tensor_map(rows, {64, kRaceCount / 64}, {256}, {64, 1},
                             layout::SwizzleMode::kNone);
}

#define FIRST first_line = __LINE__ + 1
#define SECOND second_line = __LINE__ + 1

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

void load_row(const float* in, int row, int stage = 0) {
  const ptx::TensorMap map = rows_of(in);
  ptx::mbarrier_arrive_expect_tx(&smem().full[stage], 256);
  FIRST;
  ptx::cp_async_bulk_tensor_load(smem().tile[stage], &map, {0, row}, &smem().full[stage]);
}

// ---- a copy's data ------------------------------------------------------------------------------
void load_not_waited_for(bool right, const float* in, float* out) {
  make_barriers();
  if (first_thread()) load_row(in, 0);
  if (right) ptx::mbarrier_wait(&smem().full[0], 0);
  SECOND;
  out[thread()] = tile()[thread()];
  ptx::mbarrier_wait(&smem().full[0], 0);
}

// On a fresh barrier a wait for parity 1 is over at once.
void wait_for_the_other_parity(bool right, const float* in, float* out) {
  make_barriers();
  if (first_thread()) load_row(in, 0);
  ptx::mbarrier_wait(&smem().full[0], right ? 0 : 1);
  SECOND;
  out[thread()] = tile()[thread()];
  ptx::mbarrier_wait(&smem().full[0], 0);
}

void wait_for_another_stage(bool right, const float* in, float* out) {
  make_barriers();
  if (first_thread()) {
    load_row(in, 1, 1);
    load_row(in, 0, 0);
  }
  ptx::mbarrier_wait(&smem().full[right ? 0 : 1], 0);
  SECOND;
  out[thread()] = tile()[thread()];
  ptx::mbarrier_wait(&smem().full[0], 0);
  ptx::mbarrier_wait(&smem().full[1], 0);
}

// One warp waits for all: a barrier passes on what it has seen.
void one_warp_waits(bool right, const float* in, float* out) {
  make_barriers();
  if (first_thread()) load_row(in, 0);
  if (thread() < 32) ptx::mbarrier_wait(&smem().full[0], 0);
  if (right) __syncthreads();
  SECOND;
  out[thread()] = tile()[thread()];
}

void bytes_not_waited_for(bool right, const float* in, float* out) {
  make_barriers();
  if (first_thread()) {
    ptx::mbarrier_arrive_expect_tx(&smem().full[0], 256);
    FIRST;
    ptx::cp_async_bulk_load(smem().tile[0], in, 256, &smem().full[0]);
  }
  if (right) ptx::mbarrier_wait(&smem().full[0], 0);
  SECOND;
  out[thread()] = tile()[thread()];
  ptx::mbarrier_wait(&smem().full[0], 0);
}

// ---- a stage that is used again -----------------------------------------------------------------
// Warp 1 reads what thread 0 loads, two rows through one stage.
void stage_released_before_it_is_read(bool right, const float* in, float* out) {
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

void stage_not_waited_for(bool right, const float* in, float* out) {
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
  SECOND;
  out[lane()] = tile()[lane()];
  ptx::mbarrier_arrive(&smem().empty[0]);
}

// Threads write where a copy will: also from stores to copies there is a fence.
void load_over_stores(bool right, const float* in, float*) {
  make_barriers();
  FIRST;
  tile()[thread()] = 0.0f;
  if (right) ptx::fence_proxy_async();
  __syncthreads();
  if (first_thread()) {
    const ptx::TensorMap map = rows_of(in);
    ptx::mbarrier_arrive_expect_tx(&smem().full[0], 256);
    SECOND;
    ptx::cp_async_bulk_tensor_load(smem().tile[0], &map, {0, 0}, &smem().full[0]);
  }
  ptx::mbarrier_wait(&smem().full[0], 0);
}

// ---- stores -------------------------------------------------------------------------------------
void store_row(float* out, int row) {
  const ptx::TensorMap map = rows_of(out);
  SECOND;
  ptx::cp_async_bulk_tensor_store(&map, {0, row}, smem().tile[0]);
  ptx::cp_async_bulk_commit();
}

void store_without_proxy_fence(bool right, const float*, float* out) {
  FIRST;
  tile()[thread()] = 1.0f;
  if (right) ptx::fence_proxy_async();
  __syncthreads();
  if (first_thread()) {
    store_row(out, 0);
    ptx::cp_async_bulk_wait_read<0>();
  }
}

// The fence covers what lies before it.
void store_with_proxy_fence_too_early(bool right, const float*, float* out) {
  if (!right) ptx::fence_proxy_async();
  FIRST;
  tile()[thread()] = 1.0f;
  if (right) ptx::fence_proxy_async();
  __syncthreads();
  if (first_thread()) {
    store_row(out, 0);
    ptx::cp_async_bulk_wait_read<0>();
  }
}

// In the thread that copies a fence does as well, after the barrier.
void store_fenced_by_the_copying_thread(bool right, const float*, float* out) {
  FIRST;
  tile()[thread()] = 1.0f;
  if (!right && first_thread()) ptx::fence_proxy_async();
  __syncthreads();
  if (right && first_thread()) ptx::fence_proxy_async();
  if (first_thread()) {
    store_row(out, 0);
    ptx::cp_async_bulk_wait_read<0>();
  }
}

void store_without_barrier(bool right, const float*, float* out) {
  FIRST;
  tile()[thread()] = 1.0f;
  ptx::fence_proxy_async();
  if (right) __syncthreads();
  if (first_thread()) {
    store_row(out, 0);
    ptx::cp_async_bulk_wait_read<0>();
  }
}

void buffer_reused_before_it_is_read(bool right, const float*, float* out) {
  tile()[thread()] = 1.0f;
  ptx::fence_proxy_async();
  __syncthreads();
  if (first_thread()) {
    const ptx::TensorMap map = rows_of(out);
    FIRST;
    ptx::cp_async_bulk_tensor_store(&map, {0, 0}, smem().tile[0]);
    ptx::cp_async_bulk_commit();
    if (right) ptx::cp_async_bulk_wait_read<0>();
  }
  __syncthreads();
  SECOND;
  tile()[thread()] = 2.0f;
  __syncthreads();
  if (first_thread()) ptx::cp_async_bulk_wait_read<0>();
}

void store_not_committed(bool right, const float*, float* out) {
  tile()[thread()] = 1.0f;
  ptx::fence_proxy_async();
  __syncthreads();
  if (first_thread()) {
    const ptx::TensorMap map = rows_of(out);
    FIRST;
    ptx::cp_async_bulk_tensor_store(&map, {0, 0}, smem().tile[0]);
    if (right) ptx::cp_async_bulk_commit();
    ptx::cp_async_bulk_wait_read<0>();
  }
  __syncthreads();
  SECOND;
  tile()[thread()] = 2.0f;
}

// What has been read need not have been written.
void result_before_it_is_written(bool right, const float*, float* out) {
  tile()[thread()] = 1.0f;
  ptx::fence_proxy_async();
  __syncthreads();
  if (!first_thread()) return;
  const ptx::TensorMap map = rows_of(out);
  FIRST;
  ptx::cp_async_bulk_tensor_store(&map, {0, 0}, smem().tile[0]);
  ptx::cp_async_bulk_commit();
  if (right) {
    ptx::cp_async_bulk_wait<0>();
  } else {
    ptx::cp_async_bulk_wait_read<0>();
  }
  SECOND;
  out[64] = out[0];
}

void store_not_waited_for(bool right, const float*, float* out) {
  tile()[thread()] = 1.0f;
  ptx::fence_proxy_async();
  __syncthreads();
  if (!first_thread()) return;
  const ptx::TensorMap map = rows_of(out);
  FIRST;
  ptx::cp_async_bulk_tensor_store(&map, {0, 0}, smem().tile[0]);
  ptx::cp_async_bulk_commit();
  if (right) ptx::cp_async_bulk_wait_read<0>();
}

// ---- mbarriers themselves -----------------------------------------------------------------------
void arrival_orders(bool right, const float*, float* out) {
  make_barriers(32);
  if (thread() < 32) {
    if (!right) ptx::mbarrier_arrive(&smem().empty[0]);
    FIRST;
    tile()[lane()] = 1.0f;
    if (right) ptx::mbarrier_arrive(&smem().empty[0]);
  } else {
    ptx::mbarrier_wait(&smem().empty[0], 0);
    SECOND;
    out[lane()] = tile()[lane()];
  }
}

void barrier_used_before_it_is_made(bool right, const float*, float*) {
  if (first_thread()) {
    FIRST;
    ptx::mbarrier_init(&smem().full[0], 64);
  }
  if (right) __syncthreads();
  ptx::mbarrier_arrive(&smem().full[0]);
}

void barrier_not_visible_to_copies(bool right, const float* in, float*) {
  if (first_thread()) {
    FIRST;
    ptx::mbarrier_init(&smem().full[0], 1);
    if (right) ptx::fence_mbarrier_init();
  }
  __syncthreads();
  const ptx::TensorMap map = rows_of(in);
  if (first_thread()) {
    ptx::mbarrier_arrive_expect_tx(&smem().full[0], 256);
    SECOND;
    ptx::cp_async_bulk_tensor_load(smem().tile[0], &map, {0, 0}, &smem().full[0]);
  }
  ptx::mbarrier_wait(&smem().full[0], 0);
}

// Two phases end while warp 1 does something else: their parity is what it was.
void two_phases_ahead(bool right, const float*, float*) {
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
void more_arrivals_than_counted(bool right, const float*, float*) {
  make_barriers(right ? 64 : 32);
  SECOND;
  ptx::mbarrier_arrive(&smem().empty[0]);
}

void arrives_again_without_waiting(bool right, const float*, float*) {
  make_barriers(2);
  if (lane() > 0) return;
  for (int turn = 0; turn < 2; turn++) {
    SECOND;
    ptx::mbarrier_arrive(&smem().empty[0]);
    if (right) ptx::mbarrier_wait(&smem().empty[0], turn);
  }
}

// A barrier and its phases are known to others, too, who have heard of the waiting thread.
void arrives_after_another_has_waited(bool right, const float*, float*) {
  make_barriers(2);
  for (int turn = 0; turn < 2; turn++) {
    SECOND;
    if (lane() == 0) ptx::mbarrier_arrive(&smem().empty[0]);
    if (thread() == 5) ptx::mbarrier_wait(&smem().empty[0], turn);
    if (right) __syncthreads();
  }
}

// The bytes of the row before may be still to come, or that phase may be over.
void bytes_expected_too_early(bool right, const float* in, float*) {
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

void read_of_the_other_cta(bool right, const float*, float* out) {
  FIRST;
  tile()[thread()] = 1.0f;
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

void end_while_the_other_reads(bool right, const float*, float* out) {
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
void end_before_the_other_reads(bool right, const float*, float* out) {
  tile()[thread()] = 1.0f;
  sync_cluster();
  if (ptx::cluster_ctarank() == 1) {
    const float* const other = ptx::mapa(tile(), 0);
    dawdle();
    out[thread()] = other[thread()];
  }
  if (right) sync_cluster();
}

void end_while_the_other_arrives(bool right, const float*, float*) {
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

void multicast_not_waited_for(bool right, const float* in, float* out) {
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

std::vector<RaceCase> async_race_cases() {
  const std::string shared = "data race on byte ", wait = "Missing: an mbarrier_wait for the phase",
                    arrive = "Missing: an mbarrier_arrive after it that the copying thread waits",
                    fence = "Missing: fence_proxy_async()",
                    sync = "Missing: a barrier of the cluster (cluster_arrive, cluster_wait)";
#define RACE(ctas, threads, body, problem, cure) \
  {#body, ctas, threads, body, problem, cure, "tests/async_race_kernels.cpp"}
  std::vector<RaceCase> cases = {
      RACE(1, 64, load_not_waited_for, shared, wait),
      RACE(1, 64, wait_for_the_other_parity, shared, wait),
      RACE(1, 64, wait_for_another_stage, shared, wait),
      RACE(1, 64, one_warp_waits, shared, wait),
      RACE(1, 64, bytes_not_waited_for, shared, wait),
      RACE(1, 64, stage_released_before_it_is_read, shared, "Missing: an mbarrier_"),
      RACE(1, 64, stage_not_waited_for, shared, "Missing: an mbarrier_"),
      RACE(1, 64, load_over_stores, shared, fence),
      RACE(1, 64, store_without_proxy_fence, shared, fence),
      RACE(1, 64, store_with_proxy_fence_too_early, shared, fence),
      RACE(1, 64, store_fenced_by_the_copying_thread, shared, fence),
      RACE(1, 64, store_without_barrier, shared, "Missing: "),
      RACE(1, 64, buffer_reused_before_it_is_read, shared, "Missing: cp_async_bulk_wait_read"),
      RACE(1, 64, store_not_committed, shared, "Missing: cp_async_bulk_commit before the wait"),
      RACE(1, 64, result_before_it_is_written, shared, "Missing: cp_async_bulk_wait in"),
      RACE(1, 64, store_not_waited_for, "may not have read its shared memory yet",
           "cp_async_bulk_wait_read<0>"),
      RACE(1, 64, arrival_orders, shared, "Missing: a __syncthreads() between"),
      RACE(1, 64, barrier_used_before_it_is_made, "mbarrier at byte ", "__syncthreads()"),
      RACE(1, 64, barrier_not_visible_to_copies, "may not be visible to bulk copies",
           "Missing: fence_mbarrier_init()"),
      RACE(1, 64, two_phases_ahead, "two phases ahead, a parity says nothing",
           "must wait until all have seen"),
      RACE(1, 64, more_arrivals_than_counted,
           "may count in the phase before: ", "its count, 32, is too small"),
      RACE(1, 64, arrives_again_without_waiting,
           "may count in the phase before: ", "missing: a wait for that phase"),
      RACE(1, 64, arrives_after_another_has_waited,
           "may count in the phase before: ", "missing: a wait for that phase"),
      RACE(1, 64, bytes_expected_too_early, " phase 0 of the mbarrier at byte ", "expect_tx"),
      RACE(2, 64, read_of_the_other_cta, shared, sync),
      RACE(2, 64, end_while_the_other_reads, "of the cluster ", sync),
      RACE(2, 64, end_before_the_other_reads, "of the cluster ", sync),
      RACE(2, 64, end_while_the_other_arrives, "of the cluster ", sync),
      RACE(2, 64, multicast_not_waited_for, shared, wait),
  };
#undef RACE
  for (RaceCase& each : cases) each.cluster = each.ctas;
  return cases;
}

}  // namespace probe
