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

  // Counted by the checked build only: plain loads and stores of a warp, as one request.
  uint64_t global_requests = 0;
  uint64_t global_sectors = 0;  // 32-byte pieces of memory that the requests touch
  uint64_t global_bytes = 0;    // bytes that the lanes asked for
  uint64_t shared_requests = 0;
  uint64_t shared_wavefronts = 0;        // passes through the 32 banks
  uint64_t shared_wavefronts_ideal = 0;  // passes if no two lanes collided in a bank

  // Applies f(name, value) to every counter.
  template <typename F>
  void for_each(F f) const {
    f("barriers", barriers);
    f("shuffles", shuffles);
    f("votes", votes);
    f("exp2", exp2);
    f("global_requests", global_requests);
    f("global_sectors", global_sectors);
    f("global_bytes", global_bytes);
    f("shared_requests", shared_requests);
    f("shared_wavefronts", shared_wavefronts);
    f("shared_wavefronts_ideal", shared_wavefronts_ideal);
  }

  Counters& operator+=(const Counters& other) {
    barriers += other.barriers;
    shuffles += other.shuffles;
    votes += other.votes;
    exp2 += other.exp2;
    global_requests += other.global_requests;
    global_sectors += other.global_sectors;
    global_bytes += other.global_bytes;
    shared_requests += other.shared_requests;
    shared_wavefronts += other.shared_wavefronts;
    shared_wavefronts_ideal += other.shared_wavefronts_ideal;
    return *this;
  }
};

}  // namespace emu
