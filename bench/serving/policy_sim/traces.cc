#include "bench/serving/policy_sim/traces.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace deltad::policy_sim {

const char* pattern_name(Pattern pattern) {
  switch (pattern) {
    case Pattern::kSteady:
      return "steady";
    case Pattern::kShifting:
      return "shifting";
    case Pattern::kScan:
      return "scan";
  }
  return "?";
}

std::vector<TraceRequest> make_trace(const TraceOptions& options) {
  std::mt19937_64 random(options.seed);
  std::vector<double> weights;
  for (int rank = 1; rank <= options.variants; ++rank)
    weights.push_back(std::pow(rank, -options.exponent));
  if (options.top > 0) {
    const auto border = weights.begin() + options.top;
    const double head = std::accumulate(weights.begin(), border, 0.0);
    const double tail = std::accumulate(border, weights.end(), 0.0);
    for (auto at = weights.begin(); at != weights.end(); ++at)
      *at *= at < border ? options.top_share / head : (1 - options.top_share) / tail;
  }
  std::discrete_distribution<int> zipf(weights.begin(), weights.end());
  std::exponential_distribution<double> gap(options.rate);

  std::vector<TraceRequest> out;
  const int part = std::max(1, options.requests / 10);
  double time = 0;
  int shift = 0, scanned = options.variants;
  for (int i = 0; i < options.requests; ++i) {
    time += gap(random);
    if (i > 0 && i % part == 0) {
      if (options.pattern == Pattern::kShifting) shift += std::max(1, options.variants / 7);
      if (options.pattern == Pattern::kScan) scanned = 0;
    }
    // A scan takes every second request until it is through.
    if (scanned < options.variants && i % 2 == 0) {
      out.push_back({time, scanned++});
      continue;
    }
    out.push_back({time, (zipf(random) + shift) % options.variants});
  }
  return out;
}

}  // namespace deltad::policy_sim
