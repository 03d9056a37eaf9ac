#include "common/emulator/core/memory.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/emulator/core/image.h"
#include "common/emulator/core/launch.h"

namespace emu {
namespace {

constexpr size_t kPage = 4096;
// Untouchable bytes on either side, which cost addresses alone: many rows or strides past the end
// there is still none of another buffer's.
constexpr size_t kGuard = 16 << 20;
constexpr size_t kNull = 64 * 1024;  // what is below is reached from a null pointer

struct Region {
  uintptr_t low, high;   // with the guards
  uintptr_t begin, end;  // the block itself
  const std::string* name;
  bool of_host = false;
  bool poisoned = true;            // nothing but poison, or what kernels have written:
  std::vector<bool> written = {};  // by kernels, each byte; empty: none
  bool read_only = false;
  const std::string* freed = nullptr;  // by whom; null: it can be used
};

// Read by every thread of a launch, changed only between launches.
constinit std::vector<Region> regions;
bool some_are_read_only = false;

constexpr size_t kSharedGap = 128;  // bytes: all banks once
std::vector<SharedVariable>& known_shared_variables() {
  static std::vector<SharedVariable> variables;
  return variables;
}

// The variable that begins last at or before `offset`, and how far behind its begin that is.
const SharedVariable* variable_before(size_t offset) {
  const SharedVariable* found = nullptr;
  for (const SharedVariable& each : known_shared_variables()) {
    if (each.offset <= offset && (!found || each.offset > found->offset)) found = &each;
  }
  return found;
}

bool holds_variables(const Region& region) {
  return static_shared_bytes() > 0 && region.name->starts_with("shared memory");
}

Region* find_region(uintptr_t address) {
  for (Region& region : regions) {
    if (address >= region.low && address < region.high) return &region;
  }
  return nullptr;
}

bool is_poison(const Region& region, uintptr_t address) {
  if (!region.of_host) return *reinterpret_cast<const uint8_t*>(address) == kPoison;
  const uintptr_t word = address - (address - region.begin) % sizeof kHostPoison;
  return memcmp(reinterpret_cast<const void*>(word), kHostPoison,
                std::min(sizeof kHostPoison, region.end - word)) == 0;
}

}  // namespace

GuardedMemory::GuardedMemory(std::string name, size_t bytes, size_t alignment, bool of_host)
    : name_(std::move(name)), bytes_(bytes), of_host_(of_host) {
  const size_t pages = (bytes + alignment + kPage - 1) / kPage * kPage;
  mapping_bytes_ = pages + 2 * kGuard;
  mapping_ = static_cast<uint8_t*>(mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (mapping_ == MAP_FAILED) {
    throw LaunchError("the emulator could not get " + std::to_string(bytes) +
                      " bytes of memory for " + name_);
  }
  mprotect(mapping_, kGuard, PROT_NONE);
  mprotect(mapping_ + kGuard + pages, kGuard, PROT_NONE);
  // As close to the upper guard as the alignment allows.
  data_ = mapping_ + kGuard + (pages - bytes) / alignment * alignment;
  poison();
  regions.push_back({uintptr_t(mapping_), uintptr_t(mapping_) + mapping_bytes_, uintptr_t(data_),
                     uintptr_t(data_) + bytes_, &name_, of_host});
}

GuardedMemory::~GuardedMemory() {
  std::erase_if(regions, [&](const Region& region) { return region.name == &name_; });
  munmap(mapping_, mapping_bytes_);
}

void GuardedMemory::poison() {
  memset(mapping_ + kGuard, kPoison, mapping_bytes_ - 2 * kGuard);
  if (of_host_) {
    for (size_t i = 0; i < bytes_; i++) data_[i] = kHostPoison[i % sizeof kHostPoison];
  }
  if (Region* const region = find_region(uintptr_t(data_))) {
    region->poisoned = true;
    region->written.clear();
  }
}

ptrdiff_t GuardedMemory::overwritten() const {
  const uint8_t* const low = mapping_ + kGuard;
  const uint8_t* const end = data_ + bytes_;
  const uint8_t* const high = mapping_ + mapping_bytes_ - kGuard;
  const auto changed = [](uint8_t byte) { return byte != kPoison; };
  if (const auto at = std::find_if(end, high, changed); at != high) return at - data_;
  for (const uint8_t* at = data_; at-- > low;) {
    if (changed(*at)) return at - data_;
  }
  return 0;
}

void GuardedMemory::retire(std::string who) {
  freed_ = std::move(who);
  mprotect(mapping_, mapping_bytes_, PROT_NONE);
  madvise(mapping_, mapping_bytes_, MADV_DONTNEED);
  if (Region* const region = find_region(uintptr_t(data_))) region->freed = &freed_;
}

// ---- memory of the host -------------------------------------------------------------------------
namespace {
std::shared_mutex host_mutex;
std::map<uintptr_t, uintptr_t>& host_memory() {  // from the begin to the end of each block
  static auto* const blocks = new std::map<uintptr_t, uintptr_t>;
  return *blocks;
}
std::atomic<uint64_t> host_changes = 0;  // of host_memory()
// What a kernel read last of what is nobody's, with all around it up to the next blocks.
struct BetweenBlocks {
  uintptr_t begin = 0, end = 0;
  uint64_t change = 0;
};
constinit thread_local BetweenBlocks between_blocks;
uintptr_t host_stack_low = 0, host_stack_high = 0;

std::string describe_host(uintptr_t address) {
  const char* const cure = "cudaMalloc() memory for it and cudaMemcpy() it there";
  if (address >= host_stack_low && address < host_stack_high) {
    return std::string("in a variable of the host: ") + cure;
  }
  const std::shared_lock lock(host_mutex);
  const auto next = host_memory().upper_bound(address);
  const uintptr_t end = next == host_memory().begin() ? 0 : std::prev(next)->second;
  if (address >= end) {
    between_blocks = {end, next == host_memory().end() ? UINTPTR_MAX : next->first, host_changes};
    return "";
  }
  return std::string("in memory of the host: ") + cure;
}
}  // namespace

bool is_between_blocks(uintptr_t address) {
  const BetweenBlocks& last = between_blocks;
  if (address < last.begin || address >= last.end || last.change != host_changes) return false;
  return (address < host_stack_low || address >= host_stack_high) && !find_region(address);
}

void note_host_memory(uintptr_t begin, size_t bytes) {
  const std::lock_guard lock(host_mutex);
  host_memory()[begin] = begin + bytes;
  host_changes++;
}

void forget_host_memory(uintptr_t begin) {
  {
    const std::shared_lock lock(host_mutex);
    if (!host_memory().contains(begin)) return;
  }
  const std::lock_guard lock(host_mutex);
  host_memory().erase(begin);
  host_changes++;
}

void set_host_stack(uintptr_t low) {
  host_stack_low = low;
  host_stack_high = 0;
  pthread_attr_t attributes;
  if (low == 0 || pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  void* begin = nullptr;
  size_t bytes = 0;
  if (pthread_attr_getstack(&attributes, &begin, &bytes) == 0) {
    host_stack_high = uintptr_t(begin) + bytes;
  }
  pthread_attr_destroy(&attributes);
}

void watch_variable(std::string name, void* begin, size_t bytes, size_t red_zone, bool read_only) {
  const uintptr_t first = uintptr_t(begin), end = first + bytes;
  regions.push_back({.low = first,
                     .high = end + red_zone,
                     .begin = first,
                     .end = end,
                     .name = new std::string(std::move(name)),
                     .poisoned = false,
                     .read_only = read_only});
  some_are_read_only |= read_only;
}

void watch_host_memory(std::string name, void* begin, size_t bytes) {
  watch_variable(std::move(name), begin, bytes, 0, false);
}

bool unwatch_host_memory(void* begin) {
  return std::erase_if(regions, [&](const Region& each) {
           return each.begin == uintptr_t(begin) && each.name->starts_with("the cudaHostRegister");
         }) > 0;
}

bool is_read_only(uintptr_t address) {
  const Region* const region = some_are_read_only ? find_region(address) : nullptr;
  return region && region->read_only;
}

size_t add_shared_variable(const char* name, size_t bytes, size_t alignment) {
  const size_t step = std::max(alignment, kSharedGap);
  const size_t offset = (static_shared_bytes() + step - 1) / step * step;
  known_shared_variables().push_back({name, offset, bytes});
  return offset;
}

const std::vector<SharedVariable>& shared_variables() { return known_shared_variables(); }

size_t static_shared_bytes() {
  if (known_shared_variables().empty()) return 0;
  const SharedVariable& last = known_shared_variables().back();
  return (last.offset + last.bytes + kSharedGap + 1023) / 1024 * 1024;
}

std::string describe_outside(uintptr_t address, size_t bytes) {
  const Region* region = find_region(address);
  if (!region && current_lane) return describe_host(address);
  if (region && region->freed) {
    return "in " + *region->name + " (" + std::to_string(region->end - region->begin) +
           " bytes), which " + *region->freed + " has freed";
  }
  if (region && address >= region->begin && holds_variables(*region)) {
    const size_t offset = address - region->begin;
    const SharedVariable* const variable = variable_before(offset);
    if (offset < static_shared_bytes() && variable) {
      const size_t end = variable->offset + variable->bytes;
      if (offset + bytes <= end) return "";
      return std::to_string(offset - std::min(offset, end)) + " bytes past the end of " +
             variable->name + " (" + std::to_string(variable->bytes) + " bytes of shared memory)";
    }
  }
  if (!region || (address >= region->begin && address + bytes <= region->end)) return "";
  char text[256];
  if (address >= region->begin) {
    snprintf(text, sizeof text, "%zu bytes past the end of %s (%zu bytes)",
             size_t(address - std::min(address, region->end)), region->name->c_str(),
             size_t(region->end - region->begin));
  } else {
    snprintf(text, sizeof text, "%zu bytes before the start of %s (%zu bytes)",
             size_t(region->begin - address), region->name->c_str(),
             size_t(region->end - region->begin));
  }
  return text;
}

bool inside_region(uintptr_t address, size_t bytes) {
  for (const Region& region : regions) {
    if (address >= region.begin && address + bytes <= region.end) return !region.freed;
  }
  return false;
}

size_t region_index(uintptr_t address) {
  const Region* const found = find_region(address);
  return found ? size_t(found - regions.data()) : regions.size();
}

ByteRange plain_bytes_around(uintptr_t address) {
  const Region* const region = find_region(address);
  if (!region || region->freed || region->read_only || address < region->begin) return {};
  if (!holds_variables(*region)) return {region->begin, region->end};
  const uintptr_t variables_end = region->begin + static_shared_bytes();
  if (address >= variables_end) return {variables_end, region->end};
  const SharedVariable* const variable = variable_before(address - region->begin);
  if (!variable) return {};
  const uintptr_t begin = region->begin + variable->offset;
  return {begin, begin + variable->bytes};
}

std::string region_name(uintptr_t address) {
  const Region* const region = find_region(address);
  return region ? *region->name : "";
}

std::string describe_place(uintptr_t address) {
  const Region* const region = find_region(address);
  if (!region) return "memory";
  if (holds_variables(*region)) {
    const size_t offset = address - region->begin;
    const SharedVariable* const variable = variable_before(offset);
    if (offset >= static_shared_bytes()) {
      return "byte " + std::to_string(offset - static_shared_bytes()) + " of dynamic shared memory";
    }
    if (variable) {
      return "byte " + std::to_string(offset - variable->offset) + " of " + variable->name +
             " (shared memory)";
    }
  }
  return "byte " + std::to_string(address - region->begin) + " of " + *region->name;
}

// ---- shared addresses ---------------------------------------------------------------------------
namespace {
constexpr uint32_t kFirstAddress = 1024;
}  // namespace

uint32_t shared_address(const void* pointer) {
  const Cta& cta = *current_lane->cta;
  return uint32_t(uintptr_t(pointer) - uintptr_t(cta.shared)) + kFirstAddress;
}

uint8_t* shared_pointer(uint32_t address, size_t bytes, const char* operation,
                        SourceLocation where) {
  const Cta& cta = *current_lane->cta;
  if (address < kFirstAddress || address - kFirstAddress + bytes > cta.shared_bytes) {
    fail("%s at %s: byte %lld of shared memory is outside the SharedStorage of %zu bytes",
         operation, place(where).c_str(), (long long)(address) - (long long)(kFirstAddress),
         cta.shared_bytes);
  }
  if (address % bytes != 0) {
    fail("%s at %s: the shared address is not a multiple of %zu bytes", operation,
         place(where).c_str(), bytes);
  }
  return cta.shared + (address - kFirstAddress);
}

void note_host_writes() {
  for (Region& region : regions) {
    if (region.freed || !region.poisoned || !region.written.empty()) continue;
    const size_t bytes = region.end - region.begin;
    if (bytes == 0) continue;
    const size_t period = std::min(region.of_host ? sizeof kHostPoison : 1, bytes);
    const auto* const begin = reinterpret_cast<const uint8_t*>(region.begin);
    region.poisoned =
        is_poison(region, region.begin) && memcmp(begin, begin + period, bytes - period) == 0;
  }
}

void mark_written(uintptr_t address, size_t bytes) {
  Region* const region = find_region(address);
  if (!region || !region->poisoned) return;
  if (address <= region->begin && address + bytes >= region->end) {
    region->poisoned = false;
    return;
  }
  region->written.resize(region->end - region->begin);
  for (uintptr_t at = address; at < std::min(address + bytes, region->end); at++) {
    if (at >= region->begin) region->written[at - region->begin] = true;
  }
}

bool never_written(uintptr_t address) {
  if (!like_poison(*reinterpret_cast<const uint8_t*>(address))) return false;
  const Region* const region = find_region(address);
  return region && region->poisoned && is_poison(*region, address) &&
         (region->written.empty() || !region->written[address - region->begin]);
}

bool none_written(uintptr_t address) {
  const Region* const region = find_region(address);
  return region && region->poisoned && region->written.empty();
}

UnwrittenPart unwritten_part(uintptr_t address, size_t bytes) {
  UnwrittenPart found;
  const Region* const region = find_region(address);
  if (!region || !region->poisoned) return found;
  for (uintptr_t at = address; at < std::min(address + bytes, region->end); at++) {
    if (!is_poison(*region, at)) continue;
    if (!region->written.empty() && region->written[at - region->begin]) continue;
    if (found.bytes++ == 0) found.first = at;
  }
  return found;
}

// The emulator's own tests are the only files in its folder that have kernels.
static constexpr const char* kOwnTests = "common/emulator/tests/";

std::string relative_path(const std::string& path) {
  // Everything up to the last folder name that we know is cut off; of other files, the folder in
  // which the program runs.
  std::string text = path;
  if (text.find("/tests/") == std::string::npos) {
    if (const size_t at = text.rfind("/examples/"); at != std::string::npos) text.erase(0, at + 1);
  }
  for (const char* folder : {"/kernels/", "/common/", "/tests/"}) {
    if (text.starts_with(kOwnTests)) break;
    if (const size_t at = text.rfind(folder); at != std::string::npos) text.erase(0, at + 1);
  }
  static const std::string here = std::filesystem::current_path().string() + "/";
  if (text.starts_with(here)) text.erase(0, here.size());
  return text;
}

std::string place(SourceLocation where) {
  return relative_path(where.file) + ":" + std::to_string(where.line);
}

namespace {

bool is_of_library(const std::string& place) {  // the compiler's
  return place.starts_with("/usr/include/") || place.find("/include/c++/") != std::string::npos ||
         place.find("/lib/gcc/") != std::string::npos;
}

// Whether it is in this repository's `common`: a program may have a folder of that name, too.
bool is_wrapper(const std::string& place) {
  if (place.starts_with(kOwnTests)) return false;
  for (const char* const folder : {"emulator/", "launch/", "layout/", "ptx/"}) {
    if (place.starts_with(std::string("common/") + folder)) return true;
  }
  return false;
}

// Asks binutils' addr2line, with these options, and calls f for each line of its answer.
template <typename F>
void ask_addr2line(const char* options, const std::vector<uintptr_t>& program_counters, F f) {
  if (program_counters.empty()) return;
  const Image& code = image();
  std::string command = std::string("addr2line ") + options + " -e '";
  if (code.path.starts_with("/proc/")) {
    command += "/proc/" + std::to_string(getpid()) + "/exe";  // the shell has a self of its own
  } else {
    for (const char letter : code.path)
      command += letter == '\'' ? "'\\''" : std::string(1, letter);
  }
  command += "'";
  for (const uintptr_t program_counter : program_counters) {
    char address[32];
    snprintf(address, sizeof address, " 0x%zx", size_t(program_counter - code.moved));
    command += address;
  }
  FILE* const pipe = popen((command + " 2>/dev/null").c_str(), "r");
  char* line = nullptr;
  for (size_t size = 0; pipe && getline(&line, &size, pipe) > 0;) {
    std::string text(line, strcspn(line, "\n"));
    text.erase(std::min(text.find(" (discriminator "), text.size()));
    f(text);
  }
  free(line);
  if (pipe) pclose(pipe);
}

// Looks up those that are not known yet: for each address, from the innermost inlined function
// outwards, a line of output. The wrappers of common are of no interest, the line of the kernel
// that calls them is.
void look_up(const std::vector<uintptr_t>& program_counters,
             std::map<uintptr_t, std::string>& known) {
  std::vector<uintptr_t> unknown;
  for (const uintptr_t program_counter : program_counters) {
    if (known.try_emplace(program_counter, "?").second) unknown.push_back(program_counter);
  }
  std::string* place = nullptr;  // of the address that is being described; null: it has been found
  ask_addr2line("-a -i", unknown, [&](const std::string& text) {
    if (text.starts_with("0x")) {
      place = &known[strtoull(text.c_str(), nullptr, 16) + image().moved];
    } else if (place && !text.starts_with("?")) {
      *place = relative_path(text);
      if (!is_of_library(*place) && !is_wrapper(*place)) place = nullptr;
    }
  });
}

}  // namespace

std::vector<CodePlace> all_places(const std::vector<uintptr_t>& program_counters) {
  std::vector<CodePlace> places;
  std::string function;
  bool is_place = false;  // functions and places come in turn
  ask_addr2line("-f -C -i", program_counters, [&](const std::string& text) {
    if (is_place) {
      const std::string place = relative_path(text);
      if (!place.starts_with("?") && !is_of_library(place) && !is_wrapper(place)) {
        places.push_back({place, function});
      }
    } else {
      function = text;
    }
    is_place = !is_place;
  });
  return places;
}

std::vector<std::string> symbolise(const std::vector<uintptr_t>& program_counters) {
  static std::mutex mutex;
  static auto& known = *new std::map<uintptr_t, std::string>;  // read at exit, too
  const std::lock_guard lock(mutex);
  // What std::map and std::string access here is not the kernel's: see on_fault().
  Lane* const lane = std::exchange(current_lane, nullptr);
  look_up(program_counters, known);
  // g++ gives no line to the call of a hook for a load that goes straight into an argument: the
  // load, which follows, has one.
  std::vector<uintptr_t> behind;
  for (const uintptr_t program_counter : program_counters) {
    if (is_of_library(known[program_counter])) behind.push_back(program_counter + 1);
  }
  look_up(behind, known);
  std::vector<std::string> places;
  for (const uintptr_t program_counter : program_counters) {
    std::string& place = known[program_counter];
    const auto next = known.find(program_counter + 1);
    if (is_of_library(place) && next != known.end()) place = next->second;
    places.push_back(place);
  }
  current_lane = lane;
  return places;
}

std::string symbolise(uintptr_t program_counter) {
  return symbolise(std::vector{program_counter}).front();
}

// ---- accesses that hit a guard ------------------------------------------------------------------
uintptr_t program_counter_of(const void* context) {
  const auto* const machine = static_cast<const ucontext_t*>(context);
#if defined(__x86_64__)
  return uintptr_t(machine->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return uintptr_t(machine->uc_mcontext.pc);
#else
  return 0;
#endif
}

namespace {

struct sigaction previous_action;

// The process ends here, so what is not safe in other signal handlers is tolerable: at worst the
// message is lost.
void on_fault(int signal, siginfo_t* info, void* context) {
  const uintptr_t address = uintptr_t(info->si_addr);
  // From here on no access is the kernel's. Where std::string is not inlined here, the linker may
  // take the kernel's copy of its functions, which the checked build checks.
  const Lane* const lane = std::exchange(current_lane, nullptr);
  std::string what;
  if (lane && address < lane->stack_low && address + kStackGuardBytes >= lane->stack_low) {
    what = "the thread's stack (its local memory) is full";
  } else if (const std::string outside = describe_outside(address, 1); lane && !outside.empty()) {
    what = "accesses memory " + outside;
  } else if (lane) {
    // Where an address is none that a pointer can have, the system does not tell it.
    char text[128];
    snprintf(text, sizeof text, "accesses address %#zx, %s", size_t(address),
             info->si_code == SI_KERNEL ? "or one that no pointer has"
             : address < kNull          ? "a null pointer or an index from one"
                                        : "where nothing is: a pointer or an index is wrong");
    what = text;
  }
  if (!lane && address < kNull && info->si_code != SI_KERNEL) {
    const std::string text =
        "error: " + symbolise(program_counter_of(context)) +
        ": the host uses a null pointer, or threadIdx or the like, which only kernels have\n  (of "
        "a "
        "function for both sides the emulator compiles the branch for __CUDA_ARCH__ alone)\n";
    if (write(STDERR_FILENO, text.c_str(), text.size()) < 0) _exit(4);
  }
  if (!lane || what.empty()) {  // not ours: the default, or whatever was installed before
    sigaction(signal, &previous_action, nullptr);
    return;
  }
  const std::string at = symbolise(program_counter_of(context));
  if (ftrylockfile(stdout) == 0) fflush(stdout);  // what the host has printed before
  char text[1024];
  const int length = snprintf(
      text, sizeof text, "error: %s, CTA (%u,%u,%u), thread %d (warp %d lane %d), %s: %s\n",
      lane->cta->kernel, lane->cta->block_idx.x, lane->cta->block_idx.y, lane->cta->block_idx.z,
      lane->thread, lane->warp->index, lane->lane, at.c_str(), what.c_str());
  if (write(STDERR_FILENO, text, size_t(std::min<int>(length, sizeof text - 1))) < 0) _exit(4);
  _exit(exit_code_of_fault);
}

}  // namespace

void install_fault_handler() {
  // The handler needs a stack of its own: the faulting one may be full.
  thread_local std::vector<uint8_t> stack;
  if (!stack.empty()) return;
  stack.resize(256 * 1024);
  stack_t alternate{};
  alternate.ss_sp = stack.data();
  alternate.ss_size = stack.size();
  sigaltstack(&alternate, nullptr);
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &previous_action);
    sigaction(SIGBUS, &action, nullptr);
  });
}

}  // namespace emu
