#include "deltad/service_notifier.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace deltad {
namespace {

int connect_to(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if ((name.front() != '/' && name.front() != '@') || name.size() >= sizeof(address.sun_path))
    return -1;
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name.front() == '@') address.sun_path[0] = '\0';
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0) return fd;
  close(fd);
  return -1;
}

int64_t monotonic_usec() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000000 + now.tv_nsec / 1000;
}

std::string taken_from_environment(const char* name) {
  const char* value = std::getenv(name);
  std::string out = value == nullptr ? "" : value;
  unsetenv(name);
  return out;
}

}  // namespace

ServiceNotifier::ServiceNotifier(const std::string& socket, const std::string& watchdog_usec) {
  if (socket.empty()) return;
  fd_ = connect_to(socket);
  if (fd_ < 0) {
    log_warning("NOTIFY_SOCKET {} cannot be reached: systemd will not hear of this service",
                socket);
    return;
  }
  if (watchdog_usec.empty()) return;
  int64_t usec = 0;
  const char* end = watchdog_usec.data() + watchdog_usec.size();
  const auto [last, error] = std::from_chars(watchdog_usec.data(), end, usec);
  if (error == std::errc() && last == end && usec > 0)
    watchdog_ = std::chrono::microseconds(usec / 2);  // as sd_watchdog_enabled(3) advises
  else
    log_warning("WATCHDOG_USEC is '{}': expected a number above 0", watchdog_usec);
}

ServiceNotifier ServiceNotifier::from_environment() {
  const std::string socket = taken_from_environment("NOTIFY_SOCKET");
  std::string usec = taken_from_environment("WATCHDOG_USEC");
  // The watchdog may be meant for another process of the unit.
  const std::string pid = taken_from_environment("WATCHDOG_PID");
  if (!pid.empty() && pid != std::to_string(getpid())) usec.clear();
  return ServiceNotifier(socket, usec);
}

ServiceNotifier::ServiceNotifier(ServiceNotifier&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), watchdog_(other.watchdog_) {}

ServiceNotifier::~ServiceNotifier() {
  if (fd_ >= 0) close(fd_);
}

void ServiceNotifier::ready(std::string_view status) const {
  send(fmt::format("READY=1\nSTATUS={}", status));
}

void ServiceNotifier::reloading() const {
  send(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", monotonic_usec()));
}

void ServiceNotifier::stopping(std::string_view status) const {
  send(fmt::format("STOPPING=1\nSTATUS={}", status));
}

void ServiceNotifier::watchdog() const { send("WATCHDOG=1"); }

// What cannot be sent is lost: systemd then acts as it does on a service that says nothing.
void ServiceNotifier::send(const std::string& state) const {
  if (fd_ >= 0) (void)::send(fd_, state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace deltad
