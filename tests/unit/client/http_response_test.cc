// HTTP responses, cut everywhere, and what is none.
#include "client/http_response.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deltad::client {
namespace {

using ::testing::HasSubstr;

struct Case {
  const char* text;
  int status;
  const char* body;
  bool keep_alive;
};

TEST(HttpResponse, AnySplitGivesTheSameBody) {
  const Case cases[] = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello", true},
      {"HTTP/1.1 204 No Content\r\n\r\n", 204, "", true},
      {"HTTP/1.1 404\r\ncontent-length:0\r\nConnection: Close\r\n\r\n", 404, "", false},
      {"HTTP/1.0 200 OK\ncontent-length: 2\n\nok", 200, "ok", false},
      {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, "x",
       true},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
       "5\r\nhello\r\nA;x=y\r\n, world!!\n\r\n0\r\nTrailer: 1\r\n\r\n",
       200, "hello, world!!\n", true},
  };
  for (const Case& c : cases) {
    const std::string_view text = c.text;
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      HttpResponse response;
      std::string body;
      ASSERT_TRUE(response.push(text.substr(0, cut), &body).ok()) << cut;
      EXPECT_EQ(response.complete(), cut == text.size()) << text << cut;
      EXPECT_EQ(response.begun(), cut > 0);
      ASSERT_TRUE(response.push(text.substr(cut), &body).ok()) << cut;
      EXPECT_TRUE(response.complete());
      EXPECT_TRUE(response.closed().ok());
      EXPECT_EQ(response.status(), c.status);
      EXPECT_EQ(body, c.body);
      EXPECT_EQ(response.keep_alive(), c.keep_alive);
    }
  }
}

TEST(HttpResponse, WithoutALengthTheBodyEndsWithTheConnection) {
  HttpResponse response;
  std::string body;
  ASSERT_TRUE(response.push("HTTP/1.1 200 OK\r\n\r\nall of ", &body).ok());
  ASSERT_TRUE(response.push("it", &body).ok());
  EXPECT_FALSE(response.complete());
  ASSERT_TRUE(response.closed().ok());
  EXPECT_TRUE(response.complete());
  EXPECT_FALSE(response.keep_alive());
  EXPECT_EQ(body, "all of it");
}

TEST(HttpResponse, ClosingEarlyIsAnError) {
  for (const char* text : {"", "HTTP/1.1 2", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"}) {
    HttpResponse response;
    std::string body;
    ASSERT_TRUE(response.push(text, &body).ok()) << text;
    EXPECT_EQ(response.closed().code(), Code::kUnavailable) << text;
  }
}

TEST(HttpResponse, WhatIsNotHttpIsAnError) {
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  const std::pair<std::string, const char*> cases[] = {
      {"garbage\r\n", "a status line was expected, got \"garbage\""},
      {"HTTP/2 200 OK\r\n", "a status line"},
      {"HTTP/1.1 99 OK\r\n", "a status line"},
      {"HTTP/1.1 2x0 OK\r\n", "a status line"},
      {ok + "no colon\r\n", "a header was expected"},
      {ok + "Content-Length: -5\r\n", "Content-Length is \"-5\""},
      {ok + "Transfer-Encoding: gzip\r\n", "Transfer-Encoding is \"gzip\""},
      {ok + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "a chunk's size"},
      {ok + "Transfer-Encoding: chunked\r\n\r\n\r\n", "a chunk's size"},
      {ok + "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", "longer than its size"},
      {ok + "Content-Length: 1\r\n\r\nab", "more than its response"},
      {ok + "X: " + std::string(70000, 'x'), "64 KiB"},
  };
  for (const auto& [text, why] : cases) {
    HttpResponse response;
    std::string body;
    EXPECT_THAT(response.push(text, &body).message(), HasSubstr(why)) << text.substr(0, 80);
  }
}

}  // namespace
}  // namespace deltad::client
