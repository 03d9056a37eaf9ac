// The C entry point: what fa.h promises, on top of fa::run.
#include "common/api/fa.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#ifdef FA_FASTER
#include "common/emulator/core/launch.h"
#endif
#include "common/harness/results.h"
#include "common/launch/gradients.h"
#include "common/launch/launch.h"
#include "common/launch/registry.h"
#include "common/launch/validation.h"

namespace fa {
namespace {

thread_local std::string message, plan_text;

// Calls body; an exception becomes a status and the sentence of fa_error().
template <typename Body>
fa_status guarded(const Body& body) noexcept {
  try {
    message.clear();
    try {
      body();
      return FA_OK;
    } catch (const BadInput& error) {
      message = error.what();
      return FA_BAD_INPUT;
    } catch (const Unsupported& error) {
      message = error.what();
      return FA_UNSUPPORTED;
    } catch (const std::bad_alloc&) {
      message = "not enough memory for this problem";
    } catch (const std::exception& error) {
      message = error.what();
    }
  } catch (...) {  // the sentence itself does not fit into memory
  }
  return FA_FAILED;
}

// sizeof(fa_options) in the headers of all releases. A version that adds fields adds its size here.
// New fields begin at or behind the size before, whose last bytes may hold anything: the four
// behind `scale` in a program of 1.0.0. No release has had `deterministic` and not what follows it.
constexpr size_t kOptionsSizes[] = {96 /* 1.0.0 */, 232 /* 1.1.0 */};
static_assert(*std::rbegin(kOptionsSizes) == sizeof(fa_options));

// What an older header does not have is 0, which says nothing.
fa_options read_options(const fa_options* given) {
  fa_options options{};
  if (!given) return options;
  const size_t size = given->size;
  if (std::find(std::begin(kOptionsSizes), std::end(kOptionsSizes), size) ==
      std::end(kOptionsSizes)) {
    std::string known;
    for (const size_t each : kOptionsSizes) {
      known += (known.empty() ? "" : " and ") + std::to_string(each);
    }
    throw BadInput("size is " + std::to_string(size) +
                   ", but must be sizeof(fa_options), which tells the library the fa.h of its "
                   "caller: version " FA_VERSION " knows " +
                   known + ", and a larger one is a later header's, which needs a later library");
  }
  std::memcpy(&options, given, size);
  if (options.mask != FA_MASK_NONE && options.mask != FA_MASK_CAUSAL) {
    throw BadInput("mask must be FA_MASK_NONE or FA_MASK_CAUSAL, not " +
                   std::to_string(int(options.mask)));
  }
  if (!options.cu_seqlens_q != !options.cu_seqlens_kv) {
    throw BadInput("cu_seqlens_q and cu_seqlens_kv belong together: give both or none");
  }
  if (options.cu_seqlens_q && std::min(options.q_rows, options.kv_rows) < 1) {
    throw BadInput("packed sequences need q_rows and kv_rows, which must be at least 1");
  }
  const int given_of_pages = (options.page_size != 0) + (options.pages > 0) +
                             (options.block_table != nullptr) + (options.kv_lens != nullptr);
  if (given_of_pages % 4 != 0) {
    throw BadInput("page_size, pages, block_table and kv_lens belong together: give all or none");
  }
  if (options.scale != 0 && !(options.scale >= 1e-30f && options.scale <= 1000)) {  // NaN is not
    throw BadInput("scale must be from 1e-30 to 1000, or 0 for 1/sqrt(head_dim)");
  }
  if (options.deterministic != 0 && options.deterministic != 1) {
    throw BadInput("deterministic must be 0 or 1, not " + std::to_string(options.deterministic));
  }
  for (const auto& [name, value] : {std::pair("has_window", options.has_window),
                                    {"alibi_per_sequence", options.alibi_per_sequence}}) {
    if (value == 0 || value == 1) continue;
    throw BadInput(std::string(name) + " must be 0 or 1, not " + std::to_string(value));
  }
  return options;
}

// The lengths of packed sequences. On a GPU they are in its memory, and to read them the call would
// have to wait: then the first stands for all, since kernels take from the problem nothing but
// their number, their sum, and seq_len and kv_len.
std::vector<Sequence> sequences_of(const fa_options& options, int batch, int q_len, int kv_len) {
  if (batch < 1) return {};  // validate() says so
  std::vector<Sequence> result(size_t(batch), Sequence{});
  result.front() = {options.q_rows, options.kv_rows};
  if (on_gpu()) return result;
  const auto lengths = [&](const int* begins, int rows, int most, const std::string& name) {
    std::vector<int> found;
    for (int i = 0; i < batch; i++) found.push_back(begins[i + 1] - begins[i]);
    if (begins[0] != 0 || begins[batch] != rows ||
        *std::min_element(found.begin(), found.end()) < 0)
      throw BadInput(name + " must begin with 0, grow, and end with " + std::to_string(rows));
    if (const int longest = *std::max_element(found.begin(), found.end()); longest > most) {
      throw BadInput(name + " has a sequence of " + std::to_string(longest) + ", but the longest " +
                     "is said to have " + std::to_string(most));
    }
    return found;
  };
  const auto q = lengths(options.cu_seqlens_q, options.q_rows, q_len, "cu_seqlens_q");
  const auto kv = lengths(options.cu_seqlens_kv, options.kv_rows, kv_len, "cu_seqlens_kv");
  for (size_t i = 0; i < result.size(); i++) result[i] = {q[i], kv[i]};
  return result;
}

// The table of a valid problem, which a GPU has in its memory.
void check_table(const Problem& problem, const fa_options& options) {
  for (size_t i = 0; i < problem.kv_lens.size() && !on_gpu(); i++) {
    for (int j = 0; j * problem.page_size < problem.kv_lens[i]; j++) {
      const int page = options.block_table[i * size_t(problem.table_pages()) + size_t(j)];
      if (page >= 0 && page < problem.pages) continue;
      throw BadInput("block_table has page " + std::to_string(page) + " for sequence " +
                     std::to_string(i) + ", but pages are 0 to " +
                     std::to_string(problem.pages - 1));
    }
  }
}

// Lengths are not checked here: refusal() says what a kernel takes.
Problem problem_of(const fa_problem& given, const fa_options& options, Fp8 fp8) {
  if (given.dtype != FA_FP16 && given.dtype != FA_BF16) {
    throw BadInput("dtype must be FA_FP16 or FA_BF16, not " + std::to_string(int(given.dtype)));
  }
  Problem problem;
  problem.batch = given.batch;
  problem.heads = given.heads;
  problem.seq_len = given.seq_len;
  problem.head_dim = given.head_dim;
  problem.dtype = given.dtype == FA_FP16 ? Dtype::kFp16 : Dtype::kBf16;
  problem.fp8 = fp8;
  if (options.mask == FA_MASK_CAUSAL) problem.mask = Mask::kCausal;
  if (options.scale != 0) problem.own_scale = options.scale;
  if (options.has_window) problem.window = {options.window_left, options.window_right};
  problem.softcap = options.softcap;
  if (options.alibi_slopes) {
    problem.alibi = options.alibi_per_sequence ? Alibi::kSequence : Alibi::kHead;
  }
  problem.sinks = options.sinks != nullptr;
  if (options.kv_len != 0 && options.kv_len != given.seq_len) problem.kv_len = options.kv_len;
  if (options.kv_heads != 0 && options.kv_heads != given.heads) problem.kv_heads = options.kv_heads;
  Problem entries;  // so many are read of the lists below
  entries.batch = given.batch;
  entries.heads = given.heads;
  validate(entries, /*any_length=*/true);
  if (options.cu_seqlens_q) {
    if (std::min(problem.seq_len, problem.key_len()) < 1) {
      throw BadInput("packed sequences need seq_len and kv_len, the longest, of at least 1");
    }
    problem.packed = sequences_of(options, given.batch, given.seq_len, problem.key_len());
  }
  if (options.block_table && problem.batch > 0) {
    problem.page_size = options.page_size;
    problem.pages = options.pages;
    // On a GPU kernels read the lengths alone, and here each may be the longest.
    problem.kv_lens.assign(size_t(problem.batch), problem.key_len());
    if (!on_gpu()) problem.kv_lens.assign(options.kv_lens, options.kv_lens + problem.batch);
  }
  validate(problem, /*any_length=*/true);
  check_table(problem, options);
  // A window that hides nothing, as those of models do on short texts, shall not keep kernels away;
  // and one of the keys up to the query's own place is the causal mask.
  Window& window = problem.window;
  if (window == Window{-1, 0}) problem.mask = Mask::kCausal;
  const bool causal = problem.mask == Mask::kCausal;
  const bool all_left = window.left < 0 || window.left >= problem.key_len() - 1;
  const bool all_right = window.right < 0 || causal || window.right >= problem.seq_len - 1;
  if (all_left && all_right) window = {};
  return problem;
}

// What is said of e4m3 besides the tensors.
OfE4m3 read_fp8(const fa_fp8* given, const Problem& problem) {
  fa_fp8 fp8{};
  if (given) {
    if (given->size != sizeof(fa_fp8)) {
      throw BadInput("size is " + std::to_string(given->size) +
                     ", but must be sizeof(fa_fp8), which version " FA_VERSION " knows as " +
                     std::to_string(sizeof(fa_fp8)));
    }
    fp8 = *given;
  }
  const auto scales = [&](const fa_scales& s) -> ScalesOfE4m3 {
    if (!s.scales) return {};
    return {s.scales, s.heads != 0 ? s.heads : problem.key_heads(), s.block, s.head, s.tile};
  };
  if (fp8.v_transposed != 0 && fp8.v_transposed != 1) {
    throw BadInput("v_transposed must be 0 or 1, not " + std::to_string(fp8.v_transposed));
  }
  return {scales(fp8.q), scales(fp8.k), scales(fp8.v), fp8.v_transposed == 1};
}

// How many slopes ALiBi has.
size_t slopes_of(const Problem& problem) {
  return problem.alibi == Alibi::kSequence ? problem.head_count() : size_t(problem.heads);
}

size_t lse_bytes(const Problem& problem) { return problem.row_count() * sizeof(float); }

// A tensor's memory: rows of `row` bytes, as many and as far apart as each of the dimensions says.
struct Memory {
  struct Dimension {
    size_t stride, size;  // in bytes; how many neighbours
  };
  std::string name;
  uintptr_t begin;
  size_t bytes, row;  // from its first element to its last one; of a row
  std::vector<Dimension> dimensions;
};

// Of Q, K and V, which are e4m3 where the problem is in FP8. All other tensors are of 16 bits.
size_t input_bytes(const Problem& problem) { return problem.fp8 == Fp8::kNone ? 2 : 1; }

size_t input_span(const Problem& problem, const Strides& at, bool of_keys) {
  return span_bytes(problem, at, of_keys) / 2 * input_bytes(problem);
}

Memory memory_of(const Problem& problem, const char* name, const void* begin, const Strides& at,
                 bool of_keys, size_t element = 2) {
  const bool paged = of_keys && problem.page_size > 0;
  const size_t rows =
      paged ? size_t(problem.page_size) : (of_keys ? problem.kv_rows() : problem.q_rows());
  return {name,
          uintptr_t(begin),
          span_bytes(problem, at, of_keys) / 2 * element,
          size_t(problem.head_dim) * element,
          {{size_t(at.block) * element, size_t(paged ? problem.pages : problem.blocks())},
           {size_t(at.head) * element, size_t(of_keys ? problem.key_heads() : problem.heads)},
           {size_t(at.row) * element, rows}}};
}

Memory memory_of_bytes(const char* name, const void* begin, size_t bytes) {
  return {name, uintptr_t(begin), bytes, bytes, {}};
}

Memory memory_of_lse(const Problem& problem, const Tensors& tensors) {
  return memory_of_bytes("lse", tensors.lse, lse_bytes(problem));
}

// In how many neighbouring bytes of every `period` all elements lie, counted from the first one's.
size_t inside(const Memory& memory, size_t period) {
  size_t bytes = memory.row;
  for (const auto& [stride, size] : memory.dimensions) {
    if (stride % period != 0) bytes += stride * (size - 1);
  }
  return bytes;
}

bool overlap(const Memory& a, const Memory& b) {
  if (a.begin >= b.begin + b.bytes || b.begin >= a.begin + a.bytes) return false;
  // Slices of one tensor: in every period the elements of one lie between those of the other.
  for (const Memory* const each : {&a, &b}) {
    for (const auto& [period, size] : each->dimensions) {
      if (size < 2 || period == 0) continue;
      const size_t gap = (period + b.begin % period - a.begin % period) % period;
      if (gap >= inside(a, period) && gap + inside(b, period) <= period) return false;
    }
  }
  return true;
}

// Kernels read their inputs while others of their CTAs write outputs already.
void check_overlap(const std::vector<Memory>& outputs, const std::vector<Memory>& inputs) {
  for (size_t i = 0; i < outputs.size(); i++) {
    std::vector<Memory> others = inputs;
    others.insert(others.end(), outputs.begin(), outputs.begin() + ptrdiff_t(i));
    for (const Memory& other : others) {
      if (!overlap(outputs[i], other)) continue;
      const std::string& name = outputs[i].name;
      throw BadInput(name + " overlaps " + other.name + ": give " + name + " memory of its own");
    }
  }
}

std::vector<Memory> inputs_of(const Problem& problem, const Tensors& tensors) {
  const size_t element = input_bytes(problem);
  return {memory_of(problem, "Q", tensors.q, tensors.q_strides, false, element),
          memory_of(problem, "K", tensors.k, tensors.k_strides, true, element),
          memory_of(problem, "V", tensors.v, tensors.v_strides, true, element)};
}

size_t transposed_bytes(const Problem& problem) {
  const size_t keys = (size_t(problem.key_len()) + 127) / 128 * 128;
  return size_t(problem.batch) * size_t(problem.key_heads()) * size_t(problem.head_dim) * keys;
}

// The scales of Q, K and V, in this order, with where the last one ends.
struct NamedScales {
  const char* name;
  ScalesOfE4m3 scales;
  size_t bytes;  // 0: there are none
};
std::vector<NamedScales> scales_of(const Problem& problem, const OfE4m3& e4m3) {
  const auto named = [&](const char* name, const ScalesOfE4m3& s, int rows) -> NamedScales {
    if (!s.first) return {name, s, 0};
    const long long tiles = (rows + kFp8TileRows - 1) / kFp8TileRows;
    const long long last =
        (problem.batch - 1) * s.block + (s.heads - 1) * s.head + (tiles - 1) * s.tile;
    return {name, s, size_t(last + 1) * sizeof(float)};
  };
  return {named("the scales of Q", e4m3.q, problem.seq_len),
          named("the scales of K", e4m3.k, problem.key_len()),
          named("the scales of V", e4m3.v, problem.key_len())};
}

// What is asked for: fa_attention_with, fa_attention_backward or fa_attention_fp8.
enum class What { kAttention, kGradients, kFp8 };

struct Call {
  const Kernel* kernel = nullptr;  // null: the best
  int (*wants_end)() = nullptr;
  What what;
  Problem problem;
  Tensors tensors;
  OfE4m3 e4m3;  // of kFp8

  // `given` has the pointers that are arguments of their own.
  Call(const char* name, const fa_problem* of_caller, const fa_options* with, Tensors given,
       What wanted = What::kAttention, const fa_fp8* fp8 = nullptr)
      : what(wanted) {
    const bool gradients = what == What::kGradients;
    if (!name) throw BadInput("the pointer to the kernel's name is null");
    if (!of_caller) throw BadInput("the pointer to the problem is null");
    if (name != kBest) kernel = gradients ? &find_gradient_kernel(name).kernel : &find_kernel(name);
    const fa_options options = read_options(with);
    wants_end = options.wants_end;
    problem = problem_of(*of_caller, options, what == What::kFp8 ? Fp8::kHead : Fp8::kNone);
    problem.deterministic = gradients && options.deterministic == 1;
    given.cu_seqlens_q = options.cu_seqlens_q;
    given.cu_seqlens_kv = options.cu_seqlens_kv;
    given.lse = options.lse;
    given.block_table = options.block_table;
    given.kv_lens = options.kv_lens;
    given.sinks = options.sinks;
    given.alibi_slopes = options.alibi_slopes;
    const auto read = [](const fa_strides& s) { return Strides{s.block, s.head, s.row}; };
    given.q_strides = read(options.q_strides);
    given.k_strides = read(options.k_strides);
    given.v_strides = read(options.v_strides);
    given.o_strides = read(options.o_strides);
    if (what == What::kFp8) {
      e4m3 = read_fp8(fp8, problem);
      if (e4m3.q.tile > 0 || e4m3.k.tile > 0) problem.fp8 = Fp8::kTile;
    }
    tensors = with_strides(problem, given, gradients);
    if (what == What::kFp8) check_e4m3(problem, tensors, e4m3);
  }

  // The kernel that runs on the current GPU. Throws Unsupported if none does.
  Choice choose() const {
    if (!kernel) return best();
    const std::string why = what == What::kFp8 && !kernel->run_e4m3
                                ? "takes Q, K and V of 16 bits, not e4m3"
                                : refusal(*kernel, problem, tensors);
    if (why.empty()) return {kernel, {}};
    std::string instead;
    try {
      instead = "; " + best().kernel->name + " takes it";
    } catch (const Unsupported&) {  // nor does any other
    }
    throw Unsupported(kernel->name + " " + why + instead);
  }

  Choice best() const {
    if (what == What::kGradients) return best_gradient_kernel(problem, tensors);
    if (what == What::kAttention) return best_kernel(problem, tensors);
    std::vector<const Kernel*> of_fp8 = by_speed(problem);
    std::erase_if(of_fp8, [](const Kernel* each) { return !each->run_e4m3; });
    return first_that_takes(of_fp8, problem, tensors);
  }

  size_t workspace_bytes(const Kernel& chosen) const {
    if (what == What::kFp8) return chosen.e4m3_workspace_bytes(problem, e4m3.v_transposed);
    constexpr size_t kLimit = size_t(1) << 30;
    return chosen.workspace_bytes ? chosen.workspace_bytes(problem, kLimit) : 0;
  }

  // Throws unless memory that the caller gives is enough for gradients or FP8.
  void check_workspace(const Kernel& chosen, size_t needed) const {
    if (!tensors.workspace || tensors.workspace_bytes >= needed) return;
    throw BadInput("workspace_bytes is " + std::to_string(tensors.workspace_bytes) + ", but " +
                   chosen.name + " needs " + std::to_string(needed) + ": ask " +
                   (what == What::kFp8 ? "fa_plan_fp8" : "fa_plan_backward"));
  }
};

// What the kernel itself refuses, such as shared memory that is too small, has its name, too.
template <typename Launch>
void run_named(const std::string& name, const Launch& launch) {
  try {
    launch();
  } catch (const Unsupported& error) {
    throw Unsupported(name + " " + error.what());
  }
}

#ifdef FA_WITH_CUDA

// The GPU whose memory Q is. Throws BadInput unless all other tensors are there, too; of `more`,
// those that are not null.
int device_of(const Tensors& tensors,
              const std::vector<std::pair<const void*, const char*>>& more = {}) {
  const auto device = [](const void* pointer, const char* tensor) {
    cudaPointerAttributes attributes{};
    check_cuda(cudaPointerGetAttributes(&attributes, pointer), "looking at a pointer");
    if (attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged) {
      throw BadInput(std::string("the pointer to ") + tensor +
                     " is not to memory of a GPU, which this library was built for");
    }
    return attributes.device;
  };
  const int chosen = device(tensors.q, "Q");
  const auto check = [&](const void* pointer, const char* tensor) {
    if (const int own = device(pointer, tensor); own != chosen) {
      throw BadInput(std::string("Q is on GPU ") + std::to_string(chosen) + " and " + tensor +
                     " on GPU " + std::to_string(own) + ": all must be on one");
    }
  };
  check(tensors.k, "K");
  check(tensors.v, "V");
  check(tensors.o, "O");
  if (tensors.lse) check(tensors.lse, "lse");
  if (tensors.cu_seqlens_q) {
    check(tensors.cu_seqlens_q, "cu_seqlens_q");
    check(tensors.cu_seqlens_kv, "cu_seqlens_kv");
  }
  if (tensors.block_table) {
    check(tensors.block_table, "block_table");
    check(tensors.kv_lens, "kv_lens");
  }
  if (tensors.sinks) check(tensors.sinks, "sinks");
  if (tensors.alibi_slopes) check(tensors.alibi_slopes, "alibi_slopes");
  for (const auto& [pointer, tensor] : more) {
    if (pointer) check(pointer, tensor);
  }
  return chosen;
}

// Makes a GPU the current one, and the one before again at the end.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) : chosen_(device) {
    check_cuda(cudaGetDevice(&before_), "looking for a GPU");
    if (chosen_ != before_) check_cuda(cudaSetDevice(chosen_), "choosing a GPU");
  }
  ~CurrentDevice() {
    if (chosen_ != before_) cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int chosen_, before_ = 0;
};

// A kernel's first launch loads its code, which CUDA may refuse while a stream is being captured:
// it cannot know that nothing of that belongs into the graph (CUDA Runtime API,
// cudaThreadExchangeStreamCaptureMode).
class LoadsWhileCapturing {
 public:
  LoadsWhileCapturing() { exchange(); }
  ~LoadsWhileCapturing() { exchange(); }
  LoadsWhileCapturing(const LoadsWhileCapturing&) = delete;
  LoadsWhileCapturing& operator=(const LoadsWhileCapturing&) = delete;

 private:
  void exchange() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Calls body with a workspace of `bytes` in `tensors`, out of the stream's memory pool.
template <typename Body>
void with_workspace(Tensors& tensors, size_t bytes, const Body& body) {
  auto* const stream = static_cast<cudaStream_t>(tensors.stream);
  tensors.workspace_bytes = bytes;
  if (bytes == 0) return body();
  check_cuda(cudaMallocAsync(&tensors.workspace, bytes, stream), "allocating the workspace");
  const auto free = [&] { return cudaFreeAsync(tensors.workspace, stream); };
  try {
    body();
  } catch (...) {
    free();
    throw;
  }
  check_cuda(free(), "returning the workspace");
}

void attention(const Call& call) {
  const LoadsWhileCapturing loads;
  const CurrentDevice current(device_of(call.tensors));
  const Kernel& kernel = *call.choose().kernel;
  Tensors tensors = call.tensors;
  with_workspace(tensors, call.workspace_bytes(kernel), [&] {
    if (tensors.workspace_bytes > 0 && kernel.zeroed_bytes) {
      check_cuda(cudaMemsetAsync(tensors.workspace, 0, kernel.zeroed_bytes(),
                                 static_cast<cudaStream_t>(tensors.stream)),
                 "filling the workspace");
    }
    run_named(kernel.name, [&] { run(kernel, call.problem, tensors); });
  });
}

// Calls launch with a workspace in `tensors`: the caller's, or one of the stream's.
template <typename Launch>
void with_given_workspace(const Call& call, const Kernel& kernel, Tensors& tensors,
                          const Launch& launch) {
  const size_t needed = call.workspace_bytes(kernel);
  call.check_workspace(kernel, needed);
  const auto named = [&] { run_named(kernel.name, launch); };
  if (tensors.workspace) return named();
  with_workspace(tensors, needed, named);
}

void backward(const Call& call, const GradientTensors& given) {
  const LoadsWhileCapturing loads;
  const CurrentDevice current(
      device_of(call.tensors, {{given.d_o, "dO"},
                               {given.d_q, "dQ"},
                               {given.d_k, "dK"},
                               {given.d_v, "dV"},
                               {given.forward.workspace, "the workspace"}}));
  const Kernel& kernel = *call.choose().kernel;
  GradientTensors tensors = given;
  with_given_workspace(call, kernel, tensors.forward,
                       [&] { run(find_gradient_kernel(kernel.name), call.problem, tensors); });
}

void attention_fp8(const Call& call) {
  const LoadsWhileCapturing loads;
  std::vector<std::pair<const void*, const char*>> more{{call.tensors.workspace, "the workspace"}};
  for (const NamedScales& each : scales_of(call.problem, call.e4m3)) {
    more.emplace_back(each.scales.first, each.name);
  }
  const CurrentDevice current(device_of(call.tensors, more));
  const Kernel& kernel = *call.choose().kernel;
  Tensors tensors = call.tensors;
  with_given_workspace(call, kernel, tensors,
                       [&] { run_e4m3(kernel, call.problem, tensors, call.e4m3); });
}

#else

struct Counted {
  std::string kernel;
  Problem problem;
  LaunchCounts counts;
};
thread_local std::optional<Counted> last_run;
thread_local std::string counters_text;

// Copies an output to where the caller wants it, and nothing of what is between its rows.
void copy_rows(const Problem& problem, bool of_keys, const Strides& strides, const Buffer& from,
               void* to) {
  const size_t heads = size_t(of_keys ? problem.key_heads() : problem.heads);
  const size_t rows = of_keys ? problem.kv_rows() : problem.q_rows();
  if (strides == problem.contiguous(int(heads), rows)) return from.download(to);
  std::vector<uint16_t> all(from.size() / 2);
  from.download(all.data());
  for (size_t row = 0; row < size_t(problem.blocks()) * heads * rows; row++) {
    const size_t head = row / rows;
    const size_t at = strides.at(head / heads, head % heads, row % rows);
    std::copy_n(&all[at], problem.head_dim, static_cast<uint16_t*>(to) + at);
  }
}

// The tensors of a call, copied into memory whose edges are watched, as the programs' own tensors
// are. From the first element to the last one: what is between the rows of outputs is the caller's.
struct Watched {
  Buffer q, k, v, o;
  std::optional<Buffer> workspace, lse;
  std::vector<Buffer> lists;
  Tensors tensors;
  OfE4m3 e4m3;

  Watched(const Call& call, const Kernel& kernel)
      : Watched(call, kernel, call.problem, call.tensors) {}

 private:
  Watched(const Call& call, const Kernel& kernel, const Problem& problem, const Tensors& given)
      : q("Q", input_span(problem, given.q_strides, false)),
        k("K", input_span(problem, given.k_strides, true)),
        v("V", call.e4m3.v_transposed ? transposed_bytes(problem)
                                      : input_span(problem, given.v_strides, true)),
        o("O", span_bytes(problem, given.o_strides, false)),
        tensors(given),
        e4m3(call.e4m3) {
    q.upload(given.q);
    k.upload(given.k);
    v.upload(given.v);
    tensors.q = q.data();
    tensors.k = k.data();
    tensors.v = v.data();
    tensors.o = o.data();
    const auto copy = [&]<typename T>(const char* name, const T* from, size_t count) -> const T* {
      if (!from) return nullptr;
      lists.emplace_back(name, count * sizeof(T)).upload(from);
      return static_cast<const T*>(lists.back().data());
    };
    const size_t batch = size_t(problem.batch);
    tensors.cu_seqlens_q = copy("cu_seqlens_q", given.cu_seqlens_q, batch + 1);
    tensors.cu_seqlens_kv = copy("cu_seqlens_kv", given.cu_seqlens_kv, batch + 1);
    tensors.kv_lens = copy("kv_lens", given.kv_lens, batch);
    if (given.block_table) {
      const size_t entries = batch * size_t(problem.table_pages());
      tensors.block_table = copy("block_table", given.block_table, entries);
    }
    tensors.sinks = copy("sinks", given.sinks, size_t(problem.heads));
    tensors.alibi_slopes = copy("alibi_slopes", given.alibi_slopes, slopes_of(problem));
    if (given.lse) {
      lse.emplace("lse", lse_bytes(problem));
      tensors.lse = static_cast<float*>(lse->data());
    }
    tensors.workspace = nullptr;
    tensors.workspace_bytes = 0;
    ScalesOfE4m3* const to[] = {&e4m3.q, &e4m3.k, &e4m3.v};
    const std::vector<NamedScales> scales = scales_of(problem, e4m3);
    for (size_t i = 0; i < scales.size(); i++) {
      if (scales[i].bytes == 0) continue;
      lists.emplace_back(scales[i].name, scales[i].bytes).upload(scales[i].scales.first);
      to[i]->first = static_cast<const float*>(lists.back().data());
    }
    if (const size_t needed = call.workspace_bytes(kernel); needed > 0) {
      workspace.emplace("workspace", needed);
      if (kernel.zeroed_bytes) workspace->zero(kernel.zeroed_bytes());
      tensors.workspace = workspace->data();
      tensors.workspace_bytes = workspace->size();
    }
  }
};

// Calls body, which runs the kernel, while no other call runs one, and keeps what it did.
template <typename Body>
void alone(const Call& call, const Kernel& kernel, const Body& body) {
  thread_local bool runs = false;  // a second call would wait for the mutex that its thread has
  if (runs) {
    throw std::runtime_error(
        "this thread runs a kernel already: a handler of a signal, and wants_end, cannot run "
        "another one");
  }
  struct Running {
    Running() { runs = true; }
    ~Running() { runs = false; }
  } const running;
  static std::mutex mutex;  // the emulator's counters and its list of memory are everyone's
  const std::lock_guard lock(mutex);
#ifdef FA_FASTER
  emu::options().faster = FA_FASTER;
#endif
  end_launches_when(call.wants_end);
  last_run.reset();
  take_counts();  // of a launch that failed
  body();
  last_run = Counted{kernel.name, call.problem, take_counts()};
}

void attention(const Call& call) {
  const Kernel& kernel = *call.choose().kernel;
  const Tensors& tensors = call.tensors;
  alone(call, kernel, [&] {
    const Watched watched(call, kernel);
    run_named(kernel.name, [&] { run(kernel, call.problem, watched.tensors); });
    copy_rows(call.problem, false, tensors.o_strides, watched.o, tensors.o);
    if (watched.lse) watched.lse->download(tensors.lse);
  });
}

void attention_fp8(const Call& call) {
  const Kernel& kernel = *call.choose().kernel;
  const Tensors& tensors = call.tensors;
  call.check_workspace(kernel, call.workspace_bytes(kernel));
  alone(call, kernel, [&] {
    const Watched watched(call, kernel);
    run_named(kernel.name, [&] { run_e4m3(kernel, call.problem, watched.tensors, watched.e4m3); });
    copy_rows(call.problem, false, tensors.o_strides, watched.o, tensors.o);
  });
}

void backward(const Call& call, const GradientTensors& given) {
  const Kernel& kernel = *call.choose().kernel;
  const Problem& problem = call.problem;
  const Tensors& tensors = call.tensors;
  call.check_workspace(kernel, call.workspace_bytes(kernel));
  alone(call, kernel, [&] {
    Watched watched(call, kernel);
    watched.o.upload(tensors.o);
    watched.lse->upload(tensors.lse);
    Buffer d_o("dO", watched.o.size()), d_q("dQ", watched.q.size()), d_k("dK", watched.k.size()),
        d_v("dV", watched.v.size());
    d_o.upload(given.d_o);
    run_named(kernel.name, [&] {
      run(find_gradient_kernel(kernel.name), problem,
          GradientTensors{watched.tensors, d_o.data(), d_q.data(), d_k.data(), d_v.data()});
    });
    copy_rows(problem, false, tensors.q_strides, d_q, given.d_q);
    copy_rows(problem, true, tensors.k_strides, d_k, given.d_k);
    copy_rows(problem, true, tensors.v_strides, d_v, given.d_v);
  });
}

#endif

// Says in `plan` which kernel runs, and returns how many bytes of workspace it needs.
size_t plan(const char* kernel, const fa_problem* problem, const fa_options* options,
            [[maybe_unused]] int device, const char** plan, What what,
            const fa_fp8* fp8 = nullptr) {
  if (!plan) throw BadInput("the pointer to the plan is null");
  const Call call(kernel, problem, options, {}, what, fp8);
  size_t bytes = 0;
#ifdef FA_WITH_CUDA
  const CurrentDevice current(device);
#endif
  const Choice choice = call.choose();
  plan_text = choice.kernel->name;
  for (const auto& [faster, why] : choice.faster) {
    plan_text += "\n" + faster->name + " " + why;
  }
  *plan = plan_text.c_str();
  bytes = call.workspace_bytes(*choice.kernel);
  return bytes;
}

}  // namespace
}  // namespace fa

extern "C" {

const char* fa_version(void) { return FA_VERSION; }

const char* fa_architectures(void) { return FA_ARCHITECTURES; }

const char* fa_backend(void) {
  if (fa::on_gpu()) return "cuda";
  return fa::sees_accesses() ? "emulator-checked" : "emulator";
}

int fa_kernels(fa_kernel* kernels, int capacity) {
  const std::vector<fa::Kernel>& all = fa::kernels();
  for (int i = 0; i < capacity && i < int(all.size()); i++) {
    const fa::Kernel& each = all[size_t(i)];
    kernels[i] = {each.name.c_str(), each.needs.compute_capability, each.needs.exactly};
  }
  return int(all.size());
}

fa_status fa_attention(const char* kernel, const fa_problem* problem, const void* q, const void* k,
                       const void* v, void* o, void* stream) {
  return fa_attention_with(kernel, problem, nullptr, q, k, v, o, stream);
}

fa_status fa_attention_with(const char* kernel, const fa_problem* problem,
                            const fa_options* options, const void* q, const void* k, const void* v,
                            void* o, void* stream) {
  return fa::guarded([&] {
    fa::Call call(kernel, problem, options, {q, k, v, o, nullptr, 0, stream});
    fa::check_pointers(call.tensors);
    if (uintptr_t(call.tensors.lse) % alignof(float) != 0) {
      throw fa::BadInput("the pointer to lse must be a multiple of 4 bytes");
    }
    const fa::Tensors& tensors = call.tensors;
    std::vector<fa::Memory> outputs{
        fa::memory_of(call.problem, "O", tensors.o, tensors.o_strides, false)};
    if (tensors.lse) outputs.push_back(fa::memory_of_lse(call.problem, tensors));
    std::vector<fa::Memory> inputs = fa::inputs_of(call.problem, tensors);
    const auto add = [&](const char* name, const float* floats, size_t count) {
      if (floats) inputs.push_back(fa::memory_of_bytes(name, floats, count * sizeof(float)));
    };
    add("sinks", tensors.sinks, size_t(call.problem.heads));
    add("alibi_slopes", tensors.alibi_slopes, fa::slopes_of(call.problem));
    fa::check_overlap(outputs, inputs);
    fa::attention(call);
  });
}

fa_status fa_attention_backward(const char* kernel, const fa_problem* problem,
                                const fa_options* options, const void* q, const void* k,
                                const void* v, const void* o, const void* d_o, void* d_q, void* d_k,
                                void* d_v, void* workspace, size_t workspace_bytes, void* stream) {
  return fa::guarded([&] {
    const fa::Call call(
        kernel, problem, options,
        {q, k, v, const_cast<void*>(o), workspace, workspace_bytes, stream},  // O is read alone
        fa::What::kGradients);
    const fa::Problem& of = call.problem;
    const fa::Tensors& tensors = call.tensors;
    const fa::GradientTensors gradients{tensors, d_o, d_q, d_k, d_v};
    if (!tensors.lse) {
      throw fa::BadInput("lse is null: gradients need the log-sum-exp of the forward call");
    }
    fa::check_pointers(gradients);
    if (workspace) fa::check_alignment(workspace, "the workspace");
    std::vector<fa::Memory> inputs = fa::inputs_of(of, tensors);
    inputs.push_back(fa::memory_of(of, "O", o, tensors.o_strides, false));
    inputs.push_back(fa::memory_of(of, "dO", d_o, tensors.o_strides, false));
    inputs.push_back(fa::memory_of_lse(of, tensors));
    std::vector<fa::Memory> outputs{fa::memory_of(of, "dQ", d_q, tensors.q_strides, false),
                                    fa::memory_of(of, "dK", d_k, tensors.k_strides, true),
                                    fa::memory_of(of, "dV", d_v, tensors.v_strides, true)};
    if (workspace) {
      outputs.push_back(fa::memory_of_bytes("the workspace", workspace, workspace_bytes));
    }
    fa::check_overlap(outputs, inputs);
    fa::backward(call, gradients);
  });
}

fa_status fa_plan(const char* kernel, const fa_problem* problem, const fa_options* options,
                  int device, const char** plan) {
  return fa::guarded(
      [&] { fa::plan(kernel, problem, options, device, plan, fa::What::kAttention); });
}

fa_status fa_plan_backward(const char* kernel, const fa_problem* problem, const fa_options* options,
                           int device, const char** plan, size_t* workspace_bytes) {
  return fa::guarded([&] {
    const size_t bytes = fa::plan(kernel, problem, options, device, plan, fa::What::kGradients);
    if (workspace_bytes) *workspace_bytes = bytes;
  });
}

fa_status fa_attention_fp8(const char* kernel, const fa_problem* problem, const fa_options* options,
                           const fa_fp8* fp8, const void* q, const void* k, const void* v, void* o,
                           void* workspace, size_t workspace_bytes, void* stream) {
  return fa::guarded([&] {
    const fa::Call call(kernel, problem, options, {q, k, v, o, workspace, workspace_bytes, stream},
                        fa::What::kFp8, fp8);
    const fa::Problem& of = call.problem;
    const fa::Tensors& tensors = call.tensors;
    fa::check_pointers(tensors);
    if (workspace) fa::check_alignment(workspace, "the workspace");
    std::vector<fa::Memory> inputs = fa::inputs_of(of, tensors);
    if (call.e4m3.v_transposed) {
      inputs.back() = fa::memory_of_bytes("V", v, fa::transposed_bytes(of));
    }
    for (const fa::NamedScales& each : fa::scales_of(of, call.e4m3)) {
      if (each.bytes > 0) {
        inputs.push_back(fa::memory_of_bytes(each.name, each.scales.first, each.bytes));
      }
    }
    std::vector<fa::Memory> outputs{fa::memory_of(of, "O", o, tensors.o_strides, false)};
    if (workspace) {
      outputs.push_back(fa::memory_of_bytes("the workspace", workspace, workspace_bytes));
    }
    fa::check_overlap(outputs, inputs);
    fa::attention_fp8(call);
  });
}

fa_status fa_plan_fp8(const char* kernel, const fa_problem* problem, const fa_options* options,
                      const fa_fp8* fp8, int device, const char** plan, size_t* workspace_bytes) {
  return fa::guarded([&] {
    const size_t bytes = fa::plan(kernel, problem, options, device, plan, fa::What::kFp8, fp8);
    if (workspace_bytes) *workspace_bytes = bytes;
  });
}

const char* fa_error(void) { return fa::message.c_str(); }

const char* fa_counters(void) {
  const char* result = nullptr;
  fa::guarded([&] {
#ifdef FA_WITH_CUDA
    throw fa::Unsupported(
        "a GPU does not count: counters are there if fa is built for the emulator");
#else
    if (!fa::last_run)
      throw fa::BadInput("no kernel has run in this thread, so nothing was counted");
    const auto& [name, problem, counts] = *fa::last_run;
    fa::Json json = {{"kernel", name},
                     {"dtype", fa::name_of(problem.dtype)},
                     {"batch", problem.batch},
                     {"heads", problem.heads},
                     {"seq_len", problem.seq_len},
                     {"head_dim", problem.head_dim}};
    json.update(fa::rest_to_json(problem));
    if (problem.own_scale) json["scale"] = *problem.own_scale;
    if (problem.deterministic) json["deterministic"] = true;
    json.update(fa::counts_to_json(name, counts));
    fa::counters_text = json.dump();
    result = fa::counters_text.c_str();
#endif
  });
  return result;
}

}  // extern "C"
