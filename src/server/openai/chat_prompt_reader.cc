#include "server/openai/chat_prompt_reader.h"

#include <fmt/core.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "server/openai/messages.h"

namespace deltad {
namespace {

// What the server gives the template itself.
constexpr std::array<std::string_view, 6> kReserved = {
    "messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"};

ApiError read_kwargs(const Json& value, const std::string& param, ChatPromptFields* out) {
  if (!value.is_object()) return wrong_type(param, "an object", value);
  for (const std::string_view name : kReserved) {
    if (value.contains(std::string(name))) {
      return invalid_value(param, fmt::format("'{}' cannot be set there.", name));
    }
  }
  out->template_kwargs = value;
  return {};
}

const FieldTable<ChatPromptFields> kTable = {
    {"messages", [](const Json& v, const std::string& p,
                    ChatPromptFields* f) { return read_messages(v, p, &f->messages); }},
    {"add_generation_prompt",
     [](const Json& v, const std::string& p, ChatPromptFields* f) -> ApiError {
       bool wanted = false;
       RETURN_IF_API_ERROR(read_bool(v, p, &wanted));
       f->add_generation_prompt = wanted;
       return {};
     }},
    {"continue_final_message",
     [](const Json& v, const std::string& p, ChatPromptFields* f) {
       return read_bool(v, p, &f->continue_final_message);
     }},
    {"chat_template_kwargs", read_kwargs},
};

}  // namespace

const FieldTable<ChatPromptFields>& chat_prompt_field_table() { return kTable; }

}  // namespace deltad
