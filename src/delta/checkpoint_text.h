// What of text a model on disk brings: tokenizer, chat template, generation settings. Any thread.
#pragma once

#include <memory>

#include "base/status.h"
#include "model/checkpoint.h"
#include "text/text_assets.h"

namespace deltad {

// Whatever the model's form, a folder or a GGUF file. Null if a folder has no tokenizer.json: only
// token ids can be given to and had from such a model.
Result<std::shared_ptr<const TextAssets>> checkpoint_text(const Checkpoint& checkpoint);

}  // namespace deltad
