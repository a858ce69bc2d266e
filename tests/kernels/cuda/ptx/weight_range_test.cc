// The PTX that counts a weight's exponents.
#include "tests/kernels/cuda/ptx/kernel.h"
#include "tests/kernels/cuda/weight_range_case.h"

namespace deltad::cuda {
namespace {

class WeightRangePtx : public ArchitectureTest {};
INSTANTIATE_TEST_SUITE_P(Architecture, WeightRangePtx, testing::ValuesIn(ptx::kArchitectures));

// Not the check, but by which of two divisions the compiler counts the loop's turns; both are
// right.
bool not_seen_here(const std::string& mutation) {
  return mutation.find("setp.ne.s64") != std::string::npos &&
         mutation.find("(true)") != std::string::npos;
}

TEST_P(WeightRangePtx, CountsAndNeedsEachSite) {
  PtxFile file(GetParam(), "linear_prefill_range");
  const WeightRangeCase c;
  const auto run = [&](const ptx::Options& options, ptx::Outcome& o) {
    // Run at load: no part of a step.
    const auto launch = [&](const char* name, const Launch& shape, const WeightRangeParams& p) {
      o = file.run(name, shape, std::as_bytes(std::span(&p, 1)), options, false);
    };
    const std::vector<uint32_t> counts = c.run(launch);
    if (o.fault) return o.fault->text();
    return std::string(counts == c.expected() ? "" : "other counts");
  };
  ptx::expect_mutations_caught(file.module(), kWeightRangeKernel, 3, run, &not_seen_here);
}

}  // namespace
}  // namespace deltad::cuda
