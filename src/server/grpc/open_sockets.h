// OpenSockets: counts sockets that were given to somebody who closes them without a word, in total
// and by address: a descriptor whose number stands for another file by now was closed. Used by one
// thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <unordered_map>

#include "base/clock.h"

namespace deltad {

struct SocketBounds {
  size_t total = 16384;
  size_t per_address = 0;  // 0: no bound
};

class OpenSockets {
 public:
  explicit OpenSockets(SocketBounds bounds) : bounds_(bounds) {}

  // Counts it; false: one too many, it is for the caller to close, and not counted.
  bool add(int descriptor, TimePoint now);

 private:
  struct Socket {
    dev_t device;
    ino_t inode;
    std::string address;
  };
  bool room(const std::string& address) const;
  void forget_closed();
  void forget(std::unordered_map<int, Socket>::iterator socket);

  const SocketBounds bounds_;
  std::unordered_map<int, Socket> open_;
  std::unordered_map<std::string, size_t> by_address_;  // only with a bound
  TimePoint next_look_{};
};

}  // namespace deltad
