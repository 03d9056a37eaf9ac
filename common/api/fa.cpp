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
#include <vector>

#ifdef FA_FASTER
#include "common/emulator/core/launch.h"
#endif
#include "common/harness/results.h"
#include "common/launch/launch.h"
#include "common/launch/registry.h"

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

// Sentences for the command line name options. "--seq-len must be ..." is "seq_len must be ..."
// here, --lengths is cu_seqlens, and --kv-lengths is kv_lens.
std::string with_fields(std::string text) {
  for (size_t at; (at = text.find("--")) != std::string::npos;) {
    text.erase(at, 2);
    if (text.compare(at, 7, "lengths") == 0) text.replace(at, 7, "cu_seqlens");
    if (text.compare(at, 10, "kv-lengths") == 0) text.replace(at, 10, "kv-lens");
    for (; at < text.size() && (text[at] == '-' || isalpha(text[at])); at++) {
      if (text[at] == '-') text[at] = '_';
    }
  }
  return text;
}

// sizeof(fa_options) in the headers of all releases. A version that adds fields adds its size here.
// New fields begin at or behind the size before, whose last bytes may hold anything: the four
// behind `scale` in a program of 1.0.0.
constexpr size_t kOptionsSizes[] = {96 /* 1.0.0 */, 192 /* 1.1.0 */};
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

// Of any length: refusal() says what a kernel takes.
Problem problem_of(const fa_problem& given, const fa_options& options) {
  if (given.dtype != FA_FP16 && given.dtype != FA_BF16) {
    throw BadInput("dtype must be FA_FP16 or FA_BF16, not " + std::to_string(int(given.dtype)));
  }
  Problem problem;
  problem.batch = given.batch;
  problem.heads = given.heads;
  problem.seq_len = given.seq_len;
  problem.head_dim = given.head_dim;
  problem.dtype = given.dtype == FA_FP16 ? Dtype::kFp16 : Dtype::kBf16;
  if (options.mask == FA_MASK_CAUSAL) problem.mask = Mask::kCausal;
  if (options.scale != 0) problem.own_scale = options.scale;
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
  return problem;
}

size_t lse_bytes(const Problem& problem) { return problem.row_count() * sizeof(float); }

// Kernels read their inputs while others of their CTAs write O already.
void check_overlap(const Problem& problem, const Tensors& tensors) {
  const size_t o_bytes = span_bytes(problem, tensors.o_strides, false);
  const auto check = [&](const void* output, size_t output_bytes, const std::string& name,
                         const void* other, size_t bytes, const char* tensor) {
    const auto begin = uintptr_t(other), out = uintptr_t(output);
    if (begin < out + output_bytes && out < begin + bytes) {
      throw BadInput(name + " overlaps " + tensor + ": give " + name + " memory of its own");
    }
  };
  const auto check_inputs = [&](const void* output, size_t bytes, const std::string& name) {
    check(output, bytes, name, tensors.q, span_bytes(problem, tensors.q_strides, false), "Q");
    check(output, bytes, name, tensors.k, span_bytes(problem, tensors.k_strides, true), "K");
    check(output, bytes, name, tensors.v, span_bytes(problem, tensors.v_strides, true), "V");
  };
  check_inputs(tensors.o, o_bytes, "O");
  if (!tensors.lse) return;
  check_inputs(tensors.lse, lse_bytes(problem), "lse");
  check(tensors.lse, lse_bytes(problem), "lse", tensors.o, o_bytes, "O");
}

// What fa_attention_with is asked for.
struct Call {
  const Kernel* kernel = nullptr;  // null: the best
  int (*wants_end)() = nullptr;
  Problem problem;
  Tensors tensors;

  // Of the pointers, `given` has those that are arguments of their own.
  Call(const char* name, const fa_problem* of_caller, const fa_options* with, Tensors given) {
    if (!name) throw BadInput("the pointer to the kernel's name is null");
    if (!of_caller) throw BadInput("the pointer to the problem is null");
    if (name != kBest) kernel = &find_kernel(name);
    const fa_options options = read_options(with);
    wants_end = options.wants_end;
    sentences([&] {
      problem = problem_of(*of_caller, options);
      given.cu_seqlens_q = options.cu_seqlens_q;
      given.cu_seqlens_kv = options.cu_seqlens_kv;
      given.lse = options.lse;
      given.block_table = options.block_table;
      given.kv_lens = options.kv_lens;
      const auto read = [](const fa_strides& s) { return Strides{s.block, s.head, s.row}; };
      given.q_strides = read(options.q_strides);
      given.k_strides = read(options.k_strides);
      given.v_strides = read(options.v_strides);
      given.o_strides = read(options.o_strides);
      tensors = with_strides(problem, given);
    });
  }

  // The kernel that runs on the current GPU. Throws Unsupported if none does.
  Choice choose() const {
    if (!kernel) return best_kernel(problem, tensors);
    const std::string why = refusal(*kernel, problem, tensors);
    if (why.empty()) return {kernel, {}};
    std::string instead;
    try {
      instead = "; " + best_kernel(problem, tensors).kernel->name + " takes it";
    } catch (const Unsupported&) {  // nor does any other
    }
    throw Unsupported(kernel->name + " " + why + instead);
  }

  // Errors in body name the fields of fa.h.
  template <typename Body>
  void sentences(const Body& body) const {
    try {
      body();
    } catch (const BadInput& error) {
      throw BadInput(with_fields(error.what()));
    } catch (const Unsupported& error) {
      throw Unsupported(with_fields(error.what()));
    }
  }
};

size_t workspace_bytes(const Kernel& kernel, const Problem& problem) {
  constexpr size_t kLimit = size_t(1) << 30;
  return kernel.workspace_bytes ? kernel.workspace_bytes(problem, kLimit) : 0;
}

// What the kernel itself refuses, such as shared memory that is too small, has its name, too.
void run_named(const Kernel& kernel, const Problem& problem, const Tensors& tensors) {
  try {
    run(kernel, problem, tensors);
  } catch (const Unsupported& error) {
    throw Unsupported(kernel.name + " " + error.what());
  }
}

#ifdef FA_WITH_CUDA

// The GPU whose memory Q is. Throws BadInput unless K, V and O are there, too.
int device_of(const Tensors& tensors) {
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

void attention(const Call& call) {
  const LoadsWhileCapturing loads;
  const CurrentDevice current(device_of(call.tensors));
  const Kernel& kernel = *call.choose().kernel;
  const Problem& problem = call.problem;
  Tensors tensors = call.tensors;
  auto* const stream = static_cast<cudaStream_t>(tensors.stream);
  tensors.workspace_bytes = workspace_bytes(kernel, problem);
  if (tensors.workspace_bytes == 0) return run_named(kernel, problem, tensors);
  check_cuda(cudaMallocAsync(&tensors.workspace, tensors.workspace_bytes, stream),
             "allocating the workspace");
  const auto free = [&] { return cudaFreeAsync(tensors.workspace, stream); };
  try {
    if (kernel.zeroed_bytes) {
      check_cuda(cudaMemsetAsync(tensors.workspace, 0, kernel.zeroed_bytes(), stream),
                 "filling the workspace");
    }
    run_named(kernel, problem, tensors);
  } catch (...) {
    free();
    throw;
  }
  check_cuda(free(), "returning the workspace");
}

#else

struct Counted {
  std::string kernel;
  Problem problem;
  LaunchCounts counts;
};
thread_local std::optional<Counted> last_run;
thread_local std::string counters_text;

// Copies O to where the caller wants it, and nothing of what is between its rows.
void copy_rows(const Problem& problem, const Tensors& tensors, const Buffer& o) {
  const Strides& strides = tensors.o_strides;
  if (strides == problem.strides()) return o.download(tensors.o);
  std::vector<uint16_t> all(o.size() / 2);
  o.download(all.data());
  for (size_t row = 0; row < problem.row_count(); row++) {
    const size_t head = row / problem.q_rows(), heads = size_t(problem.heads);
    const size_t at = strides.at(head / heads, head % heads, row % problem.q_rows());
    std::copy_n(&all[at], problem.head_dim, static_cast<uint16_t*>(tensors.o) + at);
  }
}

// The tensors are copied into memory whose edges are watched, as the programs' own tensors are.
void attention(const Call& call) {
  const Kernel& kernel = *call.choose().kernel;
  const Problem& problem = call.problem;
  const Tensors& tensors = call.tensors;
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
  // From the first element to the last one. What is between the rows of O is the caller's.
  Buffer q("Q", span_bytes(problem, tensors.q_strides, false));
  Buffer k("K", span_bytes(problem, tensors.k_strides, true));
  Buffer v("V", span_bytes(problem, tensors.v_strides, true));
  Buffer o("O", span_bytes(problem, tensors.o_strides, false));
  q.upload(tensors.q);
  k.upload(tensors.k);
  v.upload(tensors.v);
  Tensors watched = tensors;
  watched.q = q.data();
  watched.k = k.data();
  watched.v = v.data();
  watched.o = o.data();
  std::optional<Buffer> workspace, lse;
  std::vector<Buffer> lists;
  const auto copy = [&](const char* name, const int* from, size_t count) -> const int* {
    if (!from) return nullptr;
    lists.emplace_back(name, count * sizeof(int)).upload(from);
    return static_cast<const int*>(lists.back().data());
  };
  const size_t batch = size_t(problem.batch);
  watched.cu_seqlens_q = copy("cu_seqlens_q", tensors.cu_seqlens_q, batch + 1);
  watched.cu_seqlens_kv = copy("cu_seqlens_kv", tensors.cu_seqlens_kv, batch + 1);
  watched.kv_lens = copy("kv_lens", tensors.kv_lens, batch);
  if (tensors.block_table) {
    const size_t entries = batch * size_t(problem.table_pages());
    watched.block_table = copy("block_table", tensors.block_table, entries);
  }
  if (tensors.lse) {
    lse.emplace("lse", lse_bytes(problem));
    watched.lse = static_cast<float*>(lse->data());
  }
  if (const size_t needed = workspace_bytes(kernel, problem); needed > 0) {
    workspace.emplace("workspace", needed);
    if (kernel.zeroed_bytes) workspace->zero(kernel.zeroed_bytes());
    watched.workspace = workspace->data();
    watched.workspace_bytes = workspace->size();
  }
  take_counts();  // of a launch that failed
  run_named(kernel, problem, watched);
  copy_rows(problem, tensors, o);
  if (lse) lse->download(tensors.lse);
  last_run = Counted{kernel.name, problem, take_counts()};
}

#endif

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
    call.sentences([&] {
      fa::check_pointers(call.tensors);
      if (uintptr_t(call.tensors.lse) % alignof(float) != 0) {
        throw fa::BadInput("the pointer to lse must be a multiple of 4 bytes");
      }
      fa::check_overlap(call.problem, call.tensors);
      fa::attention(call);
    });
  });
}

fa_status fa_plan(const char* kernel, const fa_problem* problem, const fa_options* options,
                  [[maybe_unused]] int device, const char** plan) {
  return fa::guarded([&] {
    if (!plan) throw fa::BadInput("the pointer to the plan is null");
    const fa::Call call(kernel, problem, options, {});
    call.sentences([&] {
#ifdef FA_WITH_CUDA
      const fa::CurrentDevice current(device);
#endif
      const fa::Choice choice = call.choose();
      fa::plan_text = choice.kernel->name;
      for (const auto& [faster, why] : choice.faster) {
        fa::plan_text += "\n" + fa::with_fields(faster->name + " " + why);
      }
      *plan = fa::plan_text.c_str();
    });
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
    json.update(fa::counts_to_json(name, counts));
    fa::counters_text = json.dump();
    result = fa::counters_text.c_str();
#endif
  });
  return result;
}

}  // extern "C"
