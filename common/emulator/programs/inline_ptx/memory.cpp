// Loads, stores, atomics, copies, and addresses. PTX ISA, "Data Movement and Conversion
// Instructions", "Parallel Synchronization and Communication Instructions: atom, red".
//
// Hints for caches are read and do nothing, as they change no result.
#include <algorithm>
#include <array>

#include "common/emulator/core/half_types.h"
#include "common/emulator/core/memory.h"
#include "common/emulator/core/watch.h"
#include "common/emulator/programs/inline_ptx/program.h"
#include "common/emulator/units/atomics.h"
#include "common/emulator/units/cluster.h"
#include "common/emulator/units/cp_async.h"
#include "common/emulator/units/tma.h"
#include "common/emulator/units/warp.h"
#include "common/ptx/tensor_map.h"

namespace emu::inline_ptx {
namespace {

void take_hints(Instruction& instruction) {
  instruction.take_any({"ca", "cg", "cs", "lu", "cv", "wb", "wt"});
  instruction.take("nc");
  instruction.take_beginning_with("L1::");
  instruction.take_beginning_with("L2::");
}

Fence take_scope(Instruction& instruction) {
  const bool cta = instruction.take("cta");
  instruction.take_any({"cluster", "gpu", "sys"});
  return cta ? Fence::kCta : Fence::kGpu;
}

// ---- loads and stores ---------------------------------------------------------------------------
struct Access {
  Space space;
  Type type;
  int elements;
  bool is_volatile, atomic, ordered;  // ordered: acquires or releases
  bool wide;                          // 128 bits
  bool global;                        // says .global
  Fence scope;
};

bool says_global(const Instruction& instruction) {
  return (instruction.name() + ".").find(".global.") != std::string::npos;
}

Access take_access(Instruction& instruction, const char* order) {
  Access access{};
  access.global = says_global(instruction);
  access.space = take_space(instruction);
  access.is_volatile = instruction.take("volatile");
  instruction.take("weak");
  access.ordered = instruction.take(order);
  access.atomic = instruction.take("relaxed") || access.ordered;
  access.scope = take_scope(instruction);
  take_hints(instruction);
  const std::string vector = instruction.take_any({"v2", "v4", "v8"});
  access.elements = vector.empty() ? 1 : vector[1] - '0';
  access.type = instruction.type();
  access.wide = access.type.bits == 128;
  if (access.wide) {  // as two of 64 bits
    if (access.ordered || access.elements != 1) instruction.unknown();
    access.type.bits = 64;
    access.elements = 2;
  }
  return access;
}

// What the checked build sees of a plain access.
void watch(const Frame& frame, const void* place, size_t bytes, bool write, bool is_volatile) {
  if (checked_build.access) {
    checked_build.access(place, bytes, write, is_volatile, frame.program_counter);
  }
}

template <typename F>
auto with_size(int bits, F f) {
  if (bits == 8) return f(uint8_t{});
  if (bits == 16) return f(uint16_t{});
  if (bits == 32) return f(uint32_t{});
  return f(uint64_t{});
}

Step load(Instruction& instruction) {
  const Access access = take_access(instruction, "acquire");
  const char* const operation = instruction.operation();
  instruction.expect_args(2, 3);  // the third: a cache policy
  const std::vector<Arg> to = access.wide ? instruction.halves(0) : instruction.list(0);
  const Arg from = instruction.arg(1);
  const size_t each = size_t(access.type.bits) / 8, bytes = each * to.size();
  if (int(to.size()) != access.elements || bytes > 32) instruction.unknown();
  return [=](Frame& frame) {
    uint8_t* const place =
        pointer(access.space, frame.address(from), bytes, operation, frame.where);
    if (access.global) expect_global(place, operation, frame.where);
    uint64_t values[8] = {};
    if (access.atomic && bytes <= 8) {
      values[0] = with_size(access.type.bits * access.elements, [&](auto size) -> uint64_t {
        using T = decltype(size);
        return change_atomically(
            reinterpret_cast<T*>(place), operation, frame.where, [](T old) { return old; },
            AtomicOrder::kLoad);
      });
      if (to.size() > 1) {
        const uint64_t both = values[0];
        for (size_t i = 0; i < to.size(); i++) {
          values[i] = both >> (8 * each * i) & (~uint64_t(0) >> (64 - 8 * each));
        }
      }
      if (access.ordered) fence(access.scope);
    } else {
      watch(frame, place, bytes, false, access.is_volatile || access.atomic);
      for (size_t i = 0; i < to.size(); i++) memcpy(&values[i], place + i * each, each);
    }
    for (size_t i = 0; i < to.size(); i++) {
      const int unused = 64 - access.type.bits;
      frame.set(to[i], access.type.kind == 's' ? uint64_t(int64_t(values[i] << unused) >> unused)
                                               : values[i]);
    }
  };
}

Step store_to_other_cta(Instruction& instruction) {  // st.async
  const char* const operation = instruction.operation();
  instruction.take("weak");
  instruction.expect("shared::cluster");
  instruction.expect("mbarrier::complete_tx::bytes");
  const std::string vector = instruction.take_any({"v2", "v4"});
  const Type type = instruction.type();
  instruction.expect_args(3);
  const Arg to = instruction.arg(0), bar = instruction.arg(2);
  const std::vector<Arg> from = instruction.list(1);
  const size_t each = size_t(type.bits) / 8, bytes = each * from.size();
  if (from.size() != (vector.empty() ? 1u : vector == "v2" ? 2u : 4u) || each < 4 || bytes > 16) {
    instruction.unknown();
  }
  const bool is_float = type.kind == 'f' && type.bits == 32;
  return [=](Frame& frame) {
    const auto place_of = [&](const Arg& arg) -> ClusterAddress {
      const uint64_t address = frame.address(arg);
      const ClusterAddress other = from_cluster_address(address);
      return other.cta < 0 ? ClusterAddress{cluster_rank(), uint32_t(address)} : other;
    };
    const ClusterAddress place = place_of(to), barrier = place_of(bar);
    if (place.cta != barrier.cta) {
      misuse(operation, frame.where, "the mbarrier must be in the CTA to which it stores");
    }
    uint8_t values[16] = {};
    for (size_t i = 0; i < from.size(); i++) {
      const uint64_t bits =
          is_float ? std::bit_cast<uint32_t>(frame.get<float>(from[i])) : frame.get(from[i]);
      memcpy(values + i * each, &bits, each);
    }
    store_async(pointer(Space::kShared, place.address, bytes, operation, frame.where), values,
                int(bytes),
                reinterpret_cast<uint64_t*>(
                    pointer(Space::kShared, barrier.address, 8, operation, frame.where)),
                place.cta, frame.where);
  };
}

Step store(Instruction& instruction) {
  if (instruction.take("async")) return store_to_other_cta(instruction);
  const Access access = take_access(instruction, "release");
  const char* const operation = instruction.operation();
  instruction.expect_args(2, 3);
  const Arg to = instruction.arg(0);
  const std::vector<Arg> from = access.wide ? instruction.halves(1) : instruction.list(1);
  const size_t each = size_t(access.type.bits) / 8, bytes = each * from.size();
  if (int(from.size()) != access.elements || bytes > 32) instruction.unknown();
  const bool is_float = access.type.kind == 'f' && access.type.bits == 32;
  return [=](Frame& frame) {
    uint8_t* const place = pointer(access.space, frame.address(to), bytes, operation, frame.where);
    if (access.global) expect_global(place, operation, frame.where);
    const auto value = [&](size_t i) -> uint64_t {
      return is_float ? std::bit_cast<uint32_t>(frame.get<float>(from[i])) : frame.get(from[i]);
    };
    if (access.ordered) fence(access.scope);
    if (access.atomic && from.size() == 1) {
      with_size(access.type.bits, [&](auto size) {
        using T = decltype(size);
        change_atomically(
            reinterpret_cast<T*>(place), operation, frame.where, [&](T) { return T(value(0)); },
            AtomicOrder::kStore);
        return 0;
      });
      return;
    }
    watch(frame, place, bytes, true, access.is_volatile || access.atomic);
    for (size_t i = 0; i < from.size(); i++) {
      const uint64_t bits = value(i);
      memcpy(place + i * each, &bits, each);
    }
  };
}

// ---- atomics ------------------------------------------------------------------------------------
template <typename T>
T combined(const std::string& operation, T old, T x, T y) {
  if (operation == "exch") return x;
  if (operation == "cas") return old == x ? y : old;
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    if (operation == "add") return T(U(old) + U(x));
    if (operation == "and") return old & x;
    if (operation == "or") return old | x;
    if (operation == "xor") return old ^ x;
    if (operation == "inc") return old >= x ? 0 : old + 1;
    if (operation == "dec") return old == 0 || old > x ? x : old - 1;
  } else if (operation == "add") {
    return T(old + x);
  }
  return operation == "min" ? std::min(old, x) : std::max(old, x);
}

template <typename T>
void change(Frame& frame, const Arg& to, uint8_t* place, const char* operation,
            const std::string& what, const Arg& x, const Arg& y) {
  const T old = change_atomically(
      reinterpret_cast<T*>(place), operation, frame.where,
      [&](T before) { return combined<T>(what, before, frame.get<T>(x), frame.get<T>(y)); },
      what == "cas" ? AtomicOrder::kCompare : AtomicOrder::kBoth);
  frame.set(to, old);
}
// Two halves, each for itself.
template <typename T>
void add_pair(Frame& frame, const Arg& to, uint8_t* place, const char* operation,
              const std::string&, const Arg& x, const Arg&) {
  using Pair = std::array<T, 2>;
  const Pair old =
      change_atomically(reinterpret_cast<Pair*>(place), operation, frame.where, [&](Pair before) {
        const Pair more = frame.get<Pair>(x);
        return Pair{T(float(before[0]) + float(more[0])), T(float(before[1]) + float(more[1]))};
      });
  frame.set(to, old);
}

// The one for a type.
decltype(&change<float>) change_of(Type type) {
  const bool pair = type.lanes == 2, wide = type.bits == 64;
  if (type.kind == 'x') return pair ? add_pair<__nv_bfloat16> : change<__nv_bfloat16>;
  if (type.kind == 'f' && type.bits == 16) return pair ? add_pair<__half> : change<__half>;
  if (type.kind == 'f') return wide ? change<double> : change<float>;
  if (type.kind == 's') return wide ? change<int64_t> : change<int32_t>;
  return type.bits == 16 ? change<uint16_t> : wide ? change<uint64_t> : change<uint32_t>;
}

Step atomic(Instruction& instruction, bool returns) {
  const bool global = says_global(instruction);
  const Space space = take_space(instruction);
  const std::string order = instruction.take_any({"relaxed", "acquire", "release", "acq_rel"});
  const Fence scope = take_scope(instruction);
  take_hints(instruction);
  const std::string what =
      instruction.take_any({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"});
  instruction.take("noftz");
  const Type type = instruction.type();
  if (what.empty() || instruction.has_type() || type.bits > 64) instruction.unknown();
  const bool floats = type.kind == 'f' || type.kind == 'x';
  if (floats && what != "add")
    instruction.unknown("of floating-point atomics the emulator has .add alone");
  const size_t first = returns ? 1 : 0, values = what == "cas" ? 2 : 1;
  instruction.expect_args(first + 1 + values, first + 2 + values);
  const Arg to = returns ? instruction.arg(0) : Arg{}, at = instruction.arg(first),
            x = instruction.arg(first + 1), y = what == "cas" ? instruction.arg(first + 2) : Arg{};
  const char* const operation = instruction.operation();
  const size_t bytes = size_t(type.bits * type.lanes) / 8;
  const auto change = change_of(type);
  return [=](Frame& frame) {
    uint8_t* const place = pointer(space, frame.address(at), bytes, operation, frame.where);
    if (global) expect_global(place, operation, frame.where);
    if (order == "release" || order == "acq_rel") fence(scope);
    change(frame, to, place, operation, what, x, y);
    if (order == "acquire" || order == "acq_rel") fence(scope);
  };
}

// ---- addresses ----------------------------------------------------------------------------------
Step convert_address(Instruction& instruction) {  // cvta
  const bool to = instruction.take("to");
  const Space space = take_space(instruction);
  instruction.type();
  instruction.expect_args(2);
  const Arg d = instruction.arg(0), a = instruction.arg(1);
  const char* const operation = instruction.operation();
  return [=](Frame& frame) {
    const uint64_t from = frame.get(a);
    if (space == Space::kGeneric) {
      frame.set(d, from);
    } else if (to) {
      frame.set(d, uint64_t(shared_address(reinterpret_cast<const void*>(from))));
    } else {
      frame.set(d, uint64_t(uintptr_t(pointer(space, from, 1, operation, frame.where))));
    }
  };
}

Step is_space(Instruction& instruction) {
  const std::string space = instruction.take_any(
      {"shared", "shared::cta", "shared::cluster", "global", "local", "const"});
  instruction.expect_args(2);
  const Arg d = instruction.arg(0), a = instruction.arg(1);
  return [=](Frame& frame) {
    const auto* const address = reinterpret_cast<const void*>(frame.get(a));
    const bool local = is_local(address), shared = is_shared(address);
    frame.set(d, uint64_t(space == "local"             ? local
                          : space == "global"          ? !local && !shared
                          : space == "const"           ? false
                          : space == "shared::cluster" ? shared
                                                       : is_shared_of_cta(address)));
  };
}

Step map_address(Instruction& instruction) {  // mapa
  const Space space = take_space(instruction);
  instruction.type();
  instruction.expect_args(3);
  const Arg d = instruction.arg(0), a = instruction.arg(1), cta = instruction.arg(2);
  const char* const operation = instruction.operation();
  return [=](Frame& frame) {
    const int other = int(frame.get<uint32_t>(cta));
    if (space == Space::kGeneric) {
      frame.set(d, uint64_t(map_to_cta(uintptr_t(frame.get(a)), other, frame.where)));
      return;
    }
    const auto address = uint32_t(frame.get(a));
    map_to_cta(uintptr_t(shared_pointer(address, 1, operation, frame.where)), other,
               frame.where);  // checks
    frame.set(d, cluster_address(other, address));
  };
}

// ---- asynchronous copies ------------------------------------------------------------------------
Step nothing(Instruction&) {
  return [](Frame&) {};
}

void* shared_at(Frame& frame, const Arg& arg, const char* operation) {
  const uint64_t address = frame.address(arg);
  return pointer(address >> 32 ? Space::kGeneric : Space::kCluster, address, 1, operation,
                 frame.where);
}
uint64_t* barrier_at(Frame& frame, const Arg& arg, const char* operation) {
  const uint64_t address = frame.address(arg);
  return reinterpret_cast<uint64_t*>(pointer(address >> 32 ? Space::kGeneric : Space::kCluster,
                                             address, 8, operation, frame.where));
}

Step copy_bulk(Instruction& instruction) {
  const char* const operation = instruction.operation();
  instruction.expect("bulk");
  const bool prefetch = instruction.take("prefetch");
  const bool tensor = instruction.take("tensor");
  const std::string rank = instruction.take_any({"1d", "2d", "3d", "4d", "5d"});
  instruction.take("tile");
  const bool hint = instruction.take("L2::cache_hint");
  if (prefetch) {
    instruction.expect("L2");
    instruction.expect("global");
    if (!tensor) return nothing(instruction);
    const Arg map = instruction.list(0)[0];
    return [=](Frame& frame) {
      prefetch_tensor_map(*reinterpret_cast<const ptx::TensorMap*>(frame.get(map)), frame.where);
    };
  }
  if (Step step = instruction.without_operands("commit_group", commit_bulk)) return step;
  if (instruction.take("wait_group")) {
    const bool read = instruction.take("read");
    const Arg groups = instruction.args(1)[0];
    return [=](Frame& frame) { wait_bulk(int(frame.get(groups)), read, frame.where); };
  }
  const bool stores = instruction.take("bulk_group");
  const bool multicast = instruction.take("multicast::cluster");
  if (!stores) instruction.expect("mbarrier::complete_tx::bytes");
  const bool to_shared =
      !stores && (instruction.take("shared::cluster") || instruction.take("shared::cta"));
  const bool global = instruction.take("global");
  const bool from_shared = stores && instruction.take("shared::cta");
  if (!global || to_shared == from_shared) {
    instruction.unknown("the emulator copies between global and shared memory alone");
  }
  if (!tensor) {
    if (multicast)
      instruction.unknown("the emulator sends boxes of tensors to several CTAs, not plain bytes");
    const size_t needed = stores ? 3 : 4;
    instruction.expect_args(needed, needed + (hint ? 1 : 0));
    const Arg to = instruction.arg(0), from = instruction.arg(1), bytes = instruction.arg(2),
              bar = stores ? Arg{} : instruction.arg(3);
    if (stores) {
      return [=](Frame& frame) {
        store_bulk(reinterpret_cast<void*>(frame.address(to)), shared_at(frame, from, operation),
                   int(frame.get<uint32_t>(bytes)), frame.where);
      };
    }
    return [=](Frame& frame) {
      load_bulk(shared_at(frame, to, operation), reinterpret_cast<const void*>(frame.address(from)),
                int(frame.get<uint32_t>(bytes)), barrier_at(frame, bar, operation), frame.where);
    };
  }
  const size_t dimensions = rank.empty() ? 0 : size_t(rank[0] - '0');
  const size_t needed = stores ? 2 : multicast ? 4 : 3;
  instruction.expect_args(needed, needed + (hint ? 1 : 0));
  const std::vector<Arg> tensor_at = instruction.list(stores ? 0 : 1);
  if (tensor_at.size() != 2) instruction.unknown("it needs [map, {coordinates}]");
  const Arg map = tensor_at[0];
  const std::vector<Arg> coordinates =
      tensor_at[1].kind == Arg::Kind::kList ? tensor_at[1].parts : std::vector<Arg>{tensor_at[1]};
  if (coordinates.size() != dimensions)
    instruction.unknown("it needs as many coordinates as dimensions");
  const Arg shared = instruction.arg(stores ? 1 : 0), bar = stores ? Arg{} : instruction.arg(2),
            ctas = multicast ? instruction.arg(3) : Arg{};
  return [=](Frame& frame) {
    const auto& of = *reinterpret_cast<const ptx::TensorMap*>(frame.get(map));
    int at[ptx::kMaxTensorRank] = {};
    for (size_t i = 0; i < dimensions; i++) at[i] = frame.get<int32_t>(coordinates[i]);
    void* const place = shared_at(frame, shared, operation);
    if (stores) {
      store_box(of, at, int(dimensions), place, frame.where);
    } else if (multicast) {
      load_box_multicast(place, of, at, int(dimensions), barrier_at(frame, bar, operation),
                         frame.get<uint16_t>(ctas), frame.where);
    } else {
      load_box(place, of, at, int(dimensions), barrier_at(frame, bar, operation), frame.where);
    }
  };
}

template <typename T>
Combine combine_by(const std::string& what) {
  return [what](void* global, const void* from, size_t bytes) {
    for (size_t i = 0; i < bytes / sizeof(T); i++) {
      T& there = static_cast<T*>(global)[i];
      there = combined<T>(what, there, static_cast<const T*>(from)[i], T());
    }
  };
}

Step reduce(Instruction& instruction) {  // cp.reduce.async.bulk
  const char* const operation = instruction.operation();
  instruction.expect("async");
  instruction.expect("bulk");
  if (instruction.take("tensor")) instruction.unknown("the emulator reduces bytes in a row alone");
  instruction.expect("global");
  instruction.expect("shared::cta");
  instruction.expect("bulk_group");
  const bool hint = instruction.take("L2::cache_hint");
  const std::string what =
      instruction.take_any({"add", "min", "max", "and", "or", "xor", "inc", "dec"});
  const bool noftz = instruction.take("noftz");
  const Type type = instruction.type();
  const bool floats = type.kind == 'f' || type.kind == 'x', wide = type.bits == 64;
  if (noftz != (floats && type.bits == 16)) {
    instruction.unknown(".noftz belongs to .f16 and .bf16, and they need it");
  }
  if (what.empty() || instruction.has_type() || type.lanes != 1 || type.bits > 64 ||
      (floats && what != "add")) {
    instruction.unknown(floats ? "of floating-point reductions the emulator has .add alone" : "");
  }
  const Combine combine = type.kind == 'x'            ? combine_by<__nv_bfloat16>(what)
                          : floats && type.bits == 16 ? combine_by<__half>(what)
                          : floats ? wide ? combine_by<double>(what) : combine_by<float>(what)
                          : type.kind == 's' && wide ? combine_by<int64_t>(what)
                          : type.kind == 's'         ? combine_by<int32_t>(what)
                          : wide                     ? combine_by<uint64_t>(what)
                                                     : combine_by<uint32_t>(what);
  instruction.expect_args(3, hint ? 4 : 3);
  const Arg to = instruction.arg(0), from = instruction.arg(1), bytes = instruction.arg(2);
  return [=](Frame& frame) {
    reduce_bulk(reinterpret_cast<void*>(frame.address(to)), shared_at(frame, from, operation),
                int(frame.get<uint32_t>(bytes)), combine, frame.where);
  };
}

Step copy(Instruction& instruction) {  // cp.async
  const char* const operation = instruction.operation();
  if (instruction.take("reduce")) return reduce(instruction);
  instruction.expect("async");
  if (instruction.name().find(".bulk") != std::string::npos) return copy_bulk(instruction);
  const auto wait_all = [](SourceLocation where) {
    commit_copies(where);
    wait_copies(0, where);
  };
  if (Step step = instruction.without_operands("commit_group", commit_copies)) return step;
  if (Step step = instruction.without_operands("wait_all", wait_all)) return step;
  if (Step step = instruction.of_groups("wait_group", wait_copies)) return step;
  const bool around_l1 = instruction.take("cg");
  if (!around_l1) instruction.expect("ca");
  if (!instruction.take("shared")) instruction.expect("shared::cta");
  instruction.expect("global");
  const bool hint = instruction.take("L2::cache_hint");
  instruction.take_beginning_with("L2::");
  instruction.expect_args(3, hint ? 5 : 4);
  const Arg to = instruction.arg(0), from = instruction.arg(1), size = instruction.arg(2);
  const bool has_source_size = instruction.size() > (hint ? 4u : 3u);
  const Arg source_size = has_source_size ? instruction.arg(3) : size;
  return [=](Frame& frame) {
    const int bytes = int(frame.get(size));
    if (!(bytes == 16 || (!around_l1 && (bytes == 4 || bytes == 8)))) {
      misuse(operation, frame.where,
             around_l1 ? ".cg copies 16 bytes" : "it copies 4, 8 or 16 bytes");
    }
    const uint64_t address = frame.address(to);
    if (address >> 32) pointer(Space::kShared, address, 1, operation, frame.where);
    copy_async(uint32_t(address), reinterpret_cast<const void*>(frame.address(from)), bytes,
               // A predicate says whether the source is ignored.
               source_size.is_predicate ? (frame.predicate(source_size) ? 0 : bytes)
                                        : int(frame.get<uint32_t>(source_size)),
               frame.where);
  };
}

}  // namespace

void add_memory(std::map<std::string, Make>& table) {
  table["ld"] = table["ldu"] = load;
  table["st"] = store;
  table["atom"] = [](Instruction& i) { return atomic(i, true); };
  table["red"] = [](Instruction& i) -> Step {
    if (i.name().find(".async") != std::string::npos) i.unknown();
    return atomic(i, false);
  };
  table["cvta"] = convert_address;
  table["isspacep"] = is_space;
  table["mapa"] = map_address;
  table["getctarank"] = [](Instruction& instruction) -> Step {
    const Space space = take_space(instruction);
    instruction.type();
    instruction.expect_args(2);
    if (space != Space::kCluster)
      instruction.unknown("the emulator has it with .shared::cluster alone");
    const Arg d = instruction.arg(0), a = instruction.arg(1);
    return [=](Frame& frame) {
      const int cta = from_cluster_address(frame.get(a)).cta;
      frame.set(d, uint64_t(cta < 0 ? cluster_rank() : cta));
    };
  };
  table["cp"] = copy;
  table["prefetch"] = [](Instruction& instruction) -> Step {
    if (!instruction.take("tensormap")) {
      take_space(instruction);
      instruction.take_any({"L1", "L2"});
      instruction.take_beginning_with("L2::");
      return nothing(instruction);
    }
    take_space(instruction);
    instruction.expect_args(1);
    const Arg map = instruction.arg(0);
    return [=](Frame& frame) {
      prefetch_tensor_map(*reinterpret_cast<const ptx::TensorMap*>(frame.address(map)),
                          frame.where);
    };
  };
  table["createpolicy"] = [](Instruction& instruction) -> Step {  // a hint for L2
    while (!instruction.take_any({"fractional", "range", "global", "L2"}).empty()) {
    }
    instruction.take_beginning_with("L2::");
    instruction.type();
    const Arg d = instruction.arg(0);
    return [=](Frame& frame) { frame.set(d, uint64_t(0)); };
  };
}

}  // namespace emu::inline_ptx
