// Low-rank factors, shrink and expand, on the emulator against the fp64 oracle.
#include <gtest/gtest.h>

#include "tests/kernels/cuda/low_rank_case.h"
#include "tests/kernels/cuda/mutations.h"
#include "tests/kernels/cuda/overlapping.h"
#include "tests/support/cuda_on_cpu/launch.h"

namespace deltad::cuda {

extern "C" void deltad_low_rank_shrink(LowRankShrinkParams p);
extern "C" void deltad_low_rank_expand(LowRankExpandParams p);

namespace {

using emulator::Options;
using emulator::Order;
using emulator::Report;

void (*kernel_of(const LowRankShrinkParams&))(LowRankShrinkParams) {
  return deltad_low_rank_shrink;
}
void (*kernel_of(const LowRankExpandParams&))(LowRankExpandParams) {
  return deltad_low_rank_expand;
}

// Both kernels' faults, sites and accesses in one report.
auto emulated(const Options& options, Report* report) {
  *report = {};
  return [options = overlapping(options), report](const char*, const Launch& shape, const auto& p) {
    const Report one = emulator::launch(kernel_of(p), shape, p, options);
    report->faults.insert(report->faults.end(), one.faults.begin(), one.faults.end());
    report->sites.insert(report->sites.end(), one.sites.begin(), one.sites.end());
    report->accesses.insert(report->accesses.end(), one.accesses.begin(), one.accesses.end());
  };
}

struct Shape {
  std::vector<int32_t> part_rows;
  bool interleaved;
  int32_t columns;
  std::vector<int32_t> ranks, other_ranks;  // of two variants' parts
};

class LowRank : public testing::TestWithParam<Shape> {
 protected:
  LowRank() : c_(GetParam().part_rows, GetParam().interleaved, GetParam().columns) {
    const int32_t v = c_.add_variant(GetParam().ranks), w = c_.add_variant(GetParam().other_ranks);
    const int32_t none = c_.add_variant(std::vector<int32_t>(GetParam().part_rows.size(), 0));
    // Groups across tiles of 16 and slices of 64 rows, and one of a single row.
    c_.set_groups({{0, 3, -1}, {3, 24, v}, {24, 25, w}, {25, 27, none}, {27, 71, w}});
  }
  LowRankCase c_;
};
// Ranks from 4 to 256, odd ones too; SmolLM2's widths, narrow parts of wider ones, widths that fill
// no step, one part or several with factors or without.
INSTANTIATE_TEST_SUITE_P(Shapes, LowRank,
                         testing::Values(Shape{{32}, false, 576, {4}, {16}},
                                         Shape{{48, 16, 16}, false, 576, {8, 0, 16}, {0, 5, 0}},
                                         Shape{{40, 40}, true, 300, {17, 32}, {0, 64}},
                                         Shape{{20}, false, 1536, {256}, {1}},
                                         Shape{{16, 16}, true, 4096, {64, 0}, {16, 128}},
                                         Shape{{90}, false, 9, {4}, {33}},
                                         Shape{{16}, false, 14336, {8}, {16}}));

TEST_P(LowRank, EqualsTheOracle) {
  for (const Order order : {Order::kFifo, Order::kLifo, Order::kRandom}) {
    Report report;
    const auto out = c_.run(0, c_.rows(), emulated({.order = order}, &report));
    ASSERT_TRUE(report.ok()) << report.text();
    EXPECT_EQ(c_.wrong(out), "");
  }
}

TEST_P(LowRank, RowsAreTheSameBitsForEveryNumberAndNeighbour) {
  Report report;
  const auto all = c_.run(0, c_.rows(), emulated({}, &report));
  for (const int32_t width : {1, 2, 17}) {
    for (int32_t first = 0; first + width <= c_.rows(); first += std::max(width, 11)) {
      const auto some = c_.run(first, first + width, emulated({}, &report));
      ASSERT_TRUE(report.ok()) << report.text();
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first * c_.outputs()));
    }
  }
}

TEST(LowRankSites, AllMatter) {
  LowRankCase c({40, 40}, true, 2060);
  const int32_t v = c.add_variant({17, 0}), w = c.add_variant({0, 5});
  c.set_groups({{0, 3, -1}, {3, 20, v}, {20, 22, w}});
  expect_every_site_matters([&](const Options& options, Report* report) {
    return c.run(0, c.rows(), emulated(options, report));
  });
}

// Shared memory without conflicts, and factors in whole sectors: each byte that comes is asked for.
TEST(LowRankAccesses, AreWholeSectorsWithoutConflicts) {
  LowRankCase c({64}, false, 512);
  const int32_t v = c.add_variant({16});
  c.set_groups({{0, 16, v}});
  Report report;
  c.run(0, c.rows(), emulated({.count_accesses = true}, &report));
  ASSERT_TRUE(report.ok()) << report.text();
  uint64_t wide = 0;
  for (const emulator::AccessCount& count : report.accesses) {
    EXPECT_EQ(count.conflicts(), 0u) << count.text();
    if (count.kind == emulator::AccessKind::kGlobalRead && count.bytes > 1000) {
      ++wide;
      EXPECT_EQ(count.used(), 1.0) << count.text();
    }
  }
  EXPECT_GE(wide, 3u);  // A or x, t, B
}

}  // namespace
}  // namespace deltad::cuda
