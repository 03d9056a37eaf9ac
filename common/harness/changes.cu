// Compiled by nvcc for a GPU, and as C++ for the emulator and for tests, where memory is the CPU's.
#include "common/harness/changes.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <bit>

#include "common/harness/device.h"
#include "common/launch/launch.h"

namespace fa {
namespace {

constexpr size_t kBlock = 64;  // rows that change places together
constexpr uint64_t kSigns = 0x8000'8000'8000'8000;

// The finaliser of splitmix64 (Steele, Lea and Flood, 2014): every bit depends on every bit.
constexpr uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Signs of four elements: bit i of `four` is that of element i.
constexpr uint64_t signs(uint64_t four) {
  uint64_t result = 0;
  for (int i = 0; i < 4; i++) result |= (four >> i & 1) << (16 * i + 15);
  return result;
}

// Which of eight neighbouring columns change their sign.
struct Columns {
  size_t word;        // the first of two
  uint64_t signs[2];  // not all 0
};
constexpr Columns columns(uint64_t random, size_t words) {
  const uint64_t eight = 1 + random % 255;
  return {size_t(random / 255 % (words / 2)) * 2, {signs(eight), signs(eight >> 4)}};
}
constexpr void exchange(uint64_t& a, uint64_t& b) {
  const uint64_t kept = a;
  a = b;
  b = kept;
}
constexpr void flip(uint64_t* row, const Columns& by) {
  row[by.word] ^= by.signs[0];
  row[by.word + 1] ^= by.signs[1];
}

__host__ __device__ float value(uint16_t bits, Dtype dtype) {
  return dtype == Dtype::kBf16 ? __bfloat162float(std::bit_cast<__nv_bfloat16>(bits))
                               : __half2float(std::bit_cast<__half>(bits));
}

// ---- what is done for each row ------------------------------------------------------------------
struct Change {
  ChangingTensors t;
  uint64_t nonce;

  constexpr void operator()(size_t i) const {
    const Columns of_scores = columns(mixed(nonce + 1), t.words);
    const Columns of_v = columns(mixed(nonce + 2), t.words);
    if (i == 0) flip(t.state, of_v);
    if (i < t.kv_rows) {
      flip(t.k + i * t.words, of_scores);
      flip(t.v + i * t.words, of_v);
    }
    if (i < t.heads * t.q_rows) change_query(i / t.q_rows, i % t.q_rows, of_scores);
  }
  // Row i of a block that moves takes row i of the other block with it.
  constexpr void change_query(size_t head, size_t row, const Columns& of_scores) const {
    uint64_t* const q = t.q + (head * t.q_rows + row) * t.words;
    if (t.moving > 1 && row / kBlock < t.moving) {
      const uint64_t random = mixed(nonce + 3 + head);
      const size_t one = size_t(random % t.moving), mine = row / kBlock;
      const size_t other = (one + 1 + size_t(random / t.moving % (t.moving - 1))) % t.moving;
      if (mine == other) return;  // done with the row of `one`
      if (mine == one) {
        uint64_t* const partner = t.q + (head * t.q_rows + other * kBlock + row % kBlock) * t.words;
        for (size_t word = 0; word < t.words; word++) exchange(q[word], partner[word]);
        flip(partner, of_scores);
        uint64_t* const places = t.state + t.words + head * t.moving;
        if (row % kBlock == 0) exchange(places[one], places[other]);
      }
    }
    flip(q, of_scores);
  }
};

struct Begin {
  ChangingTensors t;
  constexpr void operator()(size_t i) const {
    if (i < t.words) t.state[i] = 0;
    if (i < t.heads * t.moving) t.state[t.words + i] = i % t.moving;
  }
};

struct Rows {
  ChangingTensors t;
  OutputRows output;
  KnownOutput known;
  unsigned long long* differing;

  // The word as the first inputs would have given it. A zero has no sign.
  constexpr uint64_t word(size_t row, size_t index) const {
    const size_t head = row / t.q_rows;
    const size_t at = output.strides.at(head / t.block_heads, head % t.block_heads, row % t.q_rows);
    const uint64_t now = static_cast<const uint64_t*>(output.data)[at / 4 + index] ^ t.state[index];
    const uint64_t not_zero = (now & ~kSigns) + ~kSigns;  // the sign bits of what is not zero
    return now & (~kSigns | not_zero);
  }
  // The row of the known output that must be in this row now.
  constexpr size_t first_row(size_t row) const {
    const size_t head = row / t.q_rows, of_head = row % t.q_rows;
    if (of_head / kBlock >= t.moving) return row;
    const uint64_t block = t.state[t.words + head * t.moving + of_head / kBlock];
    return head * t.q_rows + size_t(block) * kBlock + of_head % kBlock;
  }
  // A word's part of its row's sum: its product with an odd random number. The last word's has that
  // of log-sum-exp, too.
  __host__ __device__ uint64_t part(size_t row, size_t index) const {
    uint64_t sum = word(row, index) * (mixed(known.key + index) | 1);
    if (output.lse && index + 1 == t.words) {
      sum += std::bit_cast<uint32_t>(output.lse[row]) * (mixed(known.key + t.words) | 1);
    }
    return sum;
  }
  constexpr void keep(size_t row, uint64_t sum) const {
    const size_t to = first_row(row);
    known.sums[to] = sum;
    if (output.lse) known.lse[to] = output.lse[row];
    for (size_t i = 0; i < t.words; i++) known.rows[to * t.words + i] = word(row, i);
  }
  __host__ __device__ bool differs(size_t row) const {
    const uint64_t* const before = known.rows + first_row(row) * t.words;
    float largest = 0, most = 0;
    bool numbers = true;
    if (output.lse) {
      const float was = known.lse[first_row(row)], is = output.lse[row];
      if (!(was == is || fabsf(was - is) <= 1.0f / 64)) return true;
    }
    for (size_t i = 0; i < t.words * 4; i++) {
      const auto element = [&](uint64_t four) {
        return value(uint16_t(four >> (i % 4 * 16)), known.dtype);
      };
      const float was = element(before[i / 4]), is = element(word(row, i / 4));
      const float off = was < is ? is - was : was - is, size = was < 0 ? -was : was;
      if (!(off >= 0)) numbers = false;
      if (off > most) most = off;
      if (size > largest) largest = size;
    }
    return !numbers || most > largest / 64;
  }
};

// ---- for all rows -------------------------------------------------------------------------------
#ifdef __CUDACC__
// The profiler leaves out kernels whose names begin with harness_ (scripts/fa profile).
constexpr unsigned kThreads = 256;

cudaStream_t stream() { return static_cast<cudaStream_t>(work_stream()); }

unsigned grid_of(size_t threads) { return unsigned((threads + kThreads - 1) / kThreads); }

template <typename Body>
__global__ void harness_each(Body body, size_t count) {
  const size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) body(i);
}
template <typename Body>
void for_each(size_t count, const Body& body) {
  harness_each<<<grid_of(count), kThreads, 0, stream()>>>(body, count);
  check_cuda(cudaGetLastError(), "changing the inputs");
}

// A thread a word; a row's 16 or 32 words are in one warp.
template <bool kKeep>
__global__ void harness_rows(Rows rows) {
  const size_t thread = size_t(blockIdx.x) * kThreads + threadIdx.x, words = rows.t.words;
  const size_t row = thread / words;
  const bool there = row < rows.t.heads * rows.t.q_rows;
  uint64_t sum = there ? rows.part(row, thread % words) : 0;
  for (int half = int(words) / 2; half > 0; half /= 2) sum += __shfl_xor_sync(~0u, sum, half);
  if (!there || thread % words != 0) return;
  if (kKeep) {
    rows.keep(row, sum);
  } else if (sum != rows.known.sums[rows.first_row(row)] && rows.differs(row)) {
    atomicAdd(rows.differing, 1ull);
  }
}
template <bool kKeep>
void for_rows(const Rows& rows) {
  const size_t words = rows.t.heads * rows.t.q_rows * rows.t.words;
  harness_rows<kKeep><<<grid_of(words), kThreads, 0, stream()>>>(rows);
  check_cuda(cudaGetLastError(), "comparing outputs");
}
#else
template <typename Body>
void for_each(size_t count, const Body& body) {
  for (size_t i = 0; i < count; i++) body(i);
}
template <bool kKeep>
void for_rows(const Rows& rows) {
  for (size_t row = 0; row < rows.t.heads * rows.t.q_rows; row++) {
    uint64_t sum = 0;
    for (size_t i = 0; i < rows.t.words; i++) sum += rows.part(row, i);
    if (kKeep) {
      rows.keep(row, sum);
    } else if (sum != rows.known.sums[rows.first_row(row)] && rows.differs(row)) {
      ++*rows.differing;
    }
  }
}
#endif

}  // namespace

ChangingTensors::ChangingTensors(const Problem& problem)
    : words(size_t(problem.head_dim) / 4),
      heads(size_t(problem.blocks()) * size_t(problem.heads)),
      block_heads(size_t(problem.heads)),
      q_rows(problem.q_rows()),
      kv_rows(problem.kv_tensor_bytes() / 2 / size_t(problem.head_dim)),
      moving(problem.mask == Mask::kNone && problem.packed.empty() ? q_rows / kBlock : 0) {}

void begin_changes(const ChangingTensors& tensors) {
  for_each(tensors.state_words(), Begin{tensors});
}

void change_inputs(const ChangingTensors& t, uint64_t nonce) {
  for_each(std::max(t.kv_rows, t.heads * t.q_rows), Change{t, mixed(nonce)});
}

void keep_output(const ChangingTensors& t, const OutputRows& output, const KnownOutput& kept) {
  for_rows<true>({t, output, kept, nullptr});
}

void compare_output(const ChangingTensors& t, const OutputRows& output, const KnownOutput& known,
                    unsigned long long* differing) {
  for_rows<false>({t, output, known, differing});
}

}  // namespace fa
