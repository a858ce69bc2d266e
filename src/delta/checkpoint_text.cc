#include "delta/checkpoint_text.h"

namespace deltad {

Result<std::shared_ptr<const TextAssets>> checkpoint_text(const Checkpoint& checkpoint) {
  if (checkpoint.gguf() != nullptr) return load_text_assets(*checkpoint.gguf());
  if (checkpoint.text_file("tokenizer.json").empty()) return std::shared_ptr<const TextAssets>();
  return load_text_assets([&](const std::string& name) { return checkpoint.text_file(name); },
                          nullptr);
}

}  // namespace deltad
