#include "text/user_message.h"

#include <ctime>
#include <nlohmann/json.hpp>

namespace deltad {

namespace {

using Json = nlohmann::ordered_json;

Json message_json(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

Result<std::vector<int32_t>> chat_ids(const TextAssets& text, const Json& messages,
                                      bool to_be_answered) {
  ASSIGN_OR_RETURN(const std::string rendered,
                   text.chat_template->render({{"messages", messages},
                                               {"add_generation_prompt", to_be_answered},
                                               {"bos_token", text.bos_token},
                                               {"eos_token", text.eos_token}},
                                              static_cast<int64_t>(std::time(nullptr))));
  return text.tokenizer->encode(rendered, {});
}

}  // namespace

Result<std::vector<int32_t>> user_message_ids(const TextAssets& text, const std::string& message) {
  return chat_ids(text, Json::array({message_json("user", message)}), true);
}

Result<std::vector<int32_t>> answered_message_ids(const TextAssets& text,
                                                  const std::string& message,
                                                  const std::string& answer) {
  return chat_ids(
      text, Json::array({message_json("user", message), message_json("assistant", answer)}), false);
}

}  // namespace deltad
