// One run of the real router and delta cache (RouterCore) over a trace, with a fake clock, loader
// and engine: loads take as long as their bytes, requests hold their variant while they run.
#pragma once

#include <memory>
#include <vector>

#include "bench/serving/policy_sim/traces.h"
#include "router/eviction_policy.h"

namespace deltad::policy_sim {

struct SimOptions {
  double budget_share = 0.3;  // of the bytes of all variants
  double load_seconds = 0.02;
  double run_seconds = 0.02;
  double warm_up_seconds = 0;  // loads_of counts from then on
  uint64_t seed = 1;
};

struct SimResult {
  double hit_ratio = 0;  // admitted at once
  uint64_t loads = 0;
  double wait_seconds = 0;    // mean over all requests
  std::vector<int> loads_of;  // by variant, after the warm-up
};

// policy null: the cache's own, with this half-life.
SimResult simulate(const std::vector<TraceRequest>& trace, int variants, const SimOptions& options,
                   double half_life_seconds, std::unique_ptr<EvictionPolicy> policy);

}  // namespace deltad::policy_sim
