// What a launch did, counted the way the GPU's profiler counts it.
#pragma once

#include <cstdint>

namespace emu {

struct Counters {
  // Counted in every build. A warp instruction counts once, whatever the number of its lanes.
  uint64_t barriers = 0;  // barrier instructions (__syncthreads and named barriers), per warp
  uint64_t shuffles = 0;  // __shfl_*_sync, per warp
  uint64_t votes = 0;     // __any_sync, __all_sync, __ballot_sync, per warp
  uint64_t exp2 = 0;      // exponentials, per thread
  uint64_t ldmatrix = 0;  // per warp
  uint64_t stmatrix = 0;  // per warp
  uint64_t matrix_products = 0;  // mma, per warp
  uint64_t matrix_flops = 0;     // what they multiply and add
  uint64_t async_copies = 0;     // cp.async, per thread

  // Counted by the checked build only: loads and stores of a warp, as one request.
  uint64_t global_requests = 0;
  uint64_t global_sectors = 0;  // 32-byte pieces of memory that the requests touch
  uint64_t global_bytes = 0;    // bytes that the lanes asked for
  uint64_t shared_requests = 0;
  uint64_t shared_wavefronts = 0;        // passes through the 32 banks
  uint64_t shared_wavefronts_ideal = 0;  // passes if no two lanes collided in a bank

  // Applies f(name, value) to every counter.
  template <typename F>
  void for_each(F f) const {
    for (const Field& field : kFields) f(field.name, this->*field.value);
  }

  Counters& operator+=(const Counters& other) {
    for (const Field& field : kFields) this->*field.value += other.*field.value;
    return *this;
  }

 private:
  struct Field {
    const char* name;
    uint64_t Counters::*value;
  };
  static const Field kFields[15];
};

inline constexpr Counters::Field Counters::kFields[15] = {
    {"barriers", &Counters::barriers},
    {"shuffles", &Counters::shuffles},
    {"votes", &Counters::votes},
    {"exp2", &Counters::exp2},
    {"ldmatrix", &Counters::ldmatrix},
    {"stmatrix", &Counters::stmatrix},
    {"matrix_products", &Counters::matrix_products},
    {"matrix_flops", &Counters::matrix_flops},
    {"async_copies", &Counters::async_copies},
    {"global_requests", &Counters::global_requests},
    {"global_sectors", &Counters::global_sectors},
    {"global_bytes", &Counters::global_bytes},
    {"shared_requests", &Counters::shared_requests},
    {"shared_wavefronts", &Counters::shared_wavefronts},
    {"shared_wavefronts_ideal", &Counters::shared_wavefronts_ideal}};

}  // namespace emu
