// The model that a plan is for: a size that is built in, or a folder's config.json.
#pragma once

#include <string>

#include "base/status.h"
#include "model/config.h"

namespace deltad {

// "8b" and "70b" are Llama 3's (config.json of meta-llama/Meta-Llama-3-8B and -70B, context of
// version 3.1); all else is a GGUF file, or a folder with a config.json, whose weights need not be
// there.
Result<ModelConfig> planned_model(const std::string& name);

}  // namespace deltad
