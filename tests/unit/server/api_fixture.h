// The API over a fake router and exchanges without sockets.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "server/openai/api.h"
#include "tests/unit/server/fake_exchange.h"
#include "tests/unit/server/fake_router.h"
#include "tests/unit/server/sample_access.h"

namespace deltad::testing {

class ApiTest : public ::testing::Test {
 protected:
  ApiTest() : access_(open_access()), api_({}, *access_, observer_) { make_ready(); }

  void make_ready() {
    Serving serving;
    serving.request_seconds = 90;
    serving.router = &router_;
    serving.engine = &engine_;
    serving.base_path = "/models/base";
    serving.created = 1234;
    api_.set_ready(serving);
  }

  // Sends a request and runs what it posts.
  std::shared_ptr<Answer> ask(const std::string& method, const std::string& target,
                              std::string body = "", HttpHeaders headers = {}) {
    auto answer = std::make_shared<Answer>();
    HttpRequest request;
    request.method = method;
    request.target = target;
    request.headers = std::move(headers);
    request.body = std::move(body);
    request.received = Clock::real().now();
    api_.handle(std::move(request), std::make_shared<FakeExchange>(answer));
    answer->pump();
    return answer;
  }
  std::shared_ptr<Answer> post(const std::string& target, std::string body) {
    return ask("POST", target, std::move(body));
  }
  std::shared_ptr<Answer> chat(const std::string& fields) {
    return post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"Hi"}])" +
                                            (fields.empty() ? "" : "," + fields) + "}");
  }
  std::shared_ptr<Answer> complete(const std::string& fields) {
    return post("/v1/completions", "{" + fields + "}");
  }

  // Lets sequence `index` give the text and end.
  void give(const std::shared_ptr<Answer>& answer, size_t index, std::string_view text,
            FinishReason reason = FinishReason::kStop, int32_t cached = 0) {
    router_.text(index, text);
    router_.finish(index, reason, cached);
    answer->pump();
  }

  Observer observer_;  // outlives all that answers
  FakeRouter router_;
  FakeEngine engine_;
  const std::unique_ptr<Access> access_;
  OpenAiApi api_;
};

// An error in the form that all have.
inline void expect_error(const Answer& answer, int status, const std::string& param,
                         const std::string& message_part = "") {
  ASSERT_TRUE(answer.finished);
  EXPECT_EQ(answer.response.status, status) << answer.response.body;
  ASSERT_FALSE(answer.streaming);
  const auto json = answer.json();
  ASSERT_EQ(json.size(), 1u);
  const auto& error = json.at("error");
  ASSERT_EQ(error.size(), 4u) << error;
  EXPECT_TRUE(error.at("message").is_string());
  EXPECT_TRUE(error.at("type").is_string());
  EXPECT_TRUE(error.contains("code"));
  EXPECT_EQ(error.at("param"),
            param.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(param))
      << error;
  EXPECT_NE(error.at("message").get<std::string>().find(message_part), std::string::npos) << error;
}

}  // namespace deltad::testing
