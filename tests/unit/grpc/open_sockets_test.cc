// Sockets are counted until they are closed, although nobody says when.
#include "server/grpc/open_sockets.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

namespace deltad::testing {
namespace {

constexpr TimePoint kStart{};
constexpr Duration kLater = std::chrono::seconds(1);

// Each is of the one "address" that sockets of the system's own kind have.
int make_socket() {
  const int made = socket(AF_UNIX, SOCK_STREAM, 0);
  EXPECT_GE(made, 0);
  return made;
}

TEST(OpenSockets, TheBoundHoldsUntilOneIsClosed) {
  OpenSockets open({2, 0});
  std::vector<int> sockets;
  for (int i = 0; i < 4; ++i) sockets.push_back(make_socket());
  EXPECT_TRUE(open.add(sockets[0], kStart));
  EXPECT_TRUE(open.add(sockets[1], kStart));
  EXPECT_FALSE(open.add(sockets[2], kStart));
  close(sockets[0]);
  EXPECT_FALSE(open.add(sockets[2], kStart));  // it does not look for each that comes
  EXPECT_TRUE(open.add(sockets[2], kStart + kLater));
  EXPECT_FALSE(open.add(sockets[3], kStart + kLater));
  for (int i = 1; i < 4; ++i) close(sockets[i]);
}

TEST(OpenSockets, ANumberThatIsUsedAgainCountsOnce) {
  OpenSockets open({1, 0});
  const int first = make_socket();
  EXPECT_TRUE(open.add(first, kStart));
  close(first);
  const int again = make_socket();
  ASSERT_EQ(again, first);
  EXPECT_TRUE(open.add(again, kStart));
  close(again);
  const int file = dup(0);  // the number is that of something else
  ASSERT_EQ(file, first);
  const int third = make_socket();
  EXPECT_TRUE(open.add(third, kStart + kLater));
  close(file);
  close(third);
}

TEST(OpenSockets, AnAddressHasItsOwnBound) {
  OpenSockets open({10, 1});
  const int first = make_socket(), second = make_socket();
  EXPECT_TRUE(open.add(first, kStart));
  EXPECT_FALSE(open.add(second, kStart));
  close(first);
  EXPECT_TRUE(open.add(second, kStart + kLater));
  close(second);
}

}  // namespace
}  // namespace deltad::testing
