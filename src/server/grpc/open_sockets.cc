#include "server/grpc/open_sockets.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <utility>

namespace deltad {
namespace {

// To look which are open takes a call of the system for each: not for each one that is refused.
constexpr Duration kLookAgain = std::chrono::milliseconds(50);

// Without the port. "": not known.
std::string address_of(int descriptor) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return "";
  if (peer.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(peer).sin_addr;
    return std::string(reinterpret_cast<const char*>(&v4), sizeof v4);
  }
  if (peer.ss_family != AF_INET6) return "";
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
  return std::string(reinterpret_cast<const char*>(&v6), sizeof v6);
}

}  // namespace

bool OpenSockets::add(int descriptor, TimePoint now) {
  struct stat file {};
  if (fstat(descriptor, &file) != 0) return false;
  // It has this number, so the one that had it is closed.
  if (const auto old = open_.find(descriptor); old != open_.end()) forget(old);
  std::string address = bounds_.per_address > 0 ? address_of(descriptor) : "";
  if (!room(address) && now >= next_look_) {
    forget_closed();
    if (!room(address)) next_look_ = now + kLookAgain;
  }
  if (!room(address)) return false;
  if (bounds_.per_address > 0) ++by_address_[address];
  open_.emplace(descriptor, Socket{file.st_dev, file.st_ino, std::move(address)});
  return true;
}

bool OpenSockets::room(const std::string& address) const {
  if (open_.size() >= bounds_.total) return false;
  if (bounds_.per_address == 0) return true;
  const auto found = by_address_.find(address);
  return found == by_address_.end() || found->second < bounds_.per_address;
}

void OpenSockets::forget_closed() {
  for (auto it = open_.begin(); it != open_.end();) {
    const auto socket = it++;
    struct stat file {};
    if (fstat(socket->first, &file) != 0 || file.st_dev != socket->second.device ||
        file.st_ino != socket->second.inode)
      forget(socket);
  }
}

void OpenSockets::forget(std::unordered_map<int, Socket>::iterator socket) {
  if (const auto count = by_address_.find(socket->second.address);
      count != by_address_.end() && --count->second == 0)
    by_address_.erase(count);
  open_.erase(socket);
}

}  // namespace deltad
