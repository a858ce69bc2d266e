// Reply: the one way in which endpoints answer: adds the headers that every answer carries, and
// when the answer is complete counts it and writes the request's log line. Belongs to the line of
// work of its exchange.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/exchange.h"
#include "server/metrics.h"
#include "server/openai/errors.h"

namespace deltad {

struct RequestRecord {  // for the log line
  std::string key;      // the name of the key that it came with
  std::string model;
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  double queue = -1, first_token = -1;  // seconds; negative: it never got there
  std::string finish;
};

class Reply {
 public:
  // headers: of every answer (X-Request-Id, those of CORS).
  Reply(std::shared_ptr<Exchange> exchange, Route route, std::string request_id,
        HttpHeaders headers, TimePoint received, ServerMetrics& metrics);

  const std::shared_ptr<Exchange>& exchange() const { return exchange_; }
  const std::string& request_id() const { return request_id_; }
  TimePoint received() const { return received_; }
  ServerMetrics& metrics() const { return metrics_; }
  RequestRecord& record() { return record_; }

  void json(int status, const Json& body);
  void text(int status, std::string_view content_type, std::string body);
  void error(const ApiError& error);

  // A stream of server-sent events.
  bool streaming() const { return streaming_; }
  void begin_events();
  void event(const Json& data, std::function<void()> written = {});
  void end_events();                            // [DONE]
  void end_events_with(const ApiError& error);  // the error, [DONE], and the connection closes

  void client_gone();  // nobody reads the answer: only count and log

 private:
  void send(int status, std::string_view content_type, std::string body);
  void done(int status);

  const std::shared_ptr<Exchange> exchange_;
  const Route route_;
  const std::string request_id_;
  const HttpHeaders headers_;
  const TimePoint received_;
  ServerMetrics& metrics_;
  RequestRecord record_;
  std::string error_;
  bool streaming_ = false, done_ = false;
};

// The answer to an error outside any Reply.
HttpResponse error_response(const ApiError& error, HttpHeaders headers);

}  // namespace deltad
