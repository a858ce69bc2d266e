// Generator: sends a workload to a server and records every answer. One thread, one epoll: open
// loop, each request is sent at its time however slow the server is (as many connections as that
// takes); closed loop, a fixed number of requests is always under way.
#pragma once

#include <simdjson.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "client/connect.h"
#include "loadgen/exchange.h"
#include "loadgen/request_writer.h"
#include "loadgen/summary.h"
#include "loadgen/workload.h"

namespace deltad::loadgen {

struct GeneratorOptions {
  int64_t concurrency = 0;  // requests under way in a closed loop; 0: open loop
  double duration = 0;      // seconds in which requests are sent; 0: until the workload ends
  double timeout = 600;     // seconds from a request's sending to its answer's end
};

struct GeneratorState {
  double elapsed = 0;  // seconds since the start; at the end: to the end of the last answer
  int64_t sent = 0;
  size_t in_flight = 0, most_in_flight = 0;
  double cpu_seconds = 0;  // of this thread
  bool stopped = false;    // by the stop flag; what was in flight is then not recorded
};

class Connection;

class Generator {
 public:
  using OnProgress = std::function<void(const GeneratorState&)>;

  static Result<std::unique_ptr<Generator>> make(const client::SocketAddress& address,
                                                 GeneratorOptions options);
  ~Generator();

  // Until every answer has ended. stop ends it early and may be set by a signal handler.
  // on_progress, if set, is called several times a second.
  Result<GeneratorState> run(Workload& workload, RequestWriter& writer, Summary* summary,
                             const std::atomic<bool>& stop, const OnProgress& on_progress);

 private:
  Generator(const client::SocketAddress& address, GeneratorOptions options, int epoll, int timer);

  bool due(TimePoint now) const;
  void plan_next(Workload& workload, TimePoint now);
  void start(RequestWriter& writer, TimePoint now);
  void begin(std::string request, uint64_t number, Exchange exchange, bool fresh, TimePoint now);
  void expire(TimePoint now);
  void arm(TimePoint now, TimePoint next);
  void handle(Connection* connection, uint32_t events, TimePoint now);
  bool write(Connection* connection);  // false: the connection is broken
  void read(Connection* connection, TimePoint now);
  void broken(Connection* connection, const std::string& why, TimePoint now);
  void ended(Connection* connection);
  void close(Connection* connection);

  const client::SocketAddress address_;
  const GeneratorOptions options_;
  const int epoll_, timer_;
  simdjson::dom::parser parser_;
  std::vector<char> buffer_;
  TimePoint start_, last_end_;
  Summary* summary_ = nullptr;
  std::optional<PlannedRequest> planned_;
  std::map<Connection*, std::unique_ptr<Connection>> connections_;
  std::map<uint64_t, Connection*> busy_;  // by the request's number, so the oldest comes first
  std::vector<Connection*> idle_;
  GeneratorState state_;
};

}  // namespace deltad::loadgen
