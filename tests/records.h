// What a GPU would have recorded (common/trace/record.h), made by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/trace/record.h"

namespace fa::test {

using ptx::Event;

// Writes as the warps of a CTA do.
class RecordWriter {
 public:
  explicit RecordWriter(ptx::Record* records) : records_(records), written_(ptx::kRecordWarps) {}

  void begin(int warp, uint64_t clock, uint64_t nanoseconds = 1000, uint32_t sm = 7) {
    write(warp, {uint32_t(clock), uint32_t(clock >> 32)});
    write(warp, {uint32_t(nanoseconds), uint32_t(nanoseconds >> 32)});
    write(warp, {uint32_t(clock), uint32_t(Event::kBegin) | sm << ptx::kRecordLine});
  }
  void at(int warp, uint64_t clock, Event event, uint32_t line, uint32_t detail = 0,
          uint32_t end = 0) {
    write(warp, {uint32_t(clock),
                 uint32_t(event) | end | line << ptx::kRecordLine | detail << ptx::kRecordDetail});
  }
  void wait(int warp, uint64_t from, uint64_t to, Event event, uint32_t line, uint32_t detail = 0) {
    at(warp, from, event, line, detail);
    at(warp, to, event, line, detail, ptx::kRecordEnd);
  }
  // wgmma_fence, `count` products of `columns` columns, wgmma_commit.
  void products(int warp, uint64_t from, uint64_t to, uint32_t line, uint32_t columns,
                uint32_t count) {
    at(warp, from, Event::kWgmmaFence, line);
    at(warp, to, Event::kWgmmaCommit, line + 1, columns / 8 + 64 * count);
  }

 private:
  void write(int warp, ptx::Record record) {
    uint32_t& i = written_[size_t(warp)];
    if (i < ptx::kRecordsOfWarp) records_[i++ * ptx::kRecordWarps + uint32_t(warp)] = record;
  }

  ptx::Record* records_;
  std::vector<uint32_t> written_;  // by each warp
};

}  // namespace fa::test
