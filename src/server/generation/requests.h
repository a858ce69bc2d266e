// What clients ask of the two ways to generate, as structs that every protocol fills and that one
// planner takes (generation_plan.h). Plain data, its types and ranges already checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/generation/chat_prompt.h"
#include "server/generation/sampling_fields.h"

namespace deltad {

constexpr size_t kMostPrompts = 1024;
constexpr size_t kMostPromptTokens = 4u << 20;  // of one prompt given as ids; the context is less

struct ChatRequest {
  SamplingFields sampling;
  ChatPromptFields prompt;
  bool logprobs = false;
  int32_t top_logprobs = 0;
};

using CompletionPrompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  SamplingFields sampling;
  std::vector<CompletionPrompt> prompts;
  bool echo = false;
  std::optional<int32_t> logprobs;  // how many top entries beside the token itself
};

}  // namespace deltad
