// The standard cases of request smuggling, as heads and over a connection.
#include "server/http/head_check.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace deltad::testing {
namespace {

std::string head(const std::string& headers, const std::string& line = "POST / HTTP/1.1") {
  return line + "\r\nHost: x\r\n" + headers + "\r\n";
}

TEST(HeadCheck, TakesWhatClientsSend) {
  for (const std::string& good :
       {head(""), head("Content-Length: 5\r\n"), head("Transfer-Encoding: chunked\r\n"),
        head("transfer-encoding:  Chunked \r\n"), head("X-Empty:\r\nX-Tab: a\tb\r\n"),
        head("Content-Length:5\r\n"), head("", "GET /a%20b?q=1#x HTTP/1.0"),
        head("X-Utf8: \xC3\xA9\r\n"), head("", "OPTIONS * HTTP/1.1")}) {
    EXPECT_EQ(head_error(good), nullptr) << good;
    EXPECT_EQ(early_error(good, 0), nullptr) << good;
  }
}

TEST(HeadCheck, RefusesWhatTwoServersMayReadDifferently) {
  for (const std::string& bad :
       {head("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        head("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
        head("Content-Length: 5\r\nContent-Length: 5\r\n"),
        head("Content-Length: 5\r\nContent-Length: 6\r\n"),
        head("Content-Length: 5, 5\r\n"),
        head("Content-Length: +5\r\n"),
        head("Content-Length: -5\r\n"),
        head("Content-Length: 0x5\r\n"),
        head("Content-Length: 5 5\r\n"),
        head("Content-Length:\r\n"),
        head("Content-Length : 5\r\n"),
        head("Transfer-Encoding: xchunked\r\n"),
        head("Transfer-Encoding: chunked, identity\r\n"),
        head("Transfer-Encoding: identity\r\n"),
        head("Transfer-Encoding: gzip, chunked\r\n"),
        head("Transfer-Encoding: chunked, chunked\r\n"),
        head("Transfer-Encoding : chunked\r\n"),
        head("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
        head("Transfer-Encoding: \x0b"
             "chunked\r\n"),
        head("Transfer-Encoding:\r\n chunked\r\n"),
        head(" Transfer-Encoding: chunked\r\n"),
        head("X: a\r\n b\r\n"),
        head("X: a\r\n\tb\r\n"),
        head("X: a\nContent-Length: 5\r\n"),
        head("X: a\rContent-Length: 5\r\n"),
        head("X: a\r\r\n"),
        head("no colon\r\n"),
        head(": no name\r\n"),
        head("X\xC3: a\r\n"),
        head("Host: y\r\n"),
        head("Transfer-Encoding: chunked\r\n", "POST / HTTP/1.0"),
        head("", "GET  / HTTP/1.1"),
        head("", "GET / a HTTP/1.1"),
        head("", "GET /\tHTTP/1.1"),
        head("", "GET / HTTP/2.0"),
        head("", "GET / http/1.1"),
        head("", "GET /"),
        head("", "G@T(/ HTTP/1.1"),
        head("", " GET / HTTP/1.1"),
        std::string("GET / HTTP/1.1\nHost: x\n\r\n\r\n"),
        head("X: a" + std::string(1, '\0') + "\r\n")}) {
    EXPECT_NE(head_error(bad), nullptr) << bad;
  }
}

TEST(HeadCheck, BareLineFeedsAreSeenBeforeTheHeadIsWhole) {
  EXPECT_NE(early_error("GET / HTTP/1.1\nHost", 0), nullptr);
  EXPECT_EQ(early_error("GET / HTTP/1.1\r\nHost", 0), nullptr);
  EXPECT_NE(early_error("GET /\r\n\n", 7), nullptr);
  EXPECT_EQ(early_error("GET /\r\nX", 6), nullptr);    // the two bytes of a line's end came apart
  EXPECT_NE(early_error("\x16\x03\x01", 0), nullptr);  // TLS to a listener without
}

}  // namespace
}  // namespace deltad::testing
