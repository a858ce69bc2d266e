// CompletionRequest: the body of POST /v1/completions, parsed and checked. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/openai/sampling_fields.h"

namespace deltad {

constexpr size_t kMostPrompts = 1024;
constexpr size_t kMostPromptTokens = 4u << 20;  // of one prompt given as ids; the context is less

using CompletionPrompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  SamplingFields sampling;
  std::vector<CompletionPrompt> prompts;
  bool echo = false;
  std::optional<int32_t> logprobs;  // how many top entries beside the token itself
};

ApiError parse_completion_request(std::string_view body, CompletionRequest* out);

}  // namespace deltad
