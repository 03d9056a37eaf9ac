// 16_max_free: no row maximum.
//
// Idea         The quotient O does not depend on what is subtracted from a row's scores while the
//              exponentials, their sum and O stay in range. So a reference replaces the maximum: it
//              comes from the row's first scores, and rises only where a sum grows too large.
// Bottleneck   Removed: 15 took maxima of a query tile's first scores, and later of all P.
// Changed      Sums, which are needed anyway, tell whether P is in range. bf16 reaches so far that
//              the answer may come late, under the next QK^T, and scale P itself. A row that left
//              even that range is computed on CUDA cores at the launch's end.
// Run          cmake --build --preset emulator --target 16_max_free &&
//              build/emulator/bin/16_max_free
#include "common/launch/launch.h"
#include "common/launch/quad.h"
#include "common/launch/registry.h"
#include "common/launch/slabs.h"
#include "common/launch/tensor_map.h"
#include "common/layout/wgmma.h"
#include "common/ptx/barrier.h"
#include "common/ptx/convert.h"
#include "common/ptx/elect.h"
#include "common/ptx/exp2.h"
#include "common/ptx/fence.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/setmaxnreg.h"
#include "common/ptx/tma.h"
#include "common/ptx/wgmma.h"

namespace fa::k16 {

constexpr float kLog2e = 1.44269504f;

// [range]
// A reference is kMargin (log2) above a row's first scores, and rises again where the sums of a
// tile exceed kMaxSum. bf16 has the exponents of fp32, -126 to 127. P of a tile may be as large as
// that, since it is looked at before it meets V; afterwards it is at most kMaxSum, so V may be any
// bf16 from 2^-60 on. fp16 ends at 2^16, and below 2^-14 it loses bits.
template <typename T>
struct Range {
  static constexpr bool kWide = !std::is_same_v<T, __half>;
  static constexpr float kMargin = kWide ? 66.0f : 0.0f;
  static constexpr float kMaxSum = kWide ? 0x1p-20f : 0x1p15f;
  // From such a sum on, of a row in a tile, P may be infinite.
  static constexpr float kLost = 0x1p126f;
};
// [/range]

// A tile of K or V has kKeys keys: 64 where 128 would make an odd number of tiles per head.
template <int kHeadDim, int kKeys>
struct Config {
  // Each consumer has 64 query rows. With head_dim 64 there are registers for a third consumer.
  static constexpr int kWarpgroups = kHeadDim == 64 ? 3 : 2;
  static constexpr int kBlockM = kWarpgroups * 64;          // query rows per CTA
  static constexpr int kBlockN = kKeys;                     // keys per tile
  static constexpr int kThreads = (kWarpgroups + 1) * 128;  // the last warpgroup is the producer
  static constexpr int kStages = 2;                         // tiles of K and of V in shared memory
  static constexpr int kSlabs = kHeadDim / 64;              // slabs per tile
  // A launch gives all threads equally many registers; the producer returns what consumers need.
  static constexpr int kLaunchRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kProducerRegisters = kWarpgroups == 3 ? 32 : 24;
  static constexpr int kConsumerRegisters = kWarpgroups == 3 ? 160 : 240;
  static_assert(kWarpgroups * (kConsumerRegisters - kLaunchRegisters) <=
                    kLaunchRegisters - kProducerRegisters,
                "otherwise a consumer would wait for registers without end");
  // A consumer's softmax runs under its own PV; three consumers run under each other's products.
  static constexpr bool kOverlap = kWarpgroups == 2;
  static_assert(kBlockN == 64 || kBlockN == 128, "a head has an even number of tiles");
  // Warpgroup g has barriers kQRead + g (its warps have read Q) and kTurn + g. 0 is __syncthreads'.
  enum NamedBarrier : int { kQRead = 1, kTurn = kQRead + kWarpgroups };
};

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
template <typename T, int kHeadDim, int kKeys>
struct SharedStorage {
  using C = Config<kHeadDim, kKeys>;
  // The swizzle depends on the address and repeats every 1024 bytes (8 rows), hence the alignment.
  // sQ[t % 2] holds Q of query tile t and later its O; the other half belongs to the next tile.
  alignas(1024) T sQ[2][C::kWarpgroups][C::kSlabs][64][64];
  alignas(1024) T sK[C::kStages][C::kSlabs][C::kBlockN][64];
  alignas(1024) T sV[C::kStages][C::kSlabs][C::kBlockN][64];
  // full expects the producer's arrival and the tile's bytes; empty expects one per consumer warp.
  uint64_t k_full[C::kStages], k_empty[C::kStages], v_full[C::kStages], v_empty[C::kStages];
  // [t % 2] belongs to query tile t. o_full expects one arrival per warp of the consumer.
  uint64_t q_full[2][C::kWarpgroups], o_full[2][C::kWarpgroups];
  uint64_t stored[C::kWarpgroups];  // completes when all O of the consumer are written
};

// [row]
// Q, K, V and O in global memory, for rows that TMA does not bring.
template <typename T>
struct Global {
  const T *q, *k, *v;
  T* o;
  Strides q_strides, k_strides, v_strides, o_strides;
};

// Computes a row of O, [kHeadDim], on CUDA cores: a warp's work. Each lane has every 32nd of the
// head's `keys`, and of O kHeadDim / 32 neighbouring columns. q and o point to the row, k and v to
// row 0 of the head.
template <typename T, int kHeadDim>
__device__ __forceinline__ void compute_row(const T* q, const T* k, const T* v, T* o,
                                            long long k_stride, long long v_stride, uint32_t keys,
                                            float scale_log2) {
  constexpr int kColumns = kHeadDim / 32;
  const int lane_idx = threadIdx.x % 32;
  float row_max = -INFINITY, row_sum = 0.0f, row_o[kColumns] = {};
#pragma unroll 1
  for (uint32_t key = lane_idx; key < keys; key += 32) {
    float score = 0.0f;
#pragma unroll
    for (int d = 0; d < kHeadDim; d += 8) {
      const uint4 of_q = __ldg(reinterpret_cast<const uint4*>(q + d));
      const uint4 of_k = __ldg(reinterpret_cast<const uint4*>(k + key * k_stride + d));
      const auto add = [&](uint32_t two_of_q, uint32_t two_of_k) {
        const float2 x = ptx::unpack<T>(two_of_q), y = ptx::unpack<T>(two_of_k);
        score = fmaf(x.x, y.x, fmaf(x.y, y.y, score));
      };
      add(of_q.x, of_k.x);
      add(of_q.y, of_k.y);
      add(of_q.z, of_k.z);
      add(of_q.w, of_k.w);
    }
    score *= scale_log2;
    float new_max = fmaxf(row_max, score);
    for (int distance = 1; distance < 32; distance *= 2) {
      new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffffu, new_max, distance));
    }
    const float rescale = ptx::exp2_approx(row_max - new_max);
    const float p = ptx::exp2_approx(score - new_max);
    row_max = new_max;
    row_sum = fmaf(row_sum, rescale, p);
    for (float& each : row_o) each *= rescale;
#pragma unroll
    for (int other = 0; other < 32; other++) {
      const float its_p = __shfl_sync(0xffffffffu, p, other);
      const T* const its_v = v + (key - lane_idx + other) * v_stride + lane_idx * kColumns;
      for (int i = 0; i < kColumns; i += 2) {
        const float2 pair = ptx::unpack<T>(__ldg(reinterpret_cast<const uint32_t*>(its_v + i)));
        row_o[i] = fmaf(its_p, pair.x, row_o[i]);
        row_o[i + 1] = fmaf(its_p, pair.y, row_o[i + 1]);
      }
    }
  }
  for (int distance = 1; distance < 32; distance *= 2) {
    row_sum += __shfl_xor_sync(0xffffffffu, row_sum, distance);
  }
  for (int i = 0; i < kColumns; i += 2) {
    reinterpret_cast<uint32_t*>(o + lane_idx * kColumns)[i / 2] =
        ptx::pack<T>(row_o[i] / row_sum, row_o[i + 1] / row_sum);
  }
}
// [/row]

template <typename T, int kHeadDim, int kKeys>
__global__ void __launch_bounds__(Config<kHeadDim, kKeys>::kThreads, 1)
    attention_kernel(const __grid_constant__ ptx::TensorMap map_q,
                     const __grid_constant__ ptx::TensorMap map_k,
                     const __grid_constant__ ptx::TensorMap map_v,
                     const __grid_constant__ ptx::TensorMap map_o, const Global<T> global,
                     uint32_t seq_len, uint32_t heads, uint32_t q_tiles, float scale) {
  using C = Config<kHeadDim, kKeys>;
  using R = Range<T>;
  constexpr int kQBytes = C::kBlockM * kHeadDim * sizeof(T);
  constexpr int kTileBytes = C::kBlockN * kHeadDim * sizeof(T);
  static_assert(kTileBytes == C::kSlabs * C::kBlockN * 128, "what the boxes of a tile bring");
  auto& smem = shared_storage<SharedStorage<T, kHeadDim, kKeys>>();

  // ---- indices
  // The value is the same in all lanes, and the shuffle tells the compiler so.
  const int warpgroup_idx = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int warp_idx = threadIdx.x / 32 % 4;  // within the warpgroup
  const int lane_idx = threadIdx.x % 32;
  const uint32_t tiles = seq_len / C::kBlockN;  // tiles of K per head: an even number
  // This CTA has the query tiles blockIdx.x + t * gridDim.x of all heads, for t below its_tiles.
  const uint32_t its_tiles = (q_tiles - 1 - blockIdx.x) / gridDim.x + 1;
  const uint32_t m_blocks = (seq_len + C::kBlockM - 1) / C::kBlockM;  // query tiles per head
  const auto tile = [&](uint32_t t) { return blockIdx.x + t * gridDim.x; };
  // Where a box begins in a tensor: the last three coordinates of its map.
  struct Place {
    int row, head, sequence;
  };
  // [places]
  // Returns the place of row 0 of query tile t's head. Divisions are slow, so the producer calls it
  // once per query tile, not once per K tile.
  const auto first_key = [&](uint32_t t) {
    const uint32_t head = tile(t) / m_blocks;  // counted over all sequences
    return Place{0, int(head % heads), int(head / heads)};
  };
  // Returns where a consumer's rows of query tile t begin, in a head's last tile perhaps past the
  // head's end.
  const auto queries = [&](uint32_t t, int consumer) {
    Place place = first_key(t);
    place.row = tile(t) % m_blocks * C::kBlockM + consumer * 64;
    return place;
  };
  // [/places]

  // ---- pointers
  // The descriptors name Q's first 16 columns, those of tile 0 of K, and the first 16 keys of V.
  const uint64_t desc_q =
      layout::k_major_descriptor(ptx::shared_address(smem.sQ[0][warpgroup_idx]));
  const uint64_t desc_k = layout::k_major_descriptor(ptx::shared_address(smem.sK));
  const uint64_t desc_v = layout::mn_major_descriptor(ptx::shared_address(smem.sV), C::kBlockN);

  // ---- barriers
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2 * C::kWarpgroups; i++) {
      ptx::mbarrier_init(&smem.q_full[i % 2][i / 2], 1);
      ptx::mbarrier_init(&smem.o_full[i % 2][i / 2], 4);
      if (i % 2 == 0) ptx::mbarrier_init(&smem.stored[i / 2], 1);
    }
    for (int stage = 0; stage < C::kStages; stage++) {
      ptx::mbarrier_init(&smem.k_full[stage], 1);
      ptx::mbarrier_init(&smem.v_full[stage], 1);
      ptx::mbarrier_init(&smem.k_empty[stage], C::kWarpgroups * 4);
      ptx::mbarrier_init(&smem.v_empty[stage], C::kWarpgroups * 4);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();  // all threads wait until the barriers are initialised, so each may use them

  // The producer loads tile n_block of K or V from `key` on, once all warps released the stage.
  const auto load_tile = [&](const ptx::TensorMap& map, T(*tiles_of)[C::kSlabs][C::kBlockN][64],
                             uint64_t* full, uint64_t* empty, uint32_t n_block, Place key) {
    const uint32_t stage = n_block % C::kStages;
    ptx::mbarrier_wait(&empty[stage], (n_block / C::kStages + 1) % 2);
    ptx::mbarrier_arrive_expect_tx(&full[stage], kTileBytes);
#pragma unroll
    for (int slab = 0; slab < C::kSlabs; slab++) {
      ptx::cp_async_bulk_tensor_load(tiles_of[stage][slab], &map,
                                     {slab * 64, key.row, key.head, key.sequence}, &full[stage]);
    }
  };

  // ---- producer
  if (warpgroup_idx == C::kWarpgroups) {
    ptx::setmaxnreg_dec<C::kProducerRegisters>();
    // [groups]
    // One thread loads group after group: tile n_block of K and tile n_block - 1 of V.
    if (warp_idx == 0 && ptx::elect_sync()) {
      uint32_t n_block = 0;
      Place of_v = {};  // of the K tile before, whose V comes next
      for (uint32_t t = 0; t < its_tiles; t++) {
        Place of_k = first_key(t);
        for (uint32_t n = 0; n < tiles; n++, n_block++) {
          of_k.row = n * C::kBlockN;
          load_tile(map_k, smem.sK, smem.k_full, smem.k_empty, n_block, of_k);
          if (n_block > 0) load_tile(map_v, smem.sV, smem.v_full, smem.v_empty, n_block - 1, of_v);
          of_v = of_k;
        }
      }
      load_tile(map_v, smem.sV, smem.v_full, smem.v_empty, n_block - 1, of_v);
    }
    // [/groups]
    // [store-warps]
    // One thread per consumer loads Q, later stores O, and then loads the next Q but one there.
    if (warp_idx > 0 && warp_idx <= C::kWarpgroups && ptx::elect_sync()) {
      const int consumer = warp_idx - 1;
      for (uint32_t t = 0; t < its_tiles + 2; t++) {
        T(*const sQ)[64][64] = smem.sQ[t % 2][consumer];  // [kSlabs][64][64]
        if (t >= 2) {
          ptx::mbarrier_wait(&smem.o_full[t % 2][consumer], t / 2 % 2 ^ 1);  // O of tile t - 2
          const Place o = queries(t - 2, consumer);
          for (int slab = 0; slab < C::kSlabs; slab++) {  // rows past the head are not written
            ptx::cp_async_bulk_tensor_store(&map_o, {slab * 64, o.row, o.head, o.sequence},
                                            sQ[slab]);
          }
          ptx::cp_async_bulk_commit();
          ptx::cp_async_bulk_wait_read<0>();
        }
        if (t < its_tiles) {
          uint64_t* const full = &smem.q_full[t % 2][consumer];
          ptx::mbarrier_arrive_expect_tx(full, 64 * kHeadDim * sizeof(T));
          const Place q = queries(t, consumer);  // rows past the head's end are zeros
          for (int slab = 0; slab < C::kSlabs; slab++) {
            ptx::cp_async_bulk_tensor_load(sQ[slab], &map_q, {slab * 64, q.row, q.head, q.sequence},
                                           full);
          }
        }
      }
      ptx::cp_async_bulk_wait<0>();  // waits until the last O is written
      ptx::mbarrier_arrive(&smem.stored[consumer]);
    }
    // [/store-warps]
    return;
  }
  ptx::setmaxnreg_inc<C::kConsumerRegisters>();

  // Every warp calls it before it reads tile n, to wait for phase n / kStages of its full barrier.
  const auto wait_full = [&](uint64_t* full, uint32_t n) {
    ptx::mbarrier_wait(&full[n % C::kStages], n / C::kStages % 2);
  };
  // Every warp calls it when it has finished reading tile n, so its stage may be refilled. No wait.
  const auto release = [&](uint64_t* empty, uint32_t n) {
    if (lane_idx == 0) ptx::mbarrier_arrive(&empty[n % C::kStages]);
  };

  // ---- registers
  float acc_s[C::kBlockN / 2];
  float acc_o[kHeadDim / 2];
  // rP[n % 2] is P of tile n: with kOverlap one array is read while the other one is written.
  uint32_t rP[C::kOverlap ? 2 : 1][C::kBlockN / 16][4];
  // Each lane keeps statistics for two rows of its warpgroup: 16 * warp_idx + lane_idx / 4, and
  // that row + 8. row_ref (in log2) is subtracted from scores; row_sum is the lane's share, and
  // tile_sum that of the latest tile alone.
  float row_ref[2], row_sum[2] = {}, tile_sum[2], rescale[2];
  bool maxima_first = false;  // fp16: a sum of this query tile was too large
  const float scale_log2 = scale * kLog2e;
  uint64_t desc_q_t = desc_q;  // Q of the query tile under way

  // Starts S = QK^T. After the fence acc_s belongs to the Tensor Cores until wgmma_wait returns it.
  const auto multiply_qk = [&](uint32_t n_block) {
    const uint64_t desc = layout::advance(desc_k, n_block % C::kStages * kTileBytes);
    ptx::wgmma_fence(acc_s);
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; d++) {
      ptx::wgmma<T, C::kBlockN, layout::Major::kK>(
          acc_s, layout::advance(desc_q_t, layout::k_major_step(64, d)),
          layout::advance(desc, layout::k_major_step(C::kBlockN, d)), d > 0);
    }
    ptx::wgmma_commit();
  };
  // Starts O += PV, or O = PV. P and acc_o belong to the Tensor Cores until wgmma_wait, too.
  const auto multiply_pv = [&](uint32_t n_block, const auto& p, bool accumulate) {
    const uint64_t desc = layout::advance(desc_v, n_block % C::kStages * kTileBytes);
    ptx::wgmma_fence();
#pragma unroll
    for (int key = 0; key < C::kBlockN / 16; key++) {
      ptx::wgmma<T, kHeadDim, layout::Major::kMN>(
          acc_o, p[key], layout::advance(desc, layout::mn_major_step(key)), key > 0 || accumulate);
    }
    ptx::wgmma_commit();
  };

  // Begins the rows of a query tile once its first S is complete. The lanes of a quad have a row's
  // first eight scores.
  const auto begin_rows = [&] {
    maxima_first = false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float most = layout::quad_max(fmaxf(acc_s[2 * h], acc_s[2 * h + 1]));
      row_ref[h] = fmaf(most, scale_log2, R::kMargin);
      row_sum[h] = 0.0f;
    }
  };
  // [exponentials]
  // Computes P = 2^(S scale_log2 - row_ref) as A operand (8 + 8 columns per fragment) and its sums.
  const auto exponentials = [&](auto& p) {
    float part[4];  // sums of even and odd columns of both rows
#pragma unroll
    for (int i = 0; i < C::kBlockN / 4; i++) {
      float low_high[2];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        float& to = part[i % 2 * 2 + j];
        low_high[j] = ptx::exp2_approx(fmaf(acc_s[2 * i + j], scale_log2, -row_ref[i % 2]));
        to = i < 2 ? low_high[j] : to + low_high[j];
      }
      p[i / 4][i % 4] = ptx::pack<T>(low_high[0], low_high[1]);
    }
    tile_sum[0] = part[0] + part[1];
    tile_sum[1] = part[2] + part[3];
  };
  const auto add_sums = [&] {
#pragma unroll
    for (int h = 0; h < 2; h++) row_sum[h] += tile_sum[h];
  };
  // Whether the latest tile's sums are small enough, for all rows of the warp.
  const auto fits = [&]() -> bool {
    return __all_sync(0xffffffffu, tile_sum[0] + tile_sum[1] <= R::kMaxSum);
  };
  // [/exponentials]
  // [hold]
  // Keeps the wait for PV below the exponentials: ptxas moves it up, but not past a fence that
  // depends on their sums and runs only where look() has work. Rows of 64 are faster without.
  const auto hold = [&] {
    if (R::kWide && kHeadDim == 128 && !fits()) ptx::fence_proxy_async();
  };
  // [/hold]
  // Multiplies O by rescale. Every warp calls it when references rose and no PV is under way.
  const auto rescale_o = [&] {
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; i++) acc_o[i] *= rescale[i / 2 % 2];
  };
  // [again]
  // Raises the reference of row h by `up` (log2). Then O must be rescaled, too: up to 126 exactly,
  // and beyond that nothing of it is left. The sum has the latest tile, too, of which more is left.
  const auto raise = [&](int h, float up) {
    rescale[h] = ptx::exp2_approx(-up);
    row_ref[h] += up;
    const float half = ptx::exp2_approx(-0.5f * up);
    row_sum[h] = row_sum[h] * half * half;
  };
  // Finds the largest scores of both rows in the tile.
  const auto maxima = [&](float(&most)[2]) {
    // Even and odd columns of both rows form four independent chains.
    float score[4] = {acc_s[0], acc_s[1], acc_s[2], acc_s[3]};
#pragma unroll
    for (int i = 4; i < C::kBlockN / 2; i++) score[i % 4] = fmaxf(score[i % 4], acc_s[i]);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      most[h] = layout::quad_max(fmaxf(score[2 * h], score[2 * h + 1]));
    }
  };
  // Raises references to kMargin above a tile's maxima.
  const auto raise_to_maxima = [&] {
    float most[2];
    maxima(most);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      raise(h, fmaxf(fmaf(most[h], scale_log2, R::kMargin - row_ref[h]), 0.0f));
    }
  };
  // Computes P of a tile again, whose sums were too large, while its S is still there and no PV is
  // under way. A query tile's first K tile has no O yet.
  const auto again = [&](auto& p, bool first) {
    maxima_first = !R::kWide;  // later tiles would probably fail, too
    raise_to_maxima();
    if (!first) rescale_o();
    exponentials(p);
    add_sums();
  };
  // [/again]
  // [late]
  // bf16: the same when the next S is already under way, and no PV. Where sums are too large,
  // references rise by what brings P down, and P is multiplied. A row whose P is infinite is given
  // up: its reference becomes infinite, later P are 0, and O is NaN.
  const auto look = [&](auto& p) {
    if constexpr (R::kWide) {
      if (fits()) return;
      uint32_t by[2];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const float sum = layout::quad_sum(tile_sum[h]);
        const bool lost = sum > R::kLost;
        // Even, because P is multiplied by half of it twice: 2^-up may be too small for bf16.
        const float up = 2.0f * fmaxf(ceilf(0.5f * (log2f(sum) + R::kMargin)), 0.0f);
        const float half = lost ? NAN : ptx::exp2_approx(-0.5f * up);
        by[h] = ptx::pack<T>(half, half);
        raise(h, up);
        if (lost) row_ref[h] = INFINITY, row_sum[h] = 0.0f;
      }
      rescale_o();
#pragma unroll
      for (int i = 0; i < C::kBlockN / 4; i++) {
        uint32_t& word = p[i / 4][i % 4];
        word = ptx::mul2<T>(ptx::mul2<T>(word, by[i % 2]), by[i % 2]);
      }
    }
  };
  // [/late]
  // [store]
  float inverse_sum[2];   // of the query tile that has just ended
  bool given_up = false;  // whether there was such a row
  // Ends the row sums of a query tile. Every consumer warp calls it.
  const auto end_sums = [&] {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float sum = layout::quad_sum(row_sum[h]);
      inverse_sum[h] = sum < INFINITY ? 1.0f / sum : NAN;
      given_up |= sum == 0.0f || sum == INFINITY;
    }
  };
  // Stages O in this warp's rows of sQ, after a barrier: every warp of the warpgroup has read Q.
  const auto store_o = [&](uint32_t t) {
    ptx::barrier_sync(C::kQRead + warpgroup_idx, 128);
    T(*const sO)[64][64] = smem.sQ[t % 2][warpgroup_idx];  // [kSlabs][64][64]
#pragma unroll
    for (int n = 0; n < kHeadDim / 16; n++) {  // 16 columns per step
      uint32_t rO[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        rO[i] = ptx::pack<T>(acc_o[8 * n + 2 * i] * inverse_sum[i % 2],
                             acc_o[8 * n + 2 * i + 1] * inverse_sum[i % 2]);
      }
      ptx::stmatrix_x4(
          rO, layout::chunk_address(sO, warp_idx * 16 + lane_idx % 16, n * 16 + lane_idx / 16 * 8));
    }
    ptx::fence_proxy_async();  // makes O visible to TMA, which reads by another path
    __syncwarp();              // lane 0 waits until all lanes have stored and fenced O
    if (lane_idx == 0) ptx::mbarrier_arrive(&smem.o_full[t % 2][warpgroup_idx]);
  };
  // [/store]

  // [turns]
  // Warpgroup g waits for its turn at barrier kTurn + g; the warpgroup before it arrives there when
  // its own turn ends. Its products then still run, but those started later queue behind them.
  const auto begin_turn = [&] { ptx::barrier_sync(C::kTurn + warpgroup_idx, 256); };
  const auto end_turn = [&](bool last) {
    const int next = warpgroup_idx + 1 < C::kWarpgroups ? warpgroup_idx + 1 : 0;
    // No warpgroup waits after the very last turn.
    if (!last || next > 0) ptx::barrier_arrive(C::kTurn + next, 256);
  };
  if (warpgroup_idx == C::kWarpgroups - 1) end_turn(false);  // warpgroup 0 has the first turn
  // [/turns]

  // [turn]
  // A turn starts S of tile n_block and O += PV of the tile before, and waits for S, not for PV.
  const auto start_qk = [&](uint32_t n_block) {
    wait_full(smem.k_full, n_block);
    begin_turn();
    multiply_qk(n_block);
  };
  const auto start_pv = [&](uint32_t n_block, const auto& p_before, bool accumulate) {
    wait_full(smem.v_full, n_block - 1);
    multiply_pv(n_block - 1, p_before, accumulate);
    end_turn(false);
    ptx::wgmma_wait<C::kOverlap ? 1 : 0>(acc_s);
    release(smem.k_empty, n_block);
  };
  // Computes P of tile n_block under PV of the tile before, and waits for that PV.
  const auto finish = [&](uint32_t n_block, auto& p_before, auto& p) {
    if (maxima_first) raise_to_maxima();
    exponentials(p);
    const bool good = R::kWide || fits();  // bf16 asks later, in look()
    if (good) add_sums();
    hold();
    ptx::wgmma_wait<0>(acc_o, p_before, p);  // naming p, too, keeps it in its registers
    release(smem.v_empty, n_block - 1);
    if (maxima_first) rescale_o();
    if (!good) again(p, false);
  };
  // [/turn]

  // ---- prologue
  ptx::mbarrier_wait(&smem.q_full[0][warpgroup_idx], 0);
  wait_full(smem.k_full, 0);
  multiply_qk(0);
  ptx::wgmma_wait<0>(acc_s);
  release(smem.k_empty, 0);
  auto& even = rP[0];
  auto& odd = rP[C::kOverlap ? 1 : 0];
  begin_rows();
  exponentials(even);
  fits() ? add_sums() : again(even, true);

  // ---- main loop
  // [loop]
  uint32_t t = 0;     // counts this CTA's query tiles
  uint32_t pair = 0;  // counts pairs of K tiles over all its query tiles
  uint32_t n = 1;     // is the second K tile of a pair, counted within its head
  // Registers cannot be indexed, so each of two iterations names its P.
  while (true) {
    for (;; n += 2, pair++) {
      start_qk(2 * pair + 1);
      if (n == 1 && t > 0) store_o(t - 1);  // QK^T goes on
      look(even);
      start_pv(2 * pair + 1, even, n > 1);
      finish(2 * pair + 1, even, odd);
      if (n + 1 == tiles) break;
      start_qk(2 * pair + 2);
      look(odd);
      start_pv(2 * pair + 2, odd, true);
      finish(2 * pair + 2, odd, even);
    }
    if (++t == its_tiles) break;
    // The last PV of query tile t - 1 shares its turn with the first S of query tile t.
    ptx::mbarrier_wait(&smem.q_full[t % 2][warpgroup_idx], t / 2 % 2);
    desc_q_t = layout::advance(desc_q, t % 2 * kQBytes);
    start_qk(2 * pair + 2);
    look(odd);
    start_pv(2 * pair + 2, odd, true);
    end_sums();
    begin_rows();
    exponentials(even);
    ptx::wgmma_wait<0>(acc_o, odd, even);
    release(smem.v_empty, 2 * pair + 1);
    fits() ? add_sums() : again(even, true);
    pair++;
    n = 1;
  }
  // [/loop]

  // ---- epilogue
  wait_full(smem.v_full, 2 * pair + 1);
  begin_turn();
  look(odd);
  multiply_pv(2 * pair + 1, odd, true);
  end_turn(true);
  end_sums();
  ptx::wgmma_wait<0>(acc_o, odd);
  store_o(t - 1);

  // [given-up]
  // ---- rows that were given up, which are NaN in O
  if (!R::kWide || !__any_sync(0xffffffffu, given_up)) return;
  ptx::mbarrier_wait(&smem.stored[warpgroup_idx], 0);
  for (t = 0; t < its_tiles; t++) {
    Place place = queries(t, warpgroup_idx);
    const auto head = [&](auto* tensor, const Strides& strides) {
      return tensor + place.sequence * strides.block + place.head * strides.head;
    };
    place.row += warp_idx * 16;
    for (int i = 0; i < 16 && place.row < int(seq_len); i++, place.row++) {
      T* const o = head(global.o, global.o_strides) + place.row * global.o_strides.row;
      // Each lane looks at what it would write: a row that was given up is NaN in all columns.
      const auto* const mine = reinterpret_cast<const uint32_t*>(o + lane_idx * (kHeadDim / 32));
      if (!__all_sync(0xffffffffu, isnan(ptx::unpack<T>(*mine).x))) continue;
      compute_row<T, kHeadDim>(head(global.q, global.q_strides) + place.row * global.q_strides.row,
                               head(global.k, global.k_strides), head(global.v, global.v_strides),
                               o, global.k_strides.row, global.v_strides.row, seq_len, scale_log2);
    }
  }
  // [/given-up]
}

// ---- host ---------------------------------------------------------------------------------------
template <typename T, int kHeadDim>
struct Launcher {
  static void run(const Attention<T>& a) {
    a.seq_len % 256 == 0 ? run_with<128>(a) : run_with<64>(a);
  }
  template <int kKeys>
  static void run_with(const Attention<T>& a) {
    using C = Config<kHeadDim, kKeys>;
    // Makes the map of a tensor, whose boxes are `rows` rows of a slab.
    const auto map = [&](const T* tensor, const Strides& strides, uint32_t rows) {
      return make_slab_map(tensor, kHeadDim, a.seq_len, a.heads, a.batch, strides, rows);
    };
    const int q_tiles = a.batch * a.heads * ((a.seq_len + C::kBlockM - 1) / C::kBlockM);
    launch<attention_kernel<T, kHeadDim, kKeys>>(
        {dim3(q_tiles < sm_count() ? q_tiles : sm_count()), dim3(C::kThreads),
         sizeof(SharedStorage<T, kHeadDim, kKeys>)},
        map(a.q, a.q_strides, 64), map(a.k, a.k_strides, C::kBlockN),
        map(a.v, a.v_strides, C::kBlockN), map(a.o, a.o_strides, 64),
        Global<T>{a.q, a.k, a.v, a.o, a.q_strides, a.k_strides, a.v_strides, a.o_strides},
        a.seq_len, a.heads, q_tiles, a.scale);
  }
};

const Registration<Launcher> registration{"16_max_free", Needs{90, true}, Traits::kMaxFree,
                                          Takes{.strides = true}};

}  // namespace fa::k16
