// Streamed answers of the HTTP layer over loopback, and clients that leave or do not read.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/server/http_server_fixture.h"

namespace deltad::testing {
namespace {

using HttpStreamsTest = HttpServerTest;

TEST_F(HttpStreamsTest, StreamsArriveAsTheyArePushed) {
  start();
  RawClient client(server_->port());
  ASSERT_TRUE(client.send(get("/wait")));
  const auto exchange = handler_.next();
  HttpResponse head;
  head.headers = {{"Content-Type", "text/event-stream"}};
  exchange->begin_stream(head);
  std::atomic<int> written{0};
  for (const std::string part : {"data: 1\n\n", "data: 2\n\n"}) {
    exchange->push(part, [&written] { ++written; });
    EXPECT_TRUE(client.read_until("9\r\n" + part + "\r\n"));
  }
  EXPECT_TRUE(eventually([&] { return written == 2; }));
  EXPECT_NE(client.received().find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  exchange->finish();
  EXPECT_TRUE(client.read_until("\r\n0\r\n\r\n"));
  EXPECT_EQ(server_->connections(), 1u);  // and goes on
}

TEST_F(HttpStreamsTest, PushesFromManyThreadsKeepTheirOrder) {
  start();
  RawClient client(server_->port());
  ASSERT_TRUE(client.send(get("/wait")));
  const auto exchange = handler_.next();
  exchange->begin_stream({});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&exchange, t] {
      for (int i = 0; i < 100; ++i) exchange->push("<" + std::to_string(t * 1000 + i) + ">");
    });
  }
  for (std::thread& thread : threads) thread.join();
  exchange->finish(true);
  EXPECT_TRUE(client.read_to_end());
  for (int t = 0; t < 4; ++t) {
    size_t at = 0;
    for (int i = 0; i < 100; ++i) {
      at = client.received().find("<" + std::to_string(t * 1000 + i) + ">", at);
      ASSERT_NE(at, std::string::npos) << t << " " << i;
    }
  }
}

TEST_F(HttpStreamsTest, DepartureIsSeenWhileWaiting) {
  start();
  std::shared_ptr<Exchange> exchange;
  {
    RawClient client(server_->port());
    ASSERT_TRUE(client.send(post("/wait", "body")));
    exchange = handler_.next();
    ASSERT_NE(exchange, nullptr);
    EXPECT_EQ(server_->exchanges(), 1u);
  }
  EXPECT_TRUE(handler_.wait_gone(1));
  EXPECT_TRUE(server_->wait_idle(Clock::real().now() + std::chrono::seconds(60)));
}

TEST_F(HttpStreamsTest, DepartureIsSeenBehindManyPipelinedBytes) {
  start();
  std::shared_ptr<Exchange> exchange;
  {
    RawClient client(server_->port());
    ASSERT_TRUE(client.send(get("/wait")));
    exchange = handler_.next();
    ASSERT_NE(exchange, nullptr);
    for (int i = 0; i < 4000; ++i) ASSERT_TRUE(client.send(get("/echo")));
  }
  EXPECT_TRUE(handler_.wait_gone(1));
}

TEST_F(HttpStreamsTest, DepartureIsSeenWhileStreaming) {
  start();
  std::shared_ptr<Exchange> exchange;
  {
    RawClient client(server_->port());
    ASSERT_TRUE(client.send(get("/wait")));
    exchange = handler_.next();
    exchange->begin_stream({});
    exchange->push("first");
    ASSERT_TRUE(client.read_until("first"));
  }
  EXPECT_TRUE(handler_.wait_gone(1));
  exchange->push("nobody reads this");
  exchange->finish();
}

TEST_F(HttpStreamsTest, DepartureAfterTheAnswerIsNone) {
  start();
  {
    RawClient client(server_->port());
    ASSERT_TRUE(client.send(get("/wait")));
    handler_.next()->send({});
    ASSERT_NE(client.read_response(), "");
  }
  EXPECT_TRUE(eventually([this] { return server_->connections() == 0; }));
  EXPECT_EQ(handler_.gone(), 0);
}

TEST_F(HttpStreamsTest, ReadersThatDoNotReadAreCut) {
  options_.stream_bytes = 100'000;
  start();
  RawClient client(server_->port(), 4096);
  ASSERT_TRUE(client.send(get("/wait")));
  const auto exchange = handler_.next();
  exchange->begin_stream({});
  const std::string part(10'000, 'x');
  int pushed = 0;
  while (handler_.gone() == 0 && pushed < 100'000) {
    exchange->push(part);
    ++pushed;
    if (pushed % 10 == 0) std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(handler_.wait_gone(1));
  EXPECT_TRUE(eventually([this] { return server_->connections() == 0; }));
}

TEST_F(HttpStreamsTest, StalledWritesTimeOut) {
  options_.write_timeout = milliseconds(100);
  start();
  RawClient client(server_->port(), 4096);
  ASSERT_TRUE(client.send(get("/wait")));
  HttpResponse response;
  response.body = std::string(64u << 20, 'x');
  handler_.next()->send(std::move(response));
  EXPECT_TRUE(eventually([this] { return server_->connections() == 0; }));
  EXPECT_EQ(handler_.gone(), 0);  // its answer was given; there is nothing to cancel
}

TEST_F(HttpStreamsTest, AnExchangeThatIsDroppedAnswers500) {
  start();
  RawClient client(server_->port());
  ASSERT_TRUE(client.send(get("/drop")));
  EXPECT_EQ(client.read_response().substr(0, 12), "HTTP/1.1 500");
}

}  // namespace
}  // namespace deltad::testing
