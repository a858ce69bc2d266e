// Acceptor: listens for gRPC's connections and hands each one over as a descriptor. gRPC's own
// (1.51) bounds nothing, and stops for good once there is no descriptor left. Owned by the server;
// has a thread of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/status.h"
#include "server/grpc/open_sockets.h"

namespace deltad {

class Acceptor {
 public:
  // Takes an open socket and closes it some time. On the acceptor's thread.
  using Take = std::function<void(int descriptor)>;

  // address: host:port, [v6]:port; port 0: any free one. kUnavailable: it cannot be had.
  static Result<std::unique_ptr<Acceptor>> listen(const std::string& address, SocketBounds bounds);
  ~Acceptor();  // = stop()

  // Once. Connections wait until then.
  void run(Take take);
  // Takes no more; those that come then are refused by the system.
  void stop();

  uint16_t port() const { return port_; }

 private:
  Acceptor(int listening, uint16_t port, SocketBounds bounds);
  void loop(const Take& take);
  bool wait(int milliseconds, bool for_connections);

  int listening_;   // descriptor; -1: closed
  const int stop_;  // descriptor: readable once it is to stop
  const uint16_t port_;
  OpenSockets open_;  // of the thread
  std::thread thread_;
};

}  // namespace deltad
