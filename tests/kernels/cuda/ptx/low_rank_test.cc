// The low-rank kernels' PTX, shrink and expand, against the fp64 oracle.
#include "tests/kernels/cuda/low_rank_case.h"
#include "tests/kernels/cuda/ptx/kernel.h"

namespace deltad::cuda {
namespace {

class LowRankPtxTest : public PtxFilesTest {
 protected:
  explicit LowRankPtxTest(const char* arch)
      : PtxFilesTest(arch, {"low_rank_shrink", "low_rank_expand"}) {
    const int32_t v = c_.add_variant({17, 0}), w = c_.add_variant({0, 5});
    c_.set_groups({{0, 3, -1}, {3, 20, v}, {20, 22, w}});
  }
  // Runs both, `kernel` with the options and the other one as it is: the outcome, and what is
  // wrong.
  std::string run(const std::string& kernel, const ptx::Options& options, ptx::Outcome& o) {
    o = {};
    std::string fault;
    const std::vector<float> out =
        c_.run(0, c_.rows(), [&](const char* name, const Launch& shape, const auto& p) {
          ptx::Outcome one = file_of(name)->run(name, shape, std::as_bytes(std::span(&p, 1)),
                                                name == kernel ? options : ptx::Options{}, true);
          if (one.fault && fault.empty()) fault = one.fault->text();
          if (name == kernel) o = std::move(one);
        });
    return fault.empty() ? c_.wrong(out) : fault;
  }

  LowRankCase c_{{40, 40}, true, 1100};
};

class LowRankPtx : public LowRankPtxTest, public testing::WithParamInterface<const char*> {
 protected:
  LowRankPtx() : LowRankPtxTest(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Architecture, LowRankPtx, testing::ValuesIn(ptx::kArchitectures));

TEST_P(LowRankPtx, EqualsTheOracle) {
  for (const char* kernel : {kLowRankShrinkKernel, kLowRankExpandKernel}) {
    for (const ptx::Options& options : ptx::schedules()) {
      ptx::Outcome o;
      EXPECT_EQ(run(kernel, options, o), "") << kernel;
    }
  }
}

class LowRankPtxSites : public LowRankPtxTest, public testing::WithParamInterface<const char*> {
 protected:
  LowRankPtxSites() : LowRankPtxTest("sm_90a") {}
};
INSTANTIATE_TEST_SUITE_P(Kernels, LowRankPtxSites,
                         testing::Values(kLowRankShrinkKernel, kLowRankExpandKernel));

TEST_P(LowRankPtxSites, Matter) {
  ptx::expect_mutations_caught(
      file_of(GetParam())->module(), GetParam(), 5,
      [&](const ptx::Options& options, ptx::Outcome& o) { return run(GetParam(), options, o); });
}

}  // namespace
}  // namespace deltad::cuda
