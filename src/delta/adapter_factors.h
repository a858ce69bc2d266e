// The low-rank factors of a LoRA adapter, all of them in memory. Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "delta/lora_adapter.h"

namespace deltad {

struct AdapterFactors {
  int64_t rank = 0, inputs = 0, outputs = 0;
  double scale = 1;         // Δ = scale·B·A
  std::vector<float> a, b;  // [rank, inputs], [outputs, rank]
};
using AdapterFactorSet = std::map<std::string, AdapterFactors>;  // by weight

// Of every module. kUnimplemented names a tensor saved whole or adapted embeddings;
// kInvalidArgument a value that is not finite in bf16.
Result<AdapterFactorSet> read_factors(const LoraAdapter& adapter);

}  // namespace deltad
