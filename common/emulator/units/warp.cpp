// The warp's instructions and the arithmetic that must not depend on the machine.
#include "common/emulator/units/warp.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "common/emulator/core/events.h"
#include "common/emulator/core/launch.h"
#include "common/emulator/core/unit.h"
#include "common/emulator/units/barrier.h"

namespace emu {
namespace {

// Once per place. CUDA C++ Programming Guide, "Warp Shuffle Functions": what a lane reads from one
// that is not active is undefined; that is no mistake where nobody uses it.
void note_absent_lane(const char* operation, int lane, int source, SourceLocation where) {
  static std::mutex mutex;
  static std::set<std::string> noted;
  const std::string at = place(where);
  const std::scoped_lock lock(mutex);
  if (!noted.insert(at).second) return;
  fflush(stdout);
  fprintf(stderr,
          "note: %s at %s: lane %d reads lane %d, which does not take part\n"
          "  What it gets is undefined. Here it is a NaN, or -1, so that a result made of it is "
          "wrong.\n",
          operation, at.c_str(), lane, source);
}

}  // namespace

uint32_t shuffle(ShuffleMode mode, uint32_t mask, uint32_t value, int selector, int width,
                 SourceLocation where) {
  struct Operands {
    uint32_t value;
    int selector, width;
    uint32_t result;
  } mine{value, selector & (kWarpSize - 1), width,
         value};  // PTX ISA, "shfl.sync": five bits of it count
  const char* const names[] = {"__shfl_sync()", "__shfl_up_sync()", "__shfl_down_sync()",
                               "__shfl_xor_sync()"};
  if (width < 1 || width > kWarpSize || (width & (width - 1)) != 0) {
    fail("%s at %s: the width %d is not a power of two up to 32", names[int(mode)],
         place(where).c_str(), width);
  }
  warp_collective(mask, names[int(mode)], mine, where, [&](Operands** lanes) {
    record(*current_lane->warp,
           {Kind::kShuffle, mask & current_lane->warp->live, where, {.requests = 1}});
    for (int lane = 0; lane < kWarpSize; lane++) {
      if (!lanes[lane]) continue;
      Operands& reader = *lanes[lane];
      const int first = lane & ~(reader.width - 1), end = first + reader.width;
      int source = lane;
      switch (mode) {
        case ShuffleMode::kIndex:
          source = first + (reader.selector & (reader.width - 1));
          break;
        case ShuffleMode::kUp:
          source = lane - reader.selector;
          break;
        case ShuffleMode::kDown:
          source = lane + reader.selector;
          break;
        case ShuffleMode::kXor:
          source = lane ^ reader.selector;
          break;
      }
      // Beyond the segment a lane reads itself (for xor: only beyond the segment's end).
      if (source >= end || (source < first && mode == ShuffleMode::kUp)) source = lane;
      if (source < 0 || source >= kWarpSize || !lanes[source]) {
        if (!options().absent_lanes) {
          fail("%s at %s: lane %d reads lane %d, which does not take part", names[int(mode)],
               place(where).c_str(), lane, source);
        }
        note_absent_lane(names[int(mode)], lane, source, where);
        reader.result = ~0u;
      } else {
        reader.result = lanes[source]->value;
      }
    }
  });
  return mine.result;
}

uint32_t ballot(uint32_t mask, int predicate, const char* operation, SourceLocation where) {
  const Gathered all = gather(mask, predicate != 0, operation, where);
  return all.equal_to(1);
}

Gathered gather(uint32_t mask, uint64_t value, const char* operation, SourceLocation where) {
  struct Operands {
    uint64_t value;
    Gathered result;
  } mine{value, {}};
  warp_collective(mask, operation, mine, where, [&](Operands** lanes) {
    record(*current_lane->warp,
           {Kind::kVote, mask & current_lane->warp->live, where, {.requests = 1}});
    Gathered all{};
    for (int lane = 0; lane < kWarpSize; lane++) {
      if (!lanes[lane]) continue;
      all.values[lane] = lanes[lane]->value;
      all.lanes |= 1u << lane;
    }
    for (int lane = 0; lane < kWarpSize; lane++) {
      if (lanes[lane]) lanes[lane]->result = all;
    }
  });
  return mine.result;
}

namespace {

std::string waits_for_others(const Lane&) { return " (for the lanes that come here, too)"; }

// Lanes that have asked which of their warp run with them.
class ActiveMasks : public Unit {
 public:
  explicit ActiveMasks(const Cluster& cluster) : masks_(cluster.lanes.size()) {}
  void begin() override { waiting_.clear(); }
  bool finish_awaited() override {
    if (waiting_.empty()) return false;
    // Those that are at the earliest line: they may come to where the others wait.
    const auto behind = [](const Lane* a, const Lane* b) { return a->where.line < b->where.line; };
    const Lane& first = **std::min_element(waiting_.begin(), waiting_.end(), behind);
    const auto together = [&](const Lane* lane) {
      return lane->warp == first.warp && lane->where.line == first.where.line &&
             lane->where.file == first.where.file;
    };
    std::vector<Lane*> group, rest;
    for (Lane* const lane : waiting_) (together(lane) ? group : rest).push_back(lane);
    uint32_t mask = 0;
    for (const Lane* const lane : group) mask |= 1u << lane->lane;
    record(*first.warp, {Kind::kVote, mask, first.where, {.requests = 1}});
    waiting_ = rest;
    for (Lane* const lane : group) {
      masks_[size_t(lane->number)] = mask;
      wake(*lane);
    }
    return true;
  }
  uint32_t ask(SourceLocation where) {
    Lane& me = *current_lane;
    waiting_.push_back(&me);
    park("__activemask()", where, waits_for_others);
    return masks_[size_t(me.number)];
  }

 private:
  std::vector<Lane*> waiting_;
  std::vector<uint32_t> masks_;  // [lanes]: the answer to each
};

const UnitOf<ActiveMasks> active_masks{80};

// The votes of a CTA at its barrier, of this round and the one before, which others still read.
class BarrierBallots : public Unit {
 public:
  explicit BarrierBallots(const Cluster& cluster)
      : ballots_(cluster.ctas.size()), rounds_(cluster.lanes.size()) {}
  void begin() override {
    std::fill(ballots_.begin(), ballots_.end(), std::array<Ballot, 2>{});
    std::fill(rounds_.begin(), rounds_.end(), 0);
  }
  BarrierVotes vote(int predicate, const char* operation, SourceLocation where) {
    const Lane& me = *current_lane;
    const uint64_t round = ++rounds_[size_t(me.number)];
    Ballot& ballot = ballots_[size_t(me.cta->rank)][round % 2];
    if (ballot.round != round) ballot = {round, {0, 0}};
    ballot.votes.yes += predicate != 0;
    ballot.votes.all++;
    barrier_sync(0, 0, operation, where);
    return ballot.votes;
  }

 private:
  struct Ballot {
    uint64_t round = 0;
    BarrierVotes votes{};
  };
  std::vector<std::array<Ballot, 2>> ballots_;  // [CTAs]
  std::vector<uint64_t> rounds_;                // [lanes]: how often each has voted
};

const UnitOf<BarrierBallots> barrier_ballots{90};

}  // namespace

uint32_t active_mask(SourceLocation where) { return active_masks().ask(where); }

BarrierVotes vote_at_barrier(int predicate, const char* operation, SourceLocation where) {
  return barrier_ballots().vote(predicate, operation, where);
}

void let_others_run() { yield(); }

int elect(uint32_t mask, SourceLocation where) {
  int elected = 0;
  warp_collective(mask, "elect.sync", elected, where, [=](int** lanes) {
    const uint32_t live = mask & current_lane->warp->live;
    for (uint32_t rest = live; rest; rest &= rest - 1) {
      *lanes[std::countr_zero(rest)] = std::countr_zero(live);
    }
  });
  return elected;
}

void sync_warp(uint32_t mask, SourceLocation where) {
  int nothing = 0;
  warp_collective(mask, "__syncwarp()", nothing, where, [&](int**) {
    Warp& warp = *current_lane->warp;
    record(warp, {Kind::kSyncwarp, mask & warp.live, where, {.requests = 1}});
    Detector* const detector = current_lane->cta->detector;
    if (detector) detector->synchronise_warp(warp, mask & warp.live);
  });
}

namespace {

// 2^x for |x| < 1000 in double: 2^x = 2^n * 2^r with n whole and |r| <= 1/2, and 2^r = e^(r ln 2)
// by its Taylor series, whose terms from the fourteenth on are below 2^-53.
double exp2_double(double x) {
  constexpr int kTerms = 14;
  constexpr auto kInverseFactorial = [] {
    std::array<double, kTerms> table{1.0};
    double factorial = 1.0;
    for (int k = 1; k < kTerms; k++) table[size_t(k)] = 1.0 / (factorial *= k);
    return table;
  }();
  const double n = std::floor(x + 0.5);
  const double t = (x - n) * 0.693147180559945309417232121458;
  double sum = kInverseFactorial[kTerms - 1];
  for (size_t k = kTerms - 1; k-- > 0;) sum = sum * t + kInverseFactorial[k];
  const double power_of_two = std::bit_cast<double>(uint64_t(int64_t(n) + 1023) << 52);
  return sum * power_of_two;
}

// ex2.approx.ftz.f32 as an H200 computes it: a table of 64 parabolas, summed in whole numbers. The
// design is that of S. Oberman and M. Siu, "A High-Performance Area-Efficient Multifunction
// Interpolator" (ARITH 2005); the numbers and what is cut off were found by fitting the H200's
// results for all floats in [1, 2), which they give bit by bit
// (common/emulator/tests/golden/ex2_probe.cu).
//
// With 2^f on [k/64, (k+1)/64) as a parabola in the remainder: 2^25 times its value at k/64, 2^15
// times its slope (but for rounding), 2^11 times half its curvature.
struct Parabola {
  int32_t value, slope, curve;
};
constexpr Parabola kParabolas[64] = {
    {33554435, 22713, 494}, {33919818, 22960, 501}, {34289182, 23210, 506}, {34662565, 23463, 511},
    {35040018, 23718, 518}, {35421577, 23977, 521}, {35807292, 24238, 527}, {36197209, 24502, 532},
    {36591372, 24768, 541}, {36989825, 25038, 546}, {37392616, 25311, 551}, {37799797, 25586, 559},
    {38211409, 25865, 564}, {38627504, 26147, 568}, {39048131, 26431, 577}, {39473337, 26719, 583},
    {39903173, 27010, 589}, {40337690, 27304, 596}, {40776937, 27602, 600}, {41220970, 27902, 609},
    {41669836, 28206, 615}, {42123592, 28513, 622}, {42582286, 28824, 627}, {43045977, 29138, 633},
    {43514717, 29455, 641}, {43988561, 29776, 647}, {44467565, 30100, 655}, {44951786, 30428, 661},
    {45441278, 30759, 670}, {45936101, 31094, 677}, {46436314, 31432, 686}, {46941971, 31775, 691},
    {47453135, 32121, 699}, {47969867, 32471, 705}, {48492225, 32824, 715}, {49020269, 33182, 721},
    {49554065, 33543, 730}, {50093674, 33908, 739}, {50639159, 34277, 748}, {51190582, 34651, 753},
    {51748011, 35028, 763}, {52311510, 35409, 773}, {52881146, 35795, 779}, {53456983, 36185, 787},
    {54039091, 36579, 796}, {54627538, 36977, 806}, {55222393, 37380, 813}, {55823725, 37787, 822},
    {56431607, 38198, 833}, {57046106, 38614, 842}, {57667297, 39035, 849}, {58295254, 39460, 858},
    {58930048, 39889, 870}, {59571754, 40324, 877}, {60220447, 40763, 887}, {60876205, 41207, 896},
    {61539104, 41655, 909}, {62209220, 42109, 917}, {62886634, 42568, 925}, {63571424, 43031, 938},
    {64263672, 43500, 946}, {64963458, 43973, 959}, {65670863, 44452, 969}, {66385972, 44936, 980}};

// 2^f for f in [0, 1), in units of 2^-23: f in the same units.
uint32_t mantissa_of_exp2(uint32_t f) {
  const Parabola& p = kParabolas[f >> 17];
  const uint32_t x = f & 0x1ffff;  // 17 bits
  // x^2 / 2^19 without the partial products below 2^19: of bits i < j of x those with i + j >= 18.
  // The upper eight bits' square is whole.
  uint32_t square = (x >> 9) * (x >> 9) >> 1;
  for (uint32_t i = 2; i <= 8; i++) square += (x >> i & 1) * (x >> (18 - i));
  constexpr int64_t kRounding = 6114;  // in units of 2^-38; makes up for what was cut
  const int64_t sum = (int64_t(p.value) << 13) + int64_t(p.slope) * x + int64_t(p.curve) * square;
  return uint32_t((sum + kRounding) >> 15);
}

float exact_exp2(float x) {
  if (std::isnan(x)) return x;
  if (x > 200.0f) return INFINITY;
  if (x < -200.0f) return 0.0f;
  return float(exp2_double(double(x)));
}

float exact_exp(float x) {
  if (std::isnan(x)) return x;
  if (x > 100.0f) return INFINITY;
  if (x < -120.0f) return 0.0f;
  return float(exp2_double(double(x) * 1.44269504088896340735992468100));
}

float hardware_exp2(float x) {
  if (std::isnan(x)) return std::bit_cast<float>(0x7fffffffu);
  if (x >= 128.0f) return INFINITY;
  if (x < -126.0f) return 0.0f;
  // x in units of 2^-23, cut toward zero. A negative number's bits are inverted, which is 2^-23 too
  // little, unless it is whole.
  constexpr int32_t kOne = 1 << 23;
  const auto magnitude = int32_t(std::fabs(x) * float(kOne));
  const bool whole = magnitude % kOne == 0;
  const int32_t fixed = x >= 0 ? magnitude : whole ? -magnitude : ~magnitude;
  // Added, not joined: the mantissa's leading bit raises the exponent by one.
  return std::bit_cast<float>(uint32_t((fixed >> 23) + 126) * kOne +
                              mantissa_of_exp2(uint32_t(fixed) % kOne));
}

// A thread's exponential; the host may compute some, too.
float report(float result, SourceLocation where) {
  if (!current_lane) return result;
  record(*current_lane->warp, {Kind::kExp2, 1u << current_lane->lane, where, {.operations = 1}});
  if (Recorder* const recorder = current_lane->cta->recorder)
    recorder->computes(*current_lane, result);
  return result;
}

}  // namespace

float exp2f(float x, SourceLocation where) { return report(exact_exp2(x), where); }
float expf(float x, SourceLocation where) { return report(exact_exp(x), where); }
float exp2_approx(float x, SourceLocation where) { return report(hardware_exp2(x), where); }

}  // namespace emu
