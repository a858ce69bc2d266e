#include "server/openai/tokenize.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "server/generation/requests.h"
#include "server/generation/tokenization.h"
#include "server/openai/chat_prompt_reader.h"
#include "server/openai/json_reader.h"
#include "server/openai/unsupported_fields.h"

namespace deltad {
namespace {

const FieldTable<TokenizeRequest> kTokenizeTable = {
    {"model", [](const Json& v, const std::string& p,
                 TokenizeRequest* f) { return read_string(v, p, &f->model); }},
    {"prompt", [](const Json& v, const std::string& p,
                  TokenizeRequest* f) { return read_string(v, p, &f->prompt.emplace()); }},
    {"add_special_tokens",
     [](const Json& v, const std::string& p, TokenizeRequest* f) {
       return read_bool(v, p, &f->add_special_tokens.emplace());
     }},
    {"return_token_strs",
     [](const Json& v, const std::string& p, TokenizeRequest* f) {
       return read_bool(v, p, &f->return_token_strs);
     }},
};

struct DetokenizeFields {
  std::string model;
  std::optional<std::vector<int32_t>> tokens;
};

const FieldTable<DetokenizeFields> kDetokenizeTable = {
    {"model", [](const Json& v, const std::string& p,
                 DetokenizeFields* f) { return read_string(v, p, &f->model); }},
    {"tokens",
     [](const Json& v, const std::string& p, DetokenizeFields* f) {
       return read_token_ids(v, p, kMostPromptTokens, &f->tokens.emplace());
     }},
};

}  // namespace

ApiError tokenize(const Serving& serving, const Caller& caller, std::string_view body, Json* out) {
  Json json;
  RETURN_IF_API_ERROR(parse_json(body, "", &json));
  if (!json.is_object()) return invalid_value("", "The request's body must be a JSON object.");
  TokenizeRequest request;
  for (const auto& [name, value] : json.items()) {
    FieldFound found = FieldFound::kNo;
    RETURN_IF_API_ERROR(read_field(kTokenizeTable, name, value, &request, &found));
    RETURN_IF_API_ERROR(read_field(chat_prompt_field_table(), name, value, &request.chat, &found));
    RETURN_IF_API_ERROR(check_unsupported_field(Endpoint::kChat, name, value, &found));
    if (found == FieldFound::kNo) return unknown_parameter(name, name);
  }
  TokenizeAnswer answer;
  RETURN_IF_API_ERROR(tokenize(serving, caller, request, &answer));
  (*out)["count"] = answer.tokens.size();
  (*out)["max_model_len"] = serving.engine->max_context();
  (*out)["tokens"] = answer.tokens;
  (*out)["token_strs"] = request.return_token_strs ? Json(answer.token_strs) : Json();
  return {};
}

ApiError detokenize(const Serving& serving, const Caller& caller, std::string_view body,
                    Json* out) {
  Json json;
  RETURN_IF_API_ERROR(parse_json(body, "", &json));
  if (!json.is_object()) return invalid_value("", "The request's body must be a JSON object.");
  DetokenizeFields fields;
  for (const auto& [name, value] : json.items()) {
    FieldFound found = FieldFound::kNo;
    RETURN_IF_API_ERROR(read_field(kDetokenizeTable, name, value, &fields, &found));
    if (found == FieldFound::kNo) return unknown_parameter(name, name);
  }
  if (!fields.tokens) return missing_parameter("tokens");
  std::string text;
  RETURN_IF_API_ERROR(detokenize(serving, caller, fields.model, *fields.tokens, &text));
  (*out)["prompt"] = text;
  return {};
}

}  // namespace deltad
