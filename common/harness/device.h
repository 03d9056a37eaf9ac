// The back end: memory, time and facts of the GPU present, or of the emulator in its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/harness/json.h"   // IWYU pragma: export
#include "common/launch/device.h"  // IWYU pragma: export

namespace fa {

// Facts for the results file's "machine" object.
Json describe_machine();

// One line for people: "NVIDIA H200 (sm_90, 132 SMs)" or "emulator, checked build, 2 threads".
std::string machine_title();

// The file that this code was loaded from: a program, or the shared library fa.
std::string image_file();

// How the emulator runs kernels; a GPU leaves no such choice.
struct BackendOptions {
  int threads = 0;                  // of the operating system; 0: one per core
  std::string completion = "late";  // of asynchronous copies: late, early or random
  std::string schedule = "fixed";   // of a kernel's threads: fixed or random
  uint64_t seed = 1;                // of what is random
  bool races = true;                // checked build: looks for races
  double patience = 30;             // seconds without progress that end a launch; 0: none do
  std::optional<int> traced_cta;    // checked build: records what this CTA does
};
void set_backend_options(const BackendOptions& options);

// Whether every load and store of the kernels is observed: the emulator's checked build.
bool sees_accesses();

// Counts by name, "shared_wavefronts"; of one origin always the same names in the same order.
using Counts = std::vector<std::pair<std::string, uint64_t>>;

inline uint64_t count_of(const Counts& counts, const std::string& name) {
  for (const auto& [key, value] : counts) {
    if (key == name) return value;
  }
  return 0;
}

inline void add_counts(Counts& sum, const Counts& counts) {
  if (sum.empty()) sum.resize(counts.size());
  for (size_t i = 0; i < counts.size(); i++) {
    sum[i] = {counts[i].first, sum[i].second + counts[i].second};
  }
}

// What the instructions of one kind did in one line of a source.
struct LineCounts {
  std::string at;  // "kernels/08_swizzle.cu:123"; "?" if the program does not know its lines
  std::string kind;
  Counts counts;
};

// What the launches since the last call did, on the emulator.
struct LaunchCounts {
  Counts counters;
  std::vector<LineCounts> lines;  // the same by line, in the checked build
};
LaunchCounts take_counts();

// Emulator: a sentence that says where the launches since forget_nans() made their first NaN, with
// line, thread and operands; "" if they made none, and on a GPU.
std::string first_nan();
void forget_nans();

// Emulator: asked while a launch runs; any answer but 0 ends the launch with an error. Null: none.
void end_launches_when(int (*wanted)());

// At this moment, as NVML says, the library behind nvidia-smi; nothing where it does not tell.
struct GpuState {
  std::optional<double> clock_mhz;  // of the SMs
  std::optional<double> power_w;    // of the board
};
GpuState sample_gpu();

// The stream of all that the harness launches and times, a cudaStream_t; null on the emulator.
void* work_stream();

// A sentence that names the section of docs/bugs.md with bugs like the one that a report is about;
// "" for a report of no known kind, and on a GPU, which explains nothing.
std::string bugs_like(const std::string& report);

// Whether an error left the GPU of no use to this process.
bool gpu_is_lost();

// Device memory. Throws BackendError if there is not enough.
class Buffer {
 public:
  Buffer(std::string name, size_t bytes);
  Buffer(Buffer&&) = default;
  Buffer& operator=(Buffer&&) = default;

  void* data() const;
  size_t size() const;
  void upload(const void* from);
  void download(void* to) const;
  void zero(size_t bytes);  // the first ones; asynchronous on a GPU
  void poison();            // every byte 0xff, a NaN in fp16, bf16 and fp32; asynchronous on a GPU

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Waits for everything launched. Throws BackendError if a kernel failed.
void synchronize();

// A CUDA graph: what `body` launches on the work stream is only recorded, and launched as a whole
// by launch(), so that the CPU is never between two launches. Only on a GPU.
class LaunchGraph {
 public:
  // Throws what `body` throws, and BackendError if something in it cannot be recorded.
  explicit LaunchGraph(const std::function<void()>& body);
  void launch();  // asynchronous

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Times launches with a pair of events each, in a graph or without. Only on a GPU.
class EventTimer {
 public:
  EventTimer();
  void start();
  void stop();
  bool done();            // whether the GPU has come to stop, outside of a graph; does not wait
  double milliseconds();  // between start and stop; waits for stop

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace fa
