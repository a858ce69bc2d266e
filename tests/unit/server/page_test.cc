// The admin page: its files, whose requests are answered, and the state that it shows.
#include "server/admin/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/admin/routes.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;

bool own(const std::string& origin, const std::string& host, bool has_keys) {
  HttpRequest request;
  request.headers = {{"host", host}, {"origin", origin}};
  return from_own_page(request, has_keys);
}

TEST(AdminPage, EveryRouteOfItHasAFileThatNeedsNothingFromElsewhere) {
  size_t files = 0;
  for (const KnownAdminRoute& route : known_admin_routes()) {
    if (route.action != AdminAction::kPage) continue;
    ++files;
    const AdminPageFile* file = find_admin_page_file(route.path);
    ASSERT_NE(file, nullptr) << route.path;
    EXPECT_GT(file->content.size(), 1000u);
    EXPECT_EQ(file->content.find("://"), file->content.find("://www.w3.org/2000/svg"))
        << route.path;
    const HttpResponse response = admin_page_response(*file);
    EXPECT_EQ(response.body, file->content);
    std::string policy;
    for (const auto& [name, value] : response.headers)
      if (name == "Content-Security-Policy") policy = value;
    EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  }
  EXPECT_EQ(files, 3u);
  EXPECT_EQ(find_admin_page_file("/page/other.js"), nullptr);
}

TEST(AdminPage, OnlyItsOwnRequestsAreAnswered) {
  EXPECT_TRUE(own("http://127.0.0.1:8081", "127.0.0.1:8081", false));
  EXPECT_TRUE(own("http://[::1]:8081", "[::1]:8081", false));
  EXPECT_TRUE(own("https://localhost:8081", "localhost:8081", false));
  EXPECT_FALSE(own("https://elsewhere", "127.0.0.1:8081", true));
  EXPECT_FALSE(own("http://127.0.0.1:8080", "127.0.0.1:8081", true));
  EXPECT_FALSE(own("null", "127.0.0.1:8081", true));
  EXPECT_FALSE(own("http://", "", true));
  // A name that leads here may be anybody's: only a key tells.
  EXPECT_FALSE(own("http://node.example:8081", "node.example:8081", false));
  EXPECT_TRUE(own("http://node.example:8081", "node.example:8081", true));
}

}  // namespace
}  // namespace deltad
