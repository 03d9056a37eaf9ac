// What changes between two timed launches, and how every launch's output is checked, on the GPU,
// between the timed intervals: so that no launch can hand over what an earlier one computed.
//
// A nonce, which no kernel can foresee, changes all three inputs. The output that they then give is
// known, because it is the first one with signs and rows changed:
//   - Some of eight neighbouring columns of V change their sign, and so do these columns of O.
//   - Some of eight columns of Q and of K change their sign together: no score changes.
//   - In each head two blocks of 64 rows of Q change places, and so do these rows of O. Not with a
//     mask or packed sequences, where the place of a row decides which keys it sees.
// Signs do not change a rounding, so O is the same to the bit. Rows that have other neighbours in
// their tile may be rounded otherwise where neighbours decide something together (a reference for
// several rows, chapter 16); then the values count.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/launch/problem.h"
#include "common/launch/registry.h"  // IWYU pragma: export

namespace fa {

// The tensors of one set of buffers, in words of four elements; rows are contiguous.
struct ChangingTensors {
  size_t words;                       // of a row: head_dim / 4
  size_t heads, block_heads, q_rows;  // of Q and O: all heads, those of a block, rows of a head
  size_t kv_rows;                     // of K and V: all
  size_t moving;                      // blocks of 64 rows of a head of Q that may change places
  uint64_t *q = nullptr, *k = nullptr, *v = nullptr;
  uint64_t* state = nullptr;  // on the device, state_words() words
  explicit ChangingTensors(const Problem& problem);

  // Which signs of a row of O are not the first inputs', a word per word of the row; then of each
  // block of rows, head by head, which block of the first inputs is there now.
  size_t state_words() const { return words + heads * moving; }
};

// The state of inputs that have not changed.
void begin_changes(const ChangingTensors& tensors);
// Changes Q, K, V and the state. Asynchronous on a GPU, on the work stream, as are the next two.
void change_inputs(const ChangingTensors& tensors, uint64_t nonce);

// An output as it would be without the changes, and a sum of each row that tells rows apart.
struct KnownOutput {
  Dtype dtype;
  uint64_t key = 0;          // of the sums: not known to kernels
  uint64_t* rows = nullptr;  // [heads, q_rows, words]
  uint64_t* sums = nullptr;  // [heads, q_rows]
  float* lse = nullptr;      // [heads, q_rows], of kernels that give it
};
void keep_output(const ChangingTensors& tensors, const OutputRows& output, const KnownOutput& kept);
// Adds to *differing the number of rows that are not the known ones: whose sum is another, and of
// which an element differs by more than 1/64 of the row's largest one, or log-sum-exp by more than
// 1/64, or one of them is NaN.
void compare_output(const ChangingTensors& tensors, const OutputRows& output,
                    const KnownOutput& known, unsigned long long* differing);

}  // namespace fa
