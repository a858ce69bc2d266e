// What goes on now, for the admin page and whoever else watches: the engine, the last step's batch,
// the cache and the variants. Counters and histograms only grow: who looks twice has the rates and
// percentiles of the time between. Pure.
#pragma once

#include "server/metrics.h"
#include "server/openai/errors.h"
#include "server/serving.h"

namespace deltad {

Json state_json(const Serving& serving, const RequestFigures& figures);

}  // namespace deltad
