// The kernel of kernels/beyond/fp8.h on the emulator and, built for a GPU, on the GPU, by itself
// and by the C entry point: held to attention in float64 on what its inputs of eight bits stand
// for. So the errors are its own:
//
//   P    has three bits behind its first, so that rounding changes it by 2.6 % (root mean square),
//        6.3 % at most. The sum that O is divided by is that of the rounded P, hence an element's
//        error is the sum of p e (v - O), e the errors of P: where V is all the same there is none.
//        Below 2^-6 the steps are 2^-9. The largest P of a row is more than 2^5, so a key whose
//        weight is p of the largest is wrong by 2^-15 at most besides.
//   sums have 14 bits, and each term is cut by itself: where an accumulator is A, a term loses up
//        to A / 2^13, on average half of that. Over a window of 1024 keys, in which A grows, these
//        are up to 2.3 % of the mean of |v|.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "common/api/fa.h"
#include "common/emulator/tests/golden/probe.h"
#include "common/harness/device.h"
#include "common/harness/fp8.h"
#include "kernels/beyond/fp8.h"
#include "kernels/beyond/fp8_wide.h"
#include "kernels/beyond/quantise.h"
#include "tests/support.h"
#ifndef __CUDACC__
#include "common/emulator/core/launch.h"
#endif

namespace fa::fp8_kernel_test {

using probe::download;
using probe::upload;

// ---- inputs -------------------------------------------------------------------------------------
struct Case {
  int seq_len = 256, kv_len = 256;
  int heads = 1, kv_heads = 1, batch = 1;
  double nats = 1;       // standard deviation of scores
  bool growing = false;  // by the key's index, from nothing on
  double v_mean = 0;
  bool equal_keys = false;  // all keys are alike
  int dominating = -1;      // the key that all queries see alone
  bool causal = false;
  int nan_row = -1;              // of Q, counted over all heads, has a NaN
  int nan_key = -1;              // of the first head of V has one in column 5
  bool zeros = false;            // all of K
  bool scale_per_head = false;   // not per 128 tokens
  bool rows_apart = false;       // heads lie beside each other: [batch, seq_len, heads, head_dim]
  bool shared_q_scales = false;  // by the heads of Q that read one head of K
  enum { kNot, kVInRows, kVTransposed } in_c = kNot;  // fa_attention_fp8 as well
  bool own_workspace = true;                          // there
};

uint8_t to_e4m3(double value) {
  return __nv_cvt_float_to_fp8(float(value), __NV_SATFINITE, __NV_E4M3);
}
double from_e4m3(uint8_t bits) {
  return double(__half2float(__half(__nv_cvt_fp8_to_halfraw(bits, __NV_E4M3))));
}

// A tensor [heads][rows][head_dim] as numbers, as e4m3, and as what those stand for.
struct Quantised {
  std::vector<double> values;
  std::vector<uint8_t> bits;
  std::vector<float> scales;  // [heads][tiles of 128 rows]
};

// `share` neighbouring heads have the same scales.
Quantised quantise(const std::vector<double>& values, int heads, int rows, int head_dim,
                   bool per_head, int share = 1) {
  Quantised result{values, std::vector<uint8_t>(values.size()), {}};
  const int tiles = (rows + 127) / 128, each = per_head ? rows : 128;
  for (int head = 0; head < heads; head++) {
    for (int tile = 0; tile < tiles; tile++) {
      const int first = per_head ? 0 : tile * 128, last = std::min(rows, first + each);
      const auto at = [&](int row) {
        return (size_t(head) * size_t(rows) + size_t(row)) * size_t(head_dim);
      };
      double most = 1e-30;
      for (int other = head / share * share; other < (head / share + 1) * share; other++) {
        const size_t begin = (size_t(other) * size_t(rows) + size_t(first)) * size_t(head_dim);
        const size_t count = size_t(last - first) * size_t(head_dim);
        for (size_t i = 0; i < count; i++) most = std::max(most, std::abs(values[begin + i]));
      }
      const float scale = float(most / 448);
      result.scales.push_back(scale);
      for (size_t i = at(first); i < at(last); i++) {
        result.bits[i] = to_e4m3(values[i] / double(scale));
        result.values[i] = from_e4m3(result.bits[i]) * double(scale);
      }
    }
  }
  return result;
}

// ---- attention ----------------------------------------------------------------------------------
struct Expected {
  std::vector<double> o;         // [heads][seq_len][head_dim]
  std::vector<double> rounding;  // what P's rounding can do to each, doubled
  std::vector<double> size;      // the mean of |v|, weighted as O is
};

Expected attention(const Case& c, const Quantised& q, const Quantised& k, const Quantised& v,
                   int head_dim, double scale) {
  const size_t d = size_t(head_dim);
  const int all_heads = c.batch * c.heads;
  Expected expected;
  std::vector<double> p(size_t(c.kv_len)), sum(d), rounding(d), size(d);
  for (int head = 0; head < all_heads; head++) {
    const size_t kv_head = size_t(head / (c.heads / c.kv_heads));
    const double* const its_k = &k.values[kv_head * size_t(c.kv_len) * d];
    const double* const its_v = &v.values[kv_head * size_t(c.kv_len) * d];
    for (int row = 0; row < c.seq_len; row++) {
      const double* const its_q = &q.values[(size_t(head) * size_t(c.seq_len) + size_t(row)) * d];
      const int keys =
          c.causal ? std::clamp(row + 1 + c.kv_len - c.seq_len, 0, c.kv_len) : c.kv_len;
      double most = -INFINITY, total = 0;
      for (int j = 0; j < keys; j++) {
        double s = 0;
        for (size_t i = 0; i < d; i++) s += its_q[i] * its_k[size_t(j) * d + i];
        p[size_t(j)] = s * scale;
        most = std::max(most, p[size_t(j)]);
      }
      for (int j = 0; j < keys; j++) total += p[size_t(j)] = std::exp(p[size_t(j)] - most);
      for (auto* x : {&sum, &rounding, &size}) std::fill(x->begin(), x->end(), 0.0);
      for (int j = 0; j < keys; j++) {
        for (size_t i = 0; i < d; i++) {
          sum[i] += p[size_t(j)] / total * its_v[size_t(j) * d + i];
          size[i] += p[size_t(j)] / total * std::abs(its_v[size_t(j) * d + i]);
        }
      }
      for (int j = 0; j < keys; j++) {
        for (size_t i = 0; i < d; i++) {
          rounding[i] += (p[size_t(j)] / 8 + std::min(p[size_t(j)], 0x1p-15)) / total *
                         std::abs(its_v[size_t(j) * d + i] - sum[i]);
        }
      }
      expected.o.insert(expected.o.end(), sum.begin(), sum.end());
      expected.rounding.insert(expected.rounding.end(), rounding.begin(), rounding.end());
      expected.size.insert(expected.size.end(), size.begin(), size.end());
    }
  }
  return expected;
}

// [batch][heads][rows][d] as [batch][rows][heads][d].
template <typename T>
std::vector<T> beside(const std::vector<T>& in, int batch, int heads, int rows, int d) {
  std::vector<T> out(in.size());
  size_t from = 0;
  for (int b = 0; b < batch; b++) {
    for (int h = 0; h < heads; h++) {
      for (int r = 0; r < rows; r++) {
        for (int i = 0; i < d; i++) {
          out[((size_t(b) * size_t(rows) + size_t(r)) * size_t(heads) + size_t(h)) * size_t(d) +
              size_t(i)] = in[from++];
        }
      }
    }
  }
  return out;
}

Strides strides(bool rows_apart, int heads, int rows, int d) {
  const long long row = rows_apart ? (long long)(heads)*d : d;
  return {(long long)(heads)*rows * d, rows_apart ? d : (long long)(rows)*d, row};
}

// Scales [batch][heads][tiles] in another order, [tiles][heads][batch], with gaps: what there is of
// them where `share` heads have the same, and tiles as well or not.
struct Scattered {
  std::vector<float> all;
  fa_scales at{};

  Scattered(const std::vector<float>& scales, int batch, int heads, int tiles, int share,
            bool per_head)
      : at{nullptr, heads / share, 1, batch + 1, 0} {
    if (!per_head) at.tile = (batch + 1) * at.heads + 3;
    all.assign(size_t(tiles * ((batch + 1) * at.heads + 3)), NAN);
    for (size_t i = 0; i < scales.size(); i++) {
      const int tile = int(i) % tiles, head = int(i) / tiles % heads, b = int(i) / tiles / heads;
      all[size_t(b * at.block + head / share * at.head + tile * at.tile)] = scales[i];
    }
  }
};

// The same as the launcher by fa_attention_fp8.
template <typename T>
std::vector<T> o_in_c(const Case& c, int d, const Buffer& q, const std::vector<uint8_t>& k,
                      const std::vector<uint8_t>& v, const Strides& q_strides,
                      const Strides& k_strides, Scattered q_scales, Scattered k_scales,
                      Scattered v_scales) {
  const Buffer in_k = upload("K", k), in_v = upload("V", v);
  const Buffer of_q = upload("scales of Q", q_scales.all),
               of_k = upload("scales of K", k_scales.all),
               of_v = upload("scales of V", v_scales.all);
  Buffer o("O", size_t(c.batch * c.heads * c.seq_len * d) * sizeof(T));
  o.poison();
  const fa_problem problem{c.batch, c.heads, c.seq_len, d,
                           std::is_same_v<T, __half> ? FA_FP16 : FA_BF16};
  const auto strides = [](const Strides& s) { return fa_strides{s.block, s.head, s.row}; };
  fa_options options{};
  options.size = sizeof options;
  options.mask = c.causal ? FA_MASK_CAUSAL : FA_MASK_NONE;
  options.kv_len = c.kv_len;
  options.kv_heads = c.kv_heads;
  options.q_strides = options.o_strides = strides(q_strides);
  options.k_strides = options.v_strides = strides(k_strides);
  fa_fp8 fp8{sizeof fp8, q_scales.at, k_scales.at, v_scales.at, c.in_c == Case::kVTransposed};
  fp8.q.scales = static_cast<const float*>(of_q.data());
  fp8.k.scales = static_cast<const float*>(of_k.data());
  fp8.v.scales = static_cast<const float*>(of_v.data());
  if (fp8.v_transposed) options.v_strides = {};
  const char* plan = nullptr;
  size_t bytes = 1;
  EXPECT_EQ(fa_plan_fp8("fp8", &problem, &options, &fp8, 0, &plan, &bytes), FA_OK) << fa_error();
  EXPECT_EQ(bytes == 0, fp8.v_transposed && c.kv_len % 4 == 0);
  Buffer workspace("workspace", std::max<size_t>(bytes, 16));
  workspace.poison();
  EXPECT_EQ(
      fa_attention_fp8("best", &problem, &options, &fp8, q.data(), in_k.data(), in_v.data(),
                       o.data(), c.own_workspace ? workspace.data() : nullptr, bytes, nullptr),
      FA_OK)
      << fa_error();
  synchronize();
  return download<T>(o);
}

// Launches the kernel. Returns the root mean square of O's errors over that of O, after looking at
// each element.
template <typename T = __nv_bfloat16, int kHeadDim = 128>
double error_of(const Case& c) {
  constexpr int d = kHeadDim;
  std::mt19937 random(unsigned(c.seq_len * 31 + c.kv_len * 7 + c.heads));
  std::normal_distribution<double> normal;
  const auto numbers = [&](int heads, int rows) {
    std::vector<double> x(size_t(c.batch * heads) * size_t(rows) * size_t(d));
    for (double& each : x) each = normal(random);
    return x;
  };
  std::vector<double> q = numbers(c.heads, c.seq_len), k = numbers(c.kv_heads, c.kv_len),
                      v = numbers(c.kv_heads, c.kv_len);
  for (double& x : q) x *= c.nats;
  for (double& x : v) x += c.v_mean;
  for (size_t i = 0; i < k.size(); i++) {
    const size_t j = i / size_t(d) % size_t(c.kv_len);
    if (c.growing) k[i] *= std::sqrt(3.0) * double(j + 1) / c.kv_len;
    if (c.equal_keys) k[i] = k[i % size_t(d)];
    if (c.zeros) k[i] = 0;
    if (int(j) == c.dominating) k[i] = 0.25;
  }
  if (c.dominating >= 0) {  // all queries have a part along that key
    for (double& x : q) x += 12;
  }
  const int all_heads = c.batch * c.heads, all_kv_heads = c.batch * c.kv_heads;
  const int share = c.shared_q_scales ? c.heads / c.kv_heads : 1;
  Quantised q8 = quantise(q, all_heads, c.seq_len, d, c.scale_per_head, share),
            k8 = quantise(k, all_kv_heads, c.kv_len, d, c.scale_per_head),
            v8 = quantise(v, all_kv_heads, c.kv_len, d, true);
  if (c.zeros) std::fill(k8.scales.begin(), k8.scales.end(), 0.0f);  // as amax / 448 gives

  if (c.nan_row >= 0) q8.bits[size_t(c.nan_row * d + 77 % d)] = 0x7f;
  if (c.nan_key >= 0) v8.bits[size_t(c.nan_key * d + 5)] = 0xff;

  // V transposed, whose padding is NaN: it must not matter. Behind K, three rows that are NaN.
  const int padded = (c.kv_len + 127) / 128 * 128, tiles = padded / 128;
  std::vector<uint8_t> vt(size_t(all_kv_heads) * size_t(d) * size_t(padded), 0x7f);
  for (size_t i = 0; i < v8.bits.size(); i++) {
    const size_t column = i % size_t(d), key = i / size_t(d) % size_t(c.kv_len),
                 head = i / size_t(d) / size_t(c.kv_len);
    vt[(head * size_t(d) + column) * size_t(padded) + key] = v8.bits[i];
  }
  std::vector<float> v_scales;
  for (int head = 0; head < all_kv_heads; head++) {
    v_scales.push_back(v8.scales[size_t(head * tiles)]);
  }
  const auto placed = [&](const std::vector<uint8_t>& bits, int heads, int rows) {
    return c.rows_apart ? beside(bits, c.batch, heads, rows, d) : bits;
  };
  std::vector<uint8_t> k_bits = placed(k8.bits, c.kv_heads, c.kv_len);
  const Strides k_strides = strides(c.rows_apart, c.kv_heads, c.kv_len, d);
  k_bits.insert(k_bits.end(), size_t(3 * k_strides.row), 0x7f);

  const Buffer in_q = upload("Q", placed(q8.bits, c.heads, c.seq_len)), in_k = upload("K", k_bits),
               in_v = upload("V", vt), q_scales = upload("scales of Q", q8.scales),
               k_scales = upload("scales of K", k8.scales),
               scales_of_v = upload("scales of V", v_scales);
  Buffer out("O", q.size() * sizeof(T));
  const auto floats = [](const Buffer& buffer) { return static_cast<const float*>(buffer.data()); };
  const auto bytes = [](const Buffer& buffer) {
    return static_cast<const uint8_t*>(buffer.data());
  };
  const auto scales = [&](const Buffer& buffer, int of_tiles) {
    return fp8::Scales{floats(buffer), uint32_t(of_tiles), c.scale_per_head ? 0u : 1u};
  };
  const float scale = float(1 / std::sqrt(double(d)));
  fp8::Inputs<T> inputs{};
  inputs.q = bytes(in_q);
  inputs.k = bytes(in_k);
  inputs.v = bytes(in_v);
  inputs.o = static_cast<T*>(out.data());
  inputs.q_scales = scales(q_scales, (c.seq_len + 127) / 128);
  inputs.k_scales = scales(k_scales, tiles);
  inputs.v_scales = {floats(scales_of_v), 1, 0};
  inputs.batch = c.batch;
  inputs.heads = c.heads;
  inputs.kv_heads = c.kv_heads;
  inputs.seq_len = c.seq_len;
  inputs.kv_len = c.kv_len;
  inputs.scale = scale;
  inputs.mask = c.causal ? Mask::kCausal : Mask::kNone;
  inputs.q_strides = inputs.o_strides = strides(c.rows_apart, c.heads, c.seq_len, d);
  inputs.k_strides = k_strides;
  fp8::Launcher<T, d>::run(inputs);
  synchronize();

  const Expected expected = attention(c, q8, k8, v8, d, double(scale));
  std::vector<T> o = download<T>(out);
  if (c.in_c != Case::kNot) {
    const bool rows = c.in_c == Case::kVInRows;
    const std::vector<T> found = o_in_c<T>(
        c, d, in_q, placed(k8.bits, c.kv_heads, c.kv_len),
        rows ? placed(v8.bits, c.kv_heads, c.kv_len) : vt, inputs.q_strides, k_strides,
        Scattered(q8.scales, c.batch, c.heads, (c.seq_len + 127) / 128, share, c.scale_per_head),
        Scattered(k8.scales, c.batch, c.kv_heads, tiles, 1, c.scale_per_head),
        Scattered(v8.scales, c.batch, c.kv_heads, tiles, 1, true));
    EXPECT_EQ(std::memcmp(found.data(), o.data(), o.size() * sizeof(T)), 0);
    o = found;
  }
  if (c.rows_apart) {  // back: rows and heads change places once more
    o = beside(o, c.batch, c.seq_len, c.heads, d);
  }
  double errors = 0, sizes = 0;
  int wrong = 0;
  const size_t rows_of_v = size_t(c.heads / c.kv_heads * c.seq_len);  // that read its first head
  for (size_t i = 0; i < o.size(); i++) {
    const double value = double(float(o[i])), error = std::abs(value - expected.o[i]);
    const size_t row = i / size_t(d), column = i % size_t(d);
    if (int(row) == c.nan_row || (c.nan_key >= 0 && column == 5 && row < rows_of_v)) {
      EXPECT_TRUE(std::isnan(value)) << "row " << row << ", column " << column << ": " << value;
      continue;
    }
    errors += error * error;
    sizes += expected.o[i] * expected.o[i];
    // What the sums lose, and the rounding of O, are below 3 %.
    const double most = expected.rounding[i] + expected.size[i] * 0.03 + 1e-6;
    if (error <= most) continue;
    if (++wrong <= 5) {
      ADD_FAILURE() << "row " << row << ", column " << column << ": " << value << " instead of "
                    << expected.o[i] << ", which may be wrong by " << most;
    }
  }
  EXPECT_EQ(wrong, 0);
  return std::sqrt(errors / sizes);
}

class Fp8Kernel : public testing::Test {
 protected:
  void SetUp() override {
    if (on_gpu() && device_capability() != 90) GTEST_SKIP() << "its instructions are sm_90a's";
  }
};

// What P's rounding leaves of normal inputs, whose O is as random as its error: 2.65 %.
constexpr double kRounding = 0.028;

TEST_F(Fp8Kernel, NormalInputs) {
  EXPECT_LE(error_of({}), kRounding);
  EXPECT_LE(error_of({.seq_len = 512, .kv_len = 512}), kRounding);
  EXPECT_LE(error_of({.seq_len = 128, .kv_len = 1024, .heads = 3, .kv_heads = 3}), kRounding);
  EXPECT_LE(error_of({.heads = 7, .batch = 2}), kRounding);
}
TEST_F(Fp8Kernel, MoreKeysThanAWindow) {
  EXPECT_LE(error_of({.seq_len = 128, .kv_len = 1152}), kRounding);
  EXPECT_LE(error_of({.seq_len = 256, .kv_len = 2048, .heads = 2}), kRounding);
}

// Few keys have most of a row's weight: what they lose by rounding, the sum loses as well.
// References rise often.
TEST_F(Fp8Kernel, SpreadScores) {
  EXPECT_LE(error_of({.nats = 4}), 0.018);
  EXPECT_LE(error_of({.seq_len = 128, .kv_len = 1024, .nats = 4}), 0.018);
  EXPECT_LE(error_of({.seq_len = 128, .kv_len = 1024, .nats = 20}), 0.01);
  EXPECT_LE(error_of({.seq_len = 128, .kv_len = 2048, .nats = 20}), 0.01);
}
TEST_F(Fp8Kernel, GrowingScores) {
  EXPECT_LE(error_of({.seq_len = 128, .kv_len = 1024, .nats = 4, .growing = true}), 0.015);
  EXPECT_LE(error_of({.seq_len = 128, .kv_len = 2048, .nats = 4, .growing = true}), 0.015);
  EXPECT_LE(error_of({.seq_len = 256, .kv_len = 2048, .heads = 2, .nats = 20, .growing = true}),
            0.01);
}

// The sums are what is wrong here, and with them O's size.
TEST_F(Fp8Kernel, VWithAMean) {
  EXPECT_LE(error_of({.v_mean = 1}), 0.006);
  EXPECT_LE(error_of({.seq_len = 128, .kv_len = 1024, .v_mean = 1}), 0.006);
  EXPECT_LE(error_of({.seq_len = 64, .kv_len = 4096, .v_mean = 1}), 0.006);
  EXPECT_LE(error_of({.seq_len = 128, .kv_len = 2048, .nats = 20, .v_mean = 1}), 0.008);
}
// All P are alike, so that their rounding does nothing.
TEST_F(Fp8Kernel, EqualKeys) {
  EXPECT_LE(error_of({.seq_len = 128, .kv_len = 2048, .equal_keys = true}), 0.003);
  EXPECT_LE(error_of({.seq_len = 128, .kv_len = 2048, .v_mean = 1, .equal_keys = true}), 0.012);
}
// Scores of zero, scaled by zero, beside hidden keys.
TEST_F(Fp8Kernel, ScaleOfZero) {
  EXPECT_LE(error_of({.zeros = true}), 0.012);
  EXPECT_LE(error_of({.seq_len = 128, .kv_len = 200, .zeros = true}), 0.012);
  EXPECT_LE(error_of({.seq_len = 256, .kv_len = 256, .causal = true, .zeros = true}), 0.012);
}
TEST_F(Fp8Kernel, OneKeyDominates) {
  for (const int key : {0, 3, 130, 500}) {
    EXPECT_LE(error_of({.seq_len = 128, .kv_len = 512, .dominating = key}), 0.01) << key;
  }
  EXPECT_LE(error_of({.seq_len = 128, .kv_len = 2048, .dominating = 1900}), 0.01);
}

TEST_F(Fp8Kernel, AnyLength) {
  EXPECT_LE(error_of({.seq_len = 300, .kv_len = 500, .heads = 2, .kv_heads = 2}), kRounding);
  EXPECT_LE(error_of({.seq_len = 100, .kv_len = 1500}), kRounding);
  EXPECT_LE(error_of({.seq_len = 129, .kv_len = 128, .heads = 4}), kRounding);
  for (const int kv_len : {1, 2, 3, 4, 5, 127, 129, 255, 1025}) {
    EXPECT_LE(error_of({.seq_len = 17, .kv_len = kv_len, .heads = 2, .kv_heads = 2}), kRounding)
        << kv_len;
  }
}
TEST_F(Fp8Kernel, FewerHeadsOfKeys) {
  EXPECT_LE(error_of({.seq_len = 130, .kv_len = 256, .heads = 6, .kv_heads = 2, .batch = 2}),
            kRounding);
  EXPECT_LE(error_of({.seq_len = 70, .kv_len = 391, .heads = 4, .batch = 3}), kRounding);
}
TEST_F(Fp8Kernel, RowsApartAndOneScalePerHead) {
  Case c{.seq_len = 100, .kv_len = 643, .heads = 4, .kv_heads = 2, .batch = 2};
  c.scale_per_head = true;
  EXPECT_LE(error_of(c), kRounding);
  c.rows_apart = true;
  EXPECT_LE(error_of(c), kRounding);
}

// Rows that see one key have no error but that of O's own type; those that see none are zeros.
TEST_F(Fp8Kernel, Causal) {
  EXPECT_LE(error_of({.causal = true}), kRounding);
  EXPECT_LE(error_of({.seq_len = 640, .kv_len = 640, .heads = 2, .kv_heads = 2, .causal = true}),
            kRounding);
  EXPECT_LE(error_of({.seq_len = 200, .kv_len = 1300, .causal = true}), kRounding);
  EXPECT_LE(error_of({.seq_len = 700, .kv_len = 300, .heads = 2, .causal = true}), kRounding);
  EXPECT_LE(error_of({.seq_len = 333, .kv_len = 2000, .nats = 20, .causal = true}), 0.01);
}

// A NaN of Q is seen in its row of O and nowhere else, one of V in its column.
TEST_F(Fp8Kernel, NaN) {
  EXPECT_LE(error_of({.heads = 4, .nan_row = 256 + 5}), kRounding);
  EXPECT_LE(error_of({.kv_len = 1152, .heads = 4, .nan_row = 3 * 256 + 130}), kRounding);
  EXPECT_LE(error_of({.kv_len = 300, .heads = 2, .kv_heads = 2, .nan_row = 20}), kRounding);
  EXPECT_LE(error_of({.kv_len = 300, .heads = 2, .kv_heads = 2, .nan_key = 299}), kRounding);
}

// ---- what comes before the kernel ---------------------------------------------------------------
// Every number and scale is that of the harness's rounding, bit for bit: what the oracle computes
// with is what the kernel gets.
template <typename T, int kHeadDim>
void expect_rounded_alike(Fp8 fp8, int q_len, int kv_len) {
  Problem p =
      test::problem(2, 2, q_len, kHeadDim, std::is_same_v<T, __half> ? Dtype::kFp16 : Dtype::kBf16);
  p.kv_len = kv_len;
  p.kv_heads = 1;
  p.fp8 = fp8;
  const fa::Inputs inputs = make_inputs(p, "outliers", 3);
  const Fp8Inputs expected = round_to_fp8(p, inputs);
  const size_t bytes = quantise::Place(nullptr, 2, 2, 1, q_len, kv_len, kHeadDim).bytes;
  Buffer q("Q", p.tensor_bytes()), k("K", p.kv_tensor_bytes()), v("V", p.kv_tensor_bytes());
  Buffer memory("workspace", bytes);
  q.upload(inputs.q.data());
  k.upload(inputs.k.data());
  v.upload(inputs.v.data());
  memory.poison();
  Attention<T> a{};
  a.q = static_cast<const T*>(q.data());
  a.k = static_cast<const T*>(k.data());
  a.v = static_cast<const T*>(v.data());
  a.batch = a.heads = 2;
  a.kv_heads = 1;
  a.seq_len = q_len;
  a.kv_len = kv_len;
  a.q_strides = p.strides();
  a.k_strides = a.v_strides = p.kv_strides();
  a.fp8 = fp8;
  quantise::run<T, kHeadDim>(a, quantise::Place(memory.data(), 2, 2, 1, q_len, kv_len, kHeadDim));
  synchronize();
  std::vector<uint8_t> made(bytes);
  memory.download(made.data());
  const quantise::Place at(made.data(), 2, 2, 1, q_len, kv_len, kHeadDim);

  const auto expect_rows = [&](const std::vector<float>& rows, const uint8_t* numbers,
                               const float* scales, int heads, int count, int stored, int tiles) {
    for (int head = 0; head < heads; head++) {
      for (int row = 0; row < stored; row++) {
        const float scale = scales[fp8 == Fp8::kHead ? head : head * tiles + row / 128];
        for (int c = 0; c < kHeadDim; c++) {
          const float is = float(from_e4m3(numbers[(head * stored + row) * kHeadDim + c])) * scale;
          const float should =
              row < count ? rows[size_t((head * count + row) * kHeadDim + c)] : 0.0f;
          ASSERT_EQ(is, should) << "head " << head << ", row " << row << ", column " << c;
        }
      }
    }
  };
  expect_rows(expected.q, at.q, at.q_scales, 4, q_len, q_len, at.q_tiles);
  expect_rows(expected.k, at.k, at.k_scales, 2, kv_len, at.k_rows, at.k_tiles);
  for (int head = 0; head < 2; head++) {
    for (int c = 0; c < kHeadDim; c++) {
      for (int key = 0; key < at.v_rows; key++) {
        const uint8_t number = at.v[(head * kHeadDim + c) * at.v_rows + key];
        const float should =
            key < kv_len ? expected.v[size_t((head * kv_len + key) * kHeadDim + c)] : 0.0f;
        ASSERT_EQ(float(from_e4m3(number)) * at.v_scales[head], should)
            << "V, head " << head << ", key " << key << ", column " << c;
      }
    }
  }
}

TEST(Quantise, RoundsAsTheOracleDoes) {
  for (const Fp8 fp8 : {Fp8::kHead, Fp8::kTile, Fp8::kRotated}) {
    expect_rounded_alike<__nv_bfloat16, 128>(fp8, 200, 259);
    expect_rounded_alike<__nv_bfloat16, 64>(fp8, 128, 129);
    expect_rounded_alike<__half, 128>(fp8, 1, 128);
    expect_rounded_alike<__half, 64>(fp8, 385, 3);
    expect_rounded_alike<__half, 256>(fp8, 130, 129);
  }
}

// ---- V that is e4m3 in its rows ----------------------------------------------------------------
// Each byte is in its place, zeros are behind the keys, and memory is read and written as well as
// it can be: in whole sectors, and without bank conflicts.
template <int kHeadDim>
void expect_transposed(int batch, int heads, int kv_len, bool rows_apart) {
  const int padded = (kv_len + 127) / 128 * 128;
  std::vector<uint8_t> rows(size_t(batch * heads * kv_len * kHeadDim));
  std::mt19937 random(unsigned(kv_len + heads));
  for (uint8_t& each : rows) each = uint8_t(random());
  const Buffer in = upload("V", rows);
  Buffer out("V transposed", size_t(batch * heads * kHeadDim * padded));
  out.poison();
  const Strides at = strides(rows_apart, heads, kv_len, kHeadDim);
  take_counts();
  quantise::transpose<kHeadDim>({static_cast<const uint8_t*>(in.data()), at, heads, kv_len,
                                 static_cast<uint8_t*>(out.data()), padded},
                                batch);
  synchronize();
  const Counts taken = take_counts().counters;
  const std::vector<uint8_t> found = download<uint8_t>(out);
  for (size_t i = 0; i < found.size(); i++) {
    const int key = int(i) % padded, column = int(i) / padded % kHeadDim;
    const size_t head = i / size_t(padded) / kHeadDim;
    const size_t row = at.at(head / size_t(heads), head % size_t(heads), size_t(key));
    const uint8_t should = key < kv_len ? rows[row + size_t(column)] : uint8_t(0);
    ASSERT_EQ(found[i], should) << "head " << head << ", column " << column << ", key " << key;
  }
  if (!sees_accesses()) return;
  std::map<std::string, uint64_t> counts(taken.begin(), taken.end());
  EXPECT_EQ(counts["global_sectors"], counts["global_sectors_ideal"]);
  EXPECT_EQ(counts["shared_wavefronts"], counts["shared_wavefronts_ideal"]);
  EXPECT_EQ(counts["global_bytes"], rows.size() + found.size());
}

TEST(Quantise, TransposesE4m3) {
  for (const bool rows_apart : {false, true}) {
    expect_transposed<128>(2, 3, 256, rows_apart);
    expect_transposed<64>(1, 2, 384, rows_apart);
    expect_transposed<128>(1, 2, 129, rows_apart);
    expect_transposed<64>(2, 1, 3, rows_apart);
    expect_transposed<256>(1, 2, 131, rows_apart);
  }
}

// ---- the C entry point --------------------------------------------------------------------------
TEST_F(Fp8Kernel, InCTheSameBits) {
  Case c{.seq_len = 140, .kv_len = 203, .heads = 2, .batch = 2};
  for (const auto in_c : {Case::kVInRows, Case::kVTransposed}) {
    c.in_c = in_c;
    c.own_workspace = !c.own_workspace;
    for (const bool shared : {false, true}) {
      c.shared_q_scales = c.rows_apart = shared;
      c.scale_per_head = c.causal = false;
      EXPECT_LE(error_of(c), kRounding);
      c.scale_per_head = c.causal = true;
      EXPECT_LE((error_of<__half, 64>(c)), kRounding);
    }
    EXPECT_LE(error_of({.kv_len = 1152, .in_c = in_c, .own_workspace = false}), kRounding);
    EXPECT_LE((error_of<__nv_bfloat16, 64>({.kv_len = 130, .nats = 4, .in_c = in_c})), 0.018);
  }
}

class Fp8InC : public Fp8Kernel {
 protected:
  Fp8InC()
      : q_(upload("Q", numbers())),
        k_(upload("K", numbers())),
        v_(upload("V", numbers())),
        o_("O", numbers().size() * 2) {
    options_.size = sizeof options_;
    fp8_.size = sizeof fp8_;
  }
  // 0, 1/8, 1/4 and 1/2, and their negatives.
  static std::vector<uint8_t> numbers() {
    std::vector<uint8_t> all(2 * 128 * 64);
    for (size_t i = 0; i < all.size(); i++) {
      constexpr uint8_t kNumbers[] = {0x00, 0x20, 0x28, 0x30, 0xa0, 0xa8, 0xb0};
      all[i] = kNumbers[(i * i / 3 + i / 64) % 7];
    }
    return all;
  }
  fa_status run(const char* kernel = "best") {
    o_.poison();
    return fa_attention_fp8(kernel, &problem_, &options_, null_fp8_ ? nullptr : &fp8_, q_.data(),
                            k_.data(), v_.data(), o_.data(), workspace_, workspace_bytes_, nullptr);
  }
  std::string refused(fa_status expected) {
    EXPECT_EQ(run(), expected);
    return fa_error();
  }
  std::vector<uint16_t> o() {
    synchronize();
    return download<uint16_t>(o_);
  }
  fa_problem problem_{1, 2, 128, 64, FA_BF16};
  fa_options options_{};
  fa_fp8 fp8_{};
  bool null_fp8_ = false;
  Buffer q_, k_, v_, o_;
  void* workspace_ = nullptr;
  size_t workspace_bytes_ = 0;
};

TEST_F(Fp8InC, NullScalesAreOne) {
  null_fp8_ = true;
  ASSERT_EQ(run(), FA_OK) << fa_error();
  const std::vector<uint16_t> expected = o();
  null_fp8_ = false;
  ASSERT_EQ(run(), FA_OK) << fa_error();
  EXPECT_EQ(o(), expected);
  const Buffer one = upload("1", std::vector<float>{1}), two = upload("2", std::vector<float>{2});
  const auto scale = [](const Buffer& buffer) {
    return fa_scales{static_cast<const float*>(buffer.data()), 1, 0, 0, 0};
  };
  fp8_.q = fp8_.k = fp8_.v = scale(one);
  ASSERT_EQ(run(), FA_OK) << fa_error();
  EXPECT_EQ(o(), expected);
  // Twice V gives twice O, whose exponent begins at bit 7 of bf16; twice Q the same as twice the
  // scale.
  fp8_.v = scale(two);
  ASSERT_EQ(run(), FA_OK) << fa_error();
  const std::vector<uint16_t> twice = o();
  for (size_t i = 0; i < twice.size(); i++) {
    const int exponent = (expected[i] & 0x7fff) != 0 ? 0x80 : 0;
    ASSERT_EQ(twice[i], expected[i] + exponent) << i;
  }
  fp8_.v = scale(one);
  fp8_.q = scale(two);
  ASSERT_EQ(run(), FA_OK) << fa_error();
  const std::vector<uint16_t> scores = o();
  EXPECT_NE(scores, expected);
  fp8_.q = scale(one);
  options_.scale = 0.25f;
  ASSERT_EQ(run(), FA_OK) << fa_error();
  EXPECT_EQ(o(), scores);
}

TEST_F(Fp8InC, RefusesInOneSentence) {
  fp8_.size = 8;
  EXPECT_EQ(refused(FA_BAD_INPUT),
            "size is 8, but must be sizeof(fa_fp8), which version 1.0.0 "
            "knows as 136");
  fp8_.size = sizeof fp8_;
  fp8_.v_transposed = 2;
  EXPECT_EQ(refused(FA_BAD_INPUT), "v_transposed must be 0 or 1, not 2");
  fp8_.v_transposed = 1;
  options_.v_strides = {16384, 64, 128};
  EXPECT_EQ(refused(FA_BAD_INPUT),
            "v_strides must be 0 where V is transposed, because it is contiguous");
  fp8_.v_transposed = 0;
  options_.v_strides = {16384, 64, 136};
  EXPECT_EQ(refused(FA_BAD_INPUT), "v_strides.row must be a multiple of 16 for e4m3, not 136");
  options_.v_strides = {};
  const Buffer one = upload("1", std::vector<float>{1, 1, 1, 1});
  const auto* const scales = static_cast<const float*>(one.data());
  fp8_.k = {scales, 3, 0, 0, 0};
  EXPECT_EQ(refused(FA_BAD_INPUT),
            "the scales of K must be for a divisor of its 2 heads, not for 3");
  fp8_.k = {scales, 2, 0, -1, 0};
  EXPECT_EQ(refused(FA_BAD_INPUT), "the strides of the scales of K must be from 0 to 2^31 - 1");
  fp8_.k = {reinterpret_cast<const float*>(reinterpret_cast<const char*>(scales) + 2), 1, 0, 0, 0};
  EXPECT_EQ(refused(FA_BAD_INPUT), "the pointer to the scales of K must be a multiple of 4 bytes");
  fp8_.k = {};
  fp8_.v = {scales, 1, 0, 0, 1};
  EXPECT_EQ(refused(FA_BAD_INPUT),
            "V has a scale per head, because its tiles are added in one sum: tile must be 0");
  fp8_.v = {static_cast<const float*>(o_.data()), 1, 0, 0, 0};
  EXPECT_EQ(refused(FA_BAD_INPUT), "O overlaps the scales of V: give O memory of its own");
  fp8_.v = {};
  const Buffer workspace("workspace", 2 * 64 * 128);
  workspace_ = workspace.data();
  workspace_bytes_ = 2 * 64 * 128 - 1;
  EXPECT_EQ(refused(FA_BAD_INPUT),
            "workspace_bytes is 16383, but beyond/fp8 needs 16384: ask fa_plan_fp8");
  workspace_bytes_++;
  EXPECT_EQ(refused(FA_OK), "");
  workspace_ = k_.data();
  EXPECT_EQ(refused(FA_BAD_INPUT),
            "the workspace overlaps K: give the workspace memory of its own");
  workspace_ = nullptr;
  options_.lse = static_cast<float*>(workspace.data());
  EXPECT_EQ(refused(FA_UNSUPPORTED),
            "no kernel takes this: beyond/fp8 has one output, without log-sum-exp");
  options_.lse = nullptr;
  const int lengths[] = {0, 128};
  options_.cu_seqlens_q = options_.cu_seqlens_kv = lengths;
  options_.q_rows = options_.kv_rows = 128;
  EXPECT_EQ(refused(FA_BAD_INPUT), "fp8 goes with neither cu_seqlens nor page_size");
}

TEST_F(Fp8Kernel, OtherTypesAndHeads) {
  EXPECT_LE((error_of<__half>({.seq_len = 128, .kv_len = 2048, .nats = 20})), 0.01);
  EXPECT_LE((error_of<__half, 64>({.heads = 3, .kv_heads = 3})), kRounding);
  EXPECT_LE((error_of<__nv_bfloat16, 64>({.seq_len = 130, .kv_len = 1500, .heads = 2})), kRounding);
  EXPECT_LE((error_of<__half, 64>({.seq_len = 300, .kv_len = 300, .nats = 4, .causal = true})),
            0.018);
  EXPECT_LE((error_of<__half, 64>({.seq_len = 128, .kv_len = 2048, .v_mean = 1})), 0.006);
}

// A kernel of its own (fp8_wide.h): what makes the other one take another path, and what is new in
// it: tiles of 64 keys, a window's end where O is still being stored, and rows of one warp alone
// past the end.
TEST_F(Fp8Kernel, HeadDim256) {
  const auto error = [](Case c) { return error_of<__nv_bfloat16, 256>(c); };
  EXPECT_LE(error({.seq_len = 300, .kv_len = 1024, .heads = 2}), kRounding);
  EXPECT_LE(error({.seq_len = 256, .kv_len = 1216, .heads = 2, .batch = 2, .nats = 4}), 0.018);
  EXPECT_LE(error({.kv_len = 2112, .v_mean = 1}), 0.006);
  EXPECT_LE(error({.seq_len = 256, .kv_len = 2048, .nats = 20, .growing = true}), 0.01);
  EXPECT_LE(error({.seq_len = 128, .kv_len = 512, .dominating = 500}), 0.01);
  EXPECT_LE(error({.seq_len = 128, .kv_len = 200, .zeros = true}), 0.012);
  for (const int kv_len : {1, 3, 63, 65, 127, 129, 1025}) {
    EXPECT_LE(error({.seq_len = 17, .kv_len = kv_len, .heads = 2, .kv_heads = 2}), kRounding)
        << kv_len;
  }
  EXPECT_LE(error({.seq_len = 333, .kv_len = 1300, .nats = 20, .causal = true}), 0.01);
  EXPECT_LE(error({.seq_len = 700, .kv_len = 300, .heads = 2, .causal = true}), kRounding);
  EXPECT_LE(error({.kv_len = 1152, .heads = 4, .nan_row = 3 * 256 + 130}), kRounding);
  EXPECT_LE(error({.kv_len = 300, .heads = 2, .kv_heads = 2, .nan_key = 299}), kRounding);
  Case c{.seq_len = 140, .kv_len = 203, .heads = 2, .batch = 2};
  c.rows_apart = c.scale_per_head = true;
  for (const auto in_c : {Case::kVInRows, Case::kVTransposed}) {
    c.in_c = in_c;
    EXPECT_LE((error_of<__half, 256>(c)), kRounding);
  }
}

#ifndef __CUDACC__

// ---- the emulator alone -------------------------------------------------------------------------
// Whoever runs first, and whenever copies happen: windows, rising references, hidden keys, and two
// query tiles for each CTA.
class AnyOrder : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (GetParam() == 0) emu::options().completion = emu::Completion::kEarly;
    if (GetParam() == 0) return;
    emu::options().completion = emu::Completion::kRandom;
    emu::options().schedule = emu::Schedule::kRandom;
    emu::options().seed = uint64_t(GetParam());
  }
  void TearDown() override { emu::options() = {}; }
};
TEST_P(AnyOrder, Windows) {
  EXPECT_LE(error_of({.seq_len = 300, .kv_len = 1300, .heads = 2, .nats = 8}), 0.014);
}
TEST_P(AnyOrder, Turns) { EXPECT_LE(error_of({.heads = 3, .nats = 8, .causal = true}), 0.014); }
TEST_P(AnyOrder, HeadDim256) {
  EXPECT_LE((error_of<__half, 256>({.seq_len = 300, .kv_len = 1300, .heads = 2, .nats = 8})),
            0.014);
  EXPECT_LE((error_of<__half, 256>({.heads = 3, .nats = 8, .causal = true})), 0.014);
}
INSTANTIATE_TEST_SUITE_P(Seeds, AnyOrder, testing::Range(0, 4));

#endif

}  // namespace fa::fp8_kernel_test
