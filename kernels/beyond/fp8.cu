// beyond/fp8: attention on numbers of eight bits, from inputs of sixteen.
//
// Idea         Two steps: quantise.h rounds Q, K and V to e4m3 in the workspace, and the kernel of
//              fp8.h computes with them. A model that keeps K and V in e4m3 needs the second alone.
// Bottleneck   See both files.
// Changed      From beyond/fp8_plain: rows stay in registers while their scale is looked for, V is
//              written transposed, and Tensor Cores multiply.
// Run          cmake --build --preset emulator --target beyond &&
//              build/emulator/bin/beyond fp8 --fp8 rotated --seq-len 512
#include "kernels/beyond/fp8.h"

#include <cstddef>
#include <cstdint>

#include "common/launch/problem.h"
#include "common/launch/registry.h"
#include "kernels/beyond/quantise.h"

namespace fa::fp8 {

template <typename T, int kHeadDim>
struct FromSixteenBits {
  static size_t workspace_bytes(const Problem& p, size_t) {
    return quantise::Place(nullptr, p.batch, p.heads, p.key_heads(), p.seq_len, p.key_len(),
                           p.head_dim)
        .bytes;
  }
  static quantise::Place place_of(const Attention<T>& a) {
    return {a.workspace, a.batch, a.heads, a.kv_heads, a.seq_len, a.kv_len, kHeadDim};
  }
  static void prepare(const Attention<T>& a) { quantise::run<T, kHeadDim>(a, place_of(a)); }
  static void run(const Attention<T>& a) {
    const quantise::Place place = place_of(a);
    const bool per_head = a.fp8 == Fp8::kHead;
    const auto scales = [&](const float* first, int tiles) {
      return per_head ? Scales{first, 1, 0} : Scales{first, uint32_t(tiles), 1};
    };
    const auto strides = [](int heads, int rows) {
      const long long head = (long long)(rows)*kHeadDim;
      return Strides{heads * head, head, kHeadDim};
    };
    Launcher<T, kHeadDim>::run(
        {place.q, place.k, place.v, a.o, scales(place.q_scales, place.q_tiles),
         scales(place.k_scales, place.k_tiles), place.v_scales, a.batch, a.heads, a.kv_heads,
         a.seq_len, a.kv_len, a.scale, a.mask, strides(a.heads, a.seq_len),
         strides(a.kv_heads, place.k_rows), a.o_strides});
  }
};

const Registration<FromSixteenBits> registration{
    "beyond/fp8", Needs{90, true}, Traits::kPersistent,
    Takes{.causal = true, .any_length = true, .kv_heads = true, .strides = true, .fp8 = true}};

}  // namespace fa::fp8
