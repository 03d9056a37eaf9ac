// What the threads of a warp, of a CTA or of a cluster do together: matrices, shuffles, votes,
// barriers, fences. PTX ISA, "Warp Level Matrix Instructions", "Asynchronous Warpgroup Level Matrix
// Instructions", "Parallel Synchronization and Communication Instructions".
#include <algorithm>
#include <optional>

#include "common/emulator/core/float16.h"
#include "common/emulator/core/memory.h"
#include "common/emulator/programs/inline_ptx/program.h"
#include "common/emulator/units/barrier.h"
#include "common/emulator/units/cluster.h"
#include "common/emulator/units/matrix.h"
#include "common/emulator/units/mbarrier.h"
#include "common/emulator/units/setmaxnreg.h"
#include "common/emulator/units/warp.h"
#include "common/emulator/units/wgmma.h"
#include "common/layout/wgmma.h"

namespace emu::inline_ptx {
namespace {

// ---- matrices -----------------------------------------------------------------------------------
Step move_matrices(Instruction& instruction, bool loads) {
  instruction.expect("sync");
  instruction.expect("aligned");
  instruction.expect("m8n8");
  const std::string number = instruction.take_any({"x1", "x2", "x4"});
  if (number.empty()) instruction.unknown("it needs .x1, .x2 or .x4");
  const bool transpose = instruction.take("trans");
  instruction.expect("b16");
  const Space space = take_space(instruction);
  const int count = number[1] - '0';
  instruction.expect_args(2);
  const std::vector<Arg> registers = instruction.list(loads ? 0 : 1);
  const Arg at = instruction.arg(loads ? 1 : 0);
  if (int(registers.size()) != count) instruction.unknown("it needs as many registers as matrices");
  return [=](Frame& frame) {
    uint32_t values[4] = {};
    const uint64_t address = frame.address(at);
    // Lanes that give no row may have any address.
    const bool is_generic = space == Space::kGeneric && current_lane->lane < 8 * count;
    const uint32_t shared =
        is_generic ? shared_address(reinterpret_cast<const void*>(address)) : uint32_t(address);
    if (loads) {
      load_matrices(values, count, transpose, shared, frame.where);
      for (size_t i = 0; i < registers.size(); i++) frame.set(registers[i], uint64_t(values[i]));
    } else {
      for (size_t i = 0; i < registers.size(); i++) values[i] = frame.get<uint32_t>(registers[i]);
      store_matrices(values, count, transpose, shared, frame.where);
    }
  };
}

// The elements of A and B; nothing: a product that the emulator does not have. Those of FP8 may
// differ.
struct Factors {
  Element a, b;
};
std::optional<Element> element_of(Type type) {
  if (type == Type{'f', 16}) return Element::kFp16;
  if (type == Type{'x', 16}) return Element::kBf16;
  if (type == Type{'4', 8}) return Element::kE4m3;
  if (type == Type{'5', 8}) return Element::kE5m2;
  return {};
}
std::optional<Factors> factors_of(Type a, Type b, bool fp8) {
  const std::optional<Element> x = element_of(a), y = element_of(b);
  if (!x || !y || is_fp8(*x) != fp8 || is_fp8(*y) != fp8 || (!fp8 && *x != *y)) return {};
  return Factors{*x, *y};
}

Step multiply_matrices(Instruction& instruction) {  // mma
  instruction.expect("sync");
  instruction.expect("aligned");
  const std::string shape = instruction.take_any({"m16n8k16", "m16n8k8", "m16n8k32"});
  const Type d_type = instruction.first_type(), a_type = instruction.first_type(),
             b_type = instruction.first_type(), c_type = instruction.first_type();
  const bool fp8 = shape == "m16n8k32";
  const std::optional<Factors> factors = factors_of(a_type, b_type, fp8);
  const bool half_sums = d_type == Type{'f', 16} && a_type == d_type;
  if (shape.empty() || !factors || d_type != c_type || !(half_sums || d_type == Type{'f', 32})) {
    instruction.unknown(
        "of mma the emulator knows m16n8k8 and m16n8k16 with operands of f16 and bf16, and "
        "m16n8k32 with operands of e4m3 and e5m2 and sums of f32, alone");
  }
  instruction.expect("row");
  instruction.expect("col");
  const int depth = fp8 ? 32 : shape == "m16n8k16" ? 16 : 8;
  instruction.expect_args(4);
  const std::vector<Arg> d = instruction.list(0), a = instruction.list(1), b = instruction.list(2),
                         c = instruction.list(3);
  const size_t sums = half_sums ? 2 : 4;
  const size_t registers = depth == 8 ? 2 : 4;  // of A, and twice those of B
  if (d.size() != sums || a.size() != registers || b.size() != registers / 2 || c.size() != sums) {
    instruction.unknown("its fragments have other numbers of registers");
  }
  return [=](Frame& frame) {
    float sum[4];
    uint32_t a_registers[4] = {}, b_registers[2] = {};
    for (size_t i = 0; i < 4; i++) {
      sum[i] = half_sums ? fp16_to_float(uint16_t(frame.get(c[i / 2]) >> (16 * (i % 2))))
                         : frame.get<float>(c[i]);
    }
    for (size_t i = 0; i < a.size(); i++) a_registers[i] = frame.get<uint32_t>(a[i]);
    for (size_t i = 0; i < b.size(); i++) b_registers[i] = frame.get<uint32_t>(b[i]);
    if (fp8) {
      multiply_accumulate_fp8(sum, a_registers, b_registers, factors->a, factors->b, frame.where);
    } else {
      multiply_accumulate(sum, a_registers, b_registers, depth, factors->a, frame.where);
    }
    for (size_t i = 0; i < sums; i++) {
      if (half_sums) {
        frame.set(d[i], uint64_t(float_to_fp16(sum[2 * i])) |
                            uint64_t(float_to_fp16(sum[2 * i + 1])) << 16);
      } else {
        frame.set(d[i], sum[i]);
      }
    }
  };
}

// The registers of a wgmma, which are read and written later: neighbours in memory.
void* neighbours(const Frame& frame, const std::vector<Arg>& registers, const char* what) {
  const auto place = [&](size_t i) {
    const Arg& arg = registers[i];
    return arg.kind == Arg::Kind::kOperand
               ? static_cast<const uint8_t*>(frame.operands[arg.index].place)
               : nullptr;
  };
  for (size_t i = 0; i < registers.size(); i++) {
    const Arg& arg = registers[i];
    const bool gone = arg.kind == Arg::Kind::kOperand && frame.operands[arg.index].temporary;
    if (gone || !place(i) || place(i) != place(0) + 4 * i) {
      misuse("wgmma.mma_async", frame.where,
             std::string("the emulator needs its ") + what +
                 " as the elements of one array, in their order");
    }
  }
  return const_cast<uint8_t*>(place(0));
}

Step multiply_warpgroup(Instruction& instruction) {  // wgmma
  const char* const operation = instruction.operation();
  instruction.expect("sync");
  instruction.expect("aligned");
  if (Step step = instruction.without_operands("fence", wgmma_fence)) return step;
  if (Step step = instruction.without_operands("commit_group", wgmma_commit)) return step;
  const auto wait = [](int groups, SourceLocation where) {
    wgmma_wait(groups, where);
    name_done_registers();  // asm() cannot name them
  };
  if (Step step = instruction.of_groups("wait_group", wait)) return step;
  instruction.expect("mma_async");
  int columns = 0;
  bool fp8 = false;
  for (int n = 8; n <= 256 && !columns; n += 8) {
    const std::string shape = "m64n" + std::to_string(n);
    fp8 = instruction.take(shape + "k32");
    if (fp8 || instruction.take(shape + "k16")) columns = n;
  }
  const Type d_type = instruction.first_type(), a_type = instruction.first_type(),
             b_type = instruction.first_type();
  const std::optional<Factors> factors = factors_of(a_type, b_type, fp8);
  if (!columns || d_type != Type{'f', 32} || !factors) {
    instruction.unknown(
        "of wgmma the emulator knows m64nNk16 with operands of f16 and bf16, and m64nNk32 with "
        "operands of e4m3 and e5m2, with sums of f32 alone");
  }
  const std::vector<Arg> d = instruction.list(0), a = instruction.list(1);
  const bool rows = a.size() == 4;
  instruction.expect_args(fp8 ? 6 : rows ? 7 : 8);  // of FP8 both operands are K-major
  if (int(d.size()) != columns / 2) instruction.unknown("it needs N / 2 accumulators");
  const Arg b = instruction.arg(2), scale_d = instruction.arg(3), scale_a = instruction.arg(4),
            scale_b = instruction.arg(5), first = fp8 ? Arg{} : instruction.arg(6),
            second = fp8 || rows ? Arg{} : instruction.arg(7);
  return [=](Frame& frame) {
    if (frame.get<int32_t>(scale_a) != 1 || frame.get<int32_t>(scale_b) != 1) {
      misuse(operation, frame.where, "the emulator does not negate its operands");
    }
    const auto major = [&](const Arg& arg) {
      return !fp8 && frame.get(arg) & 1 ? layout::Major::kMN : layout::Major::kK;
    };
    const WgmmaKind kind{columns, factors->a, factors->b, rows ? layout::Major::kK : major(first),
                         major(rows ? first : second)};
    auto* const sums = static_cast<float*>(neighbours(frame, d, "accumulators"));
    const auto* const registers =
        rows ? static_cast<const uint32_t*>(neighbours(frame, a, "registers of A")) : nullptr;
    wgmma_issue(
        kind, {sums, registers, rows ? 0 : frame.get(a[0]), frame.get(b), frame.predicate(scale_d)},
        frame.where);
  };
}

// ---- shuffles and votes -------------------------------------------------------------------------
Step exchange(Instruction& instruction) {  // shfl.sync
  const char* const operation = instruction.operation();
  instruction.expect("sync");
  const std::string mode = instruction.take_any({"up", "down", "bfly", "idx"});
  instruction.expect("b32");
  instruction.expect_args(5);
  if (mode.empty()) instruction.unknown();
  const std::vector<Arg> to = instruction.list(0);
  const Arg a = instruction.arg(1), b = instruction.arg(2), c = instruction.arg(3),
            mask = instruction.arg(4);
  const ShuffleMode how = mode == "up"     ? ShuffleMode::kUp
                          : mode == "down" ? ShuffleMode::kDown
                          : mode == "bfly" ? ShuffleMode::kXor
                                           : ShuffleMode::kIndex;
  return [=](Frame& frame) {
    const int selector = int(frame.get(b) & 31);
    const uint32_t segment = frame.get<uint32_t>(c) >> 8 & 31, clamp = frame.get<uint32_t>(c) & 31;
    if (mode == "up" ? (clamp & ~segment) != 0 : (clamp | segment) != 31) {
      misuse(operation, frame.where, "the emulator has the clamp 0 with .up, and 31 otherwise");
    }
    const int width = 32 - int(segment);
    const int lane = current_lane->lane, begin = lane / width * width;
    const int from = mode == "up"     ? lane - selector
                     : mode == "down" ? lane + selector
                     : mode == "bfly" ? lane ^ selector
                                      : begin + selector % width;
    const uint32_t value = shuffle(how, frame.get<uint32_t>(mask), frame.get<uint32_t>(a), selector,
                                   width, frame.where);
    frame.set(to[0], uint64_t(value));
    if (to.size() > 1)
      frame.set(to[1], uint64_t((mode == "bfly" || from >= begin) && from < begin + width));
  };
}

Step vote(Instruction& instruction) {
  const char* const operation = instruction.operation();
  instruction.expect("sync");
  const std::string mode = instruction.take_any({"all", "any", "uni", "ballot"});
  instruction.type();
  instruction.expect_args(3);
  const Arg d = instruction.arg(0), a = instruction.arg(1), mask = instruction.arg(2);
  return [=](Frame& frame) {
    const auto lanes = frame.get<uint32_t>(mask);
    const uint32_t votes = ballot(lanes, frame.predicate(a), operation, frame.where);
    const uint32_t all = lanes & current_lane->warp->live;
    const uint32_t result = mode == "ballot" ? votes
                            : mode == "any"  ? votes != 0
                            : mode == "all"  ? votes == all
                                             : votes == 0 || votes == all;
    frame.set(d, uint64_t(result));
  };
}

Step match(Instruction& instruction) {
  const char* const operation = instruction.operation();
  const bool any = instruction.take("any");
  if (!any) instruction.expect("all");
  instruction.expect("sync");
  const Type type = instruction.type();
  instruction.expect_args(3);
  const std::vector<Arg> to = instruction.list(0);
  const Arg a = instruction.arg(1), mask = instruction.arg(2);
  return [=](Frame& frame) {
    const uint64_t mine = type.bits == 32 ? frame.get<uint32_t>(a) : frame.get(a);
    const Gathered all = gather(frame.get<uint32_t>(mask), mine, operation, frame.where);
    const uint32_t same = all.equal_to(mine);
    const bool whole = same == all.lanes;
    frame.set(to[0], uint64_t(any || whole ? same : 0));
    if (to.size() > 1) frame.set(to[1], uint64_t(whole));
  };
}

Step reduction(Instruction& instruction) {  // redux
  const char* const operation = instruction.operation();
  instruction.expect("sync");
  const std::string what = instruction.take_any({"add", "min", "max", "and", "or", "xor"});
  const Type type = instruction.type();
  instruction.expect_args(3);
  if (what.empty() || type.bits != 32 || type.kind == 'f') instruction.unknown();
  const Arg d = instruction.arg(0), a = instruction.arg(1), mask = instruction.arg(2);
  return [=](Frame& frame) {
    const auto reduced = [&](auto value) {
      using T = decltype(value);
      return reduce(frame.get<uint32_t>(mask), value, operation, frame.where, [&](T x, T y) -> T {
        if (what == "add") return T(uint32_t(x) + uint32_t(y));
        if (what == "and") return x & y;
        if (what == "or") return x | y;
        if (what == "xor") return x ^ y;
        return what == "min" ? std::min(x, y) : std::max(x, y);
      });
    };
    frame.set(d, type.kind == 's' ? uint64_t(uint32_t(reduced(frame.get<int32_t>(a))))
                                  : uint64_t(reduced(frame.get<uint32_t>(a))));
  };
}

// ---- barriers -----------------------------------------------------------------------------------
Step barrier(Instruction& instruction) {  // bar, barrier
  const char* const operation = instruction.operation();
  if (instruction.take("cluster")) {
    const bool arrives = instruction.take("arrive");
    if (!arrives) instruction.expect("wait");
    if (instruction.take("relaxed"))
      instruction.unknown("the emulator has it with .release alone, the default");
    instruction.take_any({"release", "acquire"});
    instruction.take("aligned");
    instruction.expect_args(0);
    return [=](Frame& frame) { arrives ? cluster_arrive(frame.where) : cluster_wait(frame.where); };
  }
  if (instruction.take("warp")) {
    instruction.expect("sync");
    instruction.expect_args(1);
    const Arg mask = instruction.arg(0);
    return [=](Frame& frame) { sync_warp(frame.get<uint32_t>(mask), frame.where); };
  }
  instruction.take("cta");
  instruction.take("aligned");
  const bool arrives = instruction.take("arrive");
  if (!arrives) instruction.expect("sync");
  instruction.expect_args(arrives ? 2 : 1, 2);
  const Arg number = instruction.arg(0);
  const Arg threads = instruction.size() > 1 ? instruction.arg(1) : Arg{};
  return [=](Frame& frame) {
    const int which = int(frame.get(number)), expected = int(frame.get(threads));
    if (which < 0 || which >= kNamedBarriers)
      misuse(operation, frame.where, "a CTA has barriers 0 to 15");
    if (arrives) {
      barrier_arrive(which, expected, operation, frame.where);
    } else {
      barrier_sync(which, expected, operation, frame.where);
    }
  };
}

Step mbarrier(Instruction& instruction) {
  const char* const operation = instruction.operation();
  const std::string what = instruction.take_any(
      {"init", "inval", "arrive", "expect_tx", "complete_tx", "test_wait", "try_wait"});
  if (what.empty()) instruction.unknown();
  const bool expects = what == "arrive" && instruction.take("expect_tx");
  const bool parity = instruction.take("parity");
  if (instruction.take("noComplete")) instruction.unknown();
  const Space space = take_space(instruction);
  instruction.take_any({"relaxed", "release", "acquire"});
  instruction.take_any({"cta", "cluster"});
  instruction.expect("b64");
  // Where the address is among the operands: behind a state that is asked for, or a predicate.
  const bool has_result = what == "test_wait" || what == "try_wait" ||
                          (what == "arrive" && instruction.arg(0).kind != Arg::Kind::kAddress);
  const size_t place = has_result ? 1 : 0;
  instruction.expect_args(place + 1, place + 3);
  const Arg to = has_result ? instruction.arg(0) : Arg{}, at = instruction.arg(place),
            value = instruction.size() > place + 1 ? instruction.arg(place + 1) : Arg{};
  const bool has_value = instruction.size() > place + 1;
  // A state is, here, the parity of the phase.
  return [=](Frame& frame) {
    const uint64_t address = frame.address(at);
    if (space == Space::kCluster && what == "arrive") {
      const ClusterAddress other = from_cluster_address(address);
      if (other.cta >= 0) {
        auto* const bar = reinterpret_cast<uint64_t*>(
            pointer(Space::kShared, other.address, 8, operation, frame.where));
        if (expects)
          misuse(operation, frame.where,
                 "the emulator expects bytes at the CTA's own mbarriers alone");
        const int count = has_value ? frame.get<int32_t>(value) : 1;
        for (int i = 0; i < count; i++) mbarrier_arrive_cluster(bar, other.cta, frame.where);
        return;
      }
    }
    auto* const bar =
        reinterpret_cast<uint64_t*>(pointer(space, address, 8, operation, frame.where));
    const int number = frame.get<int32_t>(value);
    if (what == "init") {
      mbarrier_init(bar, number, frame.where);
    } else if (what == "inval") {
      mbarrier_inval(bar, frame.where);
    } else if (what == "expect_tx") {
      mbarrier_expect_tx(bar, number, operation, frame.where);
    } else if (what == "complete_tx") {
      mbarrier_complete_tx(bar, number, frame.where);
    } else if (what == "arrive") {
      if (to.kind != Arg::Kind::kSink)
        frame.set(to, uint64_t(mbarrier_parity(bar, operation, frame.where)));
      if (expects) mbarrier_expect_tx(bar, number, operation, frame.where);
      const int count = expects || !has_value ? 1 : number;
      if (count < 1) misuse(operation, frame.where, "a thread arrives at least once");
      for (int i = 0; i < count; i++) mbarrier_arrive(bar, operation, frame.where);
    } else {
      frame.set(to, uint64_t(mbarrier_test_wait(bar, parity ? number : number & 1, operation,
                                                frame.where)));
    }
  };
}

Step order(Instruction& instruction) {  // fence, membar
  if (instruction.take("mbarrier_init")) {
    instruction.expect("release");
    instruction.expect("cluster");
    return [](Frame&) { fence_mbarrier_init(); };
  }
  if (instruction.take("proxy")) {
    if (!instruction.take("async")) {
      instruction.unknown("of the fences between proxies the emulator has that of async alone");
    }
    if (instruction.take("global")) return [](Frame&) {};  // nothing of shared memory
    take_space(instruction);
    return [](Frame&) { fence_proxy_async(); };
  }
  instruction.take_any({"sc", "acq_rel", "acquire", "release"});
  const bool cta = instruction.take("cta");
  instruction.take_any({"cluster", "gpu", "sys", "gl"});
  return [=](Frame&) { fence(cta ? Fence::kCta : Fence::kGpu); };
}

}  // namespace

void add_warps(std::map<std::string, Make>& table) {
  table["ldmatrix"] = [](Instruction& i) { return move_matrices(i, true); };
  table["stmatrix"] = [](Instruction& i) { return move_matrices(i, false); };
  table["mma"] = multiply_matrices;
  table["wgmma"] = multiply_warpgroup;
  table["shfl"] = exchange;
  table["vote"] = vote;
  table["match"] = match;
  table["redux"] = reduction;
  table["bar"] = table["barrier"] = barrier;
  table["mbarrier"] = mbarrier;
  table["fence"] = table["membar"] = order;
  table["activemask"] = [](Instruction& instruction) -> Step {
    instruction.expect("b32");
    instruction.expect_args(1);
    const Arg d = instruction.arg(0);
    return [=](Frame& frame) { frame.set(d, uint64_t(active_mask(frame.where))); };
  };
  table["elect"] = [](Instruction& instruction) -> Step {
    instruction.expect("sync");
    instruction.expect_args(2);
    const std::vector<Arg> to = instruction.list(0);
    if (to.size() != 2) instruction.unknown("it needs a lane and a predicate");
    const Arg lane = to[0], chosen = to[1], mask = instruction.arg(1);
    return [=](Frame& frame) {
      const int who = elect(frame.get<uint32_t>(mask), frame.where);
      frame.set(lane, uint64_t(who));
      frame.set(chosen, uint64_t(who == current_lane->lane));
    };
  };
  table["setmaxnreg"] = [](Instruction& instruction) -> Step {
    const bool increase = instruction.take("inc");
    if (!increase) instruction.expect("dec");
    instruction.expect("sync");
    instruction.expect("aligned");
    instruction.expect("u32");
    instruction.expect_args(1);
    const Arg count = instruction.arg(0);
    return [=](Frame& frame) { set_max_registers(int(frame.get(count)), increase, frame.where); };
  };
  // The launch before has ended here, and the next one begins after this one.
  table["griddepcontrol"] = [](Instruction& instruction) -> Step {
    if (!instruction.take("launch_dependents")) instruction.expect("wait");
    return [](Frame&) {};
  };
  table["nanosleep"] = [](Instruction& instruction) -> Step {
    instruction.expect("u32");
    return [](Frame&) { let_others_run(); };
  };
  table["trap"] = [](Instruction&) -> Step {
    return [](Frame& frame) { misuse("trap", frame.where, "the kernel ends itself"); };
  };
}

}  // namespace emu::inline_ptx
