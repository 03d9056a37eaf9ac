// What changes between two timed launches, and how every launch's output is checked, on the GPU,
// between the timed intervals: so that no launch can hand over what an earlier one computed.
//
// A nonce, which no kernel can foresee, gives half of all elements of K and of V the other sign,
// each by itself. So every score is another one, every row of O too, and nothing of what an earlier
// launch knew helps: attention has to be computed. Sizes stay, and so does the time of a kernel.
// K of other inputs than normal stays as it is, because signs would take away what is hard about
// it: a kernel that kept all its weights, N^2 of them, would only have to multiply them by V.
//
// What O must be is known of some rows, which the nonce picks, too. They are computed in fp32, from
// copies of the inputs that no kernel has an address of, and compared as oracle.h compares. All
// other rows must be there: O was NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/harness/inputs.h"
#include "common/launch/problem.h"
#include "common/launch/registry.h"  // IWYU pragma: export

namespace fa {

inline constexpr int kRowsChecked = 32;  // of each launch
inline constexpr int kKeyParts = 8;      // in which the keys of a row are worked through, for speed

// Eight neighbouring elements of a row, in 16 bytes.
struct alignas(16) Eight {
  uint64_t words[2];
};

// Q, K and V as they were made, on the device, contiguous; K and V in pages as kernels find them.
struct Originals {
  const Eight *q = nullptr, *k = nullptr, *v = nullptr;
  size_t q_count = 0, kv_count = 0;
  bool k_changes = true;
};

// Writes K and V with the nonce's signs; with nonce 0, Q, K and V as they were made. Asynchronous
// on a GPU, on the work stream, as is check_output.
void change_inputs(const Originals& originals, uint64_t nonce, Eight* q, Eight* k, Eight* v);

// A row of O that is computed again.
struct CheckedRow {
  size_t row;      // of Q and O, as they lie contiguous
  size_t kv_row;   // its first key: a row of K and V; in pages the head, of all heads of a page
  KeyRange keys;   // that it sees
  int table_from;  // with pages: where its sequence begins in the block table
  int place;       // of the query among the keys
  float slope, sink;
};
// `count` rows of all heads of all sequences, which the nonce picks. `heads` is head_rows(problem);
// of the inputs only what heads have is read.
std::vector<CheckedRow> rows_to_check(const Problem& problem, const std::vector<HeadRows>& heads,
                                      const Inputs& inputs, uint64_t nonce,
                                      int count = kRowsChecked);

// What is found in the output of one launch.
struct Found {
  unsigned long long wrong_rows;    // of those that were computed again
  unsigned long long not_a_number;  // places of eight elements in which O is not finite, and rows
                                    // whose log-sum-exp is NaN
};

struct OutputCheck {
  Originals originals;
  Problem problem;                   // not read on the device
  const int* block_table = nullptr;  // of pages
  const CheckedRow* rows = nullptr;  // [row_count]
  int row_count = kRowsChecked;
  float* parts = nullptr;     // workspace, part_floats(row_count, head_dim)
  bool own_rounding = false;  // as in precision_of
};
size_t part_floats(int rows, int head_dim);

// Adds to *found. All pointers are the device's.
void check_output(const OutputCheck& check, uint64_t nonce, const OutputRows& output, Found* found);

// Copies an output that lies with strides into [heads of all blocks, rows, head_dim] in `to`.
void gather_output(const Problem& problem, const OutputRows& output, Eight* to);

}  // namespace fa
