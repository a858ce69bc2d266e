// Connections to a server over TCP. Everything blocks, at most about its timeout. Any thread.
#pragma once

#include <sys/socket.h>

#include <string_view>
#include <utility>

#include "base/status.h"
#include "client/server_url.h"

namespace deltad::client {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};
// Looks the host up and tries its addresses in turn: the first at which somebody listens.
Result<SocketAddress> find_server(const ServerUrl& url, double timeout_s);

// A socket; closed with this.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();
  int fd() const { return fd_; }

 private:
  int fd_;
};
// The timeout holds for each read and write, too.
Result<Socket> connect_to(const ServerUrl& url, const SocketAddress& address, double timeout_s);

Status send_all(const Socket& socket, const ServerUrl& url, std::string_view bytes);

// "HOST:PORT: what: the system's error".
Status socket_error(const ServerUrl& url, std::string_view what);

}  // namespace deltad::client
