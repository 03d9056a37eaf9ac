// The constants of kernels that pictures and pages show, for head_dim 128 and bf16, as the compiler
// sees them.
#include <cmath>

#include "common/launch/registry.h"
#include "common/pages/pages.h"

namespace fa {
// In place of a kernel's registration, which would compile all of the kernel for its constants.
template <template <typename, int> class>
struct Unregistered {
  Unregistered(const char*, const Needs&, Traits, const Takes& = {}) {}
};
}  // namespace fa
#define Registration Unregistered
#include "kernels/02_online_softmax.cu"
#include "kernels/10_instruction_tuning.cu"
#include "kernels/11_wgmma.cu"
#include "kernels/12_tma.cu"
#include "kernels/13_warp_specialization.cu"
#include "kernels/14_softmax_overlap.cu"
#include "kernels/15_persistent.cu"
#include "kernels/16_max_free.cu"

namespace pages {

Json constants() {
  using C02 = fa::k02::Config<128>;
  using C12 = fa::k12::Config<128>;
  using C13 = fa::k13::Config<128>;
  using Range = fa::k16::Range<__nv_bfloat16>;
  return {{"02", {{"kBlockN", C02::kBlockN}, {"kRows", C02::kRows}, {"kWarps", C02::kWarps}}},
          {"10",
           {{"kBlockM", fa::tuning_of_10(90, 128).block_m()},  // on Hopper
            {"kMaxGrowthLog2", fa::k10::kMaxGrowthLog2}}},
          {"11", {{"kBlockM", fa::k11::Config<128>::kBlockM}}},
          {"12",
           {{"kBlockM", C12::kBlockM},
            {"kBlockN", C12::kBlockN},
            {"kSlabs", C12::kSlabs},
            {"kStages", C12::kStages},
            {"kWarpgroups", C12::kWarpgroups}}},
          {"13",
           {{"kBlockM", C13::kBlockM},
            {"kBlockN", C13::kBlockN},
            {"kConsumerRegisters", C13::kConsumerRegisters},
            {"kLaunchRegisters", C13::kLaunchRegisters},
            {"kProducerRegisters", C13::kProducerRegisters},
            {"kStages", C13::kStages},
            {"kThreads", C13::kThreads},
            {"kWarpgroups", C13::kWarpgroups}}},
          {"14", {{"kBlockM", fa::k14::Config<128>::kBlockM}}},
          {"15", {{"kBlockM", fa::k15::Config<128, 128>::kBlockM}}},
          {"16",
           {{"kBlockM", fa::k16::Config<128, 128>::kBlockM},
            {"kLostLog2", std::log2(Range::kLost)},
            {"kMargin", Range::kMargin},
            {"kMaxSumLog2", std::log2(Range::kMaxSum)}}}};
}

}  // namespace pages
