// What Tokenize and Detokenize do, whatever protocol they came by. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/access/caller.h"
#include "server/generation/chat_prompt.h"
#include "server/serving.h"

namespace deltad {

struct TokenizeRequest {
  std::string model;                  // "": the base
  std::optional<std::string> prompt;  // this, or a chat with messages
  ChatPromptFields chat;
  std::optional<bool> add_special_tokens;  // default: not for a chat
  bool return_token_strs = false;
};

struct TokenizeAnswer {
  std::vector<int32_t> tokens;
  std::vector<std::string> token_strs;  // if asked for
};

ApiError tokenize(const Serving& serving, const Caller& caller, const TokenizeRequest& request,
                  TokenizeAnswer* answer);
ApiError detokenize(const Serving& serving, const Caller& caller, const std::string& model,
                    const std::vector<int32_t>& tokens, std::string* text);

}  // namespace deltad
