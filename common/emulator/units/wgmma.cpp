// wgmma as the PTX ISA describes it and as an H200 computes it.
#include "common/emulator/units/wgmma.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/emulator/core/events.h"
#include "common/emulator/core/launch.h"
#include "common/emulator/core/memory.h"
#include "common/emulator/core/random.h"
#include "common/emulator/core/step.h"
#include "common/emulator/core/unit.h"
#include "common/emulator/units/box_copy.h"
#include "common/emulator/units/matrix.h"
#include "common/emulator/units/register_watch.h"
#include "common/emulator/units/setmaxnreg.h"
#include "common/layout/fragments.h"
#include "common/layout/swizzle.h"
#include "common/layout/wgmma.h"

namespace emu {
namespace {

constexpr int kWarpgroup = 4;  // warps
constexpr const char *kName = "wgmma.mma_async", *kFence = "wgmma.fence",
                     *kCommit = "wgmma.commit_group", *kWait = "wgmma.wait_group";

// ---- what is under way --------------------------------------------------------------------------

// A warp's part of D, 16 rows: its threads' registers and, while a wgmma is under way, the values
// themselves.
struct Accumulators {
  float* registers[kWarpSize];
  int columns;
  SourceLocation where;       // the wgmma that used them last
  int unexecuted = 0;         // wgmma that have yet to happen
  int unwaited = 0;           // wgmma that their warp has not waited for
  std::vector<float> values;  // [16][columns]

  uintptr_t begin(int lane) const { return uintptr_t(registers[lane]); }
  uintptr_t end(int lane) const { return begin(lane) + size_t(columns) / 2 * sizeof(float); }

  template <typename Move>
  void for_each(Move move) {
    for (int lane = 0; lane < kWarpSize; lane++) {
      for (int i = 0; i < columns / 2; i++) {
        const layout::Position at = layout::wgmma_d(lane, i);
        move(registers[lane][i], values[size_t(at.row * columns + at.column)]);
      }
    }
  }
  void load() {
    for_each([](float& reg, float& value) { value = reg; });
  }
  void store() {
    for_each([](float& reg, float& value) { reg = value; });
  }
  void poison() {
    for (float* lane : registers) memset(lane, kPoison, size_t(columns) / 2 * sizeof(float));
  }
};

// What a warp's part of a wgmma multiplies: rows of A and columns of B, 32 bytes each. Elements of
// FP8 are taken in pairs, neighbours in k, as if a pair were an element of 16 bits: so they lie in
// the same places, in shared memory and in registers.
struct Operands {
  uint16_t a[16][16], b[256][16];
};

// A wgmma as one warp takes part in it.
struct Product {
  WgmmaKind kind;
  SourceLocation where;
  uint64_t a, b;
  bool accumulate;
  bool a_in_registers;
  const uint32_t* rows[kWarpSize];  // A's registers
  std::shared_ptr<Accumulators> sums;
  uint32_t first_address;                // of the CTA's shared memory
  uint64_t number;                       // from 1, the same in all four warps
  std::shared_ptr<Operands> taken = {};  // of shared memory, for the wait of another warp
  bool done = false;
  bool committed = false;
  WgmmaWait left_by = {};  // the last wait that has left it under way, if one has
};

struct WarpProducts {
  bool fenced = false;
  uint64_t executed = 0;      // instructions of wgmma: fences, products, commits and waits
  uint64_t issued = 0;        // products among them
  std::vector<Product> open;  // since the last commit
  std::deque<std::vector<Product>> groups;  // committed, oldest first
  int engine = -1;                          // in the detector
  std::vector<std::shared_ptr<Accumulators>> sums;
  // Lane 0's registers that wgmma have named so far: from, to.
  std::vector<std::pair<uintptr_t, uintptr_t>> named;
  uint64_t random_draws = 0;

  bool under_way() const { return !open.empty() || !groups.empty(); }
  template <typename F>
  void for_each(F f) {
    for (auto& group : groups) std::for_each(group.begin(), group.end(), f);
    std::for_each(open.begin(), open.end(), f);
  }
};

// What all four warps must give alike to a product.
struct ProductGiven {
  WgmmaKind kind;
  uint64_t a, b;
  bool accumulate, a_in_registers;
};

// An instruction of wgmma that some of the four warps have yet to execute.
struct Expected {
  const char* name;
  SourceLocation where;
  int first_warp = 0;
  int groups = 0;             // of a wait
  ProductGiven product = {};  // of a product
  uint32_t warps = 0;         // the bits of those that have executed it

  bool is_product() const { return name == kName; }
  std::string described() const {  // "wgmma.wait_group 1 at kernels/14_softmax_overlap.cu:295"
    std::string what = name;
    if (name == kWait) what += " " + std::to_string(groups);
    if (is_product()) {
      what += ".m64n" + std::to_string(product.kind.columns) + "k" +
              std::to_string(product.kind.depth());
    }
    return what + " at " + place(where);
  }
  bool is_at(const Expected& other) const {
    return name == other.name && where.line == other.where.line &&
           strcmp(where.file, other.where.file) == 0;
  }
};

struct Warpgroup {
  std::deque<Expected> expected;
  uint64_t passed = 0;         // instructions that all four warps have executed
  uint64_t complete = 0;       // products among them
  std::vector<Expected> seen;  // the same, each place once; the latest last
};

// The state of a CTA's wgmma. Kept from CTA to CTA.
struct WgmmaState {
  explicit WgmmaState(const Cta& cta) : warps(cta.warps.size()), warpgroups(warps.size()) {
    if (!cta.detector) return;
    // Untouched pages cost nothing.
    const Lane& any = cta.lanes.front();
    const size_t stack = any.stack_high - any.stack_low,
                 stamps = stack / 4 * sizeof(RegisterWatch::Stamp);
    bytes = stamps * cta.lanes.size();
    memory = static_cast<uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (memory == MAP_FAILED) throw LaunchError("the emulator could not get memory for registers");
    watches.reserve(cta.lanes.size());
    for (size_t i = 0; i < cta.lanes.size(); i++) {
      watches.emplace_back(reinterpret_cast<RegisterWatch::Stamp*>(memory + i * stamps));
    }
  }
  ~WgmmaState() {
    if (memory) munmap(memory, bytes);
  }
  WgmmaState(const WgmmaState&) = delete;
  WgmmaState& operator=(const WgmmaState&) = delete;

  std::vector<WarpProducts> warps;
  std::vector<Warpgroup> warpgroups;
  std::vector<RegisterWatch> watches;  // checked build, with the detector: [threads]
  uint8_t* memory = nullptr;
  size_t bytes = 0;
};

class Products : public Unit {
 public:
  explicit Products(const Cluster& cluster) : states_(cluster.ctas.size()) {}
  void begin() override;
  void step(Lane& me, bool waits) override;
  void thread_ends(Lane& me) override;
  void thread_has_ended(Lane& me) override;
  Cause why_under_way(const UnderWay& work, uintptr_t address) override;
  std::string complaint(const Cta& cta) override;

  // Made once the CTA uses wgmma, and kept.
  WgmmaState& of(const Cta& cta) {
    std::unique_ptr<WgmmaState>& state = states_[size_t(cta.rank)];
    if (!state) state = std::make_unique<WgmmaState>(cta);
    return *state;
  }
  WgmmaState* if_used(const Cta& cta) { return states_[size_t(cta.rank)].get(); }

 private:
  std::vector<std::unique_ptr<WgmmaState>> states_;  // [CTAs]
};

const UnitOf<Products> all_products{30};

WgmmaState& state_of(const Cta& cta) { return all_products(*cta.cluster).of(cta); }

WarpProducts& products_of(const Warp& warp) {
  return state_of(*warp.lanes->cta).warps[size_t(warp.index)];
}

bool overlap(uintptr_t begin, uintptr_t end, uintptr_t other_begin, uintptr_t other_end) {
  return begin < other_end && other_begin < end;
}

// ---- operands in shared memory ------------------------------------------------------------------

// Calls f(shared address, mn, k) for each 16 bytes of rows (columns) `first` to first + count - 1:
// eight elements of 16 bits (pairs of FP8) along the major dimension from (mn, k) on.
template <typename F>
void for_each_chunk(uint64_t descriptor, layout::Major major, int first, int count, F f) {
  const bool k_major = major == layout::Major::kK;
  for (int mn = first; mn < first + count; mn += k_major ? 1 : 8) {
    for (int k = 0; k < 16; k += k_major ? 8 : 1) {
      f(layout::element_address(descriptor, major, uint32_t(mn), uint32_t(k)), mn, k);
    }
  }
}

template <typename F>
void for_each_operand_chunk(const Product& product, F f) {
  if (!product.a_in_registers) for_each_chunk(product.a, product.kind.major_a, 0, 64, f);
  for_each_chunk(product.b, product.kind.major_b, 0, product.kind.columns, f);
}

const uint8_t* memory_at(const Cta& cta, const Product& product, uint32_t address) {
  return cta.shared + (address - product.first_address);
}

void read_operand(const Cta& cta, const Product& product, uint64_t descriptor, layout::Major major,
                  int first, int count, uint16_t (*elements)[16]) {
  for_each_chunk(descriptor, major, first, count, [&](uint32_t address, int mn, int k) {
    uint16_t chunk[8];
    memcpy(chunk, memory_at(cta, product, address), sizeof chunk);
    for (int i = 0; i < 8; i++) {
      if (major == layout::Major::kK) {
        elements[mn - first][k + i] = chunk[i];
      } else {
        elements[mn - first + i][k] = chunk[i];
      }
    }
  });
}

void check_descriptor(const Cta& cta, uint32_t first_address, uint64_t descriptor,
                      layout::Major major, int count, int depth, const char* operand,
                      SourceLocation where) {
  using namespace layout;
  const uint32_t start = descriptor_start(descriptor), base = descriptor_base_offset(descriptor),
                 span = uint32_t(swizzle_span(descriptor_mode(descriptor))), chunks = span / 16;
  if (span > 16) {
    const uint32_t row = (start >> 7) & (chunks - 1);
    if (start % 128 >= span || row != (base & (chunks - 1))) {
      fail(
          "%s at %s: %s starts at shared address %u, in row %u of a swizzle atom of %u bytes, but "
          "its base offset says %u\n  Atoms start at multiples of %u bytes: give the tile in "
          "SharedStorage alignas(%u).",
          kName, place(where).c_str(), operand, start, start % (8 * span) / span, 8 * span, base,
          8 * span, 8 * span);
    }
  }
  for_each_chunk(descriptor, major, 0, count, [&](uint32_t address, int mn, int k) {
    if (address >= first_address && address + 16 <= first_address + cta.shared_bytes) return;
    fail(
        "%s at %s: element (%d, k = %d) of %s would be at byte %lld of shared memory, outside the "
        "SharedStorage of %zu bytes\n  Wrong: the descriptor's start address, LBO or SBO.",
        kName, place(where).c_str(), mn, k * depth / 16, operand,
        (long long)(address) - (long long)(first_address), cta.shared_bytes);
  });
}

// Tells the detector what the product reads. The clock of the warp's engine counts products.
// Whether a warp's part reads only its own rows of A is not documented: all 64.
void note_reads(const Product& product, const Warp& warp) {
  const Cta& cta = *warp.lanes->cta;
  if (!cta.detector) return;
  WarpProducts& products = products_of(warp);
  if (products.engine < 0) products.engine = cta.detector->new_engine(Engine::kProduct);
  const Site site = cta.detector->site(kName, product.where);
  for_each_operand_chunk(product, [&](uint32_t address, int, int) {
    cta.detector->access(products.engine, uint32_t(product.number), warp.lanes[0],
                         uintptr_t(memory_at(cta, product, address)), 16, false, site);
  });
}

// An operand that a tensor copy has brought must be read with the swizzle that it was written with.
void check_swizzle(const Cta& cta, const Product& product, uint64_t descriptor,
                   const char* operand) {
  if (!cta.detector) return;
  const auto address = uintptr_t(memory_at(cta, product, layout::descriptor_start(descriptor)));
  const BoxCopy copy = box_copied_to(cta, address);
  const layout::SwizzleMode mode = layout::descriptor_mode(descriptor);
  if (copy.where.line == 0 || copy.swizzle == mode ||
      cta.detector->writer(address) != cta.detector->site(copy.operation, copy.where))
    return;
  const auto swizzle = [](layout::SwizzleMode it) {
    return it == layout::SwizzleMode::kNone
               ? std::string("without a swizzle")
               : "with a swizzle of " + std::to_string(layout::swizzle_span(it)) + " bytes";
  };
  fail(
      "%s at %s: its descriptor reads %s %s, but the copy at %s has written it %s\n  Wrong: the "
      "swizzle in the descriptor.\n  Or: the one in the tensor map.",
      kName, place(product.where).c_str(), operand, swizzle(mode).c_str(),
      place(copy.where).c_str(), swizzle(copy.swizzle).c_str());
}

// ---- execution ----------------------------------------------------------------------------------

void read_shared(const Product& product, const Warp& warp, Operands& operands) {
  const Cta& cta = *warp.lanes->cta;
  const int first_row = 16 * (warp.index % kWarpgroup);
  if (!product.a_in_registers) {
    read_operand(cta, product, product.a, product.kind.major_a, first_row, 16, operands.a);
  }
  read_operand(cta, product, product.b, product.kind.major_b, 0, product.kind.columns, operands.b);
}

void execute(Product& product, const Warp& warp) {
  if (product.done) return;
  product.done = true;
  const int columns = product.kind.columns;
  Operands now;
  Operands& operands = product.taken ? *product.taken : now;
  if (!product.taken) read_shared(product, warp, operands);
  for (int lane = 0; product.a_in_registers && lane < kWarpSize; lane++) {
    for (int i = 0; i < 8; i++) {
      const layout::Position at = layout::wgmma_a(lane, i / 2, i % 2);
      operands.a[at.row][at.column] = uint16_t(product.rows[lane][i / 2] >> 16 * (i % 2));
    }
  }
  Accumulators& sums = *product.sums;
  if (!product.accumulate) std::fill(sums.values.begin(), sums.values.end(), 0.0f);
  ProductNan nan;
  multiply_strip(operands.a, operands.b, columns, product.kind.of_a, product.kind.of_b,
                 sums.values.data(), columns, nan);
  nan.row += 16 * (warp.index % kWarpgroup);
  note_nan(warp, nan, product.where);
  product.taken.reset();
  if (--sums.unexecuted == 0) sums.store();
}

uint64_t next_random(const Warp& warp) {
  const uint3& block = warp.lanes->cta->block_idx;
  WarpProducts& products = products_of(warp);
  return random_bits(options().seed, {block.x, block.y, block.z, 0x77676d6d61u,
                                      uint64_t(warp.index), products.random_draws++});
}

// Random completion: the oldest wgmma of the warp that has not happened happens now, with a chance
// of 1 in `chances`.
void advance(const Warp& warp, uint64_t chances) {
  WarpProducts& products = products_of(warp);
  bool chosen = false;
  products.for_each([&](Product& product) {
    if (product.done || chosen) return;
    chosen = true;
    if (next_random(warp) % chances == 0) execute(product, warp);
  });
}

// ---- registers ----------------------------------------------------------------------------------

// Calls f with a lane's accumulators, and with its registers of A if there are any.
template <typename F>
void for_each_use(const Product& product, int lane, const WgmmaWait& wait, F f) {
  const Accumulators& sums = *product.sums;
  RegisterWatch::Use use{sums.begin(lane), sums.end(lane), product.where,
                         "accumulators",   wait,           product.committed};
  f(use);
  if (!product.a_in_registers) return;
  use.begin = uintptr_t(product.rows[lane]);
  use.end = use.begin + 16;
  use.what = "A's registers";
  f(use);
}

// What the warp's wgmma name must fit into what setmaxnreg gives its threads. The compiler needs
// more, how much more is not known here.
void check_enough_registers(const WgmmaOperands& any, size_t bytes, const Warp& warp,
                            SourceLocation where) {
  auto& named = products_of(warp).named;
  bool more = false;
  const auto name = [&](uintptr_t begin, uintptr_t end) {
    for (const auto& [from, to] : named) {
      if (from <= begin && end <= to) return;
    }
    std::erase_if(named, [&](const auto& part) { return part.first < end && begin < part.second; });
    named.emplace_back(begin, end);
    more = true;
  };
  name(uintptr_t(any.d), uintptr_t(any.d) + bytes);
  if (any.rows) name(uintptr_t(any.rows), uintptr_t(any.rows) + 16);
  if (!more) return;
  const OwnedRegisters owned = owned_registers(warp);
  if (owned.count == 0) return;
  size_t count = 0;
  for (const auto& [from, to] : named) count += (to - from) / 4;
  if (count <= size_t(owned.count)) return;
  fail(
      "%s at %s: with it the wgmma of warp %d have named %zu registers of a thread (accumulators "
      "and A), but it owns %d, since %s\n  Missing: setmaxnreg.inc in all warps of warpgroup %d, "
      "before their first wgmma.",
      kName, place(where).c_str(), warp.index, count, owned.count,
      owned.set.line ? ("setmaxnreg at " + place(owned.set)).c_str() : "the launch",
      warp.index / kWarpgroup);
}

// Checked build: the registers that wgmma under way use.
void watch_registers(const Warp& warp) {
  WgmmaState& state = state_of(*warp.lanes->cta);
  if (state.watches.empty()) return;
  for (int lane = 0; lane < kWarpSize; lane++) {
    RegisterWatch& watch = state.watches[size_t(warp.lanes[lane].thread)];
    watch.restart();
    products_of(warp).for_each([&](const Product& product) {
      for_each_use(product, lane, product.left_by,
                   [&](const RegisterWatch::Use& use) { watch.add(use); });
    });
  }
}

// The thread's registers from `begin` on must not have been touched since its last fence.
void check_fenced(const Lane& lane, const void* begin, size_t bytes, const char* what,
                  SourceLocation where) {
  if (!lane.stack_watch) return;
  const RegisterWatch& watch = state_of(*lane.cta).watches[size_t(lane.thread)];
  const std::string touched = watch.touched_since_fence(lane, uintptr_t(begin), bytes);
  if (touched.empty()) return;
  fail_cta(std::string(kName) + " at " + place(where) + ": thread " + std::to_string(lane.thread) +
           " has used " + what + " as ordinary registers at " + touched +
           ", after its last wgmma_fence\n  Missing: wgmma_fence() between the two.");
}

void check_registers(WgmmaOperands** lanes, const WgmmaKind& kind, const Warp& warp,
                     SourceLocation where) {
  WarpProducts& products = products_of(warp);
  if (!products.fenced) {
    fail("%s at %s: the warp has not executed wgmma_fence before\n  Missing: wgmma_fence().", kName,
         place(where).c_str());
  }
  const size_t bytes = size_t(kind.columns) / 2 * sizeof(float);
  check_enough_registers(*lanes[0], bytes, warp, where);
  for (int lane = 0; lane < kWarpSize; lane++) {
    check_fenced(warp.lanes[lane], lanes[lane]->d, bytes, "its accumulators", where);
    if (lanes[lane]->rows) {
      check_fenced(warp.lanes[lane], lanes[lane]->rows, 16, "A's registers", where);
    }
    const auto d = uintptr_t(lanes[lane]->d), rows = uintptr_t(lanes[lane]->rows);
    for (const auto& sums : products.sums) {
      const bool same = sums->begin(lane) == d && sums->columns == kind.columns;
      if (!same && overlap(d, d + bytes, sums->begin(lane), sums->end(lane))) {
        fail(
            "%s at %s: its accumulators are in part those of the wgmma at %s, which is under way "
            "and has another shape\n  Missing: wgmma_commit() and wgmma_wait between the two.",
            kName, place(where).c_str(), place(sums->where).c_str());
      }
      if (rows && overlap(rows, rows + 16, sums->begin(lane), sums->end(lane))) {
        fail(
            "%s at %s: A's registers are accumulators of the wgmma at %s, which is under way\n  "
            "Missing: wgmma_commit() and wgmma_wait between the two.",
            kName, place(where).c_str(), place(sums->where).c_str());
      }
    }
  }
}

std::shared_ptr<Accumulators> accumulators(WgmmaOperands** lanes, const WgmmaKind& kind,
                                           WarpProducts& products) {
  for (const auto& sums : products.sums) {
    if (sums->registers[0] == lanes[0]->d) return sums;
  }
  auto sums = std::make_shared<Accumulators>();
  for (int lane = 0; lane < kWarpSize; lane++) sums->registers[lane] = lanes[lane]->d;
  sums->columns = kind.columns;
  sums->values.resize(size_t(16 * kind.columns));
  sums->load();
  products.sums.push_back(sums);
  return sums;
}

// ---- four warps, one instruction ----------------------------------------------------------------

Warpgroup& warpgroup_of(const Warp& warp) {
  return state_of(*warp.lanes->cta).warpgroups[size_t(warp.index / kWarpgroup)];
}

std::string warps_of(uint32_t bits, int first_warp) {
  std::string text;
  for (int i = 0; i < kWarpgroup; i++) {
    if (bits >> i & 1) text += (text.empty() ? "" : ", ") + std::to_string(first_warp + i);
  }
  return (std::popcount(bits) == 1 ? "warp " : "warps ") + text;
}

// What only some of the four warps have executed: the first product, or if there is none the first
// instruction.
std::string describe_missing(const Warpgroup& group, int index) {
  const auto product = std::find_if(group.expected.begin(), group.expected.end(),
                                    [](const Expected& each) { return each.is_product(); });
  const Expected& first = product == group.expected.end() ? group.expected.front() : *product;
  return (first.is_product() ? "a wgmma" : std::string("a ") + first.name) + " at " +
         place(first.where) + " that only " + std::to_string(std::popcount(first.warps)) +
         " of the 4 warps of warpgroup " + std::to_string(index) + " have executed";
}

std::string describe_wait(const Lane& lane) {
  return " (for " + describe_missing(warpgroup_of(*lane.warp), lane.warp->index / kWarpgroup) + ")";
}

void wake_waiting(const Warp& warp) {
  for (Lane& lane : warp.lanes->cta->lanes) {
    if (lane.state != LaneState::kParked || lane.describe != describe_wait) continue;
    if (lane.warp->index / kWarpgroup == warp.index / kWarpgroup) wake(lane);
  }
}

void check_warpgroup(const char* name, const Warp& warp, SourceLocation where) {
  const Cta& cta = *warp.lanes->cta;
  const size_t needed = size_t(warp.index / kWarpgroup + 1) * kWarpgroup * kWarpSize;
  if (cta.lanes.size() < needed) {
    fail(
        "%s at %s: warp %d has no whole warpgroup: that is four warps from a multiple of four on, "
        "and the CTA has %zu threads",
        name, place(where).c_str(), warp.index, cta.lanes.size());
  }
}

// What two lanes or warps give that must be the same; null: all is.
template <typename Given>
const char* difference(const Given& one, const Given& other) {
  if (one.a != other.a) return "descriptor of A";
  if (one.b != other.b) return "descriptor of B";
  return one.accumulate != other.accumulate ? "scale-d" : nullptr;
}

void check_lanes(WgmmaOperands** lanes, SourceLocation where) {
  for (int lane = 0; lane < kWarpSize; lane++) {
    if (!lanes[lane]) {
      fail("%s at %s: lane %d of the warp has exited, all 32 must take part", kName,
           place(where).c_str(), lane);
    }
    if (const char* const what = difference(*lanes[lane], *lanes[0])) {
      fail(
          "%s at %s: lane %d gives another %s than lane 0; all threads of a warpgroup give the "
          "same",
          kName, place(where).c_str(), lane, what);
    }
  }
}

// The report on two warps of a warpgroup that execute different instructions after `last`, if there
// is one. If all four have executed one of the two instructions before, the other is in the branch.
[[noreturn]] void fail_apart(const Warpgroup& group, const Expected* last, const Expected& mine,
                             const Expected& other) {
  const int first_warp = mine.first_warp / kWarpgroup * kWarpgroup;
  const auto was_seen = [&](const Expected& each) {
    return std::any_of(group.seen.begin(), group.seen.end(),
                       [&](const Expected& before) { return before.is_at(each); });
  };
  std::string text = "warp " + std::to_string(mine.first_warp) + " executes " + mine.described() +
                     ", where " + warps_of(other.warps, first_warp) +
                     " of the same warpgroup executed " + other.described() + "\n";
  if (last) {
    text += "  Until " + last->described() + " they went the same way. Since then ";
    const bool mine_seen = was_seen(mine), other_seen = was_seen(other);
    if (mine_seen == other_seen) {
      text += "they have taken different branches.\n";
    } else {
      const std::string one = warps_of(1u << mine.first_warp % kWarpgroup, first_warp),
                        some = warps_of(other.warps, first_warp);
      const bool several = std::popcount(other.warps) > 1;
      text += mine_seen
                  ? some + (several ? " have" : " has") + " taken a branch that " + one + " has"
                  : one + " has taken a branch that " + some + (several ? " have" : " has");
      text += " not.\n";
    }
  }
  fail_cta(text +
           "  wgmma is .aligned for a warpgroup: its four warps execute the same fences, products, "
           "commits and waits in the same order. Missing: a condition that is the same for all of "
           "them.");
}

// All four warps of a warpgroup must execute the same instructions of wgmma, in the same order.
void meet_warpgroup(const Warp& warp, Expected mine) {
  mine.first_warp = warp.index;
  Warpgroup& group = warpgroup_of(warp);
  const size_t place_in_order = size_t(products_of(warp).executed++ - group.passed);
  if (place_in_order == group.expected.size()) group.expected.push_back(mine);
  Expected& other = group.expected[place_in_order];
  const ProductGiven &given = mine.product, &others = other.product;
  if (!other.is_at(mine) || other.groups != mine.groups || !(given.kind == others.kind) ||
      given.a_in_registers != others.a_in_registers) {
    const Expected* const last = place_in_order > 0   ? &group.expected[place_in_order - 1]
                                 : group.seen.empty() ? nullptr
                                                      : &group.seen.back();
    fail_apart(group, last, mine, other);
  }
  if (const char* const what = difference(others, given)) {
    fail(
        "%s at %s: warp %d gives another %s than warp %d; all threads of a warpgroup give the same",
        kName, place(mine.where).c_str(), warp.index, what, other.first_warp);
  }
  other.warps |= 1u << warp.index % kWarpgroup;
  bool more = false;
  while (!group.expected.empty() && group.expected.front().warps == (1u << kWarpgroup) - 1) {
    const Expected& done = group.expected.front();
    std::erase_if(group.seen, [&](const Expected& before) { return before.is_at(done); });
    group.seen.push_back(done);
    group.passed++;
    if (done.is_product()) group.complete++, more = true;
    group.expected.pop_front();
  }
  if (more) wake_waiting(warp);
}

// A warp's share: 16 rows; of shared memory its rows of A and a quarter of B, as if each element
// were read once. (How often the hardware reads them is not documented, so there are no
// wavefronts.)
void count(const Product& product, Warp& warp) {
  const auto columns = uint64_t(product.kind.columns), depth = uint64_t(product.kind.depth());
  const Kind kind = is_fp8(product.kind.of_a) ? Kind::kWgmmaFp8 : Kind::kWgmma;
  const uint64_t bytes = columns * 16 * 2 / kWarpgroup + (product.a_in_registers ? 0 : 16 * 16 * 2);
  if (Recorder* const recorder = warp.lanes->cta->recorder) {
    std::vector<Recorder::Piece> pieces;  // the first bytes of each operand tell whose they are
    for (const uint64_t descriptor : {product.a, product.b}) {
      if (product.a_in_registers && descriptor == product.a) continue;
      const uint32_t start = layout::descriptor_start(descriptor);
      const uint8_t* const at = shared_pointer(start, 16, kName, product.where);
      pieces.push_back({0, uintptr_t(at), 16, 0});
    }
    recorder->moves(warp, kind, pieces);
  }
  record(warp, {kind,
                kFullMask,
                product.where,
                {.requests = 1, .bytes = bytes, .flops = 2 * 16 * columns * depth}});
  Recorder* const recorder = warp.lanes->cta->recorder;
  if (!recorder || !product.a_in_registers) return;
  const bool known =
      use_registers(*recorder, warp, 4, [&](int lane) { return product.rows[lane]; });
  if (!known) recorder->uses_computed(warp);
}

// Adds a fence, a commit or a wait to a timeline.
void trace_step(Work work, const char* name, int pending, SourceLocation where) {
  const Warp& warp = *current_lane->warp;
  if (Recorder* const recorder = current_lane->cta->recorder) {
    recorder->add(warp, where,
                  {.work = work, .name = name, .group = Group::kProducts, .pending = pending});
  }
}

// ---- issue and end of a warp's part -------------------------------------------------------------

void issue(WgmmaOperands** lanes, const WgmmaKind& kind, SourceLocation where) {
  const Warp& warp = *current_lane->warp;
  Cta& cta = *warp.lanes->cta;
  check_warpgroup(kName, warp, where);
  check_lanes(lanes, where);
  const WgmmaOperands& any = *lanes[0];
  const bool from_registers = any.rows != nullptr;
  meet_warpgroup(warp, {.name = kName,
                        .where = where,
                        .product = {kind, any.a, any.b, any.accumulate, from_registers}});
  products_of(warp).issued++;
  check_registers(lanes, kind, warp, where);
  const uint32_t first_address = shared_address(cta.shared);
  const int depth = kind.depth();
  if (!from_registers) {
    check_descriptor(cta, first_address, any.a, kind.major_a, 64, depth, "A", where);
  }
  check_descriptor(cta, first_address, any.b, kind.major_b, kind.columns, depth, "B", where);

  WarpProducts& products = products_of(warp);
  Product product{kind,           where, any.a, any.b,         any.accumulate,
                  from_registers, {},    {},    first_address, products.issued};
  for (int lane = 0; lane < kWarpSize; lane++) product.rows[lane] = lanes[lane]->rows;
  product.sums = accumulators(lanes, kind, products);
  product.sums->where = where;
  product.sums->unexecuted++;
  product.sums->unwaited++;
  product.sums->poison();
  note_reads(product, warp);
  if (!from_registers) check_swizzle(cta, product, any.a, "A");
  check_swizzle(cta, product, any.b, "B");
  count(product, *current_lane->warp);
  products.open.push_back(product);
  if (options().completion == Completion::kEarly) execute(products.open.back(), warp);
  if (options().completion == Completion::kRandom) advance(warp, 4);
  watch_registers(warp);
}

// Returns the number of the last product that wait_group ends; 0: there is none.
uint64_t last_awaited(const WarpProducts& products, size_t groups) {
  for (size_t i = products.groups.size(); i > groups; i--) {
    const std::vector<Product>& group = products.groups[i - 1 - groups];
    if (!group.empty()) return group.back().number;
  }
  return 0;
}

// A wgmma is an operation of its warpgroup: a warp's wait ends when all four warps have issued what
// it waits for and it is over, and then none of them reads shared memory for it any more. The other
// warps' registers are read and written at their own waits.
void wait_for_warpgroup(const Warp& warp, uint64_t number, SourceLocation where) {
  const Warpgroup& group = warpgroup_of(warp);
  const std::span<Warp> warps =
      warp.lanes->cta->warps.subspan(size_t(warp.index / kWarpgroup * kWarpgroup), kWarpgroup);
  while (group.complete < number) {
    for (const Warp& other : warps) {
      if (other.live || products_of(other).issued >= number) continue;
      fail_cta("ends with " + describe_missing(group, warp.index / kWarpgroup) +
               "\n  All four warps must execute it.");
    }
    park(kWait, where, describe_wait);
  }
  Detector* const detector = warp.lanes->cta->detector;
  for (const Warp& other : warps) {
    WarpProducts& products = products_of(other);
    products.for_each([&](Product& product) {
      if (&other == &warp || product.done || product.taken || product.number > number) return;
      product.taken = std::make_shared<Operands>();
      read_shared(product, other, *product.taken);
    });
    if (!detector || products.engine < 0) continue;
    for (int lane = 0; lane < kWarpSize; lane++) {
      detector->learn(warp.lanes[lane], products.engine, uint32_t(number));
    }
  }
}

// The warp has waited for its oldest group.
void retire_group(const Warp& warp, const WgmmaWait& wait) {
  WarpProducts& products = products_of(warp);
  std::vector<RegisterWatch>& watches = state_of(*warp.lanes->cta).watches;
  for (Product& product : products.groups.front()) {
    execute(product, warp);
    product.sums->unwaited--;
    if (watches.empty()) continue;
    for (int lane = 0; lane < kWarpSize; lane++) {
      const Accumulators& sums = *product.sums;
      watches[size_t(warp.lanes[lane].thread)].end(
          {sums.begin(lane), sums.end(lane), product.where, "accumulators", wait, true});
    }
  }
  products.groups.pop_front();
}

}  // namespace

// ---- instructions -------------------------------------------------------------------------------

void wgmma_fence(SourceLocation where) {
  int nothing = 0;
  warp_collective(kFullMask, kFence, nothing, where, [&](int**) {
    const Warp& warp = *current_lane->warp;
    check_warpgroup(kFence, warp, where);
    meet_warpgroup(warp, {.name = kFence, .where = where});
    WgmmaState& state = state_of(*current_lane->cta);
    products_of(warp).fenced = true;
    trace_step(Work::kIssue, kFence, 0, where);
    if (state.watches.empty()) return;
    for (int lane = 0; lane < kWarpSize; lane++) {
      Lane& each = warp.lanes[lane];
      RegisterWatch& watch = state.watches[size_t(each.thread)];
      each.stack_watch = &watch;
      watch.fence();
    }
  });
}

void wgmma_issue(const WgmmaKind& kind, WgmmaOperands operands, SourceLocation where) {
  warp_collective(kFullMask, kName, operands, where,
                  [&](WgmmaOperands** lanes) { issue(lanes, kind, where); });
}

void wgmma_commit(SourceLocation where) {
  int nothing = 0;
  warp_collective(kFullMask, kCommit, nothing, where, [&](int**) {
    check_warpgroup(kCommit, *current_lane->warp, where);
    meet_warpgroup(*current_lane->warp, {.name = kCommit, .where = where});
    trace_step(Work::kCommit, kCommit, 0, where);
    WarpProducts& products = products_of(*current_lane->warp);
    for (Product& product : products.open) product.committed = true;
    products.groups.push_back(std::move(products.open));
    products.open.clear();
    watch_registers(*current_lane->warp);  // a report says whether there was a commit
  });
}

void wgmma_wait(int groups, SourceLocation where) {
  int nothing = 0;
  warp_collective(kFullMask, kWait, nothing, where, [&](int**) {
    const Warp& warp = *current_lane->warp;
    check_warpgroup(kWait, warp, where);
    meet_warpgroup(warp, {.name = kWait, .where = where, .groups = groups});
    trace_step(Work::kWaitGroups, kWait, groups, where);
    WarpProducts& products = products_of(warp);
    const WgmmaWait wait{groups, where};
    if (const uint64_t number = last_awaited(products, size_t(groups))) {
      wait_for_warpgroup(warp, number, where);
    }
    while (products.groups.size() > size_t(groups)) retire_group(warp, wait);
    products.for_each([&](Product& product) { product.left_by = wait; });
    std::erase_if(products.sums, [](const auto& sums) { return sums->unwaited == 0; });
    watch_registers(warp);
  });
}

void expect_done(const void* registers, size_t bytes, int groups, SourceLocation where) {
  const Lane& me = *current_lane;
  const auto begin = uintptr_t(registers), end = begin + bytes;
  WgmmaState& state = state_of(*me.cta);
  if (!state.watches.empty()) state.watches[size_t(me.thread)].name(begin, end);
  products_of(*me.warp).for_each([&](const Product& product) {
    const Accumulators& sums = *product.sums;
    const auto rows = uintptr_t(product.rows[me.lane]);
    const bool used = overlap(begin, end, sums.begin(me.lane), sums.end(me.lane)) ||
                      (rows && overlap(begin, end, rows, rows + 16));
    if (!used) return;
    fail(
        "wgmma_wait<%d> at %s names registers of the wgmma at %s, which it does not wait for\n  %s",
        groups, place(where).c_str(), place(product.where).c_str(),
        product.committed ? "Missing: a smaller number of groups."
                          : "Missing: wgmma_commit() after that wgmma.");
  });
}

void name_done_registers() {
  const Lane& me = *current_lane;
  WgmmaState& state = state_of(*me.cta);
  if (!state.watches.empty()) state.watches[size_t(me.thread)].name(0, ~uintptr_t{0});
}

// ---- the unit -----------------------------------------------------------------------------------
namespace {

void Products::begin() {
  for (const auto& state : states_) {
    if (!state) continue;
    for (WarpProducts& products : state->warps) products = {};
    for (Warpgroup& group : state->warpgroups) group = {};
    for (RegisterWatch& watch : state->watches) watch.forget();
  }
}

// This happens at every switch between threads, of which a warp has 32.
void Products::step(Lane& me, bool waits) {
  WgmmaState* const state = if_used(*me.cta);
  if (!waits || !state) return;
  for (const Warp& warp : me.cta->warps) {
    if (state->warps[size_t(warp.index)].under_way()) advance(warp, 128);
  }
}

void Products::thread_ends(Lane& me) {
  me.stack_watch = nullptr;  // its stack is free for other use
  if (!if_used(*me.cta) || !products_of(*me.warp).under_way()) return;
  products_of(*me.warp).for_each([](const Product& product) {
    fail(
        "exits without having waited for wgmma at %s\n  Missing: wgmma_commit() and "
        "wgmma_wait<0>() after it.",
        place(product.where).c_str());
  });
}

Cause Products::why_under_way(const UnderWay& work, uintptr_t address) {
  const Lane& lane = work.starter;
  if (!work.engine || *work.engine != Engine::kProduct || !if_used(*lane.cta)) return {};
  Cause cause;
  products_of(*lane.warp).for_each([&](const Product& product) {
    const WgmmaWait& wait = product.left_by;
    if (wait.where.line == 0) return;  // no wait yet
    bool reads = false;
    for_each_operand_chunk(product, [&](uint32_t at, int, int) {
      reads |= address - uintptr_t(memory_at(*lane.cta, product, at)) < 16;
    });
    if (!reads) return;
    if (!product.committed) {
      cause = {"The product may still be running, because a wait covers what has been committed",
               "wgmma_commit() before the wait,"};
      return;
    }
    cause = {"The product may still be running: the wait at " + place(wait.where) +
                 " leaves up to " + std::to_string(wait.groups) +
                 (wait.groups == 1 ? " group" : " groups") +
                 " under way, and this product is in one",
             "a wgmma_wait for it in the warp that releases the operands, before its arrival or "
             "barrier,"};
  });
  return cause;
}

// Warps that wait for this one shall say so.
void Products::thread_has_ended(Lane& me) {
  if (!me.warp->live && if_used(*me.cta)) wake_waiting(*me.warp);
}

std::string Products::complaint(const Cta& cta) {
  const WgmmaState* const state = if_used(cta);
  if (!state) return "";
  for (size_t i = 0; i < state->warpgroups.size(); i++) {
    const Warpgroup& group = state->warpgroups[i];
    if (group.expected.empty()) continue;
    return "ends with " + describe_missing(group, int(i)) + "\n  All four warps must execute it.";
  }
  return "";
}

}  // namespace
}  // namespace emu

void layout::not_a_multiple_of_16(uint64_t bytes) {
  const std::string text = std::to_string(bytes) +
                           " is not a multiple of 16 bytes, as addresses and strides in wgmma's "
                           "matrix descriptor must be";
  if (!emu::current_lane) throw std::invalid_argument(text);
  emu::fail("%s: %s", emu::symbolise(uintptr_t(__builtin_return_address(0)) - 1).c_str(),
            text.c_str());
}
