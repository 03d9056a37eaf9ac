// A text of PTX as a list of steps, and how an instruction becomes one of them. PTX ISA, "Syntax",
// "Instruction Set".
#pragma once

// IWYU pragma: begin_exports
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/emulator/core/lane.h"
#include "common/emulator/programs/inline_ptx/inline_ptx.h"
// IWYU pragma: end_exports

namespace emu::inline_ptx {

// The text has what the emulator does not know. what(): a sentence without its subject, which is
// the instruction.
struct Unknown : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// %tid.x and others, whose value a function gives.
using Special = uint64_t (*)(const Lane&);

// An operand of an instruction.
struct Arg {
  enum class Kind : uint8_t {
    kSink,       // _
    kOperand,    // %0: place `index` in asm()
    kRegister,   // .reg: number `index`
    kImmediate,  // 16, 0f3F800000: `bits`
    kDecimal,    // 0.5: `decimal`
    kSpecial,    // %laneid
    kLabel,      // of a branch
    kList,       // {a, b}; [a, {b, c}]; p|q
    kAddress,    // [a + 16]: `parts`
  };
  Kind kind = Kind::kSink;
  int index = 0;
  bool wide = false;          // a register of 128 bits: number `index` and the next one
  bool is_predicate = false;  // a register of predicates
  bool negated = false;       // !p
  uint64_t bits = 0;
  double decimal = 0;
  Special special = nullptr;
  std::string name;  // of a label
  std::vector<Arg> parts;
};

// One execution of a program, by one thread.
struct Frame {
  static constexpr int kRegisters = 128;

  const AsmOperand* operands;
  SourceLocation where;
  uintptr_t program_counter;  // behind the call, in the kernel
  int next = 0;               // step
  uint64_t written[4] = {};   // outputs by their places: what a step may read of them
  uint64_t registers[kRegisters];

  uint64_t get(const Arg& arg) const;  // as many bits as the operand has, zeros or its sign above
  void set(const Arg& arg, uint64_t bits);
  bool predicate(const Arg& arg) const { return (get(arg) != 0) != arg.negated; }

  template <typename T>
  T get(const Arg& arg) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (arg.kind == Arg::Kind::kDecimal) return T(arg.decimal);
    }
    const uint64_t bits = get(arg);
    T value;
    memcpy(&value, &bits, sizeof(T));
    return value;
  }
  template <typename T>
  void set(const Arg& arg, T value) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    set(arg, bits);
  }
  // The value of an address, a pointer or a shared address.
  uint64_t address(const Arg& arg) const {
    return get(arg.parts[0]) + (arg.parts.size() > 1 ? get(arg.parts[1]) : 0);
  }
};

using Step = std::function<void(Frame&)>;

// A type of PTX: kind b, u, s, f, x for bf16, t for tf32, 4 for e4m3 and 5 for e5m2; `lanes` 2 for
// f16x2.
struct Type {
  char kind = 'b';
  int bits = 32, lanes = 1;
  bool is_fp8() const { return kind == '4' || kind == '5'; }
  bool operator==(const Type&) const = default;
};

// An instruction while it becomes a step. Modifiers are taken one by one, in any order; what is
// left at the end the emulator does not know.
class Instruction {
 public:
  Instruction(std::string name, std::vector<Arg> args);

  const std::string& name() const { return name_; }  // "ld.global.f32"
  const std::string& word() const { return words_[0]; }
  bool take(std::string_view modifier);
  // One of these, or "".
  std::string take_any(std::initializer_list<std::string_view> modifiers);
  void expect(std::string_view modifier);
  void take_beginning_with(std::string_view beginning);  // all of them: hints
  Type type();                                           // the last modifier that is a type
  bool has_type() const;
  Type first_type();  // the first one, of those with several

  size_t size() const { return args_.size(); }
  const Arg& arg(size_t i) const;
  // Ends the reading: so many operands.
  void expect_args(size_t least, size_t most) const;
  void expect_args(size_t count) const { expect_args(count, count); }
  std::vector<Arg> args(size_t count) const {  // all of them
    expect_args(count);
    return args_;
  }
  void expect_end() const;
  // f(where) for an instruction without operands, and f(groups, where) for one whose only operand
  // is a number of groups, if it has the modifier. Else an empty step.
  template <typename F>
  Step without_operands(std::string_view modifier, F f) {
    if (!take(modifier)) return nullptr;
    expect_args(0);
    return [f](Frame& frame) { f(frame.where); };
  }
  template <typename F>
  Step of_groups(std::string_view modifier, F f) {
    if (!take(modifier)) return nullptr;
    const Arg groups = args(1)[0];
    return [f, groups](Frame& frame) { f(int(frame.get(groups)), frame.where); };
  }
  [[noreturn]] void unknown(const std::string& sentence = "") const;
  [[noreturn]] void without_type() const;

  // Elements of a list, or the operand alone.
  std::vector<Arg> list(size_t i) const;
  // The lower and the upper half of an operand of 128 bits, a list or a register.
  std::vector<Arg> halves(size_t i) const;
  const char* operation() const;  // the name, for as long as the program runs

 private:
  std::string name_;
  std::vector<std::string> words_;
  std::vector<Arg> args_;
};

using Make = std::function<Step(Instruction&)>;
// By the instruction's first word. Each file adds its own.
void add_numbers(std::map<std::string, Make>& table);
void add_memory(std::map<std::string, Make>& table);
void add_warps(std::map<std::string, Make>& table);

// The value of a T with these bits, and the way back.
template <typename T>
T as(uint64_t bits) {
  T value;
  memcpy(&value, &bits, sizeof(T));
  return value;
}

// ---- addresses of shared memory -----------------------------------------------------------------
// .shared::cluster: the address in the CTA's own memory, or one of another CTA that mapa has made.
struct ClusterAddress {
  int cta;  // -1: this one
  uint32_t address;
};
uint64_t cluster_address(int cta, uint32_t address);
ClusterAddress from_cluster_address(uint64_t bits);

// A pointer of `bytes` bytes; in what memory the address is, modifiers say.
enum class Space : uint8_t { kGeneric, kShared, kCluster };
Space take_space(Instruction& instruction);
// Ends the launch if a pointer that .global names leads into other memory.
void expect_global(const void* place, const char* operation, SourceLocation where);
uint8_t* pointer(Space space, uint64_t address, size_t bytes, const char* operation,
                 SourceLocation where);

// A text with its steps.
class Program {
 public:
  Program(const char* text, std::initializer_list<AsmOperand> operands);
  void run(Frame& frame) const;

 private:
  struct Guarded {
    Step step;
    Arg predicate;  // kSink: none
  };
  friend class Reader;
  std::vector<Guarded> steps_;
  int registers_ = 0;
  std::string refused_, refused_name_;
};

}  // namespace emu::inline_ptx
