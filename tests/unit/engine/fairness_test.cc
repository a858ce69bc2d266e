// One variant's flood and what it does to the others, in simulated time. Prints a line of the table
// in docs/measurements.md for each mix.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/unit/engine/flood.h"

namespace deltad {
namespace {

using testing::FloodTrace;
using testing::Mix;
using testing::Simulation;

class Flood : public ::testing::TestWithParam<Mix> {};

TEST_P(Flood, LeavesTheOthersTimeToFirstTokenWithinTwice) {
  const FloodTrace trace(GetParam());
  const double full = trace.capacity();
  const double share = full / 2 / (FloodTrace::kTenants - 1);
  double p99[2];
  uint64_t preemptions = 0;
  for (const bool flood : {false, true}) {
    const auto simulation = trace.simulate(share, flood ? 50 * share : share);
    const std::vector<double> others = FloodTrace::others(*simulation);
    ASSERT_GT(others.size(), 400u);
    p99[flood] = Simulation::percentile(others, 0.99);
    if (!flood) continue;
    const EngineStats stats = simulation->core.stats();
    preemptions = stats.preemptions;
    EXPECT_GT(stats.waiting, 1000) << "else it is no flood";
    // What the others leave is used.
    EXPECT_GT(static_cast<double>(simulation->finished) / FloodTrace::kSeconds, 0.8 * full);
    // Each of the others' requests takes one place at most (planner_room.cc); what generating rows
    // take for want of blocks is less than that again.
    EXPECT_LE(preemptions, 2 * others.size());
  }
  EXPECT_LE(p99[1], 2 * p99[0]);
  std::printf("| %s | %.1f | %.0f | %.0f | %.2f | %llu |\n", GetParam().name, full, 1e3 * p99[0],
              1e3 * p99[1], p99[1] / p99[0], static_cast<unsigned long long>(preemptions));
}

INSTANTIATE_TEST_SUITE_P(
    Mixes, Flood,
    ::testing::Values(Mix{"chat", {200, 600}, {20, 60}, 16384, 256},
                      Mix{"short", {32, 128}, {8, 24}, 16384, 256, {0.007, 0.0008, 0.00035}},
                      Mix{"long_prompts", {1000, 3000}, {1, 20}, 16384, 256},
                      Mix{"long_answers", {100, 300}, {300, 700}, 16384, 256},
                      Mix{"few_places", {200, 600}, {20, 60}, 16384, 8},
                      Mix{"few_places_long_answers", {100, 300}, {100, 300}, 16384, 8},
                      Mix{"little_memory", {200, 600}, {20, 60}, 256, 256},
                      Mix{"little_memory_long_answers", {100, 300}, {100, 300}, 256, 256}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace deltad
