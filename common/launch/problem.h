// One attention problem: O = softmax(Q K^T * scale) V, forward, without dropout.
// Q, K, V and O are [batch, heads, seq_len, head_dim] tensors of fp16 or bf16. The sixteen
// numbered kernels take that alone, those from 12 on with any strides; what a model needs besides
// is below the first fields of Problem, and each kernel's Takes (registry.h) says which of it the
// kernel accepts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace fa {

enum class Dtype { kFp16, kBf16 };

inline const char* name_of(Dtype dtype) { return dtype == Dtype::kFp16 ? "fp16" : "bf16"; }

// How far the scores of normal inputs spread. kGrowing: in proportion to the key's index, from next
// to nothing to sqrt(3) times as far as on average.
enum class Growth { kFlat, kGrowing };

inline const char* name_of(Growth growth) { return growth == Growth::kFlat ? "flat" : "growing"; }

struct Scores {
  double std = 1;  // standard deviation after scaling, in nats, over all keys (root mean square)
  Growth growth = Growth::kFlat;
  bool operator==(const Scores&) const = default;
};

// Which keys a query attends to. kCausal is aligned at the bottom right, as in FlashAttention from
// 2.1 on: the last query sees all keys, and each query before it one key fewer.
enum class Mask { kNone, kCausal };

inline const char* name_of(Mask mask) { return mask == Mask::kNone ? "none" : "causal"; }

// How many keys a query sees to the left and to the right of its own place; -1: all that there are.
// The place of query i is key i + kv_len - q_len, on the diagonal of a causal mask, which is itself
// a window of {-1, 0}.
struct Window {
  int left = -1, right = -1;
  bool operator==(const Window&) const = default;
};

// The keys from begin to end - 1.
struct KeyRange {
  int begin = 0, end = 0;
};

// ALiBi (Press, Smith and Lewis, "Train Short, Test Long", 2021): a score becomes less by a slope
// times the distance of the key from the query's place. There is a slope per head, or one per head
// of each sequence.
enum class Alibi { kNone, kHead, kSequence };

inline const char* name_of(Alibi alibi) {
  constexpr const char* kNames[] = {"none", "head", "sequence"};
  return kNames[int(alibi)];
}

// How Q, K and V are rounded to e4m3, numbers of eight bits, before they are multiplied. Numbers
// that share a scale are divided by it first: it is the largest of them over 448, the largest of
// e4m3. kHead has a scale per head of a sequence, kTile of Q and K one per 128 rows; with kRotated
// the rows of Q and K are also rotated before (common/launch/rotation.h). V always has a scale per
// head, because its tiles are added in one sum. P becomes e4m3 as well, O does not. kNone rounds
// nothing.
enum class Fp8 { kNone, kHead, kTile, kRotated };

inline const char* name_of(Fp8 fp8) {
  constexpr const char* kNames[] = {"none", "head", "tile", "rotated"};
  return kNames[int(fp8)];
}
inline constexpr int kFp8TileRows = 128;

// The lengths of one sequence, 0 included.
struct Sequence {
  int q_len = 0, kv_len = 0;
  bool operator==(const Sequence&) const = default;

  // The place of query i among the keys: the last query is at the last key.
  int place(int i) const { return i + kv_len - q_len; }
  // The keys that query i sees. Where there is none, the row of O is zeros.
  KeyRange visible_keys(const Window& window, int i) const {
    return {window.left < 0 ? 0 : std::clamp(place(i) - window.left, 0, kv_len),
            window.right < 0 ? kv_len : std::clamp(place(i) + window.right + 1, 0, kv_len)};
  }
  // How many these are, over all queries.
  double attended_pairs(const Window& window) const {
    // The sum of clamp(place(i) + offset, 0, kv_len): of the queries in the middle their number
    // times the mean, and of those behind kv_len each.
    const auto sum = [&](int offset) {
      const double rising = std::clamp(-place(offset), 0, q_len);
      const double full = std::clamp(kv_len - place(offset), 0, q_len);
      return (full - rising) * ((rising + full - 1) / 2 + place(offset)) + (q_len - full) * kv_len;
    };
    return (window.right < 0 ? double(q_len) * kv_len : sum(window.right + 1)) -
           (window.left < 0 ? 0 : sum(-window.left));
  }
};

// Where the rows of a tensor lie: how many elements apart neighbouring blocks (or pages), heads and
// rows are. The head_dim elements of a row are neighbours.
struct Strides {
  long long block = 0, head = 0, row = 0;
  bool operator==(const Strides&) const = default;

  // The element that a row begins with.
  constexpr size_t at(size_t of_block, size_t of_head, size_t of_row) const {
    return of_block * size_t(block) + of_head * size_t(head) + of_row * size_t(row);
  }
};

struct Problem {
  int batch = 1;      // sequences
  int heads = 1;      // of Q and O
  int seq_len = 128;  // queries of a sequence; of packed sequences, the most of any
  int head_dim = 128;
  Dtype dtype = Dtype::kBf16;
  std::optional<Scores> scores;  // without: those of Q and K from N(0, 1), whose std is 1

  Mask mask = Mask::kNone;
  // What else happens to the scores, after they are scaled and in this order: with a softcap c > 0
  // a score s becomes c tanh(s / c); ALiBi's slopes; the window, beside the mask. With sinks a row
  // ends with one more score, of its head, to which no key belongs: it adds to the row's sum, and
  // so to its log-sum-exp, and nothing to O.
  float softcap = 0;  // 0: none
  Alibi alibi = Alibi::kNone;
  Window window;
  bool sinks = false;
  std::optional<int> kv_len;    // keys of a sequence; without: seq_len
  std::optional<int> kv_heads;  // of K and V; without: heads. Head h reads h / (heads / kv_heads)
  // Sequences of different lengths, one behind the other: Q and O are [heads, total queries,
  // head_dim], K and V [kv_heads, total keys, head_dim]. Empty: `batch` sequences of one length,
  // Q and O [batch, heads, seq_len, head_dim], K and V [batch, kv_heads, kv_len, head_dim].
  std::vector<Sequence> packed;  // set by pack()
  // K and V in pages of so many keys, 16 to 256, in a pool [pages, kv_heads, page_size, head_dim],
  // where a table says which page has which keys of a sequence. 0: not in pages. Set by page().
  int page_size = 0;
  int pages = 0;
  std::vector<int> kv_lens;        // with pages: the keys of each sequence, up to kv_len
  std::optional<float> own_scale;  // of the scores, above 0; without: 1/sqrt(head_dim)
  Fp8 fp8 = Fp8::kNone;            // not of packed sequences or pages
  bool deterministic = false;      // of gradients: dQ has the same bits in every launch

  void pack(const std::vector<Sequence>& sequences) {
    packed = sequences;
    batch = int(sequences.size());
    seq_len = 0;
    kv_len = 0;
    for (const Sequence& each : sequences) {
      seq_len = std::max(seq_len, each.q_len);
      kv_len = std::max(*kv_len, each.kv_len);
    }
    if (kv_len == seq_len) kv_len.reset();
  }
  // The pool has more pages than are needed: one per sequence.
  void page(int size, const std::vector<int>& lengths) {
    page_size = size;
    kv_lens = lengths;
    batch = pages = int(lengths.size());
    kv_len = *std::max_element(lengths.begin(), lengths.end());
    for (const int length : lengths) pages += (length + size - 1) / size;
    if (kv_len == seq_len) kv_len.reset();
  }

  // The window that mask and window leave.
  Window visible() const { return mask == Mask::kNone ? window : Window{window.left, 0}; }
  float scale() const { return own_scale.value_or(1.0f / std::sqrt(float(head_dim))); }
  int key_len() const { return kv_len.value_or(seq_len); }
  int key_heads() const { return kv_heads.value_or(heads); }
  Sequence sequence(int i) const {
    if (!packed.empty()) return packed[size_t(i)];
    return {seq_len, kv_lens.empty() ? key_len() : kv_lens[size_t(i)]};
  }
  // Rows of Q or K that share a scale of FP8, of a head of so many.
  int rows_per_scale(int rows) const { return fp8 == Fp8::kHead ? rows : kFp8TileRows; }
  int table_pages() const { return (key_len() + page_size - 1) / page_size; }  // per sequence

  // The tensors are [blocks, heads, rows, head_dim]: the rows of one head of Q, and of one of K.
  int blocks() const { return packed.empty() ? batch : 1; }
  size_t q_rows() const {
    size_t sum = packed.empty() ? size_t(seq_len) : 0;
    for (const Sequence& each : packed) sum += size_t(each.q_len);
    return sum;
  }
  size_t kv_rows() const {
    size_t sum = packed.empty() ? size_t(key_len()) : 0;
    for (const Sequence& each : packed) sum += size_t(each.kv_len);
    return sum;
  }

  size_t head_count() const { return size_t(batch) * size_t(heads); }
  // Of Q and O; of K and V.
  size_t row_count() const { return size_t(blocks()) * size_t(heads) * q_rows(); }
  size_t kv_row_count() const { return size_t(blocks()) * size_t(key_heads()) * kv_rows(); }
  size_t element_count() const { return row_count() * size_t(head_dim); }
  size_t kv_element_count() const { return kv_row_count() * size_t(head_dim); }
  size_t tensor_bytes() const { return element_count() * 2; }
  // As kernels find them, which may be in pages.
  size_t kv_tensor_bytes() const {
    const size_t in_pages = size_t(pages) * size_t(key_heads()) * size_t(page_size);
    return (page_size > 0 ? in_pages : kv_row_count()) * size_t(head_dim) * 2;
  }
  // Contiguous tensors: those of Q and O; those of K and V.
  Strides strides() const { return contiguous(heads, q_rows()); }
  Strides kv_strides() const {
    return contiguous(key_heads(), page_size > 0 ? size_t(page_size) : kv_rows());
  }
  Strides contiguous(int of_heads, size_t rows) const {
    const long long head = (long long)(rows)*head_dim;
    return {of_heads * head, head, head_dim};
  }
  bool operator==(const Problem&) const = default;

  // Whether nothing but the fields before `mask` is used.
  bool is_plain() const {
    return mask == Mask::kNone && has_plain_scores() && !kv_len && !kv_heads && packed.empty() &&
           page_size == 0 && fp8 == Fp8::kNone && seq_len % 128 == 0;
  }
  // Whether scores are scaled and nothing else, beside the mask.
  bool has_plain_scores() const {
    return softcap == 0 && alibi == Alibi::kNone && window == Window{} && !sinks;
  }
  // Pairs of a query and a key that it sees, over all heads and sequences.
  double attended_pairs() const {
    double sum = 0;
    for (int i = 0; i < batch; i++) sum += sequence(i).attended_pairs(visible());
    return sum * heads;
  }
  // Two matrix products, a multiplication and an addition each, on the attended pairs:
  // 4 * B * H * N^2 * D without a mask.
  double flops() const { return 4.0 * attended_pairs() * double(head_dim); }
};

// Bad input: one clear sentence. Programs print it and exit with 2.
struct BadInput : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The back end failed (CUDA error, emulator's verdict). Programs exit with 3.
struct BackendError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What this GPU or this problem lacks for a kernel: the kernel is skipped, the text is the reason.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace fa
