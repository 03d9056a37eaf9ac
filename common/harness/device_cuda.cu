// The back end with a GPU.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/harness/device.h"
#include "common/harness/graph_order.h"
#include "common/launch/known_kernels.h"
#include "common/launch/launch.h"
#include "common/launch/problem.h"

namespace fa {
namespace {

int current_device() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "looking for a GPU");
  return device;
}

cudaDeviceProp properties() {
  cudaDeviceProp result{};
  check_cuda(cudaGetDeviceProperties(&result, current_device()), "looking for a GPU");
  return result;
}

int attribute(cudaDeviceAttr which) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, which, current_device()),
             "reading the GPU's attributes");
  return value;
}

// NVML, the library behind nvidia-smi, which is part of the driver. Asked for at run time, so that
// nothing need be linked; everything is empty where it is missing. Numbers and types as in nvml.h.
class Nvml {
 public:
  static const Nvml& instance() {
    static const Nvml nvml;
    return nvml;
  }
  std::optional<std::string> driver() const {
    char text[96];
    const bool known = call("nvmlSystemGetDriverVersion", text, unsigned(sizeof text));
    return known ? std::optional<std::string>(text) : std::nullopt;
  }
  std::optional<double> power_limit_w() const {
    return milliwatts("nvmlDeviceGetEnforcedPowerLimit");
  }
  std::optional<double> clock_mhz() const {
    constexpr int kSmClock = 1;  // NVML_CLOCK_SM
    unsigned mhz = 0;
    const bool known =
        device_ && call("nvmlDeviceGetClockInfo", device_, kSmClock, &mhz) && mhz > 0;
    return known ? std::optional<double>(mhz) : std::nullopt;
  }
  // Now, or where only that is known the mean of the last second (nvmlDeviceGetPowerUsage since
  // Ampere).
  std::optional<double> power_w() const {
    FieldValue now{};
    now.id = 186;  // NVML_FI_DEV_POWER_INSTANT
    if (device_ && call("nvmlDeviceGetFieldValues", device_, 1, &now) && now.error == 0 &&
        now.type == 1) {
      return now.value.number / 1000.0;
    }
    return milliwatts("nvmlDeviceGetPowerUsage");
  }

 private:
  struct FieldValue {  // nvmlFieldValue_t
    unsigned id, scope;
    long long timestamp_us, latency_us;
    int type, error;  // type 1: unsigned int
    union {
      unsigned number;
      long long widest;
    } value;
  };
  static_assert(sizeof(FieldValue) == 40);

  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    char bus[32];
    if (!call("nvmlInit_v2")) library_ = nullptr;
    if (!library_ || cudaDeviceGetPCIBusId(bus, sizeof bus, current_device()) != cudaSuccess ||
        !call("nvmlDeviceGetHandleByPciBusId_v2", bus, &device_)) {
      device_ = nullptr;
    }
  }
  // Whether the function is there and succeeded.
  template <typename... Arguments>
  bool call(const char* function, Arguments... arguments) const {
    void* const found = library_ ? dlsym(library_, function) : nullptr;
    return found && reinterpret_cast<int (*)(Arguments...)>(found)(arguments...) == 0;
  }
  std::optional<double> milliwatts(const char* function) const {
    unsigned result = 0;
    if (!device_ || !call(function, device_, &result)) return std::nullopt;
    return result / 1000.0;
  }

  void* library_ = nullptr;
  void* device_ = nullptr;
};

cudaStream_t stream() { return static_cast<cudaStream_t>(work_stream()); }

}  // namespace

void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    cudaGetLastError();  // reported here, and not again after the next launch
    throw BackendError(std::string(what) + ": CUDA says: " + cudaGetErrorString(error) + " (" +
                       cudaGetErrorName(error) + ")");
  }
}

cudaFuncAttributes prepare_kernel(const void* kernel, size_t shared_bytes) {
  static KnownKernels<cudaFuncAttributes> known;
  return known.prepare(
      current_device(), kernel, shared_bytes,
      [&] {
        check_shared_bytes(shared_bytes);
        // Beyond 48 KB of dynamic shared memory a kernel must opt in (CUDA C++ Programming Guide,
        // "Shared Memory", compute capability 7.x and later).
        if (shared_bytes <= 48 * 1024) return;
        check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        int(shared_bytes)),
                   "asking for shared memory");
      },
      [&] {
        cudaFuncAttributes attributes{};
        check_cuda(cudaFuncGetAttributes(&attributes, kernel), "reading the kernel's attributes");
        return attributes;
      });
}

int clusters_at_once(const void* kernel, const LaunchShape& shape) {
  static std::mutex mutex;
  static std::map<std::tuple<int, const void*, int>, int> known;
  const std::lock_guard lock(mutex);
  const auto key = std::make_tuple(current_device(), kernel, shape.cluster);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  const ClusterLaunch in_clusters(shape);
  int clusters = 0;
  const cudaError_t asked =
      cudaOccupancyMaxActiveClusters(&clusters, kernel, &in_clusters.configuration);
  if (asked == cudaErrorInvalidClusterSize) {
    cudaGetLastError();
  } else {
    check_cuda(asked, "asking how many clusters run at the same time");
  }
  return known[key] = clusters;
}

bool on_gpu() { return true; }
int device_capability() {
  return attribute(cudaDevAttrComputeCapabilityMajor) * 10 +
         attribute(cudaDevAttrComputeCapabilityMinor);
}
int sm_count() { return attribute(cudaDevAttrMultiProcessorCount); }
size_t device_shared_bytes() { return size_t(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)); }

Json describe_machine() {
  const cudaDeviceProp gpu = properties();
  int runtime = 0;
  check_cuda(cudaRuntimeGetVersion(&runtime), "asking for CUDA's version");
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  return {
      {"backend", "cuda"},
      {"compiler", "nvcc " + std::to_string(__CUDACC_VER_MAJOR__) + "." +
                       std::to_string(__CUDACC_VER_MINOR__) + "." +
                       std::to_string(__CUDACC_VER_BUILD__)},
      {"compute_capability", std::to_string(gpu.major) + "." + std::to_string(gpu.minor)},
      {"cuda_runtime", std::to_string(runtime / 1000) + "." + std::to_string(runtime % 1000 / 10)},
      {"driver", or_null(Nvml::instance().driver())},
      {"gpu", gpu.name},
      {"l2_bytes", gpu.l2CacheSize},
      {"max_sm_clock_mhz", attribute(cudaDevAttrClockRate) / 1000},
      {"memory_bytes", gpu.totalGlobalMem},
      {"power_limit_w", or_null(Nvml::instance().power_limit_w())},
      {"sm_count", gpu.multiProcessorCount}};
}

std::string machine_title() {
  const cudaDeviceProp gpu = properties();
  return std::string(gpu.name) + " (sm_" + std::to_string(device_capability()) + ", " +
         std::to_string(gpu.multiProcessorCount) + " SMs)";
}

std::string image_file() { return "/proc/self/exe"; }  // nothing is counted by statement here
void set_backend_options(const BackendOptions&) {}
bool sees_accesses() { return false; }
LaunchCounts take_counts() { return {}; }

GpuState sample_gpu() { return {Nvml::instance().clock_mhz(), Nvml::instance().power_w()}; }

// It waits for the default stream and the default stream for it, so that copies need no care.
void* work_stream() {
  static const cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    check_cuda(cudaStreamCreate(&made), "making a stream");
    return made;
  }();
  return stream;
}

std::string first_nan() { return ""; }
void forget_nans() {}
std::string bugs_like(const std::string&) { return ""; }

// Such an error stays (CUDA Runtime API, "Error Handling"); others are forgotten.
bool gpu_is_lost() {
  cudaGetLastError();
  return cudaDeviceSynchronize() != cudaSuccess;
}

struct Buffer::State {
  void* pointer = nullptr;
  size_t bytes = 0;
  ~State() { cudaFree(pointer); }
};

Buffer::Buffer(std::string name, size_t bytes) : state_(std::make_shared<State>()) {
  state_->bytes = bytes;
  const std::string what = "allocating " + std::to_string(bytes) + " bytes for " + name;
  check_cuda(cudaMalloc(&state_->pointer, bytes), what.c_str());
  poison();
}
void* Buffer::data() const { return state_->pointer; }
size_t Buffer::size() const { return state_->bytes; }
void Buffer::upload(const void* from) {
  check_cuda(cudaMemcpy(data(), from, size(), cudaMemcpyHostToDevice), "copying to the GPU");
}
void Buffer::download(void* to) const {
  check_cuda(cudaMemcpy(to, data(), size(), cudaMemcpyDeviceToHost), "copying from the GPU");
}
void Buffer::zero(size_t bytes) {
  check_cuda(cudaMemsetAsync(data(), 0, bytes, stream()), "filling a buffer");
}
void Buffer::poison() {
  check_cuda(cudaMemsetAsync(data(), 0xff, size(), stream()), "filling a buffer");
}

void synchronize() { check_cuda(cudaDeviceSynchronize(), launch_record().kernel); }

struct LaunchGraph::State {
  cudaGraphExec_t graph = nullptr;
  ~State() { cudaGraphExecDestroy(graph); }
};

namespace {
// How many nodes of a graph could run at the same time as an event of it is recorded.
size_t beside_events(cudaGraph_t graph) {
  constexpr char kWhat[] = "reading a CUDA graph";
  size_t node_count = 0, edge_count = 0;
  // A kernel may begin before the one that it follows is over, and waits for it by itself. Such an
  // edge has data, which must be asked for, too.
  const auto edges_of = [&](cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* data) {
#if CUDART_VERSION >= 13000
    return cudaGraphGetEdges(graph, from, to, data, &edge_count);
#else
    return cudaGraphGetEdges_v2(graph, from, to, data, &edge_count);
#endif
  };
  check_cuda(cudaGraphGetNodes(graph, nullptr, &node_count), kWhat);
  check_cuda(edges_of(nullptr, nullptr, nullptr), kWhat);
  std::vector<cudaGraphNode_t> nodes(node_count), from(edge_count), to(edge_count);
  check_cuda(cudaGraphGetNodes(graph, nodes.data(), &node_count), kWhat);
  std::vector<cudaGraphEdgeData> data(edge_count);
  check_cuda(edges_of(from.data(), to.data(), data.data()), kWhat);
  std::map<cudaGraphNode_t, size_t> number;
  std::vector<bool> is_event;
  for (const cudaGraphNode_t node : nodes) {
    number.emplace(node, number.size());
    cudaGraphNodeType type;
    check_cuda(cudaGraphNodeGetType(node, &type), kWhat);
    is_event.push_back(type == cudaGraphNodeTypeEventRecord);
  }
  std::vector<std::pair<size_t, size_t>> edges;
  for (size_t i = 0; i < edge_count; i++) edges.emplace_back(number[from[i]], number[to[i]]);
  return nodes_beside(is_event, edges);
}
}  // namespace

LaunchGraph::LaunchGraph(const std::function<void()>& body) : state_(std::make_shared<State>()) {
  constexpr char kWhat[] = "recording launches into a CUDA graph";
  // Relaxed: libraries may allocate memory meanwhile.
  check_cuda(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed), kWhat);
  struct Recorded {
    cudaGraph_t graph = nullptr;
    ~Recorded() {
      if (graph) cudaGraphDestroy(graph);
    }
  } recorded;
  const auto end = [&] { return cudaStreamEndCapture(stream(), &recorded.graph); };
  try {
    body();
  } catch (...) {
    end();
    cudaGetLastError();
    throw;
  }
  check_cuda(end(), kWhat);
  const size_t beside = beside_events(recorded.graph);
  if (beside > 0) {
    throw BackendError(std::string(kWhat) + ": of them " + std::to_string(beside) +
                       " could run while a time is taken that does not wait for them");
  }
  check_cuda(cudaGraphInstantiate(&state_->graph, recorded.graph, 0), kWhat);
  check_cuda(cudaGraphUpload(state_->graph, stream()), kWhat);
}
void LaunchGraph::launch() {
  check_cuda(cudaGraphLaunch(state_->graph, stream()), launch_record().kernel);
}

struct EventTimer::State {
  cudaEvent_t start = nullptr, stop = nullptr;
  State() {
    check_cuda(cudaEventCreate(&start), "making an event");
    check_cuda(cudaEventCreate(&stop), "making an event");
  }
  ~State() {
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
  }
};

namespace {
// In a graph, external: recorded whenever the graph runs, and no dependency between its launches.
void record(cudaEvent_t event) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream(), &status), "recording an event");
  check_cuda(
      cudaEventRecordWithFlags(
          event, stream(),
          status == cudaStreamCaptureStatusNone ? cudaEventRecordDefault : cudaEventRecordExternal),
      "recording an event");
}
}  // namespace

EventTimer::EventTimer() : state_(std::make_shared<State>()) {}
void EventTimer::start() { record(state_->start); }
void EventTimer::stop() { record(state_->stop); }
bool EventTimer::done() {
  const cudaError_t state = cudaEventQuery(state_->stop);
  if (state == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check_cuda(state, launch_record().kernel);
  return true;
}
double EventTimer::milliseconds() {
  float result = 0;
  check_cuda(cudaEventSynchronize(state_->stop), launch_record().kernel);
  check_cuda(cudaEventElapsedTime(&result, state_->start, state_->stop), "reading an event");
  return double(result);
}

}  // namespace fa
