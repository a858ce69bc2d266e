#include "deltad/service_notifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::testing::StartsWith;

// systemd's end of the socket.
class Receiver {
 public:
  explicit Receiver(const std::string& name) : fd_(socket(AF_UNIX, SOCK_DGRAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name.front() == '@') address.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), size), 0);
  }
  ~Receiver() { close(fd_); }
  std::string next() const {  // "": nothing has come
    char buffer[512];
    const ssize_t n = recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT);
    return n < 0 ? "" : std::string(buffer, static_cast<size_t>(n));
  }

 private:
  const int fd_;
};

TEST(ServiceNotifier, TellsOfEachStep) {
  const testing::TempFolder folder;
  for (const std::string& name :
       {folder.path() + "/notify", "@deltad-test-" + std::to_string(getpid())}) {
    const Receiver receiver(name);
    const ServiceNotifier notifier(name, "");
    notifier.ready("serving");
    EXPECT_EQ(receiver.next(), "READY=1\nSTATUS=serving");
    notifier.reloading();
    EXPECT_THAT(receiver.next(), StartsWith("RELOADING=1\nMONOTONIC_USEC="));
    notifier.stopping("draining");
    EXPECT_EQ(receiver.next(), "STOPPING=1\nSTATUS=draining");
    notifier.watchdog();
    EXPECT_EQ(receiver.next(), "WATCHDOG=1");
    EXPECT_FALSE(notifier.watchdog_interval());
  }
}

TEST(ServiceNotifier, TheWatchdogIsFedTwiceInItsTime) {
  const testing::TempFolder folder;
  const Receiver receiver(folder.path() + "/notify");
  const auto interval = [&](const std::string& usec) {
    return ServiceNotifier(folder.path() + "/notify", usec).watchdog_interval();
  };
  EXPECT_EQ(interval("30000000"), Duration(std::chrono::seconds(15)));
  for (const char* wrong : {"", "0", "-3", "3x", "99999999999999999999"})
    EXPECT_FALSE(interval(wrong)) << wrong;
}

TEST(ServiceNotifier, WithoutSystemdItSaysNothing) {
  for (const std::string& name : {std::string(), std::string("relative"), std::string(200, '/'),
                                  std::string("/nowhere/notify")}) {
    const ServiceNotifier notifier(name, "1000000");
    notifier.ready("serving");
    EXPECT_FALSE(notifier.watchdog_interval());
  }
}

}  // namespace
}  // namespace deltad
