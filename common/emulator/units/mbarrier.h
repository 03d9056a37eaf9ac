// mbarrier objects (PTX ISA, "mbarrier") and the fences that go with asynchronous copies.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/emulator/core/watch.h"

namespace emu {

struct Mbarrier {
  int count = 0;    // arrivals that a phase needs
  int pending = 0;  // of these, the ones still to come in this phase
  int64_t bytes =
      0;  // expected in this phase and not brought yet; below 0: brought before expected
  uint64_t phase = 0;  // the current one; those before have ended
  int copies = 0;      // bulk copies under way that will report to this phase

  SourceLocation made;      // mbarrier_init
  SourceLocation expected;  // the latest expect_tx
  std::vector<Lane*> waiting;
  PhaseWait last_wait;              // of any thread
  bool waited_for_nothing = false;  // a thread has waited for the phase before phase 0

  // These are used in the checked build.
  int made_by = 0;       // the slot of the thread that initialised it
  uint32_t made_at = 0;  // that thread's clock at that moment
  bool fenced = false;   // a fence has made it visible to bulk copies
  // Whether bytes, and not arrivals alone, are counted in this phase, and were in the last one.
  bool counts_bytes = false, counted_bytes = false;
  int engine = -1;  // that of the copies that report here: its clock is the phase
  // The views of the threads that arrived: in this phase, and in the last one.
  Clocks arriving, ended;
  struct Arrival {
    uint32_t clock;
    SourceLocation where;
  };
  std::map<const Lane*, Arrival> remote;  // the last arrival of each thread of other CTAs
  // For reports: of each warp, the last phase in which it has arrived, and the last arrival there.
  struct WarpArrivals {
    uint64_t phase;
    uint32_t lanes;
    const Lane* last;
    SourceLocation where;
  };
  std::map<const Warp*, WarpArrivals> warps;
  // The last phase in which a thread has arrived twice, where it has; no thread: there was none.
  struct {
    const Lane* thread = nullptr;
    uint64_t phase = 0;
    SourceLocation first, second;
  } twice;
};

void mbarrier_init(uint64_t* bar, int count, SourceLocation where);
void mbarrier_inval(uint64_t* bar, SourceLocation where);
// The same of an object that may hold none, at the end of its life.
void mbarrier_forget(uint64_t* bar, SourceLocation where = SourceLocation::current());
void mbarrier_arrive(uint64_t* bar, const char* operation, SourceLocation where);
void mbarrier_arrive_cluster(uint64_t* bar, int cta, SourceLocation where);
void mbarrier_expect_tx(uint64_t* bar, int bytes, const char* operation, SourceLocation where);
void mbarrier_complete_tx(uint64_t* bar, int bytes, SourceLocation where);
bool mbarrier_test_wait(uint64_t* bar, int parity, const char* operation, SourceLocation where);
void mbarrier_wait(uint64_t* bar, int parity, SourceLocation where);
int mbarrier_parity(uint64_t* bar, const char* operation, SourceLocation where);  // of its phase
void fence_mbarrier_init();
void fence_proxy_async();

// Notes a bulk copy for a timeline, which brings `bytes` bytes, `read` of them from global memory,
// to this CTA.
void trace_load(uintptr_t bar, const char* operation, int bytes, int read, std::string of,
                SourceLocation where);

// ---- for bulk copies
// The barrier that a copy reports to, which must exist and be visible to the copy.
Mbarrier& mbarrier_of_copy(uintptr_t bar, const char* operation, SourceLocation where);
// A copy has brought bytes, and what its starter knew of the ends of phases (Detector::known_ends).
void bring_bytes(uintptr_t bar, int bytes, const std::vector<uint32_t>& ends, SourceLocation copy);
// Returns what the last wait at the barrier was for, which did not wait for this copy, and why; ""
// if there was none.
std::string waited_for_another_phase(const Cluster& cluster, uintptr_t bar);
// Returns whether a lane waits at the barrier.
bool is_awaited(const Cluster& cluster, uintptr_t bar);

}  // namespace emu
