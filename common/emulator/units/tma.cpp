#include "common/emulator/units/tma.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/emulator/core/events.h"
#include "common/emulator/core/launch.h"
#include "common/emulator/core/memory.h"
#include "common/emulator/core/random.h"
#include "common/emulator/core/step.h"
#include "common/emulator/core/unit.h"
#include "common/emulator/units/box_copy.h"
#include "common/emulator/units/cluster.h"
#include "common/emulator/units/group_wait.h"
#include "common/emulator/units/mbarrier.h"
#include "common/layout/swizzle.h"
#include "common/ptx/tensor_map.h"

namespace emu {
namespace {

constexpr int kChunk = 16;
constexpr uint64_t kSector = 32;
// So many loads in a row that lie wholly outside their tensor are a loop that has lost its way.
constexpr int kMostLost = 1000;

// ---- what is under way --------------------------------------------------------------------------
// 16 bytes of shared memory and what belongs there.
struct Chunk {
  uint8_t* shared;
  uint8_t* global;  // not used if nothing is inside
  int inside;       // bytes that lie in the tensor, from the first on; the others are zeros
};

// A copy from global to shared memory, or, of st.async, from registers.
struct BulkLoad {
  std::vector<Chunk> chunks;
  const Cta* cta;  // whose shared memory
  uintptr_t bar;   // that is told
  int bytes;
  SourceLocation where;
  std::vector<uint32_t> ends;           // checked build: Detector::known_ends of its starter
  std::vector<uint8_t> registers = {};  // what these held; empty: it is in global memory
};

// A copy from shared to global memory.
struct BulkStore {
  std::vector<Chunk> chunks;
  SourceLocation where;
  Combine combine;            // of a reduction
  uint64_t waits_before = 0;  // of its thread
  std::vector<uint8_t> data;  // what has been read, once it has
  bool has_read = false, has_written = false;
};

struct StoreGroup {
  std::vector<BulkStore> stores;
  SourceLocation committed;
};

// The stores of a thread.
struct BulkGroups {
  std::vector<BulkStore> open;    // since the last commit
  std::deque<StoreGroup> groups;  // committed, and not waited for to their end; oldest first
  uint64_t committed = 0;         // groups so far
  uint64_t read = 0;              // of these, waited for until they had read
  GroupWait last_wait;
  int read_engine = -1, write_engine = -1;  // checked build
};

struct BulkCopies final : Unit {
  explicit BulkCopies(Cluster& its_cluster) : cluster(its_cluster) {}
  void begin() override {
    loads.clear();
    stores.clear();
    boxes.clear();
    lost = 0;
    random_draws = 0;
  }
  void step(Lane& me, bool waits) override;
  bool finish_awaited() override;
  void polled(uintptr_t bar) override;
  void thread_ends(Lane& me) override;
  Cause why_under_way(const UnderWay& work, uintptr_t address) override;
  void thread_has_ended(Lane& me) override;

  Cluster& cluster;
  std::vector<BulkLoad> loads;  // under way, oldest first
  std::map<const Lane*, BulkGroups> stores;
  std::map<const Cta*, std::vector<BoxCopy>> boxes;  // checked build: of each 16 bytes
  int lost = 0;  // loads in a row that have brought nothing but zeros
  uint64_t random_draws = 0;
};

const UnitOf<BulkCopies> bulk_copies{40};

// ---- arguments ----------------------------------------------------------------------------------
void check_map(const ptx::TensorMap& map, const char* operation, SourceLocation where) {
  if (map.rank < 1 || map.rank > ptx::kMaxTensorRank) {
    misuse(operation, where, "the tensor map was not made by make_tensor_map");
  }
}

// A store may reach over the end of every dimension, or lie beyond it, but may not begin before the
// start: not in the PTX ISA, but an H200 stops.
void check_store_begins_inside(const int* coords, int rank, const char* operation,
                               SourceLocation where) {
  for (int i = 0; i < rank; i++) {
    if (coords[i] >= 0) continue;
    misuse(operation, where,
           "coordinate " + std::to_string(i) + " is " + std::to_string(coords[i]) +
               ": a store must not begin before the tensor (a GPU says: illegal instruction)");
  }
}

// A box in shared memory. `bytes`: from its first to its last.
void check_shared(const void* shared, size_t bytes, uint32_t alignment, const char* operation,
                  SourceLocation where) {
  const Cta& cta = *current_lane->cta;
  const uintptr_t begin = uintptr_t(cta.shared), at = uintptr_t(shared);
  if (at < begin || at + bytes > begin + cta.shared_bytes) {
    misuse(operation, where,
           std::to_string(bytes) + " bytes at byte " + std::to_string(intptr_t(at - begin)) +
               " of shared memory are not inside the SharedStorage of " +
               std::to_string(cta.shared_bytes) + " bytes");
  }
  if (shared_address(shared) % alignment != 0) {
    misuse(operation, where,
           "the shared address must be a multiple of " + std::to_string(alignment) + " bytes, " +
               describe_place(at) + " is not");
  }
}

void check_barrier_is_near(const uint64_t* bar, const char* operation, SourceLocation where) {
  const Cta& cta = *current_lane->cta;
  if (uintptr_t(bar) - uintptr_t(cta.shared) >= cta.shared_bytes) {
    misuse(operation, where, "the mbarrier must lie in this CTA's shared memory");
  }
}

// ---- boxes --------------------------------------------------------------------------------------
// Bytes from one row of a box in shared memory to the next. Rows shorter than the swizzle take its
// whole width (CUDA C++ Programming Guide, "Asynchronous Data Copies: Swizzle").
int row_pitch(const ptx::TensorMap& map) {
  const int row = int(map.box[0]) * map.element_bytes;
  return map.swizzle == layout::SwizzleMode::kNone ? row : layout::swizzle_span(map.swizzle);
}

int rows(const ptx::TensorMap& map) {
  int result = 1;
  for (int i = 1; i < map.rank; i++) result *= int(map.box[i]);
  return result;
}

enum class Direction { kLoad, kStore };

// The chunks of the box that begins at coords: row by row, the second dimension fastest.
std::vector<Chunk> chunks_of_box(const ptx::TensorMap& map, const int* coords, int rank,
                                 const void* shared, Direction direction, const char* operation,
                                 SourceLocation where) {
  check_map(map, operation, where);
  if (rank != map.rank) {
    misuse(operation, where,
           std::to_string(rank) + " coordinates for a tensor of " + std::to_string(map.rank) +
               " dimensions");
  }
  const int64_t first_byte = int64_t(coords[0]) * map.element_bytes;
  if (first_byte % kChunk != 0) {
    misuse(operation, where,
           "the innermost coordinate " + std::to_string(coords[0]) + " is " +
               std::to_string(first_byte) +
               " bytes, not a multiple of 16 (a GPU says: illegal instruction)");
  }
  if (direction == Direction::kStore) check_store_begins_inside(coords, rank, operation, where);
  const int pitch = row_pitch(map), row_bytes = int(map.box[0]) * map.element_bytes;
  const auto period = uint32_t(layout::swizzle_period(map.swizzle));
  check_shared(shared, size_t(rows(map)) * size_t(pitch), std::max(128u, period), operation, where);

  std::vector<Chunk> chunks;
  const uint32_t start = shared_address(shared);
  auto* const base = const_cast<uint8_t*>(static_cast<const uint8_t*>(shared));
  const auto size_bytes = int64_t(map.sizes[0]) * map.element_bytes;
  for (int row = 0; row < rows(map); row++) {
    bool row_inside = true;
    int64_t offset = first_byte;
    for (int i = 1, rest = row; i < rank; i++) {
      const int64_t index = coords[i] + int64_t(rest % int(map.box[i]));
      rest /= int(map.box[i]);
      row_inside &= index >= 0 && index < int64_t(map.sizes[i]);
      offset += index * int64_t(map.strides[i]);
    }
    for (int at = 0; at < row_bytes; at += kChunk) {
      const int64_t begin = first_byte + at;  // in the innermost dimension
      int64_t inside = row_inside && begin >= 0 ? size_bytes - begin : 0;
      // A store cannot write less than a chunk: it goes on behind the row's end (measured on an
      // H200).
      if (direction == Direction::kStore && inside > 0) inside = kChunk;
      const uint32_t to = layout::swizzle_address(map.swizzle, start + uint32_t(row * pitch + at));
      chunks.push_back({base + (to - start), map.base + offset + at,
                        int(std::clamp<int64_t>(inside, 0, kChunk))});
    }
  }
  for (const Chunk& chunk : chunks) {
    if (chunk.inside == 0) continue;
    if (map.base == nullptr) misuse(operation, where, "the tensor map's address is null");
    const std::string outside = describe_outside(uintptr_t(chunk.global), size_t(chunk.inside));
    if (outside.empty()) continue;
    misuse(operation, where,
           "the tensor map reaches " + outside + ": its address, sizes or strides are wrong");
  }
  return chunks;
}

std::vector<Chunk> chunks_of_bytes(const void* shared, const void* global, int bytes,
                                   const char* operation, SourceLocation where) {
  if (bytes <= 0 || bytes % kChunk != 0 || uintptr_t(global) % kChunk != 0) {
    misuse(operation, where, "the global address and the number of bytes must be multiples of 16");
  }
  check_shared(shared, size_t(bytes), kChunk, operation, where);
  if (const std::string outside = describe_outside(uintptr_t(global), size_t(bytes));
      !outside.empty()) {
    misuse(operation, where, "reaches " + outside);
  }
  std::vector<Chunk> chunks;
  for (int at = 0; at < bytes; at += kChunk) {
    chunks.push_back({const_cast<uint8_t*>(static_cast<const uint8_t*>(shared)) + at,
                      const_cast<uint8_t*>(static_cast<const uint8_t*>(global)) + at, kChunk});
  }
  return chunks;
}

// ---- for the detector ---------------------------------------------------------------------------
// An engine's accesses to global memory, 16 bytes at a time or as many as are inside.
void note_global(int engine, uint64_t clock, const std::vector<Chunk>& chunks, bool write,
                 Site site) {
  Detector& detector = *current_lane->cta->detector;
  for (const Chunk& chunk : chunks) {
    for (int at = 0, piece; at < chunk.inside; at += piece) {
      for (piece = kChunk; piece > chunk.inside - at;) piece /= 2;
      detector.access(engine, uint32_t(clock), *current_lane, uintptr_t(chunk.global + at),
                      size_t(piece), write, site);
    }
  }
}

void note_shared(int engine, uint64_t clock, const std::vector<Chunk>& chunks, bool write,
                 Site site) {
  Detector& detector = *current_lane->cta->detector;
  for (const Chunk& chunk : chunks) {
    detector.access(engine, uint32_t(clock), *current_lane, uintptr_t(chunk.shared), kChunk, write,
                    site);
  }
}

// ---- for the counters ---------------------------------------------------------------------------
// One instruction of one thread. In the checked build also the 32-byte sectors of global memory
// that it touches.
void count_copy(Kind kind, const std::vector<Chunk>& chunks, SourceLocation where) {
  Counts counts{.requests = 1};
  if (current_lane->cta->checks) {
    std::set<uintptr_t> sectors;
    for (const Chunk& chunk : chunks) {
      counts.bytes += uint64_t(chunk.inside);
      if (chunk.inside > 0) sectors.insert(uintptr_t(chunk.global) / kSector);
    }
    counts.sectors = sectors.size();
    counts.sectors_ideal = (counts.bytes + kSector - 1) / kSector;
  }
  record(*current_lane->warp, {kind, 1u << current_lane->lane, where, counts});
}

// ---- when copies happen -------------------------------------------------------------------------
uint64_t next_random(Cluster& cluster) {
  const uint3& block = cluster.ctas[0].block_idx;
  constexpr uint64_t kOfCopies = 1u << 20;  // no thread has this number
  return random_bits(options().seed,
                     {block.x, block.y, block.z, kOfCopies, bulk_copies(cluster).random_draws++});
}

bool happens_at_once(Cluster& cluster) {
  return options().completion == Completion::kEarly ||
         (options().completion == Completion::kRandom && next_random(cluster) % 4 == 0);
}

void finish_load(Cluster& cluster, size_t index) {
  auto& loads = bulk_copies(cluster).loads;
  const BulkLoad load = std::move(loads[index]);
  loads.erase(loads.begin() + std::ptrdiff_t(index));
  if (!load.registers.empty()) {
    memcpy(load.chunks[0].shared, load.registers.data(), load.registers.size());
    return bring_bytes(load.bar, load.bytes, load.ends, load.where);
  }
  for (const Chunk& chunk : load.chunks) {
    memcpy(chunk.shared, chunk.global, size_t(chunk.inside));
    memset(chunk.shared + chunk.inside, 0, size_t(kChunk - chunk.inside));
  }
  bring_bytes(load.bar, load.bytes, load.ends, load.where);
}

void read_shared(BulkStore& store) {
  if (store.has_read) return;
  for (const Chunk& chunk : store.chunks) {
    store.data.insert(store.data.end(), chunk.shared, chunk.shared + kChunk);
  }
  store.has_read = true;
}

void write_global(BulkStore& store) {
  read_shared(store);
  if (store.has_written) return;
  for (size_t i = 0; i < store.chunks.size(); i++) {
    if (store.chunks[i].inside == 0) continue;
    const auto inside = size_t(store.chunks[i].inside);
    const uint8_t* const data = &store.data[i * kChunk];
    if (store.combine) {
      store.combine(store.chunks[i].global, data, inside);
    } else {
      memcpy(store.chunks[i].global, data, inside);
    }
  }
  store.has_written = true;
}

int bytes_inside(const std::vector<Chunk>& chunks) {
  int bytes = 0;
  for (const Chunk& chunk : chunks) bytes += chunk.inside;
  return bytes;
}

// What the copy moves, for a timeline; empty: nobody asks.
std::string moved(Kind kind, const std::vector<Chunk>& chunks) {
  Recorder* const recorder = current_lane->cta->recorder;
  if (!recorder) return "";
  std::vector<Recorder::Piece> pieces;
  for (const Chunk& chunk : chunks)
    pieces.push_back({uintptr_t(chunk.global), uintptr_t(chunk.shared), kChunk, 0});
  return recorder->moves(*current_lane->warp, kind, pieces);
}

// Notes a step of this lane's stores for a timeline.
void trace_stores(Step step, SourceLocation where) {
  step.group = Group::kStores;
  if (Recorder* const recorder = current_lane->cta->recorder)
    recorder->note(*current_lane, where, step);
}

// ---- loads --------------------------------------------------------------------------------------
void begin_load(std::vector<Chunk> chunks, const Cta& cta, uintptr_t bar, int bytes,
                const char* operation, SourceLocation where, const ptx::TensorMap* map = nullptr) {
  Cluster& cluster = *cta.cluster;
  Mbarrier& barrier = mbarrier_of_copy(bar, operation, where);
  barrier.copies++;
  const int inside = bytes_inside(chunks);
  int& lost = bulk_copies(cluster).lost;
  lost = inside > 0 ? 0 : lost + 1;
  if (lost == kMostLost) {
    misuse(operation, where,
           std::to_string(kMostLost) +
               " loads in a row lie wholly outside their tensors and bring nothing but zeros\n  A "
               "loop without end? A number of tiles may have wrapped below 0: CTAs without any.");
  }
  trace_load(bar, operation, bytes, inside, moved(Kind::kTmaLoad, chunks), where);
  if (cta.detector) {
    const Site site = cta.detector->site(operation, where);
    note_global(barrier.engine, barrier.phase + 1, chunks, false, site);
    note_shared(barrier.engine, barrier.phase + 1, chunks, true, site);
    std::vector<BoxCopy>& boxes = bulk_copies(cluster).boxes[&cta];
    boxes.resize(cta.shared_bytes / kChunk + 1);
    for (const Chunk& chunk : chunks) {
      boxes[size_t(chunk.shared - cta.shared) / kChunk] =
          map ? BoxCopy{where, map->swizzle, operation} : BoxCopy{};
    }
  }
  bulk_copies(cluster).loads.push_back(
      {std::move(chunks), &cta, bar, bytes, where,
       cta.detector ? cta.detector->known_ends(*current_lane) : std::vector<uint32_t>{}});
  if (happens_at_once(cluster)) finish_load(cluster, bulk_copies(cluster).loads.size() - 1);
}

int bytes_of_box(const ptx::TensorMap& map) {
  return rows(map) * int(map.box[0]) * map.element_bytes;
}

// ---- stores -------------------------------------------------------------------------------------
void begin_store(std::vector<Chunk> chunks, const char* operation, SourceLocation where,
                 const Combine& combine = {}) {
  const Lane& me = *current_lane;
  Cluster& cluster = *me.cta->cluster;
  const Kind kind = combine ? Kind::kTmaReduce : Kind::kTmaStore;
  count_copy(kind, chunks, where);
  BulkGroups& mine = bulk_copies(cluster).stores[&me];
  if (Detector* const detector = me.cta->detector) {
    if (mine.read_engine < 0) {
      mine.read_engine = detector->new_engine(Engine::kStoreRead);
      mine.write_engine = detector->new_engine(Engine::kStoreWrite);
    }
    const Site site = detector->site(operation, where);
    note_shared(mine.read_engine, mine.committed + 1, chunks, false, site);
    // The detector remembers an atomic as it does a read.
    note_global(mine.write_engine, mine.committed + 1, chunks, !combine,
                combine ? detector->atomic_site(operation, true, where) : site);
  }
  trace_stores({.work = Work::kAsyncStore,
                .name = operation,
                .bytes = uint64_t(bytes_inside(chunks)),
                .wavefronts = (chunks.size() * kChunk + 127) / 128,
                .ideal = (chunks.size() * kChunk + 127) / 128,
                .of = moved(kind, chunks)},
               where);
  BulkStore store{std::move(chunks), where, combine, mine.last_wait.number, {}};
  if (happens_at_once(cluster)) write_global(store);
  mine.open.push_back(std::move(store));
}

}  // namespace

void prefetch_tensor_map(const ptx::TensorMap& map, SourceLocation where) {
  check_map(map, "prefetch.tensormap", where);
}

void load_box(void* shared, const ptx::TensorMap& map, const int* coords, int rank, uint64_t* bar,
              SourceLocation where) {
  const char* const operation = "cp.async.bulk.tensor (load)";
  std::vector<Chunk> chunks =
      chunks_of_box(map, coords, rank, shared, Direction::kLoad, operation, where);
  check_barrier_is_near(bar, operation, where);
  count_copy(Kind::kTmaLoad, chunks, where);
  begin_load(std::move(chunks), *current_lane->cta, uintptr_t(bar), bytes_of_box(map), operation,
             where, &map);
}

void load_box_multicast(void* shared, const ptx::TensorMap& map, const int* coords, int rank,
                        uint64_t* bar, uint16_t ctas, SourceLocation where) {
  const char* const operation = "cp.async.bulk.tensor (multicast load)";
  const std::vector<Chunk> chunks =
      chunks_of_box(map, coords, rank, shared, Direction::kLoad, operation, where);
  check_barrier_is_near(bar, operation, where);
  const Cluster& cluster = *current_lane->cta->cluster;
  if (ctas == 0 || ctas >> cluster.ctas.size() != 0) {
    misuse(operation, where,
           "the mask " + std::to_string(ctas) + " must name CTAs of the cluster, which has " +
               std::to_string(cluster.ctas.size()));
  }
  count_copy(Kind::kTmaLoad, chunks, where);  // global memory is read once
  for (const Cta& cta : cluster.ctas) {
    if (!(ctas >> cta.rank & 1)) continue;
    const uintptr_t remote_bar = map_to_cta(uintptr_t(bar), cta.rank, where);
    std::vector<Chunk> there = chunks;
    for (Chunk& chunk :
         there) {  // the two CTAs' memories are mapped apart: no difference of pointers
      const uintptr_t offset = uintptr_t(chunk.shared) - uintptr_t(current_lane->cta->shared);
      chunk.shared = cta.shared + offset;
    }
    begin_load(std::move(there), cta, remote_bar, bytes_of_box(map), operation, where, &map);
  }
}

BoxCopy box_copied_to(const Cta& cta, uintptr_t address) {
  const auto& all = bulk_copies(*cta.cluster).boxes;
  const auto found = all.find(&cta);
  const size_t index = (address - uintptr_t(cta.shared)) / kChunk;
  return found == all.end() || index >= found->second.size() ? BoxCopy{} : found->second[index];
}

void store_box(const ptx::TensorMap& map, const int* coords, int rank, const void* shared,
               SourceLocation where) {
  const char* const operation = "cp.async.bulk.tensor (store)";
  begin_store(chunks_of_box(map, coords, rank, shared, Direction::kStore, operation, where),
              operation, where);
}

void store_async(void* shared, const void* value, int bytes, uint64_t* bar, int cta,
                 SourceLocation where) {
  const char* const operation = "st.async";
  check_shared(shared, size_t(bytes), uint32_t(bytes), operation, where);
  check_barrier_is_near(bar, operation, where);
  Lane& me = *current_lane;
  const uintptr_t to = map_to_cta(uintptr_t(shared), cta, where);
  const uintptr_t remote_bar = map_to_cta(uintptr_t(bar), cta, where);
  if (me.cta->checks) {
    // Counted as a store to the same place in this CTA's shared memory.
    me.add_access({uintptr_t(__builtin_return_address(0)), uintptr_t(shared), Kind::kSharedStore,
                   uint16_t(bytes)},
                  {where, 0, 0});
  } else {
    record(*me.warp, {Kind::kSharedStore, 1u << me.lane, where, {}});
  }
  Cluster& cluster = *me.cta->cluster;
  Mbarrier& barrier = mbarrier_of_copy(remote_bar, operation, where);
  barrier.copies++;
  std::vector<uint32_t> ends;
  if (Detector* const detector = me.cta->detector) {
    detector->access(barrier.engine, uint32_t(barrier.phase + 1), me, to, size_t(bytes), true,
                     detector->site(operation, where));
    ends = detector->known_ends(me);
  }
  const auto* const first = static_cast<const uint8_t*>(value);
  auto& loads = bulk_copies(cluster).loads;
  loads.push_back({{{reinterpret_cast<uint8_t*>(to), nullptr, bytes}},
                   &cluster.ctas[size_t(cta)],
                   remote_bar,
                   bytes,
                   where,
                   std::move(ends),
                   {first, first + bytes}});
  if (happens_at_once(cluster)) finish_load(cluster, loads.size() - 1);
}

void load_bulk(void* shared, const void* global, int bytes, uint64_t* bar, SourceLocation where) {
  const char* const operation = "cp.async.bulk (load)";
  std::vector<Chunk> chunks = chunks_of_bytes(shared, global, bytes, operation, where);
  check_barrier_is_near(bar, operation, where);
  count_copy(Kind::kTmaLoad, chunks, where);
  begin_load(std::move(chunks), *current_lane->cta, uintptr_t(bar), bytes, operation, where);
}

void store_bulk(void* global, const void* shared, int bytes, SourceLocation where) {
  const char* const operation = "cp.async.bulk (store)";
  begin_store(chunks_of_bytes(shared, global, bytes, operation, where), operation, where);
}

void reduce_bulk(void* global, const void* shared, int bytes, Combine combine,
                 SourceLocation where) {
  const char* const operation = "cp.reduce.async.bulk";
  std::vector<Chunk> chunks = chunks_of_bytes(shared, global, bytes, operation, where);
  await_clusters_before(*current_lane->cta->cluster);
  begin_store(std::move(chunks), operation, where, combine);
}

void add_floats(void* global, const void* from, size_t bytes) {
  for (size_t i = 0; i < bytes / sizeof(float); i++) {
    float& sum = static_cast<float*>(global)[i];
    sum += static_cast<const float*>(from)[i];
    if (std::isnan(sum)) sum = std::bit_cast<float>(0x7fffffffu);  // as an H200 gives it
  }
}

// ---- groups of stores ---------------------------------------------------------------------------
void commit_bulk(SourceLocation where) {
  trace_stores({.work = Work::kCommit, .name = "cp.async.bulk.commit_group"}, where);
  BulkGroups& mine = bulk_copies().stores[current_lane];
  mine.groups.push_back({std::move(mine.open), where});
  mine.open.clear();
  mine.committed++;
}

void wait_bulk(int groups, bool read, SourceLocation where) {
  trace_stores({.work = Work::kWaitGroups,
                .name = read ? "cp.async.bulk.wait_group.read" : "cp.async.bulk.wait_group",
                .pending = groups},
               where);
  const Lane& me = *current_lane;
  BulkGroups& mine = bulk_copies().stores[&me];
  mine.last_wait = {where, mine.last_wait.number + 1, mine.committed, uint64_t(groups), read};
  if (mine.committed < uint64_t(groups)) return;
  const uint64_t last = mine.committed - uint64_t(groups);  // that must be over
  const uint64_t first = mine.committed - mine.groups.size() + 1;
  for (uint64_t number = first; number <= last; number++) {
    for (BulkStore& store : mine.groups[number - first].stores) {
      read ? read_shared(store) : write_global(store);
    }
  }
  mine.read = std::max(mine.read, last);
  if (!read) {
    for (uint64_t number = first; number <= last; number++) mine.groups.pop_front();
  }
  if (Detector* const detector = me.cta->detector; detector && mine.read_engine >= 0) {
    detector->learn(me, mine.read_engine, uint32_t(last));
    if (!read) detector->learn(me, mine.write_engine, uint32_t(last));
  }
}

// ---- the unit -----------------------------------------------------------------------------------
namespace {

void BulkCopies::step(Lane&, bool) {
  if (!loads.empty() && next_random(cluster) % 4 == 0) {
    finish_load(cluster, next_random(cluster) % loads.size());
  }
  for (auto& [lane, groups] : stores) {
    for (auto& group : groups.groups) {
      for (BulkStore& store : group.stores) {
        if (store.has_written || next_random(cluster) % 4 != 0) continue;
        store.has_read ? write_global(store) : read_shared(store);
      }
    }
  }
}

bool BulkCopies::finish_awaited() {
  for (size_t i = loads.size(); i-- > 0;) {
    if (!is_awaited(cluster, loads[i].bar)) continue;
    finish_load(cluster, i);
    return true;
  }
  return false;
}

void BulkCopies::polled(uintptr_t bar) {
  for (size_t i = loads.size(); i-- > 0;) {
    if (loads[i].bar != bar) continue;
    finish_load(cluster, i);
    return;
  }
}

Cause BulkCopies::why_under_way(const UnderWay& work, uintptr_t address) {
  const auto found = stores.find(&work.starter);
  const bool reads = work.engine && *work.engine == Engine::kStoreRead,
             writes = work.engine && *work.engine == Engine::kStoreWrite;
  if (found == stores.end() || (!reads && !writes)) return {};
  const BulkGroups& mine = found->second;
  Cause cause;
  const auto look = [&](const std::vector<BulkStore>& all, uint64_t group, SourceLocation commit) {
    for (const BulkStore& store : all) {
      for (const Chunk& chunk : store.chunks) {
        if (reads ? address - uintptr_t(chunk.shared) >= size_t(kChunk)
                  : address - uintptr_t(chunk.global) >= size_t(chunk.inside))
          continue;
        cause = cause_of_group(
            reads ? "The copy may not have read yet" : "The copy may still be under way",
            mine.last_wait, {store.waits_before, group, commit, writes},
            reads ? "cp_async_bulk_wait_read" : "cp_async_bulk_wait", "cp_async_bulk_commit",
            work.own);
      }
    }
  };
  uint64_t group = mine.committed - mine.groups.size();
  for (const StoreGroup& each : mine.groups) look(each.stores, ++group, each.committed);
  look(mine.open, 0, {});
  return cause;
}

void BulkCopies::thread_ends(Lane& me) {
  const auto found = stores.find(&me);
  if (found == stores.end()) return;
  BulkGroups& mine = found->second;
  const BulkStore* pending = mine.open.empty() ? nullptr : &mine.open.front();
  if (!pending && mine.read < mine.committed) {
    for (const auto& group : mine.groups) {
      if (!group.stores.empty()) pending = &group.stores.front();
    }
  }
  if (pending && me.cta->detector) {
    fail(
        "exits although the copy at %s may not have read its shared memory yet\n  Nobody has "
        "waited "
        "for it. Missing: %scp_async_bulk_wait_read<0> after it.\n  Or: there is one copy too "
        "many.",
        place(pending->where).c_str(), mine.open.empty() ? "" : "cp_async_bulk_commit and ");
  }
  for (auto& group : mine.groups) {
    for (BulkStore& store : group.stores) write_global(store);
  }
  for (BulkStore& store : mine.open) write_global(store);
  stores.erase(found);
}

// At the end of a CTA, no copy to its shared memory may be under way.
void BulkCopies::thread_has_ended(Lane& me) {
  if (me.cta->live > 0) return;
  for (const BulkLoad& load : loads) {
    if (load.cta != me.cta) continue;
    const std::string other = waited_for_another_phase(cluster, load.bar);
    fail_cta("ends while the bulk copy at " + place(load.where) +
             " to its shared memory is under way\n  " +
             (other.empty() ? "Nobody has waited for it. Missing: an mbarrier_wait for its phase.\n"
                              "  Or: there is one copy too many."
                            : "Nobody has waited for it. " + other));
  }
}

}  // namespace
}  // namespace emu
