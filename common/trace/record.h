// Recording what the warps of one CTA do, and when, on a GPU: for a timeline (gpu_timeline.h).
//
// The wrappers of common/ptx have hooks (hook.h), which are empty. CMake's FA_TIMELINE compiles
// each kernel a second time, with FA_RECORDING and with this file before all others: then the hooks
// are these, and lane 0 of each warp stores a Record: the SM's clock, what happens, and the line of
// the kernel. A new wrapper needs an Event, and that a name in gpu_timeline.cpp.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/ptx/hook.h"  // IWYU pragma: export
#ifdef FA_RECORDING
#include "common/ptx/shared_address.h"
#endif

#if defined(FA_RECORDING) && !defined(__CUDACC__)
#error "FA_RECORDING is for kernels that nvcc compiles"
#endif

namespace ptx {

// Lane 0 of a warp stores these 8 bytes. The clock is its low half, which wraps after 2^32 cycles.
struct Record {
  uint32_t clock;
  uint32_t word;
};

// The word, from the lowest bit: event 5, whether it is the event's end 1, line 11, detail 15.
inline constexpr uint32_t kRecordEnd = 1 << 5, kRecordLine = 6, kRecordDetail = 17;
inline constexpr uint32_t kMostLine = (1 << 11) - 1, kMostDetail = (1 << 15) - 1;
static_assert(uint32_t(Event::kCount) < kRecordEnd - 1, "a word of all ones is no event");

// The buffer: record i of warp w is [i][w], so that one offset a warp is also the count of its
// records. The first three of a warp: the whole clock, the nanoseconds of the GPU's timer (both as
// 8 bytes), and kBegin with the SM's number in place of the line and the detail. What nobody has
// written is all ones.
inline constexpr uint32_t kRecordWarps = 32, kRecordsOfWarp = 1 << 16, kFirstRecord = 3;
inline constexpr uint32_t kRecordBytes = kRecordWarps * kRecordsOfWarp * sizeof(Record);

// Tells which CTA records, and where to. Without `records` none does.
struct RecordTarget {
  Record* records = nullptr;
  uint32_t cta = 0;  // the grid's x counted first
  bool operator==(const RecordTarget&) const = default;
};

#ifdef FA_RECORDING

// Where a wrapper is called: its last parameter, Where::current() by default.
struct Where {
  uint32_t line;
  static constexpr __device__ Where current(uint32_t line = __builtin_LINE()) {
    return {line < kMostLine ? line : kMostLine};
  }
};

// Every kernel file has one. The launch sets it (common/launch/launch.h).
static __constant__ RecordTarget record_target;
static RecordTarget known_record_target;  // the host's copy of it

// All threads call this once, at the kernel's begin. `fa_record` is a register that only these
// functions know. It has the byte offset of this warp's next record, or kRecordBytes in threads
// that do not record. So one comparison tells who records, and whether there is room.
__device__ __forceinline__ void begin_recording() {
  const uint32_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const uint32_t cta = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  uint32_t at = kRecordBytes;
  if (record_target.records && cta == record_target.cta && thread % 32 == 0) {
    uint64_t clock, nanoseconds;
    uint32_t sm;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(clock));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    Record* const first = record_target.records + thread / 32;
    const auto store = [&](int i, uint64_t value) {
      reinterpret_cast<uint64_t*>(first)[i * kRecordWarps] = value;
    };
    store(0, clock);
    store(1, nanoseconds);
    first[2 * kRecordWarps] = {uint32_t(clock), uint32_t(Event::kBegin) | sm << kRecordLine};
    at = uint32_t(kFirstRecord * kRecordWarps + thread / 32) * sizeof(Record);
  }
  asm volatile(
      ".reg .u32 fa_record, fa_products;\n"
      "mov.u32 fa_record, %0;\n"
      "mov.u32 fa_products, 0;" ::"r"(at));
}

// `value`, shifted left by kShift, are the detail's bits. Without a branch, since between wgmma's
// instructions there must be none. The word is put together here: computed before a loop, it would
// take a register all the time.
template <int kShift>
__device__ __forceinline__ void record_shifted(Event event, Where where, uint32_t value,
                                               uint32_t end) {
  asm volatile(
      "{\n"
      ".reg .pred here;\n"
      ".reg .u32 now, word;\n"
      ".reg .u64 to;\n"
      "mov.u32 now, %%clock;\n"
      "setp.lt.u32 here, fa_record, %4;\n"
      "cvt.u64.u32 to, fa_record;\n"
      "add.u64 to, to, %3;\n"
      "shl.b32 word, %1, %2;\n"
      "or.b32 word, word, %0;\n"
      "@here st.global.v2.u32 [to], {now, word};\n"
      "@here add.u32 fa_record, fa_record, %5;\n"
      "}" ::"r"(uint32_t(event) | end | where.line << kRecordLine),
      "r"(value), "n"(kShift), "l"(record_target.records), "n"(kRecordBytes),
      "n"(kRecordWarps * sizeof(Record)));
}

// Records what a warp does at this moment, or begins to do.
__device__ __forceinline__ void record(Event event, Where where, uint32_t detail = 0,
                                       uint32_t end = 0) {
  record_shifted<kRecordDetail>(event, where, detail, end);
}
__device__ __forceinline__ void record(Event event, Where where, const uint64_t* bar,
                                       uint32_t end = 0) {
  record_shifted<kRecordDetail - 3>(event, where, shared_address(bar), end);
}

// A product of the group that the next commit closes. ptxas adds these up: the sum is a constant.
__device__ __forceinline__ void record_product(int columns) {
  asm volatile(
      "and.b32 fa_products, fa_products, 0xffffffc0;\n"
      "add.u32 fa_products, fa_products, %0;" ::"n"(64),
      "r"(columns / 8));
}

__device__ __forceinline__ void record_products(Where where) {
  uint32_t products;
  asm volatile("mov.u32 %0, fa_products;\nmov.u32 fa_products, 0;" : "=r"(products));
  record(Event::kWgmmaCommit, where, products);
}

// An event from here to the end of the block.
template <typename Detail>
class Recorded {
 public:
  __device__ __forceinline__ Recorded(Event event, Where where, Detail detail)
      : event_(event), where_(where), detail_(detail) {
    record(event_, where_, detail_);
  }
  __device__ __forceinline__ ~Recorded() { record(event_, where_, detail_, kRecordEnd); }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

 private:
  const Event event_;
  const Where where_;
  const Detail detail_;
};

__device__ __forceinline__ void recorded_syncthreads(Where where = Where::current()) {
  const Recorded recorded(Event::kSyncthreads, where, 0u);
  __syncthreads();
}

#endif

}  // namespace ptx

// The kernels' own, which is no wrapper.
#ifdef FA_RECORDING
#define __syncthreads() ::ptx::recorded_syncthreads()
#endif
