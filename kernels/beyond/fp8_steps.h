// From 16 bits to O: quantise.h and then the kernel of fp8.h, for beyond/fp8 and beyond/fp8_rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/launch/problem.h"
#include "common/launch/registry.h"
#include "kernels/beyond/fp8.h"
#include "kernels/beyond/fp8_wide.h"
#include "kernels/beyond/quantise.h"

namespace fa::fp8 {

// One head behind the other, and one sequence behind the other.
inline Strides contiguous(int heads, int rows, int head_dim) {
  const long long head = (long long)(rows)*head_dim;
  return {heads * head, head, head_dim};
}

// kVInRows: V is rounded in its rows, as a caller may have it, and transposed within the time.
template <typename T, int kHeadDim, bool kVInRows>
struct FromSixteenBits {
  static constexpr bool kTakesHeadDim256 = true;
  static size_t workspace_bytes(const Problem& p, size_t) {
    return quantise::Place(nullptr, p.batch, p.heads, p.key_heads(), p.seq_len, p.key_len(),
                           p.head_dim, kVInRows)
        .bytes;
  }
  static quantise::Place place_of(const Attention<T>& a) {
    return {a.workspace, a.batch, a.heads, a.kv_heads, a.seq_len, a.kv_len, kHeadDim, kVInRows};
  }
  static void prepare(const Attention<T>& a) { quantise::run<T, kHeadDim>(a, place_of(a)); }
  static void run(const Attention<T>& a) {
    const quantise::Place place = place_of(a);
    if (kVInRows) {
      quantise::transpose<kHeadDim>({place.v_in_rows, contiguous(a.kv_heads, a.kv_len, kHeadDim),
                                     a.kv_heads, a.kv_len, place.v, place.v_rows},
                                    a.batch);
    }
    const bool per_head = a.fp8 == Fp8::kHead;
    const auto scales = [&](const float* first, int tiles) {
      return per_head ? Scales{first, 1, 0} : Scales{first, uint32_t(tiles), 1};
    };
    Launcher<T, kHeadDim>::run(
        {place.q, place.k, place.v, a.o, scales(place.q_scales, place.q_tiles),
         scales(place.k_scales, place.k_tiles), Scales{place.v_scales, 1, 0}, a.batch, a.heads,
         a.kv_heads, a.seq_len, a.kv_len, a.scale, a.mask, contiguous(a.heads, a.seq_len, kHeadDim),
         contiguous(a.kv_heads, place.k_rows, kHeadDim), a.o_strides});
  }
};

}  // namespace fa::fp8
