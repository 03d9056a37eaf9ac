// asm() in a kernel: PTX, which is read once and then executed by each thread, by the functions
// that the wrappers of common/ptx call on the emulator.
//
//   asm volatile("add.u32 %0, %1, 1;" : "=r"(sum) : "r"(x) : "memory");
//
// becomes (common/emulator/programs/cuda_source.py)
//
//   do { static ::emu::InlinePtx fa_ptx; fa_ptx.run(WHERE, "add.u32 %0, %1, 1;",
//     {::emu::asm_output("=r", (sum)), ::emu::asm_input("r", (x)), "memory"}); } while (0);
//
// NVIDIA, "Inline PTX Assembly in CUDA": constraints h, r, l (integers of 16, 32 and 64 bits), f,
// d, n (a constant), C (a constant text).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>

#include "common/emulator/core/memory.h"
#include "common/emulator/units/clock.h"

namespace emu {

// What stands between two commas of asm(): an operand, or a clobber, which says nothing here.
struct AsmOperand {
  AsmOperand(const char*) {}  // "memory"
  template <typename T>
  AsmOperand(const char* constraint_, const T* place_)
      : constraint(constraint_),
        place(place_),
        bytes(std::is_array_v<T> ? 0 : sizeof(T)),
        is_signed(std::is_signed_v<T>) {
    static_assert(std::is_array_v<T> || sizeof(T) <= 8, "an operand of asm() has up to 64 bits");
  }
  const char* constraint = "";  // "+f"
  const void* place = nullptr;  // where the value is
  uint8_t bytes = 0;            // 0: an array, whose address is the value
  bool is_signed = false;
  bool temporary = false;  // the value is gone after the asm()
};

template <typename T>
inline AsmOperand asm_input(const char* constraint, const T& value) {
  return {constraint, std::addressof(value)};
}
template <typename T>
inline AsmOperand asm_input(const char* constraint, const T&& value) {
  AsmOperand operand{constraint, std::addressof(value)};
  operand.temporary = true;
  return operand;
}
template <typename T>
inline AsmOperand asm_output(const char* constraint, T& value) {
  return {constraint, std::addressof(value)};
}

namespace inline_ptx {
class Program;
}  // namespace inline_ptx

// One asm() of the source. (Of a template: of one of its instances.)
class InlinePtx {
 public:
  // Executes it for the current thread. Ends the launch with a sentence if the text has an
  // instruction that the emulator does not know, or knows in other forms.
  void run(SourceLocation where, const char* text, std::initializer_list<AsmOperand> operands = {});

 private:
  std::atomic<const inline_ptx::Program*> program_ = nullptr;  // once a thread has come here
};

// clock() and clock64() in a kernel.
inline clock_t device_clock() { return clock_t(asked_time("clock()")); }
inline long long device_clock64() { return asked_time("clock64()"); }

// A report, whose cures are functions of common/ptx: if the program has inline PTX, by the names of
// the instructions.
std::string in_words_of_ptx(std::string report);

// A shared address as a pointer; and whether a pointer leads into shared memory of the cluster, of
// the CTA, or into local memory.
void* shared_as_pointer(uint64_t address, SourceLocation where);
bool is_shared(const void* pointer);
bool is_shared_of_cta(const void* pointer);
bool is_local(const void* pointer);

}  // namespace emu

// ---- CUDA C++ Programming Guide, "Address Space Conversion Functions", "... Predicate Functions"
inline size_t __cvta_generic_to_shared(const void* pointer) { return emu::shared_address(pointer); }
inline void* __cvta_shared_to_generic(size_t address,
                                      emu::SourceLocation where = emu::SourceLocation::current()) {
  return emu::shared_as_pointer(address, where);
}
inline size_t __cvta_generic_to_global(const void* pointer) { return size_t(pointer); }
inline void* __cvta_global_to_generic(size_t address) { return reinterpret_cast<void*>(address); }
inline unsigned __isShared(const void* pointer) { return emu::is_shared(pointer); }
inline unsigned __isLocal(const void* pointer) { return emu::is_local(pointer); }
inline unsigned __isGlobal(const void* pointer) {
  return !emu::is_shared(pointer) && !emu::is_local(pointer);
}
