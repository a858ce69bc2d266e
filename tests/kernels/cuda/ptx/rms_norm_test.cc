// RMSNorm's PTX against the fp64 oracle, for every architecture.
#include "tests/kernels/cuda/ptx/kernel.h"
#include "tests/kernels/cuda/rms_norm_case.h"

namespace deltad::cuda {
namespace {

class RmsNormPtx : public testing::TestWithParam<const char*> {
 protected:
  PtxKernel kernel_{GetParam(), "rms_norm", kRmsNormKernel};
};
INSTANTIATE_TEST_SUITE_P(Architecture, RmsNormPtx, testing::ValuesIn(ptx::kArchitectures));

TEST_P(RmsNormPtx, EqualsTheOracle) {
  for (const int32_t columns : {4, 64, 576, 1536, 2044, 8192}) {
    const RmsNormCase c(5, columns);
    for (const ptx::Options& options : ptx::schedules()) {
      ptx::Outcome o;
      const std::vector<uint16_t> out = c.run(0, c.rows, kernel_.launcher(options, o));
      ASSERT_FALSE(o.fault) << message(o);
      EXPECT_EQ(c.wrong(out), "") << columns;
    }
  }
}

TEST_P(RmsNormPtx, RowsAloneAreTheSameBits) {
  const RmsNormCase c(4, 1536);
  ptx::Outcome o;
  const ptx::Options options;
  const std::vector<uint16_t> all = c.run(0, c.rows, kernel_.launcher(options, o));
  for (int32_t row = 0; row < c.rows; ++row) {
    const std::vector<uint16_t> alone = c.run(row, row + 1, kernel_.launcher(options, o));
    ASSERT_FALSE(o.fault) << message(o);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + row * c.columns));
  }
}

TEST_P(RmsNormPtx, EveryBarrierAndBoundIsNeeded) {
  const RmsNormCase c(3, 576);
  ptx::expect_mutations_caught(
      kernel_.module(), kernel_.name(), 3, [&](const ptx::Options& options, ptx::Outcome& o) {
        const std::vector<uint16_t> out = c.run(0, c.rows, kernel_.launcher(options, o));
        return o.fault ? o.fault->text() : c.wrong(out);
      });
}

}  // namespace
}  // namespace deltad::cuda
