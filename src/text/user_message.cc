#include "text/user_message.h"

#include <ctime>
#include <nlohmann/json.hpp>

namespace deltad {

Result<std::vector<int32_t>> user_message_ids(const TextAssets& text, const std::string& message) {
  const nlohmann::ordered_json asked = {{"role", "user"}, {"content", message}};
  ASSIGN_OR_RETURN(const std::string rendered,
                   text.chat_template->render({{"messages", nlohmann::ordered_json::array({asked})},
                                               {"add_generation_prompt", true},
                                               {"bos_token", text.bos_token},
                                               {"eos_token", text.eos_token}},
                                              static_cast<int64_t>(std::time(nullptr))));
  return text.tokenizer->encode(rendered, {});
}

}  // namespace deltad
