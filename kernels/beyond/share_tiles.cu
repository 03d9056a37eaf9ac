// beyond/share_tiles: few query tiles for many SMs, with wgmma; CTAs share all key tiles evenly.
//
// Idea         A query tile and one of its key tiles are a unit of work. The units of a launch are
//              one line, which is cut into equal shares, one per CTA. Where a share ends within a
//              query tile, several CTAs have a part of its O, and the last one merges these.
// Bottleneck   Removed: SMs without work where there are fewer query tiles than SMs or a few more,
//              and rows without queries where a model's heads share keys.
// Changed      From causal: a CTA's query tiles are no longer whole. The rows of a tile are the
//              queries of all heads that share keys, as in split_keys, and TMA collects them. K and
//              V may be in pages, a box per page or tile.
// Run          cmake --build --preset emulator --target beyond &&
//              build/emulator/bin/beyond share_tiles --q-len 100 --kv-len 1000 --kv-heads 1
#include <algorithm>
#include <bit>
#include <cfloat>
#include <climits>

#include "common/launch/launch.h"
#include "common/launch/quad.h"
#include "common/launch/registry.h"
#include "common/launch/slabs.h"
#include "common/launch/tensor_map.h"
#include "common/layout/swizzle.h"
#include "common/layout/wgmma.h"
#include "common/ptx/barrier.h"
#include "common/ptx/convert.h"
#include "common/ptx/elect.h"
#include "common/ptx/exp2.h"
#include "common/ptx/fence.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/log2.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/setmaxnreg.h"
#include "common/ptx/tma.h"
#include "common/ptx/wgmma.h"

namespace fa::share_tiles {

constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f;
constexpr int kBlockN = 128;  // keys per tile

// [range]
// Upper bound for the sum of P that one lane computes for one K tile. bf16 has fp32's range: half
// of its exponents are left for V and for the sums. No P may exceed fp16's 65504.
template <typename T>
constexpr float kMaxTileSum = 0x1p60f;
template <>
constexpr float kMaxTileSum<__half> = 32768.0f;
// A reference that follows a row's maximum stays kLift (log2) below it: the maximum's P is 2^kLift.
// fp16's numbers below 2^-14 have fewer bits, and small P would otherwise lose theirs.
template <typename T>
constexpr float kLift = 0.0f;
template <>
constexpr float kLift<__half> = 8.0f;
// A tile's scores may exceed their references by 60 (log2) in bf16, and by 7 in fp16 above kLift.
// After a rise by more than this the next tile is likely to exceed them, too.
template <typename T>
constexpr float kFar = 32.0f;
template <>
constexpr float kFar<__half> = 6.0f;
// [/range]

// One consumer for tiles of up to 64 rows, where memory sets the pace, otherwise two.
template <int kHeadDim, int kConsumers>
struct Config {
  static constexpr int kWarpgroups = kConsumers;            // consumers, 64 rows each
  static constexpr int kThreads = (kWarpgroups + 1) * 128;  // the last warpgroup is the producer
  static constexpr int kStages = 2;                         // tiles of K and of V in shared memory
  static constexpr int kSlabs = kHeadDim / 64;              // slabs per tile
  static constexpr int kBuffers = 3;                        // of Q, and later O
  static constexpr int kSegments = 8;                       // in shared memory; as in causal
  static constexpr int kWarps = 4 * kWarpgroups;            // of the consumers
  // A launch gives all threads equally many registers; the producer returns what two consumers
  // need. With one there are enough for all.
  static constexpr int kProducerRegisters = 56, kConsumerRegisters = 224;
  static constexpr int kLaunchRegisters = 65536 / kThreads / 8 * 8;
  static_assert(kWarpgroups == 1 || kWarpgroups * (kConsumerRegisters - kLaunchRegisters) <=
                                        kLaunchRegisters - kProducerRegisters,
                "otherwise a consumer would wait for registers without end");
  // Warpgroup g has barriers kQRead + g (its warps have read Q) and kTurn + g. 0 is __syncthreads'.
  enum NamedBarrier : int { kQRead = 1, kTurn = kQRead + kWarpgroups };
};

// What a launch computes.
struct Shape {
  int q_len, kv_len;  // of each sequence, or the most of any
  bool causal;
  float scale;
  int sequences, heads, group;  // group: neighbouring heads that share one head of K and V
  // A tile has `pack` heads of a group and of each the same queries. Row i of 64 is head i % pack
  // of query i / pack, as far as i / pack < span; span = 64 / pack.
  int pack, span;
  int row_tiles;  // of the longest sequence, per pack
  // Packed sequences: the row at which each one begins.
  const int* cu_seqlens_q;
  const int* cu_seqlens_kv;
  // K and V are [pages, kv_heads, page_size, kHeadDim] if there is a table.
  const int *block_table, *kv_lens;
  int page_size, page_shift, table_pages;
  int box_keys;  // of a page, or of a tile
  int q_rows;    // of a head of Q and O
  Strides o_strides;
};

// A query tile of some heads. One without queries is behind its sequence's end.
struct Tile {
  int sequence;
  int query, queries;  // its first query in the sequence; from there to the sequence's end
  int q_row, key_row;  // its first row in a head of Q; the sequence's first key in a head of K
  int kv_len;
  int diagonal;   // query i of the tile sees the keys below min(kv_len, i + diagonal)
  int key_tiles;  // at least one, though no query may see a key
};

// What a CTA computes of a query tile: some of its key tiles, from the last one to the first.
struct Segment {
  Tile tile;
  int head;                       // the first one of its pack
  int first_key_tile, key_tiles;  // none: no segment is left
  int first_cta, parts, part;     // CTA first_cta + i has part i; which one this is
};

// [tile]
__device__ inline Tile tile_of(const Shape& shape, int number, int tile_queries) {
  Tile tile{};
  tile.sequence = number / shape.row_tiles;
  tile.query = number % shape.row_tiles * tile_queries;
  tile.q_row = tile.query;
  tile.kv_len = shape.kv_lens ? shape.kv_lens[tile.sequence] : shape.kv_len;
  int q_len = shape.q_len;
  if (shape.cu_seqlens_q) {
    const int begin = shape.cu_seqlens_q[tile.sequence];
    q_len = shape.cu_seqlens_q[tile.sequence + 1] - begin;
    tile.q_row += begin;
    tile.key_row = shape.cu_seqlens_kv[tile.sequence];
    tile.kv_len = shape.cu_seqlens_kv[tile.sequence + 1] - tile.key_row;
  }
  tile.queries = q_len - tile.query;
  if (tile.queries <= 0) return tile;
  tile.diagonal = shape.causal ? tile.query + 1 + tile.kv_len - q_len : tile.kv_len;
  const int keys = min(tile.kv_len, tile.diagonal + min(tile.queries, tile_queries) - 1);
  tile.key_tiles = max(1, (keys + kBlockN - 1) / kBlockN);
  return tile;
}
// [/tile]

// [shares]
// The line of units: sequence after sequence, in each one query tile after the other, of each all
// packs of heads, and of each the key tiles from the last one to the first. All lanes of a warp
// walk through it together.
template <int kWarpgroups>
class Share {
 public:
  __device__ explicit Share(const Shape& shape)
      : shape_(shape), packs_(shape.heads / shape.pack), tile_queries_(kWarpgroups * shape.span) {
    uint64_t total = 0;
    for (int first = 0; first < numbers(); first = after(first)) total += units_from(first);
    share_ = int((total + gridDim.x - 1) / gridDim.x);
    const uint64_t share_begin = min(uint64_t(share_) * blockIdx.x, total);
    end_ = int(min(uint64_t(share_), total - share_begin));
    // The tile that has the first of them: among which 32 tiles, and then which of these.
    uint64_t begin = 0, units = 0;
    for (int first = 0; end_ > 0; first = after(first), begin += units) {
      units = units_from(first);
      if (begin + units <= share_begin) continue;
      const int lane = int(threadIdx.x) % 32;
      uint32_t upto = units_of(first + lane);
      for (int distance = 1; distance < 32; distance *= 2) {
        const uint32_t before = __shfl_up_sync(0xffffffffu, upto, distance);
        if (lane >= distance) upto += before;
      }
      const int i = __ffs(__ballot_sync(0xffffffffu, begin + upto > share_begin)) - 1;
      const uint32_t before = __shfl_sync(0xffffffffu, upto, max(i - 1, 0));
      begin += i > 0 ? before : 0;
      number_ = first + i;
      break;
    }
    begin_ = -int(share_begin - begin);
  }

  // The next part of the share.
  __device__ Segment next() {
    Segment segment{};
    if (at_ >= end_) return segment;
    for (;; number_++) {
      segment.tile = tile_of(shape_, number_, tile_queries_);
      const int units = segment.tile.key_tiles * packs_;
      if (begin_ + units > at_) break;
      begin_ += units;
      if (segment.tile.queries <= 0) number_ = end_of_sequence(number_) - 1;
    }
    const int key_tiles = segment.tile.key_tiles, pack = (at_ - begin_) / key_tiles;
    const int tile_begin = begin_ + pack * key_tiles, tile_end = tile_begin + key_tiles;
    const int end = min(end_, tile_end);
    segment.head = pack * shape_.pack;
    segment.first_key_tile = tile_end - end;
    segment.key_tiles = end - at_;
    // Shares before this one that have some of the tile's units; this one, and those behind.
    segment.part = (max(-tile_begin, 0) + share_ - 1) / share_;
    segment.parts = segment.part + (tile_end + share_ - 1) / share_;
    segment.first_cta = blockIdx.x - segment.part;
    at_ = end;
    return segment;
  }

 private:
  __device__ int numbers() const { return shape_.sequences * shape_.row_tiles; }
  // The units of a query tile, of all packs.
  __device__ uint32_t units_of(int number) const {
    return number < numbers() ? tile_of(shape_, number, tile_queries_).key_tiles * packs_ : 0;
  }
  // Those of 32 query tiles together.
  __device__ uint32_t units_from(int first) const {
    return __reduce_add_sync(0xffffffffu, units_of(first + int(threadIdx.x) % 32));
  }
  // The next 32. What is left of a sequence that ends before the longest one is passed over.
  __device__ int after(int first) const {
    const int last = first + 31;
    const bool ended = last < numbers() && tile_of(shape_, last, tile_queries_).queries <= 0;
    return ended ? end_of_sequence(last) : first + 32;
  }
  __device__ int end_of_sequence(int number) const {
    return (number / shape_.row_tiles + 1) * shape_.row_tiles;
  }

  const Shape& shape_;
  const int packs_, tile_queries_;
  int share_;   // units per CTA
  int at_ = 0;  // the next one of this CTA's,
  int end_;     // how many it has,
  int begin_;   // and the first one of query tile number_, which may be another CTA's: below 0
  int number_ = 0;
};
// [/shares]

// Warps w0..w3 of warpgroup g have 16 rows of S and O each. Lane l holds four elements of every 8
// columns. Tiles of K and V, and the 64 rows of Q per warpgroup, are stored in slabs:
//
//               S: all keys, O: all columns   8 columns, lane l      columns 0..63   64..127
//   rows 64g +  0..15   w0                    row l/4:   2 (l%4),+1  +------------+  +------------+
//   rows 64g + 16..31   w1                    row l/4+8: the same    | slab 0:    |  | slab 1     |
//   rows 64g + 32..47   w2                    columns                | 128 bytes  |  | kBlockN    |
//   rows 64g + 48..63   w3                                           | per row    |  | rows later |
//                                                                    +------------+  +------------+
// The four lanes of a quad (l/4) share two rows. The 16-byte chunks of a slab's row are swizzled.
// With 4 heads in a pack rows 0..3 are the first query of its four heads, rows 4..7 the second one.
template <typename T, typename C>
struct SharedStorage {
  // The swizzle depends on the address and repeats every 1024 bytes (8 rows), hence the alignment.
  // sQ[t % kBuffers] holds Q of segment t and later its O.
  alignas(1024) T sQ[C::kBuffers][C::kWarpgroups][C::kSlabs][64][64];
  alignas(1024) T sK[C::kStages][C::kSlabs][kBlockN][64];
  alignas(1024) T sV[C::kStages][C::kSlabs][kBlockN][64];
  // full expects the producer's arrival and the tile's bytes; empty expects one per consumer warp.
  uint64_t k_full[C::kStages], k_empty[C::kStages], v_full[C::kStages], v_empty[C::kStages];
  uint64_t v_arrived;  // of tiles of V in which the producer writes before the consumers read
  // [t % kBuffers] belongs to segment t. o_full expects one arrival per warp of the consumer.
  uint64_t q_full[C::kBuffers][C::kWarpgroups], o_full[C::kBuffers][C::kWarpgroups];
  // [t % kSegments] is segment t of this CTA. full expects the lane that has written it.
  Segment segment[C::kSegments];
  uint64_t segment_full[C::kSegments];
};

// [places]
// Where parts of O are stored, in workspace. A CTA has at most two parts, of the query tile that it
// begins with and of the one that it ends with: the latter is the first part of its tile.
struct Places {
  // [2 rounds][2 gridDim.x][kWarps]: how many of the parts that are merged together are stored. 0
  // between launches.
  uint32_t* arrived;
  // [2 gridDim.x][kWarps][kHeadDim / 8 + 1][32]: what each lane has of acc_o, four at a time, and
  // the references and sums of its two rows.
  float4* parts;
};
// [/places]

template <typename T, int kHeadDim, int kConsumers>
__global__ void __launch_bounds__(Config<kHeadDim, kConsumers>::kThreads, 1)
    attention_kernel(const __grid_constant__ ptx::TensorMap map_q,
                     const __grid_constant__ ptx::TensorMap map_k,
                     const __grid_constant__ ptx::TensorMap map_v,
                     const __grid_constant__ ptx::TensorMap map_o,
                     const __grid_constant__ Shape shape, T* gO, float* gLse, Places places) {
  using C = Config<kHeadDim, kConsumers>;
  constexpr int kTileBytes = kBlockN * kHeadDim * sizeof(T);
  static_assert(kTileBytes == C::kSlabs * kBlockN * 128, "what the boxes of a tile bring");
  auto& smem = shared_storage<SharedStorage<T, C>>();

  // ---- indices
  // The value is the same in all lanes, and the shuffle tells the compiler so.
  const int warpgroup_idx = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int warp_idx = threadIdx.x / 32 % 4;  // within the warpgroup
  const int lane_idx = threadIdx.x % 32;

  // ---- pointers
  // The descriptors name the first 16 columns of tile 0 of K, and the first 16 keys of V.
  const uint64_t desc_k = layout::k_major_descriptor(ptx::shared_address(smem.sK));
  const uint64_t desc_v = layout::mn_major_descriptor(ptx::shared_address(smem.sV), kBlockN);

  // ---- barriers
  if (threadIdx.x == C::kWarpgroups * 128) {  // the first loads shall not wait for these
    ptx::prefetch_tensormap(&map_q);
    ptx::prefetch_tensormap(&map_k);
    ptx::prefetch_tensormap(&map_v);
  }
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::kBuffers * C::kWarpgroups; i++) {
      ptx::mbarrier_init(&smem.q_full[i % C::kBuffers][i / C::kBuffers], 1);
      ptx::mbarrier_init(&smem.o_full[i % C::kBuffers][i / C::kBuffers], 4);
    }
    for (int stage = 0; stage < C::kStages; stage++) {
      ptx::mbarrier_init(&smem.k_full[stage], 1);
      ptx::mbarrier_init(&smem.v_full[stage], 1);
      ptx::mbarrier_init(&smem.k_empty[stage], C::kWarps);
      ptx::mbarrier_init(&smem.v_empty[stage], C::kWarps);
    }
    ptx::mbarrier_init(&smem.v_arrived, 1);
    for (uint64_t& full : smem.segment_full) ptx::mbarrier_init(&full, 1);
    ptx::fence_mbarrier_init();
  }
  // Rows of Q that no box brings, where 64 is no multiple of a pack, are zeros at first and then
  // what was O there. They have no part in other rows.
  const int used_rows = shape.pack * shape.span;
  for (int i = threadIdx.x; i < C::kBuffers * C::kWarpgroups * C::kSlabs * (64 - used_rows) * 8;
       i += C::kThreads) {
    T(*const slab)[64] = smem.sQ[0][0][i / 8 / (64 - used_rows)];
    *reinterpret_cast<uint4*>(&slab[used_rows + i / 8 % (64 - used_rows)][i % 8 * 8]) = uint4{};
  }
  ptx::fence_proxy_async();  // wgmma reads them by another path
  __syncthreads();  // all threads wait until the barriers are initialised, so each may use them

  // Returns which row a query of a head is, counted over all heads as in a contiguous O.
  const auto row_of = [&](const Segment& segment, int head, int query) {
    const int block = shape.cu_seqlens_q ? 0 : segment.tile.sequence;
    return (size_t(block) * shape.heads + segment.head + head) * shape.q_rows + segment.tile.q_row +
           query;
  };
  // Whether O of a consumer's rows leaves through shared memory: not where it is a part, and not
  // where another sequence follows within the box.
  const auto leaves_by_box = [&](const Segment& segment, int consumer) {
    return segment.parts == 1 &&
           (!shape.cu_seqlens_q || segment.tile.queries >= (consumer + 1) * shape.span);
  };

  // ---- producer
  if (warpgroup_idx == C::kWarpgroups) {
    if constexpr (C::kWarpgroups > 1) ptx::setmaxnreg_dec<C::kProducerRegisters>();
    // One warp walks through its share and loads group after group: tile n_block of K and tile
    // n_block - 1 of V. Lane i loads box i of a tile, if there are so many.
    if (warp_idx == 0) {
      // Where a lane's box is, and how many of the tile's keys the sequence has.
      struct Place {
        int row, head, block, keys;
      };
      uint32_t n_block = 0, ends = 0;
      Place v_place{};
      Share<C::kWarpgroups> share(shape);
      // [load]
      const auto place_of = [&](const Segment& segment, int n) {
        const int key = n * kBlockN + lane_idx * shape.box_keys;
        const int head = segment.head / shape.group;
        const int keys = segment.tile.kv_len - n * kBlockN;
        if (!shape.block_table) {
          return Place{segment.tile.key_row + key, head,
                       shape.cu_seqlens_q ? 0 : segment.tile.sequence, keys};
        }
        // Behind the last key there is no page; a row behind a page's end is read as zeros.
        if (key >= segment.tile.kv_len) {
          return Place{shape.page_size, head, 0, keys};
        }
        const size_t entry =
            size_t(segment.tile.sequence) * shape.table_pages + (key >> shape.page_shift);
        return Place{key & (shape.page_size - 1), head, shape.block_table[entry], keys};
      };
      // Loads a tile of K or V once all warps released the stage.
      const auto load_tile = [&](const ptx::TensorMap& map, T(*tiles_of)[C::kSlabs][kBlockN][64],
                                 uint64_t* full, uint64_t* empty, uint32_t number,
                                 const Place& place) {
        const uint32_t stage = number % C::kStages;
        ptx::mbarrier_wait(&empty[stage], (number / C::kStages + 1) % 2);
        if (lane_idx == 0) ptx::mbarrier_arrive_expect_tx(full, kTileBytes);
        __syncwarp();  // no box may arrive before the barrier expects it
        if (lane_idx * shape.box_keys < kBlockN) {
#pragma unroll
          for (int slab = 0; slab < C::kSlabs; slab++) {
            ptx::cp_async_bulk_tensor_load(&tiles_of[stage][slab][lane_idx * shape.box_keys][0],
                                           &map, {slab * 64, place.row, place.head, place.block},
                                           full);
          }
        }
      };
      const auto load_v = [&] {
        const uint32_t stage = (n_block - 1) % C::kStages;
        // What stands behind the last key in its page, or as another sequence's V, may be infinite
        // or no number, and P, which is 0 there, times that is not 0.
        const bool end = v_place.keys < kBlockN && (shape.block_table || shape.cu_seqlens_q);
        load_tile(map_v, smem.sV, end ? &smem.v_arrived : &smem.v_full[stage], smem.v_empty,
                  n_block - 1, v_place);
        if (end) {
          ptx::mbarrier_wait(&smem.v_arrived, ends++ % 2);
          for (int i = max(v_place.keys, 0) * kHeadDim / 8 + lane_idx; i < kBlockN * kHeadDim / 8;
               i += 32) {
            const int row = i / (kHeadDim / 8), chunk = i % (kHeadDim / 8);
            *reinterpret_cast<uint4*>(&smem.sV[stage][chunk / 8][row][chunk % 8 * 8]) = uint4{};
          }
          ptx::fence_proxy_async();  // wgmma reads them by another path
          __syncwarp();              // lane 0 waits until all lanes have written and fenced
          if (lane_idx == 0) ptx::mbarrier_arrive(&smem.v_full[stage]);
        }
      };
      // [/load]
      const auto begin = [&](uint32_t t) {
        const Segment segment = share.next();
        if (lane_idx == 0) {
          smem.segment[t % C::kSegments] = segment;
          ptx::mbarrier_arrive(&smem.segment_full[t % C::kSegments]);
        }
        return segment;
      };
      Segment segment = begin(0);
      for (uint32_t t = 0; segment.key_tiles > 0; t++) {
        const Segment its = segment;
        const int last = its.first_key_tile + its.key_tiles - 1;
        for (int n = last; n >= its.first_key_tile; n--) {
          const Place place = place_of(its, n);
          load_tile(map_k, smem.sK, &smem.k_full[n_block % C::kStages], smem.k_empty, n_block,
                    place);
          if (n_block > 0) load_v();
          v_place = place;
          n_block++;
          // The next segment is known so early that its Q is loaded in time.
          if (n == last) segment = begin(t + 1);
        }
      }
      if (n_block > 0) load_v();
    }
    // One thread per consumer stores O from the buffer of segment t and then loads its Q there.
    if (warp_idx > 0 && warp_idx <= C::kWarpgroups && ptx::elect_sync()) {
      const int consumer = warp_idx - 1;
      uint32_t its_segments = ~0u - C::kBuffers;  // as long as their number is not known
      for (uint32_t t = 0; t < its_segments + C::kBuffers; t++) {
        const uint32_t buffer = t % C::kBuffers, use = t / C::kBuffers;
        T(*const sQ)[64][64] = smem.sQ[buffer][consumer];  // [kSlabs][64][64]
        // A box of pack x span rows. Past the head's end zeros are read, and nothing is written.
        const auto row = [&](const Segment& segment) {
          return segment.tile.q_row + consumer * shape.span;
        };
        const auto block = [&](const Segment& segment) {
          return shape.cu_seqlens_q ? 0 : segment.tile.sequence;
        };
        if (use > 0) {
          ptx::mbarrier_wait(&smem.o_full[buffer][consumer], (use - 1) % 2);
          const Segment segment = smem.segment[(t - C::kBuffers) % C::kSegments];
          const bool by_box = leaves_by_box(segment, consumer);
          for (int slab = 0; slab < C::kSlabs && by_box; slab++) {
            ptx::cp_async_bulk_tensor_store_5d(
                &map_o, {slab * 64, 0, row(segment), segment.head / shape.pack, block(segment)},
                sQ[slab]);
          }
          ptx::cp_async_bulk_commit();
          ptx::cp_async_bulk_wait_read<0>();  // only then the next Q may come, or the CTA end
        }
        if (t < its_segments) {
          ptx::mbarrier_wait(&smem.segment_full[t % C::kSegments], t / C::kSegments % 2);
          const Segment segment = smem.segment[t % C::kSegments];
          uint64_t* const full = &smem.q_full[buffer][consumer];
          if (segment.key_tiles > 0) {
            ptx::mbarrier_arrive_expect_tx(full, used_rows * kHeadDim * sizeof(T));
            for (int slab = 0; slab < C::kSlabs; slab++) {
              ptx::cp_async_bulk_tensor_load_5d(
                  sQ[slab], &map_q,
                  {slab * 64, 0, row(segment), segment.head / shape.pack, block(segment)}, full);
            }
          } else {  // there is no Q, but the consumer, too, must see that no segment is left
            its_segments = t;
            ptx::mbarrier_arrive(full);
          }
        }
      }
    }
    return;
  }
  if constexpr (C::kWarpgroups > 1) ptx::setmaxnreg_inc<C::kConsumerRegisters>();

  // ---- registers
  float acc_s[kBlockN / 2];
  float acc_o[kHeadDim / 2];
  uint32_t rP[2][kBlockN / 16][4];  // of two tiles in turn: one is read, the other one written
  // Each lane keeps statistics for two rows of its warpgroup: 16 * warp_idx + lane_idx / 4, and
  // that row + 8. row_ref (in log2) is subtracted from scores; row_sum is the lane's share. Those
  // of the segment before are kept until its O is complete: ended_sum is the whole row's.
  float row_ref[2], row_sum[2], rescale[2], ended_ref[2], ended_sum[2];
  const float scale_log2 = shape.scale * kLog2e;
  uint32_t t = 0;        // counts this CTA's segments
  uint32_t n_block = 0;  // counts key tiles over all its segments
  uint64_t desc_q;       // Q of the segment under way
  int kv_len, diagonal;  // of the segment's query tile
  int key, last_key;     // the first key of the key tile under way, and of the segment's last one
  bool accumulate = false;  // O of the segment has begun
  bool exact = false;       // the next tile's maxima are taken first, because a reference rose far
  // The lane's first row of its warpgroup's, the other one is 8 below; and the query of row i.
  const int row = warp_idx * 16 + lane_idx / 4;
  const auto query_of = [&](int i) { return warpgroup_idx * shape.span + i / shape.pack; };
  const int first_query = query_of(warp_idx * 16);  // of the warp

  // The number of keys that query i of the tile sees. Negative: not even the first one.
  const auto visible_keys = [&](int i) { return min(kv_len, i + diagonal); };
  // Every warp calls it before it reads tile n, to wait for phase n / kStages of its full barrier.
  const auto wait_full = [&](uint64_t* full, int stage, uint32_t n) {
    ptx::mbarrier_wait(&full[stage], n / C::kStages % 2);
  };
  // Every warp calls it when it has finished reading a stage, so it may be refilled. No wait.
  const auto release = [&](uint64_t* empty, int stage) {
    if (lane_idx == 0) ptx::mbarrier_arrive(&empty[stage]);
  };

  // Starts S = QK^T. After the fence acc_s belongs to the Tensor Cores until wgmma_wait returns it.
  const auto multiply_qk = [&](int stage) {
    const uint64_t desc = layout::advance(desc_k, stage * kTileBytes);
    ptx::wgmma_fence(acc_s);
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; d++) {
      ptx::wgmma<T, kBlockN, layout::Major::kK>(
          acc_s, layout::advance(desc_q, layout::k_major_step(64, d)),
          layout::advance(desc, layout::k_major_step(kBlockN, d)), d > 0);
    }
    ptx::wgmma_commit();
  };
  // Starts O += PV, or O = PV. P and acc_o belong to the Tensor Cores until wgmma_wait, too.
  const auto multiply_pv = [&](int stage, const auto& p) {
    const uint64_t desc = layout::advance(desc_v, stage * kTileBytes);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kBlockN / 16; i++) {  // 16 keys each
      ptx::wgmma<T, kHeadDim, layout::Major::kMN>(
          acc_o, p[i], layout::advance(desc, layout::mn_major_step(i)), i > 0 || accumulate);
    }
    ptx::wgmma_commit();
  };

  // [exponentials]
  // Computes P = 2^(score scale_log2 - row_ref) as A operand (8 + 8 columns per fragment) and its
  // sums. score(i) is element i of S, or -inf.
  const auto exponentials = [&](auto& p, float(&sum)[2], const auto& score) {
    float part[4] = {};  // sums of even and odd columns of both rows
#pragma unroll
    for (int i = 0; i < kBlockN / 4; i++) {
      float low_high[2];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        low_high[j] = ptx::exp2_approx(fmaf(score(2 * i + j), scale_log2, -row_ref[i % 2]));
        part[i % 2 * 2 + j] += low_high[j];
      }
      p[i / 4][i % 4] = ptx::pack<T>(low_high[0], low_high[1]);
    }
    sum[0] = part[0] + part[1];
    sum[1] = part[2] + part[3];
  };
  // [/exponentials]
  // [mask]
  // The scores of the tile under way, -inf where the row does not see the key.
  const auto visible_scores = [&] {
    const int its_key = key + lane_idx % 4 * 2;
    const int end0 = visible_keys(query_of(row)) - its_key;  // the first column not seen
    const int end1 = visible_keys(query_of(row + 8)) - its_key;
    return [&acc_s, end0, end1](int i) {  // i % 4: two columns of the first row, two of the other
      return i / 4 * 8 + i % 2 < (i / 2 % 2 == 0 ? end0 : end1) ? acc_s[i] : -INFINITY;
    };
  };
  // [/mask]
  // [exact]
  // Computes P and row_sum of any tile. The reference becomes what each row's maximum so far needs.
  const auto softmax_exact = [&](auto& p, const auto& score) {
    float most[4] = {score(0), score(1), score(2), score(3)};  // four independent chains
#pragma unroll
    for (int i = 4; i < kBlockN / 2; i++) most[i % 4] = fmaxf(most[i % 4], score(i));
    bool far = false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float tile_max = layout::quad_max(fmaxf(most[2 * h], most[2 * h + 1])) * scale_log2;
      const float new_ref = fmaxf(row_ref[h], tile_max - kLift<T>);
      far |= row_ref[h] > -FLT_MAX && new_ref - row_ref[h] > kFar<T>;
      rescale[h] = ptx::exp2_approx(row_ref[h] - new_ref);
      row_ref[h] = new_ref;
    }
    exact = __any_sync(0xffffffffu, far);
    float sum[2];
    exponentials(p, sum, score);
#pragma unroll
    for (int h = 0; h < 2; h++) row_sum[h] = row_sum[h] * rescale[h] + sum[h];
  };
  // [/exact]
  // [softmax]
  // Does the same for a segment's first key tile. References rise from the row's first score: by
  // how much says how far scores spread, and so whether the next tile's maxima are taken first.
  const auto softmax_first = [&](auto& p) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float first = __shfl_sync(0xffffffffu, acc_s[2 * h], 0, 4) * scale_log2;
      // Finite, so a row that sees no key, or scores of -inf alone, has P = 2^-inf = 0.
      row_ref[h] = key < visible_keys(first_query) ? fmaxf(first, -FLT_MAX) : -FLT_MAX;
      row_sum[h] = 0.0f;
    }
    softmax_exact(p, visible_scores());
  };
  // Does the same for any other tile. Returns whether O must be rescaled.
  const auto softmax = [&](auto& p) -> bool {
    const auto score = [&](int i) { return acc_s[i]; };
    // A row whose last key is in this tile or further left may have no reference yet.
    const bool all_seen = __all_sync(0xffffffffu, key + kBlockN < visible_keys(first_query));
    bool good = all_seen && !exact;
    if (good) {
      float sum[2];
      exponentials(p, sum, score);
      good = __all_sync(0xffffffffu, sum[0] + sum[1] <= kMaxTileSum<T>);
      if (good) {
        row_sum[0] += sum[0];
        row_sum[1] += sum[1];
      }
    }
    if (!good) {
      if (all_seen) {
        softmax_exact(p, score);
      } else {
        softmax_exact(p, visible_scores());
      }
    }
    return !good;
  };
  // [/softmax]
  // Multiplies O by rescale. Every warp calls it when references were raised and no PV is under
  // way.
  const auto rescale_o = [&] {
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; i++) acc_o[i] *= rescale[i / 2 % 2];
  };

  // Waits for Q of segment t and begins with its last key tile. False: no segment is left.
  const auto begin_segment = [&] {
    const uint32_t buffer = t % C::kBuffers;
    ptx::mbarrier_wait(&smem.q_full[buffer][warpgroup_idx], t / C::kBuffers % 2);
    const Segment& segment = smem.segment[t % C::kSegments];
    const int key_tiles = __shfl_sync(0xffffffffu, segment.key_tiles, 0);
    last_key = __shfl_sync(0xffffffffu, segment.first_key_tile, 0) * kBlockN;
    key = last_key + (key_tiles - 1) * kBlockN;
    kv_len = __shfl_sync(0xffffffffu, segment.tile.kv_len, 0);
    diagonal = __shfl_sync(0xffffffffu, segment.tile.diagonal, 0);
    desc_q = layout::k_major_descriptor(ptx::shared_address(smem.sQ[buffer][warpgroup_idx]));
    return key_tiles > 0;
  };
  // Ends the row sums of segment t - 1.
  const auto end_sums = [&] {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      ended_ref[h] = row_ref[h];
      ended_sum[h] = layout::quad_sum(row_sum[h]);
    }
  };
  // [merge]
  // Stores this warp's part of a tile's O. The warp that comes last of those that are merged
  // together, of different CTAs, merges them to one part, and so on until there is one. Returns
  // whether that is in this warp's registers.
  const auto merge_parts = [&](const Segment& segment) -> bool {
    constexpr int kFloat4s = kHeadDim / 8 + 1;
    const int warp = warpgroup_idx * 4 + warp_idx;
    // Part i of the round's is at the place of part i * step of the tile's.
    const auto place = [&](uint32_t part) {
      return (2 * (segment.first_cta + part) + (part == 0)) * C::kWarps + warp;
    };
    uint32_t part = segment.part, parts = segment.parts, step = 1;
    // As many as make two rounds; up to five in one.
    uint32_t fan = 4;
    while (fan > 4 ? fan * fan < parts : fan < parts) fan++;
    for (int round = 0;; round++) {
      const uint32_t first = part / fan * fan, members = min(fan, parts - first);
      float4* const its_part = places.parts + size_t(place(part * step)) * kFloat4s * 32 + lane_idx;
#pragma unroll
      for (int i = 0; i < kHeadDim / 8; i++) {
        its_part[i * 32] =
            float4{acc_o[4 * i], acc_o[4 * i + 1], acc_o[4 * i + 2], acc_o[4 * i + 3]};
      }
      its_part[kHeadDim / 8 * 32] = float4{ended_ref[0], ended_sum[0], ended_ref[1], ended_sum[1]};
      __threadfence();  // what this lane has stored is there for all, before ...
      __syncwarp();     // ... lane 0 says so
      uint32_t* const arrived =
          places.arrived + size_t(round) * 2 * gridDim.x * C::kWarps + place(first * step);
      const uint32_t before = lane_idx == 0 ? atomicInc(arrived, members - 1) : 0;
      if (__shfl_sync(0xffffffffu, before, 0) != members - 1) return false;
      __threadfence();  // no load of a part is earlier than the count, ...
      __syncwarp();     // ... in no lane
      const float4* const lane_parts = places.parts + lane_idx;
      const auto part_of = [&](uint32_t i) {
        return lane_parts + size_t(place((first + i) * step)) * kFloat4s * 32;
      };
      float new_ref[2] = {-FLT_MAX, -FLT_MAX};
      for (uint32_t i = 0; i < members; i++) {
        const float4 sums = part_of(i)[kHeadDim / 8 * 32];
        new_ref[0] = fmaxf(new_ref[0], sums.x);
        new_ref[1] = fmaxf(new_ref[1], sums.z);
      }
#pragma unroll
      for (float& o : acc_o) o = 0.0f;
#pragma unroll
      for (int h = 0; h < 2; h++) {
        ended_ref[h] = new_ref[h];
        ended_sum[h] = 0.0f;
      }
      for (uint32_t i = 0; i < members; i++) {  // in this order, so the bits are always the same
        const float4 sums = part_of(i)[kHeadDim / 8 * 32];
        const float weight[2] = {ptx::exp2_approx(sums.x - new_ref[0]),
                                 ptx::exp2_approx(sums.z - new_ref[1])};
        ended_sum[0] = fmaf(sums.y, weight[0], ended_sum[0]);
        ended_sum[1] = fmaf(sums.w, weight[1], ended_sum[1]);
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; n++) {
          const float4 o = part_of(i)[n * 32];
          acc_o[4 * n] = fmaf(o.x, weight[0], acc_o[4 * n]);
          acc_o[4 * n + 1] = fmaf(o.y, weight[0], acc_o[4 * n + 1]);
          acc_o[4 * n + 2] = fmaf(o.z, weight[1], acc_o[4 * n + 2]);
          acc_o[4 * n + 3] = fmaf(o.w, weight[1], acc_o[4 * n + 3]);
        }
      }
      part /= fan;
      parts = (parts + fan - 1) / fan;
      step *= fan;
      if (parts == 1) return true;
    }
  };
  // [/merge]
  // Stores O of segment t - 1, after a barrier in this warp's rows of sQ: every warp of the
  // warpgroup has read Q. Rows that see no key become zeros; their log-sum-exp is -inf.
  const auto store_o = [&] {
    const uint32_t buffer = (t - 1) % C::kBuffers;
    const Segment& segment = smem.segment[(t - 1) % C::kSegments];
    if (segment.parts == 1 || merge_parts(segment)) {
      float inverse_sum[2];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        inverse_sum[h] = ended_sum[h] > 0.0f ? ptx::rcp_approx(ended_sum[h]) : 0.0f;
      }
      const auto there = [&](int h) {
        return row + 8 * h < used_rows && query_of(row + 8 * h) < segment.tile.queries;
      };
      if (gLse && lane_idx % 4 == 0) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
          if (there(h)) {
            gLse[row_of(segment, (row + 8 * h) % shape.pack, query_of(row + 8 * h))] =
                (ended_ref[h] + ptx::log2_approx(ended_sum[h])) * kLn2;
          }
        }
      }
      const auto columns = [&](int n, uint32_t(&rO)[4]) {  // 16 columns of O, two rows
#pragma unroll
        for (int i = 0; i < 4; i++) {
          rO[i] = ptx::pack<T>(acc_o[8 * n + 2 * i] * inverse_sum[i % 2],
                               acc_o[8 * n + 2 * i + 1] * inverse_sum[i % 2]);
        }
      };
      if (leaves_by_box(segment, warpgroup_idx)) {
        ptx::barrier_sync(C::kQRead + warpgroup_idx, 128);
        T(*const sO)[64][64] = smem.sQ[buffer][warpgroup_idx];  // [kSlabs][64][64]
#pragma unroll
        for (int n = 0; n < kHeadDim / 16; n++) {
          uint32_t rO[4];
          columns(n, rO);
          ptx::stmatrix_x4(rO, layout::chunk_address(sO, warp_idx * 16 + lane_idx % 16,
                                                     n * 16 + lane_idx / 16 * 8));
        }
      } else {
#pragma unroll
        for (int h = 0; h < 2; h++) {
          if (there(h)) {
            const int head = segment.head + (row + 8 * h) % shape.pack;
            const int block = shape.cu_seqlens_q ? 0 : segment.tile.sequence;
            T* const gO_lane =
                gO + shape.o_strides.at(block, head, segment.tile.q_row + query_of(row + 8 * h)) +
                lane_idx % 4 * 2;
#pragma unroll
            for (int n = 0; n < kHeadDim / 8; n++) {
              *reinterpret_cast<uint32_t*>(gO_lane + n * 8) = ptx::pack<T>(
                  acc_o[4 * n + 2 * h] * inverse_sum[h], acc_o[4 * n + 2 * h + 1] * inverse_sum[h]);
            }
          }
        }
      }
    }
    ptx::fence_proxy_async();  // makes O visible to TMA, which reads by another path
    __syncwarp();              // lane 0 waits until all lanes have stored and fenced O
    if (lane_idx == 0) ptx::mbarrier_arrive(&smem.o_full[buffer][warpgroup_idx]);
  };

  // Warpgroup g waits for its turn at barrier kTurn + g; the warpgroup before it arrives there when
  // its own turn ends. Its products then still run, but those started later queue behind them.
  const auto begin_turn = [&] {
    if constexpr (C::kWarpgroups > 1) ptx::barrier_sync(C::kTurn + warpgroup_idx, 256);
  };
  const auto end_turn = [&](bool last) {
    const int next = warpgroup_idx + 1 < C::kWarpgroups ? warpgroup_idx + 1 : 0;
    // No warpgroup waits after the very last turn.
    if (C::kWarpgroups > 1 && (!last || next > 0)) ptx::barrier_arrive(C::kTurn + next, 256);
  };
  // A turn starts S of the next tile and O += PV of tile n_block, whose stage and P are given. It
  // waits for S, not for PV.
  const auto turn = [&](int stage, const auto& p) {
    wait_full(smem.k_full, 1 - stage, n_block + 1);
    begin_turn();
    multiply_qk(1 - stage);
    wait_full(smem.v_full, stage, n_block);
    multiply_pv(stage, p);
    end_turn(false);
    ptx::wgmma_wait<1>(acc_s);
    release(smem.k_empty, 1 - stage);
  };
  // Waits for that PV, and goes on to the next tile.
  const auto finish_pv = [&](int stage, auto& p) {
    ptx::wgmma_wait<0>(acc_o, p);
    release(smem.v_empty, stage);
    n_block++;
  };
  // The very last turn: nothing but the last PV.
  const auto last_turn = [&](int stage, auto& p) {
    wait_full(smem.v_full, stage, n_block);
    begin_turn();
    multiply_pv(stage, p);
    end_turn(true);
    end_sums();
    ptx::wgmma_wait<0>(acc_o, p);
    store_o();
  };
  // [step]
  // From tile n_block to the next one, which is in the other stage and has the other P. False: the
  // CTA has no more.
  const auto step = [&](int stage, auto& p, auto& p_next) -> bool {
    if (key > last_key) {  // to the keys before, in the same segment
      key -= kBlockN;
      turn(stage, p);
      const bool raised = softmax(p_next);
      finish_pv(stage, p);
      if (raised) rescale_o();  // all lanes of the warp, or none
      accumulate = true;
    } else {  // to the next segment, whose first S shares a turn with the last PV of this one
      t++;
      if (!begin_segment()) {
        last_turn(stage, p);
        return false;
      }
      end_sums();
      turn(stage, p);
      softmax_first(p_next);
      finish_pv(stage, p);
      store_o();
      accumulate = false;
    }
    return true;
  };
  // [/step]

  // ---- prologue
  if (!begin_segment()) return;                              // there may be fewer units than CTAs
  if (warpgroup_idx == C::kWarpgroups - 1) end_turn(false);  // warpgroup 0 has the first turn
  wait_full(smem.k_full, 0, 0);
  multiply_qk(0);
  ptx::wgmma_wait<0>(acc_s);
  release(smem.k_empty, 0);
  softmax_first(rP[0]);

  // ---- main loop
  // Two steps per pass: registers cannot be indexed, so each step names its P.
  while (step(0, rP[0], rP[1]) && step(1, rP[1], rP[0])) {
  }
}

// ---- host ---------------------------------------------------------------------------------------
template <typename T, int kHeadDim>
struct Launcher {
  static constexpr size_t part_bytes(int consumers) {
    return size_t(consumers) * 4 * (kHeadDim / 8 + 1) * 32 * sizeof(float4);
  }
  static size_t zeroed_bytes() { return size_t(sm_count()) * 2 * 2 * 8 * sizeof(uint32_t); }
  static size_t workspace_bytes(const Problem&, size_t) {
    return zeroed_bytes() + size_t(sm_count()) * 2 * part_bytes(2);
  }

  // How many of the heads that share keys are packed into a tile: a divisor of theirs, with which a
  // sequence has the fewest tiles; of those the greatest.
  static int heads_of_pack(int group, int q_len, int consumers) {
    int best = 1;
    long long fewest = 0;
    for (int pack = 1; pack <= std::min(group, 64); pack++) {
      if (group % pack != 0) continue;
      const int queries = 64 / pack * consumers;
      const long long tiles = (long long)(group / pack) * ((q_len + queries - 1) / queries);
      if (fewest == 0 || tiles <= fewest) {
        best = pack;
        fewest = tiles;
      }
    }
    return best;
  }

  static void run(const Attention<T>& a) {
    const long long rows = (long long)(a.heads / a.kv_heads) * a.seq_len;  // of a head of keys
    rows <= 64 || a.seq_len == 1 ? run_with<1>(a) : run_with<2>(a);
  }
  template <int kConsumers>
  static void run_with(const Attention<T>& a) {
    using C = Config<kHeadDim, kConsumers>;
    // Packed sequences are one behind the other in a head, others have heads of their own.
    const bool packed = a.cu_seqlens_q != nullptr;
    const uint64_t blocks = packed ? 1 : a.batch;
    Shape shape{};
    shape.q_len = a.seq_len;
    shape.kv_len = a.kv_len;
    shape.causal = a.mask == Mask::kCausal;
    shape.scale = a.scale;
    shape.sequences = a.batch;
    shape.heads = a.heads;
    shape.group = a.heads / a.kv_heads;
    shape.pack = heads_of_pack(shape.group, a.seq_len, kConsumers);
    shape.span = 64 / shape.pack;
    const int tile_queries = kConsumers * shape.span;
    shape.row_tiles = (a.seq_len + tile_queries - 1) / tile_queries;
    shape.cu_seqlens_q = a.cu_seqlens_q;
    shape.cu_seqlens_kv = a.cu_seqlens_kv;
    shape.block_table = a.block_table;
    shape.kv_lens = a.kv_lens;
    shape.box_keys = a.block_table ? std::min(a.page_size, kBlockN) : kBlockN;
    if (a.block_table) {
      shape.page_size = a.page_size;
      shape.page_shift = std::countr_zero(unsigned(a.page_size));
      shape.table_pages = a.table_pages;
    }
    shape.q_rows = a.q_rows;
    shape.o_strides = a.o_strides;

    const auto bytes = [](long long elements) { return uint64_t(elements) * sizeof(T); };
    // Boxes of 64 columns of `span` queries of `pack` heads.
    const auto row_map = [&](const T* tensor, const Strides& strides) {
      return make_tensor_map(
          tensor,
          {kHeadDim, uint64_t(shape.pack), uint64_t(a.q_rows), uint64_t(a.heads / shape.pack),
           blocks},
          {bytes(strides.head), bytes(strides.row),
           bytes(strides.head) * (a.heads > shape.pack ? shape.pack : 1), bytes(strides.block)},
          {64, uint32_t(shape.pack), uint32_t(shape.span), 1, 1}, layout::SwizzleMode::k128Bytes);
    };
    // Boxes of 64 columns of the keys of one page, or of a tile.
    const auto key_map = [&](const T* tensor, const Strides& strides) {
      const uint64_t key_rows = a.block_table ? a.page_size : a.kv_rows;
      // The map has as many pages as a table can name, which names none that is not there.
      const uint64_t key_blocks = a.block_table ? INT_MAX : blocks;
      return make_tensor_map(tensor, {kHeadDim, key_rows, uint64_t(a.kv_heads), key_blocks},
                             {bytes(strides.row), bytes(strides.head), bytes(strides.block)},
                             {64, uint32_t(shape.box_keys), 1, 1}, layout::SwizzleMode::k128Bytes);
    };
    Places places{};
    places.arrived = static_cast<uint32_t*>(a.workspace);
    places.parts = reinterpret_cast<float4*>(static_cast<char*>(a.workspace) + zeroed_bytes());
    const long long most_units = (long long)(a.batch) * shape.row_tiles * (a.heads / shape.pack) *
                                 std::max(1, (a.kv_len + kBlockN - 1) / kBlockN);
    launch<attention_kernel<T, kHeadDim, kConsumers>>(
        {dim3(unsigned(std::min<long long>(most_units, sm_count()))), dim3(C::kThreads),
         sizeof(SharedStorage<T, C>)},
        row_map(a.q, a.q_strides), key_map(a.k, a.k_strides), key_map(a.v, a.v_strides),
        row_map(a.o, a.o_strides), shape, a.o, a.lse, places);
  }
};

const Registration<Launcher> registration{"beyond/share_tiles", Needs{90, true}, Traits::kAsync,
                                          Takes{.causal = true,
                                                .any_length = true,
                                                .kv_heads = true,
                                                .packed = true,
                                                .lse = true,
                                                .paged = true,
                                                .strides = true}};

}  // namespace fa::share_tiles
