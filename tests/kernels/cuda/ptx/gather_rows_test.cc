// The PTX that gathers rows.
#include "tests/kernels/cuda/gather_rows_case.h"
#include "tests/kernels/cuda/ptx/kernel.h"

namespace deltad::cuda {
namespace {

class GatherRowsPtx : public ArchitectureTest {};
INSTANTIATE_TEST_SUITE_P(Architecture, GatherRowsPtx, testing::ValuesIn(ptx::kArchitectures));

TEST_P(GatherRowsPtx, CopiesThem) {
  PtxFile file(GetParam(), "gather_rows");
  for (const int32_t columns : {4, 1100}) {
    const GatherRowsCase c(columns);
    for (const ptx::Options& options : ptx::schedules()) {
      ptx::Outcome o;
      const std::vector<float> out = c.run(file.launcher(options, o));
      ASSERT_FALSE(o.fault) << message(o);
      EXPECT_EQ(out, c.expected());
    }
  }
}

TEST(GatherRowsPtxSites, Matter) {
  PtxFile file("sm_90a", "gather_rows");
  const GatherRowsCase c(576);
  ptx::expect_mutations_caught(file.module(), kGatherRowsKernel, 2,
                               [&](const ptx::Options& options, ptx::Outcome& o) {
                                 const std::vector<float> out = c.run(file.launcher(options, o));
                                 if (o.fault) return o.fault->text();
                                 return std::string(out == c.expected() ? "" : "other rows");
                               });
}

}  // namespace
}  // namespace deltad::cuda
