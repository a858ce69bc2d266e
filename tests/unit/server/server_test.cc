// The API behind real sockets.
#include <string>
#include <thread>
#include <vector>

#include "server/http/http_server.h"
#include "tests/unit/server/api_fixture.h"
#include "tests/unit/server/raw_client.h"

namespace deltad::testing {
namespace {

class ServerTest : public ApiTest {
 protected:
  ServerTest() {
    HttpOptions options;
    options.listen = "127.0.0.1:0";
    options.body_bytes = 100'000;
    auto server = HttpServer::start(options, api_);
    CHECK(server.ok(), "the server starts");
    server_ = std::move(*server);
  }
  static std::string request(const std::string& path, const std::string& body) {
    return "POST " + path +
           " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
           body;
  }
  static std::string chat_request(const std::string& fields) {
    return request("/v1/chat/completions",
                   R"({"messages":[{"role":"user","content":"Hi"}])" + fields + "}");
  }

  std::unique_ptr<HttpServer> server_;
};

TEST_F(ServerTest, StreamsTokensFromAnotherThread) {
  RawClient client(server_->port());
  ASSERT_TRUE(client.send(chat_request(R"(,"stream":true)")));
  ASSERT_TRUE(router_.wait_submitted(1));
  std::thread engine([this] {
    router_.text(0, "abc");
    router_.finish(0, FinishReason::kStop);
  });
  EXPECT_TRUE(client.read_until("data: [DONE]\n\n\r\n0\r\n\r\n"));
  engine.join();
  EXPECT_NE(client.received().find(R"("delta":{"content":"b"})"), std::string::npos);
}

TEST_F(ServerTest, DepartureCancels) {
  for (const char* fields : {"", R"(,"stream":true)"}) {
    const size_t before = router_.count(), cancelled = router_.cancelled().size();
    {
      RawClient client(server_->port());
      ASSERT_TRUE(client.send(chat_request(fields)));
      ASSERT_TRUE(router_.wait_submitted(before + 1));
    }
    EXPECT_TRUE(router_.wait_cancelled(cancelled + 1));
    router_.finish(before, FinishReason::kCancelled);
  }
}

TEST_F(ServerTest, ErrorsBeforeTheApiHaveItsForm) {
  RawClient client(server_->port());
  client.send(request("/v1/chat/completions", std::string(200'000, ' ')));
  const std::string response = client.read_response();
  EXPECT_EQ(response.substr(0, 12), "HTTP/1.1 413");
  EXPECT_NE(response.find(R"({"error":{"message":)"), std::string::npos);
  EXPECT_NE(response.find("X-Request-Id: "), std::string::npos);
}

TEST_F(ServerTest, LargeBodiesAreParsedAside) {
  RawClient client(server_->port());
  ASSERT_TRUE(
      client.send(request("/v1/completions", R"({"prompt":")" + std::string(90'000, 'x') + "\"}")));
  const std::string response = client.read_response();
  EXPECT_EQ(response.substr(0, 12), "HTTP/1.1 400");
  EXPECT_NE(response.find("90001 tokens"), std::string::npos);
}

TEST_F(ServerTest, ManyStreamsAtOnce) {
  constexpr size_t kStreams = 64;
  std::vector<std::unique_ptr<RawClient>> clients;
  for (size_t i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<RawClient>(server_->port()));
    ASSERT_TRUE(clients.back()->send(
        request("/v1/completions", R"({"stream":true,"prompt":")" + std::to_string(i) + "\"}")));
  }
  ASSERT_TRUE(router_.wait_submitted(kStreams));
  std::thread engine([this] {
    for (int step = 0; step < 20; ++step) {
      for (size_t i = 0; i < kStreams; ++i) router_.token(i, 'a' + step);
    }
    for (size_t i = 0; i < kStreams; ++i) router_.finish(i, FinishReason::kLength);
  });
  for (auto& client : clients) {
    ASSERT_TRUE(client->read_until("[DONE]"));
    size_t at = 0;
    for (char c = 'a'; c < 'a' + 20; ++c) {
      at = client->received().find(std::string("\"text\":\"") + c + "\"", at);
      ASSERT_NE(at, std::string::npos) << c;
    }
  }
  engine.join();
}

}  // namespace
}  // namespace deltad::testing
