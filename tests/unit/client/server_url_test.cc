// Where a server is, as text.
#include "client/server_url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deltad::client {
namespace {

using ::testing::HasSubstr;

TEST(ServerUrl, IsTakenApart) {
  const ServerUrl url = *parse_url("http://127.0.0.1:8080");
  EXPECT_EQ(url.host_header(), "127.0.0.1:8080");
  EXPECT_EQ(url.prefix, "");
  EXPECT_EQ(parse_url("http://h")->port, "80");
  EXPECT_EQ(parse_url("http://h:1/")->prefix, "");
  EXPECT_EQ(parse_url("http://h:1/v1/")->prefix, "");
  EXPECT_EQ(parse_url("http://h:1/a/b/v1")->prefix, "/a/b");
  EXPECT_EQ(parse_url("http://[::1]:8")->host, "::1");
  EXPECT_EQ(parse_url("http://[::1]:8")->host_header(), "[::1]:8");
  EXPECT_FALSE(parse_url("http://h")->tls);
  EXPECT_TRUE(parse_url("https://h")->tls);
  EXPECT_EQ(parse_url("https://h")->port, "443");
  EXPECT_EQ(parse_url("https://h:1/v1")->port, "1");
  for (const char* bad :
       {"", "h:80", "ftp://h", "https://", "http://", "http://:80", "http://h:", "http://h:x",
        "http://h:65536", "http://[::1", "http://[::1]8", "http://h/?a"}) {
    const Status status = parse_url(bad).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << bad;
    EXPECT_THAT(status.message(), HasSubstr("http[s]://HOST:PORT was expected")) << bad;
  }
}

}  // namespace
}  // namespace deltad::client
