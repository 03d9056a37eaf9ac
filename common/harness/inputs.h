// Q, K and V to run on: random and hard ones, the same bits on every platform.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/launch/problem.h"  // IWYU pragma: export

namespace fa {

// One head of one sequence: where its rows of Q and O begin, and its rows of K and V.
struct HeadRows {
  int sequence, head;
  size_t q_row, kv_row;
  Sequence lengths;
};

// fp16 or bf16 patterns, in the shapes that Problem gives. K and V are never in pages: [batch,
// kv_heads, kv_len, head_dim], and of a sequence with fewer keys the rest is 0.
struct Inputs {
  std::vector<uint16_t> q, k, v;
  std::vector<float> sinks = {},
                     alibi_slopes = {};  // as in Tensors; empty where the problem has none

  // The sink of a head, -inf where there is none, and ALiBi's slope, 0 where there is none.
  float sink(const HeadRows& of) const;
  float slope(const Problem& problem, const HeadRows& of) const;
};

// K and V of a problem with pages as kernels find them. Pages are in random order; those that no
// sequence has, and what is behind a sequence's last key, are NaN.
struct Pool {
  std::vector<uint16_t> k, v;    // [pages, kv_heads, page_size, head_dim]
  std::vector<int> block_table;  // [batch, table_pages]; behind the last key a page without keys
};
Pool make_pool(const Problem& problem, const Inputs& inputs, uint64_t seed);

// All heads of all sequences, in the order in which they lie in Q.
std::vector<HeadRows> head_rows(const Problem& problem);

float to_float(uint16_t bits, Dtype dtype);
uint16_t from_float(float value, Dtype dtype);

// The names that make_inputs knows; each is hard on something else:
//   normal          N(0, 1), what results are measured on; with problem.scores, Q and K scaled to
//                   those
//   large           scores of some hundreds: overflows an exponential without the row maximum
//   dominant_key    one key takes almost all of the weight
//   equal_keys      all keys equal: O is the mean of V, every weight 1/N
//   increasing_max  scores grow with the key's index: every tile raises the maximum and rescales
//   tiny            values near fp16's subnormals
//   one_hot_v       V[j] has a single 1, in column j mod head_dim: a misplaced element of P or V
//                   shows as a whole wrong column
// and those of hot_input_names.
const std::vector<std::string>& input_names();

// Hard on an exponent's reference that lags behind the row maximum. Hot: about 100 nats (2^144)
// above the rest, where not stated otherwise; a block is 128 keys.
//   hot_first_block the first block of keys is hot
//   hotter_blocks   each block is 40 nats hotter than the one before, over 64 blocks; then again
//   hot_row         of 64 rows of Q one has scores of +-100, the others of N(0, 1)
//   hot_tiles       some groups of 64 rows of Q are hot: ordinary tiles come after hot ones
//   dominant_first  the first key is hot: in the first block, and in no other, one lane has it
//   dominant_last   the last key is hot
//   huge_scores     2^19 before scaling (fp32 resolves 1/16 there): rows that are so high
//                   everywhere, so low everywhere, high and low from key to key or from block to
//                   block, and ordinary ones
const std::vector<std::string>& hot_input_names();

// All of input_names and eight more, which no table of speeds has:
//   hot_diagonal    the last key that a causal query sees and the first that it does not see are
//                   as hot as each other and 8 nats hotter than the keys before them, in fifteen of
//                   sixteen rounds of head_dim keys: a mask that is off by a key shows as a whole
//                   wrong row. For the numbered kernels it says nothing new.
//   uneven_rows     half of each 16 rows of Q score 110 nats above the other half: in rows 0 to 15
//                   the even ones, in 16 to 31 pairs, then fours, then eights, and in rows 64 to
//                   127 the other half. Where two rows share a reference, the lower one becomes
//                   0 / 0, and no row of the warp overflows, after which its maxima might be taken
//   huge_v          V is of the order of 2^100 (fp16: 2^13). In every second group of four rows of
//                   Q, but in none of the first 16 of 64 rows, the scores of a block of 128 keys
//                   are 60 nats, then 90, then 60, ... above those of the block before, over 64
//                   blocks; then again. Where a reference lags behind by 60 nats, P is about 2^87:
//                   in bf16 that is in range, but P V is not.
//   outliers        N(0, 1) and, of one element of a thousand, N(0, 100) besides: those of
//                   FlashAttention-3's Table 3, on FP8, where an outlier leaves few bits to the
//                   numbers that share its scale
//   student_t       Student's t of three degrees of freedom over the root of three: variance 1, and
//                   outliers of any size, each ten times as large a thousand times as rare
//   loud_channels   two columns of Q and K, 5 and 77 (of 64: 13), are ten and eight times as large
//                   as the others, as in trained models
//   v_mean          V is N(1, 1): in FP8, sums that are cut off lose more with each key
//   mixed_heads     heads of K are of seven kinds in turn: normal, equal_keys, hot_row, large,
//                   tiny, increasing_max, huge_scores. What a CTA keeps from a query tile of one
//                   head does not fit the next head.
const std::vector<std::string>& all_input_names();

// With sinks these are from N(3, 4), so that with some hundreds of keys a sink has a part of the
// row that is neither all nor nothing. ALiBi's slopes of n heads are those of its paper, 2^(-8/n),
// 2^(-16/n), ..., and with a slope per sequence twice, three times, ... as much.
//
// Throws BadInput for an unknown name, and for problem.scores of other inputs than normal.
Inputs make_inputs(const Problem& problem, const std::string& name, uint64_t seed);

}  // namespace fa
