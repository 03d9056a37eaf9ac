// Memory whose edges are watched: global buffers and the CTA's shared memory.
//
// A region ends right before pages that nobody may touch, so that an access past its end stops the
// program there and then. The space between is filled with a pattern and checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/emulator/core/lane.h"  // IWYU pragma: export

namespace emu {

inline constexpr uint8_t kPoison = 0xff;  // a NaN in fp16, bf16 and fp32, whatever the alignment
// Poison of memory that the host writes, too. The emulator does not see these writes, so there -1
// has to be a value. Aligned elements of fp16, bf16, fp32 and fp64 are NaN here as well.
inline constexpr uint8_t kHostPoison[4] = {0xff, 0x7f, 0xff, 0x7f};

// Whether a byte may be poison.
constexpr bool like_poison(uint8_t byte) { return byte == kPoison || byte == kHostPoison[1]; }

// A watched block of `bytes` bytes, poisoned. `alignment` is a power of two, at most a page.
// `of_host`: the host writes it, too.
class GuardedMemory {
 public:
  GuardedMemory(std::string name, size_t bytes, size_t alignment, bool of_host = false);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  uint8_t* data() const { return data_; }
  size_t size() const { return bytes_; }
  bool of_host() const { return of_host_; }
  const std::string& name() const { return name_; }
  void poison();

  // From now on nobody may touch it; messages say that `who` has freed it.
  void retire(std::string who);

  // Offset of the first byte outside the block that was overwritten, relative to data(); 0 if none.
  // (What lies beyond the pattern is protected and cannot be overwritten.)
  std::ptrdiff_t overwritten() const;

 private:
  std::string name_;
  size_t bytes_;
  bool of_host_;
  uint8_t* mapping_;
  size_t mapping_bytes_;
  uint8_t* data_;
  std::string freed_;
};

// ---- memory of the host, which a kernel must not touch: what the program allocates, and the stack
// of the thread that launches, from `low` up to its end (0: unknown).
void note_host_memory(uintptr_t begin, size_t bytes);
// A quick answer for what describe_outside() has lately found to be no buffer and not the host's.
bool is_between_blocks(uintptr_t address);
void forget_host_memory(uintptr_t begin);
void set_host_stack(uintptr_t low);

// A variable of the program that kernels use as global memory, with `red_zone` bytes behind it that
// nobody may touch. Lives until the program ends.
void watch_variable(std::string name, void* begin, size_t bytes, size_t red_zone, bool read_only);

// The same until the second is called, for memory of the host that kernels may use.
void watch_host_memory(std::string name, void* begin, size_t bytes);
bool unwatch_host_memory(void* begin);  // whether it was watched

// Returns whether a store to `address` would change a variable that kernels may only read.
bool is_read_only(uintptr_t address);

// ---- __shared__ variables
// Each has its place in the shared memory of every CTA, before the bytes that a launch asks for:
// multiples of 128 bytes, so that its banks are those of a variable that is alone, and with 128
// bytes or more behind it that nobody may touch. Returns its offset. Called before main().
size_t add_shared_variable(const char* name, size_t bytes, size_t alignment);
struct SharedVariable {
  const char* name;
  size_t offset, bytes;
};
const std::vector<SharedVariable>& shared_variables();
size_t static_shared_bytes();  // of all of them

// If `address` lies in a region or in the guards around it, or in a kernel in memory of the host,
// describes the access in one sentence ("16 bytes past the end of global buffer O (65536 bytes)");
// empty if it is inside or elsewhere.
std::string describe_outside(uintptr_t address, size_t bytes);

// Returns whether all of the access lies inside one region.
bool inside_region(uintptr_t address, size_t bytes);

// The bytes around `address` that kernels may load and store: of its region, in shared memory of
// its variable. Empty: it is in none, or in one that is freed or read-only.
struct ByteRange {
  uintptr_t begin = 0, end = 0;
};
ByteRange plain_bytes_around(uintptr_t address);

// The name of the region in which the byte lies; empty: in none.
std::string region_name(uintptr_t address);

// The number of regions that were made before the one in which, or in whose guards, the byte lies.
size_t region_index(uintptr_t address);

// "byte 1040 of shared memory"
std::string describe_place(uintptr_t address);

// ---- addresses of shared memory, of the lane that runs
// A pointer into the CTA's shared memory as a 32-bit shared address. Not the plain offset: on a GPU
// too, address 0 is not a kernel's first byte (CUDA reserves 1 KB of shared memory a CTA).
uint32_t shared_address(const void* pointer);

// The way back, for an access of `bytes` bytes. Ends the launch if it lies outside the CTA's shared
// memory or is not a multiple of `bytes`.
uint8_t* shared_pointer(uint32_t address, size_t bytes, const char* operation,
                        SourceLocation where);

// Checked build: which bytes have been written since their region was poisoned. The host's writes
// by a pointer are not observed, but before a launch they show: a region that no kernel has written
// and that is no longer poison.
void note_host_writes();
void mark_written(uintptr_t address, size_t bytes);  // by a kernel, or by the host's copy or fill
bool never_written(uintptr_t address);
bool none_written(uintptr_t address);  // of the region's bytes, before this launch

// How many bytes of an access within one region nothing has written, and the first of them.
struct UnwrittenPart {
  size_t bytes = 0;
  uintptr_t first = 0;
};
UnwrittenPart unwritten_part(uintptr_t address, size_t bytes);

// "file:line" of an instruction, or "?". Of the wrappers of common, the line that calls them.
std::string symbolise(uintptr_t program_counter);
std::vector<std::string> symbolise(const std::vector<uintptr_t>& program_counters);  // much faster
// The places of functions that are inlined there, from the innermost one outwards, without
// libraries' and common's; of several program counters one after the other.
struct CodePlace {
  std::string place, function;
};
std::vector<CodePlace> all_places(const std::vector<uintptr_t>& program_counters);
std::string relative_path(const std::string& path);  // from the repository's root

// The instruction at which a signal has interrupted the program: of a handler's third argument.
uintptr_t program_counter_of(const void* context);

// Makes an access of a kernel to a guard page, or to an address that has no memory, end the program
// with a sentence that names thread and region, and with this code.
void install_fault_handler();
inline constinit int exit_code_of_fault = 3;

}  // namespace emu
