// beyond/share_tiles: few query tiles for many SMs, with wgmma; a cluster of CTAs shares the keys.
//
// Idea         The CTAs of a cluster compute the same query tile, each with other keys. At the end
//              each merges some columns of all their O, which they store in its shared memory.
// Bottleneck   Removed: SMs without work where there are fewer query tiles than SMs, and rows
//              without queries where a model's heads share keys.
// Changed      From causal: a CTA has one query tile and a part of its keys. The rows of a tile are
//              the queries of all heads that share keys, as in split_keys, and TMA collects them. K
//              and V may be in pages, a box per page or tile.
// Run          cmake --build --preset emulator --target beyond &&
//              build/emulator/bin/beyond share_tiles --q-len 100 --kv-len 1000 --kv-heads 1
#include <algorithm>
#include <bit>
#include <cfloat>
#include <climits>
#include <cmath>
#include <type_traits>
#include <utility>

#include "common/launch/launch.h"
#include "common/launch/quad.h"
#include "common/launch/registry.h"
#include "common/launch/slabs.h"
#include "common/launch/tensor_map.h"
#include "common/layout/swizzle.h"
#include "common/layout/wgmma.h"
#include "common/ptx/barrier.h"
#include "common/ptx/cluster.h"
#include "common/ptx/convert.h"
#include "common/ptx/exp2.h"
#include "common/ptx/fence.h"
#include "common/ptx/log2.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/setmaxnreg.h"
#include "common/ptx/tma.h"
#include "common/ptx/wgmma.h"

namespace fa::share_tiles {

constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f;
constexpr int kBlockN = 128;  // keys per tile
template <int kNumber>
using Number = std::integral_constant<int, kNumber>;

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

// One consumer or two, 64 rows each: which, and how many CTAs, is cost()'s decision.
template <int kHeadDim, int kConsumers>
struct Config {
  static constexpr int kWarpgroups = kConsumers;            // consumers, 64 rows each
  static constexpr int kThreads = (kWarpgroups + 1) * 128;  // the last warpgroup is the producer
  static constexpr int kStages = 2;                         // tiles of K and of V in shared memory
  static constexpr int kSlabs = kHeadDim / 64;              // slabs per tile
  static constexpr int kWarps = 4 * kWarpgroups;            // of the consumers
  // CTAs of a cluster at most. All GPUs with clusters can have eight, but with two consumers and a
  // head_dim of 128 the parts of seven or eight have no room.
  static constexpr int kMostCtas = kConsumers == 1 ? 8 : 6;
  // A launch gives all threads equally many registers; the producer returns what two consumers
  // need. With one there are enough for all.
  static constexpr int kProducerRegisters = 56, kConsumerRegisters = 224;
  static constexpr int kLaunchRegisters = 65536 / kThreads / 8 * 8;
  static_assert(kWarpgroups == 1 || kWarpgroups * (kConsumerRegisters - kLaunchRegisters) <=
                                        kLaunchRegisters - kProducerRegisters,
                "otherwise a consumer would wait for registers without end");
  // Warpgroup g has barrier kTurn + g. 0 is __syncthreads'.
  enum NamedBarrier : int { kTurn = 1 };
};

// What a launch computes.
struct Shape {
  int q_len, kv_len;  // of each sequence, or the most of any
  bool causal;
  float scale;
  int heads;
  // A tile has `pack` heads of a group and of each the same queries. Row i of 64 is head i % pack
  // of query i / pack, as far as i / pack < span; span = 64 / pack.
  int pack, span;
  int row_tiles;      // of the longest sequence, per pack
  int kv_head_packs;  // packs that share one head of K and V
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

// [tile]
__device__ inline Tile tile_of(const Shape& shape, int sequence, int number, int tile_queries) {
  Tile tile{};
  tile.sequence = sequence;
  tile.query = number * tile_queries;
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

// A cluster's CTA n merges the columns from first_column(n) to first_column(n + 1), 8 each.
__host__ __device__ constexpr int first_column(int columns, int ctas, int cta) {
  return columns * cta / ctas;
}
// As many times 8 columns as CTAs with any number up to `most` can get from others.
constexpr int most_parts(int columns, int most) {
  int result = 0;
  for (int ctas = 2; ctas <= most; ctas++) {
    result = std::max(result, (columns + ctas - 1) / ctas * (ctas - 1));
  }
  return result;
}

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
template <typename T, int kHeadDim, typename C>
struct SharedStorage {
  // The swizzle depends on the address and repeats every 1024 bytes (8 rows), hence the alignment.
  alignas(1024) T sQ[C::kWarpgroups][C::kSlabs][64][64];
  alignas(1024) T sK[C::kStages][C::kSlabs][kBlockN][64];
  alignas(1024) T sV[C::kStages][C::kSlabs][kBlockN][64];
  // full expects the producer's arrival and the tile's bytes; empty expects one per consumer warp.
  uint64_t k_full[C::kStages], k_empty[C::kStages], v_full[C::kStages], v_empty[C::kStages];
  uint64_t v_arrived;  // of tiles of V in which the producer writes before the consumers read
  uint64_t q_full[C::kWarpgroups];
  Tile tile;
  // [part]
  // From the other CTAs: what their lanes have of O, divided by their sums, in the columns that
  // this CTA merges, four numbers at a time; and each row's log-sum-exp (log2).
  alignas(16) float4 part[C::kWarps][most_parts(kHeadDim / 8, C::kMostCtas)][32];
  float row_lse[C::kWarps][C::kMostCtas - 1][16];
  uint64_t parts_full[C::kWarps];  // expects their bytes, and one arrival when the merge begins
  // [/part]
};

template <typename T, int kHeadDim, int kConsumers>
__global__ void __launch_bounds__(Config<kHeadDim, kConsumers>::kThreads, 1)
    attention_kernel(const __grid_constant__ ptx::TensorMap map_q,
                     const __grid_constant__ ptx::TensorMap map_k,
                     const __grid_constant__ ptx::TensorMap map_v,
                     const __grid_constant__ Shape shape, T* gO, float* gLse) {
  using C = Config<kHeadDim, kConsumers>;
  constexpr int kTileBytes = kBlockN * kHeadDim * sizeof(T);
  static_assert(kTileBytes == C::kSlabs * kBlockN * 128, "what the boxes of a tile bring");
  auto& smem = shared_storage<SharedStorage<T, kHeadDim, C>>();

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
  const unsigned ctas = ptx::cluster_nctarank(), rank = ptx::cluster_ctarank();
  if (threadIdx.x == C::kThreads - 32) {  // a warp that has nothing else to do
    for (uint64_t& full : smem.q_full) ptx::mbarrier_init(&full, 1);
    for (int stage = 0; stage < C::kStages; stage++) {
      ptx::mbarrier_init(&smem.k_full[stage], 1);
      ptx::mbarrier_init(&smem.v_full[stage], 1);
      ptx::mbarrier_init(&smem.k_empty[stage], C::kWarps);
      ptx::mbarrier_init(&smem.v_empty[stage], C::kWarps);
    }
    ptx::mbarrier_init(&smem.v_arrived, 1);
    for (uint64_t& full : smem.parts_full) ptx::mbarrier_init(&full, 1);
    ptx::fence_mbarrier_init();
  }
  // [split]
  // The grid says of which heads and of which sequence a cluster has a query tile. The last tile
  // comes first: with a causal mask it has the most keys.
  if (threadIdx.x == 0) {
    smem.tile = tile_of(shape, blockIdx.z, shape.row_tiles - 1 - int(blockIdx.x / ctas),
                        C::kWarpgroups * shape.span);
  }
  // [/split]
  // Rows of Q that no box brings, where 64 is no multiple of a pack, are zeros.
  const int used_rows = shape.pack * shape.span;
  for (int i = threadIdx.x; i < C::kWarpgroups * C::kSlabs * (64 - used_rows) * 8;
       i += C::kThreads) {
    const int number = i / 8 / (64 - used_rows);
    T(*const slab)[64] = smem.sQ[number / C::kSlabs][number % C::kSlabs];
    *reinterpret_cast<uint4*>(&slab[used_rows + i / 8 % (64 - used_rows)][i % 8 * 8]) = uint4{};
  }
  if (used_rows < 64) ptx::fence_proxy_async();  // wgmma reads them by another path
  __syncthreads();  // all threads wait until the barriers are initialised, so each may use them
  const Tile tile = smem.tile;
  if (tile.queries <= 0) return;        // so do all CTAs of the cluster
  if (ctas > 1) ptx::cluster_arrive();  // others may use them, too
  // [keys]
  // Its keys. The first CTAs of a cluster have one tile more where tiles are no multiple of CTAs.
  const unsigned least = unsigned(tile.key_tiles) / ctas, rest = unsigned(tile.key_tiles) % ctas;
  const int first_key_tile = rank * least + min(rank, rest), key_tiles = least + (rank < rest);
  // [/keys]
  const int head = blockIdx.y * shape.pack;  // the first one of its pack
  const int block = shape.cu_seqlens_q ? 0 : tile.sequence;

  // ---- producer
  if (warpgroup_idx == C::kWarpgroups) {
    if constexpr (C::kWarpgroups > 1) ptx::setmaxnreg_dec<C::kProducerRegisters>();
    // One warp loads Q and then group after group: tile n_block of K and tile n_block - 1 of V.
    // Lane i loads box i of a tile, if there are so many.
    if (warp_idx == 0 && key_tiles > 0) {
      // Where a lane's box is, and how many of the tile's keys the sequence has.
      struct Place {
        int row, head, block, keys;
      };
      const int kv_head = blockIdx.y / unsigned(shape.kv_head_packs);
      uint32_t n_block = 0, ends = 0;
      Place v_place{};
      // [load]
      const auto place_of = [&](int n) {
        const int key = n * kBlockN + lane_idx * shape.box_keys;
        const int keys = tile.kv_len - n * kBlockN;
        if (!shape.block_table) {
          return Place{tile.key_row + key, kv_head, block, keys};
        }
        // Behind the last key there is no page; a row behind a page's end is read as zeros.
        if (key >= tile.kv_len) return Place{shape.page_size, kv_head, 0, keys};
        const size_t entry = size_t(tile.sequence) * shape.table_pages + (key >> shape.page_shift);
        return Place{key & (shape.page_size - 1), kv_head, shape.block_table[entry], keys};
      };
      // Loads a tile of K or V once all warps released the stage.
      const auto load_tile = [&](const ptx::TensorMap& map, T(*tiles_of)[C::kSlabs][kBlockN][64],
                                 uint64_t* full, uint64_t* empty, uint32_t number,
                                 const Place& place) {
        const uint32_t stage = number % C::kStages;
        ptx::mbarrier_wait(&empty[stage], (number / C::kStages + 1) % 2);
        if (lane_idx == 0) ptx::mbarrier_arrive_expect_tx(full, kTileBytes);
        __syncwarp();  // all lanes' boxes in one instruction
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
      if (lane_idx <
          C::kWarpgroups) {  // a box of pack x span rows; past the head's end zeros are read
        uint64_t* const full = &smem.q_full[lane_idx];
        ptx::mbarrier_arrive_expect_tx(full, used_rows * kHeadDim * sizeof(T));
        for (int slab = 0; slab < C::kSlabs; slab++) {
          ptx::cp_async_bulk_tensor_load_5d(
              smem.sQ[lane_idx][slab], &map_q,
              {slab * 64, 0, tile.q_row + lane_idx * shape.span, int(blockIdx.y), block}, full);
        }
      }
      __syncwarp();
      for (int n = first_key_tile + key_tiles - 1; n >= first_key_tile; n--) {
        const Place place = place_of(n);
        load_tile(map_k, smem.sK, &smem.k_full[n_block % C::kStages], smem.k_empty, n_block, place);
        if (n_block > 0) load_v();
        v_place = place;
        n_block++;
      }
      load_v();
    }
    if (ctas > 1) {
      __syncwarp();
      ptx::cluster_wait();
    }
    return;
  }
  if constexpr (C::kWarpgroups > 1) ptx::setmaxnreg_inc<C::kConsumerRegisters>();

  // ---- registers
  float acc_s[kBlockN / 2];
  float acc_o[kHeadDim / 2];
  uint32_t rP[2][kBlockN / 16][4];  // of two tiles in turn: one is read, the other one written
  // Each lane keeps statistics for two rows of its warpgroup: 16 * warp_idx + lane_idx / 4, and
  // that row + 8. row_ref (in log2) is subtracted from scores; row_sum is the lane's share.
  float row_ref[2] = {-FLT_MAX, -FLT_MAX}, row_sum[2] = {}, rescale[2];
  const float scale_log2 = shape.scale * kLog2e;
  uint32_t n_block = 0;  // counts the CTA's key tiles
  // Q's descriptor, and its lower half, where the address is. Fences name it, so the compiler does
  // not keep all that is added to it, in registers that are not there.
  const uint64_t desc_q = layout::k_major_descriptor(ptx::shared_address(smem.sQ[warpgroup_idx]));
  uint32_t q_at[1] = {uint32_t(desc_q)};
  int key = (first_key_tile + key_tiles - 1) * kBlockN;  // the first one of the tile under way
  bool accumulate = false;                               // O has begun
  bool exact = false;  // the next tile's maxima are taken first, because a reference rose far
  // The lane's first row of its warpgroup's, the other one is 8 below; and the query of row i.
  const int row = warp_idx * 16 + lane_idx / 4;
  const auto query_of = [&](int i) { return warpgroup_idx * shape.span + i / shape.pack; };
  const int first_query = query_of(warp_idx * 16);  // of the warp

  // The number of keys that query i of the tile sees. Negative: not even the first one.
  const auto visible_keys = [&](int i) { return min(tile.kv_len, i + tile.diagonal); };
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
    ptx::wgmma_fence(acc_s, q_at);
    const uint64_t desc_its_q = desc_q >> 32 << 32 | q_at[0];
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; d++) {
      ptx::wgmma<T, kBlockN, layout::Major::kK>(
          acc_s, layout::advance(desc_its_q, layout::k_major_step(64, d)),
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
  // Does the same for the CTA's first key tile. References rise from the row's first score: by
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
    ptx::wgmma_wait<0>(acc_o, p);
  };
  // [step]
  // From tile n_block to the next one, which is in the other stage and has the other P. False: the
  // CTA has no more.
  const auto step = [&](int stage, auto& p, auto& p_next) -> bool {
    if (key == first_key_tile * kBlockN) {
      last_turn(stage, p);
      return false;
    }
    key -= kBlockN;  // to the keys before
    turn(stage, p);
    const bool raised = softmax(p_next);
    finish_pv(stage, p);
    if (raised) rescale_o();  // all lanes of the warp, or none
    accumulate = true;
    return true;
  };
  // [/step]

  const int warp = warpgroup_idx * 4 + warp_idx;
  if (key_tiles > 0) {
    // ---- prologue
    if (warpgroup_idx == C::kWarpgroups - 1) end_turn(false);  // warpgroup 0 has the first turn
    ptx::mbarrier_wait(&smem.q_full[warpgroup_idx], 0);
    wait_full(smem.k_full, 0, 0);
    multiply_qk(0);
    ptx::wgmma_wait<0>(acc_s);
    release(smem.k_empty, 0);
    softmax_first(rP[0]);

    // ---- main loop
    // Two steps per pass: registers cannot be indexed, so each step names its P.
    while (step(0, rP[0], rP[1]) && step(1, rP[1], rP[0])) {
    }
  } else {  // more CTAs than key tiles
#pragma unroll
    for (float& o : acc_o) o = 0.0f;
  }

  // ---- epilogue
  // [merge]
  // The CTA merges some columns of all rows, of which each CTA has a part. It sends its parts of
  // the others' columns. They are added in a fixed order, so bits are always the same.
  const auto merge = [&](auto count) {
    constexpr int kCtas = decltype(count)::value, kAll = kHeadDim / 8;
    constexpr int kColumns = (kAll + kCtas - 1) / kCtas;  // of 8 each, at most
    const int begin = first_column(kAll, kCtas, rank), end = first_column(kAll, kCtas, rank + 1);
    float4 parts[kColumns][kCtas];  // of the CTA's columns; number 0 is its own
    float lse[2][kCtas], inverse_sum[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float sum = layout::quad_sum(row_sum[h]);
      // A row that sees no key becomes zeros; its log-sum-exp is -inf.
      inverse_sum[h] = sum > 0.0f ? ptx::rcp_approx(sum) : 0.0f;
      lse[h][0] = row_ref[h] + ptx::log2_approx(sum);
    }
    const auto slot_at = [&](int cta) { return int(rank) - (int(rank) > cta); };  // not its own
    if constexpr (kCtas > 1) {
      __syncwarp();
      ptx::cluster_wait();  // all CTAs' barriers are initialised
      if (lane_idx == 0) {
        ptx::mbarrier_arrive_expect_tx(&smem.parts_full[warp],
                                       (kCtas - 1) * ((end - begin) * 512 + 64));
      }
    }
#pragma unroll
    for (int n = 0; n < kAll; n++) {
      const int cta = ((n + 1) * kCtas - 1) / kAll, i = n - first_column(kAll, kCtas, cta);
      const float4 mine{acc_o[4 * n] * inverse_sum[0], acc_o[4 * n + 1] * inverse_sum[0],
                        acc_o[4 * n + 2] * inverse_sum[1], acc_o[4 * n + 3] * inverse_sum[1]};
      if (kCtas == 1 || cta == int(rank)) {
        parts[i][0] = mine;
      } else {
        ptx::st_async(&smem.part[warp][i * (kCtas - 1) + slot_at(cta)][lane_idx], mine,
                      &smem.parts_full[warp], cta);
      }
    }
    if constexpr (kCtas > 1) {
#pragma unroll
      for (int cta = 0; cta < kCtas; cta++) {  // two lanes of a quad have a row each
        if (cta == int(rank) || lane_idx % 4 > 1) continue;
        ptx::st_async(&smem.row_lse[warp][slot_at(cta)][lane_idx / 4 + lane_idx % 4 * 8],
                      lane_idx % 4 == 0 ? lse[0][0] : lse[1][0], &smem.parts_full[warp], cta);
      }
      __syncwarp();
      ptx::mbarrier_wait_cluster(&smem.parts_full[warp], 0);
#pragma unroll
      for (int other = 1; other < kCtas; other++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
          lse[h][other] = smem.row_lse[warp][other - 1][lane_idx / 4 + 8 * h];
        }
#pragma unroll
        for (int i = 0; i < kColumns; i++) {
          if (begin + i < end) {
            parts[i][other] = smem.part[warp][i * (kCtas - 1) + other - 1][lane_idx];
          }
        }
      }
    }
    float whole_lse[2], weight[2][kCtas];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float ref = -FLT_MAX, sum = 0.0f;
#pragma unroll
      for (int cta = 0; cta < kCtas; cta++) ref = fmaxf(ref, lse[h][cta]);
#pragma unroll
      for (int cta = 0; cta < kCtas; cta++) {
        weight[h][cta] = ptx::exp2_approx(lse[h][cta] - ref);
        sum += weight[h][cta];
      }
      const float inverse = sum > 0.0f ? ptx::rcp_approx(sum) : 0.0f;
#pragma unroll
      for (int cta = 0; cta < kCtas; cta++) weight[h][cta] *= inverse;
      whole_lse[h] = ref + ptx::log2_approx(sum);
    }
    // Neighbouring lanes exchange two columns of a row each, so that the even one stores four of
    // the first row, and the odd one four of the row 8 below.
    const int h = lane_idx % 2, its_row = row + 8 * h, query = query_of(its_row);
    const bool used = its_row < used_rows && query < smem.tile.queries;
    const int its_head = head + its_row % shape.pack, q_row = smem.tile.q_row + query;
    T* const gO_lane = gO + shape.o_strides.at(block, its_head, q_row) + lane_idx % 4 / 2 * 4;
#pragma unroll
    for (int i = 0; i < kColumns; i++) {
      float4 o = parts[i][0];
      if constexpr (kCtas > 1) {
        o = float4{};
#pragma unroll
        for (int cta = 0; cta < kCtas; cta++) {
          o.x = fmaf(parts[i][cta].x, weight[0][cta], o.x);
          o.y = fmaf(parts[i][cta].y, weight[0][cta], o.y);
          o.z = fmaf(parts[i][cta].z, weight[1][cta], o.z);
          o.w = fmaf(parts[i][cta].w, weight[1][cta], o.w);
        }
      }
      const uint32_t first = ptx::pack<T>(o.x, o.y), second = ptx::pack<T>(o.z, o.w);
      const uint32_t other = __shfl_xor_sync(0xffffffffu, h == 0 ? second : first, 1);
      if (used && begin + i < end) {
        *reinterpret_cast<uint2*>(gO_lane + (begin + i) * 8) =
            h == 0 ? uint2{first, other} : uint2{other, second};
      }
    }
    if (gLse && rank == 0 && used && lane_idx % 4 < 2) {
      const size_t of_head = (size_t(block) * shape.heads + its_head) * shape.q_rows;
      gLse[of_head + q_row] = (h == 0 ? whole_lse[0] : whole_lse[1]) * kLn2;
    }
  };
  // [/merge]
  switch (ctas) {  // each number by a loop of its own, without a branch in it
    case 1:
      merge(Number<1>{});
      break;
    case 2:
      merge(Number<2>{});
      break;
    case 3:
      merge(Number<3>{});
      break;
    case 4:
      merge(Number<4>{});
      break;
    case 5:
      merge(Number<5>{});
      break;
    case 6:
      merge(Number<6>{});
      break;
    case 7:
      if constexpr (C::kMostCtas > 6) merge(Number<7>{});
      break;
    case 8:
      if constexpr (C::kMostCtas > 6) merge(Number<8>{});
      break;
  }
}

// ---- host ---------------------------------------------------------------------------------------
// A problem, as far as its time depends on it.
struct Size {
  long long sequences;
  int heads, kv_heads, q_len, kv_len;
  bool causal;
  bool operator==(const Size&) const = default;
};

template <typename T, int kHeadDim>
struct Launcher {
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

  // [cost]
  // Estimates in microseconds, fitted to 200 problems on an H200 with 132 SMs: of a launch, and in
  // it of a CTA without its key tiles, of a key tile, and of a merge.

  // How long `tiles` query tiles take in as many places at once, where the first takes `first`, the
  // last `last`, and those between them a time between them.
  static float of_tiles(float first, float last, long long tiles, int places) {
    const float longest = std::max(first, last), rounds = float(tiles) / float(places);
    if (rounds <= 1) return longest;
    if (first == last) return std::ceil(rounds) * longest;
    return std::max(longest, (first + last) / 2 * rounds + longest / 2);
  }
  // The key tiles of the first query tile of `queries`, and of the last one.
  static std::pair<int, int> key_tiles_of(const Size& s, int queries) {
    const int last = (s.kv_len + kBlockN - 1) / kBlockN;
    if (!s.causal) return {last, last};
    const int keys = std::clamp(s.kv_len - s.q_len + queries, 1, s.kv_len);
    return {(keys + kBlockN - 1) / kBlockN, last};
  }
  // With `ctas` CTAs in a cluster.
  template <int kConsumers>
  static float cost(const Size& s, int ctas) {
    constexpr bool kOne = kConsumers == 1;
    constexpr float kOfLaunch = 3.5f, kOfCta = kOne ? 2.9f : 4.7f;
    constexpr float kOfTile = kHeadDim == 64 ? (kOne ? 0.8f : 0.95f) : (kOne ? 1.09f : 1.32f);
    const float of_cta = kOfCta + (ctas == 1 ? 0.0f : 1.07f + 0.08f * float(kConsumers * ctas));
    const int pack = heads_of_pack(s.heads / s.kv_heads, s.q_len, kConsumers);
    const int queries = 64 / pack * kConsumers;
    if (ctas > Config<kHeadDim, kConsumers>::kMostCtas) return FLT_MAX;
    const int at_once = clusters_at_once<attention_kernel<T, kHeadDim, kConsumers>>(
        launch_shape<kConsumers>(dim3(1), ctas));
    if (at_once == 0) return FLT_MAX;
    const auto of_keys = [&](int tiles) {
      return of_cta + kOfTile * float((tiles + ctas - 1) / ctas);
    };
    const auto [first, last] = key_tiles_of(s, queries);
    const long long row_tiles = (s.q_len + queries - 1) / queries;
    return kOfLaunch + of_tiles(of_keys(first), of_keys(last),
                                s.sequences * (s.heads / pack) * row_tiles, at_once);
  }
  // The same of beyond/causal. It has tiles of 128 queries, or of 192 where a third consumer fits.
  static float cost_of_causal(const Size& s) {
    const bool three = kHeadDim == 64 && (!s.causal || (s.q_len >= 4096 && s.q_len <= s.kv_len));
    const int queries = three ? 192 : 128;
    const float of_tile = kHeadDim == 128 ? 1.27f : three ? 1.25f : 1.05f;
    const auto [first, last] = key_tiles_of(s, queries);
    const long long row_tiles = (s.q_len + queries - 1) / queries;
    return 5.9f + of_tiles(1.2f + of_tile * float(first), 1.2f + of_tile * float(last),
                           s.sequences * s.heads * row_tiles, sm_count());
  }
  // [/cost]
  // The fewest microseconds, and with how many consumers and CTAs.
  struct Way {
    float cost;
    int consumers, ctas;
  };
  // Layer after layer asks for the same, so a thread keeps its last answer.
  static Way best_way(const Size& s) {
    thread_local Size known{};
    thread_local int sms = 0;
    thread_local Way known_way{};
    if (s == known && sms == sm_count()) return known_way;
    Way best{FLT_MAX, 1, 1};
    for (int ctas = 1; ctas <= Config<kHeadDim, 1>::kMostCtas; ctas++) {
      const float with_one = cost<1>(s, ctas), with_two = cost<2>(s, ctas);
      if (with_one < best.cost) best = {with_one, 1, ctas};
      if (with_two < best.cost) best = {with_two, 2, ctas};
    }
    known = s;
    sms = sm_count();
    return known_way = best;
  }
  static bool is_faster_than_causal(const Size& s) { return best_way(s).cost < cost_of_causal(s); }
  // Whether it is faster than beyond/causal, which takes no pages, and 16, and than split_keys,
  // which takes no packed sequences and leads with 3 on few rows. Head_dim 96 and 256 it has not.
  static int leads(const Problem& problem) {
    const int present = device_capability();
    if (present != 0 && present != 90) return 0;
    if (!problem.has_plain_scores() || problem.fp8 != Fp8::kNone) return 0;
    if (problem.head_dim != 64 && problem.head_dim != 128) return 0;
    // Sequences of different lengths count as so many of the mean length.
    const bool packed = !problem.packed.empty(), paged = problem.page_size > 0;
    const size_t sequences = packed ? problem.packed.size() : size_t(problem.batch);
    size_t queries = size_t(problem.seq_len), keys = size_t(problem.key_len());
    if (packed) {
      queries = (problem.q_rows() + sequences - 1) / sequences;
      keys = (problem.kv_rows() + sequences - 1) / sequences;
    } else if (paged) {
      keys = 0;
      for (const int length : problem.kv_lens) keys += size_t(length);
      keys = (keys + sequences - 1) / sequences;
    }
    if (queries == 0 || keys == 0) return 0;
    const Size s{(long long)(sequences), problem.heads, problem.key_heads(),
                 int(queries),           int(keys),     problem.mask == Mask::kCausal};
    const long long rows = (long long)(s.heads / s.kv_heads) * s.q_len;
    const long long tiles = s.sequences * s.kv_heads * ((rows + 63) / 64);
    const float seen = float(s.kv_len) - (s.causal ? float(s.q_len - 1) / 2 : 0.0f);
    // of_split_keys is an estimate for split_keys.
    const auto lead = [&](auto launcher, float of_split_keys) {
      const float own = launcher.best_way(s).cost;
      bool faster = paged || launcher.is_faster_than_causal(s);
      if (packed) {  // a CTA of causal has all keys of the longest sequence; a cluster shares them
        const Size longest{1, 1, 1, 1, problem.key_len(), false};
        faster |= std::max(own, launcher.best_way(longest).cost) < launcher.cost_of_causal(longest);
      }
      if (!faster) return 0;
      // split_keys spreads the keys of few tiles over all SMs, a cluster over eight at most. Its
      // estimate is too low where keys are few, hence the third.
      const bool clusters_fill = tiles * Config<kHeadDim, 1>::kMostCtas >= sm_count();
      if (!packed && !clusters_fill && own > 1.33f * of_split_keys) return 0;
      return paged && own >= of_split_keys ? 0 : 2;
    };
    if (problem.head_dim == 64) {
      return lead(Launcher<T, 64>{}, 8.4f + 0.98e-4f * float(tiles) * seen);
    }
    return lead(Launcher<T, 128>{}, 11.8f + 1.45e-4f * float(tiles) * seen);
  }
  static void run(const Attention<T>& a) {
    const auto [cost, consumers, ctas] =
        best_way({a.batch, a.heads, a.kv_heads, a.seq_len, a.kv_len, a.mask == Mask::kCausal});
    consumers == 1 ? run_with<1>(a, ctas) : run_with<2>(a, ctas);
  }
  template <int kConsumers>
  static LaunchShape launch_shape(dim3 clusters, int ctas) {
    using C = Config<kHeadDim, kConsumers>;
    return {dim3(clusters.x * ctas, clusters.y, clusters.z), dim3(C::kThreads),
            sizeof(SharedStorage<T, kHeadDim, C>), ctas};
  }
  template <int kConsumers>
  static void run_with(const Attention<T>& a, int ctas) {
    // Packed sequences are one behind the other in a head, others have heads of their own.
    const bool packed = a.cu_seqlens_q != nullptr;
    const uint64_t blocks = packed ? 1 : a.batch;
    Shape shape{};
    shape.q_len = a.seq_len;
    shape.kv_len = a.kv_len;
    shape.causal = a.mask == Mask::kCausal;
    shape.scale = a.scale;
    shape.heads = a.heads;
    const int group = a.heads / a.kv_heads;
    shape.pack = heads_of_pack(group, a.seq_len, kConsumers);
    shape.span = 64 / shape.pack;
    shape.kv_head_packs = group / shape.pack;
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
    launch<attention_kernel<T, kHeadDim, kConsumers>>(
        launch_shape<kConsumers>(dim3(shape.row_tiles, a.heads / shape.pack, a.batch), ctas),
        row_map(a.q, a.q_strides), key_map(a.k, a.k_strides), key_map(a.v, a.v_strides), shape, a.o,
        a.lse);
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
