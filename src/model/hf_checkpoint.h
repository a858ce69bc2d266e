// A Hugging Face folder as a Checkpoint: config.json beside model.safetensors, or beside shards
// that model.safetensors.index.json lists.
#pragma once

#include <memory>
#include <string>

#include "model/checkpoint.h"

namespace deltad {

Result<std::unique_ptr<Checkpoint>> open_hf_checkpoint(const std::string& folder);

}  // namespace deltad
