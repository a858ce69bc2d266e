// TextAssets from a GGUF file; those from a folder's files are read in text_files.cc.
#include "text/text_assets.h"

#include <fmt/core.h>

#include <algorithm>

#include "io/gguf.h"

namespace deltad {

Result<std::shared_ptr<const TextAssets>> load_text_assets(const GgufFile& gguf) {
  TextAssets assets;
  ASSIGN_OR_RETURN(assets.tokenizer, Tokenizer::from_gguf(gguf));

  // The token that a key names; -1 if there is none.
  auto token = [&](const char* key) -> Result<int32_t> {
    if (!gguf.has(key)) return -1;
    ASSIGN_OR_RETURN(int64_t id, gguf.integer(key));
    if (id >= 0 && id < assets.tokenizer->vocab_size()) return static_cast<int32_t>(id);
    return invalid_argument(fmt::format("{}: {} is {}, of {} tokens", gguf.path(), key, id,
                                        assets.tokenizer->vocab_size()));
  };
  ASSIGN_OR_RETURN(int32_t bos, token("tokenizer.ggml.bos_token_id"));
  ASSIGN_OR_RETURN(int32_t eos, token("tokenizer.ggml.eos_token_id"));
  ASSIGN_OR_RETURN(int32_t eot, token("tokenizer.ggml.eot_token_id"));  // end of a turn
  assets.bos_token = assets.tokenizer->token_text(bos);
  assets.eos_token = assets.tokenizer->token_text(eos);
  if (eos >= 0) assets.eos_ids.push_back(eos);
  if (eot >= 0 && eot != eos) assets.eos_ids.push_back(eot);

  const char* key = "tokenizer.chat_template";
  if (gguf.has(key)) {
    ASSIGN_OR_RETURN(assets.chat_template_source, gguf.string(key));
    auto compiled = ChatTemplate::compile(assets.chat_template_source);
    if (!compiled.ok()) {
      return compiled.status().in(fmt::format("{}: {}", gguf.path(), key));
    }
    assets.chat_template = std::move(*compiled);
  }
  return std::shared_ptr<const TextAssets>(std::make_shared<TextAssets>(std::move(assets)));
}

}  // namespace deltad
