#include "tests/fake_gpu.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/cli/protocols.h"
#include "common/harness/device.h"

namespace fa {

namespace test {

void FakeGpu::add(const std::string& what) {
  log.push_back({what, std::chrono::steady_clock::now()});
}

std::vector<std::string> FakeGpu::what() const {
  std::vector<std::string> result;
  for (const Event& event : log) result.push_back(event.what);
  return result;
}

FakeGpu& fake_gpu() {
  static FakeGpu gpu;
  return gpu;
}

}  // namespace test

using test::fake_gpu;

namespace {

// FAKE_GPU=NAME,90,227,132: what it is called, compute capability, shared memory a CTA (KiB), SMs.
struct Kind {
  std::string name = "Fake GPU";
  int capability = 90, shared_kib = 227, sms = 1;
};

const Kind& kind() {
  static const Kind kind = [] {
    Kind result;
    const char* const said = getenv("FAKE_GPU");
    if (!said) return result;
    std::istringstream words(said);
    char comma;
    std::getline(words, result.name, ',');
    words >> result.capability >> comma >> result.shared_kib >> comma >> result.sms;
    return result;
  }();
  return kind;
}

}  // namespace

bool on_gpu() { return true; }
int device_capability() { return kind().capability; }
size_t device_shared_bytes() { return size_t(kind().shared_kib) * 1024; }
int sm_count() { return kind().sms; }

Json describe_machine() {
  return {{"backend", "cuda"},
          {"gpu", kind().name},
          {"compute_capability",
           std::to_string(kind().capability / 10) + "." + std::to_string(kind().capability % 10)},
          {"sm_count", kind().sms},
          {"memory_bytes", 1000000000},
          {"l2_bytes", 1000000},
          {"max_sm_clock_mhz", 1980},
          {"power_limit_w", nullptr},
          {"driver", "1.0"},
          {"cuda_runtime", "13.0"},
          {"compiler", "none 1.0"}};
}
std::string machine_title() { return kind().name; }

std::string image_file() { return "/proc/self/exe"; }
void set_backend_options(const BackendOptions&) {}
bool sees_accesses() { return false; }
LaunchCounts take_counts() { return {}; }

GpuState sample_gpu() {
  fake_gpu().add("sampled");
  return {fake_gpu().clock_mhz, fake_gpu().power_w};
}
void* work_stream() { return nullptr; }
std::string first_nan() { return ""; }
void forget_nans() {}
std::string bugs_like(const std::string&) { return ""; }
bool gpu_is_lost() { return fake_gpu().lost; }

struct Buffer::State {
  std::string name;
  size_t bytes;
  char* begin = nullptr;
  ~State() { ::operator delete(begin, std::align_val_t(256)); }
};

Buffer::Buffer(std::string name, size_t bytes) : state_(std::make_shared<State>()) {
  fake_gpu().add(name + " made");
  state_->name = std::move(name);
  state_->bytes = bytes;
  const bool used = state_->name != "L2 flush";  // which is only poisoned, and large
  if (used && bytes > fake_gpu().memory_bytes) {
    throw BackendError("allocating " + std::to_string(bytes) + " bytes for " + state_->name +
                       ": out of memory");
  }
  if (used) state_->begin = static_cast<char*>(::operator new(bytes, std::align_val_t(256)));
  if (used) memset(state_->begin, 0xff, bytes);
}
void* Buffer::data() const { return state_->begin; }
size_t Buffer::size() const { return state_->bytes; }
void Buffer::upload(const void* from) { memcpy(data(), from, size()); }
void Buffer::download(void* to) const { memcpy(to, data(), size()); }
void Buffer::zero(size_t bytes) { memset(data(), 0, bytes); }
void Buffer::poison() {
  fake_gpu().add(state_->name + " poisoned");
  if (state_->begin) memset(data(), 0xff, size());
}

void synchronize() {
  fake_gpu().add("waited");
  for (const auto& work : fake_gpu().elsewhere) work();
  fake_gpu().elsewhere.clear();
}

LaunchGraph::LaunchGraph(const std::function<void()>& body) {
  fake_gpu().add("graph of");
  body();
}
void LaunchGraph::launch() { fake_gpu().add("graph"); }

struct EventTimer::State {
  double milliseconds = 0;
  int polls_until_done = 0;
};
EventTimer::EventTimer() : state_(std::make_shared<State>()) {}
void EventTimer::start() { fake_gpu().add("start"); }
void EventTimer::stop() {
  fake_gpu().add("stop");
  state_->milliseconds = fake_gpu().launch_ms;
  state_->polls_until_done = fake_gpu().polls_until_done;
}
bool EventTimer::done() { return state_->polls_until_done-- <= 0; }
double EventTimer::milliseconds() { return state_->milliseconds; }

// In place of bench/protocols.json: a problem that the fake kernels can do.
const char* protocols_json() {
  return R"({"protocols": {"quick": {"description": "Small.", "source": "None.",
    "problems": [{"dtype": "bf16", "head_dim": 64, "heads": 1, "batch": 1, "seq_len": 128},
                 {"dtype": "fp16", "head_dim": 64, "heads": 1, "batch": 1, "seq_len": 128}],
    "warmup": 1, "iterations": 4, "rounds": 3, "max_seconds": 1, "flush_l2": true,
    "rotating_inputs": 2, "rest_ms": 0.25, "load_seconds": 0,
    "tflops_convention": "4*B*H*N^2*D"}}})";
}

}  // namespace fa
