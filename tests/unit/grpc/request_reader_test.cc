// What is read from Protobuf's requests, and the paths that errors name.
#include "server/grpc/request_reader.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <string_view>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/grpc/errors.h"
#include "server/openai/chat_prompt_reader.h"
#include "server/openai/sampling_reader.h"

namespace deltad {
namespace {

v1::GenerateRequest generate() {
  v1::GenerateRequest in;
  in.add_prompts()->set_text("hello");
  return in;
}

std::string param_of(const v1::GenerateRequest& in) {
  CompletionRequest out;
  const ApiError error = read_request(in, &out);
  return error ? error.param.value_or("?") : "";
}

TEST(RequestReader, WhatIsNotSetHasItsDefault) {
  CompletionRequest out;
  ASSERT_FALSE(read_request(generate(), &out));
  EXPECT_FALSE(out.sampling.temperature.has_value());
  EXPECT_FALSE(out.sampling.max_tokens.has_value());
  EXPECT_EQ(out.sampling.n, 1);
  EXPECT_TRUE(out.sampling.skip_special_tokens);
  EXPECT_FALSE(out.logprobs.has_value());
}

TEST(RequestReader, ReadsEveryKindOfField) {
  v1::GenerateRequest in = generate();
  in.set_model("math");
  auto& s = *in.mutable_sampling();
  s.set_temperature(0.25);
  s.set_seed(-5);
  s.set_top_k(-1);
  s.set_skip_special_tokens(false);
  s.add_stop("END");
  s.add_stop_token_ids(7);
  (*s.mutable_logit_bias())[9] = -2.5;
  s.set_logprobs(0);
  s.set_max_tokens(0);
  CompletionRequest out;
  ASSERT_FALSE(read_request(in, &out));
  EXPECT_EQ(out.sampling.model, "math");
  EXPECT_EQ(out.sampling.temperature, 0.25);
  EXPECT_EQ(out.sampling.seed, -5);
  EXPECT_EQ(out.sampling.top_k, 0);
  EXPECT_FALSE(out.sampling.skip_special_tokens);
  EXPECT_EQ(out.sampling.stop, std::vector<std::string>{"END"});
  EXPECT_EQ(out.sampling.stop_token_ids, std::vector<int32_t>{7});
  ASSERT_EQ(out.sampling.logit_bias.size(), 1u);
  EXPECT_EQ(out.sampling.logit_bias[0], (std::pair<int32_t, float>(9, -2.5f)));
  EXPECT_EQ(out.logprobs, 0);
  EXPECT_EQ(out.sampling.max_tokens, 0);
}

// Nor may HTTP have a parameter that gRPC lacks.
TEST(RequestReader, EveryParameterOfHttpHasAField) {
  // What a method's kind, or a field of the request itself, says.
  const std::set<std::string_view> elsewhere = {"model", "stream", "stream_options"};
  // Taken by HTTP, for OpenAI's clients, and without an effect.
  const std::set<std::string_view> ignored = {"user", "metadata", "safety_identifier",
                                              "prompt_cache_key"};
  for (const auto& [name, read] : sampling_field_table()) {
    if (elsewhere.count(name) + ignored.count(name) > 0) continue;
    EXPECT_NE(v1::SamplingParams::descriptor()->FindFieldByName(std::string(name)), nullptr)
        << name;
  }
  for (const auto& [name, read] : chat_prompt_field_table())
    EXPECT_NE(v1::ChatRequest::descriptor()->FindFieldByName(std::string(name)), nullptr) << name;
}

TEST(RequestReader, RefusesWhatIsOutOfRange) {
  v1::GenerateRequest in = generate();
  in.mutable_sampling()->set_temperature(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(param_of(in), "temperature");
  in = generate();
  in.mutable_sampling()->set_n(129);
  EXPECT_EQ(param_of(in), "n");
  in = generate();
  (*in.mutable_sampling()->mutable_logit_bias())[-1] = 0;
  EXPECT_EQ(param_of(in), "logit_bias");
  in = generate();
  in.add_prompts();
  EXPECT_EQ(param_of(in), "prompts[1].text");
  in = generate();
  in.add_prompts()->mutable_tokens()->add_ids(-1);
  EXPECT_EQ(param_of(in), "prompts[1].tokens.ids");
  EXPECT_EQ(param_of(v1::GenerateRequest()), "prompts");
}

TEST(RequestReader, ChatMessagesAndTemplateVariables) {
  v1::ChatRequest in;
  auto* message = in.add_messages();
  message->set_role("assistant");
  auto* function = message->add_tool_calls()->mutable_function();
  function->set_name("add");
  function->set_arguments(R"({"a": 1})");
  (*in.mutable_chat_template_kwargs()->mutable_fields())["depth"].set_number_value(3);
  ChatRequest out;
  ASSERT_FALSE(read_request(in, &out));
  EXPECT_EQ(out.prompt.messages[0]["tool_calls"][0]["function"]["arguments"]["a"], 1);
  EXPECT_TRUE(out.prompt.template_kwargs["depth"].is_number_integer());
  function->set_arguments("no JSON");
  ChatRequest bad;
  EXPECT_EQ(read_request(in, &bad).param, "messages[0].tool_calls[0].function.arguments");
}

TEST(GrpcErrors, FieldPaths) {
  const auto& chat = *v1::ChatRequest::descriptor();
  EXPECT_EQ(field_path(chat, "top_p"), "sampling.top_p");
  EXPECT_EQ(field_path(chat, "stop[3]"), "sampling.stop[3]");
  EXPECT_EQ(field_path(chat, "messages[0].role"), "messages[0].role");
  EXPECT_EQ(field_path(*v1::GenerateRequest::descriptor(), "prompt"), "prompts");
  EXPECT_EQ(field_path(*v1::TokenizeRequest::descriptor(), "messages[0]"), "chat.messages[0]");
}

TEST(GrpcErrors, Details) {
  ApiError error = api_error(resource_exhausted("full").in("x"));
  error.retry_after = 7;
  const grpc::Status status = grpc_status(error, *v1::GenerateRequest::descriptor());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  ASSERT_EQ(details.details_size(), 2);
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "RATE_LIMIT_EXCEEDED");
  google::rpc::RetryInfo retry;
  ASSERT_TRUE(details.details(1).UnpackTo(&retry));
  EXPECT_EQ(retry.retry_delay().seconds(), 7);
}

}  // namespace
}  // namespace deltad
