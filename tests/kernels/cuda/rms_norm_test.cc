// RMSNorm on the emulator against the fp64 oracle.
#include <gtest/gtest.h>

#include "tests/kernels/cuda/mutations.h"
#include "tests/kernels/cuda/overlapping.h"
#include "tests/kernels/cuda/rms_norm_case.h"
#include "tests/support/cuda_on_cpu/launch.h"

namespace deltad::cuda {

extern "C" void deltad_rms_norm(RmsNormParams p);

namespace {

using emulator::Options;
using emulator::Order;
using emulator::Report;

// A kernel launch for RmsNormCase::run.
auto emulated(const Options& options, Report* report) {
  return [options = overlapping(options), report](const Launch& shape, const RmsNormParams& p) {
    *report = emulator::launch(deltad_rms_norm, shape, p, options);
  };
}

class RmsNorm : public testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Columns, RmsNorm, testing::Values(4, 64, 576, 1536, 2044, 4096, 8192));

TEST_P(RmsNorm, EqualsTheOracle) {
  const RmsNormCase c(5, GetParam());
  for (Order order : {Order::kFifo, Order::kLifo, Order::kRandom}) {
    Report report;
    const Options options = {.order = order};
    const std::vector<uint16_t> out = c.run(0, c.rows, emulated(options, &report));
    ASSERT_TRUE(report.ok()) << report.text();
    EXPECT_EQ(c.wrong(out), "");
  }
}

TEST_P(RmsNorm, RowsAloneAreTheSameBits) {
  const RmsNormCase c(5, GetParam());
  Report report;
  const Options fifo, random = {.order = Order::kRandom};
  const std::vector<uint16_t> all = c.run(0, c.rows, emulated(fifo, &report));
  for (int32_t row = 0; row < c.rows; ++row) {
    const std::vector<uint16_t> alone = c.run(row, row + 1, emulated(random, &report));
    ASSERT_TRUE(report.ok()) << report.text();
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + row * c.columns));
  }
}

TEST(RmsNormSites, AllMatter) {
  const RmsNormCase c(3, 576);
  expect_every_site_matters([&](const Options& options, Report* report) {
    return c.run(0, c.rows, emulated(options, report));
  });
}

}  // namespace
}  // namespace deltad::cuda
