// The PTX that counts a weight's exponents.
#include "tests/kernels/cuda/ptx/kernel.h"
#include "tests/kernels/cuda/weight_range_case.h"

namespace deltad::cuda {
namespace {

class WeightRangePtx : public ArchitectureTest {};
INSTANTIATE_TEST_SUITE_P(Architecture, WeightRangePtx, testing::ValuesIn(ptx::kArchitectures));

TEST_P(WeightRangePtx, CountsAndNeedsEachSite) {
  PtxFile file(GetParam(), "linear_prefill_range");
  const WeightRangeCase c;
  ptx::expect_mutations_caught(file.module(), kWeightRangeKernel, 3,
                               [&](const ptx::Options& options, ptx::Outcome& o) {
                                 const auto counts = c.run(file.launcher(options, o));
                                 if (o.fault) return o.fault->text();
                                 return std::string(counts == c.expected() ? "" : "other counts");
                               });
}

}  // namespace
}  // namespace deltad::cuda
