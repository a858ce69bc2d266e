// One variant's flood and what it does to the others, in simulated time.
#include <gtest/gtest.h>

#include "tests/unit/engine/simulation.h"

namespace deltad {
namespace {

using testing::add_poisson;
using testing::Arrival;
using testing::Costs;
using testing::make_variant;
using testing::Simulation;

constexpr size_t kTenants = 10;  // the first is the one that floods

struct Mix {
  const char* name;
  std::pair<int, int> prompt, output;
  int32_t blocks;
  int32_t max_running;
};

class Flood : public ::testing::TestWithParam<Mix> {
 protected:
  std::vector<VariantRef> tenants() const {
    std::vector<VariantRef> out{make_variant(0)};
    for (uint32_t v = 1; v + 1 < kTenants; ++v) out.push_back(make_variant(v));
    out.push_back(nullptr);  // the base is one of the others
    return out;
  }
  std::unique_ptr<Simulation> simulate(double rate, double of_first, double end) const {
    SchedulerOptions options;
    options.max_running = GetParam().max_running;
    auto simulation = std::make_unique<Simulation>(options, Costs(), GetParam().blocks, tenants());
    std::vector<Arrival> trace;
    for (size_t t = 0; t < kTenants; ++t)
      add_poisson(trace, t, t == 0 ? of_first : rate, end, GetParam().prompt, GetParam().output,
                  100 + static_cast<uint32_t>(t));
    simulation->run(std::move(trace), end);
    return simulation;
  }
  // Requests a second when all tenants ask for more than they can get.
  double capacity() const { return static_cast<double>(simulate(20, 20, 60)->finished) / 60; }
};

TEST_P(Flood, LeavesTheOthersTimeToFirstTokenWithinTwice) {
  const double full = capacity();
  const double share = full / 2 / (kTenants - 1);
  double p99[2];
  for (const bool flood : {false, true}) {
    const auto simulation = simulate(share, flood ? 50 * share : share, 400);
    std::vector<double> others;
    for (size_t t = 1; t < kTenants; ++t)
      others.insert(others.end(), simulation->ttft[t].begin(), simulation->ttft[t].end());
    ASSERT_GT(others.size(), 400u);
    p99[flood] = Simulation::percentile(others, 0.99);
    RecordProperty(flood ? "p50_flood_us" : "p50_us",
                   static_cast<int>(1e6 * Simulation::percentile(others, 0.5)));
    RecordProperty(flood ? "p99_flood_us" : "p99_us", static_cast<int>(1e6 * p99[flood]));
    if (flood) {
      EXPECT_GT(simulation->core.stats().waiting, 1000) << "else it is no flood";
      // What the others leave is used.
      EXPECT_GT(static_cast<double>(simulation->finished) / 400, 0.8 * full);
    }
  }
  EXPECT_LE(p99[1], 2 * p99[0]);
}

INSTANTIATE_TEST_SUITE_P(Mixes, Flood,
                         ::testing::Values(Mix{"chat", {200, 600}, {20, 60}, 16384, 256},
                                           Mix{"long_prompts", {1000, 3000}, {1, 20}, 16384, 256}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace deltad
