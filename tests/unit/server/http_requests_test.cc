// What the HTTP layer reads over loopback: requests of every shape, and those that it refuses.
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/server/http_server_fixture.h"

namespace deltad::testing {
namespace {

using HttpRequestsTest = HttpServerTest;

TEST_F(HttpRequestsTest, OldClients) {
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

TEST_F(HttpRequestsTest, HeadersAndTarget) {
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

TEST_F(HttpRequestsTest, HeadHasNoBody) {
  start();
  RawClient client(server_->port());
  ASSERT_TRUE(client.send("HEAD /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"));
  const std::string response = client.read_response(false);
  EXPECT_NE(response.find("Content-Length: 4"), std::string::npos);
  ASSERT_TRUE(client.send(get("/echo")));
  EXPECT_EQ(client.read_response().substr(0, 12), "HTTP/1.1 200");  // nothing was in between
}

TEST_F(HttpRequestsTest, ChunkedBodies) {
  start();
  RawClient client(server_->port());
  ASSERT_TRUE(
      client.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "5\r\nHello\r\n7;ext=1\r\n, world\r\n0\r\nTrailer: x\r\n\r\n"));
  const std::string response = client.read_response();
  EXPECT_EQ(response.substr(response.find("\r\n\r\n") + 4), "Hello, world");
}

TEST_F(HttpRequestsTest, BodiesInPieces) {
  start();
  RawClient client(server_->port());
  const std::string request = post("/echo", "slowly");
  for (const char c : request) ASSERT_TRUE(client.send(std::string_view(&c, 1)));
  const std::string response = client.read_response();
  EXPECT_EQ(response.substr(response.find("\r\n\r\n") + 4), "slowly");
}

TEST_F(HttpRequestsTest, ExpectContinue) {
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

TEST_F(HttpRequestsTest, PipelinedRequestsAreAnsweredInOrder) {
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

TEST_F(HttpRequestsTest, BodyOverTheLimit) {
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

TEST_F(HttpRequestsTest, HeadersOverTheLimit) {
  options_.header_bytes = 4096;
  start();
  RawClient client(server_->port());
  client.send(get("/echo", "X: " + std::string(10'000, 'x') + "\r\n"));
  EXPECT_TRUE(client.read_to_end());
  EXPECT_EQ(client.received().substr(0, 12), "HTTP/1.1 431");
}

TEST_F(HttpRequestsTest, WhatIsNotHttp) {
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

TEST_F(HttpRequestsTest, SmugglingIsRefusedAndTheConnectionClosed) {
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

TEST_F(HttpRequestsTest, TrailersAreNoHeaders) {
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

}  // namespace
}  // namespace deltad::testing
