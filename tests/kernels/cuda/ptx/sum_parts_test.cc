// The PTX that sums the ranks' parts.
#include "tests/kernels/cuda/ptx/kernel.h"
#include "tests/kernels/cuda/sum_parts_case.h"

namespace deltad::cuda {
namespace {

class SumPartsPtx : public ArchitectureTest {};
INSTANTIATE_TEST_SUITE_P(Architecture, SumPartsPtx, testing::ValuesIn(ptx::kArchitectures));

TEST_P(SumPartsPtx, AddsThemInTheirOrder) {
  PtxFile file(GetParam(), "sum_parts");
  for (const int32_t count : {1, 3, 8, 16}) {
    const SumPartsCase c(count, 1100, count != 3);
    for (const ptx::Options& options : ptx::schedules()) {
      ptx::Outcome o;
      const std::vector<float> out = c.run(file.launcher(options, o));
      ASSERT_FALSE(o.fault) << message(o);
      EXPECT_EQ(out, c.expected());
    }
  }
}

TEST(SumPartsPtxSites, Matter) {
  PtxFile file("sm_90a", "sum_parts");
  const SumPartsCase c(3, 68, true);
  ptx::expect_mutations_caught(file.module(), kSumPartsKernel, 2,
                               [&](const ptx::Options& options, ptx::Outcome& o) {
                                 const std::vector<float> out = c.run(file.launcher(options, o));
                                 if (o.fault) return o.fault->text();
                                 return std::string(out == c.expected() ? "" : "other sums");
                               });
}

}  // namespace
}  // namespace deltad::cuda
