#include "client/connect.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

namespace deltad::client {

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

Status socket_error(const ServerUrl& url, std::string_view what) {
  return unavailable(
      fmt::format("{}: {}: {}", url.host_header(), what, std::generic_category().message(errno)));
}

Result<Socket> connect_to(const ServerUrl& url, const SocketAddress& address, double timeout_s) {
  Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.fd() < 0) return socket_error(url, "no socket");
  timeval limit{};
  limit.tv_sec = std::max<time_t>(1, static_cast<time_t>(timeout_s));
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));  // connect's, too
  const auto* where = reinterpret_cast<const sockaddr*>(&address.storage);
  if (::connect(socket.fd(), where, address.size) != 0) return socket_error(url, "cannot connect");
  return socket;
}

Status send_all(const Socket& socket, const ServerUrl& url, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return socket_error(url, "cannot send");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Result<SocketAddress> find_server(const ServerUrl& url, double timeout_s) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found);
  if (error != 0) {
    return not_found(fmt::format("cannot look up {}: {}", url.host, ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  Status status;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.size = entry->ai_addrlen;
    status = connect_to(url, address, timeout_s).status();
    if (status.ok()) return address;
  }
  return status;
}

}  // namespace deltad::client
