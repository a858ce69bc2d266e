#include "server/openai/chat_request.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "server/openai/chat_prompt_reader.h"
#include "server/openai/json_reader.h"
#include "server/openai/sampling_reader.h"
#include "server/openai/unsupported_fields.h"

namespace deltad {
namespace {

constexpr int32_t kInt32Max = std::numeric_limits<int32_t>::max();

struct ChatOnlyFields {
  bool logprobs = false;
  std::optional<int32_t> top_logprobs, max_tokens, max_completion_tokens;
};

template <std::optional<int32_t> ChatOnlyFields::*Member, int32_t low, int32_t high>
ApiError read_optional(const Json& value, const std::string& param, ChatOnlyFields* out) {
  int32_t number = 0;
  RETURN_IF_API_ERROR(read_int32(value, param, low, high, &number));
  out->*Member = number;
  return {};
}

const FieldTable<ChatOnlyFields> kTable = {
    {"logprobs", [](const Json& v, const std::string& p,
                    ChatOnlyFields* f) { return read_bool(v, p, &f->logprobs); }},
    {"top_logprobs", read_optional<&ChatOnlyFields::top_logprobs, 0, kMostTopLogprobs>},
    {"max_tokens", read_optional<&ChatOnlyFields::max_tokens, 1, kInt32Max>},
    {"max_completion_tokens", read_optional<&ChatOnlyFields::max_completion_tokens, 1, kInt32Max>},
};

}  // namespace

ApiError parse_chat_request(std::string_view body, ChatRequest* out) {
  Json json;
  RETURN_IF_API_ERROR(parse_json(body, "", &json));
  if (!json.is_object()) return invalid_value("", "The request's body must be a JSON object.");
  ChatOnlyFields own;
  for (const auto& [name, value] : json.items()) {
    FieldFound found = FieldFound::kNo;
    RETURN_IF_API_ERROR(read_field(kTable, name, value, &own, &found));
    RETURN_IF_API_ERROR(read_field(chat_prompt_field_table(), name, value, &out->prompt, &found));
    RETURN_IF_API_ERROR(read_field(sampling_field_table(), name, value, &out->sampling, &found));
    RETURN_IF_API_ERROR(check_unsupported_field(Endpoint::kChat, name, value, &found));
    if (found == FieldFound::kNo) return unknown_parameter(name, name);
  }
  RETURN_IF_API_ERROR(check_chat_prompt(out->prompt));
  if (own.top_logprobs && !own.logprobs) {
    return invalid_value("top_logprobs", "it needs 'logprobs' to be true.");
  }
  out->logprobs = own.logprobs;
  out->top_logprobs = own.top_logprobs.value_or(0);
  out->sampling.max_tokens = own.max_tokens;
  if (own.max_completion_tokens) {  // the newer name wins
    out->sampling.max_tokens = own.max_completion_tokens;
    out->sampling.max_tokens_name = "max_completion_tokens";
  }
  return check_sampling(out->sampling);
}

}  // namespace deltad
