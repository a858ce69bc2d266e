// Sums of the ranks' parts on the emulator.
#include <gtest/gtest.h>

#include "tests/kernels/cuda/mutations.h"
#include "tests/kernels/cuda/overlapping.h"
#include "tests/kernels/cuda/sum_parts_case.h"
#include "tests/support/cuda_on_cpu/launch.h"

namespace deltad::cuda {

extern "C" void deltad_sum_parts(SumPartsParams p);

namespace {

auto emulated(const emulator::Options& options, emulator::Report* report) {
  return launch_overlapping(deltad_sum_parts, options, report);
}

TEST(SumParts, AddsThemInTheirOrder) {
  for (const int32_t count : {1, 2, 3, 8, 16}) {
    for (const int32_t columns : {4, 1100}) {
      for (const bool add : {false, true}) {
        const SumPartsCase c(count, columns, add);
        emulator::Report report;
        const auto out = c.run(emulated({.order = emulator::Order::kRandom}, &report));
        ASSERT_TRUE(report.ok()) << report.text();
        EXPECT_EQ(out, c.expected()) << count << " parts of " << columns << " columns";
      }
    }
  }
}

TEST(SumPartsSites, AllMatter) {
  const SumPartsCase c(3, 68, true);
  expect_every_site_matters([&](const emulator::Options& options, emulator::Report* report) {
    return c.run(emulated(options, report));
  });
}

}  // namespace
}  // namespace deltad::cuda
