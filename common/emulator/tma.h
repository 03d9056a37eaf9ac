// Bulk copies between global and shared memory, of boxes of tensors and of bytes in a row.
//
// A copy is under way from its instruction on. When it happens is up to Options::completion: at once (early),
// not before a thread cannot go on without it (late, the latest one first), or at some point by the seed.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "common/emulator/lane.h"
#include "common/ptx/tensor_map.h"

namespace emu {

// 16 bytes of shared memory and what belongs there.
struct Chunk {
  uint8_t* shared;
  uint8_t* global;  // not used if nothing is inside
  int inside;       // bytes that lie in the tensor, from the first on; the others are zeros
};

// From global to shared memory.
struct BulkLoad {
  std::vector<Chunk> chunks;
  const Cta* cta;  // whose shared memory
  uintptr_t bar;   // that is told
  int bytes;
  SourceLocation where;
  std::vector<uint32_t> ends;  // checked build: Races::known_ends of its starter
};

// From shared to global memory.
struct BulkStore {
  std::vector<Chunk> chunks;
  SourceLocation where;
  std::vector<uint8_t> data;  // what has been read, once it has
  bool has_read = false, has_written = false;
};

// The stores of a thread.
struct BulkGroups {
  std::vector<BulkStore> open;  // since the last commit
  std::deque<std::vector<BulkStore>>
      groups;              // committed and not waited for to their end, oldest first
  uint64_t committed = 0;  // groups so far
  uint64_t read = 0;       // of these, waited for until they had read
  int read_engine = -1, write_engine = -1;  // checked build
};

// Those of a cluster.
struct BulkCopies {
  std::vector<BulkLoad> loads;  // under way, oldest first
  std::map<const Lane*, BulkGroups> stores;
  uint64_t random_draws = 0;
  void clear() {
    loads.clear();
    stores.clear();
    random_draws = 0;
  }
};

void prefetch_tensor_map(const ptx::TensorMap& map, SourceLocation where);
void load_box(void* shared, const ptx::TensorMap& map, const int* coords, int rank, uint64_t* bar,
              SourceLocation where);
void load_box_multicast(void* shared, const ptx::TensorMap& map, const int* coords, int rank,
                        uint64_t* bar, uint16_t ctas, SourceLocation where);
void store_box(const ptx::TensorMap& map, const int* coords, int rank, const void* shared,
               SourceLocation where);
void load_bulk(void* shared, const void* global, int bytes, uint64_t* bar, SourceLocation where);
void store_bulk(void* global, const void* shared, int bytes, SourceLocation where);
void commit_bulk(SourceLocation where);
void wait_bulk(int groups, bool read, SourceLocation where);

// ---- for the scheduler and for mbarriers
// When lanes change: random completion may let a copy happen.
void run_copies(Cluster& cluster);
// No lane can run: lets a copy happen that one of them waits for. False if there is none.
bool finish_awaited_copy(Cluster& cluster);
// Somebody asks whether a phase is over: lets a copy happen that reports to it.
void help_copies(uintptr_t bar);
// At the end of a lane: its stores are done; of a CTA: nothing may be under way to its shared memory.
void finish_bulk_copies(const Lane& lane);
void check_no_loads(const Cta& cta);

}  // namespace emu
