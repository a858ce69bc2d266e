// The part of the metrics page that comes from the adapter pool. Pure.
#pragma once

#include "server/pool/pool_service.h"
#include "server/prometheus_text.h"

namespace deltad {

void render_pool(const PoolFigures& figures, PrometheusText& out);

}  // namespace deltad
