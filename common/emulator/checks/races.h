// The checked build's detector: accesses to memory that nothing orders, and reads of what nobody
// wrote.
//
// Two accesses to the same bytes, at least one of them a write, must be ordered: by one thread's
// program order, or by a barrier that both sides meet. Every lane has a vector clock: for each
// thread of the CTA, up to which of its clock ticks everything has happened before what this lane
// does now. A lane's own clock ticks whenever it makes its past known to others (__syncwarp, a
// barrier). Every piece of memory has a shadow: who wrote it last and who has read it since, each
// with the clock of that moment. An access checks that what the shadow holds has happened before
// it. So a race is found in whatever order the emulator happens to run the lanes (as in FastTrack,
// Flanagan and Freund 2009).
//
// __syncthreads() and named barriers order, and __syncwarp() does among the lanes of its mask.
// These do not order, although they make lanes wait: shuffles, votes, ldmatrix, mma (CUDA C++
// Programming Guide, "Warp Shuffle Functions", "Warp Vote Functions": no memory ordering). A
// cp.async writes at any time until its thread has waited for it; then it is that thread's write.
// ldmatrix and stmatrix are accesses of the whole warp.
//
// Bulk copies and wgmma run beside the threads and have clocks of their own: each mbarrier one,
// which counts its phases, for the copies that report to it; each thread that stores two, which
// count its groups (one for what they have read, one for what they have written); each warp one
// that counts its wgmma, which a wait of any warp of the warpgroup passes on. An access of theirs
// comes after what the thread that started it has seen; a thread has seen it once it has waited for
// that phase or group. They reach memory by the async proxy: what threads wrote must also lie
// before a fence_proxy_async, of a thread that had seen the write and that the starting thread has
// heard of since.
//
// An atomic (or a volatile access of global memory) passes on what its thread had seen at its last
// fence, or had heard to lie before a fence of another. Who next meets the same address by an
// atomic has seen that, too. Between CTAs it is the same, less exactly: LaunchAccesses knows which
// clusters have been heard of at an address. Each such lesson of a cluster has a number, which is
// the clock of one more engine, and an access remembers the latest that its thread knew.
#pragma once

#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/emulator/core/lane.h"          // IWYU pragma: export
#include "common/emulator/core/memory.h"        // IWYU pragma: export
#include "common/emulator/core/unit.h"          // IWYU pragma: export
#include "common/emulator/core/vector_types.h"  // IWYU pragma: export
#include "common/emulator/core/watch.h"         // IWYU pragma: export

namespace emu {

// The calls that have led a thread to a place, by the number of the innermost one; 0: none, or they
// are not known. Functions of a program of the reader's own tell when they begin and end
// (Options::calls).
uint32_t enter_call(uint32_t calls, uintptr_t return_address);
uint32_t leave_call(uint32_t calls);
// ", called at line 12, called at line 30"; and the last of these places, "" if there is none.
struct Callers {
  std::string text, last;
};
Callers callers_of(Site site, const std::string& place);
Site without_calls(Site site);

// An atomic has its tag in the top byte, and so have volatile accesses of global memory.
inline constexpr int kTagShift = 56;
enum Tag : uint64_t {
  kLoadTag = 1,
  kStoreTag,
  kOtherStoreTag,  // one that must be ordered whatever it stores
  kAtomicTag,
  kAtomicLoadTag,
  kVolatileLoadTag,
  kVolatileStoreTag
};
// A plain access by its program counter. Other sites are an interned name and place
// (Detector::site).
// `part`: of a larger copy or fill, all of which is watched before any of it is done.
// The lower 32 bits lead back to the program counter (address_in_image), so the number of the calls
// may change the others.
inline Site plain_site(uintptr_t program_counter, bool write, bool part = false,
                       uint32_t calls = 0) {
  const Tag tag = !write ? kLoadTag : part ? kOtherStoreTag : kStoreTag;
  return (program_counter ^ uint64_t(calls) << 32) | uint64_t(tag) << kTagShift;
}
inline Tag tag_of(Site site) { return Tag(site >> kTagShift); }
inline Site other_store(Site store) {
  return (store & ((Site(1) << kTagShift) - 1)) | Site(kOtherStoreTag) << kTagShift;
}
inline bool is_atomic(Site site) { return tag_of(site) >= kAtomicTag; }
inline bool is_named(Site site) {  // otherwise the rest is a program counter
  return tag_of(site) == 0 || tag_of(site) == kAtomicTag || tag_of(site) == kAtomicLoadTag;
}
inline bool modifies(Site site) {  // of accesses that are remembered as reads are
  return tag_of(site) == kAtomicTag || tag_of(site) == kVolatileStoreTag;
}

// Some lanes of a warp that accessed a piece of memory when their clocks stood at `clock`.
struct Access {
  Site site = 0;
  uint32_t clock = 0;
  uint32_t lanes = 0;  // none: there was no access
  // A piece's write leads to the first of its reads and atomics, and each of these to the next one;
  // 0: none.
  uint32_t next = 0;
  uint16_t warp = 0;
  uint16_t lesson = 0;  // the latest that its thread knew of other clusters; 0: none
  bool same_moment(const Access& other) const {
    return warp == other.warp && lanes == other.lanes && clock == other.clock;
  }
};

// The shadow of 1024 bytes. Its pieces are as small as the smallest access so far: nothing is
// rounded.
struct ShadowPage {
  uintptr_t number = 0;  // address / 1024
  int log2 = 4;          // of the bytes of a piece
  std::vector<Access> pieces;
  // For each piece whose write has overwritten one by the same instruction: kAgain and the warps
  // that had read that one, by their numbers modulo 30; kCopied if both are copies, perhaps by two
  // instructions. Empty: there is none.
  std::vector<uint32_t> former;
  std::vector<uint8_t> stored;  // by plain stores, if Options::equal_stores; empty: nothing yet
  bool shared = false;          // of the shared memory of a CTA of the cluster
  ByteRange plain;              // where the short cut of access() may be taken
};
inline constexpr uint32_t kAgain = 1u << 31, kCopied = 1u << 30;
inline constexpr int kPageLog2 = 10;
inline constexpr uintptr_t kPageMask = (uintptr_t(1) << kPageLog2) - 1;
// For tables of 2^n entries: pages that a grid's width lies between come into different ones.
inline uintptr_t spread(uintptr_t page_number) { return page_number * 0x9e3779b97f4a7c15u >> 40; }

// The clock of a copy under way: no thread is past it.
inline constexpr uint32_t kInFlight = 0xffffffffu;

// Somebody's access, for a report. (Between CTAs there is one for each piece of memory.)
struct Culprit {
  Site site = 0;
  // All 64 bits: to set some alone, compilers first read the memory, which then faults twice.
  uint64_t cta : 50 = 0;       // linear
  int64_t thread : 12 = -1;    // none: there was no access
  bool warp : 1 = false;       // all lanes of the thread's warp together
  bool passed_on : 1 = false;  // it comes before a fence, and that before an atomic
};
static_assert(sizeof(Culprit) == 16);

// What a launch that goes on is told of at its end.
struct Report {
  Site one, other;  // 0: of a read of what nothing has written
  std::string text;
  bool is_of(Site a, Site b) const { return (one == a && other == b) || (one == b && other == a); }
};

// What has written the buffer of a byte that nothing has: something before this launch, this launch
// alone, or nothing at all.
enum class Written : uint8_t { kBefore, kNow, kNever };

// Two stores of the same value that nothing orders.
struct EqualStores {
  uintptr_t address = 0;
  Culprit one, other;  // no thread: there were none
};

// A mutex for what takes nanoseconds. None shares a cache line with another one.
class alignas(64) SpinLock {
 public:
  void lock() {
    while (locked_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> locked_ = false;
};

// Some of a launch's clusters, as sorted ranges [first, second).
class ClusterSet {
 public:
  bool contains(uint64_t cluster) const;
  bool empty() const { return ranges_.empty(); }
  void add(const ClusterSet& others);
  void add(uint64_t cluster);

 private:
  std::vector<std::pair<uint64_t, uint64_t>> ranges_;
};

class LaunchAccesses;

// The detector of the cluster of CTAs that an OS thread runs.
class Races final : public Detector {
 public:
  Races(Cluster& cluster, LaunchAccesses& launch);
  void begin();  // another cluster

  Site site(const char* operation, SourceLocation where) override;
  Site atomic_site(const char* operation, bool writes, SourceLocation where) override;

  void release(const Lane& lane, Clocks& into) override;
  void acquire(const Lane& lane, const Clocks& from) override;
  void synchronise_warp(const Warp& warp, uint32_t lanes) override;
  uint32_t clock(const Lane& lane) const override { return clocks(slot_of(lane))[slot_of(lane)]; }
  using Detector::has_seen;
  bool has_seen(const Lane& lane, int other_slot, uint32_t clock) const override {
    return clocks(slot_of(lane))[other_slot] >= clock;
  }
  bool has_seen(const Lane& lane, const Clocks& them, int but_engine) const override;

  int new_engine(Engine kind) override;
  void access(int engine, uint32_t clock, const Lane& starter, uintptr_t address, size_t bytes,
              bool write, Site site) override;
  void learn(Clocks& to, int engine, uint32_t clock) override;
  void learn(const Lane& lane, int engine, uint32_t clock) override;
  uint32_t seen(const Lane& lane, int engine) const override {
    return clocks(slot_of(lane))[threads_ + size_t(engine)];
  }
  void note_fence(const Lane& lane, Fence kind) override;
  bool knows_end(const Lane& lane, int engine, uint32_t phase) const override;
  std::vector<uint32_t> known_ends(const Lane& starter) const override;

  // The short cut of access() for most plain accesses, such as another one of the same thread since
  // it last met others. Returns the page, which says what memory it is of. Null: this access is not
  // recorded yet, and access() must do it.
  [[gnu::always_inline]] const ShadowPage* quick_load(const Lane& lane, uintptr_t address,
                                                      size_t bytes, Site site);
  [[gnu::always_inline]] const ShadowPage* quick_store(const Lane& lane, uintptr_t address,
                                                       size_t bytes, Site site);

  // Each ends the launch if it finds a race between warps.
  void access(const Lane& lane, uintptr_t address, size_t bytes, bool write, Site site) override;
  void access(const Warp& warp, uintptr_t address, size_t bytes, bool write, Site site) override;
  void atomic(const Lane& lane, uintptr_t address, size_t bytes, bool reads, bool writes,
              Site site) override;
  void compare(const Lane& lane, uintptr_t address, size_t bytes) override;
  void volatile_access(const Lane& lane, uintptr_t address, size_t bytes, bool write,
                       uintptr_t program_counter) override;
  void begin_copy(const Lane& lane, uintptr_t to, size_t bytes, Site site) override;
  void end_copy(const Lane& lane, uintptr_t to, size_t bytes) override;

  void settle() override;
  Site writer(uintptr_t address) override {
    const ShadowPage& page = page_of(address, 16);
    return page.pieces[(address & kPageMask) >> page.log2].site;
  }
  void end_of_cta(const Cta& cta) override;
  const std::string& race_within_warp() const override { return within_warp_; }
  std::string unwritten_read() const override;

 private:
  friend class LaunchAccesses;

  // What is missing between two threads, and why.
  struct ThreadCure {
    const char *why, *barrier;
  };
  // A load and a store by which some thread changed a value, as in x[i]++.
  struct Update {
    Site store = 0, load = 0;
  };
  // The one that accesses. `seen` tells for each thread what has happened before.
  struct Actor {
    const uint32_t* seen;
    uint32_t clock, lanes;
    uint16_t warp;
    const uint32_t* fenced = nullptr;  // of an engine
  };
  struct Unwritten {
    uintptr_t address = 0;
    Culprit reader;
  };
  // That which all lanes of a warp have seen.
  struct WarpView {
    std::vector<uint32_t> seen;
    uint32_t lanes = 0, clock = 0;
    bool valid = false;
  };

  uint32_t* clocks(int slot) { return &clocks_[size_t(slot) * stride_]; }
  const uint32_t* clocks(int slot) const { return &clocks_[size_t(slot) * stride_]; }
  uint32_t* fenced(Fence kind, int slot);
  uint16_t lesson(const uint32_t* seen) const {
    return lessons_.empty() ? uint16_t(0) : uint16_t(seen[threads_ + size_t(lesson_engine_)]);
  }
  void pass_on(const Lane& lane, uintptr_t address, bool reads, bool writes, Site site);
  void tick(const Lane& lane);
  void resize(size_t stride);
  bool is_copy(int warp, uint32_t lanes, uint32_t clock) const {
    const Engine* const engine = engine_of(warp, lanes);
    return engine ? *engine == Engine::kLoad : clock == kInFlight;
  }
  bool is_engine(const Access& access) const { return access.warp * size_t(kWarpSize) >= threads_; }
  const Engine* engine_of(int warp, uint32_t lanes) const;
  bool has_fenced(const Access& access) const;  // of threads: each has executed a fence after it
  const WarpView& view(const Warp& warp);
  bool is_shared(uintptr_t address) const;
  ShadowPage& page_of(uintptr_t address, size_t bytes);
  ShadowPage& find_page(uintptr_t address, size_t bytes);
  void refine(ShadowPage& page, int log2);
  void access(const Actor& actor, uintptr_t address, size_t bytes, bool write, Site site);
  void read(const Actor& actor, ShadowPage& page, uintptr_t address, Site site);
  void write(const Actor& actor, ShadowPage& page, uintptr_t address, Site site);
  static bool before(const Access& access, const uint32_t* seen) {
    const uint32_t* const of_warp = seen + access.warp * kWarpSize;
    for (uint32_t rest = access.lanes; rest; rest &= rest - 1) {
      if (of_warp[std::countr_zero(rest)] < access.clock) return false;
    }
    return true;
  }
  [[gnu::always_inline]] ShadowPage* quick_page(uintptr_t address, size_t bytes);
  Access access_of(const Lane& lane, Site site) const {
    const uint32_t* const seen = clocks(slot_of(lane));
    return {site, seen[slot_of(lane)], 1u << lane.lane, 0, uint16_t(lane.warp->slot), lesson(seen)};
  }
  // Other clusters of the launch store to such a page, too.
  bool between_clusters(const ShadowPage& page) const { return !page.shared && !is_alone_; }
  void begin_store(ShadowPage& page, uintptr_t address, size_t bytes);
  uint32_t new_read(const Access& read) {
    if (!free_read_) {
      reads_.push_back(read);
      return uint32_t(reads_.size() - 1);
    }
    const uint32_t index = free_read_;
    free_read_ = reads_[index].next;
    reads_[index] = read;
    return index;
  }
  void release_reads(uint32_t first);
  const Lane* lane_of(int warp, uint32_t lanes) const;  // the first; of an engine: its starter
  Culprit culprit(int warp, uint32_t lanes, Site site) const;
  void report(const Access& earlier, bool earlier_writes, const Actor& now, bool writes, Site site,
              uintptr_t address, bool was_written, uint32_t former = 0);
  // For an mbarrier that has not been given up.
  void report_overwritten(const Access& made, const Actor& now, Site site, uintptr_t address);
  std::string cure_of_work(const Access& earlier, const Actor& now, uintptr_t address) const;
  std::string cure(const Access& earlier, bool earlier_writes, const Actor& now, bool writes,
                   bool same_thread, bool swapped) const;
  std::string cure_of_early_copy(const Access& earlier, const Actor& now, bool too_early) const;
  Order order(const Lane& first, const Lane& second) const;
  ThreadCure thread_cure(const Access& earlier, const Actor& now) const;
  Update& update_of(Site store) { return updates_[store % std::size(updates_)]; }
  bool is_update(Site store, Site load) {
    return update_of(store).store == store && update_of(store).load == load;
  }
  Site store_site(const Actor& actor, const ShadowPage& page, const Access& piece, Site site) const;
  std::string phase_of_copy(const Access& copy, const Actor& other) const;
  std::string or_else(const Access& earlier, const Actor& now) const;

  Cluster& cluster_;
  const bool allows_equal_stores_;           // Options::equal_stores
  const bool is_alone_;                      // the launch has no other cluster
  size_t threads_;                           // slots of threads: 32 a warp
  size_t stride_;                            // of threads and engines
  std::vector<uint32_t> clocks_;             // [threads_][stride_]
  std::vector<uint32_t> fenced_[3];          // likewise, by kind; empty until a thread fences
  std::vector<std::vector<uint32_t>> ends_;  // [threads_][engines], of clusters
  bool ticked_ = true;                       // since begin()
  std::vector<WarpView> views_;              // [warps]
  struct EngineState {
    Engine kind;
    const Lane* starter;  // of its latest access
  };
  std::vector<EngineState> engines_;

  std::unordered_map<uintptr_t, std::unique_ptr<ShadowPage>> pages_;
  std::vector<std::unique_ptr<ShadowPage>> free_pages_;
  struct CachedPage {
    uintptr_t number = UINTPTR_MAX;  // none has it
    ShadowPage* page = nullptr;
  };
  CachedPage cache_[1024];
  std::vector<Access> reads_;  // lists; index 0 is none
  uint32_t free_read_ = 0;
  Update updates_[64];  // by a hash of the store: the latest

  // The store under way, and the unordered stores that it is no race with if it stores the same.
  struct {
    ShadowPage* page = nullptr;  // null: none
    uintptr_t address = 0;
    size_t bytes = 0;
  } under_way_;
  struct Unsettled {
    Access earlier;
    std::vector<uint8_t> stored;  // by it
    const Lane* lane;             // which stores now
    Site site;
    uintptr_t address;
  };
  std::vector<Unsettled> unsettled_;
  std::unique_lock<SpinLock> store_lock_;
  // Loads of a thread beside atomics, which are races unless it compares there next.
  struct Guess {
    Access atomic;
    const Lane* lane;
    Site site;
    uintptr_t address;
  };
  std::vector<Guess> guesses_;
  void settle_all();
  void settle(ShadowPage& page);
  void end_guesses();
  EqualStores equal_stores_;  // the first

  Unwritten unwritten_shared_, unwritten_global_;  // the first of each
  std::string within_warp_;
  std::vector<Report> reports_;  // if Options::keep_going, each pair of sites once

  // What atomics pass on, by address; between clusters: which lesson it teaches (0: none yet
  // asked for, or none), and up to which lesson this cluster has passed on its own there.
  struct Handover {
    Clocks clocks;
    bool asked = false, passed_on = false;
    uint32_t lesson = 0, passed_on_lesson = 0;
  };
  LaunchAccesses& launch_;
  std::unordered_map<uintptr_t, Handover> handovers_;
  struct Lesson {
    ClusterSet known;  // the clusters known by then
    Site atomic;       // that has taught it
  };
  std::vector<Lesson> lessons_;
  int lesson_engine_ = -1;
  bool has_passed_on_ = false;       // something to other clusters
  std::vector<uint32_t> passed_on_;  // [stride_]: what this cluster has passed on to others
};

// ---- the usual accesses -------------------------------------------------------------------------
// These do the simple cases of access().
inline ShadowPage* Races::quick_page(uintptr_t address, size_t bytes) {
  if (under_way_.page) settle();
  const uintptr_t number = address >> kPageLog2;
  const CachedPage& cached = cache_[spread(number) % std::size(cache_)];
  if (cached.number != number || !guesses_.empty()) return nullptr;
  ShadowPage& page = *cached.page;
  const bool is_piece = bytes == size_t(1) << page.log2 && address % bytes == 0;
  const bool is_plain = address >= page.plain.begin && address + bytes <= page.plain.end;
  return is_piece && is_plain ? &page : nullptr;
}

inline const ShadowPage* Races::quick_load(const Lane& lane, uintptr_t address, size_t bytes,
                                           Site site) {
  ShadowPage* const page = quick_page(address, bytes);
  if (!page) return nullptr;
  Access& piece = page->pieces[(address & kPageMask) >> page->log2];
  if (!before(piece, clocks(slot_of(lane)))) return nullptr;
  const Access mine = access_of(lane, site);
  if (piece.next) {
    Access& latest = reads_[piece.next];
    if (latest.warp != mine.warp || latest.clock != mine.clock || latest.lesson != mine.lesson ||
        is_atomic(latest.site) || (latest.site != site && !(latest.lanes & mine.lanes))) {
      return nullptr;
    }
    latest.lanes |= mine.lanes;
    return page;
  }
  // A byte that is no longer poison has been written, by the host or by a CTA.
  if (piece.lanes == 0 &&
      (page->shared || like_poison(*reinterpret_cast<const uint8_t*>(address)))) {
    return nullptr;
  }
  piece.next = new_read(mine);
  return page;
}

inline const ShadowPage* Races::quick_store(const Lane& lane, uintptr_t address, size_t bytes,
                                            Site site) {
  ShadowPage* const page = quick_page(address, bytes);
  if (!page || !page->former.empty()) return nullptr;
  Access& piece = page->pieces[(address & kPageMask) >> page->log2];
  Access mine = access_of(lane, site);
  if (piece.lanes != 0 && !piece.same_moment(mine)) return nullptr;
  if (piece.next) {
    Access& load = reads_[piece.next];
    if (load.next || !load.same_moment(mine) || is_atomic(load.site)) return nullptr;
    if (allows_equal_stores_) mine.site = other_store(site);
    update_of(site) = {site, load.site};
    update_of(mine.site) = {mine.site, load.site};
    load.next = free_read_;
    free_read_ = piece.next;
  } else if (allows_equal_stores_ && tag_of(piece.site) == kOtherStoreTag &&
             between_clusters(*page)) {
    mine.site = other_store(site);
  }
  piece = mine;
  // Only stores with kStoreTag are compared by value.
  if (allows_equal_stores_ && tag_of(mine.site) == kStoreTag) begin_store(*page, address, bytes);
  return page;
}

// Remembers what the CTAs of a launch did to global memory. CTAs of different clusters are ordered
// by what atomics pass on, and by nothing else.
class LaunchAccesses {
 public:
  LaunchAccesses(const char* kernel, dim3 grid, int cluster);
  ~LaunchAccesses();

  // Adds a cluster's accesses; null: it failed. Clusters are added in their order, so that what is
  // found does not depend on the number of OS threads: waits until those before have been added.
  // Throws LaunchError.
  void add(uint64_t cluster, const Races* races);

  // The launch ends: what was written is remembered. Throws LaunchError if something was read
  // before.
  void finish();

  // The clusters that have been heard of at an address, and another one that may be from now on,
  // with those that it knows. Atomics come in the order of the clusters, so what a cluster finds
  // does not depend on the number of OS threads.
  ClusterSet heard_of_at(uintptr_t address);
  void pass_on_at(uintptr_t address, uint64_t cluster, const ClusterSet* known);

  // Held from before a plain store to global memory until its cluster has seen what it stored, so
  // that no other store that takes the lock comes in between. The short cut leaves the lock out for
  // a store behind a load of the same thread, because a loop of these would take 20 % longer. If
  // another cluster stores there too, that is a race; but the report may name another pair of them.
  // So many locks that OS threads with stores to different pages hardly ever want the same one: to
  // fetch it from another core's cache takes longer than the rest of an access.
  static std::unique_lock<SpinLock> lock_stores_to(uintptr_t page_number) {
    static SpinLock locks[1 << 14];
    return std::unique_lock(locks[spread(page_number) % std::size(locks)]);
  }

 private:
  enum Who { kWriter, kReader, kAtomic };
  using Culprits = std::pmr::vector<Culprit>;
  struct Page {
    explicit Page(std::pmr::memory_resource* memory)
        : by{Culprits(memory), Culprits(memory), Culprits(memory)}, stored(memory) {}
    int log2 = 4;
    Culprits by[3];                    // who, of each piece; empty: nobody
    std::pmr::vector<uint8_t> stored;  // by the writers; empty: by none in plain stores
  };
  void merge(uint64_t cluster, const Races& races, const ShadowPage& page);
  // `atomic`: by which the other one's cluster had heard of the first one's; 0: by none.
  void report(const Culprit& one, bool one_writes, const Culprit& other, bool other_writes,
              uintptr_t address, Site atomic);
  std::string name(const Culprit& culprit) const;
  void note(const EqualStores& stores) const;
  void report_unwritten(const Races::Unwritten& read);
  Written written(const Races::Unwritten& read) const;  // of the buffer
  void end_with(const Report& report);                  // or goes on

  const char* kernel_;
  dim3 grid_;
  uint64_t ctas_;  // of a cluster
  std::mutex mutex_;
  std::condition_variable turn_;
  uint64_t next_ = 0;                                            // the cluster whose turn it is
  std::pmr::monotonic_buffer_resource memory_{size_t(1) << 20};  // of the pages, until the end
  std::pmr::unordered_map<uintptr_t, Page> pages_{&memory_};
  Races::Unwritten unwritten_;
  EqualStores equal_stores_;  // the first
  bool atomics_ = false;      // the clusters so far have executed some that others can meet
  std::vector<Report> reports_;
  std::mutex heard_mutex_;
  std::unordered_map<uintptr_t, ClusterSet> heard_of_;
};

}  // namespace emu
