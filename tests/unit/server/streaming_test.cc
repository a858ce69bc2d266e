// Streamed answers: the order and form of chunks.
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/unit/server/api_fixture.h"

namespace deltad::testing {
namespace {

using Chunks = std::vector<nlohmann::ordered_json>;

class StreamingTest : public ApiTest {
 protected:
  static std::string text_of(const Chunks& chunks, int index, bool is_chat) {
    std::string text;
    for (const auto& chunk : chunks) {
      for (const auto& choice : chunk["choices"]) {
        if (choice["index"] != index) continue;
        if (!is_chat) text += choice["text"].get<std::string>();
        if (is_chat) text += choice["delta"].value("content", "");
      }
    }
    return text;
  }
};

TEST_F(StreamingTest, ChatChunks) {
  const auto answer = chat(R"("stream":true,"model":"math")");
  EXPECT_FALSE(answer->streaming);  // nothing before the first token
  router_.token(0, kHello);
  answer->pump();
  EXPECT_TRUE(answer->streaming);
  EXPECT_EQ(answer->chunks().size(), 2u);  // the text is out as soon as it is there
  give(answer, 0, "!");
  ASSERT_TRUE(answer->finished);
  EXPECT_FALSE(answer->closed);
  EXPECT_EQ(*answer->header("Content-Type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(*answer->header("Cache-Control"), "no-cache");
  EXPECT_NE(answer->header("X-Request-Id"), nullptr);

  EXPECT_EQ(answer->events().back(), "[DONE]");
  const Chunks chunks = answer->chunks();
  ASSERT_EQ(chunks.size(), 4u);
  for (const auto& chunk : chunks) {
    EXPECT_EQ(chunk["id"], chunks[0]["id"]);
    EXPECT_EQ(chunk["created"], chunks[0]["created"]);
    EXPECT_EQ(chunk["model"], "math");
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    EXPECT_FALSE(chunk.contains("usage"));
    EXPECT_EQ(chunk["choices"].size(), 1u);
  }
  EXPECT_EQ(chunks[0]["choices"][0]["delta"].dump(), R"({"role":"assistant","content":""})");
  EXPECT_TRUE(chunks[0]["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(chunks[1]["choices"][0]["delta"].dump(), R"({"content":"Hello"})");
  EXPECT_EQ(chunks[2]["choices"][0]["delta"].dump(), R"({"content":"!"})");
  EXPECT_EQ(chunks[3]["choices"][0]["delta"].dump(), "{}");
  EXPECT_EQ(chunks[3]["choices"][0]["finish_reason"], "stop");
}

TEST_F(StreamingTest, UsageOnlyIfAskedFor) {
  const auto answer = chat(R"("stream":true,"stream_options":{"include_usage":true})");
  give(answer, 0, "abc", FinishReason::kLength, 5);
  const Chunks chunks = answer->chunks();
  EXPECT_EQ(chunks.back()["choices"].dump(), "[]");
  EXPECT_EQ(chunks.back()["usage"]["completion_tokens"], 3);
  EXPECT_EQ(chunks.back()["usage"]["prompt_tokens_details"]["cached_tokens"], 5);
  EXPECT_EQ(chunks.back()["id"], chunks.front()["id"]);
  for (size_t i = 0; i + 1 < chunks.size(); ++i) EXPECT_FALSE(chunks[i].contains("usage"));
}

TEST_F(StreamingTest, ChoicesInterleave) {
  const auto answer = chat(R"("stream":true,"n":2)");
  router_.text(1, "b");
  router_.text(0, "a");
  router_.text(1, "B");
  give(answer, 1, "", FinishReason::kLength);
  give(answer, 0, "A", FinishReason::kStop);
  const Chunks chunks = answer->chunks();
  EXPECT_EQ(text_of(chunks, 0, true), "aA");
  EXPECT_EQ(text_of(chunks, 1, true), "bB");
  std::map<int, int> roles;
  std::map<int, std::string> finish;
  for (const auto& chunk : chunks) {
    const auto& choice = chunk["choices"][0];
    const int index = choice["index"];
    EXPECT_EQ(finish.count(index), 0u);  // nothing after the finish
    if (choice["delta"].contains("role")) ++roles[index];
    if (!choice["finish_reason"].is_null()) finish[index] = choice["finish_reason"];
  }
  EXPECT_EQ(roles, (std::map<int, int>{{0, 1}, {1, 1}}));
  EXPECT_EQ(finish, (std::map<int, std::string>{{0, "stop"}, {1, "length"}}));
  EXPECT_EQ(answer->events().back(), "[DONE]");
}

TEST_F(StreamingTest, HeldTextAndStopStrings) {
  const auto answer = chat(R"("stream":true,"stop":["END"])");
  router_.text(0, "a\xC3");
  answer->pump();
  EXPECT_EQ(text_of(answer->chunks(), 0, true), "a");
  router_.text(0,
               "\xA9"
               "EN");
  answer->pump();
  EXPECT_EQ(text_of(answer->chunks(), 0, true), "aé");
  router_.text(0, "xEN");
  answer->pump();
  EXPECT_EQ(text_of(answer->chunks(), 0, true), "aéENx");
  router_.text(0, "D");
  answer->pump();
  EXPECT_EQ(router_.cancelled(), (std::vector<size_t>{0}));
  // The finish is out before the engine has heard of the stop.
  EXPECT_EQ(answer->chunks().back()["choices"][0]["finish_reason"], "stop");
  router_.finish(0, FinishReason::kCancelled);
  answer->pump();
  EXPECT_EQ(text_of(answer->chunks(), 0, true), "aéENx");
  EXPECT_EQ(answer->events().back(), "[DONE]");
}

TEST_F(StreamingTest, StreamedEqualsUnstreamed) {
  const std::string text = "Déjà vu: €5 — ok END no";
  for (const char* options :
       {"", R"("stop":"END",)", R"("stop":["vu","zzz"],"include_stop_str_in_output":true,)"}) {
    const size_t first = router_.count();
    const auto whole = complete(std::string(options) + R"("prompt":"x","logprobs":0)");
    const auto streamed =
        complete(std::string(options) + R"("prompt":"x","logprobs":0,"stream":true)");
    for (size_t i = 0; i < 2; ++i) {
      give(i == 0 ? whole : streamed, first + i, text, FinishReason::kLength);
    }
    const auto json = whole->json()["choices"][0];
    const Chunks chunks = streamed->chunks();
    EXPECT_EQ(text_of(chunks, 0, false), json["text"]) << options;
    nlohmann::ordered_json tokens = nlohmann::ordered_json::array(), offsets = tokens;
    std::string joined;
    for (const auto& chunk : chunks) {
      const auto& logprobs = chunk["choices"][0]["logprobs"];
      if (logprobs.is_null()) continue;
      for (const auto& token : logprobs["tokens"]) {
        tokens.push_back(token);
        joined += token.get<std::string>();
      }
      for (const auto& offset : logprobs["text_offset"]) offsets.push_back(offset);
    }
    EXPECT_EQ(tokens, json["logprobs"]["tokens"]) << options;
    EXPECT_EQ(offsets, json["logprobs"]["text_offset"]) << options;
    EXPECT_EQ(joined, json["text"]) << options;
    EXPECT_EQ(chunks.back()["choices"][0]["finish_reason"], json["finish_reason"]) << options;
  }
}

TEST_F(StreamingTest, CompletionChunksWithEcho) {
  const auto answer = complete(R"("prompt":"Q:","stream":true,"echo":true)");
  give(answer, 0, "ab", FinishReason::kLength);
  const Chunks chunks = answer->chunks();
  ASSERT_EQ(chunks.size(), 4u);
  EXPECT_EQ(chunks[0]["object"], "text_completion");
  EXPECT_EQ(chunks[0]["choices"][0]["text"], "Q:");
  EXPECT_EQ(chunks[1]["choices"][0]["text"], "a");
  EXPECT_EQ(chunks[3]["choices"][0]["text"], "");
  EXPECT_EQ(chunks[3]["choices"][0]["finish_reason"], "length");
}

TEST_F(StreamingTest, TokenIds) {
  auto answer = chat(R"("stream":true,"return_token_ids":true)");
  give(answer, 0, "\xC3\xA9z");
  std::vector<int> ids;
  for (const auto& chunk : answer->chunks()) {
    const auto& choice = chunk["choices"][0];
    if (choice.contains("token_ids")) {
      for (const int id : choice["token_ids"]) ids.push_back(id);
    }
  }
  EXPECT_EQ(ids, (std::vector<int>{0xC3, 0xA9, 'z'}));
  EXPECT_EQ(answer->chunks()[0]["prompt_token_ids"].size(), router_.request(0)->prompt.size());
  EXPECT_FALSE(answer->chunks()[1].contains("prompt_token_ids"));

  answer = complete(R"("prompt":"x","stream":true,"return_token_ids":true)");
  give(answer, 1, "z");
  EXPECT_EQ(answer->chunks()[0]["choices"][0]["prompt_token_ids"],
            nlohmann::ordered_json({int{kBos}, 'x'}));
}

TEST_F(StreamingTest, TokenIdsDoNotWaitForText) {
  const auto answer = chat(R"("stream":true,"return_token_ids":true)");
  router_.token(0, 0xC3);  // half of a character
  answer->pump();
  ASSERT_EQ(answer->chunks().size(), 2u);
  const auto choice = answer->chunks()[1]["choices"][0];
  EXPECT_EQ(choice["token_ids"].dump(), "[195]");
  EXPECT_EQ(choice["delta"].value("content", ""), "");
  give(answer, 0, "\xA9");
  EXPECT_EQ(text_of(answer->chunks(), 0, true), "\xC3\xA9");
}

TEST_F(StreamingTest, ErrorBeforeTheFirstTokenIsAPlainStatus) {
  const auto answer = chat(R"("stream":true,"model":"org/poet")");
  router_.finish(0, FinishReason::kError, 0, unavailable("variant 'org/poet' cannot be loaded"));
  answer->pump();
  expect_error(*answer, 503, "", "cannot be loaded");
}

TEST_F(StreamingTest, ErrorAfterTheFirstTokenEndsTheStream) {
  const auto answer = chat(R"("stream":true,"n":2)");
  router_.text(0, "a");
  answer->pump();
  router_.finish(1, FinishReason::kError, 0, internal_error("a kernel failed"));
  router_.text(0, "b");
  router_.finish(0, FinishReason::kCancelled);
  answer->pump();
  EXPECT_EQ(router_.cancelled(), (std::vector<size_t>{0}));
  const auto events = answer->events();
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events.back(), "[DONE]");
  const auto error = nlohmann::ordered_json::parse(events[events.size() - 2]);
  EXPECT_EQ(error["error"]["type"], "server_error");
  EXPECT_TRUE(answer->finished);
  EXPECT_TRUE(answer->closed);
}

TEST_F(StreamingTest, AnEmptyAnswerIsStillAStream) {
  const auto answer = chat(R"("stream":true)");
  give(answer, 0, "");
  const Chunks chunks = answer->chunks();
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(chunks[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(chunks[1]["choices"][0]["finish_reason"], "stop");
}

TEST_F(StreamingTest, ChatLogprobsComeWithTheirText) {
  const auto answer = chat(R"("stream":true,"logprobs":true)");
  give(answer, 0,
       "a\xC3\xA9"
       "b");
  std::string from_tokens;
  size_t tokens = 0;
  for (const auto& chunk : answer->chunks()) {
    const auto& choice = chunk["choices"][0];
    std::string here;
    if (!choice["logprobs"].is_null()) {
      for (const auto& token : choice["logprobs"]["content"]) {
        here += token["token"].get<std::string>();
        ++tokens;
      }
    }
    EXPECT_EQ(here, choice["delta"].value("content", ""));
    from_tokens += here;
  }
  EXPECT_EQ(from_tokens, "aéb");
  EXPECT_EQ(tokens, 4u);
}

}  // namespace
}  // namespace deltad::testing
