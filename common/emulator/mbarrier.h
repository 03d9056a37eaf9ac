// mbarrier objects (PTX ISA, "mbarrier") and the fences that go with asynchronous copies.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/emulator/lane.h"
#include "common/emulator/races.h"

namespace emu {

struct Mbarrier {
  int count = 0;    // arrivals that a phase needs
  int pending = 0;  // of these, the ones still to come in this phase
  int64_t bytes =
      0;  // expected in this phase and not brought yet; less than 0: brought before expected
  uint64_t phase = 0;  // the current one; those before have ended
  int copies = 0;      // under way that will report to this phase

  SourceLocation made;      // mbarrier_init
  SourceLocation expected;  // the latest expect_tx
  std::vector<Lane*> waiting;

  // Checked build.
  int made_by = 0;  // the slot of the thread that initialised it, and that thread's clock
  uint32_t made_at = 0;
  bool fenced = false;                               // a fence has made it visible to bulk copies
  bool counts_bytes = false, counted_bytes = false;  // this phase, the last one: not arrivals alone
  int engine = -1;         // of the copies that report here: its clock is the phase
  Clocks arriving, ended;  // what those that arrived had seen: in this phase, in the last one
  struct Arrival {
    uint32_t clock;
    SourceLocation where;
  };
  std::map<const Lane*, Arrival> remote;  // of threads of other CTAs, the last of each
};

// Those of a cluster, by address.
struct Mbarriers {
  std::map<uintptr_t, Mbarrier> all;
  void clear() { all.clear(); }
};

void mbarrier_init(uint64_t* bar, int count, SourceLocation where);
void mbarrier_inval(uint64_t* bar, SourceLocation where);
void mbarrier_arrive(uint64_t* bar, const char* operation, SourceLocation where);
void mbarrier_arrive_cluster(uint64_t* bar, int cta, SourceLocation where);
void mbarrier_expect_tx(uint64_t* bar, int bytes, const char* operation, SourceLocation where);
void mbarrier_complete_tx(uint64_t* bar, int bytes, SourceLocation where);
bool mbarrier_test_wait(uint64_t* bar, int parity, const char* operation, SourceLocation where);
void mbarrier_wait(uint64_t* bar, int parity, SourceLocation where);
void fence_mbarrier_init();
void fence_proxy_async();

// For a timeline: a bulk copy that brings `bytes` bytes, `read` of them from global memory, to this CTA.
void trace_load(uintptr_t bar, const char* operation, int bytes, int read, SourceLocation where);

// For bulk copies: the barrier that a copy reports to, which must exist and be visible to it; the bytes it has
// brought, and what its starter knew of the ends of phases (Races::known_ends).
Mbarrier& mbarrier_of_copy(uintptr_t bar, const char* operation, SourceLocation where);
void bring_bytes(uintptr_t bar, int bytes, const std::vector<uint32_t>& ends, SourceLocation copy);

// The CTA ends: arrivals from other CTAs must have come before.
void mbarriers_end(const Cta& cta);

}  // namespace emu
