// beyond/fp8: attention on numbers of eight bits, from inputs of sixteen.
//
// Idea         Two steps: quantise.h rounds Q, K and V to e4m3 in the workspace, and the kernel of
//              fp8.h computes with them. A model that keeps K and V in e4m3 needs the second alone.
// Bottleneck   See both files.
// Changed      From beyond/fp8_plain: rows stay in registers while their scale is looked for, V is
//              written transposed, and Tensor Cores multiply.
// Run          cmake --build --preset emulator --target beyond &&
//              build/emulator/bin/beyond fp8 --fp8 rotated --seq-len 512
#include "common/launch/registry.h"
#include "kernels/beyond/fp8_steps.h"

namespace fa::fp8 {

template <typename T, int kHeadDim>
struct Transposed : FromSixteenBits<T, kHeadDim, false> {};

const Registration<Transposed> registration{
    "beyond/fp8", Needs{90, true}, Traits::kPersistent,
    Takes{.causal = true, .any_length = true, .kv_heads = true, .strides = true, .fp8 = true}};

}  // namespace fa::fp8
