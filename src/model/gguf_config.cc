// ModelConfig from the metadata of a GGUF file of architecture "llama".
#include <fmt/core.h>

#include <cmath>
#include <string_view>

#include "io/gguf.h"
#include "io/quote.h"
#include "model/config.h"

namespace deltad {
namespace {

Status wrong(const GgufFile& file, std::string_view key, const std::string& found,
             std::string_view expected) {
  return invalid_argument(
      fmt::format("{}: metadata '{}' is {}; expected {}", file.path(), key, found, expected));
}

Status read_size(const GgufFile& file, const char* key, int64_t most, int64_t* out) {
  ASSIGN_OR_RETURN(const int64_t value, file.integer(key));
  if (value < 1 || value > most)
    return wrong(file, key, std::to_string(value), fmt::format("an integer from 1 to {}", most));
  *out = value;
  return {};
}

Status read_size_if_given(const GgufFile& file, const char* key, int64_t most, int64_t* out) {
  return file.has(key) ? read_size(file, key, most, out) : Status();
}

Status read_positive_if_given(const GgufFile& file, const char* key, double* out) {
  if (!file.has(key)) return {};
  ASSIGN_OR_RETURN(const double value, file.number(key));
  if (!std::isfinite(value) || value <= 0)
    return wrong(file, key, fmt::format("{}", value), "a number above 0");
  *out = value;
  return {};
}

Status check_architecture(const GgufFile& file) {
  ASSIGN_OR_RETURN(const std::string architecture, file.string("general.architecture"));
  if (architecture != "llama")
    return unimplemented(fmt::format("{}: architecture {} is not supported; supported is llama",
                                     file.path(), quoted_name(architecture)));
  int64_t shards = 1, experts = 0;
  if (file.has("split.count")) {
    ASSIGN_OR_RETURN(shards, file.integer("split.count"));
  }
  if (shards > 1)
    return unimplemented(fmt::format("{} is one of {} parts of a model; expected a single file",
                                     file.path(), shards));
  if (file.has("llama.expert_count")) {
    ASSIGN_OR_RETURN(experts, file.integer("llama.expert_count"));
  }
  if (experts != 0)
    return unimplemented(
        fmt::format("{}: a mixture of {} experts is not supported", file.path(), experts));
  return {};
}

// Rope by plain frequencies over the whole head, as everything else would change the arithmetic.
Status check_rope(const GgufFile& file, const ModelConfig& config) {
  if (file.has("llama.rope.scaling.type")) {
    ASSIGN_OR_RETURN(const std::string type, file.string("llama.rope.scaling.type"));
    if (type != "none")
      return unimplemented(fmt::format("{}: rope type {} is not supported; supported is none",
                                       file.path(), quoted_name(type)));
  } else {
    for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
      double factor = 1;
      RETURN_IF_ERROR(read_positive_if_given(file, key, &factor));
      if (factor != 1)
        return unimplemented(fmt::format("{}: rope scaling ('{}' is {}) is not supported",
                                         file.path(), key, factor));
    }
  }
  if (file.tensors().count("rope_freqs.weight") != 0)
    return unimplemented(
        fmt::format("{}: rope with frequency factors (tensor rope_freqs.weight; "
                    "rope type 'llama3') is not supported",
                    file.path()));
  int64_t rotated = config.head_dim;
  RETURN_IF_ERROR(read_size_if_given(file, "llama.rope.dimension_count", kMaxWidth, &rotated));
  if (rotated != config.head_dim)
    return unimplemented(fmt::format("{}: rope over {} of the {} values of a head is not supported",
                                     file.path(), rotated, config.head_dim));
  return {};
}

Status read_heads(const GgufFile& file, ModelConfig* config) {
  RETURN_IF_ERROR(read_size(file, "llama.attention.head_count", kMaxWidth, &config->heads));
  config->kv_heads = config->heads;
  RETURN_IF_ERROR(
      read_size_if_given(file, "llama.attention.head_count_kv", kMaxWidth, &config->kv_heads));
  int64_t value_length = 0;
  RETURN_IF_ERROR(
      read_size_if_given(file, "llama.attention.key_length", kMaxWidth, &config->head_dim));
  if (config->head_dim == 0) {
    if (config->hidden % config->heads != 0)
      return invalid_argument(fmt::format(
          "{}: llama.embedding_length {} is no multiple of llama.attention.head_count {}, and "
          "llama.attention.key_length is not given",
          file.path(), config->hidden, config->heads));
    config->head_dim = config->hidden / config->heads;
  }
  value_length = config->head_dim;
  RETURN_IF_ERROR(
      read_size_if_given(file, "llama.attention.value_length", kMaxWidth, &value_length));
  if (value_length != config->head_dim)
    return unimplemented(fmt::format("{}: values of {} beside keys of {} are not supported",
                                     file.path(), value_length, config->head_dim));
  return {};
}

Status read_token_ids(const GgufFile& file, ModelConfig* config) {
  const auto read = [&](const char* key, int32_t* out) -> Status {
    if (!file.has(key)) return {};
    ASSIGN_OR_RETURN(const int64_t id, file.integer(key));
    if (id < 0 || id > INT32_MAX) return wrong(file, key, std::to_string(id), "a token id");
    *out = static_cast<int32_t>(id);
    return {};
  };
  RETURN_IF_ERROR(read("tokenizer.ggml.bos_token_id", &config->bos_id));
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    int32_t id = -1;
    RETURN_IF_ERROR(read(key, &id));
    if (id >= 0 && (config->eos_ids.empty() || config->eos_ids.front() != id))
      config->eos_ids.push_back(id);
  }
  return {};
}

}  // namespace

Result<ModelConfig> read_gguf_config(const GgufFile& file) {
  RETURN_IF_ERROR(check_architecture(file));
  ModelConfig config;
  RETURN_IF_ERROR(read_size(file, "llama.embedding_length", kMaxWidth, &config.hidden));
  RETURN_IF_ERROR(read_size(file, "llama.block_count", kMaxLayers, &config.layers));
  RETURN_IF_ERROR(read_size(file, "llama.feed_forward_length", kMaxWidth, &config.intermediate));
  RETURN_IF_ERROR(read_heads(file, &config));
  config.max_positions = 2048;
  RETURN_IF_ERROR(
      read_size_if_given(file, "llama.context_length", INT32_MAX, &config.max_positions));
  RETURN_IF_ERROR(
      read_positive_if_given(file, "llama.attention.layer_norm_rms_epsilon", &config.rms_eps));
  RETURN_IF_ERROR(read_positive_if_given(file, "llama.rope.freq_base", &config.rope_theta));
  const Status sizes = check_config(config);
  if (!sizes.ok()) return sizes.in(file.path());
  RETURN_IF_ERROR(check_rope(file, config));

  // The embedding says how many tokens there are: it may have more rows than the tokenizer.
  const auto embedding = file.tensors().find("token_embd.weight");
  if (embedding == file.tensors().end())
    return invalid_argument(fmt::format("{} lacks the tensor token_embd.weight", file.path()));
  config.vocab = embedding->second.rows();
  if (config.vocab > kMaxVocab)
    return invalid_argument(
        fmt::format("{}: tensor token_embd.weight has {} rows; at most {} are "
                    "supported",
                    file.path(), config.vocab, kMaxVocab));
  config.tied_head = file.tensors().count("output.weight") == 0;
  RETURN_IF_ERROR(read_token_ids(file, &config));
  const size_t slash = file.path().rfind('/');
  config.name = slash == std::string::npos ? file.path() : file.path().substr(slash + 1);
  return config;
}

}  // namespace deltad
