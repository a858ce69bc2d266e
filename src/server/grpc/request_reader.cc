#include "server/grpc/request_reader.h"

#include <fmt/core.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/reflection.h>
#include <google/protobuf/struct.pb.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/openai/chat_prompt_reader.h"
#include "server/openai/field_reader.h"
#include "server/openai/sampling_reader.h"

namespace deltad {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Struct;
using google::protobuf::Value;

constexpr int32_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr double kMostWhole = 9e15;  // beyond, a double does not tell whole numbers apart

template <typename Range>
Json list_json(const Range& items) {
  Json json = Json::array();
  for (const auto& item : items) json.push_back(item);
  return json;
}

Json bias_json(const v1::SamplingParams& in) {
  // In the order of the ids: a map of Protobuf has none of its own.
  const std::map<int32_t, double> sorted(in.logit_bias().begin(), in.logit_bias().end());
  Json json = Json::object();
  for (const auto& [id, bias] : sorted) json[std::to_string(id)] = bias;
  return json;
}

// What a field of SamplingParams is as HTTP's JSON.
Json field_json(const v1::SamplingParams& in, const FieldDescriptor& field) {
  const auto& reflection = *in.GetReflection();
  if (field.name() == "logit_bias") return bias_json(in);
  if (field.is_repeated()) {
    return field.cpp_type() == FieldDescriptor::CPPTYPE_STRING
               ? list_json(reflection.GetRepeatedFieldRef<std::string>(in, &field))
               : list_json(reflection.GetRepeatedFieldRef<int32_t>(in, &field));
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(in, &field);
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.GetInt32(in, &field);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.GetInt64(in, &field);
    default:
      return reflection.GetDouble(in, &field);
  }
}

// least: of max_tokens.
ApiError read_sampling(const v1::SamplingParams& in, int32_t least, SamplingFields* out,
                       std::optional<int32_t>* logprobs) {
  std::vector<const FieldDescriptor*> set;
  in.GetReflection()->ListFields(in, &set);
  for (const FieldDescriptor* field : set) {
    const std::string& name = field->name();
    if (name == "max_tokens") {
      RETURN_IF_API_ERROR(
          read_int32(in.max_tokens(), name, least, kInt32Max, &out->max_tokens.emplace()));
    } else if (name == "logprobs") {
      RETURN_IF_API_ERROR(
          read_int32(in.logprobs(), name, 0, kMostTopLogprobs, &logprobs->emplace()));
    } else {
      FieldFound found = FieldFound::kNo;
      RETURN_IF_API_ERROR(
          read_field(sampling_field_table(), name, field_json(in, *field), out, &found));
      CHECK(found == FieldFound::kYes, "a field of SamplingParams that nobody reads");
    }
  }
  return {};
}

Json message_json(const v1::ChatMessage& in) {
  Json json;
  json["role"] = in.role();
  if (in.has_content()) json["content"] = in.content();
  if (in.has_name()) json["name"] = in.name();
  if (in.has_tool_call_id()) json["tool_call_id"] = in.tool_call_id();
  if (in.has_reasoning_content()) json["reasoning_content"] = in.reasoning_content();
  for (const v1::ToolCall& call : in.tool_calls()) {
    Json item = Json::object();
    if (call.has_id()) item["id"] = call.id();
    if (call.has_function()) {
      item["function"]["name"] = call.function().name();
      item["function"]["arguments"] = call.function().arguments();
    }
    json["tool_calls"].push_back(std::move(item));
  }
  return json;
}

ApiError read_struct(const Struct& in, const std::string& param, Json* out);

// The depth is bounded by Protobuf's parser.
ApiError read_value(const Value& in, const std::string& param, Json* out) {
  switch (in.kind_case()) {
    case Value::kNumberValue: {
      const double number = in.number_value();
      if (!std::isfinite(number)) return invalid_value(param, "expected finite numbers.");
      if (number == std::floor(number) && std::abs(number) < kMostWhole)
        *out = static_cast<int64_t>(number);
      else
        *out = number;
      return {};
    }
    case Value::kStringValue:
      *out = in.string_value();
      return {};
    case Value::kBoolValue:
      *out = in.bool_value();
      return {};
    case Value::kStructValue:
      return read_struct(in.struct_value(), param, out);
    case Value::kListValue:
      *out = Json::array();
      for (const Value& item : in.list_value().values()) {
        Json value;
        RETURN_IF_API_ERROR(read_value(item, param, &value));
        out->push_back(std::move(value));
      }
      return {};
    default:
      *out = Json();
      return {};
  }
}

ApiError read_struct(const Struct& in, const std::string& param, Json* out) {
  *out = Json::object();
  std::vector<std::string> names;  // sorted: a map of Protobuf has no order of its own
  for (const auto& [name, value] : in.fields()) names.push_back(name);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    Json value;
    RETURN_IF_API_ERROR(read_value(in.fields().at(name), param, &value));
    (*out)[name] = std::move(value);
  }
  return {};
}

template <typename In>  // v1::ChatRequest, v1::ChatPrompt
ApiError read_chat_prompt(const In& in, ChatPromptFields* out) {
  const auto read = [out](const std::string& name, const Json& value) {
    FieldFound found = FieldFound::kNo;
    return read_field(chat_prompt_field_table(), name, value, out, &found);
  };
  if (in.messages_size() == 0) return missing_parameter("messages");
  Json messages = Json::array();
  for (const v1::ChatMessage& message : in.messages()) messages.push_back(message_json(message));
  RETURN_IF_API_ERROR(read("messages", messages));
  if (in.has_add_generation_prompt()) out->add_generation_prompt = in.add_generation_prompt();
  out->continue_final_message = in.continue_final_message();
  if (in.has_chat_template_kwargs()) {
    Json kwargs;
    RETURN_IF_API_ERROR(read_struct(in.chat_template_kwargs(), "chat_template_kwargs", &kwargs));
    RETURN_IF_API_ERROR(read("chat_template_kwargs", kwargs));
  }
  return check_chat_prompt(*out);
}

ApiError read_prompt(const v1::Prompt& in, const std::string& param, CompletionPrompt* out) {
  switch (in.input_case()) {
    case v1::Prompt::kText:
      *out = in.text();
      return {};
    case v1::Prompt::kTokens: {
      const auto& ids = in.tokens().ids();
      if (static_cast<size_t>(ids.size()) > kMostPromptTokens)
        return invalid_value(param + ".tokens.ids",
                             fmt::format("expected at most {} token ids.", kMostPromptTokens));
      if (std::any_of(ids.begin(), ids.end(), [](int32_t id) { return id < 0; }))
        return invalid_value(param + ".tokens.ids", "token ids are 0 or more.");
      *out = std::vector<int32_t>(ids.begin(), ids.end());
      return {};
    }
    case v1::Prompt::INPUT_NOT_SET:
      break;
  }
  return missing_parameter(param + ".text");
}

}  // namespace

ApiError read_request(const v1::GenerateRequest& in, CompletionRequest* out) {
  if (in.prompts_size() == 0) return missing_parameter("prompts");
  if (static_cast<size_t>(in.prompts_size()) > kMostPrompts)
    return invalid_value("prompts", fmt::format("expected at most {} prompts.", kMostPrompts));
  for (int i = 0; i < in.prompts_size(); ++i)
    RETURN_IF_API_ERROR(
        read_prompt(in.prompts(i), fmt::format("prompts[{}]", i), &out->prompts.emplace_back()));
  RETURN_IF_API_ERROR(read_sampling(in.sampling(), 0, &out->sampling, &out->logprobs));
  out->sampling.model = in.model();
  out->echo = in.echo();
  return check_sampling(out->sampling);
}

ApiError read_request(const v1::ChatRequest& in, ChatRequest* out) {
  std::optional<int32_t> logprobs;
  RETURN_IF_API_ERROR(read_chat_prompt(in, &out->prompt));
  RETURN_IF_API_ERROR(read_sampling(in.sampling(), 1, &out->sampling, &logprobs));
  out->sampling.model = in.model();
  out->logprobs = logprobs.has_value();
  out->top_logprobs = logprobs.value_or(0);
  return check_sampling(out->sampling);
}

ApiError read_request(const v1::TokenizeRequest& in, TokenizeRequest* out) {
  out->model = in.model();
  if (in.has_prompt()) out->prompt = in.prompt();
  if (in.has_chat()) RETURN_IF_API_ERROR(read_chat_prompt(in.chat(), &out->chat));
  if (in.has_add_special_tokens()) out->add_special_tokens = in.add_special_tokens();
  out->return_token_strs = in.return_token_strs();
  return {};
}

}  // namespace deltad
