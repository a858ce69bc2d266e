// The embedding on the emulator, against its oracle.
#include <gtest/gtest.h>

#include "tests/kernels/cuda/embed_case.h"
#include "tests/kernels/cuda/mutations.h"
#include "tests/kernels/cuda/overlapping.h"
#include "tests/support/cuda_on_cpu/launch.h"

namespace deltad::cuda {

extern "C" void deltad_embed(EmbedParams p);

namespace {

using emulator::Options;
using emulator::Order;
using emulator::Report;

auto emulated(const Options& options, Report* report) {
  return launch_overlapping(deltad_embed, options, report);
}

class Embed : public testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Columns, Embed, testing::Values(2, 50, 64, 576, 2080));

TEST_P(Embed, EqualsTheOracle) {
  const EmbedCase c(GetParam());
  for (const Order order : {Order::kFifo, Order::kLifo, Order::kRandom}) {
    Report report;
    const auto out = c.run(0, c.rows(), emulated({.order = order, .resident_blocks = 3}, &report));
    ASSERT_TRUE(report.ok()) << report.text();
    EXPECT_EQ(c.wrong(out), "");
  }
}

TEST_P(Embed, RowsAloneAreTheSameBits) {
  const EmbedCase c(GetParam());
  Report report;
  const auto all = c.run(0, c.rows(), emulated({}, &report));
  for (int32_t row = 0; row < c.rows(); ++row) {
    const auto alone = c.run(row, row + 1, emulated({}, &report));
    ASSERT_TRUE(report.ok()) << report.text();
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + row * c.columns));
  }
}

TEST(EmbedSites, AllMatter) {
  const EmbedCase c(50);
  expect_every_site_matters([&](const Options& options, Report* report) {
    return c.run(0, c.rows(), emulated(options, report));
  });
}

}  // namespace
}  // namespace deltad::cuda
