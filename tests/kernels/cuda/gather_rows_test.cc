// Gathering rows on the emulator.
#include <gtest/gtest.h>

#include "tests/kernels/cuda/gather_rows_case.h"
#include "tests/kernels/cuda/mutations.h"
#include "tests/kernels/cuda/overlapping.h"
#include "tests/support/cuda_on_cpu/launch.h"

namespace deltad::cuda {

extern "C" void deltad_gather_rows(GatherRowsParams p);

namespace {

auto emulated(const emulator::Options& options, emulator::Report* report) {
  return launch_overlapping(deltad_gather_rows, options, report);
}

TEST(GatherRows, CopiesThem) {
  for (const int32_t columns : {4, 576, 1100, 4096}) {
    const GatherRowsCase c(columns);
    emulator::Report report;
    const auto out = c.run(emulated({.order = emulator::Order::kRandom}, &report));
    ASSERT_TRUE(report.ok()) << report.text();
    EXPECT_EQ(out, c.expected());
  }
}

TEST(GatherRowsSites, AllMatter) {
  const GatherRowsCase c(576);
  expect_every_site_matters([&](const emulator::Options& options, emulator::Report* report) {
    return c.run(emulated(options, report));
  });
}

}  // namespace
}  // namespace deltad::cuda
