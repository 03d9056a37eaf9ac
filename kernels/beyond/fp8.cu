// beyond/fp8: attention on numbers of eight bits, from inputs of sixteen or of eight.
//
// Idea         Two steps: quantise.h rounds Q, K and V to e4m3 in the workspace, and the kernel of
//              fp8.h computes with them. A caller who has e4m3 needs the second alone, and V
//              transposed.
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
#include "kernels/beyond/fp8_steps.h"
#include "kernels/beyond/quantise.h"

namespace fa::fp8 {

template <typename T, int kHeadDim>
struct OnEightBits : FromSixteenBits<T, kHeadDim, false> {
  static size_t e4m3_workspace_bytes(const Problem& p, bool v_transposed) {
    return quantise::PlaceOfE4m3(nullptr, p.batch, p.key_heads(), p.key_len(), p.head_dim,
                                 v_transposed)
        .bytes;
  }
  static void run_e4m3(const Attention<T>& a, const OfE4m3& e4m3) {
    const auto bytes = [](const T* tensor) { return reinterpret_cast<const uint8_t*>(tensor); };
    const quantise::PlaceOfE4m3 place(a.workspace, a.batch, a.kv_heads, a.kv_len, kHeadDim,
                                      e4m3.v_transposed);
    const uint8_t *k = bytes(a.k), *v = bytes(a.v);
    Strides k_strides = a.k_strides;
    if (place.k) {
      quantise::copy<kHeadDim>({k, k_strides, a.kv_heads, a.kv_len, place.k, place.k_rows},
                               a.batch);
      k = place.k;
      k_strides = contiguous(a.kv_heads, place.k_rows, kHeadDim);
    }
    if (place.v) {
      quantise::transpose<kHeadDim>({v, a.v_strides, a.kv_heads, a.kv_len, place.v, place.v_rows},
                                    a.batch);
      v = place.v;
    }
    const auto scales = [](const ScalesOfE4m3& s, int heads) {
      return Scales{s.first,           uint32_t(s.head), uint32_t(s.tile),
                    uint32_t(s.block), uint32_t(heads),  uint32_t(heads / s.heads)};
    };
    Launcher<T, kHeadDim>::run({bytes(a.q), k, v, a.o, scales(e4m3.q, a.heads),
                                scales(e4m3.k, a.kv_heads), scales(e4m3.v, a.kv_heads), a.batch,
                                a.heads, a.kv_heads, a.seq_len, a.kv_len, a.scale, a.mask,
                                a.q_strides, k_strides, a.o_strides});
  }
};

const Registration<OnEightBits> registration{
    "beyond/fp8", Needs{90, true}, Traits::kPersistent,
    Takes{.causal = true, .any_length = true, .kv_heads = true, .strides = true, .fp8 = true}};

}  // namespace fa::fp8
