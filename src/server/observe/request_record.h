// RequestRecord: what is measured of one request, whatever its protocol. It begins when the request
// has been received and ends once, when its answer is complete or nobody wants it any more: then it
// is counted and gets its log line. Holds nothing of what was asked or answered. Belongs to the
// request's line of work; made by the Observer.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "server/metrics.h"

namespace deltad {

class Observer;

constexpr int kClientGone = 499;  // the code of a request whose client left

class RequestRecord {
 public:
  RequestRecord(Observer& observer, Route route, std::string id, TimePoint received);
  RequestRecord(const RequestRecord&) = delete;
  ~RequestRecord();  // ends it with a 500 if nobody has

  // Set by whoever answers, as it becomes known.
  std::string model;   // as the client may call it: known to exist, or short enough for a line
  std::string caller;  // name of the key that it came with, never the key
  std::string finish;  // why its sequences ended: stop, length, error, cancelled
  std::string error;   // what went wrong; never what the client sent
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  double queue = -1, first_token = -1;  // seconds since received; negative: it never got there

  // code: the HTTP status, or gRPC's code (0 to 16). Once; later calls do nothing.
  void end(int code);
  bool ended() const { return ended_; }

  const std::string& id() const { return id_; }
  Route route() const { return route_; }
  TimePoint received() const { return received_; }
  ServerMetrics& metrics() const;

 private:
  void write_line(int code) const;

  Observer& observer_;
  const Route route_;
  const std::string id_;
  const TimePoint received_;
  bool ended_ = false;
};

}  // namespace deltad
