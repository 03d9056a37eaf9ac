// The back end: memory, time and facts of the GPU present, or of the emulator in its place.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace fa {

bool on_gpu();  // false: emulator

// Compute capability times ten (90), 0 on the emulator, which runs everything.
int device_capability();

// The most shared memory a CTA can have, in bytes.
size_t device_shared_bytes();

// Facts for the results file's "machine" object.
nlohmann::json describe_machine();

// One line for people: "NVIDIA H200 (sm_90, 132 SMs)" or "emulator, checked build, 2 threads".
std::string machine_title();

// At this moment, as NVML says, the library behind nvidia-smi; nothing where it does not tell.
struct GpuState {
  std::optional<double> clock_mhz;  // of the SMs
  std::optional<double> power_w;    // of the board
};
GpuState sample_gpu();

// Occupies the GPU for about 50 us, long enough to queue a launch: it then begins when the event before
// it does, and not when the CPU is done with it. Asynchronous.
void hold_gpu();

// Whether an error left the GPU of no use to this process.
bool gpu_is_lost();

// Device memory. Throws BackendError if there is not enough.
class Buffer {
 public:
  Buffer(std::string name, size_t bytes);
  ~Buffer();
  Buffer(Buffer&&) noexcept;
  Buffer& operator=(Buffer&&) noexcept;

  void* data() const;
  size_t size() const;
  void upload(const void* from);
  void download(void* to) const;
  void poison();  // every byte 0xff, a NaN in fp16, bf16 and fp32

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Waits for everything launched. Throws BackendError if a kernel failed.
void synchronize();

// Times launches with a pair of events each. Only on a GPU.
class EventTimer {
 public:
  EventTimer();
  ~EventTimer();
  void start();
  void stop();
  bool done();            // whether the GPU has come to stop; does not wait
  double milliseconds();  // between start and stop; waits for stop

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fa
