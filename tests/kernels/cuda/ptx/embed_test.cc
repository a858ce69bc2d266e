// The embedding's PTX against its oracle.
#include "tests/kernels/cuda/embed_case.h"
#include "tests/kernels/cuda/ptx/kernel.h"

namespace deltad::cuda {
namespace {

class EmbedPtx : public ArchitectureTest {};
INSTANTIATE_TEST_SUITE_P(Architecture, EmbedPtx, testing::ValuesIn(ptx::kArchitectures));

TEST_P(EmbedPtx, EqualsTheOracle) {
  PtxFile file(GetParam(), "embed");
  for (const int32_t columns : {50, 576}) {
    const EmbedCase c(columns);
    for (const ptx::Options& options : ptx::schedules()) {
      ptx::Outcome o;
      const std::vector<float> out = c.run(0, c.rows(), file.launcher(options, o));
      ASSERT_FALSE(o.fault) << message(o);
      EXPECT_EQ(c.wrong(out), "");
    }
  }
}

TEST(EmbedPtxSites, Matter) {
  PtxFile file("sm_90a", "embed");
  const EmbedCase c(50);
  ptx::expect_mutations_caught(
      file.module(), kEmbedKernel, 2, [&](const ptx::Options& options, ptx::Outcome& o) {
        const std::vector<float> out = c.run(0, c.rows(), file.launcher(options, o));
        return o.fault ? o.fault->text() : c.wrong(out);
      });
}

}  // namespace
}  // namespace deltad::cuda
