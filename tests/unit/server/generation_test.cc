// Whole answers of the two generation endpoints.
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/server/api_fixture.h"

namespace deltad::testing {
namespace {

class GenerationTest : public ApiTest {};

TEST_F(GenerationTest, ChatAnswer) {
  const auto answer = chat(R"("model":"math","max_tokens":5)");
  ASSERT_EQ(router_.count(), 1u);
  EXPECT_EQ(router_.model(0), "math");
  EXPECT_FALSE(answer->finished);
  give(answer, 0, "Hey", FinishReason::kStop, 4);
  ASSERT_TRUE(answer->finished);
  EXPECT_EQ(answer->response.status, 200);
  const auto json = answer->json();
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["model"], "math");
  EXPECT_EQ(json["id"].get<std::string>().substr(0, 9), "chatcmpl-");
  EXPECT_GT(json["created"], 1'600'000'000);
  ASSERT_EQ(json["choices"].size(), 1u);
  const auto& choice = json["choices"][0];
  EXPECT_EQ(choice["index"], 0);
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], "Hey");
  EXPECT_TRUE(choice["logprobs"].is_null());
  EXPECT_EQ(choice["finish_reason"], "stop");
  const int prompt = static_cast<int>(std::string("<user>Hi\n<assistant>").size());
  EXPECT_EQ(json["usage"]["prompt_tokens"], prompt);
  EXPECT_EQ(json["usage"]["completion_tokens"], 3);
  EXPECT_EQ(json["usage"]["total_tokens"], prompt + 3);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
}

TEST_F(GenerationTest, WhatTheEngineIsAsked) {
  chat(R"("temperature":0,"seed":42,"stop_token_ids":[7],"min_tokens":2,"priority":-1,
          "max_completion_tokens":9,"logprobs":true,"top_logprobs":3)");
  const Request& request = *router_.request(0);
  EXPECT_EQ(request.sampling.temperature, 0);
  EXPECT_EQ(request.sampling.seed, 42u);
  EXPECT_EQ(request.stop_ids, (std::vector<int32_t>{7, kEos}));
  EXPECT_EQ(request.min_tokens, 2);
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_EQ(request.priority, -1);
  EXPECT_EQ(request.logprobs, 3);
  EXPECT_EQ(request.prompt_logprobs, -1);
  EXPECT_FALSE(request.deliver_stop_token);
  EXPECT_GT(request.received, TimePoint{});
  EXPECT_EQ(request.deadline, request.received + std::chrono::seconds(90));
}

// Not by the engine, which is in the middle of a step.
TEST_F(GenerationTest, ADeadlineAnswersAtOnce) {
  const auto whole = complete(R"("prompt":"a","n":2)");
  EXPECT_EQ(whole->deadline, router_.request(0)->deadline);
  whole->expire();
  whole->pump();
  expect_error(*whole, 504, "", "deadline");
  EXPECT_EQ(router_.cancelled(), (std::vector<size_t>{0, 1}));
  const auto stream = complete(R"("prompt":"a","stream":true)");
  router_.text(2, "x");
  stream->pump();
  stream->expire();
  stream->pump();
  ASSERT_TRUE(stream->finished && stream->closed);
  EXPECT_EQ(stream->chunks().back()["error"]["type"], "server_error");
  EXPECT_EQ(router_.cancelled().back(), 2u);
  for (size_t i = 0; i < 3; ++i) router_.finish(i, FinishReason::kCancelled);
  whole->pump();
  stream->pump();
  EXPECT_EQ(whole->sends, 1);
}

TEST_F(GenerationTest, ChatDefaultsToTheRestOfTheContextAndCompletionsToSixteen) {
  chat("");
  const Request& first = *router_.request(0);
  EXPECT_EQ(first.max_tokens + static_cast<int32_t>(first.prompt.size()), engine_.context);
  complete(R"("prompt":"abc")");
  EXPECT_EQ(router_.request(1)->max_tokens, 16);
  engine_.context = 10;
  complete(R"("prompt":"abc")");  // the begin token, and three more
  EXPECT_EQ(router_.request(2)->max_tokens, 6);
}

TEST_F(GenerationTest, IgnoreEosAndAddSpecialTokens) {
  complete(R"("prompt":"a","ignore_eos":true,"add_special_tokens":false)");
  EXPECT_TRUE(router_.request(0)->stop_ids.empty());
  EXPECT_EQ(router_.request(0)->prompt, (std::vector<int32_t>{'a'}));
  complete(R"("prompt":"a")");
  EXPECT_EQ(router_.request(1)->prompt, (std::vector<int32_t>{kBos, 'a'}));
}

TEST_F(GenerationTest, WithoutASeedEachRequestDrawsOne) {
  chat("");
  chat("");
  EXPECT_NE(router_.request(0)->sampling.seed, router_.request(1)->sampling.seed);
}

TEST_F(GenerationTest, SeveralChoicesShareASeed) {
  const auto answer = chat(R"("n":3)");
  ASSERT_EQ(router_.count(), 3u);
  std::set<std::string> ids;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(router_.request(i)->choice, static_cast<int32_t>(i));
    EXPECT_EQ(router_.request(i)->sampling.seed, router_.request(0)->sampling.seed);
    ids.insert(router_.request(i)->id);
  }
  EXPECT_EQ(ids.size(), 3u);
  give(answer, 2, "c", FinishReason::kLength, 9);
  give(answer, 0, "aa", FinishReason::kStop, 1);
  EXPECT_FALSE(answer->finished);
  give(answer, 1, "b", FinishReason::kStop, 8);
  const auto json = answer->json();
  ASSERT_EQ(json["choices"].size(), 3u);
  EXPECT_EQ(json["choices"][0]["message"]["content"], "aa");
  EXPECT_EQ(json["choices"][1]["message"]["content"], "b");
  EXPECT_EQ(json["choices"][2]["message"]["content"], "c");
  EXPECT_EQ(json["choices"][2]["finish_reason"], "length");
  EXPECT_EQ(json["usage"]["completion_tokens"], 4);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
}

TEST_F(GenerationTest, StopStringCancelsAndCuts) {
  const auto answer = chat(R"("stop":"END")");
  router_.text(0, "abEND");
  router_.text(0, "more");  // what the engine makes until it hears of it
  answer->pump();
  EXPECT_EQ(router_.cancelled(), (std::vector<size_t>{0}));
  EXPECT_FALSE(answer->finished);
  router_.finish(0, FinishReason::kCancelled, 2);
  answer->pump();
  const auto json = answer->json();
  EXPECT_EQ(json["choices"][0]["message"]["content"], "ab");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["usage"]["completion_tokens"], 5);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
}

TEST_F(GenerationTest, ChatLogprobs) {
  const auto answer = chat(R"("logprobs":true,"top_logprobs":2)");
  router_.token(0, 'h', -0.25f, {{'h', -0.25f}, {'x', -2.0f}});
  router_.token(0, 0xC3, -0.5f, {{0xC3, -0.5f}, {'y', -3.0f}});
  router_.token(0, 0xA9, -1.0f, {});
  give(answer, 0, "");
  const auto json = answer->json();
  const auto& content = json["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0]["token"], "h");
  EXPECT_EQ(content[0]["bytes"], nlohmann::ordered_json({104}));
  EXPECT_EQ(content[0]["top_logprobs"][1]["token"], "x");
  EXPECT_EQ(content[1]["bytes"], nlohmann::ordered_json({0xC3}));
  EXPECT_EQ(content[2]["bytes"], nlohmann::ordered_json({0xA9}));
  std::string text;
  for (const auto& token : content) {
    text += token["token"].get<std::string>();
    EXPECT_LE(token["logprob"].get<double>(), 0);
  }
  EXPECT_EQ(text, json["choices"][0]["message"]["content"]);
  EXPECT_TRUE(json["choices"][0]["logprobs"]["refusal"].is_null());
}

TEST_F(GenerationTest, CompletionAnswersArePromptMajor) {
  const auto answer = complete(R"("prompt":["A","B"],"n":2,"model":"base")");
  ASSERT_EQ(router_.count(), 4u);
  EXPECT_EQ(router_.request(1)->prompt, (std::vector<int32_t>{kBos, 'A'}));
  EXPECT_EQ(router_.request(2)->prompt, (std::vector<int32_t>{kBos, 'B'}));
  EXPECT_EQ(router_.request(3)->choice, 1);
  for (size_t i = 0; i < 4; ++i) give(answer, i, std::to_string(i), FinishReason::kLength, 1);
  const auto json = answer->json();
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["id"].get<std::string>().substr(0, 5), "cmpl-");
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(json["choices"][i]["index"], i);
    EXPECT_EQ(json["choices"][i]["text"], std::to_string(i));
    EXPECT_EQ(json["choices"][i]["finish_reason"], "length");
  }
  EXPECT_EQ(json["usage"]["prompt_tokens"], 4);  // each prompt once
  EXPECT_EQ(json["usage"]["completion_tokens"], 4);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
}

TEST_F(GenerationTest, TokenPrompts) {
  complete(R"("prompt":[[104,105],[256]])");
  ASSERT_EQ(router_.count(), 2u);
  EXPECT_EQ(router_.request(0)->prompt, (std::vector<int32_t>{104, 105}));
  EXPECT_EQ(router_.request(1)->prompt, (std::vector<int32_t>{256}));
  expect_error(*complete(R"("prompt":[1,260])"), 400, "prompt", "259");
  expect_error(*complete(R"("prompt":[[]])"), 400, "prompt");
  expect_error(*complete(R"("prompt":"","add_special_tokens":false)"), 400, "prompt");
}

TEST_F(GenerationTest, CompletionEchoAndLogprobs) {
  const auto answer = complete(R"("prompt":"Hi","echo":true,"logprobs":1,"max_tokens":2)");
  EXPECT_EQ(router_.request(0)->prompt_logprobs, 1);
  TokenEvent event;
  event.kind = TokenEvent::Kind::kPromptLogprobs;
  event.prompt = {{'H', -1.5f}, {'i', -2.5f}};
  event.prompt_top = {{{'H', -1.5f}}, {{'o', -0.5f}}};
  router_.emit(0, event);
  router_.token(0, '!', -0.75f, {{'!', -0.75f}});
  give(answer, 0, "", FinishReason::kLength);
  const auto json = answer->json();
  const auto& choice = json["choices"][0];
  EXPECT_EQ(choice["text"], "Hi!");
  const auto& logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"], nlohmann::ordered_json({"", "H", "i", "!"}));
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["token_logprobs"][2], -2.5);
  EXPECT_EQ(logprobs["token_logprobs"][3], -0.75);
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["top_logprobs"][2]["o"], -0.5);
  EXPECT_EQ(logprobs["text_offset"], nlohmann::ordered_json({0, 0, 1, 2}));
}

TEST_F(GenerationTest, EchoOfThePromptAlone) {
  const auto answer = complete(R"("prompt":[72,105],"echo":true,"max_tokens":0)");
  EXPECT_EQ(router_.request(0)->max_tokens, 0);
  give(answer, 0, "", FinishReason::kLength);
  EXPECT_EQ(answer->json()["choices"][0]["text"], "Hi");
  EXPECT_EQ(answer->json()["usage"]["completion_tokens"], 0);
}

TEST_F(GenerationTest, ReturnTokenIds) {
  auto answer = chat(R"("return_token_ids":true)");
  give(answer, 0, "ab");
  EXPECT_EQ(answer->json()["choices"][0]["token_ids"], nlohmann::ordered_json({'a', 'b'}));
  EXPECT_EQ(answer->json()["prompt_token_ids"].size(), router_.request(0)->prompt.size());
  answer = complete(R"("prompt":"x","return_token_ids":true)");
  give(answer, 1, "ab");
  EXPECT_EQ(answer->json()["choices"][0]["token_ids"], nlohmann::ordered_json({'a', 'b'}));
  EXPECT_EQ(answer->json()["choices"][0]["prompt_token_ids"],
            nlohmann::ordered_json({int{kBos}, 'x'}));
}

TEST_F(GenerationTest, PromptsThatDoNotFit) {
  engine_.context = 20;
  expect_error(*chat(""), 400, "messages", "20 tokens");
  engine_.context = 24;
  chat("");
  EXPECT_EQ(router_.request(0)->max_tokens, 4);
  expect_error(*chat(R"("max_tokens":5)"), 400, "max_tokens", "25 tokens");
  expect_error(*chat(R"("max_completion_tokens":5)"), 400, "max_completion_tokens", "24 tokens");
  expect_error(*chat(R"("min_tokens":5)"), 400, "min_tokens");
  const auto answer = chat(R"("max_tokens":5,"stream":true)");
  expect_error(*answer, 400, "max_tokens", "20 of the prompt and 5");
  EXPECT_EQ(answer->json()["error"]["code"], "context_length_exceeded");
}

TEST_F(GenerationTest, TokenIdsBeyondTheVocabulary) {
  expect_error(*chat(R"("logit_bias":{"260":1})"), 400, "logit_bias", "259");
  expect_error(*chat(R"("stop_token_ids":[260])"), 400, "stop_token_ids", "259");
}

TEST_F(GenerationTest, UnknownModel) {
  const auto answer = chat(R"("model":"nobody")");
  expect_error(*answer, 404, "model", "math");
  EXPECT_EQ(answer->json()["error"]["code"], "model_not_found");
}

TEST_F(GenerationTest, RefusalsOfTheRouter) {
  router_.refuse(resource_exhausted("the queue is full"));
  const auto busy = chat("");
  expect_error(*busy, 429, "", "queue is full");
  ASSERT_NE(busy->header("Retry-After"), nullptr);
  router_.refuse(resource_exhausted("the queue is full").with_retry_after(7));
  const auto busier = chat("");
  ASSERT_NE(busier->header("Retry-After"), nullptr);
  EXPECT_EQ(*busier->header("Retry-After"), "7");
  router_.refuse(unavailable("shutting down"));
  expect_error(*chat(R"("stream":true)"), 503, "", "shutting down");
  router_.refuse(invalid_argument("too strange"));
  expect_error(*chat(""), 400, "", "too strange");
}

TEST_F(GenerationTest, WhenOneChoiceIsRefusedTheOthersAreCancelled) {
  router_.refuse(resource_exhausted("full"), 2);
  const auto answer = chat(R"("n":3)");
  expect_error(*answer, 429, "");
  EXPECT_EQ(router_.cancelled(), (std::vector<size_t>{0, 1}));
  router_.finish(0, FinishReason::kCancelled);
  router_.finish(1, FinishReason::kCancelled);
  answer->pump();
  EXPECT_EQ(answer->sends, 1);
}

TEST_F(GenerationTest, ErrorsOfTheEngine) {
  auto answer = chat(R"("n":2)");
  router_.finish(0, FinishReason::kError, 0, unavailable("variant 'x' cannot be loaded"));
  answer->pump();
  expect_error(*answer, 503, "", "cannot be loaded");
  EXPECT_EQ(router_.cancelled(), (std::vector<size_t>{1}));
  answer = chat("");
  router_.finish(2, FinishReason::kCancelled);
  answer->pump();
  expect_error(*answer, 503, "");
  answer = chat("");
  router_.finish(3, FinishReason::kError, 0, internal_error("a kernel failed"));
  answer->pump();
  expect_error(*answer, 500, "", "a kernel failed");
}

TEST_F(GenerationTest, DepartureCancelsAllChoices) {
  for (const char* fields : {R"("n":2)", R"("n":2,"stream":true)"}) {
    const size_t before = router_.count(), cancelled = router_.cancelled().size();
    const auto answer = chat(fields);
    router_.token(before, 'a');
    answer->pump();
    answer->leave();
    EXPECT_EQ(router_.cancelled().size(), cancelled + 2);
    router_.finish(before, FinishReason::kCancelled);
    router_.finish(before + 1, FinishReason::kCancelled);
    answer->pump();
    EXPECT_EQ(answer->sends, 0);
    EXPECT_EQ(answer->stream.find("[DONE]"), std::string::npos);
  }
}

TEST_F(GenerationTest, DepartureWhileALargeBodyIsParsed) {
  auto answer = std::make_shared<Answer>();
  answer->gone = true;
  HttpRequest request;
  request.method = "POST";
  request.target = "/v1/completions";
  request.body = R"({"prompt":")" + std::string(400, 'x') + R"(","user":")" +
                 std::string(100'000, 'u') + "\"}";
  api_.handle(std::move(request), std::make_shared<FakeExchange>(answer));
  EXPECT_EQ(router_.count(), 0u);  // not yet: it is parsed aside
  answer->pump();
  EXPECT_EQ(router_.cancelled(), (std::vector<size_t>{0}));
}

TEST_F(GenerationTest, TemplateErrorsAreBadRequests) {
  expect_error(
      *post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"forbidden"}]})"), 400,
      "messages", "line 7");
  expect_error(*post("/v1/chat/completions",
                     R"({"stream":true,"messages":[{"role":"user","content":"forbidden"}]})"),
               400, "messages", "line 7");
}

TEST_F(GenerationTest, HostileBodies) {
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += R"({"a":)";
  expect_error(*post("/v1/chat/completions", deep), 400, "");
  expect_error(*post("/v1/completions", "{\"prompt\":\"\xff\xfe\"}"), 400, "");
  expect_error(*post("/v1/completions", ""), 400, "");
  expect_error(*post("/v1/completions", "null"), 400, "");
  EXPECT_EQ(router_.count(), 0u);
}

}  // namespace
}  // namespace deltad::testing
