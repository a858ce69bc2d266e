// One answer from its bytes to the verdict, at times that the test sets.
#include "loadgen/exchange.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deltad::loadgen {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const std::string kUsage =
    R"({"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}})";
const std::string kFinish = R"({"choices":[{"index":0,"delta":{},"finish_reason":"length"}]})";
const std::string kEnd = "0\r\n\r\n";

std::string chunk(const std::string& data) {
  return fmt::format("{:x}\r\n{}\r\n", data.size(), data);
}
std::string event(const std::string& data) { return chunk("data: " + data + "\n\n"); }
std::string token(const std::string& text) {
  return event(fmt::format(
      R"({{"choices":[{{"index":0,"delta":{{"content":"{}"}},"finish_reason":null}}]}})", text));
}
std::string whole(int status, const std::string& body) {
  return fmt::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\n\r\n{}", status, body.size(), body);
}

class ExchangeTest : public ::testing::Test {
 protected:
  TimePoint at(int ms) const { return TimePoint{} + milliseconds(1000 + ms); }
  Exchange exchange(bool streamed, int64_t max_tokens = 4, bool all = false) {
    RequestRecord record;
    record.model = "m";
    record.scheduled = record.sent = at(0);
    return Exchange(std::move(record), {streamed, max_tokens, all}, parser_);
  }
  // The verdict on a whole answer.
  RequestRecord verdict(bool streamed, const std::string& bytes, int64_t max_tokens = 4,
                        bool all = false) {
    Exchange e = exchange(streamed, max_tokens, all);
    const bool ended = e.push(bytes, at(5)) || e.closed(at(6));
    EXPECT_TRUE(ended);
    return e.record();
  }
  simdjson::dom::parser parser_;
};

TEST_F(ExchangeTest, TimesOfAStreamAreThoseOfItsTokens) {
  Exchange e = exchange(true);
  EXPECT_FALSE(e.begun());
  // The role comes first and is no token.
  EXPECT_FALSE(e.push(
      kStreamHead + event(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})"), at(10)));
  EXPECT_TRUE(e.begun());
  EXPECT_FALSE(e.push(token("a"), at(20)));
  EXPECT_FALSE(e.push(token("b"), at(50)));
  EXPECT_FALSE(e.push(token("cd"), at(55)));
  EXPECT_FALSE(e.push(event(kFinish) + event(kUsage), at(60)));
  EXPECT_FALSE(e.push(event("[DONE]"), at(61)));
  EXPECT_TRUE(e.push(kEnd, at(70)));
  EXPECT_TRUE(e.reusable());
  const RequestRecord& r = e.record();
  EXPECT_EQ(r.outcome, Outcome::kOk) << r.detail;
  EXPECT_EQ(r.first, at(20));
  EXPECT_EQ(r.end, at(61));
  EXPECT_THAT(r.gaps, ElementsAre(30, 5));
  EXPECT_EQ(r.prompt_tokens, 3);
  EXPECT_EQ(r.completion_tokens, 4);
}

TEST_F(ExchangeTest, CompletionsAndWholeAnswersAreRead) {
  const std::string usage = R"("usage":{"prompt_tokens":3,"completion_tokens":4})";
  EXPECT_EQ(
      verdict(true, kStreamHead + event(R"({"choices":[{"text":"a","finish_reason":null}]})") +
                        event(R"({"choices":[{"text":"","finish_reason":"stop"}],)" + usage + "}") +
                        event("[DONE]") + kEnd)
          .detail,
      "");
  for (const char* choice : {R"({"text":"x","finish_reason":"stop"})",
                             R"({"message":{"content":"x"},"finish_reason":"stop"})"}) {
    const RequestRecord r =
        verdict(false, whole(200, fmt::format(R"({{"choices":[{}],{}}})", choice, usage)));
    EXPECT_EQ(r.outcome, Outcome::kOk) << r.detail;
    EXPECT_EQ(r.end, at(5));
    EXPECT_EQ(r.completion_tokens, 4);
  }
}

TEST_F(ExchangeTest, AnAnswerWithoutVisibleTextHasItsFirstTokenAtTheEnd) {
  const RequestRecord r =
      verdict(true, kStreamHead + event(kFinish) + event(kUsage) + event("[DONE]") + kEnd);
  EXPECT_EQ(r.outcome, Outcome::kOk) << r.detail;
  EXPECT_EQ(r.first, at(5));
  EXPECT_TRUE(r.gaps.empty());
}

TEST_F(ExchangeTest, WhatIsNotAWholeStreamIsMalformed) {
  const std::string good = token("a") + event(kFinish) + event(kUsage);
  const std::pair<std::string, const char*> cases[] = {
      {good + kEnd, "without [DONE]"},
      {good + event("[DONE]") + event("[DONE]") + kEnd, "goes on after [DONE]"},
      {good + event("[DONE]") + chunk("data: x") + kEnd, "inside an event"},
      {token("a") + event(kUsage) + event("[DONE]") + kEnd, "no finish_reason"},
      {token("a") + event(kFinish) + event("[DONE]") + kEnd, "no usage"},
      {event(kFinish) + token("a"), "after its finish_reason"},
      {event("{nonsense"), "not JSON"},
      {event("[]"), "an object was expected"},
      {event(R"({"id":"x"})"), "choices is missing"},
      {event(R"({"choices":[5]})"), "choices[] is a number"},
      {event(R"({"choices":[],"usage":{"prompt_tokens":1}})"), "completion_tokens is missing"},
      {"zz\r\n", "a chunk's size"},
  };
  for (const auto& [bytes, why] : cases) {
    const RequestRecord r = verdict(true, kStreamHead + bytes);
    EXPECT_EQ(r.outcome, Outcome::kMalformed) << bytes;
    EXPECT_EQ(r.error, "malformed");
    EXPECT_THAT(r.detail, HasSubstr(why)) << bytes;
  }
  EXPECT_THAT(verdict(true, "SSH-2.0-OpenSSH_9.2\r\n").detail,
              HasSubstr("not an HTTP/1.1 response"));
  EXPECT_THAT(verdict(true, whole(200, "{}")).detail, HasSubstr("inside an event"));
}

TEST_F(ExchangeTest, TokenCountsMustBePossible) {
  const auto answer = [](int prompt, int completion) {
    return whole(200, fmt::format(R"({{"choices":[{{"text":"x","finish_reason":"stop"}}],"usage":)"
                                  R"({{"prompt_tokens":{},"completion_tokens":{}}}}})",
                                  prompt, completion));
  };
  EXPECT_EQ(verdict(false, answer(3, 4), 4, true).outcome, Outcome::kOk);
  EXPECT_EQ(verdict(false, answer(3, 2), 4).outcome, Outcome::kOk);
  EXPECT_THAT(verdict(false, answer(3, 5), 4).detail, HasSubstr("5 completion tokens, at most 4"));
  EXPECT_THAT(verdict(false, answer(3, 3), 4, true).detail,
              HasSubstr("3 completion tokens, 4 were"));
  EXPECT_THAT(verdict(false, answer(0, 3), 4).detail, HasSubstr("0 prompt"));
  EXPECT_THAT(verdict(false, answer(3, -1), 4).detail, HasSubstr("-1 completion"));
}

TEST_F(ExchangeTest, StatusesAreCountedByTheirNumber) {
  const std::string body = R"({"error":{"message":"too many waiting"}})";
  for (const int status : {429, 503}) {
    const RequestRecord r = verdict(true, whole(status, body));
    EXPECT_EQ(r.outcome, Outcome::kRefused);
    EXPECT_EQ(r.error, std::to_string(status));
    EXPECT_EQ(r.detail, "too many waiting");
  }
  for (const int status : {400, 404, 500}) {
    EXPECT_EQ(verdict(false, whole(status, "plain")).outcome, Outcome::kHttpError);
    EXPECT_EQ(verdict(false, whole(status, "plain")).detail, "plain");
  }
}

TEST_F(ExchangeTest, AnErrorInsideAnAnswerIsTheServers) {
  const std::string error = R"({"error":{"message":"out of memory"}})";
  for (const RequestRecord& r : {verdict(true, kStreamHead + token("a") + event(error)),
                                 verdict(false, whole(200, error))}) {
    EXPECT_EQ(r.outcome, Outcome::kServerError);
    EXPECT_EQ(r.error, "error in answer");
    EXPECT_EQ(r.detail, "out of memory");
  }
}

TEST_F(ExchangeTest, ClosingBeforeTheEndLosesTheAnswer) {
  const std::string all =
      kStreamHead + token("a") + event(kFinish) + event(kUsage) + event("[DONE]") + kEnd;
  for (size_t cut = 0; cut < all.size(); ++cut) {
    Exchange e = exchange(true);
    ASSERT_FALSE(e.push(all.substr(0, cut), at(5)));
    ASSERT_TRUE(e.closed(at(6)));
    EXPECT_EQ(e.record().outcome, Outcome::kLost) << cut;
    EXPECT_FALSE(e.reusable());
  }
  EXPECT_EQ(verdict(true, all).outcome, Outcome::kOk);
}

}  // namespace
}  // namespace deltad::loadgen
