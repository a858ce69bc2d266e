// Connections of the HTTP layer over loopback: kept, counted, timed out, drained and stopped.
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
