#include "server/openai/messages.h"

#include <fmt/core.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/openai/field_reader.h"
#include "server/openai/json_reader.h"

namespace deltad {
namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant",
                                                    "tool"};

ApiError read_role(const Json& message, const std::string& param, std::string* role) {
  const auto it = message.find("role");
  if (it == message.end()) return missing_parameter(param);
  RETURN_IF_API_ERROR(read_string(*it, param, role));
  for (const std::string_view known : kRoles) {
    if (*role == known) return {};
  }
  return invalid_value(param, "expected 'system', 'developer', 'user', 'assistant' or 'tool'.");
}

ApiError read_part(const Json& part, const std::string& param, std::string* text) {
  if (!part.is_object()) return wrong_type(param, "an object", part);
  const auto type = part.find("type");
  if (type == part.end()) return missing_parameter(param + ".type");
  std::string kind;
  RETURN_IF_API_ERROR(read_string(*type, param + ".type", &kind));
  if (kind != "text") {
    return invalid_value(param + ".type", "this server takes parts of type 'text' only.");
  }
  const auto it = part.find("text");
  if (it == part.end()) return missing_parameter(param + ".text");
  return read_string(*it, param + ".text", text);
}

// A string as it is; text parts joined. Null is the caller's matter.
ApiError read_content(const Json& content, const std::string& param, std::string* out) {
  if (content.is_string()) return read_string(content, param, out);
  if (!content.is_array()) return wrong_type(param, "a string or an array of text parts", content);
  for (size_t i = 0; i < content.size(); ++i) {
    std::string text;
    RETURN_IF_API_ERROR(read_part(content[i], fmt::format("{}[{}]", param, i), &text));
    if (i > 0) *out += '\n';
    *out += text;
  }
  return {};
}

ApiError read_tool_call(const Json& call, const std::string& param, Json* out) {
  if (!call.is_object()) return wrong_type(param, "an object", call);
  for (const auto& [key, value] : call.items()) {
    if (key != "id" && key != "type" && key != "function" && key != "index") {
      return unknown_parameter(key, param + "." + key);
    }
  }
  std::string text;
  if (const auto id = call.find("id"); id != call.end() && !id->is_null()) {
    RETURN_IF_API_ERROR(read_string(*id, param + ".id", &text));
    (*out)["id"] = text;
  }
  if (const auto type = call.find("type"); type != call.end()) {
    RETURN_IF_API_ERROR(read_string(*type, param + ".type", &text));
    if (text != "function") return invalid_value(param + ".type", "expected 'function'.");
  }
  (*out)["type"] = "function";
  const auto function = call.find("function");
  if (function == call.end()) return missing_parameter(param + ".function");
  if (!function->is_object()) return wrong_type(param + ".function", "an object", *function);
  const auto name = function->find("name");
  if (name == function->end()) return missing_parameter(param + ".function.name");
  RETURN_IF_API_ERROR(read_string(*name, param + ".function.name", &text));
  Json inner;
  inner["name"] = text;
  const std::string where = param + ".function.arguments";
  const auto arguments = function->find("arguments");
  if (arguments == function->end()) return missing_parameter(where);
  RETURN_IF_API_ERROR(read_string(*arguments, where, &text));
  Json parsed = Json::object();
  if (text.find_first_not_of(" \t\r\n") != std::string::npos) {
    RETURN_IF_API_ERROR(parse_json(text, where, &parsed));
  }
  if (!parsed.is_object()) return invalid_value(where, "expected the JSON text of an object.");
  inner["arguments"] = std::move(parsed);
  (*out)["function"] = std::move(inner);
  return {};
}

ApiError read_tool_calls(const Json& calls, const std::string& param, Json* out) {
  if (!calls.is_array()) return wrong_type(param, "an array", calls);
  *out = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    Json call;
    RETURN_IF_API_ERROR(read_tool_call(calls[i], fmt::format("{}[{}]", param, i), &call));
    out->push_back(std::move(call));
  }
  return {};
}

ApiError read_message(const Json& message, const std::string& param, Json* out) {
  if (!message.is_object()) return wrong_type(param, "an object", message);
  std::string role;
  RETURN_IF_API_ERROR(read_role(message, param + ".role", &role));
  const bool assistant = role == "assistant";
  (*out)["role"] = role;
  bool has_content = false, has_calls = false;
  for (const auto& [key, value] : message.items()) {
    const std::string name = param + "." + key;
    if (key == "role") continue;
    if (key == "content") {
      if (value.is_null()) continue;
      std::string text;
      RETURN_IF_API_ERROR(read_content(value, name, &text));
      (*out)["content"] = std::move(text);
      has_content = true;
    } else if (key == "tool_calls" && assistant) {
      if (value.is_null()) continue;
      Json calls;
      RETURN_IF_API_ERROR(read_tool_calls(value, name, &calls));
      if (calls.empty()) continue;
      (*out)["tool_calls"] = std::move(calls);
      has_calls = true;
    } else if (key == "name" || (key == "tool_call_id" && role == "tool") ||
               (assistant && (key == "reasoning_content" || key == "reasoning"))) {
      if (value.is_null()) continue;
      std::string text;
      RETURN_IF_API_ERROR(read_string(value, name, &text));
      (*out)[key] = std::move(text);
    } else if (assistant && (key == "refusal" || key == "audio" || key == "function_call" ||
                             key == "annotations")) {
      // What answers carry and clients send back. Nothing to do for null (or an empty list).
      if (!value.is_null() && !(value.is_array() && value.empty())) {
        return unsupported_parameter(name, "This server does not take it in messages.");
      }
    } else {
      return unknown_parameter(key, name);
    }
  }
  if (!has_content) {
    if (!assistant) {
      if (!message.contains("content")) return missing_parameter(param + ".content");
      return wrong_type(param + ".content", "a string or an array of text parts", Json());
    }
    (*out)["content"] = has_calls ? Json() : Json("");
  }
  return {};
}

}  // namespace

ApiError read_messages(const Json& value, const std::string& param, Json* out) {
  if (!value.is_array()) return wrong_type(param, "an array", value);
  if (value.empty()) return invalid_value(param, "expected at least one message.");
  *out = Json::array();
  for (size_t i = 0; i < value.size(); ++i) {
    Json message;
    RETURN_IF_API_ERROR(read_message(value[i], fmt::format("{}[{}]", param, i), &message));
    out->push_back(std::move(message));
  }
  return {};
}

}  // namespace deltad
