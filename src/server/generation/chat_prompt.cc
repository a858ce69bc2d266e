#include "server/generation/chat_prompt.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace deltad {
namespace {

constexpr std::string_view kSpace = " \t\r\n\v\f";

// Templates of models that know the role say its name; the others get "system", which it replaced.
void rename_developer(const TextAssets& text, Json* messages) {
  if (text.chat_template_source.find("developer") != std::string::npos) return;
  for (Json& message : *messages) {
    if (message["role"] == "developer") message["role"] = "system";
  }
}

// Templates that know nothing of tool calls join the content to other text, which null is not.
bool replace_null_content(Json* messages) {
  bool any = false;
  for (Json& message : *messages) {
    if (!message["content"].is_null()) continue;
    message["content"] = "";
    any = true;
  }
  return any;
}

// Cuts what the template put after the last message's content.
ApiError cut_after_final(const Json& final_message, std::string* prompt) {
  const auto& content = final_message["content"].get_ref<const std::string&>();
  const size_t first = content.find_first_not_of(kSpace);
  if (first == std::string::npos) {
    return invalid_value("continue_final_message", "the last message is empty.");
  }
  const size_t end = content.find_last_not_of(kSpace) + 1;
  const std::string core = content.substr(first, end - first);
  const std::string with_tail = content.substr(first);
  const size_t at = prompt->rfind(core);
  if (at == std::string::npos) {
    return invalid_value("continue_final_message",
                         "the model's chat template does not show the last message as it is.");
  }
  // Templates that trim the content lose the white space at its end.
  const bool kept = prompt->compare(at, with_tail.size(), with_tail) == 0;
  prompt->resize(at + (kept ? with_tail.size() : core.size()));
  return {};
}

}  // namespace

ApiError check_chat_prompt(const ChatPromptFields& fields) {
  if (fields.messages.is_null()) return missing_parameter("messages");
  if (!fields.continue_final_message) return {};
  if (fields.add_generation_prompt.value_or(false)) {
    return invalid_value("continue_final_message",
                         "it cannot be true together with 'add_generation_prompt'.");
  }
  if (!fields.messages.back()["content"].is_string()) {
    return invalid_value("continue_final_message", "the last message has no text.");
  }
  return {};
}

ApiError render_chat(const ChatPromptFields& fields, const TextAssets& text, int64_t now,
                     std::string* prompt) {
  if (!text.chat_template) {
    return invalid_value("messages",
                         "this model has no chat template; use the completions endpoint.");
  }
  Json variables = fields.template_kwargs;
  variables["messages"] = fields.messages;
  rename_developer(text, &variables["messages"]);
  variables["tools"] = nullptr;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] =
      fields.add_generation_prompt.value_or(!fields.continue_final_message);
  variables["bos_token"] = text.bos_token;
  variables["eos_token"] = text.eos_token;
  Result<std::string> rendered = text.chat_template->render(variables, now);
  if (!rendered.ok() && replace_null_content(&variables["messages"])) {
    rendered = text.chat_template->render(variables, now);
  }
  if (!rendered.ok()) {
    if (rendered.status().code() != Code::kInvalidArgument) return api_error(rendered.status());
    return invalid_value("messages",
                         fmt::format("the chat template failed: {}", rendered.status().message()));
  }
  *prompt = std::move(*rendered);
  if (fields.continue_final_message) return cut_after_final(fields.messages.back(), prompt);
  return {};
}

}  // namespace deltad
