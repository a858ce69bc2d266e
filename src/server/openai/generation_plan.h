// GenerationPlan: a chat or completion request brought to the form that the engine takes: model
// resolved, prompts tokenized, lengths checked. Made without any engine request, on whatever thread
// has the time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "router/router.h"
#include "server/access/caller.h"
#include "server/openai/chat_request.h"
#include "server/openai/completion_request.h"
#include "server/pool/pool_service.h"

namespace deltad {

// What becomes known when the model is loaded. router, engine and pool outlive every request.
struct Serving {
  Router* router = nullptr;
  Engine* engine = nullptr;
  PoolService* pool = nullptr;  // null: no adapter pool
  std::string base_path;        // shown as `root`
  int64_t created = 0;          // unix seconds
  size_t base_bytes = 0;        // the base's weights, resident
  double request_seconds = 0;   // that a request may take; 0: no bound
};

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
};

// The model that is called so ("": the base), if the caller may use it. Names others only to who
// may use them.
ApiError resolve_model(const Serving& serving, const Caller& caller, const std::string& name,
                       ModelHandle* model);

ApiError plan_chat(const Serving& serving, const Caller& caller, std::string_view body,
                   GenerationPlan* plan);
ApiError plan_completion(const Serving& serving, const Caller& caller, std::string_view body,
                         GenerationPlan* plan);

int64_t unix_now();

}  // namespace deltad
