#include "common/emulator/core/invalid_operation.h"

#include <ucontext.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

namespace emu {

#ifdef __x86_64__
namespace {

// An instruction's bytes (Intel SDM 2, "Instruction Format"): prefixes or VEX, opcode, ModRM and
// what that asks for. Only those are understood that made_nan_by() looks for.
struct Decoded {
  int map = 0;     // 1: 0F, 2: 0F 38
  int prefix = 0;  // 0: none (ps), 1: 66 (pd), 2: F3 (ss), 3: F2 (sd)
  int opcode = 0;
  bool wide = false, is_long = false, is_vex = false;  // VEX.W, VEX.L
  int reg = 0, second = 0, rm = 0;                     // numbers of registers
  const uint8_t* memory = nullptr;                     // in place of rm
  bool valid = false;
};

class Decoder {
 public:
  explicit Decoder(const ucontext_t& state)
      : state_(state), at_(reinterpret_cast<const uint8_t*>(state.uc_mcontext.gregs[REG_RIP])) {}

  Decoded decode() {
    if (!prefixes()) return d_;
    d_.opcode = *at_++;
    operands();
    return d_;
  }

 private:
  bool prefixes() {
    for (;; at_++) {
      if (*at_ == 0x66) {
        d_.prefix = d_.prefix ? d_.prefix : 1;
      } else if (*at_ == 0xf3) {
        d_.prefix = 2;
      } else if (*at_ == 0xf2) {
        d_.prefix = 3;
      } else if (*at_ != 0x2e && *at_ != 0x3e) {
        break;
      }
    }
    if (*at_ == 0xc5) {
      const int byte = at_[1];
      r_ = ~byte >> 7 & 1;
      vex(byte);
      d_.map = 1;
      at_ += 2;
      return true;
    }
    if (*at_ == 0xc4) {
      const int byte = at_[1];
      r_ = ~byte >> 7 & 1, x_ = ~byte >> 6 & 1, b_ = ~byte >> 5 & 1;
      d_.map = byte & 31;
      d_.wide = at_[2] >> 7;
      vex(at_[2]);
      at_ += 3;
      return true;
    }
    if ((*at_ & 0xf0) == 0x40) {
      r_ = *at_ >> 2 & 1, x_ = *at_ >> 1 & 1, b_ = *at_ & 1;
      at_++;
    }
    if (*at_++ != 0x0f) return false;
    d_.map = 1;
    return *at_ != 0x38 && *at_ != 0x3a;
  }

  void vex(int byte) {
    d_.is_vex = true;
    d_.second = ~byte >> 3 & 15;
    d_.is_long = byte >> 2 & 1;
    d_.prefix = byte & 3;
  }

  void operands() {
    const int modrm = *at_++, mode = modrm >> 6;
    d_.reg = (modrm >> 3 & 7) | r_ << 3;
    d_.rm = (modrm & 7) | b_ << 3;
    if (!d_.is_vex) d_.second = d_.reg;
    d_.valid = true;
    if (mode == 3) return;
    uintptr_t address = 0;
    const bool relative = mode == 0 && (modrm & 7) == 5;  // to the next instruction
    bool has_base = !relative;
    int base = d_.rm;
    if ((modrm & 7) == 4) {
      const int sib = *at_++, index = (sib >> 3 & 7) | x_ << 3;
      base = (sib & 7) | b_ << 3;
      has_base = mode != 0 || (sib & 7) != 5;
      if (index != 4) address += uintptr_t(general(index)) << (sib >> 6);
      if (!has_base) address += uintptr_t(displacement(4));
    }
    if (has_base) address += uintptr_t(general(base));
    if (mode == 1) address += uintptr_t(displacement(1));
    if (mode == 2 || relative) address += uintptr_t(displacement(4));
    if (relative) address += uintptr_t(at_);
    d_.memory = reinterpret_cast<const uint8_t*>(address);
  }

  int64_t displacement(int bytes) {
    int32_t value = int8_t(*at_);
    if (bytes == 4) memcpy(&value, at_, 4);
    at_ += bytes;
    return value;
  }

  greg_t general(int number) const {
    static constexpr int kOrder[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                     REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                     REG_R12, REG_R13, REG_R14, REG_R15};
    return state_.uc_mcontext.gregs[kOrder[number]];
  }

  const ucontext_t& state_;
  const uint8_t* at_;
  Decoded d_;
  int r_ = 0, x_ = 0, b_ = 0;
};

// The i-th element of a vector register. The upper halves of AVX are behind what FXSAVE stores
// (Intel SDM 1, "XSAVE-Managed State").
double element(const ucontext_t& state, int number, int i, size_t bytes) {
  const auto* const legacy = reinterpret_cast<const uint8_t*>(state.uc_mcontext.fpregs);
  constexpr size_t kUpperHalves = 576;
  size_t at = size_t(i) * bytes;
  const uint8_t* from =
      reinterpret_cast<const uint8_t*>(&state.uc_mcontext.fpregs->_xmm[number]) + at;
  if (at >= 16) from = legacy + kUpperHalves + size_t(number) * 16 + (at - 16);
  if (bytes == 8) {
    double value;
    memcpy(&value, from, sizeof value);
    return value;
  }
  float value;
  memcpy(&value, from, sizeof value);
  return double(value);
}

double element(const uint8_t* memory, int i, size_t bytes) {
  double wide;
  float narrow;
  if (bytes == 8) memcpy(&wide, memory + 8 * i, sizeof wide);
  if (bytes == 4) memcpy(&narrow, memory + 4 * i, sizeof narrow);
  return bytes == 8 ? wide : double(narrow);
}

bool is_fused(int map, int opcode) {
  return map == 2 && opcode >= 0x96 && (opcode & 15) >= 6 && opcode < 0xc0;
}

// An instruction of AVX-512 has more registers than a handler can easily find. Of these only the
// kind is told. (A signalling NaN would count as a number.)
std::string kind_of_avx512(const uint8_t* instruction) {
  const int map = instruction[1] & 7, opcode = instruction[4];
  if (is_fused(map, opcode)) return "a fused multiply-add";
  if (map != 1) return "";
  return opcode == 0x51   ? "a square root"
         : opcode == 0x58 ? "a sum"
         : opcode == 0x59 ? "a product"
         : opcode == 0x5c ? "a difference"
         : opcode == 0x5e ? "a quotient"
                          : "";
}

std::string worded(const char* format, double x, double y, double z) {
  char text[128];
  snprintf(text, sizeof text, format, x, y, z);
  return text;
}

}  // namespace

std::string made_nan_by(const void* context, bool& names_all) {
  const auto& state = *static_cast<const ucontext_t*>(context);
  const auto* const instruction =
      reinterpret_cast<const uint8_t*>(state.uc_mcontext.gregs[REG_RIP]);
  if (*instruction == 0x62) return kind_of_avx512(instruction);
  const Decoded d = Decoder(state).decode();
  if (!d.valid) return "";
  const bool fused = d.is_vex && is_fused(d.map, d.opcode);
  if (d.map != 1 && !fused) return "";
  if (!fused && d.opcode != 0x51 && d.opcode != 0x58 && d.opcode != 0x59 && d.opcode != 0x5c &&
      d.opcode != 0x5e) {
    return "";
  }
  const bool scalar = fused ? (d.opcode & 15) >= 9 && (d.opcode & 1) : d.prefix >= 2;
  const size_t bytes = (fused ? d.wide : d.prefix & 1) ? 8 : 4;
  const int count = scalar ? 1 : int((d.is_long ? 32 : 16) / bytes);
  names_all = fused || d.opcode == 0x51;
  for (int i = 0; i < count; i++) {
    double last = d.memory ? element(d.memory, i, bytes) : element(state, d.rm, i, bytes);
    double x = element(state, d.second, i, bytes);
    if (fused) {
      const int order = d.opcode >> 4, kind = d.opcode & 15;
      const double first = element(state, d.reg, i, bytes);
      double a = order == 0xa ? x : order == 0x9 ? first : x;
      double b = order == 0xa ? first : last;
      double c = order == 0xa ? last : order == 0x9 ? x : first;
      const bool alternates = kind == 6 || kind == 7;
      const bool less = alternates ? (kind == 6) == (i % 2 == 0) : kind & 2;
      if (kind >= 12) a = -a;
      if (less) c = -c;
      if (std::isnan(std::fma(a, b, c)) && !std::isnan(a) && !std::isnan(b) && !std::isnan(c)) {
        if (std::isinf(a)) std::swap(a, b);
        return worded("fma(%g, %g, %g)", a, b, c);
      }
      continue;
    }
    if (std::isnan(last)) continue;
    if (d.opcode == 0x51) {
      if (last < 0) return worded("sqrt(%g)", last, 0, 0);
      continue;
    }
    if (std::isnan(x)) continue;
    const double result = d.opcode == 0x58   ? x + last
                          : d.opcode == 0x59 ? x * last
                          : d.opcode == 0x5c ? x - last
                                             : x / last;
    if (!std::isnan(result)) continue;
    // The compiler chooses the order of factors and summands; the text is always the same.
    if (d.opcode == 0x59 && std::isinf(x)) std::swap(x, last);
    if (d.opcode == 0x58 && x < last) std::swap(x, last);
    return worded(d.opcode == 0x58   ? "%g + %g"
                  : d.opcode == 0x59 ? "%g * %g"
                  : d.opcode == 0x5c ? "%g - %g"
                                     : "%g / %g",
                  x, last, 0);
  }
  return "";
}
#else
std::string made_nan_by(const void*, bool&) { return ""; }
#endif

}  // namespace emu
