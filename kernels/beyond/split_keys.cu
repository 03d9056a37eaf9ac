// beyond/split_keys: few query tiles and many keys, as in decoding; the CTAs split the keys.
//
// Idea         One query per head leaves one CTA per head, and most SMs idle. Here several CTAs
//              share a query tile: each takes a part of its keys and stores a part result. The CTA
//              that comes last merges these, as online softmax merges key tiles.
// Bottleneck   Removed: SMs without work. What remains is the memory's bandwidth: K and V are read
//              once, and each of their elements is worth two FLOP per query row.
// Changed      From 10: a tile of 16 rows has all queries of all heads that share a head of keys.
//              Each warp has keys and a ring of its own, so the main loop needs no CTA barrier.
// Run          cmake --build --preset emulator --target beyond &&
//              build/emulator/bin/beyond split_keys --q-len 1 --kv-len 4096 --kv-heads 1
#include <algorithm>
#include <bit>

#include "common/launch/launch.h"
#include "common/launch/quad.h"
#include "common/launch/registry.h"
#include "common/launch/scores.h"
#include "common/layout/swizzle.h"
#include "common/ptx/barrier.h"
#include "common/ptx/convert.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/exp2.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mma.h"

namespace fa::split_keys {

constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f;
constexpr float kMaxGrowthLog2 = 8.0f;  // a score may exceed row_max by this: P is at most 2^8
constexpr float kLowest = -1e30f;  // row_max before the first key: finite, so that -inf can mask
constexpr int kFan = 16;           // parts that a CTA merges at a time

// Columns within which the chunks of a row are swizzled: 8 chunks, or 4 if a row has 12.
template <int kHeadDim>
constexpr int kSpan = kHeadDim == 96 ? 32 : 64;

// The bits of a chunk's number that the swizzle flips in a row. Every other row of 12 chunks, 192
// bytes, begins in the same banks, so two rows flip the same bits.
template <int kHeadDim>
__host__ __device__ constexpr int flips(int row) {
  return kHeadDim == 96 ? row / 2 % 4 : row % 8;
}

template <int kHeadDim, int kRowsOfTile>
struct Config {
  static constexpr int kRows = kRowsOfTile;      // query rows per CTA: 16 for decoding, or 64
  static constexpr int kTeamWarps = kRows / 16;  // warps that share keys, with 16 rows each
  static constexpr int kTeamThreads = kTeamWarps * 32;
  static constexpr bool kWide = kHeadDim == 256;
  // Keys of a team's tile: as many bytes for every head_dim, up to whole MMAs, which have 16. So
  // with 16 rows and head_dim 256 a tile is twice as large, and there are half as many teams.
  static constexpr int kKeys = std::max(16, (kRows == 16 ? 16 : 32) * 128 / kHeadDim / 16 * 16);
  // Teams, which have keys of their own, and blocks of K and V in shared memory. One CTA per SM has
  // most of the SM's shared memory: 227 KiB (sm_90 and sm_100), 163 KiB (sm_80), 99 KiB (others).
  static constexpr bool has_227_kib(int architecture) {
    return architecture == 90 || architecture == 100;
  }
  static constexpr int ring_kib(int architecture) {
    if (has_227_kib(architecture)) return kRows == 16 ? 192 : 160;
    return architecture != 80 ? 96 : kWide ? 160 : 128;
  }
  static constexpr int teams(int architecture) {
    if (kRows == 16) return (has_227_kib(architecture) ? 8 : 4) / (kWide ? 2 : 1);
    // The teams' O takes the ring's place: with head_dim 256 that of two is 132 KiB.
    return kWide && ring_kib(architecture) < 132 ? 1 : 2;
  }
  static constexpr int stages(int architecture) {
    return ring_kib(architecture) * 1024 / (block_n(architecture) * kHeadDim * 4);
  }
  static constexpr int threads(int architecture) { return teams(architecture) * kTeamThreads; }
  static constexpr int block_n(int architecture) { return teams(architecture) * kKeys; }
  static constexpr size_t shared_bytes(int architecture) {
    return size_t(stages(architecture)) * block_n(architecture) * kHeadDim * 4 +  // ring
           8 * teams(architecture) * kRows;                                       // sSums
  }
  static constexpr int kTeams = teams(FA_ARCHITECTURE);
  static constexpr int kStages = stages(FA_ARCHITECTURE);
  static constexpr int kThreads = threads(FA_ARCHITECTURE);
  static constexpr int kBlockN = block_n(FA_ARCHITECTURE);  // keys per block, of all teams
  // Lanes that copy a row, a chunk each. 12 chunks do not divide 32, so there four lanes have none.
  static constexpr int kRowLanes = kHeadDim == 96 ? 16 : kHeadDim / 8;
  static constexpr int kCopyRows = kTeamThreads / kRowLanes;  // per pass of a team
  static_assert(kTeams <= kFan, "the teams' parts are merged at once");
  static_assert(16 % kCopyRows == 0, "a pass is of one page, which may have 16 keys");
  static_assert(shared_bytes(90) <= 227 << 10 && shared_bytes(80) <= 163 << 10 &&
                shared_bytes(86) <= 99 << 10);
  static constexpr int kChunks = kHeadDim / 4;  // of a row of O: four columns each
};

// A block of keys is cut into tiles, one per team. With 16 rows a team is one warp, w0..w7. In the
// end the teams add up their O, and then the CTAs of the query tile add up theirs:
//
//   CTA                        0                                     1
//   block          0                       1             2                       3
//   keys           0  16 ...  96 112     128 ... 240    256  ...  368     384  ...  496 (d 128)
//   rows 0..15    w0  w1 ...  w6  w7      w0 ... w7      w0  ...   w7      w0  ...   w7
//
// With 64 rows a team is four warps with 16 rows each, and there are two teams with 32 keys each.
template <typename T, int kHeadDim, int kRows>
struct SharedStorage {
  using C = Config<kHeadDim, kRows>;
  union {
    alignas(128) T ring[C::kTeams][C::kStages][2][C::kKeys][kHeadDim];  // K and V
    // After the last key. 8 columns more, so the rows of a warp's stores differ in banks.
    float sO[C::kTeams][kRows][kHeadDim + 8];
  };
  float2 sSums[C::kTeams][kRows];
  static_assert(sizeof(sO) <= sizeof(ring));
};

// The rows of the query heads that share a head of keys are one matrix: row r is query r % q_len of
// head r / q_len.
struct Shape {
  int rows, q_len, kv_len, row_tiles, pieces;
  bool causal;  // or a window
  // K and V are [pages, kv_heads, page_size, kHeadDim]. Without a table a sequence is one page, and
  // key >> 31 is 0.
  int kv_heads, page_size, page_shift, table_pages;
  const int *block_table, *kv_lens;
  int group;                                           // heads of Q that share one of K
  Strides q_strides, k_strides, v_strides, o_strides;  // K's and V's blocks are pages

  // How many keys query i sees, if its mask or window ends so many keys after its place.
  __host__ __device__ int visible(int i, int right) const {
    const int keys = causal ? i + 1 + kv_len - q_len + right : kv_len;
    return keys < 0 ? 0 : keys < kv_len ? keys : kv_len;
  }
};

// Where part results are stored, in workspace. The first places are those of all pieces of all
// query tiles, the next ones those of what they were merged to.
struct Places {
  float* o;      // [places, kRows, kHeadDim]: rows of O, not divided by their sums
  float2* sums;  // [places, kRows]: their maxima and sums
  // [places]: how many of the parts that are merged together, at most kFan, are stored. At the
  // place of the first one; 0 between launches.
  uint32_t* arrived;
};

// ---- part results
// [part]
// What some of a row's keys give: four columns of O, not yet divided by the sum, and the row's
// maximum (in units of log2) and sum. Without keys the maximum is kLowest and the rest 0.
struct Part {
  float4 o{0.0f, 0.0f, 0.0f, 0.0f};
  float2 sums{kLowest, 0.0f};
};

// A part with a maximum below the greatest one counts for less.
template <int kParts>
__device__ __forceinline__ Part merge(const Part (&parts)[kParts]) {
  Part all;
#pragma unroll
  for (const Part& part : parts) all.sums.x = fmaxf(all.sums.x, part.sums.x);
#pragma unroll
  for (const Part& part : parts) {
    const float weight = ptx::exp2_approx(part.sums.x - all.sums.x);
    all.sums.y = fmaf(part.sums.y, weight, all.sums.y);
    all.o.x = fmaf(part.o.x, weight, all.o.x);
    all.o.y = fmaf(part.o.y, weight, all.o.y);
    all.o.z = fmaf(part.o.z, weight, all.o.z);
    all.o.w = fmaf(part.o.w, weight, all.o.w);
  }
  return all;
}
// [/part]

// Stores chunk `chunk` (4 columns) of a row of O, and with chunk 0 its log-sum-exp, where `row`
// counts over all heads. Rows that see no key become zeros, and -inf.
template <typename T>
__device__ __forceinline__ void store_row(T* gO_row, float* lse, size_t row, int chunk,
                                          const Part& part) {
  const float inverse = part.sums.y > 0.0f ? 1.0f / part.sums.y : 0.0f;
  *reinterpret_cast<uint2*>(gO_row + chunk * 4) =
      uint2{ptx::pack<T>(part.o.x * inverse, part.o.y * inverse),
            ptx::pack<T>(part.o.z * inverse, part.o.w * inverse)};
  if (lse && chunk == 0) lse[row] = (part.sums.x + log2f(part.sums.y)) * kLn2;
}

// Returns the shared address of the 16-byte chunk that begins at `column`, a multiple of 8.
template <typename T, int kHeadDim>
__device__ __forceinline__ uint32_t chunk_address(const T (*tile)[kHeadDim], int row, int column) {
  return ptx::shared_address(&tile[row][layout::swizzle(flips<kHeadDim>(row), column / 8) * 8]);
}

// Returns the address of the chunk that is `row` rows (a multiple of 8) and `column` columns (of
// 16) after a lane's first chunk. row % 8 stays the lane's own, so the swizzle only flips bits.
template <typename T, int kHeadDim>
__device__ __forceinline__ uint32_t step_address(uint32_t lane_address, int row, int column) {
  constexpr int kElement = sizeof(T), kStep = kSpan<kHeadDim>;
  return (lane_address ^ (column % kStep * kElement)) +
         (row * kHeadDim + column / kStep * kStep) * kElement;
}

// kStrided: the rows of the tensors lie anywhere. Otherwise the compiler knows most distances.
// spills: Li256ELi16ELb0ENS_12WindowScores 24 bytes on sm_86: two addresses, loaded in each tile
template <typename T, int kHeadDim, int kRows, bool kStrided, typename Scores>
__global__ void __launch_bounds__(Config<kHeadDim, kRows>::kThreads, 1)
    attention_kernel(const T* q, const T* k, const T* v, T* o, float* lse, Shape shape, float scale,
                     Places places, Scores scores) {
  using C = Config<kHeadDim, kRows>;
  constexpr int kKeyTiles = C::kKeys / 8;
  constexpr int kOutTiles = kHeadDim / 8;
  constexpr uint32_t kTileBytes = C::kKeys * kHeadDim * sizeof(T);  // K's; as many of V follow
  auto& smem = shared_storage<SharedStorage<T, kHeadDim, kRows>>();

  // ---- indices
  const int row_tile = blockIdx.x;
  const int piece = blockIdx.y;
  const size_t kv_head = blockIdx.z;
  const int warp_idx = threadIdx.x / 32;
  const int lane_idx = threadIdx.x % 32;
  const int team = warp_idx / C::kTeamWarps;
  const int team_thread = threadIdx.x % C::kTeamThreads;
  const int quad = lane_idx / 4;      // this lane has rows quad and quad + 8 of a 16 x 8 tile
  const int pair = lane_idx % 4 * 2;  // this lane has columns pair and pair + 1 of it
  const int warp_row = warp_idx % C::kTeamWarps * 16;

  // ---- this CTA's part of the keys
  const int sequence = int(kv_head) / shape.kv_heads, head = int(kv_head) % shape.kv_heads;
  if (shape.kv_lens) shape.kv_len = shape.kv_lens[sequence];
  const auto visible = [&](int i) { return shape.visible(i, scores.right); };
  // The first key that query i sees.
  const auto first_visible = [&](int i) {
    if constexpr (!Scores::kWindow)
      return 0;
    else
      return max(0, i + 1 + shape.kv_len - shape.q_len + scores.right - scores.width);
  };
  // [pieces]
  const int tile_row = row_tile * kRows;
  const int rows = min(kRows, shape.rows - tile_row);           // rows behind them are not there
  int most_visible = shape.kv_len, all_visible = shape.kv_len;  // to one of the rows; to all
  if (shape.causal) {
    const int first = tile_row % shape.q_len, last = first + rows - 1;
    const bool one_head = last < shape.q_len;  // otherwise there are queries 0 and q_len - 1
    most_visible = visible(one_head ? last : shape.q_len - 1);
    all_visible = visible(one_head ? first : 0);
  }
  const int blocks = (most_visible + C::kBlockN - 1) / C::kBlockN;
  int begin = blocks * piece / shape.pieces, end = blocks * (piece + 1) / shape.pieces;
  // [/pieces]
  // [window]
  [[maybe_unused]] int all_from;  // no row's window begins after this key
  if constexpr (Scores::kWindow) {
    // Blocks that are left of all windows belong to no piece.
    const int first = tile_row % shape.q_len, last = first + rows - 1;
    const bool one_head = last < shape.q_len;
    const int from = first_visible(one_head ? first : 0) / C::kBlockN;
    const int seen =
        (visible(one_head ? last : shape.q_len - 1) + C::kBlockN - 1) / C::kBlockN - from;
    all_from = first_visible(one_head ? last : shape.q_len - 1);
    begin = from + seen * piece / shape.pieces;
    end = from + seen * (piece + 1) / shape.pieces;
  }
  // [/window]

  // ---- pointers
  const int copy_row = team_thread / C::kRowLanes;  // this thread's first chunk of a tile
  const int copy_column = team_thread % C::kRowLanes * 8;
  const bool copies = kHeadDim != 96 || copy_column < kHeadDim;
  const uint32_t copy_to = chunk_address<T, kHeadDim>(smem.ring[team][0][0], copy_row, copy_column);
  const uint32_t lane_k = chunk_address<T, kHeadDim>(
      smem.ring[team][0][0], lane_idx % 8 + lane_idx / 16 * 8, lane_idx / 8 % 2 * 8);
  const uint32_t lane_v =
      chunk_address<T, kHeadDim>(smem.ring[team][0][1], lane_idx % 16, lane_idx / 16 * 8);
  const size_t first_row = kv_head * shape.rows + tile_row;
  // Returns where a row of this tile begins in Q or O.
  const auto row_begin = [&](const Strides& strides, int row) -> size_t {
    if constexpr (!kStrided) return (first_row + row) * kHeadDim;
    const int r = tile_row + row;
    return strides.at(sequence, head * shape.group + r / shape.q_len, r % shape.q_len);
  };

  // ---- prologue
  // [pages]
  // Looks up the pages of this team's keys of a block, one per 16 keys: a page has a multiple of
  // 16. copy_block() uses them an iteration later, so its copies do not wait for the table.
  int pages[C::kKeys / 16];
  const auto find_pages = [&](int n_block) {
    for (int i = 0; i < C::kKeys / 16; i++) {
      const int key = n_block * C::kBlockN + team * C::kKeys + i * 16;
      const size_t entry = size_t(sequence) * shape.table_pages + (key >> shape.page_shift);
      const bool there = shape.block_table && key < shape.kv_len;  // no page is behind the last key
      pages[i] = there ? shape.block_table[entry] : sequence;
    }
  };
  find_pages(begin);
  // [/pages]

  // [copy]
  // Starts to copy this team's tiles of K and V of a block. Waits count empty groups, too.
  const auto copy_block = [&](int n_block, int stage) {
    if (n_block < end) {
      const int key = n_block * C::kBlockN + team * C::kKeys;
      const int missing = key + C::kKeys - shape.kv_len;
#pragma unroll
      for (int i = 0; i < 2 * C::kKeys; i += C::kCopyRows) {
        const int row = i % C::kKeys;
        const int of_page = (key + row / 16 * 16) & ((1u << shape.page_shift) - 1);
        size_t from = of_page + row % 16 + copy_row;
        if constexpr (kStrided) {
          from = (i < C::kKeys ? shape.k_strides : shape.v_strides).at(pages[row / 16], head, from);
        } else {
          const size_t page = size_t(pages[row / 16]) * shape.kv_heads + head;  // of this head
          from = (page * shape.page_size + of_page + row % 16 + copy_row) * kHeadDim;
        }
        const T* const g = (i < C::kKeys ? k : v) + from + copy_column;
        // A pass begins at a multiple of kCopyRows rows: the swizzle flips the same bits for all.
        const uint32_t s =
            (copy_to ^ (flips<kHeadDim>(row) * 16)) + (stage * 2 * C::kKeys + i) * kHeadDim * 2;
        if (!copies) continue;
        if (missing <= 0) {
          ptx::cp_async<16>(s, g);
        } else {  // zeros behind the last key, because P is 0 there, and 0 times NaN is not
          const bool there = copy_row + row < C::kKeys - missing;
          ptx::cp_async_zero_fill<16>(s, there ? g : k, there ? 16 : 0);
        }
      }
      find_pages(n_block + 1);
    }
    ptx::cp_async_commit();
  };
  // [/copy]
  for (int i = 0; i < C::kStages - 1; i++) copy_block(begin + i, i);

  // Q goes from global memory to the registers, as A fragments. Rows that are not there are 0.
  uint32_t rQ[kHeadDim / 16][4];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int row = warp_row + h * 8 + quad;
    const T* gQ = q + row_begin(shape.q_strides, row) + pair;
#pragma unroll
    for (int i = 0; i < kHeadDim / 8; i++) {
      rQ[i / 2][i % 2 * 2 + h] = row < rows ? *reinterpret_cast<const uint32_t*>(gQ + i * 8) : 0;
    }
  }
  float acc_o[kOutTiles][4] = {};
  // Each lane keeps statistics for rows quad and quad + 8 of its warp. row_max, in units of log2,
  // may lag behind by kMaxGrowthLog2; row_sum is this lane's share.
  float row_max[2] = {kLowest, kLowest}, row_sum[2] = {};
  const float scale_log2 = scale * kLog2e;

  // Hides the keys to the left of a row's window.
  const auto hide_left = [&](float(&acc_s)[kKeyTiles][4], int key) {
    if constexpr (Scores::kWindow) {
      if (key < all_from) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int from = first_visible((tile_row + warp_row + h * 8 + quad) % shape.q_len);
#pragma unroll
          for (int i = 0; i < kKeyTiles * 2; i++) {
            if (key + i / 2 * 8 + pair + i % 2 < from) acc_s[i / 2][2 * h + i % 2] = -INFINITY;
          }
        }
      }
    }
  };
  // [changes]
  // What a softcap and ALiBi make of the scores of a team's tile. A row's slope is its head's.
  float slope[2] = {}, place[2] = {};
  if constexpr (Scores::kChanges) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int row = tile_row + min(warp_row + h * 8 + quad, rows - 1);
      const int its_head = head * shape.group + row / shape.q_len;
      place[h] = float(row % shape.q_len + shape.kv_len - shape.q_len);
      if (scores.alibi_slopes) {
        slope[h] = scores.alibi_slopes[sequence * scores.alibi_stride + its_head] / scale;
      }
    }
  }
  const auto change_scores = [&](float(&acc_s)[kKeyTiles][4], int key) {
    if constexpr (Scores::kChanges) {
      if (scores.into_tanh > 0.0f) {  // leaves c to scale_log2
        float most = 0.0f;
#pragma unroll
        for (int i = 0; i < kKeyTiles * 4; i++) {
          acc_s[i / 4][i % 4] *= scores.into_tanh;
          most = fmaxf(most, fabsf(acc_s[i / 4][i % 4]));
        }
        if (__all_sync(0xffffffffu, most <= kTanhSmall)) {
#pragma unroll
          for (int i = 0; i < kKeyTiles * 4; i++)
            acc_s[i / 4][i % 4] = tanh_small(acc_s[i / 4][i % 4]);
        } else {
#pragma unroll
          for (int i = 0; i < kKeyTiles * 4; i++)
            acc_s[i / 4][i % 4] = tanh_any(acc_s[i / 4][i % 4]);
        }
      }
      if (scores.alibi_slopes) {
        const float first = float(key + pair);  // this lane's first key
#pragma unroll
        for (int i = 0; i < kKeyTiles * 4; i++) {
          const float distance = place[i / 2 % 2] - first - float(i / 4 * 8 + i % 2);
          float& score = acc_s[i / 4][i % 4];
          score = fmaf(-slope[i / 2 % 2], fabsf(distance), score);
        }
      }
    }
  };
  // [/changes]

  // ---- main loop
  int stage = 0;
  for (int n_block = begin; n_block < end; n_block++) {
    // [wait]
    // This thread waits until its own copies of the block have arrived, then all of its team wait
    // for each other: they have then read the block before, whose stage may be refilled.
    ptx::cp_async_wait<C::kStages - 2>();
    if constexpr (C::kTeamWarps == 1) {
      __syncwarp();
    } else {
      ptx::barrier_sync(1 + team, C::kTeamThreads);
    }
    copy_block(n_block + C::kStages - 1, stage == 0 ? C::kStages - 1 : stage - 1);
    const uint32_t offset = stage * 2 * kTileBytes;
    stage = stage + 1 == C::kStages ? 0 : stage + 1;
    // [/wait]

    // S = QK^T for the team's keys.
    float acc_s[kKeyTiles][4] = {};
#pragma unroll
    for (int d = 0; d < kHeadDim; d += 16) {
#pragma unroll
      for (int n = 0; n < kKeyTiles; n += 2) {
        uint32_t rK[4];
        ptx::ldmatrix_x4(rK, step_address<T, kHeadDim>(lane_k, n * 8, d) + offset);
        ptx::mma_m16n8k16<T>(acc_s[n], rQ[d / 16], {rK[0], rK[1]});
        ptx::mma_m16n8k16<T>(acc_s[n + 1], rQ[d / 16], {rK[2], rK[3]});
      }
    }

    const int key = n_block * C::kBlockN + team * C::kKeys;
    if constexpr (Scores::kChanges) change_scores(acc_s, key);
    // [mask]
    if (key + C::kKeys > all_visible) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int keys = visible((tile_row + warp_row + h * 8 + quad) % shape.q_len);
#pragma unroll
        for (int i = 0; i < kKeyTiles * 2; i++) {
          if (key + i / 2 * 8 + pair + i % 2 >= keys) acc_s[i / 2][2 * h + i % 2] = -INFINITY;
        }
      }
    }
    // [/mask]
    if constexpr (Scores::kWindow) hide_left(acc_s, key);

    // Takes this lane's maxima; `grown` says whether one would let P exceed 2^kMaxGrowthLog2.
    float lane_max[2];
    bool grown = false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float score = fmaxf(acc_s[0][2 * h], acc_s[0][2 * h + 1]);
#pragma unroll
      for (int n = 1; n < kKeyTiles; n++) {
        score = fmaxf(score, fmaxf(acc_s[n][2 * h], acc_s[n][2 * h + 1]));
      }
      lane_max[h] = score * scale_log2;
      grown |= lane_max[h] > row_max[h] + kMaxGrowthLog2;
    }
    if (__any_sync(0xffffffffu, grown)) {  // all lanes of the warp, or none
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const float new_max = fmaxf(row_max[h], layout::quad_max(lane_max[h]));
        const float rescale = ptx::exp2_approx(row_max[h] - new_max);
        row_max[h] = new_max;
        row_sum[h] *= rescale;
#pragma unroll
        for (int n = 0; n < kOutTiles; n++) {
          acc_o[n][2 * h] *= rescale;
          acc_o[n][2 * h + 1] *= rescale;
        }
      }
    }

    // O += PV, 16 keys at a time.
#pragma unroll
    for (int n16 = 0; n16 < C::kKeys / 16; n16++) {
      uint32_t rP[4];
#pragma unroll
      for (int r = 0; r < 4; r++) {
        float* const s = &acc_s[2 * n16 + r / 2][r % 2 * 2];
        s[0] = ptx::exp2_approx(fmaf(s[0], scale_log2, -row_max[r % 2]));
        s[1] = ptx::exp2_approx(fmaf(s[1], scale_log2, -row_max[r % 2]));
        row_sum[r % 2] += s[0] + s[1];
        rP[r] = ptx::pack<T>(s[0], s[1]);
      }
#pragma unroll
      for (int n = 0; n < kOutTiles; n += 2) {
        uint32_t rV[4];
        ptx::ldmatrix_x4_trans(rV, step_address<T, kHeadDim>(lane_v, n16 * 16, n * 8) + offset);
        ptx::mma_m16n8k16<T>(acc_o[n], rP, {rV[0], rV[1]});
        ptx::mma_m16n8k16<T>(acc_o[n + 1], rP, {rV[2], rV[3]});
      }
    }
  }

  // ---- epilogue: the teams' O become one
  // [teams]
  ptx::cp_async_wait<0>();
  __syncthreads();  // all warps have read K and V, whose place sO takes
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const float sum = layout::quad_sum(row_sum[h]);
    const int row = warp_row + 8 * h + quad;
    if (lane_idx % 4 == 0) smem.sSums[team][row] = float2{row_max[h], sum};
    if (row < rows) {
#pragma unroll
      for (int n = 0; n < kOutTiles; n++) {
        *reinterpret_cast<float2*>(&smem.sO[team][row][n * 8 + pair]) =
            float2{acc_o[n][2 * h], acc_o[n][2 * h + 1]};
      }
    }
  }
  __syncthreads();  // all teams' O are there
  // [/teams]

  // Adds the sink of its head to what all keys give a row. A row has many parts, but one sink.
  const auto with_sink = [&](Part& all, int row) {
    if constexpr (Scores::kWindow) {
      if (!scores.sinks) return;
      const float sink = scores.sinks[head * shape.group + (tile_row + row) / shape.q_len];
      const float rescale = add_sink(sink, all.sums.x, all.sums.y);
      all.o = {all.o.x * rescale, all.o.y * rescale, all.o.z * rescale, all.o.w * rescale};
    }
  };

  // ---- merge: the pieces become one
  // [merge]
  // Each round merges up to kFan parts to one, until the tile is one part, which is divided and
  // stored as O. Before the first round these are the parts of the teams.
  const int tile = int(kv_head) * shape.row_tiles + row_tile;
  int index = piece, parts_of_tile = shape.pieces;  // the part that this CTA makes, of how many
  size_t round_begin = 0;                           // where the places of the round's parts begin
  size_t from = 0;                                  // the first place of those that are merged
  int members = 0;                                  // how many; 0: the teams' in shared memory
  for (;;) {
    const size_t first_place = round_begin + size_t(tile) * parts_of_tile;
    for (int i = threadIdx.x; i < rows * C::kChunks; i += C::kThreads) {
      const int row = i / C::kChunks, chunk = i % C::kChunks;
      Part parts[kFan];
#pragma unroll
      for (int j = 0; j < kFan; j++) {
        if (members == 0 && j < C::kTeams) {
          parts[j].o = *reinterpret_cast<const float4*>(&smem.sO[j][row][chunk * 4]);
          parts[j].sums = smem.sSums[j][row];
        } else if (j < members) {
          const size_t at = (from + j) * kRows + row;
          parts[j].o = *reinterpret_cast<const float4*>(places.o + at * kHeadDim + chunk * 4);
          parts[j].sums = places.sums[at];
        }
      }
      Part all = merge(parts);
      if (parts_of_tile == 1) {
        if constexpr (Scores::kWindow) with_sink(all, row);
        store_row(o + row_begin(shape.o_strides, row), lse, first_row + row, chunk, all);
      } else {
        const size_t at = (first_place + index) * kRows + row;
        *reinterpret_cast<float4*>(places.o + at * kHeadDim + chunk * 4) = all.o;
        if (chunk == 0) places.sums[at] = all.sums;
      }
    }
    if (parts_of_tile == 1) return;
    // The CTA that comes last finds all parts. Its arrival counts back to 0, for the next launch.
    __threadfence();  // what this thread has stored is there for all, before ...
    __syncthreads();  // ... one thread of the CTA says so
    const int begin_of_fan = index / kFan * kFan;
    members = min(kFan, parts_of_tile - begin_of_fan);
    from = first_place + begin_of_fan;
    const uint32_t others = members - 1;
    const bool last = threadIdx.x == 0 && atomicInc(&places.arrived[from], others) == others;
    if (!__syncthreads_or(last)) return;
    __threadfence();  // no load of a part is earlier than the count
    round_begin += size_t(gridDim.x) * gridDim.z * parts_of_tile;
    index /= kFan;
    parts_of_tile = (parts_of_tile + kFan - 1) / kFan;
  }
  // [/merge]
}

// ---- host ---------------------------------------------------------------------------------------
// [rule]
// The rule: a tile is cut into as many pieces as give every SM one CTA, at least a block each. With
// as many tiles as SMs, or more, a tile is one piece.
inline int pieces_of(int64_t tiles, int blocks) {
  return int(std::clamp<int64_t>(sm_count() / tiles, 1, blocks));
}
// [/rule]

template <typename T, int kHeadDim>
struct Launcher {
  static constexpr bool kTakesHeadDim96 = true, kTakesHeadDim256 = true;
  // Where there are pieces, there are at most as many as SMs, and each round leaves half as many
  // places or fewer. A multiple of four: what follows Places::arrived is aligned to 16 bytes.
  static size_t most_places() { return (size_t(sm_count()) + 1) / 2 * 4; }
  static size_t zeroed_bytes() { return most_places() * sizeof(uint32_t); }  // Places::arrived
  static size_t workspace_bytes(const Problem& problem, size_t) {
    const int rows = problem.heads / problem.key_heads() * problem.seq_len <= 16 ? 16 : 64;
    return most_places() * (rows * (problem.head_dim + 2) + 1) * sizeof(float);
  }

  // Whether it is faster than beyond/causal and 16: 3 if also than share_tiles, which has tiles of
  // 64 rows. A round of causal, 132 CTAs with 128 queries each, takes as long as 75 tiles do here,
  // and merging as long as 1000 keys of a round. Fitted to 281 shapes with head_dim 128 on an H200.
  // Nobody has timed 256 yet: there a key has twice as many bytes and products in both kernels, and
  // so counts as two.
  static int leads(const Problem& problem) {
    const int64_t q_len = problem.seq_len, kv_len = problem.key_len();
    const int64_t heads = int64_t(problem.batch) * problem.heads;
    const int64_t key_heads = int64_t(problem.batch) * problem.key_heads();
    const int64_t rounds = (heads * ((q_len + 127) / 128) + 131) / 132;
    const int64_t rows = heads / key_heads * q_len;  // of a head of keys
    if (rows <= 8 || (rows <= 16 && kv_len >= 64)) return key_heads <= 128 * rounds ? 3 : 0;
    const int64_t tiles = key_heads * ((rows + 63) / 64);
    const int64_t keys = kv_len * std::max(problem.head_dim, 128) / 128;
    return tiles * keys + 75 * 1000 < 75 * rounds * keys ? 1 : 0;
  }

  template <int kRows, bool kStrided, typename Scores>
  static void run(const Attention<T>& a, const Scores& scores) {
    constexpr auto kKernel = attention_kernel<T, kHeadDim, kRows, kStrided, Scores>;
    using C = Config<kHeadDim, kRows>;
    const int architecture = compiled_architecture<kKernel>();
    const int heads = a.batch * a.kv_heads, block_n = C::block_n(architecture);
    Shape shape{};
    shape.group = a.heads / a.kv_heads;
    shape.rows = shape.group * a.seq_len;
    shape.q_len = a.seq_len;
    shape.kv_len = a.kv_len;
    shape.causal = Scores::kWindow || a.window.right >= 0;
    shape.kv_heads = a.kv_heads;
    shape.page_size = a.block_table ? a.page_size : a.kv_len;
    shape.page_shift = a.block_table ? std::countr_zero(unsigned(a.page_size)) : 31;
    shape.table_pages = a.table_pages;
    shape.block_table = a.block_table;
    shape.kv_lens = a.kv_lens;
    shape.q_strides = a.q_strides;
    shape.k_strides = a.k_strides;
    shape.v_strides = a.v_strides;
    shape.o_strides = a.o_strides;
    shape.row_tiles = (shape.rows + kRows - 1) / kRows;
    int keys = a.kv_len;              // that a tile of rows sees, at most
    if constexpr (Scores::kWindow) {  // they may begin and end within a block
      keys = std::min(keys, scores.width + std::min(a.seq_len, kRows) - 1 + block_n - 1);
    }
    shape.pieces = pieces_of(int64_t(heads) * shape.row_tiles, (keys + block_n - 1) / block_n);
    Places places{};
    places.arrived = static_cast<uint32_t*>(a.workspace);
    places.o = reinterpret_cast<float*>(places.arrived + most_places());
    places.sums = reinterpret_cast<float2*>(places.o + most_places() * kRows * kHeadDim);
    launch<kKernel>({dim3(shape.row_tiles, shape.pieces, heads), dim3(C::threads(architecture)),
                     C::shared_bytes(architecture)},
                    a.q, a.k, a.v, a.o, a.lse, shape, a.scale, places, scores);
  }

  static void run(const Attention<T>& a) {
    with_scores(a, [](const Attention<T>& b, const auto& scores) {
      if (b.heads / b.kv_heads * b.seq_len <= 16) {
        b.contiguous ? run<16, false>(b, scores) : run<16, true>(b, scores);
      } else {
        b.contiguous ? run<64, false>(b, scores) : run<64, true>(b, scores);
      }
    });
  }
};

const Registration<Launcher> registration{"beyond/split_keys", Needs{80}, Traits::kAsync,
                                          Takes{.causal = true,
                                                .any_length = true,
                                                .kv_heads = true,
                                                .lse = true,
                                                .paged = true,
                                                .strides = true,
                                                .window = true,
                                                .sinks = true,
                                                .softcap = true,
                                                .alibi = true}};

}  // namespace fa::split_keys
