#include "common/emulator/programs/inline_ptx/program.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "common/emulator/core/memory.h"
#include "common/emulator/core/vector_types.h"
#include "common/emulator/units/clock.h"
#include "common/emulator/units/cluster.h"

namespace emu {
namespace inline_ptx {
namespace {

// ---- special registers --------------------------------------------------------------------------
uint32_t lane_mask(const Lane& lane, bool below, bool same, bool above) {
  const uint32_t me = 1u << lane.lane;
  return (below ? me - 1 : 0) | (same ? me : 0) | (above ? ~(me - 1) & ~me : 0);
}

const std::map<std::string, Special>& special_registers() {
  using L = const Lane&;
  static const std::map<std::string, Special> table = {
      {"tid.x", [](L l) -> uint64_t { return l.thread_idx.x; }},
      {"tid.y", [](L l) -> uint64_t { return l.thread_idx.y; }},
      {"tid.z", [](L l) -> uint64_t { return l.thread_idx.z; }},
      {"ntid.x", [](L l) -> uint64_t { return l.cta->block_dim.x; }},
      {"ntid.y", [](L l) -> uint64_t { return l.cta->block_dim.y; }},
      {"ntid.z", [](L l) -> uint64_t { return l.cta->block_dim.z; }},
      {"ctaid.x", [](L l) -> uint64_t { return l.cta->block_idx.x; }},
      {"ctaid.y", [](L l) -> uint64_t { return l.cta->block_idx.y; }},
      {"ctaid.z", [](L l) -> uint64_t { return l.cta->block_idx.z; }},
      {"nctaid.x", [](L l) -> uint64_t { return l.cta->grid_dim.x; }},
      {"nctaid.y", [](L l) -> uint64_t { return l.cta->grid_dim.y; }},
      {"nctaid.z", [](L l) -> uint64_t { return l.cta->grid_dim.z; }},
      {"laneid", [](L l) -> uint64_t { return uint64_t(l.lane); }},
      {"warpid", [](L l) -> uint64_t { return uint64_t(l.warp->index); }},
      {"nwarpid", [](L l) -> uint64_t { return l.cta->warps.size(); }},
      {"lanemask_eq", [](L l) -> uint64_t { return lane_mask(l, false, true, false); }},
      {"lanemask_lt", [](L l) -> uint64_t { return lane_mask(l, true, false, false); }},
      {"lanemask_le", [](L l) -> uint64_t { return lane_mask(l, true, true, false); }},
      {"lanemask_gt", [](L l) -> uint64_t { return lane_mask(l, false, false, true); }},
      {"lanemask_ge", [](L l) -> uint64_t { return lane_mask(l, false, true, true); }},
      {"cluster_ctarank", [](L) -> uint64_t { return uint64_t(cluster_rank()); }},
      {"cluster_nctarank", [](L) -> uint64_t { return uint64_t(cluster_size()); }},
      // Clusters have CTAs along x alone.
      {"cluster_ctaid.x", [](L) -> uint64_t { return uint64_t(cluster_rank()); }},
      {"cluster_ctaid.y", [](L) -> uint64_t { return 0; }},
      {"cluster_ctaid.z", [](L) -> uint64_t { return 0; }},
      {"cluster_nctaid.x", [](L) -> uint64_t { return uint64_t(cluster_size()); }},
      {"cluster_nctaid.y", [](L) -> uint64_t { return 1; }},
      {"cluster_nctaid.z", [](L) -> uint64_t { return 1; }},
      {"clusterid.x",
       [](L l) -> uint64_t { return l.cta->block_idx.x / unsigned(cluster_size()); }},
      {"clusterid.y", [](L l) -> uint64_t { return l.cta->block_idx.y; }},
      {"clusterid.z", [](L l) -> uint64_t { return l.cta->block_idx.z; }},
      {"nclusterid.x",
       [](L l) -> uint64_t { return l.cta->grid_dim.x / unsigned(cluster_size()); }},
      {"nclusterid.y", [](L l) -> uint64_t { return l.cta->grid_dim.y; }},
      {"nclusterid.z", [](L l) -> uint64_t { return l.cta->grid_dim.z; }},
      {"clock", [](L) -> uint64_t { return uint32_t(asked_time("%clock")); }},
      {"clock64", [](L) -> uint64_t { return uint64_t(asked_time("%clock64")); }},
      {"globaltimer", [](L) -> uint64_t { return uint64_t(asked_time("%globaltimer")); }},
      {"dynamic_smem_size",
       [](L l) -> uint64_t { return l.cta->shared_bytes - l.cta->static_bytes; }},
  };
  return table;
}

const std::map<std::string, Make>& instructions() {
  static const std::map<std::string, Make> table = [] {
    std::map<std::string, Make> all;
    add_numbers(all);
    add_memory(all);
    add_warps(all);
    return all;
  }();
  return table;
}

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$'; }

}  // namespace

// ---- the text -----------------------------------------------------------------------------------
class Reader {
 public:
  Reader(Program& program, const char* text, std::initializer_list<AsmOperand> operands)
      : program_(program), instruction_(program.refused_name_), operands_(operands) {
    for (size_t i = 0; i < operands.size(); i++) {
      const AsmOperand& operand = operands.begin()[i];
      if (!operand.place) continue;
      const char kind = operand.constraint[std::string_view(operand.constraint).size() - 1];
      const int bytes = operand.bytes == 0 ? 8 : operand.bytes;
      if (kind == 'f'                  ? bytes != 4
          : kind == 'd' || kind == 'l' ? bytes != 8
          : kind == 'r'                ? bytes > 4
                                       : kind == 'h' && bytes > 2) {
        throw Unknown("operand %" + std::to_string(places_.size()) + " has " +
                      std::to_string(bytes) + " bytes, which its constraint \"" +
                      operand.constraint + "\" is not for");
      }
      places_.push_back(int(i));
    }
    text_ = expanded(text);
  }

  void read() {
    scopes_.emplace_back();
    while (skip_space(), at_ < text_.size()) statement();
    for (auto& [step, label] : branches_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) throw Unknown("there is no label " + label);
      *step = found->second;
    }
  }

 private:
  // %0 stays, %% becomes %, a constant text takes its operand's place; without comments.
  std::string expanded(const std::string& text) const {
    std::string result;
    for (size_t i = 0; i < text.size(); i++) {
      if (text.compare(i, 2, "//") == 0) {
        while (i < text.size() && text[i] != '\n') i++;
        result += '\n';
      } else if (text.compare(i, 2, "/*") == 0) {
        i = std::min(text.find("*/", i + 2), text.size()) + 1;
      } else if (text.compare(i, 2, "%%") == 0) {
        result += '%';
        i++;
      } else if (text.compare(i, 2, "%=") == 0) {  // a number that no other asm() has
        i++;
      } else if (text[i] == '%' && i + 1 < text.size() && std::isdigit(text[i + 1])) {
        size_t end = i + 1;
        while (end < text.size() && std::isdigit(text[end])) end++;
        const size_t number = size_t(std::stoul(text.substr(i + 1, end - i - 1)));
        if (number >= places_.size()) {
          throw Unknown("there is no operand %" + std::to_string(number));
        }
        const AsmOperand& operand = operands_.begin()[places_[number]];
        if (std::string_view(operand.constraint) == "C") {
          result += static_cast<const char*>(operand.place);
        } else {
          result += "%" + std::to_string(number);
        }
        i = end - 1;
      } else {
        result += text[i];
      }
    }
    return result;
  }

  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) at_++;
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    at_++;
    return true;
  }
  void expect(char c) {
    if (!take(c)) {
      throw Unknown(std::string("the emulator expects '") + c + "' before \"" +
                    text_.substr(at_, 20) + '"');
    }
  }
  // Letters, digits, dots and ::, as instructions and special registers have them.
  std::string word() {
    skip_space();
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (is_name(text_[at_]) || text_[at_] == '.' || text_.compare(at_, 2, "::") == 0)) {
      at_ += text_[at_] == ':' ? 2 : 1;
    }
    return text_.substr(begin, at_ - begin);
  }

  void statement() {
    if (take(';')) return;
    if (take('{')) {
      scopes_.emplace_back();
      return;
    }
    if (take('}')) {
      if (scopes_.size() > 1) scopes_.pop_back();
      return;
    }
    Arg predicate;
    if (take('@')) predicate = operand();
    instruction_ = word();
    if (predicate.kind == Arg::Kind::kSink && take(':')) {
      if (!labels_.emplace(instruction_, int(program_.steps_.size())).second) {
        throw Unknown("the label " + instruction_ + " is there twice");
      }
      return;
    }
    if (instruction_.empty()) {
      throw Unknown("the emulator cannot read \"" + text_.substr(at_, 20) + '"');
    }
    if (instruction_[0] == '.') {
      declaration();
      return;
    }
    std::vector<Arg> args;
    while (peek() != ';' && peek() != '\0') {
      args.push_back(operand());
      if (take('|')) {
        Arg both;
        both.kind = Arg::Kind::kList;
        both.parts = {args.back(), operand()};
        args.back() = both;
      }
      if (!take(',')) break;
    }
    if (peek() != '\0') expect(';');
    add(predicate, std::move(args));
  }

  void declaration() {
    if (instruction_ == ".pragma") {
      while (peek() != ';' && peek() != '\0') at_++;
    } else if (instruction_ == ".reg") {
      const std::string type = word();
      const bool wide = type == ".b128", predicate = type == ".pred";
      do {
        take('%');  // which a name may begin with
        const std::string name = word();
        if (name.empty()) throw Unknown("the emulator cannot read this declaration");
        int count = 1;
        const bool many = take('<');
        if (many) {
          count = std::atoi(word().c_str());
          expect('>');
        }
        for (int i = 0; i < count; i++) {
          if (program_.registers_ + 2 > Frame::kRegisters)
            throw Unknown("the emulator has 128 registers for one asm()");
          scopes_.back()[many ? name + std::to_string(i) : name] = {program_.registers_++, wide,
                                                                    predicate};
          if (wide) program_.registers_++;
        }
      } while (take(','));
    } else {
      throw Unknown("of PTX's directives the emulator knows .reg alone");
    }
    take(';');
  }

  Arg operand() {
    Arg arg;
    if (take('!')) {
      arg = operand();
      arg.negated = !arg.negated;
      return arg;
    }
    if (take('[')) {
      arg.parts.push_back(operand());
      arg.kind = Arg::Kind::kAddress;
      const bool plus = take('+');
      if (plus || peek() == '-') {
        Arg more = operand();
        const bool constant =
            more.kind == Arg::Kind::kOperand && operands_.begin()[more.index].constraint[0] == 'n';
        if (more.kind != Arg::Kind::kImmediate && !constant) {
          throw Unknown("an address is a register, and perhaps a constant");
        }
        arg.parts.push_back(std::move(more));
      }
      if (take(',')) {  // a tensor map, and coordinates
        if (arg.parts.size() > 1) throw Unknown("the address of a tensor map is a register");
        arg.kind = Arg::Kind::kList;
        do arg.parts.push_back(operand());
        while (take(','));
      }
      expect(']');
      return arg;
    }
    if (take('{')) {
      arg.kind = Arg::Kind::kList;
      do arg.parts.push_back(operand());
      while (take(','));
      expect('}');
      return arg;
    }
    if (std::isdigit(static_cast<unsigned char>(peek())) || peek() == '-' || peek() == '.')
      return number();
    const bool percent = take('%');
    if (percent && std::isdigit(static_cast<unsigned char>(peek()))) {
      arg.kind = Arg::Kind::kOperand;
      arg.index = places_[size_t(std::atoi(word().c_str()))];
      return arg;
    }
    const std::string name = word();
    if (name == "_") return arg;
    if (name.empty()) throw Unknown("the emulator cannot read \"" + text_.substr(at_, 20) + '"');
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto found = scope->find(name); found != scope->end()) {
        arg.kind = Arg::Kind::kRegister;
        arg.index = found->second.number;
        arg.wide = found->second.wide;
        arg.is_predicate = found->second.predicate;
        return arg;
      }
    }
    if (name == "WARP_SZ") {
      arg.kind = Arg::Kind::kImmediate;
      arg.bits = kWarpSize;
      return arg;
    }
    if (const auto found = special_registers().find(name); found != special_registers().end()) {
      arg.kind = Arg::Kind::kSpecial;
      arg.special = found->second;
      return arg;
    }
    if (percent || instruction_.substr(0, 3) != "bra") {
      throw Unknown("the emulator has no register " + (percent ? "%" + name : name));
    }
    arg.kind = Arg::Kind::kLabel;
    arg.name = name;
    return arg;
  }

  Arg number() {
    Arg arg;
    arg.kind = Arg::Kind::kImmediate;
    const bool minus = take('-');
    const char* const begin = text_.c_str() + at_;
    char* end = nullptr;
    if (begin[0] == '0' &&
        (begin[1] == 'f' || begin[1] == 'F' || begin[1] == 'd' || begin[1] == 'D')) {
      arg.bits = std::strtoull(begin + 2, &end, 16);
      if (std::tolower(begin[1]) == 'd') {
        arg.kind = Arg::Kind::kDecimal;
        arg.decimal = std::bit_cast<double>(arg.bits) * (minus ? -1 : 1);
      } else if (minus) {
        arg.bits ^= uint64_t(1) << 31;
      }
    } else {
      arg.bits = std::strtoull(begin, &end, 0);
      if (*end == '.' || ((*end == 'e' || *end == 'E') && end != begin)) {
        arg.kind = Arg::Kind::kDecimal;
        arg.decimal = std::strtod(begin, &end) * (minus ? -1 : 1);
      } else if (minus) {
        arg.bits = -arg.bits;
      }
      if (*end == 'U') end++;
    }
    at_ += size_t(end - begin);
    return arg;
  }

  void add(const Arg& predicate, std::vector<Arg> args) {
    Instruction instruction(instruction_, std::move(args));
    Step step;
    if (instruction.word() == "bra") {
      instruction.take("uni");
      instruction.expect_args(1);
      instruction.expect_end();
      const auto target = std::make_shared<int>(0);
      branches_.emplace_back(target, instruction.arg(0).name);
      step = [target](Frame& frame) { frame.next = *target; };
    } else {
      const auto found = instructions().find(instruction.word());
      if (found == instructions().end()) instruction.unknown();
      step = found->second(instruction);
      instruction.expect_end();
    }
    program_.steps_.push_back({std::move(step), predicate});
  }

  Program& program_;
  std::string& instruction_;  // the one that is read
  const std::initializer_list<AsmOperand> operands_;
  std::vector<int> places_;  // of %0, %1 ... among the operands
  std::string text_;
  size_t at_ = 0;
  struct Register {
    int number;
    bool wide, predicate;
  };
  std::vector<std::map<std::string, Register>> scopes_;
  std::map<std::string, int> labels_;
  std::vector<std::pair<std::shared_ptr<int>, std::string>> branches_;
};

namespace {
std::atomic<bool> any_program = false;
}

Program::Program(const char* text, std::initializer_list<AsmOperand> operands) {
  any_program = true;
  refused_name_ = "asm()";
  try {
    Reader reader(*this, text, operands);
    reader.read();
  } catch (const Unknown& problem) {
    refused_ = problem.what();
  }
}

void Program::run(Frame& frame) const {
  if (!refused_.empty()) misuse(refused_name_.c_str(), frame.where, refused_);
  memset(frame.registers, 0, size_t(registers_) * sizeof frame.registers[0]);
  while (size_t(frame.next) < steps_.size()) {
    const Guarded& guarded = steps_[size_t(frame.next++)];
    if (guarded.predicate.kind == Arg::Kind::kSink || frame.predicate(guarded.predicate)) {
      guarded.step(frame);
    }
  }
}

// ---- operands -----------------------------------------------------------------------------------
uint64_t Frame::get(const Arg& arg) const {
  switch (arg.kind) {
    case Arg::Kind::kOperand: {
      const AsmOperand& operand = operands[arg.index];
      if (operand.constraint[0] == '=' && arg.index < 256 &&
          !(written[arg.index / 64] >> arg.index % 64 & 1)) {
        misuse("asm()", where,
               "reads %" + std::to_string(arg.index) + " before it has written it: an output \"" +
                   operand.constraint + "\" begins as anything, one with '+' as its variable");
      }
      if (operand.bytes == 0) return uintptr_t(operand.place);
      uint64_t bits = 0;
      memcpy(&bits, operand.place, operand.bytes);
      if (operand.is_signed && operand.bytes < 8) {
        const int unused = 64 - 8 * operand.bytes;
        bits = uint64_t(int64_t(bits << unused) >> unused);
      }
      return bits;
    }
    case Arg::Kind::kRegister:
      return registers[arg.index];
    case Arg::Kind::kSpecial:
      return arg.special(*current_lane);
    case Arg::Kind::kDecimal:
      return std::bit_cast<uint64_t>(arg.decimal);
    default:
      return arg.bits;
  }
}

void Frame::set(const Arg& arg, uint64_t bits) {
  if (arg.kind == Arg::Kind::kRegister) {
    registers[arg.index] = bits;
  } else if (arg.kind == Arg::Kind::kOperand) {
    const AsmOperand& operand = operands[arg.index];
    if (arg.index < 256) written[arg.index / 64] |= uint64_t(1) << arg.index % 64;
    memcpy(const_cast<void*>(operand.place), &bits, operand.bytes);
  }
}

// ---- an instruction -----------------------------------------------------------------------------
namespace {

bool read_type(std::string_view word, Type* type) {
  static const std::map<std::string_view, Type> table = {
      {"pred", {'p', 1}},       {"b8", {'b', 8}},     {"b16", {'b', 16}},  {"b32", {'b', 32}},
      {"b64", {'b', 64}},       {"b128", {'b', 128}}, {"u8", {'u', 8}},    {"u16", {'u', 16}},
      {"u32", {'u', 32}},       {"u64", {'u', 64}},   {"s8", {'s', 8}},    {"s16", {'s', 16}},
      {"s32", {'s', 32}},       {"s64", {'s', 64}},   {"f16", {'f', 16}},  {"f32", {'f', 32}},
      {"f64", {'f', 64}},       {"bf16", {'x', 16}},  {"tf32", {'t', 32}}, {"f16x2", {'f', 16, 2}},
      {"bf16x2", {'x', 16, 2}}, {"e4m3", {'4', 8}},   {"e5m2", {'5', 8}},  {"e4m3x2", {'4', 8, 2}},
      {"e5m2x2", {'5', 8, 2}}};
  const auto found = table.find(word);
  if (found == table.end()) return false;
  *type = found->second;
  return true;
}

}  // namespace

Instruction::Instruction(std::string name, std::vector<Arg> args)
    : name_(std::move(name)), args_(std::move(args)) {
  size_t begin = 0;
  for (size_t i = 0; i <= name_.size(); i++) {
    if (i < name_.size() && name_[i] != '.') continue;
    words_.push_back(name_.substr(begin, i - begin));
    begin = i + 1;
  }
}

bool Instruction::take(std::string_view modifier) {
  for (size_t i = 1; i < words_.size(); i++) {
    if (words_[i] != modifier) continue;
    words_.erase(words_.begin() + std::ptrdiff_t(i));
    return true;
  }
  return false;
}

std::string Instruction::take_any(std::initializer_list<std::string_view> modifiers) {
  for (const std::string_view modifier : modifiers) {
    if (take(modifier)) return std::string(modifier);
  }
  return "";
}

void Instruction::expect(std::string_view modifier) {
  if (!take(modifier)) unknown("the emulator knows it with ." + std::string(modifier) + " alone");
}

void Instruction::take_beginning_with(std::string_view beginning) {
  for (size_t i = 1; i < words_.size();) {
    if (words_[i].substr(0, beginning.size()) == beginning) {
      words_.erase(words_.begin() + std::ptrdiff_t(i));
    } else {
      i++;
    }
  }
}

bool Instruction::has_type() const {
  Type type;
  for (size_t i = 1; i < words_.size(); i++) {
    if (read_type(words_[i], &type)) return true;
  }
  return false;
}

void Instruction::without_type() const {
  for (const std::string& word : words_) {
    const std::string_view type(word);
    for (const char* const small : {"e2m3", "e3m2", "e2m1"}) {
      if (type != small) continue;
      unknown("types smaller than FP8 are not in the emulator, and ." + word +
              " is one: e4m3 and e5m2 are");
    }
  }
  unknown("it has no type");
}

Type Instruction::type() {
  Type type;
  for (size_t i = words_.size(); i-- > 1;) {
    if (!read_type(words_[i], &type)) continue;
    words_.erase(words_.begin() + std::ptrdiff_t(i));
    return type;
  }
  without_type();
}

Type Instruction::first_type() {
  Type type;
  for (size_t i = 1; i < words_.size(); i++) {
    if (!read_type(words_[i], &type)) continue;
    words_.erase(words_.begin() + std::ptrdiff_t(i));
    return type;
  }
  without_type();
}

const Arg& Instruction::arg(size_t i) const {
  if (i >= args_.size()) unknown("it needs more operands");
  return args_[i];
}

void Instruction::expect_args(size_t least, size_t most) const {
  if (args_.size() < least || args_.size() > most) {
    unknown("it has " + std::to_string(args_.size()) + " operands, and needs " +
            std::to_string(args_.size() < least ? least : most));
  }
}

void Instruction::expect_end() const {
  if (words_.size() > 1) unknown("the emulator has it without ." + words_[1] + " alone");
}

void Instruction::unknown(const std::string& sentence) const {
  throw Unknown(sentence.empty() ? "the emulator does not have this instruction; "
                                   "docs/emulator/what_is_there.md says which there are"
                                 : sentence);
}

std::vector<Arg> Instruction::list(size_t i) const {
  const Arg& all = arg(i);
  return all.kind == Arg::Kind::kList ? all.parts : std::vector<Arg>{all};
}

std::vector<Arg> Instruction::halves(size_t i) const {
  const Arg& whole = arg(i);
  if (whole.kind == Arg::Kind::kList && whole.parts.size() == 2) return whole.parts;
  if (!whole.wide)
    unknown("the emulator has 128 bits in a register of .b128 or in a list of two alone");
  std::vector<Arg> both{whole, whole};
  both[1].index++;
  return both;
}

const char* Instruction::operation() const {
  static std::mutex mutex;
  static std::set<std::string> names;
  const std::lock_guard lock(mutex);
  return names.insert(name_).first->c_str();
}

// ---- addresses ----------------------------------------------------------------------------------
uint64_t cluster_address(int cta, uint32_t address) { return uint64_t(cta + 1) << 24 | address; }

ClusterAddress from_cluster_address(uint64_t bits) {
  const int cta = int(bits >> 24) - 1;
  return {cta == current_lane->cta->rank ? -1 : cta, uint32_t(bits & 0xffffff)};
}

Space take_space(Instruction& instruction) {
  if (instruction.take("shared") || instruction.take("shared::cta")) return Space::kShared;
  if (instruction.take("shared::cluster")) return Space::kCluster;
  instruction.take_any({"global", "const", "local", "param", "param::entry"});
  return Space::kGeneric;
}

void expect_global(const void* place, const char* operation, SourceLocation where) {
  if (!is_shared(place) && !is_local(place)) return;
  misuse(operation, where,
         std::string("the pointer leads into ") + (is_shared(place) ? "shared" : "local") +
             " memory, where .global finds nothing: leave .global out, or say which memory it is");
}

uint8_t* pointer(Space space, uint64_t address, size_t bytes, const char* operation,
                 SourceLocation where) {
  if (space == Space::kGeneric) {
    if (address % bytes != 0) {
      misuse(operation, where,
             "the address is not a multiple of " + std::to_string(bytes) + " bytes");
    }
    return reinterpret_cast<uint8_t*>(address);
  }
  if (address >> 32) {
    misuse(operation, where,
           "this is no address of shared memory, but a pointer: it must go through cvta.to.shared "
           "or __cvta_generic_to_shared() first");
  }
  int cta = -1;
  if (space == Space::kCluster) {
    const ClusterAddress place = from_cluster_address(address);
    cta = place.cta;
    address = place.address;
  }
  uint8_t* const here = shared_pointer(uint32_t(address), bytes, operation, where);
  return cta < 0 ? here : reinterpret_cast<uint8_t*>(map_to_cta(uintptr_t(here), cta, where));
}

}  // namespace inline_ptx

__attribute__((noinline)) void InlinePtx::run(SourceLocation where, const char* text,
                                              std::initializer_list<AsmOperand> operands) {
  const inline_ptx::Program* program = program_.load(std::memory_order_acquire);
  if (!program) {
    const auto* const made = new inline_ptx::Program(text, operands);  // until the program ends
    if (program_.compare_exchange_strong(program, made)) {
      program = made;
    } else {
      delete made;
    }
  }
  inline_ptx::Frame frame;  // its registers are set when they are used
  frame.operands = operands.begin();
  frame.where = where;
  frame.program_counter = uintptr_t(__builtin_return_address(0));
  program->run(frame);
}

std::string in_words_of_ptx(std::string report) {
  const auto is_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  if (!inline_ptx::any_program) return report;
  constexpr const char* kNames[][2] = {
      {"fence_proxy_async()", "fence.proxy.async"},
      {"fence_mbarrier_init()", "fence.mbarrier_init"},
      {"cp_async_bulk_wait_read", "cp.async.bulk.wait_group.read"},
      {"cp_async_bulk_wait", "cp.async.bulk.wait_group"},
      {"cp_async_bulk_commit", "cp.async.bulk.commit_group"},
      {"cp_async_wait", "cp.async.wait_group"},
      {"cp_async_commit", "cp.async.commit_group"},
      {"mbarrier_wait", "mbarrier.try_wait"},
      {"mbarrier_arrive", "mbarrier.arrive"},
      {"mbarrier_init", "mbarrier.init"},
      {"mbarrier_inval", "mbarrier.inval"},
      {"wgmma_commit()", "wgmma.commit_group"},
      {"wgmma_fence()", "wgmma.fence"},
      {"wgmma_fence", "wgmma.fence"},
      {"wgmma_wait", "wgmma.wait_group"},
      {"cluster_arrive", "barrier.cluster.arrive"},
      {"cluster_wait", "barrier.cluster.wait"},
      {"the SharedStorage of", "the CTA's"},
  };
  for (const auto& [name, instruction] : kNames) {
    for (size_t at = 0; (at = report.find(name, at)) != std::string::npos;) {
      const size_t end = at + std::string_view(name).size();
      const auto own = [&](size_t i) {
        return i < report.size() && (is_name(report[i]) || report[i] == '/');
      };
      const bool file = report.compare(end, 3, ".cu") == 0 || report.compare(end, 2, ".h") == 0;
      if (file || own(at - 1) || own(end)) {  // a part of a name of the program's
        at = end;
        continue;
      }
      report.replace(at, end - at, instruction);
      at += std::string_view(instruction).size();
    }
  }
  return report;
}

void* shared_as_pointer(uint64_t address, SourceLocation where) {
  return inline_ptx::pointer(inline_ptx::Space::kShared, address, 1, "__cvta_shared_to_generic()",
                             where);
}
bool is_shared(const void* pointer) {
  for (const Cta& cta : current_lane->cta->cluster->ctas) {
    if (uintptr_t(pointer) - uintptr_t(cta.shared) < cta.shared_bytes) return true;
  }
  return false;
}
bool is_shared_of_cta(const void* pointer) {
  const Cta& cta = *current_lane->cta;
  return uintptr_t(pointer) - uintptr_t(cta.shared) < cta.shared_bytes;
}
bool is_local(const void* pointer) {
  return uintptr_t(pointer) >= current_lane->stack_low &&
         uintptr_t(pointer) < current_lane->stack_high;
}

}  // namespace emu
