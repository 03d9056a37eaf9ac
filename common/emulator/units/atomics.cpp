#include "common/emulator/units/atomics.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "common/emulator/core/events.h"
#include "common/emulator/core/launch.h"
#include "common/emulator/core/memory.h"

namespace emu {

void fence(Fence kind) {
  const Lane* const lane = current_lane;
  if (lane && lane->cta->detector) lane->cta->detector->note_fence(*lane, kind);
}

uint64_t begin_atomic(void* pointer, size_t bytes, const char* operation, SourceLocation where,
                      AtomicOrder order) {
  Lane* const lane = current_lane;
  if (!lane) {
    throw LaunchError(std::string(operation) + " at " + place(where) +
                      ": the host cannot call it; std::atomic is for the host");
  }
  const uintptr_t address = uintptr_t(pointer);
  Cta& cta = *lane->cta;
  if (address >= lane->stack_low && address < lane->stack_high) {
    misuse(operation, where, "the address is that of a local variable, which no atomic can reach");
  }
  if (const std::string outside = describe_outside(address, bytes); !outside.empty()) {
    misuse(operation, where, "accesses memory " + outside);
  }
  if (address % bytes != 0) {
    misuse(operation, where,
           "the address is not a multiple of " + std::to_string(bytes) + " bytes");
  }
  if (is_read_only(address)) {
    misuse(operation, where, describe_place(address) + " is __constant__: kernels may only read");
  }
  const bool in_shared = address - uintptr_t(cta.shared) < cta.shared_bytes;
  if (!in_shared) await_clusters_before(*cta.cluster);
  if (cta.checks) {
    // Lanes' accesses are one request if they come from one instruction: here, from one line.
    const uintptr_t site = uintptr_t(where.file) * 4096 + where.line;
    lane->add_access({.program_counter = site,
                      .address = address,
                      .kind = in_shared ? Kind::kSharedAtomic : Kind::kGlobalAtomic,
                      .bytes = uint16_t(bytes)},
                     {.where = where});
  } else {
    record(*lane->warp,
           {in_shared ? Kind::kSharedAtomic : Kind::kGlobalAtomic, 1u << lane->lane, where, {}});
  }
  if (Detector* const detector = cta.detector) {
    if (order == AtomicOrder::kCompare) detector->compare(*lane, address, bytes);
    const bool reads = order != AtomicOrder::kStore, writes = order != AtomicOrder::kLoad;
    detector->atomic(*lane, address, bytes, reads, writes,
                     detector->atomic_site(operation, writes, where));
  }
  uint64_t bits = 0;
  memcpy(&bits, pointer, bytes);
  return bits;
}

void end_atomic(void* pointer, size_t bytes, uint64_t old_value, uint64_t new_value) {
  memcpy(pointer, &new_value, bytes);
  if (old_value == new_value) yield_after_question();
}

}  // namespace emu
