#include "delta/model_folder.h"

#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "delta/checkpoint_text.h"
#include "delta/variant_path.h"
#include "delta/variant_text.h"
#include "io/gguf.h"
#include "io/safetensors.h"
#include "text/tokenizer.h"

namespace deltad {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& document) {
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json token_ids(const std::vector<int32_t>& ids) {
  return ids.size() == 1 ? Json(ids[0]) : Json(ids);
}

// What a GGUF's metadata says, as config.json says it.
Result<Json> config_from(const ModelConfig& config) {
  if (config.architecture != "LlamaForCausalLM")
    return unimplemented(fmt::format("config.json for architecture {}", config.architecture));
  Json json = {{"architectures", {config.architecture}},
               {"model_type", "llama"},
               {"attention_bias", false},
               {"mlp_bias", false},
               {"hidden_act", "silu"},
               {"hidden_size", config.hidden},
               {"intermediate_size", config.intermediate},
               {"num_hidden_layers", config.layers},
               {"num_attention_heads", config.heads},
               {"num_key_value_heads", config.kv_heads},
               {"head_dim", config.head_dim},
               {"max_position_embeddings", config.max_positions},
               {"rms_norm_eps", config.rms_eps},
               {"rope_theta", config.rope_theta},
               {"torch_dtype", ""}};
  if (config.bos_id >= 0) json["bos_token_id"] = config.bos_id;
  if (!config.eos_ids.empty()) json["eos_token_id"] = token_ids(config.eos_ids);
  return json;
}

Result<std::string> config_json(const Checkpoint& base, const FolderModel& model) {
  Json json;
  if (base.gguf() != nullptr) {
    ASSIGN_OR_RETURN(json, config_from(base.config()));
  } else {
    json = Json::parse(base.text_file("config.json"), nullptr, false);
    if (!json.is_object())
      return invalid_argument(fmt::format("{}/config.json: not a JSON object", base.path()));
  }
  json["vocab_size"] = model.vocab;
  json["tie_word_embeddings"] = model.tied_head;
  const char* dtype = model.dtype == DType::kF32 ? "float32" : "bfloat16";
  if (json.contains("torch_dtype") || !json.contains("dtype")) json["torch_dtype"] = dtype;
  if (json.contains("dtype")) json["dtype"] = dtype;
  return text_of(json);
}

std::string generation_json(const ModelConfig& config) {
  Json json = Json::object();
  if (config.bos_id >= 0) json["bos_token_id"] = config.bos_id;
  if (!config.eos_ids.empty()) {
    json["eos_token_id"] = token_ids(config.eos_ids);
    json["pad_token_id"] = config.eos_ids[0];
  }
  return json.empty() ? "" : text_of(json);
}

std::string tokenizer_config_json(const GgufFile& gguf, const TextAssets& text) {
  Json json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
               {"clean_up_tokenization_spaces", false}};
  if (!text.bos_token.empty()) json["bos_token"] = text.bos_token;
  if (!text.eos_token.empty()) json["eos_token"] = text.eos_token;
  for (const auto& [token, key] : {std::pair{"pad_token", "tokenizer.ggml.padding_token_id"},
                                   std::pair{"unk_token", "tokenizer.ggml.unknown_token_id"}}) {
    auto id = gguf.integer(key);
    if (!id.ok() || *id < 0 || *id >= text.tokenizer->vocab_size()) continue;
    json[token] = text.tokenizer->token_text(static_cast<int32_t>(*id));
  }
  return text_of(json);
}

Status write(const std::string& folder, const std::string& name, const std::string& content) {
  if (content.empty()) return {};
  return write_file((std::filesystem::path(folder) / name).string(), content);
}

}  // namespace

Status write_model_files(const Checkpoint& base, const std::string& variant_path,
                         const FolderModel& model, const std::string& folder) {
  ASSIGN_OR_RETURN(const std::string config, config_json(base, model));
  RETURN_IF_ERROR(write(folder, "config.json", config));

  // The variant's own file, else the base's.
  const auto text_file = [&](const std::string& name) -> Result<std::string> {
    ASSIGN_OR_RETURN(std::string own, variant_text_file(variant_path, name));
    return own.empty() ? base.text_file(name) : own;
  };
  ASSIGN_OR_RETURN(std::string generation, text_file("generation_config.json"));
  if (generation.empty()) generation = generation_json(base.config());
  RETURN_IF_ERROR(write(folder, "generation_config.json", generation));

  ASSIGN_OR_RETURN(const auto base_assets, checkpoint_text(base));
  ASSIGN_OR_RETURN(std::string tokenizer, text_file("tokenizer.json"));
  ASSIGN_OR_RETURN(std::string settings, text_file("tokenizer_config.json"));
  if (base_assets == nullptr && tokenizer.empty()) return {};  // served by token ids only
  ASSIGN_OR_RETURN(const auto text, variant_text(variant_path, base_assets));
  if (base.gguf() != nullptr && tokenizer.empty()) {
    ASSIGN_OR_RETURN(tokenizer, gguf_tokenizer_json(*base.gguf()));
  }
  if (base.gguf() != nullptr && settings.empty())
    settings = tokenizer_config_json(*base.gguf(), *text);
  RETURN_IF_ERROR(write(folder, "tokenizer.json", tokenizer));
  RETURN_IF_ERROR(write(folder, "tokenizer_config.json", settings));
  // Wherever the template came from: in a file of its own it holds before all others.
  return write(folder, "chat_template.jinja", text->chat_template_source);
}

}  // namespace deltad
