// Traces of requests: Poisson arrivals, variants by a Zipf law, and what disturbs it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace deltad::policy_sim {

enum class Pattern {
  kSteady,
  kShifting,  // every tenth of the trace the popularity moves on to other variants
  kScan       // every tenth of the trace all variants are asked for once, one after the other
};
const char* pattern_name(Pattern pattern);

struct TraceOptions {
  int variants = 14;
  double exponent = 1.0;
  Pattern pattern = Pattern::kSteady;
  int requests = 100'000;
  double rate = 10;  // a second
  uint64_t seed = 1;
  int top = 0;  // > 0: so many variants carry `top_share` of the traffic
  double top_share = 0.95;
};

struct TraceRequest {
  double time;  // seconds
  int variant;
};

std::vector<TraceRequest> make_trace(const TraceOptions& options);

}  // namespace deltad::policy_sim
