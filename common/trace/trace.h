// Recording what one CTA does, for a timeline (timing.h). A program that links this records the CTA
// that options().traced_cta names; how instructions report themselves is said in
// common/emulator/core/watch.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/emulator/core/events.h"
#include "common/trace/timing.h"

namespace emu {

class Trace : public Recorder {
 public:
  explicit Trace(const Cta& cta);

  void note(const Lane& lane, Place place, Step step) override;
  void event(const Warp& warp, const Event& event) override;
  void add(const Warp& warp, Place place, Step step) override;
  void meet(const Warp& warp, uint32_t mask) override;
  std::string moves(const Warp& warp, Kind kind, const std::vector<Piece>& pieces) override;
  void loads(const Warp& warp, const Register& contents) override;
  bool uses(const Warp& warp, const Register& contents) override;
  void uses_computed(const Warp& warp) override;
  void accumulates(const Warp& warp, const void* accumulators) override;
  void computes(const Lane& lane, float result) override;
  int meeting(const void* key, const std::string& name) override;
  int completed(const void* key) const override;
  void complete(const void* key) override;
  void finish() override;  // gives the steps the names of their lines

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
    std::string moved;                            // of what the next event moves
    std::string product;                          // operands of the latest product
  };
  struct Phases {
    uint64_t number = 0;
    int current = -1, last = -1;  // meetings
  };

  static bool copies(const Piece& piece, const MemoryAccess& from);
  std::string stored(const Warp& warp, const std::vector<Piece>& pieces);
  void add_operand(const Warp& warp, const std::string& of);

  const Cta& cta_;
  Recording recording_;
  std::vector<std::vector<Place>> places_;  // of the recording's steps
  std::vector<std::vector<Noted>> notes_;   // of each thread, since its warp last met
  std::vector<WarpState> warps_;
  std::vector<std::string> owners_;               // Step::of of each four bytes of shared memory
  std::vector<std::set<uint32_t>> exponentials_;  // of each thread: bits of the results
  std::map<const void*, Phases> phases_;
};

// The recordings of the launches since the last call, of the CTA that options().traced_cta names.
std::vector<Recording> take_recordings();

}  // namespace emu
