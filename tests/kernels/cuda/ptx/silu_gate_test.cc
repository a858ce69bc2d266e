// The gate's PTX against the oracle.
#include "tests/kernels/cuda/ptx/kernel.h"
#include "tests/kernels/cuda/silu_gate_case.h"

namespace deltad::cuda {
namespace {

class SiluGatePtx : public ArchitectureTest {};
INSTANTIATE_TEST_SUITE_P(Architecture, SiluGatePtx, testing::ValuesIn(ptx::kArchitectures));

TEST_P(SiluGatePtx, EqualsTheOracle) {
  PtxFile file(GetParam(), "silu_gate");
  const SiluGateCase c(528);
  for (const ptx::Options& options : ptx::schedules()) {
    ptx::Outcome o;
    const std::vector<uint16_t> out = c.run(file.launcher(options, o));
    ASSERT_FALSE(o.fault) << message(o);
    EXPECT_EQ(c.wrong(out), "");
  }
}

TEST(SiluGatePtxSites, Matter) {
  PtxFile file("sm_90a", "silu_gate");
  const SiluGateCase c(528);
  ptx::expect_mutations_caught(file.module(), kSiluGateKernel, 2,
                               [&](const ptx::Options& options, ptx::Outcome& o) {
                                 const std::vector<uint16_t> out = c.run(file.launcher(options, o));
                                 return o.fault ? o.fault->text() : c.wrong(out);
                               });
}

}  // namespace
}  // namespace deltad::cuda
