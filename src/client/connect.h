// Connections to a server over TCP. Everything blocks, at most until its time is up. Any thread.
#pragma once

#include <sys/socket.h>

#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "client/server_url.h"

namespace deltad::client {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};
// Looks the host up and tries its addresses in turn: the first at which somebody listens. The time
// is that of all addresses together; how long the look-up takes is the system's.
Result<SocketAddress> find_server(const ServerUrl& url, double timeout_s);

// A socket; closed with this. All that is done with it ends at its deadline.
class Socket {
 public:
  Socket(int fd, TimePoint deadline) : fd_(fd), deadline_(deadline) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)), deadline_(other.deadline_) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(deadline_, other.deadline_);
    return *this;
  }
  ~Socket();
  int fd() const { return fd_; }
  TimePoint deadline() const { return deadline_; }

 private:
  int fd_;
  TimePoint deadline_;
};
Result<Socket> connect_to(const ServerUrl& url, const SocketAddress& address, TimePoint deadline);

Status send_all(const Socket& socket, const ServerUrl& url, std::string_view bytes);

// At most `size` bytes; 0: the server has closed the connection. `what` has gone wrong if it fails.
Result<size_t> receive(const Socket& socket, const ServerUrl& url, std::string_view what,
                       char* buffer, size_t size);

}  // namespace deltad::client
