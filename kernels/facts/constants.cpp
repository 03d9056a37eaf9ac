// The constants of kernels that pictures and pages show, for head_dim 128 and bf16, as the compiler
// sees them.
#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "common/launch/known_kernels.h"
#include "common/launch/registry.h"
#include "common/layout/wgmma.h"
#include "kernels/10_tuning.h"
#include "kernels/facts/facts.h"

namespace fa {
// In place of a kernel's registration, which would compile all of the kernel for its constants.
template <template <typename, int> class>
struct [[maybe_unused]] Unregistered {
  Unregistered(const char*, const Needs&, Traits = {}, const Takes& = {}) {}
};
}  // namespace fa
#define Registration Unregistered
#include "kernels/02_online_softmax.cu"
#include "kernels/03_register_tiling.cu"
#include "kernels/04_wmma.cu"
#include "kernels/06_mma_split_q.cu"
#include "kernels/08_swizzle.cu"
#include "kernels/09_fragment_pipelining.cu"
#include "kernels/10_instruction_tuning.cu"
#include "kernels/11_wgmma.cu"
#include "kernels/12_tma.cu"
#include "kernels/13_warp_specialization.cu"
#include "kernels/14_softmax_overlap.cu"
#include "kernels/15_persistent.cu"
#include "kernels/16_max_free.cu"
#include "kernels/beyond/causal.cu"
#include "kernels/beyond/split_keys.cu"
#include "kernels/beyond/tma_without_wgmma.cu"

namespace facts {
namespace {

template <typename Config>
Json tile() {
  return {{"kBlockM", Config::kBlockM}, {"kBlockN", Config::kBlockN}};
}

Json with(Json constants, const Json& more) {
  constants.update(more);
  return constants;
}

// The heads of a section of beyond/causal under a causal mask, by the number of tokens.
Json sections() {
  Json found;
  for (int tokens = 512; tokens <= 16384; tokens *= 2) {
    fa::Attention<__nv_bfloat16> problem{};
    problem.heads = problem.kv_heads = 1;
    problem.kv_len = tokens;
    problem.window.right = 0;
    const uint32_t heads = fa::causal::Launcher<__nv_bfloat16, 128>::section(problem);
    found["section_" + std::to_string(tokens)] = heads;
  }
  return found;
}

}  // namespace

Json constants() {
  using C02 = fa::k02::Config<128>;
  using C12 = fa::k12::Config<128>;
  using C13 = fa::k13::Config<128>;
  using Range = fa::k16::Range<__nv_bfloat16>;
  using WithoutWgmma = fa::tma_without_wgmma::Config<128>;
  const fa::Tuning on_hopper = fa::tuning_of_10(90, 128);
  return {
      {"02", with(tile<C02>(), {{"kRows", C02::kRows}, {"kWarps", C02::kWarps}})},
      {"03", tile<fa::k03::Config<128>>()},
      {"04", tile<fa::k04::Config<128>>()},
      {"06", tile<fa::k06::Config<128>>()},
      {"08", tile<fa::k08::Config<128>>()},
      {"09", tile<fa::k09::Config<128>>()},
      {"10",
       {{"kBlockM", on_hopper.block_m()},
        {"kBlockN", on_hopper.block_n},
        {"kMaxGrowthLog2", fa::k10::kMaxGrowthLog2},
        {"kQInRegisters", on_hopper.q_in_registers},
        {"kRowTiles", on_hopper.row_tiles}}},
      {"11", tile<fa::k11::Config<128>>()},
      {"12", with(tile<C12>(), {{"kSlabBytes", layout::slab_bytes(C12::kBlockN)},
                                {"kSlabs", C12::kSlabs},
                                {"kStages", C12::kStages},
                                {"kWarpgroups", C12::kWarpgroups}})},
      {"13", with(tile<C13>(), {{"kConsumerRegisters", C13::kConsumerRegisters},
                                {"kLaunchRegisters", C13::kLaunchRegisters},
                                {"kProducerRegisters", C13::kProducerRegisters},
                                {"kStages", C13::kStages},
                                {"kThreads", C13::kThreads},
                                {"kWarpgroups", C13::kWarpgroups}})},
      {"14", tile<fa::k14::Config<128>>()},
      {"15", tile<fa::k15::Config<128, 128>>()},
      {"16", with(tile<fa::k16::Config<128, 128>>(), {{"kLostLog2", std::log2(Range::kLost)},
                                                      {"kMargin", Range::kMargin},
                                                      {"kMaxSumLog2", std::log2(Range::kMaxSum)}})},
      {"causal", sections()},
      // The keys of a block on 9.0, by a CTA's rows of queries.
      {"split_keys",
       {{"block_of_16", fa::split_keys::Config<128, 16>::block_n(90)},
        {"block_of_64", fa::split_keys::Config<128, 64>::block_n(90)}}},
      {"tma_without_wgmma", with(tile<WithoutWgmma>(), {{"kMostBytes", WithoutWgmma::kMostBytes},
                                                        {"kStages", WithoutWgmma::kStages},
                                                        {"kWarps", WithoutWgmma::kWarps}})},
      {"layouts", layouts()}};
}

}  // namespace facts
