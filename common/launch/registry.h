// The list of kernels that exist in this program. Every kernel file ends with one line
//
//   const Registration<Launcher> registration{"02_online_softmax"};
//
// from which programs, tests, benchmarks and scripts learn that it is there; there is no other
// list.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/launch/problem.h"

namespace fa {

// Device pointers of one launch, as the harness hands them over: 16-byte aligned.
struct Tensors {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* o = nullptr;
  void* workspace = nullptr;  // as many bytes as the kernel's workspace_bytes() asked for
  size_t workspace_bytes = 0;
  void* stream = nullptr;  // a cudaStream_t, which takes the launches; null: the default stream
  // For packed sequences, [batch + 1] each: the first row of every sequence within a head of Q and
  // O, and of K and V, and the number of rows at the end. Null: not packed.
  const int* cu_seqlens_q = nullptr;
  const int* cu_seqlens_kv = nullptr;
  // A second output, [batch, heads, seq_len] or of packed sequences [heads, rows]: of each row the
  // natural logarithm of the sum of e^score over the keys that it sees, -inf if there are none.
  // Null: not wanted.
  float* lse = nullptr;
  // With pages: [batch, table_pages], the page of the pool that has keys j * page_size on of
  // sequence i, as far as the sequence has keys; and [batch], the keys of each. Null: no pages.
  const int* block_table = nullptr;
  const int* kv_lens = nullptr;
  // With sinks: [heads], the score of each. With ALiBi, the slopes: [heads] or [batch, heads].
  const float* sinks = nullptr;
  const float* alibi_slopes = nullptr;
  // Where the rows lie if the tensors are not contiguous. All 0: contiguous.
  Strides q_strides = {}, k_strides = {}, v_strides = {}, o_strides = {};
};

// The same for a kernel's launcher: typed, with the shape. head_dim is a template argument there.
template <typename T>
struct Attention {
  const T* q;  // [batch, heads, seq_len, head_dim], like k, v and o
  const T* k;
  const T* v;
  T* o;
  int batch, heads, seq_len;
  float scale;  // of the scores, above 0
  void* workspace;
  size_t workspace_bytes;
  // For kernels that take more (Takes below). Problem says how the tensors lie then: Q and O are
  // [batch, heads, seq_len, kHeadDim] and K and V [batch, kv_heads, kv_len, kHeadDim]; of packed
  // sequences [heads, q_rows, kHeadDim] and [kv_heads, kv_rows, kHeadDim].
  Mask mask;
  int kv_len, kv_heads;
  int q_rows, kv_rows;      // of one head: seq_len and kv_len, or the packed sequences together
  const int* cu_seqlens_q;  // [batch + 1], as in Tensors; null: not packed
  const int* cu_seqlens_kv;
  float* lse;  // [batch, heads, q_rows], as in Tensors; null: not wanted
  // K and V are [pages, kv_heads, page_size, kHeadDim] if there is a table, and kv_len is the most.
  const int* block_table;  // [batch, table_pages], as in Tensors; null: no pages
  const int* kv_lens;      // [batch]
  int page_size, table_pages;
  Strides q_strides, k_strides, v_strides, o_strides;
  bool contiguous;     // all four, and the strides say so
  bool deterministic;  // of gradients, as in Problem
  Fp8 fp8;
  Window window;              // with what the mask leaves of it
  float softcap;              // 0: none
  const float* sinks;         // [heads], as in Tensors; null: none
  const float* alibi_slopes;  // that of head h of sequence b is [b * alibi_stride + h]; null: none
  int alibi_stride;           // heads, or 0
};

// What a caller has who rounded Q, K and V to e4m3 already. The tensors stand for their numbers
// times scales: of tile t, 128 rows, of head h of sequence b that is first[b * block + i * head +
// t * tile], with i = h / (the tensor's heads / heads). A stride of 0: all have the same.
struct ScalesOfE4m3 {
  const float* first = nullptr;  // on the device; null: 1
  int heads = 1;                 // of scales, a divisor of the tensor's
  long long block = 0, head = 0, tile = 0;
};
struct OfE4m3 {
  ScalesOfE4m3 q, k, v;       // V's tile is 0: tiles of V are added in one sum
  bool v_transposed = false;  // contiguous [batch, kv_heads, head_dim, kv_len rounded up to 128]
};

// Which GPUs a kernel runs on. The emulator runs them all.
struct Needs {
  int compute_capability = 75;  // at least: 80 is sm_80
  bool exactly = false;         // only this one: sm_90a code runs on 9.0 alone
  int shared_bytes = 0;         // of a CTA with head_dim 128, if some of these GPUs have less
  int for_bf16 = 0;             // at least, if bf16 needs more: Tensor Cores have it from 80 on
};

// How a kernel works, as far as tests and tools choose their problems by it. From kAsync on each
// has what those before it have.
enum class Traits {
  kSlow,        // too slow for some problems that other kernels are tested on
  kPlain,       // none of these
  kAsync,       // copies while it computes: by cp.async or TMA
  kLazy,        // a row's reference may lag behind its running maximum
  kPersistent,  // a CTA computes one tile of queries after another
  kMaxFree,     // looks for a maximum only where the reference will not do
};

// What a kernel accepts beyond the plain problem, whose queries and keys are equally many, a
// multiple of 128, all visible, with as many heads of keys as of queries.
struct Takes {
  bool causal = false;
  bool any_length = false;  // of queries and of keys, also where these differ
  bool kv_heads = false;    // fewer heads of keys than of queries
  bool packed = false;      // sequences of different lengths; their lengths are any
  bool lse = false;         // the wish for a second output, log-sum-exp
  bool paged = false;       // K and V in pages, and sequences with different numbers of keys
  bool strides = false;  // tensors whose rows lie anywhere, such as [batch, rows, heads, columns]
  bool fp8 = false;      // problems that are rounded to e4m3, and no others
  bool deterministic = false;  // of gradients: the wish for the same bits in every launch
  bool window = false, sinks = false, softcap = false, alibi = false;  // as in Problem
};

inline constexpr Takes kEveryProblem{.causal = true,
                                     .any_length = true,
                                     .kv_heads = true,
                                     .packed = true,
                                     .window = true,
                                     .softcap = true};
inline constexpr Takes kEverything{// but pages
                                   .causal = true, .any_length = true, .kv_heads = true,
                                   .packed = true, .lse = true,        .strides = true};

// What computes a peer or a ceiling (bench/peers) in place of code of this repository.
struct Library {
  std::string name, version, implementation;
};

// Where an output is. Packed sequences are one block.
struct OutputRows {
  const void* data = nullptr;
  Strides strides;
  const float* lse = nullptr;  // of every row, contiguous as in Tensors; null: there is none
};

struct Comparison;  // oracle.h

// A ceiling is no attention and takes nothing of the problem but the dtype: what a launch does, and
// the check of what it gives.
struct Ceiling {
  double flops = 0;  // of a launch, or
  double bytes = 0;  // of a launch, read plus written
  // Launches once on poisoned memory and compares. Throws as run does.
  Comparison (*verify)(const Problem&) = nullptr;
};

struct Kernel {
  std::string name;
  Needs needs;
  // Bytes of workspace for the problem, at most `limit` where the kernel can divide its work.
  // Null: none.
  size_t (*workspace_bytes)(const Problem&, size_t limit) = nullptr;
  std::function<void(const Problem&, const Tensors&)> run = nullptr;
  // For peers and ceilings; throws Unsupported if the library is not here.
  std::function<Library()> library = nullptr;
  const Ceiling* ceiling = nullptr;  // for ceilings
  // For peers whose output lies in memory of their own: where their latest launch has put it.
  std::function<OutputRows(const Tensors&)> output = nullptr;
  Traits traits = Traits::kPlain;
  Takes takes = {};
  // How many bytes at the beginning of the workspace hold zeros before the first launch on a
  // problem, and then what the launch before left in them. Null: none.
  size_t (*zeroed_bytes)() = nullptr;
  // Above 0 if the kernel is faster on this problem than the order of by_speed() says, the greatest
  // first. Null: it never is.
  int (*leads)(const Problem&) = nullptr;
  // What comes before `run` and would not be repeated by those who launch often on the same K and
  // V: kernels of FP8 round their inputs here, into the workspace. It has no part in times. Null:
  // nothing.
  std::function<void(const Problem&, const Tensors&)> prepare = nullptr;
  bool own_rounding = false;  // of peers in FP8: not as Problem::fp8 says (oracle.h)
  // The same on Q, K and V that are e4m3, where their pointers point and their strides count to,
  // and O is of Problem::dtype; and the bytes of workspace for that. Null: the kernel takes none.
  std::function<void(const Problem&, const Tensors&, const OfE4m3&)> run_e4m3 = nullptr;
  size_t (*e4m3_workspace_bytes)(const Problem&, bool v_transposed) = nullptr;
  std::vector<int> head_dims = {64, 128};  // ascending; of peers it says nothing
};

// All kernels of this program, by name.
const std::vector<Kernel>& kernels();

// The kernel with this name or number ("02_online_softmax", "02", "2"; "causal" for
// "beyond/causal"; "16.next" for "16_max_free.next", which "16" never is). Throws BadInput.
const Kernel& find_kernel(std::string_view name_or_number);

// The kernels of this program from the fastest to the slowest on a problem that they take, without
// those of kernels/next, peers and ceilings, nor those of FP8 where it is not asked for: those that
// lead on it; then those with more traits; of as many the numbered ones, the last first.
std::vector<const Kernel*> by_speed(const Problem& problem);

// What "best" stands for in place of a name, and what was faster but does not take it.
struct Choice {
  const Kernel* kernel = nullptr;
  std::vector<std::pair<const Kernel*, std::string>> faster;  // and its refusal
};

// The fastest kernel that takes the tensors on the GPU present, of all or of those given from the
// fastest on. Throws Unsupported if none does, with what the most general ones take.
Choice best_kernel(const Problem& problem, const Tensors& with_strides);
Choice first_that_takes(const std::vector<const Kernel*>& by_speed, const Problem& problem,
                        const Tensors& with_strides);
inline constexpr std::string_view kBest = "best";

// The names of kernels in kernels/next end in it.
inline constexpr std::string_view kNext = ".next";
inline bool is_next(const Kernel& kernel) { return kernel.name.ends_with(kNext); }

// Whether all have the strides of contiguous ones.
bool is_contiguous(const Problem& problem, const Tensors& with_strides);

// Launches the kernel after the checks that it relies on (shape, alignment, workspace), with its
// preparation before. Throws BadInput or Unsupported before anything ran. Asynchronous on a GPU.
void run(const Kernel& kernel, const Problem& problem, const Tensors& tensors);

// The two parts of run() by themselves, with the same tensors: prepare() before run_prepared().
void prepare(const Kernel& kernel, const Problem& problem, const Tensors& tensors);
void run_prepared(const Kernel& kernel, const Problem& problem, const Tensors& tensors);

// Launches the kernel on e4m3 after the same checks, those of scales among them. Strides of Q, K
// and V are multiples of 16; problem.fp8 is kHead or kTile.
void run_e4m3(const Kernel& kernel, const Problem& problem, const Tensors& tensors,
              const OfE4m3& e4m3);

void register_kernel(Kernel kernel);

// The kernel's twin that records what it does (CMake's FA_TIMELINE), null if there is none. It is
// in no list.
const Kernel* recording_twin(const Kernel& kernel);
bool has_recording_twins();
void register_recording_twin(Kernel kernel);

// What a launcher gets of tensors with all their strides.
template <typename T>
Attention<T> attention_of(const Problem& problem, const Tensors& tensors) {
  return {static_cast<const T*>(tensors.q),
          static_cast<const T*>(tensors.k),
          static_cast<const T*>(tensors.v),
          static_cast<T*>(tensors.o),
          problem.batch,
          problem.heads,
          problem.seq_len,
          problem.scale(),
          tensors.workspace,
          tensors.workspace_bytes,
          problem.mask,
          problem.key_len(),
          problem.key_heads(),
          int(problem.q_rows()),
          int(problem.kv_rows()),
          tensors.cu_seqlens_q,
          tensors.cu_seqlens_kv,
          tensors.lse,
          tensors.block_table,
          tensors.kv_lens,
          problem.page_size,
          problem.page_size > 0 ? problem.table_pages() : 0,
          tensors.q_strides,
          tensors.k_strides,
          tensors.v_strides,
          tensors.o_strides,
          is_contiguous(problem, tensors),
          problem.deterministic,
          problem.fp8,
          problem.visible(),
          problem.softcap,
          problem.sinks ? tensors.sinks : nullptr,
          problem.alibi == Alibi::kNone ? nullptr : tensors.alibi_slopes,
          problem.alibi == Alibi::kSequence ? problem.heads : 0};
}

// Registers a kernel: Launcher<T, kHeadDim>::run(const Attention<T>&) launches it. Where they are
// there, prepare(const Attention<T>&) launches what comes before it, run_e4m3(const Attention<T>&,
// const OfE4m3&) the same on e4m3, e4m3_workspace_bytes(const Problem&, bool) sizes its workspace,
// workspace_bytes(const Problem&, size_t limit) sizes its workspace, zeroed_bytes() says how much
// of it begins as zeros, and leads(const Problem&) whether the kernel is the fastest one. kHeadDim
// is 64 or 128, and 96 or 256 where a member kTakesHeadDim96 or kTakesHeadDim256 is there.
template <template <typename T, int kHeadDim> class Launcher>
class Registration {
 public:
  explicit Registration(const char* name, Needs needs = {}, Traits traits = Traits::kPlain,
                        Takes takes = {}) {
    Kernel kernel{name, needs, nullptr, [](const Problem& problem, const Tensors& tensors) {
                    dispatch(problem, tensors,
                             [](auto launcher, const auto& attention) { launcher.run(attention); });
                  }};
    if constexpr (requires { &Launcher<__half, 128>::prepare; }) {
      kernel.prepare = [](const Problem& problem, const Tensors& tensors) {
        dispatch(problem, tensors,
                 [](auto launcher, const auto& attention) { launcher.prepare(attention); });
      };
    }
    if constexpr (requires { &Launcher<__half, 128>::workspace_bytes; }) {
      kernel.workspace_bytes = &Launcher<__half, 128>::workspace_bytes;
    }
    if constexpr (requires { &Launcher<__half, 128>::zeroed_bytes; }) {
      kernel.zeroed_bytes = &Launcher<__half, 128>::zeroed_bytes;
    }
    if constexpr (requires { &Launcher<__half, 128>::leads; }) {
      kernel.leads = &Launcher<__half, 128>::leads;
    }
    if constexpr (requires { &Launcher<__half, 128>::run_e4m3; }) {
      kernel.run_e4m3 = [](const Problem& problem, const Tensors& tensors, const OfE4m3& e4m3) {
        dispatch(problem, tensors,
                 [&](auto launcher, const auto& attention) { launcher.run_e4m3(attention, e4m3); });
      };
      kernel.e4m3_workspace_bytes = &Launcher<__half, 128>::e4m3_workspace_bytes;
    }
    if constexpr (kTakes96) kernel.head_dims.insert(kernel.head_dims.begin() + 1, 96);
    if constexpr (kTakes256) kernel.head_dims.push_back(256);
    kernel.traits = traits;
    kernel.takes = takes;
#ifdef FA_RECORDING
    register_recording_twin(kernel);
#else
    register_kernel(kernel);
#endif
  }

 private:
  static constexpr bool kTakes96 = requires { Launcher<__half, 128>::kTakesHeadDim96; };
  static constexpr bool kTakes256 = requires { Launcher<__half, 128>::kTakesHeadDim256; };

  // Calls body with the launcher for the problem.
  template <typename Body>
  static void dispatch(const Problem& problem, const Tensors& tensors, const Body& body) {
    problem.dtype == Dtype::kFp16 ? dispatch_head_dim<__half>(problem, tensors, body)
                                  : dispatch_head_dim<__nv_bfloat16>(problem, tensors, body);
  }
  template <typename T, typename Body>
  static void dispatch_head_dim(const Problem& problem, const Tensors& tensors, const Body& body) {
    const Attention<T> attention = attention_of<T>(problem, tensors);
#ifdef FA_TWO_OF_FOUR  // scripts/fa try: half of the work for the compiler
    constexpr int kHeadDim = std::is_same_v<T, __half> ? 64 : 128;
    if (problem.head_dim != kHeadDim) {
      throw Unsupported("this copy is compiled for bf16 with head_dim 128 and fp16 with 64 alone");
    }
    body(Launcher<T, kHeadDim>{}, attention);
#else
    if constexpr (kTakes96) {
      if (problem.head_dim == 96) return body(Launcher<T, 96>{}, attention);
    }
    if constexpr (kTakes256) {
      if (problem.head_dim == 256) return body(Launcher<T, 256>{}, attention);
    }
    problem.head_dim == 64 ? body(Launcher<T, 64>{}, attention)
                           : body(Launcher<T, 128>{}, attention);
#endif
  }
};

}  // namespace fa
