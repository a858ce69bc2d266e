#include "server/openai/unsupported_fields.h"

#include <initializer_list>
#include <nlohmann/json.hpp>

namespace deltad {
namespace {

using Harmless = bool (*)(const Json&);

bool never(const Json&) { return false; }
bool any_boolean(const Json& v) { return v.is_boolean(); }
bool is_false(const Json& v) { return v.is_boolean() && !v.get<bool>(); }
bool is_true(const Json& v) { return v.is_boolean() && v.get<bool>(); }
bool is_empty(const Json& v) { return v.is_structured() && v.empty(); }
bool is_empty_text(const Json& v) {
  return v.is_string() && v.get_ref<const std::string&>().empty();
}
bool is_one_of(const Json& v, std::initializer_list<std::string_view> words) {
  if (!v.is_string()) return false;
  for (const std::string_view word : words) {
    if (v.get_ref<const std::string&>() == word) return true;
  }
  return false;
}
bool is_one(const Json& v) { return v.is_number() && v.get<double>() == 1; }

struct Unsupported {
  bool chat, completions;  // where it is known
  Harmless harmless;
  std::string_view what;
};

constexpr std::string_view kTools = "This server does not call tools yet.";
constexpr std::string_view kFormat = "This server does not constrain the answer's format yet.";
constexpr std::string_view kText = "This server reads and writes text only.";
constexpr std::string_view kReasoning =
    "This server has no setting for it; chat_template_kwargs reach the model's template.";
constexpr std::string_view kSampler = "This server's sampler does not have it.";
constexpr std::string_view kNotHere = "This server does not have it.";

const std::unordered_map<std::string_view, Unsupported> kTable = {
    {"tools", {true, false, is_empty, kTools}},
    {"tool_choice",
     {true, false,
      [](const Json& v) {
        return is_one_of(v, {"none", "auto"});
      },
      kTools}},
    {"parallel_tool_calls", {true, false, any_boolean, kTools}},
    {"functions", {true, false, is_empty, kTools}},
    {"function_call",
     {true, false,
      [](const Json& v) {
        return is_one_of(v, {"none", "auto"});
      },
      kTools}},
    {"response_format",
     {true, true,
      [](const Json& v) {
        return v.is_object() && v.size() == 1 && v.contains("type") &&
               is_one_of(v["type"], {"text"});
      },
      kFormat}},
    {"structured_outputs", {true, true, never, kFormat}},
    {"guided_json", {true, true, never, kFormat}},
    {"guided_regex", {true, true, never, kFormat}},
    {"guided_choice", {true, true, never, kFormat}},
    {"guided_grammar", {true, true, never, kFormat}},
    {"guided_decoding_backend", {true, true, never, kFormat}},
    {"guided_whitespace_pattern", {true, true, never, kFormat}},
    {"grammar", {true, true, is_empty_text, kFormat}},
    {"json_schema", {true, true, never, kFormat}},
    {"regex", {true, true, never, kFormat}},
    {"ebnf", {true, true, never, kFormat}},
    {"audio", {true, false, never, kText}},
    {"modalities",
     {true, false,
      [](const Json& v) { return v.is_array() && v.size() == 1 && is_one_of(v[0], {"text"}); },
      kText}},
    {"prediction", {true, false, never, kNotHere}},
    {"web_search_options", {true, false, never, kNotHere}},
    {"reasoning_effort", {true, false, never, kReasoning}},
    {"reasoning", {true, false, never, kReasoning}},
    {"include_reasoning", {true, false, any_boolean, kReasoning}},
    {"verbosity", {true, false, never, kReasoning}},
    {"thinking", {true, false, never, kReasoning}},
    {"service_tier",
     {true, true,
      [](const Json& v) {
        return is_one_of(v, {"auto", "default"});
      },
      "This server has one tier."}},
    {"store", {true, true, is_false, "This server does not keep answers."}},
    {"prompt_cache_retention", {true, true, never, kNotHere}},
    {"best_of", {true, true, is_one, "Ask for several choices with 'n'."}},
    {"suffix", {false, true, is_empty_text, "This server does not fill in the middle."}},
    {"use_beam_search", {true, true, is_false, kSampler}},
    {"length_penalty", {true, true, is_one, kSampler}},
    {"early_stopping", {true, true, is_false, kSampler}},
    {"logits_processors", {true, true, is_empty, kSampler}},
    {"bad_words", {true, true, is_empty, kSampler}},
    {"allowed_token_ids", {true, true, never, kSampler}},
    {"typical_p", {true, true, is_one, kSampler}},
    {"mirostat", {true, true, never, kSampler}},
    {"prompt_logprobs",
     {true, true, never, "Use 'echo' with 'logprobs' of the completions endpoint."}},
    {"truncate_prompt_tokens", {true, true, never, "Shorten the prompt instead."}},
    {"spaces_between_special_tokens", {true, true, is_true, kNotHere}},
    {"return_tokens_as_token_ids", {true, true, is_false, "Use 'return_token_ids'."}},
    {"cache_salt", {true, true, never, kNotHere}},
    {"echo", {true, false, is_false, "It belongs to the completions endpoint."}},
    {"documents", {true, false, is_empty, "Use chat_template_kwargs if the template takes them."}},
    {"chat_template", {true, false, never, "The model's own chat template is used."}},
    {"mm_processor_kwargs", {true, true, never, kText}},
    {"kv_transfer_params", {true, true, never, kNotHere}},
    {"prompt_embeds", {false, true, never, kNotHere}},
    {"session_id", {true, true, never, kNotHere}},
    {"lora_path", {true, true, never, "Name the variant as 'model'."}},
};

}  // namespace

ApiError check_unsupported_field(Endpoint endpoint, const std::string& name, const Json& value,
                                 FieldFound* found) {
  const auto it = kTable.find(name);
  if (it == kTable.end()) return {};
  const Unsupported& field = it->second;
  if (endpoint == Endpoint::kChat ? !field.chat : !field.completions) return {};
  *found = FieldFound::kYes;
  if (value.is_null() || field.harmless(value)) return {};
  return unsupported_parameter(name, field.what);
}

}  // namespace deltad
