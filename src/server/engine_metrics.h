// The parts of the metrics page that come from snapshots of the engine and the catalog, and those
// under the names that the Kubernetes gateway's inference extension reads from vLLM. Pure.
#pragma once

#include <string>
#include <vector>

#include "server/metrics.h"

namespace deltad {

void render_engine(const EngineStats& stats, PrometheusText& out);
void render_catalog(const std::vector<VariantInfo>& variants, PrometheusText& out);
// running, waiting: names of variants, separated by commas.
void render_vllm_names(const MetricsSnapshot& snapshot, const std::string& running,
                       const std::string& waiting, PrometheusText& out);

}  // namespace deltad
