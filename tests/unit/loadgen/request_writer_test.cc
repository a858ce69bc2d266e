// Where requests go and what they say.
#include "loadgen/request_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace deltad::loadgen {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

Json body_of(const std::string& request) {
  const size_t end = request.find("\r\n\r\n");
  const std::string body = request.substr(end + 4);
  EXPECT_THAT(request, HasSubstr("Content-Length: " + std::to_string(body.size()) + "\r\n"));
  return Json::parse(body);
}

TEST(RequestWriter, ChatRequestsAskForAStreamWithUsage) {
  RequestStyle style;
  style.api_key = "secret";
  style.extra = {{"temperature", 0.5}};
  RequestWriter writer({"h", "80", "/x", false}, style);
  const std::string request = writer.write({0, "m\"1", "Hi \xff", 0, 5});
  EXPECT_THAT(request, HasSubstr("POST /x/v1/chat/completions HTTP/1.1\r\nHost: h:80\r\n"));
  EXPECT_THAT(request, HasSubstr("Authorization: Bearer secret\r\n"));
  const Json body = body_of(request);
  EXPECT_EQ(body["model"], "m\"1");
  EXPECT_THAT(body["messages"][0]["content"], HasSubstr("Hi "));
  EXPECT_EQ(body["max_tokens"], 5);
  EXPECT_EQ(body["temperature"], 0.5);
  EXPECT_EQ(body["stream"], true);
  EXPECT_EQ(body["stream_options"]["include_usage"], true);
  EXPECT_FALSE(body.contains("ignore_eos"));
}

TEST(RequestWriter, CompletionsMayBeTokenIds) {
  RequestStyle style;
  style.chat = style.streamed = false;
  style.ignore_eos = true;
  style.prompt_ids = Range{5, 9};
  RequestWriter writer({"h", "80", "", false}, style);
  const std::string request = writer.write({0, "m", std::nullopt, 40, 5});
  EXPECT_THAT(request, HasSubstr("POST /v1/completions HTTP/1.1\r\n"));
  EXPECT_THAT(request, Not(HasSubstr("Authorization")));
  const Json body = body_of(request);
  ASSERT_EQ(body["prompt"].size(), 40u);
  for (const Json& id : body["prompt"]) {
    EXPECT_GE(id.get<int>(), 5);
    EXPECT_LE(id.get<int>(), 9);
  }
  EXPECT_EQ(body["ignore_eos"], true);
  EXPECT_FALSE(body.contains("stream"));
}

TEST(RequestWriter, MadeUpPromptsHaveTheirLengthAndDifferUnlessTheSeedIsTheSame) {
  const auto prompts = [](uint64_t seed) {
    RequestStyle style;
    style.chat = false;
    style.seed = seed;
    RequestWriter writer({"h", "80", "", false}, style);
    std::vector<std::string> prompts;
    for (int i = 0; i < 2; ++i) {
      prompts.push_back(body_of(writer.write({0, "m", std::nullopt, 30, 5}))["prompt"]);
    }
    return prompts;
  };
  const auto one = prompts(1);
  EXPECT_EQ(std::count(one[0].begin(), one[0].end(), ' '), 29);
  EXPECT_NE(one[0], one[1]);
  EXPECT_EQ(one, prompts(1));
  EXPECT_NE(one, prompts(2));
}

}  // namespace
}  // namespace deltad::loadgen
