// The HTTP layer over loopback, with a handler that the test controls.
#include "server/http/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/server/raw_client.h"

namespace deltad::testing {
namespace {

using std::chrono::milliseconds;

// Answers "/echo" at once with the body; keeps the exchanges of other paths for the test.
class KeepingHandler final : public HttpHandler {
 public:
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override {
    if (request.target == "/drop") return;
    if (request.target == "/echo") {
      HttpResponse response;
      response.headers = {{"Content-Type", "text/plain"}, {"X-Method", request.method}};
      response.body = request.body;
      exchange->send(std::move(response));
      return;
    }
    exchange->on_disconnect([this] {
      const std::lock_guard lock(mutex_);
      ++gone_;
      changed_.notify_all();
    });
    const std::lock_guard lock(mutex_);
    requests_.push_back(std::move(request));
    exchanges_.push_back(std::move(exchange));
    changed_.notify_all();
  }
  HttpResponse reject(const HttpRequest& partial, int status, const std::string&) override {
    HttpResponse response;
    response.status = status;
    const std::string* name = partial.header("x-name");
    response.body = "refused " + (name != nullptr ? *name : std::string());
    return response;
  }

  std::shared_ptr<Exchange> next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(60),
                           [this] { return !exchanges_.empty(); })) {
      return nullptr;
    }
    auto exchange = std::move(exchanges_.front());
    exchanges_.pop_front();
    return exchange;
  }
  HttpRequest last_request() {
    const std::lock_guard lock(mutex_);
    return requests_.back();
  }
  bool wait_gone(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return gone_ >= count; });
  }
  int gone() {
    const std::lock_guard lock(mutex_);
    return gone_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Exchange>> exchanges_;
  std::vector<HttpRequest> requests_;
  int gone_ = 0;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void start() {
    options_.listen = "127.0.0.1:0";
    auto server = HttpServer::start(options_, handler_);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
  }
  static std::string get(const std::string& path, const std::string& headers = "") {
    return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n";
  }
  static std::string post(const std::string& path, const std::string& body,
                          const std::string& headers = "") {
    return "POST " + path +
           " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
           headers + "\r\n" + body;
  }
  template <typename Condition>
  static bool eventually(Condition condition) {
    const TimePoint deadline = Clock::real().now() + std::chrono::seconds(60);
    while (!condition()) {
      if (Clock::real().now() > deadline) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }

  HttpOptions options_;
  KeepingHandler handler_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, KeepsConnectionsAlive) {
  start();
  RawClient client(server_->port());
  for (const std::string body : {"one", "", "three"}) {
    ASSERT_TRUE(client.send(post("/echo", body)));
    const std::string response = client.read_response();
    EXPECT_EQ(response.substr(0, 17), "HTTP/1.1 200 OK\r\n");
    EXPECT_EQ(response.substr(response.find("\r\n\r\n") + 4), body);
    EXPECT_EQ(response.find("Connection:"), std::string::npos);
  }
  ASSERT_TRUE(client.send(get("/echo", "Connection: close\r\n")));
  EXPECT_TRUE(client.read_to_end());
  EXPECT_NE(client.received().find("Connection: close"), std::string::npos);
}

TEST_F(HttpServerTest, ADeadlineIsKeptByATimer) {
  start();
  RawClient client(server_->port());
  ASSERT_TRUE(client.send(get("/wait")));
  const auto exchange = handler_.next();
  ASSERT_NE(exchange, nullptr);
  exchange->on_deadline(Clock::real().now() + milliseconds(20), [exchange] {
    HttpResponse late;
    late.status = 504;
    exchange->send(std::move(late));
  });
  EXPECT_EQ(client.read_response().substr(0, 13), "HTTP/1.1 504 ");
  // Of an answer that was given in time it is not heard, also while the next one is being made.
  ASSERT_TRUE(client.send(get("/wait")));
  const auto second = handler_.next();
  ASSERT_NE(second, nullptr);
  std::atomic<bool> called = false;
  second->on_deadline(Clock::real().now() + milliseconds(20), [&called] { called = true; });
  second->send(HttpResponse());
  client.read_response();
  ASSERT_TRUE(client.send(get("/wait")));
  const auto third = handler_.next();
  ASSERT_NE(third, nullptr);
  std::atomic<bool> later = false;
  third->on_deadline(Clock::real().now() + milliseconds(40), [&later] { later = true; });
  EXPECT_TRUE(eventually([&] { return later.load(); }));
  EXPECT_FALSE(called);
}

TEST_F(HttpServerTest, OldClients) {
  start();
  RawClient client(server_->port());
  ASSERT_TRUE(client.send("GET /echo HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(client.read_to_end());
  EXPECT_EQ(client.received().substr(0, 13), "HTTP/1.0 200 ");

  RawClient stream(server_->port());
  ASSERT_TRUE(stream.send("GET /wait HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
  const auto exchange = handler_.next();
  exchange->begin_stream({});
  exchange->push("data");
  exchange->finish();
  EXPECT_TRUE(stream.read_to_end());  // the end of the body is the end of the connection
  EXPECT_EQ(stream.received().find("chunked"), std::string::npos);
  EXPECT_EQ(stream.received().substr(stream.received().size() - 8), "\r\n\r\ndata");
}

TEST_F(HttpServerTest, HeadersAndTarget) {
  start();
  RawClient client(server_->port());
  ASSERT_TRUE(client.send(get("/a%20b?q=1", "X-Name:  value \r\nx-name: second\r\n")));
  const auto exchange = handler_.next();
  const HttpRequest request = handler_.last_request();
  EXPECT_EQ(request.target, "/a%20b?q=1");
  EXPECT_EQ(*request.header("x-name"), "value");
  EXPECT_EQ(request.header("absent"), nullptr);
  EXPECT_GT(request.received, TimePoint{});
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  start();
  RawClient client(server_->port());
  ASSERT_TRUE(client.send("HEAD /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"));
  const std::string response = client.read_response(false);
  EXPECT_NE(response.find("Content-Length: 4"), std::string::npos);
  ASSERT_TRUE(client.send(get("/echo")));
  EXPECT_EQ(client.read_response().substr(0, 12), "HTTP/1.1 200");  // nothing was in between
}

TEST_F(HttpServerTest, ChunkedBodies) {
  start();
  RawClient client(server_->port());
  ASSERT_TRUE(
      client.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "5\r\nHello\r\n7;ext=1\r\n, world\r\n0\r\nTrailer: x\r\n\r\n"));
  const std::string response = client.read_response();
  EXPECT_EQ(response.substr(response.find("\r\n\r\n") + 4), "Hello, world");
}

TEST_F(HttpServerTest, BodiesInPieces) {
  start();
  RawClient client(server_->port());
  const std::string request = post("/echo", "slowly");
  for (const char c : request) ASSERT_TRUE(client.send(std::string_view(&c, 1)));
  const std::string response = client.read_response();
  EXPECT_EQ(response.substr(response.find("\r\n\r\n") + 4), "slowly");
}

TEST_F(HttpServerTest, ExpectContinue) {
  start();
  RawClient client(server_->port());
  ASSERT_TRUE(
      client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
                  "Expect: 100-continue\r\n\r\n"));
  ASSERT_TRUE(client.read_until("HTTP/1.1 100 Continue\r\n\r\n"));
  EXPECT_EQ(client.received().size(), 25u);
  ASSERT_TRUE(client.send("body"));
  EXPECT_TRUE(client.read_until("\r\n\r\nbody"));
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  start();
  RawClient client(server_->port());
  const std::string large(200'000, 'z');
  ASSERT_TRUE(client.send(get("/wait") + post("/echo", "second")));
  const auto exchange = handler_.next();
  ASSERT_TRUE(client.send(post("/echo", large)));
  HttpResponse response;
  response.body = "first";
  exchange->send(response);
  for (const std::string& body : {std::string("first"), std::string("second"), large}) {
    const std::string got = client.read_response();
    EXPECT_EQ(got.substr(got.find("\r\n\r\n") + 4), body);
  }
  EXPECT_EQ(handler_.gone(), 0);
}

TEST_F(HttpServerTest, BodyOverTheLimit) {
  options_.body_bytes = 1000;
  start();
  {
    RawClient client(server_->port());
    ASSERT_TRUE(client.send(post("/echo", std::string(1000, 'x'))));
    EXPECT_EQ(client.read_response().substr(0, 12), "HTTP/1.1 200");
  }
  {  // A client that sends all of it before it reads must still see the answer.
    RawClient client(server_->port());
    client.send(post("/echo", std::string(10'000'000, 'x'), "X-Name: big\r\n"));
    EXPECT_TRUE(client.read_to_end());
    EXPECT_EQ(client.received().substr(0, 12), "HTTP/1.1 413");
    EXPECT_NE(client.received().find("refused big"), std::string::npos);
  }
  {
    RawClient client(server_->port());
    ASSERT_TRUE(client.send("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" +
                            std::string(1001, 'x')));
    EXPECT_TRUE(client.read_to_end());
    EXPECT_EQ(client.received().substr(0, 12), "HTTP/1.1 413");
  }
  {  // Refused before the body is sent.
    RawClient client(server_->port());
    ASSERT_TRUE(
        client.send("POST /echo HTTP/1.1\r\nContent-Length: 99999\r\n"
                    "Expect: 100-continue\r\n\r\n"));
    EXPECT_EQ(client.read_response().substr(0, 12), "HTTP/1.1 413");
  }
  {
    RawClient client(server_->port());
    ASSERT_TRUE(client.send("POST /echo HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n"));
    EXPECT_TRUE(client.read_to_end());
    EXPECT_EQ(client.received().substr(0, 10), "HTTP/1.1 4");
  }
}

TEST_F(HttpServerTest, HeadersOverTheLimit) {
  options_.header_bytes = 4096;
  start();
  RawClient client(server_->port());
  client.send(get("/echo", "X: " + std::string(10'000, 'x') + "\r\n"));
  EXPECT_TRUE(client.read_to_end());
  EXPECT_EQ(client.received().substr(0, 12), "HTTP/1.1 431");
}

TEST_F(HttpServerTest, WhatIsNotHttp) {
  start();
  for (const std::string text :
       {"nonsense\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\r\n\r\n\r\n\r\n\x01",
        "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    RawClient client(server_->port());
    ASSERT_TRUE(client.send(text));
    EXPECT_TRUE(client.read_to_end()) << text;
    EXPECT_EQ(client.received().substr(0, 12), "HTTP/1.1 400") << text;
  }
  EXPECT_TRUE(eventually([this] { return server_->connections() == 0; }));
}

// What follows the refused request must not be taken for another one.
TEST_F(HttpServerTest, SmugglingIsRefusedAndTheConnectionClosed) {
  start();
  const std::string rest = get("/echo");
  for (const std::string headers :
       {"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: 0\r\nContent-Length: 0\r\n\r\n", "Transfer-Encoding: xchunked\r\n\r\n",
        "Transfer-Encoding: chunked, identity\r\n\r\n", "Content-Length : 0\r\n\r\n",
        "X: a\r\n b\r\n\r\n", "X: a\n\r\n", "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n 0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n0\n\n",
        "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n1\nX\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\nx\r\n0\r\n\r\n"}) {
    RawClient client(server_->port());
    ASSERT_TRUE(client.send("POST /echo HTTP/1.1\r\nHost: x\r\n" + headers + rest));
    EXPECT_TRUE(client.read_to_end()) << headers;
    EXPECT_EQ(client.received().substr(0, 13), "HTTP/1.1 400 ") << headers;
    EXPECT_EQ(client.received().find("HTTP/1.1", 1), std::string::npos) << headers;
    EXPECT_NE(client.received().find("Connection: close"), std::string::npos) << headers;
  }
}

TEST_F(HttpServerTest, TrailersAreNoHeaders) {
  start();
  RawClient client(server_->port());
  ASSERT_TRUE(client.send(
      "POST /keep HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: Authorization\r\n"
      "\r\n1\r\nx\r\n0\r\nAuthorization: Bearer late\r\n\r\n"));
  const auto exchange = handler_.next();
  ASSERT_NE(exchange, nullptr);
  EXPECT_EQ(handler_.last_request().header("authorization"), nullptr);
  EXPECT_EQ(handler_.last_request().body, "x");
  exchange->send({});
}

TEST_F(HttpServerTest, ConnectionsOfOneAddress) {
  options_.connections_per_address = 2;
  start();
  RawClient first(server_->port()), second(server_->port());
  for (RawClient* client : {&first, &second}) {
    ASSERT_TRUE(client->send(get("/echo")));
    EXPECT_EQ(client->read_response().substr(0, 12), "HTTP/1.1 200");
  }
  {
    RawClient third(server_->port());
    EXPECT_TRUE(third.read_to_end());
    EXPECT_EQ(third.received().substr(0, 12), "HTTP/1.1 429");
  }
  first.close();
  EXPECT_TRUE(eventually([this] { return server_->connections() == 1; }));
  RawClient again(server_->port());
  ASSERT_TRUE(again.send(get("/echo")));
  EXPECT_EQ(again.read_response().substr(0, 12), "HTTP/1.1 200");
}

TEST_F(HttpServerTest, SlowHeadersAreCutOff) {
  options_.header_timeout = milliseconds(50);
  start();
  RawClient client(server_->port());
  ASSERT_TRUE(client.send("GET /echo HTTP/1.1\r\nX-Na"));
  EXPECT_TRUE(client.read_to_end());
  EXPECT_EQ(client.received().substr(0, 12), "HTTP/1.1 408");
}

TEST_F(HttpServerTest, SlowBodiesAreCutOff) {
  options_.body_timeout = milliseconds(50);
  start();
  RawClient client(server_->port());
  ASSERT_TRUE(client.send("POST /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc"));
  EXPECT_TRUE(client.read_to_end());
  EXPECT_EQ(client.received().substr(0, 12), "HTTP/1.1 408");
}

TEST_F(HttpServerTest, IdleConnectionsAreClosedQuietly) {
  options_.idle_timeout = milliseconds(50);
  start();
  RawClient client(server_->port());
  EXPECT_TRUE(client.read_to_end());
  EXPECT_EQ(client.received(), "");
  EXPECT_TRUE(eventually([this] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, StreamsArriveAsTheyArePushed) {
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

TEST_F(HttpServerTest, PushesFromManyThreadsKeepTheirOrder) {
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

TEST_F(HttpServerTest, DepartureIsSeenWhileWaiting) {
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

TEST_F(HttpServerTest, DepartureIsSeenBehindManyPipelinedBytes) {
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

TEST_F(HttpServerTest, DepartureIsSeenWhileStreaming) {
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

TEST_F(HttpServerTest, DepartureAfterTheAnswerIsNone) {
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

TEST_F(HttpServerTest, ReadersThatDoNotReadAreCut) {
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

TEST_F(HttpServerTest, StalledWritesTimeOut) {
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

TEST_F(HttpServerTest, AnExchangeThatIsDroppedAnswers500) {
  start();
  RawClient client(server_->port());
  ASSERT_TRUE(client.send(get("/drop")));
  EXPECT_EQ(client.read_response().substr(0, 12), "HTTP/1.1 500");
}

TEST_F(HttpServerTest, TooManyConnections) {
  options_.connections = 2;
  start();
  RawClient first(server_->port()), second(server_->port());
  ASSERT_TRUE(first.send(get("/echo")));
  ASSERT_NE(first.read_response(), "");
  ASSERT_TRUE(second.send(get("/echo")));
  ASSERT_NE(second.read_response(), "");
  RawClient third(server_->port());
  third.send(get("/echo"));
  EXPECT_TRUE(third.read_to_end());
  EXPECT_EQ(third.received().substr(0, 12), "HTTP/1.1 503");
  third.close();
  first.close();
  EXPECT_TRUE(eventually([this] { return server_->connections() == 1; }));
  RawClient fourth(server_->port());
  ASSERT_TRUE(fourth.send(get("/echo")));
  EXPECT_EQ(fourth.read_response().substr(0, 12), "HTTP/1.1 200");
}

// Those that are told so are open for a while, too: few at once, so that they take few descriptors.
TEST_F(HttpServerTest, FewAreToldThatThereAreTooMany) {
  options_.connections = 1;
  start();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 40; ++i) clients.push_back(std::make_unique<RawClient>(server_->port()));
  clients.back()->read_to_end();  // all that came before it have been looked at
  EXPECT_LE(server_->connections(), 9u);
  clients.clear();
  EXPECT_TRUE(eventually([this] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, AThousandIdleConnections) {
  start();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 1000; ++i) {
    clients.push_back(std::make_unique<RawClient>(server_->port()));
    ASSERT_TRUE(clients.back()->connected()) << i;
  }
  EXPECT_TRUE(eventually([this] { return server_->connections() == 1000; }));
  for (int i = 0; i < 1000; i += 100) {
    ASSERT_TRUE(clients[static_cast<size_t>(i)]->send(post("/echo", "hi")));
    EXPECT_NE(clients[static_cast<size_t>(i)]->read_response(), "");
  }
  clients.clear();
  EXPECT_TRUE(eventually([this] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, WorkOfAnExchangeIsInOrderAndNeverBesideItself) {
  options_.threads = 4;
  start();
  RawClient client(server_->port());
  ASSERT_TRUE(client.send(get("/wait")));
  const auto exchange = handler_.next();
  std::vector<int> order;  // no lock: the work is one line
  for (int i = 0; i < 1000; ++i) exchange->post([&order, i] { order.push_back(i); });
  exchange->post([&] {
    HttpResponse response;
    response.body = std::to_string(order.size());
    exchange->send(response);
  });
  const std::string response = client.read_response();
  EXPECT_EQ(response.substr(response.size() - 4), "1000");
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i);
}

TEST_F(HttpServerTest, DrainFinishesWhatRuns) {
  start();
  RawClient idle(server_->port()), busy(server_->port());
  ASSERT_TRUE(idle.send(get("/echo")));
  ASSERT_NE(idle.read_response(), "");
  ASSERT_TRUE(busy.send(get("/wait")));
  const auto exchange = handler_.next();
  server_->drain();
  EXPECT_TRUE(idle.read_to_end());
  EXPECT_FALSE(server_->wait_idle(Clock::real().now() + milliseconds(20)));
  RawClient probe(server_->port());  // liveness is still answered
  ASSERT_TRUE(probe.send(get("/echo")));
  EXPECT_TRUE(probe.read_to_end());
  EXPECT_EQ(probe.received().substr(0, 12), "HTTP/1.1 200");
  HttpResponse response;
  response.body = "done";
  exchange->send(response);
  EXPECT_TRUE(busy.read_to_end());
  EXPECT_NE(busy.received().find("Connection: close"), std::string::npos);
  EXPECT_EQ(busy.received().substr(busy.received().size() - 4), "done");
  EXPECT_TRUE(server_->wait_idle(Clock::real().now() + std::chrono::seconds(60)));
}

TEST_F(HttpServerTest, DrainWhileConnectionsAreMade) {
  start();
  std::atomic<bool> end{false};
  std::thread drains([&] {
    while (!end) server_->drain();
  });
  for (int i = 0; i < 200; ++i) {
    RawClient client(server_->port());
    client.send(get("/echo"));
    client.read_to_end();  // answered, or closed while idle
  }
  end = true;
  drains.join();
  EXPECT_TRUE(server_->wait_idle(Clock::real().now() + std::chrono::seconds(60)));
  EXPECT_TRUE(eventually([this] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, StopCutsWhatRunsAndLateWorkIsDropped) {
  start();
  RawClient client(server_->port()), half(server_->port());
  ASSERT_TRUE(client.send(get("/wait")));
  ASSERT_TRUE(half.send("GET / HT"));
  const auto exchange = handler_.next();
  server_->stop();
  EXPECT_TRUE(client.read_to_end());
  EXPECT_TRUE(half.read_to_end());
  exchange->post([] { FAIL() << "late work ran"; });
  exchange->push("late");
  server_.reset();
  exchange->finish();  // the exchange outlives the server
}

TEST_F(HttpServerTest, AddressesThatCannotBeHad) {
  start();
  HttpOptions options;
  options.listen = server_->address();
  const auto taken = HttpServer::start(options, handler_);
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.status().code(), Code::kUnavailable);
  EXPECT_NE(taken.status().message().find(options.listen), std::string::npos);
  for (const char* bad : {"", "8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000",
                          ":8080", "300.1.1.1:0", "no such host:1"}) {
    options.listen = bad;
    const auto server = HttpServer::start(options, handler_);
    ASSERT_FALSE(server.ok()) << bad;
    EXPECT_EQ(server.status().code(), Code::kInvalidArgument) << bad;
  }
}

TEST_F(HttpServerTest, LocalhostByName) {
  options_.listen = "localhost:0";
  const auto server = HttpServer::start(options_, handler_);
  ASSERT_TRUE(server.ok()) << server.status().message();
  EXPECT_GT((*server)->port(), 0);
}

}  // namespace
}  // namespace deltad::testing
