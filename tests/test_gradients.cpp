// Kernels of gradients on problems of every kind, held to float64; the C entry point to them; and
// that the comparison finds what is wrong.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/api/fa.h"
#include "common/harness/device.h"
#include "common/harness/gradients.h"
#include "common/launch/gradients.h"
#include "common/launch/validation.h"
#include "tests/support.h"
#ifndef FA_WITH_CUDA
#include "common/emulator/core/launch.h"
#endif

namespace fa {
namespace {

struct Case {
  std::string what;
  Problem problem;
  std::string inputs = "normal";
  bool rows_apart = false;  // heads lie beside each other: [batch, rows, heads, head_dim]
};

Problem problem(int batch, int heads, int seq_len, int head_dim = 64, Dtype dtype = Dtype::kBf16) {
  Problem p;
  p.batch = batch;
  p.heads = heads;
  p.seq_len = seq_len;
  p.head_dim = head_dim;
  p.dtype = dtype;
  return p;
}

// Each with two of the four pairs of type and head size.
std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](const std::string& what, Problem p, const std::string& inputs = "normal",
                       bool rows_apart = false) {
    for (const int head_dim : {64, 128}) {
      p.head_dim = head_dim;
      p.dtype = (all.size() / 2 + all.size()) % 2 == 0 ? Dtype::kFp16 : Dtype::kBf16;
      const std::string of = std::string(name_of(p.dtype)) + "_" + std::to_string(head_dim) + "_";
      all.push_back({of + what, p, inputs, rows_apart});
    }
  };
  add("two_heads", problem(1, 2, 128));
  Problem p = problem(2, 1, 128);
  p.mask = Mask::kCausal;
  add("causal", p);
  p = problem(1, 1, 70);
  p.kv_len = 131;
  add("odd_lengths", p);
  p.mask = Mask::kCausal;
  add("more_keys", p);
  std::swap(p.seq_len, *p.kv_len);
  add("queries_without_keys", p);
  p = problem(1, 4, 65);
  p.kv_heads = 2;
  add("groups", p);
  add("groups_rows_apart", p, "normal", true);
  p = problem(1, 2, 0);
  p.pack({{100, 30}, {0, 17}, {33, 0}, {64, 129}});
  p.mask = Mask::kCausal;
  p.kv_heads = 1;
  add("packed", p);
  p = problem(1, 1, 128);
  p.scores = {10, Growth::kGrowing};
  add("spread", p);
  p.scores.reset();
  p.own_scale = 0.03f;
  add("own_scale", p);
  // Many tiles, so that stages and phases come round: without a mask and with one.
  p = problem(1, 1, 448);
  p.kv_len = 256;
  add("many_tiles", p);
  p = problem(1, 2, 400);
  p.kv_len = 500;
  p.kv_heads = 1;
  p.mask = Mask::kCausal;
  add("many_tiles_causal", p);
  p = problem(3, 11, 70);  // sections of eight heads, of which the last has fewer
  p.mask = Mask::kCausal;
  add("sections", p);
  p = problem(1, 1, 1);
  p.kv_len = 150;
  add("one_query", p);
  std::swap(p.seq_len, *p.kv_len);
  add("one_key", p);
  p = problem(1, 2, 0);
  p.pack({{64, 64}, {65, 63}, {0, 0}, {129, 128}});
  add("packed_edges", p);
  for (const char* const inputs : {"large", "dominant_key", "equal_keys", "one_hot_v"}) {
    add(inputs, problem(1, 1, 128), inputs);
  }
  return all;
}

// With rows_apart, [batch, rows, heads, head_dim] and `gap` more elements behind each row of all
// heads, so that no two tensors lie alike.
Strides strides_of(const Case& each, int heads, size_t rows, int gap) {
  const long long d = each.problem.head_dim, row = heads * d + gap;
  if (!each.rows_apart) return each.problem.contiguous(heads, rows);
  return {(long long)(rows)*row, d, row};
}

// A tensor on the device, [blocks][heads][rows][head_dim] for the host.
class Tensor {
 public:
  Tensor(const char* name, const Case& each, bool of_keys, int gap)
      : blocks_(size_t(each.problem.blocks())),
        heads_(size_t(of_keys ? each.problem.key_heads() : each.problem.heads)),
        rows_(of_keys ? each.problem.kv_rows() : each.problem.q_rows()),
        d_(size_t(each.problem.head_dim)),
        strides_(strides_of(each, int(heads_), rows_, gap)),
        buffer_(name, std::max<size_t>(span_bytes(each.problem, strides_, of_keys), 16)) {
    buffer_.poison();
  }
  void upload(const std::vector<uint16_t>& from) {
    std::vector<uint16_t> there(buffer_.size() / 2, 0x7fff);  // NaN between the rows
    for_rows([&](size_t row, size_t at) { std::copy_n(&from[row * d_], d_, &there[at]); });
    buffer_.upload(there.data());
  }
  std::vector<uint16_t> download() const {
    std::vector<uint16_t> there(buffer_.size() / 2), result(blocks_ * heads_ * rows_ * d_);
    buffer_.download(there.data());
    for_rows([&](size_t row, size_t at) { std::copy_n(&there[at], d_, &result[row * d_]); });
    return result;
  }
  void poison() { buffer_.poison(); }
  void* data() const { return buffer_.data(); }
  const Strides& strides() const { return strides_; }

 private:
  template <typename F>
  void for_rows(F f) const {
    for (size_t i = 0; i < blocks_ * heads_ * rows_; i++) {
      f(i, strides_.at(i / rows_ / heads_, i / rows_ % heads_, i % rows_));
    }
  }
  size_t blocks_, heads_, rows_, d_;
  Strides strides_;
  Buffer buffer_;
};

// dO is N(0, 1), whatever the inputs are.
std::vector<uint16_t> make_d_o(Problem p) {
  p.scores.reset();
  return make_inputs(p, "normal", 17).q;
}

using Gradients3 = std::map<std::string, std::vector<uint16_t>>;

// What the C entry point is told of a problem and of tensors.
struct InC {
  fa_problem problem;
  fa_options options{};

  explicit InC(const Problem& p, const Tensors& tensors = {})
      : problem{p.batch, p.heads, p.seq_len, p.head_dim,
                p.dtype == Dtype::kFp16 ? FA_FP16 : FA_BF16} {
    options.size = sizeof(fa_options);
    options.mask = p.mask == Mask::kCausal ? FA_MASK_CAUSAL : FA_MASK_NONE;
    options.kv_len = p.key_len();
    options.kv_heads = p.key_heads();
    options.scale = p.own_scale.value_or(0);
    options.cu_seqlens_q = tensors.cu_seqlens_q;
    options.cu_seqlens_kv = tensors.cu_seqlens_kv;
    options.lse = tensors.lse;
    if (!p.packed.empty()) {
      options.q_rows = int(p.q_rows());
      options.kv_rows = int(p.kv_rows());
    }
    const auto strides = [](const Strides& s) { return fa_strides{s.block, s.head, s.row}; };
    options.q_strides = strides(tensors.q_strides);
    options.k_strides = strides(tensors.k_strides);
    options.v_strides = strides(tensors.v_strides);
    options.o_strides = strides(tensors.o_strides);
    options.deterministic = p.deterministic;
  }
  fa_status backward(const char* kernel, const GradientTensors& t, bool own_workspace) const {
    const Tensors& f = t.forward;
    return fa_attention_backward(kernel, &problem, &options, f.q, f.k, f.v, f.o, t.d_o, t.d_q,
                                 t.d_k, t.d_v, own_workspace ? f.workspace : nullptr,
                                 own_workspace ? f.workspace_bytes : 0, f.stream);
  }
};

// O and log-sum-exp are the reference's or, with `forward_kernel`, that kernel's. With `in_c` the C
// entry point runs a kernel by that name. `left` gets what is in the workspace afterwards.
Gradients3 gradients_of(const GradientKernel& kernel, const Case& each, const Inputs& inputs,
                        const std::vector<uint16_t>& d_o, const GradientReference& reference,
                        const Kernel* forward_kernel = nullptr, const char* in_c = nullptr,
                        bool own_workspace = true, std::vector<uint8_t>* left = nullptr) {
  const Problem& p = each.problem;
  Tensor q("Q", each, false, 8), k("K", each, true, 24), v("V", each, true, 32),
      o("O", each, false, 16), dout("dO", each, false, 16), d_q("dQ", each, false, 8),
      d_k("dK", each, true, 24), d_v("dV", each, true, 32);
  q.upload(inputs.q);
  k.upload(inputs.k);
  v.upload(inputs.v);
  o.upload(reference.o);
  dout.upload(d_o);
  Buffer lse("lse", p.row_count() * sizeof(float));
  lse.upload(reference.lse.data());
  Buffer cu_q("cu_seqlens_q", 4 * (p.packed.size() + 1)),
      cu_kv("cu_seqlens_kv", 4 * (p.packed.size() + 1));
  GradientTensors tensors;
  Tensors& forward = tensors.forward;
  forward.q = q.data();
  forward.k = k.data();
  forward.v = v.data();
  forward.o = o.data();
  forward.lse = static_cast<float*>(lse.data());
  if (!p.packed.empty()) {
    std::vector<int> begin_q(1, 0), begin_kv(1, 0);
    for (const Sequence& sequence : p.packed) {
      begin_q.push_back(begin_q.back() + sequence.q_len);
      begin_kv.push_back(begin_kv.back() + sequence.kv_len);
    }
    cu_q.upload(begin_q.data());
    cu_kv.upload(begin_kv.data());
    forward.cu_seqlens_q = static_cast<const int*>(cu_q.data());
    forward.cu_seqlens_kv = static_cast<const int*>(cu_kv.data());
  }
  forward.q_strides = q.strides();
  forward.o_strides = o.strides();
  forward.k_strides = k.strides();
  forward.v_strides = v.strides();
  if (forward_kernel) {
    o.poison();
    lse.poison();
    Tensors given = forward;
    Buffer space("workspace",
                 forward_kernel->workspace_bytes
                     ? std::max<size_t>(forward_kernel->workspace_bytes(p, 1 << 30), 16)
                     : 16);
    if (forward_kernel->zeroed_bytes) space.zero(forward_kernel->zeroed_bytes());
    given.workspace = space.data();
    given.workspace_bytes = space.size();
    run(*forward_kernel, p, given);
  }
  tensors.d_o = dout.data();
  tensors.d_q = d_q.data();
  tensors.d_k = d_k.data();
  tensors.d_v = d_v.data();
  Buffer workspace("workspace", kernel.kernel.workspace_bytes
                                    ? kernel.kernel.workspace_bytes(p, size_t(1) << 30)
                                    : 16);
  forward.workspace = workspace.data();
  forward.workspace_bytes = workspace.size();
  if (in_c) {
    EXPECT_EQ(InC(p, forward).backward(in_c, tensors, own_workspace), FA_OK) << fa_error();
  } else {
    run(kernel, p, tensors);
  }
  synchronize();
  if (left) {
    left->resize(workspace.size());
    workspace.download(left->data());
  }
  return {{"dQ", d_q.download()}, {"dK", d_k.download()}, {"dV", d_v.download()}};
}

const Gradient& of(const GradientReference& reference, const std::string& name) {
  return name == "dQ" ? reference.d_q : name == "dK" ? reference.d_k : reference.d_v;
}

// Whether the GPU has what the kernel needs; the emulator has all.
bool runs_here(const GradientKernel& kernel, const Problem& p) {
  return refusal(kernel.kernel, p, with_strides(p, {})).empty();
}
const GradientKernel& plain() {
  return *std::find_if(gradient_kernels().begin(), gradient_kernels().end(),
                       [](const auto& each) { return each.kernel.name == "backward_plain"; });
}

class KernelOfGradients : public testing::TestWithParam<Case> {};

TEST_P(KernelOfGradients, IsRight) {
  const Case& each = GetParam();
  const Inputs inputs = make_inputs(each.problem, each.inputs, 1);
  const std::vector<uint16_t> d_o = make_d_o(each.problem);
  const GradientReference reference = make_gradient_reference(each.problem, inputs, d_o);
  int ran = 0;
  for (const GradientKernel& kernel : gradient_kernels()) {
    // The plain one takes long, and sees nothing new in many tiles.
    if (&kernel == &plain() && each.problem.attended_pairs() > 20'000) continue;
    if (!runs_here(kernel, each.problem)) continue;
    ran++;
    const Gradients3 usual = gradients_of(kernel, each, inputs, d_o, reference);
    for (const auto& [name, actual] : usual) {
      EXPECT_EQ(compare_gradient(each.problem, name.c_str(), of(reference, name), actual), "")
          << kernel.kernel.name;
    }
    Case in_order = each;
    in_order.problem.deterministic = true;
    if (&kernel == &plain() || !runs_here(kernel, in_order.problem)) continue;
    const Gradients3 now = gradients_of(kernel, in_order, inputs, d_o, reference);
    EXPECT_EQ(compare_gradient(each.problem, "dQ", reference.d_q, now.at("dQ")), "");
    EXPECT_EQ(now.at("dK"), usual.at("dK"));
    EXPECT_EQ(now.at("dV"), usual.at("dV"));
    const Gradients3 again = gradients_of(kernel, in_order, inputs, d_o, reference);
    EXPECT_EQ(again.at("dQ"), now.at("dQ"));
  }
  EXPECT_GE(ran, on_gpu() ? 1 : 2);
}
INSTANTIATE_TEST_SUITE_P(Cases, KernelOfGradients, testing::ValuesIn(cases()),
                         [](const auto& each) { return each.param.what; });

// The forward kernels that give log-sum-exp give what the gradients need.
TEST(AfterForward, TheSameWithAKernelsOAndLogSumExp) {
  Case each{"", problem(1, 2, 130, 128, Dtype::kBf16)};
  each.problem.kv_heads = 1;
  each.problem.kv_len = 200;
  each.problem.mask = Mask::kCausal;
  const Inputs inputs = make_inputs(each.problem, "normal", 5);
  const std::vector<uint16_t> d_o = make_d_o(each.problem);
  const GradientReference reference = make_gradient_reference(each.problem, inputs, d_o);
  int forward = 0;
  for (const Kernel& first : kernels()) {
    if (!first.takes.lse || first.takes.fp8) continue;
    if (!refusal(first, each.problem, with_strides(each.problem, {})).empty()) continue;
    forward++;
    for (const GradientKernel& kernel : gradient_kernels()) {
      if (!runs_here(kernel, each.problem)) continue;
      for (const auto& [name, actual] :
           gradients_of(kernel, each, inputs, d_o, reference, &first)) {
        EXPECT_EQ(compare_gradient(each.problem, name.c_str(), of(reference, name), actual), "")
            << kernel.kernel.name << " after " << first.name;
      }
    }
  }
  EXPECT_GE(forward, on_gpu() ? 1 : 3);
}

#ifndef FA_WITH_CUDA
// Whenever the copy engine and the warps come to it: dK and dV have the same bits, because nobody
// else adds to them, and dQ is right in any order of additions.
TEST(AnySchedule, GivesTheSameGradients) {
  for (const int head_dim : {64, 128}) {
    Case each{"", problem(1, 2, 320, head_dim, Dtype::kBf16)};
    each.problem.kv_heads = 1;
    each.problem.kv_len = 200;
    each.problem.mask = Mask::kCausal;
    const Inputs inputs = make_inputs(each.problem, "normal", 7);
    const std::vector<uint16_t> d_o = make_d_o(each.problem);
    const GradientReference reference = make_gradient_reference(each.problem, inputs, d_o);
    for (const GradientKernel& kernel : gradient_kernels()) {
      if (&kernel == &plain()) continue;
      const std::string what =
          kernel.kernel.name + std::string(", ") + std::to_string(head_dim) + ", ";
      const Gradients3 usual = gradients_of(kernel, each, inputs, d_o, reference);
      for (uint64_t seed = 0; seed < 4; seed++) {
        emu::options().completion = seed == 0 ? emu::Completion::kEarly : emu::Completion::kRandom;
        emu::options().schedule = emu::Schedule::kRandom;
        emu::options().seed = seed;
        const Gradients3 now = gradients_of(kernel, each, inputs, d_o, reference);
        emu::options() = {};
        EXPECT_EQ(now.at("dK"), usual.at("dK")) << what << seed;
        EXPECT_EQ(now.at("dV"), usual.at("dV")) << what << seed;
        EXPECT_EQ(compare_gradient(each.problem, "dQ", reference.d_q, now.at("dQ")), "")
            << what << seed;
      }
    }
  }
}

// The emulator runs all CTAs of a head at the same time, so it gives their additions no order: they
// add to dQ one after the other, whoever comes first. The workspace has the sums in fp32.
TEST(AnySchedule, GivesADeterministicDqTheSameBits) {
  std::vector<Case> cases{{"no_mask", problem(1, 1, 70, 128, Dtype::kBf16)},
                          {"groups", problem(1, 2, 130, 64, Dtype::kFp16)},
                          {"packed", problem(1, 1, 0, 64, Dtype::kBf16)}};
  cases[0].problem.kv_len = 384;
  cases[1].problem.kv_len = 300;
  cases[1].problem.kv_heads = 1;
  cases[1].problem.mask = Mask::kCausal;
  cases[2].problem.pack({{70, 260}, {10, 130}});
  cases[2].problem.mask = Mask::kCausal;
  int ran = 0;
  for (Case& each : cases) {
    each.problem.deterministic = true;
    const Inputs inputs = make_inputs(each.problem, "normal", 7);
    const std::vector<uint16_t> d_o = make_d_o(each.problem);
    const GradientReference reference = make_gradient_reference(each.problem, inputs, d_o);
    for (const GradientKernel& kernel : gradient_kernels()) {
      if (&kernel == &plain() || !runs_here(kernel, each.problem)) continue;
      ran++;
      std::vector<uint8_t> sums, sums_now;
      const auto run_now = [&](std::vector<uint8_t>& left) {
        return gradients_of(kernel, each, inputs, d_o, reference, nullptr, nullptr, true, &left);
      };
      const Gradients3 usual = run_now(sums);
      EXPECT_EQ(compare_gradient(each.problem, "dQ", reference.d_q, usual.at("dQ")), "");
      for (uint64_t seed = 0; seed < 3; seed++) {
        emu::options().together = 8;
        emu::options().completion = seed == 0   ? emu::Completion::kLate
                                    : seed == 1 ? emu::Completion::kEarly
                                                : emu::Completion::kRandom;
        emu::options().schedule = emu::Schedule::kRandom;
        emu::options().seed = seed;
        const Gradients3 now = run_now(sums_now);
        emu::options() = {};
        EXPECT_TRUE(now == usual) << each.what << ", " << seed;
        EXPECT_TRUE(sums_now == sums) << each.what << ", " << seed;
      }
    }
  }
  EXPECT_EQ(ran, 3);
}
#endif

// ---- the reference itself: small changes of the inputs change a loss as the gradients say ------
// The loss is the sum of dO O, in float64 from the reference's own forward pass.
TEST(ReferenceOfGradients, IsTheSlopeOfTheLoss) {
  Problem p = problem(1, 2, 5, 64, Dtype::kFp16);
  p.kv_len = 7;
  p.kv_heads = 1;
  p.mask = Mask::kCausal;
  const Inputs inputs = make_inputs(p, "normal", 3);
  const std::vector<uint16_t> d_o = make_d_o(p);
  const GradientReference reference = make_gradient_reference(p, inputs, d_o);
  const auto loss = [&](const Inputs& changed) {
    const Reference forward = make_reference(p, changed);
    double sum = 0;
    for (size_t i = 0; i < forward.values.size(); i++) {
      sum += forward.values[i] * double(to_float(d_o[i], p.dtype));
    }
    return sum;
  };
  const auto slope = [&](std::vector<uint16_t> Inputs::*tensor, size_t i) {
    Inputs up = inputs, down = inputs;
    const float value = to_float((inputs.*tensor)[i], p.dtype);
    (up.*tensor)[i] = from_float(value + 0x1p-6f, p.dtype);
    (down.*tensor)[i] = from_float(value - 0x1p-6f, p.dtype);
    const double step =
        double(to_float((up.*tensor)[i], p.dtype)) - double(to_float((down.*tensor)[i], p.dtype));
    return (loss(up) - loss(down)) / step;
  };
  for (size_t i = 0; i < inputs.q.size(); i += 23) {
    EXPECT_NEAR(slope(&Inputs::q, i), reference.d_q.values[i], 2e-5) << i;
  }
  for (size_t i = 0; i < inputs.k.size(); i += 23) {
    EXPECT_NEAR(slope(&Inputs::k, i), reference.d_k.values[i], 2e-5) << i;
    EXPECT_NEAR(slope(&Inputs::v, i), reference.d_v.values[i], 2e-5) << i;
  }
}

// ---- the comparison: what seeded errors look like ---------------------------------------------
TEST(ComparisonOfGradients, FindsWhatIsWrong) {
  const Case each{"", problem(1, 2, 128, 64, Dtype::kBf16)};
  const Inputs inputs = make_inputs(each.problem, "normal", 1);
  const std::vector<uint16_t> d_o = make_d_o(each.problem);
  const GradientReference right = make_gradient_reference(each.problem, inputs, d_o);
  const GradientKernel& kernel = plain();
  const auto wrong = [&](const char* name, const GradientReference& given, const Inputs& with) {
    return compare_gradient(each.problem, name, of(right, name),
                            gradients_of(kernel, each, with, d_o, given).at(name));
  };
  EXPECT_EQ(wrong("dQ", right, inputs), "");
  GradientReference changed = right;  // log-sum-exp of another base, O forgotten, so that D is 0
  for (float& each_lse : changed.lse) each_lse *= 1.4427f;
  EXPECT_CONTAINS(wrong("dV", changed, inputs), "dV[batch 0, head 0, row 0, column ");
  changed = right;
  std::fill(changed.o.begin(), changed.o.end(), uint16_t(0));
  EXPECT_EQ(wrong("dV", changed, inputs), "");
  EXPECT_CONTAINS(wrong("dQ", changed, inputs), "dQ[batch 0, head ");
  EXPECT_CONTAINS(wrong("dK", changed, inputs), "dK[batch 0, head ");
  std::vector<uint16_t> unwritten(each.problem.element_count(), 0xffff);
  EXPECT_CONTAINS(compare_gradient(each.problem, "dK", right.d_k, unwritten),
                  "was never written or is NaN");
}

TEST(KernelsOfGradients, RefuseInOneSentence) {
  const GradientKernel& kernel = plain();
  Problem p = problem(1, 1, 128, 64, Dtype::kBf16);
  const Case each{"", p};
  const Tensor tensor("tensor", each, false, 0);
  GradientTensors tensors;
  const auto refused = [&](auto error) {
    return test::error_of<decltype(error)>([&] { run(kernel, p, tensors); });
  };
  tensors.forward.q = tensors.forward.k = tensors.forward.v = tensors.forward.o = tensor.data();
  EXPECT_EQ(refused(BadInput("")), "the pointer to log-sum-exp is null");
  tensors.forward.lse = static_cast<float*>(tensor.data());
  tensors.d_o = tensors.d_q = tensors.d_k = tensors.d_v = tensor.data();
  tensors.d_v = static_cast<char*>(tensor.data()) + 8;
  EXPECT_EQ(refused(BadInput("")), "the pointer to dV is not a multiple of 16 bytes");
  tensors.d_v = tensor.data();
  // K may be the same row for all keys, but not dK.
  tensors.forward.k_strides = {0, 0, 0};
  tensors.forward.k_strides.head = 8;
  tensors.forward.k_strides.row = 8;
  EXPECT_EQ(refused(BadInput("")),
            "k_strides let rows of dK overlap: each must have 64 elements of its own");
  tensors.forward.k_strides = {};
  p.fp8 = Fp8::kHead;
  EXPECT_EQ(refused(Unsupported("")), "takes fp8 none, not head");
}

// ---- the C entry point --------------------------------------------------------------------------
TEST(GradientsInC, AreThoseOfTheKernel) {
  int ran = 0;
  for (const Case& each : cases()) {
    const std::string what = each.what.substr(each.what.find('_', 5) + 1);
    if (what != "groups_rows_apart" && what != "packed" && what != "queries_without_keys" &&
        what != "own_scale") {
      continue;
    }
    const Inputs inputs = make_inputs(each.problem, each.inputs, 1);
    const std::vector<uint16_t> d_o = make_d_o(each.problem);
    const GradientReference reference = make_gradient_reference(each.problem, inputs, d_o);
    for (const GradientKernel& kernel : gradient_kernels()) {
      if (!runs_here(kernel, each.problem)) continue;
      const Gradients3 found =
          gradients_of(kernel, each, inputs, d_o, reference, nullptr, kernel.kernel.name.c_str(),
                       /*own_workspace=*/ran++ % 2 == 0);
      for (const auto& [name, actual] : found) {
        EXPECT_EQ(compare_gradient(each.problem, name.c_str(), of(reference, name), actual), "")
            << kernel.kernel.name << ", " << each.what;
      }
    }
    for (const auto& [name, actual] :
         gradients_of(plain(), each, inputs, d_o, reference, nullptr, "best", false)) {
      EXPECT_EQ(compare_gradient(each.problem, name.c_str(), of(reference, name), actual), "");
    }
  }
  EXPECT_GE(ran, on_gpu() ? 8 : 24);
}

// Q, K and V in one tensor, `slot` elements from one to the next, and dQ, dK and dV in another:
// their memory overlaps, their rows do not.
void check_slices_of_one_tensor(const Strides& at, size_t slot) {
  const Problem p = problem(2, 2, 70);
  const Inputs inputs = make_inputs(p, "normal", 1);
  const std::vector<uint16_t> d_o = make_d_o(p);
  const GradientReference reference = make_gradient_reference(p, inputs, d_o);
  const auto rows = [&](auto f) {
    for (size_t i = 0; i < p.row_count(); i++) f(i * 64, at.at(i / 140, i / 70 % 2, i % 70));
  };
  std::vector<uint16_t> all(p.element_count() * 3), found(all.size());
  const std::vector<uint16_t>* const of_each[] = {&inputs.q, &inputs.k, &inputs.v};
  for (size_t i = 0; i < 3; i++) {
    rows([&](size_t from, size_t to) {
      std::copy_n(&(*of_each[i])[from], 64, &all[to + i * slot]);
    });
  }
  Buffer qkv("QKV", all.size() * 2), d_qkv("dQKV", all.size() * 2), o("O", all.size() * 2),
      dout("dO", all.size() * 2), lse("lse", p.row_count() * 4);
  const auto upload = [&](Buffer& to, std::vector<uint16_t> from) {
    from.resize(all.size());  // a gradient that begins there reaches into no other tensor
    to.upload(from.data());
  };
  upload(qkv, all);
  upload(o, reference.o);
  upload(dout, d_o);
  lse.upload(reference.lse.data());
  const auto slice = [&](const Buffer& of, size_t i) {
    return static_cast<char*>(of.data()) + i * slot * 2;
  };
  GradientTensors t;
  t.forward.q = slice(qkv, 0);
  t.forward.k = slice(qkv, 1);
  t.forward.v = slice(qkv, 2);
  t.forward.o = o.data();
  t.forward.lse = static_cast<float*>(lse.data());
  t.forward.q_strides = t.forward.k_strides = t.forward.v_strides = at;
  t.d_o = dout.data();
  t.d_q = slice(d_qkv, 0);
  t.d_k = slice(d_qkv, 1);
  t.d_v = slice(d_qkv, 2);
  const auto backward = [&] { return InC(p, t.forward).backward("best", t, false); };
  ASSERT_EQ(backward(), FA_OK) << fa_error();
  synchronize();
  d_qkv.download(found.data());
  for (const char* const name : {"dQ", "dK", "dV"}) {
    std::vector<uint16_t> one(p.element_count());
    const size_t begin = size_t(std::string("QKV").find(name[1])) * slot;
    rows([&](size_t to, size_t from) { std::copy_n(&found[from + begin], 64, &one[to]); });
    EXPECT_EQ(compare_gradient(p, name, of(reference, name), one), "");
  }
  const auto overlaps = [&](void*& output, void* with, const char* words) {
    void* const right = std::exchange(output, with);
    EXPECT_EQ(backward(), FA_BAD_INPUT);
    EXPECT_STREQ(fa_error(), words);
    output = right;
  };
  overlaps(t.d_k, slice(d_qkv, 0), "dK overlaps dQ: give dK memory of its own");
  overlaps(t.d_k, static_cast<char*>(slice(d_qkv, 1)) - 16,
           "dK overlaps dQ: give dK memory of its own");
  overlaps(t.d_v, static_cast<char*>(slice(d_qkv, 1)) + 16,
           "dV overlaps dK: give dV memory of its own");
  overlaps(t.d_v, static_cast<char*>(slice(d_qkv, 3)) - 16,  // of the next row or head
           "dV overlaps dQ: give dV memory of its own");
  overlaps(t.d_q, slice(qkv, 2), "dQ overlaps V: give dQ memory of its own");
  overlaps(t.d_q, dout.data(), "dQ overlaps dO: give dQ memory of its own");
  overlaps(t.d_v, o.data(), "dV overlaps O: give dV memory of its own");
  EXPECT_EQ(backward(), FA_OK) << fa_error();
  synchronize();
}

// [batch, rows, 3, heads, 64], [batch, rows, heads, 3, 64] and [batch, heads, rows, 3, 64].
TEST(GradientsInC, MayBeSlicesOfOneTensor) {
  check_slices_of_one_tensor({70 * 6 * 64, 64, 6 * 64}, 128);
  check_slices_of_one_tensor({70 * 6 * 64, 3 * 64, 6 * 64}, 64);
  check_slices_of_one_tensor({70 * 6 * 64, 70 * 3 * 64, 3 * 64}, 64);
}

TEST(GradientsInC, PlanNamesTheKernelAndItsWorkspace) {
  Problem p = problem(2, 4, 100, 128);
  p.kv_heads = 2;
  p.mask = Mask::kCausal;
  const char* plan = nullptr;
  size_t bytes = 1;
  const auto planned = [&](const char* name) {
    const InC in_c(p);
    return fa_plan_backward(name, &in_c.problem, &in_c.options, 0, &plan, &bytes);
  };
  for (const GradientKernel& each : gradient_kernels()) {
    if (!runs_here(each, p)) continue;
    ASSERT_EQ(planned(each.kernel.name.c_str()), FA_OK) << fa_error();
    EXPECT_EQ(plan, each.kernel.name);
    EXPECT_EQ(bytes, each.kernel.workspace_bytes ? each.kernel.workspace_bytes(p, 0) : 0);
  }
  ASSERT_EQ(planned("best"), FA_OK);
  if (!on_gpu()) {  // which runs all that an H200 does
    EXPECT_STREQ(plan, "backward");
    // For two tiles of 64 queries each: the sums of dQ, log-sum-exp and D.
    EXPECT_EQ(bytes, size_t(2 * 4 * 2 * 64) * (128 + 2) * sizeof(float));
  }
  p.deterministic = true;
  ASSERT_EQ(planned("best"), FA_OK);
  if (!on_gpu()) {
    EXPECT_STREQ(plan, "backward");
    EXPECT_EQ(bytes, size_t(2 * 4 * 2) * (64 * (128 + 2) * sizeof(float) + 4 * sizeof(int)));
    EXPECT_EQ(planned("backward_mma"), FA_UNSUPPORTED);
    EXPECT_STREQ(fa_error(),
                 "backward_mma takes gradients in any order of additions, not deterministic ones; "
                 "backward takes it");
  }
  ASSERT_EQ(planned("backward_plain"), FA_OK);
  InC in_c(p);
  EXPECT_EQ(fa_plan_backward("best", &in_c.problem, &in_c.options, 0, &plan, nullptr), FA_OK);
  EXPECT_EQ(fa_plan_backward("best", &in_c.problem, &in_c.options, 0, nullptr, &bytes),
            FA_BAD_INPUT);
  EXPECT_STREQ(fa_error(), "the pointer to the plan is null");
  in_c.options.deterministic = 2;
  EXPECT_EQ(fa_plan_backward("best", &in_c.problem, &in_c.options, 0, &plan, &bytes), FA_BAD_INPUT);
  EXPECT_STREQ(fa_error(), "deterministic must be 0 or 1, not 2");
  in_c.options.deterministic = 0;
  in_c.options.has_window = 1;
  in_c.options.window_right = 3;
  in_c.options.softcap = 30;
  const float of_heads[4] = {};
  in_c.options.sinks = of_heads;
  in_c.options.alibi_slopes = of_heads;
  EXPECT_EQ(fa_plan_backward("backward_plain", &in_c.problem, &in_c.options, 0, &plan, &bytes),
            FA_UNSUPPORTED);
  EXPECT_STREQ(fa_error(),
               "backward_plain takes window -1,-1, not 0,3; scores without a softcap (softcap); "
               "alibi_slopes none, not head; heads without a sink (sinks)");
  in_c.options.alibi_per_sequence = 2;
  EXPECT_EQ(fa_plan_backward("best", &in_c.problem, &in_c.options, 0, &plan, &bytes), FA_BAD_INPUT);
  EXPECT_STREQ(fa_error(), "alibi_per_sequence must be 0 or 1, not 2");
}

TEST(GradientsInC, RefuseInOneSentence) {
  const Problem p = problem(1, 1, 128);
  std::vector<Buffer> memory;
  for (const char* const name : {"Q", "K", "V", "O", "dO", "dQ", "dK", "dV", "lse", "workspace"}) {
    memory.emplace_back(name, size_t(1) << 16).zero(size_t(1) << 16);
  }
  GradientTensors t;
  Tensors& f = t.forward;
  f.q = memory[0].data();
  f.k = memory[1].data();
  f.v = memory[2].data();
  f.o = memory[3].data();
  t.d_o = memory[4].data();
  t.d_q = memory[5].data();
  t.d_k = memory[6].data();
  t.d_v = memory[7].data();
  f.lse = static_cast<float*>(memory[8].data());
  f.workspace = memory[9].data();
  f.workspace_bytes = memory[9].size();
  InC right(p, f);
  const auto says = [&](const char* words, fa_status status, const InC& given,
                        const GradientTensors& with, const char* kernel = "best") {
    EXPECT_EQ(given.backward(kernel, with, true), status) << words;
    EXPECT_STREQ(fa_error(), words);
  };
  says("", FA_OK, right, t);
  InC other = right;
  other.options.lse = nullptr;
  says("lse is null: gradients need the log-sum-exp of the forward call", FA_BAD_INPUT, other, t);
  other.options.lse = f.lse + 1;
  says("the pointer to log-sum-exp is not a multiple of 16 bytes", FA_BAD_INPUT, other, t);
  GradientTensors changed = t;
  changed.d_o = nullptr;
  says("the pointer to dO is null", FA_BAD_INPUT, right, changed);
  changed = t;
  changed.d_k = static_cast<char*>(t.d_k) + 8;
  says("the pointer to dK is not a multiple of 16 bytes", FA_BAD_INPUT, right, changed);
  changed = t;
  changed.forward.workspace = static_cast<char*>(f.workspace) + 8;
  says("the pointer to the workspace is not a multiple of 16 bytes", FA_BAD_INPUT, right, changed);
  changed.forward.workspace = const_cast<void*>(f.k);
  says("the workspace overlaps K: give the workspace memory of its own", FA_BAD_INPUT, right,
       changed);
  changed = t;
  changed.forward.workspace_bytes = 33791;
  if (!on_gpu()) {
    says("workspace_bytes is 33791, but backward_mma needs 33792: ask fa_plan_backward",
         FA_BAD_INPUT, right, changed, "backward_mma");
  }
  says("unknown kernel of gradients 'causal', there are: backward, backward_mma, backward_plain",
       FA_BAD_INPUT, right, t, "causal");
  says("the pointer to the kernel's name is null", FA_BAD_INPUT, right, t, nullptr);
  other = right;
  other.problem.head_dim = 32;
  says("head_dim must be 64, 96, 128 or 256, not 32", FA_BAD_INPUT, other, t);
  other = right;
  other.options.k_strides = {0, 0, 8};
  says("k_strides let rows of dK overlap: each must have 64 elements of its own", FA_BAD_INPUT,
       other, t);
  other = right;
  Buffer lists("lists", 64);
  lists.upload(std::vector<int>(16, 5).data());
  other.options.block_table = other.options.kv_lens = static_cast<int*>(lists.data());
  other.options.page_size = 16;
  other.options.pages = 8;
  says("backward_plain takes K and V in one piece, not in pages (page_size)", FA_UNSUPPORTED, other,
       t, "backward_plain");
  synchronize();
}

#ifndef FA_WITH_CUDA
TEST(GradientsInC, AreCountedOnTheEmulator) {
  const Case each{"", problem(1, 1, 128)};
  const Inputs inputs = make_inputs(each.problem, "normal", 1);
  const std::vector<uint16_t> d_o = make_d_o(each.problem);
  const GradientReference reference = make_gradient_reference(each.problem, inputs, d_o);
  gradients_of(plain(), each, inputs, d_o, reference, nullptr, "backward_mma", false);
  ASSERT_NE(fa_counters(), nullptr) << fa_error();
  const Json found = Json::parse(fa_counters());
  EXPECT_EQ(found["kernel"], "backward_mma");
  EXPECT_EQ(found["counters"]["matrix_flops"], 5 * 2 * 128 * 128 * 64);  // five products
}
#endif

}  // namespace
}  // namespace fa
