// The C entry point: what fa.h promises, on top of fa::run.
#include "common/api/fa.h"

#include <cstddef>
#include <exception>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/harness/device.h"
#include "common/harness/results.h"
#include "common/launch/launch.h"
#include "common/launch/problem.h"
#include "common/launch/registry.h"

namespace fa {
namespace {

thread_local std::string message;

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

// validate() speaks to the command line. "--seq-len must be ..." is "seq_len must be ..." here.
void validate_fields(const Problem& problem) {
  try {
    validate(problem);
  } catch (const BadInput& error) {
    std::string text = error.what();
    if (text.starts_with("--")) {
      text.erase(0, 2);
      for (char& letter : text) {
        if (letter == ' ') break;
        if (letter == '-') letter = '_';
      }
    }
    throw BadInput(text);
  }
}

Problem problem_of(const fa_problem& given) {
  if (given.dtype != FA_FP16 && given.dtype != FA_BF16) {
    throw BadInput("dtype must be FA_FP16 or FA_BF16, not " + std::to_string(int(given.dtype)));
  }
  Problem problem;
  problem.batch = given.batch;
  problem.heads = given.heads;
  problem.seq_len = given.seq_len;
  problem.head_dim = given.head_dim;
  problem.dtype = given.dtype == FA_FP16 ? Dtype::kFp16 : Dtype::kBf16;
  validate_fields(problem);
  return problem;
}

size_t workspace_bytes(const Kernel& kernel, const Problem& problem) {
  constexpr size_t kLimit = size_t(1) << 30;
  return kernel.workspace_bytes ? kernel.workspace_bytes(problem, kLimit) : 0;
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
                     " on GPU " + std::to_string(own) + ": all four must be on one");
    }
  };
  check(tensors.k, "K");
  check(tensors.v, "V");
  check(tensors.o, "O");
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

void attention(const Kernel& kernel, const Problem& problem, Tensors tensors) {
  const LoadsWhileCapturing loads;
  const CurrentDevice current(device_of(tensors));
  auto* const stream = static_cast<cudaStream_t>(tensors.stream);
  tensors.workspace_bytes = workspace_bytes(kernel, problem);
  if (tensors.workspace_bytes == 0) return run(kernel, problem, tensors);
  check_cuda(cudaMallocAsync(&tensors.workspace, tensors.workspace_bytes, stream),
             "allocating the workspace");
  const auto free = [&] { return cudaFreeAsync(tensors.workspace, stream); };
  try {
    run(kernel, problem, tensors);
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

// The tensors are copied into memory whose edges are watched, as the programs' own tensors are.
void attention(const Kernel& kernel, const Problem& problem, const Tensors& tensors) {
  static std::mutex mutex;  // the emulator's counters and its list of memory are everyone's
  const std::lock_guard lock(mutex);
  last_run.reset();
  const size_t bytes = problem.tensor_bytes();
  Buffer q("Q", bytes), k("K", bytes), v("V", bytes), o("O", bytes);
  q.upload(tensors.q);
  k.upload(tensors.k);
  v.upload(tensors.v);
  Tensors watched{q.data(), k.data(), v.data(), o.data()};
  std::optional<Buffer> workspace;
  if (const size_t needed = workspace_bytes(kernel, problem); needed > 0) {
    workspace.emplace("workspace", needed);
    watched.workspace = workspace->data();
    watched.workspace_bytes = workspace->size();
  }
  take_counts();  // of a launch that failed
  run(kernel, problem, watched);
  o.download(tensors.o);
  last_run = Counted{kernel.name, problem, take_counts()};
}

#endif

}  // namespace
}  // namespace fa

extern "C" {

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
  return fa::guarded([&] {
    if (!kernel) throw fa::BadInput("the pointer to the kernel's name is null");
    if (!problem) throw fa::BadInput("the pointer to the problem is null");
    const fa::Kernel& chosen = fa::find_kernel(kernel);
    const fa::Problem checked = fa::problem_of(*problem);
    const fa::Tensors tensors{q, k, v, o, nullptr, 0, stream};
    fa::check_pointers(tensors);
    try {
      fa::attention(chosen, checked, tensors);
    } catch (const fa::Unsupported& error) {
      throw fa::Unsupported(chosen.name + " " + error.what());
    }
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
    nlohmann::ordered_json json = {{"kernel", name},
                                   {"dtype", fa::name_of(problem.dtype)},
                                   {"batch", problem.batch},
                                   {"heads", problem.heads},
                                   {"seq_len", problem.seq_len},
                                   {"head_dim", problem.head_dim}};
    json.update(fa::counts_to_json(name, counts));
    fa::counters_text = json.dump();
    result = fa::counters_text.c_str();
#endif
  });
  return result;
}

}  // extern "C"
