// beyond/fp8_rows: beyond/fp8 on a V whose rows are keys, as a model has it.
//
// Idea         fp8.h wants V transposed, and somebody has to do that. Here it is done before each
//              launch and within its time, so that the two kernels differ by its price.
// Bottleneck   See fp8.h; and memory's bandwidth while V is read and written once.
// Changed      From beyond/fp8: V is rounded in its rows, and transposed by the clock.
// Run          cmake --build --preset emulator --target beyond &&
//              build/emulator/bin/beyond fp8 fp8_rows --fp8 head --seq-len 512
#include "common/launch/registry.h"
#include "kernels/beyond/fp8_steps.h"

namespace fa::fp8 {

template <typename T, int kHeadDim>
struct InRows : FromSixteenBits<T, kHeadDim, true> {};

// Slower than beyond/fp8, hence the lesser trait.
const Registration<InRows> registration{
    "beyond/fp8_rows", Needs{90, true}, Traits::kLazy,
    Takes{.causal = true, .any_length = true, .kv_heads = true, .strides = true, .fp8 = true}};

}  // namespace fa::fp8
