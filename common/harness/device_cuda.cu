// The back end with a GPU.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <nlohmann/json.hpp>

#include "common/harness/compiler.h"
#include "common/harness/device.h"
#include "common/harness/launch.h"
#include "common/harness/problem.h"

namespace fa {
namespace {

const cudaDeviceProp& properties() {
  static const cudaDeviceProp instance = [] {
    cudaDeviceProp result{};
    check_cuda(cudaGetDeviceProperties(&result, 0), "looking for a GPU");
    return result;
  }();
  return instance;
}

int attribute(cudaDeviceAttr which) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, which, 0), "reading the GPU's attributes");
  return value;
}

// The driver's version and the power limit come from NVML, the library behind nvidia-smi, which is
// part of the driver. Asked for at run time, so that nothing need be linked; null where it is missing.
void add_driver_facts(nlohmann::json& machine) {
  machine["driver"] = nullptr;
  machine["power_limit_w"] = nullptr;
  void* const nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!nvml) return;
  const auto init = reinterpret_cast<int (*)()>(dlsym(nvml, "nvmlInit_v2"));
  const auto driver_version =
      reinterpret_cast<int (*)(char*, unsigned)>(dlsym(nvml, "nvmlSystemGetDriverVersion"));
  const auto device_by_bus = reinterpret_cast<int (*)(const char*, void**)>(
      dlsym(nvml, "nvmlDeviceGetHandleByPciBusId_v2"));
  const auto power_limit =
      reinterpret_cast<int (*)(void*, unsigned*)>(dlsym(nvml, "nvmlDeviceGetEnforcedPowerLimit"));
  if (!init || init() != 0) return;
  if (char text[96]; driver_version && driver_version(text, sizeof text) == 0)
    machine["driver"] = text;
  char bus[32];
  void* device = nullptr;
  unsigned milliwatts = 0;
  if (device_by_bus && power_limit && cudaDeviceGetPCIBusId(bus, sizeof bus, 0) == cudaSuccess &&
      device_by_bus(bus, &device) == 0 && power_limit(device, &milliwatts) == 0) {
    machine["power_limit_w"] = milliwatts / 1000.0;
  }
}

}  // namespace

void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw BackendError(std::string(what) + ": CUDA says: " + cudaGetErrorString(error) + " (" +
                       cudaGetErrorName(error) + ")");
  }
}

bool on_gpu() { return true; }
int device_capability() { return properties().major * 10 + properties().minor; }
size_t device_shared_bytes() { return properties().sharedMemPerBlockOptin; }

nlohmann::json describe_machine() {
  const cudaDeviceProp& gpu = properties();
  int runtime = 0;
  check_cuda(cudaRuntimeGetVersion(&runtime), "asking for CUDA's version");
  nlohmann::json machine = {
      {"backend", "cuda"},
      {"gpu", gpu.name},
      {"compute_capability", std::to_string(gpu.major) + "." + std::to_string(gpu.minor)},
      {"sm_count", gpu.multiProcessorCount},
      {"memory_bytes", gpu.totalGlobalMem},
      {"l2_bytes", gpu.l2CacheSize},
      {"max_sm_clock_mhz", attribute(cudaDevAttrClockRate) / 1000},
      {"cuda_runtime", std::to_string(runtime / 1000) + "." + std::to_string(runtime % 1000 / 10)},
      {"compiler", "nvcc " + std::to_string(__CUDACC_VER_MAJOR__) + "." +
                       std::to_string(__CUDACC_VER_MINOR__) + "." +
                       std::to_string(__CUDACC_VER_BUILD__)}};
  add_driver_facts(machine);
  return machine;
}

std::string machine_title() {
  const cudaDeviceProp& gpu = properties();
  return std::string(gpu.name) + " (sm_" + std::to_string(device_capability()) + ", " +
         std::to_string(gpu.multiProcessorCount) + " SMs)";
}

struct Buffer::State {
  void* pointer = nullptr;
  size_t bytes = 0;
  ~State() { cudaFree(pointer); }
};

Buffer::Buffer(std::string name, size_t bytes) : state_(std::make_unique<State>()) {
  state_->bytes = bytes;
  const std::string what = "allocating " + std::to_string(bytes) + " bytes for " + name;
  check_cuda(cudaMalloc(&state_->pointer, bytes), what.c_str());
  poison();
}
Buffer::~Buffer() = default;
Buffer::Buffer(Buffer&&) noexcept = default;
Buffer& Buffer::operator=(Buffer&&) noexcept = default;

void* Buffer::data() const { return state_->pointer; }
size_t Buffer::size() const { return state_->bytes; }
void Buffer::upload(const void* from) {
  check_cuda(cudaMemcpy(data(), from, size(), cudaMemcpyHostToDevice), "copying to the GPU");
}
void Buffer::download(void* to) const {
  check_cuda(cudaMemcpy(to, data(), size(), cudaMemcpyDeviceToHost), "copying from the GPU");
}
void Buffer::poison() { check_cuda(cudaMemset(data(), 0xff, size()), "filling a buffer"); }

void synchronize() { check_cuda(cudaDeviceSynchronize(), launch_record().kernel); }

struct EventTimer::State {
  cudaEvent_t start = nullptr, stop = nullptr;
};

EventTimer::EventTimer() : state_(std::make_unique<State>()) {
  check_cuda(cudaEventCreate(&state_->start), "making an event");
  check_cuda(cudaEventCreate(&state_->stop), "making an event");
}
EventTimer::~EventTimer() {
  cudaEventDestroy(state_->start);
  cudaEventDestroy(state_->stop);
}
void EventTimer::start() { check_cuda(cudaEventRecord(state_->start), "recording an event"); }
void EventTimer::stop() { check_cuda(cudaEventRecord(state_->stop), "recording an event"); }
double EventTimer::milliseconds() {
  float result = 0;
  check_cuda(cudaEventSynchronize(state_->stop), launch_record().kernel);
  check_cuda(cudaEventElapsedTime(&result, state_->start, state_->stop), "reading an event");
  return double(result);
}

}  // namespace fa
