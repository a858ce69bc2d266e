// What the model does for requests: the engine with its scheduler and sampler on the GPU, and loads
// of a variant from disk. A table each.
#pragma once

#include <string>

#include "bench/serving/cuda/model.h"

namespace deltad::bench {

// Base, one variant, and as many variants as there are in one batch; greedy. Fails if a sequence
// gets other tokens beside others than it gets alone.
Status bench_serving(const SyntheticModel& model, bool small);

// A variant file written to `folder`, which needs room for it, and removed again.
Status bench_loads(const SyntheticModel& model, const std::string& folder, bool small);

}  // namespace deltad::bench
