// The checked build's view of a kernel's plain loads and stores.
//
// Kernel sources are compiled with -fsanitize=thread, which makes the compiler call __tsan_readN or
// __tsan_writeN before every access to memory. libtsan is not linked: these are our answers. They
// see every access that is still an access after optimisation, which is what a GPU would execute
// too; what lives in registers on a GPU lives on the lane's stack here and is left out.
#include <cstdint>
#include <cstring>
#include <string>

#include "common/emulator/checks/counting.h"
#include "common/emulator/checks/races.h"
#include "common/emulator/core/launch.h"

namespace {

using emu::current_lane;
using emu::Lane;

// The accesses of a lane are kept until its warp meets, 24 bytes each. So now and then a lane looks
// whether it is the last one of its warp, whose accesses can be counted at once; if not, and if it
// has made too many, it ends the launch before they take all memory.
constexpr size_t kPortion = size_t(1) << 16;

void make_room(Lane& lane, uintptr_t return_address) {
  emu::end_if_overdue(return_address - 1);
  if (lane.warp->live == 1u << lane.lane) {
    lane.cta->checks->meet(*lane.warp, emu::kFullMask);
  } else if (lane.accesses.size() >= emu::options().most_accesses) {
    emu::fail(
        "%s: access %zu to memory since the threads of its warp last met, and no more are kept\n  "
        "A loop without end? A count or an index in its condition may be wrong, or it waits for "
        "memory\n  that another thread is to write: threads take turns where they meet, so none "
        "can. A long loop needs a\n  __syncwarp() where all threads of the warp pass, or %s.",
        emu::symbolise(return_address - 1).c_str(), lane.accesses.size(), emu::options().faster);
  }
}

// Whether `address` lies in the shared memory of a CTA of the cluster. Ends the launch if that CTA
// has ended.
bool in_other_shared(const emu::Cluster& cluster, uintptr_t address, uintptr_t return_address) {
  if (cluster.ctas.size() == 1) return false;
  for (const emu::Cta& cta : cluster.ctas) {
    if (address - uintptr_t(cta.shared) >= cta.shared_bytes) continue;
    if (cta.live > 0) return true;
    emu::fail(
        "%s: CTA %d of the cluster has ended, and its shared memory with it\n  Missing: a barrier "
        "of the cluster (cluster_arrive, cluster_wait) before the end.",
        emu::symbolise(return_address - 1).c_str(), cta.rank);
  }
  return false;
}

emu::Kind kind_of(bool in_shared, bool write) {
  if (in_shared) return write ? emu::Kind::kSharedStore : emu::Kind::kSharedLoad;
  return write ? emu::Kind::kGlobalStore : emu::Kind::kGlobalLoad;
}

void observe_memory(Lane* lane, uintptr_t address, size_t bytes, bool write,
                    uintptr_t return_address, bool is_volatile, bool part);

// The short cut for most accesses. False: this access is not recorded yet, and observe_memory()
// must do it.
[[gnu::always_inline]] inline bool observe_quickly(Lane& lane, uintptr_t address, size_t bytes,
                                                   bool write, uintptr_t return_address) {
  auto* const races = static_cast<emu::Races*>(lane.cta->detector);
  const size_t count = lane.accesses.size();
  if (!races || (count % kPortion == 0 && count > 0)) return false;
  const emu::Site site = emu::plain_site(return_address, write, false, lane.calls);
  const emu::ShadowPage* const page = write ? races->quick_store(lane, address, bytes, site)
                                            : races->quick_load(lane, address, bytes, site);
  if (!page) return false;
  lane.accesses.push_back({return_address, address, kind_of(page->shared, write), uint16_t(bytes)});
  return true;
}

[[gnu::always_inline]] inline void observe(const void* pointer, size_t bytes, bool write,
                                           void* return_address, bool is_volatile = false,
                                           bool part = false) {
  Lane* const lane = current_lane;
  if (!lane || pointer == &current_lane) return;  // threadIdx and its kin read it
  const uintptr_t address = uintptr_t(pointer);
  if (address >= lane->stack_low && address < lane->stack_high) {  // registers, local memory
    if (lane->stack_watch) {
      lane->stack_watch->access(*lane, address, bytes, uintptr_t(return_address));
    }
    return;
  }
  if (!is_volatile && !part &&
      observe_quickly(*lane, address, bytes, write, uintptr_t(return_address))) {
    return;
  }
  const auto of_emulator = [&](const auto& all) {
    return address - uintptr_t(all.data()) < all.size() * sizeof all[0];
  };
  const emu::Cluster& cluster = *lane->cta->cluster;
  if (of_emulator(cluster.lanes) || of_emulator(cluster.ctas)) return;
  observe_memory(lane, address, bytes, write, uintptr_t(return_address), is_volatile, part);
}

__attribute__((noinline)) void observe_memory(Lane* lane, uintptr_t address, size_t bytes,
                                              bool write, uintptr_t return_address,
                                              bool is_volatile, bool part) {
  const emu::Cta& cta = *lane->cta;
  const uintptr_t shared = uintptr_t(cta.shared);
  const bool in_shared = address >= shared && address + bytes <= shared + cta.shared_bytes;
  const bool among_variables = in_shared && address - shared < cta.static_bytes;
  if (among_variables || (!in_shared && !emu::inside_region(address, bytes))) {
    if (!among_variables && emu::is_between_blocks(address)) return;
    if (const std::string outside = emu::describe_outside(address, bytes); !outside.empty()) {
      emu::fail("%s: %s of %zu bytes %s", emu::symbolise(return_address - 1).c_str(),
                write ? "store" : "load", bytes, outside.c_str());
    }
    if (!among_variables) return;  // the emulator's own state
  }
  const bool in_global = !in_shared && !in_other_shared(*cta.cluster, address, return_address);
  if (address % bytes != 0) {
    emu::fail("%s: %s of %zu bytes at an address that is not a multiple of %zu",
              emu::symbolise(return_address - 1).c_str(), write ? "store" : "load", bytes, bytes);
  }
  if (write && !in_shared && emu::is_read_only(address)) {
    emu::fail("%s: store to %s, which kernels may only read: it is __constant__",
              emu::symbolise(return_address - 1).c_str(), emu::describe_place(address).c_str());
  }
  if (const size_t count = lane->accesses.size(); count % kPortion == 0 && count > 0) {
    make_room(*lane, return_address);
  }
  lane->accesses.push_back({return_address, address, kind_of(in_shared, write), uint16_t(bytes)});
  // A volatile access of global memory may be that of a flag: it comes in the order of the CTAs, as
  // atomics do, and a thread that asks and asks lets others run.
  if (is_volatile && in_global) {
    emu::await_clusters_before(*cta.cluster);
    if (!write) {
      lane->not_unwound = true;
      emu::yield_after_question();
      lane->not_unwound = false;
    }
    if (cta.detector) {
      cta.detector->volatile_access(*lane, address, bytes, write, return_address);
    }
    return;
  }
  if (cta.detector) {
    cta.detector->access(*lane, address, bytes, write,
                         emu::plain_site(return_address, write, part, lane->calls));
  }
}

// A copy or fill that the compiler left to the C library: as the GPU would do it, 16 bytes at a
// time.
void observe_range(const void* pointer, size_t bytes, bool write, void* return_address) {
  const auto* at = static_cast<const uint8_t*>(pointer);
  while (bytes > 0) {
    size_t piece = 16;
    while (piece > bytes || uintptr_t(at) % piece != 0) piece /= 2;
    observe(at, piece, write, return_address, false, true);
    at += piece;
    bytes -= piece;
  }
}

}  // namespace

void emu::observe_access(const void* pointer, size_t bytes, bool write, bool is_volatile,
                         uintptr_t return_address) {
  observe(pointer, bytes, write, reinterpret_cast<void*>(return_address), is_volatile);
}

#define FA_HOOKS(bytes)                                                                       \
  void __tsan_read##bytes(void* p) { observe(p, bytes, false, __builtin_return_address(0)); } \
  void __tsan_write##bytes(void* p) { observe(p, bytes, true, __builtin_return_address(0)); } \
  void __tsan_unaligned_read##bytes(void* p) {                                                \
    emu::observe_access(p, bytes, false, false, uintptr_t(__builtin_return_address(0)));      \
  }                                                                                           \
  void __tsan_unaligned_write##bytes(void* p) {                                               \
    emu::observe_access(p, bytes, true, false, uintptr_t(__builtin_return_address(0)));       \
  }                                                                                           \
  void __tsan_volatile_read##bytes(void* p) {                                                 \
    emu::observe_access(p, bytes, false, true, uintptr_t(__builtin_return_address(0)));       \
  }                                                                                           \
  void __tsan_volatile_write##bytes(void* p) {                                                \
    emu::observe_access(p, bytes, true, true, uintptr_t(__builtin_return_address(0)));        \
  }

extern "C" {
FA_HOOKS(1)
FA_HOOKS(2)
FA_HOOKS(4)
FA_HOOKS(8)
FA_HOOKS(16)
void __tsan_read_range(void* p, size_t n) {
  observe_range(p, n, false, __builtin_return_address(0));
}
void __tsan_write_range(void* p, size_t n) {
  observe_range(p, n, true, __builtin_return_address(0));
}
void* __tsan_memcpy(void* to, const void* from, size_t n) {
  observe_range(from, n, false, __builtin_return_address(0));
  observe_range(to, n, true, __builtin_return_address(0));
  return memcpy(to, from, n);
}
void* __tsan_memmove(void* to, const void* from, size_t n) {
  observe_range(from, n, false, __builtin_return_address(0));
  observe_range(to, n, true, __builtin_return_address(0));
  return memmove(to, from, n);
}
void* __tsan_memset(void* to, int value, size_t n) {
  observe_range(to, n, true, __builtin_return_address(0));
  return memset(to, value, n);
}
// Host code beside a kernel may have C++'s atomics.
#define FA_ATOMIC_FETCH(bits, name)                                              \
  uint##bits##_t __tsan_atomic##bits##_fetch_##name(volatile uint##bits##_t* p,  \
                                                    uint##bits##_t value, int) { \
    return __atomic_fetch_##name(p, value, __ATOMIC_SEQ_CST);                    \
  }
#define FA_ATOMICS(bits)                                                                           \
  FA_ATOMIC_FETCH(bits, add)                                                                       \
  FA_ATOMIC_FETCH(bits, sub)                                                                       \
  FA_ATOMIC_FETCH(bits, and)                                                                       \
  FA_ATOMIC_FETCH(bits, or)                                                                        \
  FA_ATOMIC_FETCH(bits, xor)                                                                       \
  uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t* p, int) {               \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile uint##bits##_t* p, uint##bits##_t value, int) {        \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                                  \
  }                                                                                                \
  uint##bits##_t __tsan_atomic##bits##_exchange(volatile uint##bits##_t* p, uint##bits##_t value,  \
                                                int) {                                             \
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                        \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_strong(                                               \
      volatile uint##bits##_t* p, uint##bits##_t* old, uint##bits##_t value, int, int) {           \
    return __atomic_compare_exchange_n(p, old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);  \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile uint##bits##_t* p, uint##bits##_t* old, \
                                                  uint##bits##_t value, int, int) {                \
    return __tsan_atomic##bits##_compare_exchange_strong(p, old, value, 0, 0);                     \
  }
FA_ATOMICS(8)
FA_ATOMICS(16)
FA_ATOMICS(32)
FA_ATOMICS(64)
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }
void __tsan_func_entry(void* return_address) {
  Lane* const lane = current_lane;
  if (lane && emu::options().calls) {
    lane->calls = emu::enter_call(lane->calls, uintptr_t(return_address));
  }
}
void __tsan_func_exit() {
  if (Lane* const lane = current_lane) lane->calls = emu::leave_call(lane->calls);
}
void __tsan_init() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
