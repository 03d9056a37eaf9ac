// Arithmetic, comparisons, logic, moves and conversions. PTX ISA, "Integer Arithmetic
// Instructions" to "Data Movement and Conversion Instructions: cvt".
//
// Approximations are rounded from a double, but ex2, which has an H200's bits.
#include <algorithm>
#include <cfenv>
#include <cmath>

#include "common/emulator/core/float16.h"
#include "common/emulator/core/float8.h"
#include "common/emulator/core/half_types.h"
#include "common/emulator/programs/inline_ptx/program.h"
#include "common/emulator/units/warp.h"

namespace emu::inline_ptx {
namespace {

uint64_t low_bits(uint64_t bits, int count) {
  return count >= 64 ? bits : bits & ((uint64_t(1) << count) - 1);
}
int64_t extended(uint64_t bits, int count) {
  return count >= 64 ? int64_t(bits) : int64_t(bits << (64 - count)) >> (64 - count);
}

bool is_float(Type type) { return type.kind == 'f' || type.kind == 'x'; }

// ---- integers: 64 bits, with the type's sign above ----------------------------------------------
int64_t integer(uint64_t bits, Type type) {
  return type.kind == 's' ? extended(bits, type.bits) : int64_t(low_bits(bits, type.bits));
}
int64_t integer(const Frame& frame, const Arg& arg, Type type) {
  return integer(frame.get(arg), type);
}
void set_integer(Frame& frame, const Arg& arg, Type type, uint64_t value) {
  frame.set(arg, low_bits(value, type.bits));
}

// ---- floating point: a double holds every value of the narrower types ---------------------------
double to_double(uint64_t bits, Type type) {
  if (type.bits == 64) return as<double>(bits);
  if (type.bits == 32) return double(as<float>(bits));
  return double(type.kind == 'x' ? bf16_to_float(uint16_t(bits)) : fp16_to_float(uint16_t(bits)));
}
uint64_t from_double(double value, Type type) {
  if (type.bits == 64) return std::bit_cast<uint64_t>(value);
  if (type.bits == 32) {
    return std::isnan(value) ? 0x7fffffff : std::bit_cast<uint32_t>(float(value));
  }
  const float odd = round_to_odd(value);
  return type.kind == 'x' ? float_to_bf16(odd) : float_to_fp16(odd);
}
double flushed(double value, Type type) {  // .ftz
  const double least = type.bits == 32 || type.kind == 'x' ? 0x1p-126 : 0x1p-14;
  return std::fabs(value) < least ? std::copysign(0.0, value) : value;
}

struct Rounding {
  bool flush = false, saturate = false, relu = false;
  int mode = FE_TONEAREST;
};
Rounding take_rounding(Instruction& instruction) {
  Rounding rounding;
  const std::string mode = instruction.take_any({"rn", "rz", "rm", "rp"});
  rounding.mode = mode == "rz"   ? FE_TOWARDZERO
                  : mode == "rm" ? FE_DOWNWARD
                  : mode == "rp" ? FE_UPWARD
                                 : FE_TONEAREST;
  rounding.flush = instruction.take("ftz");
  rounding.saturate = instruction.take("sat");
  rounding.relu = instruction.take("relu");
  return rounding;
}

double floating(const Frame& frame, const Arg& arg, Type type, int element, bool flush) {
  double value =
      arg.kind == Arg::Kind::kDecimal
          ? arg.decimal
          : to_double(low_bits(frame.get(arg) >> (element * type.bits), type.bits), type);
  return flush ? flushed(value, type) : value;
}
uint64_t finished(double value, Type type, const Rounding& rounding) {
  if (rounding.saturate) value = value > 0 ? std::min(value, 1.0) : 0.0;  // a NaN becomes 0
  if (rounding.relu && !(value > 0) && !std::isnan(value)) value = 0.0;
  if (rounding.flush) value = flushed(to_double(from_double(value, type), type), type);
  return from_double(value, type);
}

// One value in another rounding mode: of float and double alone, whose operations the CPU has.
template <typename F>
double in_mode(int mode, F f) {
  if (mode == FE_TONEAREST) return f();
  const int before = std::fegetround();
  std::fesetround(mode);
  const double result = f();
  std::fesetround(before);
  return result;
}

// The result of an operation on doubles, once rounded: a double has more than twice the bits of
// the narrower types, so that rounding it again loses nothing. The CPU's own float if the rounding
// is directed.
template <typename F>
Step floats(Instruction& instruction, Type type, size_t operands, F f) {
  const Rounding rounding = take_rounding(instruction);
  if (rounding.mode != FE_TONEAREST && type.bits < 32) {
    instruction.unknown("of 16-bit types the emulator rounds to nearest alone");
  }
  const std::vector<Arg> args = instruction.args(operands + 1);
  return [=](Frame& frame) {
    uint64_t result = 0;
    for (int element = 0; element < type.lanes; element++) {
      double x[3] = {};
      for (size_t i = 0; i < operands; i++) {
        x[i] = floating(frame, args[i + 1], type, element, rounding.flush);
      }
      const double value = in_mode(rounding.mode, [&]() -> double {
        if (type.bits != 32) return f(x[0], x[1], x[2]);
        volatile float a = float(x[0]), b = float(x[1]), c = float(x[2]);
        const volatile float y = f(float(a), float(b), float(c));
        return double(y);
      });
      result |= finished(value, type, rounding) << (element * type.bits);
    }
    frame.set(args[0], result);
  };
}

template <typename F>
Step integers(Instruction& instruction, Type type, size_t operands, F f) {
  const std::vector<Arg> args = instruction.args(operands + 1);
  return [=](Frame& frame) {
    int64_t x[3] = {};
    for (size_t i = 0; i < operands; i++) x[i] = integer(frame, args[i + 1], type);
    set_integer(frame, args[0], type, uint64_t(f(x[0], x[1], x[2])));
  };
}

// An operation that integers and floating-point numbers have. (The sums of integers are unsigned,
// which may overflow.)
template <typename I, typename F>
Make both(size_t operands, I of_integers, F of_floats) {
  return [=](Instruction& instruction) {
    const Type type = instruction.type();
    return is_float(type) ? floats(instruction, type, operands, of_floats)
                          : integers(instruction, type, operands, of_integers);
  };
}

// ---- products -----------------------------------------------------------------------------------
Step multiply(Instruction& instruction, bool adds) {
  const Type type = instruction.type();
  if (is_float(type)) {
    if (adds && type.bits == 16) {
      return floats(instruction, type, 3,
                    [](auto a, auto b, auto c) { return decltype(a)(fma_to_odd(a, b, c)); });
    }
    if (adds) {
      return floats(instruction, type, 3, [](auto a, auto b, auto c) { return std::fma(a, b, c); });
    }
    return floats(instruction, type, 2, [](auto a, auto b, auto) { return a * b; });
  }
  const std::string part = instruction.take_any({"lo", "hi", "wide"});
  if (part.empty()) instruction.unknown("a product of integers needs .lo, .hi or .wide");
  instruction.expect_args(adds ? 4 : 3);
  const Arg d = instruction.arg(0), a = instruction.arg(1), b = instruction.arg(2);
  const Arg c = adds ? instruction.arg(3) : Arg{};
  Type result = type;
  if (part == "wide") result.bits *= 2;
  return [=](Frame& frame) {
    using Wide = __int128;
    const int64_t x = integer(frame, a, type), y = integer(frame, b, type);
    const bool is_signed = type.kind == 's';
    const Wide product = is_signed
                             ? Wide(x) * Wide(y)
                             : Wide(static_cast<unsigned __int128>(uint64_t(x)) * uint64_t(y));
    uint64_t value = uint64_t(part == "hi" ? product >> type.bits : product);
    if (adds) value += uint64_t(integer(frame, c, result));
    set_integer(frame, d, result, value);
  };
}

Step quotient(Instruction& instruction, bool remainder) {
  instruction.take_any({"approx", "full"});
  const Type type = instruction.type();
  if (is_float(type)) {
    return floats(instruction, type, 2, [](auto a, auto b, auto) { return a / b; });
  }
  return integers(instruction, type, 2, [=](int64_t a, int64_t b, int64_t) -> int64_t {
    if (b == 0) return remainder ? a : -1;  // "unspecified, machine-specific"
    if (type.kind != 's') {
      return int64_t(remainder ? uint64_t(a) % uint64_t(b) : uint64_t(a) / uint64_t(b));
    }
    if (b == -1) return remainder ? 0 : int64_t(-uint64_t(a));
    return remainder ? a % b : a / b;
  });
}

// The smaller (larger) of two; a NaN is neither, unless .NaN.
Make extreme(bool larger) {
  return [=](Instruction& instruction) {
    const Type type = instruction.type();
    const bool keeps_nan = instruction.take("NaN");
    if (is_float(type)) {
      return floats(instruction, type, 2, [=](auto a, auto b, auto) -> decltype(a) {
        if (std::isnan(a) || std::isnan(b)) {
          if (keeps_nan || (std::isnan(a) && std::isnan(b))) return NAN;
          return std::isnan(a) ? b : a;
        }
        const bool first = a == b ? std::signbit(a) != larger : (a < b) != larger;  // -0 < +0
        return first ? a : b;
      });
    }
    return integers(instruction, type, 2, [=](int64_t a, int64_t b, int64_t) {
      const bool less = type.kind == 's' ? a < b : uint64_t(a) < uint64_t(b);
      return less != larger ? a : b;
    });
  };
}

// ---- comparisons --------------------------------------------------------------------------------
// Whether it holds if the first number is less, equal, greater, or one of the two is no number.
struct Compare {
  const char* name;
  bool less, equal, greater, unordered;
};
constexpr Compare kComparisons[] = {
    {"eq", false, true, false, false}, {"ne", true, false, true, false},
    {"lt", true, false, false, false}, {"le", true, true, false, false},
    {"gt", false, false, true, false}, {"ge", false, true, true, false},
    {"lo", true, false, false, false}, {"ls", true, true, false, false},
    {"hi", false, false, true, false}, {"hs", false, true, true, false},
    {"equ", false, true, false, true}, {"neu", true, false, true, true},
    {"ltu", true, false, false, true}, {"leu", true, true, false, true},
    {"gtu", false, false, true, true}, {"geu", false, true, true, true},
    {"num", true, true, true, false},  {"nan", false, false, false, true}};
const Compare& take_comparison(Instruction& instruction) {
  for (const Compare& compare : kComparisons) {
    if (instruction.take(compare.name)) return compare;
  }
  instruction.unknown("it has no comparison");
}

Step set_predicate(Instruction& instruction, bool as_number) {
  const Compare compare = take_comparison(instruction);
  const std::string combine = instruction.take_any({"and", "or", "xor"});
  const bool flush = instruction.take("ftz");
  const Type result = as_number ? instruction.first_type() : Type{'p', 1};
  const Type type = instruction.type();
  if (type.lanes == 2) instruction.unknown("the emulator compares single numbers alone");
  instruction.expect_args(combine.empty() ? 3 : 4);
  const std::vector<Arg> to = instruction.list(0);
  const Arg a = instruction.arg(1), b = instruction.arg(2);
  const Arg c = combine.empty() ? Arg{} : instruction.arg(3);
  return [=](Frame& frame) {
    bool less, equal, unordered = false;
    if (is_float(type)) {
      const double x = floating(frame, a, type, 0, flush), y = floating(frame, b, type, 0, flush);
      unordered = std::isnan(x) || std::isnan(y);
      less = x < y, equal = x == y;
    } else {
      const int64_t x = integer(frame, a, type), y = integer(frame, b, type);
      less = type.kind == 's' ? x < y : uint64_t(x) < uint64_t(y);
      equal = x == y;
    }
    const auto combined = [&](bool value) {
      if (combine.empty()) return value;
      const bool other = frame.predicate(c);
      return combine == "and" ? value && other : combine == "or" ? value || other : value != other;
    };
    const bool holds = unordered ? compare.unordered
                       : less    ? compare.less
                       : equal   ? compare.equal
                                 : compare.greater;
    if (as_number) {
      const uint64_t yes =
          is_float(result) ? from_double(1, result) : low_bits(~uint64_t(0), result.bits);
      frame.set(to[0], combined(holds) ? yes : 0);
      return;
    }
    const bool first = combined(holds), second = combined(!holds);  // before either is set
    frame.set(to[0], uint64_t(first));
    if (to.size() > 1) frame.set(to[1], uint64_t(second));
  };
}

// ---- moves --------------------------------------------------------------------------------------
Step move(Instruction& instruction) {
  const Type type = instruction.type();
  instruction.expect_args(2);
  if (type.bits == 128) {  // two registers of 64 bits
    const std::vector<Arg> d = instruction.halves(0), a = instruction.halves(1);
    return [=](Frame& frame) {
      const uint64_t low = frame.get(a[0]), high = frame.get(a[1]);
      frame.set(d[0], low);
      frame.set(d[1], high);
    };
  }
  const Arg to = instruction.arg(0), from = instruction.arg(1);
  if (to.kind == Arg::Kind::kList) {  // the first element is the lowest
    const int bits = type.bits / int(to.parts.size());
    return [=](Frame& frame) {
      uint64_t value = frame.get(from);
      for (const Arg& part : to.parts) {
        frame.set(part, low_bits(value, bits));
        value >>= bits;
      }
    };
  }
  if (from.kind == Arg::Kind::kList) {
    const int bits = type.bits / int(from.parts.size());
    return [=](Frame& frame) {
      uint64_t value = 0;
      for (size_t i = 0; i < from.parts.size(); i++) {
        value |= low_bits(frame.get(from.parts[i]), bits) << (int(i) * bits);
      }
      frame.set(to, value);
    };
  }
  return [=](Frame& frame) {
    if (from.kind == Arg::Kind::kDecimal) {
      frame.set(to, from_double(from.decimal, type));
    } else if (type.kind == 'p') {
      frame.set(to, uint64_t(frame.predicate(from)));
    } else {
      frame.set(to, low_bits(frame.get(from), type.bits));
    }
  };
}

// ---- conversions --------------------------------------------------------------------------------
uint64_t to_integer(double value, Type type, Type from) {
  const bool is_signed = type.kind == 's';
  if (std::isnan(value)) {
    return type.bits == 64 || from.bits == 64 ? uint64_t(1) << (type.bits - 1) : 0;
  }
  const double least = is_signed ? -std::ldexp(1.0, type.bits - 1) : 0.0;
  const double limit = std::ldexp(1.0, is_signed ? type.bits - 1 : type.bits);
  if (value <= least) return low_bits(uint64_t(int64_t(least)), type.bits);
  if (value >= limit) {
    return is_signed ? (uint64_t(1) << (type.bits - 1)) - 1 : low_bits(~uint64_t(0), type.bits);
  }
  return low_bits(is_signed ? uint64_t(int64_t(value)) : uint64_t(value), type.bits);
}

double to_whole(double value, const std::string& mode) {
  if (mode == "rzi") return std::trunc(value);
  if (mode == "rmi") return std::floor(value);
  if (mode == "rpi") return std::ceil(value);
  return std::nearbyint(value);  // ties to even
}

// FP8, always two: of two floats, of which the second becomes the lower byte, or of a pair of fp16;
// and back to a pair of fp16.
Step convert_fp8(Instruction& instruction, Type to, Type from, bool relu, bool finite) {
  const bool back = from.is_fp8(), of_floats = from == Type{'f', 32};
  const Type pair{'f', 16, 2};
  const bool known = back ? to == pair && from.lanes == 2 && !finite
                          : (of_floats || from == pair) && to.lanes == 2 && finite;
  if (!known) {
    instruction.unknown(
        "of FP8 the emulator knows .rn.satfinite to a pair, of f32 or f16x2, and .rn from a pair "
        "to f16x2");
  }
  const Fp8Format& format = (back ? from : to).kind == '4' ? kFormatE4m3 : kFormatE5m2;
  const std::vector<Arg> args = instruction.args(of_floats ? 3 : 2);
  return [=, &format](Frame& frame) {
    uint64_t result = 0;
    for (int i = 0; i < 2; i++) {
      double value = back ? double(fp8_to_float(uint8_t(frame.get(args[1]) >> (8 * i)), format))
                     : of_floats ? floating(frame, args[i == 0 ? 2 : 1], from, 0, false)
                                 : floating(frame, args[1], from, i, false);
      if (relu && value <= 0) value = 0;
      result |= back ? uint64_t(float_to_fp16(float(value))) << (16 * i)
                     : uint64_t(to_fp8(value, format, true)) << (8 * i);
    }
    frame.set(args[0], result);
  };
}

Step convert(Instruction& instruction) {
  const std::string whole = instruction.take_any({"rni", "rzi", "rmi", "rpi"});
  const bool ties_away = instruction.take("rna");
  Rounding rounding = take_rounding(instruction);
  const bool finite = instruction.take("satfinite");
  const Type to = instruction.first_type(), from = instruction.first_type();
  if (to.is_fp8() || from.is_fp8()) {
    const bool nearest = rounding.mode == FE_TONEAREST && !ties_away && whole.empty();
    if (!nearest || rounding.saturate || rounding.flush) instruction.unknown();
    return convert_fp8(instruction, to, from, rounding.relu, finite);
  }
  const bool flush = rounding.flush && from == Type{'f', 32};  // .ftz is for .f32 alone
  rounding.flush = rounding.flush && to == Type{'f', 32};
  const size_t halves = size_t(to.lanes);
  instruction.expect_args(halves + 1);
  const Arg d = instruction.arg(0), a = instruction.arg(1);
  if (to.kind == 't') {  // to nearest, ties away from 0: 10 bits of mantissa stay
    if (!ties_away || finite) instruction.unknown("of tf32 the emulator knows .rna alone");
    return [=](Frame& frame) {
      const auto bits = uint32_t(frame.get(a));
      frame.set(d, uint64_t((bits & 0x7fffffff) >= 0x7f800000 ? bits : (bits + 0x1000) & ~0x1fffu));
    };
  }
  if (ties_away || finite) instruction.unknown();
  // A signed result fills its register with its sign.
  const auto set_result = [](Frame& frame, const Arg& arg, Type type, uint64_t value) {
    frame.set(arg,
              type.kind == 's' ? uint64_t(extended(value, type.bits)) : low_bits(value, type.bits));
  };
  if (halves == 2) {  // the second operand becomes the lower half
    if (from.bits != 32 || rounding.mode != FE_TONEAREST) instruction.unknown();
    const Arg low = instruction.arg(2);
    return [=](Frame& frame) {
      Type half = to;
      half.lanes = 1;
      const uint64_t upper = finished(floating(frame, a, from, 0, flush), half, rounding);
      frame.set(d, upper << 16 | finished(floating(frame, low, from, 0, flush), half, rounding));
    };
  }
  if (rounding.mode != FE_TONEAREST && to.bits < 32 && is_float(to)) {
    instruction.unknown("of 16-bit types the emulator rounds to nearest alone");
  }
  return [=](Frame& frame) {
    if (!is_float(from)) {
      const int64_t value = integer(frame, a, from);
      if (is_float(to)) {
        const double rounded = in_mode(rounding.mode, [&]() -> double {
          const volatile int64_t x = value;
          const volatile uint64_t u = uint64_t(value);
          if (to.bits == 32) return double(from.kind == 's' ? float(x) : float(u));
          return from.kind == 's' ? double(x) : double(u);
        });
        frame.set(d, finished(rounded, to, rounding));
      } else if (rounding.saturate) {
        const bool is_signed = to.kind == 's';
        const __int128 exact = from.kind == 's' ? __int128(value) : __int128(uint64_t(value));
        const __int128 least = is_signed ? -(__int128(1) << (to.bits - 1)) : 0;
        const __int128 most = (__int128(1) << (is_signed ? to.bits - 1 : to.bits)) - 1;
        set_result(frame, d, to, uint64_t(std::clamp(exact, least, most)));
      } else {
        set_result(frame, d, to, uint64_t(value));
      }
      return;
    }
    double value = floating(frame, a, from, 0, flush);
    if (!is_float(to)) {
      set_result(frame, d, to, to_integer(to_whole(value, whole), to, from));
      return;
    }
    if (!whole.empty()) value = to_whole(value, whole);
    if (to.bits == 32 && rounding.mode != FE_TONEAREST) {
      value = in_mode(rounding.mode, [&]() -> double {
        const volatile double x = value;
        const volatile float y = float(x);
        return double(y);
      });
    }
    frame.set(d, finished(value, to, rounding));
  };
}

// ---- functions of the special-function unit -----------------------------------------------------
template <typename F>
Make function(F f) {
  return [=](Instruction& instruction) {
    instruction.take("approx");
    return floats(instruction, instruction.type(), 1,
                  [=](auto x, auto, auto) -> decltype(x) { return decltype(x)(f(double(x))); });
  };
}

Step exponential(Instruction& instruction) {
  instruction.expect("approx");
  const bool flush = instruction.take("ftz");
  const Type type = instruction.type();
  instruction.expect_args(2);
  const Arg d = instruction.arg(0), a = instruction.arg(1);
  return [=](Frame& frame) {
    uint64_t result = 0;
    for (int element = 0; element < type.lanes; element++) {
      const float x = float(floating(frame, a, type, element, false));
      // Without .ftz results below 2^-126 exist, as 2^24 times as large ones.
      const bool subnormal = !flush && x < -126;
      float y = exp2_approx(subnormal ? x + 24 : x, frame.where);
      if (subnormal) y *= 0x1p-24f;
      result |= from_double(double(y), type) << (element * type.bits);
    }
    frame.set(d, result);
  };
}

// ---- bits ---------------------------------------------------------------------------------------
// f(values, type), of as many values as there are operands behind the result. With `b32` the
// instruction has no other type.
template <typename F>
Make bits(size_t operands, F f, bool b32 = false) {
  return [=](Instruction& instruction) -> Step {
    if (b32) instruction.expect("b32");
    const Type type = b32 ? Type{'b', 32} : instruction.type();
    const std::vector<Arg> args = instruction.args(operands + 1);
    return [=](Frame& frame) {
      uint64_t x[4] = {};
      for (size_t i = 0; i < operands; i++) {
        const Arg& arg = args[i + 1];
        x[i] = type.kind == 'p' ? frame.predicate(arg) : frame.get(arg);
      }
      set_integer(frame, args[0], type, uint64_t(f(x, type)));
    };
  };
}

uint64_t shifted(uint64_t value, uint64_t by, Type type, bool left) {
  const auto count = std::min(uint32_t(by), uint32_t(type.bits));  // more than all bits: all bits
  const int64_t whole = integer(value, type);
  if (type.kind == 's' && !left) return uint64_t(whole >> std::min(count, 63u));
  if (count == 64) return 0;
  return left ? uint64_t(whole) << count : uint64_t(whole) >> count;
}

uint64_t reversed(uint64_t x, int count) {
  uint64_t result = 0;
  for (int i = 0; i < count; i++) result |= (x >> i & 1) << (count - 1 - i);
  return result;
}

uint64_t looked_up(const uint64_t* x, uint64_t table) {  // lop3
  uint64_t result = 0;
  for (int i = 0; i < 32; i++) {
    const uint64_t row = (x[0] >> i & 1) << 2 | (x[1] >> i & 1) << 1 | (x[2] >> i & 1);
    result |= (table >> row & 1) << i;
  }
  return result;
}

uint64_t permuted(uint64_t a, uint64_t b, uint64_t selector) {  // prmt
  const uint64_t both = (b & 0xffffffff) << 32 | (a & 0xffffffff);
  uint64_t result = 0;
  for (int i = 0; i < 4; i++) {
    const uint64_t choice = selector >> (4 * i);
    uint64_t byte = both >> (8 * (choice & 7)) & 0xff;
    if (choice & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}

uint64_t extracted(uint64_t value, uint32_t from, uint32_t count, Type type) {  // bfe
  if (count == 0) return 0;
  const int64_t whole = integer(value, type);
  const int kept = int(std::min(count, 64u));
  if (type.kind == 's') return uint64_t(extended(uint64_t(whole >> std::min(from, 63u)), kept));
  return low_bits(from > 63 ? 0 : uint64_t(whole) >> from, kept);
}

uint64_t inserted(uint64_t a, uint64_t b, uint32_t to, uint32_t count) {  // bfi
  if (to > 63) return b;
  const uint64_t mask = low_bits(~uint64_t(0), int(count)) << to;
  return (b & ~mask) | (a << to & mask);
}

Step funnel_shift(Instruction& instruction) {
  const bool left = instruction.take("l");
  if (!left) instruction.expect("r");
  const bool clamp = instruction.take("clamp");
  if (!clamp) instruction.expect("wrap");
  const auto shift = [=](const uint64_t* x, Type) {
    const uint64_t both = (x[1] & 0xffffffff) << 32 | (x[0] & 0xffffffff);
    const uint32_t asked = uint32_t(x[2]), count = clamp ? std::min(asked, 32u) : asked & 31;
    return left ? both << count >> 32 : both >> count;
  };
  return bits(3, shift, true)(instruction);
}

Step byte_products(Instruction& instruction) {  // dp4a
  const Type first = instruction.first_type(), second = instruction.first_type();
  const std::vector<Arg> args = instruction.args(4);
  return [=](Frame& frame) {
    const uint64_t x = frame.get(args[1]), y = frame.get(args[2]);
    uint64_t sum = frame.get(args[3]);
    for (int i = 0; i < 4; i++) {
      sum += uint64_t(integer(x >> (8 * i), {first.kind, 8}) *
                      integer(y >> (8 * i), {second.kind, 8}));
    }
    frame.set(args[0], low_bits(sum, 32));
  };
}

}  // namespace

void add_numbers(std::map<std::string, Make>& table) {
  using I = int64_t;
  table["mov"] = move;
  table["cvt"] = convert;
  table["add"] = both(
      2, [](I a, I b, I) { return I(uint64_t(a) + uint64_t(b)); },
      [](auto a, auto b, auto) { return a + b; });
  table["sub"] = both(
      2, [](I a, I b, I) { return I(uint64_t(a) - uint64_t(b)); },
      [](auto a, auto b, auto) { return a - b; });
  table["mul"] = [](Instruction& i) { return multiply(i, false); };
  table["mad"] = table["fma"] = [](Instruction& i) { return multiply(i, true); };
  table["div"] = [](Instruction& i) { return quotient(i, false); };
  table["rem"] = [](Instruction& i) { return quotient(i, true); };
  table["neg"] = both(
      1, [](I a, I, I) { return I(-uint64_t(a)); }, [](auto a, auto, auto) { return -a; });
  table["abs"] = both(
      1, [](I a, I, I) { return a < 0 ? I(-uint64_t(a)) : a; },
      [](auto a, auto, auto) { return std::fabs(a); });
  table["min"] = extreme(false);
  table["max"] = extreme(true);
  table["setp"] = [](Instruction& i) { return set_predicate(i, false); };
  table["set"] = [](Instruction& i) { return set_predicate(i, true); };
  table["selp"] = [](Instruction& instruction) -> Step {
    const Type type = instruction.type();
    instruction.expect_args(4);
    const Arg d = instruction.arg(0), a = instruction.arg(1), b = instruction.arg(2),
              p = instruction.arg(3);
    return [=](Frame& frame) {
      const Arg& chosen = frame.predicate(p) ? a : b;
      frame.set(d, chosen.kind == Arg::Kind::kDecimal ? from_double(chosen.decimal, type)
                                                      : low_bits(frame.get(chosen), type.bits));
    };
  };
  using X = const uint64_t*;
  table["and"] = bits(2, [](X x, Type) { return x[0] & x[1]; });
  table["or"] = bits(2, [](X x, Type) { return x[0] | x[1]; });
  table["xor"] = bits(2, [](X x, Type) { return x[0] ^ x[1]; });
  table["not"] = bits(1, [](X x, Type) { return ~x[0]; });
  table["cnot"] = bits(1, [](X x, Type t) { return uint64_t(low_bits(x[0], t.bits) == 0); });
  table["shl"] = bits(2, [](X x, Type t) { return shifted(x[0], x[1], t, true); });
  table["shr"] = bits(2, [](X x, Type t) { return shifted(x[0], x[1], t, false); });
  table["shf"] = funnel_shift;
  table["lop3"] = bits(
      4, [](X x, Type) { return looked_up(x, x[3]); }, true);
  table["prmt"] = bits(
      3, [](X x, Type) { return permuted(x[0], x[1], x[2]); }, true);
  table["popc"] = bits(1, [](X x, Type t) { return std::popcount(low_bits(x[0], t.bits)); });
  table["clz"] =
      bits(1, [](X x, Type t) { return std::countl_zero(low_bits(x[0], t.bits)) - (64 - t.bits); });
  table["brev"] = bits(1, [](X x, Type t) { return reversed(x[0], t.bits); });
  table["bfe"] =
      bits(3, [](X x, Type t) { return extracted(x[0], uint8_t(x[1]), uint8_t(x[2]), t); });
  table["bfi"] =
      bits(4, [](X x, Type) { return inserted(x[0], x[1], uint8_t(x[2]), uint8_t(x[3])); });
  table["dp4a"] = byte_products;
  table["ex2"] = exponential;
  table["lg2"] = function([](double x) { return std::log2(x); });
  table["rcp"] = function([](double x) { return 1 / x; });
  table["sqrt"] = function([](double x) { return std::sqrt(x); });
  table["rsqrt"] = function([](double x) { return 1 / std::sqrt(x); });
  table["sin"] = function([](double x) { return std::sin(x); });
  table["cos"] = function([](double x) { return std::cos(x); });
  table["tanh"] = function([](double x) { return std::tanh(x); });
}

}  // namespace emu::inline_ptx
