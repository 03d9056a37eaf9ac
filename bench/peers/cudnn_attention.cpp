// peer/cudnn_frontend: cuDNN's fused attention through the cudnn-frontend headers, without PyTorch.
#include <cudnn_frontend.h>

#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>

#include "bench/peers/shared_library.h"
#include "common/launch/launch.h"
#include "common/launch/registry.h"

// What the headers call cuDNN through, as they are compiled with
// NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace fa {
namespace {

namespace fe = cudnn_frontend;

void* cudnn() {
  void* const library = open_library("libcudnn.so." + std::to_string(CUDNN_MAJOR));
  if (!fe::cudnn_dlhandle) {
    // The headers call the CUDA runtime as a library, of the version that they are compiled with;
    // opened here it is found in Python's packages too. It shares the GPU's context with the
    // runtime linked in.
    const std::string runtime = "libcudart.so." + std::to_string(CUDART_VERSION / 1000);
    open_library(runtime);
    setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", runtime.c_str(), 0);
    fe::cudnn_dlhandle = library;
  }
  return library;
}

std::string version() {
  const size_t number = find_function<decltype(cudnnGetVersion)>(cudnn(), "cudnnGetVersion")();
  return std::to_string(number / 10000) + "." + std::to_string(number % 10000 / 100) + "." +
         std::to_string(number % 100);
}

Library library() {
  return {"cuDNN", version(),
          "cudnn-frontend " + std::to_string(CUDNN_FRONTEND_MAJOR_VERSION) + "." +
              std::to_string(CUDNN_FRONTEND_MINOR_VERSION) + "." +
              std::to_string(CUDNN_FRONTEND_PATCH_VERSION)};
}

// Made when it is first needed, and left to the end of the process, as CUDA itself ends before the
// destructors of statics.
cudnnHandle_t handle() {
  static const cudnnHandle_t instance = [] {
    cudnnHandle_t result = nullptr;
    const auto create = find_function<decltype(cudnnCreate)>(cudnn(), "cudnnCreate");
    const auto text = find_function<decltype(cudnnGetErrorString)>(cudnn(), "cudnnGetErrorString");
    if (const cudnnStatus_t status = create(&result); status != CUDNN_STATUS_SUCCESS) {
      throw BackendError(std::string("starting cuDNN: it says: ") + text(status));
    }
    return result;
  }();
  return instance;
}

// What the tensors are called in a plan.
enum Tensor : int64_t { kQ = 1, kK, kV, kO };

// How cuDNN computes one problem: chosen and compiled once.
struct Plan {
  fe::graph::Graph graph;
  size_t workspace_bytes = 0;
};

void check(fe::error_t error, const char* what) {
  if (error.is_good()) return;
  const std::string message = error.get_message();
  const std::string sentence = "cuDNN " + version() + ", " + what + ": " +
                               message.substr(0, std::min<size_t>(message.find('\n'), 200));
  switch (error.get_code()) {
    case fe::error_code_t::GRAPH_NOT_SUPPORTED:
    case fe::error_code_t::HEURISTIC_QUERY_FAILED:
    case fe::error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED:
      throw Unsupported(sentence);
    default:
      throw BackendError(sentence);
  }
}

std::unique_ptr<Plan> make_plan(const Problem& problem) {
  auto plan = std::make_unique<Plan>();
  fe::graph::Graph& graph = plan->graph;
  graph
      .set_io_data_type(problem.dtype == Dtype::kFp16 ? fe::DataType_t::HALF
                                                      : fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const int64_t b = problem.batch, d = problem.head_dim;
  auto describe = [&](auto& tensor, Tensor id, int64_t h, int64_t n) -> auto& {
    return tensor.set_uid(id).set_dim({b, h, n, d}).set_stride({h * n * d, n * d, d, 1});
  };
  auto tensor = [&](const char* name, Tensor id, int64_t h, int64_t n) {
    fe::graph::Tensor_attributes attributes;
    return graph.tensor(describe(attributes.set_name(name), id, h, n));
  };
  auto options = fe::graph::SDPA_attributes()
                     .set_name("attention")
                     .set_generate_stats(false)  // of use to a backward pass only
                     .set_attn_scale(problem.scale());
  const int64_t q_len = problem.seq_len, kv_len = problem.key_len(), kv_heads = problem.key_heads();
  if (const Window window = problem.visible(); window != Window{}) {
    // For as many queries as keys the two alignments are the same, and cuDNN takes more lengths in
    // the first.
    options.set_diagonal_alignment(q_len == kv_len ? fe::DiagonalAlignment_t::TOP_LEFT
                                                   : fe::DiagonalAlignment_t::BOTTOM_RIGHT);
    // What cuDNN wants on the left is how many keys there are with the query's own.
    if (window.left >= 0) options.set_diagonal_band_left_bound(window.left + 1);
    if (window.right >= 0) options.set_diagonal_band_right_bound(window.right);
  }
  const auto outputs =
      graph.sdpa(tensor("Q", kQ, problem.heads, q_len), tensor("K", kK, kv_heads, kv_len),
                 tensor("V", kV, kv_heads, kv_len), options);
  describe(outputs[0]->set_output(true), kO, problem.heads, q_len);

  check(graph.validate(), "describing attention");
  check(graph.build_operation_graph(handle()), "describing attention");
  check(graph.create_execution_plans({fe::HeurMode_t::A}), "looking for an implementation");
  check(graph.check_support(handle()), "looking for an implementation");
  check(graph.build_plans(handle(), fe::BuildPlanPolicy_t::HEURISTICS_CHOICE), "compiling");
  int64_t bytes = 0;
  check(graph.get_workspace_size(bytes), "asking for the workspace");
  plan->workspace_bytes = size_t(bytes);
  return plan;
}

Plan& plan_for(const Problem& p) {
  using Key = std::tuple<int, int, int, int, Dtype, int, int, int, int>;
  static auto& plans = *new std::map<Key, std::unique_ptr<Plan>>;
  const auto [left, right] = p.visible();
  std::unique_ptr<Plan>& plan = plans[{p.batch, p.heads, p.seq_len, p.head_dim, p.dtype, left,
                                       right, p.key_len(), p.key_heads()}];
  if (!plan) plan = make_plan(p);
  return *plan;
}

// A few bytes at least, which are easier to have than none.
size_t workspace_bytes(const Problem& problem, size_t) {
  return std::max<size_t>(plan_for(problem).workspace_bytes, 16);
}

void run_attention(const Problem& problem, const Tensors& tensors) {
  std::unordered_map<int64_t, void*> pointers = {{kQ, const_cast<void*>(tensors.q)},
                                                 {kK, const_cast<void*>(tensors.k)},
                                                 {kV, const_cast<void*>(tensors.v)},
                                                 {kO, tensors.o}};
  const auto set_stream = find_function<decltype(cudnnSetStream)>(cudnn(), "cudnnSetStream");
  set_stream(handle(), static_cast<cudaStream_t>(tensors.stream));
  check(plan_for(problem).graph.execute(handle(), pointers, tensors.workspace),
        "running attention");
}

const bool registered = [] {
  register_kernel({"peer/cudnn_frontend", Needs{80}, &workspace_bytes, &run_attention, &library,
                   nullptr, nullptr, Traits::kPlain,
                   Takes{.causal = true, .any_length = true, .kv_heads = true, .window = true}});
  return true;
}();

}  // namespace
}  // namespace fa
