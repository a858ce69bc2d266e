// GenerationPlan: a chat or completion request brought to the form that the engine takes: model
// resolved, prompts tokenized, lengths checked. Made without any engine request, on whatever thread
// has the time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/access/caller.h"
#include "server/generation/requests.h"
#include "server/serving.h"

namespace deltad {

struct PromptTokens {
  std::vector<int32_t> ids;
  std::string text;                     // for echo
  size_t text_begin = 0, text_end = 0;  // its tokens; those around it the tokenizer added
  int32_t max_tokens = 0;
};

struct GenerationPlan {
  bool chat = false;
  ModelHandle model;
  SamplingFields sampling;
  std::vector<PromptTokens> prompts;
  int32_t top_logprobs = -1;  // −1: no log-probabilities
  bool echo = false;
  TimePoint deadline = TimePoint::max();  // that the client gave
};

// The model that is called so ("": the base), if the caller may use it. Names others only to who
// may use them.
ApiError resolve_model(const Serving& serving, const Caller& caller, const std::string& name,
                       ModelHandle* model);

ApiError plan_chat(const Serving& serving, const Caller& caller, ChatRequest request,
                   GenerationPlan* plan);
ApiError plan_completion(const Serving& serving, const Caller& caller, CompletionRequest request,
                         GenerationPlan* plan);

}  // namespace deltad
