// Kernels as they are compiled for a GPU of compute capability 7.5, where mma.sync has half the
// depth and fp16 alone. That they count alike every time and have no races,
// test_checked_kernels.cpp says in the same program.
#include <map>
#include <string>

#include "tests/support.h"

namespace fa::test {
namespace {

class TuringKernels : public testing::TestWithParam<Kernel> {};

TEST_P(TuringKernels, AreRightWithHalfTheDepth) {
  for (const int head_dim : {64, 128}) {
    const Problem p = problem(1, 1, 256, head_dim, Dtype::kFp16);
    for (const std::string& inputs : input_names()) {
      const Record record = run_once(GetParam(), p, inputs, 1);
      EXPECT_EQ(record.status, Status::kPassed) << inputs << ": " << record.reason;
      std::map<std::string, uint64_t> flops;
      for (const LineCounts& line : record.counts.lines) {
        if (line.kind.starts_with("mma.")) flops[line.kind] += count_of(line.counts, "flops");
      }
      EXPECT_EQ(flops, (std::map<std::string, uint64_t>{{"mma.m16n8k8", uint64_t(p.flops())}}));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, TuringKernels, testing::ValuesIn(kernels()),
                         [](const auto& test) { return "k" + test.param.name; });

}  // namespace
}  // namespace fa::test
