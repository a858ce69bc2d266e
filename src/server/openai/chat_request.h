// ChatRequest: the body of POST /v1/chat/completions, parsed and checked. Any thread.
#pragma once

#include <string_view>

#include "server/openai/chat_prompt.h"
#include "server/openai/sampling_fields.h"

namespace deltad {

struct ChatRequest {
  SamplingFields sampling;
  ChatPromptFields prompt;
  bool logprobs = false;
  int32_t top_logprobs = 0;
};

ApiError parse_chat_request(std::string_view body, ChatRequest* out);

}  // namespace deltad
