// RequestRecord: what is measured of one request, whatever its protocol. It begins when the request
// has been received and ends once, when its answer is complete or nobody wants it any more: then it
// is counted, gets its log line and, if its trace is kept, its spans. Holds nothing of what was
// asked or answered. Belongs to the request's line of work; made by the Observer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "engine/request.h"
#include "server/metrics.h"
#include "server/observe/trace_context.h"

namespace deltad {

class Observer;

constexpr int kClientGone = 499;  // the code of a request whose client left
constexpr const char* kModelNotFound = "model_not_found";  // the error of one for no model

class RequestRecord {
 public:
  // trace: of its own span; none: its trace is not kept. parent: the caller's span, or zero.
  RequestRecord(Observer& observer, Route route, std::string id, TimePoint received,
                std::optional<TraceContext> trace = {}, SpanId parent = {});
  RequestRecord(const RequestRecord&) = delete;
  ~RequestRecord();  // ends it with a 500 if nobody has

  // Set by whoever answers, as it becomes known.
  std::string model;   // as the client may call it: known to exist, or short enough for a line
  std::string caller;  // name of the key that it came with, never the key
  std::string finish;  // why its sequences ended: stop, length, error, cancelled
  std::string error;   // what went wrong; never what the client sent
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;

  // Of its sequences: a token came, and the one before it came at `last` (zero: it is the first);
  // one has ended. variant: "" is the base.
  void token(const std::string& variant, TimePoint last, TimePoint at);
  void sequence_ended(const std::string& variant, const TokenEvent& event, bool had_token);

  // code: the HTTP status, or gRPC's code (0 to 16). Once; later calls do nothing.
  void end(int code);
  bool ended() const { return ended_; }

  const std::string& id() const { return id_; }
  Route route() const { return route_; }
  TimePoint received() const { return received_; }
  ServerMetrics& metrics() const;

 private:
  // Of the sequence that came first; zero: none did.
  struct Times {
    TimePoint parked{}, unparked{}, admitted{}, first_token{};
  };

  double since_received(TimePoint at) const;  // in seconds; −1: never
  void write_line(int code) const;
  void export_spans(int code) const;

  Observer& observer_;
  const Route route_;
  const std::string id_;
  const TimePoint received_;
  const std::optional<TraceContext> trace_;
  const SpanId parent_;
  Times times_;
  TimePoint ended_at_{};
  bool ended_ = false;
};

}  // namespace deltad
