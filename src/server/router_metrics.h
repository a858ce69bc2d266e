// The parts of the metrics page that come from a snapshot of the router: the memory for variants,
// who waits for what, and each variant. Pure.
#pragma once

#include <cstdint>

#include "router/router_stats.h"
#include "server/prometheus_text.h"

namespace deltad {

// The label of the row of all variants without one of their own. No variant's name holds a space.
constexpr const char* kOtherVariants = "other variants";
// That of all names that are no model's.
constexpr const char* kUnknownModel = "unknown model";

// engine_waiting: requests that have their variant and wait for a place in the engine.
void render_cache(const RouterStats& stats, int64_t engine_waiting, PrometheusText& out);
void render_variants(const RouterStats& stats, PrometheusText& out);

}  // namespace deltad
