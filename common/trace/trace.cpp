#include "common/trace/trace.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/emulator/core/events.h"
#include "common/emulator/core/float16.h"
#include "common/emulator/core/memory.h"
#include "common/emulator/core/vector_types.h"
#include "common/trace/timing.h"

namespace emu {
namespace {

Work work_of(Kind kind) {
  switch (kind) {
    case Kind::kGlobalLoad:
      return Work::kGlobalLoad;
    case Kind::kGlobalStore:
      return Work::kGlobalStore;
    case Kind::kSharedLoad:
      return Work::kSharedLoad;
    case Kind::kSharedStore:
    case Kind::kStmatrix:
    case Kind::kWmmaStore:
      return Work::kSharedStore;
    case Kind::kLdmatrix:
    case Kind::kWmmaLoad:
      return Work::kFragmentLoad;
    case Kind::kCpAsync:
      return Work::kCopy;
    case Kind::kMma16816:
    case Kind::kMma1688:
    case Kind::kMma16832:
    case Kind::kWmma:
    case Kind::kWmmaOther:
      return Work::kProduct;
    case Kind::kWgmma:
    case Kind::kWgmmaFp8:
      return Work::kAsyncProduct;
    case Kind::kExp2:
      return Work::kExponential;
    case Kind::kShuffle:
    case Kind::kVote:
      return Work::kExchange;
    default:
      return Work::kIssue;
  }
}

// Only what is reported as an event; the rest notes itself.
Step step_of(const Event& event) {
  Step step;
  step.work = work_of(event.kind);
  step.name = name_of(event.kind);
  step.count = uint32_t(event.counts.requests);
  step.bytes = event.counts.sectors * 32;
  step.wavefronts = event.counts.wavefronts;
  step.ideal = event.counts.wavefronts_ideal;
  step.flops = event.counts.flops;
  if (step.work == Work::kCopy) step.group = Group::kCopies;
  if (step.work == Work::kAsyncProduct) {  // a warp's quarter; its N says what it is
    step.group = Group::kProducts;
    if (event.kind == Kind::kWgmmaFp8) step.speed = 2;
    const uint64_t depth = uint64_t(16 * step.speed);
    step.name =
        "wgmma.m64n" + std::to_string(step.flops / (2 * 16 * depth)) + "k" + std::to_string(depth);
    step.wavefronts = event.counts.bytes / 128;
  }
  return step;
}

bool is_access(Kind kind) {
  return kind == Kind::kGlobalLoad || kind == Kind::kGlobalStore || kind == Kind::kSharedLoad ||
         kind == Kind::kSharedStore || kind == Kind::kCpAsync;
}

// "K" and "Q": "K Q"; each name once.
void add_name(std::string& names, const std::string& name) {
  if (name.empty() || (" " + names + " ").find(" " + name + " ") != std::string::npos) return;
  names += (names.empty() ? "" : " ") + name;
}

// "K" of "global buffer K".
std::string buffer_name(uintptr_t address) {
  const std::string name = region_name(address);
  return name.substr(name.rfind(' ') + 1);
}

uint32_t bits_at(uintptr_t address) {
  uint32_t bits;
  memcpy(&bits, reinterpret_cast<const void*>(address), 4);
  return bits;
}

std::mutex recordings_mutex;
std::vector<Recording> recordings;

[[maybe_unused]] const bool registered = [] {
  make_recorder = [](const Cta& cta) -> std::unique_ptr<Recorder> {
    return std::make_unique<Trace>(cta);
  };
  return true;
}();

}  // namespace

Trace::Trace(const Cta& cta)
    : cta_(cta),
      notes_(cta.lanes.size()),
      warps_(cta.warps.size()),
      owners_((cta.shared_bytes + 3) / 4),
      exponentials_(cta.lanes.size()) {
  const dim3& grid = cta.grid_dim;
  recording_.kernel = cta.kernel;
  recording_.ctas = uint64_t(grid.x) * grid.y * grid.z;
  recording_.cta =
      cta.block_idx.x + uint64_t(grid.x) * (cta.block_idx.y + uint64_t(grid.y) * cta.block_idx.z);
  recording_.warps.resize(cta.warps.size());
  places_.resize(cta.warps.size());
}

void Trace::finish() {
  std::vector<uintptr_t> addresses;  // all at once, which is quicker than one by one
  for (const auto& places : places_) {
    for (const Place& place : places) {
      if (!place.file) addresses.push_back(place.at - 1);  // of the call, not of what follows it
    }
  }
  const std::vector<std::string> names = symbolise(addresses);
  size_t next = 0;
  for (size_t w = 0; w < places_.size(); w++) {
    for (size_t i = 0; i < places_[w].size(); i++) {
      const Place& place = places_[w][i];
      recording_.warps[w][i].at =
          place.file ? relative_path(place.file) + ":" + std::to_string(place.at) : names[next++];
    }
  }
  const std::lock_guard lock(recordings_mutex);
  recordings.push_back(std::move(recording_));
}

void Trace::note(const Lane& lane, Place place, Step step) {
  notes_[size_t(lane.thread)].push_back({{place, std::move(step)}, lane.accesses.size()});
}

void Trace::add(const Warp& warp, Place place, Step step) {
  recording_.warps[size_t(warp.index)].push_back(std::move(step));
  places_[size_t(warp.index)].push_back(place);
}

void Trace::event(const Warp& warp, const Event& event) {
  if (event.kind == Kind::kBarrier || event.kind == Kind::kMbarrier ||
      event.kind == Kind::kTmaLoad || event.kind == Kind::kTmaStore ||
      event.kind == Kind::kTmaReduce) {
    return;  // their lanes note more
  }
  Step step = step_of(event);
  if (event.kind == Kind::kExp2) {  // of one lane
    step.count = uint32_t(event.counts.operations);
    note(*current_lane, event.place, std::move(step));
    return;
  }
  WarpState& state = warps_[size_t(warp.index)];
  step.of = std::exchange(state.moved, "");
  if (step.work == Work::kProduct || step.work == Work::kAsyncProduct) state.product = step.of;
  if (is_access(event.kind)) {
    state.accesses.push_back({event.place, std::move(step)});
    return;
  }
  add(warp, event.place, std::move(step));
}

// Whether a store's value is that of a load, as it is or as fp32.
bool Trace::copies(const Piece& piece, const MemoryAccess& from) {
  const auto* const source = reinterpret_cast<const uint8_t*>(from.address);
  const auto* const copied = reinterpret_cast<const uint8_t*>(piece.shared);
  if (piece.bytes == from.bytes && memcmp(source, copied, piece.bytes) == 0) return true;
  for (uint32_t i = 0; piece.bytes >= 4 && i + 2 <= from.bytes; i += 2) {
    const auto element = uint16_t(source[i] | source[i + 1] << 8);
    const uint32_t bits = bits_at(piece.shared);
    if (bits == std::bit_cast<uint32_t>(bf16_to_float(element)) ||
        bits == std::bit_cast<uint32_t>(fp16_to_float(element))) {
      return true;
    }
  }
  return false;
}

// What a warp's lanes store to shared memory: a copy of what they have just loaded, as it is or as
// fp32; exponentials; or a new value for what they have just read there. Else nothing is known.
std::string Trace::stored(const Warp& warp, const std::vector<Piece>& pieces) {
  const auto all = [&](const auto& holds) {
    return std::all_of(pieces.begin(), pieces.end(), holds);
  };
  const bool is_zero = all([&](const Piece& piece) {
    const auto* const bytes = reinterpret_cast<const uint8_t*>(piece.shared);
    return std::all_of(bytes, bytes + piece.bytes, [](uint8_t byte) { return byte == 0; });
  });
  // The lane's accesses since it last met others: compilers put a copy's load before or behind it.
  // By chance, a value can be in two buffers, but not the values of all lanes.
  const auto sources_of = [&](const Piece& piece) {
    std::set<std::string> buffers;
    for (const MemoryAccess& from : warp.lanes[piece.lane].accesses) {
      if (from.kind == Kind::kGlobalLoad && copies(piece, from))
        buffers.insert(buffer_name(from.address));
    }
    return buffers;
  };
  if (!is_zero) {
    for (const std::string& buffer : sources_of(pieces.front())) {
      if (all([&](const Piece& piece) { return sources_of(piece).count(buffer) > 0; }))
        return buffer;
    }
  }
  const bool is_exponential = !is_zero && all([&](const Piece& piece) {
    const auto& known = exponentials_[size_t(warp.lanes[piece.lane].thread)];
    if (piece.bytes < 4) return false;
    const uint32_t bits = bits_at(piece.shared);
    return known.count(bits) || known.count(bits & 0xffff);
  });
  if (is_exponential) return "exp2";
  const bool is_new_value = all([&](const Piece& piece) {
    const auto& accesses = warp.lanes[piece.lane].accesses;
    return std::any_of(accesses.begin(), accesses.end(), [&](const MemoryAccess& from) {
      return from.kind == Kind::kSharedLoad && from.address == piece.shared;
    });
  });
  return is_new_value ? owners_[(pieces.front().shared - uintptr_t(cta_.shared)) / 4] : "";
}

std::string Trace::moves(const Warp& warp, Kind kind, const std::vector<Piece>& pieces) {
  WarpState& state = warps_[size_t(warp.index)];
  const auto offset = [&](const Piece& piece) {
    return size_t(piece.shared - uintptr_t(cta_.shared)) / 4;
  };
  std::string of;
  bool writes_shared = false;
  switch (kind) {
    case Kind::kGlobalLoad:
    case Kind::kGlobalStore:
    case Kind::kTmaStore:
    case Kind::kTmaReduce:
      of = buffer_name(pieces.front().global);
      break;
    case Kind::kCpAsync:
    case Kind::kTmaLoad:
      of = buffer_name(pieces.front().global);
      writes_shared = true;
      break;
    case Kind::kSharedStore:
      of = stored(warp, pieces);
      writes_shared = true;
      break;
    case Kind::kWmmaStore:
      of = state.product;
      std::replace(of.begin(), of.end(), ' ', '*');
      writes_shared = true;
      break;
    case Kind::kStmatrix:
      writes_shared = true;
      break;
    default:
      for (const Piece& piece : pieces) {
        if (offset(piece) < owners_.size()) add_name(of, owners_[offset(piece)]);
      }
      break;
  }
  for (const Piece& piece : pieces) {
    const size_t first = offset(piece), end = first + (piece.bytes + 3) / 4;
    if (!writes_shared || end > owners_.size()) continue;
    std::fill(owners_.begin() + std::ptrdiff_t(first), owners_.begin() + std::ptrdiff_t(end), of);
  }
  const bool is_event =
      kind != Kind::kTmaLoad && kind != Kind::kTmaStore && kind != Kind::kTmaReduce;
  if (is_event) state.moved = of;
  return of;
}

void Trace::add_operand(const Warp& warp, const std::string& of) {
  if (of.find('*') != std::string::npos) return;  // the accumulator
  add_name(recording_.warps[size_t(warp.index)].back().of, of);
  warps_[size_t(warp.index)].product = recording_.warps[size_t(warp.index)].back().of;
}

void Trace::loads(const Warp& warp, const Register& contents) {
  warps_[size_t(warp.index)].loaded_by[contents] =
      uint32_t(recording_.warps[size_t(warp.index)].size() - 1);
}

bool Trace::uses(const Warp& warp, const Register& contents) {
  const WarpState& state = warps_[size_t(warp.index)];
  std::vector<uint32_t>& needs = recording_.warps[size_t(warp.index)].back().needs;
  const auto need = [&](uint32_t step) {
    if (std::find(needs.begin(), needs.end(), step) == needs.end()) needs.push_back(step);
  };
  if (const auto at = state.loaded_by.find(contents); at != state.loaded_by.end()) {
    need(at->second);
    add_operand(warp, recording_.warps[size_t(warp.index)][at->second].of);
    return true;
  }
  Register halves[2];
  for (size_t lane = 0; lane < contents.size(); lane++) {
    halves[0][lane] = contents[lane] & 0xffff;
    halves[1][lane] = contents[lane] >> 16;
  }
  const auto low = state.computed_by.find(halves[0]), high = state.computed_by.find(halves[1]);
  if (low == state.computed_by.end() || high == state.computed_by.end()) return false;
  need(low->second);
  need(high->second);
  // What is zero everywhere can be anything.
  if (contents != Register{}) add_operand(warp, "exp2");
  return true;
}

void Trace::computes(const Lane& lane, float result) {
  notes_[size_t(lane.thread)].back().result = result;
  auto& known = exponentials_[size_t(lane.thread)];
  known.insert(std::bit_cast<uint32_t>(result));
  known.insert(float_to_bf16(result));
  known.insert(float_to_fp16(result));
}

void Trace::uses_computed(const Warp& warp) {
  recording_.warps[size_t(warp.index)].back().computed = true;
}

void Trace::accumulates(const Warp& warp, const void* accumulators) {
  auto& steps = recording_.warps[size_t(warp.index)];
  auto& added_to_by = warps_[size_t(warp.index)].added_to_by;
  const auto index = uint32_t(steps.size() - 1);
  const auto [at, is_first] = added_to_by.try_emplace(accumulators, index);
  if (!is_first) steps.back().needs.push_back(std::exchange(at->second, index));
}

void Trace::meet(const Warp& warp, uint32_t mask) {
  // The notes of the first lane that has any give the order; those that only others have come
  // behind those at the same position.
  using Key = std::tuple<const char*, uint64_t, Work, int, int, int, uint32_t>;
  struct Gathered {
    const Noted* first;
    std::array<float, kWarpSize> results;
    int lanes = 0;
  };
  std::vector<Gathered> steps;
  std::map<std::pair<Key, int>, size_t> known;
  const int lanes = std::min(kWarpSize, int(cta_.lanes.size()) - warp.index * kWarpSize);
  for (int lane = 0; lane < lanes; lane++) {
    if (!(mask >> lane & 1)) continue;
    std::map<Key, int> executions;
    for (const Noted& noted : notes_[size_t(warp.lanes[lane].thread)]) {
      const Step& step = noted.step;
      const Key key{noted.place.file, noted.place.at, step.work, step.pending,
                    step.arrives,     step.awaits,    step.count};
      const auto [at, is_new] = known.try_emplace({key, executions[key]++}, steps.size());
      if (is_new) steps.push_back({&noted, {}});
      Gathered& gathered = steps[at->second];
      gathered.results[size_t(lane)] = noted.result;
      gathered.lanes++;
    }
  }
  std::stable_sort(steps.begin(), steps.end(), [](const Gathered& a, const Gathered& b) {
    return a.first->position < b.first->position;
  });
  // Between the accesses, where the lanes had them.
  WarpState& state = warps_[size_t(warp.index)];
  size_t next = 0;
  for (size_t position = 0; position <= state.accesses.size() || next < steps.size(); position++) {
    for (; next < steps.size() && steps[next].first->position <= position; next++) {
      const Gathered& gathered = steps[next];
      add(warp, gathered.first->place, gathered.first->step);
      if (gathered.first->step.work != Work::kExponential || gathered.lanes < kWarpSize) continue;
      Register bf16, fp16;
      for (size_t lane = 0; lane < bf16.size(); lane++) {
        bf16[lane] = float_to_bf16(gathered.results[lane]);
        fp16[lane] = float_to_fp16(gathered.results[lane]);
      }
      const auto index = uint32_t(recording_.warps[size_t(warp.index)].size() - 1);
      state.computed_by[bf16] = state.computed_by[fp16] = index;
    }
    if (position < state.accesses.size()) {
      add(warp, state.accesses[position].place, std::move(state.accesses[position].step));
    }
  }
  state.accesses.clear();
  for (int lane = 0; lane < lanes; lane++) {
    if (mask >> lane & 1) notes_[size_t(warp.lanes[lane].thread)].clear();
  }
}

int Trace::meeting(const void* key, const std::string& name) {
  Phases& phases = phases_[key];
  if (phases.current < 0) {
    phases.current = int(recording_.meetings.size());
    recording_.meetings.push_back(name + ", phase " + std::to_string(phases.number));
  }
  return phases.current;
}

int Trace::completed(const void* key) const {
  const auto at = phases_.find(key);
  return at == phases_.end() ? -1 : at->second.last;
}

void Trace::complete(const void* key) {
  Phases& phases = phases_[key];
  phases.last = phases.current;
  phases.current = -1;
  phases.number++;
}

std::vector<Recording> take_recordings() {
  const std::lock_guard lock(recordings_mutex);
  return std::exchange(recordings, {});
}

}  // namespace emu
