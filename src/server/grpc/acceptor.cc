#include "server/grpc/acceptor.h"

#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

namespace deltad {
namespace {

constexpr int kBacklog = 4096;
constexpr int kPause = 100;  // milliseconds, when no descriptors are left

// A listening socket; an error's text if there is none.
Result<int> open_listener(const addrinfo& at) {
  const int made =
      socket(at.ai_family, at.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at.ai_protocol);
  const int on = 1;
  if (made >= 0 && setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
      bind(made, at.ai_addr, at.ai_addrlen) == 0 && ::listen(made, kBacklog) == 0)
    return made;
  const std::string why = std::strerror(errno);
  if (made >= 0) close(made);
  return unavailable(why);
}

uint16_t port_of(int listening) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (getsockname(listening, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

}  // namespace

Result<std::unique_ptr<Acceptor>> Acceptor::listen(const std::string& address,
                                                   SocketBounds bounds) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
      error != 0)
    return unavailable(
        fmt::format("cannot listen on {} for gRPC: {}", address, gai_strerror(error)));
  const Result<int> listening = open_listener(*found);
  freeaddrinfo(found);
  if (!listening.ok())
    return unavailable(
        fmt::format("cannot listen on {} for gRPC: {}", address, listening.status().message()));
  return std::unique_ptr<Acceptor>(new Acceptor(*listening, port_of(*listening), bounds));
}

Acceptor::Acceptor(int listening, uint16_t port, SocketBounds bounds)
    : listening_(listening), stop_(eventfd(0, EFD_CLOEXEC)), port_(port), open_(bounds) {
  CHECK(stop_ >= 0, "an eventfd");
}

Acceptor::~Acceptor() {
  stop();
  close(stop_);
}

void Acceptor::stop() {
  if (listening_ < 0) return;
  const uint64_t one = 1;
  CHECK(write(stop_, &one, sizeof one) == sizeof one, "an eventfd takes a number");
  if (thread_.joinable()) thread_.join();
  close(std::exchange(listening_, -1));
}

void Acceptor::run(Take take) {
  thread_ = std::thread([this, take = std::move(take)] { loop(take); });
}

// False: it is to stop.
bool Acceptor::wait(int milliseconds, bool for_connections) {
  pollfd on[] = {{stop_, POLLIN, 0}, {listening_, POLLIN, 0}};
  (void)poll(on, for_connections ? 2 : 1, milliseconds);
  return on[0].revents == 0;
}

void Acceptor::loop(const Take& take) {
  bool full = false;  // said so
  while (wait(-1, true)) {
    const int made = accept4(listening_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (made < 0) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) continue;
      log_warning("a gRPC connection could not be accepted: {}", std::strerror(errno));
      if (!wait(kPause, false)) return;
      continue;
    }
    const bool room = open_.add(made, Clock::real().now());
    if (!room && !full)
      log_warning("gRPC: as many connections are open as there may be: more are closed");
    full = !room;
    if (!room) {
      close(made);
      continue;
    }
    const int on = 1;
    (void)setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    take(made);
  }
}

}  // namespace deltad
