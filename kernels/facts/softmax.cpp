// The running softmax of one row, block by block, as kernels 02, 10 and 16 compute it: in fp32, by
// the emulator's exponentials, with the kernels' constants. One thread has the whole row here, so
// sums are added up in the order of the keys; P is not rounded to 16 bits.
#include <cuda_bf16.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/emulator/units/warp.h"
#include "kernels/10_instruction_tuning.cu"
#include "kernels/16_max_free.cu"
#include "kernels/facts/facts.h"

namespace facts {
namespace {

using fa::k10::kMaxGrowthLog2;
using fa::k16::kLog2e;
using Range = fa::k16::Range<__nv_bfloat16>;

constexpr int kColumns = 3;  // of V and O

using Row = std::vector<float>;  // scores, or P
using Output = std::array<float, kColumns>;

// ---- inputs -------------------------------------------------------------------------------------

// Made of whole numbers, alike on every machine: uniform in [-1, 1).
float next_uniform(uint32_t& state) {
  state = state * 1664525u + 1013904223u;
  return float(int32_t(state >> 8) - (1 << 23)) / float(1 << 23);
}
// To two digits, so that the page can show and edit what is computed with.
float two_digits(float x) { return std::round(x * 100.0f) / 100.0f; }

struct Preset {
  const char *id, *name;
  Row scores;
};

std::vector<Preset> presets() {
  constexpr int kKeys = 16;
  Row random(kKeys), increasing(kKeys), steep(kKeys), dominant(kKeys), equal(kKeys, 1.5f),
      high(kKeys), lost;
  uint32_t state = 16;
  for (size_t j = 0; j < kKeys; j++) {
    float normal = 0.0f;  // nearly: the sum of twelve, of variance 1/3 each
    for (int i = 0; i < 12; i++) normal += next_uniform(state);
    random[j] = two_digits(normal);
    increasing[j] = two_digits(0.6f * float(j));
    steep[j] = 6.0f * float(j);
    dominant[j] = two_digits(next_uniform(state));
    high[j] = two_digits(100.0f + normal);
  }
  lost = dominant;
  dominant[10] = 100.0f;  // beyond what kernel 16 leaves as it is
  lost[10] = 200.0f;      // beyond what it can scale
  return {{"chapter02", "as in chapter 02's picture", {1, 3, 2, 5, 4, 0}},
          {"random", "random, standard deviation 2", random},
          {"increasing", "increasing by 0.6", increasing},
          {"steep", "increasing by 6", steep},
          {"dominant", "one dominant key", dominant},
          {"lost", "one key far too high", lost},
          {"equal", "all equal", equal},
          {"high", "random, 100 higher", high}};
}

// The value of key j: it is easy to tell from O which keys it comes from.
Output values(size_t j) { return {float(j), j % 2 ? -1.0f : 1.0f, j < 8 ? 0.0f : 1.0f}; }

// ---- steps --------------------------------------------------------------------------------------

// After a block of keys. `reference`: what is subtracted from scores, in the mode's own unit;
// `factor`: what sum and O of before were multiplied by, if `rescaled`.
struct Step {
  float block_max, reference, factor, sum;
  bool rescaled, lost;  // lost: the row was given up, in this block or before
  Row p;
  Output acc_o;
};

struct State {
  float reference, sum = 0.0f;
  Output acc_o{};
};

void rescale_o(State& state, float factor) {
  for (float& o : state.acc_o) o *= factor;
}

void add_products(State& state, const Row& p, size_t first) {
  for (size_t j = 0; j < p.size(); j++) {
    const Output v = values(first + j);
    for (size_t c = 0; c < kColumns; c++) state.acc_o[c] = fmaf(p[j], v[c], state.acc_o[c]);
  }
}

// Kernel 02: the maximum, always, and e^x.
Step classic(State& state, const Row& scores, float block_max) {
  const float new_max = fmaxf(state.reference, block_max);
  const float factor = emu::expf(state.reference - new_max);  // 0 in the first block: e^-inf
  Row p;
  float block_sum = 0.0f;
  for (const float score : scores) block_sum += p.emplace_back(emu::expf(score - new_max));
  state.reference = new_max;
  state.sum = fmaf(state.sum, factor, block_sum);
  rescale_o(state, factor);
  return {block_max, new_max, factor, state.sum, true, false, p, {}};
}

// P = 2^(score log2(e) - reference), and their sum.
float exponentials(const Row& scores, float reference, Row& p) {
  float sum = 0.0f;
  p.clear();
  for (const float score : scores)
    sum += p.emplace_back(emu::exp2_approx(fmaf(score, kLog2e, -reference)));
  return sum;
}

// Kernel 10: a new maximum only if it has grown by more than 2^8.
Step lazy(State& state, const Row& scores, float block_max) {
  const float scaled = block_max * kLog2e;
  const bool grown = scaled > state.reference + kMaxGrowthLog2;
  float factor = 1.0f;
  if (grown) {
    const float new_max = fmaxf(state.reference, scaled);
    factor = emu::exp2_approx(state.reference - new_max);  // 0 in the first block: 2^-inf
    state.reference = new_max;
    state.sum *= factor;
    rescale_o(state, factor);
  }
  Row p;
  state.sum += exponentials(scores, state.reference, p);
  return {scaled, state.reference, factor, state.sum, grown, false, p, {}};
}

// Kernel 16: kMargin above the first scores. Where a block's sum is too large, its look() scales P,
// the sum and O, or gives the row up. The first block has no more than eight keys here, whose sum
// always fits.
Step first_scores(State& state, const Row& scores, float block_max, bool first) {
  if (first) state.reference = fmaf(block_max, kLog2e, Range::kMargin);
  Row p;
  const float block_sum = exponentials(scores, state.reference, p);
  state.sum += block_sum;
  const bool good = block_sum <= Range::kMaxSum;
  float factor = 1.0f;
  if (!good) {
    const bool lost = block_sum > Range::kLost;
    const float up = 2.0f * fmaxf(ceilf(0.5f * (log2f(block_sum) + Range::kMargin)), 0.0f);
    const float half = lost ? NAN : emu::exp2_approx(-0.5f * up);
    factor = emu::exp2_approx(-up);
    state.reference = lost ? INFINITY : state.reference + up;
    state.sum = lost ? 0.0f : state.sum * half * half;
    rescale_o(state, factor);
    for (float& each : p) each = each * half * half;
  }
  const bool lost = std::isinf(state.reference);
  return {block_max * kLog2e, state.reference, factor, state.sum, !good && !lost, lost, p, {}};
}

// Kernel 16's compute_row(): a row that was given up, from all its scores.
Output mended(const Row& scores) {
  Row scaled;
  for (const float score : scores) scaled.push_back(score * kLog2e);
  const float row_max = *std::max_element(scaled.begin(), scaled.end());
  State state{row_max};
  Row p;
  for (const float score : scaled)
    state.sum += p.emplace_back(emu::exp2_approx(score - state.reference));
  add_products(state, p, 0);
  for (float& o : state.acc_o) o /= state.sum;
  return state.acc_o;
}

std::vector<Step> steps(const Row& scores, size_t block, const std::string& mode) {
  State state{-INFINITY};
  std::vector<Step> result;
  for (size_t first = 0; first < scores.size(); first += block) {
    const Row part(scores.begin() + std::ptrdiff_t(first),
                   scores.begin() + std::ptrdiff_t(std::min(first + block, scores.size())));
    const float block_max = *std::max_element(part.begin(), part.end());
    Step step = mode == "classic" ? classic(state, part, block_max)
                : mode == "lazy"  ? lazy(state, part, block_max)
                                  : first_scores(state, part, block_max, first == 0);
    add_products(state, step.p, first);
    step.acc_o = state.acc_o;
    result.push_back(step);
  }
  return result;
}

// O of the whole row at once, in double precision, rounded to fp32 at the end.
Output plain(const Row& scores) {
  const double most = *std::max_element(scores.begin(), scores.end());
  double sum = 0.0;
  std::array<double, kColumns> o{};
  for (size_t j = 0; j < scores.size(); j++) {
    const double p = std::exp(double(scores[j]) - most);
    sum += p;
    for (size_t c = 0; c < kColumns; c++) o[c] += p * double(values(j)[c]);
  }
  Output result;
  for (size_t c = 0; c < kColumns; c++) result[c] = float(o[c] / sum);
  return result;
}

Json json_of(const Step& step) {
  Output o;
  const float inverse_sum = 1.0f / step.sum;
  for (size_t c = 0; c < kColumns; c++) o[c] = step.acc_o[c] * inverse_sum;
  // JSON has neither NaN nor infinity: it has null for both.
  return {{"max", step.block_max}, {"m", step.reference},       {"factor", step.factor},
          {"l", step.sum},         {"rescaled", step.rescaled}, {"lost", step.lost},
          {"p", step.p},           {"acc_o", step.acc_o},       {"o", o}};
}

}  // namespace

Json softmax() {
  Json result = {{"log2e", kLog2e},
                 {"growth", kMaxGrowthLog2},
                 {"margin", Range::kMargin},
                 {"sum", std::log2(Range::kMaxSum)},
                 {"lost", std::log2(Range::kLost)}};
  for (size_t j = 0; j < 16; j++) result["values"].push_back(values(j));
  for (const Preset& preset : presets()) {
    Json runs = Json::object();
    for (const std::string mode : {"classic", "lazy", "first"}) {
      for (const size_t block : {1, 2, 4, 8}) {
        if (block > preset.scores.size()) continue;
        Json& run = runs[mode + " " + std::to_string(block)];
        for (const Step& step : steps(preset.scores, block, mode)) run.push_back(json_of(step));
      }
    }
    result["presets"].push_back({{"id", preset.id},
                                 {"name", preset.name},
                                 {"scores", preset.scores},
                                 {"plain", plain(preset.scores)},
                                 {"mended", mended(preset.scores)},
                                 {"steps", runs}});
  }
  return result;
}

}  // namespace facts
