#include "common/emulator/core/first_nan.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <signal.h>
#include <ucontext.h>
#include <unwind.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/emulator/core/invalid_operation.h"
#include "common/emulator/core/memory.h"

namespace emu {
namespace {

std::mutex kept_mutex;
// The first ones of all launches since forget_nans(). Never destroyed: what runs at exit reads
// them.
std::optional<NanOrigin>& kept_made = *new std::optional<NanOrigin>;
std::optional<NanOrigin>& kept_taken_in = *new std::optional<NanOrigin>;

constinit thread_local NanWatch* watch = nullptr;

// ---- where --------------------------------------------------------------------------------------
struct Frames {
  uintptr_t first;  // what comes before it is the handler's; 0: nothing does
  std::vector<uintptr_t> found = {};
};

_Unwind_Reason_Code add_frame(_Unwind_Context* context, void* frames) {
  constexpr size_t kMost = 16;
  Frames& all = *static_cast<Frames*>(frames);
  int interrupted = 0;
  const uintptr_t at = _Unwind_GetIPInfo(context, &interrupted);
  if (all.first != 0 && at != all.first) return _URC_NO_REASON;
  all.first = 0;
  all.found.push_back(interrupted ? at : at - 1);
  return all.found.size() < kMost ? _URC_NO_REASON : _URC_END_OF_STACK;
}

std::vector<uintptr_t> calls_from(uintptr_t program_counter) {
  Frames frames{program_counter};
  _Unwind_Backtrace(add_frame, &frames);
  return frames.found;
}

NanOrigin origin_in(const Lane& lane, std::string what) {
  NanOrigin origin;
  origin.cluster = lane.cta->cluster->index;
  origin.kernel = lane.cta->kernel;
  origin.block_idx = lane.cta->block_idx;
  origin.warp = lane.warp->index;
  origin.lane = lane.lane;
  origin.thread = lane.thread;
  origin.what = std::move(what);
  return origin;
}

// While it exists, no access is the kernel's: see on_fault().
class Aside {
 public:
  Aside() : lane_(std::exchange(current_lane, nullptr)) {}
  ~Aside() { current_lane = lane_; }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;
  const Lane& lane() const { return *lane_; }

 private:
  Lane* lane_;
  OwnArithmetic own_;
};

// ---- traps --------------------------------------------------------------------------------------
#ifdef FA_TRAPS_NANS
struct sigaction previous_of_invalid, previous_of_step;

constexpr greg_t kTrapFlag = 0x100;  // of RFLAGS: a signal follows the next instruction
constexpr uint32_t kInvalidHappened = 1;

bool in_this_image(uintptr_t program_counter) {
  static const char here = 0;
  Dl_info mine{}, its{};
  return dladdr(&here, &mine) && dladdr(reinterpret_cast<const void*>(program_counter), &its) &&
         mine.dli_fbase == its.dli_fbase;
}

// The symbol whose address the dynamic linker has put there, or is to; "" if none.
std::string symbol_at(const link_map& image, uintptr_t slot) {
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  struct {
    const ElfW(Rela) * begin = nullptr;
    size_t bytes = 0;
  } tables[2];
  for (const ElfW(Dyn)* each = image.l_ld; each->d_tag != DT_NULL; each++) {
    const uintptr_t at =
        each->d_un.d_ptr < image.l_addr ? image.l_addr + each->d_un.d_ptr : each->d_un.d_ptr;
    if (each->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(at);
    if (each->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(at);
    if (each->d_tag == DT_JMPREL) tables[0].begin = reinterpret_cast<const ElfW(Rela)*>(at);
    if (each->d_tag == DT_RELA) tables[1].begin = reinterpret_cast<const ElfW(Rela)*>(at);
    if (each->d_tag == DT_PLTRELSZ) tables[0].bytes = each->d_un.d_val;
    if (each->d_tag == DT_RELASZ) tables[1].bytes = each->d_un.d_val;
  }
  for (const auto& table : tables) {
    for (size_t i = 0; symbols && names && i < table.bytes / sizeof *table.begin; i++) {
      if (image.l_addr + table.begin[i].r_offset != slot) continue;
      return names + symbols[ELF64_R_SYM(table.begin[i].r_info)].st_name;
    }
  }
  return "";
}

// The function of another image that the call before this address is one of: through the procedure
// linkage table, or through an address directly. "" if it is no such call.
std::string called_before(uintptr_t return_address) {
  Dl_info info;
  void* image = nullptr;
  if (!dladdr1(reinterpret_cast<const void*>(return_address), &info, &image, RTLD_DL_LINKMAP)) {
    return "";
  }
  const auto target_of = [](const uint8_t* after) {
    int32_t distance;
    memcpy(&distance, after - sizeof distance, sizeof distance);
    return after + distance;
  };
  const auto* at = reinterpret_cast<const uint8_t*>(return_address);
  if (at[-5] == 0xe8) {
    at = target_of(at);
    constexpr uint8_t kLanding[] = {0xf3, 0x0f, 0x1e, 0xfa};  // endbr64
    if (memcmp(at, kLanding, sizeof kLanding) == 0) at += sizeof kLanding;
    if (*at == 0xf2) at++;
    at += 6;
    if (at[-6] != 0xff || at[-5] != 0x25) return "";
  } else if (at[-6] != 0xff || at[-5] != 0x15) {
    return "";
  }
  return symbol_at(*static_cast<const link_map*>(image), uintptr_t(target_of(at)));
}

// The C library's function, which the first of these instructions is in, by the call that has led
// there.
std::string describe_library(const std::vector<uintptr_t>& program_counters) {
  std::string name;
  for (const uintptr_t each : program_counters) {
    if (!in_this_image(each)) continue;
    name = called_before(each + 1);
    break;
  }
  return name.empty() ? "by a function of the C library" : "in " + name + "() of the C library";
}

// A lane does not come here from within malloc() or a lock: these compute nothing in SSE.
void on_invalid(int signal, siginfo_t* info, void* context) {
  auto& state = *static_cast<ucontext_t*>(context);
  if (info->si_code != FPE_FLTINV || !watch) {
    sigaction(signal, &previous_of_invalid, nullptr);
    return;
  }
  // The lane goes on without traps unless something below says otherwise.
  uint32_t& mxcsr = state.uc_mcontext.fpregs->mxcsr;
  mxcsr = (mxcsr | kMaskInvalid) & ~kInvalidHappened;
  if (!current_lane || !watch->wants_more()) return;
  const Aside aside;
  const uintptr_t at = program_counter_of(context);
  bool names_all = false;
  std::string what = made_nan_by(context, names_all);
  if (what.empty()) {
    if (watch->to_pass_over-- <= 0) return;
    watch->stepping = true;
    state.uc_mcontext.gregs[REG_EFL] |= kTrapFlag;
    return;
  }
  // How the C library makes a NaN says little: note_nan_of() may say more, right after this.
  const bool unnamed = !names_all && !in_this_image(at);
  watch->made = origin_in(aside.lane(), what);
  watch->made->program_counters = calls_from(at);
  if (unnamed) watch->made->what = describe_library(watch->made->program_counters);
  watch->unnamed = unnamed ? &aside.lane() : nullptr;
}

void on_step(int signal, siginfo_t*, void* context) {
  auto& state = *static_cast<ucontext_t*>(context);
  if (!watch || !std::exchange(watch->stepping, false)) {
    sigaction(signal, &previous_of_step, nullptr);
    return;
  }
  state.uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
  uint32_t& mxcsr = state.uc_mcontext.fpregs->mxcsr;
  mxcsr &= ~(kMaskInvalid | kInvalidHappened);
}

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    action.sa_sigaction = on_invalid;
    sigaction(SIGFPE, &action, &previous_of_invalid);
    action.sa_sigaction = on_step;
    sigaction(SIGTRAP, &action, &previous_of_step);
  });
}
#else
void install() {}
#endif

}  // namespace

NanWatch::NanWatch() {
  install();
  watch = this;
}
NanWatch::~NanWatch() { watch = nullptr; }

// A kernel that compares NaNs all the time shall not be slow: each takes some microseconds. What a
// cluster may do depends on its index alone, so that the same NaN is found by any number of OS
// threads.
void NanWatch::begin_cluster(uint64_t index) {
  to_pass_over = index < 16 ? 1000 : 8;
  unnamed = nullptr;
}

// ---- what the emulator's functions note ---------------------------------------------------------
void note_nan_of(const char* function, double x) {
  if (!watch || !current_lane) return;
  if (!watch->wants_more() && watch->unnamed != current_lane) return;
  const Aside aside;
  char text[64];
  snprintf(text, sizeof text, "%s(%g)", function, x);
  watch->unnamed = nullptr;
  watch->made = origin_in(aside.lane(), text);
  watch->made->program_counters = calls_from(0);
}

void note_nan(const Warp& warp, const ProductNan& nan, SourceLocation where) {
  if (!nan.found || !watch || !watch->wants_more()) return;
  const Aside aside;
  NanOrigin origin = origin_in(warp.lanes[0], nan.what);
  origin.of_warp = true;
  origin.where = where;
  if (!nan.taken_in) {
    origin.what += " in row " + std::to_string(nan.row) + ", column " + std::to_string(nan.column) +
                   " of its product";
    watch->made = std::move(origin);
  } else if (!watch->taken_in) {
    origin.what = nan.what == "A" ? "row " + std::to_string(nan.row) + " of A"
                                  : "column " + std::to_string(nan.column) + " of B";
    watch->taken_in = std::move(origin);
  }
}

// ---- the host's side ----------------------------------------------------------------------------
void keep_first_nan(const std::vector<NanOrigin>& made, const std::vector<NanOrigin>& taken_in) {
  const std::lock_guard lock(kept_mutex);
  if (kept_made) return;
  const auto by_cluster = [](const NanOrigin& a, const NanOrigin& b) {
    return a.cluster < b.cluster;
  };
  const auto first_made = std::min_element(made.begin(), made.end(), by_cluster);
  const auto first_taken = std::min_element(taken_in.begin(), taken_in.end(), by_cluster);
  const bool is_made = first_made != made.end();
  if (is_made) kept_made = *first_made;
  if (kept_taken_in || first_taken == taken_in.end()) return;
  // Within a cluster, none is noted as taken in after one was made.
  if (!is_made || first_taken->cluster <= first_made->cluster) kept_taken_in = *first_taken;
}

void forget_nans() {
  const std::lock_guard lock(kept_mutex);
  kept_made.reset();
  kept_taken_in.reset();
}

namespace {
// "kernels/02_online_softmax.cu:87 by thread 3 (warp 0 lane 3) of CTA (0,0,0)"
std::string where_and_who(const NanOrigin& origin) {
  std::string at = place(origin.where);
  if (origin.where.line == 0) {
    const std::vector<CodePlace> places = all_places(origin.program_counters);
    at = places.empty() ? "?" : places.front().place;
  }
  char thread[64], block[64];
  snprintf(thread, sizeof thread, "thread %d (warp %d lane %d)", origin.thread, origin.warp,
           origin.lane);
  if (origin.of_warp) snprintf(thread, sizeof thread, "warp %d", origin.warp);
  snprintf(block, sizeof block, " of CTA (%u,%u,%u)", origin.block_idx.x, origin.block_idx.y,
           origin.block_idx.z);
  return at + " by " + thread + block;
}
}  // namespace

std::string first_nan() {
  const std::lock_guard lock(kept_mutex);
  std::string text;
  if (kept_made) {
    text = "The first NaN was made at " + where_and_who(*kept_made) + ": " + kept_made->what + ".";
  }
  if (kept_taken_in) {
    text += kept_made ? "\n  Before that the product at " : "No NaN was made: the product at ";
    text += where_and_who(*kept_taken_in) + " found one in " + kept_taken_in->what +
            ". (Memory begins as NaN.)";
  }
  return text;
}

const uint8_t* find_made_nan(const void* memory, size_t bytes) {
  bool of_product;
  {
    const std::lock_guard lock(kept_mutex);
    if (!kept_made) return nullptr;
    of_product = kept_made->of_warp;
  }
  const auto* const begin = static_cast<const uint8_t*>(memory);
  uint32_t before = 1;
  for (size_t at = 0; at + 4 <= bytes; at += 4) {
    uint32_t word;
    memcpy(&word, begin + at, sizeof word);
    const uint32_t magnitude = word & 0x7fffffff;
    // 0x7fffffff is the largest integer, too.
    if (magnitude == 0x7fc00000 || (of_product && word == 0x7fffffff)) return begin + at;
    if (magnitude == 0x7ff80000 && before == 0 && at % 8 == 4) return begin + at - 4;
    before = word;
  }
  return nullptr;
}

}  // namespace emu
