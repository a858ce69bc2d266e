// The sampler on the emulator, against the fp64 oracle.
#include <gtest/gtest.h>

#include "tests/kernels/cuda/mutations.h"
#include "tests/kernels/cuda/overlapping.h"
#include "tests/kernels/cuda/sampler_case.h"
#include "tests/support/cuda_on_cpu/launch.h"

namespace deltad::cuda {

extern "C" void deltad_sampler(SamplerParams p);

namespace {

using emulator::Options;
using emulator::Order;
using emulator::Report;

auto emulated(const Options& options, Report* report) {
  return launch_overlapping(deltad_sampler, options, report);
}

class Sampler : public testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Vocabularies, Sampler, testing::Values(1, 7, 1009, 4999));

TEST_P(Sampler, EqualsTheOracle) {
  const SamplerCase c = sampler_case(GetParam());
  SamplerCase::Output first;
  for (const Order order : {Order::kFifo, Order::kLifo, Order::kRandom}) {
    Report report;
    const auto out = c.run(0, c.rows(), emulated({.order = order}, &report));
    ASSERT_TRUE(report.ok()) << report.text();
    EXPECT_EQ(c.wrong(out), "");
    if (order == Order::kFifo) first = out;
    EXPECT_TRUE(out == first);  // sums do not depend on who adds when
  }
}

TEST(SamplerRows, AloneAreTheSameBits) {
  const SamplerCase c = sampler_case(1009);
  Report report;
  const auto all = c.run(0, c.rows(), emulated({}, &report));
  for (int32_t row = 0; row < c.rows(); ++row) {
    const auto alone = c.run(row, row + 1, emulated({}, &report));
    ASSERT_TRUE(report.ok()) << report.text();
    const SampleResult &a = alone.results[0], &b = all.results[static_cast<size_t>(row)];
    EXPECT_EQ(a.token, b.token);
    EXPECT_EQ(a.logprob, b.logprob);
    EXPECT_EQ(a.change_count, b.change_count);
  }
}

// Each token comes as often as it is likely: many positions of one row.
TEST(SamplerRows, FollowTheDistribution) {
  SamplerCase c(4);
  const std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f), std::log(0.5f)};
  constexpr int32_t kRows = 200;
  for (int32_t i = 0; i < kRows; ++i) {
    SampleRow row = c.plain(static_cast<uint64_t>(i));
    row.min_p = 0.15f;
    c.add(row, logits);
  }
  Report report;
  const auto out = c.run(0, c.rows(), emulated({}, &report));
  ASSERT_TRUE(report.ok()) << report.text();
  int32_t times[4] = {};
  for (const SampleResult& result : out.results) ++times[result.token];
  for (const auto& [token, share] : {std::pair{0, 1.0 / 8}, {1, 2.0 / 8}, {2, 5.0 / 8}}) {
    const double deviation = std::sqrt(kRows * share * (1 - share));
    EXPECT_NEAR(times[token], kRows * share, 4 * deviation) << token;
  }
  EXPECT_EQ(times[3], 0);
}

TEST(SamplerSites, AllMatter) {
  const SamplerCase c = sampler_case(521);
  expect_every_site_matters([&](const Options& options, Report* report) {
    return c.run(0, c.rows(), emulated(options, report));
  });
}

}  // namespace
}  // namespace deltad::cuda
