// beyond/causal: causal masks and windows, caps of scores, ALiBi and sinks, any lengths, fewer
// heads of keys and packed sequences, fast.
//
// Idea         A query tile takes its key tiles from the last one to the first. Its mask is then in
//              the tile that it begins with, where the query tile's reference is found, too. The
//              CTAs take query tiles from a counter: long ones first, of a few heads at a time.
// Bottleneck   Removed: 16 computes both halves of a causal score matrix, and a fixed share of
//              query tiles of different length would leave most SMs idle at the end.
// Changed      From 16: step() goes from any key tile to the next one, also into the next query
//              tile; QueryTiles orders them; a store ends with its sequence also where sequences
//              are packed. A second output, log-sum-exp, to merge parts of keys.
// Run          cmake --build --preset emulator --target beyond &&
//              build/emulator/bin/beyond causal --mask causal --lengths 300,0,17 --kv-heads 1
#include <algorithm>
#include <cfloat>
#include <type_traits>

#include "common/launch/launch.h"
#include "common/launch/quad.h"
#include "common/launch/registry.h"
#include "common/launch/scores.h"
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
#include "common/ptx/wgmma_96.h"  // IWYU pragma: keep

namespace fa::causal {

constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f;

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

// Three consumers read K and V less often than two; two waste less where a query tile ends.
template <int kHeadDim, int kConsumers>
struct Config {
  static constexpr int kWarpgroups = kConsumers;    // consumers, 64 query rows each
  static constexpr int kBlockM = kWarpgroups * 64;  // query rows per CTA
  static constexpr bool kWide = kHeadDim == 256;
  // Keys per tile. O of 256 columns has 128 of a lane's 232 registers. With 80 keys S has 40 and P
  // 20, and K, V and one Q have 224 of 227 KB. For 16 columns QK^T of n keys reads 64 rows of Q and
  // n of K, (64 + n) / 4 cycles, and multiplies n / 2: with 64 keys both are equally long.
  static constexpr int kBlockN = kWide ? 80 : 128;
  static constexpr int kThreads = (kWarpgroups + 1) * 128;  // the last warpgroup is the producer
  static constexpr int kStages = 2;                         // tiles of K and of V in shared memory
  static constexpr int kSlabs = (kHeadDim + 63) / 64;       // slabs per tile
  // Buffers of Q, and later O. With two, the next Q would wait until the last O is stored, too long
  // for a query tile of one key tile.
  // With head_dim 256 there is room for one: O does not pass through it, and the next Q comes as
  // soon as the last QK^T of the query tile is over.
  static constexpr int kBuffers = kWide ? 1 : 3;
  // Query tiles in shared memory. When tile t + 1 is written, tile t - 2 has begun, for which O of
  // tile t - 5 had to leave its buffer: seven places would do.
  static constexpr int kQueryTiles = 8;
  // A launch gives all threads equally many registers; the producer returns what consumers need.
  static constexpr int kLaunchRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kProducerRegisters = kWarpgroups == 3 ? 32 : 40;
  static constexpr int kConsumerRegisters = kWarpgroups == 3 ? 160 : 232;
  static_assert(kWarpgroups * (kConsumerRegisters - kLaunchRegisters) <=
                    kLaunchRegisters - kProducerRegisters,
                "otherwise a consumer would wait for registers without end");
  // A consumer's softmax runs under its own PV. That of one of three runs under the others'
  // products, and with head_dim 256 that of one of two, because the other's are long enough.
  static constexpr bool kOverlap = kWarpgroups == 2 && !kWide;
  // Warpgroup g has barriers kQRead + g (its warps have read Q) and kTurn + g. 0 is __syncthreads'.
  enum NamedBarrier : int { kQRead = 1, kTurn = kQRead + kWarpgroups };
};

// What a launch computes. Heads of Q are counted over the whole batch, or with kStrided in each
// sequence.
struct Shape {
  int q_len, kv_len;
  bool causal;  // or a window
  uint32_t heads;
  uint32_t group;    // neighbouring heads that share one head of K and V
  uint32_t section;  // neighbouring heads whose query tiles are ordered together, by length
  float scale;
  // Packed sequences: the row at which each one begins.
  const int* cu_seqlens_q;
  const int* cu_seqlens_kv;
  uint32_t sequences;  // packed ones or with kStrided all; else 1, since heads count them all
  uint32_t q_rows;     // of a head of Q and O
  Strides o_strides;
};

// A query tile without rows says that there is none left.
struct QueryTile {
  int block;      // with kStrided the sequence of its head; 0 for packed ones
  int head, row;  // its first row in its head of Q
  int rows;       // from there to the end of its sequence
  int key_row;    // the sequence's first key in its head of K
  int kv_len;
  int diagonal;   // row i of the tile sees the keys below min(kv_len, i + diagonal)
  int key_tiles;  // none if it is blind: no row sees a key
};
struct TileOfScores : QueryTile {
  float sink;   // -inf: none
  float slope;  // what a score becomes less by per key of distance, before it is scaled
};
template <typename Scores>
using TileOf = std::conditional_t<Scores::kWindow, TileOfScores, QueryTile>;

// [order]
// Numbers query tiles, blind ones and others apart. Section after section of heads, of packed
// sequences one after the other: first the last query tiles of all heads, which see most keys, and
// the first ones, the shortest, at the end.
template <int kBlockM, int kBlockN, typename Scores>
class QueryTiles {
 public:
  using Tile = TileOf<Scores>;
  __device__ QueryTiles(const Shape& shape, const Scores& scores, bool blind)
      : shape_(shape), scores_(scores), blind_(blind) {}

  // The query tile of this number, which is larger than the one asked for before.
  __device__ Tile operator[](uint32_t number) {
    Tile tile{};
    while (sequence_ < shape_.sequences && first_head_ < shape_.heads) {
      int q_begin = 0, q_len = shape_.q_len;
      tile.kv_len = shape_.kv_len;
      if (shape_.cu_seqlens_q) {
        q_begin = shape_.cu_seqlens_q[sequence_];
        q_len = shape_.cu_seqlens_q[sequence_ + 1] - q_begin;
        tile.key_row = shape_.cu_seqlens_kv[sequence_];
        tile.kv_len = shape_.cu_seqlens_kv[sequence_ + 1] - tile.key_row;
      }
      // Rows before the first one that sees a key. Blind query tiles have no others.
      const int offset = shape_.causal ? tile.kv_len - q_len + scores_.right : 0;
      const int blind_rows = tile.kv_len > 0 ? max(0, -offset) : q_len;
      const uint32_t m_blocks = (q_len + kBlockM - 1) / kBlockM;
      const uint32_t blind_blocks = blind_rows < q_len ? blind_rows / kBlockM : m_blocks;
      const uint32_t heads = min(shape_.section, shape_.heads - first_head_);
      const uint32_t tiles = heads * (blind_ ? blind_blocks : m_blocks - blind_blocks);
      const uint32_t i = number - section_begin_;
      if (i < tiles) {
        const int row = ((blind_ ? blind_blocks : m_blocks) - 1 - i / heads) * kBlockM;
        tile.block = shape_.cu_seqlens_q ? 0 : sequence_;
        tile.head = first_head_ + i % heads;
        tile.row = q_begin + row;
        tile.rows = q_len - row;
        tile.diagonal = shape_.causal ? row + 1 + offset : tile.kv_len;
        const int keys = min(tile.kv_len, tile.diagonal + kBlockM - 1);
        tile.key_tiles = blind_ ? 0 : (keys + kBlockN - 1) / kBlockN;
        if constexpr (Scores::kWindow) find_scores(tile);
        return tile;
      }
      if (shape_.sequences > 1) {
        section_begin_ += tiles;
        first_head_ += heads;
        if (first_head_ == shape_.heads) {
          first_head_ = 0;
          sequence_++;
        }
      } else if (tiles == 0) {
        break;  // in no section
      } else {  // all but the last are equal: one division, because the next load waits for it
        section_begin_ += i / tiles * tiles;
        first_head_ += i / tiles * heads;
      }
    }
    return {};
  }

 private:
  __device__ void find_scores(Tile& tile) const {
    const uint32_t head = tile.head % scores_.heads;
    tile.sink = scores_.sinks ? scores_.sinks[head] : -INFINITY;
    if constexpr (Scores::kChanges) {
      // Heads are counted over all sequences, or sequences are.
      const uint32_t sequence = sequence_ + tile.head / scores_.heads;
      const float* const slopes = scores_.alibi_slopes;
      tile.slope = slopes ? slopes[sequence * scores_.alibi_stride + head] / shape_.scale : 0.0f;
    }
  }

  const Shape& shape_;
  const Scores& scores_;
  const bool blind_;
  uint32_t section_begin_ = 0;  // the section's first number, its first head or its sequence
  uint32_t first_head_ = 0, sequence_ = 0;
};
// [/order]

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
template <typename T, typename C, typename Scores>
struct SharedStorage {
  // The swizzle depends on the address and repeats every 1024 bytes (8 rows), hence the alignment.
  // sQ[t % kBuffers] holds Q of query tile t and later its O.
  alignas(1024) T sQ[C::kBuffers][C::kWarpgroups][C::kSlabs][64][64];
  alignas(1024) T sK[C::kStages][C::kSlabs][C::kBlockN][64];
  alignas(1024) T sV[C::kStages][C::kSlabs][C::kBlockN][64];
  // full expects the producer's arrival and the tile's bytes; empty expects one per consumer warp.
  uint64_t k_full[C::kStages], k_empty[C::kStages], v_full[C::kStages], v_empty[C::kStages];
  // [t % kBuffers] belongs to query tile t. o_full expects one arrival per warp of the consumer: O
  // is there, or where it has no place, Q is no longer read.
  uint64_t q_full[C::kBuffers][C::kWarpgroups], o_full[C::kBuffers][C::kWarpgroups];
  // [t % kQueryTiles] is query tile t of this CTA. full expects the thread that has written it.
  TileOf<Scores> query_tile[C::kQueryTiles];
  uint64_t query_tile_full[C::kQueryTiles];
};

// In workspace, and 0 between launches.
struct Counters {
  uint32_t taken, taken_blind;  // query tiles
  uint32_t done;                // warps that will take none any more
};

// kStrided: the rows of the tensors lie anywhere. Tensor maps then have a fourth dimension, blocks.
// spills: Li128ELi2ELb0ENS_13ChangedScores 48 bytes: what a query tile begins with
// spills: Li128ELi2ELb1ENS_13ChangedScores 24 bytes: the same
template <typename T, int kHeadDim, int kConsumers, bool kStrided, typename Scores>
__global__ void __launch_bounds__(Config<kHeadDim, kConsumers>::kThreads, 1)
    attention_kernel(const __grid_constant__ ptx::TensorMap map_q,
                     const __grid_constant__ ptx::TensorMap map_k,
                     const __grid_constant__ ptx::TensorMap map_v,
                     const __grid_constant__ ptx::TensorMap map_o,
                     const __grid_constant__ Shape shape, T* gO, float* gLse, Counters* counters,
                     const __grid_constant__ Scores scores) {
  using C = Config<kHeadDim, kConsumers>;
  // What the boxes of a tile bring: zeros for columns that a slab has and the tensor has not.
  constexpr int kTileBytes = C::kSlabs * C::kBlockN * 128;
  auto& smem = shared_storage<SharedStorage<T, C, Scores>>();
  using Tile = TileOf<Scores>;

  // ---- indices
  // The value is the same in all lanes, and the shuffle tells the compiler so.
  const int warpgroup_idx = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int warp_idx = threadIdx.x / 32 % 4;  // within the warpgroup
  const int lane_idx = threadIdx.x % 32;

  // ---- pointers
  // The descriptors name the first 16 columns of tile 0 of K, and the first 16 keys of V.
  const uint64_t desc_k = layout::k_major_descriptor(ptx::shared_address(smem.sK));
  const uint64_t desc_v = layout::mn_major_descriptor(ptx::shared_address(smem.sV), C::kBlockN);

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
      ptx::mbarrier_init(&smem.k_empty[stage], C::kWarpgroups * 4);
      ptx::mbarrier_init(&smem.v_empty[stage], C::kWarpgroups * 4);
    }
    for (uint64_t& full : smem.query_tile_full) ptx::mbarrier_init(&full, 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();  // all threads wait until the barriers are initialised, so each may use them

  // Returns which row of O, counted as in a contiguous one, is the first of a query tile, and where
  // row i of the tile begins in O.
  const auto first_row = [&](const QueryTile& tile) {
    const size_t head = kStrided ? size_t(tile.block) * shape.heads + tile.head : tile.head;
    return head * shape.q_rows + tile.row;
  };
  const auto gO_row = [&](const QueryTile& tile, int i) {
    if constexpr (kStrided) {
      return gO + shape.o_strides.at(tile.block, tile.head, tile.row + i);
    } else {
      return gO + (first_row(tile) + i) * kHeadDim;
    }
  };
  const long long row_stride = kStrided ? shape.o_strides.row : kHeadDim;
  // Loads a box of 64 columns from one of the tensor maps.
  const auto load_box = [&](void* to, const ptx::TensorMap& map, int column, int row, int head,
                            int block, uint64_t* full) {
    if constexpr (kStrided) {
      ptx::cp_async_bulk_tensor_load(to, &map, {column, row, head, block}, full);
    } else {
      ptx::cp_async_bulk_tensor_load(to, &map, {column, row, head}, full);
    }
  };
  // The producer loads tile n_block of K or V, the keys from `key` on, once all warps released the
  // stage. Keys past the end of their head are read as zeros.
  const auto load_tile = [&](const ptx::TensorMap& map, T(*tiles_of)[C::kSlabs][C::kBlockN][64],
                             uint64_t* full, uint64_t* empty, uint32_t n_block, int key, int head,
                             int block) {
    const uint32_t stage = n_block % C::kStages;
    ptx::mbarrier_wait(&empty[stage], (n_block / C::kStages + 1) % 2);
    ptx::mbarrier_arrive_expect_tx(&full[stage], kTileBytes);
#pragma unroll
    for (int slab = 0; slab < C::kSlabs; slab++) {
      load_box(tiles_of[stage][slab], map, slab * 64, key, head, block, &full[stage]);
    }
  };

  // ---- producer
  if (warpgroup_idx == C::kWarpgroups) {
    ptx::setmaxnreg_dec<C::kProducerRegisters>();
    // One thread takes query tiles and loads group after group: tile n_block of K and tile
    // n_block - 1 of V.
    if (warp_idx == 0 && ptx::elect_sync()) {
      uint32_t n_block = 0;
      int v_key = 0, v_head = 0, v_block = 0;
      const auto load_v = [&] {
        load_tile(map_v, smem.sV, smem.v_full, smem.v_empty, n_block - 1, v_key, v_head, v_block);
      };
      QueryTiles<C::kBlockM, C::kBlockN, Scores> query_tiles(shape, scores, false);
      const auto begin = [&](uint32_t t, uint32_t number) {
        const Tile tile = query_tiles[number];
        smem.query_tile[t % C::kQueryTiles] = tile;
        ptx::mbarrier_arrive(&smem.query_tile_full[t % C::kQueryTiles]);
        return tile;
      };
      Tile tile = begin(0, blockIdx.x);
      for (uint32_t t = 0; tile.rows > 0; t++) {
        // Answered while the first key tile is loaded.
        const uint32_t taken = atomicAdd(&counters->taken, 1);
        const int last = tile.key_tiles - 1, head = tile.head / shape.group;
        int first = 0;  // the tiles before it are left of the window of every row
        if constexpr (Scores::kWindow) first = max(0, tile.diagonal - scores.width) / C::kBlockN;
        const int key_row = tile.key_row;
        const int block = tile.block;
        const auto load_group = [&](int n) {
          const int key = key_row + n * C::kBlockN;
          load_tile(map_k, smem.sK, smem.k_full, smem.k_empty, n_block, key, head, block);
          if (n_block > 0) load_v();
          v_key = key;
          v_head = head;
          v_block = block;
          n_block++;
        };
        load_group(last);
        tile = begin(t + 1, gridDim.x + taken);  // so early that its Q is loaded in time
        for (int n = last - 1; n >= first; n--) load_group(n);
      }
      if (n_block > 0) load_v();
    }
    // One thread per consumer stores O from the buffer of query tile t and then loads its Q there.
    if (warp_idx > 0 && warp_idx <= C::kWarpgroups && ptx::elect_sync()) {
      const int consumer = warp_idx - 1;
      uint32_t its_tiles = ~0u - C::kBuffers;  // as long as their number is not known
      for (uint32_t t = 0; t < its_tiles + C::kBuffers; t++) {
        const uint32_t buffer = t % C::kBuffers, use = t / C::kBuffers;
        T(*const sQ)[64][64] = smem.sQ[buffer][consumer];  // [kSlabs][64][64]
        if (use > 0) {
          ptx::mbarrier_wait(&smem.o_full[buffer][consumer], (use - 1) % 2);
          const Tile tile = smem.query_tile[(t - C::kBuffers) % C::kQueryTiles];
          // Rows past the head's end stay unwritten. Where another sequence follows, the consumer
          // has written O itself.
          const bool whole = !C::kWide && (!shape.cu_seqlens_q || tile.rows - consumer * 64 >= 64);
          for (int slab = 0; slab < C::kSlabs && whole; slab++) {
            const int row = tile.row + consumer * 64;
            if constexpr (kStrided) {
              ptx::cp_async_bulk_tensor_store(&map_o, {slab * 64, row, tile.head, tile.block},
                                              sQ[slab]);
            } else {
              ptx::cp_async_bulk_tensor_store(&map_o, {slab * 64, row, tile.head}, sQ[slab]);
            }
          }
          ptx::cp_async_bulk_commit();
          ptx::cp_async_bulk_wait_read<0>();  // only then the next Q may come, or the CTA end
        }
        if (t < its_tiles) {
          ptx::mbarrier_wait(&smem.query_tile_full[t % C::kQueryTiles], t / C::kQueryTiles % 2);
          const Tile tile = smem.query_tile[t % C::kQueryTiles];
          uint64_t* const full = &smem.q_full[buffer][consumer];
          if (tile.rows > 0) {
            ptx::mbarrier_arrive_expect_tx(full, C::kSlabs * 64 * 128);
            for (int slab = 0; slab < C::kSlabs; slab++) {
              load_box(sQ[slab], map_q, slab * 64, tile.row + consumer * 64, tile.head, tile.block,
                       full);
            }
          } else {  // there is no Q, but the consumer, too, must see that no tile is left
            its_tiles = t;
            ptx::mbarrier_arrive(full);
          }
        }
      }
    }
    __syncwarp();
    if (warp_idx > 0 && warp_idx <= C::kWarpgroups) return;
    // [blind]
    // The other warps take blind query tiles and write their O, which is zeros: warp 0 after its
    // last load, and with two consumers warp 3, which does nothing else.
    QueryTiles<C::kBlockM, C::kBlockN, Scores> blind_tiles(shape, scores, true);
    for (;;) {
      const uint32_t taken = lane_idx == 0 ? atomicAdd(&counters->taken_blind, 1) : 0;
      const Tile tile = blind_tiles[__shfl_sync(0xffffffffu, taken, 0)];
      if (tile.rows == 0) break;
      const int rows = min(tile.rows, C::kBlockM);
      // A chunk of 16 bytes for each lane, in whole rows; those behind the last row have none.
      constexpr int kChunks = kHeadDim / 8, kRows = 32 / kChunks;
      const int lane_row = lane_idx / kChunks;
      T* const gO_lane = gO_row(tile, lane_row) + lane_idx % kChunks * 8;
      for (int i = 0; lane_row < kRows && i < rows - lane_row; i += kRows) {
        *reinterpret_cast<uint4*>(gO_lane + i * row_stride) = uint4{};
      }
      float lse = -INFINITY;
      if constexpr (Scores::kWindow) lse = tile.sink;
      for (int i = lane_idx; gLse && i < rows; i += 32) gLse[first_row(tile) + i] = lse;
    }
    // [/blind]
    // [last]
    // The last of these warps of all CTAs sets the counters back, for the next launch.
    __threadfence();  // this warp takes nothing after ...
    const uint32_t others = (4 - C::kWarpgroups) * gridDim.x - 1;
    if (lane_idx == 0 && atomicInc(&counters->done, others) == others) {  // ... it has said so
      __threadfence();
      counters->taken = 0;
      counters->taken_blind = 0;
    }
    return;
    // [/last]
  }
  ptx::setmaxnreg_inc<C::kConsumerRegisters>();

  // ---- registers
  float acc_s[C::kBlockN / 2];
  float acc_o[kHeadDim / 2];
  // P of two tiles in turn: with kOverlap one array is read while the other one is written.
  uint32_t rP[C::kOverlap ? 2 : 1][C::kBlockN / 16][4];
  // Each lane keeps statistics for two rows of its warpgroup: 16 * warp_idx + lane_idx / 4, and
  // that row + 8. row_ref (in log2) is subtracted from scores; row_sum is the lane's share.
  float row_ref[2], row_sum[2], rescale[2], inverse_sum[2];
  const float scale_log2 = shape.scale * kLog2e;
  uint32_t t = 0;                                      // counts this CTA's query tiles
  uint32_t n_block = 0;                                // counts key tiles over all its query tiles
  uint64_t desc_q;                                     // Q of the query tile under way
  const int row = warpgroup_idx * 64 + warp_idx * 16;  // the warp's first row in the query tile
  int kv_len, diagonal;                                // of the query tile under way
  int key;                                             // the first key of the key tile under way
  float slope = 0.0f;                                  // with ALiBi, of the query tile under way
  bool accumulate = false;                             // O of the query tile has begun
  bool exact = false;  // the next tile's maxima are taken first, because a reference rose far

  // The number of keys that row i of the query tile sees. Negative: not even the first one.
  const auto visible_keys = [&](int i) { return min(kv_len, i + diagonal); };
  // The first key that row i of the query tile sees. Negative: the first one of all.
  const auto first_visible = [&](int i) {
    if constexpr (Scores::kWindow) return i + diagonal - scores.width;
    return 0;
  };
  // Whether no row of the warp has its window's left edge in the key tile under way or behind it.
  const auto left_is_seen = [&] { return !Scores::kWindow || first_visible(row + 15) <= key; };
  // No row of the query tile sees a key before this one.
  const auto leftmost = [&] { return max(0, first_visible(0)); };
  // Every warp calls it before it reads tile n, to wait for phase n / kStages of its full barrier.
  const auto wait_full = [&](uint64_t* full, int stage, uint32_t n) {
    ptx::mbarrier_wait(&full[stage], n / C::kStages % 2);
  };
  // Every warp calls it when it has finished reading a stage, so it may be refilled. No wait.
  const auto release = [&](uint64_t* empty, int stage) {
    if (lane_idx == 0) ptx::mbarrier_arrive(&empty[stage]);
  };

  // Every warp calls it when S of a key tile is there. After the query tile's last one Q may be
  // overwritten, which this says where no O does.
  const auto release_q = [&] {
    if constexpr (C::kWide) {
      if (key <= leftmost()) release(&smem.o_full[0][0], warpgroup_idx);
    }
  };

  // Starts S = QK^T. After the fence acc_s belongs to the Tensor Cores until wgmma_wait returns it.
  const auto multiply_qk = [&](int stage) {
    uint64_t q = desc_q, k = layout::advance(desc_k, stage * kTileBytes);
    if constexpr (C::kWide) {
      // Hides the addresses in both, because the compiler would keep the descriptors of all steps.
      uint32_t starts[2] = {uint32_t(q), uint32_t(k)};
      ptx::wgmma_fence(acc_s, starts);
      q = q >> 32 << 32 | starts[0];
      k = k >> 32 << 32 | starts[1];
    } else {
      ptx::wgmma_fence(acc_s);
    }
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; d++) {
      ptx::wgmma<T, C::kBlockN, layout::Major::kK>(
          acc_s, layout::advance(q, layout::k_major_step(64, d)),
          layout::advance(k, layout::k_major_step(C::kBlockN, d)), d > 0);
    }
    ptx::wgmma_commit();
  };
  // Starts O += PV, or O = PV. P and acc_o belong to the Tensor Cores until wgmma_wait, too.
  const auto multiply_pv = [&](int stage, const auto& p) {
    const uint64_t desc = layout::advance(desc_v, stage * kTileBytes);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < C::kBlockN / 16; i++) {  // 16 keys each
      ptx::wgmma<T, kHeadDim, layout::Major::kMN>(
          acc_o, p[i], layout::advance(desc, layout::mn_major_step(i)), i > 0 || accumulate);
    }
    ptx::wgmma_commit();
  };

  // [exponentials]
  // Computes P = 2^exponent as A operand (8 + 8 columns per fragment) and its sums.
  // exponent(i, ref) is element i's: its score in units of log2 e, less the row's reference.
  const auto exponentials_of = [&](auto& p, float(&sum)[2], const auto& exponent) {
    float part[4] = {};  // sums of even and odd columns of both rows
#pragma unroll
    for (int i = 0; i < C::kBlockN / 4; i++) {
      float low_high[2];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        low_high[j] = ptx::exp2_approx(exponent(2 * i + j, row_ref[i % 2]));
        part[i % 2 * 2 + j] += low_high[j];
      }
      p[i / 4][i % 4] = ptx::pack<T>(low_high[0], low_high[1]);
    }
    sum[0] = part[0] + part[1];
    sum[1] = part[2] + part[3];
  };
  // score(i) is element i of S, or -inf.
  const auto exponentials = [&](auto& p, float(&sum)[2], const auto& score) {
    exponentials_of(p, sum, [&](int i, float ref) { return fmaf(score(i), scale_log2, -ref); });
  };
  // [/exponentials]
  // [mask]
  // The scores of the tile under way, -inf where the row does not see the key.
  const auto visible_scores = [&] {
    const int its_row = row + lane_idx / 4, its_key = key + lane_idx % 4 * 2;
    const int end0 = visible_keys(its_row) - its_key;  // the first column not seen
    const int end1 = visible_keys(its_row + 8) - its_key;
    return [&acc_s, end0, end1](int i) {  // i % 4: two columns of the first row, two of the other
      return i / 4 * 8 + i % 2 < (i / 2 % 2 == 0 ? end0 : end1) ? acc_s[i] : -INFINITY;
    };
  };
  // [/mask]
  // [window]
  // The same, but also -inf where the key is left of the row's window.
  const auto scores_in_window = [&] {
    if constexpr (Scores::kWindow) {
      const int its_row = row + lane_idx / 4, its_key = key + lane_idx % 4 * 2;
      const int begin = first_visible(its_row) - its_key;  // the other row's is 8 further
      const int end0 = visible_keys(its_row) - its_key, end1 = visible_keys(its_row + 8) - its_key;
      return [&acc_s, begin, end0, end1](int i) {
        const int column = i / 4 * 8 + i % 2, of_row = i / 2 % 2;
        const bool seen = column >= begin + of_row * 8 && column < (of_row == 0 ? end0 : end1);
        return seen ? acc_s[i] : -INFINITY;
      };
    } else {
      return visible_scores();
    }
  };
  // [/window]
  // [changes]
  // Every warp calls it when S is there: first the softcap, then ALiBi. Neither knows of the mask.
  const auto change_scores = [&] {
    if constexpr (Scores::kChanges) {
      if (scores.into_tanh > 0.0f) {  // leaves c to scale_log2
        float most = 0.0f;
#pragma unroll
        for (int i = 0; i < C::kBlockN / 2; i++) {
          acc_s[i] *= scores.into_tanh;
          most = fmaxf(most, fabsf(acc_s[i]));
        }
        if (__all_sync(0xffffffffu, most <= kTanhSmall)) {
#pragma unroll
          for (int i = 0; i < C::kBlockN / 2; i++) acc_s[i] = tanh_small(acc_s[i]);
        } else {
#pragma unroll
          for (int i = 0; i < C::kBlockN / 2; i++) acc_s[i] = tanh_any(acc_s[i]);
        }
      }
      if (slope != 0.0f) {
        // From the row's place to column 0 of the tile; the other row's is 8 further.
        const int place = row + lane_idx / 4 + diagonal - 1 - scores.right;
        const float to_key = float(place - key - lane_idx % 4 * 2);
#pragma unroll
        for (int i = 0; i < C::kBlockN / 2; i++) {
          const float distance = to_key + float(i / 2 % 2 * 8 - i / 4 * 8 - i % 2);
          acc_s[i] = fmaf(-slope, fabsf(distance), acc_s[i]);
        }
      }
    }
  };
  // [/changes]
  // [exact]
  // Computes P and row_sum of any tile. The reference becomes what each row's maximum so far needs.
  const auto softmax_exact = [&](auto& p, const auto& score) {
    float most[4] = {score(0), score(1), score(2), score(3)};  // four independent chains
#pragma unroll
    for (int i = 4; i < C::kBlockN / 2; i++) most[i % 4] = fmaxf(most[i % 4], score(i));
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
  // [tiny]
  // Computes P and row_sum without change_scores(), if scores.tiny will do for the whole warp and
  // no row needs a mask or another reference. Otherwise it returns false, and P has no meaning.
  const auto softmax_of_tiny = [&](auto& p) -> bool {
    if constexpr (Scores::kChanges) {
      const bool all_seen = key + C::kBlockN < visible_keys(row) && left_is_seen();
      if (scores.tiny.most < 0.0f || exact || !__all_sync(0xffffffffu, all_seen)) return false;
      float most = 0.0f;
#pragma unroll
      for (int i = 0; i < C::kBlockN / 2; i++) most = fmaxf(most, fabsf(acc_s[i]));
      if (!__all_sync(0xffffffffu, most <= scores.tiny.most)) return false;
      float sum[2];
      exponentials_of(p, sum, [&](int i, float ref) { return scores.tiny.minus(acc_s[i], ref); });
      if (!__all_sync(0xffffffffu, sum[0] + sum[1] <= kMaxTileSum<T>)) return false;
      row_sum[0] += sum[0];
      row_sum[1] += sum[1];
      return true;
    }
    return false;
  };
  // [/tiny]
  // [softmax]
  // Does the same for a query tile's first key tile. References rise from the row's first score: by
  // how much says how far scores spread, and so whether the next tile's maxima are taken first.
  const auto softmax_first = [&](auto& p) {
    change_scores();
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float first = __shfl_sync(0xffffffffu, acc_s[2 * h], 0, 4) * scale_log2;
      // Finite, so a row that sees no key, or scores of -inf alone, has P = 2^-inf = 0.
      row_ref[h] = key < visible_keys(row) && left_is_seen() ? fmaxf(first, -FLT_MAX) : -FLT_MAX;
      row_sum[h] = 0.0f;
    }
    softmax_exact(p, scores_in_window());
  };
  // Does the same for any other tile. Returns whether O must be rescaled.
  const auto softmax = [&](auto& p) -> bool {
    if (softmax_of_tiny(p)) return false;
    change_scores();
    const auto score = [&](int i) { return acc_s[i]; };
    // A row whose last key is in this tile or further left may have no reference yet.
    const bool all_seen =
        __all_sync(0xffffffffu, key + C::kBlockN < visible_keys(row) && left_is_seen());
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
        softmax_exact(p, scores_in_window());
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

  // Waits for Q of query tile t and begins with its last key tile. False: no query tile is left.
  const auto begin_query_tile = [&] {
    const uint32_t buffer = t % C::kBuffers;
    ptx::mbarrier_wait(&smem.q_full[buffer][warpgroup_idx], t / C::kBuffers % 2);
    const Tile& tile = smem.query_tile[t % C::kQueryTiles];
    const int rows = __shfl_sync(0xffffffffu, tile.rows, 0);
    key = (__shfl_sync(0xffffffffu, tile.key_tiles, 0) - 1) * C::kBlockN;
    kv_len = __shfl_sync(0xffffffffu, tile.kv_len, 0);
    diagonal = __shfl_sync(0xffffffffu, tile.diagonal, 0);
    if constexpr (Scores::kChanges) slope = __shfl_sync(0xffffffffu, tile.slope, 0);
    desc_q = layout::k_major_descriptor(ptx::shared_address(smem.sQ[buffer][warpgroup_idx]));
    return rows > 0;
  };
  // [sums]
  // Ends the row sums of query tile t - 1. Rows that see no key become zeros; their log-sum-exp is
  // that of nothing, -inf.
  const auto end_sums = [&] {
    float sum[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      sum[h] = layout::quad_sum(row_sum[h]);
      float rescale_of_o = 1.0f;
      if constexpr (Scores::kWindow) {
        const float sink = smem.query_tile[(t - 1) % C::kQueryTiles].sink;
        rescale_of_o = add_sink(sink, row_ref[h], sum[h]);
      }
      inverse_sum[h] = sum[h] > 0.0f ? ptx::rcp_approx(sum[h]) * rescale_of_o : 0.0f;
    }
    if (gLse && lane_idx % 4 == 0) {
      const Tile& tile = smem.query_tile[(t - 1) % C::kQueryTiles];
      const int i = row + lane_idx / 4;
      float* const gLse_lane = gLse + first_row(tile) + i;
      if (i < tile.rows) gLse_lane[0] = (row_ref[0] + ptx::log2_approx(sum[0])) * kLn2;
      if (i + 8 < tile.rows) gLse_lane[8] = (row_ref[1] + ptx::log2_approx(sum[1])) * kLn2;
    }
  };
  // [/sums]
  // Stores O of a query tile from registers. A quad has two rows: of each, its lanes exchange what
  // they have of 32 columns, so that each has eight columns, 16 bytes, in one piece.
  const auto store_rows = [&](const Tile& tile, const auto& columns) {
    T* const gO_lane = gO_row(tile, row + lane_idx / 4) + lane_idx % 4 * 8;
#pragma unroll
    for (int n = 0; n < kHeadDim / 16; n += 2) {
      uint32_t rO[2][4];
      columns(n, rO[0]);
      columns(n + 1, rO[1]);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        uint32_t pieces[4] = {rO[0][i], rO[0][i + 2], rO[1][i], rO[1][i + 2]};
        layout::quad_transpose(pieces);
        if (row + lane_idx / 4 + i * 8 < tile.rows) {
          *reinterpret_cast<uint4*>(gO_lane + i * 8 * row_stride + n * 16) =
              uint4{pieces[0], pieces[1], pieces[2], pieces[3]};
        }
      }
    }
  };
  // Stages O of query tile t - 1 in this warp's rows of sQ, after a barrier: every warp of the
  // warpgroup has read Q.
  const auto store_o = [&] {
    const uint32_t buffer = (t - 1) % C::kBuffers;
    if constexpr (!C::kWide) ptx::barrier_sync(C::kQRead + warpgroup_idx, 128);
    T(*const sO)[64][64] = smem.sQ[buffer][warpgroup_idx];  // [kSlabs][64][64]
    const Tile& tile = smem.query_tile[(t - 1) % C::kQueryTiles];
    const auto columns = [&](int n, uint32_t(&rO)[4]) {  // 16 columns of O, two rows
#pragma unroll
      for (int i = 0; i < 4; i++) {
        rO[i] = ptx::pack<T>(acc_o[8 * n + 2 * i] * inverse_sum[i % 2],
                             acc_o[8 * n + 2 * i + 1] * inverse_sum[i % 2]);
      }
    };
    if constexpr (C::kWide) {
      store_rows(tile, columns);
      return;
    }
    if (!shape.cu_seqlens_q || tile.rows - warpgroup_idx * 64 >= 64) {
#pragma unroll
      for (int n = 0; n < kHeadDim / 16; n++) {
        uint32_t rO[4];
        columns(n, rO);
        ptx::stmatrix_x4(rO, layout::chunk_address(sO, warp_idx * 16 + lane_idx % 16,
                                                   n * 16 + lane_idx / 16 * 8));
      }
    } else {  // the sequence ends within these 64 rows
      T* const gO_lane = gO_row(tile, row + lane_idx / 4) + lane_idx % 4 * 2;
#pragma unroll
      for (int n = 0; n < kHeadDim / 16; n++) {
        uint32_t rO[4];
        columns(n, rO);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          if (row + lane_idx / 4 + i % 2 * 8 < tile.rows) {
            *reinterpret_cast<uint32_t*>(gO_lane + i % 2 * 8 * row_stride + n * 16 + i / 2 * 8) =
                rO[i];
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
  const auto begin_turn = [&] { ptx::barrier_sync(C::kTurn + warpgroup_idx, 256); };
  const auto end_turn = [&](bool last) {
    const int next = warpgroup_idx + 1 < C::kWarpgroups ? warpgroup_idx + 1 : 0;
    // No warpgroup waits after the very last turn.
    if (!last || next > 0) ptx::barrier_arrive(C::kTurn + next, 256);
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
    ptx::wgmma_wait<C::kOverlap ? 1 : 0>(acc_s);
    release(smem.k_empty, 1 - stage);
    release_q();
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
    if (key > leftmost()) {  // to the keys before, in the same query tile
      key -= C::kBlockN;
      turn(stage, p);
      const bool raised = softmax(p_next);
      finish_pv(stage, p);
      if (raised) rescale_o();  // all lanes of the warp, or none
      accumulate = true;
    } else {  // to the next query tile, whose first S shares a turn with the last PV of this one
      t++;
      if (!begin_query_tile()) {
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
  if (!begin_query_tile()) return;  // there may be fewer query tiles than CTAs
  if (warpgroup_idx == C::kWarpgroups - 1) end_turn(false);  // warpgroup 0 has the first turn
  wait_full(smem.k_full, 0, 0);
  multiply_qk(0);
  ptx::wgmma_wait<0>(acc_s);
  release(smem.k_empty, 0);
  release_q();
  auto& even = rP[0];
  auto& odd = rP[C::kOverlap ? 1 : 0];
  softmax_first(even);

  // ---- main loop
  // Two steps per pass: registers cannot be indexed, so each step names its P.
  while (step(0, even, odd) && step(1, odd, even)) {
  }
}

// ---- host ---------------------------------------------------------------------------------------
template <typename T, int kHeadDim>
struct Launcher {
  static constexpr bool kTakesHeadDim96 = true, kTakesHeadDim256 = true;
  // [section]
  // The heads of a section, whose K and V stay in L2. Without a mask, or in a window, all query
  // tiles of a head are about equally long, and neighbours read the same tiles at about the same
  // time. A section is then as small as it can be: the heads that share K and V.
  static uint32_t section(const Attention<T>& a) {
    constexpr uint64_t kMostBytes = 32 << 20, kMostHeads = 32;  // of K and V
    if (a.window.right < 0 || a.window.left >= 0) return a.heads / a.kv_heads;
    const uint64_t head_bytes = uint64_t(a.kv_len) * kHeadDim * 2 * sizeof(T);
    return a.heads / a.kv_heads * std::clamp<uint64_t>(kMostBytes / head_bytes, 1, kMostHeads);
  }
  // [/section]
  static size_t workspace_bytes(const Problem&, size_t) { return sizeof(Counters); }
  static size_t zeroed_bytes() { return sizeof(Counters); }

  static void run(const Attention<T>& a) { a.contiguous ? run_with<false>(a) : run_with<true>(a); }
  template <bool kStrided>
  static void run_with(const Attention<T>& a) {
    with_scores(a, [](const Attention<T>& scaled, const auto& scores) {
      constexpr bool kWindow = std::remove_cvref_t<decltype(scores)>::kWindow;
      if constexpr (kHeadDim == 64 && !kWindow) {  // there are registers for a third consumer
        const bool causal = scaled.window.right == 0;
        if (!causal || (scaled.seq_len >= 4096 && scaled.seq_len <= scaled.kv_len)) {
          return run_with<kStrided, 3>(scaled, scores);
        }
      }
      run_with<kStrided, 2>(scaled, scores);
    });
  }
  template <bool kStrided, int kConsumers, typename Scores>
  static void run_with(const Attention<T>& a, const Scores& scores) {
    using C = Config<kHeadDim, kConsumers>;
    // Packed sequences are one behind the other in a head, others have heads of their own.
    const bool packed = a.cu_seqlens_q != nullptr;
    const uint32_t blocks = packed ? 1 : a.batch;
    // Boxes of 64 columns of `rows` rows of one head, which has `length` rows.
    const auto map = [&](const T* tensor, const Strides& strides, int heads, uint64_t length,
                         uint32_t rows) {
      const auto bytes = [](long long elements) { return uint64_t(elements) * sizeof(T); };
      if constexpr (kStrided) {
        return make_tensor_map(tensor, {kHeadDim, length, uint64_t(heads), blocks},
                               {bytes(strides.row), bytes(strides.head), bytes(strides.block)},
                               {64, rows, 1, 1}, layout::SwizzleMode::k128Bytes);
      } else {
        return make_tensor_map(tensor, {kHeadDim, length, uint64_t(blocks) * heads},
                               {bytes(strides.row), bytes(strides.head)}, {64, rows, 1},
                               layout::SwizzleMode::k128Bytes);
      }
    };
    const Shape shape{.q_len = a.seq_len,
                      .kv_len = a.kv_len,
                      .causal = Scores::kWindow || a.window.right >= 0,
                      .heads = (kStrided ? 1 : blocks) * a.heads,
                      .group = uint32_t(a.heads / a.kv_heads),
                      .section = packed ? uint32_t(a.heads) : section(a),
                      .scale = a.scale,
                      .cu_seqlens_q = a.cu_seqlens_q,
                      .cu_seqlens_kv = a.cu_seqlens_kv,
                      .sequences = uint32_t(packed || kStrided ? a.batch : 1),
                      .q_rows = uint32_t(a.q_rows),
                      .o_strides = a.o_strides};
    const uint32_t m_blocks = (a.seq_len + C::kBlockM - 1) / C::kBlockM;  // of the longest sequence
    const uint32_t most_tiles = uint32_t(a.batch) * a.heads * m_blocks;
    const auto counters = static_cast<Counters*>(a.workspace);
    launch<attention_kernel<T, kHeadDim, kConsumers, kStrided, Scores>>(
        {dim3(std::min(most_tiles, uint32_t(sm_count()))), dim3(C::kThreads),
         sizeof(SharedStorage<T, C, Scores>)},
        map(a.q, a.q_strides, a.heads, a.q_rows, 64),
        map(a.k, a.k_strides, a.kv_heads, a.kv_rows, C::kBlockN),
        map(a.v, a.v_strides, a.kv_heads, a.kv_rows, C::kBlockN),
        map(a.o, a.o_strides, a.heads, a.q_rows, 64), shape, a.o, a.lse, counters, scores);
  }
};

const Registration<Launcher> registration{"beyond/causal", Needs{90, true}, Traits::kMaxFree,
                                          Takes{.causal = true,
                                                .any_length = true,
                                                .kv_heads = true,
                                                .packed = true,
                                                .lse = true,
                                                .strides = true,
                                                .window = true,
                                                .sinks = true,
                                                .softcap = true,
                                                .alibi = true}};

}  // namespace fa::causal
