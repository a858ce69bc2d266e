// The parts of the metrics page that come from a snapshot of the engine, and those under the names
// that the Kubernetes gateway's inference extension reads from vLLM. Pure.
#pragma once

#include <string>

#include "server/metrics.h"

namespace deltad {

void render_engine(const EngineStats& stats, PrometheusText& out);
// running, waiting: names of variants, separated by commas.
void render_vllm_names(const MetricsSnapshot& snapshot, const std::string& running,
                       const std::string& waiting, PrometheusText& out);

}  // namespace deltad
