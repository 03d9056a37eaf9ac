// Recording what one CTA does, for a timeline (timing.h).
//
// Instructions of a warp report themselves by record() (events.h), which calls event(). What single lanes do
// beside loads and stores, exponentials, waits, arrivals, is noted for each lane and becomes the warp's when its
// lanes meet: the n-th execution of an instruction by each lane is one instruction of the warp.
//
// What a new instruction needs, if cta.trace is not null:
//   - executed by all lanes together: a case in event(), or add();
//   - by single lanes: note();
//   - a barrier: `arrives` and `awaits` of its step from meeting() or completed(), and complete() when a phase
//     ends. A step arrives when its warp has issued it or, if it is an asynchronous copy, when it has landed.
//   - asynchronous work that is waited for by groups: `group` of its step; Work::kCommit and kWaitGroups.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/emulator/events.h"
#include "common/emulator/lane.h"
#include "common/emulator/timing.h"

namespace emu {

class Trace {
 public:
  explicit Trace(const Cta& cta);

  // What one lane does.
  void note(const Lane& lane, Place place, Step step);

  // What a warp does: of loads, stores and cp.async when its lanes meet, of the rest at once.
  void event(const Warp& warp, const Event& event);
  void add(const Warp& warp, Place place, Step step);

  // The lanes in `mask` meet, and their accesses have been reported.
  void meet(const Warp& warp, uint32_t mask);

  // More about a warp's latest step. Registers are known by their contents: so a product waits for the loads
  // and exponentials whose bits it multiplies, and for no others. Accumulators are known by their address.
  using Register = std::array<uint32_t, kWarpSize>;  // one of each lane
  void loads(const Warp& warp, const Register& contents);
  // False: neither loaded nor two 16-bit results of exponentials.
  bool uses(const Warp& warp, const Register& contents);
  void uses_computed(const Warp& warp);  // an operand of which no more is known
  void accumulates(const Warp& warp, const void* accumulators);

  // The result of the exponential that the lane has just noted.
  void computes(const Lane& lane, float result);

  // The phase that the barrier at `key` is in, which this calls `name`; the one before it, -1 if none.
  int meeting(const void* key, const std::string& name);
  int completed(const void* key) const;
  void complete(const void* key);

  // The CTA has ended. Its steps get the names of their lines.
  Recording finish();

 private:
  struct Placed {
    Place place;
    Step step;
  };
  struct Noted : Placed {
    size_t position;    // accesses of the lane before it
    float result = {};  // of an exponential
  };
  struct WarpState {
    std::vector<Placed> accesses;                 // reported, in the order of the lanes' accesses
    std::map<Register, uint32_t> loaded_by;       // contents -> step
    std::map<Register, uint32_t> computed_by;     // results in 16 bits -> step
    std::map<const void*, uint32_t> added_to_by;  // accumulators -> step
  };
  struct Phases {
    uint64_t number = 0;
    int current = -1, last = -1;  // meetings
  };

  const Cta& cta_;
  Recording recording_;
  std::vector<std::vector<Place>> places_;  // of the recording's steps
  std::vector<std::vector<Noted>> notes_;   // of each thread, since its warp last met
  std::vector<WarpState> warps_;
  std::map<const void*, Phases> phases_;
};

// The recordings of the launches since the last call, of the CTA that options().traced_cta names.
std::vector<Recording> take_recordings();
void keep_recording(Recording recording);

}  // namespace emu
