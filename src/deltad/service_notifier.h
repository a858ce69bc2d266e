// ServiceNotifier: tells systemd how the service stands, as sd_notify(3) does: a datagram to the
// socket that NOTIFY_SOCKET names. Without one it says nothing. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace deltad {

class ServiceNotifier {
 public:
  // socket: a path, or @NAME of an abstract socket; "": there is none. watchdog_usec: as
  // WATCHDOG_USEC; "": no watchdog. Anything else is as if it were missing, with a warning.
  ServiceNotifier(const std::string& socket, const std::string& watchdog_usec);
  // From the environment, which is then cleared, so that no child takes it for its own.
  static ServiceNotifier from_environment();
  ServiceNotifier(ServiceNotifier&& other) noexcept;
  ServiceNotifier& operator=(ServiceNotifier&&) = delete;
  ~ServiceNotifier();

  void ready(std::string_view status) const;
  void reloading() const;  // ready() is due afterwards
  void stopping(std::string_view status) const;
  void watchdog() const;  // is alive

  // How often watchdog() is to be called at least; none: nobody listens.
  std::optional<Duration> watchdog_interval() const { return watchdog_; }

 private:
  void send(const std::string& state) const;

  int fd_ = -1;
  std::optional<Duration> watchdog_;
};

}  // namespace deltad
