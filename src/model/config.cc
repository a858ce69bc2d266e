// Reading config.json and generation_config.json of a Hugging Face folder. Pure functions of their
// text.
#include "model/config.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

namespace deltad {
namespace {

using Json = nlohmann::json;

Result<Json> parse_object(const std::string& text, const char* file) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return invalid_argument(fmt::format("{} is no valid JSON", file));
  if (!json.is_object())
    return invalid_argument(
        fmt::format("{} is a JSON {}; expected an object", file, json.type_name()));
  return json;
}

// A value for a message, cut where it is long.
std::string shown(const Json& value) {
  if (value.is_structured()) return fmt::format("of type {}", value.type_name());
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 100) text = text.substr(0, 97) + "...";
  return text;
}

// The keys of one object, with errors that name the file and the key.
class Keys {
 public:
  Keys(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  // Null counts as absent, as in the library that writes these files.
  const Json* find(const char* key) const {
    const auto at = object_.find(key);
    return at == object_.end() || at->is_null() ? nullptr : &*at;
  }

  Status integer(const char* key, int64_t low, int64_t high, int64_t* out) const {
    const Json* value = find(key);
    if (value == nullptr)
      return invalid_argument(fmt::format("{} lacks '{}'; expected an integer", where_, key));
    return integer_if_given(key, low, high, out);
  }
  Status integer_if_given(const char* key, int64_t low, int64_t high, int64_t* out) const {
    const Json* value = find(key);
    if (value == nullptr) return {};
    if (value->is_number_integer() &&
        (!value->is_number_unsigned() ||
         value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX))) {
      const int64_t number = value->get<int64_t>();
      if (number >= low && number <= high) {
        *out = number;
        return {};
      }
    }
    return wrong(key, *value, fmt::format("an integer from {} to {}", low, high));
  }
  Status positive_if_given(const char* key, double* out) const {
    const Json* value = find(key);
    if (value == nullptr) return {};
    if (value->is_number()) {
      const double number = value->get<double>();
      if (std::isfinite(number) && number > 0) {
        *out = number;
        return {};
      }
    }
    return wrong(key, *value, "a number above 0");
  }
  Status boolean_if_given(const char* key, bool* out) const {
    const Json* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_boolean()) return wrong(key, *value, "true or false");
    *out = value->get<bool>();
    return {};
  }
  Status string_if_given(const char* key, std::string* out) const {
    const Json* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_string()) return wrong(key, *value, "a string");
    *out = value->get<std::string>();
    return {};
  }
  // A token id or a list of them.
  Status ids_if_given(const char* key, std::vector<int32_t>* out) const {
    const Json* value = find(key);
    if (value == nullptr) return {};
    std::vector<int32_t> ids;
    const Json list = value->is_array() ? *value : Json::array({*value});
    for (const Json& id : list) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX)
        return wrong(key, id, "a token id or a list of token ids");
      ids.push_back(id.get<int32_t>());
    }
    *out = std::move(ids);
    return {};
  }

  Status wrong(const char* key, const Json& value, std::string_view expected) const {
    return invalid_argument(
        fmt::format("{}: '{}' is {}; expected {}", where_, key, shown(value), expected));
  }
  const std::string& where() const { return where_; }

 private:
  const Json& object_;
  const std::string where_;
};

Status check_architecture(const Keys& keys, std::string* architecture) {
  if (const Json* list = keys.find("architectures")) {
    if (!list->is_array() || list->empty() || !list->front().is_string())
      return keys.wrong("architectures", *list, "a list of names");
    *architecture = list->front().get<std::string>();
  } else {
    std::string type;
    RETURN_IF_ERROR(keys.string_if_given("model_type", &type));
    if (type.empty())
      return invalid_argument(
          fmt::format("{} has neither 'architectures' nor 'model_type'", keys.where()));
    *architecture = type == "llama" ? "LlamaForCausalLM" : "model_type " + type;
  }
  if (*architecture != "LlamaForCausalLM")
    return unimplemented(
        fmt::format("{}: architecture '{}' is not supported; supported is "
                    "LlamaForCausalLM",
                    keys.where(), *architecture));
  return {};
}

// What would change the arithmetic and is not built must be refused, never ignored.
Status check_features(const Keys& keys) {
  std::string activation = "silu";
  RETURN_IF_ERROR(keys.string_if_given("hidden_act", &activation));
  if (activation != "silu" && activation != "swish")
    return unimplemented(fmt::format("{}: hidden_act '{}' is not supported; supported is silu",
                                     keys.where(), activation));
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    bool biased = false;
    RETURN_IF_ERROR(keys.boolean_if_given(key, &biased));
    if (biased)
      return unimplemented(fmt::format("{}: {} true is not supported", keys.where(), key));
  }
  if (keys.find("quantization_config") != nullptr)
    return unimplemented(
        fmt::format("{}: quantization_config is not supported; expected weights "
                    "in F32, F16 or BF16",
                    keys.where()));
  return {};
}

// Older style: "rope_theta" and "rope_scaling" {"rope_type" or "type", …}; newer: "rope_parameters"
// {"rope_theta", "rope_type"}.
Status read_rope(const Keys& keys, double* theta) {
  RETURN_IF_ERROR(keys.positive_if_given("rope_theta", theta));
  double rotated = 1.0;
  RETURN_IF_ERROR(keys.positive_if_given("partial_rotary_factor", &rotated));
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* object = keys.find(key);
    if (object == nullptr) continue;
    if (!object->is_object()) return keys.wrong(key, *object, "an object");
    const Keys rope(*object, fmt::format("{}: {}", keys.where(), key));
    std::string type = "default";
    RETURN_IF_ERROR(rope.string_if_given("type", &type));
    RETURN_IF_ERROR(rope.string_if_given("rope_type", &type));
    if (type != "default")
      return unimplemented(fmt::format("{}: rope type '{}' is not supported; supported is default",
                                       rope.where(), type));
    for (const auto& [name, value] : object->items())
      if (value.is_object())
        return unimplemented(
            fmt::format("{}: a setting for each kind of layer ('{}') is not "
                        "supported",
                        rope.where(), name));
    RETURN_IF_ERROR(rope.positive_if_given("rope_theta", theta));
    RETURN_IF_ERROR(rope.positive_if_given("partial_rotary_factor", &rotated));
  }
  if (rotated != 1.0)
    return unimplemented(fmt::format("{}: partial_rotary_factor {} is not supported; expected 1",
                                     keys.where(), rotated));
  return {};
}

Status read_sizes(const Keys& keys, ModelConfig* config) {
  RETURN_IF_ERROR(keys.integer("hidden_size", 1, kMaxWidth, &config->hidden));
  RETURN_IF_ERROR(keys.integer("num_hidden_layers", 1, kMaxLayers, &config->layers));
  RETURN_IF_ERROR(keys.integer("num_attention_heads", 1, kMaxWidth, &config->heads));
  config->kv_heads = config->heads;
  RETURN_IF_ERROR(keys.integer_if_given("num_key_value_heads", 1, kMaxWidth, &config->kv_heads));
  if (keys.find("head_dim") == nullptr) {
    if (config->hidden % config->heads != 0)
      return invalid_argument(
          fmt::format("{}: hidden_size {} is no multiple of num_attention_heads {}, and head_dim "
                      "is not given",
                      keys.where(), config->hidden, config->heads));
    config->head_dim = config->hidden / config->heads;
  }
  RETURN_IF_ERROR(keys.integer_if_given("head_dim", 1, kMaxWidth, &config->head_dim));
  RETURN_IF_ERROR(keys.integer("intermediate_size", 1, kMaxWidth, &config->intermediate));
  RETURN_IF_ERROR(keys.integer("vocab_size", 1, kMaxVocab, &config->vocab));
  config->max_positions = 2048;  // LlamaConfig's default, which is left out of the file
  RETURN_IF_ERROR(
      keys.integer_if_given("max_position_embeddings", 1, INT32_MAX, &config->max_positions));
  config->rms_eps = 1e-6;  // likewise
  return keys.positive_if_given("rms_norm_eps", &config->rms_eps);
}

// generation_config.json says more about where generation ends; what it lacks is config.json's.
Status read_token_ids(const Keys& keys, ModelConfig* config) {
  RETURN_IF_ERROR(keys.ids_if_given("eos_token_id", &config->eos_ids));
  std::vector<int32_t> bos;
  RETURN_IF_ERROR(keys.ids_if_given("bos_token_id", &bos));
  if (!bos.empty()) config->bos_id = bos.front();
  return {};
}

}  // namespace

Status check_config(const ModelConfig& config) {
  if (config.heads % config.kv_heads != 0)
    return invalid_argument(fmt::format("{} key and value heads do not divide the {} query heads",
                                        config.kv_heads, config.heads));
  if (config.head_dim % 2 != 0)
    return invalid_argument(
        fmt::format("the head size is {}; expected an even number", config.head_dim));
  if (config.heads * config.head_dim > kMaxWidth)
    return invalid_argument(fmt::format("{} heads of {} are wider than the {} that are supported",
                                        config.heads, config.head_dim, kMaxWidth));
  return {};
}

Result<ModelConfig> parse_hf_config(const std::string& config_json,
                                    const std::string& generation_config_json) {
  ASSIGN_OR_RETURN(const Json json, parse_object(config_json, "config.json"));
  const Keys keys(json, "config.json");
  ModelConfig config;
  RETURN_IF_ERROR(check_architecture(keys, &config.architecture));
  RETURN_IF_ERROR(check_features(keys));
  RETURN_IF_ERROR(read_sizes(keys, &config));
  RETURN_IF_ERROR(read_rope(keys, &config.rope_theta));
  RETURN_IF_ERROR(keys.boolean_if_given("tie_word_embeddings", &config.tied_head));
  const Status sizes = check_config(config);
  if (!sizes.ok()) return sizes.in(keys.where());
  RETURN_IF_ERROR(read_token_ids(keys, &config));
  if (!generation_config_json.empty()) {
    ASSIGN_OR_RETURN(const Json generation,
                     parse_object(generation_config_json, "generation_config.json"));
    RETURN_IF_ERROR(read_token_ids(Keys(generation, "generation_config.json"), &config));
  }
  return config;
}

}  // namespace deltad
