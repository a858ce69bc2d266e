// One variant's flood among tenants whose load is at most half of the capacity, in simulated time.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/engine/simulation.h"

namespace deltad::testing {

struct Mix {
  const char* name;
  std::pair<int, int> prompt, output;  // tokens, uniform
  int32_t blocks;
  int32_t max_running;
  Costs costs = {};
};

class FloodTrace {
 public:
  static constexpr size_t kTenants = 10;  // the first is the one that floods
  static constexpr double kSeconds = 400;

  explicit FloodTrace(const Mix& mix, uint32_t seed = 100) : mix_(mix), seed_(seed) {}

  // Requests a second when all tenants ask for more than they can get.
  double capacity() const {
    constexpr double kEnd = 300;
    const double rate = 2;  // of each
    return static_cast<double>(simulate(rate, rate, kEnd)->finished) / kEnd;
  }
  std::unique_ptr<Simulation> simulate(double rate, double of_first, double end = kSeconds) const {
    SchedulerOptions options;
    options.max_running = mix_.max_running;
    auto simulation = std::make_unique<Simulation>(options, mix_.costs, mix_.blocks, tenants());
    std::vector<Arrival> trace;
    for (size_t t = 0; t < kTenants; ++t)
      add_poisson(trace, t, t == 0 ? of_first : rate, end, mix_.prompt, mix_.output,
                  seed_ + static_cast<uint32_t>(t));
    simulation->run(std::move(trace), end);
    return simulation;
  }
  // Times to first token of all but the first.
  static std::vector<double> others(const Simulation& simulation) {
    std::vector<double> out;
    for (size_t t = 1; t < kTenants; ++t)
      out.insert(out.end(), simulation.ttft[t].begin(), simulation.ttft[t].end());
    return out;
  }

 private:
  static std::vector<VariantRef> tenants() {
    std::vector<VariantRef> out;
    for (uint32_t v = 0; v + 1 < kTenants; ++v) out.push_back(make_variant(v));
    out.push_back(nullptr);  // the base is one of the others
    return out;
  }

  const Mix mix_;
  const uint32_t seed_;
};

}  // namespace deltad::testing
