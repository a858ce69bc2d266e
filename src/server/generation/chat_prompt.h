// ChatPrompt: from a chat's messages to the prompt's text, whatever protocol they came by. Any
// thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "server/openai/errors.h"
#include "text/text_assets.h"

namespace deltad {

struct ChatPromptFields {
  Json messages;                              // as read_messages gives them
  std::optional<bool> add_generation_prompt;  // default: not continue_final_message
  bool continue_final_message = false;        // the last message is the answer's beginning
  Json template_kwargs = Json::object();      // chat_template_kwargs
};

// What can be said only once all fields are read.
ApiError check_chat_prompt(const ChatPromptFields& fields);

// A template's error is a 400 that says the line. now: unix seconds.
ApiError render_chat(const ChatPromptFields& fields, const TextAssets& text, int64_t now,
                     std::string* prompt);

}  // namespace deltad
