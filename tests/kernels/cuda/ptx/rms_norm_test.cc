// RMSNorm's PTX against the fp64 oracle, for every architecture.
#include "tests/kernels/cuda/ptx/kernel.h"
#include "tests/kernels/cuda/rms_norm_case.h"

namespace deltad::cuda {
namespace {

class RmsNormPtx : public ArchitectureTest {
 protected:
  // A kernel launch for RmsNormCase::run.
  auto launcher(const ptx::Options& options, ptx::Outcome& out) {
    return [&](const Launch& shape, const RmsNormParams& p) {
      out = file_.run(kRmsNormKernel, shape, std::as_bytes(std::span(&p, 1)), options, true);
    };
  }
  PtxFile file_{GetParam(), "rms_norm"};
};
INSTANTIATE_TEST_SUITE_P(Architecture, RmsNormPtx, testing::ValuesIn(ptx::kArchitectures));

TEST_P(RmsNormPtx, EqualsTheOracle) {
  for (const int32_t columns : {4, 64, 576, 1536, 2044, 8192}) {
    const RmsNormCase c(5, columns);
    for (const ptx::Options& options : ptx::schedules()) {
      ptx::Outcome o;
      const std::vector<uint16_t> out = c.run(0, c.rows, launcher(options, o));
      ASSERT_FALSE(o.fault) << message(o);
      EXPECT_EQ(c.wrong(out), "") << columns;
    }
  }
}

TEST_P(RmsNormPtx, RowsAloneAreTheSameBits) {
  const RmsNormCase c(4, 1536);
  ptx::Outcome o;
  const ptx::Options options;
  const std::vector<uint16_t> all = c.run(0, c.rows, launcher(options, o));
  for (int32_t row = 0; row < c.rows; ++row) {
    const std::vector<uint16_t> alone = c.run(row, row + 1, launcher(options, o));
    ASSERT_FALSE(o.fault) << message(o);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + row * c.columns));
  }
}

TEST_P(RmsNormPtx, EveryBarrierAndBoundIsNeeded) {
  const RmsNormCase c(3, 576);
  ptx::expect_mutations_caught(
      file_.module(), kRmsNormKernel, 3, [&](const ptx::Options& options, ptx::Outcome& o) {
        const std::vector<uint16_t> out = c.run(0, c.rows, launcher(options, o));
        return o.fault ? o.fault->text() : c.wrong(out);
      });
}

}  // namespace
}  // namespace deltad::cuda
