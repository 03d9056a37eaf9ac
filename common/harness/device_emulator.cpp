// The back end without a GPU: buffers are watched host memory, time is not measured.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "common/emulator/core/describe.h"
#include "common/emulator/core/first_nan.h"
#include "common/emulator/core/image.h"
#include "common/emulator/core/launch.h"
#include "common/emulator/core/memory.h"
#include "common/harness/device.h"
#include "common/launch/launch.h"
#include "common/launch/problem.h"

namespace fa {
namespace {

std::string compiler_name() {
  const auto name = [](const std::string& program, int major, int minor, int patch) {
    return program + " " + std::to_string(major) + "." + std::to_string(minor) + "." +
           std::to_string(patch);
  };
#if defined(__clang__)
  return name("clang++", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return name("g++", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

int os_threads() {
  const int chosen = emu::options().os_threads;
  return chosen > 0 ? chosen : std::max(1, int(std::thread::hardware_concurrency()));
}

}  // namespace

bool on_gpu() { return false; }
int device_capability() { return 0; }
int sm_count() { return emu::options().sms; }
size_t device_shared_bytes() { return 227 * 1024; }  // the most of any GPU so far (9.0)

Json describe_machine() {
  return {{"backend", "emulator"},
          {"checked", emu::is_checked()},
          {"compiler", compiler_name()},
          {"cpu_threads", os_threads()}};
}

std::string machine_title() {
  return std::string("emulator, ") + (emu::is_checked() ? "checked" : "fast") + " build, " +
         std::to_string(os_threads()) + (os_threads() == 1 ? " thread" : " threads");
}

std::string image_file() { return emu::image().path; }

void set_backend_options(const BackendOptions& options) {
  emu::Options& own = emu::options();
  own.os_threads = options.threads;
  own.completion = options.completion == "early"    ? emu::Completion::kEarly
                   : options.completion == "random" ? emu::Completion::kRandom
                                                    : emu::Completion::kLate;
  own.seed = options.seed;
  own.schedule = options.schedule == "random" ? emu::Schedule::kRandom : emu::Schedule::kFixed;
  own.races = options.races;
  own.patience = options.patience;
  own.traced_cta = options.traced_cta;
}

std::string first_nan() { return emu::first_nan(); }
void forget_nans() { emu::forget_nans(); }

bool sees_accesses() { return emu::is_checked(); }

LaunchCounts take_counts() {
  LaunchCounts counts;
  emu::take_counters().for_each([&](const std::string& name, uint64_t value) {
    const bool of_access = name.starts_with("global_") || name.starts_with("shared_");
    if (!of_access || sees_accesses()) counts.counters.emplace_back(name, value);
  });
  for (const emu::LineCounts& line : emu::take_lines()) {
    counts.lines.push_back({line.at, name_of(line.kind), {}});
    line.counts.for_each([&](const char* name, uint64_t value) {
      counts.lines.back().counts.emplace_back(name, value);
    });
  }
  return counts;
}

void end_launches_when(int (*wanted)()) {
  emu::options().wants_end = wanted ? [wanted] { return wanted() != 0; } : std::function<bool()>{};
}

GpuState sample_gpu() { return {}; }
void* work_stream() { return nullptr; }
std::string bugs_like(const std::string& report) { return emu::bugs_like(report); }
bool gpu_is_lost() { return false; }

struct Buffer::State {
  emu::GuardedMemory memory;
  State(std::string name, size_t bytes) : memory("global buffer " + std::move(name), bytes, 256) {}
};

Buffer::Buffer(std::string name, size_t bytes) {
  try {
    state_ = std::make_shared<State>(std::move(name), bytes);
  } catch (const emu::LaunchError& error) {
    throw BackendError(error.what());
  }
}
void* Buffer::data() const { return state_->memory.data(); }
size_t Buffer::size() const { return state_->memory.size(); }
void Buffer::upload(const void* from) { memcpy(data(), from, size()); }
void Buffer::download(void* to) const {
  if (const ptrdiff_t at = state_->memory.overwritten()) {
    throw BackendError("a kernel wrote outside " + state_->memory.name() + ", at byte " +
                       std::to_string(at) + " of " + std::to_string(size()));
  }
  memcpy(to, data(), size());
}
void Buffer::zero(size_t bytes) { memset(data(), 0, bytes); }
void Buffer::poison() { state_->memory.poison(); }

void synchronize() {}

LaunchGraph::LaunchGraph(const std::function<void()>&) {
  throw BackendError("the emulator does not measure time");
}
void LaunchGraph::launch() {}

EventTimer::EventTimer() = default;
void EventTimer::start() {}
void EventTimer::stop() {}
bool EventTimer::done() { return true; }
double EventTimer::milliseconds() { throw BackendError("the emulator does not measure time"); }

}  // namespace fa
