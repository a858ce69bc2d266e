#include "server/openai/completion_request.h"

#include <fmt/core.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/openai/json_reader.h"
#include "server/openai/sampling_reader.h"
#include "server/openai/unsupported_fields.h"

namespace deltad {
namespace {

constexpr int32_t kDefaultMaxTokens = 16;
constexpr std::string_view kPromptKinds =
    "a string, an array of strings, an array of token ids or an array of such arrays";

ApiError read_prompt(const Json& value, const std::string& param, CompletionRequest* out) {
  out->prompts.clear();
  if (value.is_string()) {
    out->prompts.emplace_back(value.get_ref<const std::string&>());
    return {};
  }
  if (!value.is_array()) return wrong_type(param, kPromptKinds, value);
  if (value.empty()) return invalid_value(param, "expected at least one prompt.");
  if (value.front().is_number()) {
    std::vector<int32_t> ids;
    RETURN_IF_API_ERROR(read_token_ids(value, param, kMostPromptTokens, &ids));
    out->prompts.emplace_back(std::move(ids));
    return {};
  }
  if (value.size() > kMostPrompts) {
    return invalid_value(param, fmt::format("expected at most {} prompts.", kMostPrompts));
  }
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string name = fmt::format("{}[{}]", param, i);
    if (value[i].is_string() && value.front().is_string()) {
      out->prompts.emplace_back(value[i].get_ref<const std::string&>());
    } else if (value[i].is_array() && value.front().is_array()) {
      std::vector<int32_t> ids;
      RETURN_IF_API_ERROR(read_token_ids(value[i], name, kMostPromptTokens, &ids));
      out->prompts.emplace_back(std::move(ids));
    } else {
      return wrong_type(i == 0 ? param : name, kPromptKinds, value[i]);
    }
  }
  return {};
}

const FieldTable<CompletionRequest> kTable = {
    {"prompt", read_prompt},
    {"echo", [](const Json& v, const std::string& p,
                CompletionRequest* r) { return read_bool(v, p, &r->echo); }},
    {"logprobs",
     [](const Json& v, const std::string& p, CompletionRequest* r) -> ApiError {
       int32_t number = 0;
       RETURN_IF_API_ERROR(read_int32(v, p, 0, kMostTopLogprobs, &number));
       r->logprobs = number;
       return {};
     }},
    {"max_tokens",
     [](const Json& v, const std::string& p, CompletionRequest* r) -> ApiError {
       int32_t number = 0;
       RETURN_IF_API_ERROR(read_int32(v, p, 0, std::numeric_limits<int32_t>::max(), &number));
       r->sampling.max_tokens = number;
       return {};
     }},
};

}  // namespace

ApiError parse_completion_request(std::string_view body, CompletionRequest* out) {
  Json json;
  RETURN_IF_API_ERROR(parse_json(body, "", &json));
  if (!json.is_object()) return invalid_value("", "The request's body must be a JSON object.");
  std::optional<int64_t> best_of;
  for (const auto& [name, value] : json.items()) {
    FieldFound found = FieldFound::kNo;
    if (name == "best_of" && value.is_number_integer()) {  // compared with n once that is known
      best_of = value.get<int64_t>();
      continue;
    }
    RETURN_IF_API_ERROR(read_field(kTable, name, value, out, &found));
    RETURN_IF_API_ERROR(read_field(sampling_field_table(), name, value, &out->sampling, &found));
    RETURN_IF_API_ERROR(check_unsupported_field(Endpoint::kCompletions, name, value, &found));
    if (found == FieldFound::kNo) return unknown_parameter(name, name);
  }
  if (out->prompts.empty()) return missing_parameter("prompt");
  if (best_of && *best_of != out->sampling.n) {
    return unsupported_parameter("best_of", "Only as many choices are made as 'n' asks for.");
  }
  RETURN_IF_API_ERROR(check_sampling(out->sampling));
  if (!out->sampling.max_tokens && out->sampling.min_tokens > kDefaultMaxTokens) {
    return invalid_value(
        "min_tokens",
        fmt::format("it must not exceed 'max_tokens' (by default {}).", kDefaultMaxTokens));
  }
  return {};
}

}  // namespace deltad
