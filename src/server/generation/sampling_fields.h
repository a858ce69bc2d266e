// SamplingFields: what chat and text completions have in common, as the client said it, checked.
// Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "server/openai/errors.h"
#include "text/text_assets.h"

namespace deltad {

constexpr int32_t kMostChoices = 128;        // n
constexpr int32_t kMostTopLogprobs = 20;     // top_logprobs, logprobs
constexpr size_t kMostStopStrings = 16;      // stop
constexpr size_t kLongestStopString = 1024;  // bytes
constexpr size_t kMostStopTokens = 256;      // stop_token_ids
constexpr size_t kMostBiases = 10'000;       // logit_bias

struct SamplingFields {
  std::string model;  // "": the base
  int32_t n = 1;
  bool stream = false;
  bool has_stream_options = false, include_usage = false;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
  double frequency_penalty = 0, presence_penalty = 0;
  std::optional<int64_t> seed;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  std::optional<int32_t> max_tokens;
  std::string max_tokens_name = "max_tokens";  // the parameter that gave it
  int32_t min_tokens = 0;
  bool ignore_eos = false;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  std::optional<bool> add_special_tokens;  // true for text prompts, false for chat
  bool return_token_ids = false;
  int32_t priority = 0;
};

// What can be said only once all fields are read.
ApiError check_sampling(const SamplingFields& fields);

// Token ids that lie beyond the vocabulary: 400.
ApiError check_token_ids(const SamplingFields& fields, int64_t vocab);

// For the engine; what the client left open is the model's default. seed: used if it gave none.
SamplingParams sampling_params(const SamplingFields& fields, const GenerationDefaults& defaults,
                               uint64_t seed);

}  // namespace deltad
