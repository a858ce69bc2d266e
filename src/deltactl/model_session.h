// What generate, bench and logits share: the options that name a base and variants, and loading
// them. Main thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "delta/loader.h"
#include "engine/base_model.h"
#include "manual/command.h"

namespace deltad {

struct ModelOptions {
  std::string base;
  std::vector<std::string> deltas;
  int threads = 0;
  std::string isa;
};

// --base, --delta (many if `many`), --threads, --isa. Returns --base, which is required.
Option* add_model_options(Command* command, ModelOptions* options, bool many);

struct ModelSession {
  std::unique_ptr<BaseModel> base;
  std::vector<VariantRef> variants;  // as options.deltas
};

// With a progress bar on a terminal.
Result<ModelSession> open_session(const ModelOptions& options);

}  // namespace deltad
