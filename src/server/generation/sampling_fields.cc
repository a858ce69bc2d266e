#include "server/generation/sampling_fields.h"

#include <fmt/core.h>

#include <algorithm>

namespace deltad {

ApiError check_sampling(const SamplingFields& fields) {
  if (fields.has_stream_options && !fields.stream) {
    return invalid_value("stream_options", "it is allowed only when 'stream' is true.");
  }
  if (fields.max_tokens && fields.min_tokens > *fields.max_tokens) {
    return invalid_value("min_tokens",
                         fmt::format("it must not exceed '{}'.", fields.max_tokens_name));
  }
  return {};
}

ApiError check_token_ids(const SamplingFields& fields, int64_t vocab) {
  for (const auto& [id, bias] : fields.logit_bias) {
    if (id >= vocab) {
      return invalid_value("logit_bias",
                           fmt::format("token ids go from 0 to {} for this model.", vocab - 1));
    }
  }
  for (const int32_t id : fields.stop_token_ids) {
    if (id >= vocab) {
      return invalid_value("stop_token_ids",
                           fmt::format("token ids go from 0 to {} for this model.", vocab - 1));
    }
  }
  return {};
}

SamplingParams sampling_params(const SamplingFields& fields, const GenerationDefaults& defaults,
                               uint64_t seed) {
  const auto pick = [](const std::optional<double>& asked, const std::optional<double>& model,
                       double neutral) {
    return static_cast<float>(asked ? *asked : model.value_or(neutral));
  };
  SamplingParams params;
  params.temperature = pick(fields.temperature, defaults.temperature, 1);
  params.top_p = pick(fields.top_p, defaults.top_p, 1);
  params.min_p = pick(fields.min_p, defaults.min_p, 0);
  params.repetition_penalty = pick(fields.repetition_penalty, defaults.repetition_penalty, 1);
  params.top_k = fields.top_k ? *fields.top_k : std::max(0, defaults.top_k.value_or(0));
  params.frequency_penalty = static_cast<float>(fields.frequency_penalty);
  params.presence_penalty = static_cast<float>(fields.presence_penalty);
  params.seed = fields.seed ? static_cast<uint64_t>(*fields.seed) : seed;
  params.logit_bias = fields.logit_bias;
  return params;
}

}  // namespace deltad
