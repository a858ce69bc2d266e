// TextAssets: how a model turns messages into tokens and back: tokenizer, chat template, end
// tokens, default sampling. The base has one; a variant that brings files of its own has another,
// with the base's for what it does not bring.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace deltad {

class GgufFile;

struct GenerationDefaults {  // generation_config.json; what a request does not say
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
};

struct TextAssets {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate>
      chat_template;  // null: the model has none, chat requests are refused
  std::string chat_template_source;
  std::string bos_token, eos_token;  // as text, for the template
  std::vector<int32_t> eos_ids;      // end of generation
  GenerationDefaults defaults;
};

// file(name) gives the content of "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
// "generation_config.json", "config.json", or "" if there is none. base: what to fall back to (null
// for the base itself).
Result<std::shared_ptr<const TextAssets>> load_text_assets(
    const std::function<std::string(const std::string&)>& file, const TextAssets* base);
Result<std::shared_ptr<const TextAssets>> load_text_assets(const GgufFile& gguf);

}  // namespace deltad
