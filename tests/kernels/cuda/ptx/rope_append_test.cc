// The PTX of rotary embedding and the cache's append against the fp64 oracle.
#include "tests/kernels/cuda/ptx/kernel.h"
#include "tests/kernels/cuda/rope_append_case.h"

namespace deltad::cuda {
namespace {

class RopeAppendPtx : public ArchitectureTest {};
INSTANTIATE_TEST_SUITE_P(Architecture, RopeAppendPtx, testing::ValuesIn(ptx::kArchitectures));

TEST_P(RopeAppendPtx, EqualsTheOracle) {
  PtxFile file(GetParam(), "rope_append");
  const RopeAppendCase c(3, 1, 80);
  for (const ptx::Options& options : ptx::schedules()) {
    ptx::Outcome o;
    const RopeAppendCase::Output out = c.run(0, c.rows(), file.launcher(options, o));
    ASSERT_FALSE(o.fault) << message(o);
    EXPECT_EQ(c.wrong(out), "");
  }
}

TEST(RopeAppendPtxSites, Matter) {
  PtxFile file("sm_90a", "rope_append");
  const RopeAppendCase c(3, 1, 80);
  ptx::expect_mutations_caught(
      file.module(), kRopeAppendKernel, 2, [&](const ptx::Options& options, ptx::Outcome& o) {
        const RopeAppendCase::Output out = c.run(0, c.rows(), file.launcher(options, o));
        return o.fault ? o.fault->text() : c.wrong(out);
      });
}

}  // namespace
}  // namespace deltad::cuda
