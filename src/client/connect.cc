#include "client/connect.h"

#include <fmt/core.h>
#include <netdb.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <system_error>

namespace deltad::client {

namespace {

// "HOST:PORT: what: the system's error".
Status socket_error(const ServerUrl& url, std::string_view what) {
  // EINPROGRESS: connect's word for it.
  const bool late = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINPROGRESS;
  return unavailable(fmt::format("{}: {}: {}", url.host_header(), what,
                                 late ? "the time is up" : std::generic_category().message(errno)));
}

// Lets the next call block no longer than the deadline: the kernel counts each call's time anew.
Status bound(const Socket& socket, const ServerUrl& url, std::string_view what, int option) {
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(socket.deadline() -
                                                                          Clock::real().now());
  if (left.count() <= 0) {
    errno = EAGAIN;
    return socket_error(url, what);
  }
  timeval limit{};
  limit.tv_sec = left.count() / 1'000'000;
  limit.tv_usec = left.count() % 1'000'000;
  if (::setsockopt(socket.fd(), SOL_SOCKET, option, &limit, sizeof(limit)) != 0)
    return socket_error(url, what);
  return {};
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

Result<Socket> connect_to(const ServerUrl& url, const SocketAddress& address, TimePoint deadline) {
  Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), deadline);
  if (socket.fd() < 0) return socket_error(url, "no socket");
  RETURN_IF_ERROR(bound(socket, url, "cannot connect", SO_SNDTIMEO));
  const auto* where = reinterpret_cast<const sockaddr*>(&address.storage);
  if (::connect(socket.fd(), where, address.size) != 0) return socket_error(url, "cannot connect");
  return socket;
}

Status send_all(const Socket& socket, const ServerUrl& url, std::string_view bytes) {
  while (!bytes.empty()) {
    RETURN_IF_ERROR(bound(socket, url, "cannot send", SO_SNDTIMEO));
    const ssize_t n = ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return socket_error(url, "cannot send");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Result<size_t> receive(const Socket& socket, const ServerUrl& url, std::string_view what,
                       char* buffer, size_t size) {
  for (;;) {
    RETURN_IF_ERROR(bound(socket, url, what, SO_RCVTIMEO));
    const ssize_t n = ::recv(socket.fd(), buffer, size, 0);
    if (n >= 0) return static_cast<size_t>(n);
    if (errno != EINTR) return socket_error(url, what);
  }
}

Result<SocketAddress> find_server(const ServerUrl& url, double timeout_s) {
  const TimePoint deadline = Clock::real().now() + from_seconds(timeout_s);
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
    status = connect_to(url, address, deadline).status();
    if (status.ok()) return address;
  }
  return status;
}

}  // namespace deltad::client
