#include "server/openai/tokenize.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "server/generation/generation_plan.h"
#include "server/generation/requests.h"
#include "server/openai/chat_prompt_reader.h"
#include "server/openai/json_reader.h"
#include "server/openai/unsupported_fields.h"

namespace deltad {
namespace {

struct TokenizeFields {
  std::string model;
  std::optional<std::string> prompt;
  std::optional<bool> add_special_tokens;
  bool return_token_strs = false;
};

const FieldTable<TokenizeFields> kTokenizeTable = {
    {"model", [](const Json& v, const std::string& p,
                 TokenizeFields* f) { return read_string(v, p, &f->model); }},
    {"prompt", [](const Json& v, const std::string& p,
                  TokenizeFields* f) { return read_string(v, p, &f->prompt.emplace()); }},
    {"add_special_tokens",
     [](const Json& v, const std::string& p, TokenizeFields* f) {
       return read_bool(v, p, &f->add_special_tokens.emplace());
     }},
    {"return_token_strs", [](const Json& v, const std::string& p,
                             TokenizeFields* f) { return read_bool(v, p, &f->return_token_strs); }},
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
  TokenizeFields fields;
  ChatPromptFields chat;
  for (const auto& [name, value] : json.items()) {
    FieldFound found = FieldFound::kNo;
    RETURN_IF_API_ERROR(read_field(kTokenizeTable, name, value, &fields, &found));
    RETURN_IF_API_ERROR(read_field(chat_prompt_field_table(), name, value, &chat, &found));
    RETURN_IF_API_ERROR(check_unsupported_field(Endpoint::kChat, name, value, &found));
    if (found == FieldFound::kNo) return unknown_parameter(name, name);
  }
  const bool is_chat = !chat.messages.is_null();
  if (is_chat && fields.prompt) {
    return invalid_value("messages", "give 'prompt' or 'messages', not both.");
  }
  if (!is_chat && !fields.prompt) return missing_parameter("prompt");
  ModelHandle model;
  RETURN_IF_API_ERROR(resolve_model(serving, caller, fields.model, &model));

  std::string text;
  if (is_chat) {
    RETURN_IF_API_ERROR(check_chat_prompt(chat));
    RETURN_IF_API_ERROR(render_chat(chat, *model.text, unix_now(), &text));
  } else {
    text = std::move(*fields.prompt);
  }
  const Tokenizer& tokenizer = *model.text->tokenizer;
  EncodeOptions options;
  options.add_special = fields.add_special_tokens.value_or(!is_chat);
  const std::vector<int32_t> ids = tokenizer.encode(text, options);
  (*out)["count"] = ids.size();
  (*out)["max_model_len"] = serving.engine->max_context();
  (*out)["tokens"] = ids;
  Json strings;
  if (fields.return_token_strs) {
    strings = Json::array();
    for (const int32_t id : ids) strings.push_back(tokenizer.token_text(id));
  }
  (*out)["token_strs"] = std::move(strings);
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
  ModelHandle model;
  RETURN_IF_API_ERROR(resolve_model(serving, caller, fields.model, &model));
  const Tokenizer& tokenizer = *model.text->tokenizer;
  for (const int32_t id : *fields.tokens) {
    if (id >= tokenizer.vocab_size()) {
      return invalid_value("tokens", fmt::format("token ids go from 0 to {} for this model.",
                                                 tokenizer.vocab_size() - 1));
    }
  }
  (*out)["prompt"] = tokenizer.decode(*fields.tokens, false);
  return {};
}

}  // namespace deltad
