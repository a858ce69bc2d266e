// A model in a GPU's memory, or in an emulated one's: of an 8-billion-parameter model's shapes,
// with random weights and random one-level variants, made without a file. What it says of itself is
// read by one thread; loading takes several.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "delta/variant.h"
#include "model/weight_table.h"

namespace deltad::bench {

struct SyntheticModel {
  ModelConfig config;
  WeightTable table;
  std::unique_ptr<Backend> backend;
  std::vector<VariantRef> variants;
  double base_seconds = 0, variant_seconds = 0;  // of making them: the base, one variant
};

// small: a model of two narrow blocks, which an emulated GPU runs in seconds.
Result<std::unique_ptr<SyntheticModel>> make_synthetic_model(bool small, int variants);

}  // namespace deltad::bench
