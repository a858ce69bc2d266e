#include "server/openai/sampling_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

namespace deltad {
namespace {

constexpr int32_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr int32_t kInt32Min = std::numeric_limits<int32_t>::min();

ApiError read_stop(const Json& value, const std::string& param, SamplingFields* out) {
  const auto add = [out](const Json& one, const std::string& name) -> ApiError {
    std::string text;
    RETURN_IF_API_ERROR(read_string(one, name, &text));
    if (text.empty()) return invalid_value(name, "a stop string cannot be empty.");
    if (text.size() > kLongestStopString) {
      return invalid_value(name,
                           fmt::format("a stop string has at most {} bytes.", kLongestStopString));
    }
    out->stop.push_back(std::move(text));
    return {};
  };
  out->stop.clear();
  if (value.is_string()) return add(value, param);
  if (!value.is_array()) return wrong_type(param, "a string or an array of strings", value);
  if (value.size() > kMostStopStrings) {
    return invalid_value(param, fmt::format("expected at most {} strings.", kMostStopStrings));
  }
  for (size_t i = 0; i < value.size(); ++i) {
    RETURN_IF_API_ERROR(add(value[i], fmt::format("{}[{}]", param, i)));
  }
  return {};
}

ApiError read_logit_bias(const Json& value, const std::string& param, SamplingFields* out) {
  if (!value.is_object()) {
    return wrong_type(param, "an object from token ids to numbers", value);
  }
  if (value.size() > kMostBiases) {
    return invalid_value(param, fmt::format("expected at most {} entries.", kMostBiases));
  }
  out->logit_bias.clear();
  for (const auto& [key, bias] : value.items()) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0) {
      return invalid_value(param, "its keys must be token ids written as strings.");
    }
    double number = 0;
    RETURN_IF_API_ERROR(read_number(bias, fmt::format("{}.{}", param, id), -100, 100, &number));
    out->logit_bias.emplace_back(id, static_cast<float>(number));
  }
  return {};
}

ApiError read_stream_options(const Json& value, const std::string& param, SamplingFields* out) {
  if (!value.is_object()) return wrong_type(param, "an object", value);
  out->has_stream_options = true;
  for (const auto& [key, option] : value.items()) {
    const std::string name = param + "." + key;
    if (key == "include_usage") {
      if (option.is_null()) continue;
      RETURN_IF_API_ERROR(read_bool(option, name, &out->include_usage));
    } else if (key == "include_obfuscation" || key == "continuous_usage_stats") {
      bool wanted = false;
      if (option.is_null()) continue;
      RETURN_IF_API_ERROR(read_bool(option, name, &wanted));
      // Obfuscation hides lengths from an eavesdropper; streams without it are valid answers.
      if (wanted && key == "continuous_usage_stats") {
        return unsupported_parameter(name, "Usage comes once, at the end of the stream.");
      }
    } else {
      return unknown_parameter(key, name);
    }
  }
  return {};
}

// A label that the answer does not depend on.
ApiError read_label(const Json& value, const std::string& param, SamplingFields*) {
  std::string ignored;
  return read_string(value, param, &ignored);
}

ApiError read_metadata(const Json& value, const std::string& param, SamplingFields*) {
  if (!value.is_object()) return wrong_type(param, "an object", value);
  for (const auto& [key, entry] : value.items()) {
    if (!entry.is_string()) return wrong_type(param + "." + key, "a string", entry);
  }
  return {};
}

template <std::optional<double> SamplingFields::*Member>
ApiError read_optional(const Json& value, const std::string& param, double low, double high,
                       bool low_allowed, SamplingFields* out) {
  double number = 0;
  RETURN_IF_API_ERROR(low_allowed ? read_number(value, param, low, high, &number)
                                  : read_number_above(value, param, low, high, &number));
  out->*Member = number;
  return {};
}

#define FIELD [](const Json& v, const std::string& p, SamplingFields* f) -> ApiError

const FieldTable<SamplingFields> kTable = {{"model", FIELD{return read_string(v, p, &f->model);
}  // namespace
}  // namespace deltad
, {"n", FIELD{return read_int32(v, p, 1, kMostChoices, &f->n);
}
}
, {"stream", FIELD{return read_bool(v, p, &f->stream);
}
}
, {"stream_options", read_stream_options},
    {"temperature", FIELD{return read_optional<&SamplingFields::temperature>(v, p, 0, 2, true, f);
}
}
, {"top_p", FIELD{return read_optional<&SamplingFields::top_p>(v, p, 0, 1, false, f);
}
}
, {"min_p", FIELD{return read_optional<&SamplingFields::min_p>(v, p, 0, 1, true, f);
}
}
, {"repetition_penalty",
   FIELD{return read_optional<&SamplingFields::repetition_penalty>(v, p, 0, 1e4, false, f);
}
}
, {"top_k", FIELD{int32_t k = 0;
RETURN_IF_API_ERROR(read_int32(v, p, -1, kInt32Max, &k));
f->top_k = std::max(k, 0);  // −1 and 0 both mean all
return {};
}
}
, {"frequency_penalty", FIELD{return read_number(v, p, -2, 2, &f->frequency_penalty);
}
}
, {"presence_penalty", FIELD{return read_number(v, p, -2, 2, &f->presence_penalty);
}
}
, {"seed", FIELD{int64_t seed = 0;
RETURN_IF_API_ERROR(read_int(v, p, std::numeric_limits<int64_t>::min(),
                             std::numeric_limits<int64_t>::max(), &seed));
f->seed = seed;
return {};
}
}
, {"logit_bias", read_logit_bias}, {"stop", read_stop},
    {"stop_token_ids", FIELD{return read_token_ids(v, p, kMostStopTokens, &f->stop_token_ids);
}
}
, {"min_tokens", FIELD{return read_int32(v, p, 0, kInt32Max, &f->min_tokens);
}
}
, {"ignore_eos", FIELD{return read_bool(v, p, &f->ignore_eos);
}
}
, {"include_stop_str_in_output", FIELD{return read_bool(v, p, &f->include_stop_str_in_output);
}
}
, {"skip_special_tokens", FIELD{return read_bool(v, p, &f->skip_special_tokens);
}
}
, {"add_special_tokens", FIELD{bool wanted = false;
RETURN_IF_API_ERROR(read_bool(v, p, &wanted));
f->add_special_tokens = wanted;
return {};
}
}
, {"return_token_ids", FIELD{return read_bool(v, p, &f->return_token_ids);
}
}
, {"priority", FIELD{return read_int32(v, p, kInt32Min, kInt32Max, &f->priority);
}
}
, {"user", read_label}, {"safety_identifier", read_label}, {"prompt_cache_key", read_label},
    {"metadata", read_metadata},
}
;

#undef FIELD

}  // namespace

const FieldTable<SamplingFields>& sampling_field_table() { return kTable; }

}  // namespace deltad
